"""hermes-session-import: exports and transcripts back into a store."""

import json
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from conftest import Run

from hermes_tools.store import importing

Store = Callable[[str], Path]
SHIPPED = ("v11", "v13", "v14", "v16", "v19", "v22")
TIP, MIDDLE, ROOT = "20260226_150000_00cc33", "20260226_113000_00bb22", "20260226_090000_00aa11"
CLI = "20260225_101500_a1b2c3"
T = 1772355600.0


def rows(path: Path, sql: str) -> list[tuple[Any, ...]]:
    db = sqlite3.connect(path)
    db.text_factory = bytes
    try:
        return db.execute(sql).fetchall()
    finally:
        db.close()


def change(path: Path, *statements: str) -> None:
    db = sqlite3.connect(path)
    for sql in statements:
        db.execute(sql)
    db.commit()
    db.close()


def cells(path: Path, table: str) -> list[tuple[Any, ...]]:
    """Every cell of a table with its type, columns by name."""
    names = sorted(row[1].decode() for row in rows(path, f"PRAGMA table_info({table})"))
    listed = ", ".join(f'"{name}", typeof("{name}")' for name in names)
    key = "id" if table != "session_model_usage" else "session_id, model, task"
    return [tuple(names), *rows(path, f"SELECT {listed} FROM {table} ORDER BY {key}")]


def session(session_id: str, *texts: str, **more: Any) -> dict[str, Any]:
    messages = [
        {"role": "user" if n % 2 == 0 else "assistant", "content": text, "timestamp": T + n}
        for n, text in enumerate(texts)
    ]
    return {"id": session_id, "source": "cli", "started_at": T, "messages": messages, **more}


def healthy(path: Path) -> None:
    db = sqlite3.connect(path)
    assert db.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
    assert db.execute("PRAGMA foreign_key_check").fetchall() == []
    missing = db.execute(
        "SELECT count(*) FROM messages WHERE id NOT IN (SELECT rowid FROM messages_fts)"
    ).fetchone()[0]
    assert missing == 0
    db.close()


@pytest.mark.parametrize("name", SHIPPED)
def test_the_round_trip_is_exact(run: Run, store: Store, tmp_path: Path, name: str) -> None:
    old, new = store(name), tmp_path / "new.db"
    first = run("export", "--db", old).ok().stdout
    run("import", "--db", new, "--create", "--exact", input=first).ok()
    assert run("export", "--db", new).ok().stdout == first
    for table in ("sessions", "messages"):
        assert cells(new, table) == cells(old, table)
    if name == "v22":
        assert cells(new, "session_model_usage") == cells(old, "session_model_usage")
    healthy(new)


def test_odd_cells_keep_bytes_and_type(run: Run, store: Store, tmp_path: Path) -> None:
    old, new = store("v22"), tmp_path / "new.db"
    change(old, "ALTER TABLE messages ADD COLUMN odd", "ALTER TABLE sessions ADD COLUMN odder BLOB",
           "UPDATE messages SET odd = CASE id % 6 WHEN 0 THEN 5 WHEN 1 THEN 5.0 WHEN 2 THEN '5' "
           "WHEN 3 THEN x'05ff' WHEN 4 THEN 9e999 ELSE -9e999 END",
           "UPDATE messages SET content = CAST(x'fffe41' AS TEXT) WHERE id = 2",
           "UPDATE messages SET content = 'a' || char(0) || 'b' WHERE id = 3",
           "UPDATE messages SET content = char(0) || 'json:[1,  2]' WHERE id = 4",
           "UPDATE messages SET content = char(0) || 'json:{\"a\": NaN}' WHERE id = 5",
           "UPDATE messages SET tool_calls = '[{broken' WHERE id = 6",
           "UPDATE messages SET tool_calls = '{\"a\": 1, \"a\": 2}' WHERE id = 7",
           "UPDATE messages SET tool_calls = '[18446744073709551616]' WHERE id = 8",
           "UPDATE messages SET tool_calls = '[\"\\ud800\"]' WHERE id = 9",
           "UPDATE messages SET timestamp = 'then' WHERE id = 10",
           "UPDATE messages SET content = x'00ff' WHERE id = 11",
           "UPDATE messages SET tool_calls = '" + "[" * 300 + "]" * 300 + "' WHERE id = 12",
           "UPDATE sessions SET odder = x'00', model = CAST(x'ff' AS TEXT), "
           "ended_at = 9e999",
           "INSERT INTO sessions (id, source, started_at) VALUES ('', 'cli', 1)",
           "INSERT INTO messages (session_id, role, content, timestamp) "
           "VALUES ('', 'user', 'of an empty id', 1)")  # fmt: skip
    first = run("export", "--db", old).ok().stdout
    run("import", "--db", new, "--create", "--exact", input=first).ok()
    assert run("export", "--db", new).ok().stdout == first
    for table in ("sessions", "messages"):
        assert cells(new, table) == cells(old, table)


