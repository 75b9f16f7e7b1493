"""Carry over what can be read of a damaged store into a new one, row by row around bad pages."""

import re
import sqlite3
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hermes_tools.store import backup, migration, schema
from hermes_tools.store.db import Advance, Database, code, nothing
from hermes_tools.store.errors import Damaged
from hermes_tools.store.placing import placed

GAP = 2_000_000  # row numbers tried one by one between what can be read from either end
# What an FTS5 index keeps its words in; made anew with it, and in the way of it otherwise.
SHADOW = re.compile(r"messages_fts\w*_(?:data|idx|content|docsize|config)")


@dataclass
class Report:
    """What was carried over and what was lost.

    kept: table → rows; lost: table → rows known to have been there. Of messages, lost_by: session
    id → rows lost (None where the session is not known); made_up: sessions whose own row was lost
    and whose messages were not; they stand in the new store under the source `recovered`.
    """

    kept: Counter[str] = field(default_factory=Counter)
    lost: Counter[str] = field(default_factory=Counter)
    lost_by: Counter[str | None] = field(default_factory=Counter)
    messages: Counter[str] = field(default_factory=Counter)
    made_up: list[str] = field(default_factory=list)
    not_made: list[str] = field(default_factory=list)

    @property
    def whole(self) -> bool:
        """Whether nothing was lost."""
        return not (self.lost or self.lost_by or self.made_up or self.not_made)

    def records(self) -> Iterator[dict[str, Any]]:
        """One record for each session that lost something, then one for each table."""
        for name in sorted({*self.lost_by, *self.made_up}, key=str):
            yield {
                "action": "made_up" if name in self.made_up else "incomplete",
                "session_id": name, "messages": self.messages.get(str(name), 0),
                "lost": self.lost_by.get(name, 0),
            }  # fmt: skip
        for table in sorted({*self.kept, *self.lost}):
            yield {"action": "salvaged", "object": f"table {table}", "rows": self.kept[table],
                   "lost": self.lost[table]}  # fmt: skip
        for name in self.not_made:
            yield {"action": "lost", "object": name, "rows": 0, "lost": 0}


def salvage(db: Database, target: Path, advance: Advance = nothing) -> Report:
    """A new store at `target` with everything that can be read of `db` (opened leniently, for
    reading): its own tables and columns, indexes made anew. Whole or not at all, 0600.
    advance: called with rows carried over.

    Raises Negative where `target` exists, Damaged where not even the schema can be read.
    """
    report = Report()
    core = core_tables()
    objects = read_schema(db, report, core)
    with placed(target) as path:
        with closing(connect_new(path)) as new:
            for pragma in ("page_size", "application_id", "user_version"):
                value = db.execute(f"PRAGMA {pragma}").fetchone()[0]
                new.execute(f"PRAGMA {pragma} = {value}")
            new.execute("BEGIN")
            tables = [
                (table, sql) for kind, table, sql in objects
                if kind == "table" and not sql.upper().startswith("CREATE VIRTUAL")
            ]  # fmt: skip
            for table, sql in tables:
                try:
                    new.execute(sql)
                except (sqlite3.Error, UnicodeError):  # garbled; its rows are out of reach
                    report.not_made.append(f"table {table}")
                    if table in core:
                        new.execute(core[table])
                        report.lost[table] += 1
                    continue
                carry(db, new, table, report, advance)
            make_up_sessions(new, report)
            new.execute("COMMIT")
            finish(db, new, objects, report)
        backup.plain_file(path)
        backup.verify(path, target)
        wal(path)
    return report


def connect_new(name: Path) -> sqlite3.Connection:
    """The new file; nothing of it counts before it is whole, so nothing is synced meanwhile."""
    new = sqlite3.connect(name, isolation_level=None)
    new.text_factory = bytes
    for pragma in ("journal_mode = MEMORY", "synchronous = OFF", "foreign_keys = OFF"):
        new.execute(f"PRAGMA {pragma}").fetchall()
    return new


def wal(name: Path) -> None:
    """Into the mode that the agent's stores have."""
    with closing(sqlite3.connect(name)) as new:
        new.execute("PRAGMA journal_mode = WAL").fetchone()


def core_tables() -> dict[str, str]:
    """What a store cannot be without, as schema.sql makes it."""
    with closing(migration.model()) as memory:
        return dict(
            memory.execute(
                "SELECT name, sql FROM sqlite_master WHERE name IN ('sessions', 'messages')"
            ).fetchall()
        )


