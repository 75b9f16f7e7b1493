"""Words for people: widths, cuts, tables, trees, what must not reach a terminal."""

import time
from datetime import datetime

import pytest
import wcwidth

from hermes_tools.console import text

FAMILY = "👩‍👩‍👧"
HOSTILE = [
    ("\x1b[31mred\x1b[0m", "red"),
    ("\x1b]0;title\x07x", "x"),
    ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
    ("a\x07b\x00c\x7f", "abc"),
    ("\x9b31mred", "red"),
    ("\u202eevil\u2066", "evil"),
    ("\x1bPq#0\x1b\\after", "after"),
    ("\x1b(Bplain", "plain"),
    ("ends in \x1b", "ends in "),
    ("日本 naïve 🚀", "日本 naïve 🚀"),
]


@pytest.mark.parametrize(("stored", "shown"), HOSTILE)
def test_b66_nothing_steers_the_terminal(stored: str, shown: str) -> None:
    assert text.safe(stored) == shown
    assert text.line(stored) == shown.strip()


def test_line_is_one_line() -> None:
    assert text.line(" a\r\n\tb\u2028c\x85d ") == "a b c d"
    assert text.safe("a\r\nb\n") == "a\nb\n"


@pytest.mark.parametrize(
    ("value", "wide"),
    [("abc", 3), ("日本", 4), ("e\u0301", 1), ("🚀", 2), (FAMILY, 2), ("", 0), ("한국어", 6)],
)
def test_columns(value: str, wide: int) -> None:
    assert text.columns(value) == wide


def test_what_is_narrow_without_a_table_is_so_by_the_table() -> None:
    assert {chr(number) for number in text.NARROW if wcwidth.wcwidth(chr(number)) != 1} == set()
    assert text.columns("⚙ née … “x”") == 11
    assert not text.narrow("e\u0301") and not text.narrow("⚙\ufe0f")


CUT = ["日本語の題名です", "x" * 30, FAMILY * 9, "e\u0301" * 30, "a日" * 9]


@pytest.mark.parametrize("value", CUT)
@pytest.mark.parametrize("limit", range(2, 20))
def test_b67_cut_keeps_whole_characters(value: str, limit: int) -> None:
    shown = text.cut(value, limit)
    assert text.columns(shown) <= limit
    if shown != value:
        assert shown.endswith("…") and value.startswith(shown[:-1])
        assert shown[:-1] == "".join(
            list(text.graphemes(value))[: len(list(text.graphemes(shown[:-1])))]
        )


@pytest.mark.parametrize(
    "value", ["日本語の題名です " * 5, "word " * 30, "x" * 100, "    code = 1", ""]
)
@pytest.mark.parametrize("wide", [10, 23])
def test_wrap_loses_nothing(value: str, wide: int) -> None:
    folded = text.wrap(value, wide)
    assert all(text.columns(piece) <= wide for piece in folded)
    assert "".join("".join(folded).split()) == "".join(value.split())


def test_table_fits_and_never_cuts_an_id(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    rows = [("日本語のとても長い題名です" * 3, "preview " * 9, "20260302_100000_beef02"),
            ("short", "", "cron_0_20260228_000000")]  # fmt: skip
    lines = list(text.table(rows, ("Title", "Preview", "ID"), fixed=(2,)))
    assert all(text.columns(line) <= 60 for line in lines)
    assert lines[2].endswith("20260302_100000_beef02")
    assert text.columns(lines[2]) == text.columns(lines[3]) == text.columns(lines[1])


def test_numbers_end_together() -> None:
    _, _, one, two = text.table([("a", "1"), ("b", "1,000")], ("Name", "N"), (1,), right=(1,))
    assert (one, two) == ("a         1", "b     1,000")


def test_tree() -> None:
    rows = [(0, False, "root"), (1, False, "branch"), (2, False, "leaf"), (1, True, "next"),
            (2, False, "aside"), (2, True, "tip"), (3, False, "delegate"),
            (0, False, "other")]  # fmt: skip
    assert list(text.tree(rows)) == [
        "root", "├─ branch", "│  └─ leaf", "├─ next", "│  └─ aside", "└─ tip", "   └─ delegate",
        "other",
    ]  # fmt: skip


NOW = 1_772_355_600.0


@pytest.mark.parametrize(
    ("passed", "shown"),
    [(0, "just now"), (59, "just now"), (60, "1m ago"), (3599, "59m ago"), (3600, "1h ago"),
     (86399, "23h ago"), (86400, "yesterday"), (172800, "2d ago"), (7 * 86400 - 1, "6d ago")],
)  # fmt: skip
def test_ago(passed: float, shown: str) -> None:
    assert text.ago(NOW - passed, NOW) == shown


def test_ago_of_old_future_and_no_times() -> None:
    week = NOW - 7 * 86400
    assert text.ago(week, NOW) == datetime.fromtimestamp(week).strftime("%Y-%m-%d")
    assert text.ago(NOW + 9 * 86400, NOW).startswith("2026-03-")


@pytest.mark.parametrize("value", [None, "soon", 0, 5, NOW * 1000, float("nan"), float("inf"), -1])
def test_b164_b165_no_time_is_never_now(value: object) -> None:
    assert text.ago(value) == text.local(value) == "?"


def test_local_times_follow_the_zone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        assert text.local(NOW) == "2026-03-01 18:00"
    finally:
        monkeypatch.undo()
        time.tzset()


def test_amounts() -> None:
    assert [text.amount(size) for size in (0, 1023, 1024, 5 << 20, 3 << 40)] == [
        "0 B", "1,023 B", "1.0 KB", "5.0 MB", "3,072.0 GB",
    ]  # fmt: skip
    assert (text.count(1, "message"), text.count(1717, "message")) == (
        "1 message",
        "1,717 messages",
    )


def test_lone_surrogates_can_be_written() -> None:
    assert text.encode("a\udcff") == "a\ufffd".encode()
