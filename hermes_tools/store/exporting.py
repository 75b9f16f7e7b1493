"""The lossless export: session rows with all that belongs to them, as JSON Lines.

    export_session(db, id)            → chunks of bytes: one row's line, ended
    export_conversation(db, id)       → the same for every row of its conversation
    digest(db, row ids)               → what the rows of a conversation say, as a hexadecimal hash

Memory does not grow with the length of a session. Every cell comes back at import with its type:
see Cells for how.
"""

import json
import sqlite3
from binascii import b2a_base64
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import chain
from operator import itemgetter
from typing import Any

import orjson

from hermes_tools.store import columns, db
from hermes_tools.store.db import Database, decode, sound
from hermes_tools.store.errors import NotFound
from hermes_tools.store.lineage import Lineage
from hermes_tools.store.messages import SENTINEL

FORMAT = 1
# Not for other eyes: injected memory, thoughts, where a chat took place and with whom.
PRIVATE = {
    "sessions": frozenset({
        "user_id", "session_key", "chat_id", "chat_type", "thread_id", "display_name",
        "origin_json", "billing_base_url",
    }),
    "messages": frozenset({
        "api_content", "reasoning", "reasoning_content", "reasoning_details",
        "codex_reasoning_items", "codex_message_items", "platform_message_id",
    }),
}  # fmt: skip
CHUNK = 1 << 16  # bytes that are collected before they are handed on
PAGE = 64  # rows that are decoded together
# Columns of version 11 that may hold numbers; all others are declared TEXT.
NUMERIC = frozenset({
    "id", "started_at", "ended_at", "message_count", "tool_call_count", "input_tokens",
    "output_tokens", "cache_read_tokens", "cache_write_tokens", "reasoning_tokens",
    "estimated_cost_usd", "actual_cost_usd", "api_call_count", "timestamp", "token_count",
})  # fmt: skip
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
        structured = columns.JSON.get(table, frozenset())
        self._json = [i for i, name in enumerate(names) if name in structured]
        self._content = names.index("content") if "content" in names else None
        # What can be infinite is looked at in one go; the texts of the agent's schema cannot.
        texts = {name for name in columns.FIRST.get(table, ()) if name not in NUMERIC}
        self._numbers = picker(i for i, name in enumerate(names) if name not in texts)
        self._structured = picker(self._json)
        self._none = (None,) * max(2, len(self._json))

    def records(self, rows: list[Row]) -> list[dict[str, Any]]:
        """Rows, decoded."""
        names, structured, none, content = self.names, self._structured, self._none, self._content
        records = [dict(zip(names, row, strict=False)) for row in rows]
        for row, record in zip(rows, records, strict=True):
            if structured(row) != none:
                for i in self._json:
                    if row[i] is not None:
                        record[names[i]] = structure(row[i])
            if content is not None:
                cell = row[content]
                if cell and type(cell) is str and cell[0] == "\0" and cell.startswith(SENTINEL):
                    value = structure(cell[len(SENTINEL) :])
                    if type(value) is not str:
                        record["content"] = value
        return records

    def dumps(self, rows: list[Row]) -> bytes:
        """Rows as JSON objects, with commas between them."""
        if self.finite(rows):
            with suppress(TypeError):
                return orjson.dumps(self.records(rows))[1:-1]
        return orjson.dumps([self.careful(row) for row in rows])[1:-1]

    def finite(self, rows: list[Row]) -> bool:
        """Whether no number in these rows is infinite."""
        numbers, above, below = self._numbers, *INFINITE
        for row in rows:
            some = numbers(row)
            if above in some or below in some:
                return False
        return True

    def careful(self, row: Row) -> dict[str, Any]:
        """One row cell by cell, for those that hold what JSON cannot."""
        record: dict[str, Any] = {}
        raw: dict[str, str] = {}
        for (name, value), cell in zip(self.records([row])[0].items(), row, strict=False):
            if isinstance(cell, bytes):
                record[name], raw[name] = None, base64(cell)
            elif isinstance(cell, float) and cell in INFINITE:
                record[name], raw[name] = None, str(cell)
            elif not sound(cell):
                stored = cell.encode("utf-8", "surrogateescape")
                record[name], raw[name] = stored.decode("utf-8", "replace"), base64(stored)
            elif isinstance(value, dict | list) and not dumpable(value):
                record[name] = cell  # nested too deep
            else:
                record[name] = value
        return {**record, "_raw": raw} if raw else record


