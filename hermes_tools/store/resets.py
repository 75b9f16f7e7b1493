"""The reset policy: which routed sessions have outlived their time, and ending them (3.12)."""

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from hermes_tools.store import inuse, lifecycle, routing
from hermes_tools.store.db import Database, transaction
from hermes_tools.store.errors import Damaged, Usage
from hermes_tools.store.home import setting
from hermes_tools.store.lineage import RESETS
from hermes_tools.store.sessions import Conversation, Reader

MODES = ("none", "idle", "daily", "both")
AT_HOUR, IDLE_MINUTES = 4, 1440
# A route marked for resumption by a restarted gateway waits this long for its user (3.12).
RESUME_FOR = 3600.0

# Why a session past its time is left alone; those of inuse.REASONS come on top.
REASONS = {
    "background": "a background process of it is running",
    "no_time": "nothing tells when it was last active",
    "changed": "its route changed in the meantime",
    "command": "the command before the reset failed",
}


@dataclass(frozen=True)
class Policy:
    """When a session is over: after idle_minutes without activity, at at_hour each day in local
    time, or both; mode none is never.
    """

    mode: str = "none"
    at_hour: int = AT_HOUR
    idle_minutes: float = IDLE_MINUTES

    def due(self, active: float, now: float) -> str | None:
        """`idle`, `daily`, or None for a session last active then (Unix seconds). Days and hours
        are local, with the changes of daylight saving time; minutes are real ones.
        """
        if self.mode in ("idle", "both") and now > active + self.idle_minutes * 60:
            return "idle"
        if self.mode in ("daily", "both") and active < boundary(self.at_hour, now):
            return "daily"
        return None


def boundary(at_hour: int, now: float) -> float:
    """The most recent moment at which local clocks showed this hour. An hour that spring skips
    counts when the next one begins, one that autumn repeats at its first time.
    """
    today = datetime.fromtimestamp(now).replace(
        hour=at_hour, minute=0, second=0, microsecond=0, fold=0
    )
    while today.timestamp() > now:
        today -= timedelta(days=1)
    return today.timestamp()


@dataclass(frozen=True)
class Policies:
    """The default policy and its overrides; the platform's wins over the chat type's."""

    default: Policy = Policy()
    by_type: Mapping[str, Policy] = field(default_factory=dict)
    by_platform: Mapping[str, Policy] = field(default_factory=dict)

    def of(self, platform: str, chat_type: str) -> Policy:
        """The policy of a route."""
        return self.by_platform.get(platform) or self.by_type.get(chat_type) or self.default

    @property
    def never(self) -> bool:
        """Whether no policy resets anything."""
        every = (self.default, *self.by_type.values(), *self.by_platform.values())
        return all(policy.mode == "none" for policy in every)


def policies(home: Path, config: Mapping[str, Any], env: Mapping[str, str]) -> Policies:
    """What a home configures: `session_reset` of config.yaml, else `default_reset_policy` of
    gateway.json, whose `reset_by_type` and `reset_by_platform` hold in either case. Nothing
    configured is `none`, whatever a release would do then. Raises Usage, Damaged.
    """
    gateway = gateway_json(home)
    given, where = setting(dict(config), "session_reset"), "config.yaml: session_reset"
    if given is None:
        given = setting(dict(config), "gateway.session_reset")
    if given is None:
        given = gateway.get("default_reset_policy")
        where = "gateway.json: default_reset_policy"
    hours = Policy(
        at_hour=_number(env.get("SESSION_RESET_HOUR"), "SESSION_RESET_HOUR", AT_HOUR),
        idle_minutes=_number(env.get("SESSION_IDLE_MINUTES"), "SESSION_IDLE_MINUTES", IDLE_MINUTES),
    )
    default = policy(given or {}, where, hours)
    return Policies(
        default,
        _overrides(gateway, "reset_by_type"),
        _overrides(gateway, "reset_by_platform"),
    )


