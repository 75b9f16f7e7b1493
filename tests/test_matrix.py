"""Every command on every store: the right answer or the documented refusal, nothing spoiled.

The stores: written by the agent's releases, built by hand for the schemas before and after, from
other programs, and (where the shared folder is) whole homes. The table in hermes-tools(7),
COMPATIBILITY, is compared with what happens here.
"""

import json
import re
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import stores
from conftest import FOREIGN, HOMES, SHIPPED, Result, Run
from scripts import ANSWER, RECORD, SCRIPTS, module_file, need, short
from test_contract import digest, folder
from test_manual import TOUR, section

BUILT = stores.NAMES
ALL = (*SHIPPED, *BUILT, *FOREIGN, *HOMES)
EARLY = tuple(f"v{number}" for number in range(1, 11))
HEAD = tuple(name for name in BUILT if name not in EARLY)

# Names in the manual's table → stores here.
ROWS = {
    "1, 2": ("v1", "v2"),
    "3 to 10": EARLY[2:],
    "11, 13": ("v11", "v13"),
    "14 to 22": ("v14", "v16", "v19", "v22"),
    "31, index layout 0 to 3": ("head-0", "head-1", "head-2", "head-3"),
    "31, index being rebuilt": ("head-pending",),
    "31, index set aside": ("head-stale",),
    "31, cjk index": ("head-cjk",),
    "31, no index": ("nofts",),
    "31, rollback journal": ("delete",),
    "99": ("v99",),
}


@dataclass(frozen=True)
class Sample:
    """What can be asked of a store: a plain ended conversation, a chain, a message, a word."""

    one: str
    tip: str
    message: int
    word: str


def sample(name: str, path: Path) -> Sample:
    """The sample of a store."""
    if name in BUILT:
        return Sample(stores.TOOLS, stores.TIP, message_of(path, stores.TOOLS), "copper")
    if name in SHIPPED:
        one = "20260225_101500_a1b2c3"
        return Sample(one, "20260226_150000_00cc33", message_of(path, one), "garden")
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as db:
        one, text = db.execute(
            "SELECT session_id, content FROM messages WHERE role = 'user' AND session_id IN"
            " (SELECT id FROM sessions WHERE source NOT IN ('tool', 'subagent'))"
            " AND content GLOB '*[a-z][a-z][a-z]*'"
            " AND content NOT LIKE '{%' ORDER BY id LIMIT 1"
        ).fetchone()
    word = max(re.findall(r"[a-z]+", text), key=len)
    return Sample(one, one, message_of(path, one), word)


def message_of(path: Path, session: str) -> int:
    """The first message of a session."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as db:
        found = db.execute("SELECT min(id) FROM messages WHERE session_id = ?", (session,))
        return int(found.fetchone()[0])


def readers(it: Sample) -> dict[str, tuple[list[Any], str | None]]:
    """Reading calls: arguments and standard input."""
    return {
        "list": ([], None), "show": ([it.one], None), "search": ([it.word], None),
        "scroll": ([it.one, it.message], None), "title": ([it.one], None), "stats": ([], None),
        "export": ([], None), "resume": (["latest"], None), "handoff": (["list"], None),
        "key": (["--index"], None), "check": (["--quick"], None), "backup": ([], None),
        "delete": ([it.one, "--dry-run"], None), "archive": ([it.one, "--dry-run"], None),
        "prune": (["--older-than", "1d", "--dry-run"], None), "end": ([it.tip, "--dry-run"], None),
        "import": (["-", "--dry-run"], RECORD), "reset": (["--dry-run"], None),
        "repair": (["--counters", "--dry-run"], None), "migrate": (["--dry-run"], None),
    }  # fmt: skip


def writers(it: Sample) -> dict[str, tuple[list[Any], str | None]]:
    """Writing calls."""
    return {
        "title": ([it.one, "a name for the matrix"], None), "import": (["-"], RECORD),
        "delete": ([it.one, "--yes", "--live"], None), "archive": ([it.one], None),
        "prune": (["--older-than", "1d", "--yes"], None), "end": ([it.tip], None),
        "append": ([it.tip], ANSWER), "handoff": (["request", it.tip, "telegram"], None),
        "deliver": (["--once", "--agent", "cat", "--deliver", "true"], None),
        "reset": (["--yes"], None), "repair": (["--counters", "--yes"], None),
        "optimize": ([], None), "migrate": ([], None),
    }  # fmt: skip


# A negative answer is an answer: faults are found, no session of this kind is there, and the
# sample cannot be handed off (its platform has no home channel here).
ANSWERS = {
    "check": {0, 1}, "resume": {0, 1}, "repair": {0, 1}, "handoff": {0, 1}, "reset": {0, 1},
    "deliver": {0, 1},
}  # fmt: skip


def ask(
    run: Run, script: str, call: tuple[list[Any], str | None], path: Path, **more: Any
) -> Result:
    """A call on a store."""
    argv, given = call
    return run(script, *argv, "--db", path, input=given, **more)


def contents(path: Path, without: set[str]) -> list[Any]:
    """All rows of sessions and messages but those of some sessions."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as db:
        db.text_factory = bytes
        found = []
        for table, owner in (("sessions", "id"), ("messages", "session_id")):
            names = [row[1].decode() for row in db.execute(f"PRAGMA table_info({table})")]
            where = names.index(owner)
            found += [row for row in db.execute(f"SELECT * FROM {table} ORDER BY 1")
                      if row[where].decode() not in without]  # fmt: skip
    return found


