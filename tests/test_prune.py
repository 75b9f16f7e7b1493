"""hermes-session-prune: what has had its time, and nothing else (field cases H)."""

import json
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest
import stores

AUTH = "20260225_101500_a1b2c3"
ROOT, MIDDLE, TIP = "20260226_090000_00aa11", "20260226_113000_00bb22", "20260226_150000_00cc33"
DELEGATE = "20260226_151000_00dd44"
GARDEN = {ROOT, MIDDLE, TIP, DELEGATE}
CHAT, DISCORD = "20260227_080000_deadbe01", "20260227_090000_deadbe02"
CRON = {f"cron_{number}_20260228_0{number}0000" for number in range(3)}
DAY = 86400.0


def ask(path: Path, sql: str, *values: object) -> list[tuple]:
    """Rows of one statement, committed."""
    with closing(sqlite3.connect(path)) as db, db:
        return db.execute(sql, values).fetchall()


def ids(path: Path) -> set[str]:
    """Every session row."""
    return {row[0] for row in ask(path, "SELECT id FROM sessions")}


def add(path: Path, name: str, days: float, *, ended: bool = True, **columns: object) -> str:
    """A session of two messages, last active so many days ago."""
    at = time.time() - days * DAY
    row = {"id": name, "source": "cli", "started_at": at - 100, **columns}
    if ended:
        row |= {"ended_at": at, "end_reason": "user_exit"}
    with closing(sqlite3.connect(path)) as db, db:
        names, marks = ", ".join(row), ", ".join("?" * len(row))
        db.execute(f"INSERT INTO sessions ({names}) VALUES ({marks})", list(row.values()))
        db.executemany(
            "INSERT INTO messages (session_id, role, content, timestamp) VALUES (?, ?, ?, ?)",
            [(name, "user", f"ask {name}", at - 50), (name, "assistant", f"say {name}", at)],
        )
    return name


def close_all(path: Path) -> None:
    """End what is open, so that age alone decides."""
    ask(path, "UPDATE sessions SET ended_at = started_at, end_reason = 'x' WHERE ended_at IS NULL")
    ask(path, "UPDATE sessions SET handoff_state = NULL")


def prune(run, path: Path, *argv: object, yes: bool = True, **how):
    """A run on this store."""
    return run("prune", "--db", path, *argv, *(["--yes"] if yes else []), **how)


@pytest.mark.parametrize("name", ["v11", "v14", "v16", "v19", "v22"])
def test_b77_only_what_has_ended_goes_and_the_rest_is_counted(run, store, name: str) -> None:
    path = store(name)
    add(path, "fresh", 0.001)
    before, had = stores.condition(path), ids(path)
    result = prune(run, path, "--archived", "any").ok() if name != "v11" else prune(run, path).ok()
    assert set(result.ids) == CRON | {AUTH, DISCORD}
    assert ids(path) == had - set(result.ids)
    assert "ended, older than 90d (default)" in result.stderr
    assert "1 younger" in result.stderr and "never ended" in result.stderr
    assert stores.condition(path) == before


def test_b80_the_default_age_is_said(run, store) -> None:
    path = store("v22")
    for number in range(5):
        add(path, f"night_{number}", 1.5, source="cron")
    ask(path, "DELETE FROM messages WHERE session_id LIKE 'cron%'")
    ask(path, "DELETE FROM sessions WHERE id LIKE 'cron%'")
    before = path.read_bytes()
    told = prune(run, path, "--source", "cron", "--dry-run", yes=False).ok()
    assert "ended, older than 90d (default), source cron: 0; 5 younger" in told.stderr
    assert told.stdout == b"" and path.read_bytes() == before
    assert prune(run, path, "--source", "cron").ok().records == []
    result = prune(run, path, "--source", "cron", "--older-than", "1d").ok()
    assert len(result.records) == 5 and "last active" in result.stderr
    assert "source cron: 5 removed (10 messages" in result.stderr


def test_the_summary_of_a_dry_run_says_would(run, store) -> None:
    path = store("v22")
    told = prune(run, path, "--source", "cli", "--dry-run", yes=False).ok()
    assert "source cli: 1 would go (6 messages" in told.stderr
    assert " to 2026" not in told.stderr  # one, one time
    done = prune(run, path, "--source", "cli").ok()
    assert "source cli: 1 removed (6 messages" in done.stderr


