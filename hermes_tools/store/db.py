"""The only opener of a store: by intent, with retries, never creating what is not there."""

import os
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import quote

from hermes_tools.store import schema
from hermes_tools.store.errors import Busy, Damaged, Denied, Failed, Missing

# What the agent itself uses (store-facts 2.3): a short wait in SQLite, then tries with jitter,
# so that several writers do not fall into step.
LOCK_WAIT = 1.0
JITTER = (0.020, 0.150)
CHECKPOINT_EVERY = 50
# The bound on variables differs by build; 900 is below the smallest (store-facts 2.2).
CHUNK = 900

# Told by long work how many of its units were done since it last told.
Advance = Callable[[int], None]


def nothing(step: int) -> None:
    """For those who draw no progress."""


class Database(sqlite3.Connection):
    """A connection that knows its path, its patience (seconds) and what the store has."""

    path: Path
    timeout: float = 10.0
    writes: int = 0

    @cached_property
    def schema(self) -> schema.Schema:
        """Tables, columns, triggers and index layout as they are now; read once a connection."""
        return schema.inspect(self)

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        """As it is, but that a text that was no UTF-8 (an id, a title) is bound as its bytes."""
        try:
            return super().execute(sql, parameters)
        except (UnicodeEncodeError, sqlite3.DatabaseError):  # the latter where a row was pending
            values = parameters.values() if isinstance(parameters, dict) else parameters
            if all(sound(value) for value in values):
                raise
        return super().execute(*bytewise(sql, parameters))


def sound(value: Any) -> bool:
    """Whether a value can be handed to SQLite: all but a text that is no UTF-8."""
    try:
        return not isinstance(value, str) or value.encode() is not None
    except UnicodeEncodeError:
        return False


def bytewise(sql: str, parameters: Any) -> tuple[str, Any]:
    """The same statement with every text that is no UTF-8 handed over as bytes and cast back."""
    import re

    def sent(value: Any) -> Any:
        return value if sound(value) else value.encode("utf-8", "surrogateescape")

    named = isinstance(parameters, dict)
    places = iter(range(len(parameters)))

    def cast(found: re.Match[str]) -> str:
        mark = found[0]
        if mark[0] not in "?:":
            return mark  # a quoted text or name
        key = mark[1:] if named else int(mark[1:]) - 1 if mark[1:] else next(places)
        return mark if sound(parameters[key]) else f"CAST({mark} AS TEXT)"

    pattern = r"""'[^']*'|"[^"]*"|""" + (r":\w+" if named else r"\?\d*")
    if named:
        return re.sub(pattern, cast, sql), {key: sent(one) for key, one in parameters.items()}
    return re.sub(pattern, cast, sql), [sent(one) for one in parameters]


def decode(cell: bytes) -> str:
    """TEXT as str; bytes that are no UTF-8 survive as lone surrogates, for transfer to notice."""
    return cell.decode("utf-8", "surrogateescape")


def code(error: BaseException) -> int:
    """SQLite's primary result code of an error (5 busy, 11 corrupt …), 0 where there is none."""
    number = getattr(error, "sqlite_errorcode", None)  # Python 3.11 and later
    if number is not None:
        return int(number) & 0xFF
    text = str(error)
    words = {
        "locked": 5, "malformed": 11, "not a database": 26, "unable to open": 14,
        "is full": 13, "disk I/O": 10, "readonly": 8,
    }  # fmt: skip
    return next((value for word, value in words.items() if word in text), 0)


def connect(
    path: Path, mode: str, timeout: float, wait: float, *, alone: bool = False,
    lenient: bool = False,
) -> Database:
    """A checked connection to an existing store; `wait` seconds inside SQLite for each lock.
    `alone` shuts everybody else out as long as it is open, or raises SQLITE_BUSY. `lenient` opens
    a store whose schema SQLite cannot parse, as far as it can; for those who look for the damage.

    Raises Missing (nothing there, or a folder), Damaged (empty, or no database) and Denied.
    """
    try:
        size = os.stat(path).st_size
    except PermissionError as error:
        raise Denied(f"{path}: permission denied") from error
    except (OSError, ValueError) as error:
        raise Missing(f"{path}: no store there") from error
    if path.is_dir():
        raise Missing(f"{path}: is a folder, not a store")
    if size == 0:
        # SQLite opens an empty file as an empty database: "no sessions" would be a lie.
        raise Damaged(f"{path}: the file is empty, not a store")
    if not os.access(path, os.R_OK):
        raise Denied(f"{path}: permission denied")
    if mode == "rw" and not os.access(path, os.W_OK):
        raise Denied(f"{path}: the file is read-only")
    uri = f"file:{quote(os.fsencode(path.absolute()))}?mode={mode}"
    db = sqlite3.connect(
        uri, uri=True, timeout=wait, isolation_level=None, factory=Database,
        check_same_thread=False, cached_statements=256,
    )  # fmt: skip
    db.path, db.timeout = path, timeout
    db.text_factory = decode
    db.row_factory = sqlite3.Row
    try:
        if alone:  # asked for before the first read, or SQLite shares the WAL's index for good
            db.execute("PRAGMA locking_mode = EXCLUSIVE").fetchall()
        if lenient:
            db.execute("PRAGMA writable_schema = ON")
        first_look(db, path)
        if alone:
            db.execute("BEGIN EXCLUSIVE")
            db.execute("COMMIT")
    except BaseException:
        db.close()
        raise
    return db


