"""How one staged record becomes rows: its session row made fit for this store, its messages copied
by the database itself, its rows of other tables.
"""

import json
import time
from collections.abc import Callable
from typing import Any

from hermes_tools.store import columns, titles
from hermes_tools.store.comparing import MARKS, Cell
from hermes_tools.store.db import Database, sound
from hermes_tools.store.exporting import bound, quoted
from hermes_tools.store.parsing import cells
from hermes_tools.store.sessions import numbered
from hermes_tools.store.staging import Staged, special

Details = dict[str, Any]

# Side tables as the agent's release 0.19 and later declare them, for a store that has none yet.
SIDE = {
    "session_model_usage": """CREATE TABLE main.session_model_usage (
    session_id TEXT NOT NULL REFERENCES sessions(id) ON DELETE CASCADE,
    model TEXT NOT NULL,
    billing_provider TEXT NOT NULL DEFAULT '',
    billing_base_url TEXT NOT NULL DEFAULT '',
    billing_mode TEXT NOT NULL DEFAULT '',
    task TEXT NOT NULL DEFAULT '',
    api_call_count INTEGER NOT NULL DEFAULT 0,
    input_tokens INTEGER NOT NULL DEFAULT 0,
    output_tokens INTEGER NOT NULL DEFAULT 0,
    cache_read_tokens INTEGER NOT NULL DEFAULT 0,
    cache_write_tokens INTEGER NOT NULL DEFAULT 0,
    reasoning_tokens INTEGER NOT NULL DEFAULT 0,
    estimated_cost_usd REAL NOT NULL DEFAULT 0,
    actual_cost_usd REAL NOT NULL DEFAULT 0,
    cost_status TEXT,
    cost_source TEXT,
    first_seen REAL,
    last_seen REAL,
    PRIMARY KEY (session_id, model, billing_provider, billing_base_url, billing_mode, task)
)""",
    "system_prompts": "CREATE TABLE main.system_prompts (hash TEXT PRIMARY KEY, "
    "prompt TEXT NOT NULL)",
}
HANDOFF = ("handoff_state", "handoff_platform", "handoff_error")


