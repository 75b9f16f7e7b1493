"""Sessions created, extended, rewritten and removed, the way the agent itself writes them
(lifecycle.py ends them).

Every function is part of a transaction that its caller has open (store/db.py: transaction).
"""

import json
import os
import re
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from hermes_tools.store import inuse, lifecycle, titles
from hermes_tools.store.db import Database, chunks, marks
from hermes_tools.store.errors import Damaged, Negative, Unsupported
from hermes_tools.store.lineage import Lineage
from hermes_tools.store.messages import SENTINEL
from hermes_tools.store.times import valid

# What a message may carry besides its session and role; those that are JSON in the store.
FIELDS = (
    "content", "tool_call_id", "tool_calls", "tool_name", "timestamp", "token_count",
    "finish_reason", "reasoning", "reasoning_content", "reasoning_details",
    "codex_reasoning_items", "codex_message_items",
)  # fmt: skip
JSON_FIELDS = ("reasoning_details", "codex_reasoning_items", "codex_message_items")
REASONING = ("reasoning", "reasoning_content", *JSON_FIELDS)

USAGE = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens",
         "reasoning_tokens", "api_call_count")  # fmt: skip
BILLING = ("billing_provider", "billing_base_url", "billing_mode")
COST_NOTES = ("cost_status", "cost_source", "pricing_version")

STEP = 1e-6  # a rewritten transcript has no two equal times (store-facts 3.1)
DAY = 86400.0


class Taken(Negative):
    """A title that another session has; `holder` is its id."""

    def __init__(self, title: str, holder: str) -> None:
        super().__init__(f"title {title!r} is in use by session {holder}")
        self.holder = holder


def create(
    db: Database, session_id: str, source: str, *, model: str | None = None,
    model_config: Any = None, system_prompt: str | None = None, user_id: str | None = None,
    parent_session_id: str | None = None,
) -> None:  # fmt: skip
    """A new, open session that starts now; one that exists is left as it is."""
    db.execute(
        "INSERT OR IGNORE INTO sessions (id, source, user_id, model, model_config, "
        "system_prompt, parent_session_id, started_at) VALUES (?,?,?,?,?,?,?,?)",
        (session_id, source, user_id, model, json.dumps(model_config) if model_config else None,
         system_prompt, parent_session_id, time.time()),
    )  # fmt: skip


def set_prompt(db: Database, session_id: str, prompt: str | None) -> None:
    """Replace the system prompt of a session. A shared prompt it referred to by hash (schema 25
    and later) no longer counts for it; the agent falls back to the text in the row.
    """
    shared = db.schema.has("sessions", "system_prompt_hash")
    also = ", system_prompt_hash = NULL" if shared else ""
    db.execute(f"UPDATE sessions SET system_prompt = ?{also} WHERE id = ?", (prompt, session_id))


def add_usage(
    db: Database, session_id: str, counts: dict[str, int], notes: dict[str, Any], *,
    model: str | None, estimated: float | None, actual: float | None, absolute: bool,
) -> None:  # fmt: skip
    """Add token counts and cost to a session, or with `absolute` set them.

    counts: USAGE; notes: BILLING and COST_NOTES. Model and billing keep the first value they
    got, cost notes the last; an actual cost that is not told leaves the stored one.
    """
    sums = [f"{name} = ?" if absolute else f"{name} = {name} + ?" for name in USAGE]
    kept = "" if absolute else "COALESCE(estimated_cost_usd, 0) + "
    spent = "?" if absolute else "COALESCE(actual_cost_usd, 0) + ?"
    assignments = [
        *sums,
        f"estimated_cost_usd = {kept}COALESCE(?, 0)",
        f"actual_cost_usd = CASE WHEN ? IS NULL THEN actual_cost_usd ELSE {spent} END",
        *(f"{name} = COALESCE(?, {name})" for name in COST_NOTES),
        *(f"{name} = COALESCE({name}, ?)" for name in (*BILLING, "model")),
    ]
    db.execute(
        f"UPDATE sessions SET {', '.join(assignments)} WHERE id = ?",
        (*(counts[name] for name in USAGE), estimated, actual, actual,
         *(notes[name] for name in (*COST_NOTES, *BILLING)), model, session_id),
    )  # fmt: skip


def encode(content: Any) -> Any:
    """Content as it is stored: text, numbers, bytes and None as they are, all else behind the
    sentinel; what JSON cannot hold as its `str` (store-facts 3.1).
    """
    if content is None or isinstance(content, str | int | float | bytes):
        return content
    try:
        return SENTINEL + json.dumps(content)
    except (TypeError, ValueError):
        return str(content)


