"""The same calls on our SessionDB and on that of the agent's release 0.13: equal results, equal
errors, equal rows, after every single call. Skipped where the release cannot be installed.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

DRIVER = Path(__file__).with_name("sessiondb_driver.py")

Call = tuple[Any, ...]


class Side:
    """One of the two, in a process of its own."""

    def __init__(self, python: Path | str, module: str, place: Path) -> None:
        self.place, self.taken = place, 0
        place.mkdir()
        env = {**os.environ, "HERMES_HOME": str(place), "HOME": str(place)}
        self.process = subprocess.Popen(
            [str(python), str(DRIVER), module], env=env, cwd=place, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8",
        )  # fmt: skip

    def ask(self, now: float, method: str, *call: Any) -> dict[str, Any]:
        assert self.process.stdin and self.process.stdout
        self.process.stdin.write(json.dumps([now, method, *call]) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())  # type: ignore[no-any-return]

    def fresh(self) -> None:
        """A new, empty store."""
        self.taken += 1
        answer = self.ask(0.0, "open", str(self.place / f"{self.taken}" / "state.db"))
        assert answer == {"result": None}, answer

    def close(self) -> None:
        assert self.process.stdin
        self.process.stdin.close()
        self.process.wait(timeout=60)


@pytest.fixture(scope="module")
def sides(
    agent: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Side, Side]]:
    place = tmp_path_factory.mktemp("differential")
    both = (
        Side(agent("0.13.0").parent / "python", "hermes_state", place / "theirs"),
        Side(sys.executable, "hermes_tools", place / "ours"),
    )
    yield both
    for side in both:
        side.close()


def some(*values: Any) -> st.SearchStrategy[Any]:
    return st.sampled_from(values)


ids = some("a", "b", "c", "Ab", "ab_1", "abx1", "20260301_1200_aa", "20260301_1200_ab", "%", "zz")
refs = some("a", "A", "ab", "AB", "ab_", "abx", "2026", "20260301_1200", "%", "_", "", "zz")
sources = some("cli", "telegram", "tool", "tui", "cron")
texts = some(
    "hello world", "alpha beta job_id7", "今天的备份任务失败了", "周五上线 alpha", "", "  ", None,
    "x" * 70, "line one\nline two\r\n end", "<memory-context>m</memory-context> hi", "hello world",
    5, 2.5, True, [{"type": "text", "text": "multi alpha"}, {"type": "image_url"}], {"k": "v"},
    [], [1, "a"], "\0json:[1]", "\0json:{bad", "nul\0inside alpha", {"bytes": "c3a9"}, "😀 emoji",
    "[System note: The following is recalled memory context, NOT new user input. "
    "Treat as informational background data.] hi",
    "x" * 300 + " alpha " + "y" * 300, "周五" * 80, "安녕 alpha 하세요", "alpha", "alpha",
)  # fmt: skip
roles = some("user", "user", "user", "assistant", "assistant", "tool", "system", "")
calls = some(
    None, [], [{"id": "c1", "function": {"name": "f", "arguments": "{}"}}], [1, 2], {"a": 1},
    "str", "", 0, 3,
)  # fmt: skip
details = some(None, [], [{"a": 1}], "s", {}, {"x": "é"})
titles = some(
    "plan", "plan #2", "plan #3", "plan #10", "Plan", "p%", "p_", "pl #x", "", "  plan  ",
    "x" * 101, "x" * 100, "plan\u200b #4", "a\tb\x07c\x85", "#2", " #2", "base", "base #1",
)  # fmt: skip
PIECES = (
    "alpha", "hello", "周五", "上线", "备份任务", "任务失败了", "job_id", "job_id7", "AND", "OR",
    "NOT", "and", "or", '"', '"', "'", "(", ")", "*", "-", "_", ".", ":", "^", "+", "{", "%", "é",
    "x.y", "하세요", "NEAR", "😀", "\0", " ", " ", " ", " ",
)  # fmt: skip
queries = st.lists(st.sampled_from(PIECES), min_size=1, max_size=8).map("".join) | some(
    "alpha", "alpha beta", "周五", "备份任务", '"hello world"', "hel*", "alpha 周五"
)


def options(**values: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Any of these options, none of them needed."""
    return st.fixed_dictionaries({}, optional=values)