# --- Readers ---


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("script", list(readers(Sample("", "", 0, ""))))
def test_readers(script: str, name: str, run: Run, store) -> None:
    need(script)
    path = store(name)
    before = digest(path), folder(path.parent)
    call = readers(sample(name, path))[script]
    result = ask(run, script, call, path)
    assert result.status in {*ANSWERS.get(script, {0}), 78}, (result.status, result.stderr)
    assert "Traceback" not in result.stderr and "a bug" not in result.stderr
    if result.status == 78:
        assert not result.stdout and result.stderr.count("\n") == 1
        documented(script, name)
    assert (digest(path), folder(path.parent)) == before
    again = ask(run, script, call, path)
    assert (again.status, again.stdout) == (result.status, result.stdout)


@pytest.mark.parametrize("name", (*SHIPPED, *BUILT))
@pytest.mark.parametrize("script", ["delete", "prune", "archive", "end", "import", "migrate"])
def test_a_dry_run_tells_what_the_real_run_does(script: str, name: str, run: Run, store) -> None:
    need(script)
    path = store(name)
    it = sample(name, path)
    argv, given = writers(it)[script]
    dry = [word for word in argv if word not in ("--yes", "--live")]
    rehearsed = run(script, *dry, "--dry-run", "--db", path, input=given)
    done = run(script, *argv, "--db", path, input=given)
    assert rehearsed.status == done.status, (rehearsed.stderr, done.stderr)
    assert len(rehearsed.records) == len(done.records)
    for planned, real in zip(rehearsed.records, done.records, strict=True):
        planned, real = dict(planned), dict(real)
        # would_end → ended, would_delete → deleted, skipped → skipped
        assert planned.get("action", "").removeprefix("would_")[:3] == real.get("action", "")[:3]
        for key in ("action", "ended_at", "backup", "seconds"):
            planned.pop(key, None), real.pop(key, None)
        assert planned == real


# --- Writers ---


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("script", list(writers(Sample("", "", 0, ""))))
def test_writers(script: str, name: str, run: Run, store) -> None:
    need(script)
    path = store(name)
    it = sample(name, path)
    before, bytes_before = stores.condition(path), digest(path)
    untouched = contents(path, {it.one, it.tip, "20260401_080000_0a0b0c"})
    call = writers(it)[script]
    result = ask(run, script, call, path)
    after = stores.condition(path)
    assert result.status in {*ANSWERS.get(script, {0}), 78}, (result.status, result.stderr)
    assert "Traceback" not in result.stderr and "a bug" not in result.stderr
    if result.status == 78:
        assert not result.stdout and "\n" not in result.stderr.strip()
        documented(script, name)
        assert digest(path) == bytes_before, "a refusal changes nothing"
    if script == "migrate" and result.status == 0 and (name in EARLY or not before["versions"]):
        assert after["versions"] == [(11,)]
        assert set(after["indexes"].values()) == {True}
        for key in ("versions", "objects", "indexes", "mode"):
            before.pop(key), after.pop(key)
    # repair --counters and end may touch no index; a delete may heal one, never spoil it.
    for index, verdict in before.pop("indexes", {}).items():
        assert after["indexes"][index] is verdict or after["indexes"][index] is True, index
    after.pop("indexes", None)
    widened = script == "import" and name in ("v1", "v2")
    if widened:  # its title needs a column, which is added
        before.pop("objects"), after.pop("objects")
    assert after == before
    if script in ("title", "archive", "append", "import", "end", "delete", "optimize"):
        if widened:
            return
        kept = contents(path, {it.one, it.tip, "20260401_080000_0a0b0c", *conversation(result)})
        assert [row for row in untouched if row in kept] == kept
        if script in ("title", "append", "import", "optimize"):
            assert kept == untouched
    if result.status == 0 and script not in ("append", "deliver", "handoff"):
        # Twice is as once.
        settled = contents(path, set())
        again = ask(run, script, call, path)
        assert again.status in {0, 1} if script in ("delete",) else again.status == 0
        assert contents(path, set()) == settled


