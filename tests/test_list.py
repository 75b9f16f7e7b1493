"""hermes-session-list: what a person and a pipe see."""

import json
import shutil
import sqlite3
from pathlib import Path

import pytest
from conftest import Run
from filled import T, chain, fill

GARDEN = ["20260226_090000_00aa11", "20260226_113000_00bb22", "20260226_150000_00cc33"]
HELPER = "20260226_151000_00dd44"
KEYS = [
    "session_id", "title", "source", "model", "user_id", "started_at", "ended_at", "end_reason",
    "last_active", "message_count", "tool_call_count", "parent_session_id", "lineage_root_id",
    "segments", "archived", "preview",
]  # fmt: skip


@pytest.fixture
def many(store) -> Path:
    """Thirty titled conversations."""
    return fill(
        store("v22"),
        [{"id": f"s{number:02}", "title": f"title {number}"} for number in range(30)],
        [(f"s{number:02}", "user", f"words {number}", T + number) for number in range(30)],
    )


@pytest.mark.parametrize("name", ["v11", "v13", "v14", "v16", "v19", "v22"])
def test_b45_the_shipped_stores(run: Run, store, name: str) -> None:
    records = run("list", "--db", store(name)).ok().records
    assert all(list(record) == KEYS for record in records)
    (garden,) = [record for record in records if record["title"] == "garden plan #3"]
    assert garden["session_id"] == GARDEN[2]
    assert (garden["lineage_root_id"], garden["segments"]) == (GARDEN[0], 3)
    assert garden["preview"] == "Let us plan the garden irrigation: six beds, one pump, a rai..."
    found = [record["session_id"] for record in records]
    assert HELPER not in found and "20260228_120000_feed01" not in found


def test_text_is_cut_and_says_so(run: Run, many: Path) -> None:
    shown = run("list", "-t", "--db", many).ok()
    assert len(shown.lines) == 2 + 20
    assert shown.lines[0].split() == ["Title", "Preview", "Last", "Active", "ID"]
    assert shown.lines[2].startswith("title 29") and shown.lines[2].endswith("s29")
    assert shown.stderr == "hermes-session-list: 20 of 30; -n 0 for all\n"
    assert len(run("list", "-t", "-n", 0, "--db", many).ok().lines) == 32
    whole = run("list", "--db", many).ok()
    assert len(whole.records) == 30 and not whole.stderr
    few = run("list", "-n", 3, "--db", many).ok()
    assert few.ids == ["s29", "s28", "s27"] and "3 of 30" in few.stderr


def test_a_cut_is_announced_below_the_table(run: Run, many: Path) -> None:
    seen = run.terminal("list", "--db", many, rows=50).ok().lines
    assert "Title" in seen[0] and "ID" in seen[0]
    assert seen[-1] == "hermes-session-list: 20 of 30; -n 0 for all"


def test_without_titles_the_table_names_the_source(run: Run, store) -> None:
    path = fill(store("v22"), [{"id": "a"}], [("a", "user", "hi", T)])
    assert run("list", "-t", "--db", path).ok().lines[0].split() == [
        "Preview", "Last", "Active", "Src", "ID",
    ]  # fmt: skip


def test_nothing_there_is_no_fault(run: Run, store) -> None:
    result = run("list", "-t", "--title-like", "nobody", "--db", store("v22")).ok()
    assert not result.stdout and "nothing to list" in result.stderr


def test_hostile_titles_stay_on_their_line(run: Run, store) -> None:
    path = fill(store("v22"), [{"id": "a\x1b[2J", "title": "x\x1b]0;pwned\x07\ny\u202e"}])
    shown = run("list", "-t", "--db", path).ok()
    assert len(shown.lines) == 3
    assert "\x1b" not in shown.text and "\u202e" not in shown.text and "pwned" not in shown.text
    assert run("list", "--db", path).ok().records[0]["title"] == "x\x1b]0;pwned\x07\ny\u202e"


def test_on_a_terminal(run: Run, store) -> None:
    path = store("v22")
    shown = run.terminal("list", "--db", path, columns=70).ok()
    assert "\x1b[1m" in shown.text and GARDEN[2] in shown.text
    plain = run.terminal("list", "--db", path, env={"NO_COLOR": "1"}).ok()
    assert "\x1b" not in plain.text


