"""A prune of half a store while a second process inserts a message every 50 ms: how long its
inserts wait, and how long the prune takes against the agent's own.

    python tests/bench/prune.py STORE

Waits are whole insert transactions (BEGIN IMMEDIATE to COMMIT) as the agent makes them, with
SQLite's own waiting for the lock. The same process alone, without a prune, is shown as well: what
the disk does by itself.
"""

import argparse
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

BIN = Path(sys.executable).parent
EVERY = 0.050


def insert(store: Path, stop: Path) -> None:
    """Insert until the file `stop` is there; print seconds, one wait a line."""
    db = sqlite3.connect(store, isolation_level=None, timeout=1.0)
    db.execute("PRAGMA foreign_keys = ON")
    db.execute(
        "INSERT OR IGNORE INTO sessions (id, source, started_at) VALUES ('busy', 'cli', ?)",
        (time.time(),),
    )
    due = time.monotonic()
    while not stop.exists():
        started = time.monotonic()
        while True:
            try:
                db.execute("BEGIN IMMEDIATE")
                break
            except sqlite3.OperationalError:
                time.sleep(0.02)
        db.execute(
            "INSERT INTO messages (session_id, role, content, timestamp) "
            "VALUES ('busy', 'user', 'one of many messages, a few words long', ?)",
            (time.time(),),
        )
        db.execute("COMMIT")
        print(time.monotonic() - started, flush=True)
        due = max(due + EVERY, time.monotonic())
        time.sleep(max(0.0, due - time.monotonic()))


def beside(store: Path, argv: list[str] | None, seconds: float = 5.0) -> tuple[float, list[float]]:
    """(how long a command takes, the waits of inserts beside it)."""
    with tempfile.TemporaryDirectory() as folder:
        stop = Path(folder) / "stop"
        other = subprocess.Popen(
            [sys.executable, __file__, "--insert", str(stop), str(store)], stdout=subprocess.PIPE
        )
        time.sleep(1.0)
        started = time.monotonic()
        if argv is None:
            time.sleep(seconds)
        else:
            subprocess.run(argv, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        took = time.monotonic() - started
        stop.touch()
        said, _ = other.communicate()
    return took, [float(line) for line in said.split()]


def told(name: str, took: float, waits: list[float]) -> str:
    """One line of the table."""
    waits = sorted(waits)
    at = [waits[min(len(waits) - 1, int(len(waits) * share))] * 1000 for share in (0.5, 0.99)]
    over = sum(wait > 0.120 for wait in waits) / len(waits) * 100
    return (
        f"{name:26}{took:8.1f} s{len(waits):8}{at[0]:8.0f} ms{at[1]:8.0f} ms"
        f"{waits[-1] * 1000:8.0f} ms{over:7.1f} %"
    )


def fresh(source: Path, target: Path) -> Path:
    """A copy that the disk has taken in."""
    for name in ("", "-wal", "-shm"):
        Path(f"{target}{name}").unlink(missing_ok=True)
    shutil.copyfile(source, target)
    os.sync()
    return target


def agents() -> Iterator[tuple[str, Path]]:
    """(release, its program) of those at hand: HERMES_TOOLS_AGENT_0_13 and HERMES_TOOLS_AGENT_0_19
    name the folders of environments they are installed in.
    """
    for release in ("0.13", "0.19"):
        place = os.environ.get(f"HERMES_TOOLS_AGENT_{release.replace('.', '_')}")
        program = Path(place or "/nonexistent") / "bin" / "hermes"
        if program.exists():
            yield release, program
        else:
            print(f"the agent's release {release} is not at hand: not compared")


def cut(store: Path) -> str:
    """The age in days that half of the conversations are older than."""
    db = sqlite3.connect(store)
    times = [
        row[0]
        for row in db.execute("SELECT max(timestamp) FROM messages GROUP BY session_id ORDER BY 1")
    ]
    db.close()
    return f"{(time.time() - times[len(times) // 2]) / 86400:.3f}d"


def run(source: Path, folder: Path) -> None:
    """The table."""
    store, age = folder / "state.db", cut(source)
    print(f"\nPrune of half the store beside inserts every {EVERY * 1000:.0f} ms")
    heads = "total", "inserts", "median", "99 %", "longest", ">120 ms"
    print(" " * 26 + "".join(f"{head:>10}" for head in heads))
    print(told("no prune", *beside(fresh(source, store), None)))
    prune = [str(BIN / "hermes-session-prune"), "--db", str(store), "--older-than", age, "--yes"]
    print(told("hermes-session-prune", *beside(fresh(source, store), prune)))
    for release, program in agents():
        fresh(source, store)
        days = str(int(float(age[:-1])))
        argv = ["env", f"HERMES_HOME={folder}", str(program), "sessions", "prune",
                "--older-than", days, "--yes"]  # fmt: skip
        print(told(f"agent {release}", *beside(store, argv)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--insert", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("store", type=Path)
    given = parser.parse_args()
    if given.insert:
        insert(given.store, given.insert)
        return
    with tempfile.TemporaryDirectory(prefix="hermes-bench-") as name:
        run(given.store, Path(name))


if __name__ == "__main__":
    main()
