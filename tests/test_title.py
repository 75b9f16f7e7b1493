"""hermes-session-title: one, many, by a program (field cases F)."""

import json
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

import pytest
import stores

AUTH = "20260225_101500_a1b2c3"
ROOT, TIP = "20260226_090000_00aa11", "20260226_150000_00cc33"
CHAT = "20260227_080000_deadbe01"
CRON = "cron_0_20260228_000000"
GHOST = "20260228_120000_feed01"


def ask(path: Path, sql: str, *values: object) -> list[tuple]:
    """Rows of one statement, committed."""
    with closing(sqlite3.connect(path)) as db, db:
        return db.execute(sql, values).fetchall()


def title_of(path: Path, session_id: str) -> str | None:
    """The stored title."""
    return ask(path, "SELECT title FROM sessions WHERE id = ?", session_id)[0][0]


def lock(path: Path, session_id: str) -> None:
    """A live compression lock."""
    ask(path, "INSERT INTO compression_locks VALUES (?, 'pid=1', 1, 4e9)", session_id)


@pytest.mark.parametrize("name", ["v11", "v14", "v22"])
def test_show(run, store, name: str) -> None:
    path = store(name)
    assert run("title", "--db", path, AUTH).ok().lines == ["refactoring auth"]
    assert run("title", "--db", path, ROOT).ok().lines == ["garden plan"], "the row's own"
    assert run("title", "--db", path, "refactoring auth").ok().lines == ["refactoring auth"]
    shown = run("title", "--db", path, AUTH, "-f", "jsonl").ok().records
    assert shown[0]["title"] == "refactoring auth" and "action" not in shown[0]
    result = run("title", "--db", path, CRON)
    assert result.gave(1).stdout == b"" and "has no title" in result.stderr


def test_show_many_from_standard_input(run, store) -> None:
    path = store("v22")
    result = run("title", "--db", path, "-", input=[AUTH, {"session_id": CRON}, "nobody"])
    assert [one["title"] for one in result.gave(1).records] == ["refactoring auth", None]
    assert "nobody" in result.stderr


def test_words_need_no_quotes(run, store) -> None:
    path = store("v22")
    assert run("title", "--db", path, CHAT, "my", "new  title").ok().lines == ["my new title"]
    assert title_of(path, CHAT) == "my new title"
    assert stores.condition(path)["indexes"]["messages_fts"] is True


@pytest.mark.parametrize("raw", ["", "   ", "\n", "\x1b[0m"])
def test_b64_blank_is_refused(run, store, raw: str) -> None:
    path = store("v22")
    assert "blank" in run("title", "--db", path, CHAT, raw).gave(2).stderr
    assert title_of(path, CHAT) == "备份 и лампочка 🚀"


def test_b64_line_breaks_become_one_space(run, store) -> None:
    path = store("v22")
    run("title", "--db", path, CHAT, "a\nb\tc").ok()
    assert title_of(path, CHAT) == "a b c"


def test_b66_no_escape_reaches_the_terminal(run, store) -> None:
    path = store("v22")
    ask(path, "UPDATE sessions SET title = ? WHERE id = ?", "\x1b]0;evil\x07\x1b[31mred", CHAT)
    shown = run("title", "--db", path, CHAT).ok()
    assert shown.lines == ["red"]


def test_clear(run, store) -> None:
    path = store("v22")
    assert run("title", "--db", path, CHAT, "--clear").ok().stdout == b""
    assert title_of(path, CHAT) is None
    run("title", "--db", path, CHAT, "--clear").ok()


def test_b59_taken(run, store) -> None:
    path = store("v22")
    result = run("title", "--db", path, CHAT, "refactoring auth").gave(1)
    assert not result.stdout and AUTH in result.stderr and "source cli" in result.stderr
    assert title_of(path, CHAT) == "备份 и лампочка 🚀"
    numbered = run("title", "--db", path, CHAT, "--auto-number", "refactoring auth")
    assert numbered.ok().lines == ["refactoring auth #2"]


def test_next_changes_nothing(run, store) -> None:
    path = store("v22")
    before = path.read_bytes()
    assert run("title", "--db", path, TIP, "--next").ok().lines == ["garden plan #4"]
    assert path.read_bytes() == before


def test_dry_run_asks_the_same_questions(run, store) -> None:
    path = store("v22")
    before = path.read_bytes()
    assert run("title", "--db", path, CHAT, "x", "--dry-run").ok().lines == ["x"]
    run("title", "--db", path, CHAT, "refactoring auth", "--dry-run").gave(1)
    assert path.read_bytes() == before


