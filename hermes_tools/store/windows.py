"""Messages around a message: windows, bookends, pages; for a whole result set at once."""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from hermes_tools.store import messages
from hermes_tools.store.db import Database, chunks, marks
from hermes_tools.store.errors import NotFound
from hermes_tools.store.lineage import Lineage

# A row's neighbours are mostly of the wanted roles; where they are not, the next look goes
# this many times further.
FURTHER = 4


@dataclass(repr=False, eq=False)
class Window:
    """Rows (messages.COLUMNS) by id: before the anchor, the anchor, after it; and the first and
    the last rows of the session that lie outside of these.
    """

    anchor: Any
    before: list[Any] = field(default_factory=list)
    after: list[Any] = field(default_factory=list)
    start: list[Any] = field(default_factory=list)
    end: list[Any] = field(default_factory=list)

    @property
    def rows(self) -> list[Any]:
        """The window in order."""
        return [*self.before, self.anchor, *self.after]


class Neighbours:
    """Which rows of some sessions may be shown, looked up in rounds for all of them together.

    roles: those to be shown, none for all. inactive: also what its user has undone.
    """

    def __init__(
        self, db: Database, sessions: Iterable[str], roles: Sequence[str] = (),
        inactive: bool = False,
    ) -> None:  # fmt: skip
        self.db = db
        self.ids: dict[str, list[int]] = {session: [] for session in sessions}
        for some in chunks(self.ids):
            for session, id_ in db.execute(
                f"SELECT session_id, id FROM messages WHERE session_id IN ({marks(some)})", some
            ):
                self.ids[session].append(id_)
        for found in self.ids.values():
            found.sort()
        role = f"m.role IN ({marks(roles)})" if roles else "1"
        seen = "1" if inactive else db.schema.seen
        summary = (
            "COALESCE(m._compressed_summary, 0) = 1 OR "
            if db.schema.has("messages", "_compressed_summary") else ""
        )  # fmt: skip
        heads = " OR ".join(f"m.content LIKE '{head}%'" for head in messages.CARRIERS)
        self._shown = f"{role} AND {seen} AND {messages.visible(db)}"
        self._filled = f"m.content IS NOT NULL AND m.content <> '' AND NOT ({summary}{heads})"
        self._roles = list(roles)
        self._kinds: dict[int, tuple[bool, bool]] = {}

    def learn(self, ids: Iterable[int]) -> None:
        """Ask for rows that are not known yet: (to be shown, has words of its own)."""
        wanted = [id_ for id_ in ids if id_ not in self._kinds]
        for some in chunks(wanted):
            for id_, shown, filled in self.db.execute(
                f"SELECT m.id, {self._shown}, CASE WHEN {self._shown} THEN {self._filled} END "
                f"FROM messages m WHERE m.id IN ({marks(some)})",
                (*self._roles, *self._roles, *some),
            ):
                self._kinds[id_] = bool(shown), bool(filled)

    def shown(self, ids: Iterable[int], most: int, filled: bool = False) -> list[int]:
        """The first `most` of these ids that are to be shown (and have words), of those known."""
        found: list[int] = []
        for id_ in ids:
            if len(found) >= most or id_ not in self._kinds:
                break
            if self._kinds[id_][filled]:
                found.append(id_)
        return found


