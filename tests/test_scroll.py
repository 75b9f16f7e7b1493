"""hermes-session-scroll: windows, pages, records from search."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import stores

CLI = "20260225_101500_a1b2c3"


def ids_of(path: Path, session: str) -> list[int]:
    with closing(sqlite3.connect(path)) as con:
        return [row[0] for row in con.execute(
            "SELECT id FROM messages WHERE session_id = ? ORDER BY id", (session,))]  # fmt: skip


@pytest.fixture
def mixed(store) -> Path:
    """Two sessions whose messages alternate, forty each; every third a tool's."""
    path: Path = store("head-3")
    with closing(sqlite3.connect(path)) as con:
        for session in ("even", "odd"):
            con.execute("INSERT INTO sessions (id, source, started_at, title) "
                        "VALUES (?, 'cli', ?, ?)", (session, stores.T, session))  # fmt: skip
        for number in range(80):
            session, turn = ("even", "odd")[number % 2], number // 2
            con.execute("INSERT INTO messages (session_id, role, content, timestamp) "
                        "VALUES (?, ?, ?, ?)", (session, ("user", "assistant", "tool")[turn % 3],
                        f"{session} {turn}", stores.T + number))  # fmt: skip
        con.commit()
    return path


def shown(record: dict[str, Any]) -> list[int]:
    return [row["id"] for row in record["messages"]]


def test_a_window(run, mixed: Path) -> None:
    ids = ids_of(mixed, "even")
    (one,) = run("scroll", "even", ids[20], "--window", 3, "--db", mixed).ok().records
    assert list(one) == ["session_id", "around_message_id", "title", "source", "when", "window",
                         "messages", "messages_before", "messages_after"]  # fmt: skip
    assert shown(one) == ids[17:24] and one["window"] == 3
    assert [row["id"] for row in one["messages"] if row.get("anchor")] == [ids[20]]


@pytest.mark.parametrize(("at", "before", "after"), [(0, 0, 5), (2, 2, 5), (39, 5, 0), (38, 5, 1)])
def test_b43_ends_are_counted(run, mixed: Path, at: int, before: int, after: int) -> None:
    ids = ids_of(mixed, "odd")
    (one,) = run("scroll", "odd", ids[at], "--db", mixed).ok().records
    assert (one["messages_before"], one["messages_after"]) == (before, after)
    assert shown(one) == ids[max(0, at - 5) : at + 6]


def test_a_window_larger_than_the_session(run, mixed: Path) -> None:
    ids = ids_of(mixed, "odd")
    (one,) = run("scroll", "odd", ids[7], "--window", 1000, "--db", mixed).ok().records
    assert shown(one) == ids


def test_moving_on_from_an_edge_repeats_it_once(run, mixed: Path) -> None:
    ids = ids_of(mixed, "even")
    (one,) = run("scroll", "even", ids[20], "--db", mixed).ok().records
    (two,) = run("scroll", "even", shown(one)[-1], "--db", mixed).ok().records
    assert set(shown(one)) & set(shown(two)) >= {shown(one)[-1]}


@pytest.mark.parametrize("more", [[], ["--role", "user,assistant"]])
def test_pages_give_each_message_once(run, mixed: Path, more: list[str]) -> None:
    ids = ids_of(mixed, "even")
    wanted = [id_ for turn, id_ in enumerate(ids) if not more or turn % 3 != 2]
    seen: list[int] = []
    last = 0
    while True:
        result = run("scroll", "even", "--after-id", last, "--window", 7, *more, "--db", mixed)
        if result.status == 1:
            assert not result.stdout
            break
        seen += shown(result.ok().records[0])
        last = seen[-1]
    assert seen == wanted
    back: list[int] = []
    first = ids[-1] + 1
    while (result := run("scroll", "even", "--before-id", first, "--window", 7, *more,
                         "--db", mixed)).status == 0:  # fmt: skip
        back = shown(result.records[0]) + back
        first = back[0]
    assert back == wanted


