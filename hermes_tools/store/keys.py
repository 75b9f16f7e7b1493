"""Session keys: where a message comes from, and the key the gateway routes it by (3.11)."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hermes_tools.store.errors import Damaged, Usage

FIELDS = ("platform", "chat_id", "chat_type", "user_id", "user_id_alt", "thread_id", "scope_id")
# The words for no in settings.
NO = ("", "0", "false", "no", "off")
# The device (`:12`) and the server (`@lid`) of a WhatsApp address.
ADDRESS = re.compile(r"[:@].*", re.S)


@dataclass(frozen=True)
class Source:
    """Where a message comes from, as the gateway's adapters describe it. Ids are text; '' and
    None both mean that there is none. chat_type: dm, group, channel, thread, forum.
    """

    platform: str
    chat_id: str | None = None
    chat_type: str = "dm"
    user_id: str | None = None
    user_id_alt: str | None = None
    thread_id: str | None = None
    scope_id: str | None = None


def source(record: Mapping[str, Any], where: str = "source") -> Source:
    """A source from a record, or from the `origin` object inside it or its `entry`, as the
    routing index has them. Numbers are ids like text.

    Raises Damaged where a field is neither, or the platform is missing.
    """
    for inner in ("entry", "origin"):
        value = record.get(inner)
        if isinstance(value, Mapping):
            record = value
    found: dict[str, str] = {}
    for name in FIELDS:
        value = record.get(name)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, str | int):
            raise Damaged(f"{where}: {name} is neither text nor a whole number")
        found[name] = str(value)
    if not found.get("platform", "").strip():
        raise Damaged(f"{where}: no platform")
    found["platform"] = found["platform"].strip().lower()
    return Source(**found)


@dataclass(frozen=True)
class Rules:
    """What a key depends on beside its source.

    per_user: group_sessions_per_user; threads_per_user: thread_sessions_per_user; profile: the
    name under which a multiplexing gateway keeps its keys; release: of the agent. Before 0.17 a
    private chat without an id was not named by its user, and profiles had no keys of their own;
    since 0.20 a Slack workspace is part of a key.
    """

    per_user: bool = True
    threads_per_user: bool = False
    profile: str | None = None
    release: tuple[int, int] = (0, 20)

    @property
    def namespace(self) -> str:
        """The first two parts of a key: `agent:main`, or a multiplexed profile's name."""
        if not self.profile or self.profile == "default" or self.release < (0, 17):
            return "agent:main"
        if self.profile == "main" and self.release >= (0, 20):
            return "agent:main~"
        return f"agent:{self.profile}"


def rules(config: Mapping[str, Any]) -> Rules:
    """The rules a home's config.yaml sets (at its top level, or under `gateway`)."""

    def on(name: str, default: bool) -> bool:
        gateway = config.get("gateway")
        inner = gateway.get(name) if isinstance(gateway, Mapping) else None
        value = config.get(name, inner)
        return default if value is None else str(value).strip().lower() not in NO

    return Rules(on("group_sessions_per_user", True), on("thread_sessions_per_user", False))


def session_key(
    source: Source, rules: Rules | None = None, home: Path | None = None
) -> tuple[str, bool]:
    """(key, canonical): the key of a source; canonical is False where it holds the name of a
    WhatsApp account whose aliases are not known in `home`: the gateway may use another one.

    Parts are joined by `:` unescaped; a key cannot be split back. Raises Usage.
    """
    if not source.platform:
        raise Usage("a session key needs a platform")
    rules = rules or Rules()
    person = source.user_id_alt or source.user_id
    parts = [rules.namespace, source.platform, source.chat_type]
    named, canonical = "", True
    if source.chat_type == "dm":
        named = source.chat_id or (person if rules.release >= (0, 17) else "") or ""
        if named and source.platform == "whatsapp":
            named, canonical = account(named, home)
        parts += [named, source.thread_id or ""]
    else:
        shared = bool(source.thread_id) and not rules.threads_per_user
        if rules.per_user and not shared and person:
            named = person
            if source.platform == "whatsapp":
                named, canonical = account(named, home)
        slack = source.platform == "slack" and rules.release >= (0, 20)
        workspace = source.scope_id if slack else ""
        parts += [workspace or "", source.chat_id or "", source.thread_id or "", named]
    return ":".join([*parts[:3], *filter(None, parts[3:])]), canonical


def account(name: str, home: Path | None) -> tuple[str, bool]:
    """(name, known): what the gateway calls a WhatsApp account: of all its aliases in the
    bridge's lid-mapping files the shortest, then the first in order. Not known where no file
    maps it.
    """
    bare = _bare(name)
    found, waiting = {bare}, [bare]
    while waiting:
        one = waiting.pop()
        for suffix in ("", "_reverse"):
            other = _mapped(home, f"{one}{suffix}") if home and one else None
            if other and other not in found:
                found.add(other)
                waiting.append(other)
    return min(found, key=lambda one: (len(one), one)), len(found) > 1


def _bare(name: str) -> str:
    return ADDRESS.sub("", name.strip()).replace("+", "")


def _mapped(home: Path, name: str) -> str | None:
    if re.search(r"[/\\\0]|\.\.", name):  # a name from outside must not choose the file
        return None
    try:
        file = home / "whatsapp" / "session" / f"lid-mapping-{name}.json"
        value = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError):
        return None
    return _bare(str(value)) if isinstance(value, str) or type(value) is int else None

