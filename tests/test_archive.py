"""hermes-session-archive: whole conversations, there and back."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
import stores

AUTH = "20260225_101500_a1b2c3"
GARDEN = [
    "20260226_090000_00aa11", "20260226_113000_00bb22", "20260226_150000_00cc33",
    "20260226_151000_00dd44",
]  # fmt: skip


def archived(path: Path) -> set[str]:
    """The ids that are hidden."""
    with closing(sqlite3.connect(path)) as db:
        return {row[0] for row in db.execute("SELECT id FROM sessions WHERE archived = 1")}


@pytest.mark.parametrize("ref", [*GARDEN[:3], "garden plan"])
@pytest.mark.parametrize("name", ["v14", "v19", "v22"])
def test_b58_the_whole_lineage_changes_together(run, store, name: str, ref: str) -> None:
    path = store(name)
    before = archived(path)
    (record,) = run("archive", "--db", path, ref).ok().records
    assert (record["session_id"], record["action"]) == (GARDEN[2], "archived")
    assert record["archived"] is True and record["title"] == "garden plan #3"
    assert archived(path) == before | set(GARDEN)
    assert run("archive", "--db", path, ref).ok().records[0]["action"] == "unchanged"
    (record,) = run("archive", "--db", path, "--undo", ref).ok().records
    assert (record["action"], record["archived"]) == ("unarchived", False)
    assert archived(path) == before


def test_b58_a_half_archived_lineage_is_made_whole(run, store) -> None:
    path = store("v22")
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE sessions SET archived = 1 WHERE id = ?", (GARDEN[2],))
    assert run("archive", "--db", path, GARDEN[0]).ok().records[0]["action"] == "archived"
    assert set(GARDEN) <= archived(path)


def test_b69_titles_stay(run, store) -> None:
    path = store("v22")
    with closing(sqlite3.connect(path)) as db:
        titles = db.execute("SELECT id, title FROM sessions ORDER BY id").fetchall()
    run("archive", "--db", path, "--older-than", "0d", "--live").ok()
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("SELECT id, title FROM sessions ORDER BY id").fetchall() == titles


def test_a_store_without_the_column(run, store) -> None:
    path = store("v13")
    before = path.read_bytes()
    result = run("archive", "--db", path, AUTH).gave(78)
    assert "archived" in result.stderr and "0.16" in result.stderr
    assert path.read_bytes() == before


def test_by_filter_what_is_in_use_is_spared(run, store) -> None:
    path = store("v22")
    result = run("archive", "--db", path, "--source", "cli").ok()
    actions = {one["session_id"]: one["action"] for one in result.records}
    assert actions["20260301_100007_pendin"] == "skipped"
    assert actions[AUTH] == "archived"
    assert "handoff" in result.stderr
    named = run("archive", "--db", path, "20260301_100007_pendin").gave(1)
    assert named.records[0]["reason"] == "handoff"
    run("archive", "--db", path, "20260301_100007_pendin", "--live").ok()


def test_filters_narrow_names(run, store) -> None:
    path = store("v22")
    result = run("archive", "--db", path, AUTH, GARDEN[0], "--title-like", "garden").ok()
    assert result.ids == [GARDEN[2]]


def test_records_of_another_profile_are_refused(run, store) -> None:
    path = store("v22")
    lines = [{"session_id": AUTH, "profile": "work"}]
    run("archive", "--db", path, "-", input=lines).gave(65)
    assert AUTH not in archived(path)


def test_dry_run(run, store) -> None:
    path = store("v22")
    before = path.read_bytes()
    told = run("archive", "--db", path, AUTH, "--dry-run").ok().records
    assert path.read_bytes() == before
    done = run("archive", "--db", path, AUTH).ok().records
    assert told[0].pop("action") == "would_archive" and done[0].pop("action") == "archived"
    assert told == done


def test_nothing_else_is_touched(run, store) -> None:
    path = store("v22")
    before = stores.condition(path)
    run("archive", "--db", path, "--source", "cli", "--live").ok()
    assert stores.condition(path) == before


def test_what_the_agent_hid_is_the_users_from_then_on(run, store) -> None:
    path = store("head-3")
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(
            "UPDATE sessions SET auto_archived = 1, archived = 1 WHERE id = ?", (stores.CJK,)
        )
    run("archive", "--db", path, "--undo", stores.CJK).ok()
    with closing(sqlite3.connect(path)) as db:
        assert db.execute(
            "SELECT archived, auto_archived FROM sessions WHERE id = ?", (stores.CJK,)
        ).fetchone() == (0, 0)
