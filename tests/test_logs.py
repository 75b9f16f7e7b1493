"""Session logs of other agents, in and out."""

import json
import lzma
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

from conftest import Run

Store = Callable[[str], Path]


def rows(path: Path, session_id: str) -> list[Any]:
    db = sqlite3.connect(path)
    db.row_factory = sqlite3.Row
    sql = "SELECT * FROM messages WHERE session_id = ? ORDER BY id"
    return [dict(row) for row in db.execute(sql, (session_id,))]


CLAUDE = [
    {"type": "summary", "summary": "Counting beans", "leafUuid": "3"},
    {"type": "user", "uuid": "1", "sessionId": "beans", "timestamp": "2026-03-01T09:00:00.250Z",
     "cwd": "/srv/beans", "isSidechain": False, "message": {"role": "user", "content": "count"}},
    {"type": "assistant", "uuid": "2", "sessionId": "beans",
     "timestamp": "2026-03-01T09:00:01.000Z", "message": {
         "role": "assistant", "model": "atlas-4", "stop_reason": "tool_use", "content": [
             {"type": "thinking", "thinking": "with wc"}, {"type": "text", "text": "One moment."},
             {"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "wc"}}]}},
    {"type": "user", "uuid": "3", "sessionId": "beans", "timestamp": "2026-03-01T09:00:02.000Z",
     "message": {"role": "user", "content": [
         {"type": "tool_result", "tool_use_id": "t1",
          "content": [{"type": "text", "text": "7"}]}]}},
    {"type": "user", "uuid": "4", "sessionId": "beans", "isSidechain": True,
     "timestamp": "2026-03-01T09:00:03.000Z", "message": {"role": "user", "content": "help"}},
    {"type": "file-history-snapshot", "snapshot": {}},
]  # fmt: skip
CODEX = [
    {"timestamp": "2026-03-01T09:00:00.000Z", "type": "session_meta", "payload": {
        "id": "0199-peas", "timestamp": "2026-03-01T09:00:00.000Z", "cwd": "/srv/peas",
        "instructions": "Be brief.", "git": {"branch": "main"}}},
    {"timestamp": "2026-03-01T09:00:01.000Z", "type": "turn_context",
     "payload": {"model": "cedar-1"}},
    {"timestamp": "2026-03-01T09:00:01.000Z", "type": "response_item", "payload": {
        "type": "message", "role": "user", "content": [{"type": "input_text", "text": "count"}]}},
    {"timestamp": "2026-03-01T09:00:01.500Z", "type": "event_msg", "payload": {"type": "x"}},
    {"timestamp": "2026-03-01T09:00:02.000Z", "type": "response_item", "payload": {
        "type": "reasoning", "summary": [{"type": "summary_text", "text": "with wc"}]}},
    {"timestamp": "2026-03-01T09:00:02.000Z", "type": "response_item", "payload": {
        "type": "function_call", "name": "shell", "arguments": "{\"command\": [\"wc\"]}",
        "call_id": "c1"}},
    {"timestamp": "2026-03-01T09:00:03.000Z", "type": "response_item", "payload": {
        "type": "function_call_output", "call_id": "c1", "output": "7"}},
    {"timestamp": "2026-03-01T09:00:04.000Z", "type": "response_item", "payload": {
        "type": "message", "role": "assistant",
        "content": [{"type": "output_text", "text": "Seven."}]}},
]  # fmt: skip


def test_a_log_of_claude_code_keeps_calls_and_results(run: Run, store: Store) -> None:
    path = store("v11")
    report = run("import", "--db", path, input=CLAUDE).ok().records
    (one,) = [row for row in report if row["session_id"] == "beans"]
    assert (one["source"], one["model"], one["title"]) == (
        "claude-code", "atlas-4", "Counting beans")  # fmt: skip
    user, asked, answered = rows(path, "beans")
    assert user["content"] == "count" and user["timestamp"] == 1772355600.25
    assert json.loads(asked["tool_calls"])[0]["function"] == {
        "name": "Bash", "arguments": '{"command": "wc"}'}  # fmt: skip
    assert (asked["content"], asked["reasoning"]) == ("One moment.", "with wc")
    assert (answered["role"], answered["tool_call_id"], answered["tool_name"],
            answered["content"]) == ("tool", "t1", "Bash", "7")  # fmt: skip
    assert [row["content"] for row in rows(path, "beans-sidechain")] == ["help"]
    again = run("import", "--db", path, input=CLAUDE).ok().records
    assert {row["action"] for row in again} == {"unchanged"}
    more = {**CLAUDE[1], "uuid": "9", "timestamp": "2026-03-01T10:00:00Z"}
    grown = run("import", "--db", path, input=[*CLAUDE, more]).ok().records
    assert "updated" in {row["action"] for row in grown} and len(rows(path, "beans")) == 4


def test_a_log_of_codex(run: Run, store: Store) -> None:
    path = store("v22")
    (one,) = run("import", "--db", path, input=CODEX).ok().records
    assert (one["session_id"], one["source"], one["model"]) == ("0199-peas", "codex", "cedar-1")
    user, asked, answered, told = rows(path, "0199-peas")
    assert [user["content"], told["content"]] == ["count", "Seven."]
    assert asked["reasoning"] == "with wc" and answered["tool_name"] == "shell"
    assert json.loads(asked["tool_calls"])[0]["id"] == answered["tool_call_id"] == "c1"
    (again,) = run("import", "--db", path, input=CODEX).ok().records
    assert again["action"] == "unchanged"


def test_a_trace_comes_back(run: Run, store: Store, tmp_path: Path) -> None:
    path, new = store("v11"), tmp_path / "new.db"
    session_id = "20260225_101500_a1b2c3"
    trace = run("export", "--db", path, "-f", "trace", session_id).ok().stdout
    run("import", "--db", new, "--create", input=trace).ok()
    kept = ("role", "content", "tool_calls", "tool_call_id", "tool_name")
    before, after = (
        [{**{key: row[key] for key in kept}, "content": row["content"] or "",
          "tool_calls": json.loads(row["tool_calls"] or "[]")} for row in rows(db, session_id)]
        for db in (path, new)
    )  # fmt: skip
    assert after == before
    assert any(row["tool_call_id"] and row["tool_name"] for row in after)


def test_logs_from_the_field(run: Run, store: Store, shared: Path, tmp_path: Path) -> None:
    path = store("v11")
    zh = lzma.decompress((shared / "iflow-zh.jsonl.xz").read_bytes())
    report = run("import", "--db", path, input=zh).ok().records
    (one,) = report
    found = rows(path, one["session_id"])
    assert found[0]["content"].startswith("启动app时")
    calls = [call["id"] for row in found if row["tool_calls"]
             for call in json.loads(row["tool_calls"])]  # fmt: skip
    assert len(calls) == len(set(calls)) > 2
    assert {row["tool_call_id"] for row in found if row["role"] == "tool"} <= set(calls)
    edge = lzma.decompress((shared / "claude-code-edge-cases.jsonl.xz").read_bytes())
    run("import", "--db", path, input=edge).gave(65)
    report = run("import", "--db", path, "--keep-going", input=edge).gave(1).records
    assert {"edge_cases", "todowrite_session"} <= {one["session_id"] for one in report}
    assert any("🎉" in (row["content"] or "") for row in rows(path, "edge_cases"))
