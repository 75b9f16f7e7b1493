"""Prune beside a writer, and killed at any moment: no error, no lost row, nothing half."""

import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest
import stores

SESSIONS = 400
WRITER = """
import sqlite3, sys, time
db = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=20)
db.execute("PRAGMA foreign_keys = ON")
print(flush=True)
for number in range(10_000):
    db.execute("BEGIN IMMEDIATE")
    db.execute("INSERT INTO messages (session_id, role, content, timestamp) VALUES ('busy', 'user', ?, ?)", (f"beside {number}", time.time()))
    db.execute("COMMIT")
    print(number, flush=True)
    time.sleep(0.05)
"""  # noqa: E501


@pytest.fixture(scope="module")
def filled(tmp_path_factory, unpacked) -> Path:
    """A store of many old conversations, each of a chain of two and a delegate."""
    path = tmp_path_factory.mktemp("filled") / "state.db"
    path.write_bytes((unpacked("v22") / "state.db").read_bytes())
    chance = random.Random(7)
    words = "alpha beta gamma delta epsilon zeta Планета 备份任务 kubectl".split()
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(
            "INSERT INTO sessions (id, source, started_at) VALUES ('busy', 'cli', 1767225600)"
        )
        for number in range(SESSIONS):
            root, tip, helper = (f"old{number:05}{kind}" for kind in "abc")
            rows = [
                (root, "cli", 1735689600 + number, 1735689650 + number, "compression", None),
                (tip, "cli", 1735689660 + number, 1735689700 + number, "user_exit", root),
                (helper, "subagent", 1735689670 + number, 1735689690 + number, "done", tip),
            ]
            db.executemany(
                "INSERT INTO sessions (id, source, started_at, ended_at, end_reason, "
                "parent_session_id) VALUES (?, ?, ?, ?, ?, ?)", rows
            )  # fmt: skip
            db.executemany(
                "INSERT INTO messages (session_id, role, content, timestamp) VALUES (?, ?, ?, ?)",
                [
                    (row[0], role, " ".join(chance.choices(words, k=30)), row[2] + at)
                    for row in rows
                    for at, role in enumerate(("user", "assistant", "user", "assistant"))
                ],
            )
            db.execute(
                "INSERT INTO session_model_usage (session_id, model) VALUES (?, 'm')", (tip,)
            )
    return path


def sound(path: Path, before: stores.Row) -> set[str]:
    """The store after a fault: consistent, conversations whole; the ids that are left."""
    assert stores.condition(path) == before
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
        left = {row[0] for row in db.execute("SELECT id FROM sessions")}
        for table in ("messages", "session_model_usage"):
            assert not db.execute(
                f"SELECT 1 FROM {table} WHERE session_id NOT IN (SELECT id FROM sessions)"
            ).fetchone(), f"orphans in {table}"
        counts = dict(db.execute("SELECT session_id, count(*) FROM messages GROUP BY 1"))
    for number in range(SESSIONS):
        rows = [f"old{number:05}{kind}" for kind in "abc"]
        assert len(left.intersection(rows)) in (0, 3), f"half of conversation {number}"
        assert all(counts[row] == 4 for row in rows if row in left), f"half of {rows}"
    return left


def copy(filled: Path, place: Path) -> Path:
    """A copy of one's own, without the temper of another run's WAL."""
    place.mkdir(exist_ok=True)
    path = place / "state.db"
    for suffix in ("-wal", "-shm"):
        Path(f"{path}{suffix}").unlink(missing_ok=True)
    path.write_bytes(filled.read_bytes())
    return path


def test_b136_a_second_writer_beside_it(run, filled: Path, tmp_path: Path) -> None:
    path = copy(filled, tmp_path / "beside")
    before = stores.condition(path)
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True
    ) as writer:
        assert writer.stdout is not None
        writer.stdout.readline()
        result = run.process("prune", "--db", path, "--yes")
        assert writer.poll() is None, "it met an error"
        writer.terminate()
        written = [int(line) for line in writer.stdout]
    assert result.ok().ids and len(result.records) >= SESSIONS
    assert written == list(range(len(written))) and written
    with closing(sqlite3.connect(path)) as db:
        found = [
            row[0] for row in db.execute("SELECT content FROM messages WHERE session_id = 'busy'")
        ]
        assert found[: len(written)] == [f"beside {number}" for number in written]
        match = "SELECT count(*) FROM messages_fts WHERE messages_fts MATCH 'beside'"
        assert db.execute(match).fetchone()[0] == len(found)
    left = sound(path, before)
    assert not any(name.startswith("old") for name in left)