def encoded(message: dict[str, Any]) -> dict[str, Any]:
    """FIELDS of a message as columns hold them; empty lists of JSON columns become NULL."""
    values = {name: message.get(name) for name in FIELDS}
    values["content"] = encode(values["content"])
    for name in ("tool_calls", *JSON_FIELDS):
        values[name] = json.dumps(values[name]) if values[name] else None
    return values


def calls(value: Any) -> int:
    """How many tool calls a message makes: the length of a list, one for anything else."""
    if value is None:
        return 0
    return len(value) if isinstance(value, list) else 1


# What a later release's message may carry besides; dropped where the store has no such column.
LATER_FIELDS = ("platform_message_id", "observed", "api_content")
TEXT_FIELDS = ("tool_call_id", "tool_name", "finish_reason", "reasoning", "reasoning_content",
               "platform_message_id", "api_content")  # fmt: skip


@dataclass(frozen=True)
class Message:
    """A message on its way in: its role, its columns as they are stored, its tool calls."""

    role: str
    values: dict[str, Any]
    calls: int


def incoming(record: dict[str, Any]) -> Message:
    """A message as people and programs write it: role and content (text, a list, an object), and
    the other FIELDS; `name` stands for tool_name. Keys that are no part of a message are passed
    over. JSON columns that are text are taken as they are stored. Raises Damaged.
    """
    role = record.get("role")
    if not isinstance(role, str) or not role.strip():
        raise Damaged("a message without a role")
    found = {name: record.get(name) for name in (*FIELDS, *LATER_FIELDS)}
    if role == "tool" and found["tool_name"] is None:
        found["tool_name"] = record.get("name")
    for name in TEXT_FIELDS:
        if not isinstance(found[name], str | None):
            raise Damaged(f"{name} is not text")
    if not isinstance(found["content"], str | list | dict | None):
        raise Damaged("content is neither text nor a list nor an object")
    if "content" not in record and not any(found[name] for name in ("tool_calls", *REASONING)):
        raise Damaged("a message without content")
    for name in ("token_count", "observed"):
        value = found[name]
        if value is not None and not (isinstance(value, int) and 0 <= value < 1 << 63):
            raise Damaged(f"{name} is not a count")
    found["timestamp"] = moment(found["timestamp"])
    number = 0
    if isinstance(found["tool_calls"], str):
        try:
            number = calls(json.loads(found["tool_calls"]))
        except ValueError:
            raise Damaged("tool_calls is text that is no JSON") from None
    elif isinstance(found["tool_calls"], list | None):
        number = calls(found["tool_calls"])
    else:
        raise Damaged("tool_calls is not a list")
    found["content"] = encode(found["content"])
    for name in ("tool_calls", *JSON_FIELDS):
        if not isinstance(found[name], str | list | dict | None):
            raise Damaged(f"{name} is neither a list nor an object")
        if not isinstance(found[name], str):
            found[name] = json.dumps(found[name]) if found[name] else None
    return Message(role, found, number)


def moment(given: Any) -> float | None:
    """Seconds of a number or an ISO date-time. Raises Damaged for what is no time."""
    if given is None:
        return None
    found = valid(given)
    if isinstance(given, str):
        with suppress(ValueError, OverflowError, OSError):
            found = valid(datetime.fromisoformat(re.sub("[zZ]$", "+00:00", given)).timestamp())
    if found is None or isinstance(given, bool):
        raise Damaged(f"timestamp {given!r} is no time")
    return found


def append(
    db: Database, session_id: str, role: str | None, values: dict[str, Any], tool_calls: int
) -> int:
    """One message at the end of a session, its counters kept true; the message's id.

    values: columns as they are stored (`encoded`), without a timestamp it is now. Raises
    Unsupported where a value has no column in this store.
    """
    message_id = insert(db, session_id, role, values)
    count(db, session_id, 1, tool_calls)
    return message_id


def insert(db: Database, session_id: str, role: str | None, values: dict[str, Any]) -> int:
    """The message row alone; the index follows by its triggers."""
    found = {name: value for name, value in values.items() if value is not None}
    found.setdefault("timestamp", time.time())
    missing = [name for name in found if not db.schema.has("messages", name)]
    if missing:
        raise Unsupported(
            f"{db.path}: messages have no {missing[0]} in this store; "
            "hermes-session-migrate adds it"
        )
    cursor = db.execute(
        f"INSERT INTO messages (session_id, role, {', '.join(found)}) "
        f"VALUES (?, ?, {marks(list(found))})",
        (session_id, role, *found.values()),
    )
    assert cursor.lastrowid is not None  # what triggers insert elsewhere does not change it
    return cursor.lastrowid


