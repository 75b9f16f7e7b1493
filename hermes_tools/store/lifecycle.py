"""What state a conversation is in: archived or not, ended or open."""

from hermes_tools.store.db import Database, chunks, marks
from hermes_tools.store.errors import Unsupported, Usage
from hermes_tools.store.lineage import RESETS

# Reasons that say how rows hang together; ending by hand must not forge one (store-facts 3.4).
LINKING = frozenset({"compression", "branched", "orphaned_compression"})
CLOSED = "closed"  # outside the reset set: no new conversation begins under the same key


def require_archive(db: Database) -> None:
    """Raises Unsupported where the store cannot hide sessions."""
    if not db.schema.has("sessions", "archived"):
        raise Unsupported(
            f"{db.path}: sessions have no column `archived`; "
            "a store gets it when release 0.16 or later of the agent opens it"
        )


def archive(db: Database, rows: list[str], *, undo: bool = False, dry_run: bool = False) -> int:
    """Hide these rows, or bring them back; how many change. Titles stay.

    What the agent hid by itself (auto_archived) counts as hidden by the user from then on.
    """
    own = ", auto_archived = 0" if db.schema.has("sessions", "auto_archived") else ""
    other, changed = int(undo), 0
    for chunk in chunks(rows):
        which = f"WHERE id IN ({marks(chunk)}) AND COALESCE(archived, 0) = ?"
        if dry_run:
            count = f"SELECT count(*) FROM sessions {which}"
            changed += db.execute(count, (*chunk, other)).fetchone()[0]
        else:
            update = f"UPDATE sessions SET archived = {1 - other}{own} {which}"
            changed += db.execute(update, (*chunk, other)).rowcount
    return changed


def check_reason(reason: str) -> str:
    """An end reason that may be set by hand. Raises Usage."""
    if not reason.strip() or not reason.isprintable() or len(reason) > 100:
        raise Usage("--reason: one word or a few, please")
    if reason in LINKING:
        raise Usage(f"--reason {reason}: this one links sessions; only the agent sets it")
    return reason


def end(
    db: Database, rows: list[str], reason: str, now: float, *, dry_run: bool = False
) -> int:  # fmt: skip
    """End those of these rows that are open; how many. The first reason wins: an ended row keeps
    its own. A reset reason starts a new generation of the chat, where the store counts them.
    """
    open_rows = [
        row[0]
        for chunk in chunks(rows)
        for row in db.execute(
            f"SELECT id FROM sessions WHERE id IN ({marks(chunk)}) AND ended_at IS NULL", chunk
        )
    ]
    if dry_run:
        return len(open_rows)
    for row in open_rows:
        db.execute(
            "UPDATE sessions SET ended_at = ?, end_reason = COALESCE(end_reason, ?) WHERE id = ?",
            (now, reason, row),
        )
        if reason in RESETS:
            _next_generation(db, row)
    return len(open_rows)


def _next_generation(db: Database, session_id: str) -> None:
    if not (
        db.schema.has("conversation_generations", "source", "session_key", "generation")
        and db.schema.has("sessions", "session_key")
    ):
        return
    db.execute(
        "INSERT INTO conversation_generations (source, session_key, generation) "
        "SELECT source, session_key, 1 FROM sessions WHERE id = ? AND session_key <> '' "
        "ON CONFLICT (source, session_key) DO UPDATE SET generation = generation + 1",
        (session_id,),
    )


def reopen(db: Database, session_id: str) -> int:
    """Clear time and reason of one row's end; 1 if it had one."""
    return db.execute(
        "UPDATE sessions SET ended_at = NULL, end_reason = NULL "
        "WHERE id = ? AND (ended_at IS NOT NULL OR end_reason IS NOT NULL)",
        (session_id,),
    ).rowcount


def handed_off(db: Database, session_id: str) -> bool:
    """Whether this session was handed to another platform: the one it came from must not end it
    (field case 132).
    """
    return db.schema.has("sessions", "handoff_state") and bool(
        db.execute(
            "SELECT 1 FROM sessions WHERE id = ? AND handoff_state = 'completed'", (session_id,)
        ).fetchone()
    )
