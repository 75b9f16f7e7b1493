"""hermes-session-restore: the store put back from a backup."""

import shutil
import sqlite3
import stat
import subprocess
from contextlib import closing
from pathlib import Path

import pytest
import stores
from test_backup import count, damage


@pytest.fixture
def backup(run, store, tmp_path: Path) -> Path:
    """A copy of a smaller store."""
    copy = tmp_path / "backup.db"
    smaller = store("v11")
    with closing(sqlite3.connect(smaller)) as db:
        db.execute("DELETE FROM messages WHERE id > 10")
        db.commit()
    run("backup", "--db", smaller, "-o", copy).ok()
    return copy


@pytest.mark.parametrize("name", ["v11", "v22", "delete"])
def test_put_back(name: str, run, store, tmp_path: Path) -> None:
    path, copy = store(name), tmp_path / "copy.db"
    run("backup", "--db", path, "-o", copy).ok()
    before, inode = stores.condition(path), path.stat().st_ino
    with closing(sqlite3.connect(path)) as db:
        db.execute("DELETE FROM messages")
        db.commit()
    (record,) = run("restore", copy, "--db", path, "--yes").ok().records
    assert record["action"] == "restored"
    assert record["messages_before"] == 0 and record["messages"] == count(path) > 0
    assert stores.condition(path) == before, "journal mode and indexes included"
    assert path.stat().st_ino == inode
    (kept,) = record["kept"]
    assert count(Path(kept)) == 0
    assert stat.S_IMODE(Path(kept).stat().st_mode) == 0o600


def test_b122_what_would_be_lost_is_shown_and_asked(run, store, backup: Path) -> None:
    path = store("v22")
    before = path.read_bytes()
    result = run("restore", backup, "--db", path).gave(2)
    assert f"{count(path)} → {count(backup)}" in result.stderr
    assert "--yes" in result.stderr
    assert path.read_bytes() == before
    assert "y/N" in run.terminal("restore", backup, "--db", path, keys=b"n\n").gave(1).text
    assert path.read_bytes() == before
    run.terminal("restore", backup, "--db", path, keys=b"y\n").gave(0)
    assert count(path) == count(backup)


def test_a_dry_run_is_a_reader_and_tells_the_same(run, store, backup: Path) -> None:
    path = store("v22")
    before = path.read_bytes()
    (dry,) = run("restore", backup, "--db", path, "--dry-run").ok().records
    assert path.read_bytes() == before and not list(path.parent.glob("*before*"))
    (done,) = run("restore", backup, "--db", path, "--yes").ok().records
    del done["kept"]
    assert {**dry, "action": "restored"} == done


def test_where_there_is_no_store_nobody_is_asked(run, backup: Path, tmp_path: Path) -> None:
    path = tmp_path / "new" / "state.db"
    (record,) = run("restore", backup, "--db", path).ok().records
    assert record["sessions_before"] is None and record["kept"] == []
    assert count(path) == count(backup)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_from_a_pipe(run, store, backup: Path) -> None:
    path = store("v22")
    run("restore", "-", "--db", path, "--yes", input=backup.read_bytes()).ok()
    assert count(path) == count(backup)
    assert not list(path.parent.glob(".restore*"))


def test_a_log_left_over_is_moved_aside(run, store, backup: Path) -> None:
    """SQLite would replay it into the restored file, which undoes the restore without a word."""
    path = store("v22")
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("PRAGMA wal_autocheckpoint = 0")
        db.execute("UPDATE messages SET content = 'from the old log'")
        log = Path(f"{path}-wal").read_bytes()
    path.unlink()
    Path(f"{path}-wal").write_bytes(log)
    (record,) = run("restore", backup, "--db", path, "--yes").ok().records
    with closing(sqlite3.connect(path)) as db:
        words = "SELECT count(*) FROM messages WHERE content = 'from the old log'"
        assert db.execute(words).fetchone()[0] == 0
    assert count(path) == count(backup)
    (kept,) = (Path(one) for one in record["kept"] if one.endswith("-wal"))
    assert kept.read_bytes() == log


def test_an_unmerged_log_of_the_store_does_not_come_back(run, store, backup: Path) -> None:
    path = store("v22")
    place = path.parent.parent / "killed"
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("PRAGMA wal_autocheckpoint = 0")
        db.execute("UPDATE messages SET content = 'from the old log'")
        shutil.copytree(path.parent, place)  # as a crash would leave it
    path = place / "state.db"
    assert Path(f"{path}-wal").stat().st_size
    run("restore", backup, "--db", path, "--yes").ok()
    with closing(sqlite3.connect(path)) as db:
        words = "SELECT count(*) FROM messages WHERE content = 'from the old log'"
        assert db.execute(words).fetchone()[0] == 0
    assert count(path) == count(backup)


@pytest.mark.parametrize("ruin", [b"", b"\0" * 40960, b"some text\n" * 500])
def test_a_ruin_is_replaced_and_kept(ruin: bytes, run, store, backup: Path) -> None:
    path = store("v22")
    path.write_bytes(ruin)
    (record,) = run("restore", backup, "--db", path, "--yes").ok().records
    assert count(path) == count(backup)
    (kept,) = (Path(one) for one in record["kept"] if one[-4:] not in ("-wal", "-shm"))
    assert kept.read_bytes() == ruin


def test_a_damaged_store_is_replaced_and_kept(run, store, backup: Path) -> None:
    path = store("v22")
    damage(path)
    ruin = path.read_bytes()
    (record,) = run("restore", backup, "--db", path, "--yes").ok().records
    assert count(path) == count(backup)
    assert Path(record["kept"][0]).read_bytes()[200:] == ruin[200:]


@pytest.mark.parametrize("content", [b"", b"text", b"\0" * 8192])
def test_what_is_no_backup_is_refused(content: bytes, run, store, tmp_path: Path) -> None:
    path, bad = store("v22"), tmp_path / "bad.db"
    before = path.read_bytes()
    bad.write_bytes(content)
    run("restore", bad, "--db", path, "--yes").gave(65)
    run("restore", "-", "--db", path, "--yes", input=content).gave(65)
    assert path.read_bytes() == before


def test_a_damaged_backup_is_refused(run, store, backup: Path) -> None:
    path = store("v22")
    before = path.read_bytes()
    damage(backup)
    assert str(backup) in run("restore", backup, "--db", path, "--yes").gave(65).stderr
    assert path.read_bytes() == before
    run("restore", backup.parent / "nothing.db", "--db", path, "--yes").gave(66)


@pytest.mark.parametrize("name", ["v22", "delete"])
def test_b119_refused_while_somebody_holds_the_store(name, run, store, backup: Path) -> None:
    path = store(name)
    before = path.read_bytes()
    with stores.held(path) as holder:
        result = run.process("restore", backup, "--db", path, "--yes").gave(75)
        assert str(holder) in result.stderr
        assert path.read_bytes() == before


def test_a_running_gateway_stops_it(run, home, backup: Path) -> None:
    place = home("v22")
    lock = place / "gateway.lock"
    lock.write_text('{"pid": 4711}')
    holder = subprocess.Popen(["flock", str(lock), "sh", "-c", "echo up; read x"],
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE)  # fmt: skip
    try:
        assert holder.stdout and holder.stdout.readline()
        result = run.process("restore", backup, "--home", place, "--yes").gave(75)
        assert "4711" in result.stderr
    finally:
        holder.communicate()
