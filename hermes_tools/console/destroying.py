"""What delete and prune share: asking, exporting first, removing, telling how to undo it."""

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated

from hermes_tools.console import archive, streams, text
from hermes_tools.console.options import Store, confirm, option
from hermes_tools.console.progress import bar
from hermes_tools.console.targets import Target
from hermes_tools.store import inuse, schema, space
from hermes_tools.store.batches import HOLD, Moment, Outcome, batches, moment
from hermes_tools.store.db import Database, snapshot
from hermes_tools.store.errors import Usage
from hermes_tools.store.lineage import Lineage
from hermes_tools.store.removal import Doomed, Removal, doom, remains, sealed

Export = Annotated[
    Path | None,
    option("--export", metavar="FILE|DIR",
           help="Write what goes to a new file first, and read it back."),
]  # fmt: skip
Append = Annotated[bool, option("--append", help="Extend the file of --export.")]
Files = Annotated[
    bool, option("--files", help="Also remove the transcript files of what goes.")
]

# Seconds for a byte of text, a guess that the first transactions correct; and the bytes a row
# costs whatever is in it.
SPEED = 1 / 4_000_000
ROW = 1_000
LONG = 4_000_000  # bytes; conversations beyond go last


@contextmanager
def opened(store: Store, dry_run: bool, alone: bool = False) -> Iterator[Database]:
    """The store for reading in a dry run, else for writing, with `alone` nobody else in it, and
    every index such that what is deleted can be erased from it.
    """
    if alone and not dry_run:
        store.say(f"store {store.path}")
        newer, detach = store.permits
        with inuse.alone(store.path, "--erase") as db:
            schema.require_store(db)
            schema.probe(db, newer_schema=newer, detach_cjk=detach)
            space.require_erasable(db)
            if detach:
                store.detach(db)
            yield db
    else:
        with store.change(dry_run) as db:
            if alone:
                space.require_erasable(db)
            yield db


def cost(doomed: Doomed) -> float:
    """What a conversation's removal weighs."""
    return doomed.bytes + ROW * (doomed.messages + 1)


def doomed(db: Database, found: Iterable[Target], segment: bool = False) -> list[Doomed]:
    """The targets looked over, each row once."""
    lineage, kept = Lineage(db), []
    seen: set[str] = set()
    for target in found:
        one = doom(db, target.one, lineage, segment=segment)
        if seen.intersection(one.rows):
            continue
        seen.update(one.rows)
        kept.append(one)
        if segment:
            others = len(lineage.chain(target.row)) - 1
            if others:
                streams.complain(
                    f"session {target.row}: {text.count(others, 'other segment')} of its "
                    "conversation stay"
                )
    return kept


def total(found: list[Doomed]) -> str:
    """`2 conversations (3 sessions, 40 messages)`; a single one by its title or id."""
    name = text.count(len(found), "conversation")
    if len(found) == 1:
        name = repr(found[0].one.title) if found[0].one.title else found[0].one.id
    return (
        f"{name} "
        f"({text.count(sum(len(one.rows) for one in found), 'session')}, "
        f"{text.count(sum(one.messages for one in found), 'message')})"
    )


def consent(yes: bool) -> None:
    """Refuse at once where nobody can be asked, before anything is read or opened. Raises Usage."""
    if not yes and (sys.stdin is None or not sys.stdin.isatty()):
        raise Usage("nothing is destroyed unasked: --yes is needed where nobody can answer")


def agree(store: Store, found: list[Doomed], yes: bool, verb: str) -> None:
    """Ask, where there is something to ask about. Raises Negative (the answer was no)."""
    if found:
        confirm(f"{verb} {total(found)} of {store.path}?", yes)


@contextmanager
def saved(
    db: Database, found: list[Doomed], export: Path | None, append: bool, dry_run: bool
) -> Iterator[list[Doomed]]:
    """Everything that goes, written to a file first, compared cell by cell, and sealed as it was
    written. At the end, however it comes, the line that brings it back is told.
    """
    if append and export is None:
        raise Usage("--append goes with --export")
    if export is None or not found or dry_run:
        yield found
        return
    path = archive.target(export)
    with snapshot(db):
        digests = archive.save(db, [one.rows for one in found], path, append=append)
        kept = [sealed(db, one, digest) for one, digest in zip(found, digests, strict=True)]
    try:
        yield kept
    finally:
        streams.complain(f"to undo: {archive.undo(path, db.path)}")


def removed(
    db: Database, found: list[Doomed], removal: Removal, *,
    max_lock: float | None = None, quiet: bool = False,
) -> Iterator[Outcome]:  # fmt: skip
    """Remove them in short transactions, the longest last; outcomes as they are committed."""

    def prepare(one: Doomed) -> Doomed:
        return one if one.digest else sealed(db, one)

    def left(one: Doomed) -> Outcome:
        return Outcome(one.one, "skipped", "max_lock", removal.told(one))

    if removal.dry_run:
        now: Moment = moment(db, removal.home)
        yield from (removal(now, prepare(one)) for one in found)
        return
    found = sorted(found, key=lambda one: max(0.0, cost(one) - LONG))
    left_files = 0
    with bar("removing", len(found), "conversations", quiet) as advance:
        for outcome in batches(
            db, found, removal, removal.home, cost=cost, speed=SPEED, prepare=prepare,
            max_lock=max_lock, left=left, hold=HOLD if max_lock is None else min(HOLD, max_lock),
        ):  # fmt: skip
            advance(1)
            done = removal.finish(db, outcome)
            if done.more.get("routing_left"):
                streams.complain(
                    f"session {done.one.id}: the running gateway keeps its route until it is used"
                )
            left_files += len(done.more.get("files_left", ()))
            yield done
    if left_files:
        streams.complain(
            f"{text.count(left_files, 'transcript file')} of theirs left; --files removes such"
        )


def erased(db: Database, found: list[Doomed], removal: Removal) -> Iterator[Outcome]:
    """Remove them so that the file holds no trace, and only then tell, with what remains
    elsewhere. All or nothing is told: room is looked for before anything goes.
    """
    space.require_room(db.path, sum(space.files(db.path).values()))
    space.secure(db)
    outcomes = list(removed(db, found, removal))
    space.erase(db)
    for outcome in outcomes:
        if outcome.action in ("deleted", "cleared"):
            rows = outcome.more["session_ids"]
            outcome.more["remains"] = remains(db, removal.home, rows)
            outcome.one.title = outcome.one.preview = None  # a receipt repeats nothing of it
            yield replace(outcome, action="erased")
        else:
            yield outcome
