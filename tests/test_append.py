"""hermes-session-append: messages from standard input to the end of a session."""

import json
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import stores
from conftest import Run

TIP, ROOT = "20260226_150000_00cc33", "20260226_090000_00aa11"
CLI, TELEGRAM = "20260225_101500_a1b2c3", "20260227_080000_deadbe01"
ANSWER = {"role": "user", "content": "one more thing"}


def sql(path: Path, text: str, *values: object) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(path)) as other, other:
        return other.execute(text, values).fetchall()


def count(path: Path) -> int:
    return int(sql(path, "SELECT count(*) FROM messages")[0][0])


def counters(path: Path, session_id: str) -> tuple[Any, ...]:
    return sql(
        path, "SELECT message_count, tool_call_count FROM sessions WHERE id = ?", session_id
    )[0]


def test_in_order_with_true_counters(run: Run, store: Callable[[str], Path]) -> None:
    path = store("v22")
    before, calls = counters(path, TIP)
    call = {"id": "c1", "function": {"name": "ls", "arguments": "{}"}}
    messages = [
        {"role": "user", "content": "看 the walrus", "timestamp": "2026-03-01T10:00:00Z"},
        {"role": "assistant", "content": None, "tool_calls": [call, call], "reasoning": "hm"},
        {"role": "tool", "content": "none", "tool_call_id": "c1", "name": "ls", "token_count": 3},
        {"role": "user", "content": [{"type": "text", "text": "Grüße"}], "unknown": 1},
    ]
    result = run("append", "--db", path, "garden plan", input=messages).ok()
    assert result.ids == [TIP] * 4
    ids = [one["message_id"] for one in result.records]
    assert [list(one) for one in result.records] == [["session_id", "message_id"]] * 4
    assert ids == sorted(ids)
    rows = sql(
        path, "SELECT role, content, timestamp, tool_calls, tool_name, token_count, reasoning "
        "FROM messages WHERE id >= ? ORDER BY id", ids[0]
    )  # fmt: skip
    assert rows[0][:3] == ("user", "看 the walrus", 1772359200.0)
    assert rows[1][3] == json.dumps([call, call]) and rows[1][6] == "hm" and rows[1][1] is None
    assert rows[2][4:6] == ("ls", 3)
    assert rows[3][1] == '\0json:[{"type": "text", "text": "Gr\\u00fc\\u00dfe"}]'
    assert abs(rows[3][2] - time.time()) < 600
    assert counters(path, TIP) == (before + 4, calls + 2)
    assert stores.condition(path)["indexes"]
    assert all(stores.condition(path)["indexes"].values())


@pytest.mark.parametrize(
    "line",
    [
        "no json", "[1]", '{"content": "x"}', '{"role": ""}', '{"role": "user"}',
        '{"role": 5, "content": "x"}', '{"role": "user", "cont": "x"}',
        '{"role": "user", "content": 5}', '{"role": "user", "content": "x", "timestamp": "soon"}',
        '{"role": "user", "content": "x", "timestamp": 1772359200000}',
        '{"role": "user", "content": "x", "timestamp": true}',
        '{"role": "assistant", "tool_calls": "{"}', '{"role": "assistant", "tool_calls": 5}',
        '{"role": "user", "content": "x", "token_count": "many"}',
        '{"role": "user", "content": "x", "token_count": 99999999999999999999}',
        '{"role": "user", "content": "x", "reasoning": ["x"]}',
        '{"role": "user", "content": "x", "reasoning_details": 5}',
    ],
)  # fmt: skip
def test_a_bad_line_is_named_and_nothing_of_its_batch_written(
    line: str, run: Run, store: Callable[[str], Path]
) -> None:
    path = store("v22")
    before = count(path)
    good = json.dumps(ANSWER)
    result = run("append", "--db", path, TIP, input=f"{good}\n\n{line}\n{good}\n").gave(65)
    assert not result.stdout and "line 3: " in result.stderr and result.stderr.count("\n") == 1
    assert count(path) == before
    # with batches, those before it stand
    result = run("append", "--db", path, TIP, "--batch", 1, input=f"{good}\n{line}\n").gave(65)
    assert len(result.records) == 1 and "line 2: " in result.stderr
    assert count(path) == before + 1


