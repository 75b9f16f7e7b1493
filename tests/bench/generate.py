"""Makes big stores for the benchmark: deterministic, with the text lengths of real conversations.

    python tests/bench/generate.py STORE --sessions 1000 --messages 68000

The same numbers give the same rows. 1,000 sessions with 68,000 messages are about 800 MB with both
indexes; ten times that is made only when asked (`make bench-growth`).
"""

import argparse
import json
import random
import sqlite3
import sys
from collections.abc import Iterator
from pathlib import Path

SCHEMA = Path(__file__).resolve().parents[2] / "schema.sql"
EPOCH = 1_735_689_600.0  # 2025-01-01: the first session; a year later the last
YEAR = 365 * 86400.0

# Words of a prompt, an answer, a tool's output, and of the outputs that are whole files.
USER, ASSISTANT, TOOL, HUGE = 30, 120, 350, 20_000
HUGE_EVERY = 32  # of so many tool outputs one is a whole file

COMMON = (
    "the of and to in a is that for it on with as be "
    "this are from by at or an have not you we can file error "
    "test build server request database function value index store session agent deploy config "
    "python module import return class type string number list table query cache "
).split()
CHINESE = (
    "的一是了我不人在他有这个上们来到时大地为子中你说生国年着就那和要她出也得里后自以"
    "会家可下而过天去能对小多然于心学么之都好看起发当没成只如事把还用第样道想作种开美"
    "总从无情己面最女但现前些所同日手又行意动方期它头经长儿回位分爱老因很给名法间斯知"
    "世什两次使身者被高已亲其进此话常与活正感"
)
SOURCES = ("cli",) * 11 + ("telegram",) * 4 + ("discord",) * 2 + ("cron",) * 3
MODELS = ("atlas-4", "atlas-4-mini", "basalt-2", "cedar-1")
TOOLS = ("terminal", "read_file", "web_search", "patch")


def vocabulary(chance: random.Random, size: int = 30_000) -> list[str]:
    """Pronounceable words; the first are the common ones."""
    syllables = [a + b for a in "bcdfghklmnprstvwz" for b in "aeiou"]
    words = dict.fromkeys(COMMON)
    while len(words) < size:
        words["".join(chance.choices(syllables, k=chance.choice((2, 2, 3, 3, 4))))] = None
    return list(words)


class Text:
    """Sentences in which few words are frequent and most are rare (Zipf)."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.words = vocabulary(chance)
        total, self.weights = 0.0, []
        for rank in range(1, len(self.words) + 1):
            total += 1 / rank
            self.weights.append(total)

    def __call__(self, mean: int) -> str:
        length = max(3, int(self.chance.gauss(mean, mean / 3)))
        text = " ".join(self.chance.choices(self.words, cum_weights=self.weights, k=length))
        if self.chance.random() < 0.05:
            text += " " + "".join(self.chance.choices(CHINESE, k=min(length, 60))) + "。"
        return text


def rows(sessions: int, messages: int, seed: int) -> Iterator[tuple[tuple, list[tuple]]]:
    """(session row, its message rows), parents before children."""
    chance = random.Random(seed)
    text = Text(chance)
    prompt = text(1500)
    previous: str | None = None
    for number in range(sessions):
        start = EPOCH + YEAR * number / sessions
        session_id = (
            f"{20250101 + number // 100:08d}_{number % 100:06d}_{chance.randrange(16**6):06x}"
        )
        source = chance.choice(SOURCES)
        compressed = chance.random() < 0.1
        share = messages * (number + 1) // sessions - messages * number // sessions
        ended = None if chance.random() < 0.05 else start + share * 20.0
        title = f"{text(4)} {number}" if chance.random() < 0.7 else None
        model = chance.choice(MODELS)
        parent, previous = previous, (session_id if compressed and ended else None)
        body = list(talk(chance, text, session_id, start, share, number))
        yield (
            (session_id, source, f"user-{number % 7}", model, '{"temperature": 0.2}',
             prompt + f" {number}", parent, start, ended,
             "compression" if previous else "user_exit" if ended else None,
             share, share // 4, share * 900, share * 150, title),
            body,
        )  # fmt: skip


def talk(
    chance: random.Random, text: Text, session_id: str, start: float, length: int, number: int
) -> Iterator[tuple]:
    """Rows of user, assistant with a call, tool, assistant, in turn."""
    for turn in range(length):
        at = start + turn * 20.0
        step = turn % 4
        if step == 0:
            rare = f" rare{number}word{turn}" if turn == 0 else ""
            yield (session_id, "user", text(USER) + rare, None, None, None, at)
        elif step == 1:
            call = {
                "id": f"call_{number}_{turn}",
                "type": "function",
                "function": {
                    "name": TOOLS[number % 4],
                    "arguments": json.dumps({"command": text(8)}),
                },
            }
            yield (session_id, "assistant", text(ASSISTANT), None, json.dumps([call]), None, at)
        elif step == 2:
            mean = HUGE if chance.randrange(HUGE_EVERY) == 0 else TOOL
            yield (session_id, "tool", text(mean), f"call_{number}_{turn - 1}", None,
                   TOOLS[number % 4], at)  # fmt: skip
        else:
            yield (session_id, "assistant", text(ASSISTANT), None, None, None, at)


def make(path: Path, sessions: int, messages: int, seed: int = 11) -> None:
    """Write the store. The indexes are filled at the end, which is quicker than by triggers and
    leaves the same content.
    """
    path.unlink(missing_ok=True)
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = OFF")
    db.execute("PRAGMA cache_size = -400000")
    db.executescript(SCHEMA.read_text(encoding="utf-8"))
    triggers = db.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
    for name, _ in triggers:
        db.execute(f"DROP TRIGGER {name}")
    db.execute("BEGIN")
    for session, body in rows(sessions, messages, seed):
        db.execute(
            "INSERT INTO sessions (id, source, user_id, model, model_config, system_prompt, "
            "parent_session_id, started_at, ended_at, end_reason, message_count, tool_call_count, "
            "input_tokens, output_tokens, title) VALUES (" + ",".join("?" * 15) + ")",
            session,
        )
        db.executemany(
            "INSERT INTO messages (session_id, role, content, tool_call_id, tool_calls, "
            "tool_name, timestamp) VALUES (?,?,?,?,?,?,?)",
            body,
        )
    for index in ("messages_fts", "messages_fts_trigram"):
        db.execute(
            f"INSERT INTO {index}(rowid, content) SELECT id, COALESCE(content, '') || ' ' || "
            "COALESCE(tool_name, '') || ' ' || COALESCE(tool_calls, '') FROM messages"
        )
    for _, sql in triggers:
        db.execute(sql)
    db.execute("COMMIT")
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    db.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("store", type=Path)
    parser.add_argument("--sessions", type=int, default=1000)
    parser.add_argument("--messages", type=int, default=68_000)
    parser.add_argument("--seed", type=int, default=11)
    given = parser.parse_args()
    make(given.store, given.sessions, given.messages, given.seed)
    size = given.store.stat().st_size
    print(f"{given.store}: {given.sessions:,} sessions, {given.messages:,} messages, "
          f"{size / 1e6:,.0f} MB", file=sys.stderr)  # fmt: skip


if __name__ == "__main__":
    main()
