"""hermes-session-repair: what was found is mended, and nothing else is touched."""

import json
import sqlite3
import stat
import subprocess
from contextlib import closing
from pathlib import Path

import pytest
import stores
from conftest import surroundings
from test_backup import count, damage
from test_check import change

LAYOUTS = ["v5", "v10", "v11", "v19", "v22", "head-0", "head-1", "head-3"]


def content(path: Path) -> list[tuple[object, ...]]:
    """Every message and session, by plain SQL."""
    with closing(sqlite3.connect(path)) as db:
        db.text_factory = bytes
        return [*db.execute("SELECT * FROM messages ORDER BY id"),
                *db.execute("SELECT * FROM sessions ORDER BY id")]  # fmt: skip


def sound(run, path: Path) -> bool:
    """Whether a check finds no errors and the indexes agree with the messages."""
    return run("check", "--db", path).status == 0 and all(
        whole is not False for whole in stores.condition(path)["indexes"].values()
    )


@pytest.mark.parametrize("name", LAYOUTS)
def test_an_index_is_made_anew_as_its_layout_allows(name: str, run, store) -> None:
    path = store(name)
    before, inode = content(path), path.stat().st_ino
    shape = stores.condition(path)
    damage(path, "messages_fts_data")
    assert run("check", "--db", path).status == 1
    dry_bytes = path.read_bytes()
    dry = run("repair", "--index", "--db", path, "--dry-run").ok().records
    assert path.read_bytes() == dry_bytes
    done = run("repair", "--index", "--db", path).ok().records
    assert [{**one, "action": "mended"} for one in dry] == done != []
    assert sound(run, path) and content(path) == before and path.stat().st_ino == inode
    after = stores.condition(path)
    assert {**after, "journal_mode": 0} == {**shape, "journal_mode": 0}
    (copy,) = path.parent.glob("*.before-repair-*")
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    assert content(copy) == before
    assert run("repair", "--index", "--db", path).ok().records == []


def test_check_and_repair_in_a_pipe(run, store) -> None:
    path = store("v19")
    before = content(path)
    damage(path, "messages_fts_data")
    change(path, "UPDATE sessions SET message_count = 99 WHERE rowid = 1")
    result = run.shell(
        f"hermes-session-check --db '{path}' | hermes-session-repair - --db '{path}'"
    ).ok()
    mended = [json.loads(line)["object"] for line in result.lines]
    assert mended == ["index messages_fts", "table sessions"]
    assert sound(run, path)
    assert [row[:10] for row in content(path)] == [row[:10] for row in before]


def test_faults_it_cannot_mend_are_no_faults_of_its_own(run, store) -> None:
    path = store("v19")
    before = path.read_bytes()
    faults = run("check", "--db", path).ok().stdout
    assert run("repair", "-", "--db", path, input=faults).ok().stdout == b""
    assert run("repair", "-", "--db", path, input=b"").ok().stdout == b""
    assert path.read_bytes() == before


def test_errors_it_cannot_mend_are_named(run, store) -> None:
    path = store("v22")
    path.write_bytes(path.read_bytes()[:100_000])
    before = path.read_bytes()
    faults = run("check", "--db", path).gave(1).stdout
    result = run("repair", "-", "--db", path, input=faults).gave(1)
    assert result.stdout == b"" and "--salvage" in result.stderr
    assert path.read_bytes() == before
    run("repair", "-", "--db", path, input=b'{"session_id": "x"}\n').gave(65)


def test_half_a_file_is_salvaged_into_a_store(run, store, tmp_path: Path) -> None:
    """The definitions of the indexes are lost with the half: what they kept is in nobody's way."""
    path, new = store("v22"), tmp_path / "new.db"
    path.write_bytes(path.read_bytes()[:100_000])
    told = run("repair", "--db", path, "--salvage", "-o", new).gave(1).records
    assert max(one["lost"] for one in told) <= 52, "what is guessed is not counted"
    assert not [one for one in told if "messages_fts" in one.get("object", "")]
    with closing(sqlite3.connect(new)) as db:
        assert not db.execute("SELECT 1 FROM sqlite_master WHERE name LIKE '%fts%'").fetchall()
        db.execute("CREATE VIRTUAL TABLE messages_fts USING fts5(content)")


