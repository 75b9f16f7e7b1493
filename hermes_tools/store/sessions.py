"""Conversations: found by name or filter, composed of their rows, written as records."""

import heapq
import sqlite3
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from hermes_tools.store import messages
from hermes_tools.store.db import Database, marks
from hermes_tools.store.errors import Ambiguous, NotFound, Usage
from hermes_tools.store.lineage import Lineage
from hermes_tools.store.selection import INTERNAL_SOURCES, Selection, same
from hermes_tools.store.times import EPOCH_FIRST, EPOCH_LAST, valid

COLUMNS = (
    "id", "title", "source", "model", "user_id", "started_at", "ended_at", "end_reason",
    "tool_call_count", "parent_session_id", "input_tokens", "output_tokens",
    "cache_read_tokens", "cache_write_tokens", "estimated_cost_usd", "actual_cost_usd", "cwd",
    "archived", "pinned", "hidden", "last_activity_at", "message_count",
)  # fmt: skip

RECORD = (
    "session_id", "title", "source", "model", "user_id", "started_at", "ended_at", "end_reason",
    "last_active", "message_count", "tool_call_count", "parent_session_id", "lineage_root_id",
    "segments", "archived", "preview",
)  # fmt: skip

VALID = f"BETWEEN {EPOCH_FIRST} AND {EPOCH_LAST - 1}"


@dataclass(repr=False, eq=False)
class Conversation:
    """A compression chain as one thing: the tip's id and state, the root's start, the newest
    activity and the sums of all its rows. `rows` are ids, root to tip. Counts are of live rows.
    """

    id: str
    root: str
    rows: list[str]
    title: str | None
    source: str | None
    model: str | None
    user_id: str | None
    started: float | None
    started_at: Any
    ended: float | None
    ended_at: Any
    end_reason: str | None
    last_active: float | None
    newest_row: str
    message_count: int
    tool_call_count: int
    parent: str | None
    tokens: int
    cost: float | None
    cwd: str | None
    archived: bool
    pinned: bool
    hidden: bool
    internal: bool
    lineage_root: str
    preview: str | None = None
    extra: dict[str, Any] = field(default_factory=dict)

    def record(self, lineage_root_id: str | None = None) -> dict[str, Any]:
        """The session record of hermes-session-jsonl(5). lineage_root_id names the conversation
        it belongs to: for a delegate the one it worked for.
        """
        return {
            "session_id": self.id, "title": self.title, "source": self.source,
            "model": self.model, "user_id": self.user_id, "started_at": self.started_at,
            "ended_at": self.ended_at, "end_reason": self.end_reason,
            "last_active": self.last_active, "message_count": self.message_count,
            "tool_call_count": self.tool_call_count, "parent_session_id": self.parent,
            "lineage_root_id": lineage_root_id or self.lineage_root, "segments": len(self.rows),
            "archived": self.archived, "preview": self.preview, **self.extra,
        }  # fmt: skip


