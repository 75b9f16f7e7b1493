"""Which messages may answer to a plan: from the word index, the trigram index, or a scan.

A route never decides. It names message ids, the newest first, among which every answer is
(store/query.py tests each against its text), so that all routes lead to one answer.

What the indexes cannot tell, and where the answer comes from instead (store-facts 1.6, 3.1):

* the word index takes `请检查nginx服务` for one word; the trigram index has every substring,
  so a word is looked for there as well;
* both see JSON behind the NUL marker and in tool_calls as it is stored: `磁` is `\\u78c1`,
  a line break before a word is an `n` at its front. The word index is asked for those forms;
* the trigram index of newer layouts leaves out tool rows, cron and subagent sessions and
  tool_calls, and rows behind the NUL marker before SQLite 3.48; both cut long tool rows. Those
  rows are scanned;
* one or two letters are a range of trigrams; where the last letters of a text have none (its
  index is not inline), a scan.
"""

import heapq
import re
import sqlite3
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, product, zip_longest
from typing import Any

from hermes_tools.store import schema
from hermes_tools.store.db import Database, code
from hermes_tools.store.query import FOLD, MARKS, WORDISH, And, Node, Or, Term, terms

# (id, True) names a message; (id, False) says that no id above it is to come any more, so that a
# scan that finds nothing does not hold up the others.
Step = tuple[int, bool]
Steps = Iterator[Step]

MAPPED = 1 << 32  # a scan reads pages in place: half the time
WINDOW = 4000  # rows of one step of a scan: it can be interrupted there, and stopped early
FEW = 500  # ids that are sooner tested one by one than intersected; no fewer than JUDGED
MANY = 3000  # messages with a word's letters, above which its neighbours are looked at first
LETTERS = 300  # letters of other scripts in a store, above which they are not gone through
FREQUENT = 20_000  # places of a short term, above which a scan finds enough at once
PHRASES = 8000  # alternatives of three letters in one question to the trigram index
LONG = 60  # letters of a term that the trigram index is asked for
CUT = 8192  # characters of a tool row that newer layouts index
# A line break, tab … in JSON text is a letter at the front of the next word.
ESCAPED = "ntrbf"

# White space between the words of a phrase whose ends touch another script.
GAPS = (" ", "\n", "\t", "  ", "\n\n", "\r\n")
# Blocks of marks that end a word for the word index (all older than its Unicode 6.1).
SEPARATORS = (("\u2000", "\u2064"), ("\u2190", "\u23f3"), ("\u2500", "\u26ff"),
              ("\u3000", "\u3004"))  # fmt: skip
JUDGED = 300  # messages with a word, above which a search ends before it has seen all

Condition = tuple[str, tuple[Any, ...]]


class Unusable(Exception):
    """An index that cannot be asked; its text says why."""


