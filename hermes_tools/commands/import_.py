"""hermes-session-import: bring exports and transcripts into a store"""

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from typing import Annotated, Literal

import typer

from hermes_tools.console import inputs, streams, text
from hermes_tools.console.app import entry
from hermes_tools.console.options import DryRun, Live, Output, Writing, Yes, confirm, option
from hermes_tools.console.progress import bar
from hermes_tools.console.status import Status
from hermes_tools.console.streams import Record
from hermes_tools.store.db import Database
from hermes_tools.store.errors import Missing, Usage
from hermes_tools.store.importing import LEFT, Import, Options
from hermes_tools.store.migration import create as create_store
from hermes_tools.store.rehearsal import rehearsal
from hermes_tools.store.reports import WOULD, report, trees
from hermes_tools.store.staging import Staging
from hermes_tools.store.transfer import Source, remove_store, staged

SAID = {
    "title_was": "(was titled {})", "id_was": "(was {})", "detached_from": "(no parent {} here)",
    "reset": "(reset: {})", "left_out": "(left out: {})", "times": "(times invented: {})",
}  # fmt: skip


def import_(
    store: Writing,
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
    dry_run: DryRun = False,
    live: Live = False,
    yes: Yes = False,
) -> Status | None:  # fmt: skip
    """Bring sessions into a store: exports of this toolkit and of the agent, its old transcripts,
    and logs of other agents. All input is checked first; nothing is imported if a line is bad.
    """
    if exact and (mirror or on_conflict not in ("update", "fail")):
        raise Usage("--exact is for an empty store; it does not go with other ways of merging")
    sources = inputs.named(files)
    if not store.path.exists() and not create:
        raise Missing(f"{store.path}: no store there; --create makes one")
    if on_conflict == "replace" and not dry_run:
        confirm("sessions in the store may be replaced by those in the file", yes)
    options = Options(on_conflict, exact, mirror, live=live, home=store.place)
    failed = False

    def records() -> Iterator[Record]:
        nonlocal failed
        # Where records go by on the terminal they show what is done.
        quiet = store.quiet or stream or text.on_terminal()
        for staging in read(sources, keep_going, stream, store.quiet):
            new = not store.path.exists()
            with (
                opened(store, staging, dry_run) as db,
                bar("importing", None, "sessions", quiet) as advance,
            ):
                how = replace(options, alone=new)  # nobody waits for a store that was not there
                for outcomes in trees(Import(db, staging, how).run(advance)):
                    for record in report(db, outcomes):
                        failed |= record["action"] in LEFT
                        yield {**record, "action": WOULD[record["action"]]} if dry_run else record
                        if stream:
                            streams.flush()

    output.write(records(), lines, store.quiet)
    return Status.NEGATIVE if failed else None


def read(
    sources: Iterable[Source], keep_going: bool, stream: bool, quiet: bool
) -> Iterator[Staging]:
    """All input, checked; or with `stream` each record as it comes."""
    on_bad = streams.warn if keep_going else None
    if stream:
        yield from staged(sources, on_bad=on_bad, each=True)
        return
    with bar("reading", None, "MB", quiet) as advance:
        found = staged(inputs.metered(sources, advance), on_bad=on_bad)
        staging = next(found)
    with closing(found):
        yield staging


@contextmanager
def opened(store: Writing, staging: Staging, dry_run: bool) -> Iterator[Database]:
    """The store to import into: a copy for a dry run; a new one, which vanishes if the import
    fails; or the one that is there.
    """
    new = not store.path.exists()
    if dry_run:
        with ExitStack() as stack:
            origin = None if new else stack.enter_context(store.change(dry_run))
            yield stack.enter_context(rehearsal(origin, staging))
        return
    if new:
        create_store(store.path)
    try:
        with store.write() as db:
            yield db
    except BaseException:
        if new:
            remove_store(store.path)
        raise


def lines(records: Iterable[Record]) -> Iterator[str]:
    """`imported  20260226_150000_00cc33  garden plan #3  (12 messages)` for a person."""
    for one in records:
        words = [one["action"].replace("_", " "), one["session_id"]]
        words.append(text.line(one["title"] or one["preview"] or "—"))
        if one["messages"]:
            words.append(f"({one['messages']} messages)")
        if one["reason"]:
            words.append(text.line(one["reason"]))
        for name, said in SAID.items():
            if one.get(name):
                words.append(said.format(text.line(str(one[name]))))
        yield "  ".join(words)


main = entry(import_)
