"""hermes-session-handoff: the handoff state of a session"""

import math
import time
from collections.abc import Iterable, Iterator
from typing import Annotated

import typer

from hermes_tools.console import streams, text
from hermes_tools.console.app import group
from hermes_tools.console.options import Changing, Live, Output, Store, option
from hermes_tools.console.status import Status, Terminated
from hermes_tools.console.streams import Record
from hermes_tools.store import handoff, times
from hermes_tools.store.db import Database, transaction
from hermes_tools.store.errors import Busy, Negative, Usage
from hermes_tools.store.handoff import Handoff
from hermes_tools.store.platforms import Platforms
from hermes_tools.store.sessions import Reader, resolve

Session = Annotated[
    str, typer.Argument(metavar="SESSION", help="Session id, title or unique prefix.")
]
Perhaps = Annotated[
    str | None,
    typer.Argument(metavar="[SESSION]", show_default=False,
                   help="Session id, title or unique prefix."),
]  # fmt: skip
PlatformName = Annotated[
    str, typer.Argument(metavar="PLATFORM", help="telegram, discord, slack, email …")
]
Wait = Annotated[
    float,
    option("--wait", metavar="SECONDS", show_default=False,
           help="How long to wait for the end, default 60; 0 returns at once."),
]  # fmt: skip
Stuck = Annotated[
    bool, option("--stuck", help="Also one that is running for more than 15 minutes.")
]
Error = Annotated[
    str, option("--error", metavar="TEXT", help="The reason, at most 500 characters.")
]

POLL = 0.5


def request(
    session: Session, platform: PlatformName, output: Output, store: Changing,
    wait: Wait = 60.0, live: Live = False,
) -> Status:  # fmt: skip
    """Ask that a session goes on at a platform's home channel, and wait until it does.

    A gateway, or hermes-session-deliver, takes it from there. What nobody takes in time is
    withdrawn.
    """
    patience(wait)
    platform = platform.strip().lower()
    with store.write(messages=False) as db:
        name = resolve(db, session)
        Platforms(store.place).require(platform)
        handoff.request(db, name, platform, live=live)
        if wait == 0:
            output.write([record(db, handoff.get(db, name))], told, store.quiet)
            return Status.OK
        try:
            one = awaited(db, name, wait)
        except (KeyboardInterrupt, Terminated):
            handoff.fail(db, name, "cancelled", "pending")
            raise
        if one.state == "pending":
            if handoff.fail(db, name, handoff.WITHDRAWN, "pending"):
                raise Busy(
                    f"session {name}: {handoff.WITHDRAWN} within {wait:g} s; the request is "
                    "withdrawn"
                )
            one = handoff.get(db, name)  # taken at the last moment
        return answer(db, one, output, store)


def list_(output: Output, store: Store, session: Perhaps = None) -> None:
    """List handoffs: their state, its age, and what is stuck."""
    with store.read() as db:
        if session is None:
            found = [record(db, one) for one in handoff.listed(db)]
        else:
            one = handoff.get(db, resolve(db, session))
            if one.state is None:
                raise Negative(f"session {one.session_id}: no handoff was asked for")
            found = [record(db, one)]
    output.write(found, table, store.quiet)


def wait(session: Session, output: Output, store: Store, wait: Wait = 60.0) -> Status:
    """Wait until a session's handoff is completed or has failed."""
    patience(wait)
    with store.read() as db:
        name = resolve(db, session)
        one = awaited(db, name, wait)
        if one.state is None:
            raise Negative(f"session {name}: no handoff was asked for")
        return answer(db, one, output, store)


def cancel(session: Session, output: Output, store: Changing, stuck: Stuck = False) -> None:
    """Withdraw a request that nobody has taken."""
    with store.write(messages=False) as db:
        name = resolve(db, session)
        one = handoff.get(db, name)
        if one.state == "running" and stuck:
            if not one.stuck(time.time()):
                raise Negative(f"session {name}: its handoff is running for less than 15 minutes")
            done = handoff.fail(db, name, "cancelled: stuck", "running")
        else:
            done = handoff.fail(db, name, "cancelled", "pending")
        refuse_unless(done, db, name, "nothing to cancel")
        output.write([record(db, handoff.get(db, name))], told, store.quiet)


