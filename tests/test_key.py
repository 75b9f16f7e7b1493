"""hermes-session-key: keys of sources, and the routing index."""

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from conftest import Run

TELEGRAM = "20260227_080000_deadbe01"


def test_options_give_the_bare_key_anywhere(run: Run, safe_home: Path) -> None:
    argv = ("key", "--platform", "Telegram", "--chat-id", "-5", "--chat-type", "group",
            "--user-id", "7")  # fmt: skip
    assert run(*argv).ok().stdout == b"agent:main:telegram:group:-5:7\n"
    assert run(*argv, tty=True).ok().stdout == b"agent:main:telegram:group:-5:7\n"
    (record,) = run(*argv, "-f", "jsonl").ok().records
    assert record["session_key"] == "agent:main:telegram:group:-5:7" and record["canonical"]
    assert run(*argv, "-q").ok().stdout == b""
    assert run(*argv, "-t", "--fields", "platform,user_id").ok().text == "Telegram\t7\n"


def test_records_in_records_out(run: Run) -> None:
    rows = [
        {"platform": "slack", "chat_id": "C1", "chat_type": "group", "thread_id": "1.2",
         "user_id": "U1", "mine": [1]},
        {"origin": {"platform": "discord", "chat_id": 9, "chat_type": "dm"}},
    ]  # fmt: skip
    for argv in (("key",), ("key", "-")):
        first, second = run(*argv, input=rows).ok().records
        assert first == {
            **rows[0], "session_key": "agent:main:slack:group:C1:1.2", "canonical": True,
        }  # fmt: skip
        assert second["session_key"] == "agent:main:discord:dm:9"
    assert run("key", input="").ok().stdout == b""


def test_a_bad_line_is_named(run: Run) -> None:
    for bad, words in (('{"platform": "x", "chat_id": [1]}', "chat_id"), ("{", "not JSON"),
                       ('{"chat_id": "1"}', "no platform"), ("abc", "not JSON")):  # fmt: skip
        result = run("key", input=f'{{"platform": "x"}}\n{bad}\n').gave(65)
        assert "line 2" in result.stderr and words in result.stderr


@pytest.mark.parametrize(("config", "argv", "key"), [
    ("", (), "agent:main:slack:group:C:U"),
    ("group_sessions_per_user: false", (), "agent:main:slack:group:C"),
    ("group_sessions_per_user: false", ("--group-sessions-per-user", "yes"),
     "agent:main:slack:group:C:U"),
    ("", ("--thread-id", "t"), "agent:main:slack:group:C:t"),
    ("thread_sessions_per_user: true", ("--thread-id", "t"), "agent:main:slack:group:C:t:U"),
    ("", ("--multiplex", "work"), "agent:work:slack:group:C:U"),
    ("", ("--scope-id", "T9"), "agent:main:slack:group:T9:C:U"),
    ("", ("--scope-id", "T9", "--release", "0.19"), "agent:main:slack:group:C:U"),
])  # fmt: skip
def test_settings_and_options(
    config: str, argv: tuple[str, ...], key: str, run: Run, tmp_path: Path
) -> None:
    (tmp_path / "config.yaml").write_text(config)
    found = run("key", "--home", tmp_path, "--platform", "slack", "--chat-id", "C",
                "--chat-type", "group", "--user-id", "U", *argv).ok()  # fmt: skip
    assert found.stdout.decode() == f"{key}\n"


@pytest.mark.parametrize("argv", [
    ("--chat-id", "1"), ("--platform", " "), ("other",), ("-", "--platform", "x"),
    ("--index", "--platform", "x"), ("--index", "-"), ("--platform", "x", "--release", "new"),
    ("--group-sessions-per-user", "maybe", "--platform", "x"),
])  # fmt: skip
def test_usage(argv: tuple[str, ...], run: Run) -> None:
    result = run("key", *argv).gave(2)
    assert result.stdout == b"" and result.stderr