class Reader:
    """Composes conversations of one store; with `preload` from a few large queries instead of a
    few small ones for each.
    """

    def __init__(self, db: Database, lineage: Lineage | None = None) -> None:
        self.db = db
        self.lineage = lineage or Lineage(db)
        have = db.schema.tables["sessions"]
        self._columns = ", ".join(name if name in have else f"NULL AS {name}" for name in COLUMNS)
        self._rows: dict[str, Any] = {}
        self._counts: dict[str, tuple[int, float | None]] | None = None

    @property
    def loaded(self) -> bool:
        """Whether everything is read already."""
        return self._counts is not None

    def preload(self) -> None:
        """Read all rows and counts at once."""
        if self.loaded:
            return
        self.lineage.preload()
        self._rows = {
            row["id"]: row for row in self.db.execute(f"SELECT {self._columns} FROM sessions")
        }
        self._counts = {
            row[0]: (row[1], row[2])
            for row in self.db.execute(
                f"SELECT m.session_id, sum({self.db.schema.live}), "
                f"max(CASE WHEN m.timestamp {VALID} THEN m.timestamp END) "
                "FROM messages m GROUP BY m.session_id"
            )
        }

    def row(self, session_id: str) -> Any:
        """The columns of one session row. Raises NotFound."""
        row = self._rows.get(session_id)
        if row is None:
            row = self.db.execute(
                f"SELECT {self._columns} FROM sessions WHERE id = ?", (session_id,)
            ).fetchone()
            if row is None:
                raise NotFound(f"session {session_id}: not in this store")
        return row

    def counts(self, session_id: str) -> tuple[int, float | None]:
        """(live messages, time of the newest message of any kind) of one row."""
        if self._counts is not None:
            return self._counts.get(session_id, (0, None))
        live = self.db.execute(
            f"SELECT count(*) FROM messages m WHERE m.session_id = ? AND {self.db.schema.live}",
            (session_id,),
        ).fetchone()[0]
        newest = self.lineage.newest(session_id)
        return live, None if newest == float("-inf") else newest

    def conversation(
        self, session_id: str, *, segment: bool = False, preview: bool = True
    ) -> Conversation:
        """The conversation a row belongs to, or with `segment` that one row alone."""
        ids = [session_id] if segment else self.lineage.chain(session_id)
        rows = [self.row(name) for name in ids]
        root, tip = rows[0], rows[-1]
        counts = [self.counts(name) for name in ids]
        active: list[tuple[float, str]] = []
        for name, row, (_, newest) in zip(ids, rows, counts, strict=True):
            times = (newest, valid(row["last_activity_at"]), valid(row["started_at"]))
            found = [time for time in times if time is not None]
            if found:
                active.append((max(found), name))
        last_active, newest_row = max(active, default=(None, ids[-1]))
        live = sum(count for count, _ in counts)
        costs = [
            row["actual_cost_usd"] if number(row["actual_cost_usd"]) is not None
            else row["estimated_cost_usd"]
            for row in rows
        ]  # fmt: skip
        known = [cost for cost in map(number, costs) if cost is not None]
        title = tip["title"] or next((row["title"] for row in reversed(rows) if row["title"]), None)
        one = Conversation(
            id=tip["id"], root=root["id"], rows=ids, title=title, source=tip["source"],
            model=tip["model"], user_id=tip["user_id"], started=valid(root["started_at"]),
            started_at=root["started_at"], ended=valid(tip["ended_at"]),
            ended_at=tip["ended_at"], end_reason=tip["end_reason"], last_active=last_active,
            newest_row=newest_row, message_count=live,
            tool_call_count=sum(whole(row["tool_call_count"]) for row in rows),
            parent=root["parent_session_id"],
            tokens=sum(whole(row["input_tokens"]) + whole(row["output_tokens"]) for row in rows),
            cost=sum(known) if known else None, cwd=tip["cwd"],
            archived=bool(tip["archived"]), pinned=any(bool(row["pinned"]) for row in rows),
            hidden=bool(tip["hidden"]), internal=False,
            lineage_root=self.lineage.conversation(root["id"]),
        )  # fmt: skip
        one.internal = self._internal(one)
        if preview:
            one.preview = self.preview(ids)
        return one

    def _internal(self, one: Conversation) -> bool:
        """Runs that nobody talked to: by source, by lineage mark, hidden, or an empty ghost."""
        if self.behind(one.root, one.source, one.hidden):
            return True
        ghost = one.message_count == 0 and not one.title and one.source != "cron"
        return ghost and not self._stored(one.rows)

    def behind(self, root: str, source: str | None, hidden: bool) -> bool:
        """Whether a chain is a run behind the scenes: by source, by mark, or hidden."""
        if same(source) in INTERNAL_SOURCES or hidden:
            return True
        link = self.lineage.link(root)
        if link is None or not link.marks.get("_delegate_from"):
            return False
        mark = link.marks["_delegate_from"]
        return mark in (link.parent, "__orphaned__") or link.parent is None

    def _stored(self, ids: list[str]) -> bool:
        any_row = "SELECT 1 FROM messages WHERE session_id = ? LIMIT 1"
        return any(self.db.execute(any_row, (one,)).fetchone() for one in ids)

    def preview(self, ids: list[str]) -> str | None:
        """The first live user message with content of a chain, on one line."""
        columns = messages.pick(self.db, "content", "_compressed_summary")
        wanted = f"{self.db.schema.live} AND {messages.visible(self.db)}"
        query = (
            f"SELECT {columns} FROM messages m WHERE {{}} AND m.role = 'user' "
            f"AND m.content <> '' AND {wanted} ORDER BY m.id LIMIT 5"
        )
        # The first few rows nearly always tell; to sort by id SQLite would read every message.
        first = "m.id IN (SELECT id FROM messages WHERE session_id = ? ORDER BY id LIMIT 6)"
        for one in ids:
            for which in (first, "m.session_id = ?"):
                for row in self.db.execute(query.format(which), (one,)):
                    if not messages.is_carrier(row):
                        text = messages.preview(messages.plain(row["content"]))
                        if text:
                            return text
        return None


