"""What this store has: asked of the store at hand, never concluded from a version number."""

from __future__ import annotations

import re
import sqlite3
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hermes_tools.store.errors import Damaged, Unsupported

if TYPE_CHECKING:
    from hermes_tools.store.db import Database

OBJECTS = "SELECT type, name, tbl_name, COALESCE(sql, '') FROM sqlite_master"
COLUMNS = """
SELECT m.name, c.name FROM sqlite_master m, pragma_table_info(m.name) c
WHERE m.type = 'table' AND m.sql NOT LIKE 'CREATE VIRTUAL%' ORDER BY m.name, c.cid
"""

WORDS = "messages_fts"
TRIGRAM = "messages_fts_trigram"
CJK = "messages_fts_cjk"

# The triggers the agent's releases make on `messages` (store-facts 1.3, 1.5, 1.6).
KNOWN_TRIGGERS = {
    *(f"{table}_{verb}" for table in (WORDS, TRIGRAM, CJK)
      for verb in ("insert", "delete", "update")),
    "messages_message_uid_insert",
    "messages_display_order_insert",
    "messages_display_visibility_update",
    "messages_display_identity_update",
    "messages_display_identity_delete",
}  # fmt: skip

TOKENIZER = r"tokenize\s*=\s*(?:'((?:[^']|'')*)'|\"([^\"]*)\"|([^,)]+))"


@dataclass(repr=False, eq=False)
class Schema:
    """Names as they stand in the store.

    tables: ordinary table → its columns in order; virtual: FTS table → its CREATE text;
    triggers: name → (table, text); views: name → text; indexes: name → table.
    """

    tables: dict[str, tuple[str, ...]]
    virtual: dict[str, str]
    triggers: dict[str, tuple[str, str]]
    views: dict[str, str]
    indexes: dict[str, str]
    version: int | None
    meta: dict[str, str] = field(default_factory=dict)

    def has(self, table: str, *columns: str) -> bool:
        """Whether the table is there, with all of these columns."""
        return table in self.tables and set(columns) <= set(self.tables[table])

    @property
    def live(self) -> str:
        """SQL for "message row m is in the live transcript"; NULL counts as live (2.1)."""
        return "COALESCE(m.active, 1) = 1" if self.has("messages", "active") else "1"

    @property
    def seen(self) -> str:
        """SQL for "message row m was not undone by its user": live, or archived by in-place
        compaction; searched and shown, rewound rows are not (store-facts 2.1).
        """
        if not self.has("messages", "active"):
            return "1"
        if not self.has("messages", "compacted"):
            return self.live
        return "(COALESCE(m.active, 1) = 1 OR COALESCE(m.compacted, 0) = 1)"

    @property
    def layout(self) -> int | None:
        """FTS layout 0 … 3 (store-facts 1.6); None where there is no index of words."""
        create = self.virtual.get(WORDS)
        if create is None:
            return None
        if "messages_fts_src" in create:
            return 3
        if "tool_name" not in create:
            return 0
        return 2 if self.meta.get("fts_storage_version") == "2" else 1

    @property
    def inline(self) -> bool:
        """Whether the index of words keeps its own text (layout 0 of version 11 and later)."""
        return WORDS in self.virtual and not re.search(
            r"content\s*=", self.virtual[WORDS], re.I
        )


