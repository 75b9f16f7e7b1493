"""hermes-session-repair: mend what hermes-session-check found"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated

import typer

from hermes_tools.console import streams, text
from hermes_tools.console.app import entry
from hermes_tools.console.options import DryRun, Live, Output, Store, Yes, confirm, option
from hermes_tools.console.progress import bar
from hermes_tools.console.status import Status
from hermes_tools.console.streams import Record
from hermes_tools.store import backup
from hermes_tools.store import repair as mending
from hermes_tools.store import salvage as rescue
from hermes_tools.store.errors import Damaged, Missing, Usage
from hermes_tools.store.inuse import require_no_gateway

Faults = Annotated[
    str | None,
    typer.Argument(metavar="[-]", show_default=False,
                   help="- reads the faults to mend from standard input."),
]  # fmt: skip
Index = Annotated[bool, option("--index", help="Make damaged indexes anew from the messages.")]
Counters = Annotated[bool, option("--counters", help="Set counters to what the rows say.")]
Orphans = Annotated[
    bool,
    option("--orphans", help="Delete rows of sessions that are gone, clear links to lost parents."),
]
Salvage = Annotated[
    bool, option("--salvage", help="Carry over what can be read into a new store, see -o.")
]
Out = Annotated[
    Path | None, option("-o", "--output", metavar="NEW", help="The new store of --salvage.")
]
NoBackup = Annotated[
    bool, option("--no-backup", help="Do not copy the store before it is changed.")
]


def repair(
    output: Output, store: Store, faults: Faults = None, index: Index = False,
    counters: Counters = False, orphans: Orphans = False, salvage: Salvage = False,
    out: Out = None, yes: Yes = False, dry_run: DryRun = False, no_backup: NoBackup = False,
    live: Live = False,
) -> Status | None:
    """Mend what is asked for, and only that: with options, or from the records of
    hermes-session-check on standard input. A copy is made first, the file stays the same file,
    and everything is one transaction. Rows of damaged tables are never mended in place.
    """  # fmt: skip
    if salvage != (out is not None):
        raise Usage("--salvage and -o NEW go together")
    if salvage and (index or counters or orphans or faults):
        raise Usage("--salvage reads the store and changes nothing in it; use it alone")
    store.say(f"store {store.path}")
    if out is not None:
        return carry_over(out, output, store, dry_run)
    if faults == "-":
        kinds, beyond = told_by_check()
        index |= bool(kinds & mending.INDEX)
        counters |= bool(kinds & mending.COUNTERS)
        orphans |= bool(kinds & mending.ORPHANS)
        for words in beyond:
            streams.warn(words)
        if not (index or counters or orphans):
            return None
    elif faults is not None:
        raise Usage(f"{faults!r}: the only operand is - (faults on standard input)")
    if not (index or counters or orphans):
        raise Usage("say what to mend: --index, --counters, --orphans, --salvage, or -")
    if dry_run:
        with mending.rehearsal(store.path, store.timeout) as db:
            steps = mending.everything(db, index=index, counters=counters, orphans=orphans)
        return show(steps, "would_mend", output, store)
    if orphans:
        confirm(f"delete what belongs to lost sessions in {store.path}", yes)
    if not live:
        require_no_gateway(store.place)
    parts = {"index": index, "counters": counters, "orphans": orphans}
    steps = mend(store, parts, live, not no_backup)
    if any(step.first for step in steps):  # only now the rest can be looked at
        steps += mend(store, parts, live, False)
    return show(steps, "mended", output, store)


def told_by_check() -> tuple[set[str], list[str]]:
    """The kinds of the faults on standard input, and words about errors that nothing here mends,
    with what helps instead. Raises Damaged for a record that is no fault.
    """
    kinds, beyond = set(), []
    for one in streams.records():
        if not isinstance(one.get("kind"), str):
            raise Damaged("standard input: a record without kind is no fault")
        kinds.add(one["kind"])
        if one["kind"] not in mending.KINDS and one.get("severity") == "error":
            advice = f"; {one['advice']}" if one.get("advice") else ""
            beyond.append(f"{one.get('object')}: not mended in place: {one.get('detail')}{advice}")
    return kinds, beyond


def mend(store: Store, parts: dict[str, bool], live: bool, keep: bool) -> list[mending.Step]:
    """Do what there is to do; what was done, and what is left."""
    with mending.opened(store.path, store.timeout, live=live) as db:
        steps = mending.everything(db, **parts)
        if not any(step.act for step in steps):
            return steps
        if keep:
            streams.complain(f"the store as it was: {backup.set_aside(db, 'repair', ill=True)}")
        rows = sum(step.rows for step in steps)
        if rows and not store.quiet:
            streams.complain(f"{text.count(rows, 'index row')} to make, about "
                             f"{mending.expected(db, steps):.0f} s; the store is locked "
                             "meanwhile")  # fmt: skip
        with bar("indexing", rows, "messages", store.quiet) as advance:
            mending.repair(db, steps, advance, alone=not live)
        return [*steps, *mending.left_over(db, steps)]


def carry_over(out: Path, output: Output, store: Store, dry_run: bool) -> Status | None:
    """What can be read, into a new store."""
    if dry_run:
        raise Usage("--salvage changes nothing in the store, there is nothing to rehearse")
    if not out.absolute().parent.is_dir():
        raise Missing(f"{out.parent}: no such folder")
    with mending.to_read(store.path, store.timeout) as db, bar(
        "carrying over", None, "rows", store.quiet
    ) as advance:
        report = rescue.salvage(db, out, advance)
    output.write(report.records(), lines, store.quiet)
    if not report.whole:
        streams.complain(f"{out}: not everything could be read, see the records")
        return Status.NEGATIVE
    return None


def show(
    steps: list[mending.Step], action: str, output: Output, store: Store
) -> Status | None:
    """One record a step; status 1 where something was left alone."""
    if not steps and text.on_terminal() and not store.quiet:
        streams.complain("nothing to mend")
    output.write((step.record(action) for step in steps), lines, store.quiet)
    return Status.NEGATIVE if any(step.left for step in steps) else None


def lines(records: Iterable[Record]) -> Iterator[str]:
    """`mended  index messages_fts: is filled anew …`."""
    for one in records:
        if "lost" in one:
            thing = f"session {one['session_id']}" if "session_id" in one else one["object"]
            number = one.get("rows", one.get("messages", 0))
            yield f"{one['action']:<10}  {text.line(thing)}: {number:,} rows, {one['lost']:,} lost"
        else:
            why = f" ({text.line(one['reason'])})" if one["reason"] else ""
            yield (f"{one['action']:<10}  {text.line(one['object'])}: "
                   f"{text.line(one['detail'])}{why}")  # fmt: skip


main = entry(repair)
