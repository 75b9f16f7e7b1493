"""hermes-session-deliver: against servers that answer like the platforms, and workers that die."""

import fcntl
import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
import stores
from conftest import Run
from platforms import TOKENS, Platform, Request, serving

from hermes_tools.console import delivery
from hermes_tools.console.delivery import Place, pieces
from hermes_tools.store.keys import session_key, source
from hermes_tools.store.platforms import Channel

PENDING = "20260301_100007_pendin"
TIP, TELEGRAM = "20260226_150000_00cc33", "20260227_080000_deadbe01"
AGENT = "printf 'I am here. Next: the %s.\\nsession_id: x\\n' garden"
REPLY = "I am here. Next: the garden."


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Waits that are noted instead of waited."""
    waited: list[float] = []
    monkeypatch.setattr(delivery, "pause", waited.append)
    return waited


def configure(place: Path, **settings: str) -> None:
    """Write a home's .env."""
    lines = [f"{name}={value}\n" for name, value in settings.items()]
    (place / ".env").write_text("".join(lines))


def row(place: Path, session_id: str = PENDING) -> dict[str, Any]:
    """A session's stored row."""
    with closing(sqlite3.connect(place / "state.db")) as db:
        db.row_factory = sqlite3.Row
        return dict(db.execute("SELECT * FROM sessions WHERE id = ?", (session_id,)).fetchone())


def execute(place: Path, sql: str, *values: Any) -> list[Any]:
    """A statement on a home's store."""
    with closing(sqlite3.connect(place / "state.db")) as db, db:
        return db.execute(sql, values).fetchall()


def routes(place: Path) -> dict[str, str]:
    """Session key → session id, of the table."""
    found = execute(place, "SELECT session_key, entry_json FROM gateway_routing")
    return {key: json.loads(entry)["session_id"] for key, entry in found}


def request(place: Path, session_id: str, platform: str) -> None:
    """Let a session, and no other, wait for its handoff."""
    execute(place, "UPDATE sessions SET handoff_state = NULL WHERE handoff_state = 'pending'")
    execute(
        place, "UPDATE sessions SET handoff_state = 'pending', handoff_platform = ? WHERE id = ?",
        platform, session_id,
    )  # fmt: skip


@pytest.fixture
def prepared(home: Callable[[str], Path]) -> Iterator[Callable[..., tuple[Path, Platform]]]:
    """prepared("slack", "C1"): a home whose garden plan waits to go there, and the server."""
    with ExitStack() as stack:

        def make(platform: str, chat: str, store: str = "v22") -> tuple[Path, Platform]:
            place = home(store)
            server = stack.enter_context(serving(platform))
            upper = platform.upper()
            configure(place, **{
                f"{upper}_BOT_TOKEN": TOKENS[platform], f"{upper}_HOME_CHANNEL": chat,
                f"HERMES_DELIVER_BASE_{upper}": server.url,
            })  # fmt: skip
            request(place, TIP, platform)
            return place, server

        yield make


DESTINATIONS = [
    ("telegram", "4242", ["createForumTopic", "sendMessage"], "agent:main:telegram:dm:4242:77"),
    ("telegram", "-1005", ["createForumTopic", "sendMessage"],
     "agent:main:telegram:group:-1005:77"),
    ("discord", "444", ["threads", "messages"], "agent:main:discord:thread:9001:9001"),
    ("slack", "C1", ["chat.postMessage"] * 2, "agent:main:slack:group:C1:1718.000100"),
    ("slack", "D1", ["chat.postMessage"] * 2, "agent:main:slack:dm:D1:1718.000100"),
]  # fmt: skip


@pytest.mark.parametrize(("platform", "chat", "calls", "key"), DESTINATIONS)
def test_a_handoff_goes_all_the_way(
    platform: str, chat: str, calls: list[str], key: str, run: Run, prepared: Any
) -> None:
    place, server = prepared(platform, chat)
    result = run("deliver", "--once", "--agent", AGENT, "--home", place).ok()
    (record,) = result.records
    assert record["state"] == "completed" and record["session_key"] == key and record["bound"]
    assert server.calls == calls
    first, last = server.requests[0].payload, server.requests[-1].payload
    assert (first.get("name") or first["text"]) == "Hermes — garden plan #3"
    assert (last.get("text") or last["content"]) == REPLY
    if platform == "telegram":
        assert first["chat_id"] == last["chat_id"] == int(chat)
        assert last["message_thread_id"] == 77
    if platform == "discord":
        assert server.requests[-1].path == "/channels/9001/messages"
    after = row(place, TIP)
    assert (after["handoff_state"], after["handoff_error"], after["ended_at"]) == (
        "completed", None, None,
    )  # fmt: skip
    assert routes(place)[key] == TIP and after["session_key"] == key
    assert not execute(place, "SELECT * FROM state_meta WHERE key LIKE 'handoff:%'")
    dump = "\n".join(closing_dump(place))
    assert TOKENS[platform] not in dump + result.text + result.stderr


