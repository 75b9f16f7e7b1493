"""Messages: what is stored, decoded; what a person may see of it."""

import json
from collections.abc import Iterator
from typing import Any

from hermes_tools.store.db import Database, marks

# The agent stores content that is no string as NUL, `json:` and JSON (store-facts 3.1).
SENTINEL = "\x00json:"
# A message that carries the summary of a compaction is not its user's text (store-facts 2.1).
CARRIERS = ("[CONTEXT COMPACTION", "[CONTEXT SUMMARY]:")
IMAGE_TYPES = ("image", "image_url", "input_image")

COLUMNS = (
    "id", "session_id", "role", "content", "timestamp", "tool_name", "tool_calls", "tool_call_id",
    "active", "compacted", "observed", "display_kind", "_compressed_summary", "reasoning",
    "reasoning_content",
)  # fmt: skip


def decode(stored: Any) -> Any:
    """Content as the agent meant it: text, or the list or object behind the sentinel. What does
    not parse is returned as it is stored.
    """
    if isinstance(stored, str) and stored.startswith(SENTINEL):
        try:
            return json.loads(stored[len(SENTINEL) :])
        except ValueError:
            return stored
    return stored


def plain(stored: Any, image: str = "[image]") -> str:
    """Stored or decoded content as text: the text parts of multimodal content, a placeholder for
    each picture; what is neither text nor parts as JSON.
    """
    content = decode(stored)
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, bytes):
        return content.decode("utf-8", "replace")
    if isinstance(content, dict):
        content = [content]
    if not isinstance(content, list):
        return str(content)
    parts = []
    for part in content:
        if isinstance(part, str):
            parts.append(part)
        elif isinstance(part, dict):
            kind = part.get("type")
            if isinstance(part.get("text"), str):
                parts.append(part["text"])
            elif kind in IMAGE_TYPES:
                parts.append(image)
            elif isinstance(kind, str):
                parts.append(f"[{kind}]")
    return "\n".join(parts) if parts else "[multimodal content]"


def tool_calls(stored: Any) -> list[Any]:
    """The calls of a row as a list; undecodable text is no calls, a lone object is one."""
    if isinstance(stored, str):
        try:
            stored = json.loads(stored)
        except ValueError:
            return []
    if isinstance(stored, list):
        return stored
    return [stored] if isinstance(stored, dict) else []


def call_names(stored: Any) -> list[str]:
    """The tools a row calls, in order."""
    names = []
    for call in tool_calls(stored):
        function = call.get("function") if isinstance(call, dict) else None
        name = function.get("name") if isinstance(function, dict) else None
        if name is None and isinstance(call, dict):
            name = call.get("name")
        names.append(str(name or "?"))
    return names


def is_carrier(row: Any) -> bool:
    """Whether a row (with content and _compressed_summary) carries a compaction's summary."""
    if row["_compressed_summary"] == 1:
        return True
    return plain(row["content"]).lstrip().startswith(CARRIERS)


def pick(db: Database, *columns: str, alias: str = "m") -> str:
    """A SELECT list of message columns, NULL in place of one this store does not have."""
    have = db.schema.tables["messages"]
    return ", ".join(
        f'{alias}."{name}"' if name in have else f'NULL AS "{name}"' for name in columns or COLUMNS
    )


def rows(
    db: Database, session_id: str, *, inactive: bool = False, compacted: bool = True
) -> Iterator[Any]:
    """A session's message rows (COLUMNS) by id: live and compacted ones; also rewound ones with
    `inactive`; only live ones without `compacted`.
    """
    schema = db.schema
    which = "1" if inactive else schema.seen if compacted else schema.live
    # Ids first, from an index alone: to sort whole rows SQLite would copy them all beforehand.
    ids = [
        row[0]
        for row in db.execute(
            "SELECT id FROM messages WHERE session_id = ? ORDER BY id", (session_id,)
        )
    ]
    for start in range(0, len(ids), 50):
        some = ids[start : start + 50]
        yield from db.execute(
            f"SELECT {pick(db)} FROM messages m WHERE m.id IN ({marks(some)}) AND {which} "
            "ORDER BY m.id",
            some,
        ).fetchall()


def any_seen(db: Database, session_ids: list[str], *, inactive: bool = False) -> bool:
    """Whether `rows` gives anything for one of these sessions."""
    which = "1" if inactive else db.schema.seen
    query = f"SELECT 1 FROM messages m WHERE m.session_id = ? AND {which} LIMIT 1"
    return any(db.execute(query, (one,)).fetchone() for one in session_ids)


def spoken(db: Database, session_ids: list[str]) -> Iterator[Any]:
    """Live rows (COLUMNS) of user and assistant in these sessions, the last first; read a few at
    a time, so that whoever wants the end of a conversation reads no more.
    """
    for session_id in reversed(session_ids):
        ids = [
            row[0]
            for row in db.execute(
                f"SELECT m.id FROM messages m WHERE m.session_id = ? AND {_spoken(db)} "
                "ORDER BY m.id DESC",
                (session_id,),
            )
        ]
        for start in range(0, len(ids), 50):
            some = ids[start : start + 50]
            yield from db.execute(
                f"SELECT {pick(db)} FROM messages m WHERE m.id IN ({marks(some)}) "
                "ORDER BY m.id DESC",
                some,
            ).fetchall()


def spoken_count(db: Database, session_ids: list[str]) -> int:
    """How many rows `spoken` gives."""
    count = f"SELECT count(*) FROM messages m WHERE m.session_id = ? AND {_spoken(db)}"
    return sum(db.execute(count, (one,)).fetchone()[0] for one in session_ids)


def _spoken(db: Database) -> str:
    return f"m.role IN ('user', 'assistant') AND {db.schema.live} AND {visible(db)}"


def visible(db: Database) -> str:
    """SQL for "message row m is no scaffolding of the agent's own" (store-facts 2.1)."""
    if not db.schema.has("messages", "display_kind"):
        return "1"
    return "COALESCE(m.display_kind, '') <> 'hidden'"


def record(row: Any, anchor: bool = False) -> dict[str, Any]:
    """A message inside another record: id, role, content, and what else is not empty.

    api_content and reasoning never stand here (store-facts 2.1).
    """
    result = {"id": row["id"], "role": row["role"], "content": decode(row["content"])}
    for name in ("timestamp", "tool_name"):
        if row[name] is not None:
            result[name] = row[name]
    calls = tool_calls(row["tool_calls"])
    if calls:
        result["tool_calls"] = calls
    if row["tool_call_id"]:
        result["tool_call_id"] = row["tool_call_id"]
    for flag, value in (("active", 0), ("compacted", 1)):
        if row[flag] == value:
            result[flag] = value
    if anchor:
        result["anchor"] = True
    return result


def preview(text: str, limit: int = 60) -> str:
    """The start of a text on one line: 60 characters, then `...`."""
    line = " ".join(text[: limit * 8].split())
    return line if len(line) <= limit else line[:limit].rstrip() + "..."
