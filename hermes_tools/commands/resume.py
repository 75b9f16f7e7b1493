"""hermes-session-resume: name the session to resume"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from hermes_tools.console import recap as panel
from hermes_tools.console import streams, targets, text
from hermes_tools.console.app import entry
from hermes_tools.console.options import Filters, Output, Store, option
from hermes_tools.store import lineage, messages
from hermes_tools.store.db import Database
from hermes_tools.store.errors import Missing, Negative, NotFound, Usage
from hermes_tools.store.home import transcripts
from hermes_tools.store.selection import Selection
from hermes_tools.store.sessions import (
    Conversation,
    Reader,
    conversations,
    require_sources,
    resolve,
)

OFFERED = 20  # conversations of the numbered list; fzf gets all


def resume(
    store: Store, filters: Filters, output: Output,
    ref: Annotated[str | None, typer.Argument(
        metavar="[SESSION]", show_default=False,
        help="A session id, title or unique prefix; none or `latest`: the newest of source cli."
    )] = None,
    pick: Annotated[bool, option("--pick", help="Let a person choose: fzf, or a list.")] = False,
    recap: Annotated[bool, option(
        "--recap", help="Show on standard error how the conversation ended.")] = False,
    exec_: Annotated[bool, option(
        "--exec", help="Become `hermes --resume ID` instead of printing the id.")] = False,
) -> None:  # fmt: skip
    """Print the bare id of the session in which a conversation goes on: the tip of its compression
    chain that has messages.

    id=$(hermes-session-resume 'my project') && hermes --resume "$id"
    """
    if pick and ref is not None:
        raise Usage("--pick and a session exclude each other")
    if ref is not None and ref != "latest" and filters.given:
        raise Usage("a named session goes without filters")
    if exec_:
        agent(store)
    with store.read() as db:
        if pick:
            chosen = picked(db, filters.selection(archived="no", internal="no"), store)
        elif ref is None or ref == "latest":
            chosen = latest(db, filters.selection(archived="no", internal="no"), filters)
        else:
            chosen = named(db, ref, store.place / "sessions")
        one = Reader(db).conversation(chosen)
        if recap:
            show(panel.recap(db, one.rows, panel.settings(store.place), title=one.title))
    if exec_:
        become(store, chosen)
    bare = output.format == "auto" and not (output.text or output.fields or output.null)
    if not bare:
        output.write([one.record() | {"session_id": chosen}], targets.table, store.quiet)
    elif not store.quiet:
        streams.write(chosen.encode("utf-8", "surrogateescape") + b"\n")


def latest(db: Database, selection: Selection, filters: Filters) -> str:
    """The newest conversation with messages; of source cli where no filter names another.

    Raises NotFound.
    """
    wanted = selection if filters.source else replace(selection, sources=("cli",))
    require_sources(db, wanted)
    # Selected here, one by one: the newest is mostly among the first.
    for one in conversations(db, selection, preview=False):
        tip = with_messages(db, one.rows) if wanted.takes(one) else None
        if tip is not None:
            return tip
    raise NotFound("no such conversation; hermes-session-list shows what there is")


def named(db: Database, ref: str, folder: Path) -> str:
    """The session in which a named one goes on; a word on standard error where that is another.

    Raises Negative where none of its conversation has messages.
    """
    row = resolve(db, ref)
    chain = lineage.Lineage(db).chain(row)
    tip = with_messages(db, chain)
    if tip is None:
        kept = [path for one in chain for path in transcripts(folder, one)]
        raise Negative(
            f"session {row}: has no messages"
            + (f"; there is a transcript file: {kept[0]}" if kept else "")
        )
    if tip != row:
        streams.complain(f"session {row}: goes on in {tip}")
    return tip


def with_messages(db: Database, rows: list[str]) -> str | None:
    """The last of these rows that has messages to go on from."""
    return next((row for row in reversed(rows) if messages.any_seen(db, [row])), None)


def picked(db: Database, selection: Selection, store: Store) -> str:
    """The conversation a person chooses. Raises Usage (nobody is there), Negative (no choice)."""
    if sys.stdin is None or not sys.stdin.isatty() or not sys.stderr.isatty():
        raise Usage("--pick needs a person at a terminal")
    require_sources(db, selection)
    fzf = shutil.which("fzf")
    found = []
    for one in conversations(db, selection):
        tip = with_messages(db, one.rows)
        if tip is not None:
            found.append((tip, one))
        if not fzf and len(found) == OFFERED:
            break
    if not found:
        raise NotFound("there is no conversation to choose from")
    return by_fzf(fzf, found, store) if fzf else by_number(found)


def by_fzf(fzf: str, found: list[tuple[str, Conversation]], store: Store) -> str:
    """Choose with fzf: a line each, the recap beside it."""
    beside = Path(sys.argv[0]).absolute().with_name("hermes-session-show")
    show_it = str(beside) if beside.exists() else "hermes-session-show"
    done = subprocess.run(
        [fzf, "--delimiter=\t", "--with-nth=2..", "--no-sort", "--reverse", "--prompt=resume> ",
         "--preview", '"$HERMES_TOOLS_SHOW" --recap -- {1}', "--preview-window=right,60%,wrap"],
        input="".join(f"{tip}\t{offer(one)}\n" for tip, one in found).encode("utf-8", "replace"),
        stdout=subprocess.PIPE, check=False,
        env={**os.environ, "HERMES_DB": str(store.path), "HERMES_TOOLS_SHOW": show_it},
    )  # fmt: skip
    if done.returncode != 0:
        raise Negative("nothing chosen")
    return done.stdout.decode("utf-8", "surrogateescape").partition("\t")[0]


def by_number(found: list[tuple[str, Conversation]]) -> str:
    """Choose from a numbered list on standard error; a wrong answer is asked for again."""
    show(f"{number:3}  {offer(one)}" for number, (_, one) in enumerate(found, 1))
    while True:
        sys.stderr.write(f"resume which? [1-{len(found)}] ")
        sys.stderr.flush()
        answer = sys.stdin.readline()
        if not answer.strip():
            raise Negative("nothing chosen")
        if answer.strip().isdecimal() and 1 <= int(answer) <= len(found):
            return found[int(answer) - 1][0]


def offer(one: Conversation) -> str:
    """A conversation as a line to choose from."""
    title = text.line(one.title or one.preview or "untitled").replace("\t", " ")
    return text.cut(f"{text.ago(one.last_active):>10}  {text.pad(one.source or '?', 9)}  {title}",
                    text.width() - 6)  # fmt: skip


def show(lines: Iterator[str]) -> None:
    """Lines for the person beside the pipe: standard output holds the id alone."""
    for line in lines:
        sys.stderr.write(text.encode(line).decode() + "\n")
    sys.stderr.flush()


def agent(store: Store) -> str:
    """The agent's program. Raises Missing, and Usage for a store that is no home's own."""
    if store.path.absolute() != (store.place / "state.db").absolute():
        raise Usage(f"--exec: {store.path} is not the store of a home, which the agent would open")
    found = shutil.which("hermes")
    if found is None:
        raise Missing("hermes: not found on PATH")
    return found


def become(store: Store, session_id: str) -> NoReturn:
    """Run the agent in this program's place, on the same home."""
    program = agent(store)
    streams.flush()
    os.environ["HERMES_HOME"] = str(store.place)
    os.execv(program, ["hermes", "--resume", session_id])


main = entry(resume)
