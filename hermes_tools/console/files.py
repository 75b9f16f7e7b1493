"""Files that appear whole or not at all, for their owner's eyes only."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from hermes_tools.store.errors import Missing, Negative
from hermes_tools.store.home import sync_folder


@contextmanager
def atomic(path: Path, *, replace: bool = True) -> Iterator[BinaryIO]:
    """A file written beside its place (mode 0600 from the first byte), synced, then put there.

    An empty result never replaces what is there. replace=False refuses an existing file.
    Raises Negative, Missing (no such folder).
    """
    path = Path(os.path.realpath(path))  # a link stays a link, its target is replaced
    if not replace and path.exists():
        raise Negative(f"{path}: exists, and is not replaced")
    if not path.parent.is_dir():
        raise Missing(f"{path.parent}: no such folder")
    import tempfile  # most runs write no file

    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb", buffering=1 << 20) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
            size = file.tell()
        if size == 0 and path.exists():
            raise Negative(f"{path}: the result is empty, the file there is kept")
        if replace:
            os.replace(name, path)
        else:
            os.link(name, path)  # fails where somebody else was quicker
            os.unlink(name)
        sync_folder(path.parent)
    except BaseException:
        with suppress(OSError):
            os.unlink(name)
        raise
