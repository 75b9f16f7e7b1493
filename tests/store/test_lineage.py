"""Lineage: chains, forks, branches, delegates, cycles, and parents that are gone."""

import json
from pathlib import Path
from typing import Any

import pytest
from filled import T, chain, fill

from hermes_tools.store.db import reader
from hermes_tools.store.lineage import Lineage, marks

Row = dict[str, Any]


@pytest.fixture(params=["walking", "preloaded"])
def lineage_of(request: pytest.FixtureRequest, store):
    """Rows → their Lineage; every answer must be the same walked and read at once."""
    opened = []

    def get(sessions: list[Row], messages: list[tuple[Any, ...]] = ()) -> Lineage:  # type: ignore[assignment]
        context = reader(fill(store("v22"), sessions, messages))
        lineage = Lineage(context.__enter__())
        opened.append(context)
        if request.param == "preloaded":
            lineage.preload()
        return lineage

    yield get
    for context in opened:
        context.__exit__(None, None, None)


def test_a_chain_is_one_from_every_row(lineage_of) -> None:
    lineage = lineage_of(chain("r", "a", "b"))
    for one in ("r", "a", "b"):
        assert lineage.chain(one) == ["r", "a", "b"]
        assert (lineage.root(one), lineage.tip(one)) == ("r", "b")


def marked(name: str, parent: str) -> str:
    return json.dumps({"temperature": 0.2, name: parent})


KINDS = [
    ({"end_reason": "compression"}, {}, "continuation"),
    ({"end_reason": "compression"}, {"model_config": marked("_branched_from", "p")}, "branch"),
    ({"end_reason": "user_exit"}, {"model_config": marked("_branched_from", "p")}, "branch"),
    ({"end_reason": "branched", "ended_at": T}, {"started_at": T + 1}, "branch"),
    ({"end_reason": "branched", "ended_at": T + 9}, {"started_at": T + 1}, "child"),
    ({"end_reason": "compression"}, {"source": "subagent"}, "delegate"),
    ({"end_reason": "compression"}, {"model_config": marked("_delegate_from", "p")}, "delegate"),
    ({"end_reason": "compression"}, {"model_config": marked("_branched_from", "q")},
     "continuation"),  # inherited from its parent: it names another
    ({"end_reason": "idle", "session_key": "k"}, {"session_key": "k"}, "reset"),
    ({"end_reason": "idle", "session_key": "k"}, {"session_key": "l"}, "child"),
    ({"end_reason": "idle"}, {}, "child"),
    ({"end_reason": "compression"}, {"model_config": '{"_branched_from": "p"'}, "continuation"),
    ({}, {}, "child"),
]  # fmt: skip


@pytest.mark.parametrize(("parent", "child", "kind"), KINDS)
def test_kinds(lineage_of, parent: Row, child: Row, kind: str) -> None:
    lineage = lineage_of([{"id": "p", **parent}, {"id": "c", "parent_session_id": "p", **child}])
    assert lineage.kind("c") == kind
    assert lineage.kind("p") == "root"


def test_b48_a_fork_goes_on_where_the_newest_message_is(lineage_of) -> None:
    rows = [
        *chain("p", "stale"), {"id": "live", "parent_session_id": "p", "started_at": T + 110,
                               "end_reason": "compression", "ended_at": T + 120},
        {"id": "leaf", "parent_session_id": "live", "started_at": T + 130},
        {"id": "void", "parent_session_id": "p", "started_at": T + 900},
    ]  # fmt: skip
    lineage = lineage_of(
        rows, [("stale", "user", "old", T + 140), ("leaf", "user", "new", T + 300)]
    )
    assert lineage.chain("p") == ["p", "live", "leaf"]
    assert lineage.chain("void") == ["void"]
    assert {one: lineage.role(one) for one in ("live", "stale", "void")} == {
        "live": "continuation", "stale": "fork", "void": "fork",
    }  # fmt: skip
    assert [one[0] for one in lineage.descendants("p")] == ["p", "stale", "void", "live", "leaf"]


