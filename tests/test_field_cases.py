"""What went wrong for real people, across commands: lists, lineages, names, profiles, columns,
times, use in scripts. Each test is named after its case.
"""

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import stores
from conftest import Run
from scripts import need
from stores import DAY, HOUR, T, make

CLI, TIP = "20260225_101500_a1b2c3", "20260226_150000_00cc33"


def change(path: Path, *statements: str) -> None:
    """Plain SQL on a store, foreign keys off."""
    with closing(sqlite3.connect(path)) as db, db:
        for statement in statements:
            db.execute(statement)


def listed(run: Run, path: Path, *more: Any) -> list[dict[str, Any]]:
    return run("list", "--db", path, *more).ok().records


# --- Lists and lineages ---


def test_b33_every_source_is_listed_as_it_is_stored(run: Run, tmp_path: Path) -> None:
    sources = ["api_server", "webui", "", "Marsrover-2"]
    path = make(tmp_path / "s.db", [
        {"id": f"s{number}", "source": source, "messages": ["hello"]}
        for number, source in enumerate(sources)
    ])  # fmt: skip
    assert sorted(one["source"] for one in listed(run, path)) == sorted(sources)
    assert [one["source"] for one in listed(run, path, "--source", "API-server")] == ["api_server"]
    need("stats")
    assert "Marsrover-2" in run("stats", "-t", "--db", path).ok().text


def chain() -> list[dict[str, Any]]:
    return [
        {"id": "root", "title": "long story", "end_reason": "compression", "ended_at": T + HOUR,
         "messages": ["one", "two"]},
        {"id": "middle", "parent_session_id": "root", "end_reason": "compression",
         "started_at": T + HOUR, "ended_at": T + 2 * HOUR, "messages": ["three", "four"]},
        {"id": "tip", "parent_session_id": "middle", "started_at": T + 2 * HOUR,
         "messages": ["five", "six"]},
    ]  # fmt: skip


def test_b45_a_compressed_conversation_is_one_row(run: Run, tmp_path: Path) -> None:
    path = make(tmp_path / "s.db", chain())
    (one,) = listed(run, path)
    assert (one["session_id"], one["lineage_root_id"], one["segments"]) == ("tip", "root", 3)
    assert one["started_at"] == T and one["last_active"] == T + 2 * HOUR + 10
    assert one["message_count"] == 6
    assert {row["session_id"] for row in listed(run, path, "--tree")} == {"root", "middle", "tip"}


def test_b48_the_continuation_with_the_newest_messages_wins(run: Run, tmp_path: Path) -> None:
    path = make(tmp_path / "s.db", [
        {"id": "parent", "end_reason": "compression", "ended_at": T + HOUR, "messages": ["a"]},
        {"id": "empty", "parent_session_id": "parent", "started_at": T + 9 * HOUR},
        {"id": "stale", "parent_session_id": "parent", "started_at": T + 2 * HOUR,
         "ended_at": T + 3 * HOUR, "end_reason": "user_exit", "messages": ["b"]},
        {"id": "alive", "parent_session_id": "parent", "started_at": T + HOUR,
         "ended_at": T + 4 * HOUR, "end_reason": "compression", "messages": ["c"]},
        {"id": "grandchild", "parent_session_id": "alive", "started_at": T + 4 * HOUR,
         "messages": ["d", "e"]},
    ])  # fmt: skip
    found = {one["session_id"]: one for one in listed(run, path, "--internal", "any")}
    assert found["grandchild"]["segments"] == 3
    assert found["stale"]["segments"] == 1, "the other branch is a conversation of its own"
    tree = run("list", "--tree", "--internal", "any", "-t", "--db", path).ok().text
    for name in ("parent", "stale", "alive", "grandchild", "empty"):
        assert name in tree