class Landing:
    """Puts records into one store; `exact` keeps every cell as it is."""

    def __init__(self, db: Database, exact: bool = False) -> None:
        self.db, self.exact = db, exact
        self.taken: set[str] = set()  # titles a rehearsal has given away
        self.look()

    def look(self) -> None:
        """Read again what the store's tables demand."""
        self._demands = {
            table: {
                row[1]: row[4] for row in self.db.execute(f"PRAGMA main.table_info({table})")
                if row[3] and not row[5]
            }
            for table in ("sessions", "messages")
        }  # fmt: skip

    # -- the session row

    def session(
        self, record: Staged, target: str, renamed: dict[str, str],
        parent: Callable[[Any], Any],
    ) -> tuple[dict[str, Any], Details]:  # fmt: skip
        """The cells to insert, by the columns this store has, and what had to be changed.

        parent: an id → the id to link to here, or None to detach.
        """
        have = self.db.schema.tables["sessions"]
        details: Details = {}
        session = {name: value for name, value in record.session.items() if name in have}
        session["id"] = target
        if self.exact:
            return session, details
        if target != record.session["id"]:
            details["id_was"] = record.session["id"]
        self._start(record, session, details)
        self._reset(session, details)
        self._title(session, details)
        if session.get("parent_session_id") is not None:
            wanted = session["parent_session_id"]
            session["parent_session_id"] = parent(renamed.get(wanted, wanted))
            if session["parent_session_id"] is None:
                details["detached_from"] = wanted
        if renamed and isinstance(session.get("model_config"), str):
            session["model_config"] = _marks(session["model_config"], renamed)
        self._prompt(record, session)
        self._counts(record, session)
        demanded = self._demands["sessions"]
        return {
            name: value for name, value in session.items()
            if value is not None or name not in demanded
        }, details  # fmt: skip

    def _start(self, record: Staged, session: dict[str, Any], details: Details) -> None:
        session["source"] = session.get("source") or "import"
        if session.get("started_at") is None:
            first = self.db.execute(
                'SELECT min(timestamp) FROM stage.messages WHERE "#i" BETWEEN ? AND ?', record.span
            ).fetchone()[0] if self._timed(record) else None  # fmt: skip
            session["started_at"] = first if first is not None else time.time()
            if first is None:
                details["started_at"] = "invented"

    def _timed(self, record: Staged) -> bool:
        return any("timestamp" in keys for _, _, keys in record.runs)

    def _reset(self, session: dict[str, Any], details: Details) -> None:
        """Live state does not travel: another store's routes, leases and handoffs under way."""
        reset = []
        history = session.get("handoff_state") not in ("pending", "running")
        for name, usual in columns.LIVE.items():
            if name in HANDOFF and history:
                continue
            if session.get(name) not in (None, usual):
                session[name] = usual
                reset.append(name)
        if reset:
            details["reset"] = reset

    def _title(self, session: dict[str, Any], details: Details) -> None:
        title = session.get("title")
        if title is None:
            return
        if not isinstance(title, str) or not sound(title):
            title = title.encode("utf-8", "surrogateescape").decode("utf-8", "replace") if (
                isinstance(title, str)) else str(title)  # fmt: skip
        if not title.strip():
            session["title"] = None
            return
        session["title"] = self._free_title(title, session["id"])
        if session["title"] != title:
            details["title_was"] = title
        self.taken.add(session["title"])

    def _free_title(self, title: str, session_id: str) -> str:
        if title not in self.taken and titles.holder(self.db, title, session_id) is None:
            return title
        found = titles.next_title(self.db, title)
        while found in self.taken:
            base, number = numbered(found)
            mark = f" #{number + 1}"
            found = titles.cut(base, titles.LIMIT - len(mark)) + mark
        return found

    def _prompt(self, record: Staged, session: dict[str, Any]) -> None:
        """A text stored by hash: kept so where it comes along or is here, else inline."""
        known = {
            row.get("hash"): row.get("prompt")
            for row in (record.more.get("_tables") or {}).get("system_prompts", ())
        }
        table = self.db.schema.has("system_prompts", "hash", "prompt")
        names = session.get("tool_names")
        if names in known and not table:
            session["tool_names"] = known[names]
        name = session.get("system_prompt_hash")
        if name is None:
            name = record.session.get("system_prompt_hash")
        if name is None:
            return
        if table and (name in known or self._has_prompt(name)):
            return
        if "system_prompt_hash" in session:
            session["system_prompt_hash"] = None
        if session.get("system_prompt") is None and known.get(name) is not None:
            session["system_prompt"] = known[name]

    def _has_prompt(self, name: Any) -> bool:
        row = self.db.execute("SELECT 1 FROM main.system_prompts WHERE hash = ?", (name,))
        return row.fetchone() is not None

    def _counts(self, record: Staged, session: dict[str, Any]) -> None:
        """Counters that did not come along, from the messages that did."""
        have = self.db.schema.tables["sessions"]
        if session.get("message_count") is None and "message_count" in have:
            session["message_count"] = record.count
        if session.get("tool_call_count") is None and "tool_call_count" in have:
            calls = 0
            if any("tool_calls" in keys for _, _, keys in record.runs):
                calls = self.db.execute(
                    "SELECT COALESCE(sum(CASE WHEN json_valid(tool_calls) THEN "
                    "json_array_length(tool_calls) END), 0) FROM stage.messages "
                    'WHERE "#i" BETWEEN ? AND ?', record.span,
                ).fetchone()[0]  # fmt: skip
            session["tool_call_count"] = calls

    def changes(
        self, record: Staged, target: str, names: list[str], details: Details,
        renamed: dict[str, str], parent: Callable[[Any], Any],
    ) -> dict[str, Any]:  # fmt: skip
        """The cells of a stored session that a newer copy of it changes."""
        have = self.db.schema.tables["sessions"]
        session = {name: record.session[name] for name in names if name in have}
        if self.exact:
            return session
        session["id"] = target
        self._title(session, details)
        if session.get("parent_session_id") is not None:
            wanted = session["parent_session_id"]
            session["parent_session_id"] = parent(renamed.get(wanted, wanted))
        demanded = self._demands["sessions"]
        return {
            name: value for name, value in session.items()
            if value is not None or name not in demanded
        }  # fmt: skip

    # -- messages

    def messages(
        self, record: Staged, target: str, new_first: int | None, start: int | None = None
    ) -> list[list[int]]:
        """Copy a record's messages, from row `start` of the staging table on; with new ids from
        `new_first`. Returns how old ids became new ones: [old, new, how many] …
        """
        begin = record.span[0] if start is None else start
        base = record.session.get("started_at")
        base = base if isinstance(base, int | float) else time.time()
        for first, last, keys in record.runs:
            if last < begin:
                continue
            self._copy(max(first, begin), last, keys, target, new_first, begin, base)
        if new_first is None or not any("id" in keys for _, _, keys in record.runs):
            return []
        return [
            [old, new_first + row - begin, count]
            for old, row, count in self.db.execute(
                'SELECT min(id), min("#i"), count(*) FROM stage.messages '
                'WHERE "#i" BETWEEN ? AND ? AND id IS NOT NULL GROUP BY id - "#i" ORDER BY 2',
                (begin, record.span[1]),
            ) if old != new_first + row - begin
        ]  # fmt: skip

    def _copy(
        self, first: int, last: int, keys: tuple[str, ...], target: str, new_first: int | None,
        begin: int, base: float,
    ) -> None:  # fmt: skip
        have = self.db.schema.tables["messages"]
        place, key = bound(target)
        names = ["session_id"]
        values = [place]
        bindings: list[Any] = [key]
        if new_first is not None:
            names.append("id")
            values.append('? + "#i" - ?')
            bindings += [new_first, begin]
        for name in keys:
            if name not in have or name == "session_id":
                continue
            if new_first is not None and (name == "id" or name in columns.DISPLAY):
                continue
            names.append(name)
            values.append(quoted([name]))
            usual = self._demands["messages"].get(name)
            if usual is not None and not self.exact:
                values[-1] = f"COALESCE({values[-1]}, {usual})"
        if not self.exact and "timestamp" in have:
            # Order is kept by id; the times are the session's start, a microsecond apart.
            made = f"{base!r} + (\"#i\" - {begin}) * 1e-6"
            if "timestamp" in names:
                at = names.index("timestamp")
                values[at] = f"COALESCE({values[at]}, {made})"
            else:
                names.append("timestamp")
                values.append(made)
        self.db.execute(
            f"INSERT INTO main.messages ({quoted(names)}) SELECT {', '.join(values)} "
            'FROM stage.messages WHERE "#i" BETWEEN ? AND ? ORDER BY "#i"',
            (*bindings, first, last),
        )

    def invented(self, record: Staged, start: int | None = None) -> int:
        """How many messages of a record, from row `start` on, came without a time."""
        total = 0
        for first, last, keys in record.runs:
            first = max(first, start or 0)
            if first > last:
                continue
            if "timestamp" not in keys:
                total += last - first + 1
                continue
            total += self.db.execute(
                'SELECT count(*) FROM stage.messages WHERE "#i" BETWEEN ? AND ? '
                "AND timestamp IS NULL", (first, last),
            ).fetchone()[0]  # fmt: skip
        return total

    def cells(self, changed: list[Cell]) -> None:
        """Change cells of stored messages to what the record says."""
        for message_id, row, names in changed:
            listed = quoted(names)
            self.db.execute(
                f"UPDATE main.messages SET ({listed}) = "
                f'(SELECT {listed} FROM stage.messages WHERE "#i" = ?) WHERE id = ?',
                (row, message_id),
            )

    # -- other tables

    def tables(self, record: Staged, target: str, details: Details) -> None:
        """Usage by model, goals, prompts by hash, and what an unknown table holds."""
        for table, rows in (record.more.get("_tables") or {}).items():
            if not self._ready(table, rows):
                details.setdefault("left_out", []).append(table)
                continue
            if table == "session_model_usage":
                place, key = bound(target)
                self.db.execute(
                    f"DELETE FROM main.session_model_usage WHERE session_id = {place}", (key,)
                )
            for row in rows:
                self._side(table, cells(dict(row)), record.session["id"], target)

    def _ready(self, table: str, rows: list[dict[str, Any]]) -> bool:
        if table == "system_prompts" and not self.exact and table not in self.db.schema.tables:
            return True  # the prompt went into its session's row
        if table not in self.db.schema.tables:
            if table not in SIDE and not self.exact:
                return False
            names = list(dict.fromkeys(name for row in rows for name in row if name != "_raw"))
            self.db.execute(
                SIDE.get(table) or f"CREATE TABLE main.{quoted([table])} ({quoted(names)})"
            )
            vars(self.db).pop("schema", None)
        return True

    def _side(self, table: str, row: dict[str, Any], old: Any, target: str) -> None:
        have = self.db.schema.tables.get(table, ())
        row = {name: value for name, value in row.items() if name in have}
        if not row:
            return
        if "session_id" in row:
            row["session_id"] = target
        if table == "state_meta" and old != target:
            kind, _, _ = str(row["key"]).partition(":")
            row["key"] = f"{kind}:{target}"
        word = "REPLACE" if "session_id" in row or self.exact else "IGNORE"
        names = quoted(row)
        sql = (
            f"INSERT OR {word} INTO main.{quoted([table])} ({names}) "
            f"VALUES ({', '.join('?' * len(row))})"
        )
        self.db.execute(*special(sql, tuple(row.values())))


def _marks(config: str, renamed: dict[str, str]) -> str:
    """model_config with its lineage marks naming sessions by the ids they have here."""
    if '"_' not in config:
        return config
    try:
        value = json.loads(config)
    except ValueError:
        return config
    if not isinstance(value, dict):
        return config
    found = {name: renamed[value[name]] for name in MARKS if value.get(name) in renamed}
    return json.dumps({**value, **found}) if found else config