def number(value: Any) -> float | None:
    """A stored number, None for what is none."""
    return float(value) if isinstance(value, int | float) else None


def whole(value: Any) -> int:
    """A stored count; garbage and NULL count as nothing."""
    return int(value) if isinstance(value, int | float) and value == value else 0


def ordered(db: Database, sort: str) -> Iterator[str]:
    """Ids of all session rows by activity (newest or oldest first) or start (newest first), each
    once, ties by id; rows without a usable time last.

    Newest first is a merge of what indexes give in order already: a row is met first where its
    newest time stands, and whoever stops after twenty has read little more than twenty. No column
    behind the long system_prompt is read for it.
    """
    streams = _times(db, sort)
    seen: set[str] = set()
    if sort == "oldest":
        newest: dict[str, float] = {}
        for time, session_id in heapq.merge(*streams, reverse=True):
            newest.setdefault(session_id, time)
        seen.update(newest)
        yield from sorted(newest, key=lambda one: (newest[one], one))
    else:
        for _, session_id in heapq.merge(*streams, reverse=True):
            if session_id not in seen:
                seen.add(session_id)
                yield session_id
    for row in db.execute("SELECT id FROM sessions WHERE typeof(id) = 'text' ORDER BY id DESC"):
        if row[0] not in seen:
            yield row[0]


def _times(db: Database, sort: str) -> list[Iterator[tuple[float, str]]]:
    """(time, row id) streams, each newest first: starts, messages, the agent's own note."""
    columns = [
        column for column in ("started_at", "last_activity_at")
        if db.schema.has("sessions", column) and (sort != "started" or column == "started_at")
    ]  # fmt: skip
    queries = [
        f"SELECT s.{column}, s.id FROM sessions s WHERE s.{column} {VALID} "
        f"AND typeof(s.id) = 'text' ORDER BY s.{column} DESC, s.id DESC"
        for column in columns
    ]
    if sort != "started" and db.schema.has("messages", "timestamp"):
        newest = f"max(CASE WHEN m.timestamp {VALID} THEN m.timestamp END)"
        queries.append(
            f"SELECT (SELECT max(m.timestamp) FROM messages m WHERE m.session_id = s.id "
            f"AND m.timestamp {VALID}) AS time, s.id FROM sessions s "
            "WHERE typeof(s.id) = 'text' ORDER BY time DESC, s.id DESC"
            if indexed(db)
            else f"SELECT {newest} AS time, s.id FROM messages m JOIN sessions s "
            "ON s.id = m.session_id GROUP BY s.id ORDER BY time DESC, s.id DESC"
        )
    return [_until_none(db.execute(query)) for query in queries]


def _until_none(rows: Iterable[Any]) -> Iterator[tuple[float, str]]:
    for row in rows:
        if row[0] is None:
            return
        yield float(row[0]), row[1]


def indexed(db: Database) -> bool:
    """Whether a session's messages can be found without reading all (a store written by another
    program may have no index).
    """
    return any(table == "messages" for table in db.schema.indexes.values())


def conversations(
    db: Database, selection: Selection, *, sort: str = "newest", segments: bool = False,
    preview: bool = True, few: bool = False, reader: Reader | None = None,
    now: float | None = None,
) -> Iterator[Conversation]:
    """Conversations that answer to a selection, in a total order; with `segments` every row on
    its own. Delegates are conversations of their own here, `internal` ones.

    sort: newest or oldest activity, newest start, or size (most bytes of text first).
    few: the caller takes only the first ones, so that reading all rows beforehand does not pay.
    """  # fmt: skip
    import time

    now = time.time() if now is None else now
    reader = reader or Reader(db)
    if sort == "size":
        yield from _by_size(db, selection, segments, preview, reader, now)
        return
    if not few or selection.narrow() or not indexed(db):
        reader.preload()
    seen: set[str] = set()
    for session_id in ordered(db, sort):
        if session_id in seen:
            continue
        one = reader.conversation(session_id, segment=segments, preview=False)
        if sort == "newest" and selection.too_old(one, now):
            return  # the rest is older still
        if sort in ("oldest", "started"):
            place = one.root if sort == "started" else one.newest_row
            if place != session_id:
                continue  # its turn comes at the row that gives it its place
        seen.update(one.rows)
        if selection.takes(one, now):
            if preview:
                one.preview = reader.preview(one.rows)
            yield one


