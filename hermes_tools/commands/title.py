"""hermes-session-title: show, set or clear titles, one or many"""

from collections.abc import Iterable, Iterator
from typing import Annotated

import typer

from hermes_tools.console import naming, streams, targets, text
from hermes_tools.console.app import entry
from hermes_tools.console.options import Changing, DryRun, Filters, Live, Output, chosen, option
from hermes_tools.console.shell import CmdTimeout
from hermes_tools.console.streams import Named, Record
from hermes_tools.store import titles
from hermes_tools.store.db import Database
from hermes_tools.store.errors import Negative, Usage
from hermes_tools.store.titles import Wish

Session = Annotated[
    str | None,
    typer.Argument(metavar="[SESSION]", show_default=False,
                   help="Id, title or unique prefix; - reads ids or records."),
]  # fmt: skip
Words = Annotated[
    list[str] | None,
    typer.Argument(metavar="[TITLE]...", show_default=False,
                   help="The new title; words need no quotes."),
]  # fmt: skip
Clear = Annotated[bool, option("--clear", help="Take the title away.")]
Next = Annotated[
    bool, option("--next", help="Print the next free title of its line; change nothing.")
]
AutoNumber = Annotated[
    bool, option("--auto-number", help="Where the title is taken, use the next: X #2.")
]
SetFrom = Annotated[
    str | None,
    option("--set", metavar="FILE|-", help="Set titles from records: session_id and title."),
]
Untitled = Annotated[
    bool,
    option("--untitled", help="The sessions without a title, with their first exchange."),
]
TitleCmd = Annotated[
    str | None,
    option("--title-cmd", metavar="CMD",
           help="Title them by the first line that sh -c CMD writes, given the record."),
]  # fmt: skip
Jobs = Annotated[
    int,
    option("--jobs", metavar="N", min=1, max=64, show_default=False,
           help="How many programs at a time, default 1."),
]  # fmt: skip


def title(
    filters: Filters, output: Output, store: Changing, session: Session = None, words: Words = None,
    clear: Clear = False, next: Next = False, auto_number: AutoNumber = False,
    set_from: SetFrom = None, untitled: Untitled = False, title_cmd: TitleCmd = None,
    jobs: Jobs = 1, cmd_timeout: CmdTimeout = 120.0, dry_run: DryRun = False, live: Live = False,
) -> None:  # fmt: skip
    """Show a session's title, or give it another. Titles are unique: where one is taken, the
    answer is no and names who has it.
    """
    many = untitled or title_cmd is not None
    if sum((bool(words), clear, next, set_from is not None, many)) > 1:
        raise Usage("a new title, --clear, --next, --set and --untitled exclude each other")
    wanted = titles.check(" ".join(words)) if words else None
    sets = clear or wanted is not None
    if sets and (session in (None, "-") or filters.given):
        raise Usage("one title is for one named session; --set takes many")
    asked = naming.requests(set_from) if set_from is not None else []
    all_of_them = set_from is not None or (many and session is None)
    operands = [session] if session is not None else None
    named = None if all_of_them else targets.names(operands, filters)
    writes = sets or set_from is not None or title_cmd is not None

    with store.change(dry_run, messages=False) if writes else store.read() as db:
        granter = naming.Granter(db, auto_number, dry_run, live)
        if set_from is not None:
            done: Iterable[Record] = granter.records(asked)
        elif many:
            default = filters.selection(archived="no", internal="no")
            found = targets.targets(db, named, filters, default)
            done = titles.untitled(db, (target.one for target in found))
            if title_cmd is not None:
                done = granter.by_program(list(done), title_cmd, cmd_timeout, jobs)
        elif sets:
            done = (
                granter.one(Wish(row, wanted, auto_number=auto_number))
                for row, _ in chosen(db, named or ())
            )
        else:
            done = shown(db, named, filters, next)
        bare = session not in (None, "-") and not many and output.format == "auto"
        if bare and not (output.text or output.fields or output.null):
            answer(done, store.quiet)
        else:
            output.write(done, targets.lines if writes else targets.table, store.quiet)


def shown(
    db: Database, named: list[Named] | None, filters: Filters, next: bool
) -> Iterator[Record]:
    """Titles as they are, each row's own; with `next` the title after it in its line."""
    if named is None:
        rows = (target.row for target in targets.targets(db, None, filters, filters.selection()))
    else:
        rows = (row for row, _ in chosen(db, named))
    for row in rows:
        record = titles.row_record(db, row)
        if next and record["title"]:
            record["title"] = titles.next_title(db, record["title"])
        yield record


def answer(records: Iterable[Record], quiet: bool) -> None:
    """The bare title, for whoever asked about one session. Raises Negative for none."""
    for record in records:
        if record["title"] is not None:
            if not quiet:
                streams.write(text.encode(text.line(record["title"])) + b"\n")
        elif "action" not in record:
            raise Negative(f"session {record['session_id']}: has no title")


main = entry(title)
