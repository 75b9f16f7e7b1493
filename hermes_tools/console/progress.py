"""A bar on a terminal's standard error for work that takes longer than a second."""

import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from hermes_tools.store.db import Advance, nothing


@contextmanager
def bar(label: str, total: int | None, unit: str = "", quiet: bool = False) -> Iterator[Advance]:
    """A callable to advance by; draws nothing before a second has passed, or off a terminal.
    rich is loaded only when there is something to draw.
    """
    if quiet or sys.stderr is None or not sys.stderr.isatty():
        yield nothing
        return
    started, done = time.monotonic(), 0
    drawn = task = None

    def advance(step: int) -> None:
        nonlocal done, drawn, task
        done += step
        if drawn is None and time.monotonic() - started > 1:
            drawn = _rich(unit, total)
            # Its thread must not take a signal that the main thread holds back for a moment.
            held = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
            drawn.start()
            signal.pthread_sigmask(signal.SIG_SETMASK, held)
            task = drawn.add_task(label, total=total, completed=done)
        elif drawn is not None and task is not None:
            drawn.update(task, completed=done)

    try:
        yield advance
    finally:
        if drawn is not None:
            drawn.stop()


def _rich(unit: str, total: int | None):  # type: ignore[no-untyped-def]
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        ProgressColumn,
        TextColumn,
        TimeRemainingColumn,
    )  # fmt: skip
    from rich.text import Text

    class Speed(ProgressColumn):
        def render(self, task):  # type: ignore[no-untyped-def]
            return Text("" if task.speed is None else f"{task.speed:,.1f}/s")

    number = TextColumn("{task.completed:,.0f}") if total is None else MofNCompleteColumn()
    return Progress(
        TextColumn("{task.description}"), BarColumn(), number, TextColumn(unit),
        Speed(), TimeRemainingColumn(), console=Console(stderr=True), transient=True,
    )  # fmt: skip
