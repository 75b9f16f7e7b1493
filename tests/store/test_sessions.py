"""Conversations: composed, ordered, counted, found by name."""

import sqlite3
from pathlib import Path
from typing import Any

import pytest
from filled import T, chain, fill

from hermes_tools.store.db import Database, reader
from hermes_tools.store.errors import Ambiguous, NotFound, Usage
from hermes_tools.store.selection import Selection
from hermes_tools.store.sessions import (
    Reader,
    conversations,
    first,
    ordered,
    require_sources,
    resolve,
    sizes,
)

LISTED = Selection(archived="no", internal="no")


def ids(path: Path, selection: Selection = LISTED, **more: Any) -> list[str]:
    with reader(path) as db:
        return [one.id for one in conversations(db, selection, **more)]


@pytest.mark.parametrize("name", ["v1", "v11", "v22", "head-3", "nofts", "delete"])
@pytest.mark.parametrize("sort", ["newest", "oldest", "started", "size"])
def test_few_and_all_are_in_the_same_order(store, name: str, sort: str) -> None:
    path = store(name)
    everything = Selection()
    whole = ids(path, everything, sort=sort)
    assert ids(path, everything, sort=sort, few=True) == whole
    assert len(whole) == len(set(whole)) > 5
    with reader(path) as db:
        found, _ = first(db, everything, 4, sort=sort)
        assert [one.id for one in found] == whole[:4]


@pytest.mark.parametrize("name", ["v1", "v11", "v22", "head-3", "nofts"])
def test_newest_first_is_what_sorting_all_gives(store, name: str) -> None:
    with reader(store(name)) as db:
        found = list(conversations(db, Selection()))
        key = [(-(one.last_active or float("-inf"))) for one in found]
        assert key == sorted(key)
        oldest = [one.id for one in conversations(db, Selection(), sort="oldest")]
        timed = [one.id for one in found if one.last_active is not None]
        assert oldest[: len(timed)] == timed[::-1]


def test_the_plan_reads_indexes_only(store) -> None:
    """design 6: a plain listing of the newest reads neither all session rows nor all messages."""
    path = store("v22")
    seen: list[str] = []
    with reader(path) as db:
        db.set_trace_callback(seen.append)
        list(zip(range(3), ordered(db, "newest"), strict=False))
        db.set_trace_callback(None)
        for query in seen:
            for *_, step in db.execute(f"EXPLAIN QUERY PLAN {query}").fetchall():
                if step.startswith("SCAN"):
                    assert "COVERING INDEX" in step or "idx_sessions_started" in step, step


def test_times_that_are_none_stand_last(store) -> None:
    path = fill(
        store("v22"),
        [{"id": "text", "started_at": "soon", "title": "a"},
         {"id": "milli", "started_at": T * 1000, "title": "b"},
         {"id": "zero", "started_at": 0, "title": "c"},
         {"id": "good", "started_at": T + 0.25, "title": "d"},
         {"id": "later", "started_at": T + 0.5, "title": "e"}],
        [("zero", "user", "x", 9e15), ("milli", "user", "y", "never")],
    )  # fmt: skip
    for sort in ("newest", "started"):
        assert ids(path, sort=sort) == ["later", "good", "zero", "text", "milli"]
    with reader(path) as db:
        record = Reader(db).conversation("milli").record()
    assert record["last_active"] is None and record["started_at"] == T * 1000


def test_b45_one_conversation_is_one_entry(store) -> None:
    path = fill(
        store("v22"),
        [*chain("r", "m", "t"), {"id": "other", "started_at": T + 5, "title": "x"}],
        [("r", "user", "first words", T + 1), ("m", "user", "more", T + 5000),
         ("t", "assistant", "answer", T + 300)],
    )  # fmt: skip
    with reader(path) as db:
        one, other = conversations(db, LISTED)
        assert other.id == "other"
    assert one.record() | {"preview": one.preview} == one.record()
    assert (one.id, one.root, one.started_at, one.last_active) == ("t", "r", T, T + 5000)
    assert (one.message_count, one.preview, len(one.rows)) == (3, "first words", 3)


def test_b55_counts_are_of_live_rows(store) -> None:
    path = fill(
        store("v22"),
        [{"id": "a", "message_count": 0}, {"id": "b", "message_count": 99}],
        [("a", "user", "1", T), ("a", "user", "2", T), ("a", "user", "gone", T, {"active": 0}),
         ("b", "user", "1", T)],
    )  # fmt: skip
    assert ids(path, Selection(min_messages=2)) == ["a"]


def test_b51_b56_internal(store) -> None:
    path = fill(
        store("v22"),
        [{"id": "talk", "title": "t"}, {"id": "ghost"}, {"id": "named ghost", "title": "empty"},
         {"id": "sub", "source": "SubAgent", "parent_session_id": "gone"},
         {"id": "orphan", "model_config": '{"_delegate_from": "__orphaned__"}'},
         {"id": "empty cron", "source": "cron"}],
        [("sub", "user", "x", T), ("orphan", "user", "x", T)],
    )  # fmt: skip
    assert set(ids(path)) == {"talk", "named ghost", "empty cron"}
    assert set(ids(path, Selection(internal="only"))) == {"ghost", "sub", "orphan"}


