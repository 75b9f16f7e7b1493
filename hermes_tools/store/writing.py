"""Sessions created, extended, rewritten and removed, the way the agent itself writes them
(lifecycle.py ends them).

Every function is part of a transaction that its caller has open (store/db.py: transaction).
"""

import json
import time
from collections.abc import Iterable
from typing import Any

from hermes_tools.store.db import Database, chunks, marks
from hermes_tools.store.errors import Negative, Unsupported
from hermes_tools.store.messages import SENTINEL

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
