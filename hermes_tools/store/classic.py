"""What the agent's release 0.13 answers about its store; SessionDB answers alike.

The scripts follow newer and stricter rules (store/sessions.py, lineage.py, search.py). Here the
rules are those of schema 11, on any store: columns are asked for, never assumed.
"""

import json
import re
import sqlite3
from collections.abc import Sequence
from typing import Any

from hermes_tools.store import messages
from hermes_tools.store.db import Database, code, marks
from hermes_tools.store.schema import TRIGRAM, WORDS
from hermes_tools.store.sessions import escaped

Row = dict[str, Any]

CHAIN = 100  # steps of a walk along a lineage
RESUMES = 32  # steps to a session with messages
PAGE = 100_000  # what "all" means to an export

# What the agent itself weaves into a user's text, and takes out again on replay: a tagged block
# of remembered facts, and a bracketed note beside it that says what the block is.
MEMORY = r"(?is)<\s*memory-context\s*>.*?<\s*/memory-context\s*>"
NOTE = r"(?i)\[System note:[^\]]*\bmemory context\b[^\]]*\]\s*"
MARK = r"(?i)<\s*/?\s*memory-context\s*>"


def session(db: Database, session_id: str) -> Row | None:
    """Every column of one session; a prompt that is stored by its hash is resolved."""
    row = db.execute("SELECT * FROM sessions WHERE id = ?", (session_id,)).fetchone()
    return None if row is None else whole(db, row)


def whole(db: Database, row: Any) -> Row:
    """A session row as a dictionary, its prompt by hash looked up (store-facts 1.5)."""
    found = dict(row)
    if found.get("system_prompt_hash") and not found.get("system_prompt"):
        prompt = db.execute(
            "SELECT prompt FROM system_prompts WHERE hash = ?", (found["system_prompt_hash"],)
        ).fetchone()
        found["system_prompt"] = prompt and prompt[0]
    return found


def resolve(db: Database, ref: str) -> str | None:
    """The id itself, else the only id that begins so, else None."""
    if session(db, ref):
        return ref
    found = db.execute(
        "SELECT id FROM sessions WHERE id LIKE ? ESCAPE '\\' LIMIT 2", (escaped(ref) + "%",)
    ).fetchall()
    return found[0][0] if len(found) == 1 else None


def by_title(db: Database, title: str) -> Row | None:
    """The session with exactly this title."""
    row = db.execute("SELECT * FROM sessions WHERE title = ?", (title,)).fetchone()
    return None if row is None else whole(db, row)


def newest_titled(db: Database, title: str) -> str | None:
    """The newest of `title #…`, else the session titled exactly so."""
    row = db.execute(
        "SELECT id FROM sessions WHERE title LIKE ? ESCAPE '\\' ORDER BY started_at DESC, rowid",
        (escaped(title) + " #%",),
    ).fetchone()
    if row:
        return str(row[0])
    exact = by_title(db, title)
    return exact["id"] if exact else None


NUMBERED = re.compile(r"(.*?) #(\d+)", re.S)


def next_title(db: Database, title: str) -> str:
    """The next free `base #N` of a title's line, the base itself while nobody has it."""
    found = NUMBERED.fullmatch(title)
    base = found[1] if found else title
    rows = db.execute(
        "SELECT title FROM sessions WHERE title = ? OR title LIKE ? ESCAPE '\\'",
        (base, escaped(base) + " #%"),
    ).fetchall()
    if not rows:
        return base
    numbers = [int(one[2]) for row in rows if (one := NUMBERED.fullmatch(row[0]))]
    return f"{base} #{max([1, *numbers]) + 1}"


def tip(db: Database, session_id: str) -> str:
    """Where a compressed conversation goes on: the newest child that began after its parent was
    ended by compression, and so on.
    """
    at = session_id
    for _ in range(CHAIN):
        row = db.execute(
            "SELECT c.id FROM sessions c JOIN sessions p ON p.id = c.parent_session_id "
            "WHERE p.id = ? AND p.end_reason = 'compression' AND c.started_at >= p.ended_at "
            "ORDER BY c.started_at DESC, c.rowid LIMIT 1",
            (at,),
        ).fetchone()
        if row is None:
            break
        at = row[0]
    return at