def test_b142_what_the_schema_lists_twice(run, store) -> None:
    path = store("v19")
    before = content(path)
    change(
        path, "PRAGMA writable_schema = ON",
        "INSERT INTO sqlite_master SELECT type, name, tbl_name, rootpage, sql FROM sqlite_master "
        "WHERE name = 'messages_fts'",
    )  # fmt: skip
    (record,) = run("repair", "--index", "--db", path).ok().records
    assert record["object"] == "table messages_fts"
    assert content(path) == before and sound(run, path)
    assert len(list(path.parent.glob("*.before-repair-*"))) == 1


@pytest.mark.parametrize("name", ["v11", "v19", "head-0"])
def test_b144_an_index_whose_table_is_gone(name: str, run, store) -> None:
    path = store(name)
    change(path, "DROP TABLE messages_fts_trigram")
    run("repair", "--index", "--db", path).ok()
    assert sound(run, path)
    assert stores.condition(path)["indexes"]["messages_fts_trigram"] is True


def test_b144_where_the_agent_alone_can_make_it_the_triggers_go(run, store) -> None:
    path = store("head-3")
    change(path, "DROP TABLE messages_fts_trigram")
    run("repair", "--index", "--db", path).ok()
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        stale = "SELECT value FROM state_meta WHERE key = 'fts_stale'"
        assert db.execute(stale).fetchone() == ("1",)
        db.execute(
            "INSERT INTO messages (session_id, role, content, timestamp) "
            "SELECT id, 'user', 'hello again', 1.7e9 FROM sessions LIMIT 1"
        )


@pytest.mark.parametrize("name", ["head-2", "head-pending", "head-stale", "head-cjk"])
def test_what_only_the_agent_can_do_is_left_to_it(name: str, run, store) -> None:
    path = store(name)
    index = "messages_fts_cjk" if name == "head-cjk" else "messages_fts"
    damage(path, f"{index}_data")
    before = path.read_bytes()
    result = run("repair", "--index", "--db", path)
    for one in result.records:
        assert one["action"] == "left" and one["reason"]
    assert result.status == (1 if result.records else 0)
    assert path.read_bytes() == before


def test_a_missing_trigger(run, store) -> None:
    path = store("v19")
    shape = stores.condition(path)["objects"]
    change(path, "DROP TRIGGER messages_fts_insert", "DROP TRIGGER messages_fts_trigram_update")
    run("repair", "--index", "--db", path).ok()
    assert sound(run, path)
    after = stores.condition(path)["objects"]
    assert [one[:2] for one in after] == [one[:2] for one in shape]


def test_an_ordinary_index(run, store) -> None:
    path = store("v19")
    before = content(path)
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA writable_schema = ON")
        db.execute("DELETE FROM sqlite_master WHERE name = 'idx_messages_session'")
        db.commit()
    change(path, "INSERT INTO messages (session_id, role, content, timestamp) "
           "SELECT id, 'user', 'not in that index', 1.7e9 FROM sessions LIMIT 1")  # fmt: skip
    assert before != content(path)
    damaged = store("v19")
    page_of = "SELECT rootpage, sql FROM sqlite_master WHERE name = 'idx_messages_session'"
    with closing(sqlite3.connect(damaged)) as db:
        page, sql = db.execute(page_of).fetchone()
    with closing(sqlite3.connect(path)) as db:  # the index as it was before the last row
        db.execute("PRAGMA writable_schema = ON")
        db.execute("INSERT INTO sqlite_master VALUES ('index', 'idx_messages_session', "
                   "'messages', ?, ?)", (page, sql))  # fmt: skip
        db.commit()
    before = content(path)
    assert "index_damaged" in {
        one["kind"] for one in run("check", "--db", path).gave(1).records
    }
    (record,) = run("repair", "--index", "--db", path).ok().records
    assert record["object"] == "index idx_messages_session"
    assert sound(run, path) and content(path) == before


def test_damaged_rows_are_never_mended_in_place(run, store) -> None:
    path = store("v19")
    damage(path, "messages")
    before = path.read_bytes()
    result = run("repair", "--index", "--db", path)
    assert result.status in (1, 65)
    assert path.read_bytes() == before