EXACT = 500  # session rows up to which conversations are counted only to tell how many there are


def first(
    db: Database, selection: Selection, limit: int, *, sort: str = "newest",
    segments: bool = False, reader: Reader | None = None, exact: int = EXACT,
) -> tuple[list[Conversation], str | None]:
    """(the first `limit` conversations, how many there are where that is more: `1,717`, or in a
    store of more than `exact` rows that nothing narrows `about 12,000`).
    """  # fmt: skip
    reader = reader or Reader(db)
    rest = conversations(
        db, selection, sort=sort, segments=segments, preview=False, few=True, reader=reader
    )
    found = list(islice(rest, limit))
    for one in found:
        one.preview = reader.preview(one.rows)
    if len(found) < limit or next(rest, None) is None:
        return found, None
    rows = db.execute("SELECT count(*) FROM sessions").fetchone()[0]
    if rows > exact and not reader.loaded:
        guess = max(rows if segments else about(db), limit + 1)
        return found, f"about {guess:,}"
    reader.preload()
    return found, f"{limit + 1 + sum(1 for _ in rest):,}"


def _by_size(
    db: Database, selection: Selection, segments: bool, preview: bool, reader: Reader, now: float
) -> Iterator[Conversation]:
    bytes_of = sizes(db)
    found = list(
        conversations(db, selection, segments=segments, preview=False, reader=reader, now=now)
    )
    found.sort(key=lambda one: (-sum(bytes_of.get(row, 0) for row in one.rows), one.id))
    for one in found:
        if preview:
            one.preview = reader.preview(one.rows)
        yield one


def about(db: Database) -> int:
    """Roughly how many conversations a plain listing has: rows nobody continued from, of sources
    people talk to. Counted from indexes alone; how many of the others are children of something is
    told from some of them.
    """
    if not db.schema.has("sessions", "source", "parent_session_id"):
        return int(db.execute("SELECT count(*) FROM sessions").fetchone()[0])
    inner = sorted(INTERNAL_SOURCES)
    which = f"source IN ({marks(inner)})"
    total, children, internal, some, of = db.execute(
        "SELECT (SELECT count(*) FROM sessions), "
        "(SELECT count(*) FROM sessions WHERE parent_session_id IS NOT NULL), "
        f"(SELECT count(*) FROM sessions WHERE {which}), COALESCE(sum(parent IS NOT NULL), 0), "
        f"count(*) FROM (SELECT parent_session_id AS parent FROM sessions WHERE {which} LIMIT 200)",
        inner * 2,
    ).fetchone()
    both = round(internal * some / of) if of else 0
    return max(1, int(total - internal - children + both))


def text_bytes(db: Database, alias: str = "m") -> str:
    """SQL for the bytes of text one message row holds, all columns. octet_length (SQLite 3.43)
    does not read them for it.
    """
    names = [
        name for name in db.schema.tables["messages"]
        if name not in ("id", "session_id", "timestamp", "role")
    ]  # fmt: skip
    length = (
        'octet_length({0}."{1}")' if sqlite3.sqlite_version_info >= (3, 43)
        else 'length(CAST({0}."{1}" AS BLOB))'
    )  # fmt: skip
    return " + ".join(f"COALESCE({length.format(alias, name)}, 0)" for name in names) or "0"


def size(db: Database, session_id: str) -> int:
    """Bytes of text a session's messages hold, all columns and rows."""
    return int(
        db.execute(
            f"SELECT COALESCE(sum({text_bytes(db)}), 0) FROM messages m WHERE m.session_id = ?",
            (session_id,),
        ).fetchone()[0]
    )


def sizes(db: Database) -> dict[str, int]:
    """The same for every session that has messages, in one query."""
    return {
        row[0]: int(row[1])
        for row in db.execute(
            f"SELECT m.session_id, sum({text_bytes(db)}) FROM messages m GROUP BY m.session_id"
        )
    }


def sources(db: Database) -> list[str]:
    """The sources this store has, NULL and empty as `unknown`."""
    found = {row[0] or "unknown" for row in db.execute("SELECT DISTINCT source FROM sessions")}
    return sorted(map(str, found))


