"""hermes-session-key: routing keys, and the gateway's routing index"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Annotated, Any, Literal

import typer

from hermes_tools.console import streams, text
from hermes_tools.console.app import entry
from hermes_tools.console.options import Output, Store, option
from hermes_tools.console.streams import Record
from hermes_tools.store import home, keys, resets, routing
from hermes_tools.store.db import Database
from hermes_tools.store.errors import Usage
from hermes_tools.store.sessions import Reader

Dash = Annotated[
    str | None,
    typer.Argument(metavar="[-]", show_default=False,
                   help="Sources from standard input, the default without options."),
]  # fmt: skip
YesNo = Literal["yes", "no"]


def _part(*names: str, help: str, metavar: str = "ID") -> Any:
    return option(*names, help=help, metavar=metavar)


Platform = Annotated[
    str | None, _part("--platform", help="telegram, discord, whatsapp …", metavar="NAME")
]
ChatId = Annotated[str | None, _part("--chat-id", help="The chat, channel or room.")]
ChatType = Annotated[
    str | None,
    _part("--chat-type", help="dm (default), group, channel, thread, forum.", metavar="TYPE"),
]
UserId = Annotated[str | None, _part("--user-id", help="Who writes.")]
UserIdAlt = Annotated[str | None, _part("--user-id-alt", help="Their other id, which wins.")]
ThreadId = Annotated[str | None, _part("--thread-id", help="The thread or topic.")]
ScopeId = Annotated[str | None, _part("--scope-id", help="The Slack workspace.")]
GroupPerUser = Annotated[
    YesNo | None,
    option("--group-sessions-per-user", metavar="yes|no",
           help="Whether each member of a group has a session; as configured, else yes."),
]  # fmt: skip
ThreadPerUser = Annotated[
    YesNo | None,
    option("--thread-sessions-per-user", metavar="yes|no",
           help="Whether each member of a thread has one; as configured, else no."),
]  # fmt: skip
Multiplex = Annotated[
    str | None,
    option("--multiplex", metavar="NAME",
           help="Keys of this profile in a gateway that serves several."),
]  # fmt: skip
Release = Annotated[
    str | None,
    option("--release", metavar="N.N", help="Keys as this release of the agent makes them."),
]
Index = Annotated[bool, option("--index", help="List the routing index instead.")]


def key(
    output: Output, store: Store, dash: Dash = None, platform: Platform = None,
    chat_id: ChatId = None, chat_type: ChatType = None, user_id: UserId = None,
    user_id_alt: UserIdAlt = None, thread_id: ThreadId = None, scope_id: ScopeId = None,
    group_sessions_per_user: GroupPerUser = None, thread_sessions_per_user: ThreadPerUser = None,
    multiplex: Multiplex = None, release: Release = None, index: Index = False,
) -> None:  # fmt: skip
    """The key by which the gateway routes a message: of a source given as options, or of each
    record on standard input. With --index, which session every chat goes to.
    """
    parts = {
        "platform": platform, "chat_id": chat_id, "chat_type": chat_type, "user_id": user_id,
        "user_id_alt": user_id_alt, "thread_id": thread_id, "scope_id": scope_id,
    }  # fmt: skip
    given = {name: value for name, value in parts.items() if value is not None}
    if dash not in (None, "-"):
        raise Usage(f"{dash!r}: the only operand is -, standard input")
    if index and (given or dash):
        raise Usage("--index lists what is stored; it takes no source")
    if index:
        with store.read() as db:
            found = list(routes(db, routing.entries(db, store.place)))
        output.write(found, table, store.quiet)
        return
    rules = keys.rules(home.config(store.place))
    if group_sessions_per_user is not None:
        rules = replace(rules, per_user=group_sessions_per_user == "yes")
    if thread_sessions_per_user is not None:
        rules = replace(rules, threads_per_user=thread_sessions_per_user == "yes")
    rules = replace(rules, profile=multiplex, release=number(release) or rules.release)
    if given:
        if dash:
            raise Usage("a source as options and standard input exclude each other")
        if platform is None or not platform.strip():
            raise Usage("--platform is missing")
        name, canonical = keys.session_key(keys.source(given), rules, store.place)
        if not canonical:
            streams.complain(f"{name}: no lid-mapping file names this account's aliases")
        record = {"session_key": name, "canonical": canonical, **given}
        output.text = output.format == "auto" and not output.fields
        output.write([record], keyed_table, store.quiet)
        return
    output.write(keyed(rules, store, dash), keyed_table, store.quiet)


def keyed(rules: keys.Rules, store: Store, dash: str | None) -> Iterator[Record]:
    """The records of standard input with their keys."""
    if dash is None and streams.stdin().isatty():
        raise Usage("no source given, and standard input is a terminal")
    for line_number, line in streams.lines(streams.stdin()):
        place = f"standard input, line {line_number}"
        record = streams.record(line, place)
        name, canonical = keys.session_key(keys.source(record, place), rules, store.place)
        yield {**record, "session_key": name, "canonical": canonical}


def keyed_table(records: Iterable[Record]) -> Iterator[str]:
    """One key a line, as with options."""
    for one in records:
        yield text.line(one["session_key"])


def number(release: str | None) -> tuple[int, int] | None:
    """(0, 16) of `0.16` or `v0.16.2`. Raises Usage."""
    if release is None:
        return None
    major, _, minor = release.removeprefix("v").partition(".")
    minor = minor.partition(".")[0]
    if not (major.isascii() and major.isdigit() and minor.isascii() and minor.isdigit()):
        raise Usage(f"--release {release}: no release; write 0.16")
    return int(major), int(minor)


def routes(db: Database, entries: list[routing.Entry]) -> Iterator[Record]:
    """The record of each route: hermes-session-jsonl(5), route."""
    reader = Reader(db)
    for one in entries:
        state = resets.state(db, reader, one)
        row = reader.conversation(one.session_id) if one.session_id and state != "missing" else None
        origin = one.data.get("origin")
        origin = origin if isinstance(origin, dict) else {}
        yield {
            "session_key": one.key, "session_id": one.session_id, "state": state,
            "scope": one.scope, "platform": one.data.get("platform") or origin.get("platform"),
            "chat_type": one.data.get("chat_type") or origin.get("chat_type"),
            "title": row.title if row else None, "updated_at": one.data.get("updated_at"),
            "last_active": row.last_active if row else None,
            "ended_at": row.ended_at if row else None,
            "end_reason": row.end_reason if row else None, "entry": one.data,
        }  # fmt: skip


def table(records: Iterable[Record]) -> Iterator[str]:
    """Key, State, Title, Last Active, ID."""
    rows = [
        (one["session_key"], one["state"], one["title"] or "—", text.ago(one["last_active"]),
         one["session_id"] or "—")
        for one in records
    ]  # fmt: skip
    yield from text.table(rows, ("Key", "State", "Title", "Last Active", "ID"), (0, 1, 3, 4))


main = entry(key)
