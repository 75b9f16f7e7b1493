"""SessionDB: the documented Python interface. test_differential.py compares it with the agent's."""

import doctest
import inspect
import json
import os
import shutil
import sqlite3
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
import stores

import hermes_tools.sessiondb as module
from hermes_tools import SessionDB
from hermes_tools.store import opening

ONE = "20260301_120000_abc123"


@pytest.fixture
def db(tmp_path: Path) -> Iterator[SessionDB]:
    """A new store with one session, `a`."""
    with SessionDB(db_path=tmp_path / "home" / "state.db") as found:
        found.create_session("a", "cli")
        yield found


def sql(path: Path, text: str, *values: object) -> list[tuple[object, ...]]:
    """What another program sees, or does."""
    with closing(sqlite3.connect(path)) as other, other:
        return other.execute(text, values).fetchall()


def sound(path: Path) -> None:
    """No dangling reference, and both indexes agree with the messages."""
    with closing(sqlite3.connect(path)) as other:
        assert other.execute("PRAGMA foreign_key_check").fetchall() == []
        for index in ("messages_fts", "messages_fts_trigram"):
            other.execute(f"INSERT INTO {index}({index}) VALUES ('integrity-check')")
        ids = [row[0] for row in other.execute("SELECT id FROM messages ORDER BY id")]
        assert ids == [r[0] for r in other.execute("SELECT rowid FROM messages_fts ORDER BY 1")]


PUBLIC = sorted(name for name in vars(SessionDB) if not name.startswith("_") and name.islower())


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_method_is_documented_and_its_example_holds(name: str, tmp_path: Path) -> None:
    text = inspect.getdoc(getattr(SessionDB, name)) or ""
    assert text
    if name in ("close",):
        return
    assert ">>> " in text, f"{name} has no example"
    with SessionDB(db_path=tmp_path / "state.db") as db:
        db.create_session(ONE, "cli", model="some-model")
        db.append_message(ONE, "user", "good morning")
        if name != "set_session_title":
            db.set_session_title(ONE, "garden plan")
        example = doctest.DocTestParser().get_doctest(
            text, {"db": db, "SessionDB": SessionDB}, name, None, 0
        )
        said: list[str] = []
        doctest.DocTestRunner().run(example, out=said.append)
        assert not said, "".join(said)


def test_scripts_do_not_pay_for_it() -> None:
    code = "import sys, hermes_tools; print('hermes_tools.sessiondb' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert done.stdout.strip() == b"False"


def test_the_default_is_the_home(safe_home: Path) -> None:
    with SessionDB() as db:
        assert db.db_path == safe_home / ".hermes" / "state.db"
        assert db.session_count() == 0
    assert stat.S_IMODE(os.stat(db.db_path).st_mode) == 0o600
    assert stat.S_IMODE(os.stat(db.db_path.parent).st_mode) == 0o700


def test_a_new_store_is_version_11_in_wal_mode(db: SessionDB) -> None:
    assert sql(db.db_path, "SELECT version FROM schema_version") == [(11,)]
    assert sql(db.db_path, "PRAGMA journal_mode") == [("wal",)]


def test_an_empty_file_becomes_a_store(tmp_path: Path) -> None:
    (tmp_path / "state.db").touch()
    with SessionDB(tmp_path / "state.db") as db:
        db.create_session("a", "cli")
        assert db.session_count() == 1


def test_a_database_without_tables_becomes_a_store(tmp_path: Path) -> None:
    sql(tmp_path / "state.db", "PRAGMA journal_mode = wal")
    with SessionDB(tmp_path / "state.db") as db:
        assert db.session_count() == 0


@pytest.mark.parametrize("version", range(1, 11))
def test_an_old_store_is_migrated_on_open(version: int, store: Callable[[str], Path]) -> None:
    path = store(f"v{version}")
    before = sql(path, "SELECT id, content FROM messages ORDER BY id")
    with SessionDB(path) as db:
        assert sql(path, "SELECT version FROM schema_version") == [(11,)]
        assert sql(path, "SELECT id, content FROM messages ORDER BY id") == before
        assert db.append_message(stores.TIP, "user", "after the move", reasoning_content="x")
        assert db.search_messages("move")[0]["session_id"] == stores.TIP
    sound(path)