def around(
    db: Database, anchors: Iterable[tuple[str, int]], size: int, *, bookends: int = 0,
    roles: Sequence[str] = (), inactive: bool = False,
) -> dict[int, Window]:  # fmt: skip
    """Anchor id → its window of `size` rows on each side, in its own session, for (session,
    message id) pairs; an anchor is in its window whatever its role. One round of queries for all.
    """
    wanted = list(anchors)
    near = Neighbours(db, dict.fromkeys(session for session, _ in wanted), roles, inactive)
    plans: dict[int, tuple[list[int], list[int], list[int], list[int]]] = {}
    reach = 2 * size + 4
    edge = 2 * bookends + 4
    open_ = wanted
    while open_:
        slices = {id_: _slices(near.ids[session], id_, reach, edge) for session, id_ in open_}
        near.learn(id_ for parts in slices.values() for part in parts for id_ in part)
        again = []
        for session, id_ in open_:
            all_, (before, after, first, last) = near.ids[session], slices[id_]
            left = near.shown(before, size)
            right = near.shown(after, size)
            inside = {*left, id_, *right}
            low, high = min(inside), max(inside)
            start = near.shown([i for i in first if i < low], bookends, filled=True)
            end = near.shown([i for i in last if i > high], bookends, filled=True)
            plans[id_] = left[::-1], right, start, end[::-1]
            short = (
                (len(left) < size and before and before[-1] != all_[0])
                or (len(right) < size and after and after[-1] != all_[-1])
                or (len(start) < bookends and first and first[-1] < low)
                or (len(end) < bookends and last and last[-1] > high)
            )
            if short:
                again.append((session, id_))
        open_ = again
        reach, edge = reach * FURTHER, edge * FURTHER
    rows = fetch(db, {i for anchor, plan in plans.items() for part in (*plan, [anchor])
                      for i in part})  # fmt: skip
    return {
        anchor: Window(rows[anchor], *([rows[i] for i in part] for part in plan))
        for anchor, plan in plans.items()
    }


def _slices(
    ids: list[int], anchor: int, reach: int, edge: int
) -> tuple[list[int], list[int], list[int], list[int]]:
    """Ids next to the anchor on both sides, and from both ends of the session, nearest first."""
    at = bisect_left(ids, anchor)
    after = at + 1 if at < len(ids) and ids[at] == anchor else at
    before = ids[max(0, at - reach) : at][::-1]
    return before, ids[after : after + reach], ids[:edge], ids[::-1][:edge] if edge else []


def page(
    db: Database, session: str, size: int, *, after: int | None = None, before: int | None = None,
    roles: Sequence[str] = (), inactive: bool = False,
) -> list[Any]:  # fmt: skip
    """The next `size` rows after (or before) an id, strictly, in order of id; so that pages in
    turn give each message once.
    """
    near = Neighbours(db, [session], roles, inactive)
    ids = near.ids[session]
    if after is not None:
        ids = [id_ for id_ in ids if id_ > after]
    else:
        assert before is not None
        ids = [id_ for id_ in ids if id_ < before][::-1]
    found: list[int] = []
    for start in range(0, len(ids), 2 * size + 4):
        some = ids[start : start + 2 * size + 4]
        near.learn(some)
        found += near.shown(some, size - len(found))
        if len(found) >= size:
            break
    rows = fetch(db, found)
    return [rows[id_] for id_ in sorted(found)]


def fetch(db: Database, ids: Iterable[int]) -> dict[int, Any]:
    """Message rows (messages.COLUMNS) by id."""
    return {
        row["id"]: row
        for some in chunks(ids)
        for row in db.execute(
            f"SELECT {messages.pick(db)} FROM messages m WHERE m.id IN ({marks(some)})", some
        )
    }


def owner(db: Database, session: str, message: int, *, inactive: bool = False) -> str:
    """The session that a message belongs to, which may be another of the named one's lineage.

    Raises NotFound, with the neighbours of a message that is not there (or is undone).
    """
    row = db.execute(
        f"SELECT m.session_id, {db.schema.seen} FROM messages m WHERE m.id = ?", (message,)
    ).fetchone()
    if row is not None:
        if row[0] != session:
            lineage = Lineage(db)
            if lineage.conversation(row[0]) != lineage.conversation(session):
                raise NotFound(
                    f"message {message}: belongs to session {row[0]}, another conversation"
                )
        if row[1] or inactive:
            return str(row[0])
    near = _beside(db, session, message, inactive)
    reason = "its user has undone it (--inactive shows it)" if row else "not in this store"
    raise NotFound(f"message {message}: {reason}; {near}")


def _beside(db: Database, session: str, message: int, inactive: bool) -> str:
    seen = "1" if inactive else db.schema.seen
    ends = [
        db.execute(
            f"SELECT {edge}(m.id) FROM messages m WHERE m.session_id = ? AND m.id {sign} ? "
            f"AND {seen}", (session, message),
        ).fetchone()[0]
        for edge, sign in (("max", "<"), ("min", ">"))
    ]  # fmt: skip
    known = [str(id_) for id_ in ends if id_ is not None]
    if not known:
        return f"session {session} has no messages"
    return f"its neighbours in session {session} are {' and '.join(known)}"
