"""Other shapes of an export: flat messages, chats for training, the trace of another agent.

Each takes an Exporter and the rows of one conversation and yields lines.
"""

import json
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import orjson

from hermes_tools.store.exporting import Exporter
from hermes_tools.store.logs import stamp
from hermes_tools.store.messages import SENTINEL, is_carrier, plain, tool_calls
from hermes_tools.store.selection import Selection
from hermes_tools.store.times import iso, valid

NAMESPACE = uuid.UUID("5f0c1f5e-8a53-4c0e-9a30-6d3f3c0f6f1a")
FLAT = (
    "session_id", "message_id", "role", "content", "content_json", "tool_name", "tool_call_id",
    "tool_calls", "timestamp", "when", "token_count", "finish_reason", "active", "compacted",
    "source", "model", "title", "lineage_root_id", "profile", "origin",
)  # fmt: skip
Within = Callable[[float | None], bool]


def always(time: float | None) -> bool:
    """No limits on a message's time."""
    return True


def within(selection: Selection) -> Within:
    """--after and --before for messages: a message without a time lies in no span of it."""
    after, before = selection.after, selection.before
    if after is None and before is None:
        return always
    return lambda time: (
        time is not None and (after is None or time >= after) and (before is None or time < before)
    )


def readable(value: Any) -> Any:
    """A cell as JSON can hold it."""
    if isinstance(value, bytes):
        return None
    if isinstance(value, str):
        return value.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    if isinstance(value, float) and (value != value or abs(value) == float("inf")):
        return None
    return value


def text_of(value: Any) -> str | None:
    """A cell as text or null, whatever its type."""
    value = readable(value)
    return value if value is None or isinstance(value, str) else str(value)


def whole(value: Any) -> int | None:
    """A cell as an integer or null."""
    return value if isinstance(value, int) else None


def rows(exporter: Exporter, session_id: Any, above: int = 0) -> Iterator[dict[str, Any]]:
    """Message rows as they are stored, live ones alone where the exporter says so; with `above`
    those with higher ids.
    """
    live = exporter.db.schema.live.replace("m.", "")
    which = f"AND {live}" if exporter.live_only else ""
    which += f" AND rowid > {above}" if above else ""
    for row in exporter.messages(session_id, which):
        yield dict(zip(exporter.message_names, row, strict=True))


def session_of(exporter: Exporter, session_id: Any) -> dict[str, Any]:
    """The session row by column."""
    return dict(zip(exporter.session_names, exporter.session(session_id), strict=True))


def flat(
    exporter: Exporter, members: list[Any], root: Any, within: Within = always, above: int = 0
) -> Iterator[bytes]:
    """One line a message, each with the same keys of the same types (hermes-session-jsonl(5))."""
    for session_id in members:
        session = session_of(exporter, session_id)
        for message in rows(exporter, session_id, above):
            if within(valid(message["timestamp"])):
                yield orjson.dumps(
                    flat_record(exporter, session, message, root), option=orjson.OPT_APPEND_NEWLINE
                )


def flat_record(
    exporter: Exporter, session: dict[str, Any], message: dict[str, Any], root: Any
) -> dict[str, Any]:
    """The record of one message."""
    stored = message.get("content")
    parts = None
    if isinstance(stored, str) and stored.startswith(SENTINEL):
        parts = text_of(stored[len(SENTINEL) :])
    time = message.get("timestamp")
    return {
        "session_id": text_of(session["id"]), "message_id": whole(message.get("id")),
        "role": text_of(message.get("role")),
        "content": None if stored is None else text_of(plain(stored)), "content_json": parts,
        "tool_name": text_of(message.get("tool_name")),
        "tool_call_id": text_of(message.get("tool_call_id")),
        "tool_calls": text_of(message.get("tool_calls")),
        "timestamp": readable(float(time)) if isinstance(time, int | float) else None,
        "when": iso(time), "token_count": whole(message.get("token_count")),
        "finish_reason": text_of(message.get("finish_reason")),
        "active": 1 if message.get("active") is None else whole(message["active"]),
        "compacted": whole(message.get("compacted")) or 0,
        "source": text_of(session.get("source")), "model": text_of(session.get("model")),
        "title": text_of(session.get("title")), "lineage_root_id": text_of(root),
        "profile": exporter.stamps.get("profile"), "origin": exporter.stamps.get("_origin"),
    }  # fmt: skip


def gone(exporter: Exporter, session_id: Any) -> bytes:
    """The line that says that a session was deleted: its role is `_deleted`, the rest is null."""
    record = dict.fromkeys(FLAT) | {
        "session_id": text_of(session_id), "role": "_deleted", "active": 0, "compacted": 0,
        "profile": exporter.stamps.get("profile"), "origin": exporter.stamps.get("_origin"),
    }  # fmt: skip
    return orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE)


