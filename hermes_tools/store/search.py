"""Full-text search: messages that answer to a plan, ranked, one result a conversation."""

import math
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import orjson

from hermes_tools.store import messages, query, schema, windows
from hermes_tools.store.db import Database, chunks, code, marks
from hermes_tools.store.errors import NotFound, Unsupported, Usage
from hermes_tools.store.query import Node, Term
from hermes_tools.store.routes import Routes, Unusable
from hermes_tools.store.selection import Selection, same, three
from hermes_tools.store.sessions import Reader
from hermes_tools.store.times import iso, valid

ROLES = ("user", "assistant")
SORTS = ("relevance", "newest", "oldest")
# Relevance is judged among the newest answers: at least so many messages …
JUDGED = 300
# … in at least so many conversations, or twice those that are wanted …
SPREAD = 20
# … and no more than so many of one conversation, lest it use up the others' places.
SHARE = 25
BATCH = 200
TOGETHER = 16  # rows whose whole text is in memory at a time
# Characters of a text below which a shorter one is no better answer.
BRIEF = 400
# Above so many ids they are sorted by time in one pass over the store.
MANY = 20_000

OPEN, CLOSE, MORE = ">>>", "<<<", "..."
BEFORE, SNIPPET = 60, 200  # characters of a snippet before its hit, and in all
CONTEXT = 200
# Between texts that stand apart in a row's JSON; no phrase reaches across.
APART, KEY = "\x00", "\x01"


@dataclass(repr=False, eq=False)
class Hit:
    """A message that answers. `counts`: how often it has each wanted term; `length`: of its text
    in characters; `found` in the title or id of its session instead (kind).
    """

    id: int
    session_id: str
    role: str
    timestamp: Any
    tool_name: str | None = None
    counts: tuple[int, ...] = ()
    length: int = 0
    whole: bool = False
    summary: bool = False
    kind: str = "message"
    title: str = ""
    root: str = ""
    score: float = 0.0
    raw: int = 0
    snippet: str = ""

    @property
    def time(self) -> float:
        """Its time; -inf where the store has none that is one."""
        found = valid(self.timestamp)
        return float("-inf") if found is None else found


class Found(NamedTuple):
    """What a search brought. total: conversations (or messages) found, None when it stopped early
    with more to come; why: the reason that an index could not be asked.
    """

    hits: list[Hit]
    total: int | None
    why: str | None = None

    @property
    def cut(self) -> bool:
        """Whether there is more than these."""
        return self.total is None or self.total > len(self.hits)


class Asked(NamedTuple):
    """A search: the plan (or `raw` FTS5), who may answer, how many, in which order.

    limit 0 is all; `each` counts messages instead of conversations; not_in is a lineage root.
    """

    plan: Node | None
    selection: Selection = Selection()
    roles: tuple[str, ...] = ROLES
    sort: str = "relevance"
    limit: int = 10
    each: bool = False
    inactive: bool = False
    titles: bool = True
    not_in: str | None = None
    typed: str = ""
    raw: str | None = None


# --- the text of a row


def content_text(stored: Any) -> str:
    """What is searched of a content: text as it is, the text parts of structured content."""
    if isinstance(stored, str) and not stored.startswith(messages.SENTINEL):
        return stored
    content = messages.decode(stored)
    if isinstance(content, list | dict):
        parts = content if isinstance(content, list) else [content]
        found = (part.get("text") if isinstance(part, dict) else part for part in parts)
        return APART.join(text for text in found if isinstance(text, str))
    return messages.plain(content)


def calls_text(stored: Any) -> str:
    """What is searched of tool_calls: names and arguments, their JSON undone."""
    if not isinstance(stored, str) or not stored:
        return ""
    try:
        calls = orjson.loads(stored)
    except ValueError:
        return stored
    parts: list[str] = []
    for call in calls if isinstance(calls, list) else [calls]:
        function = call.get("function") if isinstance(call, dict) else None
        if isinstance(function, dict):
            parts += leaves(function)
            parts += leaves({key: value for key, value in call.items() if key != "function"})
        else:
            parts += leaves(call)
    return "".join(parts)


