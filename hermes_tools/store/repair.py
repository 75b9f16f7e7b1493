"""Mend what a check found: indexes, counters, orphans. Rows of damaged tables are never touched
in place; salvage.py carries them over into a new store.
"""

import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hermes_tools.store import health, health_rows, health_words, migration, schema
from hermes_tools.store.db import (
    LOCK_WAIT,
    Advance,
    Database,
    connect,
    marks,
    nothing,
    transaction,
)
from hermes_tools.store.errors import Damaged
from hermes_tools.store.faults import Fault, guarded
from hermes_tools.store.inuse import alone

# Does one step; True where pages stay behind unused.
Act = Callable[[Database, Advance], "bool | None"]
SHADOWS = ("data", "idx", "content", "docsize", "config")

# Which part of repair mends a fault, by its kind.
INDEX = frozenset({
    "object_doubled", "index_damaged", "words_damaged", "match_fails",
    "rows_unindexed", "rows_leftover", "rows_outdated", "trigger_missing", "trigger_dangling",
    "write_fails",
})  # fmt: skip
COUNTERS = frozenset({"counter_drift"})
ORPHANS = frozenset({"orphans", "parent_missing"})
KINDS = INDEX | COUNTERS | ORPHANS
# The last schema that still has the indexes of version 11 (store-facts 1.4).
LAST_INLINE = 22


@dataclass(frozen=True)
class Step:
    """One thing to mend: the object, what will be done in words, and the doing. `left` says why
    it is left alone instead. `rows`: messages to be indexed. `first`: nothing else can be looked at
    before this is done.
    """

    object: str
    detail: str
    act: Act | None = None
    left: str | None = None
    rows: int = 0
    session_id: str | None = None
    first: bool = False

    def record(self, action: str) -> dict[str, Any]:
        """As repair prints it."""
        return {
            "object": self.object, "action": "left" if self.left else action,
            "detail": self.detail, "reason": self.left, "session_id": self.session_id,
        }  # fmt: skip


def doubles(db: Database) -> list[Step]:
    """The second and later entries of what the schema lists twice. Such a store opens for nobody,
    so they go before anything else is looked at; `db` is open leniently.
    """
    return [
        Step(fault.object, "the schema lists it once again", _drop_doubles, first=True)
        for fault in health.look_at_objects(db)
    ]


def _drop_doubles(db: Database, advance: Advance) -> None:
    number = db.execute("PRAGMA schema_version").fetchone()[0]
    db.execute(
        "DELETE FROM sqlite_master WHERE rowid NOT IN "
        "(SELECT min(rowid) FROM sqlite_master GROUP BY type, name)"
    )
    db.execute(f"PRAGMA schema_version = {number + 1}")


def plan(db: Database, *, index: bool, counters: bool, orphans: bool) -> Iterator[Step]:
    """What there is to mend of the parts that are asked for; nothing where nothing is wrong."""
    if index:
        yield from _indexes(db)
        yield from _words(db)
    if counters:
        for name, stored, number in db.execute(health_rows.drift(db)).fetchall():
            yield Step("table sessions", f"session {name}: message_count {stored} becomes {number}",
                       _update("UPDATE sessions SET message_count = ? WHERE id = ?", number, name),
                       session_id=name)  # fmt: skip
    if orphans:
        yield from _orphans(db)


def _update(sql: str, *values: Any) -> Act:
    def act(db: Database, advance: Advance) -> None:
        db.execute(sql, values)

    return act


def _orphans(db: Database) -> Iterator[Step]:
    faults = [*health_rows.orphans(db), *health_rows.parents(db)]
    for fault in faults:
        table = fault.object.removeprefix("table ")
        if fault.kind == "parent_missing":
            yield Step(fault.object, f"session {fault.session_id}: its parent link is cleared",
                       _update("UPDATE sessions SET parent_session_id = NULL WHERE id = ?",
                               fault.session_id), session_id=fault.session_id)  # fmt: skip
        elif fault.kind == "orphans" and table == "messages":
            yield Step(fault.object,
                       f"messages of the lost session {fault.session_id} are deleted: "
                       f"{fault.count}",
                       _update("DELETE FROM messages WHERE session_id IS ? AND NOT EXISTS "
                               "(SELECT 1 FROM sessions s WHERE s.id = messages.session_id)",
                               fault.session_id), session_id=fault.session_id)  # fmt: skip
        elif fault.kind == "orphans":
            yield Step(fault.object, f"rows of lost sessions are deleted: {fault.count}",
                       _update(f"DELETE FROM {table} WHERE NOT EXISTS "
                               f"(SELECT 1 FROM sessions s WHERE s.id = {table}.session_id)")
                       )  # fmt: skip


