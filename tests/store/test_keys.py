"""Session keys: by the rules, and as the agent's own releases make them."""

import itertools
import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hermes_tools.store.errors import Damaged, Usage
from hermes_tools.store.keys import Rules, Source, account, rules, session_key, source

# Asked of a release: one JSON line in, one key out; a crash of it is an object.
ASK = """
import inspect, json, sys
from gateway.config import Platform
from gateway.session import SessionSource, build_session_key
named = "profile" in inspect.signature(build_session_key).parameters
for line in sys.stdin:
    one = json.loads(line)
    one["source"]["platform"] = Platform(one["source"]["platform"])
    more = {"profile": one["profile"]} if named else {}
    try:
        key = build_session_key(
            SessionSource(**one["source"]), one["per_user"], one["threads_per_user"], **more)
    except ValueError as error:
        key = {"error": str(error)}
    print(json.dumps(key))
"""
MAPPINGS: list[dict[str, str]] = [
    {},
    {"49151": "999", "999_reverse": "49151", "7": "abc"},
    {"10": "11", "11_reverse": "10", "11": "12", "12_reverse": "11", "49151": "12345678"},
]


def mapped(home: Path, mapping: dict[str, Any]) -> None:
    """Write the bridge's files."""
    folder = home / "whatsapp" / "session"
    folder.mkdir(parents=True, exist_ok=True)
    for name, value in mapping.items():
        (folder / f"lid-mapping-{name}.json").write_text(json.dumps(value))


def table() -> list[dict[str, Any]]:
    """Every combination of what decides a key."""
    found = []
    for platform, kind, chat, user, alt, thread, (per_user, threads) in itertools.product(
        ("telegram", "whatsapp", "matrix", "slack"),
        ("dm", "group", "channel", "thread", "forum", ""),
        (None, "", "C1", "!r:h", "49151@s.whatsapp.net", "120@g.us", "11@lid:3", "ABC@x"),
        (None, "U", "49151:2@s.whatsapp.net"),
        (None, "7@lid"),
        (None, "", "t9"),
        ((True, False), (False, True), (True, True)),
    ):
        found.append({
            "source": {"platform": platform, "chat_type": kind, "chat_id": chat, "user_id": user,
                       "user_id_alt": alt, "thread_id": thread},
            "per_user": per_user, "threads_per_user": threads,
            "profile": "work" if len(found) % 5 == 0 else None,
        })  # fmt: skip
    return found


@pytest.mark.parametrize("version", ["0.13.0", "0.19.0"])
@pytest.mark.parametrize("mapping", MAPPINGS, ids=["no-aliases", "aliases", "chain"])
def test_keys_equal_the_agents(
    version: str, mapping: dict[str, str], agent: Callable[[str], Path], tmp_path: Path
) -> None:
    mapped(tmp_path, mapping)
    rows = table()
    asked = subprocess.run(
        [agent(version).parent / "python", "-c", ASK], capture_output=True, text=True, check=True,
        input="".join(json.dumps(row) + "\n" for row in rows),
        env={"HERMES_HOME": str(tmp_path), "HOME": str(tmp_path)},
    )  # fmt: skip
    release = tuple(map(int, version.split(".")[:2]))
    compared = 0
    for row, line in zip(rows, asked.stdout.splitlines(), strict=True):
        theirs = json.loads(line)
        if isinstance(theirs, dict):
            # It cannot name an account such as !r: nobody's phone. We name it as it is.
            assert row["source"]["platform"] == "whatsapp" and "empty" in theirs["error"]
            continue
        kind = Rules(row["per_user"], row["threads_per_user"], row["profile"], release)  # type: ignore[arg-type]
        assert session_key(source(row["source"]), kind, tmp_path)[0] == theirs, row
        compared += 1
    assert compared > 0.9 * len(rows)


def test_rules_of_later_releases() -> None:
    slack = Source("slack", "C1", "group", "U", scope_id="T9")
    assert session_key(slack)[0] == "agent:main:slack:group:T9:C1:U"
    assert session_key(slack, Rules(release=(0, 19)))[0] == "agent:main:slack:group:C1:U"
    assert Rules(profile="main").namespace == "agent:main~"
    assert Rules(profile="main", release=(0, 19)).namespace == "agent:main"
    assert Rules(profile="default").namespace == "agent:main"


def test_a_whatsapp_name_without_files_is_not_canonical(tmp_path: Path) -> None:
    person = Source("whatsapp", "49151@s.whatsapp.net")
    assert session_key(person, home=tmp_path) == ("agent:main:whatsapp:dm:49151", False)
    mapped(tmp_path, {"49151": "999"})
    assert session_key(person, home=tmp_path) == ("agent:main:whatsapp:dm:999", True)
    # A group's own name is not a person's.
    group = Source("whatsapp", "120@g.us", "group")
    assert session_key(group, home=tmp_path) == ("agent:main:whatsapp:group:120@g.us", True)


def test_a_name_from_outside_does_not_choose_the_file(tmp_path: Path) -> None:
    mapped(tmp_path, {"x": "y"})
    (tmp_path / "whatsapp" / "lid-mapping-z.json").write_text('"secret"')
    assert account("../lid-mapping-z", tmp_path) == ("../lid-mapping-z", False)
    assert account("a\0b", tmp_path) == ("a\0b", False)


@pytest.mark.parametrize("content", ["{bad", '{"a": 1}', "true", '[""]'])
def test_damaged_alias_files_are_no_aliases(content: str, tmp_path: Path) -> None:
    mapped(tmp_path, {})
    (tmp_path / "whatsapp" / "session" / "lid-mapping-5.json").write_text(content)
    assert account("5", tmp_path) == ("5", False)


def test_sources_from_records() -> None:
    assert source({"platform": " Telegram ", "chat_id": -5}).chat_id == "-5"
    inner = {"origin": {"platform": "slack", "chat_id": "C"}, "platform": "x"}
    assert source(inner) == source({"entry": inner}) == Source("slack", "C")
    for broken in ({"chat_id": "1"}, {"platform": ""}, {"platform": "x", "chat_id": [1]},
                   {"platform": "x", "user_id": True}):  # fmt: skip
        with pytest.raises(Damaged):
            source(broken)
    with pytest.raises(Usage):
        session_key(Source(""))


@pytest.mark.parametrize(("config", "wanted"), [
    ({}, (True, False)),
    ({"group_sessions_per_user": False}, (False, False)),
    ({"group_sessions_per_user": "off", "thread_sessions_per_user": "yes"}, (False, True)),
    ({"gateway": {"thread_sessions_per_user": True}}, (True, True)),
])  # fmt: skip
def test_rules_as_configured(config: dict[str, Any], wanted: tuple[bool, bool]) -> None:
    found = rules(config)
    assert (found.per_user, found.threads_per_user) == wanted
