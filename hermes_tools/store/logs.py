"""Session logs of other agents, read: Claude Code (and those that log as it does), Codex."""

import json
import re
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timezone
from typing import Any

from hermes_tools.store import titles
from hermes_tools.store.parsing import Item, items

Reader = Callable[[Iterable[bytes], str], Iterator[Item]]
Row = dict[str, Any]
FINISH = {"tool_use": "tool_calls", "end_turn": "stop", "stop_sequence": "stop",
          "max_tokens": "length"}  # fmt: skip


def kind(first: Row) -> Reader | None:
    """The reader for a log one of whose first objects this is; None if it tells nothing."""
    if first.get("type") in ("session_meta", "response_item", "turn_context"):
        return codex
    if "sessionId" in first and ("message" in first or "type" in first):
        return claude
    if set(first) >= {"id", "timestamp", "instructions"}:  # the first line of older Codex logs
        return codex
    return None


class Log:
    """One session as it grows: rows, and what is known of it."""

    def __init__(self, session_id: str, source: str) -> None:
        self.session: Row = {"id": session_id, "source": source, "messages": None}
        self.rows: list[tuple[int, Row]] = []
        self.tools: dict[str, str] = {}  # call id → name

    def add(self, line: int, time: float | None, role: str, content: Any, **more: Any) -> Row:
        """A message; every one has the same keys."""
        row = {
            "role": role, "content": content, "tool_call_id": None, "tool_calls": None,
            "tool_name": None, "timestamp": time, "finish_reason": None, "reasoning": None, **more,
        }  # fmt: skip
        self.rows.append((line, row))
        return row

    def call(self, row: Row, call_id: Any, name: Any, arguments: str) -> None:
        """A tool call of a row, once."""
        if call_id in self.tools:
            return
        self.tools[str(call_id)] = str(name)
        row["tool_calls"] = [*(row["tool_calls"] or ()), {
            "id": call_id, "type": "function",
            "function": {"name": name, "arguments": arguments},
        }]  # fmt: skip

    def result(self, line: int, time: float | None, call_id: Any, content: Any) -> None:
        """The answer of a tool."""
        self.add(line, time, "tool", content, tool_call_id=call_id,
                 tool_name=self.tools.get(str(call_id)))  # fmt: skip

    def pieces(self) -> Iterator[Item]:
        """The records an import takes."""
        times = [row["timestamp"] for _, row in self.rows if row["timestamp"] is not None]
        if times:
            self.session.setdefault("started_at", min(times))
            self.session |= {"ended_at": max(times), "end_reason": "import"}
        last = 1
        for line, row in self.rows:
            last = line
            if row["role"] != "assistant" or row["content"] or row["tool_calls"]:
                yield Item(line, row)
        yield Item(last, session=self.session)


def claude(blocks: Iterable[bytes], name: str) -> Iterator[Item]:
    """Lines of user and assistant; a side chain is a delegate's session of its own."""
    logs: dict[str, Log] = {}
    seen: set[str] = set()
    summary: str | None = None
    for item in items(blocks):
        if item.error:
            yield item
            continue
        if item.session is None:
            continue
        line = item.session
        if line.get("type") == "summary" and isinstance(line.get("summary"), str):
            summary = line["summary"]
        message = line.get("message")
        name_of = line.get("sessionId")
        if not isinstance(message, dict) or not isinstance(name_of, str) or not name_of:
            continue
        if line.get("type") not in ("user", "assistant") or line.get("isMeta"):
            continue
        mark = json.dumps([line.get("uuid"), message], sort_keys=True)
        if mark in seen:
            continue
        seen.add(mark)
        side = bool(line.get("isSidechain"))
        session_id = f"{name_of}-sidechain" if side else name_of
        log = logs.get(session_id)
        if log is None:
            log = logs[session_id] = Log(session_id, "subagent" if side else "claude-code")
            if side:
                log.session |= {"parent_session_id": name_of,
                                "model_config": {"_delegate_from": name_of}}  # fmt: skip
        for key, column in (("cwd", "cwd"), ("gitBranch", "git_branch")):
            if isinstance(line.get(key), str) and line[key]:
                log.session[column] = line[key]
        _said(log, item.line, seconds(line.get("timestamp")), message)
    if summary and logs:
        title = titles.cut(titles.clean(summary), titles.LIMIT)
        main = next((log for log in logs.values() if log.session["source"] != "subagent"), None)
        if main and title:
            main.session["title"] = title
    for log in logs.values():
        yield from log.pieces()


def _said(log: Log, line: int, time: float | None, message: Row) -> None:
    content = message.get("content")
    blocks = content if isinstance(content, list) else [{"type": "text", "text": content}]
    blocks = [{"type": "text", "text": one} if isinstance(one, str) else one for one in blocks]
    blocks = [one for one in blocks if isinstance(one, dict)]
    if message.get("role") == "assistant":
        if isinstance(message.get("model"), str):
            log.session["model"] = message["model"]
        thoughts = "\n".join(
            str(one["thinking"]) for one in blocks if isinstance(one.get("thinking"), str)
        )
        row = log.add(line, time, "assistant", joined(blocks), reasoning=thoughts or None,
                      finish_reason=FINISH.get(str(message.get("stop_reason"))))  # fmt: skip
        for one in blocks:
            if one.get("type") == "tool_use":
                log.call(row, one.get("id"), one.get("name"), json.dumps(one.get("input")))
        return
    for one in blocks:
        if one.get("type") == "tool_result":
            log.result(line, time, one.get("tool_use_id"), answer(one.get("content")))
    said = [one for one in blocks if one.get("type") != "tool_result"]
    if said:
        log.add(line, time, "user", joined(said))