def test_b50_b51_branches_stay_and_delegates_go_along(run: Run, tmp_path: Path) -> None:
    path = make(tmp_path / "s.db", [
        {"id": "parent-1", "end_reason": "user_exit", "ended_at": T + HOUR, "messages": ["a"]},
        {"id": "branch-1", "parent_session_id": "parent-1", "messages": ["b"],
         "model_config": json.dumps({"_branched_from": "parent-1"})},
        {"id": "worker-1", "parent_session_id": "parent-1", "source": "subagent",
         "messages": ["c"], "model_config": json.dumps({"_delegate_from": "parent-1"})},
    ])  # fmt: skip
    assert {one["session_id"] for one in listed(run, path)} == {"parent-1", "branch-1"}
    need("delete")
    run("delete", "parent-1", "--yes", "--live", "--db", path).ok()
    assert {one["session_id"] for one in listed(run, path, "--internal", "any")} == {"branch-1"}


def test_b53_a_parent_that_does_not_exist(run: Run, tmp_path: Path) -> None:
    path = make(tmp_path / "s.db", [{"id": "orphan", "messages": ["hello"]}])
    change(path, "UPDATE sessions SET parent_session_id = 'gone'")
    (one,) = listed(run, path)
    assert one["session_id"] == "orphan" and one["segments"] == 1
    for argv in (["show", "orphan"], ["export", "orphan"], ["list", "--tree"],
                 ["list", "--ancestors", "orphan"]):  # fmt: skip
        need(argv[0])
        assert "hello" in run(*argv, "--db", path).ok().text
    need("check")
    assert "gone" in run("check", "--quick", "--db", path).text


def test_a_cycle_ends_at_the_first_id_met_again(run: Run, tmp_path: Path) -> None:
    path = make(tmp_path / "s.db", [
        {"id": "hen-0001", "end_reason": "compression", "ended_at": T, "messages": ["a"]},
        {"id": "egg-0001", "parent_session_id": "hen-0001", "end_reason": "compression",
         "ended_at": T, "messages": ["b"]},
    ])  # fmt: skip
    change(path, "UPDATE sessions SET parent_session_id = 'egg-0001' WHERE id = 'hen-0001'")
    assert listed(run, path)
    for argv in (["list", "--tree"], ["list", "--ancestors", "egg-0001"],
                 ["list", "--descendants", "egg-0001"], ["show", "hen-0001"],
                 ["export", "egg-0001"], ["resume", "hen-0001"],
                 ["delete", "hen-0001", "--dry-run"], ["archive", "hen-0001"]):  # fmt: skip
        need(argv[0])
        assert run(*argv, "--db", path).ok().stdout


def test_b55_b89_counters_are_not_believed(run: Run, tmp_path: Path) -> None:
    path = make(tmp_path / "s.db", [
        {"id": "modest", "message_count": 0, "messages": ["a", "b", "c"]},
        {"id": "boastful", "message_count": 99, "messages": ["a"]},
    ])  # fmt: skip
    counts = {one["session_id"]: one["message_count"] for one in listed(run, path)}
    assert counts == {"modest": 3, "boastful": 1}
    assert [one["session_id"] for one in listed(run, path, "--min-messages", "2")] == ["modest"]
    need("check")
    words = run("check", "--quick", "--db", path).text
    assert "modest" in words and "boastful" in words


def test_b56_ghosts_are_hidden_and_counted(run: Run, tmp_path: Path) -> None:
    ghosts = [{"id": f"ghost{number:02}", "source": "tui"} for number in range(20)]
    path = make(tmp_path / "s.db", [*ghosts, {"id": "real", "messages": ["hello"]}])
    assert [one["session_id"] for one in listed(run, path)] == ["real"]
    assert len(listed(run, path, "--internal", "any")) == 21
    assert len(listed(run, path, "--internal", "only")) == 20


def test_b57_b58_archived_conversations_come_back_whole(run: Run, tmp_path: Path) -> None:
    need("archive")
    path = make(tmp_path / "s.db", [*chain(), {"id": "other-01", "messages": ["x"]}])
    run("archive", "tip", "--db", path).ok()
    assert [one["session_id"] for one in listed(run, path)] == ["other-01"]
    (hidden,) = listed(run, path, "--archived", "only")
    assert hidden["session_id"] == "tip" and hidden["archived"] is True
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("SELECT sum(archived) FROM sessions").fetchone() == (3,)
    run("archive", "--undo", "root", "--db", path).ok()
    assert len(listed(run, path)) == 2


