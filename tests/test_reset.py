"""hermes-session-reset: what is past its time is ended and unbound, and nothing else."""

import fcntl
import json
import os
import sqlite3
import subprocess
import time
from collections.abc import Callable
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import stores
from conftest import Run

TELEGRAM, DISCORD = "20260227_080000_deadbe01", "20260227_090000_deadbe02"
TIP, ROOT_ROW = "20260226_150000_00cc33", "20260226_090000_00aa11"
KEY = "agent:main:telegram:dm:42"
IDLE = ("--mode", "idle", "--idle-minutes", 60)


def execute(place: Path, sql: str, *values: Any) -> list[Any]:
    """A statement on a home's store."""
    with closing(sqlite3.connect(place / "state.db")) as db, db:
        return db.execute(sql, values).fetchall()


def entry(session_id: str, minutes: float = 10_000, **more: Any) -> dict[str, Any]:
    """A route last used so long ago."""
    moment = datetime.fromtimestamp(time.time() - minutes * 60).isoformat()
    return {"session_id": session_id, "updated_at": moment, "platform": "telegram",
            "chat_type": "dm", **more}  # fmt: skip


def route(place: Path, key: str, one: dict[str, Any], scope: str | None = None) -> None:
    """Put a route into the table."""
    where = str((place / "sessions").resolve()) if scope is None else scope
    execute(place, "INSERT OR REPLACE INTO gateway_routing VALUES (?, ?, ?, 0)", where, key,
            json.dumps(one))  # fmt: skip


def routed(place: Path) -> set[str]:
    """Keys in the table."""
    return {row[0] for row in execute(place, "SELECT session_key FROM gateway_routing")}


def ended(place: Path, session_id: str = TELEGRAM) -> Any:
    """The end reason of a session."""
    return execute(place, "SELECT end_reason FROM sessions WHERE id = ?", session_id)[0][0]


@pytest.fixture
def place(home: Callable[[str], Path]) -> Path:
    """A home with one old route, in the table and its mirror."""
    found = home("v22")
    execute(found, "DELETE FROM gateway_routing")
    route(found, KEY, entry(TELEGRAM, kept=True))
    (found / "sessions").mkdir()
    mirror = {"_README": "words", KEY: entry(TELEGRAM), "other": {"session_id": "x", "odd": 1}}
    (found / "sessions" / "sessions.json").write_text(json.dumps(mirror))
    return found


def test_nothing_configured_is_nothing_done(run: Run, place: Path) -> None:
    assert run("reset", "--yes", "--home", place).ok().records == []
    assert routed(place) == {KEY} and ended(place) is None


def test_past_its_time_it_is_ended_and_unbound(run: Run, place: Path) -> None:
    foretold = run("reset", *IDLE, "--dry-run", "--home", place).ok().records
    assert [one["action"] for one in foretold] == ["would_reset"] and ended(place) is None
    (record,) = run("reset", *IDLE, "--yes", "--home", place).ok().records
    assert (record["session_id"], record["session_key"]) == (TELEGRAM, KEY)
    assert (record["action"], record["reason"], record["end_reason"]) == ("reset", "idle", "idle")
    differing = {"action", "ended_at"}
    assert {k: v for k, v in record.items() if k not in differing} == {
        k: v for k, v in foretold[0].items() if k not in differing
    }
    assert ended(place) == "idle" and routed(place) == set()
    assert execute(place, "SELECT expiry_finalized FROM sessions WHERE id = ?", TELEGRAM) == [(1,)]
    mirror = json.loads((place / "sessions" / "sessions.json").read_text())
    assert mirror == {"_README": "words", "other": {"session_id": "x", "odd": 1}}
    # Twice is as once.
    again = run("reset", *IDLE, "--yes", "--home", place).ok().records
    assert KEY not in [one["session_key"] for one in again]


def test_daily_by_config(run: Run, place: Path) -> None:
    (place / "config.yaml").write_text("session_reset: {mode: daily, at_hour: 4}\n")
    (record,) = run("reset", "--yes", "--home", place).ok().records
    assert record["reason"] == "daily" and ended(place) == "daily"


def test_overrides_by_platform_and_type(run: Run, place: Path) -> None:
    route(place, "k:group", entry(TIP, chat_type="group", platform="slack"))
    (place / "gateway.json").write_text(json.dumps({
        "default_reset_policy": {"mode": "idle", "idle_minutes": 1},
        "reset_by_platform": {"telegram": {"mode": "none"}},
        "reset_by_type": {"group": {"mode": "daily"}},
    }))  # fmt: skip
    (record,) = run("reset", "--yes", "--home", place).ok().records
    assert (record["session_key"], record["reason"]) == ("k:group", "daily")
    assert routed(place) == {KEY}


