"""Are the rows healthy: whom they belong to, what they count, when they were; files beside them."""

import json
import re
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hermes_tools.store import inuse
from hermes_tools.store.db import Database
from hermes_tools.store.faults import NOTE, WARNING, Fault, command, guarded
from hermes_tools.store.messages import SENTINEL
from hermes_tools.store.times import EPOCH_FIRST, EPOCH_LAST

JSON_COLUMNS = (
    ("sessions", "model_config"), ("sessions", "origin_json"), ("messages", "tool_calls"),
    ("messages", "reasoning_details"), ("messages", "codex_reasoning_items"),
    ("messages", "codex_message_items"), ("messages", "display_metadata"),
    ("gateway_routing", "entry_json"),
)  # fmt: skip
OWNER = {"sessions": "id", "messages": "session_id", "gateway_routing": "session_key"}
# Rows that name a session and are of no use without it (store-facts 2.2).
SIDE_TABLES = ("session_model_usage", "telegram_dm_topic_bindings")
IDLE = 30 * 86400.0
STUCK = 15 * 60.0
TWICE = 1.0  # seconds between the copies of a flush that was done again

TIME = f"""CASE WHEN %s IS NULL THEN 'NULL'
WHEN typeof(%s) NOT IN ('integer', 'real') THEN 'text'
WHEN %s >= {EPOCH_FIRST * 1000} AND %s < {EPOCH_LAST * 1000} THEN 'milliseconds'
WHEN %s = 0 THEN 'zero'
WHEN %s < {EPOCH_FIRST} OR %s >= {EPOCH_LAST} THEN 'absurd' END"""


def look_at_rows(db: Database, home: Path, quick: bool) -> Iterator[Fault]:
    """Everything about rows; the tests that read every message's text not with `quick`."""
    tests = [
        ("messages", orphans(db)), ("sessions", parents(db)), ("sessions", titles(db)),
        ("sessions", counters(db)), ("sessions", times(db)), ("sessions", idle(db)),
        ("sessions", handoffs(db)), ("gateway_routing", routes(db, home)),
        ("sessions", transcripts(db, home)),
    ]  # fmt: skip
    if not quick:
        tests += [("messages", broken_json(db)), ("messages", doubled(db))]
    for thing, faults in tests:
        yield from guarded(f"table {thing}", db.path, faults)


def orphans(db: Database) -> Iterator[Fault]:
    """Rows whose session is gone."""
    mend = command(db.path, "repair", "--orphans")
    for name, number in db.execute(
        "SELECT session_id, count(*) FROM messages m "
        "WHERE NOT EXISTS (SELECT 1 FROM sessions s WHERE s.id = m.session_id) GROUP BY 1"
    ):
        yield Fault("table messages", "orphans", WARNING,
                    f"messages of a session that is gone, {name}: {number}", mend, name,
                    number)  # fmt: skip
    for table in SIDE_TABLES:
        if db.schema.has(table, "session_id"):
            number = db.execute(
                f"SELECT count(*) FROM {table} t "
                "WHERE NOT EXISTS (SELECT 1 FROM sessions s WHERE s.id = t.session_id)"
            ).fetchone()[0]
            if number:
                yield Fault(f"table {table}", "orphans", WARNING,
                            f"rows of sessions that are gone: {number}", mend,
                            count=number)  # fmt: skip


def parents(db: Database) -> Iterator[Fault]:
    """Parents that are gone, and lines of parents that come round to their start."""
    if not db.schema.has("sessions", "parent_session_id"):
        return
    parent = dict(
        db.execute(
            "SELECT id, parent_session_id FROM sessions WHERE parent_session_id IS NOT NULL"
        ).fetchall()
    )
    known = {row[0] for row in db.execute("SELECT id FROM sessions")}
    seen: set[str] = set()
    for name, above in parent.items():
        if above not in known:
            yield Fault("table sessions", "parent_missing", WARNING,
                        f"session {name}: its parent {above} is gone",
                        command(db.path, "repair", "--orphans"), name)  # fmt: skip
        walk: list[str] = []
        at: str | None = name
        while at is not None and at not in seen:
            seen.add(at)
            walk.append(at)
            at = parent.get(at)
        if at in walk:
            ring = walk[walk.index(at) :]
            yield Fault("table sessions", "parent_cycle", WARNING,
                        f"session {ring[0]} is its own ancestor: {' ← '.join([*ring, ring[0]])}",
                        command(db.path, "list", "--tree", ring[0]), ring[0],
                        len(ring))  # fmt: skip