def read_schema(
    db: Database, report: Report, core: dict[str, str]
) -> list[tuple[str, str, str]]:
    """(type, name, sql) of what makes the store, each once; without what SQLite and FTS5 make
    themselves. What a store cannot be without and is lost here comes from schema.sql, empty.
    Raises Damaged.
    """
    rows = [
        (word(row[1]), word(row[2]), word(row[3]))
        for row in readable_rows(db, "sqlite_master", "type, name, sql", report) if row[3]
    ]  # fmt: skip
    if not rows:
        raise Damaged(f"{db.path}: not even its schema can be read")
    virtual = [name for kind, name, sql in rows if sql.upper().startswith("CREATE VIRTUAL")]
    found: dict[tuple[str, str], str] = {}
    for kind, name, sql in rows:
        shadow = kind == "table" and (
            any(name.startswith(f"{index}_") for index in virtual)
            or SHADOW.fullmatch(name)  # of an index whose own definition is lost
        )
        if name not in virtual and (shadow or name.startswith("sqlite_")):
            continue
        found.setdefault((kind, name), sql)
    for name, sql in core.items():
        found.setdefault(("table", name), sql)
    return [(kind, name, sql) for (kind, name), sql in found.items()]


class Text(bytes):
    """A TEXT cell as its stored bytes, valid UTF-8 or not; a BLOB stays plain bytes."""


def carry(
    db: Database, new: sqlite3.Connection, table: str, report: Report, advance: Advance
) -> None:
    """All rows of one table that can be read, under their own row numbers."""
    quoted = quote(table)
    try:
        columns = [row[1] for row in db.execute(f"PRAGMA table_info({quoted})")]
        numbered = has_rowid(db, quoted)
        "".join(columns).encode()
    except (sqlite3.DatabaseError, UnicodeError):
        columns = []
    if not columns:
        report.not_made.append(f"table {table}")
        return
    names = ", ".join(map(quote, columns))
    key = "rowid, " if numbered else ""
    owner = columns.index("session_id") + 1 if table == "messages" else None
    factory, db.text_factory = db.text_factory, Text
    try:
        rows = readable_rows if numbered else plain_rows
        for row in rows(db, table, names, report):
            cells, marks = zip(*map(binding, row), strict=True)
            try:
                new.execute(
                    f"INSERT INTO {quoted} ({key}{names}) VALUES ({', '.join(marks)})", cells
                )
            except sqlite3.Error:  # a key twice, NULL where none may be: from a garbled page
                report.lost[table] += 1
                continue
            report.kept[table] += 1
            if owner is not None:
                report.messages[word(row[owner])] += 1
            advance(1)
    finally:
        db.text_factory = factory


def binding(cell: Any) -> tuple[Any, str]:
    """(value, its mark in SQL) with which a cell goes in as it came out, typeof and bytes."""
    if isinstance(cell, Text):
        try:
            return cell.decode(), "?"
        except UnicodeDecodeError:
            return bytes(cell), "CAST(? AS TEXT)"
    return cell, "?"


def quote(name: str) -> str:
    """A name as SQL."""
    return '"' + name.replace('"', '""') + '"'


def word(cell: Any) -> str:
    """A session id for people."""
    return cell.decode("utf-8", "replace") if isinstance(cell, bytes) else str(cell)


def has_rowid(db: Database, quoted: str) -> bool:
    """Whether a table has row numbers (it is not WITHOUT ROWID)."""
    try:
        db.execute(f"SELECT rowid FROM {quoted} LIMIT 0").fetchall()
    except sqlite3.OperationalError as error:
        if "no such column" in str(error):
            return False
        raise
    return True


def plain_rows(db: Database, table: str, names: str, report: Report) -> Iterator[tuple[Any, ...]]:
    """Rows of a table without row numbers, up to the first that cannot be read."""
    try:
        yield from map(tuple, db.execute(f"SELECT {names} FROM {quote(table)}"))
    except sqlite3.DatabaseError:
        report.lost[table] += 1


def readable_rows(
    db: Database, table: str, names: str, report: Report
) -> Iterator[tuple[Any, ...]]:
    """(row number, cells …) from the start up to a bad page, from the end down to one, and what
    lies between them one by one; the numbers come from an index that can still be read.
    """
    select = f"SELECT rowid, {names} FROM {quote(table)} NOT INDEXED"
    low, high = -(1 << 63), None
    try:
        for row in db.execute(f"{select} WHERE rowid > ? ORDER BY rowid", (low,)):
            low = row[0]
            yield tuple(row)
        return
    except sqlite3.DatabaseError as error:
        busy(error)
    try:
        for row in db.execute(f"{select} WHERE rowid > ? ORDER BY rowid DESC", (low,)):
            high = row[0]
            yield tuple(row)
        return
    except sqlite3.DatabaseError as error:
        busy(error)
    for number, owner, known in between(db, table, low, high):
        try:
            found = db.execute(f"{select} WHERE rowid = ?", (number,)).fetchone()
        except sqlite3.DatabaseError as error:
            busy(error)
            if not known:  # there may have been one; that something was is all we know
                report.lost[table] = max(report.lost[table], 1)
                continue
            report.lost[table] += 1
            if table == "messages":
                report.lost_by[owner] += 1
            continue
        if found is not None:
            yield tuple(found)


def busy(error: sqlite3.Error) -> None:
    """A lock is no damage."""
    if code(error) in (5, 6):
        raise error


