"""Stores filled row by row, for tests that need a particular family of sessions."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

T = 1_772_355_600.0  # 2026-03-01T09:00:00Z


def fill(path: Path, sessions: list[dict[str, Any]], messages: list[tuple[Any, ...]] = ()) -> Path:  # type: ignore[assignment]
    """Replace what a store holds. A session is a dictionary of columns (source cli and a start
    unless given); a message (session_id, role, content, time, and perhaps more columns as a
    dictionary).
    """
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("DELETE FROM messages")
        if db.execute("SELECT 1 FROM sqlite_master WHERE name = 'session_model_usage'").fetchone():
            db.execute("DELETE FROM session_model_usage")
        db.execute("DELETE FROM sessions")
        for number, given in enumerate(sessions):
            insert(db, "sessions", {"source": "cli", "started_at": T + number, **given})
        for session_id, role, content, time, *more in messages:
            row = {"session_id": session_id, "role": role, "content": content, "timestamp": time}
            insert(db, "messages", {**row, **(more[0] if more else {})})
    return path


def insert(db: sqlite3.Connection, table: str, row: dict[str, Any]) -> None:
    """One row."""
    marks = ", ".join("?" * len(row))
    db.execute(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({marks})", list(row.values()))


def chain(*ids: str, start: float = T) -> list[dict[str, Any]]:
    """A compression chain, root to tip."""
    rows = []
    for number, one in enumerate(ids):
        ended = {"ended_at": start + number * 100 + 50, "end_reason": "compression"}
        rows.append(
            {"id": one, "started_at": start + number * 100,
             "parent_session_id": ids[number - 1] if number else None,
             **(ended if number < len(ids) - 1 else {})}
        )  # fmt: skip
    return rows
