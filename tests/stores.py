"""Stores built by hand, after what is known of each schema (releases before 0.13 and after 0.19).

Each holds the same conversations, as far as it has the columns for them: rows that need a column
(archived, rewound, hidden …) are left out of a store that lacks it, so that one question has one
answer everywhere. `condition` says what a writer must not have spoiled.
"""

import hashlib
import json
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

Row = dict[str, Any]

NAMES = (
    *(f"v{number}" for number in range(1, 11)),
    *("head-0", "head-1", "head-2", "head-3"),
    *("head-pending", "head-stale", "head-cjk", "nofts", "v99", "delete"),
)

T = 1772355600.0  # 2026-03-01T09:00:00Z; whole numbers keep the records readable
HOUR, DAY = 3600.0, 86400.0

ROOT = "20260301_090000_c0a001"
MIDDLE = "20260301_100000_c0a002"
TIP = "20260301_110000_c0a003"
BRANCH = "20260301_120000_b0b001"
DELEGATE = "20260301_113000_de1e01"
CRON = "cron_7_20260302_040000"
CJK = "20260303_080000_cafe0001"
RUSSIAN = "20260304_080000_babe01"
EMOJI = "20260305_080000_face0001"
TOOLS = "20260306_080000_700150"
PICTURES = "20260307_080000_1ace01"
UNDONE = "20260308_080000_0bd0e1"
ARCHIVED = "20260309_080000_a5c41f"
PINNED = "20260310_080000_b1bbed"
HIDDEN = "20260311_080000_41dde1"
GHOST = "20260312_080000_6405f1"
MILLISECONDS = "20260313_080000_111150"
NOTIME = "20260314_080000_bada55"

NUL_JSON = "\x00json:"
PROMPT = "You are Hermes. Answer briefly."
PARTS = [
    {"type": "text", "text": "Was ist auf dem Bild, ein Dachstuhl?"},
    {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}},
]
CALLS = [
    {"id": "call_1", "type": "function",
     "function": {"name": "terminal", "arguments": '{"command": "kubectl get pods"}'}},
]  # fmt: skip
# Longer than the 8192 characters a newer index takes of a tool's answer; a word on each side.
LONG = "shallowword " + "pod web-1 Running\n" * 700 + " deepword"