# --- Names ---


def test_b70_the_start_of_a_title(run: Run, tmp_path: Path) -> None:
    title = "A rather long title about the irrigation of beds"
    path = make(tmp_path / "s.db", [
        {"id": "aaaa", "title": title, "messages": ["x"]},
        {"id": "bbbb", "title": "100% of it_all", "messages": ["x"]},
        {"id": "cccc", "title": "100x of itxall", "messages": ["x"]},
    ])  # fmt: skip
    assert run("title", title[:30], "--db", path).ok().text.strip() == title
    assert run("title", "100%", "--db", path).ok().text.strip() == "100% of it_all"
    change(path, f"UPDATE sessions SET title = '{title}, again' WHERE id = 'cccc'")
    ambiguous = run("title", title[:30], "--db", path).gave(1)
    assert "aaaa" in ambiguous.stderr and "cccc" in ambiguous.stderr and not ambiguous.stdout
    for blank in ("", "  "):
        assert not run("title", blank, "--db", path).gave(2).stdout


def test_b72_the_original_id_leads_to_the_tip(run: Run, tmp_path: Path) -> None:
    path = make(tmp_path / "s.db", [
        {"id": "first", "end_reason": "compression", "ended_at": T + HOUR},
        {"id": "second", "parent_session_id": "first", "started_at": T + HOUR,
         "messages": ["word"] * 30},
    ])  # fmt: skip
    need("resume")
    result = run("resume", "first", "--db", path).ok()
    assert result.text.strip() == "second" and "second" in result.stderr
    need("export")
    exported = run("export", "first", "--db", path).ok().records
    assert [one["id"] for one in exported] == ["first", "second"]
    assert sum(len(one["messages"]) for one in exported) == 30


def test_b74_a_session_without_messages_is_no_unknown_one(run: Run, tmp_path: Path) -> None:
    path = make(tmp_path / "s.db", [{"id": "hollow", "title": "nothing yet"}])
    need("show")
    hollow = run("show", "hollow", "--db", path)
    unknown = run("show", "nobody", "--db", path).gave(1)
    assert "hollow" in hollow.text + hollow.stderr
    assert not unknown.stdout and "nobody" in unknown.stderr
    assert hollow.stderr != unknown.stderr


def test_b75_id_then_title_then_prefix(run: Run, tmp_path: Path) -> None:
    path = make(tmp_path / "s.db", [
        {"id": "20260101_y", "title": "plain", "messages": ["x"]},
        {"id": "20260102_x", "title": "20260101_y", "messages": ["x"]},
        {"id": "20270101_z", "title": "2027 begins", "messages": ["x"]},
        {"id": "20280101_z", "title": "2027", "messages": ["x"]},
    ])  # fmt: skip
    assert run("title", "20260101_y", "--db", path).ok().text.strip() == "plain", "an exact id"
    assert run("title", "2027", "--db", path).ok().text.strip() == "2027", "an exact title"
    assert run("title", "20270", "--db", path).ok().text.strip() == "2027 begins", "a prefix"


# --- Profiles ---


@pytest.fixture
def profiles(home) -> Path:
    """A home with its own store, two profiles, and one that is damaged."""
    root = home("v22")
    for name, store in (("work", "v11"), ("play", "v16")):
        shutil.copytree(home(store), root / "profiles" / name)
    broken = root / "profiles" / "broken"
    broken.mkdir()
    (broken / "state.db").write_bytes(b"no store" * 1000)
    change(
        root / "profiles" / "work" / "state.db",
        "INSERT INTO sessions (id, source, started_at, title)"
        " VALUES ('20260401_only_work', 'cli', 1775000000, 'only at work')",
        "INSERT INTO messages (session_id, role, content, timestamp)"
        " VALUES ('20260401_only_work', 'user', 'secret of work', 1775000000)",
    )
    return root


