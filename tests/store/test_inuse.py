"""What must be left alone now (design 5.4): sessions in use, gateways, holders of the store."""

import fcntl
import json
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from hermes_tools.store import inuse
from hermes_tools.store.db import reader
from hermes_tools.store.errors import Busy

ONE = "20260225_101500_a1b2c3"
HOLD = "import sqlite3,sys; d=sqlite3.connect(sys.argv[1]); d.execute('SELECT * FROM sessions')"


def change(path: Path, sql: str, *values: object) -> None:
    """Run one statement and let go of the store."""
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(sql, values)


def reason(path: Path, rows: list[str], last_active: float | None = None) -> str | None:
    """The word for why these rows are left alone."""
    with reader(path) as db:
        return inuse.look(db, path.parent).reason(db, rows, last_active)


@contextmanager
def held(path: Path) -> Iterator[int]:
    """A second process that has the store open; its id."""
    code = HOLD + ".fetchall(); print(1, flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", code, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        yield child.pid
        child.kill()


@pytest.mark.parametrize("name", ["v11", "v13", "v14", "v16", "v19", "v22"])
def test_idle_sessions_are_free(store, name: str) -> None:
    assert reason(store(name), [ONE]) is None


@pytest.mark.parametrize(("left", "word"), [(60, "compression"), (-60, None)])
def test_b90_a_live_compression_lock(store, left: int, word: str | None) -> None:
    path = store("v22")
    now = time.time()
    change(
        path, "INSERT INTO compression_locks VALUES (?, 'pid=1', ?, ?)", ONE, now - 9, now + left
    )
    assert reason(path, ["other", ONE]) == word


def test_a_lease_that_expires_at_garbage_holds_nothing(store) -> None:
    path = store("v22")
    change(path, "INSERT INTO compression_locks VALUES (?, 'x', 1, 'soon')", ONE)
    assert reason(path, [ONE]) is None


def test_a_turn_lease_names_the_root(store) -> None:
    path = store("v22")
    change(
        path,
        "CREATE TABLE session_turn_leases (conversation_id TEXT PRIMARY KEY, holder TEXT, "
        "acquired_at REAL, expires_at REAL)",
    )
    change(path, "INSERT INTO session_turn_leases VALUES ('r', 'pid=1', 1, ?)", time.time() + 99)
    assert reason(path, ["r", ONE]) == "turn"
    assert reason(path, [ONE]) is None


@pytest.mark.parametrize(
    ("ending", "word"),
    [("7_pendin", "handoff"), ("7_runnin", "handoff"), ("9_comple", None), ("6_failed", None)],
)
@pytest.mark.parametrize("name", ["v11", "v22"])
def test_a_handoff_under_way(store, name: str, ending: str, word: str | None) -> None:
    assert reason(store(name), [f"20260301_10000{ending}"]) == word


def test_b177_routed_and_active(store) -> None:
    path = store("v22")
    chat, now = "20260227_080000_deadbe01", time.time()
    assert reason(path, [chat], now - 60) == "routed"
    assert reason(path, [chat], now - 3600) is None
    assert reason(path, [ONE], now - 60) is None


def test_routes_of_releases_before_the_table(store) -> None:
    path = store("v11")
    folder = path.parent / "sessions"
    folder.mkdir()
    (folder / "sessions.json").write_text(
        json.dumps({"_README": {"session_id": "x"}, "agent:main:x": {"session_id": ONE}, "y": 3})
    )
    with reader(path) as db:
        assert inuse.routes(db, path.parent) == {ONE: ["agent:main:x"]}
        assert inuse.routes(db) == {}
    assert reason(path, [ONE], time.time()) == "routed"


@pytest.mark.parametrize(
    ("role", "calls", "age", "word"),
    [
        ("user", None, 5, "mid_turn"),
        ("tool", None, 5, "mid_turn"),
        ("assistant", '[{"id": "c"}]', 5, "mid_turn"),
        ("assistant", None, 5, None),
        ("user", None, 3600, None),
    ],
)
def test_mid_turn(store, role: str, calls: str | None, age: int, word: str | None) -> None:
    path = store("v22")
    change(
        path,
        "INSERT INTO messages (session_id, role, content, tool_calls, timestamp) "
        "VALUES (?, ?, 'x', ?, ?)",
        ONE, role, calls, time.time() - age,
    )  # fmt: skip
    assert reason(path, [ONE]) == word


def test_a_rewound_question_waits_for_nothing(store) -> None:
    path = store("v22")
    change(
        path,
        "INSERT INTO messages (session_id, role, content, timestamp, active) "
        "VALUES (?, 'user', 'x', ?, 0)",
        ONE, time.time(),
    )  # fmt: skip
    assert reason(path, [ONE]) is None


def test_a_running_gateway_keeps_its_lock(tmp_path: Path) -> None:
    assert inuse.gateway(tmp_path) is None
    lock = tmp_path / "gateway.lock"
    lock.write_text('{"pid": 4711, "kind": "hermes-gateway"}')
    assert inuse.gateway(tmp_path) is None, "a file left by one that has ended"
    with open(lock) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert inuse.gateway(tmp_path) == 4711
        with pytest.raises(Busy, match="4711"):
            inuse.require_no_gateway(tmp_path)
    inuse.require_no_gateway(tmp_path)


@pytest.mark.parametrize(("age", "pid"), [(5, 77), (3600, None)])
def test_heartbeats_tell_of_a_gateway_elsewhere(store, age: int, pid: int | None) -> None:
    path = store("v22")
    change(
        path,
        "CREATE TABLE gateway_heartbeats (backend_id TEXT PRIMARY KEY, pid INTEGER, "
        "started_at REAL, last_heartbeat REAL, profile TEXT, host TEXT)",
    )
    change(
        path, "INSERT INTO gateway_heartbeats VALUES ('b', 77, 1, ?, 'p', 'h')", time.time() - age
    )
    with reader(path) as db:
        assert inuse.gateway(path.parent, db) == pid


@pytest.mark.parametrize("mode", ["wal", "delete"])
def test_holders_are_named(store, mode: str) -> None:
    path = store("v22")
    change(path, f"PRAGMA journal_mode = {mode}")
    with inuse.alone(path, "vacuum"):
        pass
    with held(path) as pid:
        if not Path("/proc/self/fd").exists() and mode == "delete":
            pytest.skip("without /proc an idle holder of a rollback-journal store is not seen")
        said = f"{pid}.*vacuum" if Path("/proc").exists() else "vacuum"
        with pytest.raises(Busy, match=said), inuse.alone(path, "vacuum"):
            pass
    with inuse.alone(path, "vacuum"):
        pass


def test_sqlite_is_asked_where_the_system_does_not_tell(store, monkeypatch) -> None:
    path = store("v22")
    monkeypatch.setattr(inuse, "holders", lambda path: [])
    with (
        held(path),
        pytest.raises(Busy, match="another process"),
        inuse.alone(path, "vacuum"),
    ):
        pass


def test_alone_shuts_others_out_and_keeps_the_journal_mode(store) -> None:
    path = store("v22")
    with (
        inuse.alone(path, "vacuum"),
        closing(sqlite3.connect(path, timeout=0)) as other,
        pytest.raises(sqlite3.OperationalError, match="locked"),
    ):
        other.execute("SELECT 1 FROM sessions").fetchone()
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA journal_mode").fetchone()[0] == "wal"
