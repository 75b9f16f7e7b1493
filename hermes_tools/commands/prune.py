"""hermes-session-prune: remove what has had its time"""

from typing import Annotated

from hermes_tools.console import destroying, pruning, targets
from hermes_tools.console.app import entry
from hermes_tools.console.destroying import Append, Export, Files
from hermes_tools.console.options import DryRun, Filters, Live, Output, Writing, Yes, option
from hermes_tools.store.errors import Usage
from hermes_tools.store.removal import Removal
from hermes_tools.store.retention import choose, routed

Plan = Annotated[
    str | None,
    option("--plan", metavar="FILE|-", help="Remove exactly what a --dry-run has written there."),
]
KeepLast = Annotated[
    int,
    option("--keep-last", metavar="N", min=0, show_default=False,
           help="Spare the N newest of each source."),
]  # fmt: skip
UntilSize = Annotated[
    str | None,
    option("--until-size", metavar="SIZE",
           help="The oldest, until what is left fits into this (500M); replaces the age."),
]  # fmt: skip
MaxLock = Annotated[
    int | None,
    option("--max-lock", metavar="MS", min=1,
           help="Leave and name those that would lock the store longer."),
]  # fmt: skip
Auto = Annotated[
    bool, option("--auto", help="As config.yaml says, where it says so; for cron.")
]


def prune(
    filters: Filters, output: Output, store: Writing, plan: Plan = None,
    keep_last: KeepLast = 0, until_size: UntilSize = None, max_lock: MaxLock = None,
    files: Files = False, export: Export = None, append: Append = False, auto: Auto = False,
    yes: Yes = False, dry_run: DryRun = False, live: Live = False,
) -> None:  # fmt: skip
    """Remove ended conversations whose last activity is older than --older-than, by default 90
    days. Pinned, archived and used ones are spared and counted. A dry run is a plan for --plan.
    """
    seconds = max_lock / 1000 if max_lock is not None else None
    if auto:
        if filters.given or plan or keep_last or until_size or dry_run:
            raise Usage("--auto takes what is to go from config.yaml alone")
        pruning.by_config(store, files, export, append, seconds, live)
        return
    destroying.consent(yes or dry_run)
    policy = pruning.policy(filters, keep_last, until_size, live)
    asked = pruning.plan(plan, filters, policy) if plan is not None else None
    removal = Removal(store.place, live, files=files, dry_run=dry_run, spare=routed(live))
    with destroying.opened(store, dry_run) as db:
        choice = choose(db, policy, store.place) if asked is None else pruning.judge(db, asked)
        destroying.agree(store, choice.doomed, yes or dry_run, "prune")
        with destroying.saved(db, choice.doomed, export, append, dry_run) as safe:
            outcomes = destroying.removed(db, safe, removal, max_lock=seconds, quiet=store.quiet)
            told = targets.told(pruning.counted(outcomes, choice), None if asked is None else [])
            output.write(told, targets.lines, store.quiet)
        rule = pruning.words(filters, policy) if asked is None else "as planned"
        pruning.summary(db, choice, rule, store)


main = entry(prune)
