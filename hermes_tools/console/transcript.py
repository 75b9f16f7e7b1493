"""A conversation for people: its messages as turns, written as text or Markdown."""

import re
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any, NamedTuple

from hermes_tools.console import text
from hermes_tools.store import messages, times
from hermes_tools.store.db import Database
from hermes_tools.store.sessions import Conversation

NAMES = {"user": "You", "assistant": "Hermes", "tool": "Tool", "system": "System"}
BULLETS = {"user": ("●", 33), "assistant": ("◆", 32)}
FOLDED = 200  # characters of a tool's answer that its one line may begin with


class Turn(NamedTuple):
    """One message as it is shown. `calls`: (tool, arguments); `note`: summary, undone, observed;
    `goes_on`: the session row that begins with it, where a conversation goes on in a new one.
    """

    role: str
    when: float | None
    words: str
    calls: tuple[tuple[str, str], ...] = ()
    tool: str = ""
    note: str = ""
    goes_on: str = ""

    @property
    def name(self) -> str:
        """Who speaks."""
        return NAMES.get(self.role, text.line(self.role) or "?")


def turns(
    db: Database, rows: list[str], *, roles: frozenset[str] | None = None, inactive: bool = False
) -> Iterator[Turn]:
    """The messages of session rows, in order: what their user saw, the agent's own scaffolding
    left out; undone ones only with `inactive`.
    """
    for number, session_id in enumerate(rows):
        goes_on = session_id if number else ""
        for row in messages.rows(db, session_id, inactive=inactive):
            if row["display_kind"] == "hidden" or (roles and row["role"] not in roles):
                continue
            turn = turned(row, goes_on)
            if turn.words or turn.calls or turn.tool:
                goes_on = ""
                yield turn


def turned(row: Any, goes_on: str = "") -> Turn:
    """A message row as a turn."""
    note = "summary" if messages.is_carrier(row) else ""
    if row["active"] == 0 and row["compacted"] != 1:
        note = "undone"
    elif row["observed"] == 1:
        note = "observed"
    return Turn(
        role=str(row["role"]), when=times.valid(row["timestamp"]),
        words=text.safe(messages.plain(row["content"])).strip("\n").rstrip(),
        calls=tuple(calls(row["tool_calls"])),
        tool=text.line(row["tool_name"] or "") if row["role"] == "tool" else "",
        note=note, goes_on=goes_on,
    )  # fmt: skip


def calls(stored: Any) -> Iterator[tuple[str, str]]:
    """(tool, arguments as text) of a row's tool calls."""
    names = messages.call_names(stored)
    for name, call in zip(names, messages.tool_calls(stored), strict=True):
        function = call.get("function") if isinstance(call, dict) else None
        holder = function if isinstance(function, dict) else call if isinstance(call, dict) else {}
        arguments = holder.get("arguments", holder.get("input", ""))
        if not isinstance(arguments, str):
            from hermes_tools.console.streams import dumps

            arguments = dumps(arguments).decode().rstrip("\n")
        yield text.line(name), text.safe(arguments)


def facts(one: Conversation) -> list[str]:
    """What stands under a conversation's title: id, source and model; times; counts and cost."""
    who = [one.id, one.source or "unknown", one.model or ""]
    spans = [text.local(one.started_at), text.local(one.last_active)]
    if spans[0] == spans[1]:
        spans.pop()
    elif spans[0][:10] == spans[1][:10]:
        spans[1] = spans[1][11:]
    counts = [" – ".join(spans), text.count(one.message_count, "message")]
    if len(one.rows) > 1:
        counts.append(text.count(len(one.rows), "segment"))
    if one.cost:
        counts.append(f"${one.cost:,.2f}")
    if one.archived:
        counts.append("archived")
    return [" · ".join(text.line(word) for word in words if word) for words in (who, counts)]


def headline(one: Conversation) -> str:
    """Its title, else how it began."""
    return text.line(one.title or one.preview or "") or "untitled"


class Clock:
    """The time of a turn: hours and minutes, with the date where the day changes."""

    def __init__(self) -> None:
        self.day = ""

    def __call__(self, when: float | None) -> str:
        if when is None:
            return ""
        day, _, minute = f"{datetime.fromtimestamp(when):%Y-%m-%d %H:%M}".partition(" ")
        new, self.day = day != self.day, day
        return f"{day} {minute}" if new else minute


