"""What must be left alone now: sessions in use, a running gateway, a store that others hold."""

import fcntl
import json
import os
import sqlite3
import time
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from hermes_tools.store import messages
from hermes_tools.store.db import Database, chunks, code, connect, marks
from hermes_tools.store.errors import Busy
from hermes_tools.store.times import valid

ROUTED_FOR = 15 * 60.0  # a routed session counts as in use this long after its last activity
TURN_FOR = 10 * 60.0  # an unanswered message counts as a turn under way this long
HEARTBEAT_FOR = 120.0  # a gateway that has not been heard for longer is taken for dead

# Why a session is left alone: the word of records → the words for a person.
REASONS = {
    "compression": "it is being compressed",
    "turn": "the agent is working on it",
    "handoff": "its handoff is under way",
    "routed": "a chat is routed to it and was active a moment ago",
    "mid_turn": "it waits for an answer",
}


class Use(NamedTuple):
    """What is in use in a store at one moment; see `look`.

    leased: session id → compression or turn (live rows of compression_locks and
    session_turn_leases). routes: session id → the session keys routed to it.
    """

    leased: dict[str, str]
    routes: dict[str, list[str]]
    now: float

    def reason(self, db: Database, rows: list[str], last_active: float | None) -> str | None:
        """The word in REASONS for why these rows, a conversation, are in use; None if they are
        not. last_active is the conversation's newest activity.
        """
        for row in rows:
            if row in self.leased:
                return self.leased[row]
        if handed(db, rows):
            return "handoff"
        recent = last_active is None or self.now - last_active < ROUTED_FOR
        if recent and any(row in self.routes for row in rows):
            return "routed"
        if recent and any(mid_turn(db, row, self.now) for row in rows):
            return "mid_turn"
        return None


def look(db: Database, home: Path | None = None, now: float | None = None) -> Use:
    """What is in use now. `home` is where sessions/sessions.json lies, the routing of releases
    before the table and the table's mirror; without it the file is not read.

    Take it anew in each transaction that acts: a lease may be a second old.
    """
    now = time.time() if now is None else now
    return Use(leases(db, now), routes(db, home), now)


def leases(db: Database, now: float) -> dict[str, str]:
    """Session id → what holds it: live rows only. A lease is believed until it expires even if
    its process is not seen here; it may run in another container (store-facts 2.4).
    """
    found: dict[str, str] = {}
    for table, column, word in (
        ("session_turn_leases", "conversation_id", "turn"),
        ("compression_locks", "session_id", "compression"),
    ):
        if db.schema.has(table, column, "expires_at"):
            for name, expires in db.execute(f"SELECT {column}, expires_at FROM {table}"):
                if isinstance(expires, int | float) and expires > now:
                    found[name] = word
    return found


def routes(db: Database, home: Path | None = None) -> dict[str, list[str]]:
    """Session id → session keys of the routing table and, with `home`, of sessions.json."""
    found: dict[str, list[str]] = {}
    for key, entry in (*table_entries(db), *file_entries(home)):
        name = entry.get("session_id")
        if isinstance(name, str) and key not in found.setdefault(name, []):
            found[name].append(key)
    return found


def table_entries(db: Database) -> Iterator[tuple[str, dict[str, Any]]]:
    """(session key, entry) of gateway_routing; entries that are no JSON object are passed over."""
    if not db.schema.has("gateway_routing", "session_key", "entry_json"):
        return
    for key, stored in db.execute("SELECT session_key, entry_json FROM gateway_routing"):
        try:
            entry = json.loads(stored)
        except (TypeError, ValueError):
            continue
        if isinstance(entry, dict):
            yield key, entry


def file_entries(home: Path | None) -> Iterator[tuple[str, dict[str, Any]]]:
    """(session key, entry) of sessions/sessions.json; keys that begin with `_` are none."""
    if home is None:
        return
    try:
        loaded = json.loads((home / "sessions" / "sessions.json").read_text("utf-8"))
    except (OSError, ValueError):
        return
    if isinstance(loaded, dict):
        for key, entry in loaded.items():
            if not key.startswith("_") and isinstance(entry, dict):
                yield key, entry


def handed(db: Database, rows: list[str]) -> bool:
    """Whether a handoff of one of these rows was asked for or is running."""
    if not db.schema.has("sessions", "handoff_state"):
        return False
    return any(
        db.execute(
            f"SELECT 1 FROM sessions WHERE id IN ({marks(chunk)}) "
            "AND handoff_state IN ('pending', 'running') LIMIT 1", chunk
        ).fetchone()
        for chunk in chunks(rows)
    )  # fmt: skip


