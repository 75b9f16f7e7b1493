"""Is the store healthy: its file, its pages, its schema; words and rows have rooms of their own.

Everything that is found is a Fault. Damage in one place never hides what is found in another: a
test that cannot be made says so as a fault of the object it was made on.
"""

import os
import re
import shlex
import sqlite3
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

from hermes_tools.store import backup, health_rows, health_words, migration, schema
from hermes_tools.store.db import Database, begin, code, connect, is_wal
from hermes_tools.store.errors import Busy, Damaged, Denied
from hermes_tools.store.faults import (
    ERROR,
    NOTE,
    SQLITE,
    WARNING,
    Fault,
    command,
    guarded,
    skipped,
)

MANY_BYTES = 384 << 20  # where users began to see slow inserts and lists
LOG_BYTES = 64 << 20  # the agent's own journal_size_limit (store-facts 2.3)
COPY_BYTES = 32 << 20  # indexes of larger stores are checked on a copy, not under a lock
MAGIC = b"SQLite format 3\0"


def check(
    path: Path, home: Path, *, quick: bool = False, timeout: float = 10.0
) -> Iterator[Fault]:
    """Everything that is wrong with a store. `quick` reads only; otherwise the indexes of words
    check themselves and writes are tried, both in transactions that are rolled back (of a large
    store a copy is checked), and nothing is checkpointed.

    Raises Missing, Damaged (no store of the agent) and Denied where it could not look at all.
    """
    files = list(look_at_files(path))  # said once it is sure that this is a store
    with ExitStack() as stack:
        db, words = open_anyhow(path, timeout)
        if db is not None:
            stack.enter_context(closing(db))  # closed last, and a reader checkpoints nothing
        yield from files
        if words:
            yield Fault("schema", "unopenable", ERROR,
                        f"SQLite {SQLITE}: {words}; no program can open the store, though "
                        "messages may be readable",
                        command(path, "repair", "--salvage", "-o", f"{path}.salvaged")
                        )  # fmt: skip
        if db is None:
            return
        yield from guarded("schema", path, look_at_objects(db))
        yield from guarded("database", path, look_at_pages(db, quick))
        yield from guarded("database", path, look_at_settings(db))
        work = None
        if not quick and not words:
            try:
                work = stack.enter_context(closing(connect(path, "rw", timeout, 1.0)))
            except Denied as error:
                yield skipped(str(error))
        yield from guarded("triggers", path, health_words.look_at_triggers(db))
        for index, create in sorted(db.schema.virtual.items()):
            if index.startswith(schema.WORDS):
                yield from guarded(index, path, health_words.look_at_index(db, index, create))
        if work is not None:
            yield from try_work(db, work)
        yield from health_rows.look_at_rows(db, home, quick)


def open_anyhow(path: Path, timeout: float) -> tuple[Database | None, str | None]:
    """A reading connection; and where the ordinary way does not lead there, why. No connection
    where not even the list of tables can be read.
    """
    words = None
    try:
        db = connect(path, "ro", timeout, timeout)
    except sqlite3.DatabaseError as error:
        if code(error) != 11:
            raise
        words = str(error)
        db = connect(path, "ro", timeout, timeout, lenient=True)
    try:
        schema.require_store(db)
    except BaseException as error:
        db.close()
        if isinstance(error, sqlite3.DatabaseError) and code(error) == 11:
            return None, str(error)
        raise
    return db, words


def look_at_files(path: Path) -> Iterator[Fault]:
    """Modes, sizes and the header; before SQLite opens the store, since closing a file drops the
    locks this process has on it. Raises Damaged for what is no database.
    """
    try:
        found = path.stat()
    except OSError:
        return  # the opener has the words for it
    if not stat.S_ISREG(found.st_mode):
        return
    for place in (path, Path(f"{path}-wal"), Path(f"{path}-shm")):
        mode = stat.S_IMODE(place.stat().st_mode) if place.exists() else 0
        if mode & 0o077:
            yield Fault(place.name, "mode", WARNING, f"others can read it: mode {mode:04o}",
                        shlex.join(["chmod", "600", str(place)]))  # fmt: skip
            break  # SQLite gives a log the mode of its store
    if not os.access(path, os.R_OK) or not found.st_size:
        return
    with open(path, "rb") as file:
        header = file.read(100)
    if not header.startswith(MAGIC):
        raise Damaged(f"{path}: not a database" if header.strip(b"\0")
                      else f"{path}: not a database, but zeros")  # fmt: skip
    log = Path(f"{path}-wal")
    logged = log.stat().st_size if log.exists() else 0
    size = int.from_bytes(header[16:18], "big")
    pages = int.from_bytes(header[28:32], "big")
    size = 65536 if size == 1 else size
    if not logged and header[24:28] == header[92:96] and found.st_size < pages * size:
        yield Fault(path.name, "truncated", ERROR,
                    f"{found.st_size:,} bytes, of {pages * size:,} that its header says",
                    command(path, "repair", "--salvage", "-o", f"{path}.salvaged"))  # fmt: skip
    if logged > LOG_BYTES:
        yield Fault(log.name, "log_large", NOTE,
                    f"{logged:,} bytes wait to be merged; a reader that never ends holds it up",
                    command(path, "stats", "--size"), count=logged)  # fmt: skip
    if found.st_size > MANY_BYTES:
        yield Fault(path.name, "large", NOTE,
                    f"{found.st_size:,} bytes; from about {MANY_BYTES >> 20} MB on inserts and "
                    "lists were seen to become slow",
                    command(path, "prune", "--dry-run"), count=found.st_size)  # fmt: skip


