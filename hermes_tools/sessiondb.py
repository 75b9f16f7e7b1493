"""The documented Python interface to a store, for programs written for the agent's own.

`SessionDB` has the methods, arguments, defaults, results and errors of the agent's
`hermes_state.SessionDB` at schema 11 (release 0.13), and `search` and `tool_schema` besides::

    from hermes_tools import SessionDB

    db = SessionDB()                                  # $HERMES_HOME/state.db
    db.create_session("20260301_120000_abc123", "cli", model="some-model")
    db.append_message("20260301_120000_abc123", "user", "good morning")
    db.get_messages_as_conversation("20260301_120000_abc123")
    # [{'role': 'user', 'content': 'good morning'}]
    db.close()

Times are Unix seconds. Rows are dictionaries of every column the store has. What SQLite refuses
is a `sqlite3.OperationalError`, `IntegrityError` or `DatabaseError`, as the agent's callers
expect; a store that is busy for 15 tries is an OperationalError "database is locked".
"""

import random
import re
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from copy import deepcopy
from pathlib import Path
from typing import Any, TypeVar

from hermes_tools.store import (
    classic,
    errors,
    home,
    lifecycle,
    opening,
    schema,
    tool,
    writing,
)
from hermes_tools.store.db import JITTER, Database, code, transaction

Row = dict[str, Any]
T = TypeVar("T")

TRIES = 15
BATCH = 0.1  # seconds of a lock that removes many sessions; then others get their turn
DAY = 86400.0

# As release 0.13 cleans a title; the scripts are stricter (store/titles.py).
CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
INVISIBLE = re.compile(r"[\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufffc\ufff9-\ufffb]")

OF_KIND: dict[type[errors.StoreError], type[Exception]] = {
    errors.Damaged: sqlite3.DatabaseError,
    errors.Usage: ValueError,
    errors.Negative: ValueError,
}


@contextmanager
def plain_errors() -> Iterator[None]:
    """Our errors as those that callers of the agent's class know."""
    try:
        yield
    except errors.StoreError as error:
        if isinstance(error.__cause__, sqlite3.Error) and isinstance(error, errors.Busy):
            raise error.__cause__ from None
        kind = next((to for of, to in OF_KIND.items() if isinstance(error, of)), None)
        raise (kind or sqlite3.OperationalError)(str(error)) from error