def joined(blocks: list[Row]) -> Any:
    """Text blocks as one text; with pictures the list of parts, as the agent keeps them."""
    parts: list[Row] = []
    for one in blocks:
        source = one.get("source")
        if isinstance(one.get("text"), str):
            parts.append({"type": "text", "text": one["text"]})
        elif one.get("type") == "image" and isinstance(source, dict):
            url = source.get("url") or (
                f"data:{source.get('media_type')};base64,{source.get('data')}"
            )
            parts.append({"type": "image_url", "image_url": {"url": url}})
    if any(part["type"] != "text" for part in parts):
        return parts
    return "\n".join(part["text"] for part in parts)


def answer(content: Any) -> Any:
    """What a tool answered: its text, or its structure as JSON."""
    if content is None or isinstance(content, str):
        return content
    if isinstance(content, list):
        blocks = [one for one in content if isinstance(one, dict)]
        if len(blocks) == len(content) and all("text" in one or "source" in one for one in blocks):
            return joined(blocks)
    return json.dumps(content, ensure_ascii=False)


def codex(blocks: Iterable[bytes], name: str) -> Iterator[Item]:
    """A rollout: a head, then messages, thoughts, calls and their outputs, an item a line."""
    log: Log | None = None
    thoughts: list[str] = []
    for item in items(blocks):
        if item.error:
            yield item
            continue
        if item.session is None:
            continue
        line = item.session
        payload = line.get("payload", line)
        if not isinstance(payload, dict):
            continue
        time = seconds(line.get("timestamp"))
        if log is None:
            if not isinstance(payload.get("id"), str):
                yield Item(item.line, error="a log of Codex that does not begin with its head")
                return
            log = Log(payload["id"], "codex")
            _head(log, payload)
            continue
        if line.get("type") == "turn_context" and isinstance(payload.get("model"), str):
            log.session["model"] = payload["model"]
        elif line.get("type") in (None, "response_item") or "payload" not in line:
            _item(log, item.line, time, payload, thoughts)
    if log is not None:
        yield from log.pieces()


def _head(log: Log, payload: Row) -> None:
    started = seconds(payload.get("timestamp"))
    git = payload.get("git")
    found = {
        "cwd": payload.get("cwd"), "system_prompt": payload.get("instructions"),
        "git_branch": git.get("branch") if isinstance(git, dict) else None, "started_at": started,
    }  # fmt: skip
    log.session |= {
        key: value for key, value in found.items()
        if isinstance(value, float) or (isinstance(value, str) and value)
    }  # fmt: skip


def _item(log: Log, line: int, time: float | None, item: Row, thoughts: list[str]) -> None:
    what = item.get("type")
    if what == "message":
        blocks = [one for one in item.get("content") or () if isinstance(one, dict)]
        role = {"developer": "system"}.get(str(item.get("role")), str(item.get("role")))
        log.add(line, time, role, joined(blocks), reasoning=_thought(role, thoughts))
    elif what == "reasoning":
        parts = [*(item.get("summary") or ()), *(item.get("content") or ())]
        thoughts += [one["text"] for one in parts if isinstance(one, dict) and one.get("text")]
    elif what in ("function_call", "custom_tool_call", "local_shell_call"):
        row = log.rows[-1][1] if log.rows else None
        if row is None or row["role"] != "assistant" or thoughts:
            row = log.add(line, time, "assistant", "", reasoning=_thought("assistant", thoughts))
        given = item.get("arguments", item.get("input", item.get("action")))
        arguments = given if isinstance(given, str) else json.dumps(given)
        log.call(row, item.get("call_id"), item.get("name") or "shell", arguments)
    elif what in ("function_call_output", "custom_tool_call_output", "local_shell_call_output"):
        log.result(line, time, item.get("call_id"), answer(item.get("output")))


def _thought(role: str, thoughts: list[str]) -> str | None:
    if role != "assistant" or not thoughts:
        return None
    text = "\n".join(thoughts)
    thoughts.clear()
    return text


def seconds(value: Any) -> float | None:
    """A time of a transcript: a number, or ISO 8601 (local where it has no zone)."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return float(value)
    if not isinstance(value, str):
        return None
    text = re.sub(r"[zZ]$", "+00:00", value.strip())
    text = re.sub(r"\.(\d{1,6})\d*", lambda found: "." + found[1].ljust(6, "0"), text)
    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError, OSError):
        return None


def stamp(value: float) -> str:
    """Seconds as ISO 8601 UTC with milliseconds, as these logs have it."""
    moment = datetime.fromtimestamp(value, timezone.utc)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03d}Z"
