"""The gateway's routing index: which session a chat's next message goes to (store-facts 2.5, 2.6).

Two places hold it: the table gateway_routing (the agent's 0.18.1 and later), and
sessions/sessions.json, the only one before and a mirror since. A running gateway keeps its own
copy and rewrites both: edits need a stopped one.
"""

import json
import os
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from hermes_tools.store.db import Database
from hermes_tools.store.errors import Damaged
from hermes_tools.store.lifecycle import end, reopen
from hermes_tools.store.times import valid

# A row's source decides which index holds its messages (1.7): these keep theirs.
FIXED_SOURCES = ("cron", "subagent", "tool")


@dataclass(frozen=True)
class Entry:
    """One route. `data` is the entry as stored, unknown fields included; `scope` the sessions
    folder of the gateway it belongs to, None where it stands in the file alone.
    """

    key: str
    scope: str | None
    data: dict[str, Any]

    @property
    def session_id(self) -> str | None:
        """The session the next message goes to."""
        value = self.data.get("session_id")
        return value if isinstance(value, str) else None

    @property
    def updated(self) -> float | None:
        """The gateway's last activity on this route, Unix seconds."""
        return instant(self.data.get("updated_at"))


def instant(value: Any) -> float | None:
    """Unix seconds of an entry's time: ISO text without a zone is local time. Of the two instants
    an hour repeated in autumn can mean, the later: nothing is taken for older than it is.
    """
    if not isinstance(value, str):
        return valid(value)
    try:
        moment = datetime.fromisoformat(value.replace("Z", "+00:00"))
    except ValueError:
        return None
    with suppress(OverflowError, OSError, ValueError):
        return valid(moment.replace(fold=1).timestamp())
    return None


def local(seconds: float) -> str:
    """Unix seconds as entries write them: ISO, local, without a zone."""
    return datetime.fromtimestamp(seconds).isoformat()


def folder(home: Path) -> Path:
    """The folder of sessions.json; its resolved path is the scope of a home's rows."""
    return home / "sessions"


def scope(home: Path) -> str:
    """The scope a gateway of this home reads and writes."""
    return str(folder(home).resolve())


def entries(db: Database, home: Path | None) -> list[Entry]:
    """Every route of the table; where it holds none, those of sessions.json.

    Raises Damaged where the file is there and is no JSON object: "no routes" would be untrue.
    """
    found = list(_table(db))
    if not found and home is not None:
        found = [
            Entry(key, None, data) for key, data in load(home).items()
            if not key.startswith("_") and isinstance(data, dict)
        ]  # fmt: skip
    return found


def own(db: Database, home: Path) -> list[Entry]:
    """The routes a gateway of this home would use: those of other homes are left out."""
    return [one for one in entries(db, home) if one.scope in (None, "", scope(home))]


def _table(db: Database) -> Iterator[Entry]:
    if not db.schema.has("gateway_routing", "session_key", "entry_json"):
        return
    column = "scope" if db.schema.has("gateway_routing", "scope") else "''"
    rows = db.execute(
        f"SELECT {column}, session_key, entry_json FROM gateway_routing ORDER BY 1, 2"
    ).fetchall()
    for where, key, stored in rows:
        try:
            data = json.loads(stored)
        except (TypeError, ValueError):
            data = {}
        yield Entry(str(key), str(where or ""), data if isinstance(data, dict) else {})


def load(home: Path) -> dict[str, Any]:
    """sessions.json whole, `_` keys too; {} where there is none. Raises Damaged."""
    path = folder(home) / "sessions.json"
    try:
        text = path.read_text("utf-8")
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise Damaged(f"{path}: {error}") from error
    try:
        loaded = json.loads(text)
    except ValueError as error:
        raise Damaged(f"{path}: not JSON: {error}") from error
    if not isinstance(loaded, dict):
        raise Damaged(f"{path}: not a JSON object")
    return loaded


def change(db: Database, home: Path, key: str, data: Mapping[str, Any] | None) -> None:
    """Set a route in the table (None removes it); inside a transaction. `mirror` must follow."""
    if not db.schema.has("gateway_routing", "scope", "session_key", "entry_json", "updated_at"):
        return
    places = {row[0] for row in db.execute(
        "SELECT scope FROM gateway_routing WHERE session_key = ? AND scope IN (?, '')",
        (key, scope(home)),
    )}  # fmt: skip
    if data is None:
        db.execute(
            "DELETE FROM gateway_routing WHERE session_key = ? AND scope IN (?, '')",
            (key, scope(home)),
        )
        return
    for place in places or {scope(home)}:
        db.execute(
            "INSERT INTO gateway_routing (scope, session_key, entry_json, updated_at) "
            "VALUES (?, ?, ?, ?) ON CONFLICT (scope, session_key) "
            "DO UPDATE SET entry_json = excluded.entry_json, updated_at = excluded.updated_at",
            (place, key, json.dumps(data), time.time()),
        )


