"""hermes-session-show: conversations for people."""

import stat
from html.parser import HTMLParser
from pathlib import Path

import pytest
from conftest import Run
from filled import T, chain, fill

AUTH = "20260225_101500_a1b2c3"
EVIL = '<script>alert(1)</script> "&\x1b[31m'
CALLS = '[{"function": {"name": "terminal", "arguments": "{\\"command\\": \\"ls\\"}"}}]'


@pytest.fixture
def talk(store) -> Path:
    """A conversation with everything that needs care."""
    return fill(
        store("v22"),
        [{"id": "talk", "title": EVIL}],
        [("talk", "system", "You are Hermes.", T),
         ("talk", "user", "look " + EVIL, T + 1),
         ("talk", "assistant", "", T + 2, {"tool_calls": CALLS, "reasoning": "secretthought"}),
         ("talk", "tool", "line one\n```\nline two" + EVIL, T + 3, {"tool_name": "terminal"}),
         ("talk", "assistant", "Done:\n```py\nx = '<b>'\n```\n`<i>` **<u>**", T + 4,
          {"api_content": "secretmemory"}),
         ("talk", "user", '\0json:[{"type":"text","text":"see"},{"type":"image_url"}]', T + 5),
         ("talk", "user", "undoneword", T + 6, {"active": 0}),
         ("talk", "user", "foldedword", T + 7, {"active": 0, "compacted": 1})],
    )  # fmt: skip


@pytest.mark.parametrize("form", ["text", "markdown", "html"])
def test_what_is_shown_and_what_is_not(run: Run, talk: Path, form: str) -> None:
    shown = run("show", "talk", "-f", form, "--db", talk).ok().text
    for word in ("look", "terminal", "foldedword", "[image]", "Done:"):
        assert word in shown
    for word in ("secretthought", "secretmemory", "undoneword", "\x1b", "\0"):
        assert word not in shown
    assert "undoneword" in run("show", "talk", "-f", form, "--inactive", "--db", talk).ok().text