def mid_turn(db: Database, session_id: str, now: float) -> bool:
    """Whether the last live row is recent and waits for the agent: a user's or a tool's, or an
    assistant's whose tool calls have no answer yet.
    """
    row = db.execute(
        f"SELECT {messages.pick(db, 'role', 'tool_calls', 'timestamp')} FROM messages m "
        f"WHERE m.session_id = ? AND m.timestamp >= ? AND {db.schema.live} "
        "ORDER BY m.id DESC LIMIT 1",
        (session_id, now - TURN_FOR),
    ).fetchone()
    if row is None or valid(row["timestamp"]) is None:
        return False
    return row["role"] in ("user", "tool") or bool(messages.tool_calls(row["tool_calls"]))


def gateway(home: Path, db: Database | None = None, now: float | None = None) -> int | None:
    """The process id of the gateway that runs in this home (0 where it is not told), or None.

    Asked of gateway.lock, which a running gateway keeps locked, and with `db` of the heartbeats
    that newer releases leave in the store.
    """
    try:
        with open(home / "gateway.lock", "rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except OSError:
                return _pid(file.read())
    except OSError:
        pass
    if db is not None and db.schema.has("gateway_heartbeats", "pid", "last_heartbeat"):
        now = time.time() if now is None else now
        for pid, beat in db.execute("SELECT pid, last_heartbeat FROM gateway_heartbeats"):
            if isinstance(beat, int | float) and now - beat < HEARTBEAT_FOR:
                return pid if isinstance(pid, int) else 0
    return None


def _pid(written: bytes) -> int:
    try:
        value = json.loads(written)
    except ValueError:
        return 0
    pid = value.get("pid") if isinstance(value, dict) else value
    return pid if isinstance(pid, int) else 0


def require_no_gateway(home: Path, db: Database | None = None) -> None:
    """Refuse while a gateway runs in this home. Raises Busy."""
    pid = gateway(home, db)
    if pid is not None:
        who = f"the gateway (process {pid})" if pid else "the gateway"
        raise Busy(f"{home}: {who} is running; stop it first, or allow it with --live")


def holders(path: Path) -> list[tuple[int, str]]:
    """(process id, its name) of the others that have the store's files open. Where the system
    does not tell (no /proc, processes of other users) some may be missing; `alone` asks SQLite
    too.
    """
    files = set()
    for suffix in ("", "-wal", "-shm"):
        try:
            found = os.stat(f"{path}{suffix}")
            files.add((found.st_dev, found.st_ino))
        except OSError:
            continue
    return [
        (pid, _name(pid)) for pid in _processes()
        if pid != os.getpid() and any(one in files for one in _open_files(pid))
    ]  # fmt: skip


def _processes() -> list[int]:
    try:
        return sorted(int(name) for name in os.listdir("/proc") if name.isdigit())
    except OSError:
        return []


def _open_files(pid: int) -> Iterator[tuple[int, int]]:
    try:
        names = os.listdir(f"/proc/{pid}/fd")
    except OSError:
        return
    for name in names:
        try:
            found = os.stat(f"/proc/{pid}/fd/{name}")
        except OSError:
            continue
        yield found.st_dev, found.st_ino


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return "?"


def named(found: Iterable[tuple[int, str]]) -> str:
    """`process 4711 (hermes), process 4712 (python3)`."""
    return ", ".join(f"process {pid} ({name})" for pid, name in found)


@contextmanager
def alone(path: Path, what: str, *, lenient: bool = False) -> Iterator[Database]:
    """The store for writing, everybody else shut out until it is closed. Raises Busy that names
    those who hold it; a connection of our own stands in the way like any other. The journal mode
    stays as it is. lenient: see db.connect.
    """
    found = holders(path)
    if found:
        raise Busy(f"{path}: held by {named(found)}; {what} needs the store alone")
    try:
        db = connect(path, "rw", 0, 0, alone=True, lenient=lenient)
    except sqlite3.OperationalError as error:
        if code(error) in (5, 6):
            raise Busy(f"{path}: held by another process; {what} needs the store alone") from error
        raise
    with closing(db):
        db.execute("PRAGMA foreign_keys = ON")
        yield db