def look_at_settings(db: Database) -> Iterator[Fault]:
    """Journal mode and SQLite itself; the version row."""
    wal = is_wal(db)
    if not wal:
        yield Fault("database", "journal_mode", NOTE,
                    "not in WAL mode: whoever reads keeps the agent from writing meanwhile",
                    "hermes sessions set-journal-mode")  # fmt: skip
    version = sqlite3.sqlite_version_info
    fixed = version >= (3, 51, 3) or (3, 50, 7) <= version < (3, 51) or (
        (3, 44, 6) <= version < (3, 45)
    )  # fmt: skip
    if wal and not fixed:
        yield Fault("SQLite", "sqlite_version", NOTE,
                    f"SQLite {SQLITE} here has the WAL-reset bug (fixed in 3.51.3,"
                    " 3.50.7 and 3.44.6): two writers can damage a store")  # fmt: skip
    numbers = []
    if db.schema.has("schema_version", "version"):
        numbers = [row[0] for row in db.execute("SELECT version FROM schema_version")]
    if len(numbers) != 1 or not isinstance(numbers[0], int):
        yield Fault("schema_version", "version_odd", WARNING,
                    "says " + (" and ".join(map(repr, numbers)) or "nothing")
                    + "; one number is meant", command(db.path, "migrate"))  # fmt: skip
    elif numbers[0] <= migration.VERSION and (reason := migration.later(db)):
        yield Fault("schema_version", "version_odd", WARNING, f"{reason}: the tables are newer")


def look_at_objects(db: Database) -> Iterator[Fault]:
    """Objects that the schema lists twice."""
    for kind, name, number in db.execute(
        "SELECT type, name, count(*) FROM sqlite_master GROUP BY type, name HAVING count(*) > 1"
    ):
        yield Fault(f"{kind} {name}", "object_doubled", ERROR,
                    f"the schema lists it {number} times; the messages are readable",
                    command(db.path, "repair", "--index", "--yes"), count=number)  # fmt: skip


def look_at_pages(db: Database, quick: bool) -> Iterator[Fault]:
    """SQLite's own check of every page, told apart by the object a damaged page belongs to."""
    pragma = "quick_check" if quick else "integrity_check"
    found = page_check(db, pragma)
    if not found:
        return
    named = False
    for table in sorted(db.schema.tables):
        quoted = '"' + table.replace('"', '""') + '"'
        faults = page_check(db, f"{pragma}({quoted})")
        if faults:
            named = True
            yield damaged(db, table, quoted, faults)
    if not named and all("never used" in line for line in found):
        yield Fault("database", "pages_unused", WARNING, in_short(found),
                    command(db.path, "optimize", "--vacuum"), count=len(found))  # fmt: skip
    elif not named:
        yield Fault("database", "page_damaged", ERROR, in_short(found),
                    command(db.path, "backup", "--compact", "-o", f"{db.path}.compact"),
                    count=len(found))  # fmt: skip


def page_check(db: Database, pragma: str) -> list[str]:
    """What quick_check or integrity_check finds; indexes of words have a test of their own, and
    SQLite 3.44 to 3.46 cannot pass one whose tokenizer is not here.
    """
    try:
        rows = [str(row[0]) for row in db.execute(f"PRAGMA {pragma}")]
    except sqlite3.DatabaseError as error:
        if code(error) in (5, 6):
            raise
        return [] if "no such tokenizer" in str(error) else [str(error)]
    return [
        line for row in rows for line in row.splitlines()
        if line != "ok" and "in database main" not in line and "FTS5 table" not in line
    ]  # fmt: skip