def gateway_json(home: Path) -> dict[str, Any]:
    """gateway.json of a home, the settings of older releases; {} where there is none."""
    try:
        loaded = json.loads((home / "gateway.json").read_text("utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise Damaged(f"{home / 'gateway.json'}: {error}") from error
    return loaded if isinstance(loaded, dict) else {}


def _overrides(gateway: Mapping[str, Any], name: str) -> dict[str, Policy]:
    given = gateway.get(name) or {}
    if not isinstance(given, Mapping):
        raise Usage(f"gateway.json: {name} is no mapping")
    return {
        str(key).lower(): policy(value, f"gateway.json: {name}.{key}")
        for key, value in given.items()
    }


def policy(given: Any, where: str, base: Policy | None = None) -> Policy:
    """A policy from a mapping with mode, at_hour and idle_minutes. Raises Usage: what ends
    sessions must not be guessed from a slip of the pen.
    """
    base = base or Policy()
    if not isinstance(given, Mapping):
        raise Usage(f"{where} is no mapping")
    mode = str(given.get("mode") or base.mode).lower()
    if mode not in MODES:
        raise Usage(f"{where}: mode {mode!r} is none of {', '.join(MODES)}")
    at_hour = _number(given.get("at_hour"), f"{where}.at_hour", base.at_hour)
    minutes = _number(given.get("idle_minutes"), f"{where}.idle_minutes", base.idle_minutes)
    if not 0 <= at_hour <= 23:
        raise Usage(f"{where}: at_hour {at_hour} is not between 0 and 23")
    if minutes <= 0:
        raise Usage(f"{where}: idle_minutes {minutes} is not above 0")
    return Policy(mode, at_hour, minutes)


def _number(value: Any, where: str, default: Any) -> int:
    if value is None or value == "":
        return int(default)
    try:
        if isinstance(value, bool):
            raise ValueError
        return int(value)
    except (TypeError, ValueError, OverflowError):
        raise Usage(f"{where}: {value!r} is not a whole number") from None


@dataclass
class Found:
    """A routed session past its time. `skip` is a word of REASONS or inuse.REASONS for why it is
    left alone all the same; `state` see state().
    """

    entry: routing.Entry
    policy: Policy
    reason: str
    state: str
    session_id: str | None
    conversation: Conversation | None
    skip: str | None = None

    @property
    def action(self) -> str:
        """What there is to do: `reset` an open session, or only `unbind` its route."""
        return "reset" if self.state in ("live", "expired") else "unbind"


def state(db: Database, reader: Reader, entry: routing.Entry) -> str:
    """live, ended, missing, or expired: the gateway took leave of it, its end is not recorded."""
    if not entry.session_id or reader.lineage.link(entry.session_id) is None:
        return "missing"
    tip = reader.lineage.tip(entry.session_id)
    finalized = "expiry_finalized" if db.schema.has("sessions", "expiry_finalized") else "0"
    row = db.execute(
        f"SELECT ended_at, end_reason, {finalized} FROM sessions WHERE id = ?", (tip,)
    ).fetchone()
    if row[0] is not None or row[1] is not None:
        return "ended"
    return "expired" if row[2] == 1 or entry.data.get("expiry_finalized") is True else "live"


def find(
    db: Database, home: Path, rules: Policies, now: float, *, live: bool = False
) -> Iterator[Found]:
    """The routes of this home whose session is past its time, or was reset by a run that could
    not finish; with the reason why some are left alone, unless `live`.
    """
    reader = Reader(db)
    busy = background(home)
    use = inuse.Use(inuse.leases(db, now), {}, now)
    for entry in routing.own(db, home):
        origin = entry.data.get("origin")
        origin = origin if isinstance(origin, Mapping) else {}
        rule = rules.of(
            str(entry.data.get("platform") or origin.get("platform") or "").lower(),
            str(entry.data.get("chat_type") or origin.get("chat_type") or "dm"),
        )
        what = state(db, reader, entry)
        one = reader.conversation(entry.session_id) if what != "missing" else None  # type: ignore[arg-type]
        reason = _reason(entry, rule, what, one, now)
        if reason is None:
            continue
        found = Found(entry, rule, reason, what, one.id if one else entry.session_id, one)
        if reason == "no_time":
            found.skip = reason
        elif busy is None or entry.key in busy:
            found.skip = "background"
        elif not live and one is not None and found.action == "reset":
            # That it is routed and was active is what the policy is about; the rest counts.
            found.skip = use.reason(db, one.rows, one.last_active)
        yield found


def _reason(
    entry: routing.Entry, rule: Policy, what: str, one: Conversation | None, now: float
) -> str | None:
    """In the agent's order: suspended, the policy, a resumption nobody came for (3.12)."""
    if entry.data.get("suspended") is True:
        return "suspended"
    if what == "ended" and one is not None and one.end_reason in RESETS:
        ended = one.ended or 0.0
        if (one.last_active or 0.0) <= ended:
            return one.end_reason
    if rule.mode == "none":
        return None
    seen = (entry.updated, one.last_active if one else None)
    times = [time for time in seen if time is not None]
    if not times:
        return "no_time"
    reason = rule.due(max(times), now)
    if reason is None and entry.data.get("resume_pending") is True:
        marked = routing.instant(entry.data.get("last_resume_marked_at"))
        if marked is not None and now - marked > RESUME_FOR:
            return "resume_pending_expired"
    return reason


def apply(
    db: Database, home: Path, found: Found, now: float, *, live: bool = False
) -> str | None:
    """End and unbind one session. Everything is asked again inside the transaction: None, or the
    word for why it was left alone. Raises Busy.
    """
    with transaction(db):
        current = next((one for one in routing.own(db, home) if one.key == found.entry.key), None)
        if current is None or current.data != found.entry.data:
            return "changed"
        if found.action == "reset" and found.conversation is not None:
            if not live:
                one = Reader(db).conversation(found.conversation.id, preview=False)
                use = inuse.Use(inuse.leases(db, now), {}, now)
                word = use.reason(db, one.rows, one.last_active)
                if word is not None:
                    return word
            lifecycle.end(db, [found.conversation.id], found.reason, now)
            if db.schema.has("sessions", "expiry_finalized"):
                db.execute(
                    "UPDATE sessions SET expiry_finalized = 1 WHERE id = ?",
                    (found.conversation.id,),
                )
        routing.change(db, home, found.entry.key, None)
    if routing.mirrored(db, home):
        with transaction(db):
            routing.mirror(home, {found.entry.key: None})
    return None


def background(home: Path) -> set[str] | None:
    """Session keys for which a process started by the agent is running (processes.json of the
    home). None where the file cannot be read: then nothing may be taken for idle.
    """
    try:
        listed = json.loads((home / "processes.json").read_text("utf-8"))
    except FileNotFoundError:
        return set()
    except (OSError, ValueError):
        return None
    if not isinstance(listed, list):
        return None
    return {
        str(one.get("session_key")) for one in listed
        if isinstance(one, dict) and one.get("session_key") and _runs(one)
    }  # fmt: skip


def _runs(one: Mapping[str, Any]) -> bool:
    """Whether a listed process lives. One in a sandbox cannot be seen: it counts as running; a
    number that went to another process since does not.
    """
    pid = one.get("pid")
    if one.get("pid_scope", "host") != "host":
        return True
    if not isinstance(pid, int) or pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass
    started = one.get("host_start_time")
    return not isinstance(started, int) or start_time(pid) in (None, started)


def start_time(pid: int) -> int | None:
    """When a process started, in clock ticks since boot; None where the system does not tell."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
        return int(text.rpartition(")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return None
