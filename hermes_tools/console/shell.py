"""Programs of the user's own: `sh -c CMD` with a record on standard input."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

from hermes_tools.console import streams
from hermes_tools.console.options import option
from hermes_tools.console.streams import Record
from hermes_tools.store.errors import Failed

if TYPE_CHECKING:
    import subprocess  # loaded where a program is called: most runs call none

CmdTimeout = Annotated[
    float,
    option("--cmd-timeout", help="Stop a program after this long, default 120.",
           metavar="SECONDS", min=0, show_default=False),
]  # fmt: skip


def call(
    command: str, record: Record, timeout: float, env: Mapping[str, str] | None = None,
    running: set[subprocess.Popen[bytes]] | None = None,
) -> str:  # fmt: skip
    """What CMD writes to standard output, given the record as JSON on standard input and its
    session in HERMES_SESSION_ID, `env` beside it; its standard error is ours. Raises Failed.

    It is the head of a process group of its own, so that what it started ends with it; while it
    runs it is in `running`, for those who would stop it from another thread.
    """
    import subprocess

    # bytes, since a shell's environment knows no surrogates
    name = str(record.get("session_id", "")).encode("utf-8", "surrogateescape")
    with subprocess.Popen(
        ["sh", "-c", command], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        env={
            **os.environb,
            **{os.fsencode(key): os.fsencode(value) for key, value in (env or {}).items()},
            b"HERMES_SESSION_ID": name.replace(b"\0", b""),
        },
        start_new_session=True,
    ) as child:  # fmt: skip
        running = set() if running is None else running
        running.add(child)
        try:
            output, _ = child.communicate(streams.dumps(record), timeout)
        except subprocess.TimeoutExpired:
            stop(child)
            raise Failed(f"still running after {timeout:g} s: {command}") from None
        except BaseException:
            stop(child)
            raise
        finally:
            running.discard(child)
    if child.returncode:
        raise Failed(f"{ended(child.returncode)}: {command}")
    return output.decode("utf-8", "replace")


def stop(child: subprocess.Popen[bytes]) -> None:
    """End a program and all it started."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)
    child.kill()


def ended(status: int) -> str:
    """`exit status 3`, `killed by signal 9`."""
    return f"killed by signal {-status}" if status < 0 else f"exit status {status}"


def call_each(
    command: str, records: Iterable[Record], timeout: float, jobs: int = 1
) -> Iterator[tuple[Record, Callable[[], str]]]:
    """(record, a function that gives CMD's output or raises Failed) in the records' order, up to
    `jobs` programs at a time. Whoever stops asking stops the rest.
    """
    from collections import deque
    from concurrent.futures import Future, ThreadPoolExecutor

    queue: deque[tuple[Record, Future[str]]] = deque()
    running: set[subprocess.Popen[bytes]] = set()
    pool = ThreadPoolExecutor(jobs)
    try:
        for record in records:
            queue.append((record, pool.submit(call, command, record, timeout, None, running)))
            if len(queue) >= jobs:
                first, future = queue.popleft()
                yield first, future.result
        while queue:
            first, future = queue.popleft()
            yield first, future.result
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        for child in list(running):
            stop(child)
