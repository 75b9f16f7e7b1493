"""hermes-session-append: add messages to a session"""

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Annotated

import typer

from hermes_tools.console import streams, text
from hermes_tools.console.app import entry
from hermes_tools.console.options import Live, Output, Store, Writing, option
from hermes_tools.console.status import Status, status_of
from hermes_tools.console.streams import Record
from hermes_tools.store import titles, writing
from hermes_tools.store.db import Database, transaction
from hermes_tools.store.errors import Damaged, Usage
from hermes_tools.store.sessions import Reader, resolve

SILENCE = 0.5  # seconds after which a batch that is not full is written, with --follow


@dataclass
class Target:
    """The session that is added to; `id` is None until a new one begins, with the first batch."""

    id: str | None
    source: str | None = None
    title: str | None = None
    parent: str | None = None
    live: bool = False
    number: int = 0  # messages written so far


def append(
    output: Output, store: Writing,
    session: Annotated[str | None, typer.Argument(
        metavar="[SESSION]", show_default=False, help="A session id, title or unique prefix.")]
    = None,
    new: Annotated[bool, option("--new", help="Begin a session instead of naming one.")] = False,
    source: Annotated[str | None, option(
        "--source", metavar="S", show_default=False, help="Where the new one comes from.")] = None,
    title: Annotated[str | None, option(
        "--title", metavar="T", show_default=False, help="The title of the new one.")] = None,
    parent: Annotated[str | None, option(
        "--parent", metavar="SESSION", show_default=False,
        help="The session that the new one continues; it ends by compression.")] = None,
    batch: Annotated[int | None, option(
        "--batch", metavar="N", min=1, show_default=False,
        help="Write N messages at a time; default all.")] = None,
    follow: Annotated[bool, option(
        "--follow", help="Write what comes as it comes; for an input that does not end.")] = False,
    live: Live = False,
) -> None:  # fmt: skip
    """Add messages from standard input, one JSON object a line, to the end of a session.

    A batch is written whole or not at all; a record with its message_id is printed for each
    message. Without --batch the whole input is one batch.
    """
    if new and session is not None:
        raise Usage("--new begins a session; SESSION names one that exists")
    if not new and any(value is not None for value in (source, title, parent)):
        raise Usage("--source, --title and --parent go with --new")
    if new and source is None and parent is None:
        raise Usage("--new needs --source (or --parent, whose source it takes)")
    if source is not None and not source.strip():
        raise Usage("an empty source (an unset variable?)")
    if not new and session is None:
        raise Usage("no session named; --new begins one")
    if session == "-":
        raise Usage("'-': standard input holds the messages; name the session")
    if streams.stdin() and sys.stdin.isatty():
        raise Usage("messages are read from standard input, and that is a terminal")
    target = Target(None, source, None if title is None else titles.check(title), live=live)
    with store.change(dry_run=True) as db:  # who is refused need not send a line
        for one in (session, parent):
            if one is not None:
                row = resolve(db, one)
                writing.require_open(db, row, live=live)
                target.id, target.parent = (row, None) if one is session else (None, row)
    output.write(written(store, target, batches(batch, follow), follow), lines, store.quiet)


def batches(size: int | None, follow: bool) -> Iterator[list[writing.Message]]:
    """Messages of standard input in lists to be written together; at least one list."""
    left = 0  # undone or compacted messages of an export
    arriving = streams.arriving(SILENCE) if follow else streams.lines(streams.stdin())
    some: list[writing.Message] = []
    began = False
    for found in arriving:
        if found is not None:
            number, line = found
            record = streams.record(line, f"standard input, line {number}")
            if record.get("active") == 0:
                left += 1
                continue
            some.append(message(record, number))
        if some and (found is None or len(some) == size):
            yield some
            some, began = [], True
    if left:
        streams.complain(f"left out {text.count(left, 'message')} that were undone or compacted")
    if some or not began:
        yield some


def message(record: Record, number: int) -> writing.Message:
    """A message of standard input. Raises Damaged with its line."""
    try:
        return writing.incoming(record)
    except Damaged as error:
        raise Damaged(f"standard input, line {number}: {error}") from None


def written(
    store: Store, target: Target, found: Iterable[list[writing.Message]], follow: bool
) -> Iterator[Record]:
    """Write batches as they come, each in one transaction; their records, handed over at once."""
    for some in found:
        if some or target.id is None:
            yield from put(store, target, some, follow)
            streams.flush()


def put(
    store: Store, target: Target, some: list[writing.Message], follow: bool
) -> Iterator[Record]:
    """Write a batch. The store is opened anew for each: one that was restored or migrated since
    is another file. Whoever follows waits for a lock as long as it takes.
    """
    while True:
        try:
            with store.write() as db, transaction(db):
                session_id, ids = one_batch(db, target, some)
            break
        except Exception as error:
            if not follow or status_of(error) is not Status.BUSY:
                raise
            streams.complain(f"{error}; waiting")
    target.number += len(ids)
    target.id, new = session_id, target.id is None
    if new and not ids:  # nothing else would tell its id
        with store.read() as db:
            reader = Reader(db)
            one = reader.conversation(session_id, segment=True)
            yield {**one.record(reader.lineage.root(session_id)), "action": "created"}
    yield from ({"session_id": session_id, "message_id": one} for one in ids)


def one_batch(
    db: Database, target: Target, some: list[writing.Message]
) -> tuple[str, list[int]]:
    """The session and the messages' ids; part of a transaction."""
    session_id = target.id
    if session_id is None:
        session_id = writing.begin(
            db, target.source, target.title, target.parent, live=target.live
        )
    else:
        writing.require_open(db, session_id, live=target.live, first=not target.number)
    return session_id, [writing.add(db, session_id, one) for one in some]


def lines(records: Iterable[Record]) -> Iterator[str]:
    """A line a message: session and message id."""
    for one in records:
        yield f"{text.line(one['session_id'])} {one.get('message_id', '')}".rstrip()


main = entry(append)
