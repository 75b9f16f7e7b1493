"""hermes-session-reset: apply the reset policy to gateway sessions"""

import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Annotated

from hermes_tools.console import shell, streams, text
from hermes_tools.console.app import entry
from hermes_tools.console.options import Changing, DryRun, Live, Output, Store, Yes, confirm, option
from hermes_tools.console.shell import CmdTimeout
from hermes_tools.console.streams import Record
from hermes_tools.store import home, inuse, resets
from hermes_tools.store.errors import Failed, Usage
from hermes_tools.store.resets import Found, Policies

BeforeReset = Annotated[
    str | None,
    option("--before-reset", metavar="CMD",
           help="Run for each session first, its record on standard input; a failure spares it."),
]  # fmt: skip
Mode = Annotated[
    str | None,
    option("--mode", metavar="none|idle|daily|both", help="In place of all configured policies."),
]
AtHour = Annotated[
    int | None, option("--at-hour", metavar="HOUR", help="The hour of --mode daily, default 4.")
]
IdleMinutes = Annotated[
    int | None,
    option("--idle-minutes", metavar="N", help="The minutes of --mode idle, default 1440."),
]


def reset(
    output: Output, store: Changing, before_reset: BeforeReset = None,
    cmd_timeout: CmdTimeout = 120.0, mode: Mode = None, at_hour: AtHour = None,
    idle_minutes: IdleMinutes = None,
    dry_run: DryRun = False, yes: Yes = False, live: Live = False,
) -> None:  # fmt: skip
    """End the gateway sessions that are past their time, and unbind their chats.

    The next message in such a chat begins a new session. See what would happen with --dry-run
    first.
    """
    place, now = store.place, time.time()
    rules = policies(store, mode, at_hour, idle_minutes)
    if rules.never:
        store.say("no reset policy is configured")
    with store.change(dry_run=True, messages=False) as db:
        if not live:
            inuse.require_no_gateway(place, db)
        found = list(resets.find(db, place, rules, now, live=live))
    if dry_run:
        output.write([record(one, "would_", now) for one in found], table, store.quiet)
        return
    number = sum(one.skip is None for one in found)
    if number or not (sys.stdin and sys.stdin.isatty()):
        confirm(f"reset {text.count(number, 'session')} of {place}", yes)
    if not number:
        output.write([record(one) for one in found], table, store.quiet)
        return
    surroundings = {"HERMES_HOME": str(place)}
    words = {**inuse.REASONS, **resets.REASONS}
    with store.write(messages=False) as db:

        def act() -> Iterator[Record]:
            for one in found:
                if one.skip is None and before_reset is not None:
                    try:
                        shell.call(before_reset, record(one), cmd_timeout, surroundings)
                    except Failed as error:
                        streams.warn(f"{one.entry.key}: left alone: {error}")
                        one.skip = "command"
                if one.skip is None:
                    if not live:
                        inuse.require_no_gateway(place, db)
                    one.skip = resets.apply(db, place, one, now, live=live)
                    if one.skip is not None:
                        streams.warn(f"{one.entry.key}: left alone: {words[one.skip]}")
                yield record(one, now=now)

        output.write(act(), table, store.quiet)


def policies(
    store: Store, mode: str | None, at_hour: int | None, idle_minutes: int | None
) -> Policies:
    """The configured policies, or the one that the options name. Raises Usage."""
    if mode is None:
        if at_hour is not None or idle_minutes is not None:
            raise Usage("--at-hour and --idle-minutes go with --mode")
        return resets.policies(
            store.place, home.config(store.place), home.environment(store.place)
        )
    given = {"mode": mode, "at_hour": at_hour, "idle_minutes": idle_minutes}
    return replace(Policies(), default=resets.policy(given, "--mode"))


def record(one: Found, would: str = "", now: float | None = None) -> Record:
    """The record of a reset: a session's, with its route and what was done. With `now` it shows
    the session as it is after that.
    """
    base: Record = one.conversation.record() if one.conversation else {"session_id": one.session_id}
    if now is not None and one.skip is None and one.action == "reset":
        base.update(ended_at=now, end_reason=one.reason)
    done = {"reset": "reset", "unbind": "unbound"}[one.action]
    action = f"would_{one.action}" if would else done
    return {
        **base, "session_key": one.entry.key, "updated_at": one.entry.data.get("updated_at"),
        "policy": one.policy.mode, "state": one.state,
        "action": "skipped" if one.skip else action, "reason": one.skip or one.reason,
    }  # fmt: skip


def table(records: Iterable[Record]) -> Iterator[str]:
    """Action, Reason, Last Active, Key, Title, ID."""
    rows = [
        (one["action"].replace("_", " "), one["reason"], text.ago(one.get("last_active")),
         one["session_key"], one.get("title") or "—", one["session_id"] or "—")
        for one in records
    ]  # fmt: skip
    if rows:
        heads = ("Action", "Reason", "Last Active", "Key", "Title", "ID")
        yield from text.table(rows, heads, fixed=(0, 1, 2, 3, 5))


main = entry(reset)
