"""Database files that appear whole or not at all, for their owner's eyes only."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from hermes_tools.store.errors import Negative
from hermes_tools.store.home import sync_folder


@contextmanager
def placed(target: Path, *, replace: bool = False) -> Iterator[Path]:
    """The path of a new file beside `target` (mode 0600 from the first byte), to make a database
    of; synced and given its name when the block ends, gone with its logs if it fails.

    Raises Negative where `target` exists and may not be replaced.
    """
    handle, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    try:
        yield Path(name)
        os.fsync(handle)
        if replace:
            os.replace(name, target)
        else:
            put(name, target)
        sync_folder(target.parent)
    finally:
        os.close(handle)
        for leftover in (name, f"{name}-wal", f"{name}-shm", f"{name}-journal"):
            with suppress(OSError):
                os.unlink(leftover)


def put(name: str, path: Path) -> None:
    """Give a finished file its name, unless somebody else was quicker. Raises Negative."""
    try:
        os.link(name, path)
    except FileExistsError:
        raise Negative(f"{path}: exists, and is not replaced") from None
    except OSError:  # a file system without links
        if path.exists():
            raise Negative(f"{path}: exists, and is not replaced") from None
        os.rename(name, path)
