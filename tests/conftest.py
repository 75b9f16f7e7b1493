"""What every test stands on: scripts run as people run them, stores to run them on, a safe home."""

import fcntl
import io
import json
import lzma
import os
import pty
import select
import shutil
import signal
import struct
import subprocess
import sys
import tarfile
import termios
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_console_scripts
import stores

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT / "tests" / "data"
SHIPPED = {f"v{number}": f"state-v{number}.db.xz" for number in (11, 13, 14, 16, 19, 22)}
FOREIGN = {
    "rungraph": "rungraph_state.db.xz",
    "rungraph-legacy": "rungraph_legacy_profile_state.db.xz",
}
HOMES = {"home-0.13": "home-0.13.tar.xz", "home-0.19": "home-0.19.tar.xz"}
# What a person's shell may hold that would change what a script does.
STRAY = ("NO_COLOR", "COLUMNS", "LINES", "PAGER", "BROWSER", "XDG_CONFIG_HOME", "XDG_CACHE_HOME")


class ByteStream(io.TextIOWrapper):
    """A standard stream with .buffer, as a real one has; the plugin's own is text only."""

    terminal = False

    def __init__(self, data: bytes = b"") -> None:
        super().__init__(io.BytesIO(data), encoding="utf-8", errors="surrogateescape", newline="")

    def isatty(self) -> bool:
        return self.terminal

    def getvalue(self) -> bytes:
        self.flush()
        return self.buffer.getvalue()  # type: ignore[attr-defined,no-any-return]


class Screen(ByteStream):
    """The same, said to be a terminal."""

    terminal = True


pytest_console_scripts.StreamMock = ByteStream

# A shell that runs the tests in the background hands down an ignored SIGINT, which scripts would
# inherit and never be interrupted by.
signal.signal(signal.SIGINT, signal.default_int_handler)


@dataclass
class Result:
    """What a script left behind. stdout is bytes, stderr text."""

    status: int
    stdout: bytes
    stderr: str

    @property
    def text(self) -> str:
        """Standard output as text."""
        return self.stdout.decode("utf-8", "surrogateescape")

    @property
    def lines(self) -> list[str]:
        """Standard output by lines."""
        return self.text.splitlines()

    @property
    def records(self) -> list[dict[str, Any]]:
        """Standard output as JSON Lines; every line must be a whole object."""
        assert not self.stdout or self.stdout.endswith(b"\n"), self.stdout[-200:]
        found = [json.loads(line) for line in self.stdout.split(b"\n")[:-1]]
        assert all(isinstance(record, dict) for record in found)
        return found

    @property
    def ids(self) -> list[str]:
        """session_id of each record."""
        return [record["session_id"] for record in self.records]

    def ok(self) -> "Result":
        """Itself, if the status is 0; else the test fails and shows what was said."""
        return self.gave(0)

    def gave(self, status: int) -> "Result":
        """Itself, if it ended with this status."""
        assert self.status == status, (
            f"status {self.status}, not {status}\n{self.text[-2000:]}\n{self.stderr}"
        )
        return self


def as_bytes(data: bytes | str | list[Any] | None) -> bytes:
    """Input for a script: bytes, text, or a list of records and ids (one a line)."""
    if data is None:
        return b""
    if isinstance(data, str):
        return data.encode("utf-8", "surrogateescape")
    if isinstance(data, list):
        rows = (row if isinstance(row, str) else json.dumps(row) for row in data)
        return "".join(f"{row}\n" for row in rows).encode("utf-8", "surrogateescape")
    return data


def surroundings(env: dict[str, Any] | None) -> dict[str, str]:
    """The environment with some variables set, or removed (None)."""
    merged = {**os.environ, **(env or {})}
    return {name: str(value) for name, value in merged.items() if value is not None}


