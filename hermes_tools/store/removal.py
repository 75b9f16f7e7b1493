"""Removing conversations: rows in the one order that leaves no orphan, and files beside the store.

Order (store-facts 2.2): messages, with their triggers while the owner is still there, then what
other tables hold, then children are detached or go along, then the sessions, then prompts that
nobody uses any more. All of a conversation goes in one transaction.
"""

import os
import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hermes_tools.store import inuse, routing
from hermes_tools.store.batches import Moment, Outcome
from hermes_tools.store.db import Database, chunks, marks, transaction
from hermes_tools.store.errors import Busy, Damaged
from hermes_tools.store.exporting import Exporter, quoted
from hermes_tools.store.lineage import Lineage
from hermes_tools.store.sessions import Conversation, size

# Keys of state_meta that end in a session's id and are about it alone. Receipts and tombstones
# stay: they keep what was deleted from coming back.
META = ("goal:", "loop:", "gateway.local_policy.v1:")
# Tables that must outlive a session although they may name one: a generation that is counted
# again would let an old cache speak for a new conversation.
KEPT = frozenset({"sessions", "messages", "conversation_generations", "async_delegations"})


@dataclass(frozen=True)
class Doomed:
    """A conversation (or one row of it) as it was when its end was decided.

    rows: its chain, then its delegates. weigh: messages and bytes of text in them. print_: what
    changes whenever they do, cheap to ask again; digest: what they say (exporting.digest).
    """

    one: Conversation
    rows: list[str]
    messages: int
    bytes: int
    print_: tuple[Any, ...]
    digest: str | None = None
    segment: bool = False


def doom(db: Database, one: Conversation, lineage: Lineage, *, segment: bool = False) -> Doomed:
    """Look a conversation over before it goes; without its digest (`sealed`)."""
    rows = [one.id] if segment else lineage.members(one.id)
    count = sum(_count(db, row)[0] for row in rows)
    return Doomed(
        one, rows, count, sum(size(db, row) for row in rows), fingerprint(db, rows),
        segment=segment,
    )  # fmt: skip


def sealed(db: Database, doomed: Doomed, digest: str | None = None) -> Doomed:
    """The same as it is now, with its digest; where that is not given, everything the
    conversation holds is read for it.
    """
    if not all(exists(db, row) for row in doomed.rows):
        return doomed  # gone meanwhile; `changed` will tell
    digest = digest or Exporter(db).digest(doomed.rows)
    return replace(doomed, print_=fingerprint(db, doomed.rows), digest=digest)


def exists(db: Database, session_id: str) -> bool:
    """Whether there is such a row."""
    return bool(db.execute("SELECT 1 FROM sessions WHERE id = ?", (session_id,)).fetchone())


def _count(db: Database, session_id: str) -> tuple[int, int | None]:
    found = db.execute(
        "SELECT count(*), max(id) FROM messages WHERE session_id = ?", (session_id,)
    ).fetchone()
    return found[0], found[1]


def fingerprint(db: Database, rows: list[str]) -> tuple[Any, ...]:
    """The session rows, and number and newest id of their messages."""
    select = f"SELECT {quoted(db.schema.tables['sessions'])} FROM sessions WHERE id = ?"
    return tuple(
        (
            tuple(db.execute(select, (row,)).fetchone() or ()),
            _count(db, row),
        )
        for row in rows
    )


def changed(now: Moment, doomed: Doomed) -> bool:
    """Whether a conversation is not what it was when its end was decided."""
    db, one = now.reader.db, doomed.one
    if not exists(db, one.id):
        return True
    rows = [one.id] if doomed.segment else now.reader.lineage.members(one.id)
    return rows != doomed.rows or fingerprint(db, rows) != doomed.print_


def clear(db: Database, rows: list[str]) -> int:
    """Remove the messages of these sessions and keep the sessions; how many messages went."""
    gone = _messages(db, rows)
    for chunk in chunks(rows):
        db.execute(
            "UPDATE sessions SET message_count = 0, tool_call_count = 0 "
            f"WHERE id IN ({marks(chunk)})", chunk
        )  # fmt: skip
    return gone


def remove(db: Database, rows: list[str]) -> list[str]:
    """Remove these sessions with all that belongs to them; the ids of children that were detached.
    Call it in a transaction.
    """
    prompts = _prompts(db, rows)
    _messages(db, rows)
    for table in side_tables(db):
        for chunk in chunks(rows):
            db.execute(
                f"DELETE FROM {quoted([table])} WHERE session_id IN ({marks(chunk)})", chunk
            )
    if db.schema.has("state_meta", "key"):
        for chunk in chunks(kind + row for row in rows for kind in META):
            db.execute(f"DELETE FROM state_meta WHERE key IN ({marks(chunk)})", chunk)
    detached = _detach(db, rows)
    for chunk in chunks(rows):
        db.execute(f"DELETE FROM sessions WHERE id IN ({marks(chunk)})", chunk)
    _collect(db, prompts)
    return detached


