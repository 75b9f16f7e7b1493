"""What prune says and asks beside its work: policies from options, plans, config, the summary."""

import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from hermes_tools.console import destroying, options, streams, text
from hermes_tools.console.options import Filters, Store
from hermes_tools.console.streams import Record
from hermes_tools.store import retention, space
from hermes_tools.store.batches import Outcome
from hermes_tools.store.db import Database
from hermes_tools.store.errors import Busy, Damaged, Usage
from hermes_tools.store.home import config
from hermes_tools.store.removal import Removal
from hermes_tools.store.retention import Choice, Policy

FREE_SHARE = 0.25  # of the pages; below it a VACUUM by itself is not worth the writing
VACUUM_EVERY = 30 * 86400.0


def policy(filters: Filters, keep_last: int, until_size: str | None, live: bool) -> Policy:
    """The policy of the options. Raises Usage."""
    chosen = filters.selection()
    if filters.open:
        raise Usage(
            "prune takes only what has ended; hermes-session-end --open --older-than AGE "
            "ends what nobody has touched"
        )
    return Policy(
        selection=replace(
            chosen, older_than=None, older_by_source={}, ended=None,
            archived="any", pinned="any",
        ),
        age=chosen.older_than, by_source=chosen.older_by_source,
        archived=filters.archived or "no", pinned=filters.pinned or "no",
        keep_last=keep_last,
        until_size=None if until_size is None else options.size(until_size), live=live,
    )  # fmt: skip


def plan(source: str, filters: Filters, rule: Policy) -> list[Record]:
    """The records of a plan that are to go. Raises Usage and Damaged."""
    if filters.given or rule.keep_last or rule.until_size is not None:
        raise Usage("--plan says itself what is to go")
    if source == "-":
        records = list(streams.records())
    else:
        with open(source, "rb") as file:
            records = list(streams.records(file, source))
    found = [one for one in records if one.get("action") == "would_delete"]
    for one in found:
        if not isinstance(one.get("session_id"), str) or not isinstance(one.get("digest"), str):
            raise Damaged(f"{source}: a record without session_id and digest is no plan")
    return found


def judge(db: Database, asked: list[Record]) -> Choice:
    """A plan's conversations as they are now. One that is not what it was is left alone, and that
    is a failure: the plan is not carried out as it stands. One that is gone is done already.
    """
    choice, gone = Choice(), len(asked)
    for record in asked:
        named = [streams.Named(record["session_id"], True, record)]
        for name, _ in options.chosen(db, named, missing_ok=True):
            gone -= 1
            found = retention.planned(db, name, record["digest"])
            if isinstance(found, str):
                streams.warn(f"session {name}: left alone: {retention.SPARED[found]}")
                choice.spared[found] += 1
            else:
                choice.doomed.append(found)
    if gone:
        streams.complain(f"{text.count(gone, 'conversation')} of the plan already gone")
    return choice


def counted(outcomes: Iterable[Outcome], choice: Choice) -> Iterator[Outcome]:
    """The same outcomes, what was skipped counted with what is spared."""
    for outcome in outcomes:
        if outcome.action == "skipped" and outcome.reason:
            choice.spared[outcome.reason] += 1
        else:
            choice.gone.append(outcome)
        yield outcome


def words(filters: Filters, policy: Policy) -> str:
    """The rule in force in words: `ended, older than 90d (default), source cron`."""
    typed = filters.older_than or []
    parts = ["ended"]
    if policy.until_size is not None:
        parts.append(f"until the rest fits into {text.amount(policy.until_size)}")
    parts += [
        f"{word.rpartition('=')[0]} older than {word.rpartition('=')[2]}".strip() for word in typed
    ]
    if not typed and policy.until_size is None:
        parts.append("older than 90d (default)")
    for name, value in vars(filters).items():
        if name in ("older_than", "ended", "open") or value in (None, False, []):
            continue
        label = name.replace("_", " ")
        parts += [f"{label} {one}" for one in (value if isinstance(value, list) else [value])]
    if policy.keep_last:
        parts.append(f"but the last {policy.keep_last} of each source")
    return ", ".join(parts)


def summary(db: Database, choice: Choice, rule: str, store: Store) -> None:
    """What the rule was, how many it took and when they were last active, what it spared and
    why, and how to get the space back.
    """
    if store.quiet:
        return
    gone = choice.gone
    line = f"{rule}: {len(gone):,}"
    times = [one.one.last_active for one in gone if one.one.last_active is not None]
    if gone:
        messages = sum(one.more.get("messages", 0) for one in gone)
        size = sum(one.more.get("bytes", 0) for one in gone)
        line += " would go" if gone[0].action == "would_delete" else " removed"
        line += f" ({text.count(messages, 'message')}, {text.amount(size)} of text"
        if times:
            first, last = text.local(min(times)), text.local(max(times))
            line += f", last active {first}" + (f" to {last}" if last != first else "")
        line += ")"
    spared = [f"{count:,} {retention.SPARED[why]}" for why, count in in_order(choice)]
    streams.complain("; ".join([line, ", ".join(spared)] if spared else [line]))
    if choice.over is not None:
        streams.complain(
            f"what is spared still takes about {text.amount(choice.over)}, more than was asked for"
        )
    for name, why in choice.left:
        store.say(f"session {name}: {retention.SPARED[why]}")
    free = space.reclaimable(db)
    if any(one.action == "deleted" for one in gone) and free:
        streams.complain(
            f"{text.amount(free)} of the file are free for new rows; "
            "hermes-session-optimize --vacuum gives them back to the disk"
        )


def in_order(choice: Choice) -> list[tuple[str, int]]:
    """(reason, count) of what was spared, in the order of the table of reasons."""
    return [(why, choice.spared[why]) for why in retention.SPARED if choice.spared[why]]


def by_config(
    store: Store, files: bool, export: Path | None, append: bool, max_lock: float | None,
    live: bool,
) -> None:  # fmt: skip
    """Prune as config.yaml says, if it does and the last time is long enough ago. Quiet."""
    rule = retention.auto(config(store.place), store.place / "config.yaml")
    if rule is None:
        store.say("sessions.auto_prune is not on: nothing to do")
        return
    now = time.time()
    with store.write() as db:
        last = retention.last(db, retention.LAST_AUTO)
        if last is not None and 0 <= now - last < rule.interval:
            store.say(f"last done {text.ago(last, now)}: nothing to do yet")
            return
        choice = retention.choose(db, Policy(age=rule.age, live=live), store.place, now)
        removal = Removal(store.place, live, files=files, spare=retention.routed(live))
        with destroying.saved(db, choice.doomed, export, append, False) as safe:
            outcomes = destroying.removed(db, safe, removal, max_lock=max_lock, quiet=True)
            for _ in counted(outcomes, choice):
                pass
        retention.note(db, retention.LAST_AUTO, now)
        store.say(f"{len(choice.gone):,} removed")
        _, count, free = space.pages(db)
        vacuumed = retention.last(db, retention.LAST_VACUUM)
    due = vacuumed is None or not 0 <= now - vacuumed < VACUUM_EVERY
    if rule.vacuum and choice.gone and due and free > count * FREE_SHARE:
        try:
            with space.alone(store.path) as db:
                space.vacuum(db)
                retention.note(db, retention.LAST_VACUUM, now)
        except Busy as error:
            store.say(str(error))  # the agent is at work; there will be another night