def resumed(db: Database, session_id: str) -> str:
    """The session itself, or if it is empty the nearest newest child that is not."""
    at = session_id
    seen = {at}
    for _ in range(RESUMES + 1):
        if db.execute("SELECT 1 FROM messages WHERE session_id = ? LIMIT 1", (at,)).fetchone():
            return at
        row = db.execute(
            "SELECT id FROM sessions WHERE parent_session_id = ? "
            "ORDER BY started_at DESC, id DESC LIMIT 1",
            (at,),
        ).fetchone()
        if row is None or row[0] in seen:
            break
        at = row[0]
        seen.add(at)
    return session_id


def ancestors(db: Database, session_id: str) -> list[str]:
    """A session and its parents of whatever kind, the eldest first."""
    path = [session_id]
    while path[-1] and len(path) < CHAIN:
        row = db.execute(
            "SELECT parent_session_id FROM sessions WHERE id = ?", (path[-1],)
        ).fetchone()
        if row is None or row[0] is None or row[0] in path:
            break
        path.append(row[0])
    return path[::-1]


def transcript(db: Database, session_id: str) -> list[Row]:
    """Every live message of a session with all its columns; content and tool_calls decoded."""
    found = []
    for row in live(db, [session_id]):
        one = dict(row)
        one["content"] = messages.decode(one["content"])
        if one.get("tool_calls"):
            one["tool_calls"] = parsed(one["tool_calls"], [])
        found.append(one)
    return found


def live(db: Database, session_ids: Sequence[str]) -> list[Any]:
    """The stored rows of a few sessions, by id: rewound and compacted ones are no part of a
    transcript.
    """
    return db.execute(
        f"SELECT m.* FROM messages m WHERE m.session_id IN ({marks(session_ids)}) "
        f"AND {db.schema.live} ORDER BY m.id",
        session_ids,
    ).fetchall()


def parsed(stored: Any, otherwise: Any) -> Any:
    """JSON of a column; `otherwise` where it is none."""
    try:
        return json.loads(stored)
    except (ValueError, TypeError):
        return stored if isinstance(stored, int | float) else otherwise


def replay(db: Database, session_ids: Sequence[str], *, once: bool) -> list[Row]:
    """Live messages of sessions, in the order they were written, as a model is given them: role,
    content and what else is not empty. With `once`, a user's text that was said again before any
    answer is left out.
    """
    found: list[Row] = []
    for row in live(db, session_ids):
        one = replayed(dict(row))
        if not (once and repeated(found, one)):
            found.append(one)
    return found


def replayed(row: Row) -> Row:
    """One message for a model."""
    role, content = row["role"], messages.decode(row["content"])
    if role in ("user", "assistant") and isinstance(content, str):
        content = without_memory(content).strip()
    one: Row = {"role": role, "content": content}
    for name in ("tool_call_id", "tool_name"):
        if row.get(name):
            one[name] = row[name]
    if row.get("tool_calls"):
        one["tool_calls"] = parsed(row["tool_calls"], [])
    if role == "assistant":
        for name in ("finish_reason", "reasoning"):
            if row.get(name):
                one[name] = row[name]
        if row.get("reasoning_content") is not None:
            one["reasoning_content"] = row["reasoning_content"]
        for name in ("reasoning_details", "codex_reasoning_items", "codex_message_items"):
            if row.get(name):
                one[name] = parsed(row[name], None)
    return one


def repeated(before: list[Row], one: Row) -> bool:
    """Whether a user's text stands already since the last answer."""
    if one["role"] != "user" or not isinstance(one["content"], str) or not one["content"]:
        return False
    for earlier in reversed(before):
        if earlier["role"] == "user" and earlier["content"] == one["content"]:
            return True
        if earlier["role"] == "assistant" and (earlier["content"] or earlier.get("tool_calls")):
            return False
    return False


def without_memory(text: str) -> str:
    """A text without the memory the agent had woven into it."""
    if "memory" not in text.lower():
        return text
    for pattern in (MEMORY, NOTE, MARK):
        text = re.sub(pattern, "", text)
    return text


def export(db: Database, row: Row) -> Row:
    """A session row with its transcript as `messages`."""
    return {**row, "messages": transcript(db, row["id"])}


