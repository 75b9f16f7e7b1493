"""The reset policy: local time with its changes, and the same answers as the agent's."""

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from hermes_tools.store.errors import StoreError
from hermes_tools.store.resets import Policies, Policy, background, boundary, policies, policy
from hermes_tools.store.routing import instant, local

BERLIN = "CET-1CEST,M3.5.0,M10.5.0/3"
# Asked of a release: the policy's verdict with the clock held still.
ASK = """
import json, sys, time, tempfile, pathlib
from datetime import datetime
import gateway.session as module
from gateway.config import GatewayConfig, Platform, SessionResetPolicy
time.tzset()
place = pathlib.Path(tempfile.mkdtemp())
origin = module.SessionSource(platform=Platform("telegram"), chat_id="1")
stores = {}
for line in sys.stdin:
    one = json.loads(line)
    rule = {name: one[name] for name in ("mode", "at_hour", "idle_minutes")}
    if str(rule) not in stores:
        config = GatewayConfig(
            sessions_dir=place, default_reset_policy=SessionResetPolicy(**rule))
        stores[str(rule)] = module.SessionStore(place, config)
    store = stores[str(rule)]
    module._now = lambda: datetime.fromtimestamp(one["now"])
    entry = module.SessionEntry(
        session_key="k", session_id="s", created_at=datetime.fromtimestamp(one["active"]),
        updated_at=datetime.fromtimestamp(one["active"]), origin=origin,
        platform=Platform("telegram"))
    print(json.dumps(store._should_reset(entry, origin)))
"""


