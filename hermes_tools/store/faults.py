"""A fault of a store, how bad it is, and the command line that mends it."""

import shlex
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hermes_tools.store.db import code
from hermes_tools.store.errors import Busy

ERROR, WARNING, NOTE = "error", "warning", "note"

SQLITE = sqlite3.sqlite_version


@dataclass(frozen=True)
class Fault:
    """One thing that is wrong: the object it is wrong with, what kind of wrong, how bad (error,
    warning, note), what was seen, and a command line that mends it or looks closer.
    """

    object: str
    kind: str
    severity: str
    detail: str
    advice: str | None = None
    session_id: str | None = None
    count: int | None = None

    def record(self) -> dict[str, Any]:
        """The fault record of hermes-session-jsonl(5)."""
        return {
            "object": self.object, "kind": self.kind, "severity": self.severity,
            "detail": self.detail, "advice": self.advice, "session_id": self.session_id,
            "count": self.count,
        }  # fmt: skip


def command(path: Path, name: str, *words: str) -> str:
    """A command line on this store, as a shell takes it."""
    return shlex.join([f"hermes-session-{name}", *words, "--db", str(path)])


def guarded(thing: str, path: Path, faults: Iterator[Fault]) -> Iterator[Fault]:
    """Faults of one test; where the test itself runs into damage, that is the fault."""
    try:
        yield from faults
    except sqlite3.DatabaseError as error:
        if code(error) in (5, 6):
            raise Busy(f"{path}: locked by another process") from error
        yield unreadable(thing, path, error)


def unreadable(thing: str, path: Path, error: sqlite3.Error) -> Fault:
    """The fault of a thing that SQLite cannot read."""
    return Fault(thing, "unreadable", ERROR, f"SQLite {SQLITE}: {error}",
                 command(path, "repair", "--salvage", "-o", f"{path}.salvaged"))  # fmt: skip


def skipped(why: str) -> Fault:
    """The note of a test that could not be made."""
    return Fault("database", "probe_skipped", NOTE,
                 f"indexes and writes were not tried: {why}")  # fmt: skip