def conversation(result: Result) -> set[str]:
    """All sessions a command says it has acted on; a bare answer names none."""
    if not result.stdout.startswith(b"{"):
        return set()
    return {record.get("session_id", "") for record in result.records}


# --- The table ---


def table() -> dict[str, set[str]]:
    """hermes-tools(7), COMPATIBILITY: row → the programs that refuse (78)."""
    found = {}
    for line in re.findall(r"^\.It (.+)$", section(TOUR.read_text(), "COMPATIBILITY"), re.M):
        schema, _, refused = (cell.strip() for cell in line.split(" Ta "))
        if schema.startswith("Em "):
            continue
        found[schema] = set(re.findall(r"\w+", refused)) - {"none"}
    return found


def documented(script: str, name: str) -> None:
    """A refusal must stand in the manual's table."""
    for row, names in ROWS.items():
        if name in names:
            assert script in table()[row], f"{script} refuses {name}, and the manual is silent"


def test_the_table_has_every_store() -> None:
    assert list(table()) == list(ROWS)
    assert {name for names in ROWS.values() for name in names} == {*SHIPPED, *BUILT}
    assert set().union(*table().values()) <= {short(name) for name in SCRIPTS}


@pytest.mark.parametrize("row", ROWS)
def test_the_table_tells_no_refusal_that_does_not_happen(row: str, run: Run, store) -> None:
    for script in table()[row]:
        need(script)
        for name in ROWS[row]:
            path = store(name)
            it = sample(name, path)
            calls = (readers(it).get(script), writers(it).get(script))
            seen = {ask(run, script, call, path).status for call in calls if call}
            assert 78 in seen, (script, name, seen)


# --- The same question, the same answer ---

WORDS = {
    # query → the session that has it; '' where none may be found
    "copper nails": stores.TIP,
    '"copper nails"': stores.TIP,
    "nginx": stores.CJK,
    "备份任务": stores.CJK,
    "重新": "",
    "バックアップ": stores.CJK,
    "다시 실행": stores.CJK,
    "v2": stores.CJK,
    "лампочк": stores.RUSSIAN,
    "ЛАМПОЧКУ": stores.RUSSIAN,
    "ёлка": stores.RUSSIAN,
    "naive cafe": stores.RUSSIAN,
    "🚀": stores.EMOJI,
    "O'Brien": stores.EMOJI,
    "job_id": stores.TOOLS,
    "job_id7": stores.TOOLS,
    "Dachstuhl": stores.PICTURES,
    "Gertrude": stores.UNDONE,
    "secretmemory": "",
    "undoneword": "",
    "scaffoldword": "",
    "carrierword": "",
    "xyzzyword": "",
}


def search_for(run: Run, path: Path, *argv: Any) -> list[Any]:
    """(session, matched role, snippet) of each conversation found."""
    result = run("search", *argv, "--db", path)
    assert result.status in (0, 1), result.stderr
    keys = ("session_id", "matched_role", "snippet")
    return sorted([one[key] for key in keys] for one in result.records)