def leaves(value: Any, depth: int = 0) -> Iterator[str]:
    """Every key and text in a JSON value, each ended; text that is JSON itself is undone."""
    if isinstance(value, str):
        if depth < 8 and value[:1] in ("{", "["):
            try:
                yield from leaves(orjson.loads(value), depth + 1)
                return
            except ValueError:
                pass
        yield value + APART
    elif isinstance(value, dict):
        for key, one in value.items():
            yield key + KEY
            yield from leaves(one, depth)
    elif isinstance(value, list):
        for one in value:
            yield from leaves(one, depth)
    elif value is not None and not isinstance(value, bool):
        yield str(value) + APART


def texts(row: Any) -> list[str]:
    """The searched texts of a row: content, tool name, tool calls; composed, not folded."""
    calls = calls_text(row["tool_calls"])
    found = (content_text(row["content"]), str(row["tool_name"] or ""), calls)
    return [query.composed(text) for text in found]


# --- which messages


class Searcher:
    """One search of one store."""

    def __init__(self, db: Database, asked: Asked, reader: Reader | None = None) -> None:
        self.db, self.asked = db, asked
        self.reader = reader or Reader(db)
        self._allowed: dict[str, str | None] = {}
        self._terms = query.terms(asked.plan) if asked.plan else []
        self._whole = query.fold(query.composed(asked.typed)) if len(self._terms) > 1 else ""
        # Times are of messages here.
        self._filters = replace(asked.selection, after=None, before=None)
        self._plain = (
            not self._filters.narrow() and self._filters.newer_than is None
            and self._filters.pinned == "any"
        )  # fmt: skip
        conditions: list[str] = ["1"]
        self._values: list[Any] = []
        if asked.roles:
            conditions.append(f"m.role IN ({marks(asked.roles)})")
            self._values += asked.roles
        if not asked.inactive:
            conditions.append(db.schema.seen)
        conditions.append(messages.visible(db))
        if db.schema.has("messages", "_compressed_summary"):
            # What the agent marks as a compaction's summary says again what others said.
            conditions.append("COALESCE(m._compressed_summary, 0) <> 1")
        for bound, sign in ((asked.selection.after, ">="), (asked.selection.before, "<")):
            if bound is not None:
                conditions.append(f"typeof(m.timestamp) IN ('real', 'integer') "
                                  f"AND m.timestamp {sign} ?")  # fmt: skip
                self._values.append(bound)
        self._where = " AND ".join(conditions)
        self._columns = messages.pick(
            db, "id", "session_id", "role", "content", "tool_name", "tool_calls", "timestamp",
            "_compressed_summary",
        )  # fmt: skip

    def find(self) -> Found:
        """The answers, in order, cut to what was asked for."""
        if self.asked.raw is not None:
            hits, whole, why = list(self._raw()), True, stale(self.db)
        else:
            hits, whole, why = self._answers()
        ordered = self._ordered(hits)
        if not self.asked.each and self.asked.titles and self.asked.plan is not None:
            ordered = [*self._ordered(self._named()), *ordered]
        if not self.asked.each:
            best: dict[str, Hit] = {}
            for hit in ordered:
                best.setdefault(hit.root, hit)
            ordered = self._grouped(list(best.values()))
        total = len(ordered) if whole else None
        limit = self.asked.limit or len(ordered)
        return Found(ordered[:limit], total, why)

    def _answers(self) -> tuple[list[Hit], bool, str | None]:
        """(hits, whether these are all, why an index was not asked). An index that turns out to be
        damaged on the way is left, and everything is scanned.
        """
        plan = self.asked.plan
        assert plan is not None
        routes = Routes(self.db, self.asked.roles)
        try:
            hits, whole = self._walk(plan, routes)
        except Unusable as error:
            routes = Routes(self.db, self.asked.roles, scan=str(error))
            hits, whole = self._walk(plan, routes)
        return hits, whole, routes.why

    def _walk(self, plan: Node, routes: Routes) -> tuple[list[Hit], bool]:
        """Test candidates, best first as far as that is known, until there are enough."""
        ids = routes.newest_first(plan)
        if self.asked.sort != "relevance":
            ids = self._by_time(ids)
        hits: list[Hit] = []
        people: dict[str, int] = {}
        size = BATCH // 4
        share = SHARE if self.asked.limit and not self.asked.each else 0
        while batch := list(_take(ids, size)):
            for row in self._rows(batch):
                known = self._allowed.get(row["session_id"])
                if share and known and people.get(known, 0) >= share:
                    continue
                hit = self._test(plan, row)
                if hit is None:
                    continue
                hits.append(hit)
                if not self._cron(hit.root):
                    people[hit.root] = people.get(hit.root, 0) + 1
            if self._enough(people):
                return hits, False
            size = BATCH
        return hits, True

    def some(self, term: Term, routes: Routes, most: int) -> Iterator[str]:
        """The roles of messages that have a term, each message once, `most` at most."""
        ids, number = routes.newest_first(term), 0
        while batch := list(_take(ids, BATCH)):
            for row in self._rows(batch):
                if query.matches(term, [query.fold(text) for text in texts(row)]):
                    yield row["role"]
                    number += 1
                    if number == most:
                        return

    def _enough(self, people: dict[str, int]) -> bool:
        limit = self.asked.limit
        if not limit:
            return False
        number = sum(people.values())
        if self.asked.sort != "relevance":
            return (number if self.asked.each else len(people)) > limit
        if self.asked.each:
            return number > max(JUDGED, limit)
        return number > JUDGED and len(people) > max(SPREAD, 2 * limit)

    def _rows(self, ids: Sequence[int]) -> Iterator[Any]:
        """Rows of these ids that may be shown, in the order of the ids; a few at a time, since
        each may be megabytes long.
        """
        for start in range(0, len(ids), TOGETHER):
            some = ids[start : start + TOGETHER]
            place = {id_: number for number, id_ in enumerate(some)}
            rows = self.db.execute(
                f"SELECT {self._columns} FROM messages m WHERE m.id IN ({marks(some)}) "
                f"AND {self._where}", (*some, *self._values),
            ).fetchall()  # fmt: skip
            yield from sorted(rows, key=lambda row: place[row["id"]])

    def _test(self, plan: Node, row: Any) -> Hit | None:
        folded = [query.fold(text) for text in texts(row)]
        if not query.matches(plan, folded):
            return None
        root = self.allowed(row["session_id"])
        if root is None:
            return None
        counts = tuple(
            sum(1 for text in folded for _ in term.places(text, 10)) for term in self._terms
        )
        return Hit(
            row["id"], row["session_id"], row["role"], row["timestamp"], row["tool_name"],
            counts, sum(map(len, folded)), bool(self._whole) and self._whole in folded[0],
            messages.is_carrier(row), root=root,
        )  # fmt: skip

    def allowed(self, session_id: str) -> str | None:
        """The lineage root of a session that the filters take; None for one they do not, or whose
        row is gone (hermes-session-check names its messages).
        """
        if session_id not in self._allowed:
            if not self._plain and len(self._allowed) == 200:
                self.reader.preload()  # many sessions: one large query instead of small ones
            try:
                taken = self._takes(session_id)
            except NotFound:
                taken = False
            root = self.reader.lineage.conversation(session_id) if taken else None
            self._allowed[session_id] = root if root != self.asked.not_in else None
        return self._allowed[session_id]

    def _takes(self, session_id: str) -> bool:
        """Whether the filters take the conversation of a session that has messages. Without any
        but the defaults, what they need stands in two rows.
        """
        if not self._plain:
            return self._filters.takes(self.reader.conversation(session_id, preview=False))
        chain = self.reader.lineage.chain(session_id)
        tip = self.reader.row(chain[-1])
        behind = self.reader.behind(chain[0], tip["source"], bool(tip["hidden"]))
        filters = self._filters
        return three(filters.archived, bool(tip["archived"])) and three(filters.internal, behind)

    def _cron(self, root: str) -> bool:
        link = self.reader.lineage.link(root)
        return link is not None and same(link.source) == "cron"

    def _by_time(self, ids: Iterator[int]) -> Iterator[int]:
        """Ids by the time of their message, the newest (or oldest) first; without a time last."""
        wanted = list(ids)
        chosen = set(wanted)
        times: dict[int, Any] = {}
        if len(wanted) > MANY:
            for id_, time in self.db.execute("SELECT id, timestamp FROM messages"):
                if id_ in chosen:
                    times[id_] = time
        else:
            for some in chunks(wanted):
                times.update(
                    (row[0], row[1])
                    for row in self.db.execute(
                        f"SELECT id, timestamp FROM messages WHERE id IN ({marks(some)})", some
                    )
                )
        return iter(sorted(times, key=lambda id_: by_time(id_, times[id_], self.asked.sort)))

    # --- titles and ids

    def _named(self) -> list[Hit]:
        """Conversations whose title answers, or whose id is what was typed (at least 6 letters,
        with a digit among them).
        """
        found: dict[str, str] = {}
        titles: dict[str, str] = {}
        plan = self.asked.plan
        assert plan is not None
        if isinstance(plan, Term) and len(plan.typed) >= 6 and any(map(str.isdigit, plan.typed)):
            ids = self.db.execute("SELECT id FROM sessions WHERE instr(id, ?)", (plan.typed,))
            found.update((row[0], "session_id") for row in ids)
        if self.db.schema.has("sessions", "title"):
            for session_id, title in self._titles():
                if query.matches(plan, [query.fold(query.composed(title))]):
                    found.setdefault(session_id, "session_title")
                    titles[session_id] = title
        hits = []
        for session_id, kind in found.items():
            root = self.allowed(session_id)
            if root is None:
                continue
            first = self.first(self.reader.lineage.chain(session_id), session_id)
            if first is not None:
                hits.append(Hit(first["id"], first["session_id"], first["role"],
                                first["timestamp"], kind=kind, root=root,
                                title=titles.get(session_id, session_id)))  # fmt: skip
        return hits

    def _titles(self) -> Iterator[tuple[str, str]]:
        """(id, title) of sessions whose title has one of the terms: all titles are folded and
        looked through as one text.
        """
        gathered = self.db.execute(
            "SELECT group_concat(rowid || ' ' || title, char(30)) FROM sessions "
            "WHERE title IS NOT NULL"
        ).fetchone()[0]
        lines = query.fold(query.composed(gathered or "")).split("\x1e")
        words = [term.text.split(" ")[0] for term in self._terms]
        rows = [
            int(line.split(" ")[0])
            for word in dict.fromkeys(words) for line in lines
            if word in line and line.split(" ")[0].isdigit()
        ]  # fmt: skip
        for some in chunks(dict.fromkeys(rows)):
            yield from (
                (str(row[0]), str(row[1]))
                for row in self.db.execute(
                    f"SELECT id, title FROM sessions WHERE rowid IN ({marks(some)})", some
                )
            )

    def first(self, rows: Sequence[str], named: str) -> Any:
        """The first live user message of the session that is named, else of its conversation;
        without any, its first message.
        """
        times, values = "1", []
        for bound, sign in ((self.asked.selection.after, ">="), (self.asked.selection.before, "<")):
            if bound is not None:
                times += f" AND m.timestamp {sign} ?"
                values.append(bound)
        for role in ("m.role = 'user'", "1"):
            for session_id in (named, *rows):
                row = self.db.execute(
                    "SELECT m.id, m.session_id, m.role, m.timestamp FROM messages m "
                    f"WHERE m.session_id = ? AND {role} AND {times} AND {self.db.schema.live} "
                    f"AND {messages.visible(self.db)} ORDER BY m.id LIMIT 1",
                    (session_id, *values),
                ).fetchone()
                if row is not None:
                    return row
        return None

    # --- order

    def _ordered(self, hits: list[Hit]) -> list[Hit]:
        if self.asked.sort != "relevance":
            return sorted(hits, key=lambda hit: by_time(hit.id, hit.timestamp, self.asked.sort))
        rank(hits)
        return sorted(hits, key=lambda hit: (-hit.score, -hit.time, -hit.id))

    def _grouped(self, best: list[Hit]) -> list[Hit]:
        """Named ones first, cron after people; within that the order stands."""
        place = {"session_id": 0, "session_title": 1, "message": 2}
        return sorted(best, key=lambda hit: (place[hit.kind], self._cron(hit.root)))

    # --- FTS5 as typed

    def _raw(self) -> Iterator[Hit]:
        """Hits of an FTS5 query, best first by its own ranking. Raises Usage and Unsupported."""
        asked = self.asked
        if schema.WORDS not in self.db.schema.virtual:
            raise Unsupported(f"--raw: this store has no index {schema.WORDS}")
        try:
            found = [
                row[0]
                for row in self.db.execute(
                    f"SELECT rowid FROM {schema.WORDS} WHERE {schema.WORDS} MATCH ? "
                    "ORDER BY rank, rowid DESC", (asked.raw,),
                )
            ]  # fmt: skip
        except sqlite3.OperationalError as error:
            if code(error) == 1 and "no such module" not in str(error):
                raise Usage(f"--raw {asked.raw!r}: {error}") from error
            raise
        for start in range(0, len(found), BATCH):
            for number, row in enumerate(self._rows(found[start : start + BATCH]), start):
                root = self.allowed(row["session_id"])
                if root is not None:
                    yield Hit(row["id"], row["session_id"], row["role"], row["timestamp"],
                              row["tool_name"], root=root, raw=number + 1)  # fmt: skip


