"""The lossless export: session rows with all that belongs to them, as JSON Lines.

    export_session(db, id)            → chunks of bytes: one row's line, ended
    export_conversation(db, id)       → the same for every row of its conversation
    digest(db, row ids)               → what the rows of a conversation say, as a hexadecimal hash

Memory does not grow with the length of a session. Every cell comes back at import with its type:
see Cells for how.
"""

import hashlib
import json
import sqlite3
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any

import orjson

from hermes_tools.store import columns, db
from hermes_tools.store.db import Database
from hermes_tools.store.errors import NotFound
from hermes_tools.store.lineage import Lineage
from hermes_tools.store.messages import SENTINEL

FORMAT = 1
CHUNK = 1 << 16  # bytes that are collected before they are handed on
INFINITE = (float("inf"), float("-inf"))

Row = tuple[Any, ...]


class Cells:
    """The cells of one table's rows as a JSON object.

    Text is text, numbers are numbers. Content behind the agent's marker and JSON columns are
    decoded if json.dumps gives their text again. What JSON cannot hold is readable (U+FFFD) or
    null in place and stands in `_raw`: the bytes as base64 (a BLOB where the place is null, else
    text), or `inf` and `-inf`.
    """

    def __init__(self, table: str, names: list[str]) -> None:
        self.names = names
        json_columns = columns.JSON.get(table, frozenset())
        self._json = [i for i, name in enumerate(names) if name in json_columns]
        self._content = names.index("content") if table == "messages" else None

    def record(self, row: Row) -> dict[str, Any]:
        """One row; `_raw` comes last where it is needed."""
        record = dict(zip(self.names, row, strict=True))
        for i in self._json:
            cell = row[i]
            if cell is not None:
                record[self.names[i]] = structure(cell)
        if self._content is not None:
            cell = row[self._content]
            if type(cell) is str and cell.startswith(SENTINEL):
                value = structure(cell[len(SENTINEL) :])
                if type(value) is not str:
                    record["content"] = value
        return record

    def dumps(self, row: Row) -> bytes:
        """One row as JSON."""
        if INFINITE[0] not in row and INFINITE[1] not in row:
            try:
                return orjson.dumps(self.record(row))
            except TypeError:
                pass
        return orjson.dumps(self.careful(row))

    def careful(self, row: Row) -> dict[str, Any]:
        """One row cell by cell, for those that hold what JSON cannot."""
        record: dict[str, Any] = {}
        raw: dict[str, str] = {}
        for (name, value), cell in zip(self.record(row).items(), row, strict=True):
            if isinstance(cell, bytes):
                record[name], raw[name] = None, b64encode(cell).decode()
            elif isinstance(cell, float) and cell in INFINITE:
                record[name], raw[name] = None, str(cell)
            elif isinstance(cell, str) and not sound(cell):
                stored = cell.encode("utf-8", "surrogateescape")
                record[name], raw[name] = stored.decode("utf-8", "replace"), (
                    b64encode(stored).decode()
                )
            elif isinstance(value, dict | list) and not dumpable(value):
                record[name] = cell  # nested too deep
            else:
                record[name] = value
        return {**record, "_raw": raw} if raw else record


def structure(cell: Any) -> Any:
    """The object or array a text encodes, if json.dumps gives the same text again; else the cell
    as it is. orjson is stricter than json: no NaN, no lone surrogates, no integers over 64 bits.
    """
    if type(cell) is not str or cell[:1] not in ("[", "{"):
        return cell
    try:
        value = orjson.loads(cell)
        return value if json.dumps(value) == cell else cell
    except (ValueError, RecursionError):
        return cell