class Routes:
    """The ways into one store's messages. `why` is None, or the reason that there is only a scan.

    roles: those asked for; rows of others need not be named.
    """

    def __init__(self, db: Database, roles: Iterable[str] = (), *, scan: str | None = None) -> None:
        self.db = db
        self.roles = frozenset(roles)
        self.why = scan or unusable(db)
        self._sentinels: list[int] | None = None
        self._accents: list[str] | None = None
        self._marked: frozenset[str] | None = None
        if self.why is None:
            self._learn()

    def _learn(self) -> None:
        """What the indexes of this store hold, from the triggers and views that fill them."""
        have = self.db.schema
        self.inline = have.inline
        words, trigram = filling(self.db, schema.WORDS), filling(self.db, schema.TRIGRAM)
        self.trigram_has_calls = "tool_calls" in trigram
        self.trigram_lacks_tools = "'tool'" in trigram.replace('"', "'")
        self.trigram_lacks_cron = "cron" in trigram
        self.cut = str(CUT) in words or str(CUT) in trigram
        self.pending = pending(have.meta)

    def wants(self, role: str) -> bool:
        """Whether rows of a role are asked for."""
        return not self.roles or role in self.roles

    def newest_first(self, node: Node) -> Iterator[int]:
        """Ids of all messages that may answer to a plan, each once, the newest first.

        Raises Unusable when an index turns out to be damaged on the way.
        """
        # No parameter can hold bytes that are no UTF-8; such a term is looked for in the rows.
        if self.why is not None or any(unpaired(term.text) for term in terms(node)):
            steps = self._scan(prefilter(node))
        else:
            index, rest = self._routes(node)
            steps = heapq.merge(index or iter(()), *rest, *self._pending(), reverse=True)
        last = None
        for id_, real in steps:
            if real and id_ != last:
                last = id_
                yield id_

    def _routes(self, node: Node) -> tuple[Steps | None, list[Steps]]:
        """(ids from an index, None where none can tell; ids that it may lack)."""
        if isinstance(node, Term):
            return self._word(node) if node.word else self._substring(node)
        if isinstance(node, And) and all(isinstance(one, Term) and one.word for one in node.wanted):
            return self._words([one for one in node.wanted if isinstance(one, Term)])
        parts = [self._routes(one) for one in (node.any if isinstance(node, Or) else node.wanted)]
        known = [(index, rest) for index, rest in parts if index is not None]
        if isinstance(node, Or):
            every = [steps for _, rest in parts for steps in rest]
            return heapq.merge(*(index for index, _ in known), reverse=True), every
        if not known:
            return None, [self._scan(prefilter(node))]
        heads = [list(islice(index, FEW + 1)) for index, _ in known]
        small = min(range(len(known)), key=lambda number: len(heads[number]))
        if len(heads[small]) <= FEW:
            return iter(heads[small]), known[small][1]
        # Whoever is not in all of them is, for one of them, among the rest.
        tails = [chain(head, index) for head, (index, _) in zip(heads, known, strict=True)]
        return intersection(tails), [steps for _, rest in known for steps in rest]

    # --- words

    def _words(self, wanted: list[Term]) -> tuple[Steps | None, list[Steps]]:
        """All of some words: from one alone that stands in few messages, else from the index in
        one question.
        """
        queries = [word_query(term) for term in wanted]
        for term, query in zip(wanted, queries, strict=True):
            if len(wanted) == 1 or not self._at_least(FEW, schema.WORDS, query):
                return self._word(term)
        # Whoever is not in all of them is, for one of them, among the rest.
        rest = [steps for term in wanted for steps in self._word(term, frequent=True)[1]]
        return self._match(schema.WORDS, " AND ".join(f"({query})" for query in queries)), rest

    def _word(self, term: Term, frequent: bool = False) -> tuple[Steps | None, list[Steps]]:
        """frequent: it is known already that more than JUDGED messages have it."""
        words = word_query(term)
        trigrams = inside_query(term, self._marked_letters())
        frequent = frequent or self._at_least(JUDGED, schema.WORDS, words)
        beside = self._beside(term) if not frequent and self._common(term) else None
        # A trigram query for the word itself sees it in tool calls, whatever stands before it.
        seen = self.trigram_has_calls and beside is None and trigrams is not None
        rest = [self._escaped_glue(term, seen), self._escaped_accents(term)]
        if beside is not None:
            rest.append(beside)
        elif trigrams is not None:
            rest.append(self._beyond(words, trigrams, frequent))
        if trigrams is None and beside is None:
            rest.append(self._scan(glued(term)))
        else:
            rest += self._left_out(glued(term))
        if self.cut and self.wants("tool"):
            rest.append(self._scan(("m.role = 'tool' AND length(m.content) > 8000", ())))
        return self._match(schema.WORDS, words), rest

    def _common(self, term: Term) -> bool:
        """Whether the letters of a word stand in many messages."""
        text = max(term.text.split(" "), key=len)
        if len(text) < 2 or not text.isalnum():
            return False
        return len(text) == 2 or self._at_least(MANY, schema.TRIGRAM, quoted(text))

    def _beside(self, term: Term) -> Steps | None:
        """Messages in which a word touches a letter of another script, from the trigrams that
        hold both; None in a store with many such letters.
        """
        letters = self._letters()
        if letters is None:
            return None
        first, last = term.text[:2], term.text[-2:]
        if " " in first + last:
            return None
        phrases = [letter + first for letter in letters] if WORDISH[first[0]] else []
        phrases += [last + letter for letter in letters] if WORDISH[last[-1]] else []
        accents = accented(max(term.text.split(" "), key=len), self._marked_letters())
        phrases += accents
        return self._match(schema.TRIGRAM, any_of(phrases)) if phrases else iter(())

    def _marked_letters(self) -> frozenset[str]:
        """The letters of ACCENTED beyond ASCII that stand in this store at all: of over a hundred
        accents a word might have, few do. Each is the start of some trigram, if the index is
        inline; else all of them.
        """
        if self._marked is None:
            every = frozenset("".join(ACCENTED.values())) - ACCENTED.keys()
            found: set[str] = set()
            for low, high in MARKED if self.inline else ():
                while (letter := self._first_letter(low)) is not None and letter < high:
                    found.add(letter)
                    low = chr(ord(letter) + 1)
            self._marked = every & found if self.inline else every
        return self._marked

    def _letters(self) -> list[str] | None:
        """What may stand beside a word and not end it for the word index: letters of scripts that
        are not Latin, and younger symbols; as they begin a trigram. None if there are many.
        """
        found: list[str] = []
        at = "\x80"
        while len(found) < LETTERS:
            letter = self._first_letter(at)
            if letter is None:
                return found
            block = next((end for start, end in SEPARATORS if start <= letter <= end), letter)
            if block == letter and not WORDISH[letter]:
                found.append(letter)
            at = chr(ord(block) + 1)
        return None

    def _first_letter(self, low: str) -> str | None:
        """The first letter from `low` on that a trigram of this store begins with."""
        rows = self._vocabulary(
            schema.TRIGRAM, "row", "SELECT term FROM temp.{} WHERE term >= ? LIMIT 1", (low,)
        )
        return rows[0][0][0] if rows else None

    def _escaped_glue(self, term: Term, seen: bool) -> Steps:
        """Words right behind an escaped letter (`\\u2014word` is one word of the index), where the
        trigram index does not see them.
        """
        sentinels = self.sentinels()
        some = sentinels if len(sentinels) <= 50 else []
        if seen and some == sentinels:
            return numbered(sentinels)
        first = term.parts[0]
        like = "substr(term, 6, ?) = ?" if term.prefix or len(term.parts) > 1 else (
            "substr(term, 6) = substr(?2, 1, ?1)"
        )  # fmt: skip
        found = self._vocabulary(
            schema.WORDS, "row", f"SELECT term FROM temp.{{}} WHERE term >= 'u0' AND term < 'ug' "
            f"AND {like}", (len(first), first),
        )  # fmt: skip
        query = " OR ".join(f'"{row[0]}"' for row in found)
        behind = self._match(schema.WORDS, query) if query else iter(())
        return heapq.merge(numbered(some), behind, reverse=True)

    def _escaped_accents(self, term: Term) -> Steps:
        """Words with an accented letter that is escaped: `caf\\u00e9`."""
        if self._accents is None:
            self._accents = [
                row[0]
                for low, high in (("u00c", "u025"), ("u1e", "u1f"))
                for row in self._vocabulary(
                    schema.WORDS, "row", "SELECT term FROM temp.{} WHERE term >= ? AND term < ?",
                    (low, high),
                )
            ]  # fmt: skip
        tokens = [
            token for token in self._accents
            if re.match("u[0-9a-f]{4}", token) and FOLD[int(token[1:5], 16)] in term.text
        ]  # fmt: skip
        return self._match(schema.WORDS, any_of(tokens)) if tokens else iter(())

    # --- substrings

    def _substring(self, term: Term) -> tuple[Steps | None, list[Steps]]:
        rest = [self._escaped(term), numbered(self.sentinels())]
        rest += self._left_out(prefilter(term))
        query = trigram_query(term)
        if query is not None:
            if any(len(variants(letter)) > 1 for letter in term.text):
                rest.append(self._loose_marks())
            return self._match(schema.TRIGRAM, query), rest
        short = self._short(term)
        if short is None:
            return None, [self._scan(prefilter(term))]
        return short, rest

    def _short(self, term: Term) -> Steps | None:
        """Messages with a term of one or two letters: each is the start of some trigram. None
        where that is not so, or where they are so many that a scan has enough at once.
        """
        if not self.inline or " " in term.text:
            return None
        starts = list(map("".join, product(*map(variants, term.text))))
        if len(starts) > 60:
            return None
        found: set[int] = set()
        apart = in_parts(term.text)
        if apart is not None and len(apart) > 2:
            found.update(id_ for id_, _ in self._match(schema.TRIGRAM, quoted(apart)))
        elif apart is not None:
            starts.append(apart)
        for start in starts:
            rows = self._vocabulary(
                schema.TRIGRAM, "instance",
                "SELECT doc FROM temp.{} WHERE term >= ? AND term < ? LIMIT ?",
                (start, start[:-1] + chr(ord(start[-1]) + 1), FREQUENT),
            )  # fmt: skip
            found.update(row[0] for row in rows)
            if len(rows) == FREQUENT:
                return None
        return numbered(sorted(found, reverse=True))

    def _loose_marks(self) -> Steps:
        """Messages whose letters and accents are stored apart."""
        rows = self._vocabulary(
            schema.TRIGRAM, "instance",
            "SELECT doc FROM temp.{} WHERE term >= ? AND term <= ? LIMIT ?",
            (min(MARKS), max(MARKS) + "\U0010ffff", FREQUENT),
        )  # fmt: skip
        if len(rows) == FREQUENT:
            return self._scan(None)
        return numbered(sorted({row[0] for row in rows}, reverse=True))

    def _escaped(self, term: Term) -> Steps:
        """Messages that hold the letters of a term as \\uXXXX, in JSON."""
        needs = []
        for letter in dict.fromkeys(term.text):
            forms = variants(letter)
            if letter.isascii() or any(form.isascii() for form in forms):
                continue
            both_cases = {case for form in forms for case in (form.lower(), form.upper())}
            units = {unit for form in both_cases for unit in escapes(form)[:1]}
            needs.append(" OR ".join(f'"{unit}"*' for unit in sorted(units)))
        if not needs:
            return self._escaped_accents(term)
        return self._match(schema.WORDS, " AND ".join(f"({need})" for need in needs))

    # --- what both need

    def _left_out(self, condition: Condition | None) -> list[Steps]:
        """Scans of the rows that the trigram index of this store leaves out."""
        scans = []
        if self.wants("tool") and (self.trigram_lacks_tools or self.cut):
            which = "m.role = 'tool'"
            if not self.trigram_lacks_tools:
                which += " AND length(m.content) > 8000"
            scans.append(self._scan(both((which, ()), condition)))
        if self.trigram_lacks_cron:
            config = (
                "OR s.model_config LIKE '%\\_delegate\\_from%' ESCAPE '\\'"
                if self.db.schema.has("sessions", "model_config") else ""
            )  # fmt: skip
            which = (
                f"m.session_id IN (SELECT s.id FROM sessions s WHERE s.source IN "
                f"('cron', 'subagent') {config})"
            )
            if self.db.execute(f"SELECT 1 FROM sessions s WHERE s.source IN ('cron', 'subagent') "
                               f"{config} LIMIT 1").fetchone():  # fmt: skip
                scans.append(self._scan(both((which, ()), condition)))
        if not self.trigram_has_calls and self.db.schema.has("messages", "tool_calls"):
            scans.append(self._scan(both(("m.tool_calls IS NOT NULL", ()), condition)))
        return scans

    def _pending(self) -> list[Steps]:
        """Rows that an index rebuild has not reached yet."""
        if self.pending is None:
            return []
        done, high = self.pending
        return [self._scan(("m.id > ? AND m.id <= ?", (done, high)), high)]

    def sentinels(self) -> list[int]:
        """Rows whose content is JSON behind the NUL marker, the newest first."""
        if self._sentinels is None:
            query = "^json" if self.inline else "content : ^json"
            self._sentinels = [id_ for id_, _ in self._match(schema.WORDS, query)]
        return self._sentinels

    def _match(self, table: str, query: str) -> Steps:
        """Ids an index names, the newest first, as they are asked for."""
        try:
            for row in self.db.execute(
                f"SELECT rowid FROM {table} WHERE {table} MATCH ? ORDER BY rowid DESC", (query,)
            ):
                yield row[0], True
        except UnicodeEncodeError:
            return  # bytes that are no UTF-8; found by the rows' own scan only
        except sqlite3.DatabaseError as error:
            raise broken(error) from error

    def _beyond(self, words: str, trigrams: str, frequent: bool) -> Steps:
        """Ids that the trigram index names and the word index does not, the newest first. They are
        few among many: SQLite compares. Of a frequent word the newest messages are nearly always
        enough; its ids are compared a window at a time, each wider than the last.
        """
        low, top = self.db.execute(
            "SELECT (SELECT min(id) FROM messages), (SELECT max(id) FROM messages)"
        ).fetchone()
        width = WINDOW // 4 if frequent else (top or 0) - (low or 0)
        while top is not None and top >= low:
            span = max(low, top - width), top
            try:
                found = self.db.execute(
                    f"SELECT rowid FROM {schema.TRIGRAM} WHERE {schema.TRIGRAM} MATCH ? AND rowid "
                    f"BETWEEN ? AND ? EXCEPT SELECT rowid FROM {schema.WORDS} WHERE {schema.WORDS} "
                    "MATCH ? AND rowid BETWEEN ? AND ? ORDER BY 1 DESC",
                    (trigrams, *span, words, *span),
                ).fetchall()
            except sqlite3.DatabaseError as error:
                raise broken(error) from error
            for row in found:
                yield row[0], True
            yield span[0], False
            top, width = span[0] - 1, width * 3

    def _at_least(self, number: int, table: str, query: str) -> bool:
        """Whether an index names so many messages; counted no further."""
        try:
            row = self.db.execute(
                f"SELECT count(*) FROM (SELECT 1 FROM {table} WHERE {table} MATCH ? LIMIT ?)",
                (query, number),
            ).fetchone()
        except sqlite3.DatabaseError as error:
            raise broken(error) from error
        return int(row[0]) == number

    def _vocabulary(
        self, table: str, kind: str, query: str, parameters: tuple[Any, ...]
    ) -> list[Any]:
        """Rows of the list of an index's words (SQLite's fts5vocab); `{}` stands for its name."""
        name = f"{table}_{kind}"
        try:
            if not self.db.execute(
                "SELECT 1 FROM sqlite_temp_master WHERE name = ?", (name,)
            ).fetchone():
                self.db.execute("PRAGMA temp_store = MEMORY")
                self.db.execute(
                    f"CREATE VIRTUAL TABLE temp.{name} USING fts5vocab('main', '{table}', '{kind}')"
                )
            return self.db.execute(query.format(name), parameters).fetchall()
        except UnicodeEncodeError:
            return []
        except sqlite3.DatabaseError as error:
            raise broken(error) from error

    def _scan(self, condition: Condition | None, top: int | None = None) -> Steps:
        """Ids that meet a condition, the newest first, a window of rows at a time."""
        role = f"m.role IN ({','.join('?' * len(self.roles))})" if self.roles else "1"
        sql, parameters = condition or ("1", ())
        self.db.execute(f"PRAGMA mmap_size = {MAPPED}").fetchone()
        if top is None:
            top = self.db.execute("SELECT max(id) FROM messages").fetchone()[0]
        while top is not None:
            low = self.db.execute(
                "SELECT min(id) FROM (SELECT id FROM messages WHERE id <= ? ORDER BY id DESC "
                "LIMIT ?)", (top, WINDOW),
            ).fetchone()[0]  # fmt: skip
            if low is None:
                return
            for row in self.db.execute(
                f"SELECT m.id FROM messages m WHERE m.id BETWEEN ? AND ? AND {role} AND ({sql}) "
                "ORDER BY m.id DESC", (low, top, *sorted(self.roles), *parameters),
            ).fetchall():  # fmt: skip
                yield row[0], True
            yield low, False
            top = low - 1


