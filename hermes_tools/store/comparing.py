"""Does a record contain everything a stored session holds? Compared row by row, in constant memory.

Messages are the same if what was said is (IDENTITY); their ids differ from store to store. Cells a
record does not have, as those of an old transcript, do not count.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from hermes_tools.store import columns
from hermes_tools.store.db import Database
from hermes_tools.store.exporting import bound, quoted
from hermes_tools.store.sessions import numbered
from hermes_tools.store.staging import Staged

IDENTITY = ("role", "content", "tool_call_id", "tool_calls", "tool_name", "timestamp")
# Only ever grow while a session goes on: they tell the older of two copies.
GROWING = frozenset({
    "message_count", "tool_call_count", "input_tokens", "output_tokens", "cache_read_tokens",
    "cache_write_tokens", "reasoning_tokens", "api_call_count", "rewind_count",
    "last_activity_at",
})  # fmt: skip

Cell = tuple[int, int, list[str]]  # stored message id, row of the staging table, columns


@dataclass
class Comparison:
    """kind: unchanged, older (the store has more), apply, diverged, gap.

    For apply: the session's columns to set, cells of stored messages to change, the first staged
    row to add (None: none), or `rewrite`, where new messages stand between stored ones.
    """

    kind: str
    reason: str | None = None
    session: list[str] = field(default_factory=list)
    cells: list[Cell] = field(default_factory=list)
    from_row: int | None = None
    rewrite: bool = False


def compare(
    db: Database, record: Staged, target: str, *, after: int = 0, wins: bool = False,
    exact: bool = False,
) -> Comparison:  # fmt: skip
    """A staged record against the session `target`.

    after: so many stored messages come before those of the record (an incremental export).
    wins: where both say something else, the record is right.
    """
    told = _messages(db, record, target, after)
    if told.kind in ("gap", "diverged"):
        return told
    fill, changed, ahead, behind = _session(db, record, target, exact)
    conflicting = told.session  # columns of messages that differ, set aside by _messages
    told.session = []
    if told.kind == "older":
        if wins and not after:
            told.kind = "diverged"
        return told
    longer = told.from_row is not None or told.rewrite
    if longer or wins or (ahead and not behind):
        told.session = fill + changed + ahead
        if longer or wins:
            told.session += [
                name for name in ("ended_at", "end_reason") if name in record.session
            ]
        if wins:
            told.session += behind
        empty = not (longer or fill or changed or ahead or told.cells or (wins and behind))
        told.kind = "unchanged" if empty else "apply"
        return told
    if ahead and behind:
        return Comparison("diverged", f"{ahead[0]} and {behind[0]} went apart")
    if behind:
        return Comparison("older", f"{behind[0]} of the store is ahead")
    if changed or conflicting:
        return Comparison("diverged", f"{', '.join(changed + conflicting)}: not the same")
    if fill or told.cells:
        told.kind, told.session = "apply", fill
        return told
    return Comparison("unchanged")


def _session(
    db: Database, record: Staged, target: str, exact: bool
) -> tuple[list[str], list[str], list[str], list[str]]:
    """Columns by what they say: new here, different, ahead, behind."""
    place, value = bound(target)
    stored = db.execute(f"SELECT * FROM main.sessions WHERE id IS {place}", (value,)).fetchone()
    fill: list[str] = []
    changed: list[str] = []
    ahead: list[str] = []
    behind: list[str] = []
    have = set(stored.keys())
    for name, theirs in record.session.items():
        if name == "id" or name not in have or (name in columns.LIVE and not exact):
            continue
        mine, usual = stored[name], columns.default("sessions", name)
        if equal(mine, theirs):
            continue
        if name in GROWING and number(mine or 0) and number(theirs or 0):
            (ahead if (theirs or 0) > (mine or 0) else behind).append(name)
        elif theirs is None or theirs == usual:
            if mine is not None and name not in ("parent_session_id", "ended_at", "end_reason"):
                behind.append(name) if exact else None
        elif mine is None or mine == usual:
            if not _elsewhere(db, name, theirs, stored, have):
                fill.append(name)
        elif name == "title" and numbered(mine)[0] == numbered(theirs)[0]:
            continue  # renumbered when it came
        elif name == "parent_session_id" and not _exists(db, theirs):
            continue  # detached when it came
        elif name == "model_config" and _same_but_marks(mine, theirs):
            continue
        else:
            changed.append(name)
    return fill, changed, ahead, behind


def _elsewhere(db: Database, name: str, theirs: Any, stored: Any, have: set[str]) -> bool:
    """Whether an empty column is empty for a reason: its prompt is stored by hash, its parent is
    not here, its hash names no prompt here.
    """
    if name == "system_prompt":
        return "system_prompt_hash" in have and stored["system_prompt_hash"] is not None
    if name == "parent_session_id":
        return not _exists(db, theirs)
    return name in ("system_prompt_hash", "title_source")


def _exists(db: Database, name: Any) -> bool:
    place, value = bound(name)
    row = db.execute(f"SELECT 1 FROM main.sessions WHERE id IS {place}", (value,)).fetchone()
    return row is not None


def _same_but_marks(mine: Any, theirs: Any) -> bool:
    """model_config that differs only in the ids its lineage marks name."""
    try:
        pair = [json.loads(mine), json.loads(theirs)]
    except (TypeError, ValueError):
        return False
    if not all(isinstance(one, dict) for one in pair):
        return False
    left, right = ({key: one[key] for key in one if key not in MARKS} for one in pair)
    return bool(left == right)


MARKS = ("_branched_from", "_delegate_from", "_reset_from")


def _messages(db: Database, record: Staged, target: str, after: int) -> Comparison:
    """The messages alone. `session` carries the columns in which equal messages contradict each
    other.
    """
    mine, theirs = _stored(db, target, after), _staged(db, record)
    first = record.span[0]
    if after:
        place, value = bound(target)
        here = db.execute(
            f"SELECT count(*) FROM main.messages WHERE session_id = {place}", (value,)
        ).fetchone()[0]
        if here < after:
            return Comparison("gap", f"{after - here} messages before these are not here")
    told = Comparison("apply")
    matched = 0
    while True:
        ours, their = next(mine, None), next(theirs, None)
        if ours is None or their is None or not alike(ours, their[1], their[2]):
            break
        matched += 1
        _note(told, ours, their)
    if ours is None and their is None:
        return told
    if ours is None:
        assert their is not None
        told.from_row = their[0]
        return told
    if their is None:
        more = 1 + sum(1 for _ in mine)
        return Comparison("older", f"the store has {more} more messages")
    if after:
        return Comparison("diverged", "its messages are others than here")
    if _within(_stored(db, target, matched), _staged(db, record, first + matched)):
        return Comparison("apply", rewrite=True)
    if _within(_swap(_staged(db, record, first + matched)), _stored(db, target, matched)):
        return Comparison("older", "the store has more messages")
    return Comparison("diverged", f"other messages from number {matched + 1} on")


def _note(told: Comparison, ours: Any, their: tuple[int, Any, list[str]]) -> None:
    row, values, names = their
    differ = []
    for name in names:
        if name in IDENTITY or values[name] is None or equal(ours[name], values[name]):
            continue
        if name in columns.MINTED:
            continue  # each store gives its own
        usual = columns.default("messages", name)
        if ours[name] is not None and ours[name] != usual and values[name] == usual:
            if name not in told.session:
                told.session.append(name)
        elif ours[name] is not None and ours[name] != usual and name not in told.session:
            told.session.append(name)
        differ.append(name)
    if differ:
        told.cells.append((ours["id"], row, differ))


def _stored(db: Database, target: str, skip: int) -> Iterator[Any]:
    place, value = bound(target)
    yield from db.execute(
        f"SELECT * FROM main.messages WHERE session_id = {place} ORDER BY id LIMIT -1 OFFSET ?",
        (value, skip),
    )


def _staged(
    db: Database, record: Staged, start: int = 0
) -> Iterator[tuple[int, Any, list[str]]]:
    have = set(db.schema.tables["messages"]) - {"id", "session_id"}
    for first, last, keys in record.runs:
        names = [name for name in keys if name in have]
        if last < start:
            continue
        for row in db.execute(
            f'SELECT "#i", {quoted(names)} FROM stage.messages WHERE "#i" BETWEEN ? AND ? '
            'ORDER BY "#i"', (max(first, start), last),
        ):  # fmt: skip
            yield row["#i"], row, names


def _swap(staged: Iterator[tuple[int, Any, list[str]]]) -> Iterator[Any]:
    for _, row, names in staged:
        yield (row, names)


def _within(few: Iterator[Any], many: Iterator[Any]) -> bool:
    """Whether every one of the few is among the many, in order. Staged rows come with their
    columns, stored ones alone.
    """
    for one in few:
        for other in many:
            if isinstance(one, tuple):
                row, names = one
                if alike(other, row, names):
                    break
            elif alike(one, other[1], other[2]):
                break
        else:
            return False
    return True


def alike(stored: Any, staged: Any, names: list[str]) -> bool:
    """Whether two rows are the same message, as far as the record tells."""
    for name in IDENTITY:
        if name not in names:
            continue
        mine, theirs = stored[name], staged[name]
        if mine == theirs or (name == "timestamp" and theirs is None):
            continue
        if not equal(mine or None, theirs or None):
            return False
    return True


def equal(mine: Any, theirs: Any) -> bool:
    """Equal as the store would hold it: a declared type may have turned 5 into '5' or 5.0."""
    if mine == theirs:
        return True
    if type(mine) is type(theirs) or mine is None or theirs is None:
        return False
    return str(mine) == str(theirs)


def number(value: Any) -> bool:
    """Whether a cell is a number."""
    return isinstance(value, int | float)