def claim(output: Output, store: Changing, session: Perhaps = None) -> None:
    """Take a pending handoff, the oldest if none is named. Of several that try one succeeds."""
    with store.write(messages=False) as db:
        if session is not None:
            names = [resolve(db, session)]
        else:
            names = [one.session_id for one in handoff.listed(db, ("pending",))]
        taken = next((name for name in names if handoff.claim(db, name)), None)
        if taken is None and session is None:
            raise Negative("no handoff is pending")
        refuse_unless(taken is not None, db, names[0] if names else "", "not claimed")
        output.write([record(db, handoff.get(db, taken or ""))], told, store.quiet)


def complete(session: Session, output: Output, store: Changing) -> None:
    """Say that a claimed handoff is done."""
    with store.write(messages=False) as db:
        name = resolve(db, session)
        with transaction(db):
            done = handoff.complete(db, name)
        refuse_unless(done, db, name, "not completed")
        output.write([record(db, handoff.get(db, name))], told, store.quiet)


def fail(session: Session, output: Output, store: Changing, error: Error = "failed") -> None:
    """Say that a claimed handoff did not work; it may be asked for again."""
    with store.write(messages=False) as db:
        name = resolve(db, session)
        refuse_unless(handoff.fail(db, name, error or "failed"), db, name, "not changed")
        output.write([record(db, handoff.get(db, name))], told, store.quiet)


def patience(seconds: float) -> None:
    """Raises Usage where --wait is no time to wait."""
    if not math.isfinite(seconds) or seconds < 0:
        raise Usage(f"--wait {seconds:g}: not a number of seconds")


def awaited(db: Database, session_id: str, seconds: float) -> Handoff:
    """The handoff when it is over, or as it is when the time is up."""
    deadline = time.monotonic() + seconds
    while True:
        one = handoff.get(db, session_id)
        left = deadline - time.monotonic()
        if one.state not in handoff.OPEN or left <= 0:
            return one
        time.sleep(min(POLL, left))


def answer(db: Database, one: Handoff, output: Output, store: Store) -> Status:
    """Report how a wait ended. Raises Negative with the reason of a failure."""
    if one.state == "failed":
        raise Negative(f"session {one.session_id}: the handoff failed: {one.error or 'no reason'}")
    output.write([record(db, one)], told, store.quiet)
    if one.state == "completed":
        return Status.OK
    streams.complain(f"session {one.session_id}: the handoff is still {one.state}")
    return Status.TIMEOUT


def refuse_unless(done: bool, db: Database, session_id: str, what: str) -> None:
    """Raises Negative with the state that stood in the way."""
    if not done:
        state = handoff.get(db, session_id).state or "none"
        raise Negative(f"session {session_id}: {what}; its handoff is {state}")


def record(db: Database, one: Handoff) -> Record:
    """The record of a handoff: hermes-session-jsonl(5), handoff."""
    row = Reader(db).conversation(one.session_id, segment=True, preview=False)
    flag = "stuck" if one.stuck(time.time()) else None
    if one.state == "completed" and row.ended is not None and row.end_reason not in handoff.ENDINGS:
        flag = "closed"
    return {
        "session_id": one.session_id, "title": row.title, "source": row.source,
        "state": one.state, "platform": one.platform, "error": one.error, "since": one.since,
        "when": times.iso(one.since), "exact": one.exact, "flag": flag,
    }  # fmt: skip


def told(records: Iterable[Record]) -> Iterator[str]:
    """A handoff in words."""
    for one in records:
        if one["state"] == "completed":
            yield (
                f"↻ Handoff complete. The session is now active on {text.line(one['platform'])}."
            )
            yield f"To go on here later: hermes --resume {one['session_id']}"
        else:
            reason = f": {text.line(one['error'])}" if one["error"] else ""
            yield f"{one['session_id']}: {one['state']} ({text.line(one['platform'])}){reason}"


def table(records: Iterable[Record]) -> Iterator[str]:
    """State, Platform, Age, Title, Note, ID."""
    notes = {"stuck": "stuck", "closed": "closed by the side it came from"}
    rows = [
        (one["state"], one["platform"] or "—",
         ("" if one["exact"] or one["since"] is None else "≤ ") + text.ago(one["since"]),
         one["title"] or "—", notes.get(one["flag"]) or one["error"] or "", one["session_id"])
        for one in records
    ]  # fmt: skip
    yield from text.table(
        rows, ("State", "Platform", "Age", "Title", "Note", "ID"), fixed=(0, 1, 2, 5)
    )


main = group(request, list_, wait, cancel, claim, complete, fail)