def test_under_compression(run, store) -> None:
    path = store("v22")
    lock(path, CHAT)
    assert "compressed" in run("title", "--db", path, CHAT, "x").gave(1).stderr
    assert run("title", "--db", path, CHAT, "x", "--live").ok().lines == ["x"]


@pytest.mark.parametrize(
    "argv",
    [
        (CHAT, "x", "--clear"),
        (CHAT, "--next", "--clear"),
        ("-", "x"),
        ("--clear", "--source", "cli"),
        (CHAT, "x" * 101),
        ("--untitled", "--set", "-"),
    ],
)
def test_usage(run, store, argv: tuple[str, ...]) -> None:
    path = store("v22")
    before = path.read_bytes()
    assert not run("title", "--db", path, *argv, input="").gave(2).stdout
    assert path.read_bytes() == before


def test_b68_eight_processes_want_one_title(run, store) -> None:
    path = store("v22")
    rows = [row[0] for row in ask(path, "SELECT id FROM sessions WHERE title IS NULL LIMIT 8")]
    found = [run.start("title", "--db", path, row, "one for all") for row in rows]
    statuses = [child.wait() for child in found if child.communicate()]
    assert sorted(statuses) == [0] + [1] * 7
    assert len(ask(path, "SELECT id FROM sessions WHERE title = 'one for all'")) == 1


def test_set_many(run, store) -> None:
    path = store("v22")
    wishes = [
        {"session_id": CRON, "title": "nightly"},
        {"session_id": CHAT, "title": None},
        {"session_id": "nobody", "title": "x"},
        {"session_id": TIP, "title": "refactoring auth"},
        {"session_id": GHOST, "title": "late", "expect": "something"},
        {"session_id": ROOT, "title": "  "},
        {"session_id": AUTH, "title": "auth", "expect": "refactoring auth"},
    ]
    result = run("title", "--db", path, "--set", "-", input=wishes).gave(1)
    assert [(one["session_id"], one["action"]) for one in result.records] == [
        (CRON, "titled"), (CHAT, "unchanged"), (TIP, "refused"), (GHOST, "refused"),
        (ROOT, "refused"), (AUTH, "titled"),
    ]  # fmt: skip
    assert title_of(path, CHAT) == "备份 и лампочка 🚀", "null never clears"
    assert (title_of(path, CRON), title_of(path, AUTH)) == ("nightly", "auth")


def test_a_malformed_wish_changes_nothing(run, store) -> None:
    path = store("v22")
    text = json.dumps({"session_id": CRON, "title": "nightly"}) + "\n{oops\n"
    assert "line 2" in run("title", "--db", path, "--set", "-", input=text).gave(65).stderr
    assert title_of(path, CRON) is None


def test_set_from_a_file(run, store, tmp_path: Path) -> None:
    path = store("v22")
    (tmp_path / "wishes").write_text(json.dumps({"session_id": CRON, "title": "nightly"}))
    run("title", "--db", path, "--set", tmp_path / "wishes").ok()
    run("title", "--db", path, "--set", tmp_path / "absent").gave(66)
    assert title_of(path, CRON) == "nightly"


def test_untitled(run, store) -> None:
    path = store("v22")
    records = run("title", "--db", path, "--untitled").ok().records
    assert all(one["expect"] is None and one["title"] is None for one in records)
    assert {AUTH, TIP, GHOST}.isdisjoint(one["session_id"] for one in records)
    one = next(one for one in records if one["session_id"] == CRON)
    assert one["excerpt"]["user"].startswith("Nightly report")
    assert len(one["excerpt"]["assistant"]) <= 500


def test_untitled_is_applied_while_it_holds(run, store) -> None:
    path = store("v22")
    found = run("title", "--db", path, "--untitled", "--source", "cron").ok().records
    run("title", "--db", path, CRON, "by hand").ok()
    for one in found:
        one["title"] = "night " + one["session_id"][5]
    result = run("title", "--db", path, "--set", "-", input=found).gave(1)
    assert sorted(one["action"] for one in result.records) == ["refused", "titled", "titled"]
    assert title_of(path, CRON) == "by hand"


