"""hermes-session-export: write whole sessions as JSON Lines, for programs"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated

from hermes_tools.console import outlet, streams, text
from hermes_tools.console.app import entry
from hermes_tools.console.options import (
    AllProfiles,
    Filters,
    Ids,
    Limit,
    Store,
    chosen_here,
    option,
)
from hermes_tools.console.progress import bar
from hermes_tools.store.db import Advance, snapshot
from hermes_tools.store.errors import Usage
from hermes_tools.store.exporting import Exporter
from hermes_tools.store.picking import Picked, orphans, picked
from hermes_tools.store.selection import Selection

FORMATS = ("jsonl", "messages", "openai", "trace")

Format = Annotated[
    str,
    option("-f", "--format", metavar="jsonl|messages|openai|trace", show_default=False,
           help="jsonl, the default anywhere: a session a line, lossless; messages: a message a "
           "line, flat; openai: a chat a line; trace: as Claude Code logs a session."),
]  # fmt: skip
To = Annotated[
    Path | None,
    option("-o", "--output", metavar="FILE", help="Into this file (0600), whole or not at all."),
]
LiveOnly = Annotated[
    bool, option("--live-only", help="Without undone and compacted messages, as the agent exports.")
]
Share = Annotated[
    bool,
    option("--share", help="Without injected memory, reasoning, origins, keys and user ids."),
]
Segment = Annotated[
    bool, option("--segment", help="Only the session rows named, not their conversations.")
]
Cursor = Annotated[
    Path | None,
    option("--cursor", metavar="FILE",
           help="Only what is new or changed since the run that wrote this file."),
]  # fmt: skip
Commit = Annotated[
    Path | None,
    option("--commit", metavar="FILE",
           help="Adopt the position of the last run with this cursor: its output has arrived."),
]  # fmt: skip
Follow = Annotated[
    bool, option("--follow", help="Go on: write what is new as it arrives, until interrupted.")
]
Origin = Annotated[
    str | None,
    option("--origin", metavar="NAME", help="Stamp every record with the host it comes from."),
]


def export(
    filters: Filters,
    store: Store,
    session: Ids = None,
    format: Format = "jsonl",
    output: To = None,
    live_only: LiveOnly = False,
    share: Share = False,
    segment: Segment = False,
    origin: Origin = None,
    cursor: Cursor = None,
    commit: Commit = None,
    follow: Follow = False,
    limit: Limit = None,
    all_profiles: AllProfiles = False,
) -> None:
    """Export conversations for programs: all, those that filters select, or those named. Each
    comes with its compression chain and its delegates. Without loss, unless asked for less:
    hermes-session-import brings back the same rows.
    """
    if format not in FORMATS:
        raise Usage(f"-f {format}: not one of {', '.join(FORMATS)} (for people: "
                    "hermes-session-show)")  # fmt: skip
    if commit is not None or cursor is not None or follow:
        from hermes_tools.console import following  # a plain export starts without it

        if commit is not None:
            following.commit(commit)
            return
        if session or segment or limit or all_profiles or format not in FORMATS[:2]:
            raise Usage("--cursor and --follow go with filters and with -f jsonl or messages only")
        make = following.Maker(live_only, share, stamps(origin, None))
        selection = filters.selection()
        if follow:
            following.stream(store, make, selection, format, cursor, output)
        elif cursor is not None:
            following.increment(store, make, selection, format, cursor, output)
        return
    names = streams.names(session) if session else None
    selection = filters.selection()
    left = {name.ref for name in names or ()}

    # Where the records themselves go by on the terminal they show how far it is.
    quiet = store.quiet or (output is None and text.on_terminal())

    def lines(advance: Advance) -> Iterator[bytes]:
        for profile, db in store.each(all_profiles, selection):
            exporter = Exporter(
                db, live_only=live_only or format in ("openai", "trace"), share=share,
                stamps=stamps(origin, profile),
            )  # fmt: skip
            with snapshot(db):
                ids = chosen_here(db, names, profile, left) if names is not None else None
                if names is None and not limit and not selection.narrow():
                    exporter.survey()
                limits = replace(selection, after=None, before=None) if timed else selection
                for one in picked(db, limits, ids, segment=segment, limit=limit or 0):
                    yield from outlet.steady(db, shaped(exporter, one, format, selection))
                    advance(1)
                if names is None and not filters.given and (lost := orphans(db)):
                    streams.complain(f"{text.count(lost, 'message')} of no session left out; "
                                     "hermes-session-check names them")  # fmt: skip
        for ref in left if all_profiles else ():
            streams.warn(f"session {ref}: in no store of this home")

    timed = format == "messages"
    with bar("exporting", None, "conversations", quiet) as advance:
        outlet.deliver(lines(advance), output, store.quiet)


def shaped(exporter: Exporter, one: Picked, form: str, selection: Selection) -> Iterator[bytes]:
    """One conversation in the form that is asked for."""
    if form == "jsonl":
        for row in one.members:
            yield from exporter.line(row)
        return
    from hermes_tools.store import formats  # a plain export starts without it

    if form == "messages":
        yield from formats.flat(exporter, one.members, one.root, formats.within(selection))
    else:
        shape = formats.chat if form == "openai" else formats.trace
        for chain in one.chains:
            yield from shape(exporter, chain)


def stamps(origin: str | None, profile: str | None) -> dict[str, str]:
    """What says where a record comes from."""
    found = {"_origin": origin, "profile": profile}
    return {key: value for key, value in found.items() if value is not None}


main = entry(export)
