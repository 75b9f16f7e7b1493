"""hermes-session-stats: count conversations, tokens, cost and bytes"""

from collections.abc import Iterable, Iterator
from typing import Annotated, Any, Literal

from hermes_tools.console import streams, text
from hermes_tools.console.app import entry
from hermes_tools.console.options import (
    AllProfiles,
    Filters,
    Limit,
    Output,
    Store,
    option,
    say_cut,
)
from hermes_tools.console.streams import Record
from hermes_tools.store.db import Database
from hermes_tools.store.errors import Usage
from hermes_tools.store.selection import Selection
from hermes_tools.store.sessions import conversations, sizes
from hermes_tools.store.stats import Stats, top

By = Annotated[
    Literal["source", "model", "day", "hour", "tool", "role", "user"] | None,
    option("--by", metavar="source|model|day|hour|tool|role|user", show_default=False,
           help="One line a group; days and hours are local."),
]  # fmt: skip
Sort = Annotated[
    Literal["tokens", "cost", "size"] | None,
    option("--sort", metavar="tokens|cost|size", show_default=False,
           help="The conversations with most of it; with --by, the groups."),
]  # fmt: skip
Size = Annotated[bool, option("--size", help="The bytes of every table and index.")]

TOP = 10


def stats(
    filters: Filters, output: Output, store: Store, by: By = None, limit: Limit = None,
    sort: Sort = None, size: Size = False, all_profiles: AllProfiles = False,
) -> None:
    """Count what a store holds: sessions, messages, tokens, cost, bytes; all of it, or grouped,
    or the conversations that cost most. Tokens are input, output, cache read and cache write.
    """  # fmt: skip
    if size and (by or sort):
        raise Usage("--size stands alone")
    if (by and sort == "size") or (by in ("tool", "role") and sort):
        raise Usage(f"--by {by} has no {sort} to sort by")
    selection = filters.selection()

    def records() -> Iterator[Record]:
        for profile, db in store.each(all_profiles, selection):
            figures = Stats(db, rows(db, selection) if filters.given else None)
            for column, number in figures.garbage().items():
                streams.complain(f"{text.count(number, 'cell')} of {column} left out: no number")
            if size:
                found = figures.sizes()
            elif by:
                found = figures.by(by)
                if sort:
                    key = {"tokens": "tokens", "cost": "cost_usd"}[sort]
                    found.sort(key=lambda one: -(one[key] or 0))
            elif sort or limit is not None:
                taken = conversations(db, selection)
                bytes_of = sizes(db) if sort == "size" else {}
                found = top(figures, taken, sort or "tokens", bytes_of)
            else:
                found = [figures.summary()]
            most = TOP if limit is None and sort and not by else limit or 0
            if most and len(found) > most:
                say_cut(most, f"{len(found):,}", profile)
                found = found[-most:] if by == "day" and not sort else found[:most]
            for one in found:
                yield one | ({"profile": profile} if profile else {})

    render = summary if not (by or sort or size or limit is not None) else table(sort)
    output.write(records(), render, store.quiet)


def rows(db: Database, selection: Selection) -> Iterable[str]:
    """The session rows of the conversations that a selection takes."""
    return [row for one in conversations(db, selection, preview=False) for row in one.rows]


