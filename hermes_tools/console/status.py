"""Exit statuses, and the one place where exceptions become them."""

import errno
import sqlite3
from enum import IntEnum

from hermes_tools.store import errors
from hermes_tools.store.db import code


class Status(IntEnum):
    """What a command's exit status says; hermes-tools(7) has the same table."""

    OK = 0
    NEGATIVE = 1
    USAGE = 2
    DATA = 65
    MISSING = 66
    BUG = 70
    IO = 74
    BUSY = 75
    DENIED = 77
    UNSUPPORTED = 78
    TIMEOUT = 124
    INTERRUPTED = 130
    PIPE = 141
    TERMINATED = 143


class Terminated(BaseException):
    """SIGTERM arrived: transactions roll back on the way out."""


OF_CLASS: dict[type[BaseException], Status] = {
    errors.Usage: Status.USAGE,
    errors.Negative: Status.NEGATIVE,
    errors.Missing: Status.MISSING,
    errors.Damaged: Status.DATA,
    errors.Busy: Status.BUSY,
    errors.Denied: Status.DENIED,
    errors.Unsupported: Status.UNSUPPORTED,
    errors.Failed: Status.IO,
    Terminated: Status.TERMINATED,
    KeyboardInterrupt: Status.INTERRUPTED,
    BrokenPipeError: Status.PIPE,
    FileNotFoundError: Status.MISSING,
    NotADirectoryError: Status.MISSING,
    IsADirectoryError: Status.MISSING,
    PermissionError: Status.DENIED,
    # Bytes that are no text: in a file, or in the message of an error about a garbled schema.
    UnicodeError: Status.DATA,
}

OF_SQLITE = {
    3: Status.DENIED, 5: Status.BUSY, 6: Status.BUSY, 8: Status.DENIED, 10: Status.IO,
    11: Status.DATA, 13: Status.IO, 14: Status.MISSING, 15: Status.IO, 17: Status.BUSY,
    19: Status.DATA, 20: Status.DATA, 23: Status.DENIED,
    26: Status.DATA,
}  # fmt: skip

# SQLITE_ERROR says little; these words say that the store lacks something, not that we erred.
LACKS = ("no such table", "no such column", "no such tokenizer", "no such module", "malformed",
         "no such function")  # fmt: skip


def status_of(error: BaseException) -> Status:
    """The exit status of an exception."""
    for kind in type(error).__mro__:
        if kind in OF_CLASS:
            return OF_CLASS[kind]
    if isinstance(error, OSError):
        return Status.PIPE if error.errno == errno.EPIPE else Status.IO
    if isinstance(error, sqlite3.Error):
        if code(error) in OF_SQLITE:
            return OF_SQLITE[code(error)]
        if any(word in str(error) for word in LACKS):
            return Status.UNSUPPORTED
    if isinstance(error, MemoryError):
        return Status.IO
    return Status.BUG
