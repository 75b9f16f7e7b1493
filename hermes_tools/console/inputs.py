"""Files to import: operands and folders as named streams of bytes."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from hermes_tools.console import streams
from hermes_tools.store.db import Advance
from hermes_tools.store.errors import Missing, Usage
from hermes_tools.store.transfer import Source

BLOCK = 1 << 18
MB = 10**6
# What lies in a folder of transcripts and is none (store-facts 2.6).
SKIPPED = ("sessions.json", "manifest.jsonl")


def named(operands: list[str] | None) -> Iterator[Source]:
    """(name, blocks of bytes) of each input; standard input for `-` or none.

    Raises Usage (a terminal instead of input) and Missing.
    """
    if not operands:
        if streams.stdin().isatty():
            raise Usage("nothing to import, and standard input is a terminal")
        operands = ["-"]
    if operands.count("-") > 1:
        raise Usage("standard input can be read once")
    for operand in operands:
        if operand == "-":
            yield "standard input", piped()
            continue
        path = Path(operand)
        if not operand or not path.exists():
            raise Missing(f"{operand or 'an empty file name'}: no such file")
        for file in inside(path) if path.is_dir() else (path,):
            yield str(file), blocks(file)


def metered(sources: Iterable[Source], advance: Advance) -> Iterator[Source]:
    """The same, telling how many megabytes were taken."""
    taken = 0

    def measured(blocks: Iterator[bytes]) -> Iterator[bytes]:
        nonlocal taken
        for block in blocks:
            before, taken = taken, taken + len(block)
            if taken // MB > before // MB:
                advance(taken // MB - before // MB)
            yield block

    return ((name, measured(blocks)) for name, blocks in sources)


def inside(folder: Path) -> list[Path]:
    """The exports and transcripts of a folder, by name."""
    found = [
        file for file in sorted(folder.iterdir())
        if file.suffix in (".json", ".jsonl") and file.is_file()
        and file.name not in SKIPPED and not file.name.startswith((".", "request_dump_"))
    ]  # fmt: skip
    if not found:
        raise Missing(f"{folder}: no transcripts or exports in it")
    return found


def blocks(path: Path) -> Iterator[bytes]:
    """A file in blocks."""
    with path.open("rb") as file:
        yield from iter(lambda: file.read(BLOCK), b"")


def piped() -> Iterator[bytes]:
    """Standard input as it comes: a block is what is there, not what fills it."""
    stream = streams.stdin()
    read = getattr(stream, "read1", stream.read)
    yield from iter(lambda: read(BLOCK), b"")
