"""hermes-session-archive: hide conversations, or bring them back"""

from typing import Annotated

from hermes_tools.console import targets
from hermes_tools.console.app import entry
from hermes_tools.console.options import Changing, DryRun, Filters, Ids, Live, Output, option
from hermes_tools.store.batches import Moment, Outcome, act_on
from hermes_tools.store.lifecycle import archive as hide
from hermes_tools.store.lifecycle import require_archive
from hermes_tools.store.sessions import Conversation

Undo = Annotated[bool, option("--undo", help="Bring archived conversations back.")]


def archive(
    filters: Filters, output: Output, store: Changing,
    ids: Ids = None, undo: Undo = False, dry_run: DryRun = False, live: Live = False,
) -> None:  # fmt: skip
    """Hide whole conversations from lists, or bring them back. Nothing is lost: titles and
    messages stay, and search and export can still reach them.
    """
    named = targets.names(ids, filters)
    default = filters.selection(archived="only" if undo else "no")
    verb = "unarchive" if undo else "archive"

    def change(now: Moment, one: Conversation) -> Outcome:
        rows = now.reader.lineage.members(one.id)
        if not hide(now.reader.db, rows, undo=undo, dry_run=dry_run):
            return Outcome(one, "unchanged")
        one.archived = not undo
        return Outcome(one, f"would_{verb}" if dry_run else f"{verb}d")

    with store.change(dry_run, messages=False) as db:
        require_archive(db)
        found = [target.one for target in targets.targets(db, named, filters, default)]
        done = act_on(db, found, change, home=store.place, live=live, dry_run=dry_run)
        output.write(targets.told(done, named, "left alone"), targets.lines, store.quiet)


main = entry(archive)