def test_without_exact_rows_and_ids_come_too(run: Run, store: Store, tmp_path: Path) -> None:
    old, new = store("v19"), tmp_path / "new.db"
    first = run("export", "--db", old).ok().stdout
    report = run("import", "--db", new, "--create", input=first).ok().records
    assert {one["action"] for one in report} == {"imported"}
    assert rows(new, "SELECT id, session_id, content, active FROM messages ORDER BY id") == rows(
        old, "SELECT id, session_id, content, active FROM messages ORDER BY id"
    )
    here = {one["session_id"]: one["digest"] for one in
            run("list", "--db", old, "--digest", "--archived", "any", "--internal", "any")
            .ok().records}  # fmt: skip
    there = {one["session_id"]: one["digest"] for one in report}
    assert all(here[name] == there[name] for name in there if name in here)
    healthy(new)


def test_b111_a_second_import_changes_nothing(run: Run, store: Store, tmp_path: Path) -> None:
    new = tmp_path / "new.db"
    first = run("export", "--db", store("v22")).ok().stdout
    run("import", "--db", new, "--create", input=first).ok()
    before = [cells(new, table) for table in ("sessions", "messages")]
    report = run("import", "--db", new, input=first).ok().records
    assert {one["action"] for one in report} == {"unchanged"}
    assert [cells(new, table) for table in ("sessions", "messages")] == before


def test_columns_of_a_later_release_land_with_its_declaration(run: Run, store: Store) -> None:
    path = store("v11")
    new = {**session("new1", "undone", "kept"), "archived": 1}
    new["messages"][0]["active"] = 0
    new["messages"][1]["active"] = 1
    run("import", "--db", path, input=[new]).ok()
    declared = {row[1]: (row[2], row[3], row[4]) for row in
                rows(path, "PRAGMA table_info(messages)")}  # fmt: skip
    assert declared[b"active"] == (b"INTEGER", 1, b"1")
    assert rows(path, "SELECT active FROM messages WHERE session_id = 'new1' ORDER BY id") == [
        (0,), (1,)]  # fmt: skip
    assert rows(path, f"SELECT DISTINCT active FROM messages WHERE session_id = '{CLI}'") == [(1,)]
    assert rows(path, "SELECT archived FROM sessions WHERE id = 'new1'") == [(1,)]
    assert run("show", "--db", path, CLI).ok().stdout


def test_defaults_alone_add_no_column(run: Run, store: Store) -> None:
    path = store("v11")
    before = rows(path, "SELECT sql FROM sqlite_master WHERE name = 'messages'")
    new = {**session("new1", "hello"), "archived": 0, "cwd": None}
    new["messages"][0] |= {"active": 1, "observed": 0, "api_content": None}
    run("import", "--db", path, input=[new]).ok()
    assert rows(path, "SELECT sql FROM sqlite_master WHERE name = 'messages'") == before


def test_what_goes_on_is_extended(run: Run, store: Store) -> None:
    path = store("v11")
    run("import", "--db", path, input=[session("s1", "one", "two", end_reason=None)]).ok()
    ids = rows(path, "SELECT id FROM messages WHERE session_id = 's1' ORDER BY id")
    longer = session("s1", "one", "two", "three", ended_at=T + 9, end_reason="cli_close")
    (report,) = run("import", "--db", path, input=[longer]).ok().records
    assert (report["action"], report["messages"]) == ("updated", 1)
    found = rows(path, "SELECT id, content FROM messages WHERE session_id = 's1' ORDER BY id")
    assert [row[:1] for row in found[:2]] == ids and found[2][1] == b"three"
    assert rows(path, "SELECT end_reason FROM sessions WHERE id = 's1'") == [(b"cli_close",)]
    (report,) = run("import", "--db", path, input=[session("s1", "one")]).ok().records
    assert report["action"] == "older"
    healthy(path)