def conversations() -> tuple[list[Row], list[Row]]:
    """(sessions, messages). `_needs` names the columns without which a row is left out."""
    sessions: list[Row] = []
    messages: list[Row] = []

    def session(id: str, at: Any, *, source: str = "cli", **more: Any) -> None:
        sessions.append(
            {"id": id, "source": source, "started_at": at, "model": "hermes-4-70b",
             "system_prompt": PROMPT, "message_count": 0, "tool_call_count": 0, **more}
        )  # fmt: skip

    def say(role: str, content: str | None, **more: Any) -> None:
        owner = sessions[-1]
        at = owner["started_at"]
        count = sum(message["session_id"] == owner["id"] for message in messages)
        row = {"session_id": owner["id"], "role": role, "content": content,
               "timestamp": at + 10 * count if isinstance(at, float) else at, **more}  # fmt: skip
        messages.append(row)
        if row.get("active", 1):
            owner["message_count"] += 1
            owner["tool_call_count"] += len(json.loads(row.get("tool_calls") or "[]"))

    usage = {"input_tokens": 100, "output_tokens": 50, "reasoning_tokens": 30,
             "cache_read_tokens": 10, "cache_write_tokens": 5, "estimated_cost_usd": 0.25,
             "billing_provider": "openrouter", "api_call_count": 2}  # fmt: skip
    session(ROOT, T, title="roof repair", ended_at=T + HOUR, end_reason="compression", **usage)
    say("user", "The roof leaks above the kitchen, where do I start?")
    say("assistant", "Look for a broken tile first.", finish_reason="stop",
        reasoning="Leaks travel along beams.", token_count=7)  # fmt: skip
    session(MIDDLE, T + HOUR, title="roof repair #2", parent_session_id=ROOT,
            ended_at=T + 2 * HOUR, end_reason="compression", **usage)  # fmt: skip
    say("user", "Found it: two slates are cracked.")
    say("assistant", "Slates need copper nails.")
    session(TIP, T + 2 * HOUR, title="roof repair #3", parent_session_id=MIDDLE, cwd="/home/u")
    say("user", "How many copper nails for forty slates?")
    say("assistant", "Eighty, two for each slate.")
    session(BRANCH, T + 3 * HOUR, title="roof repair, in tin", parent_session_id=MIDDLE,
            model_config=json.dumps({"_branched_from": MIDDLE}))  # fmt: skip
    say("user", "And what would a tin roof cost?")
    say("assistant", "Half of slate, and it is louder in the rain.")
    session(DELEGATE, T + 2.5 * HOUR, source="subagent", parent_session_id=TIP,
            ended_at=T + 2.6 * HOUR, end_reason="completed",
            model_config=json.dumps({"_delegate_from": TIP}))  # fmt: skip
    say("user", "Compare nail prices, zinkwort.")
    say("assistant", "Copper: 9 a box.")
    session(CRON, T + 19 * HOUR, source="cron", ended_at=T + 19 * HOUR + 60,
            end_reason="cron_complete")  # fmt: skip
    say("user", "Nightly backup report, please.")
    say("assistant", "The backup took 41 s. 备份任务完成。")
    session(CJK, T + 2 * DAY, source="telegram", title="备份计划", user_id="42")
    say("user", "请检查nginx服务")
    say("assistant", "今天的备份任务失败了需要重跑")
    say("user", "バックアップを再実行してください")
    say("assistant", "백업을 다시 실행했습니다. 버전v2배포완료")
    session(RUSSIAN, T + 3 * DAY, source="telegram", title="новая лампочка", user_id="42")
    say("user", "купили новую лампочку")
    say("assistant", "Ёлка тоже светится? Naïve café.")
    session(EMOJI, T + 4 * DAY, source="discord", title="release 🚀 100%_done", user_id="7",
            ended_at=T + 4 * DAY + HOUR, end_reason="idle")  # fmt: skip
    say("user", "release 🚀 done")
    say("assistant", "👩‍👩‍👧 family release, O'Brien; DROP TABLE notes; --")
    session(TOOLS, T + 5 * DAY, title="pods", ended_at=T + 5 * DAY + HOUR, end_reason="user_exit")
    say("user", "Which pods run? worker job_id7 died")
    say("assistant", None, tool_calls=json.dumps(CALLS), finish_reason="tool_calls")
    say("tool", LONG, tool_call_id="call_1", tool_name="terminal")
    say("assistant", "All of them.", api_content="All of them. secretmemory")
    session(PICTURES, T + 6 * DAY, source="telegram", title="Bilder")
    say("user", NUL_JSON + json.dumps(PARTS))
    say("assistant", "Ja, ein Dachstuhl.")
    say("user", NUL_JSON + "{broken")
    session(UNDONE, T + 7 * DAY, title="second thoughts")
    say("user", "What is a good name for a goat?")
    say("assistant", "Gertrude.")
    rewound = {"active": 0, "compacted": 0, "_needs": ("active",)}
    say("user", "undoneword, forget it", **rewound)
    say("assistant", "Forgotten: undoneword.", **rewound)
    say("user", "foldedword was said early on", active=0, compacted=1, _needs=("compacted",))
    say("user", "overheardword", observed=1, _needs=("observed",))
    say("user", "scaffoldword", display_kind="hidden", _needs=("display_kind",))
    say("user", "[CONTEXT COMPACTION] carrierword", _compressed_summary=1,
        _needs=("_compressed_summary",))  # fmt: skip
    session(ARCHIVED, T + 8 * DAY, title="put away", archived=1, ended_at=T + 8 * DAY + HOUR,
            end_reason="user_exit", _needs=("archived",))  # fmt: skip
    say("user", "An old matter, atticword.")
    session(PINNED, T + 9 * DAY, title="pinned note", pinned=1, ended_at=T + 9 * DAY + HOUR,
            end_reason="user_exit", _needs=("pinned",))  # fmt: skip
    say("user", "The door code is written down, pinnedword.")
    session(HIDDEN, T + 10 * DAY, source="telegram", hidden=1, _needs=("hidden",))
    say("user", "concealedword")
    session(GHOST, T + 11 * DAY, source="tui", model=None, system_prompt=None)
    session(MILLISECONDS, (T + 12 * DAY) * 1000, title="milliseconds")
    say("user", "A clock that counts too fast.")
    session(NOTIME, "no time at all", title="no time")
    say("user", "When was this?")
    return sessions, messages


# --- Columns ---

