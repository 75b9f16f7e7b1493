"""A store for a program that lives with it: created or brought up to date, in WAL mode."""

import sqlite3
from contextlib import closing, suppress
from pathlib import Path

from hermes_tools.store import migration, schema
from hermes_tools.store.db import LOCK_WAIT, Database, connect
from hermes_tools.store.errors import Negative


def live_in(path: Path) -> Database:
    """An open connection to the store at `path`, as the agent's own: made where there is none,
    migrated where it is older than version 11, foreign keys on. One lock is waited for once
    (LOCK_WAIT); trying again is the caller's.

    A store of a later release is taken as it is. Raises what connect, create and migrate raise.
    """
    if not path.exists():
        with suppress(Negative):  # somebody else was quicker
            migration.create(path)
    elif path.is_file() and path.stat().st_size == 0:
        fill(path)
    db = connect(path, "rw", 0, LOCK_WAIT)
    try:
        db.execute("PRAGMA foreign_keys = ON")
        prefer_wal(db)
        if not db.schema.tables:
            fill(path)
            del db.schema
        if not migration.later(db):
            schema.require_store(db)
            if lacks(db):
                migration.migrate(db, migration.plan(db))
    except BaseException:
        db.close()
        raise
    return db


def fill(path: Path) -> None:
    """The tables of a new store, in an empty database such as another program's temporary file."""
    with closing(sqlite3.connect(path, isolation_level=None, timeout=LOCK_WAIT)) as db:
        tables = migration.SCHEMA.read_text(encoding="utf-8")
        with suppress(sqlite3.OperationalError):  # another process fills it: the tables are there
            db.executescript(f"BEGIN IMMEDIATE;\n{tables}\nCOMMIT;")
        if db.in_transaction:
            db.execute("ROLLBACK")


def prefer_wal(db: Database) -> None:
    """Let readers and the writer get along, where the file system can. Newer releases choose the
    mode of their stores themselves, and mark them (store-facts 2.3): those stay as they are.
    """
    if db.execute("PRAGMA application_id").fetchone()[0]:
        return
    with suppress(sqlite3.OperationalError):  # a network mount, or somebody reads: as it was
        db.execute("PRAGMA journal_mode = WAL").fetchone()


def lacks(db: Database) -> bool:
    """Whether anything of schema.sql is missing here; the exact plan costs 50 ms more."""
    with closing(migration.model()) as memory:
        want = schema.inspect(memory)
    have = db.schema
    return not (
        have.version == want.version
        and all(have.has(table, *columns) for table, columns in want.tables.items()
                if not table.startswith(schema.WORDS))
        and want.indexes.keys() <= have.indexes.keys()
        and want.triggers.keys() <= have.triggers.keys()
        and all(migration.is_current(db, index) for index in (schema.WORDS, schema.TRIGRAM))
    )  # fmt: skip