class Tags(HTMLParser):
    """Every element of a page, and whether they close."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: dict[str, int] = {}
        self.attributes: list[str] = []

    def handle_starttag(self, tag, attrs) -> None:
        self.seen[tag] = self.seen.get(tag, 0) + 1
        self.attributes += [name for name, _ in attrs]
        if tag not in ("meta", "hr"):
            self.open.append(tag)

    def handle_endtag(self, tag) -> None:
        assert self.open.pop() == tag


def test_the_page_is_whole_and_harmless(run: Run, talk: Path) -> None:
    shown = run("show", "talk", "-f", "html", "--db", talk).ok().text
    tags = Tags()
    tags.feed(shown)
    assert not tags.open
    assert tags.seen["article"] == 1 and tags.seen["details"] == 2
    assert not {"script", "img", "link", "iframe", "i", "u", "a"} & set(tags.seen)
    assert not {"src", "href", "onerror", "onclick"} & set(tags.attributes)
    assert 'name="viewport"' in shown and "default-src 'none'" in shown
    assert "<pre><code>x = &#x27;&lt;b&gt;&#x27;</code></pre>" in shown
    assert "<code>&lt;i&gt;</code> <b>&lt;u&gt;</b>" in shown


def test_several_on_one_page(run: Run, store) -> None:
    shown = run("show", AUTH, "garden plan", "-f", "html", "--db", store("v22")).ok().text
    tags = Tags()
    tags.feed(shown)
    assert tags.seen["article"] == 2 and tags.seen["html"] == 1 and not tags.open
    assert "goes on in 20260226_113000_00bb22" in shown


def test_markdown_cannot_be_broken_out_of(run: Run, talk: Path) -> None:
    lines = run("show", "talk", "-f", "markdown", "--db", talk).ok().lines
    at = lines.index("````")
    assert "```" in lines[at + 1 : lines.index("````", at + 1)]
    assert lines[0].startswith("# \\<script\\>") and lines[2].startswith("- `talk`")
    assert any(line.startswith("> look ") for line in lines)


def test_text_folds_tools(run: Run, talk: Path) -> None:
    shown = run("show", "talk", "--db", talk).ok().text
    assert '  ⚙ terminal {"command": "ls"}\n' in shown
    assert "  ↳ terminal (3 lines): line one ``` line two" in shown
    unfolded = run("show", "talk", "--role", "tool", "--db", talk).ok().text
    assert "\nline one\n```\nline two" in unfolded and "Done" not in unfolded


def test_a_chain_is_whole_and_in_order(run: Run, store) -> None:
    path = store("v22")
    shown = run("show", "20260226_113000_00bb22", "--db", path).ok().text
    first, second, third = (shown.index(word) for word in ("irrigation", "GPIO 17", "Condensation"))
    assert first < second < third and "── goes on in 20260226_150000_00cc33" in shown
    one = run("show", "--segment", "20260226_113000_00bb22", "--db", path).ok().text
    assert "GPIO 17" in one and "irrigation" not in one


def test_records_and_doubles(run: Run, store) -> None:
    path = store("v22")
    listed = run("list", "--tree", "garden plan", "--db", path).ok().stdout
    shown = run("show", "-", "--db", path, input=listed).ok().text
    assert shown.count("GPIO 17") == 1 and "47 to 100 ohm" in shown


def test_b74_nothing_in_it(run: Run, home) -> None:
    place = home("v22")
    ghost = "20260228_120000_feed01"
    result = run("show", ghost, "--home", place).gave(1)
    assert f"session {ghost}: no messages" in result.stderr
    (place / "sessions").mkdir(exist_ok=True)
    (place / "sessions" / f"session_{ghost}.json").write_text("{}")
    assert f"session_{ghost}.json" in run("show", ghost, "--home", place).gave(1).stderr


def test_unknown_and_ambiguous(run: Run, store) -> None:
    path = store("v22")
    for name, word in (("nobody", "not in this store"), ("2026022", "could be")):
        result = run("show", name, "--db", path).gave(1)
        assert word in result.stderr and not result.stdout
    assert "hermes-session-export" in run("show", AUTH, "-f", "jsonl", "--db", path).gave(2).stderr
    run("show", AUTH, "--recap", "-f", "html", "--db", path).gave(2)
    run("show", AUTH, "--role", "user,", "--db", path).gave(2)
    assert not run("show", AUTH, "-q", "--db", path).ok().stdout


def test_a_file_for_each(run: Run, store, tmp_path: Path) -> None:
    path = fill(
        store("v22"), [{"id": one, "title": one} for one in ("../up", "a/b*", ".hid", "plain")],
        [(one, "user", f"words of {one}", T) for one in ("../up", "a/b*", ".hid", "plain")],
    )  # fmt: skip
    folder = tmp_path / "out"
    run("show", "../up", "a/b*", ".hid", "plain", "-f", "html", "-o", folder, "--db", path).ok()
    names = sorted(one.name for one in folder.iterdir())
    assert names == ["%2E.%2Fup.html", "%2Ehid.html", "a%2Fb%2A.html", "plain.html"]
    assert stat.S_IMODE((folder / "plain.html").stat().st_mode) == 0o600
    assert "words of plain" in (folder / "plain.html").read_text()
    assert not (tmp_path / "up.html").exists()


def test_files_hold_no_colour(run: Run, store, tmp_path: Path) -> None:
    run("show", AUTH, "-o", tmp_path / "out", "--db", store("v22"), tty=True).ok()
    assert "\x1b" not in (tmp_path / "out" / f"{AUTH}.txt").read_text()


# --- Recap ---


def test_recap(run: Run, talk: Path) -> None:
    shown = run("show", "--recap", "talk", "--db", talk).ok()
    assert shown.lines[0].startswith("╭─ Previous Conversation ─")
    assert "● You: look" in shown.text and "[1 tool call: terminal]" in shown.text
    for word in ("You are Hermes", "secretthought", "line two", "undoneword", "\x1b"):
        assert word not in shown.text
    assert len({len(line) for line in shown.lines}) == 1, "a straight frame"


def test_recap_is_short(run: Run, store) -> None:
    rows = chain("r", "t")
    said = [
        (one["id"], role, f"{role} {number} " + "x " * 400, T + number)
        for one in rows for number in range(15) for role in ("user", "assistant")
    ]  # fmt: skip
    shown = run("show", "--recap", "r", "--db", fill(store("v22"), rows, said)).ok().text
    assert "… 40 earlier messages …" in shown
    assert "user 5" in shown and "user 4 " not in shown
    body = " ".join(line.strip("│ ") for line in shown.splitlines())
    user, answer = body.split("● You: user 5 ")[1].split("◆ Hermes: ")[:2]
    assert user.split("...")[0].count("x") == 147  # of 300 characters
    assert answer.split("...")[0].count("x") == 94  # of 200
    assert body.split("assistant 14 ")[1].count("x") == 400, "the last answer is whole"


def test_recap_names_tools_once(run: Run, store) -> None:
    def calls(*names: str) -> str:
        return "[" + ",".join('{"function": {"name": "%s"}}' % name for name in names) + "]"  # noqa: UP031

    path = fill(
        store("v22"), [{"id": "a"}],
        [("a", "user", "go", T),
         ("a", "assistant", None, T, {"tool_calls": calls("terminal", "web_search")}),
         ("a", "tool", "x", T), ("a", "assistant", "", T, {"tool_calls": calls("terminal")}),
         ("a", "assistant", "1\n2\n3\n4", T), ("a", "assistant", "done", T)],
    )  # fmt: skip
    shown = run("show", "--recap", "a", "--db", path).ok().text
    assert "[3 tool calls: terminal, web_search]" in shown
    assert "3..." in shown and "4" not in shown.replace("[3", "")


def test_recap_by_configuration(run: Run, home) -> None:
    place = home("v22")
    (place / "config.yaml").write_text(
        "display:\n  resume_exchanges: 1\n  resume_display: minimal\n"
    )
    shown = run("show", "--recap", AUTH, "--home", place).ok().text
    assert "Deploy it" in shown and "refactor" not in shown, "asked for, it is not minimal"
    (place / "config.yaml").write_text("display: [broken\n")
    run("show", "--recap", AUTH, "--home", place).gave(2)
