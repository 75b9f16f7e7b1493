"""The rules of the agent's store for reading and writing, one test a rule."""

import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import stores
from conftest import Run

Store = Callable[[str], Path]
every_store = pytest.mark.parametrize("name", ["head-3", "v99", "v22"])
newest = pytest.mark.parametrize("name", ["head-3", "v99"])
NEW = ("--newer-schema",)


def ask(path: Path, sql: str, *values: object) -> list[tuple[Any, ...]]:
    """Rows of one statement, committed."""
    with closing(sqlite3.connect(path)) as db, db:
        return db.execute(sql, values).fetchall()


def put(path: Path, table: str, *rows: stores.Row) -> None:
    """More rows, as another program would write them."""
    with closing(sqlite3.connect(path)) as db, db:
        for row in rows:
            stores.insert(db, table, row)


def talk(path: Path, session_id: str, *messages: stores.Row, **more: Any) -> None:
    """One more session with these messages of its user."""
    put(path, "sessions", {"id": session_id, "source": "cli", "started_at": stores.T, **more})
    for count, message in enumerate(messages):
        put(path, "messages", {"session_id": session_id, "role": "user",
                               "timestamp": stores.T + count, **message})  # fmt: skip


# --- Reading ---

WIRE = [
    ("show", "rules"), ("show", "-f", "markdown", "rules"), ("show", "-f", "html", "rules"),
    ("show", "--recap", "rules"), ("search", "spokenword"), ("search", "--hits", "spokenword"),
    ("scroll", "rules", "--after-id", "0"), ("export", "--share", "rules"),
    ("export", "-f", "openai", "rules"), ("export", "-f", "trace", "rules"),
    ("export", "-f", "messages", "rules"), ("list",),
]  # fmt: skip


@every_store
@pytest.mark.parametrize("words", WIRE, ids=" ".join)
def test_wire_text_is_not_told(run: Run, store: Store, name: str, words: tuple[str, ...]) -> None:
    path = store(name)
    talk(path, "rules", {"content": "a spokenword", "api_content": "a spokenword wireword"})
    command, *rest = words
    told = run(command, "--db", path, *rest).ok().text
    assert "spokenword" in told and "wireword" not in told


@every_store
def test_wire_text_is_kept_in_a_whole_export(run: Run, store: Store, name: str) -> None:
    path = store(name)
    talk(path, "rules", {"content": "said", "api_content": "said wireword"})
    (record,) = run("export", "--db", path, "rules").ok().records
    assert record["messages"][0]["api_content"] == "said wireword"


@every_store
def test_wire_text_is_not_searched(run: Run, store: Store, name: str) -> None:
    path = store(name)
    talk(path, "rules", {"content": "said", "api_content": "wireword"})
    for raw in ((), ("--raw",)):
        run("search", "--db", path, *raw, "wireword").gave(1)


@every_store
def test_an_observed_row_is_labelled(run: Run, store: Store, name: str) -> None:
    path = store(name)
    talk(path, "rules", {"content": "chatter", "observed": 1}, {"content": "a question"},
         title="heading")  # fmt: skip
    lines = run("show", "--db", path, "-t", "rules").ok().lines
    chatter, question = (lines[lines.index(said) - 1] for said in ("chatter", "a question"))
    assert "(observed)" in chatter and "observed" not in question


@newest
def test_a_hidden_row_is_neither_previewed_nor_found(run: Run, store: Store, name: str) -> None:
    path = store(name)
    talk(path, "rules", {"content": "propword", "display_kind": "hidden"},
         {"content": "a question", "display_kind": "steer"})  # fmt: skip
    (one,) = [row for row in run("list", "--db", path, "-n", 0).records
              if row["session_id"] == "rules"]  # fmt: skip
    assert one["preview"] == "a question"
    for shape in ((), ("--hits",), ("--raw",)):
        run("search", "--db", path, *shape, "propword").gave(1)
    assert "propword" not in run("search", "--db", path, "question").ok().text
    assert "propword" not in run("show", "--db", path, "rules").ok().text


@newest
@pytest.mark.parametrize("carrier", [
    {"content": "foldword", "_compressed_summary": 1}, {"content": "[CONTEXT COMPACTION] foldword"},
    {"content": "[CONTEXT SUMMARY]: foldword"},
], ids=["flag", "compaction", "summary"])  # fmt: skip
def test_a_summary_is_no_preview(run: Run, store: Store, name: str, carrier: stores.Row) -> None:
    path = store(name)
    talk(path, "rules", carrier, {"content": "a question"})
    (one,) = [row for row in run("list", "--db", path, "-n", 0).records
              if row["session_id"] == "rules"]  # fmt: skip
    assert one["preview"] == "a question"


@newest
def test_a_prompt_is_found_by_its_hash(run: Run, store: Store, name: str) -> None:
    path = store(name)
    assert ask(path, "SELECT system_prompt FROM sessions WHERE id = ?", stores.TOOLS) == [(None,)]
    (record,) = run("export", "--db", path, "--live-only", stores.TOOLS).ok().records
    assert record["system_prompt"] == stores.PROMPT
    (whole,) = run("export", "--db", path, stores.TOOLS).ok().records
    assert whole["_tables"]["system_prompts"] == [
        {"hash": whole["system_prompt_hash"], "prompt": stores.PROMPT}
    ]


