"""hermes-session-optimize: merge index segments, give space back"""

from collections.abc import Iterable, Iterator
from typing import Annotated

from hermes_tools.console import streams, text
from hermes_tools.console.app import entry
from hermes_tools.console.options import Live, Output, Store, option
from hermes_tools.console.progress import bar
from hermes_tools.console.streams import Record
from hermes_tools.store import inuse, space

Vacuum = Annotated[
    bool, option("--vacuum", help="Also write the file anew without free pages, alone in it.")
]


def optimize(output: Output, store: Store, vacuum: Vacuum = False, live: Live = False) -> None:
    """Merge the segments of the full-text indexes, in short steps beside a working agent. With
    --vacuum give free pages back to the disk; that needs the store alone, and room for a copy.
    """
    if vacuum and not live:
        inuse.require_no_gateway(store.place)
        with space.alone(store.path):
            pass  # refused before anything is done
    with store.write(messages=False) as db:
        before = space.report(db)
        mergeable = space.indexes(db)
        for index in db.schema.virtual:
            if index not in mergeable:
                streams.complain(f"{index}: left as it is, its tokenizer is not here")
        with bar("merging", None, "steps", store.quiet) as advance:
            for index in mergeable:
                for _ in space.merge(db, index):
                    advance(1)
        if vacuum and live:
            space.require_room(store.path, space.live_bytes(db))
            space.vacuum(db)
        free, after = space.reclaimable(db), space.report(db)
    if vacuum and not live:
        with space.alone(store.path) as db:
            space.vacuum(db)
            free, after = space.reclaimable(db), space.report(db)
        after |= space.files(store.path)
    output.write(compared(before, after), table, store.quiet)
    if free and not vacuum and not store.quiet:
        streams.complain(
            f"{text.amount(free)} of the file are free for new rows; --vacuum gives them back"
        )


def compared(before: dict[str, int], after: dict[str, int]) -> Iterator[Record]:
    """A record for each part: the files, then tables and indexes, the largest first."""
    for name in dict.fromkeys((*before, *after)):
        yield {"object": name, "before": before.get(name, 0), "after": after.get(name, 0)}


def table(records: Iterable[Record]) -> Iterator[str]:
    """Object, Before, After."""
    rows = [
        (one["object"], text.amount(one["before"]), text.amount(one["after"])) for one in records
    ]
    yield from text.table(rows, ("Object", "Before", "After"), fixed=(1, 2))


main = entry(optimize)