# --- what an index can be asked


def unusable(db: Database) -> str | None:
    """Why the indexes of this store cannot be asked; None if they can."""
    have = db.schema
    for table, specs in (
        (schema.WORDS, ("", "unicode61")),
        (schema.TRIGRAM, ("trigram", "trigram case_sensitive 0")),
    ):
        create = have.virtual.get(table)
        if create is None:
            return f"there is no index {table}"
        spec = schema.tokenizer(create).strip("\"'").lower()
        if spec not in specs:
            return f"{table} is cut into words by {spec!r}, which is not known here"
        if not re.search(r"\binsert\s+on\s", filling(db, table), re.I):
            return f"nothing fills {table} any more"
    if "tool_calls" not in filling(db, schema.WORDS):
        return f"{schema.WORDS} is of an older kind, which lacks tool calls"
    if have.meta.get("fts_stale", "0") not in ("0", ""):
        return "the agent has marked it as stale"
    if pending(have.meta) is None and (
        {"fts_rebuild_high_water", "fts_rebuild_progress"} & set(have.meta)
    ):
        return "its rebuild is half done, and says not how far"
    try:
        ends = "SELECT (SELECT min(id) FROM {0}), (SELECT max(id) FROM {0})"
        rows = tuple(db.execute(ends.format("messages")).fetchone())
        if pending(have.meta) is None and rows != tuple(
            db.execute(ends.format(f"{schema.WORDS}_docsize")).fetchone()
        ):
            return f"{schema.WORDS} does not hold all messages"
        db.execute(f"SELECT rowid FROM {schema.WORDS} LIMIT 0").fetchone()
    except sqlite3.DatabaseError as error:
        return str(broken(error))
    return None