def test_what_is_young_stays(run: Run, place: Path) -> None:
    route(place, KEY, entry(TELEGRAM, 59))
    assert run("reset", *IDLE, "--yes", "--home", place).ok().records == []
    # Activity the gateway did not see counts too: somebody went on at the command line.
    route(place, KEY, entry(TELEGRAM, 600))
    execute(place, "INSERT INTO messages (session_id, role, content, timestamp) "
            "VALUES (?, 'assistant', 'x', ?)", TELEGRAM, time.time() - 60)  # fmt: skip
    assert run("reset", *IDLE, "--yes", "--home", place).ok().records == []


def test_a_time_that_is_none_resets_nothing(run: Run, place: Path) -> None:
    route(place, KEY, {**entry(TELEGRAM), "updated_at": "soon"})
    execute(place, "UPDATE messages SET timestamp = 5 WHERE session_id = ?", TELEGRAM)
    execute(place, "UPDATE sessions SET started_at = 5 WHERE id = ?", TELEGRAM)
    (record,) = run("reset", *IDLE, "--yes", "--home", place).ok().records
    assert (record["action"], record["reason"]) == ("skipped", "no_time")
    assert ended(place) is None and routed(place) == {KEY}


def test_the_tip_of_a_compressed_session_is_ended(run: Run, place: Path) -> None:
    route(place, KEY, entry(ROOT_ROW))
    (record,) = run("reset", *IDLE, "--yes", "--home", place).ok().records
    assert record["session_id"] == TIP
    assert ended(place, TIP) == "idle" and ended(place, ROOT_ROW) == "compression"


def test_b175_ended_and_missing_sessions_are_only_unbound(run: Run, place: Path) -> None:
    route(place, KEY, entry(DISCORD))
    route(place, "k:gone", entry("nowhere"))
    before = ended(place, DISCORD)
    found = run("reset", *IDLE, "--yes", "--home", place).ok().records
    assert {one["session_key"]: one["action"] for one in found} == {
        KEY: "unbound", "k:gone": "unbound",
    }  # fmt: skip
    assert ended(place, DISCORD) == before and routed(place) == set()


def test_an_interrupted_reset_is_finished(run: Run, place: Path) -> None:
    # Ended in the store, still routed: what a crash in between leaves, young or not.
    route(place, KEY, entry(TELEGRAM, 1))
    execute(place, "UPDATE sessions SET ended_at = ?, end_reason = 'idle' WHERE id = ?",
            time.time(), TELEGRAM)  # fmt: skip
    (record,) = run("reset", *IDLE, "--yes", "--home", place).ok().records
    assert record["action"] == "unbound" and routed(place) == set()


def test_suspended_and_unwanted_resumptions(run: Run, place: Path) -> None:
    route(place, KEY, entry(TELEGRAM, 1, suspended=True))
    marked = datetime.fromtimestamp(time.time() - 3700).isoformat()
    route(place, "k", entry(TIP, 1, resume_pending=True, last_resume_marked_at=marked))
    execute(place, "UPDATE messages SET timestamp = ? WHERE session_id = ?",
            time.time() - 1800, TIP)  # fmt: skip
    found = run("reset", *IDLE, "--dry-run", "--home", place).ok().records
    assert {one["session_key"]: one["reason"] for one in found} == {
        KEY: "suspended", "k": "resume_pending_expired",
    }  # fmt: skip


def test_routes_of_other_homes_are_not_ours(run: Run, place: Path) -> None:
    execute(place, "DELETE FROM gateway_routing")
    route(place, "k:theirs", entry(TIP), scope="/elsewhere/sessions")
    assert run("reset", *IDLE, "--yes", "--home", place).ok().records == []
    assert routed(place) == {"k:theirs"}


def test_a_store_without_the_table(run: Run, home: Callable[[str], Path]) -> None:
    place = home("v11")
    (place / "sessions").mkdir()
    file = place / "sessions" / "sessions.json"
    file.write_text(json.dumps({"_x": 1, KEY: entry(TELEGRAM), "young": entry(TIP, 1)}))
    os.chmod(file, 0o640)
    (record,) = run("reset", *IDLE, "--yes", "--home", place).ok().records
    assert record["action"] == "reset" and ended(place) == "idle"
    assert set(json.loads(file.read_text())) == {"_x", "young"}
    assert file.stat().st_mode & 0o777 == 0o640 and len(os.listdir(file.parent)) == 1


