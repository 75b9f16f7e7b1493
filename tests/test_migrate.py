"""hermes-session-migrate: stores created, and old ones brought to version 11."""

import json
import shutil
import sqlite3
import stat
import subprocess
from contextlib import closing
from pathlib import Path

import pytest
import stores
from conftest import surroundings

EARLY = [f"v{number}" for number in range(1, 11)]
TABLES = ("sessions", "messages", "state_meta", "schema_version")


def rows(path: Path, table: str) -> list[dict[str, object]]:
    with closing(sqlite3.connect(path)) as db:
        db.row_factory = sqlite3.Row
        return [dict(row) for row in db.execute(f"SELECT * FROM {table} ORDER BY rowid")]


def shape(path: Path, table: str) -> list[tuple[object, ...]]:
    """Columns without their order: those that were added stand last."""
    with closing(sqlite3.connect(path)) as db:
        return sorted(row[1:] for row in db.execute(f"PRAGMA table_info({table})"))


@pytest.mark.parametrize("name", EARLY)
def test_every_version_becomes_what_release_0_13_makes(name: str, run, store) -> None:
    path, model = store(name), store("v11")
    before = {table: rows(path, table) for table in ("sessions", "messages")}
    found = run("migrate", "--db", path).ok().records
    assert {one["action"] for one in found} == {"changed"}
    assert [one["version"] for one in found] == sorted(one["version"] for one in found)
    for table in TABLES:
        assert shape(path, table) == shape(model, table)
    with closing(sqlite3.connect(path)) as db, closing(sqlite3.connect(model)) as other:
        names = "SELECT type, name FROM sqlite_master WHERE name NOT LIKE 'sqlite_%' ORDER BY 1, 2"
        assert db.execute(names).fetchall() == other.execute(names).fetchall()
        hits = "SELECT count(*) FROM messages_fts WHERE messages_fts MATCH 'kubectl'"
        assert db.execute(hits).fetchone()[0] >= 1, "calls of tools are words, too"
    condition = stores.condition(path)
    assert condition["versions"] == [(11,)]
    assert condition["indexes"] == {"messages_fts": True, "messages_fts_trigram": True}
    assert condition["foreign keys"] == []
    for table, old in before.items():
        new = rows(path, table)
        assert [{key: row[key] for key in was} for was, row in zip(old, new, strict=True)] == old


def test_twice_is_as_once_and_a_dry_run_tells_the_same(run, store) -> None:
    path = store("v4")
    bytes_before = path.read_bytes()
    dry = run("migrate", "--db", path, "--dry-run").ok().records
    assert path.read_bytes() == bytes_before
    done = run("migrate", "--db", path).ok().records
    assert [{**one, "action": "changed"} for one in dry] == done
    bytes_after = path.read_bytes()
    assert run("migrate", "--db", path).ok().records == []
    assert path.read_bytes() == bytes_after
    assert len(list(path.parent.glob("*.before-*"))) == 1


def test_the_copy_made_first_is_private_and_whole(run, store) -> None:
    path = store("v7")
    old = rows(path, "messages")
    said = run("migrate", "--db", path).ok().stderr
    (copy,) = path.parent.glob("state.db.before-migrate-*")
    assert str(copy) in said
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    assert rows(copy, "messages") == old
    assert rows(copy, "schema_version") == [{"version": 7}]


def test_no_backup_makes_none(run, store) -> None:
    path = store("v7")
    run("migrate", "--db", path, "--no-backup").ok()
    assert not list(path.parent.glob("*.before-*"))


@pytest.mark.parametrize("name", ["v13", "v22", "head-3", "head-0", "v99"])
def test_a_later_store_is_left_as_it_is(name: str, run, store) -> None:
    path = store(name)
    before = path.read_bytes()
    result = run("migrate", "--db", path).ok()
    assert "left as it is" in result.stderr
    assert not result.stdout and path.read_bytes() == before


def test_b152_the_tables_decide_not_the_number(run, store) -> None:
    path = store("v22")
    with closing(sqlite3.connect(path)) as db:
        db.execute("UPDATE schema_version SET version = 5")
        db.commit()
    assert "though it says version 5" in run("migrate", "--db", path).ok().stderr
    assert rows(path, "schema_version") == [{"version": 5}]


@pytest.mark.parametrize("numbers", [[], [3, 11], ["eleven"]])
def test_b152_one_row_says_eleven_in_the_end(numbers: list[object], run, store) -> None:
    path = store("v11")
    with closing(sqlite3.connect(path)) as db:
        db.execute("DELETE FROM schema_version")
        db.executemany("INSERT INTO schema_version VALUES (?)", [(one,) for one in numbers])
        db.commit()
    (change,) = run("migrate", "--db", path).ok().records
    assert change["object"] == "schema_version"
    assert rows(path, "schema_version") == [{"version": 11}]