def test_b159_exactly_the_profile_that_was_asked_for(run: Run, profiles: Path) -> None:
    work = run("list", "--home", profiles, "--profile", "work").ok()
    assert "20260401_only_work" in work.ids
    by_home = run("list", env={"HERMES_HOME": profiles / "profiles" / "work"}).ok()
    assert by_home.stdout == work.stdout
    assert "20260401_only_work" not in run("list", "--home", profiles).ok().ids
    for name in ("nobody", "../work", "", "work/"):
        result = run("list", "--home", profiles, "--profile", name)
        assert result.status in (2, 66) and not result.stdout


def test_b160_an_id_of_another_profile_is_not_found(run: Run, profiles: Path) -> None:
    name = "20260401_only_work"
    for argv in (["show", name], ["export", name], ["title", "only at work"],
                 ["delete", name, "--yes"]):  # fmt: skip
        need(argv[0])
        result = run(*argv, "--home", profiles, "--profile", "play").gave(1)
        assert not result.stdout and "secret" not in result.stderr


def test_b161_a_broken_profile_does_not_hide_the_others(run: Run, profiles: Path) -> None:
    for script, *more in (["list"], ["export"], ["search", "garden"], ["stats"]):
        need(script)
        result = run(script, *more, "--home", profiles, "--all-profiles").gave(1)
        assert "broken" in result.stderr and "Traceback" not in result.stderr
        seen = {one.get("profile") for one in result.records}
        assert {"default", "work", "play"} <= seen, script


# --- Columns and times ---

OPTIONAL = [
    *(("sessions", name) for name in (
        "user_id", "model_config", "system_prompt", "ended_at", "end_reason", "message_count",
        "tool_call_count", "input_tokens", "cache_read_tokens", "reasoning_tokens", "cwd",
        "git_branch", "billing_provider", "estimated_cost_usd", "actual_cost_usd", "title",
        "api_call_count", "handoff_state", "handoff_platform", "handoff_error", "profile_name",
        "session_key", "chat_id", "origin_json", "expiry_finalized", "rewind_count", "archived",
        "model")),
    *(("messages", name) for name in (
        "token_count", "finish_reason", "reasoning", "reasoning_content", "reasoning_details",
        "codex_reasoning_items", "codex_message_items", "platform_message_id", "observed",
        "active", "compacted", "api_content", "effect_disposition", "tool_call_id")),
]  # fmt: skip


def without(path: Path, *columns: tuple[str, str]) -> None:
    """Take columns away, with the indexes that are made of them."""
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        for table, column in columns:
            for name, sql in db.execute(
                "SELECT name, sql FROM sqlite_master WHERE type = 'index' AND tbl_name = ?"
                " AND sql IS NOT NULL", (table,)
            ).fetchall():  # fmt: skip
                if column in sql.replace("(", " ").replace(",", " ").replace(")", " ").split():
                    db.execute(f'DROP INDEX "{name}"')
            db.execute(f"ALTER TABLE {table} DROP COLUMN {column}")


READING = [
    ["list"], ["list", "--tree"], ["show", CLI], ["search", "garden"], ["scroll", CLI, "4"],
    ["stats"], ["export"], ["resume"], ["check", "--quick"], ["title", CLI], ["key", "--index"],
    ["delete", CLI, "--dry-run"], ["prune", "--older-than", "1d", "--dry-run"],
]  # fmt: skip
WRITING = [["archive", CLI], ["end", TIP], ["title", CLI, "renamed"], ["delete", CLI, "--yes"]]


@pytest.mark.parametrize("column", OPTIONAL, ids=".".join)
def test_b150_a_missing_column_is_its_default(column: tuple[str, str], run: Run, store) -> None:
    path = store("v22")
    without(path, column)
    for argv in READING:
        if not _written(argv[0]):
            continue
        result = run(*argv, "--db", path)
        negative = argv[0] in ("check", "resume")
        assert result.status in ({0, 1} if negative else {0, 78}), (argv, result.stderr)
        if result.status == 78:
            assert column[1] in result.stderr, "says which column it needs"
            assert argv[0] not in ("list", "show", "search", "scroll", "export", "stats"), argv
    for argv in WRITING:
        if _written(argv[0]):
            result = run(*argv, "--db", path)
            assert result.status in (0, 78), (argv, result.stderr)
            assert result.status == 0 or column[1] in result.stderr, result.stderr