def test_what_diverged_is_left_and_reported(run: Run, store: Store) -> None:
    path = store("v11")
    run("import", "--db", path, input=[session("s1", "one", "two")]).ok()
    other = session("s1", "one", "zwei", "drei")
    said = run("import", "--db", path, input=[other, session("s2", "fine")]).gave(1)
    actions = {one["session_id"]: one["action"] for one in said.records}
    assert actions == {"s1": "diverged", "s2": "imported"}
    assert rows(path, "SELECT content FROM messages WHERE session_id = 's1' ORDER BY id") == [
        (b"one",), (b"two",)]  # fmt: skip
    renamed = session("s2", "fine", title="another")
    run("import", "--db", path, input=[renamed]).ok()  # it had none: nothing is lost
    said = run("import", "--db", path, input=[session("s2", "fine", title="third")]).gave(1)
    assert said.records[0]["action"] == "diverged" and "title" in said.records[0]["reason"]


def test_messages_that_stood_between_are_put_between(run: Run, store: Store) -> None:
    path = store("v14")
    run("import", "--db", path, input=[session("s1", "one", "three")]).ok()
    whole = session("s1", "one", "two", "three")
    whole["messages"][1]["timestamp"] = T + 0.5
    whole["messages"][2] |= {"role": "assistant", "timestamp": T + 1}
    (report,) = run("import", "--db", path, input=[whole]).ok().records
    assert report["action"] == "updated"
    assert rows(path, "SELECT content FROM messages WHERE session_id = 's1' ORDER BY id") == [
        (b"one",), (b"two",), (b"three",)]  # fmt: skip


@pytest.mark.parametrize("how, action, texts", [
    ("skip", "skipped", [b"one"]), ("replace", "replaced", [b"eins", b"zwei"]),
    ("new-id", "imported", [b"one"]),
])  # fmt: skip
def test_conflicts_are_settled_as_asked(
    run: Run, store: Store, how: str, action: str, texts: list[bytes]
) -> None:
    path = store("v11")
    run("import", "--db", path, input=[session("s1", "one")]).ok()
    (report,) = run("import", "--db", path, "--on-conflict", how, "--yes",
                    input=[session("s1", "eins", "zwei")]).ok().records  # fmt: skip
    assert report["action"] == action
    assert [row[0] for row in rows(
        path, "SELECT content FROM messages WHERE session_id = 's1' ORDER BY id"
    )] == texts  # fmt: skip
    if how == "new-id":
        assert report["session_id"] == "s1_2" and report["id_was"] == "s1"
    healthy(path)


def test_fail_imports_nothing_at_all(run: Run, store: Store) -> None:
    path = store("v11")
    before = cells(path, "sessions")
    said = run("import", "--db", path, "--on-conflict", "fail",
               input=[session("fresh", "x"), session(CLI, "y")]).gave(1)  # fmt: skip
    assert CLI in said.stderr and said.stdout == b"" and cells(path, "sessions") == before


def test_replacing_asks_first(run: Run, store: Store) -> None:
    run("import", "--db", store("v11"), "--on-conflict", "replace",
        input=[session("s1", "x")]).gave(2)  # fmt: skip


def test_new_ids_go_through_a_whole_lineage(run: Run, store: Store) -> None:
    path = store("v22")
    first = run("export", "--db", path, TIP).ok().stdout
    report = run("import", "--db", path, "--on-conflict", "new-id", input=first).ok().records
    (one,) = [one for one in report if one["session_id"] == f"{TIP}_2"]
    assert one["segments"] == 3 and one["lineage_root_id"] == f"{ROOT}_2"


def test_clashing_titles_are_renumbered_within_their_limit(run: Run, store: Store) -> None:
    path = store("v11")
    long = "x" * 100
    new = [session("a", "1", title=long), session("b", "2", title=long),
           session("c", "3", title="refactoring auth")]  # fmt: skip
    report = {one["session_id"]: one for one in run("import", "--db", path, input=new).ok().records}
    assert report["a"]["title"] == long and "title_was" not in report["a"]
    assert report["b"]["title"] == "x" * 97 + " #2" and report["b"]["title_was"] == long
    assert report["c"]["title"] == "refactoring auth #2"


