"""All scripts, and one ordinary call of each on the sample store v22."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT

PYPROJECT = (ROOT / "pyproject.toml").read_text()
SCRIPTS = dict(re.findall(r"^(hermes-session-\w+) = \"(.+):main\"$", PYPROJECT, re.M))

CLI, TIP, TELEGRAM = "20260225_101500_a1b2c3", "20260226_150000_00cc33", "20260227_080000_deadbe01"
ANSWER = '{"role": "user", "content": "one more thing"}\n'
RECORD = (
    '{"id": "20260401_080000_0a0b0c", "source": "cli", "started_at": 1775030400.0,'
    ' "title": "brought along", "messages":'
    ' [{"role": "user", "content": "hello", "timestamp": 1775030400.0}]}\n'
)


@dataclass(frozen=True)
class Call:
    """Arguments of an ordinary call. `input` goes to standard input; FILE in the arguments stands
    for a file that holds a valid store, `store=False` means that no store is opened.
    """

    argv: tuple[Any, ...] = ()
    input: str | None = None
    store: bool = True
    status: int = 0
    silent: bool = False  # says nothing on standard output even when all is well
    ids: bool = False  # without operands it reads ids from standard input
    more: dict[str, Any] = field(default_factory=dict)


# Reading calls: the store must not change by one byte.
READERS: dict[str, Call] = {
    "list": Call(),
    "show": Call((CLI,), ids=True),
    "search": Call(("garden",)),
    "scroll": Call((CLI, "4")),
    "title": Call((CLI,)),
    "stats": Call(),
    "export": Call(),
    "redact": Call((), input=RECORD, store=False),
    "resume": Call(),
    "handoff": Call(("list",)),
    "key": Call(("--index",)),
    "check": Call(("--quick",)),
    "backup": Call(),
    # The same selection as the real run, and no lock.
    "delete": Call((CLI, "--dry-run")),
    "prune": Call(("--older-than", "1d", "--dry-run")),
    "archive": Call((CLI, "--dry-run")),
    "end": Call((TIP, "--dry-run")),
    "import": Call(("-", "--dry-run"), input=RECORD),
    "reset": Call(("--dry-run",)),
    "repair": Call(("--index", "--dry-run")),
    "migrate": Call(("--dry-run",)),
}
# Writing calls.
WRITERS: dict[str, Call] = {
    "title": Call((TELEGRAM, "a new name")),
    "import": Call(("-",), input=RECORD),
    "delete": Call((CLI, "--yes"), ids=True),
    "prune": Call(("--older-than", "1d", "--yes")),
    "archive": Call((CLI,), ids=True),
    "end": Call((TIP,), ids=True),
    "append": Call((TIP,), input=ANSWER),
    "handoff": Call(("claim",)),
    "deliver": Call(("--once", "--agent", "true", "--deliver", "true")),
    "reset": Call(("--yes",)),
    "repair": Call(("--counters", "--yes")),
    "restore": Call(("FILE", "--yes")),
    "optimize": Call(),
    "migrate": Call(),
}
# Scripts without a store of their own to open.
NO_STORE = {"redact"}


def short(script: str) -> str:
    """hermes-session-list → list."""
    return script.removeprefix("hermes-session-")


def module_file(script: str) -> Path:
    """The file behind a script."""
    return ROOT / (SCRIPTS[script if script in SCRIPTS else f"hermes-session-{script}"]
                   .replace(".", "/") + ".py")  # fmt: skip


def need(script: str) -> None:
    """Skip a test of a script that is not written yet."""
    if not module_file(script).exists():
        pytest.skip(f"{script} is not written yet")


def every(names: Any) -> Callable[..., Any]:
    """Parametrise a test over scripts (short or whole names)."""
    return pytest.mark.parametrize("script", [
        pytest.param(name, id=short(name)) for name in names
    ])  # fmt: skip