ACTIVE = """COALESCE(
(SELECT max(m.timestamp) FROM messages m WHERE m.session_id = s.id), s.started_at)"""


def recent(db: Database, source: str | None, limit: int, offset: int) -> list[Row]:
    """Sessions of every kind, the last active first, each with `last_active`."""
    rows = db.execute(
        f"SELECT s.*, {ACTIVE} AS last_active FROM sessions s "
        f"{'WHERE s.source = ?' if source else ''} "
        "ORDER BY last_active DESC, s.started_at DESC, s.id DESC LIMIT ? OFFSET ?",
        (*([source] if source else []), limit, offset),
    ).fetchall()
    return [whole(db, row) for row in rows]


# A root's conversation goes on in children that began after a compression ended their parent.
CHAINED = """
WITH RECURSIVE chain(root, id) AS (
    SELECT rowid, id FROM sessions
    UNION
    SELECT chain.root, c.id FROM chain
    JOIN sessions p ON p.id = chain.id AND p.end_reason = 'compression'
    JOIN sessions c ON c.parent_session_id = p.id AND c.started_at >= p.ended_at
)
"""
NEWEST = """
JOIN (SELECT chain.root, max(COALESCE(
    (SELECT max(m.timestamp) FROM messages m WHERE m.session_id = t.id), t.started_at)) AS newest
FROM chain JOIN sessions t ON t.id = chain.id GROUP BY chain.root) a ON a.root = s.rowid
"""
# At the end of the projection: what is the tip's own (store-facts 3.5).
OF_TIP = ("id", "ended_at", "end_reason", "message_count", "tool_call_count", "title",
          "last_active", "preview", "model", "system_prompt")  # fmt: skip


def listed(
    db: Database, *, source: str | None = None, not_sources: Sequence[str] | None = None,
    limit: int = 20, offset: int = 0, children: bool = False, project: bool = True,
    by_activity: bool = False,
) -> list[Row]:  # fmt: skip
    """Roots and branches (with `children` every row), newest start first, or newest activity of
    the whole chain; with `last_active` and `preview`. A compressed root shows as its tip, unless
    the children are listed themselves.
    """
    where, values = ["1"], list[Any]()
    if not children:
        where.append(
            "(s.parent_session_id IS NULL OR EXISTS (SELECT 1 FROM sessions p "
            "WHERE p.id = s.parent_session_id AND p.end_reason = 'branched' "
            "AND s.started_at >= p.ended_at))"
        )
    if source:
        where.append("s.source = ?")
        values.append(source)
    if not_sources:
        where.append(f"s.source NOT IN ({marks(not_sources)})")
        values += not_sources
    order, joined = "s.started_at DESC, s.rowid", ""
    if by_activity:
        order, joined = "a.newest DESC, s.started_at DESC, s.id DESC", NEWEST
    # by rowid: the column `id` allows NULL
    found = db.execute(
        f"{CHAINED if by_activity else ''}SELECT s.rowid FROM sessions s {joined}"
        f"WHERE {' AND '.join(where)} ORDER BY {order} LIMIT ? OFFSET ?",
        (*values, limit, offset),
    ).fetchall()
    rows = [rich(db, "rowid", row[0]) for row in found]
    return [projected(db, row) for row in rows] if project and not children else rows


def rich(db: Database, column: str, value: Any) -> Row:
    """The session row whose `column` (id, rowid) has this value, with `last_active` and `preview`:
    63 characters of the first user message with content, shown as 60 and `...` if longer.
    """
    row = db.execute(
        f"SELECT s.*, {ACTIVE} AS last_active, COALESCE((SELECT "
        "substr(replace(replace(m.content, char(10), ' '), char(13), ' '), 1, 63) "
        "FROM messages m WHERE m.session_id = s.id AND m.role = 'user' "
        f"AND m.content IS NOT NULL AND {db.schema.live} ORDER BY m.timestamp, m.id LIMIT 1), '') "
        f"AS preview FROM sessions s WHERE s.{column} = ?",
        (value,),
    ).fetchone()
    found = whole(db, row)
    text = str(found.pop("preview")).strip()
    found["preview"] = text[:60] + ("..." if len(text) > 60 else "")
    return found