def filling(db: Database, table: str) -> str:
    """The triggers on messages that write into an index, and the views they read, as text."""
    have = db.schema
    found = [
        sql for on, sql in have.triggers.values()
        if on == "messages" and re.search(rf"\b{table}\b(?!_)", sql)
    ]  # fmt: skip
    create = have.virtual.get(table, "")
    found += [sql for name, sql in have.views.items() if re.search(rf"\b{name}\b", create)]
    return "\n".join(found)


def pending(meta: dict[str, str]) -> tuple[int, int] | None:
    """(P, H] of an index rebuild that is under way (store-facts 1.6)."""
    try:
        return int(meta.get("fts_rebuild_progress", "0")), int(meta["fts_rebuild_high_water"])
    except (KeyError, ValueError):
        return None


def broken(error: sqlite3.DatabaseError) -> Exception:
    """An index that fails is no failure of the search; a busy store or a bad disk is."""
    if code(error) in (1, 11, 26):
        return Unusable(f"it is damaged or cannot be read here ({error})")
    return error


def word_query(term: Term) -> str:
    """Messages with the words of a term, one after the other, for the word index; also behind an
    escaped line break or tab of JSON.
    """
    parts = term.parts
    star = "*" if term.prefix and term.text[-1:].isalnum() else ""
    firsts = [parts[0], *(letter + parts[0] for letter in ESCAPED)]
    phrases = [f'"{" ".join([first, *parts[1:]])}"{star}' for first in firsts]
    gaps = term.text.split(" ")
    if len(gaps) > 1:
        # "a b" with the gap an escaped line break: its words in any order, one of them changed
        heads = [part for gap in gaps if (part := (re.findall(r"[0-9a-z]+", gap) or [""])[0])]
        for number, head in enumerate(heads[1:], 1):
            stars = [star if at == len(heads) - 1 else "" for at in range(len(heads))]
            changed = " OR ".join(f'"{letter}{head}"{stars[number]}' for letter in ESCAPED)
            others = [
                "(" + " OR ".join(f'"{letter}{one}"{stars[at]}' for letter in ("", *ESCAPED)) + ")"
                for at, one in enumerate(heads) if at != number
            ]  # fmt: skip
            phrases.append(f"(({changed}) AND {' AND '.join(others)})")
    return " OR ".join(phrases)


