"""hermes-session-import: bring exports and transcripts into a store"""

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Annotated, Literal

import typer

from hermes_tools.console import inputs, streams, text
from hermes_tools.console.app import entry
from hermes_tools.console.options import DryRun, Live, Output, Store, Yes, confirm, option
from hermes_tools.console.status import Status
from hermes_tools.console.streams import Record
from hermes_tools.store import foreign, inuse
from hermes_tools.store.db import Database
from hermes_tools.store.errors import Damaged, Missing, Usage
from hermes_tools.store.importing import Import, Options
from hermes_tools.store.migration import create as create_store
from hermes_tools.store.rehearsal import rehearsal
from hermes_tools.store.reports import report, trees
from hermes_tools.store.sessions import Reader
from hermes_tools.store.staging import Staging


def import_(
    store: Store,
    output: Output,
    files: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[FILE|DIR]...", show_default=False,
            help="Exports, transcripts, logs, or folders of them; - or none: standard input.",
        ),
    ] = None,
    on_conflict: Annotated[
        Literal["update", "skip", "replace", "new-id", "fail"],
        option("--on-conflict", metavar="update|skip|replace|new-id|fail",
               help="What to do with a session that is in the store already, default update: "
               "apply what contains all that is stored, leave what diverged.",
               show_default=False),
    ] = "update",
    create: Annotated[bool, option("--create", help="Make the store if there is none.")] = False,
    exact: Annotated[
        bool, option("--exact", help="Keep every cell and id as it is; for an empty store.")
    ] = False,
    mirror: Annotated[
        bool, option("--mirror", help="Follow the origin: rewritten and deleted sessions too.")
    ] = False,
    keep_going: Annotated[
        bool, option("--keep-going", help="Leave out malformed lines; they are named, status 1.")
    ] = False,
    stream: Annotated[
        bool, option("--stream", help="Import each record as it arrives, not all at the end.")
    ] = False,
    newer_schema: Annotated[
        bool, option("--newer-schema", help="Write to a store with triggers we do not know.")
    ] = False,
    dry_run: DryRun = False,
    live: Live = False,
    yes: Yes = False,
) -> Status | None:  # fmt: skip
    """Bring sessions into a store: exports of this toolkit and of the agent, its old transcripts,
    and logs of other agents. All input is checked first; nothing is imported if a line is bad.
    """
    if exact and (mirror or on_conflict not in ("update", "fail")):
        raise Usage("--exact is for an empty store; it does not go with other ways of merging")
    if on_conflict == "replace" and not dry_run:
        confirm("sessions in the store may be replaced by those in the file", yes)
    options = Options(on_conflict, exact, mirror)
    sources = inputs.named(files)
    if not store.path.exists() and not create:
        raise Missing(f"{store.path}: no store there; --create makes one")
    with ExitStack() as stack:
        failed = False
        for staging in staged(sources, keep_going, stream):
            with staging:
                found = run(store, staging, options, create, dry_run, live, newer_schema)
                failed |= finish(found, output, store)
        del stack
    return Status.NEGATIVE if failed else None


def staged(
    sources: Iterator[tuple[str, Iterator[bytes]]], keep_going: bool, each: bool
) -> Iterator[Staging]:
    """All input in one staging database; with `each` one for every record."""
    staging = Staging()
    for name, blocks in sources:
        bad = 0
        for item in foreign.records(blocks, name):
            if item.line == bad:
                continue
            try:
                complete = staging.add(item, f"{name}, line {item.line}")
            except Damaged as error:
                if not keep_going:
                    with staging:
                        raise
                streams.warn(str(error))
                staging.drop()
                bad = item.line
                continue
            if complete and each:
                staging.finish()
                yield staging
                staging = Staging()
    staging.finish()
    yield staging


def run(
    store: Store, staging: Staging, options: Options, create: bool, dry_run: bool, live: bool,
    newer_schema: bool,
) -> Iterator[Record]:  # fmt: skip
    """One record a conversation, after its transaction."""
    with ExitStack() as stack:
        new = not store.path.exists()
        if dry_run:
            origin = None if new else stack.enter_context(store.read())
            db = stack.enter_context(rehearsal(origin, staging))
        else:
            if new and create:
                create_store(store.path)
                stack.push(lambda kind, *_: unmake(store.path) if kind else None)
            db = stack.enter_context(store.write(newer_schema=newer_schema))
        if not live and not new:
            options = Options(
                options.on_conflict, options.exact, options.mirror, in_use=guard(db, store.place)
            )
        for outcomes in trees(Import(db, staging, options).run()):
            for record in report(db, outcomes):
                yield would(record) if dry_run else record


def unmake(path: Path) -> None:
    """A store made for an import that failed leaves nothing."""
    for name in (path, Path(f"{path}-wal"), Path(f"{path}-shm")):
        with suppress(OSError):
            name.unlink()
