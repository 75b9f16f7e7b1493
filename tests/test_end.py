"""hermes-session-end: end, reopen, and close what nobody touched."""

import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest

AUTH = "20260225_101500_a1b2c3"
TIP, DELEGATE = "20260226_150000_00cc33", "20260226_151000_00dd44"
CHAT = "20260227_080000_deadbe01"
HANDED = "20260301_100009_comple"


def ask(path: Path, sql: str, *values: object) -> list[tuple]:
    """Rows of one statement, committed."""
    with closing(sqlite3.connect(path)) as db, db:
        return db.execute(sql, values).fetchall()


def ending(path: Path, session_id: str) -> tuple:
    """(ended_at, end_reason)."""
    return ask(path, "SELECT ended_at, end_reason FROM sessions WHERE id = ?", session_id)[0]


@pytest.mark.parametrize("name", ["v11", "v16", "v22"])
def test_end_and_reopen(run, store, name: str) -> None:
    path = store(name)
    (record,) = run("end", "--db", path, "garden plan").ok().records
    assert (record["session_id"], record["action"], record["end_reason"]) == (
        TIP,
        "ended",
        "closed",
    )
    at, reason = ending(path, TIP)
    assert reason == "closed" and abs(at - time.time()) < 60 and record["ended_at"] == at
    assert ending(path, "20260226_090000_00aa11")[1] == "compression"
    (record,) = run("end", "--db", path, "--reopen", TIP).ok().records
    assert (record["action"], record["ended_at"], record["end_reason"]) == ("reopened", None, None)
    assert ending(path, TIP) == (None, None)


def test_the_first_reason_wins(run, store) -> None:
    path = store("v22")
    before = ending(path, AUTH)
    (record,) = run("end", "--db", path, AUTH, "--reason", "late").ok().records
    assert record["action"] == "unchanged" and ending(path, AUTH) == before


def test_delegates_end_with_it(run, store) -> None:
    path = store("v22")
    ask(path, "UPDATE sessions SET ended_at = NULL, end_reason = NULL WHERE id = ?", DELEGATE)
    run("end", "--db", path, TIP, "--reason", "done").ok()
    assert ending(path, DELEGATE)[1] == "done"


def test_b77_close_what_nobody_touched(run, store) -> None:
    path = store("v22")
    ask(path, "UPDATE messages SET timestamp = ? WHERE session_id = ?", time.time() - 60, CHAT)
    result = run("end", "--db", path, "--open", "--older-than", "7d").ok()
    actions = {one["session_id"]: one["action"] for one in result.records}
    assert actions[TIP] == "ended" and CHAT not in actions
    assert ending(path, CHAT) == (None, None)
    assert actions["20260301_100007_runnin"] == "skipped"


def test_b132_a_handed_off_session_is_never_ended(run, store) -> None:
    path = store("v22")
    result = run("end", "--db", path, HANDED, "--live").gave(1)
    assert result.records[0]["reason"] == "handed_off" and ending(path, HANDED) == (None, None)


def test_ids_are_those_of_what_was_done(run, store) -> None:
    argv = ("end", "--db", store("v22"), "--open", "--older-than", "7d")
    all_of_them = run(*argv, "--dry-run").ok().records
    left = {one["session_id"] for one in all_of_them if one["action"] == "skipped"}
    assert left, "handed off ones, to be told but not handed on"
    result = run(*argv, "-f", "ids").ok()
    assert set(result.lines) == {one["session_id"] for one in all_of_them} - left


def test_filters_alone_mean_open_ones(run, store) -> None:
    path = store("v22")
    result = run("end", "--db", path, "--source", "cron")
    assert result.ok().records == []
    assert run("end", "--db", path, "--source", "cron", "--reopen").ok().records


@pytest.mark.parametrize("reason", ["compression", "branched", "", "a\nb"])
def test_reasons_that_would_lie(run, store, reason: str) -> None:
    path = store("v22")
    run("end", "--db", path, TIP, "--reason", reason).gave(2)
    assert ending(path, TIP) == (None, None)


def test_a_reset_reason_starts_a_new_generation(run, store) -> None:
    path = store("v22")
    ask(
        path,
        "CREATE TABLE conversation_generations (source TEXT, session_key TEXT, "
        "generation INTEGER, PRIMARY KEY (source, session_key))",
    )
    ask(path, "UPDATE sessions SET session_key = 'k' WHERE id = ?", CHAT)
    run("end", "--db", path, CHAT).ok()
    assert ask(path, "SELECT * FROM conversation_generations") == []
    for number in (1, 2):
        run("end", "--db", path, CHAT, "--reopen").ok()
        run("end", "--db", path, CHAT, "--reason", "session_reset").ok()
        assert ask(path, "SELECT * FROM conversation_generations") == [("telegram", "k", number)]


def test_dry_run(run, store) -> None:
    path = store("v22")
    before = path.read_bytes()
    (record,) = run("end", "--db", path, TIP, "--dry-run").ok().records
    assert record["action"] == "would_end" and path.read_bytes() == before
    assert run("end", "--db", path, AUTH, "--reopen", "--dry-run").ok().records[0]["action"] == (
        "would_reopen"
    )
