"""hermes-session-delete: what goes, what stays, what is saved first (field cases H)."""

import hashlib
import json
import sqlite3
import stat
from contextlib import closing
from pathlib import Path

import pytest
import stores
from scripts import need

AUTH = "20260225_101500_a1b2c3"
ROOT, MIDDLE, TIP = "20260226_090000_00aa11", "20260226_113000_00bb22", "20260226_150000_00cc33"
DELEGATE = "20260226_151000_00dd44"
CHAT = "20260227_080000_deadbe01"
PENDING = "20260301_100007_pendin"


def ask(path: Path, sql: str, *values: object) -> list[tuple]:
    """Rows of one statement, committed."""
    with closing(sqlite3.connect(path)) as db, db:
        return db.execute(sql, values).fetchall()


def ids(path: Path) -> set[str]:
    """Every session row."""
    return {row[0] for row in ask(path, "SELECT id FROM sessions")}


def sound(path: Path, before: stores.Row) -> None:
    """Nothing but rows has changed, no index and no link is broken, nobody's message is left."""
    assert stores.condition(path) == before
    orphans = "SELECT count(*) FROM messages WHERE session_id NOT IN (SELECT id FROM sessions)"
    assert ask(path, orphans) == [(0,)]
    assert ask(path, "PRAGMA integrity_check") == [("ok",)]


@pytest.mark.parametrize("ref", [ROOT, MIDDLE, TIP, TIP[:18]])
@pytest.mark.parametrize("name", ["v11", "v13", "v14", "v16", "v19", "v22"])
def test_a_conversation_goes_whole(run, store, name: str, ref: str) -> None:
    path = store(name)
    before, others = stores.condition(path), ids(path) - {ROOT, MIDDLE, TIP, DELEGATE}
    (record,) = run("delete", "--db", path, ref, "--yes").ok().records
    assert (record["session_id"], record["action"]) == (TIP, "deleted")
    assert record["session_ids"] == [ROOT, MIDDLE, TIP, DELEGATE] and record["messages"] == 8
    assert ids(path) == others
    sound(path, before)


LAYOUTS = (*(f"v{n}" for n in range(1, 11)), "head-0", "head-1", "head-2", "head-3",
           "head-pending", "head-stale", "nofts", "delete")  # fmt: skip


@pytest.mark.parametrize("name", LAYOUTS)
def test_every_layout_stays_sound(run, store, name: str) -> None:
    path = store(name)
    before, had = stores.condition(path), ids(path)
    result = run("delete", "--db", path, stores.TIP, stores.CJK, "--yes").ok()
    gone = {row for one in result.records for row in one["session_ids"]}
    assert {stores.ROOT, stores.MIDDLE, stores.TIP, stores.CJK} <= gone
    assert ids(path) == had - gone
    sound(path, before)


def test_side_tables_and_prompts_go_what_must_stay_stays(run, store) -> None:
    path = store("head-3")
    prompts = ask(path, "SELECT count(*) FROM system_prompts")
    ask(path, "INSERT INTO system_prompts VALUES ('h1', 'mine'), ('h2', 'tools'), ('h3', 'shared')")
    ask(path, "UPDATE sessions SET system_prompt_hash = 'h1', tool_names = 'h2' WHERE id = ?",
        stores.CJK)  # fmt: skip
    ask(path, "UPDATE sessions SET system_prompt_hash = 'h3' WHERE id = ?", stores.RUSSIAN)
    ask(path, "UPDATE sessions SET tool_names = 'h3' WHERE id = ?", stores.TOOLS)
    ask(path, "INSERT INTO session_model_usage (session_id, model) VALUES (?, 'm')", stores.CJK)
    ask(path, "INSERT INTO state_meta VALUES (?, 'g'), (?, 'l'), ('receipt:' || ?, 'r')",
        f"goal:{stores.CJK}", f"loop:{stores.CJK}", stores.CJK)  # fmt: skip
    ask(path, "INSERT INTO conversation_generations VALUES ('cli', 'k', 7)")
    ask(path, "UPDATE sessions SET session_key = 'k' WHERE id = ?", stores.CJK)
    run("delete", "--db", path, stores.CJK, stores.RUSSIAN, "--yes").ok()
    left = {row[0] for row in ask(path, "SELECT hash FROM system_prompts")}
    assert "h1" not in left and "h2" not in left
    assert "h3" in left, "another session names it in its other column"
    assert len(left) == prompts[0][0] + 1 or prompts == [(0,)]
    assert not ask(path, "SELECT 1 FROM session_model_usage WHERE session_id = ?", stores.CJK)
    assert ask(path, "SELECT key FROM state_meta WHERE key LIKE '%' || ?", stores.CJK) == [
        (f"receipt:{stores.CJK}",)
    ]
    assert (7,) in ask(path, "SELECT generation FROM conversation_generations")


