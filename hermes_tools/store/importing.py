"""Staged records into a store: whole sessions, parents before children, in short transactions.

    with Staging() as staging:
        staging.add(item, where) …; staging.finish()
        for outcome in Import(db, staging, options).run():     # after each commit

Nothing that a store holds is lost: what diverged from it is left alone and reported.
"""

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

from hermes_tools.store import columns, db, inuse, removal
from hermes_tools.store.comparing import Comparison, compare
from hermes_tools.store.db import Advance, Database, nothing
from hermes_tools.store.errors import Negative
from hermes_tools.store.exporting import bound, quoted
from hermes_tools.store.landing import Landing
from hermes_tools.store.sessions import Reader
from hermes_tools.store.staging import Staged, Staging, load, special

LEFT = ("diverged", "gap", "in_use")
# Pages of log after which it is written back, 40 MB. That syncs the disk twice, and every commit
# has the thousand pages after which SQLite does it unasked.
CHECKPOINT = 10_000
BATCH = 0.1  # seconds a transaction may take before others get their turn
HIGHEST_ID = 1 << 53  # an id kept from a file must leave AUTOINCREMENT room above it

ORDER = """
SELECT s.*, p.root AS "#tree" FROM sessions s JOIN places p ON p."#n" = s."#n"
ORDER BY p.root, p.depth, p."#n"
"""


@dataclass(frozen=True)
class Options:
    """How an import is meant. `mirror`: what the file says wins, deletions included. `alone`: the
    store was made for this import, one transaction takes it all. `live`: sessions in use too.
    `home` is where sessions.json, the routing of older releases, lies.
    """

    on_conflict: str = "update"
    exact: bool = False
    mirror: bool = False
    alone: bool = False
    live: bool = False
    home: Path | None = None


@dataclass
class Outcome:
    """What became of one record. action: imported, updated, replaced, unchanged, skipped, older,
    diverged, deleted, gap, in_use; the last three of these that are no deeds leave the record
    alone though it was wanted (`failed`). `tree` groups records of one lineage.
    """

    session_id: str
    action: str
    reason: str | None = None
    messages: int = 0
    details: dict[str, Any] = field(default_factory=dict)
    tree: int = 0

    @property
    def failed(self) -> bool:
        """Whether the record was left alone though it was wanted."""
        return self.action in LEFT