def stale(db: Database) -> str | None:
    """Why an index that FTS5 was asked directly may not know everything."""
    return Routes(db).why


def by_time(id_: int, timestamp: Any, sort: str) -> tuple[bool, float, int]:
    """Sort key: exact by time, ties by id, what has no time last."""
    time = valid(timestamp)
    sign = -1 if sort == "newest" else 1
    return time is None, sign * (time or 0.0), sign * id_


def rank(hits: list[Hit]) -> None:
    """Score hits against each other: how often each wanted term stands in how short a text, rare
    terms weighing more (BM25's formula); the query as a whole counts double; the summary of a
    compaction half, since it only repeats.
    """
    judged = [hit for hit in hits if hit.counts]
    if judged:
        number = len(judged)
        mean = sum(max(hit.length, BRIEF) for hit in judged) / number
        columns = zip(*(hit.counts for hit in judged), strict=True)
        with_term = [sum(1 for count in column if count) for column in columns]
        weight = [math.log(1 + (number - n + 0.5) / (n + 0.5)) + 0.1 for n in with_term]
        for hit in judged:
            damp = 1.2 * (0.25 + 0.75 * max(hit.length, BRIEF) / mean)
            hit.score = sum(
                one * count * 2.2 / (count + damp)
                for one, count in zip(weight, hit.counts, strict=True)
            )
            hit.score *= (2.0 if hit.whole else 1.0) * (0.5 if hit.summary else 1.0)
    for hit in hits:
        if hit.raw:
            hit.score = -hit.raw


