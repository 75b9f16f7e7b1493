"""hermes-session-handoff: every change a compare-and-set, and the agent reads what we write."""

import json
import sqlite3
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from conftest import Run

from hermes_tools.store import handoff
from hermes_tools.store.db import writer

PENDING, RUNNING = "20260301_100007_pendin", "20260301_100007_runnin"
COMPLETED, FAILED = "20260301_100009_comple", "20260301_100006_failed"
CLI, ROOT_ROW, MIDDLE = "20260225_101500_a1b2c3", "20260226_090000_00aa11", "20260226_113000_00bb22"
TIP = "20260226_150000_00cc33"
STATES = {None: TIP, "pending": PENDING, "running": RUNNING, "completed": COMPLETED,
          "failed": FAILED}  # fmt: skip


def execute(place: Path, sql: str, *values: Any) -> list[Any]:
    """A statement on a home's store."""
    with closing(sqlite3.connect(place / "state.db")) as db, db:
        return db.execute(sql, values).fetchall()


def state(place: Path, session_id: str) -> tuple[Any, ...]:
    """The three columns."""
    return execute(
        place, "SELECT handoff_state, handoff_platform, handoff_error FROM sessions WHERE id = ?",
        session_id,
    )[0]  # fmt: skip


@pytest.fixture
def place(home: Callable[[str], Path]) -> Path:
    """A home with Telegram set up."""
    found = home("v22")
    (found / ".env").write_text("TELEGRAM_BOT_TOKEN=123:abcdef\nTELEGRAM_HOME_CHANNEL=42\n")
    return found


@pytest.fixture
def ask(run: Run, place: Path) -> Callable[..., Any]:
    """ask("cancel", ID): a verb in that home."""
    return lambda verb, *argv: run("handoff", verb, *argv, "--home", place)


# --- Asking ---


@pytest.mark.parametrize(("before", "status"), [
    (None, 0), ("completed", 0), ("failed", 0), ("pending", 1), ("running", 1),
])  # fmt: skip
def test_b134_a_request_from_each_state(
    before: str | None, status: int, ask: Any, place: Path
) -> None:
    name = STATES[before]
    stood = state(place, name)
    result = ask("request", name, "telegram", "--wait", 0).gave(status)
    if status == 0:
        assert state(place, name) == ("pending", "telegram", None)
        assert result.records[0]["state"] == "pending"
    else:
        assert state(place, name) == stood and f"is {before} already" in result.stderr


def test_b134_wrong_rows(ask: Any, place: Path) -> None:
    result = ask("request", ROOT_ROW, "telegram", "--wait", 0).gave(1)
    assert f"goes on as {TIP}" in result.stderr
    assert ask("request", MIDDLE, "telegram", "--wait", 0).gave(1)
    execute(place, "UPDATE sessions SET archived = 1 WHERE id = ?", CLI)
    assert "archived" in ask("request", CLI, "telegram", "--wait", 0).gave(1).stderr
    for name in (ROOT_ROW, MIDDLE, CLI):
        assert state(place, name)[0] is None
    assert ask("request", "nobody", "telegram").gave(1)
    # A title names its newest, which is the tip.
    assert ask("request", "garden plan", "telegram", "--wait", 0).ok().ids == [TIP]


@pytest.mark.parametrize(("settings", "platform", "words"), [
    ("", "telegram", "not enabled"),
    ("TELEGRAM_BOT_TOKEN=1:x", "telegram", "/sethome"),
    ("TELEGRAM_BOT_TOKEN=1:x", "tlgr", "enabled here: telegram"),
    ("TELEGRAM_BOT_TOKEN=1:x", "slack", "not enabled"),
])  # fmt: skip
def test_b133_refused_before_any_write(
    settings: str, platform: str, words: str, ask: Any, place: Path
) -> None:
    (place / ".env").write_text(settings)
    before = (place / "state.db").read_bytes()
    assert words in ask("request", TIP, platform).gave(1).stderr
    assert (place / "state.db").read_bytes() == before