def base64(cell: bytes) -> str:
    """Bytes as JSON can hold them."""
    return b2a_base64(cell, newline=False).decode()


def encoder() -> Callable[[Any], str]:
    """json.dumps with its defaults; where there is its C encoder, one that is made once and not
    anew for every call.
    """
    made = json.encoder.c_make_encoder  # type: ignore[attr-defined]
    if made is None:
        return json.dumps
    plain = json.JSONEncoder()
    encode = made(
        None, plain.default, json.encoder.encode_basestring_ascii, None, ": ", ", ",
        False, False, True,
    )  # fmt: skip
    return lambda value: "".join(encode(value, 0))


encoded = encoder()


def structure(cell: Any) -> Any:
    """The object or array a text encodes, if json.dumps gives the same text again; else the cell
    as it is. orjson is stricter than json: no NaN, no lone surrogates, no integers over 64 bits.
    """
    if type(cell) is not str or cell[:1] not in ("[", "{"):
        return cell
    try:
        value = orjson.loads(cell)
        return value if encoded(value) == cell else cell
    except (ValueError, RecursionError):
        return cell


def dumpable(value: Any) -> bool:
    """Whether orjson can write a value; it stops at 254 levels."""
    try:
        orjson.dumps(value)
    except TypeError:
        return False
    return True


def bound(name: Any) -> tuple[str, Any]:
    """(SQL, parameter) for an id in a comparison: one that is no UTF-8 cannot be bound as text."""
    if not sound(name):
        return "CAST(? AS TEXT)", name.encode("utf-8", "surrogateescape")
    return "?", name


def picker(places: Iterable[int]) -> Callable[[Row], Row]:
    """row → its cells at these places, as a tuple of two or more."""
    found = list(places)
    if len(found) > 1:
        return itemgetter(*found)
    return (lambda row: (row[found[0]], None)) if found else (lambda row: (None, None))


def pages(connection: Database, sql: str, parameters: Row, weight: int) -> Iterator[list[Row]]:
    """Rows as tuples, some at a time, text decoded the quick way; from the first row on that holds
    invalid UTF-8, with care. The statement selects the rowid last and is ordered by it; `{after}`
    in it is where a condition on the rowid may stand. weight: the column that makes rows long.
    """
    after, factory = "", str
    while True:
        cursor = connection.cursor()
        cursor.row_factory = None
        cursor.execute(sql.format(after=after), parameters)
        failed = False
        while not failed:
            page, failed = _page(cursor, factory, weight)
            if page:
                after = f"AND rowid > {page[-1][-1]}"
                yield page
            elif not failed:
                return
        factory = decode  # type: ignore[assignment]


def _page(cursor: sqlite3.Cursor, factory: Any, weight: int) -> tuple[list[Row], bool]:
    """(rows, whether the next one could not be decoded)."""
    page: list[Row] = []
    size = 0
    connection = cursor.connection
    usual, connection.text_factory = connection.text_factory, factory
    try:
        for row in cursor:
            page.append(row)
            size += len(row[weight]) if type(row[weight]) is str else 200
            if size > CHUNK or len(page) == PAGE:
                break
    except sqlite3.OperationalError as error:
        if factory is not str or "decode" not in str(error):
            raise
        return page, True
    finally:
        connection.text_factory = usual
    return page, False