def trigram_query(term: Term) -> str | None:
    """Messages with the letters of a term, for the trigram index; None for fewer than three."""
    pieces_ = [piece[:LONG] for piece in term.text.split(" ") if len(piece) >= 3]
    if not pieces_:
        return None
    needs = []
    for piece in pieces_:
        choices = [variants(letter) for letter in piece]
        if all(len(choice) == 1 for choice in choices):
            apart = in_parts(piece)
            needs.append(f"({any_of([piece] if apart is None else [piece, apart])})")
            continue
        windows = []
        for at in dict.fromkeys((*range(0, len(piece) - 2, 3), len(piece) - 3)):
            size = 1
            for choice in choices[at : at + 3]:
                size *= len(choice)
            if size <= PHRASES:
                windows.append((size, at))
        windows.sort()
        for size, at in windows[:2]:
            if size > 400 and (size, at) != windows[0]:
                continue
            needs.append(f"({any_of(map(''.join, product(*choices[at : at + 3])))})")
    return " AND ".join(needs[:8]) or None


def inside_query(term: Term, marked: frozenset[str]) -> str | None:
    """Messages with a word inside another, or with an accent on one of its letters that the word
    index keeps (two marks on one letter, or a neighbour of another script); None for fewer than
    three letters. marked: the accented letters there are.
    """
    pieces = term.text[:LONG].split(" ")
    if max(map(len, pieces)) < 3:
        return None
    gaps = product(GAPS, repeat=len(pieces) - 1) if len(pieces) < 4 else (
        (gap,) * (len(pieces) - 1) for gap in GAPS
    )  # fmt: skip
    whole = ["".join(interleaved(pieces, gap)) for gap in gaps]
    return any_of([*dict.fromkeys(whole), *accented(max(pieces, key=len), marked)])


