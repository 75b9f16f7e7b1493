"""hermes-session-search, as people and programs use it."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
import stores

FIELDS = [
    "session_id", "title", "when", "source", "model", "snippet", "matched_role",
    "match_message_id", "bookend_start", "messages", "bookend_end", "messages_before",
    "messages_after", "parent_session_id", "lineage_root_id",
]  # fmt: skip


def add(path: Path, *rows: tuple[str, str, str, str, float]) -> None:
    """(session, source, role, content, time) beside what is there."""
    with closing(sqlite3.connect(path)) as con:
        for session, source, role, content, time in rows:
            con.execute("INSERT OR IGNORE INTO sessions (id, source, started_at) VALUES (?, ?, ?)",
                        (session, source, time))  # fmt: skip
            con.execute("INSERT INTO messages (session_id, role, content, timestamp) "
                        "VALUES (?, ?, ?, ?)", (session, role, content, time))  # fmt: skip
        con.commit()


def test_a_discovery_record(run, store) -> None:
    path = store("v22")
    (one,) = run("search", '"token check"', "--db", path).ok().records
    assert list(one) == FIELDS
    assert one["session_id"] == "20260225_101500_a1b2c3" and one["matched_role"] == "user"
    assert ">>>token check<<<" in one["snippet"]
    anchor = [row for row in one["messages"] if row.get("anchor")]
    assert [row["id"] for row in anchor] == [one["match_message_id"]]
    assert one["messages_before"] + one["messages_after"] + 1 == len(one["messages"])
    assert {row["role"] for row in one["messages"]} <= {"user", "assistant"}


def test_windows_and_bookends_do_not_overlap(run, store) -> None:
    path = store("head-3")
    roles = ("user", "assistant", "tool")
    rows = [("long", "cli", roles[n % 3], "midword" if n == 31 else f"message {n}", stores.T + n)
            for n in range(60)]  # fmt: skip
    add(path, *rows)
    (one,) = run("search", "midword", "--db", path, "--window", 4, "--bookends", 2).ok().records
    ids = [row["id"] for key in ("bookend_start", "messages", "bookend_end") for row in one[key]]
    assert ids == sorted(set(ids)) and len(ids) == 2 + 9 + 2
    assert (one["messages_before"], one["messages_after"]) == (4, 4)
    assert all(row["role"] != "tool" for key in ("bookend_start", "messages", "bookend_end")
               for row in one[key])  # fmt: skip


def test_nothing_found_is_1_and_says_which_words_there_are(run, store) -> None:
    result = run("search", "copper", "shallowword", "--db", store("head-3")).gave(1)
    assert not result.stdout
    assert "shallowword: in messages of 1 tool" in result.stderr
    assert "copper: in messages of" in result.stderr


@pytest.mark.parametrize("words", [[], [""], ["garden", ""], ["--", "--"], ["NOT", "x"], ['""']])
def test_an_empty_query_is_a_usage_error(run, store, words: list[str]) -> None:
    result = run("search", "--db", store("v22"), "--", *words).gave(2)
    assert not result.stdout and result.stderr


def test_raw_is_fts5_and_its_errors_are_usage(run, store) -> None:
    path = store("v22")
    assert run("search", "--raw", "gard* AND NOT zzz", "--db", path).status in (0, 2)
    assert run("search", "--raw", "gard*", "--db", path).ok().records
    for wrong in ('"open', "nosuch : x", "AND", "*"):
        result = run("search", "--raw", wrong, "--db", path).gave(2)
        assert "--raw" in result.stderr and "Traceback" not in result.stderr
    run("search", "--raw", "copper", "--db", store("nofts")).gave(78)


def test_hits_are_one_a_message_in_a_stable_order(run, store) -> None:
    path = store("v22")
    first = run("search", "--hits", "-n", 0, "auth", "--db", path).ok()
    assert first.stdout == run("search", "--hits", "-n", 0, "auth", "--db", path).stdout
    ids = [one["message_id"] for one in first.records]
    assert len(ids) == len(set(ids)) > 2
    for one in first.records:
        assert 1 <= len(one["context"]) <= 3
        assert one["message_id"] in [row["id"] for row in one["context"]]
    run("search", "--hits", "qqqq", "--db", path).gave(1)


def test_b37_the_row_that_owns_the_hit_is_named(run, store) -> None:
    path = store("head-3")
    (one,) = run("search", "slates cracked", "--db", path).ok().records
    assert one["session_id"] == stores.MIDDLE and one["lineage_root_id"] == stores.ROOT


def test_b31_a_pasted_id_is_found(run, store) -> None:
    path = store("v22")
    for part in ("20260225_101500_a1b2c3", "20260225", "a1b2c3"):
        records = run("search", part, "--db", path).ok().records
        mine = [one for one in records if one["session_id"] == "20260225_101500_a1b2c3"]
        assert mine and mine[0]["matched_role"] == "session_id", part
        assert f">>>{part}<<<" in mine[0]["snippet"]


def test_titles_come_first(run, store) -> None:
    path = store("head-3")
    first = run("search", "roof", "--db", path).ok().records[0]
    assert first["matched_role"] == "session_title"
    assert ">>>roof<<<" in first["snippet"]
    anchor = next(row for row in first["messages"] if row.get("anchor"))
    assert anchor["role"] == "user"


def test_b34_hidden_sources_on_request(run, store) -> None:
    path = store("head-3")
    run("search", "zinkwort", "--db", path).gave(1)
    found = run("search", "zinkwort", "--internal", "any", "--db", path).ok()
    assert found.ids == [stores.DELEGATE]
    assert run("search", "zinkwort", "--source", "SubAgent", "--db", path).ok().ids
    run("search", "atticword", "--db", path).gave(1)
    assert run("search", "atticword", "--archived", "any", "--db", path).ok().ids


def test_undone_messages_only_with_inactive(run, store) -> None:
    path = store("head-3")
    run("search", "undoneword", "--db", path).gave(1)
    (one,) = run("search", "undoneword", "--inactive", "--db", path).ok().records
    assert one["messages"]
    assert run("search", "foldedword", "--db", path).ok().ids == [stores.UNDONE]
    run("search", "secretmemory", "--db", path).gave(1)
    run("search", "scaffoldword", "--db", path).gave(1)


def test_b24_tool_rows_by_role(run, store) -> None:
    for name in ("head-0", "head-3", "nofts"):
        (one,) = run("search", "--role", "tool", "deepword", "--db", store(name)).ok().records
        assert one["matched_role"] == "tool"


def test_not_in_leaves_a_conversation_out(run, store) -> None:
    path = store("head-3")
    everywhere = run("search", "nails", "--internal", "any", "--db", path).ok().ids
    without = run("search", "nails", "--not-in", stores.ROOT, "--db", path)
    assert everywhere and not without.records


def test_a_cut_is_announced(run, store) -> None:
    path = store("head-3")
    add(path, *((f"s{n}", "cli", "user", "cutword", stores.T + n) for n in range(15)))
    result = run("search", "cutword", "--db", path).ok()
    assert len(result.records) == 10 and "10 of 15" in result.stderr
    assert "-n 0" not in run("search", "cutword", "-n", 0, "--db", path).ok().stderr


def test_an_index_that_cannot_answer_is_one_warning(run, store) -> None:
    for name in ("nofts", "head-stale"):
        result = run("search", "copper", "--db", store(name)).ok()
        assert result.records and result.stderr.count("without an index") == 1
    result = run("search", "copper", "--db", store("head-cjk")).ok()
    assert "index" not in result.stderr


def test_text_for_people(run, store) -> None:
    result = run("search", "auth", "-t", "--db", store("v22")).ok()
    assert "20260225_101500_a1b2c3 1" in result.text
    assert ">>>auth<<<" in result.text and "\x1b" not in result.text
    seen = run.terminal("search", "auth", "--db", store("v22")).text
    assert "\x1b[1;33mauth\x1b[0m" in seen
    hits = run("search", "--hits", "auth", "-t", "--db", store("v22")).ok()
    assert all(line.count("auth") for line in hits.lines)


def test_hostile_text_does_not_steer_the_terminal(run, store) -> None:
    path = store("head-3")
    add(path, ("evil\x1b[2J", "cli", "user", "\x1b]0;pwned\x07 steerword \x1b[31mred", stores.T))
    seen = run("search", "steerword", "-t", "--db", path).ok().text
    assert "\x1b" not in seen and "pwned" not in seen


def test_all_profiles_carry_their_names(run, home) -> None:
    place = home("v22")
    other = place / "profiles" / "work"
    other.mkdir(parents=True)
    (other / "state.db").write_bytes((home("head-3") / "state.db").read_bytes())
    broken = place / "profiles" / "broken"
    broken.mkdir()
    (broken / "state.db").write_bytes(b"rubbish" * 500)
    result = run("search", "copper OR garden", "--all-profiles", "--home", place).gave(1)
    assert {one["profile"] for one in result.records} == {"default", "work"}
    assert "broken" in result.stderr


def test_ids_feed_other_commands(run, store) -> None:
    path = store("v22")
    result = run.shell(
        f"hermes-session-search --db {path} -f ids garden | hermes-session-show --db {path} - | "
        "grep -c irrigation"
    )
    assert result.ok()