def closing_dump(place: Path) -> list[str]:
    """The whole store as text."""
    with closing(sqlite3.connect(place / "state.db")) as db:
        return list(db.iterdump())


@pytest.mark.parametrize(("platform", "chat", "calls", "key"), DESTINATIONS)
def test_a_later_message_in_the_thread_has_the_same_key(
    platform: str, chat: str, calls: list[str], key: str
) -> None:
    # What each adapter of the agent reports for a message in such a thread, by two people.
    thread = {"telegram": "77", "discord": "9001", "slack": "1718.000100"}[platform]
    kind = key.split(":")[3]
    for person in ("1001", "U2"):
        message = {
            "platform": platform, "chat_id": thread if platform == "discord" else chat,
            "chat_type": kind, "user_id": person, "thread_id": thread,
        }  # fmt: skip
        assert session_key(source(message))[0] == key
    place = Place(Channel(platform, chat), thread)
    assert session_key(source({"origin": place.origin}))[0] == key


def test_a_store_without_the_table_gets_its_route_in_the_file(run: Run, prepared: Any) -> None:
    place, _ = prepared("slack", "C1", "v11")
    (place / "sessions").mkdir(exist_ok=True)
    file = place / "sessions" / "sessions.json"
    kept = {"_README": "words", "agent:main:x:dm:1": {"session_id": "other", "odd": [1]}}
    file.write_text(json.dumps(kept))
    run("deliver", "--once", "--agent", AGENT, "--home", place).ok()
    after = json.loads(file.read_text())
    assert {name: after[name] for name in kept} == kept
    assert after["agent:main:slack:group:C1:1718.000100"]["session_id"] == TIP
    assert row(place, TIP)["handoff_state"] == "completed"


def test_b132_the_turns_own_end_does_not_cut_the_conversation_off(
    run: Run, prepared: Any
) -> None:
    place, _ = prepared("slack", "C1")
    end = (
        "import sqlite3, os; db = sqlite3.connect(os.environ['HERMES_HOME'] + '/state.db');"
        "db.execute('UPDATE sessions SET ended_at = 1796000000, end_reason = \"cli_close\" "
        "WHERE id = ?', [os.environ['HERMES_SESSION_ID']]); db.commit(); print('done')"
    )
    agent = f"{sys.executable} - <<'PY'\n{end}\nPY"
    run("deliver", "--once", "--agent", agent, "--home", place).ok()
    after = row(place, TIP)
    assert (after["ended_at"], after["end_reason"]) == (None, None)


def test_the_previous_session_of_the_chat_is_ended(run: Run, prepared: Any) -> None:
    place, server = prepared("telegram", "42")
    server.script.append((400, {"ok": False, "description": "Bad Request: not a forum"}, {}))
    result = run("deliver", "--once", "--agent", AGENT, "--home", place).ok()
    assert "not a forum" in result.stderr
    assert routes(place)["agent:main:telegram:dm:42"] == TIP
    assert row(place, TELEGRAM)["end_reason"] == "session_switch"
    assert "message_thread_id" not in server.requests[-1].payload


def test_the_prompt_and_id_reach_the_agent_quoted(run: Run, prepared: Any) -> None:
    place, server = prepared("slack", "C1")
    agent = "printf '%s|%s' {session_id} {prompt}"
    run("deliver", "--once", "--agent", agent, "--home", place).ok()
    name, _, prompt = server.requests[-1].payload["text"].partition("|")
    assert name == TIP and "handed off to slack" in prompt


# --- When a platform says no ---


def test_429_is_waited_out(run: Run, prepared: Any, quick: list[float]) -> None:
    place, server = prepared("telegram", "4242")
    server.script += [
        (429, {"ok": False, "error_code": 429, "description": "Too Many Requests: retry after 3",
               "parameters": {"retry_after": 3}}, {}),
    ]  # fmt: skip
    run("deliver", "--once", "--agent", AGENT, "--home", place).ok()
    assert server.calls == ["createForumTopic", "createForumTopic", "sendMessage"]
    assert quick == [3.0]


