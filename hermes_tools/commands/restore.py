"""hermes-session-restore: put the store back from a backup"""

import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer

from hermes_tools.console import streams, text
from hermes_tools.console.app import entry
from hermes_tools.console.options import DryRun, Output, Store, Yes, confirm
from hermes_tools.console.progress import bar
from hermes_tools.console.streams import Record
from hermes_tools.store import backup as copies
from hermes_tools.store.errors import Damaged, Missing, Usage
from hermes_tools.store.inuse import require_no_gateway
from hermes_tools.store.migration import make_folders

Source = Annotated[
    Path, typer.Argument(metavar="FILE", show_default=False,
                         help="The backup; - reads it from standard input."),
]  # fmt: skip


def restore(
    source: Source, output: Output, store: Store, yes: Yes = False, dry_run: DryRun = False
) -> None:
    """Put the store back from a backup. The backup is checked first, what would change is shown,
    and the store that is replaced is kept beside it. Refused while anybody holds the store.
    """
    path = Path(os.path.realpath(store.path))
    store.say(f"store {path}")
    if str(source) != "-" and path.exists() and source.exists() and source.samefile(path):
        raise Usage(f"{source}: that is the store itself")
    if not dry_run:
        make_folders(path.parent)
    elif not path.parent.is_dir():
        raise Missing(f"{path.parent}: no such folder")
    with Spooled(source, path.parent) as place:
        new = copies.verify(place, "standard input" if str(source) == "-" else source)
        old = copies.look(path)
        shown = record(path, old, new)
        if dry_run:
            output.write([{**shown, "action": "would_restore"}], lines, store.quiet)
            return
        require_no_gateway(store.place)
        if os.path.lexists(path):
            if not store.quiet:
                streams.complain(next(lines([shown])))
            confirm(f"replace what {path} holds", yes)
        with bar("restoring", None, "pages", store.quiet) as advance:
            kept = copies.restore(path, place, advance)
    found = copies.verify(path)
    if (found.sessions, found.messages) != (new.sessions, new.messages):
        raise Damaged(f"{path}: does not hold what the backup holds; before it: {kept[0]}")
    output.write([{**shown, "kept": [str(one) for one in kept]}], lines, store.quiet)


class Spooled:
    """The backup as a file: itself, or standard input kept beside the store for the moment."""

    def __init__(self, source: Path, folder: Path) -> None:
        self.source, self.folder, self.place = source, folder, source

    def __enter__(self) -> Path:
        if str(self.source) != "-":
            return self.source
        handle, name = tempfile.mkstemp(prefix=".restore.", dir=self.folder)
        self.place = Path(name)
        with os.fdopen(handle, "wb") as file:
            while piece := streams.stdin().read(1 << 20):
                file.write(piece)
        return self.place

    def __exit__(self, *error: Any) -> None:
        if self.place != self.source:
            for suffix in ("", "-wal", "-shm"):
                with suppress(OSError):
                    os.unlink(f"{self.place}{suffix}")


def record(path: Path, old: copies.Contents | None, new: copies.Contents) -> dict[str, Any]:
    """What a restore changes."""
    return {
        "action": "restored", "path": str(path),
        "sessions_before": old.sessions if old else None, "sessions": new.sessions,
        "messages_before": old.messages if old else None, "messages": new.messages,
        "newest_before": old.newest if old else None, "newest": new.newest,
    }  # fmt: skip


def lines(records: Iterable[Record]) -> Iterator[str]:
    """`sessions 12 → 5, messages 340 → 99, newest message 2026-03-01 → 2026-02-01`."""
    for one in records:
        before = {name: one[f"{name}_before"] for name in ("sessions", "messages", "newest")}
        if before["sessions"] is None:
            yield (f"{text.line(one['path'])}: {text.count(one['sessions'], 'session')}, "
                   f"{text.count(one['messages'], 'message')}")  # fmt: skip
        else:
            yield (f"{text.line(one['path'])}: sessions {before['sessions']:,} → "
                   f"{one['sessions']:,}, messages {before['messages']:,} → {one['messages']:,}, "
                   f"newest message {text.local(before['newest'])} → "
                   f"{text.local(one['newest'])}")  # fmt: skip
        for kept in one.get("kept", ()):
            yield f"  kept: {text.line(kept)}"


main = entry(restore)