def test_branches_stay_detached(run, store) -> None:
    path = store("v10")
    (record,) = run("delete", "--db", path, stores.ROOT, "--yes").ok().records
    assert stores.BRANCH in ids(path) and record["detached"] == [stores.BRANCH]
    assert ask(path, "SELECT parent_session_id FROM sessions WHERE id = ?", stores.BRANCH) == [
        (None,)
    ]


def test_segment(run, store) -> None:
    path = store("v22")
    before = stores.condition(path)
    result = run("delete", "--db", path, MIDDLE, "--segment", "--yes").ok()
    assert result.records[0]["session_ids"] == [MIDDLE]
    assert "2 other segments" in result.stderr
    assert {ROOT, TIP, DELEGATE} <= ids(path) and MIDDLE not in ids(path)
    sound(path, before)


def test_b51_a_delegate_left_behind_stays_internal(run, store) -> None:
    path = store("v22")
    run("delete", "--db", path, TIP, "--segment", "--yes").ok()
    assert DELEGATE in ids(path)
    assert DELEGATE not in run("list", "--db", path).ok().ids


def test_messages_only(run, store) -> None:
    path = store("v22")
    before = stores.condition(path)
    (record,) = run("delete", "--db", path, AUTH, "--messages-only", "--yes").ok().records
    assert (record["action"], record["messages"], record["message_count"]) == ("cleared", 6, 0)
    assert AUTH in ids(path)
    assert ask(path, "SELECT count(*) FROM messages WHERE session_id = ?", AUTH) == [(0,)]
    assert ask(path, "SELECT message_count, tool_call_count FROM sessions WHERE id = ?", AUTH) == [
        (0, 0)
    ]
    sound(path, before)


@pytest.mark.parametrize("ref", ["refactoring auth", "2026022", "nobody_at_all"])
def test_titles_and_short_prefixes_name_nothing_here(run, store, ref: str) -> None:
    path = store("v22")
    before = path.read_bytes()
    result = run("delete", "--db", path, ref, "--yes").gave(1)
    assert not result.stdout and result.stderr and path.read_bytes() == before
    run("delete", "--db", path, ref, "--yes", "--missing-ok").ok()


def test_an_ambiguous_prefix_deletes_nothing(run, store) -> None:
    path = store("v22")
    result = run("delete", "--db", path, "20260226_1", "--yes").gave(1)
    assert MIDDLE in result.stderr and {MIDDLE, TIP} <= ids(path)


def test_without_yes_nothing_is_read_or_done(run, store) -> None:
    path = store("v22")
    before = path.read_bytes()
    assert "--yes" in run("delete", "--db", path, AUTH).gave(2).stderr
    assert path.read_bytes() == before


@pytest.mark.parametrize(("keys", "status"), [(b"n\n", 1), (b"\n", 1), (b"y\n", 0)])
def test_a_person_is_asked(run, store, keys: bytes, status: int) -> None:
    path = store("v22")
    shown = run.terminal("delete", "--db", path, AUTH, keys=keys)
    assert "delete 'refactoring auth' (1 session, 6 messages)" in shown.text
    assert shown.status == status and (AUTH in ids(path)) == bool(status)


