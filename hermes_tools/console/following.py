"""Incremental export: from a cursor file, or as changes arrive."""

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain
from pathlib import Path

import orjson

from hermes_tools.console import files, outlet, streams
from hermes_tools.console.options import Store
from hermes_tools.store import cursor, formats
from hermes_tools.store.cursor import Change, Position
from hermes_tools.store.db import Database, reader, snapshot
from hermes_tools.store.errors import Busy, Damaged, Denied, Missing, Negative, Usage
from hermes_tools.store.exporting import Exporter
from hermes_tools.store.home import sync_folder
from hermes_tools.store.lineage import Lineage
from hermes_tools.store.picking import picked
from hermes_tools.store.selection import Selection

POLL = 0.5


def pending(path: Path) -> Path:
    """Where the new position waits until what was written is known to have arrived."""
    return path.with_name(path.name + ".next")


def commit(path: Path) -> None:
    """Adopt the position of the last run. Raises Negative if none waits."""
    try:
        os.replace(pending(path), path)
    except FileNotFoundError:
        raise Negative(f"{pending(path)}: no position waits there to be adopted") from None
    sync_folder(path.parent)


def increment(
    store: Store, make: "Maker", selection: Selection, form: str, saved: Path, output: Path | None
) -> None:
    """Write what is new since the run that wrote the cursor file `saved`. Where it was written to
    a file the position is adopted at once, else it waits for `commit`.
    """
    with store.read() as db, snapshot(db):
        position = read(saved, db)
        chunks = news(make(db), position, selection, form)
        if output is None or str(output) == "-":
            outlet.deliver(chunks, None, store.quiet)
            streams.flush()
            save(position, db, pending(saved))
        else:
            first = next(chunks, None)
            if first is not None:
                outlet.deliver(chain((first,), chunks), output)
            save(position, db, saved)


def stream(
    store: Store, make: "Maker", selection: Selection, form: str, saved: Path | None,
    output: Path | None,
) -> None:  # fmt: skip
    """Write what is new as it arrives, for as long as somebody listens."""
    if output is not None:
        raise Usage("--follow writes to standard output")
    for chunk in follow(store.path, store.timeout, make, selection, form, saved):
        if not store.quiet:
            streams.write(chunk)
            streams.flush()


def read(path: Path, db: Database) -> Position:
    """The position of a cursor file; the beginning where there is none yet."""
    try:
        return cursor.load(path.read_bytes(), db, str(path))
    except FileNotFoundError:
        if not path.parent.is_dir():
            raise Missing(f"{path.parent}: no such folder") from None
        return {}


def save(position: Position, db: Database, path: Path) -> None:
    """Write a position, whole or not at all."""
    with files.atomic(path) as file:
        file.write(cursor.dump(position, db.path))


def news(
    exporter: Exporter, position: Position, selection: Selection, form: str
) -> Iterator[bytes]:
    """What is new since a position, which moves along as its lines are taken."""
    db = exporter.db
    ids = [row for one in picked(db, selection) for row in one.members]
    lineage = Lineage(db)
    for change in cursor.changes(exporter, dict(position), ids):
        yield from outlet.steady(db, told(exporter, lineage, change, form))
        if change.mark is None:
            del position[change.session_id]
        else:
            position[change.session_id] = change.mark


def told(exporter: Exporter, lineage: Lineage, change: Change, form: str) -> Iterator[bytes]:
    """The lines of one change."""
    if form == "messages":
        if change.mark is None:
            yield formats.gone(exporter, change.session_id)
        else:
            root = lineage.root(change.session_id)
            yield from formats.flat(
                exporter, [change.session_id], root, above=change.above
            )
    elif change.mark is None:
        record = {"id": change.session_id, "_deleted": True, **exporter.stamps, "_format": 1}
        yield orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE)
    else:
        stamps = {"_delta": {"after": change.after}}
        yield from exporter.line(change.session_id, above=change.above, stamps=stamps)


def follow(
    path: Path, timeout: float, make: "Maker", selection: Selection, form: str,
    saved: Path | None,
) -> Iterator[bytes]:  # fmt: skip
    """New lines as they arrive, for ever; from a saved position, or from now on. The store may be
    locked, migrated, moved away and put back meanwhile.
    """
    position: Position | None = None
    silent = False
    while True:
        try:
            with reader(path, timeout) as db:
                silent = False
                if position is None:
                    position = read(saved, db) if saved else {}
                    if saved is None:
                        with snapshot(db):
                            for _ in news(make(db), position, selection, form):
                                pass
                yield from _watch(db, path, make, position, selection, form, saved)
        except (Missing, Busy, Damaged, Denied, sqlite3.Error) as error:
            if position is None:
                raise
            if not silent:
                streams.complain(f"{error}; waiting for it")
            silent = True
        time.sleep(POLL)


class Maker:
    """Makes the exporter for a store that was opened anew."""

    def __init__(self, live_only: bool, share: bool, stamps: dict[str, str]) -> None:
        self._options = (live_only, share, stamps)

    def __call__(self, db: Database) -> Exporter:
        live_only, share, stamps = self._options
        return Exporter(db, live_only=live_only, share=share, stamps=stamps)


def _watch(
    db: Database, path: Path, make: Maker, position: Position, selection: Selection, form: str,
    saved: Path | None,
) -> Iterator[bytes]:  # fmt: skip
    """Until the file is another one, or its tables are."""
    place = os.stat(path)
    version = layout = None
    while True:
        with suppress(FileNotFoundError):
            here = os.stat(path)
            if (here.st_ino, here.st_dev) != (place.st_ino, place.st_dev):
                return
        seen = (
            db.execute("PRAGMA data_version").fetchone()[0],
            db.execute("PRAGMA schema_version").fetchone()[0],
        )
        if layout is not None and seen[1] != layout:
            return
        if seen[0] != version:
            with snapshot(db):
                yield from news(make(db), position, selection, form)
            streams.flush()
            if saved is not None:
                save(position, db, pending(saved))
        version, layout = seen
        time.sleep(POLL)