@pytest.mark.parametrize("age", ["-1d", "nan", "inf", "", "x", "1d 2d"])
def test_bad_ages_do_nothing(run, store, age: str) -> None:
    path = store("v22")
    before = path.read_bytes()
    prune(run, path, f"--older-than={age}").gave(2)
    assert path.read_bytes() == before


def test_zero_days_is_any_age(run, store) -> None:
    path = store("v22")
    add(path, "fresh", 0.02)
    assert "fresh" in prune(run, path, "--older-than", "0d").ok().ids


def test_activity_counts_not_the_start(run, store) -> None:
    path = store("v22")
    add(path, "long", 1, started_at=time.time() - 400 * DAY)
    assert "long" not in prune(run, path).ok().ids


def test_b81_pinned_sessions_are_spared(run, store) -> None:
    path = store("head-3")
    ask(path, "UPDATE sessions SET ended_at = started_at + 9 WHERE id = ?", stores.PINNED)
    result = prune(run, path).ok()
    assert stores.PINNED in ids(path) and "1 pinned" in result.stderr
    assert stores.PINNED in prune(run, path, "--pinned", "any").ok().ids


def test_archived_sessions_are_spared(run, store) -> None:
    path = store("v22")
    assert "1 archived" in prune(run, path).ok().stderr
    assert DISCORD in ids(path)
    assert prune(run, path, "--archived", "only").ok().ids == [DISCORD]


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("INSERT INTO compression_locks VALUES ('{id}', 'x', 1, 4e9)", "1 under compression"),
        ("UPDATE sessions SET handoff_state = 'running' WHERE id = '{id}'", "handoff under way"),
        ("INSERT INTO gateway_routing VALUES ('', 'k', '{{\"session_id\": \"{id}\"}}', 1)",
         "1 routed to a chat"),
    ],
)  # fmt: skip
def test_b90_in_use_is_spared_and_counted(run, store, sql: str, words: str) -> None:
    path = store("v22")
    ask(path, sql.format(id=AUTH))
    result = prune(run, path).ok()
    assert AUTH in ids(path) and words in result.stderr
    assert prune(run, path, "--live").ok().ids == [AUTH]


def test_b165_never_by_a_time_that_is_none(run, store) -> None:
    path = store("v22")
    for name, value in (("text", "'soon'"), ("zero", "0"), ("milli", "1772003600000")):
        add(path, name, 400)
        ask(path, f"UPDATE sessions SET started_at = {value} WHERE id = ?", name)
        ask(path, f"UPDATE messages SET timestamp = {value} WHERE session_id = ?", name)
    result = prune(run, path, "--older-than", "0d").ok()
    assert {"text", "zero", "milli"} <= ids(path) and "without a time" in result.stderr


def test_a_chain_goes_whole_with_its_delegates_branches_stay(run, store) -> None:
    path = store("v22")
    ask(path, "UPDATE sessions SET ended_at = started_at + 9, end_reason = 'x' WHERE id = ?", TIP)
    add(path, "branch", 400, parent_session_id=ROOT,
        model_config=json.dumps({"_branched_from": ROOT}), ended=False)  # fmt: skip
    result = prune(run, path).ok()
    record = next(one for one in result.records if one["session_id"] == TIP)
    assert set(record["session_ids"]) == GARDEN and not ids(path) & GARDEN
    assert "branch" in ids(path)


def test_a_chain_that_goes_on_stays_whole(run, store) -> None:
    path = store("v22")
    prune(run, path, "--older-than", "0d").ok()
    assert ids(path) >= GARDEN, "its tip is open"


def test_a_working_delegate_keeps_its_conversation(run, store) -> None:
    path = store("v22")
    ask(path, "UPDATE sessions SET ended_at = started_at + 9, end_reason = 'x' WHERE id = ?", TIP)
    ask(path, "UPDATE messages SET timestamp = ? WHERE session_id = ?", time.time() - DAY, DELEGATE)
    prune(run, path).ok()
    assert ids(path) >= GARDEN