class SessionDB:
    """One store, for any number of threads: they take turns on one connection.

    Opening creates the store where there is none (0600, missing folders 0700), and brings one
    older than version 11 up to it; stores of later releases are taken as they are. Each write is
    one BEGIN IMMEDIATE: 1 s for the lock, 15 tries with pauses of 20 to 150 ms; after every 50th
    there is a passive checkpoint. Use it as a context manager, or call `close`.
    """

    MAX_TITLE_LENGTH = 100

    def __init__(self, db_path: Path | None = None) -> None:
        """Open `db_path`, by default `state.db` in $HERMES_HOME, else in ~/.hermes.

        Raises sqlite3.OperationalError (not permitted, a folder, locked) and
        sqlite3.DatabaseError (no database).

        >>> db = SessionDB(db_path=Path("/srv/archive/state.db"))
        """
        self.db_path = Path(db_path) if db_path is not None else home.home() / "state.db"
        self._lock = threading.RLock()
        self._db: Database | None = None
        self._seen = 0  # PRAGMA schema_version when the schema was read
        self._refused: dict[bool, errors.Unsupported] = {}
        self._retried(self._open)

    def __enter__(self) -> "SessionDB":
        return self

    def __exit__(self, *ignored: object) -> None:
        self.close()

    def close(self) -> None:
        """Checkpoint what is in the log, without waiting for readers, and close. Any later call
        but another `close` raises sqlite3.ProgrammingError.
        """
        with self._lock:
            if self._db is not None:
                with suppress(sqlite3.Error):
                    self._db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
                self._db.close()
                self._db = None

    # How every call reaches the store.

    def _open(self) -> None:
        self._db = opening.live_in(self.db_path)

    def _current(self) -> Database:
        """The connection; its picture of the schema is taken anew when another process, a newer
        agent, has changed it.
        """
        if self._db is None:
            raise sqlite3.ProgrammingError("this SessionDB is closed")
        version = self._db.execute("PRAGMA schema_version").fetchone()[0]
        if version != self._seen:
            self._db.__dict__.pop("schema", None)
            self._seen, self._refused = version, {}
            for messages in (False, True):
                try:
                    schema.probe(self._db, messages=messages)
                except errors.Unsupported as error:  # reading goes on; a write says why not
                    self._refused[messages] = error
        return self._db

    def _read(self, ask: Callable[..., T], *arguments: Any, **options: Any) -> T:
        with self._lock, plain_errors():
            return ask(self._current(), *arguments, **options)

    def _write(self, change: Callable[..., T], *arguments: Any, **options: Any) -> T:
        """Change rows of sessions."""
        return self._retried(lambda: self._once(False, change, *arguments, **options))

    def _write_messages(self, change: Callable[..., T], *arguments: Any, **options: Any) -> T:
        """Change messages too, and with them the indexes, which must be writable here."""
        return self._retried(lambda: self._once(True, change, *arguments, **options))

    def _once(self, messages: bool, change: Callable[..., T], *arguments: Any, **options: Any) -> T:
        db = self._current()
        if messages in self._refused:
            raise self._refused[messages]
        with transaction(db):
            return change(db, *arguments, **options)

    def _retried(self, attempt: Callable[[], T]) -> T:
        """Try until no other process is in the way; between tries other threads may go ahead."""
        for left in reversed(range(TRIES)):
            try:
                with self._lock, plain_errors():
                    return attempt()
            except sqlite3.OperationalError as error:
                if code(error) not in (5, 6) or not left:
                    raise
            time.sleep(random.uniform(*JITTER))
        raise AssertionError

    # Sessions.

    def create_session(self, session_id: str, source: str, **kwargs: Any) -> str:
        """Begin a session now; its id. One that exists is left as it is.

        Options: model, model_config (a dictionary), system_prompt, user_id, parent_session_id.
        Raises sqlite3.IntegrityError for a parent that does not exist, TypeError for any other
        option.

        >>> db.create_session("20260301_120000_abc123", "cli", model="some-model")
        '20260301_120000_abc123'
        """
        self._write(writing.create, session_id, source, **kwargs)
        return session_id

    def ensure_session(
        self, session_id: str, source: str = "unknown", model: str | None = None, **kwargs: Any
    ) -> str:
        """Begin a session unless it exists; its id. Options as for `create_session`.

        >>> db.ensure_session("20260301_120000_abc123")
        '20260301_120000_abc123'
        """
        self._write(writing.create, session_id, source, model=model, **kwargs)
        return session_id

    def end_session(self, session_id: str, end_reason: str) -> None:
        """End an open session now. The first reason stands; an unknown id is no error.

        >>> db.end_session("20260301_120000_abc123", "user_exit")
        """
        self._write(lifecycle.end, [session_id], end_reason, time.time())

    def reopen_session(self, session_id: str) -> None:
        """Clear a session's end and its reason, so that it can be resumed.

        >>> db.reopen_session("20260301_120000_abc123")
        """
        self._write(lifecycle.reopen, session_id)

    def get_session(self, session_id: str) -> Row | None:
        """Every column of a session, or None.

        >>> db.get_session("20260301_120000_abc123")["source"]
        'cli'
        """
        return self._read(classic.session, session_id)

    def resolve_session_id(self, session_id_or_prefix: str) -> str | None:
        """The whole id for an id or for the start of exactly one; else None.

        >>> db.resolve_session_id("20260301_12")
        '20260301_120000_abc123'
        """
        return self._read(classic.resolve, session_id_or_prefix)

    def update_system_prompt(self, session_id: str, system_prompt: str) -> None:
        """Store the system prompt a session runs with.

        >>> db.update_system_prompt("20260301_120000_abc123", "You are brief.")
        """
        self._write(writing.set_prompt, session_id, system_prompt)

    def update_token_counts(
        self, session_id: str, input_tokens: int = 0, output_tokens: int = 0,
        model: str | None = None, cache_read_tokens: int = 0, cache_write_tokens: int = 0,
        reasoning_tokens: int = 0, estimated_cost_usd: float | None = None,
        actual_cost_usd: float | None = None, cost_status: str | None = None,
        cost_source: str | None = None, pricing_version: str | None = None,
        billing_provider: str | None = None, billing_base_url: str | None = None,
        billing_mode: str | None = None, api_call_count: int = 0, absolute: bool = False,
    ) -> None:  # fmt: skip
        """Add to a session's tokens, calls and cost (US dollars); `absolute` sets them instead.
        Model and billing keep the first value told, the cost's status, source and version the
        last. A session that does not exist is begun with source `unknown`.

        >>> db.update_token_counts("20260301_120000_abc123", 1200, 80, estimated_cost_usd=0.004)
        """
        counts = {
            "input_tokens": input_tokens, "output_tokens": output_tokens,
            "cache_read_tokens": cache_read_tokens, "cache_write_tokens": cache_write_tokens,
            "reasoning_tokens": reasoning_tokens, "api_call_count": api_call_count,
        }  # fmt: skip
        notes = {
            "cost_status": cost_status, "cost_source": cost_source,
            "pricing_version": pricing_version, "billing_provider": billing_provider,
            "billing_base_url": billing_base_url, "billing_mode": billing_mode,
        }  # fmt: skip

        def change(db: Database) -> None:
            writing.create(db, session_id, "unknown", model=model)
            writing.add_usage(
                db, session_id, counts, notes, model=model, estimated=estimated_cost_usd,
                actual=actual_cost_usd, absolute=absolute,
            )  # fmt: skip

        self._write(change)

    # Messages.

    def append_message(
        self, session_id: str, role: str, content: Any = None, tool_name: str | None = None,
        tool_calls: Any = None, tool_call_id: str | None = None, token_count: int | None = None,
        finish_reason: str | None = None, reasoning: str | None = None,
        reasoning_content: str | None = None, reasoning_details: Any = None,
        codex_reasoning_items: Any = None, codex_message_items: Any = None,
    ) -> int:  # fmt: skip
        """Add a message at the end of a session, with the time it is now; the message's id.

        content: text, or a list or dictionary for multimodal content. The session's
        message_count and tool_call_count follow. Raises sqlite3.IntegrityError for a session
        that does not exist.

        >>> db.append_message("20260301_120000_abc123", "assistant", "And to you.")
        2
        """
        message = {
            "content": content, "tool_name": tool_name, "tool_calls": tool_calls,
            "tool_call_id": tool_call_id, "token_count": token_count,
            "finish_reason": finish_reason, "reasoning": reasoning,
            "reasoning_content": reasoning_content, "reasoning_details": reasoning_details,
            "codex_reasoning_items": codex_reasoning_items,
            "codex_message_items": codex_message_items,
        }  # fmt: skip
        values = writing.encoded(message)
        return self._write_messages(
            writing.append, session_id, role, values, writing.calls(tool_calls)
        )

    def replace_messages(self, session_id: str, messages: list[Row]) -> None:
        """Put a new transcript in place of the stored one, whole or not at all. Messages are
        dictionaries with the keys of `append_message`; their times are given anew.

        >>> db.replace_messages("20260301_120000_abc123", [{"role": "user", "content": "hi"}])
        """
        self._write_messages(writing.replace, session_id, messages)

    def get_messages(self, session_id: str) -> list[Row]:
        """The messages of a session in order, every column, content and tool_calls decoded; the
        other JSON columns stay text.

        >>> [one["role"] for one in db.get_messages("20260301_120000_abc123")]
        ['user']
        """
        return self._read(classic.transcript, session_id)

    def get_messages_as_conversation(
        self, session_id: str, include_ancestors: bool = False
    ) -> list[Row]:
        """The messages as a model is given them: role, content, and tool_call_id, tool_name,
        tool_calls, for an assistant finish_reason and reasoning too, where they are not empty.
        include_ancestors: those of its parents before them; what a user repeated is left out.

        >>> db.get_messages_as_conversation("20260301_120000_abc123")
        [{'role': 'user', 'content': 'good morning'}]
        """

        def ask(db: Database) -> list[Row]:
            ids = classic.ancestors(db, session_id) if include_ancestors else [session_id]
            return classic.replay(db, ids, once=include_ancestors)

        return self._read(ask)

    def clear_messages(self, session_id: str) -> None:
        """Remove every message of a session and set its counters to 0.

        >>> db.clear_messages("20260301_120000_abc123")
        """
        self._write_messages(writing.clear, session_id)

    # Titles and lineage.

    @staticmethod
    def sanitize_title(title: str | None) -> str | None:
        """A title as it is stored: without control and invisible characters, single spaces, None
        if nothing is left. Raises ValueError above 100 characters.

        >>> SessionDB.sanitize_title("  garden\\n plan ")
        'garden plan'
        """
        if not title:
            return None
        cleaned = INVISIBLE.sub("", CONTROLS.sub("", title))
        cleaned = " ".join(cleaned.split())
        if len(cleaned) > SessionDB.MAX_TITLE_LENGTH:
            raise ValueError(
                f"a title of {len(cleaned)} characters; at most {SessionDB.MAX_TITLE_LENGTH}"
            )
        return cleaned or None

    def set_session_title(self, session_id: str, title: str) -> bool:
        """Name a session, or with a blank title take its name away; False for an unknown id.
        Raises ValueError where another session has that title, or it is too long.

        >>> db.set_session_title("20260301_120000_abc123", "garden plan")
        True
        """
        return self._write(writing.set_title, session_id, self.sanitize_title(title))

    def get_session_title(self, session_id: str) -> str | None:
        """The title of a session, None without one.

        >>> db.get_session_title("20260301_120000_abc123")
        'garden plan'
        """
        found = self.get_session(session_id)
        return found["title"] if found else None

    def get_session_by_title(self, title: str) -> Row | None:
        """The session with exactly this title, every column, or None.

        >>> db.get_session_by_title("garden plan")["id"]
        '20260301_120000_abc123'
        """
        return self._read(classic.by_title, title)

    def resolve_session_by_title(self, title: str) -> str | None:
        """The id of the newest `title #N`, else of the session with exactly this title, or None.

        >>> db.resolve_session_by_title("garden plan")
        '20260301_120000_abc123'
        """
        return self._read(classic.newest_titled, title)

    def get_next_title_in_lineage(self, base_title: str) -> str:
        """The next free title of a line: the title itself, `title #2`, `title #3` …

        >>> db.get_next_title_in_lineage("garden plan")
        'garden plan #2'
        """
        return self._read(classic.next_title, base_title)

    def get_compression_tip(self, session_id: str) -> str | None:
        """The session in which a compressed one goes on; itself where it was not compressed.

        >>> db.get_compression_tip("20260301_120000_abc123")
        '20260301_120000_abc123'
        """
        return self._read(classic.tip, session_id)

    def resolve_resume_session_id(self, session_id: str) -> str:
        """The session to resume: itself, or if it is empty the nearest child with messages.

        >>> db.resolve_resume_session_id("20260301_120000_abc123")
        '20260301_120000_abc123'
        """
        return self._read(classic.resumed, session_id)

    # Lists, counts, search.

    def list_sessions_rich(
        self, source: str | None = None, exclude_sources: list[str] | None = None,
        limit: int = 20, offset: int = 0, include_children: bool = False,
        project_compression_tips: bool = True, order_by_last_active: bool = False,
    ) -> list[Row]:  # fmt: skip
        """Sessions, newest start first, each with `last_active` and `preview` (60 characters).
        A compressed one shows as its tip, with `_lineage_root_id`; children are left out unless
        asked for. order_by_last_active: by the newest activity of the whole conversation.

        >>> db.list_sessions_rich(source="cli", limit=5)[0]["preview"]
        'good morning'
        """
        return self._read(
            classic.listed, source=source, not_sources=exclude_sources, limit=limit,
            offset=offset, children=include_children, project=project_compression_tips,
            by_activity=order_by_last_active,
        )  # fmt: skip

    def search_sessions(
        self, source: str | None = None, limit: int = 20, offset: int = 0
    ) -> list[Row]:
        """Sessions of every kind, the last active first, each with `last_active`.

        >>> db.search_sessions(limit=1)[0]["id"]
        '20260301_120000_abc123'
        """
        return self._read(classic.recent, source, limit, offset)

    def search_messages(
        self, query: str, source_filter: list[str] | None = None,
        exclude_sources: list[str] | None = None, role_filter: list[str] | None = None,
        limit: int = 20, offset: int = 0,
    ) -> list[Row]:  # fmt: skip
        """Messages that match, best first: id, session_id, role, snippet (`>>>hit<<<`),
        timestamp, tool_name, source, model, session_started, and context: the message before,
        the hit, the one after, 200 characters each. A query that FTS5 cannot read finds
        nothing. `search` has the rules of the scripts instead.

        >>> db.search_messages("morning")[0]["snippet"]
        'good >>>morning<<<  '
        """
        if not query or not query.strip():
            return []
        return self._read(
            classic.search, query, sources=source_filter, not_sources=exclude_sources,
            roles=role_filter, limit=limit, offset=offset,
        )  # fmt: skip

    def search(
        self, query: str | None = None, session_id: str | None = None,
        around_message_id: int | None = None, window: int = 5, limit: int = 3,
        sort: str | None = None, role_filter: str | list[str] | None = None,
        current_session_id: str | None = None,
    ) -> Row:  # fmt: skip
        """The session-search tool, by the rules of hermes-session-search, in three forms:

        query: {"success", "mode": "discover", "query", "results", "count", "sessions_searched"};
        results are discovery records of hermes-session-jsonl(5), at most `limit` (1 to 10).
        session_id and around_message_id: {"success", "mode": "scroll", "session_id",
        "around_message_id", "session_meta", "window", "messages", "messages_before",
        "messages_after"}, `window` (1 to 20) messages on each side; with "warning" where the
        message is in another session of the conversation. Neither: {"success", "mode": "browse",
        "results", "count", "message"}, the newest conversations as session records.

        sort: relevance, newest or oldest. role_filter: `user,assistant` or a list. The
        conversation of current_session_id is left out; archived and internal ones are too. Texts
        of messages are cut at 4,000 characters. What cannot be answered is {"success": False,
        "error": why}, for a model to read, never an exception.

        >>> found = db.search("morning")
        >>> found["results"][0]["snippet"], found["results"][0]["match_message_id"]
        ('good >>>morning<<<', 1)
        >>> db.search(session_id="20260301_120000_abc123", around_message_id=1)["messages_after"]
        0
        >>> db.search()["mode"]
        'browse'
        """
        return self._read(
            tool.answer, query, session_id, around_message_id, window=window, limit=limit,
            sort=sort, role_filter=role_filter, current_session_id=current_session_id,
        )  # fmt: skip

    @staticmethod
    def tool_schema() -> Row:
        """How to describe `search` to a model: name, description and a JSON Schema of its
        parameters. current_session_id is left to the caller.

        >>> SessionDB.tool_schema()["name"]
        'session_search'
        """
        return deepcopy(tool.SCHEMA)

    def session_count(self, source: str | None = None) -> int:
        """How many sessions there are, of one source or of all.

        >>> db.session_count("cli")
        1
        """
        return self._read(classic.session_count, source)

    def message_count(self, session_id: str | None = None) -> int:
        """How many messages there are, of one session or of all.

        >>> db.message_count()
        1
        """
        return self._read(classic.message_count, session_id)

    # Export, removal, upkeep.

    def export_session(self, session_id: str) -> Row | None:
        """A session with its `messages` (as of `get_messages`), or None.

        >>> len(db.export_session("20260301_120000_abc123")["messages"])
        1
        """

        def ask(db: Database) -> Row | None:
            row = classic.session(db, session_id)
            return classic.export(db, row) if row else None

        return self._read(ask)

    def export_all(self, source: str | None = None) -> list[Row]:
        """Every session (of one source), the last active first, with `last_active` and
        `messages`. All of it in memory: for a large store use hermes-session-export.

        >>> [one["id"] for one in db.export_all()]
        ['20260301_120000_abc123']
        """

        def ask(db: Database) -> list[Row]:
            return [classic.export(db, row) for row in classic.recent(db, source, classic.PAGE, 0)]

        return self._read(ask)

    def delete_session(self, session_id: str, sessions_dir: Path | None = None) -> bool:
        """Remove a session and its messages; False for an unknown id. Children become roots.
        sessions_dir: its transcript files there go too.

        >>> db.delete_session("20260301_120000_abc123")
        True
        """

        def change(db: Database) -> bool:
            found = classic.session(db, session_id) is not None
            if found:
                writing.remove(db, [session_id])
            return found

        found = self._write_messages(change)
        if found:
            remove_files(sessions_dir, session_id)
        return found

    def prune_sessions(
        self, older_than_days: int = 90, source: str | None = None,
        sessions_dir: Path | None = None,
    ) -> int:  # fmt: skip
        """Remove ended sessions that **started** longer ago than this (of one source); how many.
        hermes-session-prune goes by last activity instead. Large removals are done in short
        transactions, each session whole or not at all.

        >>> db.prune_sessions(older_than_days=365)
        0
        """
        cutoff = time.time() - older_than_days * DAY
        return self._remove(self._read(writing.prunable, cutoff, source), sessions_dir)

    def _remove(self, session_ids: list[str], sessions_dir: Path | None) -> int:
        def change(db: Database, ids: list[str]) -> int:
            start, done = time.monotonic(), 0
            while done < len(ids) and (not done or time.monotonic() - start < BATCH):
                writing.remove(db, ids[done : done + 1])
                done += 1
            return done

        left = session_ids
        while left:
            done = self._write_messages(change, left)
            for session_id in left[:done]:
                remove_files(sessions_dir, session_id)
            left = left[done:]
        return len(session_ids)

    def prune_empty_ghost_sessions(self, sessions_dir: Path | None = None) -> int:
        """Remove ended, untitled sessions of source `tui` without a message that started more
        than a day ago; how many.

        >>> db.prune_empty_ghost_sessions()
        0
        """
        return self._remove(self._read(writing.ghosts), sessions_dir)

    def finalize_orphaned_compression_sessions(self) -> int:
        """End continuations a week old in which the model was never called, with the reason
        `orphaned_compression`; how many.

        >>> db.finalize_orphaned_compression_sessions()
        0
        """
        return self._write(writing.close_orphans)

    def get_meta(self, key: str) -> str | None:
        """A fact the agent keeps about the store itself, or None.

        >>> db.get_meta("last_auto_prune")
        """
        return self._read(writing.get_meta, key)

    def set_meta(self, key: str, value: str) -> None:
        """Set such a fact.

        >>> db.set_meta("example", "1")
        """
        self._write(writing.set_meta, key, value)

    def vacuum(self) -> None:
        """Give free pages back to the file system. Needs the store alone for as long as it takes,
        and twice its size on disk; raises sqlite3.OperationalError while others read or write.

        >>> db.vacuum()
        """

        def once() -> None:
            db = self._current()
            db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
            db.execute("VACUUM")

        with self._lock, plain_errors():
            once()

    def maybe_auto_prune_and_vacuum(
        self, retention_days: int = 90, min_interval_hours: int = 24, vacuum: bool = True,
        sessions_dir: Path | None = None,
    ) -> Row:  # fmt: skip
        """Prune, and vacuum if anything went, unless that was done within min_interval_hours.
        Never raises: {"skipped": bool, "pruned": int, "vacuumed": bool}, with "error" if it
        failed.

        >>> db.maybe_auto_prune_and_vacuum(retention_days=90)
        {'skipped': False, 'pruned': 0, 'vacuumed': False}
        """
        result: Row = {"skipped": False, "pruned": 0, "vacuumed": False}
        try:
            now = time.time()
            try:
                last = float(self.get_meta("last_auto_prune") or "")
            except ValueError:
                last = float("-inf")
            if now - last < min_interval_hours * 3600:
                return {**result, "skipped": True}
            result["pruned"] = self.prune_sessions(retention_days, sessions_dir=sessions_dir)
            if vacuum and result["pruned"]:
                with suppress(sqlite3.Error):  # somebody reads: the space is reused anyway
                    self.vacuum()
                    result["vacuumed"] = True
            self.set_meta("last_auto_prune", str(now))
        except Exception as error:
            result["error"] = str(error)
        return result

    # Handoffs.

    def request_handoff(self, session_id: str, platform: str) -> bool:
        """Ask the gateway to take a session over; False while one is under way, or for an
        unknown id.

        >>> db.request_handoff("20260301_120000_abc123", "telegram")
        True
        """
        return self._write(writing.request_handoff, session_id, platform)

    def get_handoff_state(self, session_id: str) -> Row | None:
        """{"state", "platform", "error"} of a session, or None for an unknown id. States: None,
        pending, running, completed, failed.

        >>> db.request_handoff("20260301_120000_abc123", "telegram")
        True
        >>> db.get_handoff_state("20260301_120000_abc123")["state"]
        'pending'
        """
        found = self.get_session(session_id)
        if found is None:
            return None
        return {name: found[f"handoff_{name}"] for name in ("state", "platform", "error")}

    def list_pending_handoffs(self) -> list[Row]:
        """Sessions that wait to be taken over, the oldest start first, every column.

        >>> db.list_pending_handoffs()
        []
        """
        return self._read(classic.pending_handoffs)

    def claim_handoff(self, session_id: str) -> bool:
        """Take a pending handoff; True for exactly one of those who try.

        >>> db.claim_handoff("20260301_120000_abc123")
        False
        """
        return self._write(writing.claim_handoff, session_id)

    def complete_handoff(self, session_id: str) -> None:
        """Mark a handoff as done, whatever its state.

        >>> db.complete_handoff("20260301_120000_abc123")
        """
        self._write(writing.set_handoff, session_id, "completed", None)

    def fail_handoff(self, session_id: str, error: str) -> None:
        """Mark a handoff as failed, whatever its state, with the first 500 characters of why.

        >>> db.fail_handoff("20260301_120000_abc123", "no home channel")
        """
        self._write(writing.set_handoff, session_id, "failed", error[:500])


def remove_files(sessions_dir: Path | None, session_id: str) -> None:
    """Remove the transcripts and request dumps of a session that is gone (store-facts 2.6). An
    id that is no plain file name has none; what cannot be removed stays.
    """
    if sessions_dir is None or "/" in session_id or session_id in ("", ".", ".."):
        return
    import glob

    folder = Path(sessions_dir)
    files = [folder / f"{session_id}.json", folder / f"{session_id}.jsonl"]
    with suppress(OSError, ValueError):
        files += folder.glob(f"request_dump_{glob.escape(session_id)}_*.json")
    for file in files:
        with suppress(OSError, ValueError):
            file.unlink()
