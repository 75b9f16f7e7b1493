"""hermes-session-list: list conversations, newest first"""

from collections.abc import Iterable, Iterator
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
    chosen_in,
    option,
)
from hermes_tools.console.streams import Record
from hermes_tools.store.db import Database, is_wal
from hermes_tools.store.errors import Usage
from hermes_tools.store.listing import Listing
from hermes_tools.store.sessions import Conversation, resolve

ON_TERMINAL = 20  # conversations in text, where nobody said how many

Sort = Annotated[
    Literal["newest", "oldest", "started", "size"],
    option("--sort", metavar="newest|oldest|started|size", show_default=False,
           help="By last activity, by start, or by bytes of text; default newest."),
]  # fmt: skip
Tree = Annotated[
    bool, option("--tree", help="Draw whole families, with branches and delegates.")
]
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
    filters: Filters, output: Output, store: Store, session: Ids = None, limit: Limit = None,
    sort: Sort = "newest", tree: Tree = False, ancestors: Ancestors = None,
    descendants: Descendants = None, segments: Segments = False, digest: Digest = False,
    bytes_: Bytes = False, all_profiles: AllProfiles = False,
) -> None:
    """List conversations, newest activity first: all that the filters leave, or those named. A
    conversation that was compressed is one entry, with the id it goes on under today. Archived
    ones and runs nobody talked to (subagents, tools, empty ghosts) are left out unless named.
    """  # fmt: skip
    check(session, tree, ancestors, descendants, segments)
    names = streams.names(session, output.null) if session else None
    default = "no" if names is None else "any"
    selection = filters.selection(archived=default, internal=default)
    if limit is None:
        limit = ON_TERMINAL if output.kind == "text" and not session else 0

    def found(listing: Listing, profile: str | None) -> Iterable[Conversation]:
        if ancestors is not None:
            return listing.ancestors(resolve(listing.db, ancestors))
        if descendants is not None:
            return listing.descendants(resolve(listing.db, descendants))
        if names is None:
            return listing.families(selection) if tree else listing.selected(selection, segments)
        ids = chosen_in(listing.db, names, profile)
        return listing.family(ids) if tree else listing.named(ids, selection, segments)

    def records() -> Iterator[Record]:
        for profile, db in store.each(all_profiles, selection):
            listing = Listing(db, sort=sort, limit=limit)
            rows = found(listing, profile)
            rows = listing.add_bytes(rows) if bytes_ else rows
            rows = listing.add_digest(rows) if digest else rows
            for one in rows if is_wal(db) else list(rows):
                yield one.record() | ({"profile": profile} if profile else {})
            say_cut(listing, profile)

    drawn = tree or descendants is not None
    output.write(records(), drawing if drawn else table, store.quiet)


main = entry(list_)
