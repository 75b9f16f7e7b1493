"""hermes-session-backup: verified copies, made while others write."""

import os
import sqlite3
import stat
import subprocess
from contextlib import closing
from pathlib import Path

import pytest


def count(path: Path, table: str = "messages") -> int:
    with closing(sqlite3.connect(path)) as db:
        return int(db.execute(f"SELECT count(*) FROM {table}").fetchone()[0])


def damage(path: Path, table: str = "messages") -> None:
    """Overwrite the root page of a table."""
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA journal_mode = DELETE")
        page, size = db.execute(
            "SELECT rootpage, (SELECT page_size FROM pragma_page_size) FROM sqlite_master "
            "WHERE name = ?", (table,)
        ).fetchone()  # fmt: skip
    with open(path, "r+b") as file:
        file.seek((page - 1) * size)
        file.write(b"\x77" * 200)


@pytest.mark.parametrize("name", ["v11", "v22", "head-3", "head-cjk", "delete", "v1"])
def test_a_copy_is_whole_and_private(name: str, run, store, tmp_path: Path) -> None:
    path, copy = store(name), tmp_path / "copy.db"
    (record,) = run("backup", "--db", path, "-o", copy).ok().records
    assert record["action"] == "copied" and record["path"] == str(copy)
    assert record["messages"] == count(path) == count(copy)
    assert record["sessions"] == count(copy, "sessions")
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    assert [one.name for one in copy.parent.glob("*copy.db*")] == ["copy.db"]


def test_b117_a_commit_that_lies_in_the_log_is_in_the_copy(run, store, tmp_path: Path) -> None:
    path, copy = store("v19"), tmp_path / "copy.db"
    before = count(path)
    with closing(sqlite3.connect(path, isolation_level=None)) as writer:
        writer.execute("PRAGMA wal_autocheckpoint = 0")
        writer.execute(
            "INSERT INTO messages (session_id, role, content, timestamp) "
            "SELECT id, 'user', 'the newest word', 1e9 FROM sessions LIMIT 1"
        )
        writer.execute("BEGIN IMMEDIATE")  # a writer in the middle of its work
        run.process("backup", "--db", path, "-o", copy).ok()
        writer.execute("ROLLBACK")
    assert count(copy) == before + 1


def test_the_store_is_left_as_it_is(run, store, tmp_path: Path) -> None:
    path = store("v22")
    before = path.read_bytes()
    run("backup", "--db", path, "-o", tmp_path / "copy.db").ok()
    assert path.read_bytes() == before


def test_to_a_pipe(run, store, tmp_path: Path) -> None:
    path = store("v16")
    result = run.process("backup", "--db", path, "--spool", tmp_path).ok()
    copy = tmp_path / "piped.db"
    copy.write_bytes(result.stdout)
    assert count(copy) == count(path)
    assert f"spooled in {tmp_path}" in result.stderr
    assert sorted(one.name for one in tmp_path.iterdir() if "backup" in one.name) == []


def test_never_onto_a_terminal(run, store) -> None:
    result = run("backup", "--db", store("v11"), tty=True).gave(2)
    assert "terminal" in result.stderr and not result.stdout


def test_dated_copies_rotate(run, store, tmp_path: Path) -> None:
    path, folder = store("v11"), tmp_path / "copies"
    folder.mkdir()
    mine = folder / "state-old.db"
    other = folder / "state-work-20200101T000000Z.db"
    for foreign in (mine, other):
        foreign.write_bytes(b"not ours to remove")
    for _ in range(4):
        found = run("backup", "--db", path, "-o", folder, "--keep", 2).ok().records
    assert [one["action"] for one in found] == ["copied", "removed"]
    left = {one.name for one in folder.iterdir()} - {mine.name, other.name}
    assert len(left) == 2 and Path(found[0]["path"]).name in left
    assert mine.exists() and other.exists()


def test_a_damaged_store_fails_and_rotates_nothing(run, store, tmp_path: Path) -> None:
    path, folder = store("v11"), tmp_path / "copies"
    folder.mkdir()
    run("backup", "--db", path, "-o", folder).ok()
    (good,) = folder.iterdir()
    damage(path)
    result = run("backup", "--db", path, "-o", folder, "--keep", 1).gave(65)
    assert str(path) in result.stderr
    assert list(folder.iterdir()) == [good]
    piped = run.process("backup", "--db", path).gave(65)
    assert piped.stdout == b""


def test_a_good_copy_is_not_replaced_by_a_failure(run, store, tmp_path: Path) -> None:
    path, copy = store("v11"), tmp_path / "copy.db"
    copy.write_bytes(b"precious")
    damage(path)
    run("backup", "--db", path, "-o", copy).gave(65)
    assert copy.read_bytes() == b"precious"


def test_b121_free_pages_are_copied_or_left_out(run, store, tmp_path: Path) -> None:
    path = store("v11")
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE filler (x)")
        db.executemany("INSERT INTO filler VALUES (?)", [(b"x" * 4000,)] * 300)
        db.execute("DROP TABLE filler")
        db.commit()
    whole, compact = tmp_path / "whole.db", tmp_path / "compact.db"
    run("backup", "--db", path, "-o", whole).ok()
    (record,) = run("backup", "--db", path, "-o", compact, "--compact").ok().records
    assert count(compact) == count(whole) == record["messages"]
    assert compact.stat().st_size == record["bytes"] < whole.stat().st_size / 3


def test_the_store_itself_is_no_place_for_its_copy(run, store) -> None:
    path = store("v11")
    before = path.read_bytes()
    run("backup", "--db", path, "-o", path).gave(2)
    assert path.read_bytes() == before


@pytest.mark.parametrize("options", [["--keep", 2], ["--keep", 0, "-o", "{dir}"],
                                     ["--spool", "{dir}", "-o", "{dir}/x"]])  # fmt: skip
def test_options_that_make_no_sense(options, run, store, tmp_path: Path) -> None:
    words = [str(word).replace("{dir}", str(tmp_path)) for word in options]
    run("backup", "--db", store("v11"), *words).gave(2)


def test_a_full_disk(run, store, tmp_path: Path) -> None:
    copy = tmp_path / "copy.db"
    copy.write_bytes(b"precious")
    limited = ["bash", "-c", 'ulimit -f 60; exec "$@"', "-"]
    done = subprocess.run(
        [*limited, *run.located(("backup", "--db", store("v22"), "-o", copy))],
        capture_output=True,
    )  # fmt: skip
    assert done.returncode == 74, done.stderr
    assert copy.read_bytes() == b"precious"
    assert os.listdir(copy.parent).count("copy.db") == len(
        [name for name in os.listdir(copy.parent) if "copy.db" in name]
    )


def test_a_folder_that_is_not_there(run, store, tmp_path: Path) -> None:
    result = run("backup", "--db", store("v22"), "-o", tmp_path / "no" / "copy.db").gave(66)
    assert result.stderr.endswith("no: no such folder\n")