def test_b88_an_empty_parent_does_not_stop_the_rest(run, store) -> None:
    path = store("v22")
    for number in range(10):
        add(path, f"empty_{number}", 400)
        ask(path, "DELETE FROM messages WHERE session_id = ?", f"empty_{number}")
    add(path, "full", 1, parent_session_id="empty_3")
    result = prune(run, path, "--max-messages", "0").ok()
    assert {f"empty_{number}" for number in range(10)} <= set(result.ids)
    assert ask(path, "SELECT parent_session_id FROM sessions WHERE id = 'full'") == [(None,)]


def test_b89_a_wrong_counter_deletes_nothing(run, store) -> None:
    path = store("v22")
    add(path, "counted", 400, message_count=0)
    assert "counted" not in prune(run, path, "--max-messages", "0").ok().ids


def test_b69_a_dry_run_keeps_titles(run, store) -> None:
    path = store("v22")
    before = path.read_bytes()
    prune(run, path, "--dry-run", yes=False).ok()
    assert path.read_bytes() == before


def test_b95_dry_run_and_real_run_count_alike(run, store) -> None:
    path = store("v22")
    told = prune(run, path, "--dry-run", yes=False).ok()
    done = prune(run, path).ok()
    assert [one.pop("action") for one in told.records] == ["would_delete"] * 4
    strip = [{k: v for k, v in one.items() if k != "action"} for one in done.records]
    assert strip == [{k: v for k, v in one.items() if k != "action"} for one in told.records]
    assert sum(one["messages"] for one in done.records) == 12


def test_b174_nobody_to_ask(run, store) -> None:
    path = store("v22")
    before = path.read_bytes()
    assert "--yes" in run.process("prune", "--db", path, stdin=-3).gave(2).stderr
    assert run.shell(f"hermes-session-prune --db {path} <&-").status == 2
    assert path.read_bytes() == before


def test_open_ones_are_ended_first(run, store) -> None:
    assert "hermes-session-end" in prune(run, store("v22"), "--open").gave(2).stderr


def test_ages_by_source(run, store) -> None:
    path = store("v22")
    close_all(path)
    add(path, "young_cron", 10, source="cron")
    add(path, "young_cli", 10)
    told = prune(run, path, "--older-than", "cron=7d", "--dry-run", yes=False).ok()
    assert set(told.ids) == CRON | {"young_cron"}, "cron only"
    argv = ("--older-than", "90d", "--older-than", "cron=7d")
    told = prune(run, path, *argv, "--dry-run", yes=False).ok()
    assert "young_cron" in told.ids and AUTH in told.ids and "young_cli" not in told.ids
    assert prune(run, path, "--older-than", "irc=7d").gave(1).stdout == b""


def test_keep_last_only_spares(run, store) -> None:
    path = store("v22")
    result = prune(run, path, "--keep-last", 2).ok()
    assert set(result.ids) == {AUTH, min(CRON)}
    assert "2 kept as the last of their source" in result.stderr


def test_until_size_takes_the_oldest_first(run, store) -> None:
    path = store("v22")
    text = "lorem ipsum dolor " * 3000
    for number in range(20):
        name = add(path, f"big_{number:02}", 50 - number)
        ask(path, "UPDATE messages SET content = ? WHERE session_id = ?", text, name)
    add(path, "today", 0.5)
    told = prune(run, path, "--until-size", "1.5M", "--dry-run", yes=False).ok()
    taken = [name for name in told.ids if name.startswith("big")]
    assert taken == [f"big_{number:02}" for number in range(len(taken))] and 0 < len(taken) < 20
    assert told.ids[:4] == [AUTH, *sorted(CRON)], "the oldest of all"
    assert "the rest fits into 1.5 MB: " in told.stderr and "more than" not in told.stderr
    result = prune(run, path, "--until-size", "1").ok()
    assert "what is spared still takes about" in result.stderr
    assert "today" in ids(path), "not what was active within a day"
    assert {f"big_{number:02}" for number in range(20)} <= set(result.ids)
    assert TIP in ids(path) and DISCORD in ids(path), "never open or archived ones"
    assert prune(run, path, "--until-size", "1G").ok().records == []
    prune(run, path, "--until-size", "huge").gave(2)


