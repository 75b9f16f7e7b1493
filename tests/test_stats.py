"""hermes-session-stats: counts that add up."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from conftest import Run
from filled import T, chain, fill, insert

SESSION_PARTS = ("listed", "segments", "archived", "internal", "empty")
MESSAGE_PARTS = ("live", "compacted", "rewound", "orphaned")


@pytest.mark.parametrize(
    "name", ["v1", "v4", "v11", "v14", "v22", "head-3", "head-cjk", "nofts", "v99", "delete"]
)
def test_b125_parts_add_up_to_the_tables(run: Run, store, name: str) -> None:
    path = store(name)
    (one,) = run("stats", "--db", path).ok().records
    with closing(sqlite3.connect(path)) as db:
        for table, parts in (("sessions", SESSION_PARTS), ("messages", MESSAGE_PARTS)):
            rows = db.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
            assert one[table] == rows == sum(one[f"{table}_{part}"] for part in parts)
    assert sum(count["sessions"] for count in one["sources"].values()) == one["sessions"]
    assert sum(count["messages"] for count in one["sources"].values()) == one["messages_live"]
    listed = run("list", "--db", path).ok().records
    assert one["sessions_listed"] == len(listed)


def test_the_documented_text(run: Run, store) -> None:
    lines = run("stats", "-t", "--db", store("v22")).ok().lines
    assert lines[0] == "Total sessions: 17" and "Total messages: 52" in lines
    for line in ("  listed: 12", "  archived: 1", "  rewound: 2", "  cli: 10 sessions",
                 "  telegram: 1 session", "Database size: 208.0 KB", "Cost: $0.08"):  # fmt: skip
        assert line in lines


@pytest.fixture
def odd(store) -> Path:
    """Rows of every part, garbage, two models, a message of nobody."""
    return fill(
        store("v22"),
        [{"id": "a", "input_tokens": 100, "output_tokens": 50, "reasoning_tokens": 30,
          "cache_read_tokens": 10, "cache_write_tokens": 5, "model": "m1", "title": "a",
          "estimated_cost_usd": 9.0, "actual_cost_usd": 2.0},
         {"id": "b", "source": "", "input_tokens": "many", "output_tokens": -5,
          "estimated_cost_usd": 0.25, "archived": 1},
         {"id": "c", "source": "", "model": "m2", "started_at": "soon"},
         *chain("r", "t", start=T + 86400 * 3)],
        [("a", "user", "x", T), ("a", "user", "x", T, {"active": 0}),
         ("a", "user", "x", T, {"active": 0, "compacted": 1}), ("lost", "user", "x", T),
         ("lost", "user", "x", T, {"active": 0}), ("c", "user", "x", T * 1000)],
    )  # fmt: skip


def test_b126_tokens_and_cost(run: Run, odd: Path) -> None:
    result = run("stats", "--db", odd).ok()
    (one,) = result.records
    assert one["tokens"] == 165 and one["reasoning_tokens"] == 30
    assert one["cost_usd"] == 2.25, "actual, else estimated"
    assert "1 cell of input_tokens left out" in result.stderr
    assert "1 cell of output_tokens left out" in result.stderr
    assert one["messages_orphaned"] == 2 and one["messages_compacted"] == 1
    assert one["messages_rewound"] == 1 and one["sessions_segments"] == 1
    assert one["sources"]["unknown"]["sessions"] == 2


def test_null_is_not_nothing(run: Run, store) -> None:
    path = fill(store("v22"), [{"id": "a"}, {"id": "b", "estimated_cost_usd": 0.0, "source": "x"}])
    found = {
        one["source"]: one["cost_usd"]
        for one in run("stats", "--by", "source", "--db", path).records
    }
    assert found == {"cli": None, "x": 0.0}


def test_b127_each_model_has_its_own(run: Run, odd: Path) -> None:
    with closing(sqlite3.connect(odd)) as db, db:
        for model, tokens, cost in (("m1", 70, 0.5), ("helper", 30, 0.0)):
            insert(db, "session_model_usage", {"session_id": "a", "model": model,
                   "input_tokens": tokens, "estimated_cost_usd": cost})  # fmt: skip
    by = {one["model"]: one for one in run("stats", "--by", "model", "--db", odd).ok().records}
    assert (by["m1"]["tokens"], by["helper"]["tokens"]) == (70, 30)
    assert (by["m1"]["cost_usd"], by["helper"]["cost_usd"]) == (0.5, None)
    assert by["m2"]["sessions"] == 1 and by[None]["cost_usd"] == 0.25
    (whole,) = run("stats", "--db", odd).ok().records
    assert whole["tokens"] == sum(one["tokens"] for one in by.values()) == 100
    assert whole["cost_usd"] == 0.75


@pytest.mark.parametrize("group", ["source", "model", "day", "hour", "user"])
def test_groups_add_up(run: Run, store, group: str) -> None:
    path = store("v22")
    (whole,) = run("stats", "--db", path).ok().records
    rows = run("stats", "--by", group, "--db", path).ok().records
    assert sum(one["messages"] for one in rows) == whole["messages_live"]
    assert sum(one["tokens"] for one in rows) == whole["tokens"]
    if group != "model":  # a session with two models counts with each
        assert sum(one["sessions"] for one in rows) == whole["sessions"]
    assert all(list(one)[:2] == ["by", group] for one in rows)


def test_days_are_local_and_in_order(run: Run, odd: Path, monkeypatch) -> None:
    import time

    monkeypatch.setenv("TZ", "Pacific/Auckland")
    time.tzset()
    try:
        days = run("stats", "--by", "day", "--db", odd).ok().records
        last = run("stats", "--by", "day", "-n", 2, "--db", odd).ok().records
    finally:
        monkeypatch.undo()
        time.tzset()
    # 22:00 there: the day has not changed yet; a time that is none has no day
    assert [one["day"] for one in days] == ["2026-03-01", "2026-03-04", None]
    assert last == days[-2:]


def test_tools_and_roles(run: Run, store) -> None:
    calls = '[{"function":{"name":"ls"}},{"function":{"name":"ls"}},{"name":"cat"}]'
    path = fill(
        store("v22"), [{"id": "a"}],
        [("a", "assistant", None, T, {"tool_calls": calls}),
         ("a", "assistant", None, T, {"tool_calls": '{"name": "cat"}'}),
         ("a", "assistant", None, T, {"tool_calls": "{broken"}),
         ("a", "assistant", None, T, {"tool_calls": '["x", 7]'}),
         ("a", "tool", "x", T, {"tool_name": "ls"}), ("a", "tool", "x", T, {"active": 0})],
    )  # fmt: skip
    tools = run("stats", "--by", "tool", "--db", path).ok().records
    found = {one["tool"]: (one["calls"], one["answers"]) for one in tools}
    assert found == {"ls": (2, 1), "cat": (2, 0), None: (2, 0)}
    roles = run("stats", "--by", "role", "--db", path).ok().records
    assert {one["role"]: one["messages"] for one in roles} == {"assistant": 4, "tool": 1}


def test_top_sessions(run: Run, store) -> None:
    rows = [{**row, "input_tokens": 40} for row in chain("r", "t")]
    path = fill(store("v22"), [*rows, {"id": "big", "input_tokens": 70, "actual_cost_usd": 1.0}],
                [("t", "user", "x" * 99, T), ("big", "user", "x", T)])  # fmt: skip
    tokens = run("stats", "--sort", "tokens", "--db", path).ok().records
    assert [(one["session_id"], one["tokens"]) for one in tokens] == [("t", 80), ("big", 70)]
    assert run("stats", "--sort", "cost", "-n", 1, "--db", path).ok().ids == ["big"]
    assert run("stats", "--sort", "size", "--db", path).ok().records[0]["bytes"] > 99
    assert run("stats", "-n", 1, "--db", path).ok().ids == ["t"]


def test_filters(run: Run, store) -> None:
    path = store("v22")
    (one,) = run("stats", "--source", "CLI", "--db", path).ok().records
    assert list(one["sources"]) == ["cli"] and one["sessions"] == 10
    (garden,) = run("stats", "--title-like", "garden", "--db", path).ok().records
    assert (garden["sessions"], garden["messages"]) == (3, 6)
    run("stats", "--source", "telegramm", "--db", path).gave(1)
    for group in ("model", "tool", "role", "day"):
        run("stats", "--by", group, "--source", "cli", "--db", path).ok()


def test_b124_the_log_is_told_apart(run: Run, store) -> None:
    path = store("v22")
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA wal_autocheckpoint = 0")
        with db:
            insert(db, "messages", {"session_id": "20260225_101500_a1b2c3", "role": "user",
                                    "content": "x" * 300_000, "timestamp": T})  # fmt: skip
        (one,) = run("stats", "--db", path).ok().records
        assert one["wal_bytes"] > 300_000 and one["database_bytes"] < 300_000
        assert one["total_bytes"] == sum(one[f"{n}_bytes"] for n in ("database", "wal", "shm"))


def test_b171_bytes_of_tables_and_indexes(run: Run, store) -> None:
    path = store("v22")
    rows = run("stats", "--size", "--db", path).ok().records
    assert sum(one["bytes"] for one in rows) == path.stat().st_size
    kinds = {one["name"]: (one["kind"], one["table"]) for one in rows}
    assert kinds["messages_fts_trigram_data"] == ("fts", "messages_fts_trigram")
    assert kinds["idx_sessions_source"] == ("index", "sessions")
    assert [one["bytes"] for one in rows] == sorted((one["bytes"] for one in rows), reverse=True)


def test_bars_on_a_terminal_only(run: Run, store) -> None:
    path = store("v22")
    assert "█" in run.terminal("stats", "--db", path).ok().text
    assert "█" in run.terminal("stats", "--by", "role", "--db", path).ok().text
    assert "█" not in run("stats", "--by", "role", "-t", "--db", path).ok().text


def test_b168_no_session_is_read_one_by_one(store) -> None:
    from hermes_tools.store.db import reader
    from hermes_tools.store.stats import Stats

    path = fill(store("v22"), [{"id": f"s{number}"} for number in range(2000)])
    with reader(path) as db:
        seen: list[str] = []
        stats = Stats(db)
        db.set_trace_callback(seen.append)
        stats.summary()
        for group in ("source", "model", "day", "hour", "tool", "role", "user"):
            stats.by(group)
        assert len(seen) < 60


@pytest.mark.parametrize(
    "words", [["--size", "--by", "day"], ["--by", "source", "--sort", "size"],
              ["--by", "tool", "--sort", "cost"], ["--by", "moon"]]
)  # fmt: skip
def test_what_does_not_go_together(run: Run, store, words: list[str]) -> None:
    run("stats", *words, "--db", store("v22")).gave(2)