def spoken(exporter: Exporter, session_id: Any) -> Iterator[dict[str, Any]]:
    """Live rows that people, models and tools wrote: no summaries of a compaction, no rows that
    are hidden from display.
    """
    for message in rows(exporter, session_id):
        shown = {"_compressed_summary": None, "content": None, **message}
        if message.get("display_kind") != "hidden" and not is_carrier(shown):
            yield message


def chat(exporter: Exporter, chain: list[Any]) -> Iterator[bytes]:
    """A conversation as one chat in the shape of OpenAI's API: `{"messages": [...]}`."""
    turns: list[dict[str, Any]] = []
    prompt = None if exporter.share else exporter.prompt(session_of(exporter, chain[0]))
    if prompt:
        turns.append({"role": "system", "content": readable(prompt)})
    for session_id in chain:
        turns += (turn(message) for message in spoken(exporter, session_id))
    if len(turns) > bool(prompt):
        yield dumped({"messages": turns})


def turn(message: dict[str, Any]) -> dict[str, Any]:
    """One message of a chat."""
    stored = message.get("content")
    content: Any = readable(stored)
    if isinstance(stored, str) and stored.startswith(SENTINEL):
        try:
            content = json.loads(stored[len(SENTINEL) :])
        except ValueError:
            content = plain(stored)
    result: dict[str, Any] = {"role": text_of(message["role"]), "content": content}
    calls = tool_calls(message.get("tool_calls"))
    if calls:
        result["tool_calls"] = [
            {key: call[key] for key in ("id", "type", "function") if key in call}
            if isinstance(call, dict) else call for call in calls
        ]  # fmt: skip
    if message.get("tool_call_id"):
        result["tool_call_id"] = text_of(message["tool_call_id"])
    if message.get("tool_name"):
        result["name"] = text_of(message["tool_name"])
    return result


def dumped(record: dict[str, Any]) -> bytes:
    """A line; integers over 64 bits take the slower way."""
    try:
        return orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE)
    except TypeError:
        return json.dumps(record).encode() + b"\n"


def trace(exporter: Exporter, chain: list[Any]) -> Iterator[bytes]:
    """A conversation as a session log of Claude Code: user and assistant lines, each naming the
    one before it; tool calls and their results as blocks.
    """
    parent = None
    for session_id in chain:
        session = session_of(exporter, session_id)
        for message in spoken(exporter, session_id):
            if message["role"] not in ("user", "assistant", "tool"):
                continue
            name = str(uuid.uuid5(NAMESPACE, f"{session_id}/{message.get('id')}"))
            time = valid(message.get("timestamp"))
            said = entry(message, session)
            yield dumped({
                "parentUuid": parent, "isSidechain": False, "userType": "external",
                "cwd": text_of(session.get("cwd")) or "", "sessionId": text_of(chain[-1]),
                "version": "hermes-tools", "gitBranch": text_of(session.get("git_branch")) or "",
                "uuid": name, "timestamp": stamp(time) if time is not None else None,
                "type": said["role"], "message": said,
            })  # fmt: skip
            parent = name


def entry(message: dict[str, Any], session: dict[str, Any]) -> dict[str, Any]:
    """The `message` of a log line."""
    turned = turn(message)
    content = turned["content"]
    if message["role"] == "tool":
        block = {"type": "tool_result", "tool_use_id": text_of(message.get("tool_call_id")),
                 "content": content if content is not None else ""}  # fmt: skip
        return {"role": "user", "content": [block]}
    if message["role"] == "user":
        return {"role": "user", "content": content if content is not None else ""}
    blocks: list[Any] = []
    if isinstance(content, list):
        blocks += content
    elif content:
        blocks.append({"type": "text", "text": content})
    for call in turned.get("tool_calls", ()):
        function = call.get("function") if isinstance(call, dict) else None
        if not isinstance(function, dict):
            continue
        blocks.append({"type": "tool_use", "id": call.get("id"), "name": function.get("name"),
                       "input": arguments(function.get("arguments"))})  # fmt: skip
    return {"role": "assistant", "model": text_of(session.get("model")), "content": blocks}


def arguments(value: Any) -> Any:
    """A call's arguments as an object; text that is none stays under `_text`."""
    if isinstance(value, dict):
        return value
    try:
        found = json.loads(value)
    except (TypeError, ValueError):
        return {"_text": value}
    return found if isinstance(found, dict) else {"_text": value}
