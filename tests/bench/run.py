"""Measures whole processes against a floor, interleaved, and prints medians and ratios.

    make bench                # a small store and the 1,000-session one
    make bench-growth         # what grows, and how, from a tenth of it to ten times of it

Nothing here is asserted: machines are shared and noisy, the ratios are what to read; that of
processor time (`cpu`) is disturbed least by what else the machine does. The floor is
`python -c "import typer, sqlite3, orjson"`, what any command of ours has to pay.
"""

import argparse
import json
import lzma
import os
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(HERE))

import generate  # noqa: E402
import inserts  # noqa: E402
import prune  # noqa: E402

BIN = Path(sys.executable).parent
FLOOR = [sys.executable, "-c", "import typer, sqlite3, orjson"]
Command = list[str] | Callable[[], list[str]]


class Cost(NamedTuple):
    """Of one process: seconds on the clock, of the processor, and peak megabytes."""

    seconds: float
    cpu: float
    memory: float


def once(argv: list[str]) -> Cost:
    """What one process costs whose output is thrown away."""
    started = time.perf_counter()
    child = subprocess.Popen(
        argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    assert child.stderr is not None
    words = child.stderr.read()
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode not in (0, 1):
        raise SystemExit(f"{' '.join(argv)}: status {child.returncode}: {words.decode()}")
    took = time.perf_counter() - started
    return Cost(took, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)


def rounds(commands: dict[str, Command], runs: int, warm: bool = True) -> dict[str, Cost]:
    """Medians of each command, of memory the most; all run in turn, so that a machine that slows
    down slows all of them. A command may be a function that prepares a run and gives its argv.
    """
    seen: dict[str, list[Cost]] = {name: [] for name in commands}
    for turn in range(runs + warm):
        for name, command in commands.items():
            argv = command() if callable(command) else command
            measured = once(argv)
            if turn or not warm:  # the first round warms the caches
                seen[name].append(measured)
    return {
        name: Cost(
            statistics.median(one.seconds for one in found),
            statistics.median(one.cpu for one in found),
            max(one.memory for one in found),
        )
        for name, found in seen.items()
    }


def table(title: str, found: dict[str, Cost], base: str, goals: dict[str, float]) -> None:
    """Rows of seconds, ratios to the base on the clock and of the processor, goal, memory above
    the floor's. `above` stands where both ratios miss the goal.
    """
    empty = once(FLOOR).memory
    print(f"\n{title}\n{'':30}{'median':>10}{'ratio':>8}{'cpu':>7}{'goal':>7}{'memory':>10}")
    for name, one in found.items():
        ratio, cpu = one.seconds / found[base].seconds, one.cpu / found[base].cpu
        goal = goals.get(name)
        mark = "" if goal is None or min(ratio, cpu) <= goal else "  above"
        print(
            f"{name:30}{one.seconds * 1000:7.0f} ms{ratio:8.2f}{cpu:7.2f}"
            f"{'' if goal is None else f'{goal:.2f}':>7}{one.memory - empty:+7.0f} MB{mark}",
            flush=True,
        )


def tool(name: str, store: Path, *words: str) -> list[str]:
    """One of our commands on a store."""
    return [str(BIN / f"hermes-session-{name}"), "--db", str(store), *words]


def small(runs: int, folder: Path) -> None:
    """Reading commands on a store of a few sessions: what a start costs."""
    store = folder / "small.db"
    store.write_bytes(lzma.decompress((ROOT / "tests/data/state-v22.db.xz").read_bytes()))
    one = "20260225_101500_a1b2c3"
    anchor = (
        sqlite3.connect(store)
        .execute("SELECT min(id) FROM messages WHERE session_id = ?", (one,))
        .fetchone()[0]
    )
    commands: dict[str, Command] = {
        "floor": FLOOR,
        "list": tool("list", store),
        "show": tool("show", store, one),
        "search": tool("search", store, "auth"),
        "scroll": tool("scroll", store, one, str(anchor)),
        "title": tool("title", store, one),
        "stats": tool("stats", store),
        "export": tool("export", store, one),
        "resume": tool("resume", store, one),
    }
    table("A small store, whole process", rounds(commands, runs), "floor",
          dict.fromkeys(list(commands)[1:], 1.25))  # fmt: skip


def middle(store: Path) -> tuple[str, int]:
    """(session, message) in the middle of a store."""
    with closing(sqlite3.connect(store)) as db:
        found: tuple[str, int] = db.execute(
            "SELECT session_id, id FROM messages "
            "WHERE id > (SELECT max(id) / 2 FROM messages) LIMIT 1"
        ).fetchone()
    return found


def big(runs: int, store: Path) -> None:
    """Questions with a short answer on a big store."""
    one, anchor = middle(store)
    commands: dict[str, Command] = {
        "floor": FLOOR,
        "list -n 20": tool("list", store, "-n", "20"),
        "show": tool("show", store, one),
        "scroll": tool("scroll", store, one, str(anchor)),
        "title": tool("title", store, one),
        "resume": tool("resume", store, one),
        "search, rare word": tool("search", store, "rare7word0"),
        "search, frequent word": tool("search", store, "database"),
        "search, two words": tool("search", store, "database cache"),
        "search, phrase": tool("search", store, '"error test"'),
        "search, two CJK characters": tool("search", store, "时间"),
        "stats": tool("stats", store),
    }
    goals = dict.fromkeys(("list -n 20", "show", "scroll", "title", "resume"), 1.3)
    goals |= {name: 2.0 for name in commands if name.startswith("search")}
    goals["search, two CJK characters"] = 5.0
    table(
        f"{store.stat().st_size / 1e6:,.0f} MB, whole process",
        rounds(commands, runs),
        "floor",
        goals,
    )


def bulk(runs: int, store: Path, folder: Path) -> None:
    """Everything out, and back in."""
    found = rounds(
        {
            "sqlite3 -json": [
                "sqlite3",
                "-json",
                f"file:{store}?mode=ro",
                "select * from messages",
            ],
            "export": tool("export", store),
        },
        runs,
    )
    table("Export of everything", found, "sqlite3 -json", {"export": 0.8})

    exported, target = folder / "all.jsonl", folder / "target.db"
    with open(exported, "wb") as file:
        subprocess.run(tool("export", store), stdout=file, check=True)

    def gone(argv: list[str], create: bool) -> Callable[[], list[str]]:
        """argv, with no store at the target, or an empty one, when it is run."""

        def prepare() -> list[str]:
            for name in ("", "-wal", "-shm"):
                Path(f"{target}{name}").unlink(missing_ok=True)
            if create:
                subprocess.run(tool("migrate", target, "--create", "-q"), check=True)
            return argv

        return prepare

    bare = [sys.executable, inserts.__file__, str(store), str(target)]
    found = rounds(
        {
            "bare inserts": gone(bare, True),
            "import --create": gone(tool("import", target, "--create", str(exported)), False),
            "import, beside others": gone(tool("import", target, str(exported)), True),
        },
        max(1, runs // 3),
        warm=False,
    )
    goals = dict.fromkeys(("import --create", "import, beside others"), 0.7)
    table("Import of everything, same rows, same triggers", found, "bare inserts", goals)
    exported.unlink()
    target.unlink(missing_ok=True)


SIZES = ((100, 6_800), (1_000, 68_000), (10_000, 680_000))  # sessions, messages
SLOW = 100_000  # messages of a store that is not imported or pruned: it would take an hour


def growth(runs: int, folder: Path) -> None:
    """Processor time of the same work on stores of three sizes: of short commands beside an empty
    one, of long ones in seconds, with the memory they take.
    """
    rows: dict[str, list[float | None]] = {}
    for sessions, messages in SIZES:
        store = folder / f"{messages}.db"
        if not store.exists():
            print(f"making {messages:,} messages …", file=sys.stderr)
            generate.make(store, sessions, messages)
        one, anchor = middle(store)
        short = rounds(
            {
                "floor": FLOOR,
                "list -n 20": tool("list", store, "-n", "20"),
                "scroll": tool("scroll", store, one, str(anchor)),
                "show": tool("show", store, one),
                "search, rare word": tool("search", store, "rare7word0"),
                "search, frequent word": tool("search", store, "database"),
            },
            runs,
        )
        empty = short.pop("floor").cpu
        for name, cost in short.items():
            rows.setdefault(f"{name}, times an empty one", []).append(cost.cpu / empty)
        exported, target = folder / "all.jsonl", folder / "target.db"
        found = once(tool("export", store, "-o", str(exported)))
        rows.setdefault("export, seconds", []).append(found.cpu)
        rows.setdefault("export, MB of memory", []).append(found.memory)
        for name in (
            "import --create, seconds", "import --create, MB of memory", "prune of half, seconds",
        ):  # fmt: skip
            rows.setdefault(name, []).append(None)
        if messages <= SLOW:
            found = once(tool("import", target, "--create", "-q", str(exported)))
            rows["import --create, seconds"][-1] = found.cpu
            rows["import --create, MB of memory"][-1] = found.memory
            age = prune.cut(store)
            found = once(tool("prune", target, "--older-than", age, "--yes", "-q"))
            rows["prune of half, seconds"][-1] = found.cpu
        for path in (exported, target, Path(f"{target}-wal"), Path(f"{target}-shm")):
            path.unlink(missing_ok=True)
    print(f"\n{'messages':40}" + "".join(f"{messages:>12,}" for _, messages in SIZES))
    for name, values in rows.items():
        print(f"{name:40}" + "".join(f"{value:12.2f}" if value else f"{'':12}" for value in values))


def agent(runs: int, store: Path, folder: Path) -> None:
    """The agent's own commands beside ours, where a release is at hand."""
    for release, program in prune.agents():
        home = folder / f"home-{release}"
        home.mkdir()
        ours = prune.fresh(store, home / "state.db")
        os.environ["HERMES_HOME"] = str(home)
        commands: dict[str, Command] = {
            "hermes sessions list": [str(program), "sessions", "list"],
            "list": tool("list", ours, "-t"),
            "hermes sessions stats": [str(program), "sessions", "stats"],
            "stats": tool("stats", ours, "-t"),
            "hermes sessions export": [str(program), "sessions", "export", str(folder / "x.jsonl")],
            "export": tool("export", ours, "-o", str(folder / "y.jsonl")),
        }
        found = rounds(commands, max(1, runs // 3))
        print(f"\nBeside the agent's release {release}")
        for theirs, mine in zip(list(found)[::2], list(found)[1::2], strict=True):
            print(
                f"{mine:10}{found[mine].seconds * 1000:8.0f} ms{found[mine].memory:7.0f} MB   "
                f"{theirs:24}{found[theirs].seconds * 1000:8.0f} ms"
                f"{found[theirs].memory:7.0f} MB   "
                f"{found[mine].seconds / found[theirs].seconds:.2f}"
            )
        del os.environ["HERMES_HOME"]
        shutil.rmtree(home)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--store", type=Path, help="a store made by generate.py; made anew if absent"
    )
    parser.add_argument("--sessions", type=int, default=1000)
    parser.add_argument("--messages", type=int, default=68_000)
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--growth", type=Path, metavar="DIR",
                        help="only show what grows; DIR keeps the stores")
    parser.add_argument("--only", nargs="*", default=["small", "big", "bulk", "prune", "agent"])
    given = parser.parse_args()
    for name in ("PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED"):
        os.environ.pop(name, None)  # nobody who installed the scripts compiles them at each start
    if given.growth:
        given.growth.mkdir(parents=True, exist_ok=True)
        growth(given.runs, given.growth)
        return
    with tempfile.TemporaryDirectory(prefix="hermes-bench-") as name:
        folder = Path(name)
        store = given.store or folder / "big.db"
        if not store.exists():
            print(
                f"making {given.sessions:,} sessions, {given.messages:,} messages …",
                file=sys.stderr,
            )
            generate.make(store, given.sessions, given.messages)
        print(json.dumps({"python": sys.version.split()[0], "sqlite": sqlite3.sqlite_version,
                          "cpus": os.cpu_count(), "date": time.strftime("%Y-%m-%d"),
                          "store_mb": store.stat().st_size // 10**6}))  # fmt: skip
        if "small" in given.only:
            small(given.runs, folder)
        if "big" in given.only:
            big(given.runs, store)
        if "bulk" in given.only:
            bulk(max(3, given.runs // 2), store, folder)
        if "prune" in given.only:
            prune.run(store, folder)
        if "agent" in given.only:
            agent(given.runs, store, folder)


if __name__ == "__main__":
    main()
