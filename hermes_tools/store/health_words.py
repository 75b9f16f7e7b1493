"""Are the indexes of words healthy: their triggers, their rows, their own opinion."""

import re
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass

from hermes_tools.store import schema
from hermes_tools.store.db import Database, begin, code
from hermes_tools.store.faults import ERROR, NOTE, SQLITE, WARNING, Fault, command
from hermes_tools.store.migration import INDEXED

VERBS = ("insert", "delete", "update")
# From HEAD on inline indexes take only the start of a tool's answer (store-facts 1.6).
INDEXED_CUT = INDEXED.replace(
    "COALESCE(content, '')",
    "COALESCE(CASE WHEN role = 'tool' THEN substr(content, 1, 8192) ELSE content END, '')",
)
WORD = re.compile(r"(?<![^\W_])[A-Za-z]{4,}(?![^\W_])")


@dataclass(frozen=True)
class Index:
    """One FTS table on messages as the store declares it.

    source: the table or view its rows come from, None where it keeps its own text (inline);
    key: the source's column that is the rowid; gap: message ids that a pending rebuild has not
    reached, (P, H]; stale: the agent detached it on purpose.
    """

    name: str
    tokenizer: str
    source: str | None
    key: str
    gap: tuple[int, int] | None
    stale: bool

    @property
    def expected(self) -> str:
        """SQL of the ids it should hold, as column `id`."""
        return f'SELECT "{self.key}" AS id FROM "{self.source or "messages"}"'


def declared(db: Database, name: str, create: str) -> Index:
    """An index as its CREATE text and state_meta describe it."""
    source = re.search(r"\bcontent\s*=\s*['\"]?(\w+)", create, re.I)
    key = re.search(r"content_rowid\s*=\s*['\"]?(\w+)", create, re.I)
    prefix = "fts_cjk" if name == schema.CJK else "fts"
    meta = db.schema.meta
    high, done = (meta.get(f"{prefix}_rebuild_{word}") for word in ("high_water", "progress"))
    gap = None
    if high is not None and high.lstrip("-").isdigit():
        gap = (int(done) if done and done.lstrip("-").isdigit() else 0, int(high))
    return Index(
        name, schema.tokenizer(create), source[1] if source else None,
        key[1] if source and key else "id" if not source else "rowid", gap,
        meta.get(f"{prefix}_stale", "0") not in ("0", ""),
    )  # fmt: skip


def look_at_triggers(db: Database) -> Iterator[Fault]:
    """Triggers that are missing, left over, doubled, or that nobody knows."""
    have = db.schema
    writes: dict[tuple[str, str], list[str]] = {}
    for name, (table, sql) in sorted(have.triggers.items()):
        if table not in ("messages", "sessions"):
            continue
        event = re.search(r"\b(INSERT|DELETE|UPDATE)\b", sql.partition(" ON ")[0], re.I)
        written = re.findall(r"\b(?:INTO|FROM)\s+[\"'`\[]?(messages_fts\w*)", sql)
        for target in sorted(set(written)):
            if target in have.virtual or target in have.tables or target in have.views:
                writes.setdefault((target, event[1].upper() if event else ""), []).append(name)
            else:
                yield Fault(f"trigger {name}", "trigger_dangling", ERROR,
                            f"writes into {target}, which is gone: every new message fails",
                            command(db.path, "repair", "--index"))  # fmt: skip
        if name not in schema.KNOWN_TRIGGERS:
            yield Fault(f"trigger {name}", "trigger_unknown", WARNING,
                        f"on {table}, made by no release we know; nobody removes it unasked",
                        f'sqlite3 {db.path} ".schema {table}"')  # fmt: skip
    for (target, what), names in sorted(writes.items()):
        if len(names) > 1:
            yield Fault(f"index {target}", "trigger_doubled", WARNING,
                        f"{' and '.join(names)} both write into it on {what}",
                        f'sqlite3 {db.path} ".schema messages"', count=len(names))  # fmt: skip
    if schema.WORDS not in have.virtual:
        yield Fault("indexes", "words_missing", NOTE,
                    "there is no index of words: searches read every message",
                    command(db.path, "repair", "--index"))  # fmt: skip


def look_at_index(db: Database, name: str, create: str) -> Iterator[Fault]:
    """One index as a reader sees it: a real MATCH, its rows against the messages'."""
    index = declared(db, name, create)
    missing = [
        f"{name}_{verb}" for verb in VERBS if f"{name}_{verb}" not in db.schema.triggers
    ]  # fmt: skip
    if index.stale:
        yield Fault(f"index {name}", "words_detached", WARNING,
                    "the agent has detached it; searches read messages instead",
                    "hermes sessions optimize-storage")  # fmt: skip
    elif missing:
        yield Fault(f"index {name}", "trigger_missing", ERROR,
                    f"{', '.join(missing)} missing: it does not follow the messages",
                    command(db.path, "repair", "--index"), count=len(missing))  # fmt: skip
    if index.gap:
        yield Fault(f"index {name}", "rebuild_pending", NOTE,
                    f"the agent is rebuilding it: messages {index.gap[0] + 1} to {index.gap[1]} "
                    "are still to come", "hermes sessions optimize-storage")  # fmt: skip
    if not schema.has_tokenizer(index.tokenizer):
        yield Fault(f"index {name}", "tokenizer_missing", WARNING,
                    f"the tokenizer {index.tokenizer} is not here: neither this index nor any "
                    "message can be written from here", None)  # fmt: skip
        return
    try:
        yield from try_match(db, index)
        yield from compare_rows(db, index)
    except sqlite3.DatabaseError as error:
        if code(error) in (5, 6):
            raise
        yield Fault(f"index {name}", "words_damaged", ERROR,
                    f"SQLite {SQLITE}: {error}",
                    command(db.path, "repair", "--index"))  # fmt: skip