class Exporter:
    """What is needed to export from one store; its columns are read once.

    live_only: no undone or compacted messages, prompts in place of their hashes; the agent's own
    importer takes that for what it is. share: without what is private. stamps: keys that end
    every record (`_origin`, `profile`).
    """

    def __init__(
        self, connection: Database, *, live_only: bool = False, share: bool = False,
        stamps: dict[str, Any] | None = None,
    ) -> None:  # fmt: skip
        self.db, self.live_only, self.share = connection, live_only, share
        self.stamps = stamps or {}
        hidden = PRIVATE if share else dict.fromkeys(PRIVATE, frozenset[str]())
        self.session_names, self.message_names = (
            [name for name in columns.ordered(connection, table) if name not in hidden[table]]
            for table in ("sessions", "messages")
        )
        self.session_cells = Cells("sessions", self.session_names)
        self.message_cells = Cells("messages", self.message_names)
        self._sessions = f"SELECT {quoted(self.session_names)} FROM sessions WHERE id IS "
        select = f"SELECT {quoted(self.message_names)}, messages.rowid FROM "
        # Most sessions have their messages side by side, and a scan of that range is quickest.
        self._dense = f"{select} messages WHERE rowid BETWEEN ? AND ? {{which}} {{{{after}}}}"
        # Others: ids first, in their order, then each row. Sorting whole rows would cost more.
        self._sparse = (
            f"{select}(SELECT rowid AS at FROM messages WHERE session_id = {{place}} {{which}} "
            "{{after}} ORDER BY rowid LIMIT -1) CROSS JOIN messages ON messages.rowid = at"
        )
        names = self.message_names
        self._weight = names.index("content") if "content" in names else 0
        self._sides = side_tables(connection)

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
        for page in self.pages(session_id, which):
            for row in page:
                yield row[:-1]

    def pages(self, session_id: Any, which: str = "") -> Iterator[list[Row]]:
        """The same, some at a time; each row ends with its rowid."""
        place, value = bound(session_id)
        low, high, count = self.db.execute(
            f"SELECT min(rowid), max(rowid), count(*) FROM messages WHERE session_id = {place}",
            (value,),
        ).fetchone()
        if count and high - low + 1 == count:
            sql = self._dense.format(which=which)
            return pages(self.db, sql, (low, high), self._weight)
        sql = self._sparse.format(place=place, which=which)
        return pages(self.db, sql, (value,), self._weight)

    def tables(self, session_id: Any, row: Row) -> dict[str, list[dict[str, Any]]]:
        """Rows of other tables that belong to a session: usage by model, goals, and the prompts
        it names by their hash.
        """
        found: dict[str, list[dict[str, Any]]] = {}
        if not self._sides:
            return found
        session = dict(zip(self.session_names, row, strict=True))
        for table, sql, parameters in self._about(session_id, session):
            names = columns.ordered(self.db, table)
            cursor = self.db.cursor()
            cursor.row_factory = None
            cursor.execute(f"SELECT {quoted(names)} FROM {quoted([table])} {sql}", parameters)
            records = list(map(Cells(table, names).careful, cursor))
            if records:
                found[table] = sorted(records, key=orjson.dumps)
        return found

    def _about(
        self, session_id: Any, session: dict[str, Any]
    ) -> Iterator[tuple[str, str, Row]]:
        """(table, WHERE, parameters)"""
        place, value = bound(session_id)
        for table in self._sides:
            if table == "system_prompts":
                hashes = [session[name] for name in HASHES if isinstance(session.get(name), str)]
                if hashes:
                    yield table, f"WHERE hash IN ({db.marks(hashes)})", tuple(hashes)
            elif table != "state_meta":
                yield table, f"WHERE session_id = {place}", (value,)
            elif isinstance(session_id, str):
                yield table, "WHERE key IN (?, ?)", (f"goal:{session_id}", f"loop:{session_id}")

    def prompt(self, session: dict[str, Any]) -> str | None:
        """A session's system prompt, where it stands in its row or by its hash."""
        if session.get("system_prompt") is not None:
            return str(session["system_prompt"])
        name = session.get("system_prompt_hash")
        if name is None or not self.db.schema.has("system_prompts", "hash", "prompt"):
            return None
        row = self.db.execute(
            "SELECT prompt FROM system_prompts WHERE hash = ?", (name,)
        ).fetchone()
        return str(row[0]) if row else None

    def line(
        self, session_id: Any, *, above: int | None = None, stamps: dict[str, Any] | None = None
    ) -> Iterator[bytes]:
        """One session's export record in chunks of about 64 KB, ended with a newline; with `above`
        only its messages with higher ids. `stamps` are more keys for its end.
        """
        row = self.session(session_id)
        record = self.session_cells.careful(row)
        raw = record.pop("_raw", None)
        if self.live_only and record.get("system_prompt") is None:
            record["system_prompt"] = self.prompt(record)
        head = orjson.dumps(record)[:-1] + b',"messages":['
        which = f"AND {self.db.schema.live.replace('m.', '')}" if self.live_only else ""
        which += f" AND rowid > {above}" if above else ""
        separator = b""
        for page in self.pages(session_id, which):
            text = self.message_cells.dumps(page)
            yield head + separator + text if head else separator + text
            head, separator = b"", b","
        tail: dict[str, Any] = {}
        tables = self.tables(session_id, row)
        if self.share:
            tables.pop("state_meta", None)
        if tables:
            tail["_tables"] = tables
        if raw:
            tail["_raw"] = raw
        tail |= {**self.stamps, **(stamps or {}), "_format": FORMAT}
        yield head + b"]," + orjson.dumps(tail)[1:] + b"\n"

    def digest(self, session_ids: list[Any]) -> str:
        """SHA-256 of what rows hold, in hexadecimal. Left out are message ids, the first row's
        parent, live state (columns.LIVE), what a store fills in by itself (columns.MINTED) and
        cells that are NULL or a default; a text stored by its hash counts as that text. So the
        same conversation has the same digest in stores of different releases.
        """
        import hashlib  # no export needs it

        told = hashlib.sha256()
        for session_id in session_ids:
            row = self.session(session_id)
            record = self.session_cells.careful(row)
            if session_id == session_ids[0]:
                record.pop("parent_session_id", None)
            tables = self.tables(session_id, row)
            self._spell_out(record, tables.pop("system_prompts", ()))
            told.update(canonical("sessions", record))
            for page in self.pages(session_id):
                told.update(self._canonical(page))
            if tables:
                told.update(orjson.dumps(tables, option=orjson.OPT_SORT_KEYS))
        return told.hexdigest()

    def _spell_out(self, record: dict[str, Any], prompts: Iterable[dict[str, Any]]) -> None:
        """Texts in place of their hashes."""
        texts = {one.get("hash"): one.get("prompt") for one in prompts}
        name = record.pop("system_prompt_hash", None)
        if record.get("system_prompt") is None:
            record["system_prompt"] = texts.get(name)
        names = record.get("tool_names")
        if isinstance(names, str) and names in texts:
            record["tool_names"] = structure(texts[names])

    def _canonical(self, page: list[Row]) -> bytes:
        """Messages as they count for a digest."""
        cells = self.message_cells
        if cells.finite(page):
            with suppress(TypeError):
                return b"".join(canonical("messages", one) for one in cells.records(page))
        return b"".join(canonical("messages", cells.careful(row)) for row in page)