def interleaved(pieces: list[str], gaps: Iterable[str]) -> Iterator[str]:
    """Pieces with gaps between."""
    for piece, gap in zip_longest(pieces, gaps, fillvalue=""):
        yield piece
        yield gap


def accented(piece: str, marked: frozenset[str]) -> list[str]:
    """Three letters each of a word, with an accent on one of them."""
    phrases: dict[str, None] = {}
    for at in (*range(0, len(piece) - 2, 3), len(piece) - 3) if len(piece) > 2 else ():
        window = piece[at : at + 3]
        for number, letter in enumerate(window):
            for other in variants(letter):
                if other in marked:
                    phrases[window[:number] + other + window[number + 1 :]] = None
    return list(phrases)


def any_of(phrases: Iterable[str]) -> str:
    """A question for any of these strings."""
    return " OR ".join(map(quoted, phrases))


def quoted(phrase: str) -> str:
    """A string of FTS5."""
    return '"' + phrase.replace('"', '""') + '"'


# --- what a scan can ask of a row in C, before its text is read


def prefilter(node: Node) -> Condition | None:
    """A condition that every answer to a plan meets, cheap enough for a scan; None for none."""
    if isinstance(node, Term):
        return _prefilter(node)
    if isinstance(node, And):
        found = [one for one in map(prefilter, node.wanted) if one is not None]
        return _joined(" AND ", found) if found else None
    every = [prefilter(one) for one in node.any]
    known = [one for one in every if one is not None]
    return _joined(" OR ", known) if len(known) == len(every) else None