def test_a_terminal_is_not_read(run: Run) -> None:
    assert "is a terminal" in run.terminal("key").gave(2).text


def test_a_whatsapp_account_without_files_is_said(run: Run, tmp_path: Path) -> None:
    argv = ("key", "--home", tmp_path, "--platform", "whatsapp", "--chat-id", "49@lid")
    result = run(*argv).ok()
    assert result.stdout == b"agent:main:whatsapp:dm:49\n" and "lid-mapping" in result.stderr


# --- The index ---


def add(place: Path, key: str, entry: object, scope: str = "") -> None:
    """A route in the table."""
    with closing(sqlite3.connect(place / "state.db")) as db, db:
        stored = entry if isinstance(entry, str) else json.dumps(entry)
        db.execute("INSERT INTO gateway_routing VALUES (?, ?, ?, 0)", (scope, key, stored))


def test_the_index_with_the_state_of_each_session(run: Run, home: Callable[[str], Path]) -> None:
    place = home("v22")
    add(place, "k:ended", {"session_id": "20260225_101500_a1b2c3"})
    add(place, "k:gone", {"session_id": "nowhere"})
    add(place, "k:old", {"session_id": "20260226_090000_00aa11"})
    add(place, "k:expired", {"session_id": TELEGRAM, "expiry_finalized": True, "odd": {"a": 1}})
    add(place, "k:bad", "{bad")
    found = {one["session_key"]: one for one in run("key", "--index", "--home", place).ok().records}
    states = {key: one["state"] for key, one in found.items()}
    assert states == {
        "agent:main:telegram:dm:42": "live", "k:ended": "ended", "k:gone": "missing",
        "k:old": "live", "k:expired": "expired", "k:bad": "missing",
    }  # fmt: skip
    assert found["k:expired"]["entry"]["odd"] == {"a": 1}
    shown = run("key", "--index", "-t", "--home", place).ok().text
    assert "k:expired" in shown and TELEGRAM in shown


def test_b175_expired_is_shown_by_the_rows_own_mark(run: Run, home: Callable[[str], Path]) -> None:
    place = home("v22")
    with closing(sqlite3.connect(place / "state.db")) as db, db:
        db.execute("UPDATE sessions SET expiry_finalized = 1 WHERE id = ?", (TELEGRAM,))
    (record,) = run("key", "--index", "--home", place).ok().records
    assert record["state"] == "expired"


def test_the_file_is_read_where_there_is_no_table(run: Run, home: Callable[[str], Path]) -> None:
    place = home("v11")
    assert run("key", "--index", "--home", place).ok().records == []
    (place / "sessions").mkdir()
    file = place / "sessions" / "sessions.json"
    file.write_text(json.dumps({
        "_README": "no entry", "k": {"session_id": TELEGRAM, "later": 1}, "odd": "text",
    }))  # fmt: skip
    (record,) = run("key", "--index", "--home", place).ok().records
    assert (record["session_key"], record["state"], record["scope"]) == ("k", "live", None)
    assert record["entry"]["later"] == 1
    file.write_text("{bad")
    assert "sessions.json" in run("key", "--index", "--home", place).gave(65).stderr


def test_the_table_wins_over_its_mirror(run: Run, home: Callable[[str], Path]) -> None:
    place = home("v22")
    (place / "sessions").mkdir()
    (place / "sessions" / "sessions.json").write_text('{"stale": {"session_id": "x"}}')
    assert [one["session_key"] for one in run("key", "--index", "--home", place).ok().records] == [
        "agent:main:telegram:dm:42"
    ]


def test_routes_written_by_the_agent_have_the_keys_we_make(
    run: Run, home: Callable[[str], Path]
) -> None:
    for name in ("home-0.13", "home-0.19"):
        index = run("key", "--index", "--home", home(name)).ok()
        assert index.records
        again = run("key", input=index.stdout).ok().records
        assert [one["session_key"] for one in again] == [
            one["session_key"] for one in index.records
        ]
