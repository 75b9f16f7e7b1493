"""What a store held at one moment, in few bytes, and what has changed since.

A position is {session id: [hash of its row, messages, highest id, sum of ids, states]}; states are
runs such as `40l2r` (live, rewound, compacted). Three kinds of change: a session that went on, one
that is told anew (new, rewound, rewritten), one that is gone.
"""

import hashlib
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from hermes_tools.store.db import Database
from hermes_tools.store.errors import Damaged, Usage
from hermes_tools.store.exporting import Exporter, bound

Mark = list[Any]
Position = dict[str, Mark]
VERSION = 1


class Change(NamedTuple):
    """after: how many messages were told before (0: all are told); `mark` is None if it is gone."""

    session_id: str
    after: int
    above: int  # the highest id that was told before
    mark: Mark | None


def load(data: bytes, db: Database, name: str) -> Position:
    """A position as it was saved. Raises Damaged, and Usage for that of another store."""
    try:
        saved = orjson.loads(data)
        if saved["_cursor"] != VERSION or not isinstance(saved["sessions"], dict):
            raise Damaged(f"{name}: not a cursor of this version")
        store, position = saved["store"], saved["sessions"]
    except (ValueError, KeyError, TypeError) as error:
        raise Damaged(f"{name}: not a cursor") from error
    if store != str(db.path.resolve()):
        raise Usage(f"{name}: the cursor of another store, {store}")
    return dict(position)


def dump(position: Position, path: Path) -> bytes:
    """A position as a file holds it."""
    return orjson.dumps(
        {"_cursor": VERSION, "store": str(path.resolve()), "sessions": position}
    ) + b"\n"  # fmt: skip


def counts(db: Database) -> dict[str, tuple[int, int, int, int]]:
    """(messages, highest id, sum of ids, live ones) of every session; from an index alone where
    the agent's releases have made one.
    """
    live = f"sum({db.schema.live.replace('m.', '')})"
    sql = (
        f"SELECT session_id, count(*), max(rowid), sum(rowid), {live} FROM messages "
        "GROUP BY session_id"
    )
    return {row[0]: (row[1], row[2], row[3], row[4]) for row in db.execute(sql)}


def states(db: Database, session_id: str) -> str:
    """The states of a session's messages in order, as runs."""
    live = db.schema.live.replace("m.", "")
    packed = "compacted = 1" if db.schema.has("messages", "compacted") else "0"
    place, value = bound(session_id)
    rows = db.execute(
        f"SELECT CASE WHEN {live} THEN 'l' WHEN {packed} THEN 'c' ELSE 'r' END FROM messages "
        f"WHERE session_id = {place} ORDER BY rowid", (value,),
    )  # fmt: skip
    runs = ((letter, sum(1 for _ in run)) for letter, run in groupby(row[0] for row in rows))
    return "".join(f"{number}{letter}" for letter, number in runs)


def mark(exporter: Exporter, session_id: str, count: tuple[int, int, int, int]) -> Mark:
    """A session as it is now, without its states."""
    row = exporter.session(session_id)
    record = exporter.session_cells.careful(row)
    told = orjson.dumps([record, exporter.tables(session_id, row)])
    return [hashlib.sha256(told).hexdigest()[:24], *count]


def changes(exporter: Exporter, before: Position, ids: Iterable[str]) -> Iterator[Change]:
    """What differs from a position, in the order of `ids`; then what is gone."""
    db = exporter.db
    now = counts(db)
    for session_id in ids:
        count = now.get(session_id, (0, 0, 0, 0))
        old = before.get(session_id)
        new = mark(exporter, session_id, count)
        if old is not None and old[:5] == new:
            continue
        new.append(states(db, session_id))
        if old is not None and _goes_on(db, session_id, old, new):
            yield Change(session_id, old[1], old[2], new)
        else:
            yield Change(session_id, 0, 0, new)
    exists = {row[0] for row in db.execute("SELECT id FROM sessions")}
    for session_id in before:
        if session_id not in exists:
            yield Change(session_id, 0, 0, None)


def _goes_on(db: Database, session_id: str, old: Mark, new: Mark) -> bool:
    """Whether all that was told before is as it was."""
    if old[1] == 0 or new[1] < old[1]:
        return bool(old[1] == new[1] == 0)
    place, value = bound(session_id)
    count, total = db.execute(
        f"SELECT count(*), sum(rowid) FROM messages WHERE session_id = {place} AND rowid <= ?",
        (value, old[2]),
    ).fetchone()
    return bool(count == old[1] and total == old[3] and _starts(new[5], old[5], old[1]))


def _starts(runs: str, told: str, number: int) -> bool:
    return _cut(runs, number) == _cut(told, number)


def _cut(runs: str, number: int) -> list[tuple[int, str]]:
    found, digits = [], ""
    for letter in runs:
        if letter.isdigit():
            digits += letter
            continue
        size = min(int(digits), number)
        if size:
            found.append((size, letter))
        number -= size
        digits = ""
    return found
