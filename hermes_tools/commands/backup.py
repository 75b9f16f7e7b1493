"""hermes-session-backup: a verified copy of the store, while the agent goes on writing"""

import os
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any

from hermes_tools.console import streams, text
from hermes_tools.console.app import entry
from hermes_tools.console.options import Output, Store, option, other_profile
from hermes_tools.console.progress import bar
from hermes_tools.console.streams import Record
from hermes_tools.store import backup as copies
from hermes_tools.store.db import Database
from hermes_tools.store.errors import Missing, Usage

Out = Annotated[
    Path | None,
    option("-o", "--output", metavar="FILE|DIR",
           help="Where to: a file (replaced if it exists), or a folder, for a dated name in it."),
]  # fmt: skip
Keep = Annotated[
    int | None,
    option("--keep", metavar="N", min=1,
           help="Afterwards keep the newest N dated copies in the folder, remove older ones."),
]  # fmt: skip
Compact = Annotated[bool, option("--compact", help="Leave out free pages (VACUUM INTO).")]
Spool = Annotated[
    Path | None,
    option("--spool", metavar="DIR",
           help="For standard output: where the copy is made and checked first, default TMPDIR."),
]  # fmt: skip


def backup(
    output: Output, store: Store, out: Out = None, keep: Keep = None, compact: Compact = False,
    spool: Spool = None,
) -> None:
    """Copy the whole store as it is at one moment, while others write, and check the copy before
    it gets its name. Without -o the copy goes to standard output.
    """  # fmt: skip
    into = out is not None and str(out) != "-"
    folder = into and out is not None and (out.is_dir() or str(out).endswith(os.sep))
    if keep is not None and not folder:
        raise Usage("--keep goes with -o DIR: it counts the dated copies in a folder")
    if spool is not None and into:
        raise Usage("--spool goes with standard output")
    if not into and sys.stdout is not None and sys.stdout.isatty():
        raise Usage("standard output is a terminal; give -o FILE or a pipe")
    with store.read() as db:
        if not into:
            to_stdout(db, store, spool or Path(tempfile.gettempdir()), compact)
            return
        assert out is not None
        target = out
        if folder:
            if not out.is_dir():
                raise Missing(f"{out}: no such folder")
            target = copies.dated(store.path, out, other_profile(db))
        elif target.exists() and target.samefile(store.path):
            raise Usage(f"{target}: that is the store itself")
        found = save(db, target, store, compact, replace=not folder)
    gone = copies.rotate(target, keep) if keep else []
    shown = [record("copied", target, found)] + [
        {"action": "removed", "path": str(place)} for place in gone
    ]
    output.write(shown, lines, store.quiet)


def to_stdout(db: Database, store: Store, spool: Path, compact: bool) -> None:
    """A checked copy down the pipe. It is spooled, since nothing that failed may be piped on."""
    if not spool.is_dir():
        raise Missing(f"{spool}: no such folder to spool in")
    with tempfile.TemporaryDirectory(prefix="hermes-session-backup-", dir=spool) as folder:
        place = Path(folder) / "state.db"
        found = save(db, place, store, compact)
        if not store.quiet:
            streams.complain(f"{words(found)}; spooled in {spool}")
        with open(place, "rb") as file:
            while piece := file.read(1 << 20):
                streams.write(piece)


def save(
    db: Database, target: Path, store: Store, compact: bool, replace: bool = False
) -> copies.Contents:
    """The copy, with a bar on a terminal."""
    with bar("copying", None, "pages", store.quiet) as advance:
        return copies.save(db, target, compact=compact, replace=replace, advance=advance)


def record(action: str, place: Path, found: copies.Contents) -> dict[str, Any]:
    """A copy as a record."""
    return {
        "action": action, "path": str(place), "sessions": found.sessions,
        "messages": found.messages, "newest": found.newest, "bytes": found.bytes,
    }  # fmt: skip


def words(found: copies.Contents) -> str:
    """`12 sessions, 340 messages, 1.2 MB`."""
    return (f"{text.count(found.sessions, 'session')}, {text.count(found.messages, 'message')}, "
            f"{text.amount(found.bytes)}")  # fmt: skip


def lines(records: Iterable[Record]) -> Iterator[str]:
    """`copied  PATH  (12 sessions, …)`."""
    for one in records:
        about = ""
        if one["action"] == "copied":
            found = copies.Contents(one["sessions"], one["messages"], one["newest"], one["bytes"])
            about = f"  ({words(found)})"
        yield f"{one['action']}  {text.line(one['path'])}{about}"


main = entry(backup)