def test_a_plan_is_applied_exactly(run, store, tmp_path: Path) -> None:
    path = store("v22")
    plan = prune(run, path, "--dry-run", yes=False).ok()
    add(path, "later", 400)
    (tmp_path / "plan").write_bytes(plan.stdout)
    result = prune(run, path, "--plan", tmp_path / "plan").ok()
    assert result.ids == plan.ids and "later" in ids(path)
    again = prune(run, path, "--plan", "-", input=plan.stdout).ok()
    assert again.records == [] and "already gone" in again.stderr


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE messages SET content = 'edited' WHERE session_id = '{id}' AND role = 'user'",
        "UPDATE sessions SET ended_at = NULL WHERE id = '{id}'",
        "UPDATE sessions SET archived = 1 WHERE id = '{id}'",
        "INSERT INTO compression_locks VALUES ('{id}', 'x', 1, 4e9)",
        "INSERT INTO gateway_routing VALUES ('', 'k', '{{\"session_id\": \"{id}\"}}', 1)",
        "INSERT INTO messages (session_id, role, timestamp) VALUES ('{id}', 'user', 1772003900.0)",
    ],
)
def test_a_plan_refuses_what_changed_since(run, store, sql: str) -> None:
    path = store("v22")
    plan = prune(run, path, "--dry-run", yes=False).ok()
    ask(path, sql.format(id=AUTH))
    result = prune(run, path, "--plan", "-", input=plan.stdout).gave(1)
    assert AUTH in ids(path) and AUTH in result.stderr
    assert {one["session_id"] for one in result.records if one["action"] == "deleted"} == CRON


def test_what_is_no_plan(run, store) -> None:
    path = store("v22")
    before = path.read_bytes()
    lines = [{"session_id": AUTH, "action": "would_delete"}]
    prune(run, path, "--plan", "-", input=lines).gave(65)
    prune(run, path, "--plan", "-", "--source", "cli", input="").gave(2)
    prune(run, path, "--plan", "/nonexistent/plan").gave(66)
    listed = [{"session_id": AUTH, "digest": "x"}]
    assert prune(run, path, "--plan", "-", input=listed).ok().records == [], "a list is no plan"
    assert path.read_bytes() == before


def test_export_first(run, store, tmp_path: Path) -> None:
    path, saved = store("v22"), tmp_path / "gone.jsonl"
    result = prune(run, path, "--export", saved).ok()
    assert {json.loads(line)["id"] for line in saved.read_text().splitlines()} == set(result.ids)
    assert "to undo: hermes-session-import" in result.stderr
    prune(run, path, "--older-than", "0d", "--archived", "any", "--export", saved).gave(1)
    assert DISCORD in ids(path)


def test_max_lock_leaves_and_names(run, store) -> None:
    path = store("v22")
    add(path, "huge", 400)
    ask(path, "UPDATE messages SET content = ? WHERE session_id = 'huge'", "word " * 400_000)
    result = prune(run, path, "--max-lock", 60).ok()
    record = next(one for one in result.records if one["session_id"] == "huge")
    assert (record["action"], record["reason"]) == ("skipped", "max_lock")
    assert "huge" in ids(path) and "huge" in result.stderr
    assert "huge" in prune(run, path).ok().ids


def test_b91_space_is_told(run, store) -> None:
    path = store("v22")
    for number in range(30):
        ask(path, "UPDATE messages SET content = ? WHERE session_id = ?", "word " * 2000,
            add(path, f"old_{number}", 400))  # fmt: skip
    assert "hermes-session-optimize --vacuum" in prune(run, path).ok().stderr
    assert prune(run, path, "-q").ok().stderr == ""


def test_a_source_nobody_has(run, store) -> None:
    result = prune(run, store("v22"), "--source", "irc").gave(1)
    assert "telegram" in result.stderr