def test_a_time_that_is_none_decides_nothing(lineage_of) -> None:
    lineage = lineage_of(
        [*chain("p", "a"), {"id": "b", "parent_session_id": "p", "started_at": T + 5}],
        [("a", "user", "x", T * 1000), ("b", "user", "y", T + 1)],
    )
    assert lineage.tip("p") == "b", "milliseconds are no newer message"


@pytest.mark.parametrize(
    "links",
    [{"a": "a"}, {"a": "b", "b": "a"}, {"a": "c", "b": "a", "c": "b"}, {"a": "b", "b": "b"}],
)
def test_cycles_end(lineage_of, links: dict[str, str]) -> None:
    lineage = lineage_of(
        [{"id": one, "parent_session_id": parent, "end_reason": "compression"}
         for one, parent in links.items()]
    )  # fmt: skip
    for one in links:
        found = lineage.chain(one)
        assert len(found) == len(set(found)) and one in found
        assert lineage.chain(found[0]) == found
        assert {row for row, _, _ in lineage.descendants(lineage.top(one))} >= {one}
        assert len(lineage.ancestors(one)) <= len(links)
        assert one in lineage.members(one)
        assert lineage.conversation(one)


def test_b53_a_missing_parent_makes_a_root(lineage_of) -> None:
    lineage = lineage_of([{"id": "c", "parent_session_id": "gone"}])
    assert (lineage.kind("c"), lineage.chain("c"), lineage.top("c")) == ("root", ["c"], "c")
    assert lineage.link("gone") is None


def test_long_chains_and_forks_need_no_recursion(lineage_of) -> None:
    names = [f"n{number:05}" for number in range(1500)]
    rows = chain(*names)
    rows += [{"id": f"x{name}", "parent_session_id": name, "started_at": T} for name in names[:-1]]
    lineage = lineage_of(rows, [(names[-1], "user", "hello", T + 1e6)])
    assert lineage.chain(names[0]) == names
    assert lineage.root(names[-1]) == names[0]
    assert len(lineage.descendants(names[0])) == len(rows)


def test_delegates_belong_to_their_conversation(lineage_of) -> None:
    rows = [
        *chain("r", "t"),
        {"id": "d", "source": "subagent", "parent_session_id": "r", "end_reason": "compression"},
        {"id": "d2", "parent_session_id": "d"},
        {"id": "deep", "parent_session_id": "d2", "model_config": marked("_delegate_from", "d2")},
        {"id": "br", "parent_session_id": "t", "model_config": marked("_branched_from", "t")},
    ]
    lineage = lineage_of(rows)
    assert lineage.members("t") == ["r", "t", "d", "d2", "deep"]
    assert [lineage.conversation(one) for one in ("deep", "d2", "t", "br")] == ["r", "r", "r", "br"]


def test_depths(lineage_of) -> None:
    lineage = lineage_of(
        [*chain("r", "m", "t"), {"id": "d", "source": "tool", "parent_session_id": "t"}]
    )
    assert lineage.ancestors("d") == [
        ("d", 0, "delegate"), ("t", 1, "continuation"), ("m", 2, "continuation"), ("r", 3, "root"),
    ]  # fmt: skip
    assert [(one, depth) for one, depth, _ in lineage.descendants("m")] == [
        ("m", 0), ("t", 1), ("d", 2),
    ]  # fmt: skip


@pytest.mark.parametrize("stored", [None, 7, b"{}", "", "{}", "[]", '["_x"]', '{"_x"', "null"])
def test_model_configs_without_marks(stored: Any) -> None:
    assert marks(stored) == {}


def test_a_store_without_parents(store, tmp_path: Path) -> None:
    import sqlite3

    path = tmp_path / "bare.db"
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE sessions (id TEXT PRIMARY KEY)")
        db.execute("CREATE TABLE messages (id INTEGER PRIMARY KEY, session_id TEXT, timestamp)")
        db.execute("INSERT INTO sessions VALUES ('a')")
    db.close()
    with reader(path) as opened:
        assert Lineage(opened).chain("a") == ["a"]