def _take(ids: Iterator[int], number: int) -> Iterator[int]:
    for _ in range(number):
        for id_ in ids:
            yield id_
            break
        else:
            return


# --- what is shown of a hit


def snippet(text: str, terms: Sequence[Term], size: int = SNIPPET) -> str | None:
    """A line of a text around the terms it holds, `>>>these marked<<<`; None if it holds none.
    Bounded, whatever the length of the text or of its lines.
    """
    folded = query.fold(text)
    found = [at for term in terms for at in term.places(folded, 20)]
    if not found:
        return None

    def covers(start: int) -> int:
        return sum(
            1 for term in terms
            if (at := term.find(folded, start)) and at[1] <= start + size - BEFORE
        )  # fmt: skip

    begin = max(dict.fromkeys(at for at, _ in found[:20]), key=lambda at: (covers(at), -at))
    low, high = max(0, begin - BEFORE), min(len(folded), begin + size - BEFORE)
    spans = []
    for term in terms:
        start = max(0, low - 1)
        while (span := term.find(folded, start)) and span[0] < high:
            if span[0] >= low:
                spans.append((span[0], min(span[1], high)))
            start = max(span[1], span[0] + 1)
    first = unfolded(text, low)
    piece, places = [], _marks(spans)
    at = low
    for letter in text[first : first + 4 * size]:
        if at >= high:
            break
        width = len(query.fold(letter))
        piece.append(places.pop(at, "") if width else "")
        piece.append(letter)
        at += width
    piece += [places[key] for key in sorted(places)]
    line = " ".join("".join(piece).replace(KEY, ": ").replace(APART, " ").split())
    return (MORE if low else "") + line + (MORE if high < len(folded) else "")