def titles(db: Database) -> Iterator[Fault]:
    """Titles that several sessions have."""
    if not db.schema.has("sessions", "title"):
        return
    for title, number, first in db.execute(
        "SELECT title, count(*), max(id) FROM sessions WHERE title IS NOT NULL "
        "GROUP BY title HAVING count(*) > 1"
    ):
        yield Fault("table sessions", "title_doubled", WARNING,
                    f"sessions that are titled {title!r}: {number}",
                    command(db.path, "title", "--next", first), first, number)  # fmt: skip


def counters(db: Database) -> Iterator[Fault]:
    """Stored numbers of messages that the rows do not bear out."""
    if not db.schema.has("sessions", "message_count"):
        return
    for name, stored, number in db.execute(drift(db)):
        yield Fault("table sessions", "counter_drift", WARNING,
                    f"session {name}: message_count says {stored}, there are {number}",
                    command(db.path, "repair", "--counters"), name, number)  # fmt: skip


def drift(db: Database) -> str:
    """SQL for (session id, stored, counted) of every session whose counter is wrong. Live rows are
    what it means; the agent's older releases leave it at all rows when some are undone.
    """
    return (
        "SELECT s.id, s.message_count, COALESCE(n.live, 0) FROM sessions s LEFT JOIN "
        f"(SELECT m.session_id, sum({db.schema.live}) AS live, count(*) AS every FROM messages m "
        "GROUP BY 1) n ON n.session_id = s.id WHERE s.message_count IS NOT COALESCE(n.live, 0) "
        "AND s.message_count IS NOT COALESCE(n.every, 0)"
    )


def times(db: Database) -> Iterator[Fault]:
    """Times that are none."""
    for table, column, optional in (
        ("sessions", "started_at", False), ("sessions", "ended_at", True),
        ("messages", "timestamp", False),
    ):  # fmt: skip
        if not db.schema.has(table, column):
            continue
        owner = OWNER[table]
        kind = TIME.replace("%s", column)
        given = f"AND {column} IS NOT NULL" if optional else ""
        for name, what, number in db.execute(
            f"SELECT {owner}, {kind} AS kind, count(*) FROM {table} "
            f"WHERE kind IS NOT NULL {given} GROUP BY 1, 2"
        ):
            whose = f"session {name}: " + (f"{number} times " if table == "messages" else "")
            yield Fault(f"table {table}", "time_broken", WARNING,
                        f"{whose}{column} is {what}, which is no time in seconds",
                        command(db.path, "show", str(name)), str(name), number)  # fmt: skip


def broken_json(db: Database) -> Iterator[Fault]:
    """Columns of JSON, and content behind the agent's marker, that do not parse."""
    try:
        db.execute("SELECT json_valid('{}')").fetchone()
    except sqlite3.OperationalError:
        return
    for table, column in JSON_COLUMNS:
        if not db.schema.has(table, column, OWNER[table]):
            continue
        for name, number in db.execute(
            f"SELECT {OWNER[table]}, count(*) FROM {table} WHERE {column} IS NOT NULL "
            f"AND {column} <> '' AND NOT json_valid({column}) GROUP BY 1"
        ):
            session = None if table == "gateway_routing" else name
            yield Fault(f"table {table}", "json_broken", WARNING,
                        f"{name}: {column} is no JSON (rows: {number})",
                        command(db.path, "show", name) if session else None, session,
                        number)  # fmt: skip
    broken: dict[str, int] = {}
    for name, content in db.execute(
        "SELECT session_id, content FROM messages WHERE instr(content, char(0)) = 1"
    ):
        if isinstance(content, str) and content.startswith(SENTINEL):
            try:
                json.loads(content[len(SENTINEL) :])
            except ValueError:
                broken[name] = broken.get(name, 0) + 1
    for name, number in broken.items():
        yield Fault("table messages", "json_broken", WARNING,
                    f"{name}: content is marked as JSON and is none (rows: {number})",
                    command(db.path, "show", name), name, number)  # fmt: skip


def idle(db: Database) -> Iterator[Fault]:
    """Sessions that were never ended and that nobody touches."""
    if not db.schema.has("sessions", "ended_at", "started_at"):
        return
    number = db.execute(
        "SELECT count(*) FROM sessions s WHERE s.ended_at IS NULL AND s.started_at < ?1 AND "
        "NOT EXISTS (SELECT 1 FROM messages m WHERE m.session_id = s.id AND m.timestamp >= ?1)",
        (time.time() - IDLE,),
    ).fetchone()[0]
    if number:
        yield Fault("table sessions", "idle_open", NOTE,
                    f"sessions that never ended, and were not touched for 30 days: {number}",
                    command(db.path, "end", "--open", "--older-than", "30d", "--dry-run"),
                    count=number)  # fmt: skip


