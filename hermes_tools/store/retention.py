"""Which conversations have had their time: what goes, what is spared, and why."""

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from hermes_tools.store import inuse, space
from hermes_tools.store.batches import Moment, Outcome
from hermes_tools.store.db import Database, transaction
from hermes_tools.store.errors import Usage
from hermes_tools.store.home import setting
from hermes_tools.store.removal import Doomed, doom, sealed
from hermes_tools.store.selection import Selection, age_for, same, three
from hermes_tools.store.sessions import (
    Conversation,
    Reader,
    conversations,
    require_sources,
    sizes,
)  # fmt: skip
from hermes_tools.store.times import valid

DEFAULT_AGE = 90 * 86400.0
# Nothing this fresh goes unless a smaller age was typed: --until-size has no age of its own.
FLOOR = 86400.0

# The word of records and counts → the words of the summary, in its order.
SPARED = {
    "younger": "younger", "open": "never ended", "pinned": "pinned", "archived": "archived",
    "no_time": "without a time", "kept": "kept as the last of their source",
    "fits": "left because the rest fits", **inuse.REASONS, "routed": "routed to a chat",
    "compression": "under compression", "turn": "with a turn under way",
    "handoff": "with a handoff under way", "mid_turn": "waiting for an answer",
    "changed": "changed meanwhile", "max_lock": "too long for --max-lock",
}  # fmt: skip


@dataclass(frozen=True)
class Policy:
    """What is to go. selection: filters other than age and state. age and by_source in seconds,
    as typed; None everywhere: the default. archived and pinned: no, only or any.
    """

    selection: Selection = field(default_factory=Selection)
    age: float | None = None
    by_source: dict[str, float] = field(default_factory=dict)
    archived: str = "no"
    pinned: str = "no"
    keep_last: int = 0
    until_size: int | None = None
    live: bool = False

    @property
    def typed(self) -> bool:
        """Whether an age was asked for."""
        return self.age is not None or bool(self.by_source)

    def age_of(self, source: str | None) -> float | None:
        """The age that holds for a source; None for one that is not meant."""
        found = age_for(source, self.age, self.by_source)
        if found is not None or self.typed:
            return found
        return FLOOR if self.until_size is not None else DEFAULT_AGE


@dataclass
class Choice:
    """What goes, the longest untouched first, and how many are spared for which reason."""

    doomed: list[Doomed] = field(default_factory=list)
    spared: Counter[str] = field(default_factory=Counter)
    left: list[tuple[str, str]] = field(default_factory=list)  # (id, reason), for --verbose
    gone: list[Outcome] = field(default_factory=list)  # what was done, as it is done
    over: int | None = None  # bytes of what must stay, where they do not fit into `until_size`

    def spare(self, one: Conversation, reason: str) -> None:
        """Count one that stays."""
        self.spared[reason] += 1
        self.left.append((one.id, reason))


def choose(db: Database, policy: Policy, home: Path, now: float | None = None) -> Choice:
    """Judge every conversation the filters name. Raises NotFound for a source nobody has."""
    now = time.time() if now is None else now
    require_sources(db, replace(policy.selection, older_by_source=policy.by_source))
    reader, use, choice = Reader(db), inuse.look(db, home, now), Choice()
    reader.preload()
    kept = last_of_sources(db, reader, policy.keep_last)
    going: list[tuple[float, Conversation]] = []
    for one in conversations(db, policy.selection, preview=False, reader=reader, now=now):
        if reader.lineage.kind(one.root) == "delegate" and not policy.selection.sources:
            continue  # it goes with the conversation it worked for
        age = policy.age_of(one.source)
        if age is None:
            continue
        active = last_activity(reader, one)
        reason = state(db, policy, use, reader, one, active)
        if reason is None and active is not None and now - active < age:
            reason = "younger"
        if reason is None and one.id in kept:
            reason = "kept"
        if reason is not None or active is None:
            choice.spare(one, reason or "no_time")
        else:
            going.append((active, one))
    going.sort(key=lambda pair: (pair[0], pair[1].id))
    found = [doom(db, one, reader.lineage) for _, one in going]
    if policy.until_size is not None:
        found = until(db, choice, found, policy.until_size)
    for doomed in found:
        doomed.one.preview = reader.preview(doomed.one.rows)
    choice.doomed = found
    return choice