def projected(db: Database, row: Row) -> Row:
    """A root that was compressed, shown as its tip; any other row as it is."""
    if row["end_reason"] != "compression":
        return row
    last = tip(db, row["id"])
    if last == row["id"]:
        return row
    shown = rich(db, "id", last)
    return {**row, **{name: shown[name] for name in OF_TIP}, "_lineage_root_id": row["id"]}


def pending_handoffs(db: Database) -> list[Row]:
    """Sessions that wait to be taken over, the oldest start first."""
    rows = db.execute(
        "SELECT * FROM sessions WHERE handoff_state = 'pending' ORDER BY started_at, rowid"
    ).fetchall()
    return [whole(db, row) for row in rows]


def session_count(db: Database, source: str | None) -> int:
    """How many sessions there are, of one source or of all."""
    if source:
        row = db.execute("SELECT count(*) FROM sessions WHERE source = ?", (source,)).fetchone()
    else:
        row = db.execute("SELECT count(*) FROM sessions").fetchone()
    return int(row[0])


def message_count(db: Database, session_id: str | None) -> int:
    """How many live messages there are, of one session or of all."""
    of_one = "m.session_id = ? AND " if session_id else ""
    return int(
        db.execute(
            f"SELECT count(*) FROM messages m WHERE {of_one}{db.schema.live}",
            (session_id,) if session_id else (),
        ).fetchone()[0]
    )


# Searching.

CJK_RANGES = (
    (0x4E00, 0x9FFF), (0x3400, 0x4DBF), (0x20000, 0x2A6DF), (0x3000, 0x303F),
    (0x3040, 0x309F), (0x30A0, 0x30FF), (0xAC00, 0xD7AF),
)  # fmt: skip
OPERATORS = ("AND", "OR", "NOT")
PHRASE = re.compile(r'"[^"]*"')
JOINED = re.compile(r"\b(\w+(?:[._-]\w+)+)\b")


def cjk(text: str) -> int:
    """How many letters of a text are Chinese, Japanese or Korean."""
    return sum(any(low <= ord(one) <= high for low, high in CJK_RANGES) for one in text)


def cleaned(query: str) -> str:
    """A query as FTS5 can take it (store-facts 3.8): balanced phrases stay, other special
    characters become spaces, words joined by `.`, `_` and `-` become phrases.
    """
    phrases: list[str] = []

    def aside(found: re.Match[str]) -> str:
        phrases.append(found[0])
        return f"\0#{len(phrases) - 1}\0"

    text = PHRASE.sub(aside, query)
    text = re.sub(r'[+{}()"^]', " ", text)
    text = re.sub(r"\*+", "*", text)
    text = re.sub(r"(^|\s)\*", r"\1", text)
    text = re.sub(r"^(?:AND|OR|NOT)\b\s*", "", text.strip(), flags=re.I)
    text = re.sub(r"\s+(?:AND|OR|NOT)\s*$", "", text.strip(), flags=re.I)
    text = JOINED.sub(r'"\1"', text)
    return re.sub("\0#(\\d+)\0", lambda found: phrases[int(found[1])], text).strip()


def search(
    db: Database, query: str, *, sources: Sequence[str] | None = None,
    not_sources: Sequence[str] | None = None, roles: Sequence[str] | None = None,
    limit: int = 20, offset: int = 0,
) -> list[Row]:  # fmt: skip
    """Messages that match, best first, each with `snippet` and `context`. Chinese, Japanese and
    Korean go by the trigram index, or by a scan if a word is too short for it.
    """
    text = cleaned(query)
    if not text:
        return []
    where, values = [db.schema.seen], list[Any]()
    for column, wanted, word in (
        ("s.source", sources, "IN"), ("s.source", not_sources, "NOT IN"), ("m.role", roles, "IN")
    ):  # fmt: skip
        if wanted is not None and (wanted or (column == "s.source" and word == "IN")):
            where.append(f"{column} {word} ({marks(wanted)})")
            values += wanted
    words = text.strip('"').split()
    wanted_words = [word for word in words if word.upper() not in OPERATORS]
    if not cjk(text):
        rows = matched(db, WORDS, text, where, values, limit, offset)
    elif TRIGRAM in db.schema.virtual and not short(wanted_words):
        rows = matched(db, TRIGRAM, quoted(words), where, values, limit, offset)
    else:
        rows = scanned(db, wanted_words, where, values, limit, offset)
    return [{**row, "context": context(db, row["id"])} for row in rows]