def _marks(spans: list[tuple[int, int]]) -> dict[int, str]:
    """Place in the folded text → the marks that stand before its letter; overlaps are one."""
    joined: list[list[int]] = []
    for begin, end in sorted(spans):
        if joined and begin < joined[-1][1]:
            joined[-1][1] = max(joined[-1][1], end)
        else:
            joined.append([begin, end])
    places: dict[int, str] = {}
    for begin, end in joined:
        places[end] = places.get(end, "") + CLOSE
        places[begin] = places.get(begin, "") + OPEN
    return places


def unfolded(text: str, at: int, step: int = 4096) -> int:
    """The place in a text of a place in its folded form."""
    if text.isascii():
        return at
    passed = place = 0
    while place < len(text):
        width = len(query.fold(text[place : place + step]))
        if passed + width > at:
            break
        passed += width
        place += step
    for letter in text[place : place + step]:
        width = len(query.fold(letter))
        if passed + width > at:
            break
        passed += width
        place += 1
    return place


def shown(row: Any, terms: Sequence[Term]) -> str:
    """The snippet of a row, from the first of its texts that a term is found in."""
    parts = texts(row)
    best = max(parts, key=lambda text: sum(1 for term in terms if term.find(query.fold(text))))
    found = snippet(best, terms)
    if found is not None:
        return found
    return messages.preview(next((text for text in parts if text.strip()), ""), SNIPPET)


