"""hermes-session-list: list conversations, newest first"""

from collections.abc import Callable, Iterable, Iterator
from typing import Annotated, Literal

from hermes_tools.console import streams, text
from hermes_tools.console.app import entry
from hermes_tools.console.options import (
    AllProfiles,
    Filters,
    Ids,
    Limit,
    Output,
    Store,
    chosen_here,
    option,
    say_cut,
)
from hermes_tools.console.streams import Record
from hermes_tools.store.db import is_wal
from hermes_tools.store.errors import Usage
from hermes_tools.store.listing import Listing
from hermes_tools.store.sessions import EXACT, Conversation, resolve

ON_TERMINAL = 20  # conversations in text, where nobody said how many
FOR_PEOPLE = 3000  # session rows of which a person waits for the exact number

Sort = Annotated[
    Literal["newest", "oldest", "started", "size"],
    option("--sort", metavar="newest|oldest|started|size", show_default=False,
           help="By last activity, by start, or by bytes of text; default newest."),
]  # fmt: skip
Tree = Annotated[bool, option("--tree", help="Draw whole families, with branches and delegates.")]
Ancestors = Annotated[
    str | None, option("--ancestors", metavar="ID", help="This session and those it came from.")
]
Descendants = Annotated[
    str | None, option("--descendants", metavar="ID", help="This session and those from it.")
]
Segments = Annotated[
    bool, option("--segments", help="Every session row instead of whole conversations.")
]
Digest = Annotated[bool, option("--digest", help="Add the digest of each conversation.")]
Bytes = Annotated[bool, option("--bytes", help="Add the bytes of text each one holds.")]


def list_(
    filters: Filters,
    output: Output,
    store: Store,
    session: Ids = None,
    limit: Limit = None,
    sort: Sort = "newest",
    tree: Tree = False,
    ancestors: Ancestors = None,
    descendants: Descendants = None,
    segments: Segments = False,
    digest: Digest = False,
    bytes_: Bytes = False,
    all_profiles: AllProfiles = False,
) -> None:
    """List conversations, newest activity first: all that the filters leave, or those named. A
    conversation that was compressed is one entry, with the id it goes on under today. Archived
    ones and runs nobody talked to (subagents, tools, empty ghosts) are left out unless named.
    """  # fmt: skip
    relative = ancestors if ancestors is not None else descendants
    check(bool(session), relative is not None, tree, segments)
    if ancestors is not None and descendants is not None:
        raise Usage("--ancestors and --descendants exclude each other")
    names = streams.names(session, output.null) if session else []
    default = "any" if session or relative else "no"
    selection = filters.selection(archived=default, internal=default)
    exact = EXACT if limit is not None else FOR_PEOPLE
    if limit is None:
        limit = ON_TERMINAL if output.kind == "text" and default == "no" else 0
    left = {name.ref for name in names}

    def found(listing: Listing, profile: str | None) -> Iterable[Conversation]:
        if ancestors is not None:
            return listing.ancestors(resolve(listing.db, ancestors), selection)
        if descendants is not None:
            return listing.descendants(resolve(listing.db, descendants), selection)
        if session:
            ids = list(chosen_here(listing.db, names, profile, left))
            return listing.family(ids) if tree else listing.named(ids, selection, segments)
        return listing.families(selection) if tree else listing.selected(selection, segments)

    def records() -> Iterator[Record]:
        for profile, db in store.each(all_profiles, selection):
            listing = Listing(db, sort=sort, limit=limit, exact=exact)
            rows = found(listing, profile)
            rows = listing.add_bytes(rows) if bytes_ else rows
            rows = listing.add_digest(rows) if digest else rows
            for one in rows if is_wal(db) else list(rows):
                yield one.record() | ({"profile": profile} if profile else {})
            say_cut(limit, listing.total, profile)
        for ref in left if all_profiles else ():
            streams.warn(f"session {ref}: in no store of this home")

    drawn = tree or descendants is not None
    number = output.write(records(), drawing if drawn else table, store.quiet)
    if number == 0 and output.kind == "text" and not store.quiet:
        streams.complain("nothing to list")


def check(named: bool, relative: bool, tree: bool, segments: bool) -> None:
    """Raises Usage for what does not go together."""
    if relative and (named or tree or segments):
        raise Usage("--ancestors and --descendants name one session, and stand alone")
    if tree and segments:
        raise Usage("--tree shows every session row; leave out --segments")


def table(records: Iterable[Record]) -> Iterator[str]:
    """Title, Preview, Last Active, ID; where nothing has a title Preview, Last Active, Src, ID."""
    rows = list(records)
    titled = any(one["title"] for one in rows)
    have = {key for one in rows for key in one}
    columns: list[tuple[str, bool, Callable[[Record], str]]] = [
        ("Title", titled, lambda one: one["title"] or "—"),
        ("Preview", True, lambda one: one["preview"] or ""),
        ("Last Active", True, lambda one: text.ago(one["last_active"])),
        ("Src", not titled, lambda one: one["source"] or "unknown"),
        ("Kind", "kind" in have, lambda one: one["kind"]),
        ("Size", "bytes" in have, lambda one: text.amount(one["bytes"])),
        ("Digest", "digest" in have, lambda one: one["digest"][:12]),
        ("Profile", "profile" in have, lambda one: one["profile"]),
        ("ID", True, lambda one: one["session_id"]),
    ]
    shown = [(head, cell) for head, wanted, cell in columns if wanted]
    heads = [head for head, _ in shown]
    fixed = [number for number, head in enumerate(heads) if head not in ("Title", "Preview")]
    if rows:
        yield from text.table([[cell(one) for _, cell in shown] for one in rows], heads, fixed)


def drawing(records: Iterable[Record]) -> Iterator[str]:
    """Families as trees. A compression chain stands one below the other, not ever deeper."""
    yield from text.tree(
        (one["depth"], one["kind"] == "continuation", described(one)) for one in records
    )


def described(one: Record) -> str:
    """`20260226_150000_00cc33  cli  2026-02-25  continuation: garden plan #3`."""
    words = text.line(one["title"] or one["preview"] or "—")
    kind = "" if one["kind"] == "root" else f"{one['kind']}: "
    cells = (one["session_id"], one["source"] or "unknown", text.ago(one["last_active"]))
    return "  ".join(map(text.line, cells)) + f"  {kind}{words}"


main = entry(list_)