def try_match(db: Database, index: Index) -> Iterator[Fault]:
    """Find words of the newest messages through the index."""
    db.execute(
        f"SELECT rowid FROM {index.name} WHERE {index.name} MATCH ? LIMIT 1", ('"hermes"',)
    ).fetchall()
    if index.stale or index.gap:
        return
    texts = db.execute(
        "SELECT id, content FROM messages WHERE id IN (SELECT id FROM messages ORDER BY id DESC "
        f"LIMIT 20) AND id IN ({index.expected}) AND typeof(content) = 'text' ORDER BY id DESC"
    ).fetchall()
    tried = 0
    for number, content in texts:
        word = WORD.search(content[:4000])
        if not word or "\0" in content or not tried < 5:
            continue
        tried += 1
        hit = db.execute(
            f"SELECT 1 FROM {index.name} WHERE {index.name} MATCH ? AND rowid = ?",
            (f'"{word[0]}"', number),
        ).fetchone()
        if hit is None:
            yield Fault(f"index {index.name}", "match_fails", ERROR,
                        f"message {number} holds {word[0]!r} and is not found by it",
                        command(db.path, "repair", "--index"))  # fmt: skip
            return


def compare_rows(db: Database, index: Index) -> Iterator[Fault]:
    """Messages without index row, index rows without message, and for an index that keeps its own
    text whether it is still the message's.
    """
    mend = command(db.path, "repair", "--index")
    rows = f"{index.name}_docsize"
    if not db.schema.has(rows, "id"):
        return
    gap = f"AND NOT (e.id > {index.gap[0]} AND e.id <= {index.gap[1]})" if index.gap else ""
    number = db.execute(
        f"SELECT count(*) FROM ({index.expected}) e "
        f"WHERE NOT EXISTS (SELECT 1 FROM {rows} d WHERE d.id = e.id) {gap}"
    ).fetchone()[0]
    if number:
        yield Fault(f"index {index.name}", "rows_unindexed", WARNING if index.stale else ERROR,
                    f"messages that are not in it, and are not found by it: {number}", mend,
                    count=number)  # fmt: skip
    number = db.execute(
        f"SELECT count(*) FROM {rows} d WHERE NOT EXISTS "
        f"(SELECT 1 FROM ({index.expected}) e WHERE e.id = d.id)"
    ).fetchone()[0]
    if number:
        yield Fault(f"index {index.name}", "rows_leftover", WARNING,
                    f"rows of it that belong to no message it should hold: {number}", mend,
                    count=number)  # fmt: skip
    if index.source is None and db.schema.has(f"{index.name}_content", "id", "c0"):
        number = db.execute(
            f"SELECT count(*) FROM {index.name}_content c JOIN messages m ON m.id = c.id "
            f"WHERE c.c0 IS NOT ({INDEXED}) AND c.c0 IS NOT ({INDEXED_CUT})"
        ).fetchone()[0]
        if number:
            yield Fault(f"index {index.name}", "rows_outdated", ERROR,
                        f"rows of it that hold other words than their message: {number}", mend,
                        count=number)  # fmt: skip


def check_themselves(work: Database) -> Iterator[Fault]:
    """Each index's own integrity-check; with rank 1 it reads its source, too. It counts as a write,
    so each runs in a transaction of its own (an index that is damaged poisons it) that is rolled
    back.
    """
    for name, create in sorted(work.schema.virtual.items()):
        if not name.startswith(schema.WORDS):
            continue
        index = declared(work, name, create)
        if not schema.has_tokenizer(index.tokenizer):
            continue
        # Layout 2 drifts from its source by design; a stale or half-built index does, too.
        faithful = index.source is not None and not index.stale and not index.gap and (
            work.schema.layout in (1, 3) or work.schema.meta.get("fts_storage_version") is None
        )  # fmt: skip
        rank = "1" if faithful else "0"
        begin(work)
        try:
            work.execute(f"INSERT INTO {name}({name}, rank) VALUES ('integrity-check', {rank})")
        except sqlite3.DatabaseError as error:
            if code(error) in (5, 6, 8, 13):
                raise
            what = "disagrees with its source" if faithful else "is not whole"
            yield Fault(f"index {name}", "words_damaged", ERROR,
                        f"says itself that it {what}: SQLite {SQLITE}: {error}",
                        command(work.path, "repair", "--index"))  # fmt: skip
        finally:
            if work.in_transaction:
                work.execute("ROLLBACK")