def _written(script: str) -> bool:
    from scripts import module_file

    return module_file(script).exists()


def test_b150_all_of_them_missing(run: Run, store) -> None:
    path = store("v22")
    kept = {("sessions", "title"), ("sessions", "model"), ("messages", "tool_call_id")}
    without(path, *[column for column in OPTIONAL if column not in kept])
    before = path.read_bytes()
    for argv in READING:
        if _written(argv[0]):
            assert run(*argv, "--db", path).status in (0, 1, 78), argv
    assert path.read_bytes() == before
    assert len(listed(run, path, "--internal", "any")) > 10


def test_b152_the_version_number_decides_nothing(run: Run, store) -> None:
    for change_version in (
        "DELETE FROM schema_version", "INSERT INTO schema_version VALUES (7)",
        "UPDATE schema_version SET version = 3", "UPDATE schema_version SET version = 'many'",
        "DROP TABLE schema_version",
    ):  # fmt: skip
        path, plain = store("v22"), store("v22")
        change(path, change_version)
        assert listed(run, path) == listed(run, plain)
        need("title")
        run("title", CLI, "still works", "--db", path).ok()


def test_b154_b164_b165_times_that_are_none(run: Run, tmp_path: Path) -> None:
    path = make(tmp_path / "s.db", [
        {"id": "milli", "started_at": T * 1000, "messages": ["hello"]},
        {"id": "zero", "started_at": 0, "messages": [{"role": "user", "content": "hello",
                                                      "timestamp": 0}]},
        {"id": "words", "started_at": "last spring", "ended_at": "soon", "messages": [
            {"role": "user", "content": "hello", "timestamp": "noon"}]},
        {"id": "huge", "started_at": 1e300, "ended_at": 1e300, "messages": [
            {"role": "user", "content": "hello", "timestamp": -1e300}]},
        {"id": "sound", "started_at": T, "messages": ["hello"]},
    ])  # fmt: skip
    change(path, f"UPDATE messages SET timestamp = {T * 1000} WHERE session_id = 'milli'")
    found = listed(run, path)
    assert found[0]["session_id"] == "sound", "what has no time comes last"
    assert {one["session_id"] for one in found} == {"milli", "zero", "words", "huge", "sound"}
    for one in found[1:]:
        assert one["last_active"] is None
    shown = run("list", "-t", "--db", path).ok().text
    assert "58" not in shown.replace("hello", "") and "1970" not in shown and "?" in shown
    for argv in (["export"], ["stats"], ["check", "--quick"], ["show", "words"],
                 ["search", "hello"], ["list", "--newer-than", "1d"], ["list", "--sort", "oldest"],
                 ["list", "--sort", "size"]):  # fmt: skip
        if _written(argv[0]):
            assert run(*argv, "--db", path).status in (0, 1), argv
    need("prune")
    run("end", "milli", "zero", "words", "huge", "--db", path)
    pruned = run("prune", "--older-than", "1d", "--yes", "--db", path).ok()
    gone = {one["session_id"] for one in pruned.records}
    assert gone <= {"sound"}, "never by a time that is none"
    assert len(listed(run, path)) >= 4


def test_b166_fractions_of_a_second(run: Run, tmp_path: Path) -> None:
    at = 1770000000.25
    path = make(tmp_path / "s.db", [
        {"id": "later", "started_at": at + 0.5, "messages": [
            {"role": "user", "content": "b", "timestamp": at + 0.5}]},
        {"id": "earlier", "started_at": at, "messages": [
            {"role": "user", "content": "a", "timestamp": at}]},
    ])  # fmt: skip
    found = listed(run, path)
    assert [(one["session_id"], one["started_at"]) for one in found] == [
        ("later", at + 0.5), ("earlier", at),
    ]  # fmt: skip