def sound(text: str) -> bool:
    """Whether a text was valid UTF-8 in the store."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def dumpable(value: Any) -> bool:
    """Whether orjson can write a value; it stops at 254 levels."""
    try:
        orjson.dumps(value)
    except TypeError:
        return False
    return True


def bound(name: Any) -> tuple[str, Any]:
    """(SQL, parameter) for an id in a comparison: one that is no UTF-8 cannot be bound as text."""
    if isinstance(name, str) and not sound(name):
        return "CAST(? AS TEXT)", name.encode("utf-8", "surrogateescape")
    return "?", name


def rows(connection: Database, sql: str, parameters: Iterable[Any]) -> Iterator[Row]:
    """Rows as tuples, text decoded the quick way; a row that holds invalid UTF-8 is read again
    with care. The statement selects its rowid last and is ordered by it.

    sql: has `{after}` where a condition on the rowid may stand.
    """
    parameters, after = list(parameters), None
    while True:
        cursor = connection.cursor()
        cursor.row_factory = None
        condition = "" if after is None else f"AND rowid > {after}"
        decode: Callable[[bytes], str] = connection.text_factory
        cursor.execute(sql.format(after=condition), parameters)
        while True:
            connection.text_factory = str
            try:
                row = next(cursor, None)
            except sqlite3.OperationalError as error:
                if "decode" not in str(error):
                    raise
                break
            finally:
                connection.text_factory = decode
            if row is None:
                return
            after = row[-1]
            yield row[:-1]
        cursor.close()
        condition = "" if after is None else f"AND rowid > {after}"
        cursor = connection.cursor()
        cursor.row_factory = None
        row = cursor.execute(sql.format(after=condition), parameters).fetchone()
        cursor.close()
        after = row[-1]
        yield row[:-1]


class Exporter:
    """What is needed to export from one store; its columns are read once."""

    def __init__(self, connection: Database) -> None:
        self.db = connection
        self.session_names = columns.ordered(connection, "sessions")
        self.message_names = columns.ordered(connection, "messages")
        self.session_cells = Cells("sessions", self.session_names)
        self.message_cells = Cells("messages", self.message_names)
        self._sessions = f"SELECT {quoted(self.session_names)} FROM sessions WHERE id IS "
        self._messages = (
            f"SELECT {quoted(self.message_names)}, rowid FROM messages WHERE session_id = "
        )

    def session(self, session_id: Any) -> Row:
        """The session row. Raises NotFound."""
        place, value = bound(session_id)
        cursor = self.db.cursor()
        cursor.row_factory = None
        row = cursor.execute(self._sessions + place, (value,)).fetchone()
        if row is None:
            raise NotFound(f"session {session_id}: not in this store")
        return tuple(row)

    def messages(self, session_id: Any, which: str = "") -> Iterator[Row]:
        """The message rows by id; `which` narrows them (`AND …`, on the bare column names)."""
        place, value = bound(session_id)
        sql = f"{self._messages}{place} {which} {{after}} ORDER BY rowid"
        return rows(self.db, sql, (value,))

    def tables(self, session_id: Any, row: Row) -> dict[str, list[dict[str, Any]]]:
        """Rows of other tables that belong to a session: usage by model, goals, and the prompts
        it names by their hash.
        """
        found: dict[str, list[dict[str, Any]]] = {}
        for table, sql, parameters in side_tables(
            self.db, session_id, dict(zip(self.session_names, row, strict=True))
        ):
            names = columns.ordered(self.db, table)
            cells = Cells(table, names)
            cursor = self.db.cursor()
            cursor.row_factory = None
            cursor.execute(f"SELECT {quoted(names)} FROM {quoted([table])} {sql}", parameters)
            records = [orjson.loads(cells.dumps(cell)) for cell in cursor]
            if records:
                found[table] = sorted(records, key=orjson.dumps)
        return found

    def line(self, session_id: Any) -> Iterator[bytes]:
        """One session's export record in chunks of about 64 KB, ended with a newline."""
        row = self.session(session_id)
        record = self.session_cells.careful(row)
        raw = record.pop("_raw", None)
        head = orjson.dumps(record)[:-1] + b',"messages":['
        chunks, size, dumps = [head], len(head), self.message_cells.dumps
        separator = b""
        for message in self.messages(session_id):
            text = dumps(message)
            chunks += (separator, text)
            separator = b","
            size += len(text)
            if size > CHUNK:
                yield b"".join(chunks)
                chunks, size = [], 0
        tail: dict[str, Any] = {}
        tables = self.tables(session_id, row)
        if tables:
            tail["_tables"] = tables
        if raw:
            tail["_raw"] = raw
        tail["_format"] = FORMAT
        chunks.append(b"]," + orjson.dumps(tail)[1:] + b"\n")
        yield b"".join(chunks)

    def digest(self, session_ids: list[Any]) -> str:
        """SHA-256 of what rows hold, in hexadecimal. Left out are message ids, the first row's
        parent, live state (columns.LIVE) and cells that are NULL or a default, so that the same
        conversation has the same digest in stores of different releases.
        """
        told = hashlib.sha256()
        for session_id in session_ids:
            row = self.session(session_id)
            record = self.session_cells.careful(row)
            if session_id == session_ids[0]:
                record.pop("parent_session_id", None)
            told.update(canonical("sessions", record))
            for message in self.messages(session_id):
                told.update(canonical("messages", self.message_cells.careful(message)))
            tables = self.tables(session_id, row)
            if tables:
                told.update(orjson.dumps(tables, option=orjson.OPT_SORT_KEYS))
        return told.hexdigest()