def call(
    method: str, *arguments: st.SearchStrategy[Any], **named: st.SearchStrategy[Any]
) -> st.SearchStrategy[Call]:
    return st.tuples(st.just(method), st.tuples(*arguments).map(list), options(**named))


extras = {
    "tool_name": some("kubectl", "", None), "tool_calls": calls, "tool_call_id": some("t1", ""),
    "token_count": some(3, 0), "finish_reason": some("stop", ""), "reasoning": some("r", ""),
    "reasoning_content": some("rc", ""), "reasoning_details": details,
    "codex_reasoning_items": details, "codex_message_items": details,
}  # fmt: skip
message = st.fixed_dictionaries(
    {}, optional={"role": roles, "content": texts.filter(lambda text: text != {"bytes": "c3a9"}),
                  **extras}
)  # fmt: skip
amount = st.integers(0, 9)
page = {"limit": some(0, 1, 3, 20, -1), "offset": some(0, 1, 2)}

create = call(
    "create_session", ids, sources, model=some("m", "", None), system_prompt=some("sp"),
    model_config=some({"_branched_from": "a"}, {}, None, {"é": 1}), user_id=some("u"),
    parent_session_id=ids,
)  # fmt: skip
append = call("append_message", ids, roles, texts, **extras)
end = call("end_session", ids, some("compression", "compression", "branched", "done", None))
search = call(
    "search_messages", queries, **page, exclude_sources=some(["tool"], [], ["cli"]),
    source_filter=some(["cli"], ["cli", "telegram"], []), role_filter=some(["user"], []),
)  # fmt: skip
listing = call(
    "list_sessions_rich", **page, source=sources | some(""), include_children=st.booleans(),
    exclude_sources=some(["tool"], ["cli", "cron"], []), project_compression_tips=st.booleans(),
    order_by_last_active=st.booleans(),
)  # fmt: skip
others = (
    call("ensure_session", ids, source=sources, model=some("mm"), parent_session_id=ids),
    *(call(method, ids) for method in (
        "reopen_session", "get_session", "get_messages", "clear_messages", "get_session_title",
        "get_compression_tip", "resolve_resume_session_id", "export_session", "delete_session",
        "claim_handoff", "complete_handoff", "get_handoff_state",
    )),
    *(call(method) for method in (
        "finalize_orphaned_compression_sessions", "list_pending_handoffs", "vacuum",
    )),
    *(call(method, titles) for method in (
        "sanitize_title", "get_session_by_title", "resolve_session_by_title",
        "get_next_title_in_lineage",
    )),
    call("resolve_session_id", refs),
    call("update_system_prompt", ids, some("prompt", "", None)),
    call(
        "update_token_counts", ids, input_tokens=amount, output_tokens=amount,
        model=some("m1", ""), cache_read_tokens=amount, cache_write_tokens=amount,
        reasoning_tokens=amount, estimated_cost_usd=some(None, 0.5, 0.0),
        actual_cost_usd=some(None, 0.25, 0), cost_status=some("a", ""), cost_source=some("s"),
        pricing_version=some("1", "2"), billing_provider=some("p", "q", ""),
        billing_base_url=some("u"), billing_mode=some("x", "y"), api_call_count=amount,
        absolute=st.booleans(),
    ),
    call("replace_messages", ids, st.lists(message, max_size=4)),
    call("get_messages_as_conversation", ids, include_ancestors=st.booleans()),
    call("set_session_title", ids, titles | some(None)),
    call("search_sessions", **page, source=sources),
    call("session_count", source=sources),
    call("message_count", session_id=ids),
    call("export_all", source=sources),
    call("prune_sessions", older_than_days=some(0, 1, 5, 90, -1, 0.5), source=sources),
    call("get_meta", some("k", "last_auto_prune")),
    call("set_meta", some("k", "last_auto_prune"), some("1", None, 7, "x", "1772000000")),
    call("maybe_auto_prune_and_vacuum", retention_days=some(90, 5, 0),
         min_interval_hours=some(24, 0), vacuum=st.booleans()),
    call("request_handoff", ids, some("telegram", "discord")),
    call("fail_handoff", ids, some("e", "x" * 600, "")),
)  # fmt: skip
# Writing is what makes the rest worth asking.
anything = st.one_of(create, append, append, append, end, listing, search, *others)
steps = st.lists(
    st.tuples(some(0.0, 0.001, 1.0, 3600.0, 2 * 86400.0), anything), min_size=20, max_size=60
)


