"""What people typed and did not find: the search half of the field cases, on stores of their own.

Each test is named after its case.
"""

import itertools
import sqlite3
import tracemalloc
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from conftest import Run
from stores import T, make


@pytest.fixture(params=[3, 0, None], ids=["layout 3", "layout 0", "no index"])
def talk(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """talk("text", …): a store with one session a text, named s0, s1 …; each layout in turn."""
    numbers = itertools.count()

    def build(*texts: str | dict[str, Any]) -> Path:
        return make(tmp_path / f"s{next(numbers)}.db", [
            {"id": f"s{number}", "messages": [text]} for number, text in enumerate(texts)
        ], layout=request.param)  # fmt: skip

    return build


def found(run: Run, path: Path, *argv: Any, status: int = 0) -> set[str]:
    return set(run("search", "--db", path, *argv).gave(status).ids)


def test_b02_dots_and_dashes_at_the_edges(run: Run, talk: Any) -> None:
    path = talk(".npmrc lives here", "unpack with tar -xzf", "start python -m mod", "add --verbose",
                "approx. ten")  # fmt: skip
    for number, query in enumerate([".npmrc", "tar -xzf", "python -m", "--verbose", "approx."]):
        assert found(run, path, "--", query) == {f"s{number}"}, query
    for query in ("--", ".", "- -", "…"):
        result = run("search", "--db", path, "--", query)
        assert result.status in (1, 2) and not result.stdout
        assert result.status == 2 or query == "…"


def test_b04_a_colon_is_a_letter_like_others(run: Run, talk: Any) -> None:
    path = talk("FIXME: retry the job at 10:30, then err:timeout", "content: a retry", "30 10")
    for query in ("FIXME: retry", "10:30", "err:timeout"):
        assert found(run, path, query) == {"s0"}, query
    assert found(run, path, "content: retry") == {"s1"}, "both words, no filter by column"


def test_b05_a_name_by_its_stem(run: Run, talk: Any) -> None:
    path = talk("worker job_id7 died", "the job has an id 8")
    assert found(run, path, "job_id7") == found(run, path, "job_id") == {"s0"}


def test_b07_quotes(run: Run, talk: Any) -> None:
    path = talk("connection pool exhausted", "pool of connection objects")
    assert found(run, path, '"connection pool"') == {"s0"}
    assert found(run, path, '"connection pool') == {"s0", "s1"}
    assert found(run, path, 'pool"') == {"s0", "s1"}
    for empty in ('""', '" "'):
        assert not run("search", empty, "--db", path).gave(2).stdout


@pytest.mark.parametrize("query", ["*term", "^term", "(term", "term)", "{content}: term"])
def test_b08_signs_of_fts5_are_signs(run: Run, talk: Any, query: str) -> None:
    path = talk(f"as typed: {query}.", "the term of content")
    assert found(run, path, "--", query) == {"s0"}


@pytest.mark.parametrize("query", ["*", "^", "()", "{}:"])
def test_b08_signs_alone_are_no_query(run: Run, talk: Any, query: str) -> None:
    assert not run("search", "--db", talk("the term"), "--", query).gave(2).stdout


def test_b08_near_is_a_word(run: Run, talk: Any) -> None:
    assert found(run, talk("it is near( the", "far"), "NEAR(") == {"s0"}


def test_b13_b15_b16_a_word_within_a_run(run: Run, talk: Any) -> None:
    path = talk(
        "今天的备份任务失败了需要重跑", "周五 上线", "他们周五上线了", "周五。", "需要重启服务"
    )
    assert found(run, path, "备份任务") == {"s0"}
    result = run("search", "周五", "--db", path).ok()
    assert sorted(result.ids) == ["s1", "s2", "s3"], "all, and each once"
    assert found(run, path, "重启*") == found(run, path, "重启") == {"s4"}


def test_b19_short_and_long_words_together(run: Run, talk: Any) -> None:
    path = talk("部署计划在周五", "部署计划", "周五")
    assert found(run, path, "部署计划 周五") == {"s0"}


def test_b20_every_script_folds(run: Run, talk: Any) -> None:
    path = talk("купили новую лампочку", "der STRASSENBAU", "Ναυτίλος")
    for query in ("лампочк", "ЛАМПОЧКУ", "Лампочку"):
        assert found(run, path, query) == {"s0"}, query
    assert found(run, path, "strassenbau") == {"s1"}
    assert found(run, path, "ναυτιλοσ") == {"s2"}


def test_b21_a_lone_emoji(run: Run, talk: Any) -> None:
    assert found(run, talk("release 🚀 done", "release done"), "🚀") == {"s0"}


def test_b23_without_any_index(run: Run, store) -> None:
    path = store("nofts")
    assert run("search", "copper", "-v", "--db", path).ok().ids
    for argv in (["list"], ["export"], ["stats"], ["title", "roof repair"]):
        assert run(*argv, "--db", path).ok().stdout
    words = run("search", "copper", "--db", path).ok().stderr
    assert "index" in words and words.count("\n") == 1, "says that it reads every message"


def test_b28_words_that_only_tools_said(run: Run, talk: Any) -> None:
    path = talk({"role": "tool", "content": "segfault in libfoo", "tool_name": "shell"})
    result = run("search", "segfault", "--db", path)
    assert result.ids == ["s0"] or "tool" in result.stderr
    assert found(run, path, "segfault", "--role", "tool") == {"s0"}


def test_b29_calls_and_names_of_tools(run: Run, talk: Any) -> None:
    calls = (
        '[{"id": "c", "function": {"name": "shell", "arguments": "{\\"x\\": \\"kubectl get\\"}"}}]'
    )
    path = talk({"role": "assistant", "content": None, "tool_calls": calls}, "nothing")
    (one,) = run("search", "kubectl", "--db", path).ok().records
    assert one["session_id"] == "s0" and ">>>kubectl<<<" in one["snippet"]


def test_b44_paging_gives_each_message_once(run: Run, tmp_path: Path) -> None:
    texts = [f"number {n}" for n in range(25)]
    path = make(tmp_path / "s.db", [{"id": "s", "messages": texts}, {"id": "t", "messages": ["x"]}])
    seen: list[str] = []
    last = 0
    for _ in range(9):
        argv = ["s", "--after-id", last, "--window", 10, "--db", path]
        rows = [row for one in run("scroll", *argv).records for row in one["messages"]]
        if not rows:
            break
        seen += [row["content"] for row in rows]
        last = rows[-1]["id"]
    assert seen == texts


def test_b169_b38_long_rows_are_not_kept(run: Run, tmp_path: Path) -> None:
    path = make(tmp_path / "s.db", [{"id": "s", "messages": ["x"]}])
    with closing(sqlite3.connect(path)) as db, db:
        db.executemany(
            "INSERT INTO messages (session_id, role, content, timestamp)"
            " VALUES ('s', 'tool', ?, ?)",
            (("needle " + "hay " * 250_000, T + n) for n in range(60)),
        )
    run("search", "x", "--db", path)  # what is loaded once does not count
    tracemalloc.start()
    try:
        result = run("search", "needle", "--role", "tool", "--hits", "-n", "0", "--db", path).ok()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(result.records) == 60 and len(result.stdout) < 200_000
    assert peak < 40_000_000, "a few rows at a time, not sixty million letters"


def test_b170_a_scan_stops_at_the_limit(run: Run, tmp_path: Path) -> None:
    """Told by what it says of the rest: a scan that stopped early cannot know their number."""
    path = make(tmp_path / "s.db", [{"id": "s", "messages": ["x"]}], layout=None)
    with closing(sqlite3.connect(path)) as db, db:
        for number in range(200):
            db.execute(
                "INSERT INTO sessions (id, source, started_at) VALUES (?, 'cli', ?)",
                (f"n{number}", T + number),
            )
        db.executemany(
            "INSERT INTO messages (session_id, role, content, timestamp)"
            " VALUES (?, 'user', '周五', ?)",
            ((f"n{n // 150}", T + n) for n in range(30_000)),
        )
    result = run("search", "周", "-n", "3", "--sort", "newest", "--db", path).ok()
    assert result.ids == ["n199", "n198", "n197"]
    cut = [line for line in result.stderr.splitlines() if "-n 0" in line]
    assert cut and "200" not in cut[0], "it did not count them all"