def test_dry_run_tells_what_is_then_done(run, store) -> None:
    path = store("v22")
    before = path.read_bytes()
    told = run("delete", "--db", path, AUTH, TIP, "--dry-run").ok().records
    assert path.read_bytes() == before
    done = run("delete", "--db", path, AUTH, TIP, "--yes").ok().records
    assert [one.pop("action") for one in told] == ["would_delete"] * 2
    assert [one.pop("action") for one in done] == ["deleted"] * 2
    assert told == done


def test_b95_counts_are_of_rows(run, store) -> None:
    path = store("v22")
    for flags, yes in ((["--dry-run"], []), ([], ["--yes"])):
        found = run("delete", "--db", path, AUTH, TIP, *flags, *yes).ok().records
        assert (len(found), sum(one["messages"] for one in found)) == (2, 14)


@pytest.mark.parametrize(
    ("table", "reason"), [("compression_locks", "compression"), (None, "handoff")]
)
def test_b90_sessions_in_use_are_left_alone(run, store, table: str | None, reason: str) -> None:
    path = store("v22")
    name = PENDING if table is None else AUTH
    if table:
        ask(path, f"INSERT INTO {table} VALUES (?, 'x', 1, 4e9)", name)
    result = run("delete", "--db", path, name, CHAT, "--yes").gave(1)
    assert [(one["session_id"], one["action"]) for one in result.records] == [
        (name, "skipped"), (CHAT, "deleted")
    ]  # fmt: skip
    assert result.records[0]["reason"] == reason and name in ids(path)
    run("delete", "--db", path, name, "--yes", "--live").ok()
    assert name not in ids(path)


def test_b87_b177_routing(run, home) -> None:
    place = home("v22")
    path = place / "state.db"
    index = place / "sessions" / "sessions.json"
    index.parent.mkdir()
    entry = {"session_id": CHAT, "unknown": 1}
    index.write_text(json.dumps({"_README": "r", "agent:main:x": entry, "y": {"session_id": "z"}}))
    ask(path, "UPDATE messages SET timestamp = strftime('%s') WHERE session_id = ?", CHAT)
    result = run("delete", "--db", path, CHAT, "--yes").gave(1)
    assert result.records[0]["reason"] == "routed" and CHAT in ids(path)
    (record,) = run("delete", "--db", path, CHAT, "--yes", "--live").ok().records
    assert record["routing"] == ["agent:main:telegram:dm:42", "agent:main:x"]
    assert ask(path, "SELECT * FROM gateway_routing") == []
    assert json.loads(index.read_text()) == {"_README": "r", "y": {"session_id": "z"}}


def test_b87_a_route_of_another_scope_under_the_same_key_stays(run, home) -> None:
    place = home("v22")
    path = place / "state.db"
    ask(path, "INSERT INTO gateway_routing VALUES ('/elsewhere/sessions', ?, ?, 1)",
        "agent:main:telegram:dm:42", json.dumps({"session_id": AUTH}))  # fmt: skip
    ask(path, "INSERT INTO gateway_routing VALUES ('/third/sessions', 'k', ?, 1)",
        json.dumps({"session_id": CHAT}))  # fmt: skip
    run("delete", "--db", path, CHAT, "--yes", "--live").ok()
    assert ask(path, "SELECT scope, session_key FROM gateway_routing") == [
        ("/elsewhere/sessions", "agent:main:telegram:dm:42")
    ]


def test_files_are_that_sessions_alone(run, home) -> None:
    place = home("v22")
    folder = place / "sessions"
    folder.mkdir()
    mine = [f"session_{AUTH}.json", f"{AUTH}.json", f"{AUTH}.jsonl",
            f"request_dump_{AUTH}_20260225_101501.json"]  # fmt: skip
    others = [f"session_{AUTH}x.json", f"request_dump_{AUTH}_b_20260225_101501.json",
              "sessions.json", f"session_{CHAT}.json", "saved"]  # fmt: skip
    for name in mine + others:
        (folder / name).write_text("{}")
    left = run("delete", "--db", place / "state.db", CHAT, "--yes").ok()
    assert [Path(name).name for name in left.records[0]["files_left"]] == [f"session_{CHAT}.json"]
    assert "--files" in left.stderr
    (record,) = run("delete", "--db", place / "state.db", AUTH, "--yes", "--files").ok().records
    assert sorted(Path(name).name for name in record["files"]) == sorted(mine)
    assert sorted(entry.name for entry in folder.iterdir()) == sorted(others)