# --- Use in scripts ---


def test_b172_no_failure_ends_with_0(run: Run, store, tmp_path: Path) -> None:
    path = store("v22")
    for argv in (
        ["export", "no-such-id"], ["title", "no-such-id", "x"], ["show", "no-such-id"],
        ["delete", "no-such-id", "--yes"], ["archive", "no-such-id"], ["end", "no-such-id"],
        ["scroll", "no-such-id", "1"], ["scroll", CLI, "99999"], ["scroll", CLI, "many"],
        ["list", "-n", "many"], ["list", "-f", "xml"], ["list", "--sort", "sideways"],
        ["search"], ["search", ""], ["search", "--", "--"], ["import", tmp_path / "none.jsonl"],
        ["resume", "no-such-id"], ["append", "no-such-id"], ["stats", "--by", "mood"],
        ["restore", tmp_path / "none.db", "--yes"], ["key", "--platform"], ["handoff", "sing"],
    ):  # fmt: skip
        if not _written(argv[0]):
            continue
        result = run(*argv, "--db", path, input="")
        assert result.status != 0, argv
        assert not result.stdout, argv
        assert result.stderr.startswith(f"hermes-session-{argv[0]}: "), (argv, result.stderr)
        assert result.stderr.count("\n") <= 2 and "Traceback" not in result.stderr


def test_b64_b66_hostile_titles_do_not_reach_the_terminal(run: Run, tmp_path: Path) -> None:
    path = make(tmp_path / "s.db", [
        {"id": "esc", "title": "\x1b[31mred\x1b[0m \x1b]0;owned\x07tail\u202eevil", "messages": [
            "\x1b[2J\x9b31mgone\r\nnext\x07"]},
    ])  # fmt: skip
    for argv in (["list"], ["show", "esc"], ["search", "gone"], ["title", "esc"], ["stats"]):
        need(argv[0])
        seen = run.terminal(*argv, "--db", path, env={"NO_COLOR": "1"})
        for bad in (b"\x1b[31m", b"\x1b]0;", b"\x07", b"\x9b", b"\x1b[2J", "\u202e".encode()):
            assert bad not in seen.stdout, (argv, bad)
    (one,) = listed(run, path)
    assert one["title"].startswith("\x1b[31m"), "JSON Lines never strip"


def test_old_age_is_that_of_the_last_activity(run: Run, tmp_path: Path) -> None:
    path = make(tmp_path / "s.db", [
        {"id": "awake", "started_at": T - 400 * DAY, "ended_at": T, "end_reason": "user_exit",
         "messages": [{"role": "user", "content": "old"},
                      {"role": "user", "content": "new", "timestamp": 4e9 / 2.2}]},
        {"id": "asleep", "started_at": T - 400 * DAY, "ended_at": T - 399 * DAY,
         "end_reason": "user_exit", "messages": ["old"]},
    ])  # fmt: skip
    found = listed(run, path, "--older-than", "300d")
    assert [one["session_id"] for one in found] == ["asleep"]
    assert stores.columns  # the store is built by the same hands


def test_b141_a_file_system_without_locks_or_shared_memory(
    run: Run, store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite's own VFS without shared memory stands for a mount that has none."""
    path = store("v22")
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    plain = sqlite3.connect

    def bridged(name: Any, **more: Any) -> sqlite3.Connection:
        return plain(f"{name}&vfs=unix-none" if "state.db?" in str(name) else name, **more)

    monkeypatch.setattr("hermes_tools.store.db.sqlite3.connect", bridged)
    for argv in (["list"], ["search", "garden"], ["title", CLI, "new"], ["stats"]):
        result = run(*argv, "--db", path).gave(74)
        assert not result.stdout and result.stderr.count("\n") == 1, "never a silent nothing"
        assert str(path) in result.stderr and "file system" in result.stderr
    change_mode = plain(path)
    change_mode.execute("PRAGMA journal_mode = DELETE").fetchall()
    change_mode.close()
    assert run("list", "--db", path).ok().ids, "reading is tried, and works where it can"