@pytest.fixture
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Clocks that change: to summer on 2026-03-29 at 2, back on 2026-10-25 at 3."""
    monkeypatch.setenv("TZ", BERLIN)
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def at(text: str, fold: int = 0) -> float:
    """Unix seconds of a local time."""
    return datetime.fromisoformat(text).replace(fold=fold).timestamp()


@pytest.mark.usefixtures("berlin")
def test_the_day_begins_at_the_hour_local_clocks_show() -> None:
    assert boundary(4, at("2026-05-10 12:00")) == at("2026-05-10 04:00")
    assert boundary(4, at("2026-05-10 04:00")) == at("2026-05-10 04:00")
    assert boundary(4, at("2026-05-10 03:59:59")) == at("2026-05-09 04:00")
    assert boundary(0, at("2026-05-10 00:00")) == at("2026-05-10 00:00")


@pytest.mark.usefixtures("berlin")
def test_summer_time_begins() -> None:
    # 2026-03-29 has 23 hours; from 2:00 clocks go to 3:00.
    assert boundary(4, at("2026-03-29 05:00")) - boundary(4, at("2026-03-28 05:00")) == 23 * 3600
    skipped = boundary(2, at("2026-03-29 12:00"))
    assert skipped == at("2026-03-29 03:00")  # 2 o'clock never came: the next hour is it
    assert boundary(2, at("2026-03-29 01:59")) == at("2026-03-28 02:00")


@pytest.mark.usefixtures("berlin")
def test_summer_time_ends() -> None:
    # 2026-10-25 has 25 hours; 2:00 to 3:00 comes twice.
    assert boundary(4, at("2026-10-25 05:00")) - boundary(4, at("2026-10-24 05:00")) == 25 * 3600
    first, again = at("2026-10-25 02:30"), at("2026-10-25 02:30", fold=1)
    assert again - first == 3600
    for now in (first, again):
        assert boundary(2, now) == at("2026-10-25 02:00")
    # A session active in the repeated hour is not reset a second time.
    assert Policy("daily", 2).due(at("2026-10-25 02:10"), again) is None


@pytest.mark.usefixtures("berlin")
def test_idle_minutes_are_real_ones() -> None:
    policy = Policy("idle", idle_minutes=90)
    # By the clock two hours passed, in truth one; and the other way round in autumn.
    assert policy.due(at("2026-03-29 01:30"), at("2026-03-29 03:30")) is None
    assert policy.due(at("2026-10-25 02:30"), at("2026-10-25 03:15")) == "idle"
    # What a written local time means in the repeated hour is unknown: the later, never too old.
    assert instant("2026-10-25T02:30:00") == at("2026-10-25 02:30", fold=1)


@pytest.mark.usefixtures("berlin")
def test_times_of_entries() -> None:
    now = at("2026-05-10 12:00:00.250000")
    assert instant(local(now)) == now
    assert instant("2026-05-10T10:00:00+00:00") == instant("2026-05-10T10:00:00Z")
    assert instant(1796000000.5) == 1796000000.5
    for value in (None, "soon", "", "0001-01-01T00:00:00", 5, 1796000000000, True, []):
        assert instant(value) is None


def test_which_comes_first_and_where_the_edge_is() -> None:
    now = at("2026-05-10 12:00")
    both = Policy("both", 4, 60)
    assert both.due(now - 86400 * 3, now) == "idle"
    assert both.due(now - 3600, now) is None
    assert both.due(now - 3600.5, now) == "idle"
    assert Policy("both", 4, 10**6).due(now - 86400, now) == "daily"
    assert Policy("none").due(0, now) is None
    assert Policy("daily", 4).due(boundary(4, now), now) is None


@pytest.mark.parametrize("version", ["0.13.0", "0.19.0"])
@pytest.mark.parametrize("zone", ["UTC", "IST-5:30"])
def test_the_same_verdict_as_the_agent(
    version: str, zone: str, agent: Callable[[str], Path], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    # Zones whose clocks never change: across a change the agent reckons by the clock's face.
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        base = 1778400000.0
        rows = [
            {"mode": mode, "at_hour": hour, "idle_minutes": minutes, "now": base + now,
             "active": base + now - gap}
            for mode in ("none", "idle", "daily", "both") for hour in (0, 4, 23)
            for minutes in (1, 1440) for now in (0, 3599, 40000, 79200.5)
            for gap in (0, 59, 60, 61, 3600, 30000, 86399, 86400, 86401, 200000)
        ]  # fmt: skip
        asked = subprocess.run(
            [agent(version).parent / "python", "-c", ASK], capture_output=True, text=True,
            check=True, input="".join(json.dumps(row) + "\n" for row in rows),
            env={"HERMES_HOME": str(tmp_path), "HOME": str(tmp_path), "TZ": zone},
        )  # fmt: skip
        for row, line in zip(rows, asked.stdout.splitlines(), strict=True):
            mine = Policy(row["mode"], row["at_hour"], row["idle_minutes"])
            assert mine.due(row["active"], row["now"]) == json.loads(line), row
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize(("config", "gateway", "env", "wanted"), [
    ({}, None, {}, Policy()),
    ({"session_reset": {"mode": "idle", "idle_minutes": 10}}, None, {}, Policy("idle", 4, 10)),
    ({"gateway": {"session_reset": {"mode": "daily"}}}, None, {}, Policy("daily")),
    ({}, {"default_reset_policy": {"mode": "daily", "at_hour": 5}}, {}, Policy("daily", 5)),
    ({"session_reset": {"mode": "idle"}}, {"default_reset_policy": {"mode": "daily"}}, {},
     Policy("idle")),
    ({"session_reset": {"idle_minutes": 10}}, None, {}, Policy("none", 4, 10)),
    ({"session_reset": {"mode": "both"}}, None,
     {"SESSION_IDLE_MINUTES": "33", "SESSION_RESET_HOUR": "2"}, Policy("both", 2, 33)),
])  # fmt: skip
def test_what_is_configured(
    config: Any, gateway: Any, env: dict[str, str], wanted: Policy, tmp_path: Path
) -> None:
    if gateway is not None:
        (tmp_path / "gateway.json").write_text(json.dumps(gateway))
    assert policies(tmp_path, config, env).default == wanted


def test_overrides(tmp_path: Path) -> None:
    (tmp_path / "gateway.json").write_text(json.dumps({
        "reset_by_type": {"group": {"mode": "daily"}},
        "reset_by_platform": {"Telegram": {"mode": "idle"}},
    }))  # fmt: skip
    found = policies(tmp_path, {"session_reset": {"mode": "both"}}, {})
    assert found.of("telegram", "group").mode == "idle"
    assert found.of("slack", "group").mode == "daily"
    assert found.of("slack", "dm").mode == "both"
    assert not found.never and Policies().never


@pytest.mark.parametrize("given", [
    {"mode": "weird"}, {"at_hour": 24}, {"at_hour": -1}, {"idle_minutes": 0}, {"at_hour": "x"},
    {"idle_minutes": True}, [], "idle",
])  # fmt: skip
def test_a_slip_of_the_pen_resets_nothing(given: Any) -> None:
    with pytest.raises(StoreError, match="config"):
        policy(given, "config.yaml: session_reset")


def test_background_processes(tmp_path: Path) -> None:
    assert background(tmp_path) == set()
    with subprocess.Popen(["sleep", "30"]) as child:
        from hermes_tools.store.resets import start_time

        def listed(**more: Any) -> set[str] | None:
            one = {"session_key": "agent:main:x", "pid": child.pid, "pid_scope": "host", **more}
            (tmp_path / "processes.json").write_text(json.dumps([one, "odd", {"pid": 1}]))
            return background(tmp_path)

        assert listed() == {"agent:main:x"}
        assert listed(host_start_time=start_time(child.pid)) == {"agent:main:x"}
        assert listed(host_start_time=1) == set()  # the number went to another process
        child.kill()
    assert listed() == set()
    assert listed(pid_scope="sandbox") == {"agent:main:x"}  # cannot be seen from here
    for content in ("{bad", '{"a": 1}'):
        (tmp_path / "processes.json").write_text(content)
        assert background(tmp_path) is None