SESSIONS_1 = """
    id TEXT PRIMARY KEY, source TEXT NOT NULL, user_id TEXT, model TEXT, model_config TEXT,
    system_prompt TEXT, parent_session_id TEXT, started_at REAL NOT NULL, ended_at REAL,
    end_reason TEXT, message_count INTEGER DEFAULT 0, tool_call_count INTEGER DEFAULT 0,
    input_tokens INTEGER DEFAULT 0, output_tokens INTEGER DEFAULT 0,
    FOREIGN KEY (parent_session_id) REFERENCES sessions(id)
"""
MESSAGES_1 = """
    id INTEGER PRIMARY KEY AUTOINCREMENT, session_id TEXT NOT NULL REFERENCES sessions(id),
    role TEXT NOT NULL, content TEXT, tool_call_id TEXT, tool_calls TEXT, tool_name TEXT,
    timestamp REAL NOT NULL, token_count INTEGER
"""
COUNTER = "INTEGER DEFAULT 0"
FLAG = "INTEGER NOT NULL DEFAULT 0"
# version → (table, column, declaration): what the documented history added, step by step.
EARLY: dict[int, list[tuple[str, str, str]]] = {
    2: [("messages", "finish_reason", "TEXT")],
    3: [("sessions", "title", "TEXT")],
    5: [
        ("sessions", "cache_read_tokens", COUNTER), ("sessions", "cache_write_tokens", COUNTER),
        ("sessions", "reasoning_tokens", COUNTER), ("sessions", "billing_provider", "TEXT"),
        ("sessions", "billing_base_url", "TEXT"), ("sessions", "billing_mode", "TEXT"),
        ("sessions", "estimated_cost_usd", "REAL"), ("sessions", "actual_cost_usd", "REAL"),
        ("sessions", "cost_status", "TEXT"), ("sessions", "cost_source", "TEXT"),
        ("sessions", "pricing_version", "TEXT"),
    ],
    6: [
        ("messages", "reasoning", "TEXT"), ("messages", "reasoning_details", "TEXT"),
        ("messages", "codex_reasoning_items", "TEXT"),
    ],
    7: [("messages", "reasoning_content", "TEXT")],
    8: [("sessions", "api_call_count", COUNTER)],
    9: [("messages", "codex_message_items", "TEXT")],
}  # fmt: skip
# What releases after the documented history added to both tables, up to schema 31.
LATER: list[tuple[str, str, str]] = [
    *(("sessions", f"handoff_{name}", "TEXT") for name in ("state", "platform", "error")),
    ("messages", "platform_message_id", "TEXT"), ("messages", "observed", COUNTER),
    ("sessions", "cwd", "TEXT"), ("sessions", "rewind_count", FLAG), ("sessions", "archived", FLAG),
    ("messages", "active", "INTEGER NOT NULL DEFAULT 1"),
    *(("sessions", name, "TEXT") for name in (
        "session_key", "chat_id", "chat_type", "thread_id", "git_branch", "git_repo_root")),
    ("sessions", "compression_failure_cooldown_until", "REAL"),
    ("sessions", "compression_failure_error", "TEXT"), ("messages", "compacted", FLAG),
    ("sessions", "display_name", "TEXT"), ("sessions", "origin_json", "TEXT"),
    ("sessions", "expiry_finalized", COUNTER), ("sessions", "profile_name", "TEXT"),
    ("sessions", "compression_fallback_streak", FLAG), ("messages", "effect_disposition", "TEXT"),
    ("messages", "api_content", "TEXT"), ("sessions", "created_source", "TEXT"),
    ("sessions", "system_prompt_hash", "TEXT REFERENCES system_prompts(hash)"),
    ("sessions", "git_metadata_generation", FLAG), ("sessions", "title_source", "TEXT"),
    ("sessions", "last_activity_at", "REAL"), ("sessions", "last_activity_description", "TEXT"),
    ("sessions", "last_activity_provenance", "TEXT"),
    ("sessions", "compression_ineffective_count", FLAG),
    ("sessions", "compression_recovery_deadline", "REAL"),
    ("sessions", "compression_overload_streak", FLAG), ("sessions", "transport_profile", "TEXT"),
    ("sessions", "pinned", FLAG), ("sessions", "hidden", FLAG),
    ("sessions", "last_read_at", "REAL"), ("sessions", "tool_names", "TEXT"),
    ("sessions", "auto_archived", FLAG),
    ("messages", "_compressed_summary", FLAG), ("messages", "display_kind", "TEXT"),
    ("messages", "display_metadata", "TEXT"), ("messages", "display_identity", "BLOB"),
    ("messages", "display_order", "INTEGER"),
    *(("messages", name, "TEXT") for name in (
        "message_uid", "absorbed_message_uids", "tool_call_uids", "tool_call_uid")),
]  # fmt: skip