def _indexes(db: Database) -> Iterator[Step]:
    """Ordinary indexes that are damaged, made anew from the rows."""
    pages = [
        fault for fault in health.look_at_pages(db, quick=False)
        if fault.kind in ("index_damaged", "page_damaged")
    ]  # fmt: skip
    for fault in pages:
        if fault.kind == "page_damaged":
            yield Step(fault.object, fault.detail, left="its rows are damaged; rows are never "
                       "mended in place, --salvage carries over what can be read")  # fmt: skip
            continue
        thing = fault.object.removeprefix("indexes of ").removeprefix("index ")
        names = [f'"{name}"' for name in thing.split(", ")]
        yield Step(fault.object, "is made anew from the rows", _reindex(names))


def _reindex(names: list[str]) -> Act:
    def act(db: Database, advance: Advance) -> None:
        for name in names:
            db.execute(f"REINDEX {name}")

    return act


def _words(db: Database) -> Iterator[Step]:
    """Indexes of words, each in the way its layout allows."""
    have = db.schema
    found: dict[str, list[Fault]] = {}
    for fault in words_faults(db):
        found.setdefault(fault.object, []).append(fault)
    dangling = {
        name: [one for one in faults if one.kind == "trigger_dangling"]
        for name, faults in found.items() if name.startswith("trigger ")
    }  # fmt: skip
    gone = sorted({
        name.removeprefix("trigger ").rpartition("_")[0]
        for name, faults in dangling.items() if faults
    })  # fmt: skip
    for name in gone:
        yield _missing_table(db, name)
    if schema.WORDS not in have.virtual and schema.WORDS not in gone:
        yield from _no_words(db)
    for name, create in sorted(have.virtual.items()):
        faults = [one for one in found.get(f"index {name}", found.get(name, []))
                  if one.kind in INDEX]  # fmt: skip
        if faults:
            yield _one_index(db, health_words.declared(db, name, create), faults)


def words_faults(db: Database) -> list[Fault]:
    """Faults of the indexes of words and their triggers; their own checks are rolled back."""
    faults = list(health_words.look_at_triggers(db))
    for name, create in sorted(db.schema.virtual.items()):
        if name.startswith(schema.WORDS):
            faults += guarded(
                f"index {name}", db.path, health_words.look_at_index(db, name, create)
            )
    faults += health_words.check_themselves(db)
    return [
        Fault(one.object, "words_damaged", one.severity, one.detail)
        if one.kind == "unreadable" else one for one in faults
    ]  # fmt: skip


def _one_index(db: Database, index: health_words.Index, faults: list[Fault]) -> Step:
    thing = f"index {index.name}"
    why = "; ".join(dict.fromkeys(one.detail for one in faults))
    agents = "the agent does that itself: hermes sessions optimize-storage"
    if index.stale:
        return Step(thing, why, left=f"the agent has detached it; {agents}")
    if index.gap:
        return Step(thing, why, left=f"the agent is rebuilding it; {agents}")
    if not schema.has_tokenizer(index.tokenizer):
        return Step(thing, why, left=f"its tokenizer {index.tokenizer} is not here")
    kinds = {one.kind for one in faults}
    broken = cannot_drop(db, index.name)
    if index.source is None:
        return Step(thing, f"is filled anew from the messages: {why}",
                    _refill(index, kinds, broken), rows=_count(db))  # fmt: skip
    if index.source not in db.schema.tables and index.source not in db.schema.views:
        return Step(thing, why, left=f"its source {index.source} is gone; {agents}")
    if db.schema.layout == 2 and db.schema.meta.get("fts_storage_version") == "2":
        return Step(thing, why, left="its layout (2) cannot be rebuilt from its source without "
                    f"changing what it holds; {agents}")  # fmt: skip
    if kinds == {"trigger_missing"}:
        return Step(thing, why, left="the agent makes its triggers itself when it opens the store")
    return Step(thing, f"is rebuilt from {index.source}: {why}", _rebuild(index.name, broken),
                rows=_count(db))  # fmt: skip


