"""hermes-session-scroll: show the messages around a message"""

from collections.abc import Iterable, Iterator
from typing import Annotated, Any

import typer

from hermes_tools.console import streams, text, transcript
from hermes_tools.console.app import entry
from hermes_tools.console.options import Inactive, Output, Store, option, other_profile
from hermes_tools.console.streams import Record
from hermes_tools.store import messages, windows
from hermes_tools.store.db import Database
from hermes_tools.store.errors import Damaged, Negative, NotFound, Usage
from hermes_tools.store.sessions import Reader, resolve
from hermes_tools.store.times import iso

# Where a record names a message, in this order.
MESSAGE = ("match_message_id", "message_id", "around_message_id")


def scroll(
    store: Store,
    output: Output,
    session: Annotated[str | None, typer.Argument(
        metavar="[SESSION]", show_default=False,
        help="A session id, title or unique prefix; - reads records of hermes-session-search.")]
    = None,
    message: Annotated[int | None, typer.Argument(
        metavar="[MESSAGE_ID]", show_default=False, help="The id of the message.")] = None,
    window: Annotated[int, option(
        "--window", metavar="N", min=0, help="Messages on each side, or of a page.")] = 5,
    role: Annotated[str | None, option(
        "--role", metavar="ROLE,...", show_default=False,
        help="Only messages of these roles, and the one named.")] = None,
    inactive: Inactive = False,
    after_id: Annotated[int | None, option(
        "--after-id", metavar="ID", show_default=False,
        help="The next messages after this id, without it.")] = None,
    before_id: Annotated[int | None, option(
        "--before-id", metavar="ID", show_default=False,
        help="The last messages before this id, without it.")] = None,
) -> None:  # fmt: skip
    """Show the messages around one message of a session, in their order.

    With --after-id or --before-id show the page that follows or precedes an id: read on with the
    id at its end, and each message comes once. Nothing is there any more: status 1.
    """
    roles = tuple(word.strip() for word in role.split(",")) if role is not None else ()
    if "" in roles:
        raise Usage("--role names no role")
    page = after_id is not None or before_id is not None
    if page and (message is not None or session in (None, "-")):
        raise Usage("--after-id and --before-id stand in place of MESSAGE_ID, beside a SESSION")
    if after_id is not None and before_id is not None:
        raise Usage("--after-id and --before-id exclude each other")
    if not page and message is None and session not in (None, "-"):
        raise Usage("no MESSAGE_ID; hermes-session-search finds one, --after-id 0 is the top")
    if session == "-" and message is not None:
        raise Usage("standard input names its messages itself")
    asked = [] if session not in (None, "-") else wanted()
    with store.read() as db:
        if page:
            assert session is not None
            made = [one_page(db, session, window, roles, inactive, after_id, before_id)]
        elif session not in (None, "-"):
            assert session is not None and message is not None
            row = resolve(db, session)
            made = list(around(db, [(row, message)], window, roles, inactive, strict=True))
        else:
            made = list(around(db, checked(db, asked), window, roles, inactive))
    output.write(made, lines, store.quiet)


def wanted() -> list[Record]:
    """Records on standard input, all of them. Raises Usage and Damaged."""
    if streams.stdin().isatty():
        raise Usage("no session named, and standard input is a terminal")
    return list(streams.records())


def checked(db: Database, records: list[Record]) -> Iterator[tuple[str, int]]:
    """(session, message id) of each record. Raises Damaged."""
    for number, one in enumerate(records, 1):
        session, found = one.get("session_id"), [one[key] for key in MESSAGE if one.get(key)]
        if not isinstance(session, str) or not found or not isinstance(found[0], int):
            raise Damaged(
                f"standard input, record {number}: names no message "
                f"(session_id and {', '.join(MESSAGE[:-1])} or {MESSAGE[-1]})"
            )
        other = one.get("profile")
        if other and other != other_profile(db):
            raise Damaged(f"session {session}: the record is of profile {other!r}, "
                          "not of this store")  # fmt: skip
        yield session, found[0]


def around(
    db: Database, anchors: Iterable[tuple[str, int]], window: int, roles: tuple[str, ...],
    inactive: bool, strict: bool = False,
) -> Iterator[Record]:  # fmt: skip
    """A record for each anchor, in order. One that is not there is a warning, so that the others
    are served; with `strict` an error.
    """
    owned: list[tuple[str, int]] = []
    for session, message in anchors:
        try:
            row = windows.owner(db, session, message, inactive=inactive)
        except NotFound as error:
            if strict:
                raise
            streams.warn(str(error))
            continue
        if row != session:
            streams.complain(f"message {message}: is in session {row}, not in {session}")
        owned.append((row, message))
    found = windows.around(db, owned, window, roles=roles, inactive=inactive)
    reader = Reader(db)
    for row, message in owned:
        around_it = found[message]
        yield record(
            reader, row, message, iso(around_it.anchor["timestamp"]), window,
            around_it.rows, len(around_it.before), len(around_it.after),
        )  # fmt: skip


def one_page(
    db: Database, session: str, window: int, roles: tuple[str, ...], inactive: bool,
    after: int | None, before: int | None,
) -> Record:  # fmt: skip
    """The record of a page. Raises Negative where there is no message any more."""
    row = resolve(db, session)
    found = windows.page(
        db, row, window, after=after, before=before, roles=roles, inactive=inactive
    )
    if not found:
        side = f"after {after}" if after is not None else f"before {before}"
        raise Negative(f"session {row}: no messages {side}")
    when = iso(found[0 if after is not None else -1]["timestamp"])
    sides = (0, len(found)) if after is not None else (len(found), 0)
    return record(Reader(db), row, None, when, window, found, *sides)


def record(
    reader: Reader, session: str, message: int | None, when: str | None, window: int,
    rows: list[Any], before: int, after: int,
) -> Record:  # fmt: skip
    """A scroll record of hermes-session-jsonl(5)."""
    one = reader.row(session)
    return {
        "session_id": session, "around_message_id": message, "title": one["title"],
        "source": one["source"], "when": when, "window": window,
        "messages": [messages.record(row, row["id"] == message) for row in rows],
        "messages_before": before, "messages_after": after,
    }  # fmt: skip


def lines(records: Iterable[Record]) -> Iterator[str]:
    """Scroll records for a person: messages as in hermes-session-show, each under its id."""
    for number, one in enumerate(records):
        if number:
            yield ""
        title = text.line(one["title"] or "untitled")
        yield f"{text.style(title, 1)}  {text.style(text.line(one['session_id']), 2)}"
        clock = transcript.Clock()
        for message in one["messages"]:
            turn = transcript.turned({**dict.fromkeys(messages.COLUMNS), **message})
            note = " (compacted)" if message.get("compacted") else ""
            mark = "▶" if message.get("anchor") else " "
            yield ""
            yield f"{mark} {transcript.label(turn, clock(turn.when))}  " + text.style(
                f"{message['id']}{note}", 2
            )
            for line in turn.words.split("\n") if turn.words else ():
                yield from text.wrap(line, text.width()) if text.on_terminal() else (line,)
            for name, arguments in turn.calls:
                shown = f"  ⚙ {name} {text.line(arguments)}".rstrip()
                yield text.style(text.cut(shown, text.width()), 36)


main = entry(scroll)