def test_previews(store) -> None:
    path = fill(
        store("v22"),
        [{"id": one} for one in ("long", "late", "parts", "carrier", "blank")],
        [("long", "user", "a\n\n b\t" + "x" * 80, T),
         *(("late", "assistant", str(number), T) for number in range(20)),
         ("late", "user", "at last", T),
         ("parts", "user", '\0json:[{"type":"image_url"},{"type":"text","text":"look"}]', T),
         ("carrier", "user", "[CONTEXT COMPACTION] so far", T), ("carrier", "user", "real", T),
         ("blank", "user", "  \n ", T), ("blank", "user", "undone", T, {"active": 0})],
    )  # fmt: skip
    with reader(path) as db:
        found = {one.id: one.preview for one in conversations(db, Selection())}
    assert found["long"] == "a b " + "x" * 56 + "..."
    assert found["late"] == "at last"
    assert found["parts"] == "[image] look"
    assert (found["carrier"], found["blank"]) == ("real", None)


def test_how_many_there_are(store) -> None:
    path = fill(
        store("v22"), [{"id": f"s{number:03}", "title": str(number)} for number in range(60)]
    )
    with reader(path) as db:
        assert first(db, LISTED, 60)[1] is None
        assert first(db, LISTED, 20)[1] == "60"
    fill(path, [{"id": f"s{number:03}", "title": str(number)} for number in range(600)])
    with reader(path) as db:
        assert first(db, LISTED, 20)[1] == "about 600"
        assert first(db, Selection(title_like="1"), 20)[1] == "195"


@pytest.fixture
def names(store):
    path = fill(
        store("v22"),
        [{"id": "20260301_090000_aaaa01", "title": "my project"},
         {"id": "20260301_090000_aaaa02", "title": "my project #9"},
         {"id": "20260302_090000_aaaa03", "title": "my project #10", "started_at": T + 99},
         {"id": "20260303_090000_bbbb01", "title": "20260301_090000_aaaa01"},
         {"id": "100%_done", "title": "50%_x"}, {"id": "100xxdone", "title": "50yyx"},
         {"id": "t1", "title": "a rather long title about tomatoes"},
         {"id": "t2", "title": "a rather short one"}],
    )  # fmt: skip
    with reader(path) as db:
        yield db


NAMES = [
    ("20260301_090000_aaaa01", "20260301_090000_aaaa01"),  # b75: an id wins over a title
    ("my project", "20260302_090000_aaaa03"),  # b62
    ("my project #9", "20260301_090000_aaaa02"),
    ("20260303", "20260303_090000_bbbb01"),
    ("100%_", "100%_done"),
    ("50%", "100%_done"),
    ("a rather long title", "t1"),  # b70
    ("A RATHER S", "t2"),
    ("my pro", "20260302_090000_aaaa03"),
]


@pytest.mark.parametrize(("ref", "session_id"), NAMES)
def test_resolve(names: Database, ref: str, session_id: str) -> None:
    assert resolve(names, ref) == session_id


@pytest.mark.parametrize(
    ("ref", "error"),
    [("20260301", Ambiguous), ("a rather", Ambiguous), ("nothing", NotFound), ("%", NotFound),
     ("", Usage), ("  ", Usage)],
)  # fmt: skip
def test_resolve_says_no(names: Database, ref: str, error: type[Exception]) -> None:
    with pytest.raises(error) as caught:
        resolve(names, ref)
    if error is Ambiguous:
        assert "could be" in str(caught.value)


def test_resolve_for_what_destroys(names: Database) -> None:
    assert resolve(names, "20260303_", titles=False) == "20260303_090000_bbbb01"
    for ref in ("2026030", "my project", "t"):
        with pytest.raises((NotFound, Ambiguous)):
            resolve(names, ref, titles=False)
    with pytest.raises(NotFound):
        resolve(names, "20260303", exact=True)


def test_a_source_nobody_has(names: Database) -> None:
    require_sources(names, Selection(sources=("CLI",)))
    with pytest.raises(NotFound, match="cli"):
        require_sources(names, Selection(sources=("telegramm",)))


def test_sizes_are_bytes(store) -> None:
    rows = [("a", "user", "é\0日", T), ("a", "tool", None, T, {"tool_name": "ls"})]
    path = fill(store("v22"), [{"id": "a"}, {"id": "b"}], rows)
    with reader(path) as db:
        # content, tool_name, and the texts of the flags active, compacted and observed
        assert sizes(db)["a"] - sizes(db).get("b", 0) == 6 + 2 + 2 * 3


def test_a_store_of_nothing_but_ids(tmp_path: Path) -> None:
    path = tmp_path / "bare.db"
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE sessions (id TEXT PRIMARY KEY, source TEXT)")
        db.execute(
            "CREATE TABLE messages (id INTEGER PRIMARY KEY, session_id TEXT, role TEXT, "
            "content TEXT, timestamp REAL)"
        )
        db.execute("INSERT INTO sessions VALUES ('a', 'cli'), (NULL, 'cli'), (x'ff', 'cli')")
        db.execute("INSERT INTO messages VALUES (1, 'a', 'user', 'hi', 1772355600)")
    db.close()
    assert ids(path) == ["a"]