def test_tree(run: Run, store) -> None:
    path = store("v22")
    records = run("list", "--tree", "garden plan", "--db", path).ok().records
    assert [(one["session_id"], one["depth"], one["kind"]) for one in records] == [
        (GARDEN[0], 0, "root"), (GARDEN[1], 1, "continuation"), (GARDEN[2], 2, "continuation"),
        (HELPER, 3, "delegate"),
    ]  # fmt: skip
    shown = run("list", "--tree", "-t", "garden plan", "--db", path).ok().lines
    assert [line.split("2026")[0] for line in shown] == ["", "├─ ", "└─ ", "   └─ "]


def test_ancestors_and_descendants(run: Run, store) -> None:
    path = store("v22")
    up = run("list", "--ancestors", HELPER, "--db", path).ok().records
    assert [one["session_id"] for one in up] == [HELPER, *GARDEN[::-1]]
    assert [one["depth"] for one in up] == [0, 1, 2, 3]
    down = run("list", "--descendants", GARDEN[1], "--db", path).ok()
    assert down.ids == [GARDEN[1], GARDEN[2], HELPER]
    assert {one["lineage_root_id"] for one in down.records} == {GARDEN[0]}
    run("list", "--ancestors", "nobody", "--db", path).gave(1)


def test_segments(run: Run, store) -> None:
    path = store("v22")
    rows = run("list", "--segments", "--archived", "any", "--internal", "any", "--db", path).ok()
    assert len(rows.records) == 17 and {one["segments"] for one in rows.records} == {1}
    assert run("list", "--segments", GARDEN[1], "--db", path).ok().ids == GARDEN


def test_named_and_piped(run: Run, store) -> None:
    path = store("v22")
    named = run("list", "refactoring auth", GARDEN[0], GARDEN[1], HELPER, "--db", path).ok()
    assert named.ids == ["20260225_101500_a1b2c3", GARDEN[2], HELPER]
    again = run("list", "-", "--db", path, input=named.stdout).ok()
    assert again.stdout == named.stdout
    wrong = run("list", "-", "--db", path, input=["nobody", GARDEN[0], "garden plan"]).gave(1)
    assert wrong.ids == [GARDEN[2]] and wrong.stderr.count("not in this store") == 2
    assert run("list", "-", "--source", "cron", "--db", path, input=named.stdout).ok().ids == []


def test_b57_b58_archived(run: Run, store) -> None:
    path = fill(store("v22"), [dict(row, archived=1, title=row["id"]) for row in chain("r", "t")])
    assert run("list", "--db", path).ok().ids == []
    assert run("list", "--archived", "only", "--db", path).ok().ids == ["t"]
    assert run("list", "--archived", "any", "--db", path).ok().ids == ["t"]


def test_b50_branches_stay(run: Run, store) -> None:
    branch = {"id": "b", "parent_session_id": "p", "model_config": '{"_branched_from": "p"}'}
    path = fill(store("v22"), [{"id": "p", "title": "x", "end_reason": "user_exit"},
                               {**branch, "title": "y"}])  # fmt: skip
    assert set(run("list", "--db", path).ok().ids) == {"p", "b"}


@pytest.mark.parametrize("sort", ["newest", "oldest", "started", "size"])
def test_sorting(run: Run, store, sort: str) -> None:
    path = fill(
        store("v22"), [{"id": one, "started_at": T + at} for one, at in (("a", 0), ("b", 5))],
        [("a", "user", "x" * 50, T + 100), ("b", "user", "y", T + 50)],
    )  # fmt: skip
    order = {"newest": "ab", "oldest": "ba", "started": "ba", "size": "ab"}[sort]
    assert run("list", "--sort", sort, "--db", path).ok().ids == list(order)


def test_digest_and_bytes(run: Run, store) -> None:
    one = run("list", "garden plan", "--digest", "--bytes", "--db", store("v22")).ok().records[0]
    other = run("list", "garden plan", "--digest", "--db", store("v11")).ok().records[0]
    assert len(one["digest"]) == 64 and one["bytes"] > 100
    assert list(one)[-2:] == ["bytes", "digest"] and "bytes" not in other


