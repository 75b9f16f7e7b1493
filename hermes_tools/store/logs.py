"""Session logs of other agents: read."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from hermes_tools.store.parsing import Item

Reader = Callable[[Iterable[bytes], str], Iterator[Item]]


def kind(first: dict[str, Any]) -> Reader | None:
    """The reader for a log whose first object this is; None if it is none."""
    return None