def test_b113_any_order_and_missing_parents(run: Run, store: Store) -> None:
    path = store("v11")
    chain = [
        session("r", "1", end_reason="compression", ended_at=T + 1),
        session("m", "2", end_reason="compression", ended_at=T + 2, parent_session_id="r"),
        session("t", "3", parent_session_id="m"),
    ]
    (one,) = run("import", "--db", path, input=chain[::-1]).ok().records
    assert (one["session_id"], one["segments"], one["lineage_root_id"]) == ("t", 3, "r")
    (one,) = run("import", "--db", path, input=[session("o", "4", parent_session_id="gone")]).ok(
    ).records  # fmt: skip
    assert one["detached_from"] == "gone" and one["parent_session_id"] is None


def test_a_cycle_of_parents_keeps_its_links(run: Run, store: Store) -> None:
    path = store("v11")
    run("import", "--db", path, input=[
        session("a", "1", parent_session_id="b"), session("b", "2", parent_session_id="a"),
        session("c", "3", parent_session_id="c"),
    ]).ok()  # fmt: skip
    assert rows(path, "SELECT id, parent_session_id FROM sessions WHERE id IN "
                "('a', 'b', 'c') ORDER BY id") == [
        (b"a", b"b"), (b"b", b"a"), (b"c", b"c")]  # fmt: skip
    healthy(path)


def test_b114_a_bad_line_imports_nothing(run: Run, store: Store) -> None:
    path = store("v11")
    before = cells(path, "sessions")
    lines = [json.dumps(session(f"s{n}", "x")) for n in range(5)]
    lines[2] = lines[2][:-20]
    said = run("import", "--db", path, input="\n".join(lines)).gave(65)
    assert "line 3" in said.stderr and said.stdout == b"" and cells(path, "sessions") == before
    said = run("import", "--db", path, "--keep-going", input="\n".join(lines)).gave(1)
    assert {one["session_id"] for one in said.records} == {"s0", "s1", "s3", "s4"}
    assert "line 3" in said.stderr


@pytest.mark.parametrize("line", [
    "[1]", "17", '{"id": "", "messages": []}', '{"messages": []}', '{"id": "x"}',
    '{"id": "x", "messages": {}}', '{"id": "x", "messages": [1]}',
    '{"id": "x", "messages": [{"content": "no role"}]}',
    '{"id": "x", "messages": [{"role": "user", "n": 99999999999999999999999}]}',
    '{"id": "x", "messages": [], "_raw": {"id": "?"}}', '{"id": NaN, "messages": []}',
])  # fmt: skip
def test_malformed_records_are_refused_by_line(run: Run, store: Store, line: str) -> None:
    path = store("v11")
    before = cells(path, "sessions")
    said = run("import", "--db", path, input=json.dumps(session("ok", "x")) + f"\n{line}\n")
    if "99999" not in line:
        said.gave(65)
        assert "line 2" in said.stderr and cells(path, "sessions") == before


def test_b115_live_state_is_reset_and_named(run: Run, store: Store) -> None:
    path = store("v22")
    new = session("s1", "x", handoff_state="pending", handoff_platform="telegram",
                  session_key="agent:main:telegram:dm:1", chat_id="1", expiry_finalized=1)
    (report,) = run("import", "--db", path, input=[new]).ok().records
    assert {"handoff_state", "session_key", "chat_id", "expiry_finalized"} <= set(report["reset"])
    assert rows(path, "SELECT handoff_state, handoff_platform, session_key, chat_id, "
                "expiry_finalized FROM sessions WHERE id = 's1'") == [
        (None, None, None, None, 0)]  # fmt: skip
    done = session("s2", "x", handoff_state="completed", handoff_platform="telegram")
    (report,) = run("import", "--db", path, input=[done]).ok().records
    assert "reset" not in report