def _messages(db: Database, rows: list[str]) -> int:
    """By ascending id, in as few statements as can be: FTS5 writes its pending terms out at each
    statement's end and at each step back.
    """
    gone = 0
    for chunk in chunks(rows):
        gone += db.execute(
            "DELETE FROM messages WHERE id IN "
            f"(SELECT id FROM messages WHERE session_id IN ({marks(chunk)}))", chunk
        ).rowcount  # fmt: skip
    return gone


def side_tables(db: Database) -> list[str]:
    """Tables with rows about single sessions: usage, topic bindings, compression locks, and those
    of later releases that name their session the same way.
    """
    return [
        table for table, names in db.schema.tables.items()
        if "session_id" in names and table not in KEPT
    ]  # fmt: skip


def _detach(db: Database, rows: list[str]) -> list[str]:
    """Parents that go are parents no more; which children stay behind."""
    if not db.schema.has("sessions", "parent_session_id"):
        return []
    own, left = set(rows), []
    for chunk in chunks(rows):
        which = f"parent_session_id IN ({marks(chunk)})"
        left += [row[0] for row in db.execute(f"SELECT id FROM sessions WHERE {which}", chunk)]
        db.execute(f"UPDATE sessions SET parent_session_id = NULL WHERE {which}", chunk)
    return sorted(set(left) - own)


def _prompts(db: Database, rows: list[str]) -> list[str]:
    """The shared texts these sessions use, by either column that names one."""
    if not db.schema.has("system_prompts", "hash"):
        return []
    names = _hash_columns(db)
    return sorted(
        {
            value
            for chunk in chunks(rows)
            for row in db.execute(
                f"SELECT {', '.join(names)} FROM sessions WHERE id IN ({marks(chunk)})", chunk
            )
            for value in row
            if isinstance(value, str)
        }
        if names
        else ()
    )


def _hash_columns(db: Database) -> list[str]:
    return [
        name for name in ("system_prompt_hash", "tool_names") if db.schema.has("sessions", name)
    ]


def _collect(db: Database, prompts: list[str]) -> None:
    used = " OR ".join(f"{name} = system_prompts.hash" for name in _hash_columns(db))
    for chunk in chunks(prompts):
        db.execute(
            f"DELETE FROM system_prompts WHERE hash IN ({marks(chunk)}) "
            f"AND NOT EXISTS (SELECT 1 FROM sessions WHERE {used})", chunk
        )  # fmt: skip


def unroute(db: Database, home: Path, rows: Iterable[str]) -> tuple[list[str], bool]:
    """Take these sessions out of the routing: (the session keys that led to them, whether they
    are out). While a gateway runs nothing is taken out: it would write its own copy over ours,
    and drops by itself what leads nowhere. Call it in the transaction that removes the sessions.
    """
    gone = set(rows)
    keys = {
        key for name, found in inuse.routes(db, home).items() if name in gone for key in found
    }
    if not keys or inuse.gateway(home, db) is not None:
        return sorted(keys), not keys
    routing.forget(db, gone)
    return sorted(keys), True


def unroute_file(db: Database, home: Path, rows: Iterable[str]) -> None:
    """The same for sessions/sessions.json, the mirror; everything else in it stays as it is."""
    # What cannot be written stays: the gateway drops what leads nowhere.
    with suppress(OSError, Busy, Damaged), transaction(db):
        if inuse.gateway(home, db) is None:
            routing.mirror(home, routing.leading(home, rows))


DUMP = re.compile(r"\d{8}_\d{6}(?:_\d+)?\.json")


def files(home: Path, session_id: str) -> list[Path]:
    """The files in home/sessions that hold this session's transcript, by exact name: an id is
    somebody's text and is never a pattern or a path.
    """
    folder = home / "sessions"
    if not session_id or "/" in session_id or "\0" in session_id:
        return []
    names = {f"session_{session_id}.json", f"{session_id}.jsonl"}
    if not session_id.startswith(("session_", "request_dump_")) and session_id != "sessions":
        names.add(f"{session_id}.json")
    dump = f"request_dump_{session_id}_"
    try:
        with os.scandir(folder) as found:
            return sorted(
                folder / entry.name for entry in found
                if (entry.name in names or (
                    entry.name.startswith(dump) and DUMP.fullmatch(entry.name[len(dump):])))
                and not entry.is_dir(follow_symlinks=False)
            )  # fmt: skip
    except OSError:
        return []