# The marker of structured content: a text that begins with NUL.
STRUCTURED = "CAST(m.content AS BLOB) < x'01'"


def _prefilter(term: Term) -> Condition | None:
    """Letters without case and accents stand in a row as they are, or escaped in its JSON."""
    if term.word or not all(len(variants(letter)) == 1 for letter in term.text):
        return None
    text = max(term.text.split(" "), key=len)
    if any(letter.isascii() for letter in text) or unpaired(text):
        return None
    apart = in_parts(text) or text
    escape = escapes(text)[0][1:]
    json = f"(instr(m.tool_calls, ?) OR instr(m.tool_calls, '\\u{escape}') " \
           f"OR instr(m.tool_calls, '\\u{escape.upper()}'))"  # fmt: skip
    return (
        f"(instr(m.content, ?) OR {STRUCTURED} OR instr(m.tool_name, ?) OR {json}"
        + (" OR instr(m.content, ?) OR instr(m.tool_calls, ?))" if apart != text else ")"),
        (text, text, text, *((apart, apart) if apart != text else ())),
    )


def glued(term: Term) -> Condition:
    """Rows where a word of ASCII letters may touch one of another script: in texts that are not
    all ASCII, or in JSON with escaped letters.
    """
    word = max(term.parts, key=len)
    cases = {word, word.upper(), word.capitalize()}
    if len(word) <= 2:
        cases |= set(map("".join, product(*((one, one.upper()) for one in word))))
        content = " OR ".join(["instr(m.content, ?)"] * len(cases))
        calls = " OR ".join(["instr(m.tool_calls, ?)"] * len(cases))
        parameters = tuple(sorted(cases))
    else:
        content, calls, parameters = "m.content LIKE ?", "m.tool_calls LIKE ?", (f"%{word}%",)
    return (
        f"((({content}) AND length(m.content) <> length(CAST(m.content AS BLOB))) "
        f"OR {STRUCTURED} OR (({calls}) AND (instr(m.tool_calls, '\\u') "
        f"OR length(m.tool_calls) <> length(CAST(m.tool_calls AS BLOB)))))",
        parameters * 2,
    )


def both(one: Condition, two: Condition | None) -> Condition:
    """Two conditions in one."""
    return one if two is None else _joined(" AND ", [one, two])


def _joined(word: str, conditions: list[Condition]) -> Condition:
    return (
        "(" + word.join(f"({sql})" for sql, _ in conditions) + ")",
        tuple(value for _, values in conditions for value in values),
    )


# --- letters


