"""Session search as a tool that an agent can mount: one call, three forms (store-facts 3.7)."""

from typing import Any

from hermes_tools.store import query, search, windows
from hermes_tools.store.db import Database
from hermes_tools.store.errors import NotFound, StoreError, Usage
from hermes_tools.store.lineage import Lineage
from hermes_tools.store.selection import Selection
from hermes_tools.store.sessions import Reader, conversations, resolve
from hermes_tools.store.times import iso

LIMIT, MOST = 3, 10  # results
WINDOW, WIDEST = 5, 20  # messages on each side
MAX_CHARS = 4000  # of one message: whoever reads this has to hold it in mind

# What nobody asked to be shown: archived sessions, and runs that nobody talked to.
OPEN_TO_ALL = Selection(archived="no", internal="no")

Answer = dict[str, Any]


def answer(
    db: Database, words: str | None, session_id: str | None, around_message_id: Any, *,
    window: Any, limit: Any, sort: str | None, role_filter: Any, current_session_id: str | None,
) -> Answer:  # fmt: skip
    """The envelope for a call in any form; what was asked wrongly or is not there comes back as
    {"success": False, "error": …}, for a model to read.
    """
    try:
        if session_id or around_message_id is not None:
            return scroll(db, session_id, around_message_id, window, role_filter,
                          current_session_id)  # fmt: skip
        if words and words.strip():
            return discover(db, words, limit, sort, role_filter, current_session_id)
        return browse(db, limit, current_session_id)
    except (Usage, NotFound) as error:
        return {"success": False, "error": str(error)}


def discover(
    db: Database, words: str, limit: Any, sort: str | None, role_filter: Any, current: str | None
) -> Answer:
    """Conversations with a message that matches, the best first, the caller's own left out."""
    order = sort or "relevance"
    if order not in search.SORTS:
        raise Usage(f"sort {order!r}: not one of {', '.join(search.SORTS)}")
    asked = search.Asked(
        query.parse([words]), OPEN_TO_ALL, roles(role_filter) or search.ROLES, order,
        number("limit", limit, LIMIT, MOST), titles=not role_filter, not_in=root(db, current),
        typed=words,
    )  # fmt: skip
    found = search.Searcher(db, asked).find()
    results = list(search.discoveries(db, asked, found, window=WINDOW, max_chars=MAX_CHARS))
    whole: Answer = {
        "success": True, "mode": "discover", "query": words, "results": results,
        "count": len(results),
        "sessions_searched": len(found.hits) if found.total is None else found.total,
    }  # fmt: skip
    if found.why:
        whole["note"] = f"every message was read, without an index: {found.why}"
    if not results:
        whole["message"] = "no session matches; try fewer or other words"
    return whole


def scroll(
    db: Database, session_id: str | None, message_id: Any, window: Any, role_filter: Any,
    current: str | None,
) -> Answer:  # fmt: skip
    """The messages around one of a session's."""
    if not session_id or message_id is None:
        raise Usage("session_id and around_message_id go together")
    size = number("window", window, WINDOW, WIDEST)
    named = resolve(db, session_id)
    anchor = number("around_message_id", message_id)
    owner = windows.owner(db, named, anchor)
    if current and root(db, current) == Lineage(db).conversation(owner):
        raise Usage(f"session {owner}: the conversation this call comes from; it is in view")
    around = windows.around(db, [(owner, anchor)], size, roles=roles(role_filter))[anchor]
    one = Reader(db).row(owner)
    whole: Answer = {
        "success": True, "mode": "scroll", "session_id": owner, "around_message_id": anchor,
        "session_meta": {"when": iso(around.anchor["timestamp"]), "source": one["source"],
                         "model": one["model"], "title": one["title"]},
        "window": size, "messages": search.bounded(around.rows, MAX_CHARS, anchor),
        "messages_before": len(around.before), "messages_after": len(around.after),
    }  # fmt: skip
    if owner != named:
        whole["warning"] = f"message {anchor} is in session {owner}, not in {named}"
    return whole


def browse(db: Database, limit: Any, current: str | None) -> Answer:
    """The newest conversations, the caller's own left out."""
    most, own = number("limit", limit, LIMIT, MOST), root(db, current)
    lineage, results = Lineage(db), list[dict[str, Any]]()
    for one in conversations(db, OPEN_TO_ALL, few=True):
        if own is None or lineage.conversation(one.root) != own:
            results.append(one.record())
            if len(results) == most:
                break
    return {
        "success": True, "mode": "browse", "results": results, "count": len(results),
        "message": "the newest conversations; a query finds messages in all of them",
    }  # fmt: skip


def root(db: Database, session_id: str | None) -> str | None:
    """The conversation a session belongs to; None where the store does not have it (yet)."""
    if not session_id:
        return None
    try:
        return Lineage(db).conversation(resolve(db, session_id, exact=True))
    except StoreError:
        return None


def roles(given: Any) -> tuple[str, ...]:
    """`user,assistant` or a list of these; () for the default."""
    words = given.split(",") if isinstance(given, str) else list(given or ())
    return tuple(dict.fromkeys(str(word).strip() for word in words if str(word).strip()))


def number(name: str, given: Any, default: int = 0, most: int | None = None) -> int:
    """A whole number, text of one too (models write it so), at least 1 and at most `most`."""
    if given is None:
        return default
    try:
        value = int(given)
    except (TypeError, ValueError):
        raise Usage(f"{name} {given!r}: not a whole number") from None
    return value if most is None else max(1, min(value, most))


SCHEMA: dict[str, Any] = {
    "name": "session_search",
    "description": (
        "Look into earlier conversations. With `query`: the conversations that hold matching "
        "messages, each with its best hit, the messages around it, and how it began and ended. "
        "With `session_id` and `around_message_id`: the messages around one message; to read on, "
        "call again with the id at either end. With nothing: the newest conversations."
    ),
    "parameters": {
        "type": "object",
        "properties": {
            "query": {
                "type": "string",
                "description": "Words that must all be in a message; \"a phrase\", OR, NOT, "
                "prefix*. Any language.",
            },
            "session_id": {
                "type": "string", "description": "The session to scroll in, as results name it.",
            },
            "around_message_id": {
                "type": "integer",
                "description": "The message in the middle: match_message_id of a result, or the "
                "id of any message shown.",
            },
            "window": {
                "type": "integer", "minimum": 1, "maximum": WIDEST, "default": WINDOW,
                "description": "How many messages on each side to scroll.",
            },
            "limit": {
                "type": "integer", "minimum": 1, "maximum": MOST, "default": LIMIT,
                "description": "How many conversations.",
            },
            "sort": {
                "type": "string", "enum": list(search.SORTS), "default": "relevance",
                "description": "Their order.",
            },
            "role_filter": {
                "type": "string",
                "description": "Roles to look in, separated by commas: user, assistant, tool. "
                "By default user,assistant.",
            },
        },
        "required": [],
    },
}  # fmt: skip