# --- What is left alone ---


def test_running_background_processes(run: Run, place: Path) -> None:
    with subprocess.Popen(["sleep", "60"]) as child:
        (place / "processes.json").write_text(json.dumps([{"session_key": KEY, "pid": child.pid}]))
        for more in ((), ("--live",)):
            (record,) = run("reset", *IDLE, "--yes", *more, "--home", place).ok().records
            assert (record["action"], record["reason"]) == ("skipped", "background")
        child.kill()
    run("reset", *IDLE, "--yes", "--home", place).ok()
    assert ended(place) == "idle"


def test_an_unreadable_list_of_processes_is_not_an_empty_one(run: Run, place: Path) -> None:
    (place / "processes.json").write_text("{bad")
    (record,) = run("reset", *IDLE, "--yes", "--home", place).ok().records
    assert record["reason"] == "background" and ended(place) is None


def test_a_running_gateway_stops_it(run: Run, place: Path) -> None:
    with open(place / "gateway.lock", "w") as lock:
        lock.write('{"pid": 4711}')
        lock.flush()
        fcntl.flock(lock, fcntl.LOCK_EX)
        for argv in (("--yes",), ("--dry-run",)):
            result = run("reset", *IDLE, *argv, "--home", place).gave(75)
            assert "gateway (process 4711) is running" in result.stderr and not result.stdout
        assert ended(place) is None
        run("reset", *IDLE, "--yes", "--live", "--home", place).ok()
    assert ended(place) == "idle"


@pytest.mark.parametrize(("sql", "reason"), [
    ("INSERT INTO compression_locks VALUES ('{id}', 'pid=1', {now}, {now} + 300)", "compression"),
    ("UPDATE sessions SET handoff_state = 'running' WHERE id = '{id}'", "handoff"),
])  # fmt: skip
def test_b177_sessions_in_use(sql: str, reason: str, run: Run, place: Path) -> None:
    execute(place, sql.format(id=TELEGRAM, now=time.time()))
    (record,) = run("reset", *IDLE, "--yes", "--home", place).ok().records
    assert (record["action"], record["reason"]) == ("skipped", reason)
    assert ended(place) is None and routed(place) == {KEY}
    run("reset", *IDLE, "--yes", "--live", "--home", place).ok()
    assert ended(place) == "idle"


def test_mid_turn(run: Run, place: Path) -> None:
    execute(place, "INSERT INTO messages (session_id, role, content, timestamp) "
            "VALUES (?, 'user', 'x', ?)", TELEGRAM, time.time() - 120)  # fmt: skip
    route(place, KEY, entry(TELEGRAM, 2))
    argv = ("reset", "--mode", "idle", "--idle-minutes", 1, "--yes", "--home", place)
    (record,) = run(*argv).ok().records
    assert record["reason"] == "mid_turn" and ended(place) is None


def test_without_yes_nobody_is_asked(run: Run, place: Path) -> None:
    assert "--yes" in run("reset", *IDLE, "--home", place).gave(2).stderr
    assert ended(place) is None
    seen = run.terminal("reset", *IDLE, "--home", place, keys=b"n\n").gave(1).text
    assert "reset 1 session of" in seen and ended(place) is None
    run.terminal("reset", *IDLE, "--home", place, keys=b"y\n").gave(0)
    assert ended(place) == "idle"
    assert "[y/N]" not in run.terminal("reset", *IDLE, "--home", place).gave(0).text


# --- The command before ---


def test_before_reset_runs_first_and_may_say_no(run: Run, place: Path) -> None:
    route(place, "k", entry(TIP))
    log = place / "log"
    command = (
        f"cat >> {log}; echo $HERMES_SESSION_ID $HERMES_HOME >> {log}; "
        f'test "$HERMES_SESSION_ID" = {TELEGRAM}'
    )
    result = run("reset", *IDLE, "--yes", "--before-reset", command, "--home", place).gave(1)
    actions = {one["session_key"]: (one["action"], one["reason"]) for one in result.records}
    assert actions == {KEY: ("reset", "idle"), "k": ("skipped", "command")}
    assert ended(place) == "idle" and ended(place, TIP) is None and routed(place) == {"k"}
    first = json.loads(log.read_text().splitlines()[0])
    assert first["session_id"] in (TELEGRAM, TIP) and first["end_reason"] is None
    assert f"{TELEGRAM} {place}" in log.read_text()


