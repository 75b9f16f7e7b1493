"""Words for people: widths as a terminal counts them, nothing that could steer it, times."""

import os
import re
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from hermes_tools.store import times

# Patterns are compiled at their first use: most runs never meet a control character.
# Terminal sequences first (their letters would stay behind), then every control character and
# the marks that turn the direction of text.
ESCAPES = (
    r"(?s)\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[PX^_].*?\x1b\\|\x1b\[[0-?]*[ -/]*[@-~]"
    r"|\x1b[ -/]*[0-~]?|\x9b[0-?]*[ -/]*[@-~]"
)
CONTROLS = r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]"
BREAKS = r"[\t\r\n\x0b\x0c\x85\u2028\u2029]+"
# Latin letters, dashes, quotes, arrows, boxes, and the marks we draw ourselves.
NARROW = dict.fromkeys(
    (*range(0xA1, 0xAD), *range(0xAE, 0x300), *range(0x2010, 0x2028), *range(0x2190, 0x2200),
     *range(0x2500, 0x25FD), 0x2699), "x",
)  # fmt: skip


_paper = False


@contextmanager
def on_paper() -> Iterator[None]:
    """What is drawn meanwhile goes into a file, not to the terminal."""
    global _paper
    before, _paper = _paper, True
    try:
        yield
    finally:
        _paper = before


def on_terminal() -> bool:
    """Whether standard output is read by a person."""
    return not _paper and sys.stdout is not None and sys.stdout.isatty()


def coloured() -> bool:
    """Whether colour is welcome: on a terminal, and nobody said no."""
    return on_terminal() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def style(line: str, *codes: int) -> str:
    """A line in colour where colour is welcome: 1 bold, 2 dim, 31 red, 32 green, 33 gold."""
    if not line or not coloured():
        return line
    return f"\x1b[{';'.join(map(str, codes))}m{line}\x1b[0m"


def width() -> int:
    """Columns of the terminal, 80 elsewhere."""
    if _paper:
        return 80
    try:
        return max(40, int(os.environ.get("COLUMNS") or os.get_terminal_size(1).columns))
    except (OSError, ValueError):
        return 80


def encode(line: str) -> bytes:
    """UTF-8 whatever the locale; bytes that were none become U+FFFD."""
    try:
        return line.encode()
    except UnicodeEncodeError:
        return line.encode("utf-8", "surrogateescape").decode("utf-8", "replace").encode()


def safe(value: str) -> str:
    """Stored text without terminal sequences and control characters; its line breaks stay."""
    value = value.replace("\r\n", "\n")
    if value.replace("\n", "").replace("\t", "").isprintable():
        return value
    return re.sub(CONTROLS, "", re.sub(ESCAPES, "", value))


def line(value: Any) -> str:
    """Any value as one safe line."""
    words = str(value)
    if not words.isprintable():
        words = safe(re.sub(BREAKS, " ", re.sub(ESCAPES, "", words)))
    return " ".join(words.split())