@pytest.mark.parametrize(("config", "env", "channel"), [
    ("", "TELEGRAM_BOT_TOKEN='1:x'\nexport TELEGRAM_HOME_CHANNEL=\"42\" # home", "42"),
    ("platforms: {telegram: {enabled: true, home_channel: {chat_id: 55}}}", "", "55"),
    ("gateway: {platforms: {telegram: {enabled: true, home_channel: {chat_id: 79}}}}", "", "79"),
    ("platforms: {telegram: {home_channel: {chat_id: 55}}}",
     "TELEGRAM_BOT_TOKEN=1:x\nTELEGRAM_HOME_CHANNEL=42", "42"),
    ("TELEGRAM_HOME_CHANNEL: 77", "TELEGRAM_BOT_TOKEN=1:x", "77"),
    ("platforms: {telegram: {enabled: false}}",
     "TELEGRAM_BOT_TOKEN=1:x\nTELEGRAM_HOME_CHANNEL=42", None),
])  # fmt: skip
def test_where_a_platform_may_be_set_up(
    config: str, env: str, channel: str | None, ask: Any, place: Path
) -> None:
    from hermes_tools.store.errors import Negative
    from hermes_tools.store.platforms import Platforms

    (place / "config.yaml").write_text(config)
    (place / ".env").write_text(env)
    if channel is None:
        with pytest.raises(Negative, match="not enabled"):
            Platforms(place).require("telegram")
    else:
        assert Platforms(place).require("Telegram ").chat_id == channel
    assert ask("request", TIP, "telegram", "--wait", 0).status == (1 if channel is None else 0)


def test_names_of_their_own(place: Path) -> None:
    from hermes_tools.store.platforms import Platforms

    (place / ".env").write_text(
        "MATRIX_ACCESS_TOKEN=x\nMATRIX_HOME_ROOM=!r:h\nEMAIL_ADDRESS=a@b\nEMAIL_PASSWORD=p\n"
        "EMAIL_SMTP_HOST=h\nEMAIL_HOME_ADDRESS=c@d\nDISCORD_BOT_TOKEN=x\nDISCORD_HOME_CHANNEL=9\n"
        "DISCORD_HOME_CHANNEL_NAME=Ops\nDISCORD_HOME_CHANNEL_THREAD_ID=8\n"
    )
    found = Platforms(place)
    assert found.require("matrix").chat_id == "!r:h"
    assert found.require("email").chat_id == "c@d"
    discord = found.require("discord")
    assert (discord.name, discord.thread_id) == ("Ops", "8")


def test_in_the_middle_of_a_turn(ask: Any, place: Path) -> None:
    execute(place, "INSERT INTO messages (session_id, role, content, timestamp) "
            "VALUES (?, 'user', 'x', ?)", TIP, time.time() - 5)  # fmt: skip
    assert "waits for an answer" in ask("request", TIP, "telegram").gave(75).stderr
    assert state(place, TIP)[0] is None
    ask("request", TIP, "telegram", "--wait", 0, "--live").ok()


def test_a_live_lease(ask: Any, place: Path) -> None:
    execute(place, "INSERT INTO compression_locks VALUES (?, 'pid=1', ?, ?)",
            TIP, time.time(), time.time() + 300)  # fmt: skip
    assert "compressed" in ask("request", TIP, "telegram").gave(75).stderr
    execute(place, "UPDATE compression_locks SET expires_at = 1")
    ask("request", TIP, "telegram", "--wait", 0).ok()


# --- Waiting ---


def after(seconds: float, place: Path, *changes: str) -> threading.Thread:
    """Somebody else's changes, a moment later."""

    def change() -> None:
        for sql in changes:
            time.sleep(seconds)
            execute(place, sql)

    thread = threading.Thread(target=change)
    thread.start()
    return thread


def test_nobody_takes_it(ask: Any, place: Path) -> None:
    result = ask("request", TIP, "telegram", "--wait", 0.1).gave(75)
    assert "no gateway took it" in result.stderr and "withdrawn" in result.stderr
    assert state(place, TIP) == ("failed", "telegram", "no gateway took it")
    assert not execute(place, "SELECT * FROM state_meta WHERE key LIKE 'handoff:%'")


def test_taken_but_not_done(ask: Any, place: Path) -> None:
    other = after(0.1, place, f"UPDATE sessions SET handoff_state = 'running' WHERE id = '{TIP}'")
    result = ask("request", TIP, "telegram", "--wait", 0.8).gave(124)
    other.join()
    assert state(place, TIP)[0] == "running" and result.records[0]["state"] == "running"


def test_done(ask: Any, place: Path) -> None:
    other = after(
        0.2, place, f"UPDATE sessions SET handoff_state = 'running' WHERE id = '{TIP}'",
        f"UPDATE sessions SET handoff_state = 'completed' WHERE id = '{TIP}'",
    )  # fmt: skip
    shown = ask("request", TIP, "telegram", "-t", "--wait", 20).ok().text
    other.join()
    assert "↻ Handoff complete. The session is now active on telegram." in shown
    assert f"--resume {TIP}" in shown