def test_what_changed_meanwhile_is_left_alone(run: Run, place: Path) -> None:
    change = (
        f"sqlite3 {place}/state.db \"UPDATE gateway_routing SET entry_json = "
        "json_set(entry_json, '$.updated_at', '2099-01-01T00:00:00')\""
    )
    result = run("reset", *IDLE, "--yes", "--before-reset", change, "--home", place).gave(1)
    assert result.records[0]["reason"] == "changed" and ended(place) is None
    assert routed(place) == {KEY}


def test_the_turn_that_saves_memories_does_not_make_it_young(run: Run, place: Path) -> None:
    turn = (
        f'sqlite3 {place}/state.db "INSERT INTO messages (session_id, role, content, timestamp) '
        f"VALUES ('{TELEGRAM}', 'assistant', 'saved', strftime('%s'))\""
    )
    run("reset", *IDLE, "--yes", "--before-reset", turn, "--home", place).ok()
    assert ended(place) == "idle"


@pytest.mark.parametrize("argv", [
    ("--mode", "weekly"), ("--at-hour", 4), ("--mode", "daily", "--at-hour", 24),
    ("--mode", "idle", "--idle-minutes", 0),
])  # fmt: skip
def test_usage(argv: tuple[Any, ...], run: Run, place: Path) -> None:
    run("reset", "--yes", *argv, "--home", place).gave(2)


def test_a_slip_in_the_settings_resets_nothing(run: Run, place: Path) -> None:
    (place / "config.yaml").write_text("session_reset: {mode: dayly}\n")
    assert "dayly" in run("reset", "--yes", "--home", place).gave(2).stderr


def test_a_reset_begins_a_new_generation(run: Run, home: Callable[[str], Path]) -> None:
    place = home("head-3")
    execute(place, "UPDATE sessions SET source = 'telegram', session_key = ? WHERE id = ?",
            KEY, stores.TIP)  # fmt: skip
    execute(place, "INSERT INTO conversation_generations VALUES ('telegram', ?, 7)", KEY)
    route(place, KEY, entry(stores.TIP))
    found = run("reset", *IDLE, "--yes", "--home", place).ok().records
    assert ("reset", KEY) in [(one["action"], one["session_key"]) for one in found]
    assert execute(place, "SELECT generation FROM conversation_generations "
                   "WHERE session_key = ?", KEY) == [(8,)]  # fmt: skip


# --- What the agent makes of it ---

NEXT = """
import sys, json
from gateway.session import SessionSource, SessionStore
from gateway.config import GatewayConfig, Platform
from pathlib import Path
folder = Path(sys.argv[1]) / "sessions"
store = SessionStore(folder, GatewayConfig(sessions_dir=folder))
source = SessionSource(platform=Platform("telegram"), chat_id="77", user_id="u")
one = store.get_or_create_session(source)
store.append_to_transcript(one.session_id, {"role": "user", "content": "hello"})
store.append_to_transcript(one.session_id, {"role": "assistant", "content": "hello"})
print(one.session_id)
"""


@pytest.mark.parametrize("version", ["0.13.0", "0.19.0"])
def test_the_agents_next_message_begins_a_new_session(
    version: str, run: Run, agent: Callable[[str], Path], tmp_path: Path
) -> None:
    place = tmp_path / "home"
    (place / "sessions").mkdir(parents=True)

    def message() -> str:
        done = subprocess.run(
            [agent(version).parent / "python", "-c", NEXT, place], capture_output=True, text=True,
            env={"HERMES_HOME": str(place), "HOME": str(tmp_path)},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout.split()[-1]

    first = message()
    assert message() == first
    later = {"HERMES_HOME": str(place)}
    assert run("reset", *IDLE, "--yes", env=later).ok().records == []
    # An hour ago, by both its clocks.
    execute(place, "UPDATE messages SET timestamp = timestamp - 7200")
    execute(place, "UPDATE sessions SET started_at = started_at - 7200")
    old = datetime.fromtimestamp(time.time() - 7200).isoformat()
    file = place / "sessions" / "sessions.json"
    loaded = json.loads(file.read_text())
    for one in loaded.values():
        if isinstance(one, dict):
            one["updated_at"] = old
            if version != "0.13.0":
                execute(place, "UPDATE gateway_routing SET entry_json = ?", json.dumps(one))
    file.write_text(json.dumps(loaded))
    (record,) = run("reset", *IDLE, "--yes", env=later).ok().records
    assert (record["session_id"], record["action"]) == (first, "reset")
    second = message()
    assert second != first
    assert ended(place, first) == "idle"
