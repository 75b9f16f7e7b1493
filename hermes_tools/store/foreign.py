"""Transcripts that are no exports: the agent's older session files, and other agents' logs.

A file of these is one session (or, for logs, some); each is turned into the records an import
takes: messages, then the session. What kind a file is shows in its first object.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from pathlib import PurePath
from typing import Any

import orjson

from hermes_tools.store import logs
from hermes_tools.store.errors import Damaged
from hermes_tools.store.logs import seconds
from hermes_tools.store.parsing import Item, items

PEEK = 1 << 22
SNAPSHOT = ("session_id", "messages", "session_start")
KEPT = (
    "role", "content", "tool_call_id", "tool_calls", "tool_name", "finish_reason", "reasoning",
    "reasoning_content", "reasoning_details", "codex_reasoning_items", "codex_message_items",
    "timestamp",
)  # fmt: skip


def records(blocks: Iterable[bytes], name: str) -> Iterator[Item]:
    """Any input as the pieces an import takes, by what its first line is."""
    source = iter(blocks)
    start = b""
    while b"\n" not in start.lstrip() and len(start) < PEEK:
        block = next(source, None)
        if block is None:
            break
        start += block
    whole = chain((start,), source)
    kind = _kind(start)
    if kind is None:
        return items(whole)
    return kind(whole, name)


def _kind(start: bytes) -> Callable[[Iterable[bytes], str], Iterator[Item]] | None:
    text = start.removeprefix(b"\xef\xbb\xbf").lstrip()
    for line in text.splitlines()[:20]:
        if line.strip() in (b"{", b"["):
            return document
        try:
            first = orjson.loads(line)
        except orjson.JSONDecodeError:
            return None
        if not isinstance(first, dict):
            continue
        if "messages" in first or "_format" in first or "_deleted" in first:
            return document if set(SNAPSHOT) <= set(first) else None
        if "role" in first:
            return transcript
        found = logs.kind(first)
        if found is not None:
            return found
    return None


def document(blocks: Iterable[bytes], name: str) -> Iterator[Item]:
    """`session_<id>.json`: the agent's snapshot of a session, one JSON object; or a list of
    export records.
    """
    try:
        value = json.loads(b"".join(blocks))
    except (ValueError, RecursionError) as error:
        yield Item(getattr(error, "lineno", 1), error=f"not JSON: {error}")
        return
    for number, one in enumerate(value if isinstance(value, list) else [value], 1):
        if not isinstance(one, dict) or not isinstance(one.get("messages"), list):
            yield Item(number, error="not a session")
            continue
        if "session_id" not in one:
            messages = one.pop("messages")
            yield from (Item(number, message) for message in messages)
            yield Item(number, session={**one, "messages": None})
            continue
        yield from (Item(number, plain(message)) for message in one["messages"])
        session: dict[str, Any] = {
            "id": one["session_id"], "source": one.get("platform") or "import",
            "model": one.get("model"), "system_prompt": one.get("system_prompt"),
            "started_at": seconds(one.get("session_start")),
            "title": one.get("title"), "messages": None,
        }  # fmt: skip
        if one.get("base_url"):
            session["billing_base_url"] = one["base_url"]
        yield Item(number, session=session)


def transcript(blocks: Iterable[bytes], name: str) -> Iterator[Item]:
    """`<id>.jsonl`: a message a line, perhaps a `session_meta` line among them."""
    session: dict[str, Any] = {
        "id": PurePath(name).stem if name.endswith(".jsonl") else None,
        "source": "import", "started_at": None, "messages": None,
    }  # fmt: skip
    rows: list[Item] = []  # a bad line that is left out must not take those before it along
    for item in items(blocks):
        if item.error or item.session is None:
            yield item
            continue
        line = dict(item.session)
        role = line.get("role")
        if role == "session_meta":
            session["model"] = line.get("model")
            session["source"] = line.get("platform") or session["source"]
            session["started_at"] = seconds(line.get("timestamp"))
            continue
        if not isinstance(role, str):
            yield Item(item.line, error="a message without a role")
            continue
        rows.append(Item(item.line, plain(line)))
    if not session["id"]:
        raise Damaged(f"{name}: a transcript names its session by its file name, <id>.jsonl")
    yield from rows
    yield Item(rows[-1].line if rows else 1, session={key: value for key, value in session.items()
                              if value is not None or key == "messages"})  # fmt: skip


def plain(message: Any) -> Any:
    """A message of a transcript with the columns of a store."""
    if not isinstance(message, dict):
        return message
    result = {name: message.get(name) for name in KEPT}
    result["tool_name"] = message.get("tool_name") or message.get("name")
    result["timestamp"] = seconds(message.get("timestamp"))
    for name in ("reasoning", "reasoning_content"):
        if isinstance(result[name], dict | list):
            result[name] = json.dumps(result[name])
    return result