def compare(sides: tuple[Side, Side], story: list[tuple[float, Call]]) -> None:
    """Both sides live through the same story."""
    theirs, ours = sides
    for side in sides:
        side.fresh()
    now = 1_770_000_000.0
    for wait, (method, arguments, named) in story:
        now += wait
        told = [side.ask(now, method, arguments, named) for side in (theirs, ours)]
        # words for people are our own
        texts = [answer.pop("text", None) for answer in told]
        assert told[1] == told[0], (method, arguments, named, texts)
        rows = [side.ask(now, "rows") for side in (theirs, ours)]
        assert rows[1] == rows[0], (method, arguments, named)


RELAXED = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large,
           HealthCheck.large_base_example]  # fmt: skip


@settings(max_examples=15, deadline=None, suppress_health_check=RELAXED, database=None)
@given(story=steps)
def test_any_story_is_told_alike(
    sides: tuple[Side, Side], story: list[tuple[float, Call]]
) -> None:
    compare(sides, story)


@pytest.mark.slow
@settings(max_examples=200, deadline=None, suppress_health_check=RELAXED, database=None)
@given(story=steps)
def test_many_stories_are_told_alike(
    sides: tuple[Side, Side], story: list[tuple[float, Call]]
) -> None:
    compare(sides, story)


def test_ghosts_go_alike(sides: tuple[Side, Side]) -> None:
    """Ghosts with children are left out: there the release fails, and ours does what it meant
    (field case 88, tests/test_sessiondb.py)."""
    story: list[tuple[float, Call]] = []
    for number, source in enumerate(("tui", "tui", "cli", "tui", "tui")):
        story.append((1.0, ("create_session", [str(number), source], {})))
    story += [
        (1.0, ("append_message", ["1", "user", "x"], {})),
        (1.0, ("set_session_title", ["3", "kept"], {})),
        *((1.0, ("end_session", [str(number), "done"], {})) for number in range(4)),
        (0.0, ("prune_empty_ghost_sessions", [], {})),
        (2 * 86400.0, ("prune_empty_ghost_sessions", [], {})),
    ]
    compare(sides, story)


def test_each_opens_what_the_other_wrote(sides: tuple[Side, Side]) -> None:
    theirs, ours = sides
    for side in sides:
        side.fresh()
        side.ask(1e9, "create_session", ["a", "cli"], {})
        side.ask(1e9, "append_message", ["a", "user", "alpha 备份任务"], {})
    for side, other in ((theirs, ours), (ours, theirs)):
        path = str(other.place / f"{other.taken}" / "state.db")
        assert side.ask(1e9, "open", path) == {"result": None}
        side.ask(1e9, "append_message", ["a", "assistant", "alpha again"], {})
        for query in ("alpha", "备份任务"):
            assert side.ask(1e9, "search_messages", [query], {})["result"]
        assert len(side.ask(1e9, "get_messages", ["a"], {})["result"]) == 2
