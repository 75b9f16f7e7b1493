"""New stores from schema.sql, and old ones brought to its version."""

import os
import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hermes_tools.store import schema
from hermes_tools.store.db import Database, transaction
from hermes_tools.store.errors import Damaged, Negative, Unsupported
from hermes_tools.store.placing import placed

# By path: importlib.resources would cost every writer 20 ms.
SCHEMA = Path(__file__).parent.parent / "schema.sql"
VERSION = 11
TITLE_LIMIT = 100
ROWS_AT_ONCE = 2000

# What each version brought (store-facts 1.2); anything else of schema.sql counts as the last.
BROUGHT = {
    ("messages", "finish_reason"): 2, ("sessions", "title"): 3,
    ("messages", "reasoning"): 6, ("messages", "reasoning_details"): 6,
    ("messages", "codex_reasoning_items"): 6, ("messages", "reasoning_content"): 7,
    ("sessions", "api_call_count"): 8, ("messages", "codex_message_items"): 9,
    **{("sessions", name): 5 for name in (
        "cache_read_tokens", "cache_write_tokens", "reasoning_tokens", "billing_provider",
        "billing_base_url", "billing_mode", "estimated_cost_usd", "actual_cost_usd",
        "cost_status", "cost_source", "pricing_version",
    )},
}  # fmt: skip
# Columns that only releases after version 11 make: such a store is theirs, whatever it says.
LATER = {
    "messages": {"platform_message_id", "observed", "active", "compacted"},
    "sessions": {"rewind_count", "archived", "session_key"},
}
INDEXED = (
    "COALESCE(content, '') || ' ' || COALESCE(tool_name, '') || ' ' || COALESCE(tool_calls, '')"
)


@dataclass(frozen=True)
class Change:
    """One thing an old store lacks: what, the version that brought it, and the SQL that does it.
    An index of words (`fill`) is made anew and filled from the messages.
    """

    version: int
    object: str
    detail: str
    sql: tuple[tuple[str, tuple[Any, ...]], ...] = ()
    fill: str | None = None
    rows: int = 0

    def record(self, action: str) -> dict[str, Any]:
        """As migrate prints it."""
        return {
            "object": self.object, "action": action, "version": self.version,
            "detail": self.detail,
        }  # fmt: skip


def create(path: Path) -> None:
    """A new, empty store at `path`: 0600 from its first byte, in WAL mode, whole or not at all.
    Folders that are missing are made for their owner alone (0700).

    Raises Negative where something is there already, Damaged where the log of a vanished store
    lies beside it: SQLite would replay that log into the new one.
    """
    path = Path(os.path.realpath(path))
    if path.exists():
        raise Negative(f"{path}: exists, and is not replaced")
    log = Path(f"{path}-wal")
    if log.exists() and log.stat().st_size:
        raise Damaged(
            f"{log}: the log of a store that is gone; a new store would swallow it. "
            "Move it away first"
        )
    make_folders(path.parent)
    with placed(path) as new, closing(sqlite3.connect(new, isolation_level=None)) as db:
        db.executescript(f"BEGIN;\n{SCHEMA.read_text(encoding='utf-8')}\nCOMMIT;")
        # Last: what a full disk keeps out of the file would stay in a log that closing drops.
        db.execute("PRAGMA journal_mode = WAL").fetchone()


def make_folders(folder: Path) -> None:
    """Missing folders from the top down, each for its owner alone."""
    for place in (*reversed(folder.parents), folder):
        with suppress(FileExistsError):
            if not place.exists():
                place.mkdir(mode=0o700)


def later(db: Database) -> str | None:
    """Words for why this store is of a release after version 11, None where it is not. The number
    alone would lie both ways (store-facts 1).
    """
    number = db.schema.version
    if number is not None and number > VERSION:
        return f"its schema is version {number}"
    found = sorted(
        f"{table}.{column}" for table, columns in LATER.items()
        for column in columns & set(db.schema.tables.get(table, ()))
    )  # fmt: skip
    return f"it has {found[0]}, though it says version {number}" if found else None