SIDE_TABLES = """
CREATE TABLE compression_locks (
    session_id TEXT PRIMARY KEY, holder TEXT NOT NULL, acquired_at REAL NOT NULL,
    expires_at REAL NOT NULL);
CREATE TABLE gateway_routing (
    scope TEXT NOT NULL DEFAULT '', session_key TEXT NOT NULL, entry_json TEXT NOT NULL,
    updated_at REAL NOT NULL, PRIMARY KEY (scope, session_key));
CREATE TABLE session_model_usage (
    session_id TEXT NOT NULL REFERENCES sessions(id) ON DELETE CASCADE, model TEXT NOT NULL,
    billing_provider TEXT NOT NULL DEFAULT '', billing_base_url TEXT NOT NULL DEFAULT '',
    billing_mode TEXT NOT NULL DEFAULT '', task TEXT NOT NULL DEFAULT '',
    api_call_count INTEGER NOT NULL DEFAULT 0, input_tokens INTEGER NOT NULL DEFAULT 0,
    output_tokens INTEGER NOT NULL DEFAULT 0, cache_read_tokens INTEGER NOT NULL DEFAULT 0,
    cache_write_tokens INTEGER NOT NULL DEFAULT 0, reasoning_tokens INTEGER NOT NULL DEFAULT 0,
    estimated_cost_usd REAL NOT NULL DEFAULT 0, actual_cost_usd REAL NOT NULL DEFAULT 0,
    cost_status TEXT, cost_source TEXT, first_seen REAL, last_seen REAL,
    PRIMARY KEY (session_id, model, billing_provider, billing_base_url, billing_mode, task));
CREATE TABLE async_delegations (
    delegation_id TEXT PRIMARY KEY, origin_session TEXT NOT NULL,
    origin_ui_session_id TEXT NOT NULL DEFAULT '', parent_session_id TEXT, state TEXT NOT NULL,
    dispatched_at REAL NOT NULL, completed_at REAL, updated_at REAL NOT NULL, event_json TEXT,
    result_json TEXT, delivery_state TEXT NOT NULL DEFAULT 'pending',
    delivery_attempts INTEGER NOT NULL DEFAULT 0, delivered_at REAL, owner_pid INTEGER,
    owner_started_at INTEGER, task_json TEXT, delivery_claim TEXT, delivery_claimed_at REAL,
    origin_session_id TEXT NOT NULL DEFAULT '');
CREATE TABLE system_prompts (hash TEXT PRIMARY KEY, prompt TEXT NOT NULL);
CREATE TABLE gateway_hygiene_state (
    session_key TEXT PRIMARY KEY, failure_streak INTEGER NOT NULL DEFAULT 0);
CREATE TABLE conversation_generations (
    source TEXT NOT NULL, session_key TEXT NOT NULL, generation INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (source, session_key));
CREATE TABLE gateway_heartbeats (
    backend_id TEXT PRIMARY KEY, pid INTEGER, started_at REAL, last_heartbeat REAL, profile TEXT,
    host TEXT);
CREATE TABLE session_turn_leases (
    conversation_id TEXT PRIMARY KEY, holder TEXT NOT NULL, acquired_at REAL NOT NULL,
    expires_at REAL NOT NULL);
CREATE INDEX idx_messages_session_id ON messages(session_id, id);
CREATE INDEX idx_messages_session_active ON messages(session_id, active, timestamp);
CREATE INDEX idx_messages_session_uid ON messages(session_id, message_uid);
CREATE INDEX idx_sessions_system_prompt_hash ON sessions(system_prompt_hash);
CREATE INDEX idx_sessions_tool_names ON sessions(tool_names);
CREATE INDEX idx_sessions_effective_activity ON sessions(COALESCE(last_activity_at, started_at));
CREATE TRIGGER messages_message_uid_insert AFTER INSERT ON messages WHEN new.message_uid IS NULL
BEGIN UPDATE messages SET message_uid = lower(hex(randomblob(16))) WHERE id = new.id; END;
CREATE TRIGGER messages_display_order_insert AFTER INSERT ON messages
WHEN new.display_order IS NULL
BEGIN UPDATE messages SET display_order = new.id WHERE id = new.id; END;
CREATE TRIGGER messages_display_visibility_update AFTER UPDATE OF active, compacted ON messages
WHEN new.display_order IS NULL
BEGIN UPDATE messages SET display_order = new.id WHERE id = new.id; END;
CREATE TRIGGER messages_display_identity_update
AFTER UPDATE OF role, content, timestamp, tool_call_id, tool_calls, tool_name, display_kind
ON messages WHEN old.content IS NOT new.content OR old.role IS NOT new.role
BEGIN
    UPDATE messages SET display_identity = NULL, display_order = NULL WHERE id = new.id;
END;
CREATE TRIGGER messages_display_identity_delete AFTER DELETE ON messages
WHEN old.display_identity IS NOT NULL
BEGIN
    UPDATE messages SET display_order = NULL
    WHERE session_id = old.session_id AND display_identity = old.display_identity;
END;
"""