def test_counters(run, store) -> None:
    path = store("v22")
    truth = content(path)
    change(path, "UPDATE sessions SET message_count = 99 WHERE id = '20260225_101500_a1b2c3'")
    (record,) = run("repair", "--counters", "--db", path).ok().records
    assert record["session_id"] == "20260225_101500_a1b2c3"
    assert content(path) == truth
    assert run("repair", "--counters", "--db", path).ok().records == []


def test_b83_orphans_only_when_asked_twice(run, store) -> None:
    path = store("v19")
    gone = "20260226_090000_00aa11"
    change(path, f"DELETE FROM sessions WHERE id = '{gone}'")
    before = path.read_bytes()
    run("repair", "--index", "--counters", "--db", path).ok()
    run("repair", "--orphans", "--db", path).gave(2)
    dry = run("repair", "--orphans", "--db", path, "--dry-run").ok().records
    assert path.read_bytes() == before
    done = run("repair", "--orphans", "--yes", "--db", path).ok().records
    assert [{**one, "action": "mended"} for one in dry] == done
    with closing(sqlite3.connect(path)) as db:
        left = "SELECT count(*) FROM messages WHERE session_id = ?"
        assert db.execute(left, (gone,)).fetchone() == (0,)
        assert db.execute("PRAGMA foreign_key_check").fetchall() == []
    assert sound(run, path)


def test_usage(run, store, tmp_path: Path) -> None:
    path = store("v11")
    for words in ([], ["--salvage"], ["-o", tmp_path / "x"], ["nonsense"],
                  ["--salvage", "--index", "-o", tmp_path / "x"]):  # fmt: skip
        run("repair", *words, "--db", path).gave(2)


@pytest.mark.parametrize("name", ["v19", "delete"])
def test_refused_while_others_hold_it_unless_live(name: str, run, store) -> None:
    path = store(name)
    change(path, "UPDATE sessions SET message_count = 99 WHERE rowid = 1")
    with stores.held(path) as holder:
        result = run.process("repair", "--counters", "--db", path).gave(75)
        assert f"process {holder} " in result.stderr
        run.process("repair", "--counters", "--live", "--db", path).ok()


# --- salvage -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*LAYOUTS, "v1", "nofts", "v99"])
def test_a_sound_store_is_carried_over_whole(name: str, run, store, tmp_path: Path) -> None:
    path, new = store(name), tmp_path / "new.db"
    before = path.read_bytes()
    run("repair", "--salvage", "-o", new, "--db", path).ok()
    assert path.read_bytes() == before
    assert content(new) == content(path)
    assert stat.S_IMODE(new.stat().st_mode) == 0o600
    old, made = stores.condition(path), stores.condition(new)
    assert made["objects"] == old["objects"] and made["indexes"] == old["indexes"]
    assert sound(run, new)


def test_cells_that_are_no_text_survive(run, store, tmp_path: Path) -> None:
    path, new = store("v19"), tmp_path / "new.db"
    change(
        path, "UPDATE messages SET content = CAST(x'ff00fe' AS TEXT) WHERE id = 1",
        "UPDATE messages SET content = x'ff00' WHERE id = 2",
        "UPDATE messages SET content = char(0) || 'json:[]' WHERE id = 3",
    )  # fmt: skip
    run("repair", "--salvage", "-o", new, "--db", path).ok()
    kinds = "SELECT id, typeof(content), hex(content) FROM messages ORDER BY id"
    with closing(sqlite3.connect(path)) as db, closing(sqlite3.connect(new)) as other:
        assert db.execute(kinds).fetchall() == other.execute(kinds).fetchall()


