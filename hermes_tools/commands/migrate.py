"""hermes-session-migrate: create a store, or bring an old one to version 11"""

from collections.abc import Iterable, Iterator
from typing import Annotated

from hermes_tools.console import streams, text
from hermes_tools.console.app import entry
from hermes_tools.console.options import DryRun, Output, Store, option
from hermes_tools.console.progress import bar
from hermes_tools.console.streams import Record
from hermes_tools.store import backup, migration
from hermes_tools.store.db import Database
from hermes_tools.store.inuse import alone, require_no_gateway
from hermes_tools.store.schema import require_store

Create = Annotated[bool, option("--create", help="Make a new, empty store where there is none.")]
NoBackup = Annotated[
    bool, option("--no-backup", help="Do not copy the store before it is changed.")
]


def migrate(
    output: Output, store: Store, create: Create = False, dry_run: DryRun = False,
    no_backup: NoBackup = False,
) -> None:
    """Bring a store of version 1 to 10 to version 11, or create one. A store of a later release
    is left as it is. What is lacking is found by looking at its tables, a verified copy is made
    first, and everything is done in one transaction.
    """  # fmt: skip
    if create and not store.path.exists():
        if not dry_run:
            migration.create(store.path)
        made = migration.Change(migration.VERSION, "store", f"{store.path} is made, empty")
        show([made], "would_change" if dry_run else "changed", output, store)
        return
    if dry_run:
        with store.read() as db:
            show(changes(db, store), "would_change", output, store)
        return
    with store.read() as db:  # what needs nothing needs no lock
        require_no_gateway(store.place, db)
        if not changes(db, store):
            return
    with alone(store.path, "migrating") as db:
        require_store(db)
        found = changes(db, store, say=False)
        if not no_backup:
            streams.complain(f"the store as it was: {backup.set_aside(db, 'migrate')}")
        rows = sum(one.rows for one in found)
        with bar("indexing", rows, "messages", store.quiet) as advance:
            migration.migrate(db, found, advance)
    show(found, "changed", output, store)


def changes(db: Database, store: Store, say: bool = True) -> list[migration.Change]:
    """What a store lacks; nothing, and a word why, for one of a later release."""
    reason = migration.later(db)
    if reason is None:
        found = migration.plan(db)
        if say and not found:
            store.say(f"the store is at version {migration.VERSION}")
        return found
    if say:
        streams.complain(f"{db.path}: left as it is: {reason}, of a later release of the agent, "
                         "which brings its stores up to date itself")  # fmt: skip
    return []


def show(found: list[migration.Change], action: str, output: Output, store: Store) -> None:
    """One record a change."""
    output.write((one.record(action) for one in found), lines, store.quiet)


def lines(records: Iterable[Record]) -> Iterator[str]:
    """`version 3  sessions.title is added`."""
    for one in records:
        yield f"version {one['version']:<2}  {text.line(one['object'])} {text.line(one['detail'])}"


main = entry(migrate)
