"""hermes-session-end: end conversations, or reopen them"""

import time
from dataclasses import replace
from typing import Annotated

from hermes_tools.console import targets
from hermes_tools.console.app import entry
from hermes_tools.console.options import Changing, DryRun, Filters, Ids, Live, Output, option
from hermes_tools.store import lifecycle
from hermes_tools.store.batches import Moment, Outcome, act_on
from hermes_tools.store.errors import Usage
from hermes_tools.store.sessions import Conversation

Reason = Annotated[
    str | None, option("--reason", help="The end reason, default closed.", metavar="R")
]
Reopen = Annotated[bool, option("--reopen", help="Clear time and reason of the end instead.")]


def end(
    filters: Filters, output: Output, store: Changing, ids: Ids = None,
    reason: Reason = None, reopen: Reopen = False, dry_run: DryRun = False, live: Live = False,
) -> None:  # fmt: skip
    """End conversations, with their delegates. One that has ended keeps its time and reason.

    With --open --older-than AGE it closes what nobody has touched, so that
    hermes-session-prune can reach it.
    """
    if reopen and reason is not None:
        raise Usage("--reason does not go with --reopen")
    why = lifecycle.check_reason(reason if reason is not None else lifecycle.CLOSED)
    named = targets.names(ids, filters)
    at = time.time()

    def change(now: Moment, one: Conversation) -> Outcome:
        if reopen:
            if one.ended_at is None and one.end_reason is None:
                return Outcome(one, "unchanged")
            if not dry_run:
                lifecycle.reopen(now.reader.db, one.id)
            one.ended_at = one.end_reason = None
            return Outcome(one, "would_reopen" if dry_run else "reopened")
        if lifecycle.handed_off(now.reader.db, one.id):
            return Outcome(one, "skipped", "handed_off")
        rows = now.reader.lineage.members(one.id)
        if not lifecycle.end(now.reader.db, rows, why, at, dry_run=dry_run):
            return Outcome(one, "unchanged")
        if one.ended_at is None:  # the time is told once it is true
            one.ended_at, one.end_reason = None if dry_run else at, one.end_reason or why
        return Outcome(one, "would_end" if dry_run else "ended")

    with store.change(dry_run, messages=False) as db:
        default = filters.selection(archived="no")
        if default.ended is None:
            default = replace(default, ended=reopen)
        found = [target.one for target in targets.targets(db, named, filters, default)]
        done = act_on(db, found, change, home=store.place, live=live, dry_run=dry_run)
        output.write(targets.told(done, named, "left alone"), targets.lines, store.quiet)


main = entry(end)