def between(
    db: Database, table: str, low: int, high: int | None
) -> Iterator[tuple[int, str | None, bool]]:
    """(row number, session id where an index tells it, whether there is more to it than a guess)
    of rows that may lie after `low` and before `high`: those an index names, else every number in
    between, within reason.
    """
    found: dict[int, str | None] = {}
    complete = False
    for index, column in indexes(db, table):
        whose = quote(column) if (table, column) == ("messages", "session_id") else "NULL"
        try:
            for number, owner in db.execute(
                f"SELECT rowid, {whose} FROM {quote(table)} INDEXED BY {quote(index)} "
                f"WHERE {quote(column)} IS NOT NULL"
            ):
                if number > low and (high is None or number < high):
                    found[number] = word(owner) if owner is not None else found.get(number)
            complete = True
        except sqlite3.DatabaseError as error:
            busy(error)
    if complete:
        yield from ((number, owner, True) for number, owner in sorted(found.items()))
        return
    first = max(low + 1, 1) if low < 0 else low + 1
    last = high - 1 if high is not None else upper(db, table)
    end = min(first + GAP // 10 if last is None else last, first + GAP)
    for number in range(first, end + 1):
        yield number, found.get(number), last is not None or number in found


def indexes(db: Database, table: str) -> list[tuple[str, str]]:
    """(index, its first column) of every whole index of a table; the one by session first."""
    found = []
    with suppress(sqlite3.DatabaseError):
        for row in db.execute(f"PRAGMA index_list({quote(table)})").fetchall():
            if row[4]:
                continue
            first = db.execute(f"PRAGMA index_info({quote(word(row[1]))})").fetchone()
            if first and first[2] is not None:
                found.append((word(row[1]), word(first[2])))
    return sorted(found, key=lambda pair: pair[1] != "session_id")


def upper(db: Database, table: str) -> int | None:
    """The highest row number there can be, if anything says so."""
    for sql in (f"SELECT max(rowid) FROM {quote(table)}",
                f"SELECT seq FROM sqlite_sequence WHERE name = '{table}'"):  # fmt: skip
        with suppress(sqlite3.DatabaseError, TypeError, ValueError):
            return int(db.execute(sql).fetchone()[0])
    return None


def make_up_sessions(new: sqlite3.Connection, report: Report) -> None:
    """A row for each session whose own was lost while its messages were not."""
    if not report.lost["sessions"]:
        return
    for name, started, number in new.execute(
        "SELECT session_id, min(timestamp), count(*) FROM messages m WHERE NOT EXISTS "
        "(SELECT 1 FROM sessions s WHERE s.id = m.session_id) GROUP BY 1"
    ).fetchall():
        with suppress(sqlite3.Error):
            new.execute(
                "INSERT INTO sessions (id, source, started_at) "
                "VALUES (CAST(? AS TEXT), 'recovered', ?)",
                (name, started if isinstance(started, int | float) else time.time()),
            )
            report.made_up.append(word(name))
            report.messages[word(name)] = number


def finish(
    db: Database, new: sqlite3.Connection, objects: list[tuple[str, str, str]], report: Report
) -> None:
    """Views, indexes of words filled from the messages, indexes, triggers; and the numbers that
    SQLite keeps beside the tables.
    """
    kinds: dict[str, list[tuple[str, str]]] = {"view": [], "table": [], "index": [], "trigger": []}
    for kind, name, sql in objects:
        if kind in kinds and (kind != "table" or sql.upper().startswith("CREATE VIRTUAL")):
            kinds[kind].append((name, sql))
    without: set[str] = set()
    for kind in ("view", "table", "index", "trigger"):
        for name, sql in kinds[kind]:
            if kind == "trigger" and any(index in sql for index in without):
                continue
            new.execute("BEGIN")
            try:
                new.execute(sql)
                if kind == "table":
                    fill(new, name, sql)
                new.execute("COMMIT")
            except (sqlite3.DatabaseError, UnicodeError):
                if new.in_transaction:
                    new.execute("ROLLBACK")
                report.not_made.append(f"{'index' if kind == 'table' else kind} {name}")
                without.add(name)
    if schema.CJK in without:
        with suppress(sqlite3.DatabaseError):
            new.execute("INSERT OR REPLACE INTO state_meta VALUES ('fts_cjk_stale', '1')")
    with suppress(sqlite3.DatabaseError, TypeError):
        for name, number in db.execute("SELECT name, seq FROM sqlite_sequence").fetchall():
            new.execute("UPDATE sqlite_sequence SET seq = max(seq, ?) WHERE name = ?",
                        (number, name))  # fmt: skip


def fill(new: sqlite3.Connection, name: str, sql: str) -> None:
    """An index of words from what it indexes."""
    if "content=" in sql.replace(" ", ""):
        new.execute(f"INSERT INTO {name}({name}) VALUES ('rebuild')")
    elif name in (schema.WORDS, schema.TRIGRAM):
        new.execute(
            f"INSERT INTO {name}(rowid, content) SELECT id, {migration.INDEXED} FROM messages"
        )