def damaged(db: Database, table: str, quoted: str, faults: list[str]) -> Fault:
    """Whose damage it is: the rows', an index's (which can be made anew from the rows), or an
    index of words'.
    """
    detail = f"SQLite {SQLITE}: {in_short(faults)}"
    base = next(
        (index for index in sorted(db.schema.virtual, key=len, reverse=True)
         if table.startswith(f"{index}_")), None,
    )  # fmt: skip
    if base:
        return Fault(base, "words_damaged", ERROR, f"{table}: {detail}",
                     command(db.path, "repair", "--index"), count=len(faults))  # fmt: skip
    if readable(db, quoted):
        names = sorted({name for line in faults for name in re.findall(r"index (\w+)", line)})
        thing = f"index {', '.join(names)}" if names else f"indexes of {table}"
        return Fault(thing, "index_damaged", ERROR, detail,
                     command(db.path, "repair", "--index"), count=len(faults))  # fmt: skip
    return Fault(f"table {table}", "page_damaged", ERROR, detail,
                 command(db.path, "repair", "--salvage", "-o", f"{db.path}.salvaged"),
                 count=len(faults))  # fmt: skip


def readable(db: Database, quoted: str) -> bool:
    """Whether every row of a table can be read without its indexes."""
    try:
        for _ in db.execute(f"SELECT * FROM {quoted} NOT INDEXED"):
            pass
    except sqlite3.DatabaseError:
        return False
    return True


def in_short(faults: list[str]) -> str:
    """The first of several, and how many more."""
    more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
    return f"{faults[0]}{more}"


def try_work(db: Database, work: Database) -> Iterator[Fault]:
    """The indexes' own checks and a write of every kind, rolled back."""
    try:
        pages, size = (work.execute(f"PRAGMA {name}").fetchone()[0]
                       for name in ("page_count", "page_size"))  # fmt: skip
        work.execute("PRAGMA cache_spill = OFF")  # nothing reaches the file before the rollback
        work.timeout = min(work.timeout, 2.0)
        if pages * size <= COPY_BYTES:
            yield from guarded("indexes", db.path, health_words.check_themselves(work))
        else:
            yield from check_copy(db)
        begin(work)
        try:
            yield from guarded("messages", db.path, try_writes(work))
        finally:
            if work.in_transaction:
                work.execute("ROLLBACK")
    except Busy as error:
        yield skipped(str(error))
    except sqlite3.OperationalError as error:
        if code(error) not in (5, 6, 8, 13, 14):
            raise
        yield skipped(str(error))


def check_copy(db: Database) -> Iterator[Fault]:
    """The indexes' own checks on a copy: they take a write lock, and on a large store would keep
    the agent from writing for many seconds.
    """
    try:
        with copied(db) as copy:
            yield from guarded("indexes", db.path, health_words.check_themselves(copy))
    except (OSError, sqlite3.OperationalError) as error:
        yield Fault("indexes", "probe_skipped", NOTE,
                    f"not checked by themselves: no copy in {tempfile.gettempdir()}: {error}")


@contextmanager
def copied(db: Database) -> Iterator[Database]:
    """A writable copy of the store in TMPDIR, gone afterwards; it says it lies where the store
    does, so that its faults are the store's.
    """
    with tempfile.TemporaryDirectory(prefix="hermes-session-check-") as folder:
        place = Path(folder) / "copy.db"
        backup.save(db, place, ill=True)
        with closing(connect(place, "rw", 0, 0, lenient=True)) as copy:
            copy.path = db.path
            yield copy


PROBE = "hermes-session-check"


def try_writes(work: Database) -> Iterator[Fault]:
    """Insert, change and delete a message, as the agent would; the triggers run. The caller rolls
    all of it back.
    """
    missing = [
        index for index, create in work.schema.virtual.items()
        if index.startswith(schema.WORDS)
        and not schema.has_tokenizer(schema.tokenizer(create))
    ]  # fmt: skip
    if missing:
        yield Fault("messages", "probe_skipped", NOTE,
                    f"writes were not tried: {', '.join(sorted(missing))} needs a tokenizer that "
                    "is not here")  # fmt: skip
        return
    now = time.time()
    for what, sql, values in (
        ("a session cannot be added", "INSERT INTO sessions (id, source, started_at) "
         "VALUES (?, 'check', ?)", (PROBE, now)),
        ("a message cannot be added", "INSERT INTO messages (session_id, role, content, "
         "timestamp) VALUES (?, 'user', 'a probe', ?)", (PROBE, now)),
        ("a message cannot be changed", "UPDATE messages SET content = 'another probe' "
         "WHERE session_id = ?", (PROBE,)),
        ("a message cannot be deleted", "DELETE FROM messages WHERE session_id = ?", (PROBE,)),
        ("a session cannot be deleted", "DELETE FROM sessions WHERE id = ?", (PROBE,)),
    ):  # fmt: skip
        try:
            work.execute(sql, values)
        except sqlite3.DatabaseError as error:
            if code(error) in (5, 6, 8, 13):
                raise
            yield Fault("messages", "write_fails", ERROR, f"{what}: {error}",
                        command(work.path, "repair", "--index"))  # fmt: skip
            return