def test_an_eleven_without_handoff_columns(run, store) -> None:
    path = store("v10")
    run("migrate", "--db", path, "--no-backup").ok()
    with closing(sqlite3.connect(path)) as db:
        for column in ("handoff_state", "handoff_platform", "handoff_error"):
            db.execute(f"ALTER TABLE sessions DROP COLUMN {column}")
    found = run("migrate", "--db", path, "--no-backup").ok().records
    assert [one["object"] for one in found] == [
        "sessions.handoff_state", "sessions.handoff_platform", "sessions.handoff_error"
    ]  # fmt: skip


def test_titles_that_clash_are_renumbered_and_told(run, store) -> None:
    path = store("v3")
    long = "x" * 100
    with closing(sqlite3.connect(path)) as db:
        ids = [row[0] for row in db.execute("SELECT id FROM sessions ORDER BY started_at, rowid")]
        for name, title in zip(ids, ["same", "same", "same #2", "  ", long, long], strict=False):
            db.execute("UPDATE sessions SET title = ? WHERE id = ?", (title, name))
        db.commit()
    found = run("migrate", "--db", path).ok().records
    told = [one for one in found if one["object"].startswith("title of")]
    assert len(told) == 3
    title = {row["id"]: row["title"] for row in rows(path, "sessions")}
    assert [title[name] for name in ids[:6]] == [
        "same", "same #3", "same #2", None, long, "x" * 97 + " #2"
    ]  # fmt: skip


def test_what_fails_changes_nothing(run, store) -> None:
    path = store("v9")
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE messages_fts_trigram (mine)")  # stands in the way
        db.commit()
        db.execute("PRAGMA journal_mode = DELETE")
    before = stores.condition(path)
    run("migrate", "--db", path).gave(78)
    assert stores.condition(path) == before


def test_refused_while_others_hold_it(run, store) -> None:
    path = store("v5")
    before = path.read_bytes()
    with stores.held(path) as holder:
        result = run.process("migrate", "--db", path, "--timeout", 1).gave(75)
        assert f"process {holder} " in result.stderr
        assert path.read_bytes() == before


def test_create(run, tmp_path: Path) -> None:
    path = tmp_path / "a#b?c d%" / "state.db"
    dry = run("migrate", "--create", "--db", path, "--dry-run").ok().records
    assert not path.parent.exists()
    made = run("migrate", "--create", "--db", path).ok().records
    assert [{**one, "action": "changed"} for one in dry] == made
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert run("migrate", "--create", "--db", path).ok().records == []
    run("list", "--db", path).ok()


def test_without_create_nothing_appears(run, tmp_path: Path) -> None:
    run("migrate", "--db", tmp_path / "state.db").gave(66)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("release", ["0.13.0", "0.19.0"])
@pytest.mark.parametrize("name", ["v1", "v5", "v10"])
def test_the_agent_finds_every_message(name: str, release: str, run, agent, home) -> None:
    hermes, place = agent(release), home(name)
    path = place / "state.db"
    with closing(sqlite3.connect(path)) as db:  # times that the agent itself trips over
        for one in (stores.MILLISECONDS, stores.NOTIME):
            db.execute("DELETE FROM messages WHERE session_id = ?", (one,))
            db.execute("DELETE FROM sessions WHERE id = ?", (one,))
        db.commit()
    run("migrate", "--db", path).ok()
    want = {(row["session_id"], row["role"]): 0 for row in rows(path, "messages")}
    for row in rows(path, "messages"):
        want[row["session_id"], row["role"]] += 1
    shutil.rmtree(place / "sessions", ignore_errors=True)
    out = place / "out.jsonl"
    subprocess.run(
        [hermes, "sessions", "export", out], env=surroundings({"HERMES_HOME": place}),
        check=True, capture_output=True, timeout=120,
    )  # fmt: skip
    got: dict[tuple[str, str], int] = {}
    for line in out.read_text().splitlines():
        session = json.loads(line)
        for message in session["messages"]:
            key = session["id"], message["role"]
            got[key] = got.get(key, 0) + 1
    assert got == want


def test_a_new_store_on_a_full_disk_is_whole_or_not_there(run, tmp_path: Path) -> None:
    """A log that cannot be carried into the file is dropped in silence when a store is closed."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", disk], capture_output=True
    )
    if mounted.returncode:
        pytest.skip("no file system can be mounted here")
    try:
        seen = set()
        for filled in range(100, 400, 20):
            (disk / "filler").write_bytes(b"x" * filled * 1024)
            path = disk / "state.db"
            found = run.process("migrate", "--create", "--db", path)
            (disk / "filler").unlink()
            seen.add(found.status)
            if found.status:
                assert f"-migrate: {path}: the disk is full" in found.gave(74).stderr
                assert not path.exists()
            else:
                with closing(sqlite3.connect(path)) as db:
                    assert db.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
                    assert db.execute("SELECT version FROM schema_version").fetchone()[0] == 11
                path.unlink()
            assert not list(disk.iterdir())
        assert seen == {0, 74}
    finally:
        subprocess.run(["umount", "-l", disk], check=False)