def inspect(db: sqlite3.Connection) -> Schema:
    """Read what is there. Virtual tables are skipped where columns are asked: the tokenizer of
    one may be missing here, and asking would fail (store-facts 1.7).
    """
    tables: dict[str, list[str]] = {}
    virtual: dict[str, str] = {}
    triggers: dict[str, tuple[str, str]] = {}
    views: dict[str, str] = {}
    indexes: dict[str, str] = {}
    for kind, name, table, sql in db.execute(OBJECTS):
        if kind == "table" and sql.upper().startswith("CREATE VIRTUAL"):
            virtual[name] = sql
        elif kind == "table":
            tables[name] = []
        elif kind == "trigger":
            triggers[name] = (table, sql)
        elif kind == "view":
            views[name] = sql
        elif kind == "index":
            indexes[name] = table
    for table, column in db.execute(COLUMNS):
        tables[table].append(column)
    versions = (
        [row[0] for row in db.execute("SELECT version FROM schema_version")]
        if "version" in tables.get("schema_version", ())
        else []
    )
    numbers = [number for number in versions if isinstance(number, int)]
    meta = (
        {
            str(row[0]): str(row[1])
            for row in db.execute(
                "SELECT key, value FROM state_meta WHERE key LIKE 'fts\\_%' ESCAPE '\\'"
            )
        }
        if {"key", "value"} <= set(tables.get("state_meta", ()))
        else {}
    )
    return Schema(
        {name: tuple(columns) for name, columns in tables.items()},
        virtual, triggers, views, indexes, max(numbers, default=None), meta,
    )  # fmt: skip


def require_store(db: Database) -> None:
    """Refuse a database that holds no conversations. Raises Damaged."""
    if not db.schema.has("sessions", "id") or not db.schema.has("messages", "id", "session_id"):
        raise Damaged(f"{db.path}: a database, but not a store of Hermes Agent")


def tokenizer(create: str) -> str:
    """The tokenize= argument of an FTS5 table's CREATE text; '' for the default."""
    found = re.search(TOKENIZER, create, re.I)
    if not found:
        return ""
    return (found[1] or found[2] or found[3] or "").replace("''", "'").strip()


def has_tokenizer(spec: str) -> bool:
    """Whether this process can make an FTS5 table with that tokenizer; tried in memory, since
    preparing a statement on the store tells only for SQLite before 3.47 (store-facts 1.7).
    """
    memory = sqlite3.connect(":memory:")
    try:
        quoted = spec.replace("'", "''")
        argument = f", tokenize='{quoted}'" if spec else ""
        memory.execute(f"CREATE VIRTUAL TABLE probe USING fts5(x{argument})")
        return True
    except sqlite3.OperationalError:
        return False
    finally:
        memory.close()


def probe(
    db: Database, *, newer_schema: bool = False, messages: bool = True, detach_cjk: bool = False
) -> None:
    """Before any write: every trigger it would set off is known, the FTS tables they write exist
    and their tokenizers load. Without `messages` only rows of sessions will change, which no index
    is made of; with `detach_cjk` the cjk index will be out of the way (store-facts 1.7).

    Raises Unsupported.
    """
    schema = db.schema
    touched = ("messages", "sessions") if messages else ("sessions",)
    for name, (table, sql) in sorted(schema.triggers.items()):
        if table not in touched:
            continue
        if name not in KNOWN_TRIGGERS and not newer_schema:
            raise Unsupported(
                f"{db.path}: trigger {name} on {table} is unknown to this version; "
                "--newer-schema writes all the same"
            )
        for index in set(re.findall(r"\bDELETE\s+FROM\s+[\"'`\[]?(messages_fts\w*)", sql, re.I)):
            create = schema.virtual.get(index, "")
            without = re.search(r"\bcontent\s*=\s*(''|\"\")", create)
            if without and "contentless_delete" not in create:
                raise Unsupported(
                    f"{db.path}: trigger {name} deletes from {index}, which keeps no text and "
                    "cannot delete; hermes-session-check says how to mend it"
                )
        for index in set(re.findall(r"\bINTO\s+[\"'`\[]?(messages_fts\w*)", sql, re.I)):
            if index not in schema.virtual and index not in schema.tables:
                raise Unsupported(
                    f"{db.path}: trigger {name} writes into {index}, which is gone; "
                    "hermes-session-check says how to mend it"
                )
            if index == CJK and detach_cjk:
                continue
            spec = tokenizer(schema.virtual.get(index, ""))
            if not has_tokenizer(spec):
                raise Unsupported(
                    f"{db.path}: {index} needs the tokenizer {spec or 'unicode61'}, which is "
                    "not here; --detach-cjk writes without it, as the agent does"
                    if index == CJK
                    else f"{db.path}: {index} needs the tokenizer {spec}, which is not here"
                )