@pytest.mark.parametrize("name", BUILT)
def test_search_finds_the_same_everywhere(name: str, run: Run, store) -> None:
    need("search")
    path, reference = store(name), store("head-3")
    for query, session in WORDS.items():
        found = search_for(run, path, query)
        sessions = {one[0] for one in found}
        if session and name in ("v1", "v2") and not found:
            pytest.fail(f"{query!r} finds nothing")
        assert (session in sessions) if session else not sessions, (query, found)
        if name in HEAD:
            assert found == search_for(run, reference, query), query
    for more in (["shallowword", "--role", "tool"], ["deepword", "--role", "tool"],
                 ["kubectl", "--role", "user,assistant"], ["backup", "--source", "cron"],
                 ["备份任务", "--source", "cron"], ["zinkwort", "--internal", "any"]):  # fmt: skip
        found = search_for(run, path, *more)
        assert found, more
        if name in HEAD:
            assert found == search_for(run, reference, *more), more


@pytest.mark.parametrize("name", HEAD)
def test_the_same_answers_on_every_layout(name: str, run: Run, store) -> None:
    """Schema 31 and later: every answer is equal, whatever index there is or is not."""
    path, reference = store(name), store("head-3")
    questions: list[list[Any]] = [
        ["list"], ["list", "--archived", "any", "--internal", "any"], ["list", "--segments"],
        ["list", "--tree"], ["list", "--pinned", "only"], ["list", "--descendants", stores.ROOT],
        ["show", stores.TIP], ["show", stores.UNDONE], ["show", stores.UNDONE, "--inactive"],
        ["scroll", stores.TOOLS, message_of(path, stores.TOOLS)],
        ["search", "foldedword"], ["search", "overheardword"], ["search", "atticword"],
        ["search", "concealedword"], ["search", "backup", "--hits", "--source", "cron"],
        ["resume"], ["resume", "roof repair"], ["stats"], ["title", "roof repair"],
        ["export", "-f", "messages"], ["export", "--live-only"], ["export", "-f", "openai"],
        ["prune", "--older-than", "30d", "--dry-run"],
        ["delete", stores.TIP, "--dry-run"], ["archive", stores.TIP, "--dry-run"],
    ]  # fmt: skip
    for script, *argv in questions:
        if not module_file(script).exists():
            continue
        if script in ("prune", "delete"):
            argv.append("--detach-cjk")  # allows what only one of the stores needs
        mine = run(script, *argv, "--db", path)
        theirs = run(script, *argv, "--db", reference)
        assert mine.status == theirs.status, (script, argv, mine.stderr)
        assert comparable(script, mine) == comparable(script, theirs), (script, argv)


VARYING = ("message_uid", "mood", "fingerprint", "weather", "_raw", "_tables", "active", "digest")


def comparable(script: str, result: Result) -> Any:
    """An answer without what rightly differs: sizes, the random ids of messages, columns that
    only one store has, NULL for a live row.
    """
    if script == "stats":
        return [line for line in result.lines if "ize" not in line and "ytes" not in line
                and "path" not in line]  # fmt: skip
    if script != "export":
        return re.sub(r'"(digest|bytes)":("\w+"|\d+)', r'"\1":null', result.text)
    found = []
    for record in result.records:
        for row in (record, *record.get("messages", [])):
            for key in VARYING if isinstance(row, dict) else ():
                row.pop(key, None)
        found.append(json.dumps(record))
    return found


@pytest.mark.parametrize("name", EARLY)
def test_old_stores_answer_as_new_ones(name: str, run: Run, store) -> None:
    """What both can know is equal: the conversations, their order, their messages."""
    need("list")
    path, reference = store(name), store("head-3")
    lacking = {stores.PINNED, stores.HIDDEN}  # conversations such a store cannot hold
    mine = run("list", "--internal", "any", "--db", path).ok().records
    theirs = run("list", "--internal", "any", "--db", reference).ok().records
    theirs = [one for one in theirs if one["session_id"] not in lacking]
    for one in (*mine, *theirs):
        if one["session_id"] == stores.UNDONE:  # its rewound and hidden messages need columns
            one["message_count"] = one["last_active"] = None
        if int(name[1:]) < 3:
            one["title"] = None
    assert [one for one in mine if one["session_id"] != stores.UNDONE] == [
        one for one in theirs if one["session_id"] != stores.UNDONE
    ]
    if module_file("show").exists():
        for session in (stores.TIP, stores.CJK, stores.TOOLS, stores.PICTURES):
            shown = run("show", session, "-f", "text", "--db", path).ok().text
            meant = run("show", session, "-f", "text", "--db", reference).ok().text
            if int(name[1:]) >= 9:
                assert shown == meant
            assert shown