def remains(db: Database, home: Path, rows: Iterable[str]) -> list[str]:
    """Where traces of these sessions are still to be found or may be: files whose name or text
    has their id, copies of the store, and what the agent keeps of delegations.
    """
    ids = [row.encode("utf-8", "surrogateescape") for row in rows]
    found = []
    for folder, below, names in os.walk(home):
        below[:] = [name for name in below if name != "profiles"]
        for name in names:
            path = Path(folder, name)
            mine = path.name.startswith(db.path.name) and path.parent == db.path.parent
            if mine and name[len(db.path.name) :] in ("", "-wal", "-shm"):
                continue
            if ".db" in name and ("state" in name or mine):
                found.append(f"{path} (a copy of the store?)")
            elif any(one.decode("utf-8", "replace") in name for one in ids) or _mentions(path, ids):
                found.append(str(path))
    columns = [
        name for name in ("origin_session", "parent_session_id", "origin_session_id")
        if db.schema.has("async_delegations", name)
    ]  # fmt: skip
    if columns:
        which = " OR ".join(f"{name} = ?" for name in columns)
        count = sum(
            db.execute(
                f"SELECT count(*) FROM async_delegations WHERE {which}", [row] * len(columns)
            ).fetchone()[0]
            for row in rows
        )
        if count:
            found.append(f"async_delegations ({count} rows)")
    return sorted(found)


def _mentions(path: Path, ids: list[bytes]) -> bool:
    """Whether a file's text has one of these ids."""
    longest, rest = max(map(len, ids), default=1), b""
    try:
        if not path.is_file() or path.is_symlink():
            return False
        with open(path, "rb") as file:
            while block := file.read(1 << 20):
                block = rest + block
                if any(one in block for one in ids):
                    return True
                rest = block[-longest:]
    except OSError:
        return False
    return False


@dataclass(frozen=True)
class Removal:
    """How conversations are removed: called with each inside a transaction (store.batches), then
    `finish` after its commit. spare: a caller's own reasons to leave one alone, asked inside.
    """

    home: Path
    live: bool = False
    messages_only: bool = False
    files: bool = False
    dry_run: bool = False
    spare: Callable[[Moment, Doomed], str | None] = lambda now, doomed: None

    def __call__(self, now: Moment, doomed: Doomed) -> Outcome:
        db, one, rows = now.reader.db, doomed.one, doomed.rows
        reason = None
        if changed(now, doomed):
            reason = "changed"
        elif not self.live:
            # A turn is leased by the root of its chain, which a segment need not hold.
            root = now.reader.lineage.root(one.id) if doomed.segment else one.id
            held = rows if root in rows else [root, *rows]
            reason = now.use.reason(db, held, one.last_active)
        reason = reason or self.spare(now, doomed)
        if reason is not None:
            return Outcome(one, "skipped", reason, self.told(doomed))
        more = self.told(doomed)
        if self.messages_only:
            if not self.dry_run:
                clear(db, rows)
                one.message_count = one.tool_call_count = 0
            return Outcome(one, "would_clear" if self.dry_run else "cleared", None, more)
        if self.dry_run:
            return Outcome(one, "would_delete", None, more)
        keys, out = unroute(db, self.home, rows)
        if keys:
            more["routing"] = keys
            if not out:
                more["routing_left"] = True
        detached = remove(db, rows)
        if detached:
            more["detached"] = detached
        return Outcome(one, "deleted", None, more)

    def told(self, doomed: Doomed) -> dict[str, Any]:
        """What a record says of a conversation that goes."""
        return {
            "session_ids": doomed.rows, "messages": doomed.messages, "bytes": doomed.bytes,
            "digest": doomed.digest,
        }  # fmt: skip

    def finish(self, db: Database, outcome: Outcome) -> Outcome:
        """After the commit: routing file and transcript files of what was removed."""
        rows = outcome.more.get("session_ids", [])
        if outcome.action == "deleted":
            if "routing" in outcome.more and "routing_left" not in outcome.more:
                unroute_file(db, self.home, rows)
            found = [path for row in rows for path in files(self.home, row)]
            gone = [path for path in found if self.files and _unlink(path)]
            if gone:
                outcome.more["files"] = [str(path) for path in gone]
            left = [str(path) for path in found if path not in gone]
            if left:
                outcome.more["files_left"] = left
        return outcome


def _unlink(path: Path) -> bool:
    try:
        path.unlink(missing_ok=True)
    except OSError:
        return False  # the rows are gone already; the record says that this one is left
    return True
