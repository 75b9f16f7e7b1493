"""Which conversations a writing command acts on: named, selected, or named and narrowed."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from hermes_tools.console import options, streams, text
from hermes_tools.console.options import Filters
from hermes_tools.store import inuse
from hermes_tools.store.batches import Outcome
from hermes_tools.store.db import Database
from hermes_tools.store.selection import Selection
from hermes_tools.store.sessions import Conversation, Reader, conversations, require_sources

NONE, ALL = Filters(), Selection()


class Target(NamedTuple):
    """A conversation, the row that was named, and the record that named it, if one did."""

    one: Conversation
    row: str
    record: streams.Record | None = None


def names(ids: list[str] | None, filters: Filters) -> list[streams.Named] | None:
    """The names given as operands or on standard input, all read before any lock; None where
    filters alone select.
    """
    return None if not ids and filters.given else streams.names(ids)


def targets(
    db: Database, named: list[streams.Named] | None, filters: Filters = NONE,
    default: Selection = ALL, *,
    titles: bool = True, segment: bool = False, missing_ok: bool = False,
) -> Iterator[Target]:  # fmt: skip
    """Each conversation once. Names that are none are warned of, and so are records whose digest
    no longer holds. `default` is what filters alone select, with the command's own defaults;
    beside names only what was typed narrows.
    """
    reader = Reader(db)
    require_sources(db, default)
    if named is None:
        for one in conversations(db, default, reader=reader, preview=True):
            yield Target(one, one.id)
        return
    seen: set[str] = set()
    typed = filters.selection()
    for row, record in options.chosen(db, named, titles=titles, missing_ok=missing_ok):
        one = reader.conversation(row, segment=segment)
        if one.id in seen or (filters.given and not typed.takes(one)):
            continue
        seen.add(one.id)
        expected = (record or {}).get("digest")
        rows = [row] if segment else reader.lineage.members(row)
        if expected is not None and expected != seal(db, rows):
            streams.warn(f"session {one.id}: left alone: changed since its record was written")
            continue
        yield Target(one, row, record)


def seal(db: Database, rows: list[str]) -> str:
    """The digest of a conversation's rows."""
    from hermes_tools.store.exporting import digest

    return digest(db, rows)


def told(
    outcomes: Iterable[Outcome], named: list[streams.Named] | None, what: str = "left alone"
) -> Iterator[streams.Record]:
    """Outcomes as records. What was left alone is said; that is a failure (status 1) only for
    sessions somebody named: what a filter spares is spared.
    """
    say = streams.complain if named is None else streams.warn
    for outcome in outcomes:
        if outcome.action == "skipped":
            say(f"session {outcome.one.id}: {what}: {words(outcome.reason)}")
        yield outcome.record()


def words(reason: str | None) -> str:
    """A reason for a person, and what would lift it."""
    if reason in inuse.REASONS:
        return f"{inuse.REASONS[reason]}; --live acts all the same"
    return (reason or "?").replace("_", " ")


def action(record: streams.Record) -> str:
    """`deleted`, `skipped (handoff)`."""
    why = record.get("reason", "")
    what = str(record.get("action", "")).replace("_", " ")
    return f"{what} ({why})" if why and why.isidentifier() else what


def lines(records: Iterable[streams.Record]) -> Iterator[str]:
    """What was done, ID, title: a line as each is done, so that an interrupted run has told."""
    for one in records:
        head = f"{action(one):20}  {one['session_id']:26}  "
        room = max(20, text.width() - text.columns(head))
        name = text.line(one["title"] or one["preview"] or "—")
        yield head + (text.cut(name, room) if text.on_terminal() else name)


def table(records: Iterable[streams.Record]) -> Iterator[str]:
    """Title, Last Active, ID: of sessions that are only shown."""
    rows = [
        (one["title"] or one["preview"] or "—", text.ago(one["last_active"]), one["session_id"])
        for one in records
    ]
    if rows:
        yield from text.table(rows, ("Title", "Last Active", "ID"), fixed=(1, 2))