@pytest.mark.parametrize(
    "name", ["*", "../state", "..", "a/b", "sessions", "session_x", "%", "a\nb"]
)
def test_hostile_ids_are_harmless(run, home, name: str) -> None:
    place = home("v22")
    path = place / "state.db"
    folder = place / "sessions"
    folder.mkdir()
    kept = ["sessions.json", "session_x.json", "session_y.json", "other.json"]
    for one in kept:
        (folder / one).write_text("{}")
    had = ids(path)
    ask(path, "INSERT INTO sessions (id, source, started_at) VALUES (?, 'cli', 1)", name)
    run("delete", "--db", path, "-", "--yes", "--files", input=[{"session_id": name}]).ok()
    assert ids(path) == had and path.exists()
    assert sorted(entry.name for entry in folder.iterdir()) == sorted(kept)


def test_export_first(run, store, tmp_path: Path) -> None:
    need("export")
    need("import")
    path, saved = store("v22"), tmp_path / "gone.jsonl"
    plain = run("export", "--db", path, AUTH, TIP).ok().stdout
    result = run("delete", "--db", path, AUTH, TIP, "--yes", "--export", saved).ok()
    assert saved.read_bytes() == plain and stat.S_IMODE(saved.stat().st_mode) == 0o600
    line = next(line for line in result.stderr.splitlines() if "to undo:" in line)
    assert AUTH not in ids(path)
    run.shell(line.partition("to undo: ")[2])
    assert {AUTH, ROOT, MIDDLE, TIP, DELEGATE} <= ids(path)
    assert run("export", "--db", path, AUTH).ok().records[0]["title"] == "refactoring auth"


def test_export_never_replaces(run, store, tmp_path: Path) -> None:
    path, saved = store("v22"), tmp_path / "gone.jsonl"
    saved.write_text("precious\n")
    run("delete", "--db", path, AUTH, "--yes", "--export", saved).gave(1)
    assert saved.read_text() == "precious\n" and AUTH in ids(path)
    run("delete", "--db", path, AUTH, "--yes", "--export", saved, "--append").ok()
    assert saved.read_text().startswith("precious\n") and AUTH in saved.read_text()
    run("delete", "--db", path, CHAT, "--yes", "--append").gave(2)
    run("delete", "--db", path, CHAT, "--yes", "--export", tmp_path / "no" / "x").gave(66)
    run("delete", "--db", path, CHAT, "--yes", "--export", tmp_path).ok()
    assert len(list(tmp_path.glob("hermes-sessions-*.jsonl"))) == 1


def test_a_full_disk_deletes_nothing(run, store) -> None:
    path = store("v22")
    before = ids(path)
    result = run("delete", "--db", path, AUTH, "--yes", "--export", "/dev/full", "--append")
    assert result.status in (1, 74) and ids(path) == before


def test_a_record_whose_digest_no_longer_holds(run, store) -> None:
    path = store("v22")
    told = run("delete", "--db", path, AUTH, CHAT, "--dry-run").ok().records
    ask(path, "UPDATE messages SET content = 'other' WHERE session_id = ? AND role = 'user'", AUTH)
    result = run("delete", "--db", path, "-", "--yes", input=told).gave(1)
    assert result.ids == [CHAT] and AUTH in ids(path)
    assert "changed" in result.stderr


def test_records_are_of_their_profile(run, store) -> None:
    path = store("v22")
    lines = [{"session_id": AUTH, "profile": "work"}]
    run("delete", "--db", path, "-", "--yes", input=lines).gave(65)
    assert AUTH in ids(path)