def require_sources(db: Database, selection: Selection) -> None:
    """A source nobody has is a slip of the hand, not an empty answer. Raises NotFound."""
    wanted = (*selection.sources, *selection.older_by_source, *selection.newer_by_source)
    if not wanted:
        return
    have = sources(db)
    for name in wanted:
        if same(name) not in map(same, have):
            raise NotFound(f"source {name!r}: none here; there are {', '.join(have) or 'none'}")


def resolve(db: Database, ref: str, *, exact: bool = False, titles: bool = True) -> str:
    """The session a person means: exact id, else exact title (the newest of its numbered line),
    else unique id prefix, else unique start of a title. With `exact` the id alone counts; without
    `titles` an id or a unique prefix of at least 8 characters (commands that destroy).

    Raises NotFound, Ambiguous (both name candidates) and Usage for an empty name.
    """
    if not ref.strip():
        raise Usage("an empty session name (an unset variable?)")
    if db.execute("SELECT 1 FROM sessions WHERE id = ?", (ref,)).fetchone():
        return ref
    if exact:
        raise NotFound(f"session {ref}: not in this store")
    titled = titles and db.schema.has("sessions", "title")
    if titled and (found := _newest_titled(db, ref)) is not None:
        return found
    if not titles and len(ref) < 8:
        raise NotFound(
            f"session {ref}: no such id; here a prefix needs at least 8 characters"
        )
    like = escaped(ref) + "%"
    found_ids = [
        row[0]
        for row in db.execute(
            "SELECT id FROM sessions WHERE id LIKE ? ESCAPE '\\' ORDER BY id LIMIT 6", (like,)
        )
    ]
    if len(found_ids) == 1:
        return str(found_ids[0])
    if len(found_ids) > 1:
        raise Ambiguous(f"session {ref}: {several(found_ids)}")
    if titled:
        pairs = [
            (str(row[0]), str(row[1]))
            for row in db.execute(
                "SELECT id, title FROM sessions WHERE rowid IN (SELECT rowid FROM sessions "
                "WHERE title IS NOT NULL AND title LIKE ? ESCAPE '\\' LIMIT 50) "
                "ORDER BY started_at DESC, id", (like,)
            )
        ]  # fmt: skip
        bases = {numbered(title)[0] for _, title in pairs}
        if len(bases) == 1:
            base = bases.pop()
            return _newest_titled(db, base) or pairs[0][0]
        if pairs:
            raise Ambiguous(f"session {ref}: {several([f'{i} ({t})' for i, t in pairs])}")
    near = _near(db, ref)
    raise NotFound(f"session {ref}: not in this store" + (f"; near it: {near}" if near else ""))


def several(candidates: list[str]) -> str:
    """`could be a, b, c or more`."""
    shown = candidates[:5]
    return f"could be {', '.join(shown)}{' or more' if len(candidates) > 5 else ''}"


def _near(db: Database, ref: str) -> str:
    if len(ref) < 4:
        return ""
    rows = db.execute(
        "SELECT id FROM sessions WHERE id LIKE ? ESCAPE '\\' ORDER BY id DESC LIMIT 3",
        (escaped(ref[: max(4, len(ref) // 2)]) + "%",),
    )
    return ", ".join(str(row[0]) for row in rows)


def escaped(text: str) -> str:
    """For LIKE … ESCAPE '\\': `%` and `_` are letters like others."""
    return text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")


def numbered(title: str) -> tuple[str, int]:
    """(`my project`, 3) of `my project #3`; 1 without a number."""
    base, mark, number = title.rpartition(" #")
    if mark and base and number.isascii() and number.isdigit():
        return base, int(number)
    return title, 1


def _newest_titled(db: Database, title: str) -> str | None:
    """The newest of `title`, `title #2`, `title #3` …; one typed with its number is that one."""
    rows = [
        row
        for row in db.execute(
            "SELECT id, title, started_at FROM sessions WHERE title = ? "
            "UNION SELECT id, title, started_at FROM sessions WHERE title > ? AND title < ?",
            (title, title + " #", title + " $"),  # a range, so that the index of titles serves
        )
        if row[1] == title or numbered(str(row[1]))[0] == title
    ]
    if not rows:
        return None
    return str(max(rows, key=lambda row: (valid(row[2]) or 0.0, row[0]))[0])