def summary(records: Iterable[Record]) -> Iterator[str]:
    """The store in a dozen lines."""
    for number, one in enumerate(records):
        if "profile" in one:
            yield from ("",) * (number > 0)
            yield text.style(f"Profile {text.line(one['profile'])}", 1)
        yield f"Total sessions: {one['sessions']}"
        yield from parts(one, "sessions", SESSION_PARTS)
        yield f"Total messages: {one['messages']}"
        yield from parts(one, "messages", MESSAGE_PARTS)
        yield f"Sources: {len(one['sources'])}"
        most = max((count["sessions"] for count in one["sources"].values()), default=1)
        for source, count in one["sources"].items():
            plural = "" if count["sessions"] == 1 else "s"
            words = f"  {text.line(source)}: {count['sessions']} session{plural}"
            yield f"{text.pad(words, 32)}{bar(count['sessions'], most)}".rstrip()
        yield f"Tokens: {one['tokens']:,}"
        for name in ("input", "output", "cache_read", "cache_write"):
            yield f"  {name.replace('_', ' ')}: {one[f'{name}_tokens']:,}"
        yield f"Cost: {money(one['cost_usd'])}"
        yield f"Database size: {text.amount(one['database_bytes'])}"
        yield f"  of it free: {text.amount(one['free_bytes'])}"
        yield f"  write-ahead log: {text.amount(one['wal_bytes'])}"
        yield f"  shared memory: {text.amount(one['shm_bytes'])}"
        yield f"  together: {text.amount(one['total_bytes'])}"


SESSION_PARTS = {
    "listed": "listed", "segments": "earlier segments of these", "archived": "archived",
    "internal": "internal", "empty": "empty",
}  # fmt: skip
MESSAGE_PARTS = {
    "live": "live", "compacted": "compacted", "rewound": "rewound",
    "orphaned": "of no session",
}  # fmt: skip


def parts(one: Record, whole: str, names: dict[str, str]) -> Iterator[str]:
    """Lines that add up to the one above them; none where there is one part only."""
    found = {words: one[f"{whole}_{name}"] for name, words in names.items()}
    if any(number for number in list(found.values())[1:]):
        yield from (f"  {words}: {number}" for words, number in found.items() if number)


def table(sort: str | None) -> streams.Renderer:
    """Groups, tables and indexes, or conversations, with a bar for what they are compared by."""

    def render(records: Iterable[Record]) -> Iterator[str]:
        found = list(records)
        if not found:
            return
        first = found[0]
        names = [name for name in (first.get("by"), "name", "title") if name in first]
        measure = {"tokens": "tokens", "cost": "cost_usd", "size": "bytes"}.get(
            sort or "", next(name for name in MEASURES if name in first)
        )
        shown = [name for name in NUMBERS if name in first]
        most = max((one[measure] or 0 for one in found), default=0) or 1
        heads = [names[0].capitalize(), *(NUMBERS[name] for name in shown)]
        body = [[label(one, names[0]), *(figure(name, one[name]) for name in shown)]
                for one in found]  # fmt: skip
        for key, head in (("session_id", "ID"), ("profile", "Profile")):
            if key in first:
                heads.append(head)
                for cells, one in zip(body, found, strict=True):
                    cells.append(one[key])
        if text.on_terminal() and "session_id" not in first:
            heads.append("")
            for cells, one in zip(body, found, strict=True):
                cells.append(bar(one[measure] or 0, most))
        numbers = range(1, len(shown) + 1)
        yield from text.table(body, heads, range(1, len(heads)), right=numbers)

    return render


NUMBERS = {
    "sessions": "Sessions", "calls": "Calls", "answers": "Answers", "messages": "Messages",
    "tokens": "Tokens", "cost_usd": "Cost", "bytes": "Size", "unused_bytes": "Unused",
}  # fmt: skip
MEASURES = ("bytes", "calls", "tokens", "messages", "sessions")


def label(one: Record, name: str) -> str:
    """How a line is called."""
    return text.line(one[name] or one.get("preview") or ("unknown" if "by" in one else "—"))


def figure(name: str, value: Any) -> str:
    """A number for a person."""
    if name == "cost_usd":
        return money(value)
    return text.amount(value) if name.endswith("bytes") else f"{value:,}"


def money(cost: float | None) -> str:
    """`$12.34`; `unknown` is not nothing."""
    return "unknown" if cost is None else f"${cost:,.2f}"


def bar(value: float, most: float, wide: int = 20) -> str:
    """A bar in eighths of a character, on a terminal only."""
    if not text.on_terminal() or not most:
        return ""
    eighths = round(8 * wide * value / most)
    return "█" * (eighths // 8) + " ▏▎▍▌▋▊▉"[eighths % 8].strip()


main = entry(stats)
