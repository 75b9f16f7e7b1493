"""What is about to be deleted is written to a file first, and read back.

    with reader or writer as db:
        saved = archive.save(db, conversations, place)           # {session id: digest}
        ...delete a conversation only while digest(db, its rows) is still that...
    archive.undo(place_written)                                  # the line that brings it back
"""

import os
import shlex
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from hermes_tools.store.db import Database
from hermes_tools.store.errors import Failed, Missing, Negative
from hermes_tools.store.exporting import Exporter
from hermes_tools.store.home import sync_folder
from hermes_tools.store.verifying import verify


def target(place: Path, now: float | None = None) -> Path:
    """The file meant: itself, or for a folder a dated one in it that does not exist yet."""
    if not place.is_dir():
        if not place.parent.is_dir():
            raise Missing(f"{place.parent}: no such folder")
        return place
    stamp = time.strftime("%Y%m%d-%H%M%S", time.localtime(now))
    for number in range(1, 1000):
        tail = "" if number == 1 else f"-{number}"
        path = place / f"hermes-sessions-{stamp}{tail}.jsonl"
        if not path.exists():
            return path
    raise Negative(f"{place}: no free file name")


def save(
    db: Database, conversations: Iterable[list[str]], path: Path, *, append: bool = False
) -> list[str]:
    """Write whole conversations (each the rows of Lineage.members) to a file of mode 0600, read
    it back and compare every stored row. The digest of each conversation, in order: what may be
    deleted is what still has it.

    The file is created, or with `append` extended; it is never replaced. If anything fails it is
    as it was before. Raises Negative (it exists), Failed (it does not hold what was written).
    """
    exporter, digests, written = Exporter(db), [], []
    with _opened(path, append) as file:
        start = file.seek(0, os.SEEK_END)
        if start and not _ends_a_line(file):
            file.write(b"\n")
            start += 1
        for rows in conversations:
            digests.append(exporter.digest(rows))
            for row in rows:
                for chunk in exporter.line(row):
                    file.write(chunk)
                written.append(row)
        file.flush()
        os.fsync(file.fileno())
        file.seek(start)
        found = verify(db, file)
        if found != written:
            raise Failed(f"{path}: does not hold what was written to it")
    return digests


@contextmanager
def _opened(path: Path, append: bool) -> Iterator[BinaryIO]:
    """A file to extend; put back to its old length, or removed, when anything fails."""
    existed = path.exists()
    if existed and not append:
        raise Negative(f"{path}: exists, and is not replaced; --append extends it")
    flags = os.O_RDWR | os.O_CREAT | (0 if existed else os.O_EXCL)
    handle = os.open(path, flags, 0o600)
    with os.fdopen(handle, "r+b") as file:
        length = file.seek(0, os.SEEK_END)
        try:
            yield file
        except BaseException:
            with suppress(OSError):
                file.flush()
            with suppress(OSError):
                os.ftruncate(file.fileno(), length)
                if not existed:
                    os.unlink(path)
            raise
    if not existed:
        sync_folder(path.parent)


def _ends_a_line(file: BinaryIO) -> bool:
    file.seek(-1, os.SEEK_END)
    return file.read(1) == b"\n"


def undo(path: Path, store: Path) -> str:
    """The command line that brings back what a file holds, from whatever folder."""
    where = (shlex.quote(str(one.absolute())) for one in (store, path))
    return "hermes-session-import --db " + " ".join(where)