def test_roles_count_only_what_they_show(run, mixed: Path) -> None:
    ids = ids_of(mixed, "even")
    (one,) = run("scroll", "even", ids[20], "--role", "user", "--window", 3, "--db", mixed).records
    assert [row["role"] for row in one["messages"]].count("user") == 6
    assert one["messages_before"] == one["messages_after"] == 3
    assert ids[20] in shown(one)


def test_undone_rows_are_hidden_compacted_ones_labelled(run, store) -> None:
    path = store("head-3")
    ids = ids_of(path, stores.UNDONE)
    (one,) = run("scroll", stores.UNDONE, ids[1], "--window", 9, "--db", path).ok().records
    assert not {ids[2], ids[3]} & set(shown(one))
    assert [row.get("compacted") for row in one["messages"]].count(1) == 1
    result = run("scroll", stores.UNDONE, ids[1], "--window", 9, "--inactive", "--db", path).ok()
    assert {ids[2], ids[3]} <= set(shown(result.records[0]))
    words = run("scroll", stores.UNDONE, ids[1], "--window", 9, "--db", path, "-t").ok().text
    assert "(compacted)" in words
    result = run("scroll", stores.UNDONE, ids[2], "--db", path).gave(1)
    assert "--inactive" in result.stderr and not result.stdout
    run("scroll", stores.UNDONE, ids[2], "--inactive", "--db", path).ok()


def test_b42_an_anchor_of_another_row_of_the_lineage(run, store) -> None:
    path = store("head-3")
    (anchor, *_) = ids_of(path, stores.ROOT)
    result = run("scroll", stores.TIP, anchor, "--db", path).ok()
    assert result.records[0]["session_id"] == stores.ROOT and stores.ROOT in result.stderr
    (foreign, *_) = ids_of(path, stores.CJK)
    result = run("scroll", stores.TIP, foreign, "--db", path).gave(1)
    assert stores.CJK in result.stderr and not result.stdout


def test_a_missing_anchor_names_its_neighbours(run, mixed: Path) -> None:
    ids = ids_of(mixed, "even")
    with closing(sqlite3.connect(mixed)) as con:
        con.execute("DELETE FROM messages WHERE id = ?", (ids[20],))
        con.commit()
    result = run("scroll", "even", ids[20], "--db", mixed).gave(1)
    assert str(ids[19]) in result.stderr and str(ids[21]) in result.stderr and not result.stdout


def test_records_on_standard_input(run, store) -> None:
    path = store("v22")
    found = run("search", "auth", "--db", path).ok()
    result = run("scroll", "-", "--db", path, input=found.stdout).ok()
    assert [one["around_message_id"] for one in result.records] == [
        one["match_message_id"] for one in found.records]  # fmt: skip
    again = run("scroll", "--db", path, input=result.stdout).ok()
    assert again.stdout == result.stdout
    hits = run("search", "--hits", "auth", "--db", path).ok()
    around = run("scroll", "-", "--db", path, input=hits.stdout).ok()
    assert len(around.records) == len(hits.records)


def test_one_bad_record_does_not_stop_the_others(run, store) -> None:
    path = store("v22")
    records = [{"session_id": CLI, "message_id": 1}, {"session_id": CLI, "message_id": 99999},
               {"session_id": CLI, "message_id": 2}]  # fmt: skip
    result = run("scroll", "-", "--db", path, input=records).gave(1)
    assert [one["around_message_id"] for one in result.records] == [1, 2]
    assert "99999" in result.stderr
    for wrong in ({"session_id": CLI}, {"message_id": 1}, {"session_id": CLI, "message_id": "x"}):
        run("scroll", "-", "--db", path, input=[wrong]).gave(65)
    run("scroll", "-", "--db", path, input=[{**records[0], "profile": "other"}]).gave(65)


@pytest.mark.parametrize("argv", [
    [CLI], [CLI, "4", "--after-id", "3"], ["-", "4"], [CLI, "--after-id", "1", "--before-id", "2"],
    [CLI, "4", "--role", ""], ["--after-id", "1"], [CLI, "x"],
])  # fmt: skip
def test_usage(run, store, argv: list[str]) -> None:
    assert not run("scroll", *argv, "--db", store("v22")).gave(2).stdout
