"""--detach-cjk and --newer-schema: what is permitted, and nothing more."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
import stores
from scripts import need


def rows(path: Path, sql: str) -> list[tuple]:
    with closing(sqlite3.connect(path)) as db:
        return db.execute(sql).fetchall()


def cjk_triggers(path: Path) -> int:
    return rows(path, "SELECT count(*) FROM sqlite_master WHERE type = 'trigger'"
                      " AND name LIKE 'messages_fts_cjk%'")[0][0]  # fmt: skip


def test_a_write_is_refused_before_it_begins(run, store) -> None:
    need("delete")
    path = store("head-cjk")
    before = path.read_bytes()
    for more in ([], ["--dry-run"], ["--newer-schema"]):
        result = run("delete", stores.TIP, "--yes", "--db", path, *more).gave(78)
        assert "cjk_unicode61" in result.stderr and "--detach-cjk" in result.stderr
        assert not result.stdout
    assert path.read_bytes() == before


def test_detached_as_the_agent_does(run, store) -> None:
    need("delete")
    path = store("head-cjk")
    dry = run("delete", stores.TOOLS, "--dry-run", "--detach-cjk", "--db", path).ok()
    assert cjk_triggers(path) == 3, "a dry run sets nothing aside"
    result = run("delete", stores.TOOLS, "--yes", "--detach-cjk", "--db", path).ok()
    assert "optimize-storage" in result.stderr and len(dry.records) == len(result.records)
    assert cjk_triggers(path) == 0
    assert rows(path, "SELECT value FROM state_meta WHERE key = 'fts_cjk_stale'") == [("1",)]
    kept = "SELECT count(*) FROM sqlite_master WHERE name = 'messages_fts_cjk'"
    assert rows(path, kept) == [(1,)], "the index itself stays"
    assert stores.condition(path)["indexes"]["messages_fts"] is True
    again = run("delete", stores.PICTURES, "--yes", "--db", path).ok()
    assert "optimize-storage" not in again.stderr, "now nothing stands in the way"


def test_an_index_that_works_is_left_alone(run, store) -> None:
    need("delete")
    path = store("head-3")
    before = stores.condition(path)["objects"]
    run("delete", stores.TOOLS, "--yes", "--detach-cjk", "--db", path).ok()
    assert stores.condition(path)["objects"] == before


@pytest.mark.parametrize("script", ["delete", "archive", "end", "title", "prune"])
def test_b145_an_unknown_trigger(script: str, run, store) -> None:
    need(script)
    path = store("v22")
    table = "messages" if script in ("delete", "prune") else "sessions"
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("CREATE TABLE watched (id)")
        db.execute(f"CREATE TRIGGER watch AFTER UPDATE ON {table} BEGIN"
                   " INSERT INTO watched VALUES (new.id); END")  # fmt: skip
    argv = {
        "delete": ["20260225_101500_a1b2c3", "--yes"], "archive": ["20260225_101500_a1b2c3"],
        "end": ["20260226_150000_00cc33"], "title": ["20260225_101500_a1b2c3", "watched"],
        "prune": ["--older-than", "1d", "--yes"],
    }[script]  # fmt: skip
    refused = run(script, *argv, "--db", path).gave(78)
    assert "trigger watch" in refused.stderr and "--newer-schema" in refused.stderr
    run(script, *argv, "--newer-schema", "--db", path).ok()


def test_b144_a_trigger_that_outlived_its_index(run, store) -> None:
    need("delete")
    path = store("v22")
    with closing(sqlite3.connect(path)) as db, db:
        for verb in ("delete", "update"):
            db.execute(f"DROP TRIGGER messages_fts_trigram_{verb}")
        db.execute("DROP TABLE messages_fts_trigram")
    refused = run("delete", "20260225_101500_a1b2c3", "--yes", "--db", path).gave(78)
    assert "messages_fts_trigram" in refused.stderr and "hermes-session-check" in refused.stderr
    run("title", "20260225_101500_a1b2c3", "still possible", "--db", path).ok()
    run("list", "--db", path).ok()