def test_b116_a_transcript_without_times_keeps_its_order(
    run: Run, store: Store, tmp_path: Path
) -> None:
    path = store("v11")
    folder = tmp_path / "sessions"
    folder.mkdir()
    old = {"session_id": "20250101_000000_abcdef", "model": "m", "platform": "cli",
           "session_start": "2025-01-01T00:00:00", "messages": [
               {"role": "user", "content": "first"}, {"role": "assistant", "content": "second"},
               {"role": "user", "content": "third"}]}  # fmt: skip
    (folder / "session_20250101_000000_abcdef.json").write_text(json.dumps(old, indent=2))
    (folder / "20250102_000000_abcdef.jsonl").write_text(
        '{"role": "session_meta", "model": "m", "platform": "telegram", '
        '"timestamp": "2025-01-02T00:00:00"}\n{"role": "user", "content": "hello"}\n'
    )
    (folder / "sessions.json").write_text("{}")
    (folder / "request_dump_x_1.json").write_text("{}")
    report = run("import", "--db", path, folder).ok().records
    assert {one["session_id"]: one["times"] for one in report} == {
        "20250101_000000_abcdef": 3, "20250102_000000_abcdef": 1}  # fmt: skip
    assert [row[0] for row in rows(
        path, "SELECT content FROM messages WHERE session_id LIKE '20250101%' ORDER BY timestamp"
    )] == [b"first", b"second", b"third"]  # fmt: skip
    assert rows(path, "SELECT source FROM sessions WHERE id LIKE '2025010%' ORDER BY id") == [
        (b"cli",), (b"telegram",)]  # fmt: skip
    report = run("import", "--db", path, folder).ok().records
    assert {one["action"] for one in report} == {"unchanged"}


