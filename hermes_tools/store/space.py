"""Space in the store's file: who takes it, giving it back, leaving no trace in it."""

import os
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hermes_tools.store import schema
from hermes_tools.store.db import Database, transaction
from hermes_tools.store.errors import Busy

STEP = 200  # pages of index a merge step writes at most: a few hundredths of a second


def sizes(path: Path) -> dict[str, int]:
    """Bytes of the file and of what lies beside it."""
    found = {}
    for name, suffix in (("db", ""), ("wal", "-wal"), ("shm", "-shm")):
        try:
            found[name] = os.stat(f"{path}{suffix}").st_size
        except OSError:
            found[name] = 0
    return found


def pages(db: Database) -> tuple[int, int, int]:
    """(bytes of a page, pages, free pages)."""
    size, count, free = (
        int(db.execute(f"PRAGMA {name}").fetchone()[0])
        for name in ("page_size", "page_count", "freelist_count")
    )
    return size, count, free


def reclaimable(db: Database) -> int:
    """Bytes of free pages: what a VACUUM would give back."""
    size, _, free = pages(db)
    return size * free


def live_bytes(db: Database) -> int:
    """Bytes of pages that are in use."""
    size, count, free = pages(db)
    return size * (count - free)


def indexes(db: Database) -> list[str]:
    """The full-text indexes this process can write: those whose tokenizer is here."""
    return [
        name for name, create in db.schema.virtual.items()
        if "fts5" in create.lower() and schema.has_tokenizer(schema.tokenizer(create))
    ]  # fmt: skip


def merge(db: Database, index: str) -> Iterator[int]:
    """Merge an index's segments step by step, each in a transaction of its own, until nothing is
    left to do; gives the number of each step as it is done.

    A negative first step joins all segments into one chain of merges (FTS5's own rule).
    """
    number, pages_a_step = 0, -STEP
    while True:
        with transaction(db):
            before = db.total_changes
            db.execute(f'INSERT INTO "{index}"("{index}", rank) VALUES (\'merge\', {pages_a_step})')
            did = db.total_changes - before
        number += 1
        yield number
        if did < 2:  # FTS5: fewer than two changes mean that there was nothing to merge
            return
        pages_a_step = STEP


def require_room(path: Path, needed: int) -> None:
    """Refuse where a copy of the store would not fit, here or where SQLite makes its temporary
    files. Raises Busy: nothing is wrong with the store, and there may be room later.
    """
    for place in {path.absolute().parent, temporary_folder()}:
        free = shutil.disk_usage(place).free
        if free < needed:
            raise Busy(
                f"{place}: {free // 2**20:,} MB are free, {needed // 2**20:,} MB are needed; "
                "nothing was changed"
            )


def temporary_folder() -> Path:
    """Where SQLite puts temporary files (its own order of places)."""
    for name in ("SQLITE_TMPDIR", "TMPDIR"):
        place = os.environ.get(name)
        if place and os.access(place, os.W_OK):
            return Path(place)
    return next(
        (Path(place) for place in ("/var/tmp", "/usr/tmp", "/tmp") if os.access(place, os.W_OK)),
        Path.cwd(),
    )


def vacuum(db: Database) -> None:
    """Write the store anew without free pages, and shorten the WAL afterwards, which has taken
    a copy of all of it.
    """
    db.execute("VACUUM")
    truncate(db)


def truncate(db: Database) -> bool:
    """Write the WAL back and cut it to nothing; whether that worked (a reader can prevent it)."""
    busy = db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
    return not busy


def secure(db: Database) -> None:
    """From now on, what this connection deletes is overwritten with zeros."""
    db.execute("PRAGMA secure_delete = ON").fetchone()


def erase(db: Database) -> None:
    """Leave nothing of what was deleted in the file: index segments are merged until no deleted
    posting is left, free pages are dropped, the WAL is cut. The store must be held alone.
    """
    for index in indexes(db):
        db.execute(f'INSERT INTO "{index}"("{index}") VALUES (\'optimize\')')
    vacuum(db)


def objects(db: Database) -> dict[str, int] | None:
    """Bytes of each table and index, the parts of a full-text index under its name; None where
    this SQLite cannot tell (no dbstat).
    """
    names = sorted(db.schema.virtual, key=len, reverse=True)
    found: dict[str, int] = {}
    try:
        rows: list[Any] = db.execute(
            "SELECT name, sum(pgsize) FROM dbstat WHERE aggregate = TRUE GROUP BY name"
        ).fetchall()
    except sqlite3.OperationalError:
        return None
    for name, size in rows:
        owner = next((index for index in names if name.startswith(f"{index}_")), name)
        found[owner] = found.get(owner, 0) + int(size)
    return dict(sorted(found.items(), key=lambda pair: -pair[1]))