@newest
def test_names_of_tools_go_with_their_hash(run: Run, store: Store, name: str) -> None:
    path, new = store(name), store("head-2")
    put(path, "system_prompts", {"hash": "h", "prompt": '["terminal"]'})
    talk(path, "rules", {"content": "said"}, tool_names="h")
    exported = run("export", "--db", path, "rules").ok()
    assert {"hash": "h", "prompt": '["terminal"]'} in exported.records[0]["_tables"][
        "system_prompts"]  # fmt: skip
    run("import", "--db", new, input=exported.stdout).ok()
    sql = """SELECT COALESCE(prompt, tool_names) FROM sessions
        LEFT JOIN system_prompts ON hash = tool_names WHERE id = 'rules'"""
    assert ask(new, sql) == [('["terminal"]',)]


@pytest.mark.parametrize(
    "words", [("show", "-t"), ("export", "--live-only"), ("scroll", "--after-id", "0")]
)
def test_a_row_without_a_flag_is_live(run: Run, store: Store, words: tuple[str, ...]) -> None:
    path = store("head-0")
    assert ask(path, "SELECT DISTINCT active FROM messages WHERE session_id = ?",
               stores.RUSSIAN) == [(None,)]  # fmt: skip
    command, *rest = words
    assert "купили новую лампочку" in run(command, "--db", path, *rest, stores.RUSSIAN).ok().text
    assert stores.RUSSIAN in run("search", "--db", path, "лампочку").ok().ids


@every_store
@pytest.mark.parametrize("at", ["no time", 1e300, -5e12, stores.T * 1000])
def test_a_garbled_time_is_unknown(run: Run, store: Store, name: str, at: Any) -> None:
    path = store(name)
    talk(path, "rules", title="garbled", started_at=at)
    put(path, "messages", {"session_id": "rules", "role": "user", "content": "x", "timestamp": at})
    (line,) = [line for line in run("list", "--db", path, "-t", "-n", 0).ok().lines
               if "garbled" in line]  # fmt: skip
    assert "?" in line.split()
    assert "?" in run("show", "--db", path, "-t", "rules").ok().text


# --- Writing ---


def schema_options(name: str) -> tuple[str, ...]:
    """What a writer asks for on a store of an unknown future."""
    return NEW if name == "v99" else ()


@newest
def test_messages_and_side_rows_go_before_the_session(run: Run, store: Store, name: str) -> None:
    path = store(name)
    put(path, "session_model_usage", {"session_id": stores.CJK, "model": "m"})
    for table in ("messages", "session_model_usage"):
        ask(path, f"CREATE TRIGGER late_{table} BEFORE DELETE ON sessions WHEN EXISTS "
            f"(SELECT 1 FROM {table} WHERE session_id = old.id) "
            "BEGIN SELECT RAISE(ABORT, 'too early'); END")  # fmt: skip
    before = stores.condition(path)
    run("delete", "--db", path, *NEW, "--yes", stores.CJK).ok()
    after = stores.condition(path)
    assert after == before and after["foreign keys"] == []
    for table in ("messages", "session_model_usage"):
        assert not ask(path, f"SELECT 1 FROM {table} WHERE session_id = ?", stores.CJK)


@newest
@pytest.mark.parametrize("column", ["system_prompt_hash", "tool_names"])
def test_a_prompt_stays_while_either_column_names_it(
    run: Run, store: Store, name: str, column: str
) -> None:
    path = store(name)
    put(path, "system_prompts", {"hash": "h", "prompt": "p"}, {"hash": "own", "prompt": "q"})
    talk(path, "first", {"content": "x"}, system_prompt_hash="h", tool_names="own")
    talk(path, "second", {"content": "x"}, **{column: "h"})
    run("delete", "--db", path, *schema_options(name), "--yes", "first").ok()
    held = "SELECT hash FROM system_prompts WHERE hash IN ('h', 'own')"
    assert ask(path, held) == [("h",)]
    run("delete", "--db", path, *schema_options(name), "--yes", "second").ok()
    assert ask(path, held) == []


@newest
def test_what_belongs_to_a_chat_outlives_its_sessions(run: Run, store: Store, name: str) -> None:
    path = store(name)
    ask(path, "CREATE TABLE delivery_obligations (obligation_id TEXT PRIMARY KEY, "
        "session_key TEXT NOT NULL, content TEXT)")  # fmt: skip
    put(path, "delivery_obligations", {"obligation_id": "o", "session_key": "k", "content": "x"})
    put(path, "gateway_hygiene_state", {"session_key": "k", "failure_streak": 2})
    put(path, "conversation_generations", {"source": "cli", "session_key": "k", "generation": 4})
    talk(path, "rules", {"content": "x"}, session_key="k")
    tables = ("delivery_obligations", "gateway_hygiene_state", "conversation_generations")
    before = {table: ask(path, f"SELECT * FROM {table}") for table in tables}
    run("delete", "--db", path, *schema_options(name), "--yes", "rules").ok()
    assert not ask(path, "SELECT 1 FROM sessions WHERE id = 'rules'")
    assert {table: ask(path, f"SELECT * FROM {table}") for table in tables} == before