def killed(run, filled: Path, tmp_path: Path, runs: int) -> None:
    """Kill a prune at a random point of its work, look at the store, let another finish it."""
    chance = random.Random(20261201)
    path = copy(filled, tmp_path / "killed")
    before = stores.condition(path)
    hit = 0
    for _ in range(runs):
        path = copy(filled, tmp_path / "killed")
        child = run.start("prune", "--db", path, "--yes", stdout=subprocess.DEVNULL)
        gone = chance.randrange(SESSIONS)
        while child.poll() is None and SESSIONS - remaining(path) < gone:
            time.sleep(0.002)
        time.sleep(chance.uniform(0, 0.1))
        child.send_signal(signal.SIGKILL)
        child.communicate()
        left = sound(path, before)
        hit += 0 < sum(name.startswith("old") for name in left) < 3 * SESSIONS
        run.process("prune", "--db", path, "--yes").ok()
        assert not any(name.startswith("old") for name in sound(path, before))
    assert hit, "no kill fell into the work"


def remaining(path: Path) -> int:
    """Conversations that are still to go."""
    with closing(sqlite3.connect(path)) as db:
        count = "SELECT count(*) FROM sessions WHERE id LIKE 'old%a'"
        return int(db.execute(count).fetchone()[0])


@pytest.mark.slow
def test_kill_at_random_points(run, filled: Path, tmp_path: Path) -> None:
    killed(run, filled, tmp_path, 6)


@pytest.mark.faults
def test_kill_at_many_random_points(run, filled: Path, tmp_path: Path) -> None:
    killed(run, filled, tmp_path, 10 * int(os.environ.get("FAULTS") or 6))


def test_terminated_midway_what_is_done_is_told(run, filled: Path, tmp_path: Path) -> None:
    path = copy(filled, tmp_path / "terminated")
    before = stores.condition(path)
    child = run.start("prune", "--db", path, "--yes", bufsize=0)
    assert child.stdout is not None
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and remaining(path) == SESSIONS:
        time.sleep(0.01)
    child.terminate()
    told, words = child.communicate(timeout=60)
    left = sound(path, before)
    gone = SESSIONS - sum(name.endswith("a") and name.startswith("old") for name in left)
    if child.returncode == 0:
        pytest.skip("it was quicker than the signal")
    assert child.returncode == 143 and b"terminated" in words and b"Traceback" not in words
    assert told.count(b'"session_id":"old') == gone > 0


def test_b135_a_lock_held_too_long(run, filled: Path, tmp_path: Path) -> None:
    path = copy(filled, tmp_path / "locked")
    before = sorted(sqlite3.connect(path).execute("SELECT id FROM sessions").fetchall())
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        result = run.process("prune", "--db", path, "--yes", "--timeout", "0.3")
        assert result.gave(75).stdout == b"" and "locked" in result.stderr
        other.execute("ROLLBACK")
        assert sorted(map(tuple, other.execute("SELECT id FROM sessions"))) == before


def test_b135_a_lock_given_up_in_time(run, filled: Path, tmp_path: Path) -> None:
    path = copy(filled, tmp_path / "waited")
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        child = run.start("prune", "--db", path, "--yes", "--max-messages", "4")
        time.sleep(1.5)
        assert child.poll() is None
        other.execute("ROLLBACK")
        child.communicate(timeout=60)
    assert child.returncode == 0


def test_a_full_pipe_holds_no_lock(run, filled: Path, tmp_path: Path) -> None:
    """The reader of our records sleeps: others must be able to write meanwhile."""
    path = copy(filled, tmp_path / "pipe")
    child = run.start("prune", "--db", path, "--yes")
    time.sleep(3)
    with closing(sqlite3.connect(path, timeout=5)) as db, db:
        db.execute("UPDATE sessions SET title = 'beside' WHERE id = 'busy'")
    child.kill()
    child.communicate()
