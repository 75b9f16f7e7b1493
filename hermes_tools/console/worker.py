"""One handoff carried out: thread, the agent's turn, delivery, route."""

import re
import shlex
import sqlite3
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from hermes_tools.console import shell, streams, text
from hermes_tools.console.delivery import Courier, Place
from hermes_tools.console.streams import Record
from hermes_tools.store import handoff, keys
from hermes_tools.store.db import Database, transaction
from hermes_tools.store.errors import Failed, StoreError
from hermes_tools.store.handoff import Handoff
from hermes_tools.store.platforms import Platforms
from hermes_tools.store.sessions import Reader

AGENT = "hermes chat -Q --resume {session_id} -q {prompt}"
PROMPT = (
    "[This conversation was handed off to {platform} a moment ago and goes on there.] "
    "Say in a sentence or two that you are here now, and sum up where we stand and what comes next."
)
# What the agent's command line says beside its answer.
CHATTER = re.compile(r"^\s*(?:session_id|Session ID):\s*\S+\s*$", re.M)


@dataclass(frozen=True)
class Worker:
    """How handoffs are carried out: the agent's command (with {session_id} and {prompt}), a
    command that delivers in place of ours, and how long each may take, in seconds.
    """

    db: Database
    home: Path
    agent: str = AGENT
    deliver: str | None = None
    agent_timeout: float = 600.0
    timeout: float = 120.0

    def recover(self) -> Iterator[Record]:
        """Bring handoffs to an end whose worker died: what was delivered is completed, the rest
        failed, so that it can be asked for again.
        """
        for one in handoff.abandoned(self.db):
            sent = one.notes.get("origin")
            if one.notes.get("step") == "delivered" and isinstance(sent, dict):
                yield self.finish(one, sent)
                continue
            step = one.notes.get("step") or "it began"
            error = f"{handoff.DIED} ({step})"
            if handoff.fail(self.db, one.session_id, error):
                streams.warn(f"session {one.session_id}: {error}")
                yield self.record(one, "failed", error=error)

    def pending(self) -> list[Handoff]:
        """What waits to be carried out, oldest first."""
        return list(handoff.listed(self.db, ("pending",)))

    def carry(self, one: Handoff) -> Record | None:
        """Claim a handoff and carry it out; None where another worker was quicker. Whatever goes
        wrong, the handoff is failed with the reason.
        """
        if not handoff.claim(self.db, one.session_id, {"worker": handoff.oneself()}):
            return None
        courier: Courier | None = None
        try:
            platforms = Platforms(self.home)
            courier = Courier(platforms)
            channel = platforms.require(one.platform or "")
            title = self.title(one)
            if self.deliver is None:
                place = courier.open(channel, title)
                self.note(one, "thread opened")
                reply = self.ask(one)
                self.note(one, "answered")
                courier.send(place, reply, title)
            else:
                reply = self.ask(one)
                self.note(one, "answered")
                request = {
                    "session_id": one.session_id, "platform": channel.platform,
                    "chat_id": channel.chat_id, "thread_id": channel.thread_id,
                    "chat_name": channel.name, "title": title, "text": reply,
                }  # fmt: skip
                said = self.run(self.deliver, request, self.timeout, "delivery").split()
                place = Place(channel, said[-1] if said else None)
            with transaction(self.db):
                handoff.note(
                    self.db, one.session_id, {"step": "delivered", "origin": place.origin}
                )
            return self.finish(one, place.origin, place)
        except (StoreError, OSError, sqlite3.Error) as error:
            reason = str(error) or type(error).__name__
            reason = courier.redact(reason) if courier else " ".join(reason.split())
            streams.warn(f"session {one.session_id}: {reason}")
            handoff.fail(self.db, one.session_id, reason)
            state = handoff.get(self.db, one.session_id).state or "none"
            return self.record(one, state, error=reason)
        except BaseException:  # told to stop: nothing is left behind as if it went on
            handoff.fail(self.db, one.session_id, "the worker was stopped")
            raise

    def finish(self, one: Handoff, origin: Record, place: Place | None = None) -> Record:
        """Mark a delivered handoff, and route its chat."""
        platforms = Platforms(self.home)
        key, _ = keys.session_key(
            keys.source({"origin": origin}), keys.rules(platforms.config), self.home
        )
        done, bound = handoff.finish(self.db, self.home, one.session_id, origin, key)
        if not done:
            streams.warn(f"session {one.session_id}: its handoff was changed by somebody else")
            return self.record(one, handoff.get(self.db, one.session_id).state or "none")
        if not bound:
            streams.complain(
                f"session {one.session_id}: a gateway runs now, so {key} was not bound to it"
            )
        if place is not None and place.remark:
            streams.complain(f"session {one.session_id}: no thread: {place.remark}")
        record = self.record(one, "completed", error=None)
        record.update(
            chat_id=origin.get("chat_id"), thread_id=origin.get("thread_id"), session_key=key,
            bound=bound,
        )  # fmt: skip
        return record

    def title(self, one: Handoff) -> str:
        """The name of the thread."""
        row = Reader(self.db).conversation(one.session_id, segment=True, preview=False)
        return f"Hermes — {text.line(row.title) if row.title else one.session_id[:8]}"

    def note(self, one: Handoff, step: str) -> None:
        """Write down how far it is, for those who find it abandoned."""
        with transaction(self.db):
            handoff.note(self.db, one.session_id, {"step": step})

    def ask(self, one: Handoff) -> str:
        """The agent's answer to a turn in this session. Raises Failed."""
        prompt = PROMPT.format(platform=text.line(one.platform))
        command = self.agent.replace("{session_id}", shlex.quote(one.session_id)).replace(
            "{prompt}", shlex.quote(prompt)
        )
        request = {"session_id": one.session_id, "platform": one.platform, "prompt": prompt}
        before = handoff.last_message(self.db)
        said = text.safe(self.run(command, request, self.agent_timeout, "agent"))
        # The agent writes notices around its answer; what it stored is the answer itself.
        words = " ".join(said.split())
        for answer in map(text.safe, handoff.answers(self.db, before)):
            if answer and " ".join(answer.split()) in words:
                return answer
        reply = CHATTER.sub("", said).strip()
        if not reply:
            raise Failed("agent: it gave no answer")
        return reply

    def run(self, command: str, record: Record, timeout: float, what: str) -> str:
        """A command's output; what it is made of does not show in the error. Raises Failed."""
        try:
            return shell.call(command, record, timeout, {"HERMES_HOME": str(self.home)})
        except Failed as error:
            raise Failed(f"{what}: {str(error).replace(command, '').rstrip(': ')}") from None

    def record(self, one: Handoff, state: str, error: str | None = None) -> Record:
        """The record of a handoff that was carried out, or not."""
        return {
            "session_id": one.session_id, "state": state, "platform": one.platform,
            "error": error, "seconds": round(time.time() - (one.since or time.time()), 1)
            if one.exact else None,
        }  # fmt: skip