def first_look(db: Database, path: Path) -> None:
    """Read the schema once; a writer that is just closing can fail us for a moment."""
    for attempt in (1, 2, 3):
        try:
            db.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone()
            return
        except sqlite3.DatabaseError as error:
            if "readonly" in str(error) or (
                code(error) in (8, 14) and not os.access(path.parent, os.W_OK)
            ):
                raise Denied(
                    f"{path}: the folder is not writable, and SQLite needs that to read "
                    "a store in WAL mode"
                ) from error
            if code(error) == 26:
                raise Damaged(f"{path}: not a database") from error
            if code(error) not in (10, 14, 15):
                raise
            if attempt == 3:
                raise Failed(
                    f"{path}: SQLite cannot open, lock or map it ({error}); if this is a network "
                    "or bridged file system, work on the machine that has the disk"
                ) from error
            time.sleep(0.05)


@contextmanager
def reader(path: Path, timeout: float = 10.0) -> Iterator[Database]:
    """The store for reading: nothing is created, migrated or checkpointed."""
    with closing(connect(path, "ro", timeout, timeout)) as db:
        schema.require_store(db)
        yield db


@contextmanager
def writer(
    path: Path, timeout: float = 10.0, *, newer_schema: bool = False, messages: bool = True,
    detach_cjk: bool = False,
) -> Iterator[Database]:  # fmt: skip
    """The store for writing: foreign keys on, tokenizers and triggers probed before any write.

    messages: whether messages will change, and with them the indexes. Raises Unsupported where
    a trigger, tokenizer or index layout is unknown, unless `newer_schema` allows it (1.7).
    """
    with closing(connect(path, "rw", timeout, LOCK_WAIT)) as db:
        db.execute("PRAGMA foreign_keys = ON")
        schema.require_store(db)
        schema.probe(
            db, newer_schema=newer_schema, messages=messages, detach_cjk=detach_cjk
        )
        yield db


@contextmanager
def transaction(db: Database) -> Iterator[None]:
    """One write, whole or not at all. The lock is taken before the first read, lest an upgrade
    from reader to writer fail at once with a stale snapshot.
    """
    begin(db)
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise
    db.writes += 1
    if db.writes % CHECKPOINT_EVERY == 0:
        db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()


def begin(db: Database) -> None:
    """BEGIN IMMEDIATE, tried with jitter until the connection's patience ends."""
    deadline = time.monotonic() + db.timeout
    while True:
        try:
            db.execute("BEGIN IMMEDIATE")
            return
        except sqlite3.OperationalError as error:
            if code(error) not in (5, 6):
                raise
            if time.monotonic() >= deadline:
                raise Busy(
                    f"{db.path}: locked by another process for {db.timeout:g} s"
                ) from error
            import random

            time.sleep(random.uniform(*JITTER))


@contextmanager
def snapshot(db: Database) -> Iterator[None]:
    """One view of the store for a whole run, in WAL mode only: in a rollback-journal store an
    open read transaction would lock writers out for as long as our output pipe is full.
    """
    if db.in_transaction or not is_wal(db):
        yield
        return
    db.execute("BEGIN")
    try:
        yield
    finally:
        if db.in_transaction:
            db.execute("ROLLBACK")


def is_wal(db: sqlite3.Connection) -> bool:
    """Whether readers and the writer of this store get along."""
    return str(db.execute("PRAGMA journal_mode").fetchone()[0]) == "wal"


def chunks(values: Iterable[Any]) -> Iterator[list[Any]]:
    """Values in lists no longer than a statement may have variables."""
    chunk: list[Any] = []
    for value in values:
        chunk.append(value)
        if len(chunk) == CHUNK:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


def marks(values: Sequence[Any]) -> str:
    """`?,?,?` for an IN list."""
    return ",".join("?" * len(values))
