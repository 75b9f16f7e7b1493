"""How sessions hang together: compression chains, branches, delegates, resets."""

import json
from dataclasses import dataclass
from typing import Any

from hermes_tools.store.db import Database
from hermes_tools.store.times import EPOCH_FIRST, EPOCH_LAST, valid

# Reasons that begin a new conversation under the same key (store-facts 3.4).
RESETS = frozenset(
    {"session_reset", "session_switch", "idle", "daily", "suspended", "resume_pending_expired"}
)
DELEGATE_SOURCES = frozenset({"tool", "subagent"})

LINK = (
    "id", "source", "parent_session_id", "started_at", "ended_at", "end_reason", "model_config",
    "session_key",
)  # fmt: skip
NEWEST = f"""
SELECT max(timestamp) FROM messages
WHERE session_id = ? AND timestamp >= {EPOCH_FIRST} AND timestamp < {EPOCH_LAST}
"""


@dataclass(repr=False, eq=False)
class Link:
    """What lineage needs to know of one session row; `marks` are _branched_from and its like."""

    id: str
    source: str | None
    parent: str | None
    started: float | None
    ended: float | None
    end_reason: str | None
    session_key: str | None
    marks: dict[str, Any]


def marks(model_config: Any) -> dict[str, Any]:
    """The lineage marks in a model_config; {} where it is no JSON object."""
    if not isinstance(model_config, str) or '"_' not in model_config:
        return {}
    try:
        config = json.loads(model_config)
    except ValueError:
        return {}
    if not isinstance(config, dict):
        return {}
    return {key: value for key, value in config.items() if key.startswith("_")}


