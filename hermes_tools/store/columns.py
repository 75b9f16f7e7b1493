"""Columns the agent's releases know: their order in an export, their declarations, their kinds.

An export has the columns of schema.sql in its order and all others by name, so that the bytes do
not depend on the order in which a store gained them.
"""

from hermes_tools.store.db import Database

SESSIONS = (
    "id", "source", "user_id", "model", "model_config", "system_prompt", "parent_session_id",
    "started_at", "ended_at", "end_reason", "message_count", "tool_call_count", "input_tokens",
    "output_tokens", "cache_read_tokens", "cache_write_tokens", "reasoning_tokens",
    "billing_provider", "billing_base_url", "billing_mode", "estimated_cost_usd",
    "actual_cost_usd", "cost_status", "cost_source", "pricing_version", "title", "api_call_count",
    "handoff_state", "handoff_platform", "handoff_error",
)  # fmt: skip
MESSAGES = (
    "id", "session_id", "role", "content", "tool_call_id", "tool_calls", "tool_name", "timestamp",
    "token_count", "finish_reason", "reasoning", "reasoning_content", "reasoning_details",
    "codex_reasoning_items", "codex_message_items",
)  # fmt: skip
FIRST = {"sessions": SESSIONS, "messages": MESSAGES}

# Hold JSON where they hold anything; decoded in an export if they can be encoded back.
JSON = {
    "sessions": frozenset({"model_config", "origin_json", "tool_names"}),
    "messages": frozenset({
        "tool_calls", "reasoning_details", "codex_reasoning_items", "codex_message_items",
        "display_metadata", "absorbed_message_uids", "tool_call_uids",
    }),
}  # fmt: skip

_COUNT = "INTEGER NOT NULL DEFAULT 0"
# The agent's own declarations of what came after version 11 (store-facts 1.4, 1.5). NOT NULL and
# DEFAULT matter: an `active` that came without its default would hide every older message.
DECLARED = {
    "sessions": {
        **dict.fromkeys(
            ("session_key", "chat_id", "chat_type", "thread_id", "display_name", "origin_json",
             "cwd", "git_branch", "git_repo_root", "profile_name", "compression_failure_error",
             "created_source", "system_prompt_hash", "title_source", "last_activity_description",
             "last_activity_provenance", "transport_profile", "tool_names"), "TEXT"),
        **dict.fromkeys(
            ("compression_failure_cooldown_until", "last_activity_at",
             "compression_recovery_deadline", "last_read_at"), "REAL"),
        **dict.fromkeys(
            ("rewind_count", "archived", "compression_fallback_streak",
             "git_metadata_generation", "compression_ineffective_count",
             "compression_overload_streak", "pinned", "hidden", "auto_archived"), _COUNT),
        "expiry_finalized": "INTEGER DEFAULT 0",
        "handoff_state": "TEXT", "handoff_platform": "TEXT", "handoff_error": "TEXT",
    },
    "messages": {
        **dict.fromkeys(
            ("platform_message_id", "effect_disposition", "api_content", "display_kind",
             "display_metadata", "message_uid", "absorbed_message_uids", "tool_call_uids",
             "tool_call_uid"), "TEXT"),
        "observed": "INTEGER DEFAULT 0", "active": "INTEGER NOT NULL DEFAULT 1",
        "compacted": _COUNT, "_compressed_summary": _COUNT,
        "display_identity": "BLOB", "display_order": "INTEGER",
    },
}  # fmt: skip

# Changed without the conversation changing, or reset when it moves to another store: routing,
# leases, handoff under way. They do not count for a digest, and import resets them.
LIVE = {
    "session_key": None, "chat_id": None, "chat_type": None, "thread_id": None,
    "origin_json": None, "expiry_finalized": 0, "handoff_state": None, "handoff_platform": None,
    "handoff_error": None, "compression_failure_cooldown_until": None,
    "compression_failure_error": None, "compression_recovery_deadline": None,
}  # fmt: skip

# Where a row stands in the agent's own display: made anew where a message gets another id.
DISPLAY = frozenset({"display_identity", "display_order"})
# Filled by triggers of the store or by a later release, each store for itself; a conversation
# that has not changed may gain them at any time. They do not count for a digest.
MINTED = DISPLAY | {"message_uid", "absorbed_message_uids", "tool_call_uids", "tool_call_uid"}


def default(table: str, column: str) -> int | None:
    """What a store without the column means by its absence: the declared default, else NULL."""
    words = DECLARED[table].get(column, "")
    return int(words.rpartition(" ")[2]) if "DEFAULT" in words else None


def ordered(db: Database, table: str) -> list[str]:
    """The columns of a table in the order of an export."""
    have = db.schema.tables[table]
    first = [name for name in FIRST.get(table, ()) if name in have]
    return first + sorted(set(have) - set(first))