INDEXES = """
CREATE INDEX idx_sessions_source ON sessions(source);
CREATE INDEX idx_sessions_parent ON sessions(parent_session_id);
CREATE INDEX idx_sessions_started ON sessions(started_at DESC);
CREATE INDEX idx_messages_session ON messages(session_id, timestamp);
"""
TITLES = "CREATE UNIQUE INDEX idx_sessions_title_unique ON sessions(title) WHERE title IS NOT NULL"


# --- Indexes of words ---


def external(table: str, source: str, columns: str, extra: str = "") -> str:
    """An external-content FTS table."""
    return (
        f"CREATE VIRTUAL TABLE {table} USING fts5({columns}, content='{source}', "
        f"content_rowid='id'{extra});"
    )


def triggers(
    table: str, values: dict[str, str], *, gate: str = "1", also: str = "1", inline: bool = False,
    every_update: bool = False,
) -> str:  # fmt: skip
    """Insert, delete and update triggers of an index. values: column → SQL over ROW; gate and
    also: conditions over ROW, the second tested for the old and the new row of an update apart.
    """
    columns = ", ".join(values)

    def over(row: str, sql: str) -> str:
        return sql.replace("ROW", row)

    def text(row: str) -> str:
        return ", ".join(over(row, sql) for sql in values.values())

    insert = (
        f"INSERT INTO {table}(rowid, {columns}) SELECT new.id, {text('new')} "
        f"WHERE {over('new', also)};"
    )
    delete = (
        f"DELETE FROM {table} WHERE rowid = old.id;"
        if inline
        else f"INSERT INTO {table}({table}, rowid, {columns}) SELECT 'delete', old.id, "
        f"{text('old')} WHERE {over('old', also)};"
    )
    watched = [
        name for name in ("content", "tool_name", "tool_calls", "role")
        if name == "role" or any(f"ROW.{name}" in sql for sql in values.values())
    ]  # fmt: skip
    changed = " OR ".join(f"old.{name} IS NOT new.{name}" for name in watched)
    when = f"({over('new', gate)}) AND ({changed})"
    columns_of = "" if every_update else f" OF {', '.join(watched)}"
    return f"""
CREATE TRIGGER {table}_insert AFTER INSERT ON messages WHEN {over("new", gate)}
BEGIN {insert} END;
CREATE TRIGGER {table}_delete AFTER DELETE ON messages WHEN {over("old", gate)}
BEGIN {delete} END;
CREATE TRIGGER {table}_update AFTER UPDATE{columns_of} ON messages
WHEN {"1" if every_update else when}
BEGIN {delete} {insert} END;
"""


def gate(prefix: str) -> str:
    """While an index is being rebuilt, a row counts as indexed iff id ≤ P or id > H."""

    def meta(key: str) -> str:
        return f"(SELECT CAST(value AS INTEGER) FROM state_meta WHERE key = '{prefix}_{key}')"

    high, done = meta("rebuild_high_water"), meta("rebuild_progress")
    return f"({high} IS NULL OR ROW.id <= COALESCE({done}, 0) OR ROW.id > {high})"


CUT = "CASE WHEN ROW.role = 'tool' THEN substr(ROW.content, 1, 8192) ELSE ROW.content END"
JOINED = "COALESCE(ROW.content, '') || ' ' || COALESCE(ROW.tool_name, '') || ' ' || " \
         "COALESCE(ROW.tool_calls, '')"  # fmt: skip
JOINED_CUT = JOINED.replace("COALESCE(ROW.content, '')", f"COALESCE({CUT}, '')")
OWNER = """EXISTS (SELECT 1 FROM sessions s WHERE s.id = ROW.session_id
    AND s.source NOT IN ('cron', 'subagent')
    AND CASE WHEN json_valid(s.model_config)
        THEN json_extract(s.model_config, '$._delegate_from') END IS NULL)"""
THREE = {"content": "ROW.content", "tool_name": "ROW.tool_name", "tool_calls": "ROW.tool_calls"}