def test_a_continuation_inherits_its_line(run, store) -> None:
    path = store("v22")
    ask(path, "UPDATE sessions SET title = NULL WHERE id = ?", TIP)
    records = run("title", "--db", path, "--untitled").ok().records
    one = next(one for one in records if one["session_id"] == TIP)
    assert one["title"] == "garden plan #3"
    run("title", "--db", path, "--untitled", "--title-cmd", "exit 1", "--title-like", "gard").ok()
    assert title_of(path, TIP) == "garden plan #3"


def test_by_a_program(run, store) -> None:
    path = store("v22")
    ask(path, "ALTER TABLE sessions ADD COLUMN title_source TEXT")
    command = "printf 'Title: \"night of %s\"\\nmore\\n' $HERMES_SESSION_ID"
    argv = ("title", "--db", path, "--untitled", "--source", "cron", "--title-cmd", command)
    records = run(*argv, "--jobs", 3).ok().records
    assert {one["action"] for one in records} == {"titled"} and len(records) == 3
    assert title_of(path, CRON) == f"night of {CRON}"
    assert ask(path, "SELECT title_source FROM sessions WHERE id = ?", CRON) == [("llm",)]
    assert run(*argv).ok().records == [], "never over a title that is there"


def test_a_program_gets_the_record_on_standard_input(run, store, tmp_path: Path) -> None:
    path = store("v22")
    command = f"cat > {tmp_path}/got; echo fine"
    run("title", "--db", path, CRON, "--title-cmd", command).ok()
    got = json.loads((tmp_path / "got").read_text())
    assert got["session_id"] == CRON and got["excerpt"]["user"].startswith("Nightly")


def test_a_dry_run_calls_no_program(run, store, tmp_path: Path) -> None:
    path = store("v22")
    command = f"touch {tmp_path}/called; echo x"
    argv = ("title", "--db", path, "--untitled", "--title-cmd", command, "--dry-run")
    assert {one["action"] for one in run(*argv).ok().records} == {"would_title"}
    assert not (tmp_path / "called").exists()


@pytest.mark.parametrize(
    "command", ["exit 3", "echo", "sleep 9", "kill -9 $$", "yes w | tr '\\n' ' ' | head -c 40"]
)
def test_three_failures_in_a_row_end_it(run, store, command: str) -> None:
    path = store("v22")
    argv = ("title", "--db", path, "--untitled", "--title-cmd", command, "--cmd-timeout", "0.2")
    result = run(*argv).gave(1)
    assert [one["action"] for one in result.records] == ["refused"] * 3
    assert "3 failures in a row" in result.stderr
    assert not ask(path, "SELECT id FROM sessions WHERE title = 'w'")


def test_clashing_suggestions_are_numbered(run, store) -> None:
    path = store("v22")
    argv = ("title", "--db", path, "--untitled", "--source", "cron", "--title-cmd", "echo night")
    titles = [one["title"] for one in run(*argv).ok().records]
    assert titles == ["night", "night #2", "night #3"]


def test_interrupted_programs_do_not_stay(run, store, tmp_path: Path) -> None:
    path = store("v22")
    command = f"echo $$ > {tmp_path}/pid; sleep 60; echo x"
    child = run.start("title", "--db", path, CRON, "--title-cmd", command)
    for _ in range(100):
        if (tmp_path / "pid").exists() and (tmp_path / "pid").read_text().strip():
            break
        subprocess.run(["sleep", "0.05"])
    child.terminate()
    assert child.wait(10) == 143
    pid = (tmp_path / "pid").read_text().strip()
    assert subprocess.run(["ps", "-p", pid], capture_output=True).returncode != 0


def test_b138_two_hundred_titles_beside_a_writer(store) -> None:
    """Short-lived writers and a long-lived one get along; set in one process, as a program does."""
    from hermes_tools.store import titles
    from hermes_tools.store.db import transaction, writer

    path = store("v22")
    with closing(sqlite3.connect(path, isolation_level=None, timeout=5)) as other:
        for number in range(200):
            other.execute("BEGIN IMMEDIATE")
            other.execute(
                "INSERT INTO messages (session_id, role, content, timestamp) "
                "VALUES (?, 'user', 'x', 1)", (AUTH,)
            )  # fmt: skip
            other.execute("COMMIT")
            with writer(path) as db, transaction(db):
                titles.set_title(db, CHAT, f"title {number}")
        assert (
            other.execute("SELECT count(*) FROM messages WHERE content = 'x'").fetchone()[0] == 200
        )
    assert title_of(path, CHAT) == "title 199"
