"""hermes-session-check: is the store healthy"""

from collections.abc import Iterable, Iterator
from typing import Annotated, ClassVar, Literal

import typer

from hermes_tools.console import streams, text
from hermes_tools.console.app import entry, report
from hermes_tools.console.options import Output, Store, option
from hermes_tools.console.status import Status
from hermes_tools.console.streams import Record
from hermes_tools.store import backup, health
from hermes_tools.store.faults import ERROR, NOTE, SQLITE, WARNING

Quick = Annotated[
    bool, option("--quick", help="Only read: SQLite's quick check, no probe of writes or indexes.")
]
FailOn = Annotated[
    Literal["error", "warning"],
    option("--fail-on", metavar="error|warning",
           help="What gives status 1, default error. Notes never do."),
]  # fmt: skip
COLOURS = {ERROR: 31, WARNING: 33, NOTE: 2}
NAGIOS = ("OK", "WARNING", "CRITICAL", "UNKNOWN")
SHOWN = 3  # faults of one kind that a person sees without -v


class Report(Output):
    """The forms of output, and one for monitors."""

    formats: ClassVar[tuple[str, ...]] = (*Output.formats, "nagios")


def check(
    output: Report, store: Store, quick: Quick = False, fail_on: FailOn = "error"
) -> Status | None:
    """Look at the store's file, pages, indexes and rows, and print one record for each fault.
    Nothing is changed. Status 0: healthy; 1: faults found; anything else: could not look.
    """
    if output.kind == "nagios":
        nagios(store, quick)
    store.say(f"store {store.path}")
    found: list[str] = []

    def records() -> Iterator[Record]:
        for fault in health.check(store.path, store.place, quick=quick, timeout=store.timeout):
            found.append(fault.severity)
            yield fault.record()

    output.write(
        records(), lambda rows: lines(rows, store, quick), store.quiet
    )  # fmt: skip
    bad = found.count(ERROR)
    if fail_on == "warning":
        bad += found.count(WARNING)
    return Status.NEGATIVE if bad else None


def nagios(store: Store, quick: bool) -> None:
    """One line with performance data, and the statuses that monitors know: 0 to 3."""
    try:
        faults = list(
            health.check(store.path, store.place, quick=quick, timeout=store.timeout)
        )
    except Exception as error:
        status = report(error)
        streams.write(f"HERMES UNKNOWN - could not look (status {status:d})\n".encode())
        streams.flush()
        raise typer.Exit(3) from None
    number = {word: sum(fault.severity == word for fault in faults)
              for word in (ERROR, WARNING, NOTE)}  # fmt: skip
    state = 2 if number[ERROR] else 1 if number[WARNING] else 0
    holds = backup.look(store.path)
    sizes = [one.stat().st_size if one.exists() else 0
             for one in (store.path, store.path.with_name(store.path.name + "-wal"))]  # fmt: skip
    first = next((f"{fault.object}: {fault.detail}" for fault in sorted(
        faults, key=lambda fault: list(COLOURS).index(fault.severity))
        if fault.severity != NOTE), "healthy")  # fmt: skip
    said = text.line(first).replace("|", "/")
    counts = f"sessions={holds.sessions} messages={holds.messages} " if holds else ""
    line = (
        f"HERMES {NAGIOS[state]} - {text.count(number[ERROR], 'error')}, "
        f"{text.count(number[WARNING], 'warning')}: {said} | {counts}"
        f"errors={number[ERROR]} warnings={number[WARNING]} "
        f"notes={number[NOTE]} size={sizes[0]}B wal={sizes[1]}B\n"
    )
    streams.write(text.encode(line))
    streams.flush()
    raise typer.Exit(state)


def lines(records: Iterable[Record], store: Store, quick: bool) -> Iterator[str]:
    """Faults by severity, errors first, with the command that helps; alike ones are summed up."""
    found = list(records)
    for severity, colour in COLOURS.items():
        kinds: dict[tuple[str, str], list[Record]] = {}
        for one in found:
            if one["severity"] == severity:
                kinds.setdefault((one["object"], one["kind"]), []).append(one)
        for (thing, _), alike in kinds.items():
            shown = alike if store.verbose else alike[:SHOWN]
            for one in shown:
                yield (f"{text.style(f'{severity:<7}', colour)}  {text.line(thing)}: "
                       f"{text.line(one['detail'])}")  # fmt: skip
            if len(alike) > len(shown):
                yield f"         … and {len(alike) - len(shown)} more of this kind (-v shows them)"
            if alike[0]["advice"]:
                yield text.style(f"         {text.line(alike[0]['advice'])}", 2)
    sums = ", ".join(
        text.count(sum(one["severity"] == word for one in found), word) for word in COLOURS
    )
    how = "quick check" if quick else "full check"
    yield f"{store.path}: {sums} ({how}, SQLite {SQLITE})"


main = entry(check)
