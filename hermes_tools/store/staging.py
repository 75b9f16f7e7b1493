"""A private temporary database into which an import goes first, whole, before the store is touched.

Columns have no declared type there: each cell keeps the type it came with, and the store's own
declarations apply when it is copied. Memory grows neither with the number of sessions nor with
the length of one.
"""

import json
import os
import sqlite3
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hermes_tools.store.db import sound
from hermes_tools.store.errors import Damaged
from hermes_tools.store.exporting import quoted
from hermes_tools.store.parsing import Item, cells

# Keys of an export record that are no columns; those of the agent's exports come after our own.
RESERVED = frozenset({
    "messages", "_tables", "_raw", "_format", "_origin", "_delta", "_deleted",
    "last_active", "preview", "timings", "segments", "lineage_session_ids", "_lineage_root_id",
    "_lineage_ids", "lineage_root_id", "profile",
})  # fmt: skip
MESSAGE_KEYS = frozenset({"anchor", "event_id"})
BATCH = 200

TABLES = """
CREATE TABLE sessions (
    "#n" INTEGER PRIMARY KEY, "#where" TEXT, "#runs" TEXT, "#keys" TEXT, "#more" TEXT,
    "id", "parent_session_id"
);
CREATE TABLE messages ("#i" INTEGER PRIMARY KEY);
CREATE INDEX by_id ON sessions (id);
CREATE INDEX by_parent ON sessions (parent_session_id);
CREATE TABLE places ("#n" INTEGER PRIMARY KEY, root INTEGER, depth INTEGER);
"""
# Every record below the first of its lineage that is in the file; cycles come in the order of
# the file, each record a root of its own.
PLACES = """
INSERT INTO places
WITH RECURSIVE tree(n, id, root, depth) AS (
    SELECT "#n", id, "#n", 0 FROM sessions s WHERE parent_session_id IS NULL
        OR NOT EXISTS (SELECT 1 FROM sessions p WHERE p.id = s.parent_session_id)
    UNION
    SELECT c."#n", c.id, t.root, t.depth + 1 FROM tree t JOIN sessions c
        ON c.parent_session_id = t.id WHERE t.depth < 10000
)
SELECT n, min(root), max(depth) FROM tree GROUP BY n
"""
REST = """
INSERT INTO places SELECT "#n", "#n", 0 FROM sessions WHERE "#n" NOT IN (SELECT "#n" FROM places)
"""


@dataclass
class Staged:
    """One record as it waits: cells by column, runs of messages with the same keys
    [(first, last, keys)], and what is no column (`more`).
    """

    n: int
    where: str
    session: dict[str, Any]
    runs: list[tuple[int, int, tuple[str, ...]]]
    more: dict[str, Any] = field(default_factory=dict)
    tree: int = 0

    @property
    def span(self) -> tuple[int, int]:
        """First and last row of its messages in the staging table; (0, -1) without any."""
        return (self.runs[0][0], self.runs[-1][1]) if self.runs else (0, -1)

    @property
    def count(self) -> int:
        """How many messages it has."""
        first, last = self.span
        return last - first + 1