def leaf_of(path: Path, table: str) -> tuple[int, int]:
    """(number, size) of a leaf page in the middle of a table, by the pages' own headers."""
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA journal_mode = DELETE")
        root, size = db.execute(
            "SELECT rootpage, (SELECT page_size FROM pragma_page_size) FROM sqlite_master "
            "WHERE name = ?", (table,)
        ).fetchone()  # fmt: skip
    data = path.read_bytes()

    def leaves(page: int) -> list[int]:
        at = (page - 1) * size
        if data[at] == 13:
            return [page]
        cells = int.from_bytes(data[at + 3 : at + 5], "big")
        found = []
        for cell in range(cells):
            offset = int.from_bytes(data[at + 12 + 2 * cell : at + 14 + 2 * cell], "big")
            found += leaves(int.from_bytes(data[at + offset : at + offset + 4], "big"))
        return found + leaves(int.from_bytes(data[at + 8 : at + 12], "big"))

    pages = leaves(root)
    return pages[len(pages) // 2], size


@pytest.fixture
def larger(store) -> Path:
    """A store whose messages take some dozens of pages."""
    path = store("v19")
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        names = [row[0] for row in db.execute("SELECT id FROM sessions ORDER BY id LIMIT 5")]
        db.execute("BEGIN")
        for number in range(600):
            db.execute(
                "INSERT INTO messages (session_id, role, content, timestamp) VALUES (?, 'user', ?,"
                " 1.7e9)", (names[number % 5], f"number {number} " + "word " * 40),
            )  # fmt: skip
        db.execute("COMMIT")
    return path


def test_around_a_bad_page(run, larger: Path, tmp_path: Path) -> None:
    new = tmp_path / "new.db"
    before = {row[0]: row for row in content(larger)}
    page, size = leaf_of(larger, "messages")
    with open(larger, "r+b") as file:
        file.seek((page - 1) * size)
        file.write(b"\x00" * size)
    ruin = larger.read_bytes()
    result = run("repair", "--salvage", "-o", new, "--db", larger).gave(1)
    assert larger.read_bytes() == ruin
    saved = {row[0]: row for row in content(new)}
    assert saved.items() <= before.items()
    lost = len(before) - len(saved)
    assert 0 < lost < 40
    told = [one for one in result.records if one["action"] == "incomplete"]
    assert sum(one["lost"] for one in told) == lost
    assert all(one["session_id"] for one in told), "an index knows whose they were"
    assert sound(run, new)


def test_sessions_that_are_lost_get_a_row_for_their_messages(run, store, tmp_path: Path) -> None:
    path, new = store("v19"), tmp_path / "new.db"
    damage(path, "sessions")
    result = run("repair", "--salvage", "-o", new, "--db", path)
    assert result.status == 1, result.stderr
    assert count(new) == 52
    assert {one["action"] for one in result.records} >= {"made_up"}
    with closing(sqlite3.connect(new)) as db:
        assert db.execute("PRAGMA foreign_key_check").fetchall() == []
        assert db.execute("SELECT DISTINCT source FROM sessions").fetchall() == [("recovered",)]
    run("list", "--db", new).ok()


def test_half_a_file(run, larger: Path, tmp_path: Path) -> None:
    new = tmp_path / "new.db"
    change(larger, "PRAGMA journal_mode = DELETE")
    larger.write_bytes(larger.read_bytes()[: larger.stat().st_size * 3 // 4])
    result = run("repair", "--salvage", "-o", new, "--db", larger)
    assert result.status in (0, 1), result.stderr
    assert count(new) > 50
    assert sound(run, new)


def test_a_salvage_replaces_nothing(run, store, tmp_path: Path) -> None:
    new = tmp_path / "new.db"
    new.write_bytes(b"precious")
    run("repair", "--salvage", "-o", new, "--db", store("v11")).gave(1)
    assert new.read_bytes() == b"precious"
    assert [one.name for one in tmp_path.glob("*new.db*")] == ["new.db"]


@pytest.mark.slow
@pytest.mark.parametrize("release", ["0.13.0", "0.19.0"])
def test_the_agent_opens_what_was_mended(release: str, run, agent, home) -> None:
    hermes, place = agent(release), home("v11")
    path, out = place / "state.db", place / "out.jsonl"
    damage(path, "messages_fts_data")
    run("repair", "--index", "--db", path).ok()
    subprocess.run(
        [hermes, "sessions", "export", out], env=surroundings({"HERMES_HOME": place}),
        check=True, capture_output=True, timeout=120,
    )  # fmt: skip
    exported = [json.loads(line) for line in out.read_text().splitlines()]
    assert sum(len(one["messages"]) for one in exported) == count(path)