def _count(db: Database) -> int:
    return int(db.execute("SELECT count(*) FROM messages").fetchone()[0])


def _rebuild(name: str, broken: bool) -> Act:
    """From its source, which is what the layout means by it; made anew first, since the command
    'rebuild' begins by walking through what may be broken.
    """

    def act(db: Database, advance: Advance) -> bool:
        remake(db, name, broken)
        db.execute(f"INSERT INTO {name}({name}) VALUES ('rebuild')")
        prove(db, name, 1)
        return broken

    return act


def cannot_drop(db: Database, name: str) -> bool:
    """Whether SQLite could not drop an index of words, because that walks through pages that are
    damaged. To be asked before a transaction: such an error poisons one.
    """
    try:
        db.execute(f"SELECT 1 FROM {name} LIMIT 0").fetchall()
    except sqlite3.DatabaseError:
        return True
    return any(health.page_check(db, f'quick_check("{part}")') for part in shadows(db, name))


def shadows(db: Database, name: str) -> list[str]:
    """The tables in which FTS5 keeps an index."""
    return [f"{name}_{part}" for part in SHADOWS if f"{name}_{part}" in db.schema.tables]


def remake(db: Database, name: str, broken: bool) -> None:
    """An index of words made anew, empty. One that is too `broken` to be dropped is taken out of
    the schema; its pages stay behind unused.
    """
    if broken:
        parts = [name, *shadows(db, name)]
        number = db.execute("PRAGMA schema_version").fetchone()[0]
        db.execute("PRAGMA writable_schema = ON")
        db.execute(f"DELETE FROM sqlite_master WHERE type IN ('table', 'index') AND tbl_name IN "
                   f"({marks(parts)})", parts)  # fmt: skip
        db.execute(f"PRAGMA schema_version = {number + 1}")
        db.execute("PRAGMA writable_schema = RESET")
    else:
        db.execute(f"DROP TABLE {name}")
    db.execute(db.schema.virtual[name])


def prove(db: Database, name: str, rank: int) -> None:
    """Have an index check itself. Raises Damaged."""
    try:
        db.execute(f"INSERT INTO {name}({name}, rank) VALUES ('integrity-check', {rank})")
    except sqlite3.DatabaseError as error:
        raise Damaged(f"{db.path}: the new {name} does not pass its check: {error}") from error


def _refill(index: health_words.Index, kinds: set[str], broken: bool) -> Act:
    """An inline index, cleared (made anew, since clearing reads what may be broken) and filled;
    triggers that are missing are those of schema.sql.
    """

    def act(db: Database, advance: Advance) -> bool:
        insert = db.schema.triggers.get(f"{index.name}_insert", ("", ""))[1]
        remake(db, index.name, broken)
        what = health_words.INDEXED_CUT if "8192" in insert else migration.INDEXED
        migration.refill(db, index.name, advance, what)
        if "trigger_missing" in kinds:
            _make_triggers(db, index.name)
        return broken

    return act


def _make_triggers(db: Database, name: str) -> None:
    with closing(migration.model()) as memory:
        for trigger, sql in memory.execute(
            "SELECT name, sql FROM sqlite_master WHERE type = 'trigger'"
        ):
            if trigger.rpartition("_")[0] == name and trigger not in db.schema.triggers:
                db.execute(sql)


def _missing_table(db: Database, name: str) -> Step:
    """An index whose table is gone while its triggers live: every new message fails."""
    triggers = [one for one in db.schema.triggers if one.rpartition("_")[0] == name]
    texts = " ".join(db.schema.triggers[one][1] for one in triggers)
    if "'delete'" not in texts and name in (schema.WORDS, schema.TRIGRAM):
        return Step(f"index {name}", "is made anew and filled from the messages", _make(name),
                    rows=_count(db))  # fmt: skip
    return Step(f"index {name}", f"its triggers {', '.join(sorted(triggers))} are dropped and it "
                "is marked as stale, as the agent does", _detach(name, triggers))  # fmt: skip


def _make(name: str) -> Act:
    def act(db: Database, advance: Advance) -> None:
        with closing(migration.model()) as memory:
            create = memory.execute(
                "SELECT sql FROM sqlite_master WHERE name = ?", (name,)
            ).fetchone()[0]
        db.execute(create)
        migration.refill(db, name, advance)
        _make_triggers(db, name)

    return act