def model() -> sqlite3.Connection:
    """schema.sql in memory: what every store is compared with. Raises Unsupported."""
    memory = sqlite3.connect(":memory:", isolation_level=None)
    try:
        memory.executescript(SCHEMA.read_text(encoding="utf-8"))
    except sqlite3.OperationalError as error:
        memory.close()
        raise Unsupported(f"SQLite {sqlite3.sqlite_version} here lacks FTS5: {error}") from error
    return memory


def plan(db: Database) -> list[Change]:
    """What this store lacks of schema.sql, by version; nothing for one that is up to date."""
    from sqlite_utils import Database as Tables  # 50 ms, for schema work alone

    with closing(model()) as memory:
        want = Tables(memory, recursive_triggers=False)
        have = Tables(db, recursive_triggers=False)
        return sorted(
            [
                *_tables(db, want, have),
                *_titles(db),
                *_indexes(db, memory),
                *(
                    _index_of_words(db, memory, name)
                    for name in (schema.WORDS, schema.TRIGRAM) if not is_current(db, name)
                ),
                *_number(db),
            ],
            key=lambda change: change.version,
        )  # fmt: skip


def _tables(db: Database, want: Any, have: Any) -> Iterator[Change]:
    for table in want.tables:
        if table.virtual_table_using or table.name.startswith((schema.WORDS, "sqlite_")):
            continue
        if table.name not in db.schema.tables:
            yield Change(1, f"table {table.name}", "is made", ((table.schema, ()),))
            continue
        present = {column.name for column in have[table.name].columns}
        for column in table.columns:
            if column.name in present:
                continue
            if column.notnull and column.default_value is None:
                raise Unsupported(f"{db.path}: {table.name} has no {column.name}, which no old "
                                  "store lacks; it cannot be made up")  # fmt: skip
            default = f" DEFAULT {column.default_value}" if column.default_value else ""
            yield Change(
                BROUGHT.get((table.name, column.name), VERSION), f"{table.name}.{column.name}",
                "is added",
                ((f'ALTER TABLE {table.name} ADD COLUMN "{column.name}" {column.type}{default}',
                  ()),),
            )  # fmt: skip


def _titles(db: Database) -> Iterator[Change]:
    """Titles that stand in the way of their unique index: the oldest holder keeps it, the others
    get the next number, and blank ones become none.
    """
    if not db.schema.has("sessions", "title") or "idx_sessions_title_unique" in db.schema.indexes:
        return
    rename = "UPDATE sessions SET title = ? WHERE id = ?"
    rows = db.execute(
        "SELECT id, title FROM sessions WHERE title IS NOT NULL ORDER BY started_at, rowid"
    ).fetchall()
    taken = {row[1] for row in rows}
    seen: set[Any] = set()
    for name, title in rows:
        if title not in seen and str(title).strip():
            seen.add(title)
            continue
        new = None
        if str(title).strip():
            base = re.sub(r" #\d+$", "", str(title))
            number = 2
            while (new := f"{base[:TITLE_LIMIT - len(f' #{number}')]} #{number}") in taken:
                number += 1
            taken.add(new)
        yield Change(
            4, f"title of session {name}", f"{title!r} is taken, becomes {new!r}"
            if new else "was blank, becomes none", ((rename, (new, name)),),
        )  # fmt: skip


def _indexes(db: Database, memory: sqlite3.Connection) -> Iterator[Change]:
    for name, sql in memory.execute(
        "SELECT name, sql FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL"
    ):
        if name not in db.schema.indexes:
            yield Change(4 if "title" in name else 1, f"index {name}", "is made", ((sql, ()),))


