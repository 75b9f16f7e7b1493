"""New stores from schema.sql, and old ones brought to its version."""

import os
import sqlite3
import tempfile
from contextlib import closing, suppress
from pathlib import Path

from hermes_tools.store.errors import Damaged, Negative

# By path: importlib.resources would cost every writer 20 ms.
SCHEMA = Path(__file__).parent.parent / "schema.sql"
VERSION = 11


def create(path: Path) -> None:
    """A new, empty store at `path`: 0600 from its first byte, in WAL mode, whole or not at all.
    Folders that are missing are made for their owner alone (0700).

    Raises Negative where something is there already, Damaged where the log of a vanished store
    lies beside it: SQLite would replay that log into the new one.
    """
    path = Path(os.path.realpath(path))
    if path.exists():
        raise Negative(f"{path}: exists, and is not replaced")
    log = Path(f"{path}-wal")
    if log.exists() and log.stat().st_size:
        raise Damaged(
            f"{log}: the log of a store that is gone; a new store would swallow it. "
            "Move it away first"
        )
    make_folders(path.parent)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with closing(sqlite3.connect(name, isolation_level=None)) as db:
            db.execute("PRAGMA journal_mode = WAL").fetchone()
            db.executescript(f"BEGIN;\n{SCHEMA.read_text(encoding='utf-8')}\nCOMMIT;")
        os.fsync(handle)
        put(name, path)
    finally:
        os.close(handle)
        for leftover in (name, f"{name}-wal", f"{name}-shm"):
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


def make_folders(folder: Path) -> None:
    """Missing folders from the top down, each for its owner alone."""
    for place in (*reversed(folder.parents), folder):
        with suppress(FileExistsError):
            if not place.exists():
                place.mkdir(mode=0o700)
