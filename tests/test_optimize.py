"""hermes-session-optimize: merged indexes, space given back, alone where it must be."""

import fcntl
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
import stores

from hermes_tools.store import space


def ask(path: Path, sql: str, *values: object) -> list[tuple]:
    """Rows of one statement, committed."""
    with closing(sqlite3.connect(path)) as db, db:
        return db.execute(sql, values).fetchall()


def fill(path: Path) -> None:
    """Many small segments, then many free pages."""
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        for number in range(60):
            db.execute(
                "INSERT INTO messages (session_id, role, content, timestamp) "
                "VALUES ('20260225_101500_a1b2c3', 'user', ?, ?)",
                (f"word{number} " * 2000, number),
            )
        db.execute("DELETE FROM messages WHERE content LIKE 'word%' AND id % 10 <> 0")
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def segments(path: Path, index: str) -> int:
    """How many segments an index has: the distinct ones its leaves belong to."""
    return ask(path, f"SELECT count(DISTINCT id >> 37) FROM {index}_data WHERE id > 10")[0][0]


@contextmanager
def held(path: Path) -> Iterator[int]:
    """Another process that has the store open."""
    code = (
        "import sqlite3,sys; d=sqlite3.connect(sys.argv[1]);"
        "d.execute('SELECT 1 FROM sessions').fetchall(); print(1,flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        yield child.pid
        child.kill()


@pytest.mark.parametrize("name", ["v11", "v22", "head-0", "head-1", "head-3", "v10", "nofts"])
def test_merge(run, store, name: str) -> None:
    path = store(name)
    before = stores.condition(path)
    rows = ask(path, "SELECT * FROM messages")
    run("optimize", "--db", path).ok()
    assert stores.condition(path) == before and ask(path, "SELECT * FROM messages") == rows


def test_segments_become_one(run, store) -> None:
    path = store("v22")
    fill(path)
    assert segments(path, "messages_fts_trigram") > 1
    with held(path):
        run("optimize", "--db", path).ok()
    assert segments(path, "messages_fts_trigram") == 1 == segments(path, "messages_fts")


def test_an_index_without_its_tokenizer_is_left(run, store) -> None:
    path = store("head-cjk")
    result = run("optimize", "--db", path)
    assert "messages_fts_cjk" in result.stderr


def test_b91_vacuum_gives_space_back(run, store) -> None:
    path = store("v22")
    fill(path)
    size = path.stat().st_size
    plain = run("optimize", "--db", path).ok()
    assert path.stat().st_size >= size and "--vacuum" in plain.stderr
    before = stores.condition(path)
    result = run("optimize", "--db", path, "--vacuum").ok()
    sizes = {one["object"]: (one["before"], one["after"]) for one in result.records}
    assert path.stat().st_size < size == sizes["state.db"][0]
    assert sizes["state.db"][1] == path.stat().st_size
    assert sizes["free pages"][1] == 0 and sizes["state.db-wal"][1] == 0
    assert sizes["messages_fts_trigram"][1] > 0
    wal = Path(f"{path}-wal")
    assert not wal.exists() or wal.stat().st_size == 0
    assert stores.condition(path) == before


def test_b94_vacuum_refuses_while_others_hold_the_file(run, store) -> None:
    path = store("v22")
    fill(path)
    size = path.stat().st_size
    with held(path) as pid:
        result = run("optimize", "--db", path, "--vacuum").gave(75)
        assert str(pid) in result.stderr or "another process" in result.stderr
        assert result.stdout == b"" and path.stat().st_size == size
        run("optimize", "--db", path, "--vacuum", "--live").ok()
    assert path.stat().st_size < size


def test_a_running_gateway_stops_a_vacuum(run, home) -> None:
    place = home("v22")
    (place / "gateway.lock").write_text('{"pid": 4711}')
    with open(place / "gateway.lock") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert "4711" in run("optimize", "--home", place, "--vacuum").gave(75).stderr
        run("optimize", "--home", place).ok()


def test_an_agent_that_rebuilds_stops_a_vacuum(run, store) -> None:
    path = store("v22")
    lock = Path(f"{path}.fts_rebuild.lock")
    lock.write_text("{}")
    run("optimize", "--db", path, "--vacuum").ok()
    with open(lock) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        run("optimize", "--db", path, "--vacuum").gave(75)


def test_b93_room_is_looked_for_first(run, store, monkeypatch) -> None:
    path = store("v22")
    before = path.read_bytes()
    monkeypatch.setattr(
        space.shutil, "disk_usage", lambda place: type("Usage", (), {"free": 1000})()
    )
    result = run("optimize", "--db", path, "--vacuum").gave(75)
    assert "MB are free" in result.stderr and path.read_bytes() == before


def test_b139_an_open_reader_keeps_the_wal(run, store) -> None:
    """No checkpoint is forced on others: what a reader still needs stays, and all is readable."""
    path = store("v22")
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN")
        count = other.execute("SELECT count(*) FROM messages").fetchone()
        run.process("optimize", "--db", path).ok()
        run.process("delete", "--db", path, "20260225_101500_a1b2c3", "--yes").ok()
        assert other.execute("SELECT count(*) FROM messages").fetchone() == count
        other.execute("COMMIT")
        assert other.execute("SELECT count(*) FROM messages").fetchone() != count
