"""What a person typed, as a plan; and the one rule by which a text answers to it.

Pure functions: no store here. Every route of a search (store/routes.py) ends in `Term.find`, so
that an index changes the speed of an answer and never the answer.
"""

import re
import unicodedata
from collections.abc import Iterator
from typing import NamedTuple

from hermes_tools.store.errors import Usage

OPERATORS = ("AND", "OR", "NOT")
LONGEST = 100_000  # characters of a query
MOST = 200  # terms of a query

# The accents that the word index drops inside a word (SQLite's unicode61); it takes every other
# combining mark for a gap, and so do we.
MARKS = frozenset(
    map(chr, (
        *range(0x300, 0x305), *range(0x306, 0x30D), 0x30F, 0x311, 0x31B, *range(0x323, 0x329),
        0x32D, 0x32E, 0x330, 0x331,
    ))
)  # fmt: skip
# Letters of the Latin script beyond ASCII: a word goes on in them.
LATIN = (
    (0xAA, 0xBA), (0xC0, 0x2FF), (0x1D00, 0x1DBF), (0x1E00, 0x1EFF), (0x2C60, 0x2C7F),
    (0xA722, 0xA7FF), (0xAB30, 0xAB6F), (0xFB00, 0xFB06), (0xFF21, 0xFF5A),
)  # fmt: skip
# A typed question ends in these; its last word is meant without.
CLOSING = ",;!?"
# Patterns are compiled at their first use.
COMPOUND = r"[0-9A-Za-z][_.\-]+(?=[0-9A-Za-z])"


# What a typewriter has one key for; models write the printer's forms.
TYPED = {"’": "'", "‘": "'", "ʼ": "'", "‐": "-", "‑": "-"}


class _Fold(dict[int, str]):
    """Letter → letter without case and accent, each worked out once."""

    def __missing__(self, number: int) -> str:
        letter = TYPED.get(chr(number), chr(number)).lower().replace("ς", "σ")
        if letter[:1].isalpha() or letter in MARKS:
            parts = unicodedata.normalize("NFD", letter)
            letter = unicodedata.normalize("NFC", "".join(p for p in parts if p not in MARKS))
        self[number] = letter
        return letter


FOLD = _Fold()
# The letters that may change beyond their case: the others of a text are left to str.lower.
FOLDED = (
    "[‘’ʼ‐‑\u00e0-\u00ff\u0101-\u0233\u0300-\u0331\u0340-\u0345\u0374-\u037e\u0385-\u0390\u03ac-\u03b0"
    "\u03c2\u03ca-\u03d4\u0439\u0450-\u045e\u0476\u0477\u04c2-\u04f9\u1e00-\u1fff]"
)


class _Wordish(dict[str, bool]):
    """Whether a word in Latin letters goes on in this (folded) letter."""

    def __missing__(self, letter: str) -> bool:
        number = ord(letter)
        kind = unicodedata.category(letter)
        if number < 0x80 or kind[0] == "N":
            value = letter.isalnum()
        else:
            value = kind[0] == "L" and any(low <= number <= high for low, high in LATIN)
        self[letter] = value
        return value


WORDISH = _Wordish()


def composed(text: str) -> str:
    """Text with its letters composed (NFC): `é` is one letter, a Hangul syllable too."""
    if text.isascii() or unicodedata.is_normalized("NFC", text):
        return text
    return unicodedata.normalize("NFC", text)


def fold(text: str) -> str:
    """Composed text without case and accents: `ЁЖ` → `еж`, `Café` → `cafe`."""
    lower = text.lower()
    return lower if lower.isascii() else re.sub(FOLDED, _folded, lower)


def _folded(found: re.Match[str]) -> str:
    return FOLD[ord(found[0])]


class Term(NamedTuple):
    """One thing to be found. `text` is folded, its inner gaps single spaces; `typed` as typed.

    word: it must begin and end where a word does (terms whose letters are all ASCII); otherwise it
    may stand inside of a run. prefix: its end may lie inside a word.
    """

    text: str
    typed: str
    word: bool
    prefix: bool = False
    phrase: bool = False

    @property
    def pattern(self) -> re.Pattern[str] | None:
        """For a term with gaps: any white space will do between its parts."""
        if " " not in self.text:
            return None
        return re.compile(r"\s+".join(map(re.escape, self.text.split(" "))))

    def find(self, text: str, start: int = 0) -> tuple[int, int] | None:
        """(begin, end) of the first place in a folded text, from `start`; None if nowhere."""
        pattern = self.pattern
        while True:
            if pattern is None:
                begin = text.find(self.text, start)
                end = begin + len(self.text)
                if begin < 0:
                    return None
            else:
                found = pattern.search(text, start)
                if found is None:
                    return None
                begin, end = found.span()
            if self.bounded(text, begin, end):
                return begin, end
            start = begin + 1

    def bounded(self, text: str, begin: int, end: int) -> bool:
        """Whether a word begins and ends there, where that is asked for."""
        if not self.word:
            return True
        if begin and WORDISH[text[begin]] and WORDISH[text[begin - 1]]:
            return False
        return (
            self.prefix or end == len(text)
            or not (WORDISH[text[end - 1]] and WORDISH[text[end]])
        )  # fmt: skip

    def places(self, text: str, most: int = 100) -> Iterator[tuple[int, int]]:
        """Its places in a folded text, in order, without overlap."""
        at = self.find(text)
        while at is not None and most > 0:
            yield at
            most -= 1
            at = self.find(text, max(at[1], at[0] + 1))

    @property
    def parts(self) -> list[str]:
        """The ASCII words in it, as the word index cuts them."""
        return re.findall(r"[0-9a-z]+", self.text)