@pytest.fixture
def profiles(home) -> Path:
    """A home with a second profile, and a third that is damaged."""
    place = home("v22")
    for name, source in (("work", "v11"), ("broken", "")):
        folder = place / "profiles" / name
        folder.mkdir(parents=True)
        if source:
            shutil.copy(home(source) / "state.db", folder)
        else:
            (folder / "state.db").write_text("not a database at all, only some text" * 99)
    return place


def test_b161_one_broken_profile_hides_no_other(run: Run, profiles: Path) -> None:
    result = run("list", "--all-profiles", "--home", profiles).gave(1)
    assert {one["profile"] for one in result.records} == {"default", "work"}
    assert "profile broken" in result.stderr
    cut = run("list", "--all-profiles", "-n", 1, "--home", profiles).gave(1)
    assert [one["profile"] for one in cut.records] == ["default", "work"]
    assert "profile work: 1 of" in cut.stderr


def test_b160_an_id_of_another_profile(run: Run, profiles: Path) -> None:
    shutil.rmtree(profiles / "profiles" / "broken")
    only = fill(profiles / "profiles" / "work" / "state.db", [{"id": "only_work", "source": "x"}])
    run("list", "only_work", "--home", profiles).gave(1)
    found = run("list", "only_work", "--all-profiles", "--home", profiles).ok().records
    assert [(one["session_id"], one["profile"]) for one in found] == [("only_work", "work")]
    run("list", "nobody", "--all-profiles", "--home", profiles).gave(1)
    run("list", "-", "--home", profiles, input=json.dumps(found[0])).gave(65)
    assert run("list", "--all-profiles", "--source", "x", "--home", profiles).ok().ids
    run("list", "--all-profiles", "--source", "nowhere", "--home", profiles).gave(1)
    assert only.exists()


@pytest.mark.parametrize(
    "words",
    [["--tree", "--segments"], ["--ancestors", "a", "b"], ["--ancestors", "a", "--tree"],
     ["--ancestors", "a", "--descendants", "b"], ["--sort", "random"], ["-n", "-1"]],
)  # fmt: skip
def test_what_does_not_go_together(run: Run, store, words: list[str]) -> None:
    assert not run("list", *words, "--db", store("v22")).gave(2).stdout


def test_other_forms(run: Run, store) -> None:
    path = store("v22")
    assert run("list", "-f", "ids", "-n", 1, "--db", path).ok().text == "20260302_100000_beef02\n"
    assert run("list", "-0", "-n", 1, "--db", path).ok().stdout == b"20260302_100000_beef02\0"
    row = run("list", "garden plan", "--fields", "title,segments,ended_at", "--db", path).ok()
    assert row.text == "garden plan #3\t3\t\n" and not row.stderr


def test_a_slip_in_fields_is_said(run: Run, store) -> None:
    row = run("list", "garden plan", "--fields", "titel,segments", "--db", store("v22")).ok()
    assert row.text == "\t3\n"
    assert "--fields: no record has titel" in row.stderr


def test_an_id_that_is_no_utf8_hides_nothing(run: Run, store) -> None:
    """A store's damage is one session's: all scripts take the id as its bytes."""
    path = store("v22")
    with sqlite3.connect(path) as db:
        db.execute("INSERT INTO sessions (id, source, title, started_at, end_reason, ended_at) "
                   "SELECT CAST(x'68ff35' AS TEXT), source, NULL, started_at, 'compression', 1 "
                   "FROM sessions WHERE id = ?", (GARDEN[2],))  # fmt: skip
        db.execute("INSERT INTO messages (session_id, role, content, timestamp) "
                   "VALUES (CAST(x'68ff35' AS TEXT), 'user', CAST(x'fffe6869' AS TEXT), 1.0)")
    db.close()
    odd = "h\udcff5"
    assert odd.encode("utf-8", "surrogateescape") in run("list", "-f", "ids", "--db", path).stdout
    for argv in (
        ["list", "--digest", "--bytes"], ["list", "--tree"], ["list", "--segments"],
        ["list", "-t", odd], ["show", odd], ["stats", "--min-messages", 1], ["resume", odd],
        ["search", "--hits", "hi"], ["scroll", odd, "--after-id", 0], ["export", odd],
        ["title", odd, "mended"], ["archive", odd], ["end", odd, "--reopen"],
        ["delete", odd, "--yes"],
    ):  # fmt: skip
        assert run(*argv, "--db", path).ok().stdout, argv
    assert run("show", odd, "--db", path).gave(1).stderr