def forget(db: Database, rows: Iterable[str]) -> None:
    """Drop the table's routes to these sessions, of whatever scope; inside a transaction. Another
    scope's route under the same key stays. `mirror` must follow, with `leading`.
    """
    gone = set(rows)
    for one in list(_table(db)):
        if one.session_id in gone:
            where = "scope = ?" if db.schema.has("gateway_routing", "scope") else "'' = ?"
            db.execute(
                f"DELETE FROM gateway_routing WHERE {where} AND session_key = ?",
                (one.scope, one.key),
            )


def leading(home: Path, rows: Iterable[str]) -> dict[str, None]:
    """The keys of sessions.json that lead to these sessions, as `mirror` takes them out. Raises
    Damaged.
    """
    gone = set(rows)
    return {
        key: None for key, data in load(home).items()
        if not key.startswith("_") and isinstance(data, dict) and data.get("session_id") in gone
    }  # fmt: skip


def mirror(home: Path, changes: Mapping[str, Mapping[str, Any] | None]) -> None:
    """The same changes in sessions.json, the rest of it kept; it appears whole or not at all.

    Call it after the commit, inside a transaction of its own: the store's lock keeps two of us
    from overwriting each other's, and a crash in between leaves what the next run completes.
    """
    stored = load(home)
    after = {**stored, **{key: dict(data) for key, data in changes.items() if data is not None}}
    for key in [key for key, data in changes.items() if data is None]:
        after.pop(key, None)
    if after == stored:
        return
    path = folder(home) / "sessions.json"
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    mode = path.stat().st_mode & 0o777 if path.exists() else 0o600
    handle, name = tempfile.mkstemp(prefix=".sessions_", suffix=".tmp", dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(after, file, indent=2)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, mode)
        os.replace(name, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(name)
        raise


def mirrored(db: Database, home: Path) -> bool:
    """Whether sessions.json is to be written: it is the index itself, or there is a mirror."""
    return not db.schema.has("gateway_routing") or (folder(home) / "sessions.json").exists()


def entry(
    key: str, session_id: str, origin: Mapping[str, Any], now: float,
    before: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """A new route as the agent writes one; what an earlier one of the same key held and we do
    not know is kept. origin: platform, chat_id, chat_type, user_id, thread_id …
    """  # fmt: skip
    fresh = {
        "session_key": key, "session_id": session_id, "created_at": local(now),
        "updated_at": local(now), "display_name": origin.get("chat_name"),
        "platform": origin["platform"], "chat_type": origin.get("chat_type", "dm"),
        "input_tokens": 0, "output_tokens": 0, "cache_read_tokens": 0, "cache_write_tokens": 0,
        "total_tokens": 0, "last_prompt_tokens": 0, "estimated_cost_usd": 0.0,
        "cost_status": "unknown", "expiry_finalized": False, "suspended": False,
        "resume_pending": False, "resume_reason": None, "last_resume_marked_at": None,
        "is_fresh_reset": False, "was_auto_reset": False, "auto_reset_reason": None,
        "reset_had_activity": False, "origin": full_origin(origin),
    }  # fmt: skip
    return {**(before or {}), **fresh}


def full_origin(origin: Mapping[str, Any]) -> dict[str, Any]:
    """An origin object with the fields the agent always writes."""
    names = ("platform", "chat_id", "chat_name", "chat_type", "user_id", "user_name",
             "thread_id", "chat_topic")  # fmt: skip
    return {**dict.fromkeys(names), **origin}


def bind(
    db: Database, home: Path, key: str, session_id: str, origin: Mapping[str, Any], now: float
) -> dict[str, Any]:
    """Route a key to a session, inside a transaction: another session that had the key ends with
    `session_switch`. Returns the entry for `mirror`.
    """
    before = next((one for one in own(db, home) if one.key == key), None)
    if before and before.session_id and before.session_id != session_id:
        end(db, [before.session_id], "session_switch", now)
    data = entry(key, session_id, origin, now, before.data if before else None)
    change(db, home, key, data)
    return data


def introduce(db: Database, key: str, session_id: str, origin: Mapping[str, Any]) -> None:
    """Reopen a session and write down its peer, inside a transaction, where the store keeps that:
    by it newer releases find a session whose route is lost.
    """
    reopen(db, session_id)
    peer = {
        "session_key": key, "chat_id": origin.get("chat_id"),
        "chat_type": origin.get("chat_type", "dm"), "thread_id": origin.get("thread_id"),
        "display_name": origin.get("chat_name"), "origin_json": json.dumps(full_origin(origin)),
        "expiry_finalized": 0,
    }  # fmt: skip
    known = {name: value for name, value in peer.items() if db.schema.has("sessions", name)}
    if not db.schema.has("sessions", "session_key"):
        return
    sets = ", ".join(f"{name} = ?" for name in known)
    db.execute(f"UPDATE sessions SET {sets} WHERE id = ?", (*known.values(), session_id))
    db.execute(
        f"UPDATE sessions SET source = ? WHERE id = ? AND source NOT IN {FIXED_SOURCES}",
        (origin["platform"], session_id),
    )