def test_it_failed(ask: Any, place: Path) -> None:
    other = after(
        0.2, place, "UPDATE sessions SET handoff_state = 'failed', handoff_error = 'no room' "
        f"WHERE id = '{TIP}'",
    )  # fmt: skip
    result = ask("request", TIP, "telegram", "--wait", 20).gave(1)
    other.join()
    assert "failed: no room" in result.stderr


def test_who_stops_waiting_withdraws(run: Run, place: Path) -> None:
    child = run.start("handoff", "request", TIP, "telegram", "--home", place)
    while state(place, TIP)[0] != "pending":
        time.sleep(0.05)
        assert child.poll() is None
    child.terminate()
    assert child.wait(20) == 143
    assert state(place, TIP) == ("failed", "telegram", "cancelled")


@pytest.mark.parametrize(("before", "status"), [
    (None, 1), ("completed", 0), ("failed", 1), ("pending", 124), ("running", 124),
])  # fmt: skip
def test_wait(before: str | None, status: int, ask: Any, place: Path) -> None:
    stood = state(place, STATES[before])
    ask("wait", STATES[before], "--wait", 0).gave(status)
    assert state(place, STATES[before]) == stood


@pytest.mark.parametrize("seconds", ["-1", "nan", "inf", "x"])
def test_no_time_to_wait(seconds: str, ask: Any, place: Path) -> None:
    ask("request", TIP, "telegram", "--wait", seconds).gave(2)
    assert state(place, TIP)[0] is None


# --- The other verbs ---


@pytest.mark.parametrize("verb", ["cancel", "claim", "complete", "fail"])
@pytest.mark.parametrize("before", list(STATES))
def test_verbs_from_each_state(verb: str, before: str | None, ask: Any, place: Path) -> None:
    goes = {"cancel": "pending", "claim": "pending", "complete": "running", "fail": "running"}
    becomes = {"cancel": "failed", "claim": "running", "complete": "completed", "fail": "failed"}
    name = STATES[before]
    stood = state(place, name)
    result = ask(verb, name)
    if before == goes[verb]:
        assert result.ok().records[0]["state"] == becomes[verb] == state(place, name)[0]
    else:
        assert f"its handoff is {before or 'none'}" in result.gave(1).stderr
        assert state(place, name) == stood


def test_errors_are_cut_at_500_characters(ask: Any, place: Path) -> None:
    ask("fail", RUNNING, "--error", "é" * 900).ok()
    assert state(place, RUNNING)[2] == "é" * 500


def test_stuck(ask: Any, place: Path) -> None:
    flags = {one["session_id"]: one["flag"] for one in ask("list").ok().records}
    assert flags == {PENDING: None, RUNNING: "stuck", COMPLETED: None, FAILED: None}
    assert "stuck" in ask("list", "-t").ok().text
    ask("claim", PENDING).ok()
    assert ask("cancel", "--stuck", PENDING).gave(1)  # a moment old
    ask("cancel", "--stuck", RUNNING).ok()
    assert state(place, RUNNING) == ("failed", "telegram", "cancelled: stuck")


def test_b132_a_session_closed_behind_its_handoff_is_flagged(ask: Any, place: Path) -> None:
    execute(place, "UPDATE sessions SET ended_at = 1772400000, end_reason = 'cli_close' "
            "WHERE id = ?", COMPLETED)  # fmt: skip
    (record,) = ask("list", COMPLETED).ok().records
    assert record["flag"] == "closed"
    execute(place, "UPDATE sessions SET end_reason = 'idle' WHERE id = ?", COMPLETED)
    assert ask("list", COMPLETED).ok().records[0]["flag"] is None


def test_list_one(ask: Any) -> None:
    assert ask("list", PENDING).ok().ids == [PENDING]
    assert "no handoff" in ask("list", TIP).gave(1).stderr


def test_claim_takes_the_oldest(ask: Any, place: Path) -> None:
    execute(place, "UPDATE sessions SET handoff_state = 'pending' WHERE id = ?", CLI)
    assert ask("claim").ok().ids == [CLI]
    assert ask("claim").ok().ids == [PENDING]
    assert "no handoff is pending" in ask("claim").gave(1).stderr


def test_of_many_that_claim_one_succeeds(run: Run, place: Path) -> None:
    children = [run.start("handoff", "claim", PENDING, "--home", place) for _ in range(6)]
    assert sorted(child.wait(60) for child in children) == [0, 1, 1, 1, 1, 1]
    for child in children:
        child.communicate()


def test_a_store_without_the_columns(run: Run, home: Callable[[str], Path]) -> None:
    place = home("v11")
    for column in ("handoff_state", "handoff_platform", "handoff_error"):
        execute(place, f"ALTER TABLE sessions DROP COLUMN {column}")
    result = run("handoff", "list", "--home", place).gave(78)
    assert "no handoff columns" in result.stderr