class Run:
    """`run("hermes-session-list", "-n", 3)`: in this process, with real entry points.

    A leading `hermes-session-` may be left out: run("list", …). input is bytes, text, or a list
    of records and ids. tty=True makes the three streams claim to be a terminal.
    """

    def __call__(
        self, *argv: Any, input: Any = None, env: dict[str, Any] | None = None,
        cwd: Path | None = None, tty: bool = False,
    ) -> Result:  # fmt: skip
        stream = Screen if tty else ByteStream
        handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
        plugin, pytest_console_scripts.StreamMock = pytest_console_scripts.StreamMock, stream
        try:
            result = pytest_console_scripts.ScriptRunner.run_inprocess(
                command_line(argv), env=surroundings(env), cwd=cwd,
                stdin=stream(as_bytes(input)), print_result=False,
            )  # fmt: skip
        finally:
            pytest_console_scripts.StreamMock = plugin
            for number, handler in handlers.items():
                signal.signal(number, handler)
        return Result(
            int(result.returncode), result.stdout, result.stderr.decode("utf-8", "replace")
        )

    def process(
        self, *argv: Any, input: Any = None, env: dict[str, Any] | None = None,
        cwd: Path | None = None, timeout: float = 120, prefix: list[str] | None = None,
        **options: Any,
    ) -> Result:  # fmt: skip
        """The same as a process of its own (options as for subprocess.run), by way of another
        program if there is a prefix (`env -i`, or the fixture `unprivileged`).
        """
        if "stdin" not in options:
            options["input"] = as_bytes(input)
        options.setdefault("stdout", subprocess.PIPE)
        options.setdefault("stderr", subprocess.PIPE)
        line = [*(prefix or []), *self.located(argv)]
        done = subprocess.run(
            line, env=surroundings(env), cwd=cwd, timeout=timeout, **options
        )  # fmt: skip
        words = (done.stderr or b"").decode("utf-8", "replace")
        return Result(done.returncode, done.stdout or b"", words)

    def start(
        self, *argv: Any, env: dict[str, Any] | None = None, cwd: Path | None = None, **options: Any
    ) -> "subprocess.Popen[bytes]":
        """A process that goes on; stdin, stdout and stderr are pipes unless said otherwise."""
        for stream in ("stdin", "stdout", "stderr"):
            options.setdefault(stream, subprocess.PIPE)
        return subprocess.Popen(self.located(argv), env=surroundings(env), cwd=cwd, **options)

    def shell(self, script: str, env: dict[str, Any] | None = None, **options: Any) -> Result:
        """A line of bash with this project's scripts on PATH."""
        path = f"{scripts_folder()}{os.pathsep}{os.environ['PATH']}"
        done = subprocess.run(
            ["bash", "-c", script], env=surroundings({"PATH": path, **(env or {})}),
            stdin=subprocess.DEVNULL, capture_output=True, timeout=120, **options,
        )  # fmt: skip
        return Result(done.returncode, done.stdout, done.stderr.decode("utf-8", "replace"))

    def terminal(
        self, *argv: Any, keys: bytes = b"", columns: int = 80, rows: int = 24,
        env: dict[str, Any] | None = None, cwd: Path | None = None, timeout: float = 60,
    ) -> Result:  # fmt: skip
        """The same before a real pseudo-terminal; stdout is all a person would see, keys what was
        typed beforehand.
        """
        master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        env = {"TERM": "xterm-256color", "COLUMNS": None, **(env or {})}
        child = subprocess.Popen(
            self.located(argv), env=surroundings(env), cwd=cwd,
            stdin=slave, stdout=slave, stderr=slave, start_new_session=True,
        )  # fmt: skip
        os.close(slave)
        if keys:
            os.write(master, keys)
        seen, deadline = b"", time.monotonic() + timeout
        try:
            while time.monotonic() < deadline:
                if select.select([master], [], [], 0.2)[0]:
                    try:
                        piece = os.read(master, 65536)
                    except OSError:  # Linux says so when the last writer has closed
                        break
                    if not piece:
                        break
                    seen += piece
            else:
                child.kill()
        finally:
            os.close(master)
        return Result(child.wait(), seen.replace(b"\r\n", b"\n"), "")

    def located(self, argv: tuple[Any, ...]) -> list[str]:
        """argv with the script's installed path."""
        name, *rest = command_line(argv)
        path = scripts_folder() / name
        return [str(path) if path.exists() else name, *rest]


def command_line(argv: tuple[Any, ...]) -> list[str]:
    """Words as the system passes them, the script under its whole name."""
    name, *rest = (word if isinstance(word, str) else os.fspath(word) if isinstance(word, Path)
                   else str(word) for word in argv)  # fmt: skip
    return [name if name.startswith(("hermes-", "/")) else f"hermes-session-{name}", *rest]


