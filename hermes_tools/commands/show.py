"""hermes-session-show: show a conversation to a person"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated
from urllib.parse import quote

from hermes_tools.console import files, page, recap, streams, text, transcript
from hermes_tools.console.app import entry
from hermes_tools.console.options import Ids, Inactive, Store, chosen, option
from hermes_tools.store.db import Database, is_wal, snapshot
from hermes_tools.store.errors import Usage
from hermes_tools.store.home import transcripts
from hermes_tools.store.messages import any_seen
from hermes_tools.store.sessions import Conversation, Reader

ENDINGS = {"text": "txt", "markdown": "md", "html": "html"}

Format = Annotated[
    str,
    option("-f", "--format", metavar="text|markdown|html", show_default=False,
           help="Text (the default, anywhere), Markdown, or one self-contained web page."),
]  # fmt: skip
Text = Annotated[bool, option("-t", "--text", help="Short for -f text.")]
Recap = Annotated[
    bool, option("--recap", help="Only the last exchanges, as the agent's panel shows them.")
]
Roles = Annotated[
    str | None,
    option("--role", metavar="A,B",
           help="Only messages of user, assistant, tool or system; named tools are unfolded."),
]  # fmt: skip
Segment = Annotated[
    bool, option("--segment", help="Only the session row named, not its whole conversation.")
]
Folder = Annotated[
    Path | None,
    option("-o", "--output", metavar="DIR", help="A file for each, named by its id."),
]


def show(
    store: Store, session: Ids = None, format: Format = "text", text_: Text = False,
    recap_: Recap = False, role: Roles = None, inactive: Inactive = False,
    segment: Segment = False, output: Folder = None,
) -> None:
    """Show conversations to a person: what was said from beginning to end, tool calls folded,
    pictures as placeholders. For programs there is hermes-session-export.
    """  # fmt: skip
    form = "text" if text_ else format
    if form not in ENDINGS:
        raise Usage(f"-f {form}: not one of text, markdown, html (for programs: "
                    "hermes-session-export)")  # fmt: skip
    if recap_ and form != "text":
        raise Usage("--recap is text")
    roles = frozenset(word.strip() for word in role.split(",")) if role is not None else None
    if roles is not None and "" in roles:
        raise Usage("--role names no role")
    names = streams.names(session)
    with store.read() as db, snapshot(db):

        def lines(one: Conversation) -> Iterable[str]:
            if recap_:
                return recap.recap(db, one.rows, recap.settings(store.place), title=one.title)
            turns = transcript.turns(db, one.rows, roles=roles, inactive=inactive)
            whole = roles is not None and "tool" in roles
            return RENDERERS[form](one, turns, whole)

        # Where a waiting reader would lock writers out, all is read before a line is written.
        found = [
            (one, lines(one) if is_wal(db) else list(lines(one)))
            for one in meant(db, names, segment, inactive, store.place / "sessions")
        ]
        if output is not None:
            write_files(found, output, form)
        elif not store.quiet:
            write(found, form)


RENDERERS = {"text": transcript.as_text, "markdown": transcript.as_markdown, "html": page.article}


def meant(
    db: Database, names: list[streams.Named], segment: bool, inactive: bool, folder: Path
) -> Iterator[Conversation]:
    """The conversations named, each once; a word about one in which nothing is to be seen."""
    reader, seen = Reader(db), set()
    for session_id, _ in chosen(db, names):
        one = reader.conversation(session_id, segment=segment)
        if one.id in seen:
            continue
        seen.add(one.id)
        if not any_seen(db, one.rows, inactive=inactive):
            kept = [path for row in one.rows for path in transcripts(folder, row)]
            undone = any_seen(db, one.rows, inactive=True)
            hint = "all are undone, --inactive shows them" if undone else ""
            hint = f"there is a transcript file: {kept[0]}" if kept else hint
            streams.warn(f"session {one.id}: no messages" + (f"; {hint}" if hint else ""))
        yield one


def write(found: list[tuple[Conversation, Iterable[str]]], form: str) -> None:
    """Conversations to standard output, one after the other."""
    for number, (one, lines) in enumerate(found):
        if form == "html" and number == 0:
            streams.write(b"".join(map(written, page.head(transcript.headline(one)))))
        elif number:
            streams.write(b"\n---\n\n" if form == "markdown" else b"\n")
        for line in lines:
            streams.write(written(line))
    if form == "html" and found:
        streams.write(written(page.foot()))


def write_files(
    found: list[tuple[Conversation, Iterable[str]]], folder: Path, form: str
) -> None:
    """A file for each, private, whole or not at all."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for one, lines in found:
        path = folder / f"{file_name(one.id)}.{ENDINGS[form]}"
        with text.on_paper(), files.atomic(path) as file:
            if form == "html":
                file.writelines(map(written, page.head(transcript.headline(one))))
            file.writelines(map(written, lines))
            if form == "html":
                file.write(written(page.foot()))
    streams.complain(f"{folder}: {text.count(len(found), 'file')}")


def written(line: str) -> bytes:
    """A line as it is written."""
    return text.encode(line) + b"\n"


def file_name(session_id: str) -> str:
    """An id as the name of a file that lies in its folder, whatever the id holds."""
    name = quote(session_id.encode("utf-8", "surrogateescape"), safe=" ")
    if name.startswith("."):
        name = "%2E" + name[1:]
    return name[:200]


main = entry(show)