def view(name: str, values: dict[str, str], where: str = "1") -> str:
    """The view an external-content table reads."""
    columns = ", ".join(f"{sql} AS {column}" for column, sql in values.items())
    sql = f"CREATE VIEW {name} AS SELECT ROW.id AS id, {columns} FROM messages ROW WHERE {where};"
    return sql.replace("ROW", "m")


def words_before_11() -> str:
    """One column, external content, 'delete' commands; every update reindexes."""
    table = external("messages_fts", "messages", "content")
    return table + triggers("messages_fts", {"content": "ROW.content"}, every_update=True)


def words_of_layout(layout: int) -> str:
    """Both indexes of a store that schema 31 works on."""
    if layout == 0:
        return (
            "CREATE VIRTUAL TABLE messages_fts USING fts5(content);"
            "CREATE VIRTUAL TABLE messages_fts_trigram USING fts5(content, tokenize='trigram');"
            + triggers("messages_fts", {"content": JOINED_CUT}, inline=True)
            + triggers("messages_fts_trigram", {"content": JOINED_CUT}, inline=True)
        )
    notool = "ROW.role <> 'tool'"
    two = {"content": "ROW.content", "tool_name": "ROW.tool_name"}
    words, grams = {**THREE}, THREE if layout == 1 else two
    source, qualifies = "messages", notool
    if layout >= 2:
        words["content"] = CUT
    if layout == 3:
        source, qualifies = "messages_fts_src", f"{notool} AND {OWNER}"
    return (
        (view("messages_fts_src", words) if layout == 3 else "")
        + view("messages_fts_trigram_src", grams, qualifies)
        + external("messages_fts", source, ", ".join(words))
        + external("messages_fts_trigram", "messages_fts_trigram_src", ", ".join(grams),
                   ", tokenize='trigram'")
        + triggers("messages_fts", words, gate=gate("fts"))
        + triggers("messages_fts_trigram", grams, gate=gate("fts"), also=qualifies)
        + f"INSERT INTO state_meta VALUES ('fts_storage_version', '{layout}');"
    )  # fmt: skip


def words_cjk() -> str:
    """The optional index; its tokenizer is renamed to one that nobody has afterwards."""
    return (
        view("messages_fts_cjk_src", THREE, "ROW.role <> 'tool'")
        + external("messages_fts_cjk", "messages_fts_cjk_src", ", ".join(THREE),
                   ", tokenize='unicode61'")
        + triggers("messages_fts_cjk", THREE, gate=gate("fts_cjk"), also="ROW.role <> 'tool'")
    )  # fmt: skip


# --- Builders ---


def build(name: str, path: Path) -> None:
    """Build the store of that name (NAMES)."""
    options: dict[str, dict[str, Any]] = {
        **{f"head-{layout}": {"layout": layout} for layout in range(4)},
        "head-pending": {"pending": True}, "head-stale": {"stale": True}, "head-cjk": {"cjk": True},
        "nofts": {"layout": None}, "v99": {"future": True}, "delete": {"journal": "delete"},
    }  # fmt: skip
    if name in options:
        head(path, **options[name])
    elif name in NAMES:
        early(path, int(name[1:]))
    else:
        raise KeyError(f"no store {name!r}; there are {', '.join(NAMES)}")


def early(path: Path, version: int) -> None:
    """A store of version 1 … 10 that no newer release has opened."""
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA journal_mode = wal")
        db.execute("PRAGMA synchronous = off")
        db.executescript(
            "CREATE TABLE schema_version (version INTEGER NOT NULL);"
            f"INSERT INTO schema_version VALUES ({version});"
            f"CREATE TABLE sessions ({SESSIONS_1}); CREATE TABLE messages ({MESSAGES_1});"
            + INDEXES + words_before_11()
        )  # fmt: skip
        for step in range(2, version + 1):
            for table, column, declaration in EARLY.get(step, []):
                db.execute(f"ALTER TABLE {table} ADD COLUMN {column} {declaration}")
        if version >= 4:
            db.execute(TITLES)
        if version >= 9:
            db.execute("CREATE TABLE state_meta (key TEXT PRIMARY KEY, value TEXT)")
        if version >= 10:
            grams = {"content": "ROW.content"}
            db.executescript(
                external("messages_fts_trigram", "messages", "content", ", tokenize='trigram'")
                + triggers("messages_fts_trigram", grams, every_update=True)
            )
        fill(db)


