"""Lines of an export on their way: to standard output or into a file, never waiting in a lock."""

import gc
from collections.abc import Iterable, Iterator
from pathlib import Path

from hermes_tools.console import files, streams
from hermes_tools.store.db import Database, is_wal

IN_MEMORY = 4 << 20


def steady(db: Database, chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Chunks of one conversation. In a store without WAL a reader that waits for its output would
    lock every writer out: there the conversation is read to its end first, spooled if it is long.
    """
    if is_wal(db):
        yield from chunks
        return
    import tempfile  # most runs write no file

    with tempfile.SpooledTemporaryFile(max_size=IN_MEMORY) as spool:
        spool.writelines(chunks)
        spool.seek(0)
        yield from iter(lambda: spool.read(1 << 16), b"")


def deliver(chunks: Iterable[bytes], output: Path | None, quiet: bool = False) -> None:
    """Write chunks to a file (whole or not at all) or to standard output."""
    # Millions of rows, none of them in a cycle: looking for cycles would cost a tenth.
    gc.disable()
    try:
        _deliver(chunks, output, quiet)
    finally:
        gc.enable()


def _deliver(chunks: Iterable[bytes], output: Path | None, quiet: bool) -> None:
    if quiet and output is None:
        for _ in chunks:
            pass
    elif output is None or str(output) == "-":
        for chunk in chunks:
            streams.write(chunk)
    else:
        with files.atomic(output) as file:
            for chunk in chunks:
                file.write(chunk)