def brief(text: str, limit: int = CONTEXT) -> str:
    """The start of a text, its end marked where it was cut."""
    return text if len(text) <= limit else text[:limit] + MORE


def raw_snippets(db: Database, raw: str, ids: Sequence[int]) -> dict[int, str]:
    """Snippets that FTS5 itself makes, from the column that matched."""
    found = {}
    for some in chunks(ids):
        for row in db.execute(
            f"SELECT rowid, snippet({schema.WORDS}, -1, '{OPEN}', '{CLOSE}', '{MORE}', 40) "
            f"FROM {schema.WORDS} WHERE {schema.WORDS} MATCH ? AND rowid IN ({marks(some)})",
            (raw, *some),
        ):
            found[row[0]] = brief(" ".join(str(row[1]).split()), 2 * SNIPPET)
    return found


# --- records


def discoveries(
    db: Database, asked: Asked, found: Found, *, window: int = 5, bookends: int = 3,
    max_chars: int | None = None,
) -> Iterator[dict[str, Any]]:  # fmt: skip
    """Discovery records of hermes-session-jsonl(5), in order; one round of queries for all."""
    hits = found.hits
    wide = windows.around(
        db, [(hit.session_id, hit.id) for hit in hits], window, bookends=bookends, roles=ROLES,
        inactive=asked.inactive,
    )  # fmt: skip
    terms = query.terms(asked.plan) if asked.plan else []
    snippets = raw_snippets(db, asked.raw, [hit.id for hit in hits]) if asked.raw else {}
    reader = Reader(db)
    for hit in hits:
        one, around = reader.row(hit.session_id), wide[hit.id]
        if hit.kind == "session_title":
            line = snippet(query.composed(hit.title), terms) or hit.title
        elif hit.kind == "session_id":
            typed = terms[0].typed
            line = hit.title.replace(typed, f"{OPEN}{typed}{CLOSE}", 1)
        else:
            line = snippets[hit.id] if hit.id in snippets else shown(around.anchor, terms)
        yield {
            "session_id": hit.session_id, "title": one["title"], "when": iso(hit.timestamp),
            "source": one["source"], "model": one["model"], "snippet": line,
            "matched_role": hit.role if hit.kind == "message" else hit.kind,
            "match_message_id": hit.id,
            "bookend_start": bounded(around.start, max_chars),
            "messages": bounded(around.rows, max_chars, hit.id),
            "bookend_end": bounded(around.end, max_chars),
            "messages_before": len(around.before), "messages_after": len(around.after),
            "parent_session_id": one["parent_session_id"], "lineage_root_id": hit.root,
        }  # fmt: skip