DEFAULTS = {
    table: {name: columns.default(table, name) for name in names}
    for table, names in columns.DECLARED.items()
}


def canonical(table: str, record: dict[str, Any]) -> bytes:
    """A session or message record as it counts for a digest."""
    defaults = DEFAULTS[table]
    kept = {
        name: value for name, value in record.items()
        if value is not None and (value != defaults.get(name) or isinstance(value, str))
        and not (table == "sessions" and name in columns.LIVE)
        and not (table == "messages" and name in ("id", "session_id"))
    }  # fmt: skip
    return orjson.dumps(kept) + b"\n"


def side_tables(
    connection: Database, session_id: Any, session: dict[str, Any]
) -> Iterator[tuple[str, str, tuple[Any, ...]]]:
    """(table, WHERE, parameters) of what other tables hold about a session. Live state (leases,
    routing, topic bindings) is not its history and stays where it is.
    """
    schema = connection.schema
    place, value = bound(session_id)
    for table, names in schema.tables.items():
        if "session_id" in names and table not in ("messages", *LIVE_TABLES):
            yield table, f"WHERE session_id = {place}", (value,)
    hashes = [
        session[name] for name in ("system_prompt_hash", "tool_names")
        if isinstance(session.get(name), str)
    ]  # fmt: skip
    if hashes and schema.has("system_prompts", "hash", "prompt"):
        yield "system_prompts", f"WHERE hash IN ({db.marks(hashes)})", tuple(hashes)
    if schema.has("state_meta", "key", "value") and isinstance(session_id, str):
        yield "state_meta", "WHERE key IN (?, ?)", (f"goal:{session_id}", f"loop:{session_id}")


LIVE_TABLES = (
    "compression_locks", "session_turn_leases", "gateway_routing", "telegram_dm_topic_bindings",
    "async_delegations",
)  # fmt: skip


def quoted(names: Iterable[str]) -> str:
    """Column names for a SELECT list."""
    return ", ".join('"' + name.replace('"', '""') + '"' for name in names)


def export_session(connection: Database, session_id: Any) -> Iterator[bytes]:
    """One session row's export line in chunks of bytes. Raises NotFound."""
    return Exporter(connection).line(session_id)


def export_conversation(
    connection: Database, session_id: str, *, lineage: Lineage | None = None
) -> Iterator[bytes]:
    """The lines of a whole conversation: its chain from root to tip, then its delegates."""
    exporter = Exporter(connection)
    members = (lineage or Lineage(connection)).members(session_id)
    return chain.from_iterable(map(exporter.line, members))


def digest(connection: Database, session_ids: list[Any]) -> str:
    """What the rows of one conversation hold (Lineage.members, in that order), as a SHA-256."""
    return Exporter(connection).digest(session_ids)
