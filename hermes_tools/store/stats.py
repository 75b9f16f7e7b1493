"""Counts, tokens, cost and sizes: grouped by SQLite, no session read one by one."""

import os
from collections.abc import Iterable
from datetime import datetime
from typing import Any

from hermes_tools.store.db import Database
from hermes_tools.store.errors import Unsupported
from hermes_tools.store.selection import INTERNAL_SOURCES
from hermes_tools.store.sessions import VALID, Conversation, number

Record = dict[str, Any]

TOKENS = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens")
COUNTED = (*TOKENS, "reasoning_tokens")  # reasoning is part of the output, so not in the total
COSTS = ("actual_cost_usd", "estimated_cost_usd")
LARGEST = 1e15  # beyond it no count of tokens and no sum of money is meant
BUCKET = 900  # seconds: every time zone differs from another by whole quarters of an hour
USAGE = "session_model_usage"


class Stats:
    """Figures of one store; with `rows` of these session rows alone."""

    def __init__(self, db: Database, rows: Iterable[str] | None = None) -> None:
        self.db, self.schema = db, db.schema
        self.chosen = rows is not None
        if rows is not None:
            db.execute("CREATE TEMP TABLE chosen (id TEXT PRIMARY KEY) WITHOUT ROWID")
            for row in rows:
                db.execute("INSERT OR IGNORE INTO temp.chosen VALUES (?)", (row,))

    def _of(self, column: str) -> str:
        return f"{column} IN (SELECT id FROM temp.chosen)" if self.chosen else "1"

    def _cell(self, name: str, alias: str = "s", table: str = "sessions") -> str:
        """SQL for a number that may be garbage or missing: NULL then."""
        if not self.schema.has(table, name):
            return "NULL"
        cell = f"{alias}.{name}"
        return (
            f"CASE WHEN typeof({cell}) IN ('integer', 'real') AND {cell} BETWEEN 0 AND {LARGEST} "
            f"THEN {cell} END"
        )

    def garbage(self) -> dict[str, int]:
        """Column → cells that hold no usable number, which all sums leave out."""
        columns = [name for name in (*COUNTED, *COSTS) if self.schema.has("sessions", name)]
        if not columns:
            return {}
        sums = ", ".join(
            f"sum(s.{name} IS NOT NULL AND {self._cell(name)} IS NULL)" for name in columns
        )
        row = self.db.execute(f"SELECT {sums} FROM sessions s WHERE {self._of('s.id')}").fetchone()
        return {name: bad for name, bad in zip(columns, row, strict=True) if bad}

    # What was spent: per-model rows where the store keeps them, the session's own sums elsewhere.

    @property
    def spent(self) -> str:
        """SQL of rows (session_id, model, the five counters, cost)."""
        counters = ", ".join(f"{self._cell(name)} AS {name}" for name in COUNTED)
        actual, estimated = map(self._cell, COSTS)
        model = "s.model" if self.schema.has("sessions", "model") else "NULL"
        own = (
            f"SELECT s.id AS session_id, {model} AS model, {counters}, "
            f"COALESCE({actual}, {estimated}) AS cost FROM sessions s WHERE {self._of('s.id')}"
        )
        if not self.schema.has(USAGE, "session_id", "model", *COUNTED):
            return own
        counters = ", ".join(f"{self._cell(name, 'u', USAGE)} AS {name}" for name in COUNTED)
        # There a cost is never NULL: 0 of unknown status is no cost that anybody knows.
        actual, estimated = (self._cell(name, "u", USAGE) for name in COSTS)
        status = "u.cost_status" if self.schema.has(USAGE, "cost_status") else "NULL"
        return (
            f"{own} AND NOT EXISTS (SELECT 1 FROM {USAGE} u WHERE u.session_id = s.id) "
            f"UNION ALL SELECT u.session_id, u.model, {counters}, "
            f"COALESCE(NULLIF({actual}, 0), NULLIF({estimated}, 0), "
            f"CASE WHEN COALESCE({status}, 'unknown') <> 'unknown' THEN 0 END) "
            f"FROM {USAGE} u JOIN sessions s ON s.id = u.session_id WHERE {self._of('s.id')}"
        )

    def _sums(self, alias: str = "x") -> str:
        sums = ", ".join(f"COALESCE(sum({alias}.{name}), 0)" for name in COUNTED)
        return f"{sums}, sum({alias}.cost)"

    def summary(self) -> Record:
        """Everything in one record; the parts of sessions and of messages add up."""
        result: Record = {**self._sessions(), **self._messages(), "sources": {}}
        for one in self.by("source"):
            result["sources"][one["source"]] = {
                "sessions": one["sessions"], "messages": one["messages"]
            }  # fmt: skip
        row = self.db.execute(f"SELECT {self._sums()} FROM ({self.spent}) x").fetchone()
        return {**result, **spending(row), **self.files()}

    def _sessions(self) -> Record:
        """Session rows, each in one part only: archived, else internal, else an earlier segment
        of a conversation, else empty, else listed.
        """
        has, none = self.schema.has, "0"
        archived = "COALESCE(s.archived, 0) <> 0" if has("sessions", "archived") else none
        title = "COALESCE(s.title, '') <> ''" if has("sessions", "title") else none
        source = "s.source" if has("sessions", "source") else "NULL"
        inner = ", ".join(f"'{name}'" for name in sorted(INTERNAL_SOURCES))
        internal = [f"replace(lower(COALESCE({source}, '')), '-', '_') IN ({inner})"]
        if has("sessions", "hidden"):
            internal.append("COALESCE(s.hidden, 0) <> 0")
        segment = none
        if has("sessions", "model_config", "parent_session_id", "end_reason"):
            internal.append(
                f"(s.model_config LIKE '%\"_delegate_from\"%' AND ({mark('s', 'delegate_from')} "
                "IN (s.parent_session_id, '__orphaned__') OR (s.parent_session_id IS NULL "
                f"AND {mark('s', 'delegate_from')} IS NOT NULL)))"
            )
            marks = " AND ".join(
                f"{mark('c', name)} IS NOT s.id"
                for name in ("branched_from", "delegate_from", "reset_from")
            )
            segment = (
                "s.end_reason = 'compression' AND EXISTS (SELECT 1 FROM sessions c "
                "WHERE c.parent_session_id = s.id AND c.id <> s.id "
                f"AND COALESCE(c.source, '') NOT IN ('tool', 'subagent') AND {marks})"
            )
        empty = (
            f"NOT {title} AND COALESCE({source}, '') <> 'cron' "
            "AND NOT EXISTS (SELECT 1 FROM messages m WHERE m.session_id = s.id)"
        )
        parts = {"archived": archived, "internal": " OR ".join(internal),
                 "segments": segment, "empty": empty}  # fmt: skip
        cases = " ".join(f"WHEN {test} THEN '{name}'" for name, test in parts.items())
        found = dict(
            self.db.execute(
                f"SELECT CASE {cases} ELSE 'listed' END AS part, count(*) FROM sessions s "
                f"WHERE {self._of('s.id')} GROUP BY part"
            ).fetchall()
        )
        counts = {f"sessions_{name}": found.get(name, 0) for name in ("listed", *parts)}
        return {"sessions": sum(found.values()), **counts}

    def _messages(self) -> Record:
        """Message rows, each in one part only: orphaned (of no session), else live, compacted or
        rewound.
        """
        total, live = 0, 0
        orphaned = 0
        for lost, rows, alive in self.db.execute(
            f"SELECT s.id IS NULL, sum(g.n), sum(g.live) FROM ({self._per_session()}) g "
            "LEFT JOIN sessions s ON s.id = g.session_id GROUP BY 1"
        ):
            total += rows
            if lost:
                orphaned += rows
            else:
                live += alive
        compacted = 0
        if self.schema.has("messages", "active", "compacted"):
            compacted = self.db.execute(
                "SELECT count(*) FROM messages m WHERE m.id IN "
                "(SELECT id FROM messages WHERE active = 0) AND m.compacted = 1 "
                "AND EXISTS (SELECT 1 FROM sessions s WHERE s.id = m.session_id) "
                f"AND {self._of('m.session_id')}"
            ).fetchone()[0]
        return {
            "messages": total, "messages_live": live, "messages_compacted": compacted,
            "messages_rewound": total - orphaned - live - compacted,
            "messages_orphaned": orphaned,
        }  # fmt: skip

    def _per_session(self) -> str:
        return (
            f"SELECT m.session_id, count(*) AS n, sum({self.schema.live}) AS live "
            f"FROM messages m WHERE {self._of('m.session_id')} GROUP BY m.session_id"
        )

    def by(self, group: str) -> list[Record]:
        """One record a group: its name, sessions, live messages, tokens, cost. For a tool calls
        and answers, for a role messages alone. Days and hours in order, others by size.
        """
        if group in ("day", "hour"):
            return self._by_time("%Y-%m-%d" if group == "day" else "%H", group)
        if group == "tool":
            return self._by_tool()
        if group == "role":
            return self._by_role()
        return self._by_column(group)

    def _by_column(self, group: str) -> list[Record]:
        column = {"user": "user_id"}.get(group, group)
        own = f"s.{column}" if self.schema.has("sessions", column) else "NULL"
        found = Groups(group)
        for name, sessions in self.db.execute(
            f"SELECT {own}, count(*) FROM sessions s WHERE {self._of('s.id')} GROUP BY 1"
        ):
            found.at(name)["sessions"] += sessions
        for name, live in self.db.execute(
            f"SELECT {own}, sum(g.live) FROM ({self._per_session()}) g "
            "JOIN sessions s ON s.id = g.session_id GROUP BY 1"
        ):
            found.at(name)["messages"] += live
        spender = "x.model" if group == "model" else own
        for name, sessions, *sums in self.db.execute(
            f"SELECT {spender}, count(DISTINCT x.session_id), {self._sums()} "
            f"FROM ({self.spent}) x JOIN sessions s ON s.id = x.session_id GROUP BY 1"
        ):
            one = found.at(name)
            one["sessions"] = max(one["sessions"], sessions)
            one.update(added(one, spending(sums)))
        return found.by_size()

    def _by_time(self, form: str, group: str) -> list[Record]:
        def named(bucket: int | None) -> str | None:
            if bucket is None:
                return None
            return datetime.fromtimestamp(bucket * BUCKET).strftime(form)

        def bucket(cell: str) -> str:
            return f"CASE WHEN {cell} {VALID} THEN CAST({cell} / {BUCKET} AS INTEGER) END"

        started = bucket("s.started_at") if self.schema.has("sessions", "started_at") else "NULL"
        found = Groups(group)
        for at, sessions in self.db.execute(
            f"SELECT {started}, count(*) FROM sessions s WHERE {self._of('s.id')} GROUP BY 1"
        ):
            found.at(named(at))["sessions"] += sessions
        sent = bucket("m.timestamp") if self.schema.has("messages", "timestamp") else "NULL"
        for at, live in self.db.execute(
            f"SELECT {sent}, count(*) FROM messages m WHERE {self.schema.live} "
            f"AND {self._of('m.session_id')} GROUP BY 1"
        ):
            found.at(named(at))["messages"] += live
        for at, *sums in self.db.execute(
            f"SELECT {started}, {self._sums()} FROM ({self.spent}) x "
            "JOIN sessions s ON s.id = x.session_id GROUP BY 1"
        ):
            one = found.at(named(at))
            one.update(added(one, spending(sums)))
        return sorted(found.records.values(), key=lambda one: (one[group] is None, one[group]))

    def _by_tool(self) -> list[Record]:
        """Calls by the name in tool_calls, answers by tool_name; live rows."""
        found: dict[str | None, Record] = {}

        def at(name: Any) -> Record:
            name = named(name)
            return found.setdefault(
                name, {"by": "tool", "tool": name, "calls": 0, "answers": 0, "sessions": 0}
            )

        live = f"{self.schema.live} AND {self._of('m.session_id')}"
        if self.schema.has("messages", "tool_calls"):
            stored = "CASE WHEN json_valid(m.tool_calls) THEN m.tool_calls END"
            calls = (
                f"CASE json_type({stored}) WHEN 'array' THEN m.tool_calls "
                "WHEN 'object' THEN json_array(json(m.tool_calls)) END"
            )
            call = "CASE WHEN c.type = 'object' THEN c.value END"
            name = (
                f"COALESCE(json_extract({call}, '$.function.name'), json_extract({call}, '$.name'))"
            )
            for tool, number_, sessions in self.db.execute(
                f"SELECT {name}, count(*), count(DISTINCT m.session_id) "
                f"FROM messages m, json_each({calls}) c "
                f"WHERE m.tool_calls IS NOT NULL AND {live} GROUP BY 1"
            ):
                one = at(tool)
                one["calls"] += number_
                one["sessions"] = max(one["sessions"], sessions)
        if self.schema.has("messages", "tool_name", "role"):
            for tool, number_, sessions in self.db.execute(
                "SELECT m.tool_name, count(*), count(DISTINCT m.session_id) FROM messages m "
                f"WHERE m.role = 'tool' AND {live} GROUP BY 1"
            ):
                one = at(tool)
                one["answers"] += number_
                one["sessions"] = max(one["sessions"], sessions)
        return sorted(
            found.values(), key=lambda one: (-one["calls"], -one["answers"], str(one["tool"]))
        )

    def _by_role(self) -> list[Record]:
        return [
            {"by": "role", "role": named(role), "sessions": sessions, "messages": rows}
            for role, rows, sessions in self.db.execute(
                "SELECT m.role, count(*) AS rows, count(DISTINCT m.session_id) FROM messages m "
                f"WHERE {self.schema.live} AND {self._of('m.session_id')} "
                "GROUP BY 1 ORDER BY rows DESC, 1"
            )
        ]

    def of_sessions(self) -> dict[str, Record]:
        """What each session row spent."""
        return {
            row[0]: spending(row[1:])
            for row in self.db.execute(
                f"SELECT x.session_id, {self._sums()} FROM ({self.spent}) x GROUP BY 1"
            )
        }

    def files(self) -> Record:
        """Bytes of the store's files, and those inside that hold nothing."""
        page, free = (
            self.db.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("page_size", "freelist_count")
        )
        database, wal, shm = (bytes_of(f"{self.db.path}{end}") for end in ("", "-wal", "-shm"))
        return {
            "database_bytes": database, "wal_bytes": wal, "shm_bytes": shm,
            "total_bytes": database + wal + shm, "free_bytes": page * free,
        }  # fmt: skip

    def sizes(self) -> list[Record]:
        """Bytes of every table and index, largest first. Raises Unsupported where SQLite was
        built without dbstat.
        """
        if not self.db.execute(
            "SELECT 1 FROM pragma_module_list WHERE name = 'dbstat'"
        ).fetchone():
            raise Unsupported("--size: this SQLite was built without dbstat")
        kinds = {
            row[0]: (row[1], row[2])
            for row in self.db.execute("SELECT name, type, tbl_name FROM sqlite_master")
        }
        found = []
        for name, bytes_, unused in self.db.execute(
            "SELECT name, sum(pgsize), sum(unused) FROM dbstat WHERE aggregate = TRUE GROUP BY 1"
        ):
            kind, table = kinds.get(name, ("table", name))
            indexes = (one for one in self.schema.virtual if name.startswith(f"{one}_"))
            index = max(indexes, key=len, default=None)
            found.append(
                {"by": "size", "name": name, "kind": "fts" if index else kind,
                 "table": index or table, "bytes": bytes_, "unused_bytes": unused}
            )  # fmt: skip
        return sorted(found, key=lambda one: (-one["bytes"], one["name"]))


