"""Handoffs: a session's way to another platform, every step a compare-and-set (3.13).

none → pending → running → completed or failed; from there a new request is possible. The columns
are the agent's own. Since they hold no time, what is known of it stands in state_meta beside
them, under `handoff:<session id>`, for as long as a handoff is under way.
"""

import json
import os
import platform as system
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hermes_tools.store import inuse, routing
from hermes_tools.store.db import Database, transaction
from hermes_tools.store.errors import Busy, Negative, NotFound, Unsupported
from hermes_tools.store.lineage import RESETS, Lineage
from hermes_tools.store.messages import plain
from hermes_tools.store.resets import start_time
from hermes_tools.store.sessions import Reader
from hermes_tools.store.times import valid

ERROR_LENGTH = 500
STUCK_AFTER = 15 * 60.0
OPEN = ("pending", "running")
# Ends of a handed-off session that its new side made; any other came from the side it left.
ENDINGS = RESETS | {"compression"}
WITHDRAWN = "no gateway took it"
DIED = "the worker died"


@dataclass(frozen=True)
class Handoff:
    """A session's handoff. `since`: when this state began, or where nobody wrote that down the
    session's last activity, which is earlier (`exact` tells). `notes`: a worker's own.
    """

    session_id: str
    state: str | None
    platform: str | None
    error: str | None
    since: float | None
    exact: bool
    notes: dict[str, Any]

    def stuck(self, now: float) -> bool:
        """Whether it is running for longer than any worker takes."""
        return self.state == "running" and now - (self.since or 0.0) > STUCK_AFTER


def require(db: Database) -> None:
    """Raises Unsupported where the store has no place for handoffs."""
    if not db.schema.has("sessions", "handoff_state", "handoff_platform", "handoff_error"):
        raise Unsupported(
            f"{db.path}: sessions have no handoff columns (schema 11 and later); "
            "hermes-session-migrate adds them"
        )


def get(db: Database, session_id: str) -> Handoff:
    """The handoff of a session. Raises NotFound, Unsupported."""
    require(db)
    row = db.execute(
        "SELECT handoff_state, handoff_platform, handoff_error FROM sessions WHERE id = ?",
        (session_id,),
    ).fetchone()
    if row is None:
        raise NotFound(f"session {session_id}: not in this store")
    notes = recall(db, session_id)
    since = valid(notes.get(f"{row[0]}_at"))
    exact = since is not None
    if since is None and row[0] in OPEN:
        one = Reader(db).conversation(session_id, segment=True, preview=False)
        since = one.last_active
    return Handoff(session_id, row[0] or None, row[1], row[2], since, exact, notes)


def listed(db: Database, states: tuple[str, ...] = ()) -> Iterator[Handoff]:
    """Every handoff, oldest session first; only those in certain states if any are given."""
    require(db)
    rows = db.execute(
        "SELECT id, handoff_state FROM sessions "
        "WHERE handoff_state IS NOT NULL AND handoff_state <> '' ORDER BY started_at, id"
    ).fetchall()
    for row in rows:
        if not states or row[1] in states:
            yield get(db, row[0])


def request(db: Database, session_id: str, platform: str, *, live: bool = False) -> None:
    """Ask for a handoff. Raises Negative (archived, compressed, already under way: nothing is
    changed) and Busy (in the middle of a turn, unless `live`).
    """
    require(db)
    now = time.time()
    with transaction(db):
        reader = Reader(db)
        one = reader.conversation(session_id, segment=True, preview=False)
        if one.archived:
            raise Negative(
                f"session {session_id}: archived; hermes-session-archive --undo brings it back"
            )
        tip = reader.lineage.tip(session_id)
        if tip != session_id or one.end_reason == "compression":
            goes_on = f"; it goes on as {tip}" if tip != session_id else ""
            raise Negative(f"session {session_id}: ended by compression{goes_on}")
        state = get(db, session_id)
        if state.state in OPEN:
            raise Negative(
                f"session {session_id}: a handoff to {state.platform} is {state.state} already"
            )
        use = inuse.Use(inuse.leases(db, now), {}, now)
        word = use.reason(db, reader.lineage.chain(session_id), now)
        if not live and word is not None:
            raise Busy(
                f"session {session_id}: {inuse.REASONS[word]}; ask again when that is over"
            )
        _set(db, session_id, "pending", (None, "", "completed", "failed"), platform, None)
        note(db, session_id, {"pending_at": now})


def claim(db: Database, session_id: str, notes: dict[str, Any] | None = None) -> bool:
    """pending → running; whether it was ours to take. Of two workers one is told True."""
    with transaction(db):
        done = _set(db, session_id, "running", ("pending",))
        if done:
            note(db, session_id, {"running_at": time.time(), **(notes or {})})
    return done


def complete(db: Database, session_id: str) -> bool:
    """running → completed, inside a transaction."""
    done = _set(db, session_id, "completed", ("running",), error=None)
    if done:
        forget(db, session_id)
    return done


def fail(db: Database, session_id: str, error: str, *states: str) -> bool:
    """To failed with its reason (500 characters), from one of these states; whether it was."""
    error = error.encode("utf-8", "replace").decode()  # a path in it may be no UTF-8
    with transaction(db):
        done = _set(db, session_id, "failed", states or ("running",), error=error)
        if done:
            forget(db, session_id)
    return done