def test_erase_leaves_no_trace(run, home) -> None:
    place = home("v22")
    path = place / "state.db"
    phrase = b"zanzibarquokka"
    ask(path, "UPDATE messages SET content = ? WHERE session_id = ?",
        f"a {phrase.decode()} of a secret", AUTH)  # fmt: skip
    (place / "logs").mkdir()
    (place / "logs" / "agent.log").write_text(f"session {AUTH} began")
    before = stores.condition(path)
    (record,) = run("delete", "--db", path, AUTH, "--yes", "--erase").ok().records
    assert record["action"] == "erased" and len(record["digest"]) == 64
    assert record["title"] is None and record["preview"] is None
    assert record["remains"] == [str(place / "logs" / "agent.log")]
    for suffix in ("", "-wal"):
        beside = Path(f"{path}{suffix}")
        assert not beside.exists() or phrase not in beside.read_bytes()
        # a trigram index holds pieces; a term of the word index would be whole
        assert not beside.exists() or b"zanzibar" not in beside.read_bytes()
    sound(path, before)


@pytest.mark.parametrize("how", ["tokenizer", "set aside", "no trigger", "trash"])
def test_erase_refuses_where_an_index_would_keep_it(run, store, how: str) -> None:
    path = store({"tokenizer": "head-cjk", "set aside": "head-stale"}.get(how, "v22"))
    if how == "no trigger":
        ask(path, "DROP TRIGGER messages_fts_trigram_delete")
    elif how == "trash":
        ask(path, "CREATE TABLE fts_v22_trash_messages_fts_content (id INTEGER, c0 TEXT)")
    name, before = sorted(ids(path))[0], path.read_bytes()
    argv = ["delete", "--db", path, name, "--erase", "--detach-cjk"]
    result = run(*argv, "--yes").gave(78)
    assert result.stdout == b"" and "nothing was deleted" in result.stderr
    assert run(*argv, "--dry-run").gave(78).stdout == b""
    with closing(sqlite3.connect(path)) as db:  # nor was an index set aside for it
        assert db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    assert path.read_bytes() == before


def test_erase_needs_the_store_alone(run, store) -> None:
    path = store("v22")
    with closing(sqlite3.connect(path)) as other:
        other.execute("SELECT count(*) FROM sessions").fetchone()
        result = run.process("delete", "--db", path, AUTH, "--yes", "--erase")
    assert result.gave(75).stdout == b"" and AUTH in ids(path)


def test_b85_many_ids(run, store) -> None:
    path = store("v22")
    names = [f"20250101_{number:06d}_aaaaaa" for number in range(1500)]
    with closing(sqlite3.connect(path)) as db, db:
        db.executemany(
            "INSERT INTO sessions (id, source, started_at, parent_session_id) "
            "VALUES (?, 'subagent', 1735689600, ?)", [(name, AUTH) for name in names]
        )  # fmt: skip
    (record,) = run("delete", "--db", path, AUTH, "--yes").ok().records
    assert len(record["session_ids"]) == 1501 and not ids(path) & set(names)


def test_b84_a_trigger_that_does_not_fit_is_noticed_first(run, store) -> None:
    path = store("v22")
    ask(path, "DROP TABLE messages_fts_trigram")
    before = hashlib.sha256(path.read_bytes()).hexdigest()
    assert "messages_fts_trigram" in run("delete", "--db", path, AUTH, "--yes").gave(78).stderr
    assert hashlib.sha256(path.read_bytes()).hexdigest() == before


def test_b84_a_contentless_index(run, store) -> None:
    path = store("v22")
    with closing(sqlite3.connect(path)) as db:
        db.executescript(
            "DROP TABLE messages_fts_trigram;"
            "CREATE VIRTUAL TABLE messages_fts_trigram USING "
            "fts5(content, content='', tokenize='trigram');"
        )
    before = ids(path)
    result = run("delete", "--db", path, AUTH, CHAT, "--yes")
    assert "messages_fts_trigram" in result.gave(78).stderr
    assert ids(path) == before
    assert ask(path, "SELECT count(*) FROM messages WHERE session_id = ?", AUTH) == [(6,)]


def test_the_module_is_read_in_a_minute() -> None:
    from conftest import ROOT as CHECKOUT

    text = (CHECKOUT / "hermes_tools" / "commands" / "delete.py").read_text()
    assert len(text.splitlines()) < 70
