"""hermes-session-delete: remove conversations"""

from typing import Annotated

from hermes_tools.console import destroying, streams, targets
from hermes_tools.console.app import entry
from hermes_tools.console.destroying import Append, Export, Files
from hermes_tools.console.options import DryRun, Ids, Live, Output, Writing, Yes, option
from hermes_tools.store.errors import Usage
from hermes_tools.store.removal import Removal

Segment = Annotated[
    bool, option("--segment", help="Only the row that is named, not its whole conversation.")
]
MessagesOnly = Annotated[
    bool, option("--messages-only", help="Remove the messages and keep the session.")
]
Erase = Annotated[
    bool, option("--erase", help="Leave no trace in the store's file; needs the store alone.")
]
MissingOk = Annotated[
    bool, option("--missing-ok", help="A session that is not there is no failure.")
]


def delete(
    output: Output, store: Writing, ids: Ids = None,
    segment: Segment = False, messages_only: MessagesOnly = False, files: Files = False,
    export: Export = None, append: Append = False, erase: Erase = False,
    yes: Yes = False, dry_run: DryRun = False, live: Live = False, missing_ok: MissingOk = False,
) -> None:  # fmt: skip
    """Remove whole conversations: their messages, delegates and all that belongs to them. Branches
    stay, detached. Sessions are named by id, or by at least 8 characters of one.
    """
    destroying.consent(yes or dry_run)
    if erase and (segment or messages_only):
        raise Usage("--erase is for whole conversations")
    named = streams.names(ids)
    removal = Removal(store.place, live, messages_only, files, dry_run)
    remove = destroying.erased if erase and not dry_run else destroying.removed
    with destroying.opened(store, dry_run, erase) as db:
        found = targets.targets(db, named, titles=False, segment=segment, missing_ok=missing_ok)
        doomed = destroying.doomed(db, found, segment)
        destroying.agree(store, doomed, yes or dry_run, "clear" if messages_only else "delete")
        with destroying.saved(db, doomed, export, append, dry_run) as safe:
            outcomes = targets.told(remove(db, safe, removal), named)
            output.write(outcomes, targets.lines, store.quiet)


main = entry(delete)