LATER = ("v13", "v16", "v22", "head-0", "head-1", "head-3", "head-cjk", "v99")


@pytest.mark.parametrize("name", LATER)
def test_a_later_store_is_taken_as_it_is(name: str, store: Callable[[str], Path]) -> None:
    path = store(name)
    schema = "SELECT type, name, sql FROM sqlite_master ORDER BY type, name"
    before = sql(path, schema), sql(path, "SELECT * FROM schema_version")
    with SessionDB(path) as db:
        assert db.list_sessions_rich()
        assert db.search_messages("the") is not None
        db.create_session("new", "cli")
        if name == "head-cjk":
            with pytest.raises(sqlite3.OperationalError, match="tokenizer"):
                db.append_message("new", "user", "kangaroo")
        else:
            newest = db.append_message("new", "user", "kangaroo")
            assert sql(path, "SELECT max(id) FROM messages") == [(newest,)]
            assert [one["session_id"] for one in db.search_messages("kangaroo")] == ["new"]
            assert db.delete_session("new")
            assert db.search_messages("kangaroo") == []
    assert (sql(path, schema), sql(path, "SELECT * FROM schema_version")) == before


def test_rewound_messages_are_no_part_of_a_transcript(store: Callable[[str], Path]) -> None:
    path = store("v22")
    session_id, rewound = sql(
        path, "SELECT session_id, count(*) FROM messages WHERE active = 0 AND compacted = 0"
    )[0]
    stored = sql(path, "SELECT count(*) FROM messages WHERE session_id = ?", session_id)[0][0]
    with SessionDB(path) as db:
        assert rewound and len(db.get_messages(str(session_id))) == stored - rewound  # type: ignore[operator]
        assert db.message_count(str(session_id)) == stored - rewound  # type: ignore[operator]


def test_a_rollback_journal_store_of_a_newer_release_keeps_its_mode(
    store: Callable[[str], Path],
) -> None:
    path = store("delete")
    sql(path, "PRAGMA application_id = 77")
    with SessionDB(path) as db:
        db.create_session("new", "cli")
    assert sql(path, "PRAGMA journal_mode") == [("delete",)]


