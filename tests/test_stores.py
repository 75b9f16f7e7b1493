"""The stores tests run on are what they are said to be; a test of the tests."""

import lzma
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
import stores
from conftest import DATA, SHIPPED


def rows(path: Path, sql: str) -> list[tuple]:
    with closing(sqlite3.connect(path)) as db:
        return db.execute(sql).fetchall()


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped(name: str, store) -> None:
    path = store(name)
    assert path.read_bytes() == lzma.decompress((DATA / SHIPPED[name]).read_bytes())
    assert rows(path, "SELECT version FROM schema_version") == [(int(name[1:]),)]
    condition = stores.condition(path)
    assert set(condition["indexes"].values()) == {True}
    assert condition["foreign keys"] == []


@pytest.mark.parametrize("name", stores.NAMES)
def test_built(name: str, store) -> None:
    path = store(name)
    condition = stores.condition(path)
    assert condition["foreign keys"] == []
    assert condition["journal_mode"] == ("delete" if name == "delete" else "wal")
    # An index that is known not to agree with the messages, or that cannot be asked.
    odd = {
        "head-2": {"messages_fts": False},
        "head-pending": {"messages_fts": False, "messages_fts_trigram": False},
        "head-stale": {"messages_fts": False, "messages_fts_trigram": False},
        "head-cjk": {"messages_fts_cjk": None},
    }.get(name, {})
    for table, verdict in condition["indexes"].items():
        assert verdict is odd.get(table, True), table
    plain = "SELECT count(*) FROM messages WHERE content LIKE '%copper nails%'"
    assert rows(path, plain) == [(2,)]
    assert rows(path, f"SELECT title FROM sessions WHERE id = '{stores.TIP}'") == [
        ("roof repair #3",)
    ] if name not in ("v1", "v2") else True  # fmt: skip


def test_copies_are_private(store) -> None:
    one, other = store("v22"), store("v22")
    with closing(sqlite3.connect(one)) as db, db:
        db.execute("DELETE FROM messages")
    assert rows(other, "SELECT count(*) FROM messages") != [(0,)]


def test_a_spoiled_index_is_noticed(store) -> None:
    for name in ("v22", "head-0", "head-3"):
        path = store(name)
        with closing(sqlite3.connect(path)) as db, db:
            db.execute("DROP TRIGGER messages_fts_delete")
            db.execute("DELETE FROM messages WHERE id = 2")
        assert stores.condition(path)["indexes"]["messages_fts"] is False


def test_no_test_sees_the_users_home(safe_home: Path, run) -> None:
    assert Path("~").expanduser() == safe_home
    assert not (safe_home / ".hermes").exists()