class Groups:
    """Records of a grouping, made as they are met."""

    def __init__(self, group: str) -> None:
        self.group = group
        self.records: dict[str | None, Record] = {}

    def at(self, name: Any) -> Record:
        """The record of a group; NULL and empty are one, None."""
        name = named(name)
        return self.records.setdefault(
            name,
            {"by": self.group, self.group: name, "sessions": 0, "messages": 0,
             **spending([0] * len(COUNTED) + [None])},
        )  # fmt: skip

    def by_size(self) -> list[Record]:
        """Most sessions first; a source that is NULL is called unknown, as everywhere."""
        if self.group == "source" and None in self.records:
            self.records[None]["source"] = "unknown"
        return sorted(
            self.records.values(),
            key=lambda one: (-one["sessions"], -one["messages"], str(one[self.group])),
        )


def named(value: Any) -> str | None:
    """The name of a group as it is stored."""
    return None if value is None or value == "" else str(value)


def mark(alias: str, name: str) -> str:
    """SQL for a lineage mark in a model_config that may be no JSON."""
    config = f"{alias}.model_config"
    return f"json_extract(CASE WHEN json_valid({config}) THEN {config} END, '$._{name}')"


def spending(sums: Any) -> Record:
    """Counters, their total and the cost (None where nobody knows it) as they are written."""
    *counters, cost = sums
    counted = {name: int(value) for name, value in zip(COUNTED, counters, strict=True)}
    return {
        **counted, "tokens": sum(counted[name] for name in TOKENS),
        "cost_usd": None if cost is None else round(float(cost), 6),
    }  # fmt: skip


def added(one: Record, more: Record) -> Record:
    """The sums of two records' spending."""
    total = {name: one[name] + more[name] for name in (*COUNTED, "tokens")}
    costs = [cost for cost in (one["cost_usd"], more["cost_usd"]) if cost is not None]
    return {**total, "cost_usd": round(sum(costs), 6) if costs else None}


def bytes_of(path: str) -> int:
    """Size of a file, 0 where there is none."""
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def top(
    stats: Stats, found: Iterable[Conversation], sort: str, bytes_of: dict[str, int]
) -> list[Record]:
    """Session records with what their rows spent (and hold, for sort `size`), the most first."""
    spent = stats.of_sessions()
    nothing = spending([0] * len(COUNTED) + [None])
    result = []
    for one in found:
        total = nothing
        for row in one.rows:
            total = added(total, spent.get(row, nothing))
        record = {**one.record(), **total}
        if sort == "size":
            record["bytes"] = sum(bytes_of.get(row, 0) for row in one.rows)
        result.append(record)
    key = {"tokens": "tokens", "cost": "cost_usd", "size": "bytes"}[sort]
    return sorted(result, key=lambda one: (-(number(one[key]) or 0), one["session_id"]))