class Staging:
    """The temporary database; whoever makes one must `remove` it."""

    def __init__(self) -> None:
        handle, name = tempfile.mkstemp(prefix="hermes-import-", suffix=".db")
        os.close(handle)
        self.path = Path(name)
        self.db = sqlite3.connect(name, isolation_level=None)
        self.db.executescript(
            "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA cache_size = -4000;"
            + TABLES
            + "BEGIN;"
        )
        self.records = self.messages = 0
        self._have = {"sessions": {"id", "parent_session_id"}, "messages": set[str]()}
        self._insert: dict[tuple[str, ...], str] = {}
        self._pending: list[tuple[Any, ...]] = []
        self._keys: tuple[str, ...] = ()
        self._runs: list[tuple[int, int, tuple[str, ...]]] = []
        self._start = 0

    def remove(self) -> None:
        """Leave nothing behind; may be called twice."""
        self.db.close()
        for leftover in (self.path, Path(f"{self.path}-journal")):
            with suppress(OSError):
                leftover.unlink()

    def add(self, item: Item, where: str) -> bool:
        """Take a message, or a session with the messages before it (True). Raises Damaged; then
        `drop` forgets the record that was begun.
        """
        if item.error:
            raise Damaged(f"{where}: {item.error}")
        if item.session is None:
            self._message(item.message, where)
            return False
        self._session(item.session, where)
        return True

    def drop(self) -> None:
        """Forget the messages of a record that turned out bad."""
        self._pending.clear()
        self.db.execute('DELETE FROM messages WHERE "#i" > ?', (self._start,))
        self.messages = self._start
        self._runs = []

    def _message(self, message: Any, where: str) -> None:
        if not isinstance(message, dict):
            raise Damaged(f"{where}: a message that is not an object")
        role = message.get("role")
        if not isinstance(role, str) or not role:
            raise Damaged(f"{where}: a message without a role")
        raw = "_raw" in message
        try:
            message = cells(message)
        except Damaged as error:
            raise Damaged(f"{where}: a message: {error}") from error
        keys = tuple(message)
        if not MESSAGE_KEYS.isdisjoint(keys):
            message = {key: value for key, value in message.items() if key not in MESSAGE_KEYS}
            keys = tuple(message)
        self.messages += 1
        if self._runs and self._runs[-1][2] == keys:
            self._runs[-1] = (self._runs[-1][0], self.messages, keys)
        else:
            self._runs.append((self.messages, self.messages, keys))
        values = (self.messages, *message.values())
        if raw:
            self._flush()
            sql, bindings = special(self._statement(keys), values)
            self.db.execute(sql, bindings)
            return
        if keys != self._keys or len(self._pending) >= BATCH:
            self._flush()
            self._keys = keys
        self._pending.append(values)

    def _flush(self) -> None:
        if self._pending:
            self.db.executemany(self._statement(self._keys), self._pending)
            self._pending.clear()

    def _statement(self, keys: tuple[str, ...]) -> str:
        sql = self._insert.get(keys)
        if sql is None:
            self._columns("messages", keys)
            names = quoted(("#i", *keys))
            sql = f"INSERT INTO messages ({names}) VALUES ({', '.join('?' * (len(keys) + 1))})"
            self._insert[keys] = sql
        return sql

    def _columns(self, table: str, keys: Iterable[str]) -> None:
        """Room for columns; names that differ in case alone are one column to SQLite."""
        for key in keys:
            if key not in self._have[table]:
                if key.startswith("#") or not key or "\0" in key:
                    raise Damaged(f"{key!r}: not a name for a column")
                try:
                    self.db.execute(f"ALTER TABLE {table} ADD COLUMN {quoted([key])}")
                except sqlite3.OperationalError as error:
                    if "duplicate" not in str(error):
                        raise Damaged(f"{key!r}: too many columns") from error
                self._have[table].add(key)

    def _session(self, record: dict[str, Any], where: str) -> None:
        more = {key: value for key, value in record.items()
                if key in RESERVED and key not in ("messages", "_raw")}  # fmt: skip
        plain = {key: value for key, value in record.items()
                 if key not in RESERVED or key == "_raw"}  # fmt: skip
        raw = "_raw" in plain
        try:
            session = cells(plain)
        except Damaged as error:
            raise Damaged(f"{where}: {error}") from error
        name = session.get("id")
        ours = "_format" in record  # a store may hold an empty id; elsewhere it is a mistake
        if (not isinstance(name, str) or not (name.strip() or ours)) and not raw:
            raise Damaged(f"{where}: a session without an id")
        if "messages" not in record and not more.get("_deleted"):
            raise Damaged(f"{where}: a session without messages; is this an export?")
        self._flush()
        self._columns("sessions", session)
        names = quoted(("#n", "#where", "#runs", "#keys", "#more", *session))
        sql = f"INSERT INTO sessions ({names}) VALUES ({', '.join('?' * (len(session) + 5))})"
        values = (
            self.records + 1, where, json.dumps(self._runs), json.dumps(list(session)),
            json.dumps(more), *session.values(),
        )  # fmt: skip
        self.db.execute(*special(sql, values))
        self.records += 1
        self._runs, self._start = [], self.messages

    def finish(self) -> None:
        """All is read: put the records into order, parents before children."""
        self._flush()
        self.db.execute(PLACES)
        self.db.execute(REST)
        self.db.execute("COMMIT")

    def columns(self, table: str) -> list[str]:
        """The columns any record has."""
        return sorted(name for name in self._have[table])


def special(sql: str, values: tuple[Any, ...]) -> tuple[str, tuple[Any, ...]]:
    """A statement whose values may hold text that is no UTF-8: bound as bytes, cast to text."""
    bad = {
        i: value.encode("utf-8", "surrogateescape")
        for i, value in enumerate(values) if not sound(value)
    }  # fmt: skip
    if not bad:
        return sql, values
    head, _, _ = sql.rpartition("VALUES (")
    marks = ("CAST(? AS TEXT)" if i in bad else "?" for i in range(len(values)))
    return (
        f"{head}VALUES ({', '.join(marks)})",
        tuple(bad.get(i, value) for i, value in enumerate(values)),
    )


def load(row: sqlite3.Row) -> Staged:
    """A row of the staging table as a record; only the keys that came with it."""
    keys = json.loads(row["#keys"])
    runs = [(first, last, tuple(names)) for first, last, names in json.loads(row["#runs"])]
    session = {key: row[key] for key in keys}
    return Staged(
        row["#n"], row["#where"], session, runs, json.loads(row["#more"]), row["#tree"]
    )
