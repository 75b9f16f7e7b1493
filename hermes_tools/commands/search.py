"""hermes-session-search: find messages by their words, in any language"""

import re
from collections.abc import Iterable, Iterator
from typing import Annotated

import typer

from hermes_tools.console import streams, text
from hermes_tools.console.app import entry
from hermes_tools.console.options import Filters, Inactive, Output, Store, option
from hermes_tools.console.status import Status
from hermes_tools.console.streams import Record
from hermes_tools.store import query
from hermes_tools.store.db import Database
from hermes_tools.store.errors import Usage
from hermes_tools.store.lineage import Lineage
from hermes_tools.store.search import (
    ROLES,
    SORTS,
    Asked,
    Found,
    Searcher,
    discoveries,
    hit_records,
    whereabouts,
)  # fmt: skip
from hermes_tools.store.sessions import require_sources, resolve
from hermes_tools.store.times import valid


def search(
    store: Store,
    filters: Filters,
    output: Output,
    words: Annotated[list[str] | None, typer.Argument(
        metavar="QUERY...", show_default=False,
        help='What to look for: all words; "a phrase", OR, NOT, prefix*.')] = None,
    limit: Annotated[int, option(
        "-n", "--limit", metavar="N", min=0, help="At most N conversations; 0 for all.")] = 10,
    sort: Annotated[str, option(
        "--sort", metavar="relevance|newest|oldest", help="The order of results.")] = "relevance",
    role: Annotated[str, option(
        "--role", metavar="ROLE,...", help="Roles whose messages are searched; any for all."
    )] = ",".join(ROLES),
    hits: Annotated[bool, option("--hits", help="One record a message, not a conversation.")]
    = False,
    window: Annotated[int, option(
        "--window", metavar="N", min=0, help="Messages shown on each side of a hit.")] = 5,
    bookends: Annotated[int, option(
        "--bookends", metavar="N", min=0, help="Messages shown from each end.")] = 3,
    max_chars: Annotated[int | None, option(
        "--max-chars", metavar="N", min=1, show_default=False,
        help="Cut the texts of windows and bookends.")] = None,
    not_in: Annotated[str | None, option(
        "--not-in", metavar="SESSION", help="Leave this session's conversation out.")] = None,
    inactive: Inactive = False,
    raw: Annotated[bool, option("--raw", help="The query is FTS5, as typed.")] = False,
    all_profiles: Annotated[bool, option(
        "--all-profiles", help="Every profile's store in turn.")] = False,
) -> Status:  # fmt: skip
    """Find messages by their words, in any language, and show each conversation's best hit.

    --after and --before are the times of messages here, not of the session's start.

    Status 0: something was found; 1: nothing was; anything else: it could not be looked for.
    """
    if sort not in SORTS:
        raise Usage(f"--sort {sort}: not one of {', '.join(SORTS)}")
    if raw and any(not word.strip() for word in words or [""]):
        raise Usage("an empty query; hermes-session-list lists conversations")
    plan = None if raw else query.parse(words or [])
    selection = filters.selection(archived="no", internal="no")
    roles = chosen_roles(role)
    typed = " ".join(words or [])
    number = 0

    def records() -> Iterator[Record]:
        nonlocal number
        for profile, db in store.each(all_profiles):
            require_sources(db, selection)
            root = Lineage(db).conversation(resolve(db, not_in)) if not_in is not None else None
            asked = Asked(
                plan, selection, roles, sort, limit, hits, inactive, titles=role == ",".join(ROLES),
                not_in=root, typed=typed, raw=typed if raw else None,
            )  # fmt: skip
            found = Searcher(db, asked).find()
            if found.why:
                streams.complain(f"every message was read, without an index: {found.why}")
            if hits:
                made: Iterable[Record] = hit_records(db, asked, found)
            else:
                made = discoveries(
                    db, asked, found, window=window, bookends=bookends, max_chars=max_chars
                )
            made = list(made)  # everything is read before a pipe that may be full is written to
            number += len(made)
            say_cut(found, hits)
            if not made:
                say_nothing(db, asked)
            yield from (record | {"profile": profile} if profile else record for record in made)

    output.write(records(), hit_lines if hits else blocks, store.quiet)
    return Status.OK if number else Status.NEGATIVE


def chosen_roles(word: str) -> tuple[str, ...]:
    """The roles of --role; () for all. Raises Usage."""
    roles = tuple(dict.fromkeys(part.strip() for part in word.split(",") if part.strip()))
    if not roles:
        raise Usage("--role is empty (an unset variable?)")
    return () if "any" in roles else roles


def say_cut(found: Found, hits: bool) -> None:
    """A list that was cut says so at its end."""
    if found.hits and found.cut:
        noun = "message" if hits else "conversation"
        if found.total is None:
            streams.complain_after(f"the first {text.count(len(found.hits), noun)}, "
                                   "there are more; -n 0 for all")  # fmt: skip
        else:
            streams.complain_after(f"{len(found.hits)} of {found.total:,}; -n 0 for all")


def say_nothing(db: Database, asked: Asked) -> None:
    """For a search that found nothing: which single terms there are, and in which roles."""
    if asked.plan is None:
        streams.complain("nothing found")
        return
    parts = []
    for term, roles in whereabouts(db, asked):
        where = ", ".join(
            f"{number}{'+' if sum(roles.values()) >= 200 else ''} {role}"
            for role, number in roles.items()
        )
        parts.append(f"{term}: {f'in messages of {where}' if where else 'nowhere'}")
    streams.complain(f"nothing found ({'; '.join(parts)})")


def marked(snippet: str) -> str:
    """A snippet for a person: hits in colour, or as they are where colour is not welcome."""
    line = text.line(snippet)
    if not text.coloured():
        return line
    return re.sub(
        ">>>(.*?)<<<", lambda hit: text.style(hit[1], 1, 33), line
    )


def blocks(records: Iterable[Record]) -> Iterator[str]:
    """Discovery records as blocks: title, when and where, the hit, the ids to go on with."""
    for number, record in enumerate(records):
        if number:
            yield ""
        title = text.line(record["title"] or "untitled")
        anchor: Record = next((row for row in record["messages"] if row.get("anchor")), {})
        when = text.ago(valid(anchor.get("timestamp")))
        place = f"{when}, {text.line(record['source'] or 'unknown')}"
        if record.get("profile"):
            place += f", profile {text.line(record['profile'])}"
        yield f"{text.style(title, 1)}  {text.style(place, 2)}"
        yield f"  {record['matched_role']}: {marked(record['snippet'])}"
        yield text.style(f"  {text.line(record['session_id'])} {record['match_message_id']}", 2)


def hit_lines(records: Iterable[Record]) -> Iterator[str]:
    """Hit records a line each, like grep's: session, message, role, snippet."""
    for record in records:
        place = f"{record['session_id']} {record['message_id']}"
        role = record["role"] + (f"/{record['tool_name']}" if record["tool_name"] else "")
        yield (f"{text.style(text.line(place), 2)} {text.ago(record['timestamp'])} "
               f"{text.line(role)}: {marked(record['snippet'])}")  # fmt: skip


main = entry(search)