def as_text(one: Conversation, spoken: Iterable[Turn], whole: bool = False) -> Iterator[str]:
    """Lines for a terminal or a pager; tool calls and answers one line each unless `whole`. Only
    a terminal has its lines folded: elsewhere grep(1) finds a sentence in one piece.
    """
    clock, folds = Clock(), text.on_terminal()
    wide = text.width()
    yield text.style(headline(one), 1)
    for fact in facts(one):
        yield text.style(fact, 2)
    yield text.style("─" * wide, 2)
    before = ""
    for turn in spoken:
        if turn.goes_on:
            yield ""
            yield text.style(f"── goes on in {text.line(turn.goes_on)} ", 2)
        if turn.role == "tool" and not whole:
            yield text.style("  ↳ " + text.cut(folded(turn), wide - 4), 2)
            before = "tool"
            continue
        if turn.role != "assistant" or before != "tool" or turn.goes_on or turn.words:
            yield ""
            yield label(turn, clock(turn.when))
        for line in turn.words.split("\n") if turn.words else ():
            for piece in text.wrap(line, wide) if folds else (line,):
                yield text.style(piece, 2) if turn.note or turn.role == "system" else piece
        for name, arguments in turn.calls:
            shown = f"{name} {text.line(arguments)}".rstrip()
            yield text.style("  ⚙ " + text.cut(shown, wide - 4), 36)
        before = turn.role


def label(turn: Turn, when: str) -> str:
    """`● You  2026-02-25 10:16`."""
    bullet, colour = BULLETS.get(turn.role, ("■", 36))
    name = f"{turn.name} {turn.tool}".rstrip()
    parts = [text.style(f"{bullet} {name}", 1, colour)]
    parts += [text.style(word, 2) for word in (when, turn.note and f"({turn.note})") if word]
    return "  ".join(parts)


def folded(turn: Turn) -> str:
    """A tool's answer in a line: `read_file: def check_token(token): … (12 lines)`."""
    lines = turn.words.count("\n") + 1 if turn.words else 0
    start = text.line(turn.words[: FOLDED * 2])[:FOLDED] if turn.words else "(nothing)"
    more = f" ({lines:,} lines)" if lines > 1 else ""
    return f"{turn.tool or 'tool'}{more}: {start}"


def as_markdown(one: Conversation, spoken: Iterable[Turn], whole: bool = False) -> Iterator[str]:
    """A Markdown document: what the user said as quotations, tools folded where HTML is shown."""
    clock = Clock()
    yield f"# {escaped(headline(one))}"
    yield ""
    for number, fact in enumerate(facts(one)):
        session_id, dot, rest = fact.partition(" · ") if number == 0 else ("", "", fact)
        yield f"- {f'`{session_id}`' if session_id else ''}{dot}{escaped(rest)}"
    for turn in spoken:
        yield ""
        if turn.goes_on:
            yield f"*goes on in `{text.line(turn.goes_on)}`*"
            yield ""
        when = clock(turn.when)
        if turn.role == "tool":
            yield from details(folded_title(turn), turn.words, whole)
            continue
        head = " · ".join(word for word in (turn.name, when, turn.note) if word)
        yield f"## {escaped(head)}"
        if turn.words:
            yield ""
            quote = "> " if turn.role != "assistant" or turn.note else ""
            yield from (f"{quote}{line}".rstrip() for line in turn.words.split("\n"))
        for name, arguments in turn.calls:
            yield ""
            yield from details(f"tool call: {name}", arguments, whole)


def folded_title(turn: Turn) -> str:
    """`answer of read_file, 12 lines`."""
    return f"answer of {turn.tool or 'a tool'}, {text.count(turn.words.count(chr(10)) + 1, 'line')}"


def details(title: str, body: str, whole: bool) -> Iterator[str]:
    """A folded block whose fence no content can close."""
    runs = re.findall(r"`{3,}", body)
    fence = "`" * (max(map(len, runs), default=2) + 1)
    yield f"<details{' open' if whole else ''}><summary>{escaped(title)}</summary>"
    yield ""
    yield fence
    yield from body.split("\n")
    yield fence
    yield ""
    yield "</details>"


def escaped(line: str) -> str:
    """One line of plain text that Markdown leaves as it is."""
    return re.sub(r"([\\`*_\[\]<>#|])", r"\\\1", line)