def count(db: Database, session_id: str, messages: int, tool_calls: int) -> None:
    """Raise the counters of a session."""
    db.execute(
        "UPDATE sessions SET message_count = message_count + ?, "
        "tool_call_count = tool_call_count + ? WHERE id = ?",
        (messages, tool_calls, session_id),
    )


def add(db: Database, session_id: str, message: Message) -> int:
    """An incoming message at the end of a session; its id."""
    values = {
        name: value for name, value in message.values.items()
        if name not in LATER_FIELDS or db.schema.has("messages", name)
    }  # fmt: skip
    return append(db, session_id, message.role, values, message.calls)


def require_open(db: Database, session_id: str, *, live: bool = False, first: bool = True) -> None:
    """Refuse to add to a session that went on elsewhere, and unless `live` to one in use: leased,
    its handoff under way, or at the `first` look routed and active. Raises Negative.
    """
    lineage = Lineage(db)
    link = lineage.link(session_id)
    if link is not None and link.end_reason == "compression":
        tip = lineage.tip(session_id)
        where = f"; it goes on in {tip}" if tip != session_id else ""
        raise Negative(f"session {session_id}: ended by compression{where}")
    if live:
        return
    use = inuse.look(db)
    rows = lineage.chain(session_id)
    word = next((use.leased[row] for row in rows if row in use.leased), None)
    if word is None and inuse.handed(db, rows):
        word = "handoff"
    if word is None and first and any(row in use.routes for row in rows):
        newest = max(map(lineage.newest, rows))
        word = "routed" if use.now - newest < inuse.ROUTED_FOR else None
    if word is not None:
        raise Negative(f"session {session_id}: {inuse.REASONS[word]}; --live adds all the same")


# What a continuation inherits from the session that it continues, as far as the store has it.
INHERITED = ("user_id", "model", "model_config", "system_prompt", "system_prompt_hash", "cwd",
             "git_branch", "git_repo_root", "profile_name")  # fmt: skip


def begin(
    db: Database, source: str | None, title: str | None, parent: str | None, *, live: bool = False
) -> str:
    """A new session; its id. With `parent` it continues that one, which ends by compression: it
    inherits the source, what the agent is told, and the next title of the parent's line, unless
    others are given. Raises Negative where the parent has ended or is in use.
    """
    session_id = new_id(db)
    if parent is None:
        assert source is not None
        create(db, session_id, source)
    else:
        require_open(db, parent, live=live)
        columns = [name for name in INHERITED if db.schema.has("sessions", name)]
        own = "title" if db.schema.has("sessions", "title") else "NULL AS title"
        row = db.execute(
            f"SELECT source, ended_at, {own}, {', '.join(columns)} FROM sessions WHERE id = ?",
            (parent,),
        ).fetchone()
        if row["ended_at"] is not None:
            raise Negative(f"session {parent}: has ended; hermes-session-end --reopen opens it")
        lifecycle.end(db, [parent], "compression", time.time())
        create(db, session_id, source or row["source"], parent_session_id=parent)
        db.execute(
            f"UPDATE sessions SET {', '.join(f'{name} = ?' for name in columns)} WHERE id = ?",
            (*(row[name] for name in columns), session_id),
        )
        if title is None and row["title"]:
            title = titles.next_title(db, row["title"])
    if title is not None:
        titles.set_title(db, session_id, title)
    return session_id


def new_id(db: Database) -> str:
    """An id of the agent's form that nobody has: local time and six hexadecimal digits."""
    while True:
        found = f"{time.strftime('%Y%m%d_%H%M%S')}_{os.urandom(3).hex()}"
        if not db.execute("SELECT 1 FROM sessions WHERE id = ?", (found,)).fetchone():
            return found


def clear(db: Database, session_id: str) -> None:
    """Remove every message of a session, and set its counters to nothing."""
    db.execute("DELETE FROM messages WHERE session_id = ?", (session_id,))
    db.execute(
        "UPDATE sessions SET message_count = 0, tool_call_count = 0 WHERE id = ?", (session_id,)
    )


def replace(db: Database, session_id: str, messages: Iterable[dict[str, Any]]) -> None:
    """A whole new transcript in place of the old one. Times are given anew, a microsecond apart;
    only assistants keep reasoning.
    """
    clear(db, session_id)
    now, stored, called = time.time(), 0, 0
    for message in messages:
        role = message.get("role", "unknown")
        values = encoded(message)
        values["timestamp"] = now
        if role != "assistant":
            values.update(dict.fromkeys(REASONING))
        insert(db, session_id, role, values)
        stored, called, now = stored + 1, called + calls(message.get("tool_calls")), now + STEP
    count(db, session_id, stored, called)