def _detach(name: str, triggers: Iterable[str]) -> Act:
    def act(db: Database, advance: Advance) -> None:
        key = "fts_cjk_stale" if name == schema.CJK else "fts_stale"
        db.execute("INSERT OR REPLACE INTO state_meta (key, value) VALUES (?, '1')", (key,))
        for trigger in triggers:
            db.execute(f'DROP TRIGGER "{trigger}"')

    return act


def _no_words(db: Database) -> Iterator[Step]:
    """A store without any index of words."""
    if (db.schema.version or 0) > LAST_INLINE:
        yield Step("indexes", "there is no index of words",
                   left="a store of this release gets its indexes from the agent: "
                   "hermes sessions optimize-storage")  # fmt: skip
        return
    for name in (schema.WORDS, schema.TRIGRAM):
        if name not in db.schema.virtual:
            yield Step(f"index {name}", "is made and filled from the messages", _make(name),
                       rows=_count(db))  # fmt: skip


def repair(
    db: Database, steps: list[Step], advance: Advance = nothing, *, alone: bool = False
) -> None:
    """Do all steps in one transaction, whole or not at all. advance: called with the number of
    messages indexed since the last call. Pages that stay behind unused are given back where the
    store is held `alone`; elsewhere a check will name them.
    """
    leaked = False
    with transaction(db):
        for step in steps:
            if step.act and not step.left:
                leaked |= bool(step.act(db, advance))
    if leaked and alone:
        db.execute("VACUUM")
    db.__dict__.pop("schema", None)  # read anew by whoever asks next


@contextmanager
def opened(path: Path, timeout: float, *, live: bool = False) -> Iterator[Database]:
    """The store for mending: alone, or with `live` beside others; leniently where the schema lists
    something twice. Raises Busy, and Damaged where no mending in place can help.
    """
    lenient = needs_lenience(path, timeout)
    if live:
        with closing(connect(path, "rw", timeout, LOCK_WAIT, lenient=lenient)) as db:
            schema.require_store(db)
            yield db
        return
    with alone(path, "repairing", lenient=lenient) as db:
        db.execute("PRAGMA foreign_keys = OFF")  # rows that hang in the air are what is mended
        schema.require_store(db)
        yield db


def needs_lenience(path: Path, timeout: float) -> bool:
    """Whether the schema lists something twice, so that nobody can open the store. Raises Damaged
    where it cannot be opened for another reason.
    """
    db, words = health.open_anyhow(path, timeout)
    with closing(db) if db is not None else nullcontext():
        if words and (db is None or not doubles(db)):
            raise Damaged(f"{path}: {words}; hermes-session-repair --salvage carries over what "
                          "can be read")  # fmt: skip
    return bool(words)


@contextmanager
def to_read(path: Path, timeout: float) -> Iterator[Database]:
    """The store for reading what can be read. Raises Damaged where it is none."""
    with closing(connect(path, "ro", timeout, timeout, lenient=True)) as db:
        yield db


@contextmanager
def rehearsal(path: Path, timeout: float) -> Iterator[Database]:
    """A copy to look for what there is to mend, since the indexes check themselves by writing."""
    needs_lenience(path, timeout)
    with to_read(path, timeout) as db, health.copied(db) as copy:
        schema.require_store(copy)
        yield copy


def everything(db: Database, *, index: bool, counters: bool, orphans: bool) -> list[Step]:
    """What the schema lists twice, if there is any, since nothing else can be looked at before;
    otherwise the whole plan.
    """
    twice = doubles(db) if index else []
    return twice or list(plan(db, index=index, counters=counters, orphans=orphans))


def expected(db: Database, steps: list[Step]) -> float:
    """Seconds that filling indexes will take, roughly: 10 MB of store a second for each."""
    size = db.execute("SELECT page_count * page_size FROM pragma_page_count, pragma_page_size")
    return float(size.fetchone()[0]) / 10e6 * sum(bool(step.rows) for step in steps) + 1


def left_over(db: Database, steps: list[Step]) -> list[Step]:
    """What is still wrong with indexes of words after a repair that mended any."""
    if not any(step.rows and step.act for step in steps):
        return []
    known = {step.object for step in steps if step.left}
    return [
        Step(fault.object, fault.detail, left="is still so after the repair")
        for fault in words_faults(db)
        if fault.kind in INDEX and fault.object not in known
    ]
