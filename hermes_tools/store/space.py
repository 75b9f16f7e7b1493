"""Space in the store's file: who takes it, giving it back, leaving no trace in it."""

import fcntl
import os
import re
import shutil
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hermes_tools.store import inuse, schema
from hermes_tools.store.batches import pause_after
from hermes_tools.store.db import Database, transaction
from hermes_tools.store.errors import Busy, Unsupported

STEP = 200  # pages of index a merge step writes at most: a few hundredths of a second


def files(path: Path) -> dict[str, int]:
    """Bytes of the store's file and of those beside it, by name."""
    found = {}
    for suffix in ("", "-wal", "-shm"):
        try:
            found[path.name + suffix] = os.stat(f"{path}{suffix}").st_size
        except OSError:
            found[path.name + suffix] = 0
    return found


def report(db: Database) -> dict[str, int]:
    """Bytes of the files, of the free pages, and of each table and index where SQLite tells."""
    return {**files(db.path), "free pages": reclaimable(db), **(objects(db) or {})}


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
    """Merge an index's segments step by step, each in a transaction of its own with a pause after
    it, until one is left; gives the number of each step as it is done.
    """
    number, share = 0, -STEP  # the negative first step makes one merge of all segments
    while True:
        with transaction(db):
            started, before = time.monotonic(), db.total_changes
            db.execute(f"INSERT INTO \"{index}\"(\"{index}\", rank) VALUES ('merge', {share})")
            did = db.total_changes - before
        number, share = number + 1, STEP
        yield number
        if did < 2:  # FTS5's own word for: there was nothing left to merge
            return
        time.sleep(pause_after(time.monotonic() - started))


def require_room(db_path: Path, needed: int) -> None:
    """Refuse where a copy of the store does not fit: VACUUM makes one among the temporary files
    and one in the WAL. Raises Busy: nothing is wrong with the store, there may be room later.
    """
    wanted: dict[int, tuple[Path, int]] = {}
    for place in (db_path.absolute().parent, temporary_folder()):
        device = os.stat(place).st_dev
        wanted[device] = (place, wanted.get(device, (place, 0))[1] + needed)
    for place, bytes_ in wanted.values():
        free = shutil.disk_usage(place).free
        if free < bytes_:
            raise Busy(
                f"{place}: {free // 2**20:,} MB are free, {bytes_ // 2**20:,} MB are needed; "
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


# What the agent locks while it rebuilds or repairs (store-facts 2.3).
LOCKS = (".fts_rebuild.lock", ".repair.lock")


def locked(path: Path) -> bool:
    """Whether somebody holds a lock file."""
    try:
        with open(path, "rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


@contextmanager
def alone(path: Path) -> Iterator[Database]:
    """The store held alone, with room to write it anew. Raises Busy."""
    for name in LOCKS:
        if locked(path.with_name(path.name + name)):
            raise Busy(f"{path}{name}: the agent is at work on the store; nothing was changed")
    what = "a vacuum (hermes-session-backup --compact makes a small copy beside others)"
    with inuse.alone(path, what) as db:
        schema.require_store(db)
        require_room(path, live_bytes(db))
        yield db


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


# Old indexes that the agent has yet to drop (store-facts 1.6).
TRASH = "fts_v22_trash_"


def require_erasable(db: Database) -> None:
    """Refuse where an index would keep what is deleted: one that cannot be written here, one that
    no trigger keeps up with the messages, one set aside. Raises Unsupported.
    """
    here, reason = indexes(db), ""
    deleting = [
        sql for table, sql in db.schema.triggers.values()
        if table == "messages" and re.search(r"\bDELETE\s+ON\b", sql, re.I)
    ]  # fmt: skip
    for name in (*db.schema.virtual, *db.schema.tables):
        if name.startswith(TRASH):
            reason = "is an old index that the agent has yet to drop"
        elif name not in db.schema.virtual:
            continue
        elif name not in here:
            reason = "cannot be written here, its tokenizer is missing"
        elif not any(re.search(rf"\b{re.escape(name)}\b", sql) for sql in deleting):
            reason = "does not follow what is deleted; hermes-session-check says how to mend it"
        else:
            continue
        raise Unsupported(
            f"{db.path}: {name} {reason}, and would keep words of it; nothing was deleted"
        )


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