def head(
    path: Path, layout: int | None = 3, *, pending: bool = False, stale: bool = False,
    cjk: bool = False, future: bool = False, journal: str = "wal", empty: bool = False,
) -> None:  # fmt: skip
    """A store of schema 31 with one of the four index layouts (None: no index at all).

    empty: without the conversations;
    pending: an index rebuild is under way; stale: both indexes were detached; cjk: a third index
    whose tokenizer cannot be loaded; future: schema 99 with columns and tables nobody knows.
    """
    with closing(sqlite3.connect(path)) as db:
        db.execute(f"PRAGMA journal_mode = {journal}")
        db.execute("PRAGMA synchronous = off")
        db.executescript(
            "CREATE TABLE schema_version (version INTEGER NOT NULL);"
            f"INSERT INTO schema_version VALUES ({99 if future else 31});"
            f"CREATE TABLE sessions ({SESSIONS_1}); CREATE TABLE messages ({MESSAGES_1});"
            "CREATE TABLE state_meta (key TEXT PRIMARY KEY, value TEXT);"
            "INSERT INTO state_meta VALUES ('db_file_generation', 'cafe0123456789abcdef'),"
            " ('last_auto_prune', '1772300000.5');"
        )
        for table, column, declaration in [*chain(*EARLY.values()), *LATER]:
            if layout == 0 and column == "active":  # reconciled by 0.16 … 0.18: NULL occurs
                declaration = "INTEGER DEFAULT 1"
            db.execute(f"ALTER TABLE {table} ADD COLUMN {column} {declaration}")
        db.executescript(INDEXES + SIDE_TABLES + TITLES)
        if layout is not None:
            db.executescript(words_of_layout(layout))
        if cjk:
            db.executescript(words_cjk())
        if future:
            db.executescript(
                "ALTER TABLE sessions ADD COLUMN mood TEXT NOT NULL DEFAULT 'calm';"
                "ALTER TABLE sessions ADD COLUMN fingerprint BLOB;"
                "ALTER TABLE messages ADD COLUMN weather TEXT;"
                "CREATE TABLE dreams (session_id TEXT, dream TEXT);"
            )
        if not empty:
            fill(db, pending=pending, stale=stale)
        if layout == 0:
            db.execute("UPDATE messages SET active = NULL WHERE session_id = ?", (RUSSIAN,))
        if future:
            for change in (
                "UPDATE sessions SET fingerprint = x'00ff', mood = 'eager' WHERE id = ?",
                "UPDATE messages SET weather = 'rain' WHERE session_id = ?",
                "INSERT INTO dreams VALUES (?, 'of slates')",
            ):
                db.execute(change, (TIP,))
        db.execute(f"PRAGMA application_id = {0xCAFE0123 & 0x7FFFFFFF}")
        db.commit()
        if cjk:
            rename_tokenizer(db)


def rename_tokenizer(db: sqlite3.Connection) -> None:
    """From now on the cjk index needs an extension."""
    db.execute("PRAGMA writable_schema = ON")
    db.execute(
        "UPDATE sqlite_master SET sql = replace(sql, 'unicode61', 'cjk_unicode61') "
        "WHERE name = 'messages_fts_cjk'"
    )
    db.commit()
    db.execute("PRAGMA writable_schema = RESET")


def make(path: Path, sessions: list[Row], layout: int | None = 3) -> Path:
    """A store of schema 31 with just these sessions. A row needs no more than its id; its messages
    are dictionaries, or texts that the user and the assistant say in turn.
    """
    head(path, layout, empty=True)
    with closing(sqlite3.connect(path)) as db, db:
        for number, row in enumerate(sessions):
            at = row.get("started_at", T + number * HOUR)
            row = {"source": "cli", "started_at": at, **row}
            insert(db, "sessions", row)
            for count, said in enumerate(row.get("messages", ())):
                if isinstance(said, str):
                    said = {"role": ("user", "assistant")[count % 2], "content": said}
                when = at + 10 * count if isinstance(at, float) else T
                insert(db, "messages", {"session_id": row["id"], "timestamp": when, **said})
    return path


def columns(db: sqlite3.Connection, table: str) -> set[str]:
    """The columns of an ordinary table."""
    return {row[1] for row in db.execute(f"PRAGMA table_info({table})")}


def insert(db: sqlite3.Connection, table: str, row: Row) -> None:
    """A row, without the columns the table lacks."""
    have = columns(db, table)
    kept = {name: value for name, value in row.items() if name in have}
    names = ", ".join(kept)
    marks = ", ".join("?" * len(kept))
    db.execute(f"INSERT INTO {table} ({names}) VALUES ({marks})", list(kept.values()))


