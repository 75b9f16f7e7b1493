"""What an export holds, and in which order: conversations, oldest first, with their delegates."""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from hermes_tools.store.db import Database
from hermes_tools.store.lineage import Lineage
from hermes_tools.store.selection import Selection
from hermes_tools.store.sessions import Reader


class Picked(NamedTuple):
    """One conversation: its rows (chain, then delegates), and the chains among them."""

    root: Any
    members: list[Any]
    chains: list[list[Any]]


def picked(
    db: Database, selection: Selection, ids: Iterable[str] | None = None, *,
    segment: bool = False, limit: int = 0,
) -> Iterator[Picked]:  # fmt: skip
    """Conversations by the start of their first row, or as named; each row comes once. A filter
    is asked of the conversation; its delegates come with it.
    """
    lineage = Lineage(db)
    everything = vars(selection) == vars(Selection())
    reader = None if everything else Reader(db, lineage)
    if ids is None:
        lineage.preload()
        order = "started_at, id" if db.schema.has("sessions", "started_at") else "id"
        ids = [row[0] for row in db.execute(f"SELECT id FROM sessions ORDER BY {order}")]
        if reader is not None and selection.narrow():
            reader.preload()
    seen: set[Any] = set()
    number = 0
    for session_id in ids:
        if session_id in seen:
            continue
        if everything and lineage.alone(session_id):
            number += 1
            yield Picked(session_id, [session_id], [[session_id]])
            if number == limit:
                return
            continue
        if everything and not segment:
            session_id = lineage.conversation(session_id)  # a delegate comes with whom it served
        one = _one(lineage, session_id, segment, seen)
        if reader is not None and not selection.takes(
            reader.conversation(session_id, segment=segment, preview=False)
        ):
            continue
        seen.update(one.members)
        yield one
        number += 1
        if number == limit:
            return


def _one(lineage: Lineage, session_id: Any, segment: bool, seen: set[Any]) -> Picked:
    if segment:
        return Picked(session_id, [session_id], [[session_id]])
    members = [row for row in lineage.members(session_id) if row not in seen]
    left = dict.fromkeys(members)
    chains: list[list[Any]] = []
    for row in members:
        if row in left:
            chains.append([one for one in lineage.chain(row) if one in left])
            for one in chains[-1]:
                del left[one]
    return Picked(lineage.root(session_id), members, chains)


def orphans(db: Database) -> int:
    """Messages whose session row is gone."""
    sql = "SELECT count(*) FROM messages WHERE session_id NOT IN (SELECT id FROM sessions)"
    return int(db.execute(sql).fetchone()[0])
