"""hermes-session-check: every kind of fault is found, and nothing else."""

import json
import shutil
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

import pytest
import stores
from conftest import SHIPPED
from test_backup import damage

ALL = [*SHIPPED, *stores.NAMES]


def kinds(found: list[dict[str, object]], *severities: str) -> set[object]:
    return {one["kind"] for one in found if not severities or one["severity"] in severities}


def change(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        for sql in statements:
            db.execute(sql)


@pytest.fixture
def found(run):
    """Kinds of faults in a store, and what was said of one kind."""

    def look(path: Path, status: int, *options: str) -> dict[str, list[dict[str, object]]]:
        before = path.read_bytes()
        result = run("check", "--db", path, *options).gave(status)
        assert path.read_bytes() == before, "a check changes nothing"
        sorted_: dict[str, list[dict[str, object]]] = {}
        for one in result.records:
            assert list(one) == ["object", "kind", "severity", "detail", "advice", "session_id",
                                 "count"]  # fmt: skip
            sorted_.setdefault(str(one["kind"]), []).append(one)
        return sorted_

    return look


@pytest.mark.parametrize("quick", [False, True])
@pytest.mark.parametrize("name", ALL)
def test_a_sound_store_has_no_errors(name: str, quick: bool, run, store) -> None:
    path = store(name)
    before = path.read_bytes()
    result = run("check", "--db", path, *(["--quick"] if quick else [])).ok()
    assert "error" not in {one["severity"] for one in result.records}
    assert path.read_bytes() == before


@pytest.mark.parametrize("name", ["rungraph", "rungraph-legacy", "home-0.13", "home-0.19"])
def test_larger_ones(name: str, found, store) -> None:
    found(store(name), 0)


def test_nothing_is_merged_from_the_log(run, store) -> None:
    path = store("v22")
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("PRAGMA wal_autocheckpoint = 0")
        db.execute("UPDATE messages SET content = content || ' more'")
        crashed = path.parent.parent / "crashed"
        shutil.copytree(path.parent, crashed)
    before = [(crashed / name).read_bytes() for name in ("state.db", "state.db-wal")]
    run.process("check", "--db", crashed / "state.db").ok()
    assert [(crashed / name).read_bytes() for name in ("state.db", "state.db-wal")] == before


def test_statuses(run, store, tmp_path: Path) -> None:
    path = store("v19")
    change(path, "UPDATE sessions SET message_count = 99")
    run("check", "--db", path).gave(0)
    run("check", "--db", path, "--fail-on", "warning").gave(1)
    assert run("check", "--db", path, "-q", "--fail-on", "warning").gave(1).stdout == b""
    run("check", "--db", tmp_path / "nothing.db").gave(66)


@pytest.mark.parametrize("content", [b"", b"\0" * 40960, b"some text\n" * 100])
def test_b148_what_is_no_store(content: bytes, run, tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    path.write_bytes(content)
    result = run("check", "--db", path).gave(65)
    assert len(result.stderr.splitlines()) == 1 and not result.stdout
    assert path.read_bytes() == content
    assert run("check", "--db", path, "-f", "nagios").gave(3).text.startswith("HERMES UNKNOWN")


def test_b148_half_a_file(found, store) -> None:
    path = store("v19")
    change(path, "PRAGMA journal_mode = DELETE")
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    faults = found(path, 1)
    assert "truncated" in faults
    assert "--salvage" in str(faults["truncated"][0]["advice"])


def test_damage_is_told_apart_by_object(found, store) -> None:
    for table, kind, thing in (
        ("messages", "page_damaged", "table messages"),
        ("idx_messages_session", "index_damaged", "messages"),
        ("messages_fts_data", "words_damaged", "messages_fts"),
    ):
        path = store("v19")
        damage(path, table)
        faults = found(path, 1)
        assert kind in faults, (table, faults)
        assert thing in str(faults[kind][0]["object"])
        if table != "messages":
            assert "page_damaged" not in faults


def test_b142_the_schema_lists_an_index_twice(found, store) -> None:
    path = store("v19")
    change(
        path, "PRAGMA writable_schema = ON",
        "INSERT INTO sqlite_master SELECT type, name, tbl_name, rootpage, sql FROM sqlite_master "
        "WHERE name = 'messages_fts'",
    )  # fmt: skip
    faults = found(path, 1)
    assert "readable" in str(faults["object_doubled"][0]["detail"])
    assert faults["object_doubled"][0]["object"] == "table messages_fts"


def test_b144_a_trigger_outlived_its_index(found, store) -> None:
    path = store("v19")
    change(path, "DROP TABLE messages_fts_trigram")
    faults = found(path, 1)
    assert len(faults["trigger_dangling"]) == 3
    assert "every new message fails" in str(faults["trigger_dangling"][0]["detail"])
    assert faults["write_fails"]


def test_b145_a_trigger_nobody_knows(found, store) -> None:
    path = store("v19")
    change(
        path, "CREATE TRIGGER mine AFTER INSERT ON messages BEGIN "
        "INSERT INTO messages_fts(rowid, content) VALUES (new.id + 1000000, 'x'); END",
    )  # fmt: skip
    faults = found(path, 0)
    assert faults["trigger_unknown"][0]["object"] == "trigger mine"
    assert "mine" in str(faults["trigger_doubled"][0]["detail"])


def test_b149_marked_content_in_the_trigram_index(found, store) -> None:
    """Whether SQLite's verdict is good or bad depends on its version; it is never the rows'."""
    path = store("v11")
    change(path, "UPDATE messages SET content = char(0) || 'json:[\"structured\"]' WHERE id < 5")
    result = found(path, 0) if sqlite3.sqlite_version_info < (3, 48) else None
    for fault in (result or {}).get("words_damaged", []):
        assert "index" in str(fault["object"]) and "SQLite" in str(fault["detail"])


@pytest.mark.parametrize("name", ["v5", "v19", "head-1", "head-3"])
def test_index_rows_and_messages_that_lack_each_other(name: str, found, store) -> None:
    path = store(name)
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        triggers = db.execute(
            "SELECT name, sql FROM sqlite_master WHERE type = 'trigger' AND name LIKE '%fts%'"
        ).fetchall()
        for trigger, _ in triggers:
            db.execute(f"DROP TRIGGER {trigger}")
        db.execute("PRAGMA foreign_keys = OFF")
        last = db.execute("SELECT max(id) FROM messages WHERE role = 'user'").fetchone()[0]
        db.execute("DELETE FROM messages WHERE id = ?", (last,))
        db.execute(
            "INSERT INTO messages (session_id, role, content, timestamp) "
            "SELECT id, 'user', 'unindexed words', 1.7e9 FROM sessions WHERE source = 'cli' LIMIT 1"
        )
        for _, sql in triggers:
            db.execute(sql)
    faults = found(path, 1)
    assert {one["object"] for one in faults["rows_unindexed"]} >= {"index messages_fts"}
    assert {one["object"] for one in faults["rows_leftover"]} >= {"index messages_fts"}
    assert "match_fails" in faults


def test_a_missing_trigger(found, store) -> None:
    path = store("v19")
    change(path, "DROP TRIGGER messages_fts_insert")
    assert "messages_fts_insert" in str(found(path, 1)["trigger_missing"][0]["detail"])


def test_words_that_are_not_the_messages(found, store) -> None:
    path = store("v19")
    change(path, "UPDATE messages_fts SET content = 'something else' WHERE rowid = 3")
    assert found(path, 1)["rows_outdated"][0]["count"] == 1


def test_an_index_that_disagrees_with_its_source(found, store) -> None:
    path = store("head-3")
    change(path, "UPDATE sessions SET source = 'cron' WHERE source = 'telegram'")
    faults = found(path, 1)
    assert {one["object"] for one in faults["words_damaged"]} == {"index messages_fts_trigram"}


def test_b83_b53_orphans_and_lost_parents(found, store) -> None:
    path = store("v19")
    change(path, "DELETE FROM sessions WHERE id = '20260226_090000_00aa11'")
    faults = found(path, 0)
    assert [one["session_id"] for one in faults["orphans"]] == ["20260226_090000_00aa11"]
    assert faults["orphans"][0]["count"]
    assert [one["kind"] for one in faults["parent_missing"]] == ["parent_missing"]


def test_a_cycle_of_parents(found, store) -> None:
    path = store("v19")
    change(
        path, "UPDATE sessions SET parent_session_id = '20260226_150000_00cc33' "
        "WHERE id = '20260226_090000_00aa11'",
    )  # fmt: skip
    (fault,) = found(path, 0)["parent_cycle"]
    assert fault["count"] == 3


def test_b55_counters(found, store) -> None:
    path = store("v22")
    change(path, "UPDATE sessions SET message_count = 99 WHERE id = '20260225_101500_a1b2c3'")
    (fault,) = found(path, 0)["counter_drift"]
    assert fault["session_id"] == "20260225_101500_a1b2c3" and "says 99" in str(fault["detail"])


def test_titles_twice(found, store) -> None:
    path = store("v19")
    change(path, "DROP INDEX idx_sessions_title_unique", "UPDATE sessions SET title = 'same'")
    (fault,) = found(path, 0)["title_doubled"]
    assert "'same'" in str(fault["detail"])


def test_b164_b165_times_that_are_none(found, store) -> None:
    path = store("v19")
    change(
        path, "PRAGMA writable_schema = ON",
        "UPDATE sqlite_master SET sql = replace(sql, 'started_at REAL NOT NULL', "
        "'started_at REAL') WHERE name = 'sessions'",
    )  # fmt: skip
    change(
        path,
        "UPDATE sessions SET started_at = started_at * 1000 WHERE rowid = 1",
        "UPDATE sessions SET started_at = 0 WHERE rowid = 2",
        "UPDATE sessions SET started_at = NULL WHERE rowid = 3",
        "UPDATE messages SET timestamp = 'noon' WHERE id = 1",
        "UPDATE messages SET timestamp = 1e300 WHERE id = 2",
    )
    said = " ".join(str(one["detail"]) for one in found(path, 0)["time_broken"])
    for word in ("milliseconds", "zero", "NULL", "text", "absurd"):
        assert word in said


def test_b129_rows_of_a_flush_done_twice(found, store) -> None:
    path = store("v19")
    change(
        path, "INSERT INTO messages (session_id, role, content, timestamp) "
        "SELECT session_id, role, content, timestamp + 0.02 FROM messages "
        "WHERE role = 'user' ORDER BY id LIMIT 2",
        "UPDATE sessions SET message_count = message_count + 2 WHERE id IN "
        "(SELECT session_id FROM messages WHERE id = 1)",
    )  # fmt: skip
    assert sum(int(str(one["count"])) for one in found(path, 0)["rows_doubled"]) == 2
    assert "rows_doubled" not in found(store("v19"), 0)


def test_broken_json(found, store) -> None:
    path = store("v19")
    change(
        path, "UPDATE messages SET tool_calls = '[{broken' WHERE id = 1",
        "UPDATE messages SET content = char(0) || 'json:{' WHERE id = 2",
        "UPDATE sessions SET model_config = '{' WHERE rowid = 1",
    )  # fmt: skip
    said = {(one["object"], str(one["detail"]).split(": ")[1].split()[0])
            for one in found(path, 0)["json_broken"]}  # fmt: skip
    assert {("table messages", "tool_calls"), ("table messages", "content"),
            ("table sessions", "model_config")} <= said  # fmt: skip


@pytest.mark.parametrize("statement", ["DELETE FROM schema_version",
                                       "INSERT INTO schema_version VALUES (3)",
                                       "UPDATE schema_version SET version = 5",
                                       "UPDATE schema_version SET version = 'x'"])  # fmt: skip
def test_b152_version_oddities(statement: str, found, store) -> None:
    path = store("v19")
    change(path, statement)
    assert "version_odd" in found(path, 0)


def test_handoffs_that_are_stuck_and_sessions_never_ended(found, store) -> None:
    faults = found(store("v19"), 0)
    assert len(faults["handoff_stuck"]) == 2
    assert faults["idle_open"][0]["severity"] == "note"


def test_routes(found, home) -> None:
    place = home("v19")
    (place / "sessions").mkdir()
    (place / "sessions" / "sessions.json").write_text(json.dumps({
        "_README": "no entry", "agent:main:telegram:dm:1": {"session_id": "nobody"},
    }))  # fmt: skip
    (fault,) = found(place / "state.db", 0)["route_missing"]
    assert "agent:main:telegram:dm:1" in str(fault["detail"])


def test_transcripts(found, home) -> None:
    place = home("v19")
    folder = place / "sessions"
    folder.mkdir()
    line = json.dumps({"role": "user", "content": "hello"}) + "\n"
    (folder / "20260225_101500_a1b2c3.jsonl").write_text(line)
    (folder / "20260225_101500_nobody.jsonl").write_text(line)
    (folder / "session_20260227_080000_deadbe01.json").write_text(
        json.dumps({"messages": [{"role": "user"}] * 100})
    )
    faults = found(place / "state.db", 0)
    assert faults["transcripts_stored"][0]["count"] == 1
    assert faults["transcripts_missing"][0]["count"] == 2, "one holds more than the store"
    assert "hermes-session-import" in str(faults["transcripts_missing"][0]["advice"])


def test_modes(found, store) -> None:
    path = store("v19")
    path.chmod(0o644)
    assert found(path, 0)["mode"][0]["advice"] == f"chmod 600 {path}"
    for place in path.parent.iterdir():
        place.chmod(0o600)
    assert "mode" not in found(path, 0)


def test_a_busy_store_is_still_looked_at(run, store) -> None:
    path = store("v19")
    with closing(sqlite3.connect(path, isolation_level=None)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        result = run.process("check", "--db", path, "--timeout", 1).ok()
        assert "probe_skipped" in kinds(result.records, "note")
        assert "probe_skipped" not in kinds(
            run.process("check", "--db", path, "--quick").ok().records
        )


def test_a_store_that_may_not_be_written(run, store, unprivileged) -> None:
    path = store("delete")
    path.chmod(0o444)
    result = run.process("check", "--db", path, prefix=unprivileged).ok()
    assert "probe_skipped" in kinds(result.records, "note")


def test_nagios(run, store) -> None:
    path = store("v19")
    path.chmod(0o600)
    change(path, "UPDATE sessions SET handoff_state = NULL")
    healthy = run("check", "--db", path, "-f", "nagios")
    assert healthy.status == 0 and healthy.text.startswith("HERMES OK - ")
    assert len(healthy.lines) == 1 and "errors=0" in healthy.text.split("|")[1]
    change(path, "UPDATE sessions SET message_count = 99 WHERE rowid = 1")
    assert run("check", "--db", path, "-f", "nagios").gave(1).text.startswith("HERMES WARNING")
    change(path, "DROP TRIGGER messages_fts_insert")
    assert run("check", "--db", path, "-f", "nagios").gave(2).text.startswith("HERMES CRITICAL")


def test_a_person_sees_errors_first_and_a_sum(run, store) -> None:
    path = store("v19")
    change(path, "DROP TRIGGER messages_fts_insert")
    seen = run("check", "--db", path, "-t").gave(1).lines
    assert seen[0].startswith("error")
    assert "1 error" in seen[-1] and sqlite3.sqlite_version in seen[-1]


def test_another_program_may_read_and_write_beside(run, store) -> None:
    """The write lock is short: a second writer gets its turn while a check is under way."""
    path = store("v19")
    writer = subprocess.Popen(
        ["python3", "-c", "import sqlite3, sys, time\n"
         "db = sqlite3.connect(sys.argv[1], timeout=5, isolation_level=None)\n"
         "for _ in range(30):\n"
         "    db.execute('UPDATE sessions SET message_count = message_count')\n"
         "    time.sleep(0.02)\n", str(path)],
    )  # fmt: skip
    for _ in range(3):
        run.process("check", "--db", path).ok()
    assert writer.wait(60) == 0
