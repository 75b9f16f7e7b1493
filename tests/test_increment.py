"""Incremental export and its other end: cursor, commit, follow, origin, mirror."""

import json
import shutil
import signal
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import Run, find_shared

Store = Callable[[str], Path]
CLI, TIP = "20260225_101500_a1b2c3", "20260226_150000_00cc33"
T = 1772355600.0


def change(path: Path, *statements: str) -> None:
    db = sqlite3.connect(path)
    for sql in statements:
        db.execute(sql)
    db.commit()
    db.close()


def say(path: Path, session_id: str, text: str) -> None:
    change(path, "INSERT INTO messages (session_id, role, content, timestamp) "
           f"VALUES ('{session_id}', 'user', '{text}', {T})")  # fmt: skip


def said(path: Path, session_id: str) -> list[Any]:
    db = sqlite3.connect(path)
    sql = "SELECT role, content, timestamp FROM messages WHERE session_id = ? ORDER BY id"
    return db.execute(sql, (session_id,)).fetchall()


def everything(path: Path) -> list[Any]:
    db = sqlite3.connect(path)
    return db.execute(
        "SELECT s.id, s.title, s.end_reason, m.role, m.content, m.active FROM sessions s "
        "LEFT JOIN messages m ON m.session_id = s.id ORDER BY s.id, m.id"
    ).fetchall()


class Pair:
    """A store, its cursor, and an archive that is fed from it."""

    def __init__(self, run: Run, store: Path, place: Path) -> None:
        self.run, self.store = run, store
        self.cursor, self.archive = place / "cursor", place / "archive.db"

    def news(self) -> list[dict[str, Any]]:
        return self.run("export", "--db", self.store, "--cursor", self.cursor).ok().records

    def adopt(self) -> None:
        self.run("export", "--commit", self.cursor).ok()

    def send(self, *how: str, status: int = 0) -> list[dict[str, Any]]:
        lines = self.run("export", "--db", self.store, "--cursor", self.cursor).ok().stdout
        found = self.run("import", "--db", self.archive, "--create", *how, input=lines)
        found.gave(status)
        self.adopt()
        return found.records


@pytest.fixture
def pair(run: Run, store: Store, tmp_path: Path) -> Pair:
    return Pair(run, store("v22"), tmp_path)


def test_a_position_is_adopted_only_when_it_is_committed(pair: Pair) -> None:
    first = pair.news()
    assert first and pair.news() == first  # nobody said that it arrived
    pair.adopt()
    assert pair.news() == []
    say(pair.store, CLI, "one more")
    (one,) = pair.news()
    assert [m["content"] for m in one["messages"]] == ["one more"]
    assert one["_delta"]["after"] == len(said(pair.store, CLI)) - 1
    assert pair.news() == [one]
    pair.adopt()
    assert pair.news() == []
    pair.adopt()
    pair.run("export", "--commit", pair.cursor).gave(1)