def test_long_lines_are_parsed_as_they_come(
    run: Run, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hermes_tools.store import parsing

    monkeypatch.setattr(parsing, "LONG", 300)
    old, new = store("v22"), tmp_path / "new.db"
    first = run("export", "--db", old).ok().stdout
    run("import", "--db", new, "--create", "--exact", input=first).ok()
    assert run("export", "--db", new).ok().stdout == first
    for bad in (first[:-400], first.replace(b'"messages":[', b'"messages":[[', 1), b"[" * 900):
        run("import", "--db", new, input=bad).gave(65)
    said = run("import", "--db", new, "--keep-going",
               input=b'{"id": "' + b"x" * 400 + b"\n" + first).gave(1)  # fmt: skip
    assert "line 1" in said.stderr and said.records


def test_a_dry_run_is_the_run(run: Run, store: Store) -> None:
    path = store("v22")
    first = run("export", "--db", store("v19")).ok().records
    first[0]["messages"].append({"role": "user", "content": "more", "timestamp": T})
    new = [*first, session("s1", "x", title="refactoring auth", handoff_state="pending")]
    before = [cells(path, table) for table in ("sessions", "messages")]
    dry = run("import", "--db", path, "--dry-run", input=new)
    assert [cells(path, table) for table in ("sessions", "messages")] == before
    real = run("import", "--db", path, input=new)
    assert dry.status == real.status
    words = {"would_import": "imported", "would_update": "updated"}
    for one in dry.records:
        one["action"] = words.get(one["action"], one["action"])
    assert [{**one, "action": words.get(one["action"], one["action"])} for one in dry.records] == (
        real.records
    )
    assert {"imported", "updated"} <= {one["action"] for one in real.records}


def test_a_missing_store_is_made_only_when_asked(run: Run, tmp_path: Path) -> None:
    place = tmp_path / "new" / "state.db"
    run("import", "--db", place, input=[session("s1", "x")]).gave(66)
    assert not place.parent.exists()
    run("import", "--db", place, "--create", "--dry-run", input=[session("s1", "x")]).ok()
    assert not place.exists()
    run("import", "--db", place, "--create", input="{nonsense").gave(65)
    assert not place.exists()
    run("import", "--db", place, "--create", input=[session("s1", "x")]).ok()
    assert place.stat().st_mode & 0o777 == 0o600


def test_a_store_made_for_an_import_is_filled_in_one_transaction(
    run: Run, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody waits for it, and each commit would leave FTS5 a small segment to merge."""
    exported = run("export", "--db", store("v22")).ok().stdout
    commits: list[Path] = []
    transaction = importing.db.transaction

    @contextmanager
    def counted(db: Any) -> Iterator[None]:
        with transaction(db):
            yield
        commits.append(db.path)

    monkeypatch.setattr(importing, "BATCH", 0.0)
    monkeypatch.setattr(importing.db, "transaction", counted)
    new, old = tmp_path / "new.db", tmp_path / "old.db"
    run("migrate", "--create", "-q", "--db", old)
    for path, options in ((new, ["--create"]), (old, [])):
        assert run("import", *options, "--db", path, input=exported).status == 0
    # One for the columns that version 11 does not have, one for all the rest.
    assert commits.count(new) == 2 < commits.count(old)


def test_exact_does_not_mix_with_what_is_there(run: Run, store: Store) -> None:
    path = store("v11")
    new = session("s1", "x")
    new["messages"][0]["id"] = 1
    said = run("import", "--db", path, "--exact", input=[new]).gave(1)
    assert "empty store" in said.stderr
    assert rows(path, "SELECT count(*) FROM sessions WHERE id = 's1'") == [(0,)]


def test_taken_message_ids_are_mapped(run: Run, store: Store) -> None:
    path = store("v11")
    new = session("s1", "x", "y")
    new["messages"][0]["id"], new["messages"][1]["id"] = 1, 2
    (report,) = run("import", "--db", path, input=[new]).ok().records
    (first, *_) = rows(path, "SELECT min(id) FROM messages WHERE session_id = 's1'")
    assert report["message_ids"] == {"s1": [[1, first[0], 2]]} and first[0] > 2


def test_ids_inside_a_pending_index_gap_are_mapped(run: Run, store: Store) -> None:
    path = store("head-pending")
    meta = dict(rows(path, "SELECT key, value FROM state_meta WHERE key LIKE 'fts_rebuild%'"))
    low = int(meta[b"fts_rebuild_progress"]) + 1
    change(path, f"DELETE FROM messages WHERE id = {low}")
    new = session("s1", "x")
    new["messages"][0]["id"] = low
    (report,) = run("import", "--db", path, input=[new]).ok().records
    ((found,),) = rows(path, "SELECT id FROM messages WHERE session_id = 's1'")
    assert report["message_ids"] == {"s1": [[low, found, 1]]}
    assert found > int(meta[b"fts_rebuild_high_water"])


def test_a_session_under_compression_is_left_alone(run: Run, store: Store) -> None:
    path = store("v22")
    run("import", "--db", path, input=[session("s1", "one")]).ok()
    change(path, "INSERT INTO compression_locks VALUES ('s1', 'pid=1', 1, 99999999999)")
    longer = session("s1", "one", "two")
    said = run("import", "--db", path, input=[longer]).gave(1)
    assert said.records[0]["action"] == "in_use"
    assert run("import", "--db", path, "--live", input=[longer]).ok().records[0]["action"] == (
        "updated"
    )


def test_prompts_by_hash_arrive_everywhere(run: Run, store: Store, tmp_path: Path) -> None:
    first = run("export", "--db", store("head-3")).ok().stdout
    texts = {row[0] for row in rows(store("head-3"), "SELECT prompt FROM system_prompts")}
    for path, extra in ((store("v11"), ()), (tmp_path / "n.db", ("--create", "--exact"))):
        run("import", "--db", path, *extra, input=first).ok()
        inline = {row[0] for row in rows(path, "SELECT system_prompt FROM sessions")}
        if "system_prompts" in {row[0].decode() for row in
                                rows(path, "SELECT name FROM sqlite_master")}:  # fmt: skip
            inline |= {row[0] for row in rows(path, "SELECT prompt FROM system_prompts")}
        assert texts <= inline


def test_stream_imports_each_record_as_it_comes(run: Run, store: Store) -> None:
    path = store("v11")
    child = run.start("import", "--db", path, "--stream", "-f", "jsonl")
    assert child.stdin and child.stdout
    try:
        for name in ("s1", "s2"):
            child.stdin.write(json.dumps(session(name, "x")).encode() + b"\n")
            child.stdin.flush()
            assert json.loads(child.stdout.readline())["session_id"] == name
            assert rows(path, f"SELECT count(*) FROM sessions WHERE id = '{name}'") == [(1,)]
    finally:
        child.communicate()
    assert child.returncode == 0


@pytest.mark.parametrize("name", ["home-0.13", "home-0.19"])
def test_the_agents_own_exports_come_in(
    run: Run, home: Callable[[str], Path], tmp_path: Path, name: str
) -> None:
    place = home(name)
    new = tmp_path / "new.db"
    run("import", "--db", new, "--create", place / "export.jsonl").ok()
    live = "SELECT session_id, role, content, tool_calls FROM messages {} ORDER BY session_id, id"
    active = "WHERE active = 1" if name == "home-0.19" else ""
    exported = {json.loads(line)["id"].encode()
                for line in (place / "export.jsonl").read_bytes().splitlines()}  # fmt: skip
    assert rows(new, live.format("")) == [
        row for row in rows(place / "state.db", live.format(active)) if row[0] in exported
    ]
    report = run("import", "--db", place / "state.db", place / "export.jsonl").ok().records
    assert {one["action"] for one in report} <= {"unchanged", "older"}


def test_the_agents_old_session_files_come_in(
    run: Run, home: Callable[[str], Path], tmp_path: Path
) -> None:
    place = home("home-0.13")
    new = tmp_path / "new.db"
    report = run("import", "--db", new, "--create", place / "sessions").ok().records
    assert len(report) >= 40
    text = "SELECT session_id, role, COALESCE(content, '') FROM messages ORDER BY session_id, id"
    assert set(rows(new, text)) <= set(rows(place / "state.db", text))


def test_a_real_record_of_a_later_release(run: Run, store: Store, shared: Path) -> None:
    real = (shared / "hermes-export-v0.20-real.jsonl").read_bytes()
    path = store("v11")
    (report,) = run("import", "--db", path, input=real).ok().records
    assert report["message_count"] == 19 and "Traceback" not in report["title"]
    db = sqlite3.connect(path)
    db.row_factory = sqlite3.Row
    (one,) = db.execute("SELECT * FROM sessions WHERE id = ?", (report["session_id"],))
    assert one["cwd"] and one["title_source"] == "llm" and one["last_activity_at"]
    original = json.loads(real)
    (again,) = run("export", "--db", path, report["session_id"]).ok().records
    assert [m["tool_calls"] for m in again["messages"]] == [
        m["tool_calls"] for m in original["messages"]]  # fmt: skip
    healthy(path)


def test_what_delete_exported_comes_back(run: Run, store: Store, tmp_path: Path) -> None:
    path, kept = store("v22"), tmp_path / "kept.jsonl"
    before = [cells(path, table) for table in ("sessions", "messages", "session_model_usage")]
    run("delete", "--db", path, "--yes", "--export", kept, CLI, "--live").ok()
    assert [cells(path, table) for table in ("sessions", "messages")] != before[:2]
    run("import", "--db", path, kept).ok()
    after = [cells(path, table) for table in ("sessions", "messages", "session_model_usage")]
    assert after[1:] == before[1:]


def test_a_killed_import_leaves_whole_sessions(run: Run, store: Store, tmp_path: Path) -> None:
    path, file = store("v11"), tmp_path / "in.jsonl"
    file.write_text("".join(
        json.dumps(session(f"s{n:04}", *["words " * 50] * 20)) + "\n" for n in range(600)
    ))  # fmt: skip
    child = run.start("import", "--db", path, file, "-f", "jsonl")
    assert child.stdout
    child.stdout.readline()
    child.kill()
    child.communicate()
    counts = rows(path, "SELECT count(*) FROM messages WHERE session_id LIKE 's0%' "
                  "GROUP BY session_id")  # fmt: skip
    assert counts and set(counts) == {(20,)}
    healthy(path)
    run("import", "--db", path, file, "-q").ok()
    assert rows(path, "SELECT count(*) FROM messages WHERE session_id LIKE 's0%'") == [(12000,)]


def test_folders_without_transcripts_say_so(run: Run, store: Store, tmp_path: Path) -> None:
    run("import", "--db", store("v11"), tmp_path).gave(66)
    run("import", "--db", store("v11"), tmp_path / "gone.jsonl").gave(66)


def test_a_copied_home_is_not_touched_by_reading(run: Run, store: Store, tmp_path: Path) -> None:
    path = store("v11")
    twin = tmp_path / "twin.db"
    shutil.copy(path, twin)
    run("import", "--db", path, "--dry-run", input=[session("s1", "x")]).ok()
    assert twin.read_bytes() == path.read_bytes()