def test_a_batch_is_a_transaction(run: Run, store: Callable[[str], Path]) -> None:
    path = store("v22")
    before = count(path)
    # an unknown index trigger would do the same: the third message cannot be stored
    sql(path, "CREATE TRIGGER messages_message_uid_insert BEFORE INSERT ON messages "
              "WHEN new.content = 'bad' BEGIN SELECT RAISE(ABORT, 'no room'); END")  # fmt: skip
    lines = [{"role": "user", "content": text} for text in ("1", "2", "3", "bad", "5")]
    result = run("append", "--db", path, TIP, "--batch", 2, input=lines)
    assert result.status != 0 and len(result.records) == 2
    assert count(path) == before + 2


def test_an_export_can_be_added_without_what_was_undone(
    run: Run, store: Callable[[str], Path]
) -> None:
    path = store("v22")
    owner = sql(path, "SELECT session_id FROM messages WHERE active = 0 LIMIT 1")[0][0]
    columns = ("role", "content", "timestamp", "tool_calls", "active", "compacted", "observed")
    rows = [
        dict(zip(columns, row, strict=True))
        for row in sql(
            path, f"SELECT {', '.join(columns)} FROM messages WHERE session_id = ? ORDER BY id",
            owner,
        )
    ]  # fmt: skip
    undone = sum(row["active"] == 0 for row in rows)
    result = run("append", "--db", path, CLI, input=rows).ok()
    assert len(result.records) == len(rows) - undone
    assert f"left out {undone} message" in result.stderr
    # an older store has no such columns
    assert len(run("append", "--db", store("v11"), CLI, input=rows).ok().records) > 0


# Refusals.


def test_unknown_and_ambiguous(run: Run, store: Callable[[str], Path]) -> None:
    path = store("v22")
    for name in ("nobody", "2026"):
        result = run("append", "--db", path, name, input=[ANSWER]).gave(1)
        assert not result.stdout and name in result.stderr and result.stderr.count("\n") == 1


def test_ended_by_compression_names_where_it_goes_on(
    run: Run, store: Callable[[str], Path]
) -> None:
    path = store("v22")
    before = count(path)
    result = run("append", "--db", path, ROOT, input=[ANSWER]).gave(1)
    assert "compression" in result.stderr and TIP in result.stderr
    assert run("append", "--db", path, ROOT, "--live", input=[ANSWER]).status == 1
    assert count(path) == before


def test_ended_otherwise_is_no_obstacle(run: Run, store: Callable[[str], Path]) -> None:
    path = store("v22")
    sql(path, "UPDATE sessions SET ended_at = 1, end_reason = 'done' WHERE id = ?", CLI)
    run("append", "--db", path, CLI, input=[ANSWER]).ok()


@pytest.mark.parametrize(
    ("store_name", "change"),
    [
        ("v22", f"INSERT INTO compression_locks VALUES ('{TIP}', 'pid=1', 0, 9e9)"),
        ("v22", f"UPDATE sessions SET handoff_state = 'pending' WHERE id = '{TIP}'"),
        ("v22", "INSERT INTO gateway_routing VALUES ('s', 'k', "
                f"'{{\"session_id\": \"{TIP}\"}}', 0)"),
        ("head-3", f"INSERT INTO session_turn_leases VALUES ('{stores.ROOT}', 'x', 0, 9e9)"),
    ],
)  # fmt: skip
def test_in_use(store_name: str, change: str, run: Run, store: Callable[[str], Path]) -> None:
    path = store(store_name)
    tip = stores.TIP if store_name == "head-3" else TIP
    sql(path, change)
    sql(path, "UPDATE messages SET timestamp = ? WHERE session_id = ?", time.time(), tip)
    before = count(path)
    result = run("append", "--db", path, tip, input=[ANSWER]).gave(1)
    assert not result.stdout and "--live" in result.stderr
    assert run("append", "--db", path, "--new", "--parent", tip, input=[ANSWER]).status == 1
    assert count(path) == before
    run("append", "--db", path, tip, "--live", input=[ANSWER]).ok()


def test_indexes_that_cannot_be_written(run: Run, store: Callable[[str], Path]) -> None:
    path = store("head-cjk")
    result = run("append", "--db", path, stores.TIP, input=[ANSWER]).gave(78)
    assert "--detach-cjk" in result.stderr
    run("append", "--db", path, stores.TIP, "--detach-cjk", input=[ANSWER, ANSWER]).ok()
    assert sql(path, "SELECT value FROM state_meta WHERE key = 'fts_cjk_stale'") == [("1",)]