def test_a_file_is_adopted_at_once_and_kept_when_nothing_is_new(pair: Pair, tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    argv = ("export", "--db", pair.store, "--cursor", pair.cursor, "-o", out)
    pair.run(*argv).ok()
    before = out.read_bytes()
    pair.run(*argv).ok()
    assert out.read_bytes() == before
    say(pair.store, CLI, "new")
    pair.run(*argv).ok()
    assert len(out.read_text().splitlines()) == 1


def test_an_archive_follows_what_is_said_changed_and_undone(pair: Pair) -> None:
    pair.send()
    assert everything(pair.archive) == everything(pair.store)
    say(pair.store, CLI, "hello again")
    change(pair.store,
           f"UPDATE messages SET active = 0 WHERE id = (SELECT max(id) FROM messages "
           f"WHERE session_id = '{TIP}')",
           f"UPDATE sessions SET title = 'renamed', rewind_count = 1 WHERE id = '{TIP}'")
    report = {one["session_id"]: one["action"] for one in pair.send()}
    assert report == {CLI: "updated", TIP: "updated"}
    assert everything(pair.archive) == everything(pair.store)


def test_the_same_news_twice_are_the_same(pair: Pair) -> None:
    pair.send()
    say(pair.store, CLI, "once")
    lines = pair.run("export", "--db", pair.store, "--cursor", pair.cursor).ok().stdout
    for action in ("updated", "unchanged"):
        (one,) = pair.run("import", "--db", pair.archive, input=lines).ok().records
        assert one["action"] == action
    assert everything(pair.archive) == everything(pair.store)


def test_a_gap_is_told_and_nothing_is_added_behind_it(pair: Pair) -> None:
    pair.send()
    say(pair.store, CLI, "lost on the way")
    pair.news()
    pair.adopt()
    say(pair.store, CLI, "arrives")
    before = said(pair.archive, CLI)
    (one,) = pair.send(status=1)
    assert one["action"] == "gap" and said(pair.archive, CLI) == before


def test_deletions_are_recorded_and_only_a_mirror_follows(pair: Pair, run: Run) -> None:
    pair.send()
    run("delete", "--db", pair.store, CLI, "--yes", "--live").ok()
    (one,) = pair.news()
    assert one["id"] == CLI and one["_deleted"] is True
    lines = run("export", "--db", pair.store, "--cursor", pair.cursor).ok().stdout
    (report,) = run("import", "--db", pair.archive, input=lines).ok().records
    assert report["action"] == "skipped" and said(pair.archive, CLI)
    (report,) = run("import", "--db", pair.archive, "--mirror", input=lines).ok().records
    assert report["action"] == "deleted" and not said(pair.archive, CLI)


def test_a_rewritten_session_needs_a_mirror(pair: Pair, run: Run) -> None:
    pair.send()
    change(pair.store, f"DELETE FROM messages WHERE session_id = '{CLI}'")
    say(pair.store, CLI, "all is new")
    lines = run("export", "--db", pair.store, "--cursor", pair.cursor).ok().stdout
    (report,) = run("import", "--db", pair.archive, input=lines).gave(1).records
    assert report["action"] == "diverged"
    run("import", "--db", pair.archive, "--mirror", input=lines).ok()
    assert everything(pair.archive) == everything(pair.store)


def test_the_cursor_of_another_store_is_refused(pair: Pair, run: Run, store: Store) -> None:
    pair.news()
    pair.adopt()
    run("export", "--db", store("v19"), "--cursor", pair.cursor).gave(2)
    pair.cursor.write_text("{}")
    run("export", "--db", pair.store, "--cursor", pair.cursor).gave(65)


def test_flat_news_name_what_was_deleted(pair: Pair, run: Run) -> None:
    argv = ("export", "--db", pair.store, "--cursor", pair.cursor, "-f", "messages")
    first = run(*argv).ok().records
    pair.adopt()
    say(pair.store, TIP, "more")
    change(pair.store, f"DELETE FROM messages WHERE session_id = '{CLI}'",
           f"DELETE FROM session_model_usage WHERE session_id = '{CLI}'",
           f"DELETE FROM sessions WHERE id = '{CLI}'")  # fmt: skip
    found = run(*argv).ok().records
    assert [(one["session_id"], one["role"], one["content"]) for one in found] == [
        (TIP, "user", "more"), (CLI, "_deleted", None)]  # fmt: skip
    assert all(list(one) == list(first[0]) for one in found)


def test_two_hosts_share_an_archive(run: Run, store: Store, tmp_path: Path) -> None:
    one, two, archive = store("v11"), store("v11"), tmp_path / "archive.db"
    change(two, f"UPDATE messages SET content = 'other ' || id WHERE session_id = '{CLI}'")
    for _ in range(2):
        for name, path in (("attic", one), ("cellar", two)):
            lines = run("export", "--db", path, "--origin", name, CLI).ok().stdout
            run("import", "--db", archive, "--create", input=lines).ok()
    assert said(archive, CLI) == said(one, CLI)
    assert said(archive, f"{CLI}@cellar") == said(two, CLI)
    ids = sqlite3.connect(archive).execute("SELECT id FROM sessions ORDER BY id").fetchall()
    assert ids == [(CLI,), (f"{CLI}@cellar",)]


def test_following_survives_a_lock_and_a_restored_file(
    pair: Pair, run: Run, tmp_path: Path
) -> None:
    path = tmp_path / "live.db"
    shutil.copy(pair.store, path)
    cursor = tmp_path / "position"
    run("export", "--db", path, "--cursor", cursor).ok()
    run("export", "--commit", cursor).ok()
    child = run.start("export", "--db", path, "--follow", "--cursor", cursor, "-f", "messages")
    assert child.stdout
    try:
        say(path, CLI, "first")
        assert json.loads(child.stdout.readline())["content"] == "first"
        change(path, "ALTER TABLE messages ADD COLUMN later TEXT")
        say(path, CLI, "after a migration")
        assert json.loads(child.stdout.readline())["content"] == "after a migration"
        copy, live = sqlite3.connect(tmp_path / "copy.db"), sqlite3.connect(path)
        live.backup(copy)
        copy.execute("INSERT INTO messages (session_id, role, content, timestamp) "
                     f"VALUES ('{TIP}', 'user', 'in the restored one', {T})")  # fmt: skip
        copy.commit()
        copy.backup(live)
        assert json.loads(child.stdout.readline())["content"] == "in the restored one"
    finally:
        child.send_signal(signal.SIGINT)
        child.communicate()
    assert child.returncode == 130


def test_following_feeds_an_archive_as_it_goes(pair: Pair, run: Run) -> None:
    pair.send()
    follower = run.start("export", "--db", pair.store, "--follow", "--cursor", pair.cursor)
    feeder = run.start("import", "--db", pair.archive, "--stream", "-f", "jsonl",
                       stdin=follower.stdout)  # fmt: skip
    assert feeder.stdout
    try:
        say(pair.store, CLI, "live")
        assert json.loads(feeder.stdout.readline())["action"] == "updated"
        assert said(pair.archive, CLI) == said(pair.store, CLI)
    finally:
        follower.send_signal(signal.SIGINT)
        follower.communicate()
        feeder.communicate()


def test_duckdb_reads_flat_messages(run: Run, store: Store, tmp_path: Path) -> None:
    duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed")
    out = tmp_path / "messages.jsonl"
    run("export", "--db", store("v22"), "-f", "messages", "-o", out).ok()
    ((count,),) = duckdb.sql(
        f"SELECT count(*) FROM read_json_auto('{out}', format = 'newline_delimited') "
        "WHERE role = 'user' AND timestamp > 1.7e9"
    ).fetchall()
    db = sqlite3.connect(store("v22"))
    assert count == db.execute("SELECT count(*) FROM messages WHERE role = 'user'").fetchone()[0]


def test_a_whole_home_goes_through_a_cursor(
    run: Run, home: Callable[[str], Path], tmp_path: Path
) -> None:
    find_shared()
    pair = Pair(run, home("home-0.19") / "state.db", tmp_path)
    pair.send()
    assert [row[3:5] for row in everything(pair.archive)] == [
        row[3:5] for row in everything(pair.store)]  # fmt: skip
    assert pair.news() == []
