"""The "Previous Conversation" panel: how a conversation ended, at a glance."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from hermes_tools.console import text
from hermes_tools.store import home, messages
from hermes_tools.store.db import Database

TITLE = "Previous Conversation"
NAMES = 4  # tools named in `[6 tool calls: a, b, c, d, …]`


class Settings(NamedTuple):
    """What config.yaml says about the panel (store-facts 3.15); lengths in characters."""

    exchanges: int = 10
    user_chars: int = 300
    assistant_chars: int = 200
    assistant_lines: int = 3
    skip_tool_only: bool = False
    minimal: bool = False


class Entry(NamedTuple):
    """One thing that was said: by whom, the words, the tools called beside them."""

    who: str
    words: str
    tools: tuple[str, ...] = ()


def settings(place: Path) -> Settings:
    """The panel as a home's config.yaml wants it; what is missing or no number is the default."""
    display = home.setting(home.config(place), "display", {})
    display = display if isinstance(display, dict) else {}

    def number(name: str, default: int) -> int:
        value = display.get(name)
        return value if isinstance(value, int) and value > 0 else default

    default = Settings()
    return Settings(
        exchanges=number("resume_exchanges", default.exchanges),
        user_chars=number("resume_max_user_chars", default.user_chars),
        assistant_chars=number("resume_max_assistant_chars", default.assistant_chars),
        assistant_lines=number("resume_max_assistant_lines", default.assistant_lines),
        skip_tool_only=display.get("resume_skip_tool_only") is True,
        minimal=display.get("resume_display") == "minimal",
    )


def recap(
    db: Database, rows: list[str], wanted: Settings | None = None, *, title: str | None = None,
    asked: bool = True,
) -> Iterator[str]:
    """Lines of the panel for a conversation (`rows`: its session ids, root to tip).

    Where it was not asked for by option (`asked`), `display.resume_display: minimal` makes it one
    line. Nothing at all for a conversation in which nothing was said.
    """  # fmt: skip
    wanted = wanted or Settings()
    if wanted.minimal and not asked:
        yield text.style(minimal(title, messages.spoken_count(db, rows)), 2)
        return
    entries, earlier = last(db, rows, wanted)
    if entries:
        yield from panel(entries, earlier, wanted)


def minimal(title: str | None, number: int) -> str:
    """The panel in one line: `● garden plan: 6 messages`."""
    return f"● {text.line(title) if title else 'untitled'}: {text.count(number, 'message')}"


def last(db: Database, rows: list[str], wanted: Settings) -> tuple[list[Entry], int]:
    """(the last exchanges, oldest first; how many messages lie before them). Reads from the end
    of the conversation, and no further than the panel reaches.
    """
    limit = 2 * wanted.exchanges
    found: list[Entry] = []
    taken = 0
    for row in messages.spoken(db, rows):
        entry = said(row)
        if entry is None or (wanted.skip_tool_only and not entry.words):
            taken += 1
            continue
        after = found[-1] if found else None
        if after and not entry.words and not after.words and after.who == entry.who:
            found[-1] = Entry(entry.who, "", entry.tools + after.tools)  # one loop of tools
        elif len(found) == limit:
            break
        else:
            found.append(entry)
        taken += 1
    return found[::-1], messages.spoken_count(db, rows) - taken if len(found) == limit else 0


def said(row: Any) -> Entry | None:
    """A message row as an entry; None for one that says nothing to a person (a compaction's
    summary, empty content).
    """
    if messages.is_carrier(row):
        return None
    words = text.safe(messages.plain(row["content"])).strip()
    tools = tuple(messages.call_names(row["tool_calls"])) if row["role"] == "assistant" else ()
    return Entry(row["role"], words, tools) if words or tools else None


def panel(entries: list[Entry], earlier: int, wanted: Settings) -> Iterator[str]:
    """Entries in a frame of the terminal's width, dim, the last answer whole."""
    wide = min(text.width(), 100)
    inner = wide - 4
    head = f" {TITLE} "
    yield text.style("╭─" + head + "─" * (wide - 3 - len(head)) + "╮", 2)
    if earlier:
        yield _framed(f"… {text.count(earlier, 'earlier message')} …", inner, 2)
    answers = [number for number, entry in enumerate(entries) if entry.who == "assistant"]
    for number, entry in enumerate(entries):
        user = entry.who == "user"
        label = "● You: " if user else "◆ Hermes: "
        body = list(_body(entry, wanted, whole=bool(answers) and number == answers[-1]))
        first = True
        for line in body:
            for piece in text.wrap(line, inner - (len(label) if first else 2)):
                yield _framed(piece, inner, 2, label if first else "  ", 33 if user else 32)
                first = False
    yield text.style("╰" + "─" * (wide - 2) + "╯", 2)


def _body(entry: Entry, wanted: Settings, whole: bool) -> Iterable[str]:
    words = entry.words
    if entry.who == "user":
        words = clip(" ".join(words.split()), wanted.user_chars)
    elif not whole:
        words = clip(words, wanted.assistant_chars, wanted.assistant_lines)
    if words:
        yield from words.split("\n")
    if entry.tools:
        names = list(dict.fromkeys(text.line(name) for name in entry.tools))
        shown = ", ".join(names[:NAMES]) + (", …" if len(names) > NAMES else "")
        yield f"[{text.count(len(entry.tools), 'tool call')}: {shown}]"


def clip(words: str, chars: int, lines: int | None = None) -> str:
    """At most so many characters (whole ones) and lines, `...` where something was left out."""
    kept = words if lines is None else "\n".join(words.split("\n")[:lines])
    if len(kept) > chars:
        short, size = [], 0
        for letter in text.graphemes(kept):
            size += len(letter)
            if size > chars:
                break
            short.append(letter)
        kept = "".join(short)
    return kept if len(kept) == len(words) else kept.rstrip() + "..."


def _framed(words: str, inner: int, code: int, label: str = "", colour: int = 0) -> str:
    filled = text.pad(words, inner - len(label))
    if label.strip():
        label = text.style(label.rstrip(), colour) + " "
    edge = text.style("│", 2)
    return f"{edge} {label}{text.style(filled, code)} {edge}"
