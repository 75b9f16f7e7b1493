"""Copies of a store that are known to be good, and a store put back from one."""

import os
import re
import sqlite3
import time
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from hermes_tools.store.db import (
    Advance,
    Database,
    code,
    connect,
    is_wal,
    nothing,
    snapshot,
)
from hermes_tools.store.errors import Busy, Damaged, Missing
from hermes_tools.store.inuse import alone, holders, named
from hermes_tools.store.placing import placed
from hermes_tools.store.schema import require_store
from hermes_tools.store.times import EPOCH_FIRST, EPOCH_LAST

PAGES_AT_ONCE = 2048
PAUSE = 0.005  # between steps, in which a rollback-journal store's writer gets its turn
PATIENCE = 60.0  # seconds of restarts, after which such a store is copied in one go


@dataclass(frozen=True)
class Contents:
    """What a store holds: rows of either table, the newest message's time, bytes of the file."""

    sessions: int
    messages: int
    newest: float | None
    bytes: int


def contents(db: Database) -> Contents:
    """Count a store."""
    pages, size = (db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count",
                                                                           "page_size"))
    newest = None
    if db.schema.has("messages", "timestamp"):
        newest = db.execute(
            f"SELECT max(timestamp) FROM messages "
            f"WHERE timestamp >= {EPOCH_FIRST} AND timestamp < {EPOCH_LAST}"
        ).fetchone()[0]
    sessions, messages = (
        db.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
        for table in ("sessions", "messages")
    )
    return Contents(sessions, messages, newest, pages * size)


def save(
    db: Database, target: Path, *, compact: bool = False, ill: bool = False,
    replace: bool = False, advance: Advance = nothing,
) -> Contents:
    """A copy of the whole store as it is at one moment, while others write: 0600 from the first
    byte, verified, synced, and only then given its name. advance: called with pages copied.

    compact: without free pages (VACUUM INTO). ill: the store may be damaged; the copy must be
    equal, not healthy. Raises Damaged where the copy does not pass its check or does not hold
    what the store holds; Negative where `target` exists and may not be replaced.
    """  # fmt: skip
    target = Path(os.path.realpath(target))  # a link stays a link, its target is replaced
    if not target.parent.is_dir():
        raise Missing(f"{target.parent}: no such folder")
    with placed(target, replace=replace) as new:
        if compact:
            db.execute("VACUUM INTO ?", (str(new),))
            plain_file(new)
            return verify(new, db.path)
        with snapshot(db):
            db.execute("SELECT count(*) FROM sqlite_master").fetchone()
            held = fingerprint(db) if db.in_transaction or ill else None
            _copy(db, new, advance)
        plain_file(new)
        if held is not None:
            with closing(connect(new, "ro", 0, 0, lenient=True)) as copy:
                if fingerprint(copy) != held:
                    raise Damaged(f"{target}: the copy does not hold what the store holds")
        return Contents(0, 0, None, os.path.getsize(new)) if ill else verify(new, db.path)


def fingerprint(db: sqlite3.Connection) -> list[tuple[str, Any]]:
    """Every ordinary table with its rows counted, or with the error that counting gives: equal for
    two copies of the same store, be it damaged.
    """
    found: list[tuple[str, Any]] = []
    try:
        names = db.execute(
            "SELECT DISTINCT name FROM sqlite_master WHERE type = 'table' "
            "AND sql NOT LIKE 'CREATE VIRTUAL%' ORDER BY name"
        ).fetchall()
    except sqlite3.DatabaseError as error:
        return [("sqlite_master", str(error))]
    for (name,) in names:
        quoted = '"' + name.replace('"', '""') + '"'
        try:
            count = db.execute(f"SELECT count(*) FROM {quoted}").fetchone()[0]
        except sqlite3.DatabaseError as error:
            count = str(error)
        found.append((name, count))
    return found


def _copy(db: Database, name: Path, advance: Advance) -> None:
    """SQLite's online backup. In WAL mode a snapshot stands while the steps are taken; elsewhere
    each step holds a short lock, and a writer between two steps makes it begin anew.
    """
    began = time.monotonic()
    left: int | None = None

    def progress(status: int, remaining: int, total: int) -> None:
        nonlocal left
        advance(max(0, (total if left is None else left) - remaining))
        left = remaining
        if db.in_transaction:
            return
        if status in (5, 6) and time.monotonic() - began > db.timeout:
            raise Busy(f"{db.path}: locked by another process for {db.timeout:g} s")
        if time.monotonic() - began > PATIENCE:
            raise TimeoutError
        time.sleep(PAUSE)

    with closing(sqlite3.connect(name, isolation_level=None)) as copy:
        copy.execute("PRAGMA synchronous = OFF")  # one sync at the end
        try:
            db.backup(copy, pages=PAGES_AT_ONCE, progress=progress, sleep=PAUSE)
        except TimeoutError:
            db.backup(copy)


def plain_file(name: Path) -> None:
    """Out of WAL mode: a copy is one file that can be read where nothing can be written."""
    with suppress(sqlite3.DatabaseError), closing(
        sqlite3.connect(name, isolation_level=None)
    ) as copy:
        copy.execute("PRAGMA journal_mode = DELETE").fetchone()


def verify(path: Path, called: object = None) -> Contents:
    """Open a copy, let SQLite check it, count it. Raises Damaged, which names it as `called`."""
    called = called or path
    try:
        with closing(connect(path, "ro", 0, 0)) as db:
            require_store(db)
            try:
                words = str(db.execute("PRAGMA quick_check(1)").fetchone()[0])
            except sqlite3.OperationalError as error:
                if "no such tokenizer" not in str(error):  # SQLite 3.44 to 3.46 asks for it
                    raise
                words = "ok"
            if words != "ok":
                raise Damaged(f"{called}: damaged: {words.splitlines()[-1]}")
            return contents(db)
    except sqlite3.DatabaseError as error:
        if code(error) in (5, 6, 8, 10, 13, 14):  # of the system, not of the file
            raise
        raise Damaged(f"{called}: damaged: {error}") from error
    except Damaged as error:
        raise Damaged(str(error).replace(str(path), str(called))) from error