@pytest.mark.parametrize(("platform", "chat", "answer", "waited"), [
    ("discord", "444", (429, {"message": "You are being rate limited.", "retry_after": 0.65}, {}),
     0.65),
    ("slack", "C1", (429, {}, {"Retry-After": "7"}), 7.0),
    ("slack", "C1", (503, {}, {}), 1.0),
])  # fmt: skip
def test_each_platforms_way_to_say_later(
    platform: str, chat: str, answer: Any, waited: float, run: Run, prepared: Any,
    quick: list[float],
) -> None:  # fmt: skip
    place, server = prepared(platform, chat)
    server.script.append(answer)
    run("deliver", "--once", "--agent", AGENT, "--home", place).ok()
    assert quick == [waited]


def test_a_wait_too_long_fails_the_handoff(run: Run, prepared: Any) -> None:
    place, server = prepared("slack", "C1")
    server.script.append((429, {}, {"Retry-After": "3600"}))
    result = run("deliver", "--once", "--agent", AGENT, "--home", place).gave(1)
    assert result.records[0]["state"] == "failed" and "429" in result.records[0]["error"]
    assert len(server.requests) == 1


def test_5xx_for_ever_fails_the_handoff_and_it_can_be_tried_again(run: Run, prepared: Any) -> None:
    place, server = prepared("discord", "444")
    server.script += [(502, {"message": "bad gateway"}, {})] * 4
    run("deliver", "--once", "--agent", AGENT, "--home", place).gave(1)
    after = row(place, TIP)
    assert (after["handoff_state"], after["handoff_error"]) == (
        "failed", "discord: 502 bad gateway",
    )  # fmt: skip
    assert "agent:main:discord:thread:9001:9001" not in routes(place)
    run("handoff", "request", TIP, "discord", "--wait", 0, "--home", place).ok()
    assert row(place, TIP)["handoff_error"] is None
    run("deliver", "--once", "--agent", AGENT, "--home", place).ok()
    assert row(place, TIP)["handoff_state"] == "completed"


@pytest.mark.parametrize(("platform", "chat", "refusals", "key"), [
    ("telegram", "4242", [(403, {"ok": False, "description": "Forbidden: not enough rights"}, {})],
     "agent:main:telegram:dm:4242"),
    ("discord", "444", [(403, {"message": "Missing Permissions", "code": 50013}, {}), None,
                        (403, {"message": "Missing Permissions", "code": 50013}, {})],
     "agent:main:discord:dm:444"),
    ("slack", "C1", [(200, {"ok": False, "error": "restricted_action"}, {})],
     "agent:main:slack:dm:C1"),
])  # fmt: skip
def test_without_the_right_to_a_thread_the_home_channel_itself(
    platform: str, chat: str, refusals: list[Any], key: str, run: Run, prepared: Any
) -> None:
    place, server = prepared(platform, chat)
    server.script += [one or (lambda _: None) for one in refusals]
    result = run("deliver", "--once", "--agent", AGENT, "--home", place).ok()
    assert result.records[0]["session_key"] == key and "no thread" in result.stderr
    last = server.requests[-1].payload
    assert "message_thread_id" not in last and "thread_ts" not in last


def test_discord_falls_back_to_a_thread_on_a_first_message(run: Run, prepared: Any) -> None:
    place, server = prepared("discord", "444")
    server.script.append((403, {"message": "Missing Permissions", "code": 50013}, {}))
    run("deliver", "--once", "--agent", AGENT, "--home", place).ok()
    assert [one.path for one in server.requests] == [
        "/channels/444/threads", "/channels/444/messages",
        "/channels/444/messages/5005/threads", "/channels/9001/messages",
    ]  # fmt: skip


@pytest.mark.parametrize("platform", ["telegram", "discord", "slack"])
def test_a_refused_message_fails_and_no_token_shows(
    platform: str, run: Run, prepared: Any
) -> None:
    place, server = prepared(platform, "444")
    echo = f"no: {TOKENS[platform]} is blocked"
    said = {"ok": False, "description": echo} if platform == "telegram" else (
        {"ok": False, "error": echo} if platform == "slack" else {"message": echo})  # fmt: skip
    server.script += [lambda _: None, (403, said, {})]
    result = run("deliver", "--once", "--agent", AGENT, "--home", place).gave(1)
    error = row(place, TIP)["handoff_error"]
    assert "no: *** is blocked" in error
    assert TOKENS[platform] not in result.text + result.stderr + error