def finish(
    db: Database, home: Path, session_id: str, origin: Mapping[str, Any], key: str
) -> tuple[bool, bool]:
    """Complete a delivered handoff in one transaction: the session, or the one it was compressed
    into meanwhile, is reopened (the turn's own end would cut the conversation off, field case
    132), learns its peer, and gets the key's route. (done, bound): done is False where the
    handoff is not running any more, bound where a gateway runs, whose routes are its own.
    """
    now = time.time()
    route = None
    with transaction(db):
        if not complete(db, session_id):
            return False, False
        tip = Lineage(db).tip(session_id)
        if inuse.gateway(home, db) is None:
            route = routing.bind(db, home, key, tip, origin, now)
        routing.introduce(db, key, tip, origin)
    if route is not None and routing.mirrored(db, home):
        with transaction(db):
            routing.mirror(home, {key: route})
    return True, route is not None


def last_message(db: Database) -> int:
    """The newest message id of the store, 0 without any."""
    return int(db.execute("SELECT COALESCE(max(id), 0) FROM messages").fetchone()[0])


def answers(db: Database, after: int) -> Iterator[str]:
    """The texts the agent has stored after a message, newest first. They may stand in another
    row: a release resumes where it thinks the conversation went on.
    """
    rows = db.execute(
        "SELECT content FROM messages WHERE id > ? AND role = 'assistant' AND content <> '' "
        "ORDER BY id DESC LIMIT 20", (after,)
    ).fetchall()  # fmt: skip
    yield from (plain(row[0]).strip() for row in rows)


_KEEP = object()


def _set(
    db: Database, session_id: str, state: str, states: tuple[str | None, ...],
    platform: str | None = None, error: Any = _KEEP,
) -> bool:  # fmt: skip
    """Compare-and-set, in one statement."""
    sets = ["handoff_state = ?"]
    values: list[Any] = [state]
    if platform is not None:
        sets.append("handoff_platform = ?")
        values.append(platform)
    if error is not _KEEP:
        sets.append("handoff_error = ?")
        values.append(error if error is None else error[:ERROR_LENGTH])
    names = [one or "" for one in states]
    marks = ",".join("?" * len(names))
    return bool(
        db.execute(
            f"UPDATE sessions SET {', '.join(sets)} "
            f"WHERE id = ? AND COALESCE(handoff_state, '') IN ({marks})",
            (*values, session_id, *names),
        ).rowcount
    )


def _key(session_id: str) -> str:
    return f"handoff:{session_id}"


def recall(db: Database, session_id: str) -> dict[str, Any]:
    """What was noted of a handoff under way; {} where nothing was."""
    if not db.schema.has("state_meta", "key", "value"):
        return {}
    row = db.execute(
        "SELECT value FROM state_meta WHERE key = ?", (_key(session_id),)
    ).fetchone()
    try:
        found = json.loads(row[0]) if row else {}
    except (TypeError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def note(db: Database, session_id: str, notes: dict[str, Any]) -> None:
    """Add to what is noted, inside a transaction. Never a secret: the store is no place for it."""
    if db.schema.has("state_meta", "key", "value"):
        merged = json.dumps({**recall(db, session_id), **notes})
        db.execute(
            "INSERT INTO state_meta (key, value) VALUES (?, ?) "
            "ON CONFLICT (key) DO UPDATE SET value = excluded.value",
            (_key(session_id), merged),
        )


def forget(db: Database, session_id: str) -> None:
    """The handoff is over; its notes go."""
    if db.schema.has("state_meta", "key", "value"):
        db.execute("DELETE FROM state_meta WHERE key = ?", (_key(session_id),))


def oneself() -> dict[str, Any]:
    """What tells a later worker whether this process still lives."""
    boot, space = _machine()
    return {
        "pid": os.getpid(), "started": start_time(os.getpid()), "host": system.node(),
        "boot": boot, "space": space,
    }  # fmt: skip


def dead(worker: Any) -> bool:
    """Whether a worker (see oneself) is known to be gone. Of one on another machine, or in
    another space of process numbers, that cannot be said.
    """
    if not isinstance(worker, dict) or not isinstance(worker.get("pid"), int):
        return False
    if worker.get("host") != system.node():
        return False
    boot, space = _machine()
    if worker.get("boot") != boot:
        return True  # this machine has been started anew since
    if worker.get("space") != space:
        return False
    try:
        os.kill(worker["pid"], 0)
    except ProcessLookupError:
        return True
    except OSError:
        pass
    started = start_time(worker["pid"])
    return started is not None and worker.get("started") not in (None, started)


def _machine() -> tuple[str | None, str | None]:
    """(this boot, this space of process numbers: containers have their own); None where the
    system does not tell.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return boot, os.readlink("/proc/self/ns/pid")
    except OSError:
        return None, None


def abandoned(db: Database) -> list[Handoff]:
    """Running handoffs whose worker, one of ours, has died, or is this process, which asks only
    when it has none in hand: it could not write down how the last one ended.
    """
    me = oneself()
    return [
        one for one in listed(db, ("running",))
        if dead(one.notes.get("worker")) or one.notes.get("worker") == me
    ]  # fmt: skip
