"""hermes-session-export: whole conversations for programs."""

import hashlib
import json
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Run

Store = Callable[[str], Path]

TIP, MIDDLE, ROOT = "20260226_150000_00cc33", "20260226_113000_00bb22", "20260226_090000_00aa11"
CLI, TELEGRAM = "20260225_101500_a1b2c3", "20260227_080000_deadbe01"


def change(path: Path, *statements: str) -> None:
    db = sqlite3.connect(path)
    for sql in statements:
        db.execute(sql)
    db.commit()
    db.close()


def test_everything_comes_once_and_conversations_stay_together(run: Run, store: Store) -> None:
    path = store("v22")
    found = [one["id"] for one in run("export", "--db", path).ok().records]
    db = sqlite3.connect(path)
    assert sorted(found) == sorted(row[0] for row in db.execute("SELECT id FROM sessions"))
    at = found.index(ROOT)
    assert found[at : at + 3] == [ROOT, MIDDLE, TIP]


def test_the_store_is_left_as_it_was(run: Run, store: Store) -> None:
    path = store("v19")
    before = hashlib.sha256(path.read_bytes()).digest()
    run("export", "--db", path).ok()
    assert hashlib.sha256(path.read_bytes()).digest() == before


def test_b96_a_dash_is_standard_output(run: Run, store: Store, tmp_path: Path) -> None:
    found = run("export", "--db", store("v11"), "--output", "-", CLI, cwd=tmp_path).ok()
    assert [one["id"] for one in found.records] == [CLI]
    assert not (tmp_path / "-").exists()


def test_b97_open_ended_pinned_and_archived_are_all_there(run: Run, store: Store) -> None:
    path = store("head-3")
    db = sqlite3.connect(path)
    count = db.execute("SELECT count(*) FROM sessions").fetchone()[0]
    assert len(run("export", "--db", path).ok().records) == count
    kept = run("export", "--db", path, "--archived", "only").ok().records
    assert kept and all(one["archived"] for one in kept)


def test_b103_binary_and_unknown_columns_come_along(run: Run, store: Store) -> None:
    path = store("v11")
    change(path, "ALTER TABLE messages ADD COLUMN extra BLOB",
           "ALTER TABLE sessions ADD COLUMN mood TEXT", "UPDATE messages SET extra = x'ff00'",
           "UPDATE sessions SET mood = 'calm'")  # fmt: skip
    (one,) = run("export", "--db", path, CLI).ok().records
    assert one["mood"] == "calm"
    assert one["messages"][0]["extra"] is None
    assert one["messages"][0]["_raw"] == {"extra": "/wA="}


def test_b104_a_message_without_content_is_null(run: Run, store: Store) -> None:
    path = store("v11")
    change(path, f"UPDATE messages SET content = NULL WHERE session_id = '{CLI}'")
    (one,) = run("export", "--db", path, CLI).ok().records
    assert one["messages"] and all(row["content"] is None for row in one["messages"])
    flat = run("export", "--db", path, CLI, "-f", "messages").ok().records
    assert [row["content"] for row in flat] == [None] * len(one["messages"])


def test_b105_only_what_was_named_and_an_unknown_id_spoils_no_file(
    run: Run, store: Store, tmp_path: Path
) -> None:
    path, out = store("v22"), tmp_path / "out.jsonl"
    for session_id in (CLI, TELEGRAM):
        run("export", "--db", path, session_id, "-o", out).ok()
        assert [json.loads(line)["id"] for line in out.read_text().splitlines()] == [session_id]
    before = out.read_bytes()
    said = run("export", "--db", path, "no-such-session", "-o", out).gave(1)
    assert "no-such-session" in said.stderr and out.read_bytes() == before
    assert out.stat().st_mode & 0o777 == 0o600
    assert sorted(tmp_path.glob(".out*")) == []


def test_b108_a_lineage_is_whole_and_without_its_branches(run: Run, store: Store) -> None:
    path = store("v22")
    change(path, "INSERT INTO sessions (id, source, started_at, parent_session_id, model_config) "
           f"VALUES ('branch', 'cli', 1772300000.0, '{MIDDLE}', "
           f"'{{\"_branched_from\": \"{MIDDLE}\"}}')")  # fmt: skip
    found = [one["id"] for one in run("export", "--db", path, MIDDLE).ok().records]
    assert found[:3] == [ROOT, MIDDLE, TIP] and "branch" not in found
    assert [one["id"] for one in run("export", "--db", path, "branch").ok().records] == ["branch"]
    assert [
        one["id"] for one in run("export", "--db", path, MIDDLE, "--segment").ok().records
    ] == [MIDDLE]


def test_b106_a_closed_pipe_ends_quietly(run: Run, store: Store) -> None:
    done = run.shell(f"hermes-session-export --db '{store('v22')}' | head -n 1; "
                     "echo ${PIPESTATUS[0]}")  # fmt: skip
    assert done.stderr == "" and done.lines[1] in ("0", "141")


def test_ids_may_come_from_standard_input(run: Run, store: Store) -> None:
    path = store("v22")
    named = [{"session_id": CLI}, TELEGRAM]
    found = run("export", "--db", path, "-", input=named).ok().records
    assert [one["id"] for one in found] == [CLI, TELEGRAM]


def test_filters_select_conversations(run: Run, store: Store) -> None:
    found = run("export", "--db", store("v22"), "--source", "telegram").ok().records
    assert found and {one["source"] for one in found} == {"telegram"}
    run("export", "--db", store("v22"), "--source", "nobody").gave(1)