class Lineage:
    """The links of one store, read as walks ask for them, or all at once with `preload`.

    Every walk ends at the first id it meets again: a parent may be its own child.
    """

    def __init__(self, db: Database) -> None:
        self.db = db
        have = db.schema.tables["sessions"]
        self._columns = ", ".join(name if name in have else f"NULL AS {name}" for name in LINK)
        self._linked = "parent_session_id" in have
        self._links: dict[str, Link | None] = {}
        self._children: dict[str, list[str]] = {}
        self._next: dict[str, str | None] = {}
        self._roots: dict[str, str] = {}
        self._loaded = False

    def preload(self) -> None:
        """Read every link of the store in one query; for work on all of it."""
        if self._loaded:
            return
        self._children.clear()
        for row in self.db.execute(f"SELECT {self._columns} FROM sessions"):
            self._keep(row)
        self._children = {}
        for link in sorted(
            (link for link in self._links.values() if link and link.parent is not None),
            key=lambda link: (link.started or 0.0, link.id),
        ):
            assert link.parent is not None
            self._children.setdefault(link.parent, []).append(link.id)
        self._loaded = True

    def _keep(self, row: Any) -> Link:
        link = Link(
            row["id"], row["source"], row["parent_session_id"], valid(row["started_at"]),
            valid(row["ended_at"]), row["end_reason"], row["session_key"],
            marks(row["model_config"]),
        )  # fmt: skip
        self._links[link.id] = link
        return link

    def link(self, session_id: str) -> Link | None:
        """One row's links; None where there is no such row."""
        if session_id in self._links or self._loaded:
            return self._links.get(session_id)
        row = self.db.execute(
            f"SELECT {self._columns} FROM sessions WHERE id = ?", (session_id,)
        ).fetchone()
        if row is None:
            self._links[session_id] = None
            return None
        return self._keep(row)

    def alone(self, session_id: str) -> bool:
        """Whether a row has neither parent nor children; known once all links are loaded."""
        link = self._links.get(session_id)
        return (
            self._loaded and link is not None and link.parent is None
            and session_id not in self._children
        )  # fmt: skip

    def children(self, session_id: str) -> list[str]:
        """Rows that name this one as their parent, oldest first."""
        if session_id not in self._children:
            if self._loaded or not self._linked:
                return []
            found = [
                self._keep(row)
                for row in self.db.execute(
                    f"SELECT {self._columns} FROM sessions WHERE parent_session_id = ?",
                    (session_id,),
                )
            ]
            found.sort(key=lambda link: (link.started or 0.0, link.id))
            self._children[session_id] = [link.id for link in found]
        return self._children[session_id]

    def kind(self, session_id: str) -> str:
        """root, branch, delegate, reset, continuation, or child (of a parent that went on); a row
        whose parent is missing is a root. Marks count only if they name this parent: a
        continuation inherits its parent's (store-facts 3.4).
        """
        link = self.link(session_id)
        parent = self.link(link.parent) if link and link.parent is not None else None
        if link is None or parent is None:
            return "root"
        if link.marks.get("_branched_from") == parent.id:
            return "branch"
        if (
            parent.end_reason == "branched"
            and link.started is not None
            and parent.ended is not None
            and link.started >= parent.ended
        ):
            return "branch"
        if link.marks.get("_delegate_from") == parent.id or link.source in DELEGATE_SOURCES:
            return "delegate"
        if link.marks.get("_reset_from") == parent.id:
            return "reset"
        if (
            parent.end_reason in RESETS
            and link.session_key
            and link.session_key == parent.session_key
        ):
            return "reset"
        return "continuation" if parent.end_reason == "compression" else "child"

    def newest(self, session_id: str) -> float:
        """Time of the newest message of one row; -inf without any."""
        value = self.db.execute(NEWEST, (session_id,)).fetchone()[0]
        return float("-inf") if value is None else float(value)

    def continuations(self, session_id: str) -> list[str]:
        """The rows a compressed session may go on in, oldest first; more than one is a fork."""
        return [
            child for child in self.children(session_id)
            if child != session_id and self.kind(child) == "continuation"
        ]  # fmt: skip

    def next(self, session_id: str) -> str | None:
        """The continuation a compressed session goes on in. Of several, the one whose own
        continuations hold the newest message.
        """
        if session_id not in self._next:
            found = self.continuations(session_id)
            if len(found) > 1:
                self._settle(session_id)
            else:
                self._next[session_id] = found[0] if found else None
        return self._next[session_id]

    def _settle(self, top: str) -> None:
        """Decide every fork below a row, the deepest first (no recursion: a chain may be long)."""
        order, stack, seen = [], [top], {top}
        while stack:
            at = stack.pop()
            order.append(at)
            for child in self.continuations(at):
                if child not in seen:  # a cycle that comes back ends here
                    seen.add(child)
                    stack.append(child)
        best: dict[str, tuple[float, float, str]] = {}
        for at in reversed(order):
            link = self.link(at)
            newest = self.newest(at)
            found = [(best[child], child) for child in self.continuations(at) if child in best]
            if found:
                (below, _, _), chosen = max(found)
                newest = max(newest, below)
            self._next[at] = chosen if found else None
            best[at] = newest, (link.started if link else None) or 0.0, at

    def _down(self, session_id: str) -> list[str]:
        path, seen, at = [session_id], {session_id}, self.next(session_id)
        while at is not None and at not in seen:
            path.append(at)
            seen.add(at)
            at = self.next(at)
        return path

    def root(self, session_id: str) -> str:
        """The first row of a session's own compression chain."""
        path = {session_id: None}  # in order
        at = session_id
        while at not in self._roots:
            link = self.link(at)
            if (
                link is None
                or link.parent is None
                or self.kind(at) != "continuation"
                or self.next(link.parent) != at
            ):
                root = at
                break
            at = link.parent
            if at in path:  # a cycle has no first row; the smallest id stands for it
                names = list(path)
                root = min(names[names.index(at) :])
                break
            path[at] = None
        else:
            root = self._roots[at]
        for one in path:
            self._roots[one] = root
        return root

    def chain(self, session_id: str) -> list[str]:
        """The compression chain a session belongs to, root to tip."""
        return self._down(self.root(session_id))

    def tip(self, session_id: str) -> str:
        """The row in which a session's conversation goes on today."""
        return self.chain(session_id)[-1]

    def conversation(self, session_id: str) -> str:
        """The root of the conversation a row belongs to: its chain's, or for a delegate the one
        it worked for.
        """
        root, seen = self.root(session_id), set()
        while self.kind(root) == "delegate" and root not in seen:
            seen.add(root)
            link = self.link(root)
            assert link is not None and link.parent is not None
            root = self.root(link.parent)
        return root

    def delegates(self, session_ids: list[str]) -> list[str]:
        """Delegates of these rows, theirs in turn, and the rows their chains go on in; in the
        order a conversation is written: each after its parent.
        """
        found: dict[str, None] = {}
        stack = list(reversed(session_ids))
        own = set(session_ids)
        while stack:
            at = stack.pop()
            if at not in own:
                if at in found:
                    continue
                found[at] = None
            for child in reversed(self.children(at)):
                kind = self.kind(child)
                if child not in own and (
                    kind == "delegate" or (kind == "continuation" and at not in own)
                ):
                    stack.append(child)
        return list(found)

    def members(self, session_id: str) -> list[str]:
        """Every row of the conversation a session belongs to: the chain root to tip, then the
        delegates. A delegate that is named itself stands for its own chain and delegates.
        """
        chain = self.chain(session_id)
        return chain + self.delegates(chain)

    def role(self, session_id: str) -> str:
        """kind, but `fork` for a continuation that the conversation did not go on in."""
        kind, link = self.kind(session_id), self.link(session_id)
        if kind == "continuation" and link and link.parent is not None:
            return kind if self.next(link.parent) == session_id else "fork"
        return kind

    def ancestors(self, session_id: str) -> list[tuple[str, int, str]]:
        """(id, steps away, role) of a row and of every row above it, by parent links of any kind;
        itself first.
        """
        found: dict[str, tuple[str, int, str]] = {}
        at: str | None = session_id
        while at is not None and at not in found and self.link(at) is not None:
            found[at] = at, len(found), self.role(at)
            link = self.link(at)
            at = link.parent if link else None
        return list(found.values())

    def descendants(self, session_id: str) -> list[tuple[str, int, str]]:
        """(id, depth, role) of a row and of every row below it, as a tree is written: each before
        its children, these by start, the one the conversation goes on in last.
        """
        found: dict[str, tuple[str, int, str]] = {}
        stack = [(session_id, 0)]
        while stack:
            at, depth = stack.pop()
            if at in found:
                continue  # a parent may be its own child
            found[at] = at, depth, self.role(at)
            follows = self.next(at)
            below = [child for child in self.children(at) if child != follows]
            if follows is not None:
                below.append(follows)
            stack.extend((child, depth + 1) for child in reversed(below))
        return list(found.values())

    def top(self, session_id: str) -> str:
        """The row a whole family descends from; of a cycle, the row with the smallest id."""
        above = [one for one, _, _ in self.ancestors(session_id)]
        link = self.link(above[-1]) if above else None
        if link is not None and link.parent in above:
            return min(above[above.index(link.parent) :])
        return above[-1] if above else session_id