# --- The script itself ---


def test_help_version_and_no_verb(run: Run) -> None:
    shown = run("handoff", "--help").ok().text
    for verb in ("request", "list", "wait", "cancel", "claim", "complete", "fail"):
        assert f"\n  {verb} " in shown
        assert "Usage: hermes-session-handoff " + verb in run("handoff", verb, "-h").ok().text
        assert run("handoff", verb, "--version").ok().text.startswith("hermes-session-handoff (")
    assert run("handoff", "--version").ok().text.startswith("hermes-session-handoff (")
    assert "--help" in run("handoff").gave(2).stderr
    assert "bogus" in run("handoff", "bogus").gave(2).stderr


# --- Beside the agent ---

SPEAK = """
import json, sys
from hermes_state import SessionDB
db = SessionDB(db_path=__import__("pathlib").Path(sys.argv[1]))
for line in sys.stdin:
    verb, *rest = json.loads(line)
    found = getattr(db, verb)(*rest)
    if verb == "list_pending_handoffs":
        found = [one["id"] for one in found]
    print(json.dumps(found))
"""


@pytest.mark.parametrize(("version", "store"), [("0.13.0", "v11"), ("0.19.0", "v22")])
def test_a_release_reads_our_states_and_we_read_its(
    version: str, store: str, run: Run, home: Callable[[str], Path], agent: Callable[[str], Path],
    tmp_path: Path,
) -> None:  # fmt: skip
    place = home(store)
    (place / ".env").write_text("TELEGRAM_BOT_TOKEN=123:abcdef\nTELEGRAM_HOME_CHANNEL=42\n")

    def theirs(*call: Any) -> Any:
        done = subprocess.run(
            [agent(version).parent / "python", "-c", SPEAK, place / "state.db"],
            input=json.dumps(call), capture_output=True, text=True,
            env={"HERMES_HOME": str(tmp_path), "HOME": str(tmp_path)},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def ours(verb: str, *argv: Any) -> Any:
        return run("handoff", verb, *argv, "--home", place)

    ours("request", TIP, "telegram", "--wait", 0).ok()
    assert theirs("get_handoff_state", TIP) == {
        "state": "pending", "platform": "telegram", "error": None,
    }  # fmt: skip
    assert theirs("list_pending_handoffs") == [TIP, PENDING]
    assert theirs("request_handoff", TIP, "discord") is False
    assert theirs("claim_handoff", TIP) is True
    ours("claim", TIP).gave(1)
    assert ours("list", TIP).ok().records[0]["state"] == "running"
    ours("fail", TIP, "--error", "x" * 600).ok()
    assert theirs("get_handoff_state", TIP)["error"] == "x" * 500
    assert theirs("request_handoff", TIP, "discord") is True
    ours("request", TIP, "telegram").gave(1)
    ours("claim", TIP).ok()
    assert theirs("claim_handoff", TIP) is False
    ours("complete", TIP).ok()
    assert theirs("get_handoff_state", TIP)["state"] == "completed"
    # And the other way round.
    theirs("request_handoff", TIP, "telegram")
    assert ours("list", TIP).ok().records[0]["state"] == "pending"
    assert theirs("claim_handoff", TIP) is True
    theirs("complete_handoff", TIP)
    ours("wait", TIP).ok()
    theirs("fail_handoff", RUNNING, "adapter gone")
    assert "adapter gone" in ours("wait", RUNNING).gave(1).stderr


# --- Functions ---


def test_whether_a_worker_is_dead() -> None:
    me = handoff.oneself()
    assert not handoff.dead(me)
    with subprocess.Popen(["true"]) as gone:
        pass
    assert handoff.dead({**me, "pid": gone.pid})
    assert handoff.dead({**me, "started": 1})  # its number went to another process
    assert handoff.dead({**me, "boot": "an earlier one"})
    for unknown in ({**me, "host": "elsewhere", "pid": gone.pid}, {**me, "pid": None}, None, "x",
                    {**me, "space": "pid:[1]", "pid": gone.pid}):  # fmt: skip
        assert not handoff.dead(unknown)


def test_notes_are_gone_when_it_is_over(place: Path) -> None:
    with writer(place / "state.db") as db:
        assert handoff.claim(db, PENDING, {"worker": handoff.oneself()})
        assert handoff.get(db, PENDING).notes["worker"]["pid"] and handoff.get(db, PENDING).exact
        assert handoff.fail(db, PENDING, "x")
        assert handoff.get(db, PENDING).notes == {}