@every_store
def test_a_goal_goes_with_its_session(run: Run, store: Store, name: str) -> None:
    path = store(name)
    talk(path, "rules", {"content": "x"})
    talk(path, "rules2", {"content": "x"})
    put(path, "state_meta", {"key": "goal:rules", "value": "g"},
        {"key": "goal:rules2", "value": "g"})  # fmt: skip
    run("delete", "--db", path, *schema_options(name), "--yes", "rules").ok()
    assert ask(path, "SELECT key FROM state_meta WHERE key LIKE 'goal:rules%'") == [
        ("goal:rules2",)]  # fmt: skip


WRITERS: list[tuple[str, ...]] = [
    ("delete", "--yes", "rules"), ("title", "rules", "another"), ("archive", "rules"),
    ("end", "rules"), ("optimize",),
    ("prune", "--older-than", "1d", "--yes"),
]  # fmt: skip


@pytest.mark.parametrize("name", ["head-3", "v99", "v22", "delete"])
@pytest.mark.parametrize("words", WRITERS, ids=lambda words: words[0])
def test_the_file_stays_the_same_file(
    run: Run, store: Store, name: str, words: tuple[str, ...]
) -> None:
    path = store(name)
    ask(path, "PRAGMA application_id = 4711")
    talk(path, "rules", {"content": "x"})
    told = [stores.condition(path)[key] for key in stores.PRAGMAS]
    command, *rest = words
    more = schema_options(name) if command != "optimize" else ()
    run(command, "--db", path, *more, *rest).ok()
    assert [stores.condition(path)[key] for key in stores.PRAGMAS] == told
    assert told[1] == 4711


CJK_TRIGGERS = "SELECT count(*) FROM sqlite_master WHERE type = 'trigger' AND name LIKE '%cjk%'"
CJK_STALE = "SELECT value FROM state_meta WHERE key = 'fts_cjk_stale'"


def test_a_cjk_index_is_set_aside_only_when_asked(run: Run, store: Store) -> None:
    path = store("head-cjk")
    refused = run("delete", "--db", path, "--yes", stores.CJK)
    assert refused.status != 0 and "--detach-cjk" in refused.stderr
    assert ask(path, CJK_TRIGGERS) == [(3,)] and ask(path, CJK_STALE) == []
    assert ask(path, "SELECT count(*) FROM sessions WHERE id = ?", stores.CJK) == [(1,)]
    run("delete", "--db", path, "--detach-cjk", "--yes", stores.CJK).ok()
    assert ask(path, CJK_TRIGGERS) == [(0,)] and ask(path, CJK_STALE) == [("1",)]
    assert ask(path, "SELECT count(*) FROM sessions WHERE id = ?", stores.CJK) == [(0,)]


LEASES = [("compression_locks", "session_id"), ("session_turn_leases", "conversation_id")]


@newest
@pytest.mark.parametrize(("table", "column", "words"), [
    (*LEASES[0], ("delete", "--yes")), (*LEASES[1], ("delete", "--yes")),
    (*LEASES[0], ("title",)),  # the agent itself gives titles during a turn
], ids=["delete-compression", "delete-turn", "title-compression"])  # fmt: skip
def test_a_lease_holds_until_it_expires(
    run: Run, store: Store, name: str, table: str, column: str, words: tuple[str, ...]
) -> None:
    path = store(name)
    talk(path, "rules", {"content": "x"}, title="before")
    now = time.time()
    put(path, table, {column: "rules", "holder": "pid=1", "acquired_at": now,
                      "expires_at": now + 300})  # fmt: skip
    command, *rest = words
    line = [command, "--db", path, *schema_options(name), *rest, "rules",
            *(["after"] if command == "title" else [])]  # fmt: skip
    assert run(*line).status != 0
    assert ask(path, "SELECT title FROM sessions WHERE id = 'rules'") == [("before",)]
    ask(path, f"UPDATE {table} SET expires_at = ?", now - 1)
    run(*line).ok()
    assert ask(path, "SELECT title FROM sessions WHERE id = 'rules'") != [("before",)]


@newest
def test_a_turn_holds_the_whole_lineage(run: Run, store: Store, name: str) -> None:
    path = store(name)
    put(path, "session_turn_leases", {
        "conversation_id": stores.ROOT, "holder": "pid=1", "acquired_at": time.time(),
        "expires_at": time.time() + 300})  # fmt: skip
    assert run("delete", "--db", path, *schema_options(name), "--yes", "--segment",
               stores.TIP).status != 0  # fmt: skip
    assert ask(path, "SELECT 1 FROM sessions WHERE id = ?", stores.TIP) == [(1,)]
