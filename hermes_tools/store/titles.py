"""Titles: cleaned, unique, numbered, handed on along a conversation (store-facts 3.2)."""

import re
import sqlite3
import time
import unicodedata
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from typing import Any, NamedTuple

from hermes_tools.store import inuse, messages
from hermes_tools.store.db import Database, transaction
from hermes_tools.store.errors import Negative, NotFound, Unsupported, Usage
from hermes_tools.store.lineage import Lineage
from hermes_tools.store.sessions import Conversation, Reader, escaped, numbered

LIMIT = 100  # characters (code points, as the agent counts them)
EXCERPT = 500  # characters of each side of the first exchange

# Patterns are compiled at their first use: whoever only reads titles needs none of them.
# A terminal sequence goes as a whole: without its first byte the rest would stay as text.
SEQUENCES = (
    r"(?s)\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b[PX^_].*?(?:\x1b\\|$)"
    r"|(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]|\x1b[ -/]*[0-~]?|^\s*\][012];"
)
# One of these between two words held them apart, so it becomes a space.
SPACING = r"[\t\n\v\f\r\x85\u2028\u2029\u200b\ufeff]"
# Controls, marks that turn the direction of text, and invisible ones that carry nothing.
UNSEEN = (
    r"[\x00-\x1f\x7f-\x9f\u061c\u200c\u200e\u200f\u202a-\u202e\u2060-\u206f\ufff9-\ufffc]"
)
# A joiner holds an emoji together; anywhere else it only makes two equal titles differ.
PICTURE = "[\u00a9\u00ae\u203c-\u3299\U0001f000-\U0001faff]"
JOINERS = (
    rf"(?<!{PICTURE})(?<!{PICTURE}[\ufe0f\U0001f3fb-\U0001f3ff])\u200d|\u200d(?!{PICTURE})"
)
# Tags spell the flags of Scotland and the like; elsewhere they hide text.
TAGS = "(\U0001f3f4[\U000e0020-\U000e007f]+)|[\U000e0000-\U000e007f]"
SURROGATES = "[\ud800-\udfff]"


def clean(text: str) -> str:
    """A title as it may be stored: one line, no controls, no terminal sequences, no direction
    overrides, single spaces; '' if nothing visible is left. Emoji and accents stay whole.
    """
    text = re.sub(SURROGATES, "\ufffd", re.sub(SEQUENCES, "", text))
    text = re.sub(UNSEEN, "", re.sub(SPACING, " ", text))
    text = re.sub(TAGS, lambda found: found[1] or "", re.sub(JOINERS, "", text))
    text = " ".join(text.split())
    return text if any(map(_visible, text)) else ""


def _visible(letter: str) -> bool:
    return unicodedata.category(letter)[0] not in "CMZ"


def check(text: str) -> str:
    """The cleaned title. Raises Usage if it is blank or longer than LIMIT."""
    title = clean(text)
    if not title:
        raise Usage("a blank title; --clear takes a title away")
    if len(title) > LIMIT:
        raise Usage(f"a title of {len(title)} characters; at most {LIMIT}: {title[:20]}…")
    return title


def cut(text: str, limit: int) -> str:
    """At most `limit` characters, cut between whole characters as a person sees them."""
    if len(text) <= limit:
        return text
    from wcwidth import iter_graphemes

    kept = ""
    for letter in iter_graphemes(text):
        if len(kept) + len(letter) > limit:
            break
        kept += letter
    return kept.rstrip()


def next_title(db: Database, title: str) -> str:
    """The next free one of a title's line: `base`, `base #2`, `base #3` … Numbers count by value,
    and the base is shortened where number and all would be too long.
    """
    base = numbered(title)[0]
    like = escaped(base) + " #%"
    line = [
        (base, 1) if row[0] == base else numbered(row[0])
        for row in db.execute(
            "SELECT title FROM sessions WHERE title = ? OR title LIKE ? ESCAPE '\\'", (base, like)
        )
    ]
    highest = max((number for name, number in line if name == base), default=0)
    if highest == 0:
        return base
    while True:
        highest += 1
        mark = f" #{highest}"
        found = cut(base, LIMIT - len(mark)) + mark
        if holder(db, found) is None:
            return found


def holder(db: Database, title: str, besides: str | None = None) -> Any:
    """(id, source, archived) of the session that has this title, other than `besides`."""
    archived = "archived" if db.schema.has("sessions", "archived") else "0"
    return db.execute(
        f"SELECT id, source, {archived} AS archived FROM sessions WHERE title = ? AND id IS NOT ?",
        (title, besides),
    ).fetchone()


class Change(NamedTuple):
    """What became of a title: the row's id, its title now and before, the ancestor that gave it
    up, and whether anything was written.
    """

    session_id: str
    title: str | None
    before: str | None
    taken_from: str | None = None
    changed: bool = True


def current(db: Database, session_id: str) -> str | None:
    """A row's own title. Raises NotFound, and Unsupported where the store has no titles."""
    if not db.schema.has("sessions", "title"):
        raise Unsupported(f"{db.path}: a store of before titles; hermes-session-migrate adds them")
    row = db.execute("SELECT title FROM sessions WHERE id = ?", (session_id,)).fetchone()
    if row is None:
        raise NotFound(f"session {session_id}: not in this store")
    return row[0]  # type: ignore[no-any-return]