def free_port() -> int:
    """A port of the loopback nobody listens on."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def test_a_server_that_is_not_there(run: Run, prepared: Any) -> None:
    place, _ = prepared("telegram", "444")
    port = free_port()
    configure(
        place, TELEGRAM_BOT_TOKEN=TOKENS["telegram"], TELEGRAM_HOME_CHANNEL="1",
        HERMES_DELIVER_BASE_TELEGRAM=f"http://127.0.0.1:{port}",
    )  # fmt: skip
    result = run("deliver", "--once", "--agent", AGENT, "--home", place).gave(1)
    assert "refused" in result.stderr and TOKENS["telegram"] not in result.stderr


def test_a_redirect_does_not_carry_the_token_elsewhere(run: Run, prepared: Any) -> None:
    place, server = prepared("discord", "444")
    with serving("discord") as other:
        server.script += [(302, {}, {"Location": other.url})] * 9
        run("deliver", "--once", "--agent", AGENT, "--home", place).gave(1)
        assert other.requests == []


# --- Configuration ---


@pytest.mark.parametrize(("settings", "words"), [
    ({}, "not enabled"),
    ({"TELEGRAM_BOT_TOKEN": "12345:x"}, "/sethome"),
])  # fmt: skip
def test_b133_a_platform_that_is_not_set_up_fails_with_the_reason(
    settings: dict[str, str], words: str, run: Run, home: Any
) -> None:
    place = home("v22")
    configure(place, **settings)
    run("deliver", "--once", "--agent", AGENT, "--home", place).gave(1)
    assert words in row(place)["handoff_error"]


def test_notices_around_the_answer_are_left_out(run: Run, prepared: Any) -> None:
    place, server = prepared("slack", "C1")
    turn = (
        "import sqlite3, os; db = sqlite3.connect(os.environ['HERMES_HOME'] + '/state.db');"
        "db.execute('INSERT INTO messages (session_id, role, content, timestamp) VALUES "
        "(?, ?, ?, 1796000000)', [os.environ['HERMES_SESSION_ID'], 'assistant', 'All  here.']);"
        "db.commit(); print('warning: no scanner\\nAll  here.\\nsession_id: x')"
    )
    agent = f"{sys.executable} - <<'PY'\n{turn}\nPY"
    run("deliver", "--once", "--agent", agent, "--home", place).ok()
    assert server.requests[-1].payload["text"] == "All  here."


@pytest.mark.parametrize(("agent", "words"), [
    ("exit 3", "agent: exit status 3"),
    ("true", "agent: it gave no answer"),
    ("echo session_id: abc", "agent: it gave no answer"),
])  # fmt: skip
def test_an_agent_that_does_not_answer(agent: str, words: str, run: Run, prepared: Any) -> None:
    place, _ = prepared("slack", "C1")
    run("deliver", "--once", "--agent", agent, "--home", place).gave(1)
    assert row(place, TIP)["handoff_error"] == words


def test_an_agent_that_takes_too_long(run: Run, prepared: Any) -> None:
    place, _ = prepared("slack", "C1")
    run("deliver", "--once", "--agent", "sleep 60", "--agent-timeout", 0.2, "--home", place).gave(1)
    assert row(place, TIP)["handoff_error"] == "agent: still running after 0.2 s"


def test_any_program_may_deliver(run: Run, prepared: Any, tmp_path: Path) -> None:
    place, server = prepared("slack", "C1")
    program = f"cat > {tmp_path}/record; echo 1718.5"
    result = run("deliver", "--once", "--agent", AGENT, "--deliver", program, "--home", place).ok()
    sent = json.loads((tmp_path / "record").read_text())
    assert sent["text"] == REPLY and sent["chat_id"] == "C1" and sent["session_id"] == TIP
    assert result.records[0]["session_key"] == "agent:main:slack:group:C1:1718.5"
    assert server.requests == []


def test_nothing_is_claimed_while_a_gateway_runs(run: Run, prepared: Any) -> None:
    place, server = prepared("slack", "C1")
    with open(place / "gateway.lock", "w") as lock:
        lock.write('{"pid": 4711}')
        lock.flush()
        fcntl.flock(lock, fcntl.LOCK_EX)
        result = run("deliver", "--once", "--agent", AGENT, "--home", place).gave(75)
    assert "gateway is running" in result.stderr
    assert row(place, TIP)["handoff_state"] == "pending" and server.requests == []


def test_a_gateway_that_starts_meanwhile_keeps_its_routes(run: Run, prepared: Any) -> None:
    place, _ = prepared("slack", "C1")
    before = routes(place)
    lock = f"exec 8>{place}/gateway.lock; flock 8; (sleep 30 >/dev/null) & echo $! >{place}/pid;"
    result = run("deliver", "--once", "--agent", f"{lock} {AGENT}", "--home", place).ok()
    os.kill(int((place / "pid").read_text()), signal.SIGTERM)
    assert result.records[0]["bound"] is False and "a gateway runs now" in result.stderr
    assert routes(place) == before
    assert row(place, TIP)["handoff_state"] == "completed"


def test_long_replies_come_in_pieces(run: Run, prepared: Any) -> None:
    place, server = prepared("telegram", "4242")
    agent = f"{sys.executable} -c \"print('🚀 word ' * 2000)\""
    run("deliver", "--once", "--agent", agent, "--home", place).ok()
    texts = [one.payload["text"] for one in server.requests[1:]]
    assert len(texts) == 4 and " ".join(texts).split() == ["🚀", "word"] * 2000


def test_pieces_lose_nothing_and_keep_the_limit() -> None:
    text = "".join(chr(0x1F600 + n % 50) if n % 3 else "x" for n in range(999))
    assert "".join(pieces(text, 100)) == text
    assert all(len(one.encode("utf-16-le")) <= 200 for one in pieces(text, 100))
    assert list(pieces("", 10)) == []


# --- Workers that compete, and workers that die ---


def test_two_workers_never_both_claim(run: Run, home: Any) -> None:
    place = home("v22")
    request(place, TIP, "slack")
    ids = [f"job{number:02}" for number in range(20)]
    for number, name in enumerate(ids):
        execute(
            place, "INSERT INTO sessions (id, source, started_at, handoff_state, handoff_platform)"
            " VALUES (?, 'cli', ?, 'pending', 'slack')", name, 1770000000 + number,
        )  # fmt: skip
    configure(place, SLACK_BOT_TOKEN=TOKENS["slack"], SLACK_HOME_CHANNEL="C1")
    log = place / "log"
    program = f"echo $HERMES_SESSION_ID >> {log}"
    workers = [
        run.start("deliver", "--once", "--agent", "echo hi", "--deliver", program, "--home", place)
        for _ in range(3)
    ]
    for one in workers:
        _, err = one.communicate(timeout=120)
        assert one.returncode == 0, err
    assert sorted(log.read_text().split()) == sorted([*ids, TIP])


def wait_until(what: Callable[[], Any], seconds: float = 30) -> None:
    """Until something is true."""
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize("step", ["thread", "agent", "message"])
def test_kill_at_any_step_leaves_nothing_stuck(step: str, run: Run, prepared: Any) -> None:
    place, server = prepared("slack", "C1")
    hold = threading.Event()

    def hang(_: Request) -> None:
        hold.wait(30)

    agent = AGENT
    if step == "agent":
        agent = f"echo $$ > {place}/pid; exec sleep 30"
    elif step == "thread":
        server.script.append(hang)
    else:
        server.script += [lambda _: None, hang]
    child = run.start("deliver", "--once", "--agent", agent, "--home", place)
    if step == "agent":
        wait_until(lambda: (place / "pid").exists() and (place / "pid").read_text().strip())
    else:
        wait_until(lambda: len(server.requests) == (1 if step == "thread" else 2))
    # A second worker leaves a living one's work alone.
    assert run("deliver", "--once", "--home", place).ok().records == []
    assert row(place, TIP)["handoff_state"] == "running"
    child.kill()
    child.wait()
    if step == "agent":
        os.kill(int((place / "pid").read_text()), signal.SIGKILL)
    hold.set()
    result = run("deliver", "--once", "--home", place).gave(1)
    assert result.records[0]["state"] == "failed" and "the worker died" in result.stderr
    assert row(place, TIP)["handoff_state"] == "failed"
    assert not execute(place, "SELECT * FROM state_meta WHERE key LIKE 'handoff:%'")
    run("handoff", "request", TIP, "slack", "--wait", 0, "--home", place).ok()
    run("deliver", "--once", "--agent", AGENT, "--home", place).ok()
    assert row(place, TIP)["handoff_state"] == "completed"


def test_what_was_delivered_before_the_crash_is_completed(run: Run, prepared: Any) -> None:
    place, server = prepared("slack", "C1")
    origin = Place(Channel("slack", "C1"), "1718.000100").origin
    with subprocess.Popen(["sleep", "0"]) as gone:
        pass
    from hermes_tools.store import handoff

    worker = {**handoff.oneself(), "pid": gone.pid, "started": 1}
    notes = {"worker": worker, "step": "delivered", "origin": origin, "running_at": 1796000000}
    execute(place, "UPDATE sessions SET handoff_state = 'running' WHERE id = ?", TIP)
    execute(place, "INSERT INTO state_meta VALUES (?, ?)", f"handoff:{TIP}", json.dumps(notes))
    (record,) = run("deliver", "--once", "--home", place).ok().records
    assert record["state"] == "completed" and server.requests == []
    assert routes(place)["agent:main:slack:group:C1:1718.000100"] == TIP


def test_told_to_stop_it_gives_its_work_back(run: Run, prepared: Any) -> None:
    place, _ = prepared("slack", "C1")
    agent = f"touch {place}/began; sleep 30"
    child = run.start("deliver", "--agent", agent, "--home", place)
    wait_until(lambda: (place / "began").exists())
    child.terminate()
    assert child.wait(20) == 143
    assert row(place, TIP)["handoff_error"] == "the worker was stopped"


def test_the_loop_takes_what_comes_later(run: Run, prepared: Any) -> None:
    place, _ = prepared("slack", "C1")
    child = run.start("deliver", "--agent", AGENT, "--home", place)
    wait_until(lambda: row(place, TIP)["handoff_state"] == "completed")
    request(place, PENDING, "slack")
    wait_until(lambda: row(place)["handoff_state"] == "completed")
    child.terminate()
    out, _ = child.communicate(timeout=20)
    assert [json.loads(line)["session_id"] for line in out.splitlines()] == [TIP, PENDING]


def test_a_locked_store_does_not_end_the_loop(run: Run, prepared: Any) -> None:
    place, _ = prepared("slack", "C1")
    with closing(sqlite3.connect(place / "state.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        child = run.start("deliver", "--agent", AGENT, "--timeout", 0.1, "--home", place)
        assert child.stderr is not None
        assert b"locked by another process" in child.stderr.readline()
        other.execute("ROLLBACK")
    wait_until(lambda: row(place, TIP)["handoff_state"] == "completed")
    child.terminate()
    child.communicate(timeout=20)


@pytest.mark.parametrize("store", ["head-0", "head-3", "head-pending", "delete", "nofts"])
def test_stores_of_any_make(store: str, run: Run, prepared: Any) -> None:
    place, _ = prepared("slack", "C1", store)
    request(place, stores.TIP, "slack")
    (record,) = run("deliver", "--once", "--agent", AGENT, "--home", place).ok().records
    assert record["state"] == "completed" and record["bound"]
    after = row(place, stores.TIP)
    assert after["handoff_state"] == "completed" and after["ended_at"] is None
    if "session_key" in after:
        assert after["session_key"] == record["session_key"] and after["source"] == "slack"
    with closing(sqlite3.connect(place / "state.db")) as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)


# --- What the agent's gateway makes of it ---

NEXT = """
import sys, json
from gateway.session import SessionSource, SessionStore
from gateway.config import GatewayConfig, Platform
from pathlib import Path
folder = Path(sys.argv[1]) / "sessions"
folder.mkdir(exist_ok=True)
store = SessionStore(folder, GatewayConfig(sessions_dir=folder))
source = json.loads(sys.argv[2])
source["platform"] = Platform(source["platform"])
print(store.get_or_create_session(SessionSource(**source)).session_id)
"""


@pytest.mark.parametrize(("version", "store"), [("0.13.0", "v11"), ("0.19.0", "v22")])
@pytest.mark.parametrize(("platform", "chat", "message"), [
    ("telegram", "4242", {"chat_id": "4242", "chat_type": "dm", "thread_id": "77"}),
    ("discord", "444", {"chat_id": "9001", "chat_type": "thread", "thread_id": "9001"}),
    ("slack", "C1", {"chat_id": "C1", "chat_type": "group", "thread_id": "1718.000100"}),
])  # fmt: skip
def test_a_gateway_goes_on_in_the_session(
    version: str, store: str, platform: str, chat: str, message: dict[str, str], run: Run,
    prepared: Any, agent: Callable[[str], Path],
) -> None:  # fmt: skip
    place, _ = prepared(platform, chat, store)
    execute(place, "UPDATE sessions SET ended_at = 1772400000, end_reason = 'user_exit' "
            "WHERE id = ?", TIP)  # fmt: skip
    run("deliver", "--once", "--agent", AGENT, "--home", place).ok()
    for person in ("U1", "U2"):
        origin = {"platform": platform, "user_id": person, **message}
        done = subprocess.run(
            [agent(version).parent / "python", "-c", NEXT, place, json.dumps(origin)],
            capture_output=True, text=True,
            env={"HERMES_HOME": str(place), "HOME": str(place.parent)},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert done.stdout.split()[-1] == TIP, person


# --- By way of apprise ---


def test_e_mail_through_a_real_smtp_server(run: Run, home: Any) -> None:
    smtpd = pytest.importorskip("aiosmtpd.controller", reason="aiosmtpd is not installed")
    got: list[Any] = []

    class Handler:
        async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:
            got.append(envelope)
            return "250 OK"

    port = free_port()
    controller = smtpd.Controller(Handler(), hostname="127.0.0.1", port=port)
    controller.start()
    try:
        place = home("v22")
        configure(
            place, EMAIL_ADDRESS="bot@example.org", EMAIL_PASSWORD="correct horse battery",
            EMAIL_SMTP_HOST="127.0.0.1", EMAIL_HOME_ADDRESS="me@example.org",
            HERMES_DELIVER_URL_EMAIL=f"mailto://127.0.0.1:{port}/?from=bot@example.org"
            "&to=me@example.org&mode=insecure",
        )  # fmt: skip
        request(place, TIP, "email")
        (record,) = run("deliver", "--once", "--agent", AGENT, "--home", place).ok().records
    finally:
        controller.stop()
    import email
    import email.policy

    (envelope,) = got
    assert envelope.rcpt_tos == ["me@example.org"]
    message = email.message_from_bytes(envelope.content, policy=email.policy.default)
    assert message["subject"] == "Hermes — garden plan #3"
    assert REPLY in message.get_body(("plain",)).get_content()
    assert record["session_key"] == "agent:main:email:dm:me@example.org"


def test_a_webhook(run: Run, home: Any) -> None:
    place = home("v22")
    with serving(lambda _: (200, {}, {})) as server:
        configure(
            place, WEBHOOK_ENABLED="true", WEBHOOK_HOME_CHANNEL="ops",
            HERMES_DELIVER_URL_WEBHOOK=server.url.replace("http", "json") + "/hook",
        )  # fmt: skip
        request(place, TIP, "webhook")
        run("deliver", "--once", "--agent", AGENT, "--home", place).ok()
        (got,) = server.requests
    assert got.path == "/hook" and got.payload["message"] == REPLY


def test_mattermost_by_the_agents_own_variables(run: Run, home: Any) -> None:
    place = home("v22")
    with serving(lambda _: (201, {"id": "p1"}, {})) as server:
        configure(
            place, MATTERMOST_TOKEN="mattermosttoken0123456789", MATTERMOST_URL=server.url,
            MATTERMOST_HOME_CHANNEL="channelid01234567890123456",
        )  # fmt: skip
        request(place, TIP, "mattermost")
        run("deliver", "--once", "--agent", AGENT, "--home", place).ok()
        got = server.requests[-1]
    assert got.path == "/api/v4/posts" and REPLY in got.payload["message"]
    assert got.headers["authorization"] == "Bearer mattermosttoken0123456789"


def test_no_password_shows_when_apprise_fails(run: Run, home: Any) -> None:
    place = home("v22")
    with serving(lambda _: (401, {"error": "hunter2hunter2"}, {})) as server:
        address = server.url.removeprefix("http://")
        configure(
            place, WEBHOOK_ENABLED="1", WEBHOOK_HOME_CHANNEL="ops",
            HERMES_DELIVER_URL_WEBHOOK=f"json://user:hunter2hunter2@{address}/",
        )  # fmt: skip
        request(place, TIP, "webhook")
        result = run("deliver", "--once", "--agent", AGENT, "--home", place).gave(1)
    stored = "\n".join(closing_dump(place))
    assert "hunter2hunter2" not in result.text + result.stderr + stored
    assert row(place, TIP)["handoff_error"].startswith("webhook: ")


def test_a_platform_nobody_can_deliver_to_names_the_way_out(run: Run, home: Any) -> None:
    place = home("v22")
    configure(
        place, SIGNAL_HTTP_URL="http://127.0.0.1:1", SIGNAL_ACCOUNT="+1", SIGNAL_HOME_CHANNEL="+2"
    )
    request(place, TIP, "signal")
    run("deliver", "--once", "--agent", AGENT, "--home", place).gave(1)
    assert "HERMES_DELIVER_URL_SIGNAL" in row(place, TIP)["handoff_error"]


@pytest.mark.parametrize(("platform", "settings"), [
    ("email", {"EMAIL_ADDRESS": "a+b@example.org", "EMAIL_PASSWORD": "p:/@ x",
               "EMAIL_SMTP_HOST": "smtp.example.org"}),
    ("matrix", {"MATRIX_HOMESERVER": "https://m.example.org:8448", "MATRIX_ACCESS_TOKEN": "syt_x"}),
    ("matrix", {"MATRIX_HOMESERVER": "http://m.example.org", "MATRIX_USER_ID": "@bot:example.org",
                "MATRIX_PASSWORD": "p:/@ x"}),
    ("sms", {"TWILIO_ACCOUNT_SID": "AC" + "a" * 32, "TWILIO_AUTH_TOKEN": "b" * 32,
             "TWILIO_PHONE_NUMBER": "+15551230000"}),
    ("whatsapp_cloud", {"WHATSAPP_CLOUD_ACCESS_TOKEN": "t" * 20,
                        "WHATSAPP_CLOUD_PHONE_NUMBER_ID": "1" * 15}),
    ("homeassistant", {"HASS_URL": "http://ha.example.org:8123", "HASS_TOKEN": "t" * 20}),
])  # fmt: skip
def test_the_agents_variables_make_addresses_apprise_takes(
    platform: str, settings: dict[str, str]
) -> None:
    apprise = pytest.importorskip("apprise")
    chat = {"matrix": "!room:example.org", "email": "c@example.org"}.get(platform, "+15551234567")
    url = delivery.apprise_url(Channel(platform, chat), settings)
    assert url is not None and apprise.Apprise.instantiate(url) is not None, platform


# --- Matrix, by a server of its own ---


def synapse_environment() -> Path:
    """An environment with matrix-synapse, as `make agents` makes one; the test is skipped
    without.
    """
    place = Path(os.environ.get("HERMES_TOOLS_SYNAPSE") or Path(sys.prefix) / "synapse")
    if not (place / "bin" / "synapse_homeserver").exists():
        pytest.skip("matrix-synapse is not here; `make agents` installs it")
    return place


def call(url: str, token: str | None = None, payload: Any = None) -> Any:
    """A JSON request to the test's own server."""
    import urllib.request

    headers = {"Authorization": f"Bearer {token}"} if token else {}
    data = None if payload is None else json.dumps(payload).encode()
    with urllib.request.urlopen(urllib.request.Request(url, data, headers), timeout=30) as answer:
        return json.load(answer)