class Import:
    """One import into one store, which is open for writing. A rehearsal has the store itself
    attached as `origin`: its message ids are taken as well.
    """

    def __init__(self, connection: Database, staging: Staging, options: Options) -> None:
        self.db, self.staging, self.options = connection, staging, options
        self.renamed: dict[str, str] = {}
        self.origins: dict[str, str] = {}
        self._later: list[tuple[str, str]] = []  # (child, parent) of a cycle
        self._landing = Landing(connection, options.exact)

    def run(self, advance: Advance = nothing) -> Iterator[list[Outcome]]:
        """Apply every record; the outcomes of each transaction once it is committed. advance:
        called with the records applied, committed or not.
        """
        self._attach()
        try:
            if self.options.on_conflict == "fail":
                self._none_may_exist()
            if self.options.exact:
                self.db.execute("PRAGMA foreign_keys = OFF")
            self.db.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT}").fetchone()
            self._prepare()
            done: list[Outcome] = []
            records = self._records()
            waiting = next(records, None)
            while waiting is not None:
                with db.transaction(self.db):
                    self.db.execute("PRAGMA defer_foreign_keys = ON")
                    started = time.monotonic()
                    while waiting is not None:
                        done.append(self._one(waiting))
                        advance(1)
                        waiting = next(records, None)
                        if not self.options.alone and time.monotonic() - started > BATCH:
                            break
                    if waiting is None:
                        self._link()
                yield done
                done = []
        finally:
            self._detach()

    def _attach(self) -> None:
        self._places = [row[1] for row in self.db.execute("PRAGMA database_list")
                        if row[1] in ("main", "origin")]  # fmt: skip
        # Read-only: a transaction must not want to lock it for writing against our own cursor.
        uri = f"file:{quote(os.fsencode(self.staging.path))}?mode=ro"
        self.db.execute("ATTACH ? AS stage", (uri,))

    def _detach(self) -> None:
        if not self.db.in_transaction:
            with suppress(sqlite3.OperationalError):  # an error is on its way; closing detaches
                self.db.execute("DETACH stage")

    def _records(self) -> Iterator[Staged]:
        self.staging.db.row_factory = sqlite3.Row
        self.staging.db.text_factory = db.decode
        return map(load, self.staging.db.execute(ORDER))

    def _none_may_exist(self) -> None:
        row = self.db.execute(
            "SELECT s.id FROM stage.sessions s JOIN main.sessions m ON m.id = s.id LIMIT 1"
        ).fetchone()
        if row is not None:
            raise Negative(f"session {row[0]}: is in the store already; nothing was imported")

    # -- what the store must have first

    def _prepare(self) -> None:
        """Columns of later releases that hold something, with the agent's own declarations; not
        those a store fills in by itself.
        """
        missing = []
        for table in ("sessions", "messages"):
            have = {name.lower() for name in self.db.schema.tables[table]}
            for name in self.staging.columns(table):
                if name.lower() not in have and (
                    self.options.exact
                    or (name not in columns.MINTED and self._holds(table, name))
                ):
                    missing.append((table, name))
        if not missing:
            return
        with db.transaction(self.db):
            for table, name in missing:
                declared = columns.DECLARED[table].get(name, "")
                if self.options.exact and self._null(table, name):
                    declared = declared.replace("NOT NULL ", "")
                self.db.execute(
                    f"ALTER TABLE main.{table} ADD COLUMN {quoted([name])} {declared}"
                )
        vars(self.db).pop("schema", None)
        self._landing.look()

    def _null(self, table: str, name: str) -> bool:
        row = self.db.execute(
            f"SELECT 1 FROM stage.{table} WHERE {quoted([name])} IS NULL LIMIT 1"
        ).fetchone()
        return row is not None

    def _holds(self, table: str, name: str) -> bool:
        """Whether any record says more in a column than its absence would."""
        row = self.db.execute(
            f"SELECT 1 FROM stage.{table} WHERE {quoted([name])} IS NOT NULL "
            f"AND {quoted([name])} IS NOT ? LIMIT 1", (columns.default(table, name),)
        ).fetchone()  # fmt: skip
        return row is not None

    # -- one record

    def _one(self, record: Staged) -> Outcome:
        try:
            outcome = self._apply(record)
        except sqlite3.IntegrityError as error:
            hint = "; --exact needs an empty store" if self.options.exact else ""
            raise Negative(f"{record.where}: {error}{hint}") from error
        outcome.tree = record.tree
        return outcome

    def _apply(self, record: Staged) -> Outcome:
        target = self._target(record)
        exists = self._exists(target)
        if record.more.get("_deleted"):
            return self._deletion(record, target, exists)
        if not exists:
            after = (record.more.get("_delta") or {}).get("after", 0)
            if after:
                return Outcome(target, "gap", f"its first {after} messages are not here")
            return self._insert(record, target)
        how = self.options.on_conflict
        if how == "skip":
            return Outcome(target, "skipped", "is in the store already")
        if how == "new-id":
            return self._insert(record, self._free_id(target))
        if how == "replace":
            busy = self._in_use(target)
            return (
                Outcome(target, "in_use", busy) if busy
                else self._replace(record, target, "replaced")
            )
        return self._update(record, target)

    def _target(self, record: Staged) -> str:
        name = str(record.session["id"])
        return self.origin_target(record, name)

    def origin_target(self, record: Staged, name: str) -> str:
        """The id a record of another host has here: its own, unless somebody else's session has
        it; `state_meta` remembers which (`origin:HOST:ID`).
        """
        origin = record.more.get("_origin")
        if not origin or not self.db.schema.has("state_meta", "key", "value"):
            return name
        key = f"origin:{origin}:{name}"
        if key in self.origins:
            return self.origins[key]
        row = self.db.execute("SELECT value FROM main.state_meta WHERE key = ?", (key,)).fetchone()
        if row is not None:
            found = str(row[0])
        else:
            mine = self.db.execute(
                "SELECT 1 FROM main.state_meta WHERE value = ? AND key LIKE 'origin:%'", (name,)
            ).fetchone()
            taken = mine is not None or name in self.origins.values()
            if not taken and self._exists(name):
                taken = compare(self.db, record, name).kind == "diverged"
            found = f"{name}@{origin}" if taken else name
            self.db.execute(
                "INSERT OR REPLACE INTO main.state_meta (key, value) VALUES (?, ?)", (key, found)
            )
        self.origins[key] = found
        if found != name:
            self.renamed[name] = found
        return found

    def _exists(self, name: str) -> bool:
        place, value = bound(name)
        row = self.db.execute(f"SELECT 1 FROM main.sessions WHERE id IS {place}", (value,))
        return row.fetchone() is not None

    def _free_id(self, name: str) -> str:
        number = 2
        while self._exists(f"{name}_{number}"):
            number += 1
        self.renamed[name] = f"{name}_{number}"
        return self.renamed[name]

    def _insert(self, record: Staged, target: str) -> Outcome:
        landing = self._landing
        session, details = landing.session(
            record, target, self.renamed, lambda parent: self._parent(target, parent)
        )
        outcome = Outcome(target, "imported", messages=record.count, details=details)
        names = quoted(session)
        sql = f"INSERT INTO main.sessions ({names}) VALUES ({', '.join('?' * len(session))})"
        self.db.execute(*special(sql, tuple(session.values())))
        self._land(record, target, self._ids_for(record, target), None, details)
        return outcome

    def _land(
        self, record: Staged, target: str, ids: int | None, start: int | None,
        details: dict[str, Any],
    ) -> None:  # fmt: skip
        """Messages and side tables of a record, and what is to be said about them."""
        mapping = self._landing.messages(record, target, ids, start)
        if mapping:
            details["message_ids"] = mapping
        if not self.options.exact and (times := self._landing.invented(record, start)):
            details["times"] = times
        self._landing.tables(record, target, details)

    def _parent(self, child: str, parent: Any) -> Any:
        """The parent to link to now: one that is here. One that is still to come, which happens
        in a cycle only, is linked at the end.
        """
        if parent == child or self._exists(parent):
            return parent
        if self.staged(parent):
            self._later.append((child, parent))
        return None

    def _link(self) -> None:
        for child, parent in self._later:
            if self._exists(parent):
                self._set(child, {"parent_session_id": parent})

    def staged(self, name: Any) -> bool:
        """Whether a session comes with this import."""
        place, value = bound(name)
        row = self.db.execute(f"SELECT 1 FROM stage.sessions WHERE id IS {place}", (value,))
        return row.fetchone() is not None

    def _replace(self, record: Staged, target: str, action: str) -> Outcome:
        """The record in place of what is stored under its id; children keep their parent."""
        landing = self._landing
        session, details = landing.session(
            record, target, self.renamed, lambda parent: self._parent(target, parent)
        )
        outcome = Outcome(target, action, messages=record.count, details=details)
        place, value = bound(target)
        self.db.execute(f"DELETE FROM main.messages WHERE session_id = {place}", (value,))
        missing = [name for name in self.db.schema.tables["sessions"] if name not in session]
        self._set(target, {**session, **{
            name: columns.default("sessions", name) for name in missing
            if name in columns.DECLARED["sessions"]
        }})  # fmt: skip
        self._land(record, target, self._ids_for(record, target), None, details)
        return outcome

    def _set(self, target: str, session: dict[str, Any]) -> None:
        values = {name: value for name, value in session.items() if name != "id"}
        if not values:
            return
        place, key = bound(target)
        for name, value in values.items():
            mark, cell = bound(value) if isinstance(value, str) else ("?", value)
            self.db.execute(
                f"UPDATE main.sessions SET {quoted([name])} = {mark} WHERE id IS {place}",
                (cell, key),
            )

    def _in_use(self, target: str, adds: bool = False) -> str | None:
        """Why a stored session must be left alone now, in words; None if it need not. What only
        `adds` to one that waits for an answer may well be that answer.
        """
        if self.options.live:
            return None
        one = Reader(self.db).conversation(target, preview=False)
        word = inuse.look(self.db, self.options.home).reason(self.db, one.rows, one.last_active)
        if adds and word == "mid_turn":
            return None
        return inuse.REASONS[word] if word else None

    def _update(self, record: Staged, target: str) -> Outcome:
        delta = record.more.get("_delta") or {}
        found = compare(
            self.db, record, target, after=delta.get("after", 0),
            wins=self.options.mirror or bool(delta), exact=self.options.exact,
        )  # fmt: skip
        if found.kind in ("apply", "diverged"):
            busy = self._in_use(target, adds=found.kind == "apply" and not found.rewrite)
            if busy:
                return Outcome(target, "in_use", busy)
        if found.kind == "diverged" and self.options.mirror and not delta.get("after"):
            return self._replace(record, target, "replaced")
        if found.kind in ("unchanged", "older"):
            return Outcome(target, found.kind, found.reason)
        if found.kind in ("diverged", "gap"):
            return Outcome(target, found.kind, found.reason)
        if found.rewrite:
            return self._replace(record, target, "updated")
        return self._extend(record, target, found)

    def _extend(self, record: Staged, target: str, found: Comparison) -> Outcome:
        """Add the messages a session has gained, and take over what changed in it."""
        landing = self._landing
        details: dict[str, Any] = {}
        session = landing.changes(
            record, target, found.session, details, self.renamed,
            lambda parent: self._parent(target, parent),
        )
        last = record.span[1]
        added = 0 if found.from_row is None else last - found.from_row + 1
        outcome = Outcome(target, "updated", messages=added, details=details)
        if found.cells:
            details["changed_messages"] = len(found.cells)
        self._set(target, session)
        landing.cells(found.cells)
        if found.from_row is not None:
            ids = self._ids_for(record, target, found.from_row)
            self._land(record, target, ids, found.from_row, details)
        else:
            landing.tables(record, target, details)
        return outcome

    def _deletion(self, record: Staged, target: str, exists: bool) -> Outcome:
        if not exists:
            return Outcome(target, "unchanged", "is gone here too")
        if not self.options.mirror:
            return Outcome(target, "skipped", "was deleted at its origin; --mirror follows")
        removal.remove(self.db, [target])
        return Outcome(target, "deleted")

    def _ids_for(self, record: Staged, target: str, first: int | None = None) -> int | None:
        """None to keep the message ids of the file, else the first of new ones. Kept are ids that
        are free, in order, above those the session has, and outside an index-rebuild gap.
        """
        start, last = record.span
        start = first if first is not None else start
        if last < start:
            return None
        if self.options.exact:
            return None
        if all("id" in keys for a, b, keys in record.runs if b >= start) and self._free(
            start, last, target
        ):
            return None
        return 1 + max(self._highest(place) for place in self._places)

    def _highest(self, place: str) -> int:
        """The highest message id given so far; those of deleted messages do not come again."""
        found = [f"SELECT max(id) FROM {place}.messages"]
        if "sqlite_sequence" in self.db.schema.tables:
            found.append(f"SELECT max(seq) FROM {place}.sqlite_sequence WHERE name = 'messages'")
        return max(self.db.execute(sql).fetchone()[0] or 0 for sql in found)

    def _free(self, start: int, last: int, target: str) -> bool:
        sound = self.db.execute(
            "SELECT min(typeof(id) = 'integer'), min(id), max(id), min(step) FROM ("
            'SELECT id, id - lag(id, 1, id - 1) OVER (ORDER BY "#i") AS step '
            'FROM stage.messages WHERE "#i" BETWEEN ? AND ?)', (start, last),
        ).fetchone()  # fmt: skip
        if not sound[0] or sound[1] < 1 or sound[2] > HIGHEST_ID or sound[3] < 1:
            return False
        low, high = sound[1], sound[2]
        for name in ("fts", "fts_cjk"):
            gap = [self.db.schema.meta.get(f"{name}_rebuild_{word}")
                   for word in ("progress", "high_water")]  # fmt: skip
            if gap[0] is not None or gap[1] is not None:
                progress, water = (int(value or 0) for value in gap)
                if low <= water and high > progress:
                    return False
        place, value = bound(target)
        mine = self.db.execute(
            f"SELECT max(id) FROM main.messages WHERE session_id = {place}", (value,)
        ).fetchone()[0]
        if mine is not None and low <= mine:
            return False
        return not any(self._taken(place, start, last) for place in self._places)

    def _taken(self, place: str, start: int, last: int) -> bool:
        row = self.db.execute(
            f"SELECT 1 FROM stage.messages s JOIN {place}.messages m ON m.id = s.id "
            'WHERE s."#i" BETWEEN ? AND ? LIMIT 1', (start, last),
        ).fetchone()  # fmt: skip
        return row is not None