def scripts_folder() -> Path:
    """Where pip has put the scripts of this environment."""
    return Path(sys.executable).parent


@pytest.fixture
def run() -> Run:
    """Runs a script; see Run."""
    return Run()


@pytest.fixture(autouse=True)
def safe_home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home for every test: none ever sees the user's own store or settings."""
    place = tmp_path_factory.mktemp("user")
    for name in list(os.environ):
        if (name.startswith("HERMES_") and not name.startswith("HERMES_TOOLS_")) or name in STRAY:
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(place))
    monkeypatch.setenv("HERMES_HOME", str(place / ".hermes"))
    return place


@pytest.fixture(scope="session")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Name of a store or home → the folder it was unpacked or built into, once a session. Never
    written to; tests take copies (`store`, `home`).
    """
    place = tmp_path_factory.mktemp("unpacked")

    def get(name: str) -> Path:
        folder = place / name
        if folder.exists():
            return folder
        if name in SHIPPED or name in FOREIGN:
            packed = DATA / SHIPPED[name] if name in SHIPPED else find_shared() / FOREIGN[name]
            folder.mkdir()
            (folder / "state.db").write_bytes(lzma.decompress(packed.read_bytes()))
        elif name in HOMES:
            with tarfile.open(find_shared() / HOMES[name]) as archive:
                archive.extractall(place / f"{name}.tar", filter="data")
            (found,) = (path.parent for path in (place / f"{name}.tar").rglob("state.db"))
            shutil.copytree(found, folder)
        else:
            partial = place / f"{name}.part"
            partial.mkdir()
            stores.build(name, partial / "state.db")
            partial.rename(folder)
        return folder

    return get


@pytest.fixture
def home(unpacked: Callable[[str], Path], tmp_path: Path) -> Callable[[str], Path]:
    """home("v22"): a home of one's own that holds that store. Names: v11 v13 v14 v16 v19 v22
    (written by the agent), those of stores.NAMES (built by hand), and from the shared folder
    rungraph, rungraph-legacy, home-0.13, home-0.19 (with their session files).
    """
    taken = 0

    def copy(name: str) -> Path:
        nonlocal taken
        taken += 1
        return Path(shutil.copytree(unpacked(name), tmp_path / f"home{taken}-{name}"))

    return copy


@pytest.fixture
def store(home: Callable[[str], Path]) -> Callable[[str], Path]:
    """store("v22"): the path of a private copy of that store, in a folder of its own."""
    return lambda name: home(name) / "state.db"


def find_shared() -> Path:
    """The folder of larger fixtures; it lies beside the checkout or a few levels up."""
    given = os.environ.get("HERMES_TOOLS_FIXTURES")
    places = [Path(given)] if given else []
    places += [parent / "shared" / "fixtures" for parent in list(ROOT.parents)[:4]]
    for place in places:
        if (place / "README.md").is_file():
            return place
    pytest.skip("the folder of larger fixtures (../shared/fixtures) is not here")


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of larger fixtures; the test is skipped where it is absent."""
    return find_shared()


@pytest.fixture(scope="session")
def agent() -> Callable[[str], Path]:
    """agent("0.13.0"): the `hermes` of that release; `.parent / "python"` is its interpreter.

    HERMES_TOOLS_AGENT_0_13 names an environment it is installed in; else it is the one that
    `make agents` has made. Where there is neither, the test is skipped: nothing is installed here.
    """

    def get(version: str) -> Path:
        name = "HERMES_TOOLS_AGENT_" + "_".join(version.split(".")[:2])
        given = os.environ.get(name)
        found = Path(given or Path(sys.prefix) / "agents" / version) / "bin" / "hermes"
        if not found.exists():
            pytest.skip(
                f"{name} is {given}, and no agent is installed there" if given
                else f"the agent's release {version} is not here; `make agents` installs it"
            )  # fmt: skip
        return found

    return get


@pytest.fixture
def unprivileged() -> list[str]:
    """The prefix under which root, too, is bound by the rights of files; others are anyway."""
    if os.getuid() != 0:
        return []
    if not shutil.which("setpriv"):
        pytest.skip("run as root, and setpriv is not here to give up root's rights")
    return ["setpriv", "--bounding-set=-dac_override,-dac_read_search", "--inh-caps=-all"]