def test_without_wal_it_works_all_the_same(
    store: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = store("v11")
    sql(path, "PRAGMA journal_mode = delete")
    monkeypatch.setattr(opening, "LOCK_WAIT", 0.01)
    with closing(sqlite3.connect(path)) as other:
        other.execute("BEGIN")
        other.execute("SELECT * FROM sessions").fetchone()  # WAL cannot be entered while one reads
        with SessionDB(path) as db:
            assert db.session_count() > 0
        other.execute("ROLLBACK")
    with SessionDB(path) as db:
        db.create_session("new", "cli")
    assert sql(path, "PRAGMA journal_mode") == [("wal",)]


def test_what_is_no_store_is_refused_as_sqlite_would(tmp_path: Path) -> None:
    with pytest.raises(sqlite3.OperationalError):
        SessionDB(tmp_path)
    (tmp_path / "text.db").write_text("hello " * 1000)
    with pytest.raises(sqlite3.DatabaseError):
        SessionDB(tmp_path / "text.db")
    assert (tmp_path / "text.db").read_text() == "hello " * 1000


def test_closed_it_says_so(db: SessionDB) -> None:
    db.close()
    db.close()
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        db.get_session("a")


# Writing.


def test_counters_and_decoding(db: SessionDB) -> None:
    calls = [{"id": "c1", "function": {"name": "f", "arguments": "{}"}}, {"id": "c2"}]
    parts = [{"type": "text", "text": "Grüße"}, {"type": "image_url", "image_url": {"url": "x"}}]
    assert db.append_message("a", "user", parts) == 1
    assert db.append_message("a", "assistant", None, tool_calls=calls, reasoning="hm") == 2
    assert db.append_message("a", "tool", "done", "f", None, "c1") == 3
    stored = sql(db.db_path, "SELECT content, tool_calls FROM messages ORDER BY id")
    assert stored[0][0] == "\0json:" + json.dumps(parts)
    assert stored[1] == (None, json.dumps(calls))
    one = db.get_session("a")
    assert one and (one["message_count"], one["tool_call_count"]) == (3, 2)
    assert db.get_messages("a")[0]["content"] == parts
    assert db.get_messages_as_conversation("a") == [
        {"role": "user", "content": parts},
        {"role": "assistant", "content": None, "tool_calls": calls, "reasoning": "hm"},
        {"role": "tool", "content": "done", "tool_call_id": "c1", "tool_name": "f"},
    ]
    sound(db.db_path)


def test_replacing_is_whole_or_not_at_all(db: SessionDB) -> None:
    db.append_message("a", "user", "kept")
    with pytest.raises(sqlite3.IntegrityError):
        db.replace_messages("a", [{"role": "user", "content": "new"}, {"role": None}])
    assert [one["content"] for one in db.get_messages("a")] == ["kept"]
    db.replace_messages("a", [{"role": "user", "content": "1"}, {"role": "user", "content": "2"}])
    first, second = (one["timestamp"] for one in db.get_messages("a"))
    assert 0 < second - first < 1e-5
    sound(db.db_path)


def test_unknown_sessions_and_parents_are_integrity_errors(db: SessionDB) -> None:
    with pytest.raises(sqlite3.IntegrityError):
        db.append_message("nobody", "user", "x")
    with pytest.raises(sqlite3.IntegrityError):
        db.create_session("b", "cli", parent_session_id="nobody")
    with pytest.raises(TypeError):
        db.create_session("b", "cli", colour="red")
    assert db.session_count() == 1


def test_the_first_end_stands(db: SessionDB) -> None:
    db.end_session("a", "done")
    db.end_session("a", "later")
    one = db.get_session("a")
    assert one and one["end_reason"] == "done"
    db.reopen_session("a")
    one = db.get_session("a")
    assert one and one["ended_at"] is None and one["end_reason"] is None


def test_tokens_add_up_and_billing_keeps_its_first_value(db: SessionDB) -> None:
    for status in ("estimated", "final"):
        db.update_token_counts(
            "a", 10, 5, status, estimated_cost_usd=0.5, cost_status=status, billing_provider=status
        )
    db.update_token_counts("a", actual_cost_usd=0.25)
    one = db.get_session("a")
    assert one and (one["input_tokens"], one["output_tokens"]) == (20, 10)
    assert one["model"] == "estimated"
    assert (one["estimated_cost_usd"], one["actual_cost_usd"]) == (1.0, 0.25)
    assert (one["cost_status"], one["billing_provider"]) == ("final", "estimated")
    db.update_token_counts("a", 3, absolute=True)
    one = db.get_session("a")
    assert one and (one["input_tokens"], one["actual_cost_usd"]) == (3, 0.25)


def test_a_title_has_one_holder(db: SessionDB) -> None:
    db.create_session("b", "cli")
    assert db.set_session_title("a", " garden\n plan ")
    with pytest.raises(ValueError, match="session a"):
        db.set_session_title("b", "garden plan")
    assert db.set_session_title("b", db.get_next_title_in_lineage("garden plan"))
    assert db.get_session_title("b") == "garden plan #2"
    assert db.resolve_session_by_title("garden plan") == "b"
    assert db.set_session_title("nobody", "x") is False
    with pytest.raises(ValueError, match="100"):
        db.set_session_title("a", "x" * 101)


def test_b62_numbers_count_by_value(db: SessionDB) -> None:
    for number, name in enumerate(("proj", "proj #9", "proj #10")):
        db.create_session(str(number), "cli")
        db.set_session_title(str(number), name)
    assert db.get_next_title_in_lineage("proj #2") == "proj #11"


def test_removal_takes_messages_index_and_files(db: SessionDB, tmp_path: Path) -> None:
    files = tmp_path / "sessions"
    files.mkdir()
    gone = ("a.json", "a.jsonl", "request_dump_a_1.json")
    kept = ("ab.json", "request_dump_ab_1.json", "b.json")
    for name in (*gone, *kept):
        (files / name).touch()
    db.create_session("b", "cli", parent_session_id="a")
    db.append_message("a", "user", "walrus")
    assert db.delete_session("a", files) is True
    assert db.delete_session("a", files) is False
    assert sorted(path.name for path in files.iterdir()) == sorted(kept)
    child = db.get_session("b")
    assert child and child["parent_session_id"] is None
    assert db.search_messages("walrus") == []
    sound(db.db_path)


@pytest.mark.parametrize("name", ["../b", "..", "", "[ab]"])
def test_an_id_that_is_no_file_name_removes_no_file(
    name: str, db: SessionDB, tmp_path: Path
) -> None:
    (tmp_path / "sessions").mkdir()
    for file in (tmp_path / "b.json", tmp_path / "sessions" / "request_dump_a_1.json"):
        file.touch()
    db.create_session(name, "cli")
    assert db.delete_session(name, tmp_path / "sessions")
    assert (tmp_path / "b.json").exists()
    assert (tmp_path / "sessions" / "request_dump_a_1.json").exists()


def test_prune_goes_by_start_and_spares_the_open(
    db: SessionDB, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = module.time.time()
    for days in (1, 89, 91):
        for name in ("ended", "open"):
            with monkeypatch.context() as past:
                past.setattr(module.time, "time", partial(float, now - days * 86400))
                db.create_session(f"{name}{days}", "cli")
            db.append_message(f"{name}{days}", "user", "active a moment ago")
            if name == "ended":
                db.end_session(f"{name}{days}", "done")
    monkeypatch.setattr(module, "BATCH", 0.0)  # one session a transaction
    assert db.prune_sessions() == 1
    assert db.get_session("ended91") is None
    assert db.session_count() == 6
    assert db.prune_sessions(older_than_days=-1) == 2
    sound(db.db_path)


def test_b88_a_ghost_with_a_child_goes_and_the_child_stays(
    db: SessionDB, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = module.time.time()
    with monkeypatch.context() as past:
        past.setattr(module.time, "time", lambda: now - 2 * 86400)
        for number in range(10):
            db.create_session(f"ghost{number}", "tui")
    db.create_session("child", "cli", parent_session_id="ghost3")
    for number in range(10):
        db.end_session(f"ghost{number}", "done")
    assert db.prune_empty_ghost_sessions() == 10
    child = db.get_session("child")
    assert child and child["parent_session_id"] is None


def test_upkeep_runs_once_a_day(db: SessionDB, monkeypatch: pytest.MonkeyPatch) -> None:
    now = module.time.time()
    with monkeypatch.context() as past:
        past.setattr(module.time, "time", lambda: now - 100 * 86400)
        db.create_session("old", "cli")
    db.end_session("old", "done")
    assert db.maybe_auto_prune_and_vacuum() == {"skipped": False, "pruned": 1, "vacuumed": True}
    assert db.maybe_auto_prune_and_vacuum() == {"skipped": True, "pruned": 0, "vacuumed": False}
    assert float(db.get_meta("last_auto_prune") or 0) >= now
    failed = db.maybe_auto_prune_and_vacuum("soon", min_interval_hours=0)  # type: ignore[arg-type]
    assert failed["error"] and failed["pruned"] == 0


# Lists and search.


def test_a_compressed_conversation_is_one_row(store: Callable[[str], Path]) -> None:
    with SessionDB(store("v11")) as db:
        root = "20260226_090000_00aa11"
        found = {one["id"]: one for one in db.list_sessions_rich(limit=100)}
        tip = db.get_compression_tip(root)
        assert tip == "20260226_150000_00cc33"
        assert root not in found and found[tip]["_lineage_root_id"] == root
        assert found[tip]["title"] == "garden plan #3"
        start = db.get_session(root)
        assert start and found[tip]["started_at"] == start["started_at"]
        whole = db.get_messages_as_conversation(tip, include_ancestors=True)
        assert len(whole) > len(db.get_messages_as_conversation(tip))


def test_searching(db: SessionDB) -> None:
    for text in ("alpha beta", "今天的备份任务失败了", "周五 上线", "他们周五上线了"):
        db.append_message("a", "user", text)
    (hit,) = db.search_messages("alpha")
    assert hit["snippet"].startswith(">>>alpha<<< beta")
    assert [one["content"] for one in hit["context"]] == ["alpha beta", "今天的备份任务失败了"]
    assert [one["id"] for one in db.search_messages("备份任务")] == [2]
    assert [one["id"] for one in db.search_messages("周五")] == [4, 3]
    assert db.search_messages("alpha", exclude_sources=["cli"]) == []
    for broken in ('"', "AND", "*", "(", "NEAR(", "{content}:"):
        assert db.search_messages(broken) == []


# The tool.


def test_discover_scroll_and_browse(store: Callable[[str], Path]) -> None:
    with SessionDB(store("v22")) as db:
        found = db.search("garden", limit=2)
        assert (found["success"], found["mode"], found["query"]) == (True, "discover", "garden")
        assert found["count"] == len(found["results"]) > 0
        first = found["results"][0]
        seen = db.search(
            session_id=first["session_id"], around_message_id=first["match_message_id"], window=2
        )
        assert (seen["mode"], seen["window"]) == ("scroll", 2)
        (anchor,) = (one for one in seen["messages"] if one.get("anchor"))
        assert anchor["id"] == first["match_message_id"]
        assert len(seen["messages"]) == seen["messages_before"] + 1 + seen["messages_after"]
        assert set(seen["session_meta"]) == {"when", "source", "model", "title"}
        recent = db.search()
        assert (recent["mode"], recent["count"]) == ("browse", 3)
        assert recent["results"][0]["last_active"] >= recent["results"][1]["last_active"]
        json.dumps([found, seen, recent])


def test_the_callers_own_conversation_is_left_out(store: Callable[[str], Path]) -> None:
    tip, root = "20260226_150000_00cc33", "20260226_090000_00aa11"
    with SessionDB(store("v22")) as db:
        roots = [one["lineage_root_id"] for one in db.search("garden", limit=10)["results"]]
        assert root in roots
        left = db.search("garden", limit=10, current_session_id=tip)["results"]
        assert [one["lineage_root_id"] for one in left] == [one for one in roots if one != root]
        browsed = db.search(limit=10, current_session_id=root)["results"]
        assert browsed and root not in [one["lineage_root_id"] for one in browsed]
        (message,) = sql(db.db_path, "SELECT min(id) FROM messages WHERE session_id = ?", tip)[0]
        own = db.search(
            session_id=tip, around_message_id=int(str(message)), current_session_id=root
        )
        assert own["success"] is False and own["error"]


def test_b42_an_anchor_of_the_same_conversation_is_rebound(store: Callable[[str], Path]) -> None:
    tip, root = "20260226_150000_00cc33", "20260226_090000_00aa11"
    with SessionDB(store("v22")) as db:
        (message,) = sql(db.db_path, "SELECT min(id) FROM messages WHERE session_id = ?", root)[0]
        seen = db.search(session_id=tip, around_message_id=int(str(message)))
        assert seen["session_id"] == root and root in seen["warning"]


def test_what_a_model_asks_wrongly_is_answered(db: SessionDB) -> None:
    db.append_message("a", "user", "good morning")
    nothing = db.search("walrus")
    assert (nothing["success"], nothing["count"]) == (True, 0) and nothing["message"]
    for asked in (
        {"query": "--"}, {"query": "morning", "sort": "best"}, {"session_id": "a"},
        {"around_message_id": 1}, {"session_id": "nobody", "around_message_id": 1},
        {"session_id": "a", "around_message_id": 99}, {"session_id": "a", "around_message_id": "x"},
        {"query": "morning", "limit": "many"},
    ):  # fmt: skip
        refused = db.search(**asked)  # type: ignore[arg-type]
        assert refused["success"] is False and refused["error"], asked
    assert db.search("morning", limit=99, role_filter=["tool"])["count"] == 0
    assert db.search("morning", limit="1", role_filter="user, tool")["count"] == 1  # type: ignore[arg-type]
    assert db.search("   ")["mode"] == "browse"


def test_the_schema_describes_the_arguments() -> None:
    described = SessionDB.tool_schema()["parameters"]["properties"]
    taken = list(inspect.signature(SessionDB.search).parameters)
    assert list(described) == [one for one in taken if one not in ("self", "current_session_id")]
    described.clear()
    assert SessionDB.tool_schema()["parameters"]["properties"]


# Threads and other processes.


def test_many_readers_and_a_writer(db: SessionDB) -> None:
    seen: list[int] = []
    failed: list[BaseException] = []

    def read() -> None:
        try:
            while not seen or seen[-1] < 100:
                seen.append(len(db.get_messages("a")))
                db.list_sessions_rich()
        except BaseException as error:
            failed.append(error)
            seen.append(100)

    readers = [threading.Thread(target=read) for _ in range(4)]
    for thread in readers:
        thread.start()
    for number in range(100):
        db.append_message("a", "user", f"message {number}")
    for thread in readers:
        thread.join(timeout=60)
    assert not failed
    one = db.get_session("a")
    assert one and one["message_count"] == 100


def test_writers_in_several_threads_lose_nothing(db: SessionDB) -> None:
    def write(name: str) -> None:
        for number in range(30):
            db.append_message("a", "user", f"{name} {number}")

    writers = [threading.Thread(target=write, args=(str(index),)) for index in range(4)]
    for thread in writers:
        thread.start()
    for thread in writers:
        thread.join()
    assert len({one["content"] for one in db.get_messages("a")}) == 120
    sound(db.db_path)


def test_b135_a_lock_of_another_is_waited_for_then_named(
    db: SessionDB, monkeypatch: pytest.MonkeyPatch
) -> None:
    db._current().execute("PRAGMA busy_timeout = 10")
    monkeypatch.setattr(module, "JITTER", (0.0, 0.001))
    with closing(sqlite3.connect(db.db_path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        assert db.get_session("a")  # reading is not disturbed
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            db.append_message("a", "user", "x")
        assert db.message_count() == 0
        other.execute("ROLLBACK")
    assert db.append_message("a", "user", "x") == 1


def test_fifteen_tries(db: SessionDB, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(module.time, "sleep", pauses.append)
    db._current().execute("PRAGMA busy_timeout = 0")
    with closing(sqlite3.connect(db.db_path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(sqlite3.OperationalError):
            db.end_session("a", "x")
    ours = [pause for pause in pauses if 0.02 <= pause <= 0.15]
    assert len(pauses) == len(ours) == 14


def test_processes_that_open_a_missing_store_at_once_share_it(tmp_path: Path) -> None:
    path = tmp_path / "new" / "state.db"
    code = (
        "import sys; from hermes_tools import SessionDB; name = sys.argv[2]\n"
        "db = SessionDB(sys.argv[1]); db.create_session(name, 'cli')\n"
        "for _ in range(5): db.append_message(name, 'user', 'x')\n"
    )
    started = [
        subprocess.Popen([sys.executable, "-c", code, str(path), str(number)])
        for number in range(6)
    ]
    assert [one.wait(timeout=120) for one in started] == [0] * 6
    with SessionDB(path) as db:
        assert (db.session_count(), db.message_count()) == (6, 30)
    sound(path)


def test_a_store_that_another_process_upgrades_is_read_anew(
    store: Callable[[str], Path],
) -> None:
    path = store("v13")
    with SessionDB(path) as db:
        session_id = db.list_sessions_rich()[0]["id"]
        count = len(db.get_messages(session_id))
        sql(path, "ALTER TABLE messages ADD COLUMN active INTEGER NOT NULL DEFAULT 1")
        sql(path, "UPDATE messages SET active = 0 WHERE id = "
                  "(SELECT min(id) FROM messages WHERE session_id = ?)", session_id)  # fmt: skip
        assert len(db.get_messages(session_id)) == count - 1


def test_a_checkpoint_every_fifty_writes(db: SessionDB) -> None:
    for number in range(60):
        db.set_meta("n", str(number))
    # a passive checkpoint has carried pages over, so the file alone holds some of them
    copy = db.db_path.with_name("copy.db")
    shutil.copy(db.db_path, copy)
    value = int(str(sql(copy, "SELECT value FROM state_meta WHERE key = 'n'")[0][0]))
    assert 40 <= value < 60


def test_names_arguments_and_defaults_are_the_agents(agent: Callable[[str], Path]) -> None:
    code = (
        "import inspect, json, hermes_state\n"
        "kind = hermes_state.SessionDB\n"
        "print(json.dumps({n: [[p.name, str(p.kind), repr(p.default)] for p in "
        "inspect.signature(f).parameters.values()] for n, f in "
        "inspect.getmembers(kind, callable) if not n.startswith('_')}))"
    )
    python = agent("0.13.0").parent / "python"
    done = subprocess.run([python, "-c", code], capture_output=True, check=True)
    theirs = {n: p for n, p in json.loads(done.stdout).items() if "telegram" not in n}
    for name, parameters in theirs.items():
        ours = [
            [one.name, str(one.kind), repr(one.default)]
            for one in inspect.signature(getattr(SessionDB, name)).parameters.values()
        ]
        assert ours == parameters, name
    assert len(theirs) > 40