def set_title(
    db: Database, session_id: str, title: str | None, *,
    auto_number: bool = False, source: str = "user", dry_run: bool = False,
) -> Change:  # fmt: skip
    """Give one row a cleaned title, or with None take its title away. Call it in a transaction.

    A row takes a title over from a compression ancestor of its own. auto_number: a title in use
    becomes the next of its line. source: title_source where the store has it, user or llm.
    Raises Negative that names the holder.
    """
    before = current(db, session_id)
    if title == before:
        return Change(session_id, title, before, changed=False)
    if before == "Bot Chat" and _hidden(db, session_id):
        raise Negative(f"session {session_id}: the agent's own Bot Chat keeps its title")
    taken_from = None
    other = holder(db, title, session_id) if title is not None else None
    if other is not None and title is not None:
        chain = Lineage(db).chain(session_id)
        own = chain[: chain.index(session_id)] if session_id in chain else []
        if other["id"] in own:
            taken_from = other["id"]
        elif auto_number:
            title = next_title(db, title)
        else:
            state = ", archived" if other["archived"] else ""
            raise Negative(
                f"title {title!r}: held by session {other['id']} "
                f"(source {other['source'] or 'unknown'}{state})"
            )
    if not dry_run:
        if taken_from is not None:
            _write(db, taken_from, None, source)
        _write(db, session_id, title, source)
    return Change(session_id, title, before, taken_from)


def _hidden(db: Database, session_id: str) -> bool:
    return db.schema.has("sessions", "hidden") and bool(
        db.execute("SELECT hidden FROM sessions WHERE id = ?", (session_id,)).fetchone()[0]
    )


def _write(db: Database, session_id: str, title: str | None, source: str) -> None:
    ranked = db.schema.has("sessions", "title_source")
    by = ", title_source = :by" if ranked else ""
    try:
        db.execute(
            f"UPDATE sessions SET title = :title{by} WHERE id = :id",
            {"title": title, "by": source if title is not None else None, "id": session_id},
        )
    except sqlite3.IntegrityError as error:  # a unique index on something we did not foresee
        raise Negative(f"title {title!r}: refused by the store: {error}") from error


class Wish(NamedTuple):
    """A title somebody wants for a session: already checked, None to take it away. With `expect`
    it is granted only while that is the title. `by` is user, or llm for a program's.
    """

    session_id: str
    title: str | None
    expect: tuple[str | None] | None = None
    by: str = "user"
    auto_number: bool = False


def grant(db: Database, wish: Wish, *, dry_run: bool = False, live: bool = False) -> dict[str, Any]:
    """Do it in a transaction of its own: the session record as it is then, with `action` (titled,
    cleared, unchanged), `before` and `taken_from`. A dry run asks the same questions.

    Raises Negative: taken, changed meanwhile, or under compression (unless `live`).
    """
    with nullcontext() if dry_run else transaction(db):
        now = inuse.leases(db, time.time()).get(wish.session_id)
        if now == "compression" and not live:
            raise Negative(f"session {wish.session_id}: left alone: {inuse.REASONS[now]}")
        has = current(db, wish.session_id)
        if wish.expect is not None and wish.expect[0] != has:
            raise Negative(f"session {wish.session_id}: has the title {has!r} by now")
        change = set_title(
            db, wish.session_id, wish.title, auto_number=wish.auto_number, source=wish.by,
            dry_run=dry_run,
        )  # fmt: skip
    done, would = ("titled", "would_title") if wish.title else ("cleared", "would_clear")
    record = row_record(db, wish.session_id)
    record["title"] = change.title
    if change.before != change.title:
        record["before"] = change.before
    if change.taken_from:
        record["taken_from"] = change.taken_from
    record["action"] = "unchanged" if not change.changed else would if dry_run else done
    return record


def row_record(db: Database, session_id: str) -> dict[str, Any]:
    """The session record of one row, with that row's own title."""
    record = Reader(db).conversation(session_id, segment=True).record()
    record["title"] = current(db, session_id)
    return record


def untitled(db: Database, found: Iterable[Conversation]) -> Iterator[dict[str, Any]]:
    """Those of these conversations that want a title, as session records with `excerpt` (the
    first exchange) and `expect`: null. Both sides must have spoken. A continuation whose
    conversation has a title is told the next of its line in `title`.
    """
    for one in found:
        if current(db, one.id) is not None:
            continue
        excerpt = first_exchange(db, one.rows)
        if excerpt is not None:
            name = next_title(db, one.title) if one.title else None
            yield {**one.record(), "title": name, "excerpt": excerpt, "expect": None}


def first_exchange(db: Database, rows: list[str]) -> dict[str, str] | None:
    """The start of a conversation for whoever names it: {"user": …, "assistant": …}, EXCERPT
    characters each; None before both have spoken.
    """
    said: dict[str, str] = {}
    for one in rows:
        for row in messages.rows(db, one):
            role = row["role"]
            if role not in ("user", "assistant") or role in said or row["display_kind"] == "hidden":
                continue
            text = messages.plain(row["content"]).strip()
            if not text or messages.is_carrier(row) or (role == "assistant" and "user" not in said):
                continue
            said[role] = cut(text, EXCERPT)
            if len(said) == 2:
                return said
    return None


QUOTES = "\"'“”„«»‘’「」『』`*"


def suggested(output: str) -> str:
    """The title a program proposed: its first line, without quotes and a leading `Title:`.
    Raises Negative where it is blank, too long, or longer than 12 words.
    """
    line = next((line for line in output.splitlines() if line.strip()), "")
    title = clean(line).strip(QUOTES + " ")
    title = re.sub(r"^title\s*[:：]\s*", "", title, flags=re.I).strip(QUOTES + " ")
    title = title.rstrip(".,!;:。！；：，、 ").strip(QUOTES + " ")
    if not title:
        raise Negative("no title was proposed")
    if len(title.split()) > 12 or len(title) > LIMIT:
        raise Negative(f"too long for a title: {title[:60]}…")
    return title