@pytest.mark.slow
def test_matrix_through_a_real_server(run: Run, home: Any, tmp_path: Path) -> None:
    bin_ = synapse_environment() / "bin"
    port, folder = free_port(), tmp_path / "synapse"
    folder.mkdir()
    config = folder / "homeserver.yaml"
    config.write_text(f"""
server_name: localhost
pid_file: {folder}/pid
listeners:
  - {{port: {port}, type: http, bind_addresses: [127.0.0.1], resources: [{{names: [client]}}]}}
database: {{name: sqlite3, args: {{database: {folder}/homeserver.db}}}}
media_store_path: {folder}/media
signing_key_path: {folder}/signing.key
registration_shared_secret: only-for-this-test
report_stats: false
trusted_key_servers: []
suppress_key_server_warning: true
""")
    base = [str(bin_ / "python"), "-m", "synapse.app.homeserver", "-c", str(config)]
    subprocess.run([*base, "--generate-keys"], check=True, capture_output=True, cwd=folder)
    url = f"http://127.0.0.1:{port}"
    server = subprocess.Popen(base, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                              cwd=folder)  # fmt: skip

    def answers() -> bool:
        assert server.poll() is None, "synapse did not start"
        try:
            return bool(call(f"{url}/_matrix/client/versions"))
        except OSError:
            return False

    try:
        wait_until(answers, 60)
        subprocess.run(
            [str(bin_ / "register_new_matrix_user"), "-c", str(config), "-u", "bot",
             "-p", "bot-password", "--no-admin", url], check=True, capture_output=True,
        )  # fmt: skip
        client = f"{url}/_matrix/client/v3"
        token = call(f"{client}/login", payload={
            "type": "m.login.password", "password": "bot-password",
            "identifier": {"type": "m.id.user", "user": "bot"},
        })["access_token"]  # fmt: skip
        room = call(f"{client}/createRoom", token, {"name": "home"})["room_id"]
        place = home("v22")
        configure(place, MATRIX_HOMESERVER=url, MATRIX_ACCESS_TOKEN=token, MATRIX_HOME_ROOM=room)
        request(place, TIP, "matrix")
        result = run("deliver", "--once", "--agent", AGENT, "--home", place).ok()
        from urllib.parse import quote

        seen = call(f"{client}/rooms/{quote(room)}/messages?dir=b&limit=10", token)["chunk"]
    finally:
        server.terminate()
        server.wait(30)
    bodies = [one["content"].get("body", "") for one in seen if one["type"] == "m.room.message"]
    assert len(bodies) == 1 and REPLY in bodies[0]
    assert result.records[0]["state"] == "completed"
    assert token not in result.text + result.stderr + "\n".join(closing_dump(place))