# What `accents` works out for ASCII, at hand for the many searches that ask for nothing else.
ACCENTED = {
    "'": "'ʼ‘’", "-": "-‐‑", "a": "aàáâãäåāăąǎǟǡǻȁȃȧḁạảấầẩẫậắằẳẵặ", "b": "bḃḅḇ", "c": "cçćĉċčḉ",
    "d": "dďḋḍḏḑḓ", "e": "eèéêëēĕėęěȅȇȩḕḗḙḛḝẹẻẽếềểễệ", "f": "fḟ", "g": "gĝğġģǧǵḡ",
    "h": "hĥȟḣḥḧḩḫẖ", "i": "iìíîïĩīĭįİǐȉȋḭḯỉị", "j": "jĵǰ", "k": "kķǩḱḳḵ", "l": "lĺļľḷḹḻḽ",
    "m": "mḿṁṃ", "n": "nñńņňǹṅṇṉṋ", "o": "oòóôõöōŏőơǒǫǭȍȏȫȭȯȱṍṏṑṓọỏốồổỗộớờởỡợ", "p": "pṕṗ",
    "r": "rŕŗřȑȓṙṛṝṟ", "s": "sśŝşšșṡṣṥṧṩ", "t": "tţťțṫṭṯṱẗ",
    "u": "uùúûüũūŭůűųưǔǖǘǚǜȕȗṳṵṷṹṻụủứừửữự", "v": "vṽṿ", "w": "wŵẁẃẅẇẉẘ", "x": "xẋẍ",
    "y": "yýÿŷȳẏẙỳỵỷỹ", "z": "zźżžẑẓẕ",
}  # fmt: skip
# Where its letters stand in Unicode.
MARKED = (("\x80", "\u0300"), ("\u1e00", "\u1f00"), ("\u2010", "\u2020"))
_ACCENTS: dict[str, str] = {}


def variants(letter: str) -> Sequence[str]:
    """Every letter that folds to this one, in lower case where the trigram index knows the case."""
    if letter.isascii():
        return ACCENTED.get(letter, letter)
    if letter < "\u2e80" and letter in accents():  # all younger scripts are without
        return accents()[letter]
    upper = letter.upper()
    both = len(upper) == 1 and upper != letter and FOLD[ord(upper)] == letter
    return letter + upper if both else letter


def accents() -> dict[str, str]:
    """Letter → those that fold to it, by Unicode's own data, for blocks with case and accents."""
    if not _ACCENTS:
        found: dict[str, dict[str, None]] = {}
        for block in ((0x27, 0x180), (0x180, 0x250), (0x250, 0x530), (0x1E00, 0x2000),
                      (0x2010, 0x2020), (0x1C80, 0x1CC0)):  # fmt: skip
            for number in range(*block):
                lower = chr(number).lower()
                one = lower if len(lower) == 1 else chr(number)
                found.setdefault(FOLD[number], {}).setdefault(one)
        _ACCENTS.update({key: "".join(values) for key, values in found.items() if key})
    return _ACCENTS


def escapes(text: str) -> list[str]:
    """The UTF-16 units of a text as JSON escapes them, without the backslash: `u78c1`."""
    data = text.encode("utf-16-be", "surrogatepass")
    return [f"u{data[at]:02x}{data[at + 1]:02x}" for at in range(0, len(data), 2)]


def in_parts(text: str) -> str | None:
    """Hangul and kana, whose letters may be stored in one piece or in parts; None for others."""
    apart = unicodedata.normalize("NFD", text)
    return None if apart == text or set(apart) & MARKS else apart


def unpaired(text: str) -> bool:
    """Whether a text holds bytes that were no UTF-8, which SQLite takes no parameter with."""
    return any("\ud800" <= letter <= "\udfff" for letter in text)


# --- steps


def numbered(ids: Iterable[int]) -> Steps:
    """Ids as steps."""
    return ((id_, True) for id_ in ids)


def chain(head: list[Step], tail: Steps) -> Steps:
    """Steps that were taken already, and the rest."""
    yield from head
    yield from tail


def intersection(all_: list[Steps]) -> Steps:
    """Ids that are in all, newest first. Markers of scans count as members: they only pass on."""
    heads = [next(steps, None) for steps in all_]
    while all(head is not None for head in heads):
        low = min(head for head in heads if head is not None)
        moved = False
        for number, head in enumerate(heads):
            while head is not None and head > low:
                head = next(all_[number], None)
                moved = True
            heads[number] = head
        if not moved:
            yield low
            heads = [next(steps, None) for steps in all_]
