"""Listings: conversations by selection or name, families as trees, ancestors, descendants."""

from collections.abc import Iterable, Iterator
from typing import TypeVar

from hermes_tools.store.db import Database
from hermes_tools.store.selection import Selection
from hermes_tools.store.sessions import EXACT, Conversation, Reader, conversations, first, sizes

Some = TypeVar("Some")


class Listing:
    """What one store lists. `total` says how many there are where a limit left some out;
    `exact`: the session rows up to which they are counted one by one for it.
    """

    def __init__(
        self, db: Database, *, sort: str = "newest", limit: int = 0, exact: int = EXACT
    ) -> None:
        self.db = db
        self.reader = Reader(db)
        self.lineage = self.reader.lineage
        self.sort, self.limit, self.exact = sort, limit, exact
        self.total: str | None = None

    def selected(self, selection: Selection, segments: bool = False) -> Iterable[Conversation]:
        """Conversations (with `segments` session rows) that a selection takes, in order."""
        if not self.limit:
            return conversations(
                self.db, selection, sort=self.sort, segments=segments, reader=self.reader
            )
        found, self.total = first(
            self.db, selection, self.limit, sort=self.sort, segments=segments,
            reader=self.reader, exact=self.exact,
        )  # fmt: skip
        return found

    def named(
        self, ids: Iterable[str], selection: Selection, segments: bool = False
    ) -> Iterable[Conversation]:
        """The conversations these rows belong to, in the order they were named, each once."""
        chains = [self.lineage.chain(one) for one in ids]
        places = [[row] for chain in chains for row in chain] if segments else chains
        found = [
            one
            for place in {tuple(place): place for place in places}.values()
            if selection.takes(
                one := self.reader.conversation(place[-1], segment=segments, preview=True)
            )
        ]
        return self._cut(found)

    def families(self, selection: Selection) -> Iterator[Conversation]:
        """Every row of the families that have a conversation the selection takes: in the order of
        these, each drawn once from its top. A limit counts families.
        """
        taken = conversations(
            self.db, selection, sort=self.sort, preview=False, reader=self.reader
        )
        return self._trees(one.root for one in taken)

    def family(self, ids: Iterable[str]) -> Iterator[Conversation]:
        """Every row of the families these rows belong to."""
        return self._trees(ids)

    def ancestors(self, session_id: str, selection: Selection) -> Iterator[Conversation]:
        """A row and those it came from; depth counts the steps away."""
        return self._rows(self._cut(self.lineage.ancestors(session_id)), selection)

    def descendants(self, session_id: str, selection: Selection) -> Iterator[Conversation]:
        """A row and those that came from it, as a tree is written."""
        return self._rows(self._cut(self.lineage.descendants(session_id)), selection)

    def add_bytes(self, found: Iterable[Conversation]) -> Iterator[Conversation]:
        """The same with `bytes`: of text, in the messages of its rows."""
        bytes_of = sizes(self.db)
        for one in found:
            one.extra["bytes"] = sum(bytes_of.get(row, 0) for row in one.rows)
            yield one

    def add_digest(self, found: Iterable[Conversation]) -> Iterator[Conversation]:
        """The same with `digest`: of the whole conversation, delegates included; of a single row
        (with `depth`, or a segment) that row's own.
        """
        from hermes_tools.store import exporting  # a plain list needs no hash

        for one in found:
            whole = one.rows == self.lineage.chain(one.id) and "depth" not in one.extra
            rows = self.lineage.members(one.id) if whole else one.rows
            one.extra["digest"] = exporting.digest(self.db, rows)
            yield one

    def _trees(self, ids: Iterable[str]) -> Iterator[Conversation]:
        for top in self._cut(list(dict.fromkeys(map(self.lineage.top, ids)))):
            yield from self._rows(self.lineage.descendants(top), Selection())

    def _rows(
        self, places: Iterable[tuple[str, int, str]], selection: Selection
    ) -> Iterator[Conversation]:
        for session_id, depth, role in places:
            one = self.reader.conversation(session_id, segment=True, preview=True)
            one.extra.update(depth=depth, kind=role)
            if selection.takes(one):
                yield one

    def _cut(self, found: list[Some]) -> list[Some]:
        if self.limit and len(found) > self.limit:
            self.total = f"{len(found):,}"
            return found[: self.limit]
        return found