def test_b85_fifteen_hundred(run, store) -> None:
    path = store("v22")
    before = stores.condition(path)
    names = [f"20250101_{number:06d}_aaaaaa" for number in range(1500)]
    with closing(sqlite3.connect(path)) as db, db:
        db.executemany("INSERT INTO sessions (id, source, started_at, ended_at) "
                       "VALUES (?, 'cli', 1735689600, 1735689700)",
                       [(name,) for name in names])  # fmt: skip
        db.executemany("INSERT INTO messages (session_id, role, content, timestamp) "
                       "VALUES (?, 'user', 'something to say', 1735689650)",
                       [(name,) for name in names])  # fmt: skip
    result = prune(run, path).ok()
    assert set(names) <= set(result.ids) and not ids(path) & set(names)
    assert stores.condition(path) == before


@pytest.mark.parametrize(
    ("yaml", "status"),
    [
        ("", 0), ("sessions:\n  auto_prune: false\n", 0), ("sessions: 7\n", 0),
        ("sessions:\n  auto_prune: true\n  retention_days: -1\n", 2),
        ("sessions:\n  auto_prune: true\n  retention_days: many\n", 2),
        ("sessions: [\n", 2),
    ],
)  # fmt: skip
def test_auto_does_nothing_unless_told(run, home, yaml: str, status: int) -> None:
    place = home("v22")
    if yaml:
        (place / "config.yaml").write_text(yaml)
    before = (place / "state.db").read_bytes()
    result = run("prune", "--home", place, "--auto").gave(status)
    assert result.stdout == b"" and (place / "state.db").read_bytes() == before
    assert bool(result.stderr) == bool(status)


def test_auto(run, home) -> None:
    place = home("v22")
    path = place / "state.db"
    (place / "config.yaml").write_text("sessions:\n  auto_prune: true\n")
    add(path, "weeks", 30)
    result = run.process("prune", "--home", place, "--auto", stdin=-3).ok()
    assert (result.stdout, result.stderr) == (b"", "")
    assert not CRON & ids(path) and "weeks" in ids(path) and DISCORD in ids(path)
    ((at,),) = ask(path, "SELECT value FROM state_meta WHERE key = 'last_auto_prune'")
    assert abs(float(at) - time.time()) < 60
    add(path, "old", 400)
    run("prune", "--home", place, "--auto").ok()
    assert "old" in ids(path), "within the interval"
    ask(path, "UPDATE state_meta SET value = ? WHERE key = 'last_auto_prune'",
        str(time.time() - 25 * 3600))  # fmt: skip
    (place / "config.yaml").write_text(
        "sessions:\n  auto_prune: true\n  retention_days: 20\n  vacuum_after_prune: false\n"
    )
    run("prune", "--home", place, "--auto").ok()
    assert not {"old", "weeks"} & ids(path)


def test_auto_records_even_nothing(run, home) -> None:
    place = home("v22")
    path = place / "state.db"
    (place / "config.yaml").write_text(
        "sessions: {auto_prune: true, retention_days: 90000, min_interval_hours: 0}\n"
    )
    had = ids(path)
    run("prune", "--home", place, "--auto").ok()
    ((at,),) = ask(path, "SELECT value FROM state_meta WHERE key = 'last_auto_prune'")
    assert ids(path) == had and time.time() - float(at) < 60


def test_auto_vacuums_alone_only(run, home) -> None:
    place = home("v22")
    path = place / "state.db"
    (place / "config.yaml").write_text("sessions: {auto_prune: true, min_interval_hours: 0}\n")

    def fill() -> int:
        for number in range(20):
            name = add(path, f"old_{number}", 400)
            text = "word " * 20_000
            ask(path, "UPDATE messages SET content = ? WHERE session_id = ?", text, name)
        ask(path, "PRAGMA wal_checkpoint(TRUNCATE)")
        return path.stat().st_size

    size = fill()
    with closing(sqlite3.connect(path)) as other:
        other.execute("SELECT 1 FROM sessions").fetchone()
        run.process("prune", "--home", place, "--auto").ok()
    assert path.stat().st_size >= size and not ask(
        path, "SELECT 1 FROM state_meta WHERE key = 'last_vacuum'"
    )
    size = fill()
    run.process("prune", "--home", place, "--auto").ok()
    assert path.stat().st_size < size / 2
    assert ask(path, "SELECT 1 FROM state_meta WHERE key = 'last_vacuum'")


def test_auto_takes_no_rule_beside_it(run, store) -> None:
    run("prune", "--db", store("v22"), "--auto", "--source", "cli").gave(2)