def bounded(rows: Iterable[Any], most: int | None, anchor: int = -1) -> list[dict[str, Any]]:
    """Message rows as records, one of them the anchor; with `most`, texts of so many characters."""
    records = [messages.record(row, row["id"] == anchor) for row in rows]
    if most is not None:
        for record in records:
            if not isinstance(record["content"], str) and record["content"] is not None:
                record["content"] = messages.plain(record["content"])
            if record["content"]:
                record["content"] = brief(record["content"], most)
    return records


def hit_records(db: Database, asked: Asked, found: Found) -> Iterator[dict[str, Any]]:
    """Hit records of hermes-session-jsonl(5), in order; a few windows in memory at a time."""
    terms = query.terms(asked.plan) if asked.plan else []
    reader = Reader(db)
    for some in (found.hits[at : at + TOGETHER] for at in range(0, len(found.hits), TOGETHER)):
        wide = windows.around(
            db, [(hit.session_id, hit.id) for hit in some], 1, inactive=asked.inactive
        )
        snippets = raw_snippets(db, asked.raw, [hit.id for hit in some]) if asked.raw else {}
        for hit in some:
            one, around = reader.row(hit.session_id), wide[hit.id]
            yield {
                "session_id": hit.session_id, "message_id": hit.id, "role": hit.role,
                "timestamp": hit.timestamp, "when": iso(hit.timestamp),
                "tool_name": hit.tool_name, "source": one["source"], "model": one["model"],
                "session_started": one["started_at"],
                "snippet": snippets.get(hit.id) or shown(around.anchor, terms),
                "context": [
                    {"id": row["id"], "role": row["role"],
                     "content": brief(messages.plain(row["content"]))}
                    for row in around.rows
                ],
            }  # fmt: skip


def whereabouts(
    db: Database, asked: Asked, most: int = 200
) -> Iterator[tuple[str, dict[str, int]]]:
    """For a search that found nothing: (term, role → messages that have it) for each wanted term,
    in any role and any session that is not undone; counted up to `most`.
    """
    assert asked.plan is not None
    for term in query.terms(asked.plan):
        alone = Searcher(db, Asked(term, Selection(), roles=(), inactive=asked.inactive, limit=0))
        routes = Routes(db)
        try:
            found = list(alone.some(term, routes, most))
        except Unusable as error:
            found = list(alone.some(term, Routes(db, scan=str(error)), most))
        yield term.typed, {role: found.count(role) for role in dict.fromkeys(found)}