def test_live_only_leaves_out_what_was_undone(run: Run, store: Store) -> None:
    path = store("v22")
    everything = [m for one in run("export", "--db", path).ok().records for m in one["messages"]]
    live = [m for one in run("export", "--db", path, "--live-only").ok().records
            for m in one["messages"]]  # fmt: skip
    assert live == [m for m in everything if m["active"] == 1] and len(live) < len(everything)


def test_live_only_gives_the_prompt_itself(run: Run, store: Store) -> None:
    path = store("head-3")
    by_hash = [one for one in run("export", "--db", path).ok().records
               if one["system_prompt_hash"]]  # fmt: skip
    assert by_hash and by_hash[0]["system_prompt"] is None
    prompts = {row["hash"]: row["prompt"] for row in by_hash[0]["_tables"]["system_prompts"]}
    inline = {one["id"]: one for one in run("export", "--db", path, "--live-only").ok().records}
    one = by_hash[0]
    assert inline[one["id"]]["system_prompt"] == prompts[one["system_prompt_hash"]]


def test_share_leaves_out_what_is_private(run: Run, store: Store) -> None:
    path = store("v22")
    change(path, "UPDATE messages SET api_content = 'SECRETMEMORY', reasoning = 'SECRETTHOUGHT'",
           "UPDATE sessions SET user_id = 'SECRETUSER', session_key = 'SECRETKEY', "
           "chat_id = 'SECRETCHAT', origin_json = '{\"SECRETORIGIN\": 1}'")  # fmt: skip
    for form in ("jsonl", "messages", "openai", "trace"):
        assert b"SECRET" not in run("export", "--db", path, "--share", "-f", form).ok().stdout


def test_flat_messages_have_the_same_types_on_every_line(run: Run, store: Store) -> None:
    path = store("v22")
    change(path, "UPDATE messages SET timestamp = 'yesterday' WHERE id = 1")
    found = run("export", "--db", path, "-f", "messages").ok().records
    kinds: dict[str, set[type]] = {}
    for one in found:
        assert list(one) == list(found[0])
        for key, value in one.items():
            kinds.setdefault(key, set()).add(type(value))
    assert all(len(types - {type(None)}) <= 1 for types in kinds.values()), kinds
    parts = [one for one in found if one["content_json"]]
    assert parts and isinstance(json.loads(parts[0]["content_json"]), list)
    assert found[0]["timestamp"] is None and found[0]["when"] is None


def test_times_narrow_flat_messages_and_not_sessions(run: Run, store: Store) -> None:
    path = store("v22")
    rows = run("export", "--db", path, "-f", "messages", CLI).ok().records
    cut = rows[2]["when"]
    found = run("export", "--db", path, "-f", "messages", CLI, "--after", cut).ok().records
    assert [one["message_id"] for one in found] == [
        one["message_id"] for one in rows if one["timestamp"] >= int(rows[2]["timestamp"])
    ]


def test_a_chat_a_line_for_training(run: Run, store: Store) -> None:
    (one,) = run("export", "--db", store("v11"), CLI, "-f", "openai").ok().records
    assert list(one) == ["messages"]
    calls = [m for m in one["messages"] if m.get("tool_calls")]
    results = [m for m in one["messages"] if m["role"] == "tool"]
    assert calls and calls[0]["tool_calls"][0]["function"]["name"]
    assert results[0]["tool_call_id"] == calls[0]["tool_calls"][0]["id"]


def test_a_trace_names_the_line_before(run: Run, store: Store) -> None:
    found = run("export", "--db", store("v11"), TIP, "-f", "trace").ok().records
    one = [row for row in found if row["sessionId"] == TIP]
    assert [row["parentUuid"] for row in one] == [None] + [row["uuid"] for row in one[:-1]]
    again = run("export", "--db", store("v11"), TIP, "-f", "trace").ok().records
    assert again == found


def test_origin_stamps_every_record(run: Run, store: Store) -> None:
    found = run("export", "--db", store("v11"), "--origin", "attic").ok().records
    assert {one["_origin"] for one in found} == {"attic"} and list(found[0])[-1] == "_format"


def test_all_profiles_carry_their_name(run: Run, home: Callable[[str], Path]) -> None:
    place = home("v11")
    other = place / "profiles" / "work"
    other.mkdir(parents=True)
    (other / "state.db").write_bytes((place / "state.db").read_bytes())
    found = run("export", "--home", place, "--all-profiles").ok().records
    assert {one["profile"] for one in found} == {"default", "work"}


def test_messages_without_a_session_are_announced(run: Run, store: Store) -> None:
    path = store("v11")
    change(path, f"DELETE FROM sessions WHERE id = '{CLI}'")
    said = run("export", "--db", path).ok()
    assert "of no session left out" in said.stderr


@pytest.mark.parametrize("argv", [("-f", "text"), ("-f", "xml"), ("--live",)])
def test_what_it_does_not_know_is_usage(run: Run, store: Store, argv: tuple[str, ...]) -> None:
    assert run("export", "--db", store("v11"), *argv).gave(2).stdout == b""


def test_a_reader_that_waits_holds_no_lock_without_wal(run: Run, store: Store) -> None:
    path = store("delete")
    child = run.start("export", "--db", path)
    try:
        assert child.stdout is not None
        child.stdout.read(1)
        change(path, "UPDATE sessions SET end_reason = 'x'")  # fails if the reader holds a lock
    finally:
        child.communicate()
