"""Many small changes beside a living agent: short transactions, and pauses in which others get
their turn.
"""

import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from hermes_tools.store import inuse
from hermes_tools.store.db import Database, is_wal, transaction
from hermes_tools.store.sessions import Conversation, Reader

# How long a transaction of ours should hold the lock, where its parts allow that.
HOLD = 0.060
# A client that waits for the lock asks again in steps that grow with its waiting (SQLite's own
# handler: seconds, one after the other, the last one for ever; the agent's jitter after that is
# 20–150 ms). A pause must be longer than the step that follows on our lock, or it is missed.
STEPS = (0.001, 0.002, 0.005, 0.010, 0.015, 0.020, 0.025, 0.025, 0.025, 0.050, 0.050, 0.100)
MARGIN = 0.005
SHORTEST = 0.030  # even after a short lock: who waits may have waited for several

# Whoever ends us waits from a commit until what it did is told.
STOPPING = {signal.SIGTERM, signal.SIGINT}

Item = TypeVar("Item")


def pause_after(held: float) -> float:
    """Seconds in which whoever has waited for a lock of `held` seconds asks again at least once."""
    waited = 0.0
    for step in STEPS:
        waited += step
        if waited > held:
            return max(SHORTEST, step + MARGIN)
    return STEPS[-1] + MARGIN


class Moment(NamedTuple):
    """What is true inside one transaction: what is in use, and the sessions as they are now."""

    use: inuse.Use
    reader: Reader


def moment(db: Database, home: Path | None) -> Moment:
    """The present, to be asked again in every transaction that acts."""
    return Moment(inuse.look(db, home), Reader(db))


@dataclass(repr=False, eq=False)
class Outcome:
    """What was done with a conversation (`action`), or why not (`reason`); `more` goes into its
    record.
    """

    one: Conversation
    action: str
    reason: str | None = None
    more: dict[str, Any] = field(default_factory=dict)

    def record(self) -> dict[str, Any]:
        """The session record with what became of it."""
        why = {} if self.reason is None else {"reason": self.reason}
        return {**self.one.record(), **self.more, "action": self.action, **why}


def batches(
    db: Database, items: Sequence[Item], act: Callable[[Moment, Item], Outcome],
    home: Path | None, *, cost: Callable[[Item], float] = lambda item: 1.0, speed: float = 0.005,
    prepare: Callable[[Item], Item] = lambda item: item, max_lock: float | None = None,
    left: Callable[[Item], Outcome] | None = None, hold: float = HOLD,
) -> Iterator[Outcome]:  # fmt: skip
    """act(moment, item) for every item, in transactions of about `hold` seconds. What one did is
    given out after its commit; interrupted, the transaction at work leaves no trace.

    cost: what an item weighs, and `speed` the seconds for a unit of it, a guess that is corrected
    on the way. prepare: work on an item before its lock is taken. An item expected to need more
    than `max_lock` seconds is not acted on, `left` says what is told of it instead.
    """
    at, turn = 0, 0.0  # turn: until then it is the others'
    # Pages are written back between our transactions, not inside the lock of one.
    kept = db.execute("PRAGMA wal_autocheckpoint").fetchone()[0]
    db.execute("PRAGMA wal_autocheckpoint = 0").fetchone()
    wal = is_wal(db)
    try:
        while at < len(items):
            weight = cost(items[at])
            if max_lock is not None and left is not None and weight * speed > max_lock:
                yield left(items[at])
                at += 1
                continue
            end = at + 1
            while end < len(items) and (weight + cost(items[end])) * speed <= hold:
                weight += cost(items[end])
                end += 1
            batch = [prepare(item) for item in items[at:end]]
            at = end
            time.sleep(max(0.0, turn - time.monotonic()))
            held = None
            try:
                with transaction(db):
                    started = time.monotonic()
                    now = moment(db, home)
                    done = [act(now, item) for item in batch]
                    held = signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)
                freed = time.monotonic()
                turn = freed + pause_after(freed - started)
                if wal:  # at once, lest the next writer find so many pages that it does it itself
                    db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
                if weight:
                    speed = (speed + (freed - started) / weight) / 2
                yield from done
            finally:
                if held is not None:
                    signal.pthread_sigmask(signal.SIG_SETMASK, held)
    finally:
        db.execute(f"PRAGMA wal_autocheckpoint = {kept}").fetchone()


def act_on(
    db: Database, found: Sequence[Conversation], change: Callable[[Moment, Conversation], Outcome],
    *, home: Path | None, live: bool, dry_run: bool,
) -> Iterator[Outcome]:  # fmt: skip
    """A change of each conversation that is not in use, or with `live` of all. A dry run asks
    `change` outside of any transaction; it must not write then.
    """

    def act(now: Moment, one: Conversation) -> Outcome:
        rows = now.reader.lineage.members(one.id)
        reason = None if live else now.use.reason(db, rows, one.last_active)
        return change(now, one) if reason is None else Outcome(one, "skipped", reason)

    if dry_run:
        now = moment(db, home)
        yield from (act(now, one) for one in found)
    else:
        yield from batches(db, found, act, home)