def set_title(db: Database, session_id: str, title: str | None) -> bool:
    """Give a session a title that is clean already, or none; whether there is such a session.

    Raises Taken. Where the store ranks titles by who gave them, this is the user's own: the
    agent must not write over it (store-facts 3.2).
    """
    if title:
        other = db.execute(
            "SELECT id FROM sessions WHERE title = ? AND id <> ?", (title, session_id)
        ).fetchone()
        if other:
            raise Taken(title, other[0])
    ranked = ", title_source = 'user'" if db.schema.has("sessions", "title_source") else ""
    changed = db.execute(f"UPDATE sessions SET title = ?{ranked} WHERE id = ?", (title, session_id))
    return changed.rowcount > 0


def remove(db: Database, session_ids: list[str]) -> None:
    """Remove session rows with their messages; children of other sessions become roots.

    Messages first: index triggers of newer stores look at the owner's row (store-facts 1.7).
    """
    for chunk in chunks(session_ids):
        these = marks(chunk)
        db.execute(
            "UPDATE sessions SET parent_session_id = NULL "
            f"WHERE parent_session_id IN ({these})", chunk
        )  # fmt: skip
        db.execute(f"DELETE FROM messages WHERE session_id IN ({these})", chunk)
        db.execute(f"DELETE FROM sessions WHERE id IN ({these})", chunk)


def prunable(db: Database, cutoff: float, source: str | None) -> list[str]:
    """Ended sessions that started before `cutoff`, oldest first."""
    rows = db.execute(
        "SELECT id FROM sessions WHERE started_at < ? AND ended_at IS NOT NULL "
        f"{'AND source = ?' if source else ''} ORDER BY started_at",
        (cutoff, source) if source else (cutoff,),
    )
    return [row[0] for row in rows]


def ghosts(db: Database) -> list[str]:
    """Ended sessions of the terminal interface that nobody ever wrote in: untitled, without a
    message, started over a day ago.
    """
    rows = db.execute(
        "SELECT id FROM sessions s WHERE source = 'tui' AND title IS NULL "
        "AND ended_at IS NOT NULL AND started_at < ? "
        "AND NOT EXISTS (SELECT 1 FROM messages m WHERE m.session_id = s.id)",
        (time.time() - DAY,),
    )
    return [row[0] for row in rows]


def close_orphans(db: Database) -> int:
    """End continuations that never came to life: open, a week old, with messages but without a
    call of the model, their parent ended by compression. How many there were.
    """
    now = time.time()
    return db.execute(
        "UPDATE sessions SET ended_at = ?, end_reason = 'orphaned_compression' "
        "WHERE ended_at IS NULL AND end_reason IS NULL AND api_call_count = 0 "
        "AND started_at < ? "
        "AND EXISTS (SELECT 1 FROM messages m WHERE m.session_id = sessions.id) "
        "AND EXISTS (SELECT 1 FROM sessions p WHERE p.id = sessions.parent_session_id "
        "AND p.end_reason = 'compression' AND p.ended_at IS NOT NULL)",
        (now, now - 7 * DAY),
    ).rowcount


def request_handoff(db: Database, session_id: str, platform: str | None) -> bool:
    """Ask for a handoff, unless one is under way (store-facts 3.13)."""
    return db.execute(
        "UPDATE sessions SET handoff_state = 'pending', handoff_platform = ?, "
        "handoff_error = NULL WHERE id = ? "
        "AND (handoff_state IS NULL OR handoff_state IN ('completed', 'failed'))",
        (platform, session_id),
    ).rowcount > 0  # fmt: skip


def claim_handoff(db: Database, session_id: str) -> bool:
    """Take a pending handoff."""
    return db.execute(
        "UPDATE sessions SET handoff_state = 'running' "
        "WHERE id = ? AND handoff_state = 'pending'", (session_id,),
    ).rowcount > 0  # fmt: skip


def set_handoff(db: Database, session_id: str, state: str, error: str | None) -> None:
    """Set the state of a handoff whatever it was, as releases through 0.19 do."""
    db.execute(
        "UPDATE sessions SET handoff_state = ?, handoff_error = ? WHERE id = ?",
        (state, error, session_id),
    )


def get_meta(db: Database, key: str) -> str | None:
    """A fact about the store itself."""
    row = db.execute("SELECT value FROM state_meta WHERE key = ?", (key,)).fetchone()
    return None if row is None else row[0]


def set_meta(db: Database, key: str, value: str) -> None:
    """Set a fact about the store itself."""
    db.execute(
        "INSERT INTO state_meta (key, value) VALUES (?, ?) "
        "ON CONFLICT(key) DO UPDATE SET value = excluded.value",
        (key, value),
    )