def fill(db: sqlite3.Connection, *, pending: bool = False, stale: bool = False) -> None:
    """The same conversations in every store, in the way this one holds them."""
    sessions, messages = conversations()
    have = {table: columns(db, table) for table in ("sessions", "messages")}
    by_hash = "system_prompt_hash" in have["sessions"]
    left_out = set()
    for row in sessions:
        if not set(row.get("_needs", ())) <= have["sessions"]:
            left_out.add(row["id"])
            continue
        if by_hash and row["system_prompt"]:
            digest = hashlib.sha256(row["system_prompt"].encode()).hexdigest()
            db.execute("INSERT OR IGNORE INTO system_prompts VALUES (?, ?)",
                       (digest, row["system_prompt"]))  # fmt: skip
            row = {**row, "system_prompt": None, "system_prompt_hash": digest}
        insert(db, "sessions", row)
    meta = "INSERT OR REPLACE INTO state_meta VALUES (?, ?)"
    for number, row in enumerate(messages):
        if row["session_id"] in left_out or not set(row.get("_needs", ())) <= have["messages"]:
            continue
        if pending and number == 10:  # the next ten lie in the gap of a rebuild
            last = db.execute("SELECT max(id) FROM messages").fetchone()[0]
            db.executemany(meta, [("fts_rebuild_progress", str(last)),
                                  ("fts_rebuild_high_water", str(last + 10))])  # fmt: skip
        if stale and number == 20:  # detached after damage: what follows is in no index
            db.execute(meta, ("fts_stale", "1"))
            for table in ("messages_fts", "messages_fts_trigram"):
                for verb in ("insert", "delete", "update"):
                    db.execute(f"DROP TRIGGER {table}_{verb}")
        insert(db, "messages", row)
    if by_hash:
        usage = {"session_id": ROOT, "model": "hermes-4-70b", "input_tokens": 100,
                 "output_tokens": 50}  # fmt: skip
        insert(db, "session_model_usage", usage)
        db.execute("INSERT INTO conversation_generations VALUES ('telegram', 'agent:main:x', 3)")
    db.commit()


# --- What a writer must leave as it was ---


def condition(path: Path) -> Row:
    """Everything a writing command must not spoil, read by plain SQL.

    indexes: FTS table → True where its own check finds nothing, False where it does, None where it
    cannot be asked (its tokenizer is not here).
    """
    with closing(sqlite3.connect(f"file:{path.absolute()}?mode=rw", uri=True)) as db:
        names = db.execute(
            "SELECT name, sql FROM sqlite_master WHERE sql LIKE 'CREATE VIRTUAL%' ORDER BY name"
        ).fetchall()
        return {
            "foreign keys": sorted(map(tuple, db.execute("PRAGMA foreign_key_check"))),
            "versions": sorted(db.execute("SELECT version FROM schema_version").fetchall())
            if columns(db, "schema_version") else None,
            **{name: db.execute(f"PRAGMA {name}").fetchone()[0] for name in PRAGMAS},
            "mode": oct(path.stat().st_mode & 0o777),
            "objects": sorted(
                db.execute("SELECT type, name, COALESCE(sql, '') FROM sqlite_master").fetchall()
            ),
            "indexes": {name: whole(db, name, sql) for name, sql in names},
        }


PRAGMAS = ("journal_mode", "application_id", "page_size", "user_version", "auto_vacuum")


def whole(db: sqlite3.Connection, table: str, create: str) -> bool | None:
    """Whether an index agrees with what it indexes: its own check (rank 1, rolled back), and for
    an inline one, which has nothing to be compared with, that it holds the text of every message.
    """
    try:
        db.execute(f"INSERT INTO {table}({table}, rank) VALUES ('integrity-check', 1)")
    except sqlite3.DatabaseError as error:
        return None if "no such tokenizer" in str(error) else False
    finally:
        db.rollback()
    if "content=" in create.replace(" ", ""):
        return True
    held = dict(db.execute(f"SELECT rowid, content FROM {table}"))
    joined, cut = JOINED.replace("ROW", "m"), JOINED_CUT.replace("ROW", "m")
    meant = {row[0]: row[1:] for row in db.execute(f"SELECT id, {joined}, {cut} FROM messages m")}
    return held.keys() == meant.keys() and all(text in meant[id] for id, text in held.items())


HOLD = """
import sqlite3, sys
db = sqlite3.connect(sys.argv[1])
db.execute("SELECT count(*) FROM messages").fetchone()
print("up", flush=True)
sys.stdin.read()
"""


@contextmanager
def held(path: Path) -> Iterator[int]:
    """Another process has the store open for as long as the block lasts; its process id."""
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert holder.stdout and holder.stdout.readline()
        yield holder.pid
    finally:
        holder.communicate()
