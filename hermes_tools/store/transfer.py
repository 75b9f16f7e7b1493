"""An import from its input to its reports, in a few calls:

    for staging in staged(sources):
        for outcomes in trees(Import(db, staging, options).run()):
            yield from report(db, outcomes)
"""

from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from hermes_tools.store import foreign
from hermes_tools.store.errors import Damaged
from hermes_tools.store.staging import Staging

Source = tuple[str, Iterator[bytes]]


def staged(
    sources: Iterable[Source], *, on_bad: Callable[[str], None] | None = None, each: bool = False
) -> Generator[Staging, None, None]:
    """All input in one staging database, checked; with `each` one for every record as it comes.

    on_bad: takes the reason why a line is left out; without it a bad line raises Damaged.
    """
    staging = Staging()
    try:
        for name, blocks in sources:
            bad = 0
            for item in foreign.records(blocks, name):
                if item.line == bad:
                    continue
                try:
                    complete = staging.add(item, f"{name}, line {item.line}")
                except Damaged as error:
                    if on_bad is None:
                        raise
                    on_bad(str(error))
                    staging.drop()
                    bad = item.line
                    continue
                if complete and each:
                    staging.finish()
                    yield staging
                    staging.remove()
                    staging = Staging()
        staging.finish()
        yield staging
    finally:
        staging.remove()


def remove_store(path: Path) -> None:
    """A store made for an import that failed leaves nothing."""
    for name in (path, Path(f"{path}-wal"), Path(f"{path}-shm")):
        with suppress(OSError):
            name.unlink()