def handoffs(db: Database) -> Iterator[Fault]:
    """Handoffs that are still under way though nothing has happened for a quarter of an hour."""
    if not db.schema.has("sessions", "handoff_state"):
        return
    for name, state, newest in db.execute(
        "SELECT s.id, s.handoff_state, (SELECT max(m.timestamp) FROM messages m WHERE "
        f"m.session_id = s.id AND m.timestamp < {EPOCH_LAST}) FROM sessions s "
        "WHERE s.handoff_state IN ('pending', 'running')"
    ):
        if not isinstance(newest, int | float) or time.time() - newest > STUCK:
            yield Fault("table sessions", "handoff_stuck", WARNING,
                        f"session {name}: its handoff is {state} and nothing has happened for a "
                        "quarter of an hour",
                        command(db.path, "handoff", "cancel" if state == "pending" else "fail",
                                name), name)  # fmt: skip


def routes(db: Database, home: Path) -> Iterator[Fault]:
    """Chats that are routed to sessions which are gone or have ended."""
    ended = {}
    if db.schema.has("sessions", "end_reason"):
        ended = dict(db.execute("SELECT id, end_reason FROM sessions").fetchall())
    for name, keys in sorted(inuse.routes(db, home).items()):
        if name not in ended:
            yield Fault("table gateway_routing", "route_missing", WARNING,
                        f"{', '.join(keys)}: routed to session {name}, which is not here",
                        command(db.path, "key", "--index"), name, len(keys))  # fmt: skip
        elif ended[name]:
            yield Fault("table gateway_routing", "route_ended", NOTE,
                        f"{', '.join(keys)}: routed to session {name}, which ended "
                        f"({ended[name]})", command(db.path, "key", "--index"), name,
                        len(keys))  # fmt: skip


def doubled(db: Database) -> Iterator[Fault]:
    """Rows that a failed flush wrote again: the same message within a second."""
    columns = [
        name for name in ("role", "content", "tool_calls", "tool_call_id", "tool_name")
        if name in db.schema.tables["messages"]
    ]  # fmt: skip
    found: dict[str, int] = {}
    recent: dict[tuple[Any, ...], float] = {}
    at = None
    for row in db.execute(
        f"SELECT session_id, timestamp, {', '.join(columns)} FROM messages m "
        f"WHERE {db.schema.live} ORDER BY session_id, id"
    ):
        name, when, key = row[0], row[1], tuple(hash(cell) for cell in row[2:])
        if name != at:
            at, recent = name, {}
        if not isinstance(when, int | float) or not (row["content"] or row["tool_calls"]):
            continue
        if key in recent and abs(when - recent[key]) <= TWICE:
            found[name] = found.get(name, 0) + 1
        recent[key] = when
    for name, number in found.items():
        yield Fault("table messages", "rows_doubled", WARNING,
                    f"session {name}: messages that stand there twice within a second: {number}",
                    command(db.path, "show", name), name, number)  # fmt: skip


def transcripts(db: Database, home: Path) -> Iterator[Fault]:
    """Legacy transcript files: those whose session is in the store with as many messages, and
    those that hold what the store does not.
    """
    folder = home / "sessions"
    if not folder.is_dir():
        return
    kept: list[Path] = []
    missing: list[Path] = []
    for place in sorted([*folder.glob("*.jsonl"), *folder.glob("session_*.json")]):
        name = place.stem if place.suffix == ".jsonl" else place.stem.removeprefix("session_")
        have = None
        if db.execute("SELECT 1 FROM sessions WHERE id = ?", (name,)).fetchone():
            have = db.execute(
                "SELECT count(*) FROM messages WHERE session_id = ?", (name,)
            ).fetchone()[0]
        (missing if have is None or spoken(place) > have else kept).append(place)
    for places, kind, words, tool in (
        (kept, "transcripts_stored", "what they hold is in the store; they may be removed", None),
        (missing, "transcripts_missing", "they hold conversations or messages that the store does "
         "not", "import"),
    ):  # fmt: skip
        if places:
            names = [str(place) for place in places]
            yield Fault(
                str(folder), kind, NOTE if tool is None else WARNING,
                f"transcript files ({len(places)}): {words}: "
                f"{', '.join(place.name for place in places[:3])}{' …' if places[3:] else ''}",
                command(db.path, "import", *names[:100]) if tool else None, count=len(places),
            )  # fmt: skip


ROLE = re.compile(rb'"role"\s*:\s*"(?:user|assistant|tool)"')


def spoken(place: Path) -> int:
    """About how many messages a transcript holds; more than there are rather than fewer where one
    quotes another.
    """
    try:
        data = place.read_bytes()
    except OSError:
        return 0
    if place.suffix == ".jsonl":
        return sum(1 for line in data.splitlines() if ROLE.search(line))
    try:
        loaded = json.loads(data)
    except ValueError:
        return len(ROLE.findall(data))
    found = loaded.get("messages") if isinstance(loaded, dict) else None
    return len(found) if isinstance(found, list) else 0