def cell(value: Any) -> str:
    """A value for TSV: empty for None, lists as JSON, no tab or newline inside."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict | list):
        from hermes_tools.console.streams import dumps

        return dumps(value).decode().strip()
    return line(value)


def narrow(value: str) -> bool:
    """Whether every character takes one column and stands for itself. Most text is like that, and
    to load the tables of all others costs a short run a sixth.
    """
    return value.isascii() or value.translate(NARROW).isascii()


def columns(value: str) -> int:
    """Display width, as terminals count CJK, emoji and combining marks."""
    if narrow(value):
        return len(value)
    from wcwidth import wcswidth

    found = wcswidth(value)
    return found if found >= 0 else len(value)


def graphemes(value: str) -> Iterator[str]:
    """Whole characters as a person sees them: an emoji family or a letter with its accents."""
    if narrow(value):
        yield from value
        return
    from wcwidth import iter_graphemes

    yield from iter_graphemes(value)


def cut(value: str, limit: int) -> str:
    """At most `limit` columns, whole characters only, the cut marked."""
    if narrow(value):
        return value if len(value) <= limit else value[: limit - 1].rstrip() + "…"
    if columns(value) <= limit:
        return value
    kept, used = [], 0
    for letter in graphemes(value):
        used += columns(letter)
        if used > limit - 1:
            break
        kept.append(letter)
    return "".join(kept).rstrip() + "…"


def pad(value: str, wide: int) -> str:
    """Filled with spaces to a display width."""
    return value + " " * max(0, wide - columns(value))


def wrap(value: str, wide: int) -> list[str]:
    """One line folded into lines of at most `wide` columns, between words where it can be."""
    if columns(value) <= wide and "\t" not in value:
        return [value.rstrip()]
    if narrow(value):
        import textwrap

        folded = textwrap.wrap(value, wide, break_on_hyphens=False)
    else:
        from wcwidth import wrap as fold

        folded = fold(value, wide, break_on_hyphens=False)
    return folded or [""]


def table(
    rows: Iterable[Sequence[str]], heads: Sequence[str], fixed: Iterable[int] = (),
    right: Iterable[int] = (),
) -> Iterator[str]:
    """Rows under heads, fitted to the terminal. Columns in `fixed` (ids, times) are never cut; the
    others share what is left, the wider giving first. Those in `right` (numbers) end together.
    """  # fmt: skip
    body = [[line(value) for value in row] for row in rows]
    fixed, right = set(fixed), set(right)
    wide = [
        max([columns(head), *(columns(row[index]) for row in body)])
        for index, head in enumerate(heads)
    ]
    excess = sum(wide) + 2 * (len(heads) - 1) - width()
    while excess > 0:
        loose = [index for index in range(len(heads)) if index not in fixed and wide[index] > 8]
        if not loose:
            break
        widest = max(loose, key=lambda index: wide[index])
        others = [wide[index] for index in loose if wide[index] < wide[widest]]
        step = min(excess, wide[widest] - max(others, default=8)) or 1
        wide[widest] -= step
        excess -= step
    yield style(_row(heads, wide, right), 1)
    yield style("  ".join("─" * size for size in wide), 2)
    for row in body:
        yield _row(row, wide, right)


def tree(rows: Iterable[tuple[int, bool, str]]) -> Iterator[str]:
    """Rows (depth, whether it goes on where the row it hangs on ends, words) as a drawing; each
    comes before those below it. Rows that go on stand under each other, the last of them last.
    """
    level: list[int] = []  # by depth: where a row of that depth was drawn
    goes: list[bool] = []
    placed: list[tuple[int, str]] = []
    for depth, goes_on, words in rows:
        del level[depth:], goes[depth:]
        above = level[-1] if level else -1
        level.append(above if goes_on and goes and goes[-1] else above + 1)
        goes.append(goes_on)
        placed.append((level[-1], words))
    drawn: list[str] = []
    follows: dict[int, bool] = {}  # by level: whether a row of that level comes below
    for at, words in reversed(placed):
        bars = ("│  " if follows.get(above) else "   " for above in range(1, at))
        corner = ("├─ " if follows.get(at) else "└─ ") if at else ""
        drawn.append("".join(bars) + corner + words)
        follows = {above: True for above in follows if above < at} | {at: True}
    yield from (cut(words, max(width(), 60)) for words in reversed(drawn))


def _row(cells: Sequence[str], wide: Sequence[int], right: set[int]) -> str:
    shown = []
    for index, (value, size) in enumerate(zip(cells, wide, strict=True)):
        value = cut(value, size)
        shown.append(" " * (size - columns(value)) + value if index in right else pad(value, size))
    return "  ".join(shown).rstrip()


def ago(value: Any, now: float | None = None) -> str:
    """`5m ago`, `3h ago`, `yesterday`, `4d ago`; from a week on the local date; `?` for none."""
    seconds = times.valid(value)
    if seconds is None:
        return "?"
    passed = (time.time() if now is None else now) - seconds
    if passed < 0 or passed >= 7 * 86400:
        return datetime.fromtimestamp(seconds).strftime("%Y-%m-%d")
    if passed < 60:
        return "just now"
    if passed < 3600:
        return f"{int(passed / 60)}m ago"
    if passed < 86400:
        return f"{int(passed / 3600)}h ago"
    return "yesterday" if passed < 2 * 86400 else f"{int(passed / 86400)}d ago"


def local(value: Any) -> str:
    """A stored time in the reader's own zone, to the minute; `?` for none."""
    seconds = times.valid(value)
    return "?" if seconds is None else datetime.fromtimestamp(seconds).strftime("%Y-%m-%d %H:%M")


def amount(bytes_: int) -> str:
    """Bytes for a person: `790.1 MB`."""
    value = float(bytes_)
    for unit in ("B", "KB", "MB", "GB"):
        if value < 1024 or unit == "GB":
            return f"{value:,.0f} B" if unit == "B" else f"{value:,.1f} {unit}"
        value /= 1024
    raise AssertionError


def count(number: int, noun: str) -> str:
    """`1 message`, `1,717 messages`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
