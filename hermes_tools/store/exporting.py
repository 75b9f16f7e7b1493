"""The lossless export: session rows with all that belongs to them, as JSON Lines.

    Exporter(db).line(id)   → chunks of bytes: one row's line, ended
    digest(db, row ids)     → what the rows of a conversation say, as a hexadecimal hash

Memory does not grow with the length of a session. Every cell comes back at import with its type:
see Cells for how.
"""

import json
import re
import sqlite3
from binascii import b2a_base64
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import islice, repeat
from operator import setitem
from typing import Any

import orjson

from hermes_tools.store import columns, db
from hermes_tools.store.db import Database, decode, sound
from hermes_tools.store.errors import NotFound
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
MESSAGES = b',"messages":['
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


class Infinite(ValueError):
    """A number that JSON has none for."""


class Cells:
    """The cells of one table's rows as a JSON object.

    Text is text, numbers are numbers. Content behind the agent's marker and JSON columns are
    decoded if json.dumps gives their text again. What JSON cannot hold is readable (U+FFFD) or
    null in place and stands in `_raw`: the bytes as base64 (a BLOB where the place is null, else
    text), or `inf` and `-inf`.
    """

    def __init__(self, table: str, names: list[str]) -> None:
        self.names = names
        self._decode: dict[str, Callable[[Any], Any]] = {
            name: content if name == "content" else structure
            for name in names if name in columns.JSON.get(table, ()) or name == "content"
        }  # fmt: skip
        # What can be infinite is looked at; the texts of the agent's schema cannot.
        self._numbers = frozenset(names) - (frozenset(columns.FIRST.get(table, ())) - NUMERIC)
        # For `quick`: records that are filled anew for each page, and which of their columns are.
        self._page: list[dict[str, Any]] = []
        self._filled: set[str] = set()

    def records(self, rows: list[Row]) -> list[dict[str, Any]]:
        """Rows, decoded. Raises Infinite where a number is."""
        records = [dict(zip(self.names, row, strict=False)) for row in rows]
        for name, cells in zip(self.names, zip(*rows, strict=True), strict=False):
            if name in self._numbers and infinite(cells):
                raise Infinite
            if name in self._decode:
                decode = self._decode[name]
                for record, cell in zip(records, cells, strict=True):
                    record[name] = decode(cell)
        return records

    def dumps(self, rows: list[Row]) -> bytes:
        """Rows as JSON objects, with commas between them."""
        with suppress(TypeError, Infinite):
            return self.quick(rows)
        return orjson.dumps([self.careful(row) for row in rows])[1:-1]

    def quick(self, rows: list[Row]) -> bytes:
        """The same; raises Infinite and TypeError for what JSON lacks. Done column by column: most
        are NULL on a whole page, and to make dicts anew would take half of the time.
        """
        while len(self._page) < len(rows):
            self._page.append(dict.fromkeys(self.names))
        records = self._page[: len(rows)]
        for name, cells in zip(self.names, zip(*rows, strict=True), strict=False):
            if cells[0] is None and cells.count(None) == len(cells):
                if name in self._filled:
                    fill(self._page, name, repeat(None))
                    self._filled.remove(name)
                continue
            if name in self._numbers and infinite(cells):
                raise Infinite
            self._filled.add(name)
            fill(records, name, self._written(name, cells))
        return orjson.dumps(records)[1:-1]

    def _written(self, name: str, cells: Row) -> Iterable[Any]:
        """The cells of a column as orjson is to write them."""
        if name not in self._decode:
            return cells
        if name == "content" and not any(
            map(str.startswith, filter(None, cells), repeat(SENTINEL[0]))
        ):
            return cells
        decode = spliced if name == "tool_calls" else self._decode[name]
        return [None if cell is None else decode(cell) for cell in cells]

    def careful(self, row: Row) -> dict[str, Any]:
        """One row cell by cell, for those that hold what JSON cannot."""
        record: dict[str, Any] = {}
        raw: dict[str, str] = {}
        for name, cell in zip(self.names, row, strict=False):
            value = self._decode[name](cell) if name in self._decode else cell
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


def fill(records: list[dict[str, Any]], name: str, cells: Iterable[Any]) -> None:
    """Put a column's cells into records; without a loop in Python."""
    deque(map(setitem, records, repeat(name), cells), maxlen=0)


def infinite(cells: Row) -> bool:
    """Whether one of the cells is."""
    return INFINITE[0] in cells or INFINITE[1] in cells


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


# Texts as json.dumps writes them, but for those with \\u; and a list of calls, the agent's way.
TEXT = r'"[ !#-\[\]-~]*(?:\\["\\nrtbf][ !#-\[\]-~]*)*"'
CALL = (
    rf'\{{"id": {TEXT}(?:, "call_id": {TEXT})?(?:, "response_item_id": {TEXT})?, "type": {TEXT}, '
    rf'"function": \{{"name": {TEXT}, "arguments": {TEXT}\}}\}}'
)
CALLS = rf"\[(?:{CALL}(?:, (?=\{{)|(?=\])))+\]"


def spliced(cell: Any) -> Any:
    """A cell of tool_calls as orjson is to write it. Of nearly all their form tells that they are
    what json.dumps gives, in half the time that to do it would take; those stay as they stand.
    """
    if type(cell) is str and re.fullmatch(CALLS, cell):
        return orjson.Fragment(cell)
    return structure(cell)


def content(cell: Any) -> Any:
    """What a content behind the agent's marker encodes, on the same condition."""
    if type(cell) is not str or cell[:1] != "\0" or not cell.startswith(SENTINEL):
        return cell
    value = structure(cell[len(SENTINEL) :])
    return cell if type(value) is str else value


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
        for row in islice(cursor, PAGE):
            page.append(row)
            if type(row[weight]) is str:
                size += len(row[weight])
                if size > CHUNK:
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
        self._spans: dict[Any, Row] = {}
        self._weight = names.index("content") if "content" in names else 0
        self._sides = side_tables(connection)

    def survey(self) -> None:
        """Look up where each session has its messages, in one query for all of them."""
        self._spans = {
            row[0]: tuple(row[1:]) for row in self.db.execute(
                "SELECT session_id, min(rowid), max(rowid), count(*) FROM messages GROUP BY 1"
            )
        }  # fmt: skip

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
        low, high, count = self._spans.get(session_id) or self.db.execute(
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
        head, raw = self._head(row)
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

    def _head(self, row: Row) -> tuple[bytes, dict[str, str] | None]:
        """A session record up to its messages, and what JSON cannot hold of it."""
        if not self.live_only:
            with suppress(TypeError, Infinite):
                return self.session_cells.quick([row])[:-1] + MESSAGES, None
        record = self.session_cells.careful(row)
        raw = record.pop("_raw", None)
        if self.live_only and record.get("system_prompt") is None:
            record["system_prompt"] = self.prompt(record)
        return orjson.dumps(record)[:-1] + MESSAGES, raw

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
        with suppress(TypeError, Infinite):
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


def digest(connection: Database, session_ids: list[Any]) -> str:
    """What the rows of one conversation hold (Lineage.members, in that order), as a SHA-256."""
    return Exporter(connection).digest(session_ids)