def last_activity(reader: Reader, one: Conversation) -> float | None:
    """The newest activity of a conversation and of the delegates that would go with it."""
    times = [one.last_active] + [
        reader.conversation(row, segment=True, preview=False).last_active
        for row in reader.lineage.delegates(one.rows)
    ]
    return max((at for at in times if at is not None), default=None)


def state(
    db: Database, policy: Policy, use: inuse.Use, reader: Reader, one: Conversation,
    active: float | None,
) -> str | None:  # fmt: skip
    """Why a conversation is spared whatever its age; None if it is not."""
    if one.ended is None:
        return "open" if one.ended_at is None else "no_time"
    if not three(policy.pinned, one.pinned):
        return "pinned"
    if not three(policy.archived, one.archived):
        return "archived"
    if policy.live:
        return None
    rows = reader.lineage.members(one.id)
    if any(row in use.routes for row in rows):
        return "routed"
    return use.reason(db, rows, active)


def last_of_sources(db: Database, reader: Reader, count: int) -> set[str]:
    """The ids of the `count` newest conversations of each source."""
    seen: Counter[str] = Counter()
    kept = set()
    if count > 0:
        for one in conversations(db, Selection(), preview=False, reader=reader):
            seen[same(one.source)] += 1
            if seen[same(one.source)] <= count:
                kept.add(one.id)
    return kept


def until(db: Database, choice: Choice, found: list[Doomed], target: int) -> list[Doomed]:
    """Of these, oldest first, as many as must go until the pages in use fit into `target` bytes.
    A conversation is taken to fill the share of the file that it has of all text.
    """
    used = space.live_bytes(db)
    text = sum(sizes(db).values())
    each = used / text if text else 0.0
    for number, one in enumerate(found):
        if used <= target:
            for rest in found[number:]:
                choice.spare(rest.one, "fits")
            return found[:number]
        used -= int(one.bytes * each)
    choice.over = used if used > target else None
    return found


def routed(live: bool) -> Callable[[Moment, Doomed], str | None]:
    """For Removal.spare: a chat may have been routed to a session since it was chosen."""

    def spare(now: Moment, one: Doomed) -> str | None:
        used = not live and any(row in now.use.routes for row in one.rows)
        return "routed" if used else None

    return spare


def planned(db: Database, session_id: str, digest: str) -> Doomed | str:
    """A plan's conversation looked over again: itself, or why it must stay (changed, open)."""
    reader = Reader(db)
    one = reader.conversation(session_id)
    found = sealed(db, doom(db, one, reader.lineage))
    if found.digest != digest:
        return "changed"
    return "open" if one.ended is None else found


@dataclass(frozen=True)
class Auto:
    """What config.yaml says of pruning by itself (section `sessions`)."""

    age: float
    vacuum: bool
    interval: float


def auto(config: dict[str, Any], path: Path) -> Auto | None:
    """None where auto_prune is absent or false. Raises Usage for a setting that makes no sense."""
    if setting(config, "sessions.auto_prune", False) is not True:
        return None

    def number(name: str, default: float) -> float:
        value = setting(config, f"sessions.{name}", default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e6:
            raise Usage(f"{path}: sessions.{name}: {value!r} makes no sense")
        return float(value)

    vacuum = setting(config, "sessions.vacuum_after_prune", True)
    return Auto(
        number("retention_days", 90) * 86400, vacuum is True,
        number("min_interval_hours", 24) * 3600,
    )  # fmt: skip


LAST_AUTO = "last_auto_prune"
LAST_VACUUM = "last_vacuum"


def last(db: Database, key: str) -> float | None:
    """A time in state_meta (Unix seconds as text)."""
    if not db.schema.has("state_meta", "key", "value"):
        return None
    row = db.execute("SELECT value FROM state_meta WHERE key = ?", (key,)).fetchone()
    try:
        return valid(float(row[0])) if row else None
    except (TypeError, ValueError):
        return None


def note(db: Database, key: str, now: float) -> None:
    """Keep a time in state_meta, where the store has it."""
    if db.schema.has("state_meta", "key", "value"):
        with transaction(db):
            db.execute(
                "INSERT INTO state_meta (key, value) VALUES (?, ?) "
                "ON CONFLICT (key) DO UPDATE SET value = excluded.value", (key, str(now))
            )  # fmt: skip