def stamp(now: float | None = None) -> str:
    """`20260301T090000Z`, for names of copies."""
    at = datetime.fromtimestamp(time.time() if now is None else now, timezone.utc)
    return at.strftime("%Y%m%dT%H%M%SZ")


def dated(path: Path, folder: Path, profile: str = "default", now: float | None = None) -> Path:
    """Where a dated copy of a store goes: FOLDER/state-20260301T090000Z.db, with the profile's
    name where it has one; `-2`, `-3` … where that name is taken.
    """
    stem = path.stem if profile == "default" else f"{path.stem}-{profile}"
    first = folder / f"{stem}-{stamp(now)}.db"
    same = [place for place in copies(first) if place.stem.startswith(first.stem)]
    if not same:
        return first
    number = re.fullmatch(r"-(\d+)", same[-1].stem[len(first.stem) :])
    return first.with_name(f"{first.stem}-{int(number[1]) + 1 if number else 2}.db")


def copies(made: Path) -> list[Path]:
    """The dated copies of the same store beside one, oldest first, itself included."""
    found = re.fullmatch(r"(.+)-\d{8}T\d{6}Z(?:-\d+)?\.db", made.name)
    if not found:
        return [made]
    same = re.compile(re.escape(found[1]) + r"-(\d{8}T\d{6}Z)(?:-(\d+))?\.db")
    dates = []
    for place in made.parent.iterdir():
        match = same.fullmatch(place.name)
        if match and place.is_file():
            dates.append((match[1], int(match[2] or 1), place))
    return [place for _, _, place in sorted(dates)]


def rotate(made: Path, keep: int) -> list[Path]:
    """Remove the oldest dated copies of the same store beyond `keep`; never the one just made."""
    old = [place for place in copies(made)[:-keep] if place != made]
    for place in old:
        place.unlink()
    return old


def set_aside(db: Database, what: str, *, ill: bool = False) -> Path:
    """A copy beside the store before it is changed, see `save`: state.db.before-WHAT-DATE."""
    place = aside(db.path, what)
    save(db, place, ill=ill)
    return place


def aside(path: Path, what: str) -> Path:
    """A free name beside a store: state.db.before-WHAT-DATE."""
    first = path.with_name(f"{path.name}.before-{what}-{stamp()}")
    place, number = first, 1
    while os.path.lexists(place) or os.path.lexists(f"{place}-wal"):
        number += 1
        place = first.with_name(f"{first.name}-{number}")
    return place


def look(path: Path) -> Contents | None:
    """What the store at a place holds; None where there is none, or none that can be counted."""
    try:
        with closing(connect(path, "ro", 0, 0)) as db:
            require_store(db)
            return contents(db)
    except (Damaged, Missing):
        return None
    except sqlite3.DatabaseError as error:
        if code(error) in (5, 6):
            raise
        return None


def restore(path: Path, source: Path, advance: Advance = nothing) -> list[Path]:
    """Put a verified copy's content where the store is, or is to be; the files that now keep what
    was there. advance: called with pages copied.

    A store that SQLite can open keeps its file, inode and journal mode: the pages are replaced in
    one of SQLite's own transactions. Raises Busy while anybody holds the store.
    """
    found = holders(path)
    if found:
        raise Busy(f"{path}: held by {named(found)}; restoring needs the store alone")
    if page_size(path) != page_size(source):  # no store there, a ruin, or a layout of its own
        return replace(path, source)
    left: int | None = None

    def progress(status: int, remaining: int, total: int) -> None:
        nonlocal left
        advance(max(0, (total if left is None else left) - remaining))
        left = remaining

    with alone(path, "restoring") as db, closing(connect(source, "ro", 0, 0)) as copy:
        kept = set_aside(db, "restore", ill=True)
        wal = is_wal(db)
        copy.backup(db, pages=PAGES_AT_ONCE, progress=progress)
        if is_wal(db) != wal:
            db.execute(f"PRAGMA journal_mode = {'WAL' if wal else 'DELETE'}").fetchone()
    return [kept]


def page_size(path: Path) -> int | None:
    """The page size of a database SQLite can open, else None. Raises sqlite3 errors for a lock."""
    try:
        with closing(connect(path, "ro", 0, 0)) as db:
            return int(db.execute("PRAGMA page_size").fetchone()[0])
    except (Damaged, Missing):
        return None
    except sqlite3.DatabaseError as error:
        if code(error) in (5, 6):
            raise
        return None


def replace(path: Path, source: Path) -> list[Path]:
    """Put a verified copy where there is no store, or one that SQLite cannot write into. What lies
    there, a log without its store included, is moved aside, never deleted: SQLite would replay an
    old log into the new file. The files that were moved. Nobody may hold the store.
    """
    moved = []
    with placed(path) as new:
        with closing(connect(source, "ro", 0, 0)) as copy, closing(
            sqlite3.connect(new, isolation_level=None)
        ) as made:
            copy.backup(made)
            made.execute("PRAGMA journal_mode = WAL").fetchone()
        with open(new, "rb") as file:  # on the disk before the old one leaves its place
            os.fsync(file.fileno())
        place = aside(path, "restore")
        for suffix in ("-wal", "-shm", "-journal", ""):
            if os.path.lexists(f"{path}{suffix}"):
                os.rename(f"{path}{suffix}", f"{place}{suffix}")
                moved.append(Path(f"{place}{suffix}"))
    return moved