def short(words: list[str]) -> bool:
    """Whether the trigram index cannot answer: under three letters in all, or in one word."""
    return cjk("".join(words)) < 3 or any(0 < cjk(word) < 3 for word in words)


def quoted(words: list[str]) -> str:
    """Every word but the operators as a phrase."""
    return " ".join(
        word if word.upper() in OPERATORS else '"' + word.replace('"', '""') + '"'
        for word in words
    )


FOUND = "m.id, m.session_id, m.role, {snippet} AS snippet, m.timestamp, m.tool_name"
OWNER = "s.source, s.model, s.started_at AS session_started"


def matched(
    db: Database, index: str, query: str, where: list[str], values: list[Any], limit: int,
    offset: int,
) -> list[Row]:  # fmt: skip
    """Rows by an index, in the order of its rank; a query it cannot take matches nothing."""
    if index not in db.schema.virtual:
        return []
    # one column in version 11; in newer layouts the best of several
    column = 0 if db.schema.inline else -1
    snippet = f"snippet({index}, {column}, '>>>', '<<<', '...', 40)"
    try:
        rows = db.execute(
            f"SELECT {FOUND.format(snippet=snippet)}, {OWNER} FROM {index} "
            f"JOIN messages m ON m.id = {index}.rowid JOIN sessions s ON s.id = m.session_id "
            f"WHERE {index} MATCH ? AND {' AND '.join(where)} ORDER BY rank LIMIT ? OFFSET ?",
            (query, *values, limit, offset),
        ).fetchall()
    except sqlite3.OperationalError as error:
        if code(error) not in (0, 1):  # no error of its own: the query is not understood
            raise
        return []
    return [dict(row) for row in rows]


def scanned(
    db: Database, words: list[str], where: list[str], values: list[Any], limit: int, offset: int
) -> list[Row]:
    """Rows that contain any of the words, newest first."""
    if not words:
        return []
    columns = ("m.content", "m.tool_name", "m.tool_calls")
    any_word = " OR ".join(f"{column} LIKE ? ESCAPE '\\'" for _ in words for column in columns)
    patterns = [f"%{escaped(word)}%" for word in words for _ in columns]
    snippet = "substr(m.content, max(1, instr(m.content, ?) - 40), 120)"
    rows = db.execute(
        f"SELECT {FOUND.format(snippet=snippet)}, {OWNER} FROM messages m "
        f"JOIN sessions s ON s.id = m.session_id WHERE ({any_word}) AND {' AND '.join(where)} "
        "ORDER BY m.timestamp DESC LIMIT ? OFFSET ?",
        (words[0], *patterns, *values, limit, offset),
    ).fetchall()
    return [dict(row) for row in rows]


def context(db: Database, message_id: int) -> list[Row]:
    """The message before a hit, the hit, and the one after: role and 200 characters each."""
    near = (
        "SELECT n.id FROM messages n JOIN messages h ON n.session_id = h.session_id "
        "WHERE h.id = ? AND (n.timestamp, n.id) {} (h.timestamp, h.id) "
        "ORDER BY n.timestamp {}, n.id {} LIMIT 1"
    )
    ids = [
        db.execute(near.format("<", "DESC", "DESC"), (message_id,)).fetchone(),
        (message_id,),
        db.execute(near.format(">", "ASC", "ASC"), (message_id,)).fetchone(),
    ]
    found = []
    for one in ids:
        if one is None:
            continue
        role, content = db.execute(
            "SELECT role, content FROM messages WHERE id = ?", (one[0],)
        ).fetchone()
        found.append({"role": role, "content": said(messages.decode(content))[:200]})
    return found


def said(content: Any) -> str:
    """Text of a message for a context: the text parts of a list, '' for what is no text."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    parts = [
        str(part.get("text") or "") for part in content
        if isinstance(part, dict) and part.get("type") == "text"
    ]  # fmt: skip
    return " ".join(parts).strip() or "[multimodal content]"