def is_current(db: Database, index: str) -> bool:
    """Whether an index of words is as version 11 has it: its own text, all three columns of a
    message, kept up by three triggers.
    """
    create = db.schema.virtual.get(index)
    if create is None or re.search(r"content\s*=", create, re.I):
        return False
    texts = {verb: db.schema.triggers.get(f"{index}_{verb}", ("", ""))[1]
             for verb in ("insert", "delete", "update")}  # fmt: skip
    return all(texts.values()) and "tool_calls" in texts["insert"]


def _index_of_words(db: Database, memory: sqlite3.Connection, index: str) -> Change:
    if index in db.schema.tables or index in db.schema.views:
        raise Unsupported(f"{db.path}: {index} is no index here but a table of somebody's own")
    drops = [f"DROP TRIGGER IF EXISTS {index}_{verb}" for verb in ("insert", "delete", "update")]
    made = [
        row[0] for row in memory.execute(
            "SELECT sql FROM sqlite_master WHERE tbl_name IN (?, 'messages') "
            "AND (name = ? OR (type = 'trigger' AND name IN (?, ?, ?))) ORDER BY type = 'trigger'",
            (index, index, f"{index}_insert", f"{index}_delete", f"{index}_update"),
        )
    ]  # fmt: skip
    total = db.execute("SELECT count(*) FROM messages").fetchone()[0]
    return Change(
        VERSION if index in db.schema.virtual else 10 if index == schema.TRIGRAM else VERSION,
        f"index {index}", f"is filled from {total} messages",
        tuple((sql, ()) for sql in (*drops, f"DROP TABLE IF EXISTS {index}", *made)), index,
        total,
    )  # fmt: skip


def _number(db: Database) -> Iterator[Change]:
    """The one row of schema_version, whatever is there: none, two, text."""
    found = []
    if db.schema.has("schema_version", "version"):
        found = [row[0] for row in db.execute("SELECT version FROM schema_version")]
    if found != [VERSION]:
        was = " and ".join(map(repr, found)) or "nothing"
        yield Change(VERSION, "schema_version", f"becomes {VERSION}, was {was}")


def migrate(
    db: Database, changes: list[Change], advance: Callable[[int], None] = lambda step: None
) -> None:
    """Apply a plan in one transaction, raising schema_version step by step. advance: called with
    the number of messages indexed since the last call. Raises Damaged where an index, once
    filled, does not pass its own check; then nothing is changed.
    """
    with transaction(db):
        number = db.schema.version or 0
        for version in range(1, VERSION + 1):
            for change in (one for one in changes if one.version == version):
                for sql, values in change.sql:
                    db.execute(sql, values)
                if change.fill:
                    refill(db, change.fill, advance)
            if version > number:
                set_version(db, version)
        if any(change.object == "schema_version" for change in changes):
            set_version(db, VERSION)
    db.__dict__.pop("schema", None)  # read anew by whoever asks next


def set_version(db: Database, version: int) -> None:
    """Make this the one row of schema_version."""
    db.execute("DELETE FROM schema_version")
    db.execute("INSERT INTO schema_version (version) VALUES (?)", (version,))


def refill(
    db: Database, index: str, advance: Callable[[int], None], what: str = INDEXED
) -> None:
    """Fill an empty inline index from the messages ('rebuild' would read its own, empty, copy),
    and have it check itself. what: SQL of a message's indexed text. Raises Damaged.
    """
    done = -(1 << 63)
    while True:
        last, count = db.execute(
            "SELECT max(id), count(*) FROM (SELECT id FROM messages WHERE id > ? "
            "ORDER BY id LIMIT ?)", (done, ROWS_AT_ONCE),
        ).fetchone()  # fmt: skip
        if not count:
            break
        db.execute(
            f"INSERT INTO {index}(rowid, content) SELECT id, {what} FROM messages "
            "WHERE id > ? AND id <= ?", (done, last),
        )  # fmt: skip
        done = last
        advance(count)
    try:
        db.execute(f"INSERT INTO {index}({index}) VALUES ('integrity-check')")
    except sqlite3.DatabaseError as error:
        raise Damaged(f"{db.path}: the new {index} does not pass its check: {error}") from error

