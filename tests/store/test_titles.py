"""Titles: what is cleaned, what is refused, numbers, and whose a title is (field cases F)."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_tools.store import titles
from hermes_tools.store.db import reader, transaction, writer
from hermes_tools.store.errors import Negative, Unsupported, Usage

AUTH = "20260225_101500_a1b2c3"
GARDEN = ["20260226_090000_00aa11", "20260226_113000_00bb22", "20260226_150000_00cc33"]
CHAT = "20260227_080000_deadbe01"
FAMILY = "👨‍👩‍👧‍👦"


def put(path: Path, session_id: str, title: str | None, **how: bool | str) -> titles.Change:
    """Set a title in a transaction of its own."""
    with writer(path) as db, transaction(db):
        return titles.set_title(db, session_id, title, **how)


def stored(path: Path, column: str = "title") -> dict[str, object]:
    """A column of every session by id."""
    with closing(sqlite3.connect(path)) as db:
        return dict(db.execute(f"SELECT id, {column} FROM sessions"))


@pytest.mark.parametrize(
    ("raw", "title"),
    [
        ("  my   project ", "my project"),
        ("a\nb\tc", "a b c"),
        ("a\r\n\r\nb", "a b"),
        ("a\x00b\x07c\x7f", "abc"),
        ("\x1b[31mred \x1b[0m", "red"),
        ("\x1b]0;evil\x07red", "red"),
        ("\x1b]0;evil\x1b\\red", "red"),
        ("\x1b]0;never ended", ""),
        ("]0;x", "x"),
        ("\x9b31mred", "red"),
        ("word\u200bword", "word word"),
        ("\ufeffword", "word"),
        ("a \u200b b", "a b"),
        ("user\u202egpj.exe", "usergpj.exe"),
        ("a\u2066b\u2069", "ab"),
        ("no\u200djoin\u200cer", "nojoiner"),
        (f"the {FAMILY} trip", f"the {FAMILY} trip"),
        ("❤️‍🔥 pain", "❤️‍🔥 pain"),
        ("👩🏽‍💻 work", "👩🏽‍💻 work"),
        ("🏳️‍🌈", "🏳️‍🌈"),
        ("🏴\U000e0067\U000e0062\U000e0073\U000e0063\U000e0074\U000e007f",
         "🏴\U000e0067\U000e0062\U000e0073\U000e0063\U000e0074\U000e007f"),
        ("hid\U000e0068\U000e0069den", "hidden"),
        ("备份　计划", "备份 计划"),
        ("cafe\u0301", "cafe\u0301"),
        ("कर्म", "कर्म"),
        ("bad \udce9", "bad \ufffd"),
        ("", ""),
        ("   ", ""),
        ("\n", ""),
        ("\u200b\ufeff\u200d", ""),
        ("\ufe0f", ""),
    ],
)  # fmt: skip
def test_b66_cleaning(raw: str, title: str) -> None:
    assert titles.clean(raw) == title


@given(st.text())
def test_cleaning_twice_is_cleaning_once(raw: str) -> None:
    once = titles.clean(raw)
    assert titles.clean(once) == once
    assert "\n" not in once and "\x1b" not in once
    once.encode()


@pytest.mark.parametrize("raw", ["", "   ", "\n", "\x1b[0m", "x" * 101])
def test_b64_refused(raw: str) -> None:
    with pytest.raises(Usage):
        titles.check(raw)


def test_a_hundred_characters_are_a_title() -> None:
    assert titles.check("字" * 100) == "字" * 100


def test_b67_never_cut_inside_a_character() -> None:
    assert titles.cut("x" * 99 + FAMILY, 100) == "x" * 99
    assert titles.cut("cafe\u0301s", 4) == "caf"
    assert titles.cut("short", 100) == "short"


@given(st.text(min_size=90, max_size=140), st.integers(1, 100))
def test_b67_cuts_fit(text: str, limit: int) -> None:
    found = titles.cut(text, limit)
    assert len(found) <= limit
    assert text.startswith(found)


@pytest.mark.parametrize("name", ["v11", "v14", "v22"])
def test_set_and_clear(store, name: str) -> None:
    path = store(name)
    assert put(path, CHAT, "new").before == "备份 и лампочка 🚀"
    assert stored(path)[CHAT] == "new"
    assert put(path, CHAT, None).title is None
    assert stored(path)[CHAT] is None


def test_the_title_it_has_writes_nothing(store) -> None:
    path = store("v22")
    before = path.read_bytes()
    assert not put(path, AUTH, "refactoring auth").changed
    assert path.read_bytes() == before


def test_b59_the_holder_is_named(store) -> None:
    path = store("v22")
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE sessions SET archived = 1 WHERE id = ?", (AUTH,))
    with pytest.raises(Negative, match=rf"{AUTH} \(source cli, archived\)"):
        put(path, CHAT, "refactoring auth")
    assert put(path, CHAT, "refactoring auth", auto_number=True).title == "refactoring auth #2"


def test_a_tip_takes_over_from_its_ancestor(store) -> None:
    path = store("v22")
    root, _, tip = GARDEN
    change = put(path, tip, "garden plan")
    assert (change.taken_from, change.title) == (root, "garden plan")
    assert stored(path)[root] is None and stored(path)[tip] == "garden plan"
    with pytest.raises(Negative, match="held by"):
        put(path, root, "garden plan")  # an ancestor takes nothing from its tip


def test_b62_numbers_count_by_value(store) -> None:
    path = store("v22")
    names = ["proj", "proj #9", "proj #10", "proj #x", "projx #99", "proj # 50"]
    with closing(sqlite3.connect(path)) as db, db:
        rows = [row[0] for row in db.execute("SELECT id FROM sessions LIMIT 6")]
        db.executemany("UPDATE sessions SET title = ? WHERE id = ?", zip(names, rows, strict=True))
    with reader(path) as db:
        assert titles.next_title(db, "proj") == "proj #11"
        assert titles.next_title(db, "proj #2") == "proj #11"
        assert titles.next_title(db, "pro") == "pro"
        assert titles.next_title(db, "proj #9 #3") == "proj #9 #2"


def test_b67_the_number_fits(store) -> None:
    path = store("v22")
    long = "x" * 96 + "e\u0301ab"
    put(path, CHAT, long)
    with reader(path) as db:
        found = titles.next_title(db, long)
    assert found == "x" * 96 + " #2"
    put(path, AUTH, found)
    with reader(path) as db:
        assert titles.next_title(db, long) == "x" * 96 + " #3"


def test_wildcards_are_letters(store) -> None:
    path = store("v22")
    put(path, CHAT, "100% _x #7")
    put(path, AUTH, "100 zx #9")
    with reader(path) as db:
        assert titles.next_title(db, "100% _x") == "100% _x #8"


def test_title_source_says_who(store) -> None:
    path = store("v22")
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("ALTER TABLE sessions ADD COLUMN title_source TEXT")
    put(path, CHAT, "a")
    put(path, AUTH, "b", source="llm")
    assert stored(path, "title_source")[CHAT] == "user"
    assert stored(path, "title_source")[AUTH] == "llm"


def test_a_store_of_before_titles(store) -> None:
    path = store("v11")
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("DROP INDEX idx_sessions_title_unique")
        db.execute("ALTER TABLE sessions DROP COLUMN title")
    with pytest.raises(Unsupported, match="before titles"):
        put(path, AUTH, "x")


@pytest.mark.parametrize(
    ("output", "title"),
    [
        ("Refactoring the login\n", "Refactoring the login"),
        ('"Refactoring the login"\nmore\n', "Refactoring the login"),
        ("\n\n  Title: Refactoring the login.\n", "Refactoring the login"),
        ("**Title: “Refactoring”**", "Refactoring"),
        ("标题计划。", "标题计划"),
        ("\x1b[1mBold title\x1b[0m", "Bold title"),
    ],
)
def test_suggestions(output: str, title: str) -> None:
    assert titles.suggested(output) == title


@pytest.mark.parametrize("output", ["", "\n \n", '""', "Title:", "w " * 13, "x" * 101])
def test_bad_suggestions(output: str) -> None:
    with pytest.raises(Negative):
        titles.suggested(output)


def test_the_first_exchange_is_bounded(store) -> None:
    path = store("v22")
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE messages SET content = ? WHERE session_id = ?", ("y" * 9000, AUTH))
    with reader(path) as db:
        said = titles.first_exchange(db, [AUTH])
        assert said is not None and {len(text) for text in said.values()} == {500}
        assert list(said) == ["user", "assistant"]
        assert titles.first_exchange(db, ["20260228_120000_feed01"]) is None