class And(NamedTuple):
    """All of `wanted` in one message, and none of `unwanted`."""

    wanted: "tuple[Node, ...]"
    unwanted: "tuple[Node, ...]" = ()


class Or(NamedTuple):
    """Any of them."""

    any: "tuple[Node, ...]"


Node = Term | And | Or


def matches(node: Node, texts: list[str]) -> bool:
    """Whether a message (its folded texts: content, tool name, tool calls) answers to a plan."""
    if isinstance(node, Term):
        return any(node.find(text) for text in texts)
    if isinstance(node, Or):
        return any(matches(one, texts) for one in node.any)
    return all(matches(one, texts) for one in node.wanted) and not any(
        matches(one, texts) for one in node.unwanted
    )


def terms(node: Node) -> list[Term]:
    """The terms a hit shows, in the order they were typed: all that are wanted, none unwanted."""
    if isinstance(node, Term):
        return [node]
    inner = node.any if isinstance(node, Or) else node.wanted
    return list(dict.fromkeys(term for one in inner for term in terms(one)))


def parse(words: list[str]) -> Node:
    """The plan of a query. Raises Usage where nothing is asked for, or only what is not wanted."""
    if not words or any(not word.strip() for word in words):
        raise Usage("an empty query (an unset variable?); hermes-session-list lists conversations")
    text = unicodedata.normalize("NFC", " ".join(words))
    if len(text) > LONGEST:
        raise Usage(f"a query of {len(text):,} characters; {LONGEST:,} are the most")
    tokens = list(_tokens(text))
    if len(tokens) > MOST:
        raise Usage(f"a query of {len(tokens):,} words; {MOST} are the most")
    found = [token for token in tokens if isinstance(token, Term)]
    if not found:
        if any(isinstance(token, str) for token in tokens):
            raise Usage(f"{text.strip()!r}: operators with nothing between them; "
                        "in lower case or quotes they are words")  # fmt: skip
        raise Usage(f"{text.strip()!r}: no letter, digit or symbol to look for")
    return _plan(tokens)


def _tokens(text: str) -> Iterator[Term | str]:
    """Terms and operators, in order. Quotes pair from the left, one that is left over is dropped;
    what is only punctuation separates words and is no term.
    """
    quotes = [at for at, letter in enumerate(text) if letter == '"']
    if len(quotes) % 2:
        text = text[: quotes[-1]] + " " + text[quotes[-1] + 1 :]
    for number, piece in enumerate(text.split('"')):
        if number % 2:
            if not piece.strip():
                raise Usage('an empty phrase: ""')
            term = make(piece, phrase=True)
            if term:
                yield term
            continue
        for word in piece.split():
            if word in OPERATORS:
                yield word
                continue
            term = make(word)
            if term:
                yield term


def make(typed: str, phrase: bool = False) -> Term | None:
    """One word or phrase as a term; None if there is nothing in it but separators."""
    prefix = not phrase and typed.endswith("*")
    text = typed.strip() if phrase else typed.rstrip("*")
    if not phrase and any(map(str.isalnum, text)):
        text = text.rstrip(CLOSING) or text
    text = text.rstrip("\ufe0e\ufe0f") or text  # an emoji with or without its style mark
    if not any(map(_counts, text)):
        return None
    folded = " ".join(fold(text).split())
    plain = any(letter.isalnum() for letter in text) and all(
        letter.isascii() for letter in text if letter.isalnum()
    )
    compound = not phrase and plain and re.search(COMPOUND, text) is not None
    if not folded:
        return None
    return Term(folded, typed.strip(), plain, prefix or compound, phrase)


def _counts(letter: str) -> bool:
    """Letters and digits of any script, and symbols beyond ASCII (emoji, arrows, currencies)."""
    kind = unicodedata.category(letter)
    if kind == "Co" or kind[0] in "LN":
        return True
    return kind[0] == "S" and not letter.isascii()


def _plan(tokens: list[Term | str]) -> Node:
    """AND binds closer than OR, NOT to its term. Operators that dangle or come twice are dropped;
    between two terms an OR among them wins.
    """
    groups: list[tuple[list[Term], list[Term]]] = [([], [])]
    waiting: set[str] = set()
    for token in tokens:
        if isinstance(token, str):
            waiting.add(token)
            continue
        wanted, unwanted = groups[-1]
        if "OR" in waiting and (wanted or unwanted):
            groups.append(([], []))
        groups[-1]["NOT" in waiting].append(token)
        waiting.clear()
    for wanted, unwanted in groups:
        if not wanted:
            raise Usage(
                f"NOT {unwanted[0].typed}: says only what is not wanted; name something that is"
            )
    plans = [_one(wanted, unwanted) for wanted, unwanted in groups]
    return plans[0] if len(plans) == 1 else Or(tuple(dict.fromkeys(plans)))


def _one(wanted: list[Term], unwanted: list[Term]) -> Node:
    all_, none = tuple(dict.fromkeys(wanted)), tuple(dict.fromkeys(unwanted))
    return all_[0] if len(all_) == 1 and not none else And(all_, none)