DEFAULTS = {
    table: {name: columns.default(table, name) for name in names}
    for table, names in columns.DECLARED.items()
}
NOT_SAID = columns.MINTED | {"id", "session_id"}


def canonical(table: str, record: dict[str, Any]) -> bytes:
    """A session or message record as it counts for a digest."""
    defaults = DEFAULTS[table]
    kept = {
        name: value for name, value in record.items()
        if value is not None and (value != defaults.get(name) or isinstance(value, str))
        and not (table == "sessions" and name in columns.LIVE)
        and not (table == "messages" and name in NOT_SAID)
    }  # fmt: skip
    return orjson.dumps(kept) + b"\n"


def side_tables(connection: Database) -> list[str]:
    """The tables that hold anything about sessions. Live state (leases, routing, topic bindings)
    is not their history and stays where it is.
    """
    schema = connection.schema
    tables = [
        table for table, names in schema.tables.items()
        if "session_id" in names and table not in ("messages", *LIVE_TABLES)
    ]  # fmt: skip
    if schema.has("system_prompts", "hash", "prompt"):
        tables.append("system_prompts")
    if schema.has("state_meta", "key", "value"):
        tables.append("state_meta")
    found = []
    for table in tables:
        only = "WHERE key GLOB 'goal:*' OR key GLOB 'loop:*'" if table == "state_meta" else ""
        if connection.execute(f"SELECT 1 FROM {quoted([table])} {only} LIMIT 1").fetchone():
            found.append(table)
    return found


HASHES = ("system_prompt_hash", "tool_names")
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