def test_usage(run: Run, store: Callable[[str], Path]) -> None:
    path = store("v22")
    for words in (
        [], ["-"], ["--new"], ["--new", "--source", " "], ["--new", "--source", "cli", TIP],
        [TIP, "--source", "cli"], [TIP, "--title", "x"], [TIP, "--parent", CLI],
        [TIP, "--batch", "0"], ["--new", "--source", "cli", "--title", " "],
        ["--new", "--source", "cli", "--title", "x" * 101], [""],
    ):  # fmt: skip
        result = run("append", "--db", path, *words, input=[ANSWER])
        assert result.status == 2 and not result.stdout, words
    assert run("append", "--db", path, TIP, tty=True).status == 2


def test_no_store_is_made(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    run("append", "--db", path, "--new", "--source", "cli", input=[ANSWER]).gave(66)
    assert not path.exists()


# New sessions.


def test_a_new_session(run: Run, store: Callable[[str], Path]) -> None:
    path = store("v11")
    result = run(
        "append", "--db", path, "--new", "--source", "alarms", "--title", " disk\talarms ",
        input=[ANSWER, ANSWER],
    ).ok()  # fmt: skip
    (session_id,) = set(result.ids)
    assert sql(path, "SELECT source, title, message_count, ended_at FROM sessions WHERE id = ?",
               session_id) == [("alarms", "disk alarms", 2, None)]  # fmt: skip
    taken = run("append", "--db", path, "--new", "--source", "x", "--title", "disk alarms",
                input=[ANSWER])  # fmt: skip
    assert taken.status == 1 and session_id in taken.stderr
    assert sql(path, "SELECT count(*) FROM sessions WHERE source = 'x'") == [(0,)]


def test_a_new_session_without_messages_tells_its_record(
    run: Run, store: Callable[[str], Path]
) -> None:
    path = store("v22")
    (record,) = run("append", "--db", path, "--new", "--source", "cli").ok().records
    assert record["action"] == "created" and record["message_count"] == 0
    assert run("append", "--db", path, record["session_id"]).ok().stdout == b""


def test_a_continuation(run: Run, store: Callable[[str], Path]) -> None:
    path = store("v22")
    sql(path, "UPDATE sessions SET model = 'm', cwd = '/w', system_prompt = 'p' WHERE id = ?", TIP)
    (session_id,) = run(
        "append", "--db", path, "--new", "--parent", "garden plan", input=[ANSWER]
    ).ok().ids  # fmt: skip
    assert sql(path, "SELECT title, source, model, cwd, system_prompt, parent_session_id "
                     "FROM sessions WHERE id = ?", session_id) == [
        ("garden plan #4", "cli", "m", "/w", "p", TIP)]  # fmt: skip
    assert sql(path, "SELECT end_reason FROM sessions WHERE id = ?", TIP) == [("compression",)]
    listed = run("list", "--db", path, ROOT).ok().records
    assert [(one["session_id"], one["segments"]) for one in listed] == [(session_id, 4)]
    again = run("append", "--db", path, "--new", "--parent", TIP, input=[ANSWER]).gave(1)
    assert session_id in again.stderr


def test_a_bad_line_begins_no_session_and_ends_no_parent(
    run: Run, store: Callable[[str], Path]
) -> None:
    path = store("v22")
    before = sql(path, "SELECT * FROM sessions")
    run("append", "--db", path, "--new", "--parent", TIP, input=[ANSWER, {"role": ""}]).gave(65)
    assert sql(path, "SELECT * FROM sessions") == before


def test_a_parent_that_has_ended_is_refused(run: Run, store: Callable[[str], Path]) -> None:
    path = store("v22")
    sql(path, "UPDATE sessions SET ended_at = 1, end_reason = 'done' WHERE id = ?", CLI)
    result = run("append", "--db", path, "--new", "--parent", CLI, input=[ANSWER]).gave(1)
    assert "--reopen" in result.stderr


@pytest.mark.parametrize("name", stores.NAMES)
def test_every_kind_of_store(name: str, run: Run, store: Callable[[str], Path]) -> None:
    path = store(name)
    result = run("append", "--db", path, stores.TIP, input=[ANSWER])
    if name == "head-cjk":
        assert result.status == 78
        return
    result.ok()
    new = run("append", "--db", path, "--new", "--parent", stores.TIP, input=[ANSWER]).ok()
    rows = run("show", "--db", path, new.ids[0]).ok().text
    assert rows.count("one more thing") == 2


def test_old_stores_lack_columns(run: Run, store: Callable[[str], Path]) -> None:
    path = store("v1")
    before = count(path)
    result = run("append", "--db", path, stores.TIP, input=[{**ANSWER, "reasoning": "hm"}])
    assert result.status == 78 and "reasoning" in result.stderr
    assert count(path) == before


# Output.


def test_forms_of_output(run: Run, store: Callable[[str], Path]) -> None:
    path = store("v22")
    assert run("append", "--db", path, TIP, "-q", input=[ANSWER]).ok().stdout == b""
    assert run("append", "--db", path, TIP, "-f", "ids", input=[ANSWER, ANSWER]).ok().lines == [TIP]
    (line,) = run("append", "--db", path, TIP, "-t", input=[ANSWER]).ok().lines
    assert line == f"{TIP} {count(path)}" or line.startswith(f"{TIP} ")


# Input that does not end.


def test_follow_writes_what_comes(run: Run, store: Callable[[str], Path]) -> None:
    path = store("v22")
    child = run.start("append", "--db", path, TIP, "--follow")
    assert child.stdin and child.stdout
    for text in ("first", "second"):
        child.stdin.write(json.dumps({"role": "user", "content": text}).encode() + b"\n")
        child.stdin.flush()
        record = json.loads(child.stdout.readline())
        assert sql(path, "SELECT content FROM messages WHERE id = ?", record["message_id"]) == [
            (text,)
        ]
    child.stdin.write(b'{"role": "user", "content": "no end of line"}')
    child.stdin.close()
    assert json.loads(child.stdout.readline())
    assert child.wait(timeout=30) == 0


def test_follow_survives_a_lock_and_a_restored_store(
    run: Run, store: Callable[[str], Path]
) -> None:
    path = store("v22")
    child = run.start("append", "--db", path, TIP, "--batch", 1, "--follow", "--timeout", 0.1)
    assert child.stdin and child.stdout and child.stderr
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        child.stdin.write(json.dumps(ANSWER).encode() + b"\n")
        child.stdin.flush()
        assert b"waiting" in child.stderr.readline()
        other.execute("ROLLBACK")
    assert json.loads(child.stdout.readline())
    fresh = store("v22")
    before = count(fresh)
    for suffix in ("-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    fresh.replace(path)
    child.stdin.write(json.dumps(ANSWER).encode() + b"\n")
    child.stdin.close()
    assert json.loads(child.stdout.readline())
    assert child.wait(timeout=30) == 0
    assert count(path) == before + 1


def test_tail_f_is_an_input(run: Run, store: Callable[[str], Path], tmp_path: Path) -> None:
    path, log = store("v22"), tmp_path / "log"
    log.write_text("".join(json.dumps(ANSWER) + "\n" for _ in range(3)))
    before = count(path)
    done = run.shell(
        f"timeout 2 tail -n +1 -f {log} | "
        f"hermes-session-append --db {path} {TIP} --batch 1 --follow"
    )
    assert done.status == 0 and len(done.records) == 3
    assert count(path) == before + 3


def test_a_locked_store_is_busy(run: Run, store: Callable[[str], Path]) -> None:
    path = store("v22")
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        result = run("append", "--db", path, TIP, "--timeout", 0.1, input=[ANSWER]).gave(75)
        assert not result.stdout and result.stderr.count("\n") == 1
        other.execute("ROLLBACK")


def test_terminated_in_the_middle(run: Run, store: Callable[[str], Path]) -> None:
    path = store("v22")
    before = count(path)
    child = run.start("append", "--db", path, TIP, "--batch", 2, "--follow")
    assert child.stdin and child.stdout and child.stderr
    child.stdin.write(2 * (json.dumps(ANSWER).encode() + b"\n"))
    child.stdin.flush()
    assert json.loads(child.stdout.readline()) and json.loads(child.stdout.readline())
    child.terminate()
    assert child.wait(timeout=30) == 143
    assert b"Traceback" not in child.stderr.read()
    assert count(path) == before + 2
