"""Options declared once: which store, which sessions, which form of output."""

import math
import os
import re
import sqlite3
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import typer

from hermes_tools.console import streams, text
from hermes_tools.console.app import Group
from hermes_tools.console.streams import Record
from hermes_tools.store import home as places
from hermes_tools.store import schema, times
from hermes_tools.store.db import Database, reader, writer
from hermes_tools.store.errors import Damaged, NotFound, StoreError, Usage
from hermes_tools.store.selection import Selection
from hermes_tools.store.sessions import require_sources, resolve


def option(
    *names: str, help: str, panel: str = "Options", metavar: str | None = None, **more: Any
) -> Any:
    """One option as typer wants it, under a heading of --help."""
    return typer.Option(*names, help=help, rich_help_panel=panel, metavar=metavar, **more)


def _store(*names: str, help: str, **more: Any) -> Any:
    return option(*names, help=help, panel="Store", **more)


def _select(*names: str, help: str, **more: Any) -> Any:
    return option(*names, help=help, panel="Selecting sessions", **more)


def _output(*names: str, help: str, **more: Any) -> Any:
    return option(*names, help=help, panel="Output", **more)


Ids = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[SESSION]...", show_default=False,
        help="Session ids, titles or unique prefixes; - reads ids or records from standard input.",
    ),
]  # fmt: skip
DryRun = Annotated[bool, option("--dry-run", help="Say what would be done, and do nothing.")]
Yes = Annotated[bool, option("--yes", help="Do not ask; needed where nobody can answer.")]
Live = Annotated[
    bool, option("--live", help="Also act on sessions in use, or while others hold the store.")
]
Limit = Annotated[
    int | None,
    option("-n", "--limit", metavar="N", min=0, help="At most N; 0 for all.", show_default=False),
]
AllProfiles = Annotated[
    bool, option("--all-profiles", help="The stores of all profiles of this home, in turn.")
]
Inactive = Annotated[bool, option("--inactive", help="Also messages their user has undone.")]


class Store(Group):
    """The store a command works on, and how it speaks about it."""

    db: Annotated[
        Path | None,
        _store("--db", metavar="FILE",
               help="The store; wins over --home and --profile. Env HERMES_DB."),
    ] = None
    home: Annotated[
        Path | None,
        _store("--home", metavar="DIR",
               help="The agent's home, default ~/.hermes. Env HERMES_HOME."),
    ] = None
    profile: Annotated[
        str | None, _store("--profile", metavar="NAME", help="The store of this profile.")
    ] = None
    timeout: Annotated[
        float,
        _store("--timeout", metavar="SECONDS", help="How long to wait for a lock, default 10.",
               show_default=False),
    ] = 10.0
    quiet: Annotated[
        bool, _store("-q", "--quiet", help="No records; the status alone answers.")
    ] = False
    verbose: Annotated[
        bool, _store("-v", "--verbose", help="Name the store, and say what is skipped.")
    ] = False
    version: streams.Version = False

    def check(self) -> None:
        """Raises Usage; a store that is not there is reported where it is wanted."""
        if not math.isfinite(self.timeout) or self.timeout < 0:
            raise Usage(f"--timeout {self.timeout:g}: not a number of seconds")
        with suppress(StoreError):  # an unknown profile
            streams.about(self.path)

    @property
    def named(self) -> Path | None:
        """The file somebody named; HERMES_DB yields to a typed --home or --profile, as options
        go before the environment.
        """
        if self.db is not None:
            return self.db
        typed = self.home is not None or self.profile is not None
        name = os.environ.get("HERMES_DB")
        return None if typed or not name else Path(name)

    @property
    def place(self) -> Path:
        """The home the store belongs to; beside a file that was named, its folder."""
        if self.named is not None and self.home is None and self.profile is None:
            return self.named.absolute().parent
        root = places.home(self.home)
        return places.profile_home(root, self.profile) if self.profile is not None else root

    @property
    def path(self) -> Path:
        """The store's file."""
        return self.named or self.place / "state.db"

    def say(self, message: str) -> None:
        """A word on standard error for those who asked for --verbose."""
        if self.verbose:
            streams.complain(message)

    @contextmanager
    def read(self) -> Iterator[Database]:
        """The store for reading."""
        self.say(f"store {self.path}")
        with reader(self.path, self.timeout) as connection:
            yield connection

    @contextmanager
    def write(
        self, *, newer_schema: bool = False, messages: bool = True
    ) -> Iterator[Database]:  # fmt: skip
        """The store for writing; take `db.transaction` for each change. messages=False: only rows
        of sessions will change, so that no index needs to be writable.
        """
        self.say(f"store {self.path}")
        newer, detach = self.permits
        with writer(
            self.path, self.timeout, newer_schema=newer_schema or newer, messages=messages,
            detach_cjk=detach,
        ) as connection:  # fmt: skip
            if detach:
                self.detach(connection)
            yield connection

    @contextmanager
    def change(self, dry_run: bool, *, messages: bool = True) -> Iterator[Database]:
        """The store for writing; in a dry run for reading, but refused for the same reasons."""
        if not dry_run:
            with self.write(messages=messages) as connection:
                yield connection
            return
        newer, detach = self.permits
        with self.read() as connection:
            schema.probe(connection, newer_schema=newer, messages=messages, detach_cjk=detach)
            yield connection

    @property
    def permits(self) -> tuple[bool, bool]:
        """Whether --newer-schema and --detach-cjk were given."""
        return False, False

    def detach(self, connection: Database) -> None:
        """Take a cjk index without its tokenizer out of the way, and say so."""
        from hermes_tools.store.detach import detach_cjk

        if detach_cjk(connection):
            streams.complain(
                f"{self.path}: {schema.CJK} was set aside; the agent's own "
                "'hermes sessions optimize-storage' builds it anew"
            )

    def each(
        self, all_profiles: bool, selection: Selection | None = None
    ) -> Iterator[tuple[str | None, Database]]:
        """(profile, store) for every profile in turn, or (None, store) for the one that is meant.
        A broken one is named and gives status 1 at the end, the others are read. With a selection
        only stores that have the sources it names; raises NotFound where none has.
        """
        if not all_profiles:
            with self.read() as connection:
                if selection is not None:
                    require_sources(connection, selection)
                yield None, connection
            return
        root = places.home(self.home)
        found = places.profiles(root)
        if not found:
            raise NotFound(f"{root}: no store in this home or its profiles")
        lacking: list[NotFound] = []
        for name, place in found:
            self.say(f"profile {name}: store {place / 'state.db'}")
            with ExitStack() as stack:
                try:
                    streams.about(place / "state.db")
                    connection = stack.enter_context(reader(place / "state.db", self.timeout))
                    if selection is not None:
                        require_sources(connection, selection)
                except NotFound as error:
                    lacking.append(error)
                    continue
                except (StoreError, OSError, sqlite3.Error) as error:
                    streams.warn(f"profile {name}: {error}")
                    continue
                yield name, connection
        if lacking and len(lacking) == len(found):
            raise lacking[0]


NewerSchema = Annotated[
    bool,
    _store("--newer-schema", help="Write although a trigger or index is unknown to this version."),
]
DetachCjk = Annotated[
    bool, _store("--detach-cjk", help="Set aside a cjk index whose tokenizer is not here.")
]


class Changing(Store):
    """A store whose sessions are changed, not their messages."""

    newer_schema: NewerSchema = False

    @property
    def permits(self) -> tuple[bool, bool]:
        """Whether --newer-schema and --detach-cjk were given."""
        return self.newer_schema, False


class Writing(Changing):
    """A store whose messages are written or removed."""

    detach_cjk: DetachCjk = False

    @property
    def permits(self) -> tuple[bool, bool]:
        """Whether --newer-schema and --detach-cjk were given."""
        return self.newer_schema, self.detach_cjk


class Filters(Group):
    """Which sessions; the same words in every command that selects."""

    source: Annotated[
        list[str] | None,
        _select("--source", metavar="S",
                help="Only this source (cli, telegram, cron …); repeatable."),
    ] = None
    exclude_source: Annotated[
        list[str] | None,
        _select("--exclude-source", metavar="S", help="Not this source; repeatable."),
    ] = None
    older_than: Annotated[
        list[str] | None,
        _select("--older-than", metavar="AGE",
                help="Last active longer ago than 90d, 12h, 2w; SOURCE=AGE for one source."),
    ] = None
    newer_than: Annotated[
        list[str] | None,
        _select("--newer-than", metavar="AGE", help="Last active within this age."),
    ] = None
    after: Annotated[
        str | None, _select("--after", metavar="TIME", help="Started at or after this time.")
    ] = None
    before: Annotated[
        str | None, _select("--before", metavar="TIME", help="Started before this time.")
    ] = None
    title_like: Annotated[
        str | None, _select("--title-like", metavar="TEXT", help="Title contains this text.")
    ] = None
    model: Annotated[
        str | None, _select("--model", metavar="TEXT", help="Model name contains this text.")
    ] = None
    user: Annotated[str | None, _select("--user", metavar="ID", help="Of this user id.")] = None
    end_reason: Annotated[
        str | None, _select("--end-reason", metavar="R", help="Ended for exactly this reason.")
    ] = None
    cwd: Annotated[
        str | None, _select("--cwd", metavar="DIR", help="Worked in this folder or below it.")
    ] = None
    min_messages: Annotated[
        int | None, _select("--min-messages", metavar="N", min=0, help="At least N live messages.")
    ] = None
    max_messages: Annotated[
        int | None, _select("--max-messages", metavar="N", min=0, help="At most N live messages.")
    ] = None
    min_tokens: Annotated[
        int | None,
        _select("--min-tokens", metavar="N", min=0, help="At least N tokens in and out."),
    ] = None
    max_tokens: Annotated[
        int | None,
        _select("--max-tokens", metavar="N", min=0, help="At most N tokens in and out."),
    ] = None
    min_cost: Annotated[
        float | None, _select("--min-cost", metavar="USD", min=0, help="Cost at least this.")
    ] = None
    max_cost: Annotated[
        float | None, _select("--max-cost", metavar="USD", min=0, help="Cost at most this.")
    ] = None
    open: Annotated[bool, _select("--open", help="Only sessions that have not ended.")] = False
    ended: Annotated[bool, _select("--ended", help="Only sessions that have ended.")] = False
    archived: Annotated[
        Literal["no", "only", "any"] | None,
        _select("--archived", metavar="no|only|any", help="Archived ones."),
    ] = None
    internal: Annotated[
        Literal["no", "only", "any"] | None,
        _select("--internal", metavar="no|only|any",
                help="Subagent, tool, kanban and oneshot runs, and empty ghosts."),
    ] = None
    pinned: Annotated[
        Literal["no", "only", "any"] | None,
        _select("--pinned", metavar="no|only|any", help="Pinned ones."),
    ] = None

    @property
    def given(self) -> bool:
        """Whether any filter was typed at all."""
        return any(value not in (None, False, []) for value in vars(self).values())

    def selection(
        self, *, archived: str = "any", internal: str = "any", pinned: str = "any"
    ) -> Selection:
        """The filters as the store understands them, with a command's own defaults.

        An explicit --source lifts the exclusion of hidden sources. Raises Usage.
        """
        if self.open and self.ended:
            raise Usage("--open and --ended exclude each other")
        for word in ("title_like", "model", "user", "end_reason", "cwd"):
            if getattr(self, word) is not None and not getattr(self, word).strip():
                raise Usage(f"--{word.replace('_', '-')} is empty (an unset variable?)")
        for name in (*(self.source or ()), *(self.exclude_source or ())):
            if not name.strip():
                raise Usage("an empty source (an unset variable?)")
        for low, high in (("min_messages", "max_messages"), ("min_tokens", "max_tokens"),
                          ("min_cost", "max_cost")):  # fmt: skip
            least, most = getattr(self, low), getattr(self, high)
            if any(value is not None and not math.isfinite(value) for value in (least, most)):
                raise Usage(f"--min-{low[4:]}, --max-{low[4:]}: not a number")
            if least is not None and most is not None and least > most:
                raise Usage(f"--min-{low[4:]} is above --max-{low[4:]}")
        after = times.moment(self.after) if self.after is not None else None
        before = times.moment(self.before) if self.before is not None else None
        if after is not None and before is not None and after >= before:
            raise Usage("--after is not before --before: nothing lies between")
        older, older_by = ages(self.older_than)
        newer, newer_by = ages(self.newer_than)
        return Selection(
            sources=tuple(self.source or ()), not_sources=tuple(self.exclude_source or ()),
            older_than=older, older_by_source=older_by,
            newer_than=newer, newer_by_source=newer_by,
            after=after, before=before, title_like=self.title_like, model=self.model,
            user=self.user, end_reason=self.end_reason, cwd=self.cwd,
            min_messages=self.min_messages, max_messages=self.max_messages,
            min_tokens=self.min_tokens, max_tokens=self.max_tokens,
            min_cost=self.min_cost, max_cost=self.max_cost,
            ended=True if self.ended else False if self.open else None,
            archived=self.archived or archived,
            internal=self.internal or ("any" if self.source else internal),
            pinned=self.pinned or pinned,
        )  # fmt: skip


def ages(words: list[str] | None) -> tuple[float | None, dict[str, float]]:
    """(seconds for all, seconds by source) of `90d`, `cron=7d`. Raises Usage."""
    common: float | None = None
    by_source: dict[str, float] = {}
    for word in words or ():
        source, equals, age = word.rpartition("=")
        if equals:
            if not source.strip():
                raise Usage(f"{word!r}: no source before the =")
            by_source[source.strip()] = times.age(age)
        elif common is not None:
            raise Usage(f"two ages for all sources: {word!r} comes second")
        else:
            common = times.age(word)
    return common, by_source


# What an acting program did not do is none of the ids that go on to the next one.
LEFT_ALONE = ("skipped", "refused")


class Output(Group):
    """The form of the records on standard output."""

    format: Annotated[
        str,
        _output("-f", "--format", metavar="FORMAT", envvar="HERMES_FORMAT", show_envvar=False,
                show_default=False,
                help="auto (text on a terminal, else jsonl), jsonl, text, ids, tsv."),
    ] = "auto"
    text: Annotated[bool, _output("-t", "--text", help="Short for -f text.")] = False
    fields: Annotated[
        str | None, _output("--fields", metavar="A,B", help="The columns of -f tsv.")
    ] = None
    null: Annotated[
        bool, _output("-0", "--null", help="End ids with NUL instead of newline (with -f ids).")
    ] = False

    formats: ClassVar[tuple[str, ...]] = ("auto", "jsonl", "text", "ids", "tsv")

    def check(self) -> None:
        """Raises Usage for a form there is not."""
        if self.format not in self.formats:
            raise Usage(f"-f {self.format}: not one of {', '.join(self.formats)}")

    @property
    def kind(self) -> str:
        """jsonl, text, ids or tsv: `auto` is text for a person, JSON Lines for a program."""
        if self.text:
            return "text"
        if self.format != "auto":
            return self.format
        if self.fields:
            return "tsv"
        if self.null:
            return "ids"
        return "text" if text.on_terminal() else "jsonl"

    def write(
        self, records: Iterable[Record], render: streams.Renderer, quiet: bool = False
    ) -> int:
        """Write records as they come, in the form that is asked for; how many there were.

        render: records → lines of text for a person (no newline at their end).
        """
        if self.null and self.kind != "ids":
            raise Usage("-0 goes with -f ids")
        if self.fields is not None and self.kind != "tsv":
            raise Usage("--fields goes with -f tsv")
        number = 0

        def counted() -> Iterator[Record]:
            nonlocal number
            for record in records:
                number += 1
                yield record

        if quiet:
            for _ in counted():
                pass
        elif self.kind == "text":
            for line in render(counted()):
                streams.write(text.encode(line) + b"\n")
        elif self.kind == "ids":
            end = b"\0" if self.null else b"\n"
            seen: set[str] = set()
            for record in counted():
                name = str(record.get("session_id", record.get("id")) or "")
                if name and name not in seen and record.get("action") not in LEFT_ALONE:
                    seen.add(name)
                    streams.write(name.encode("utf-8", "surrogateescape") + end)
        elif self.kind == "tsv":
            fields = self.fields or "session_id,title,source,last_active"
            names = [name.strip() for name in fields.split(",")]
            absent = dict.fromkeys(names)
            for record in counted():
                for name in record.keys() & absent.keys():
                    del absent[name]
                cells = (text.cell(record.get(name)) for name in names)
                streams.write(text.encode("\t".join(cells)) + b"\n")
            if number and absent and self.fields:  # a slip of the hand looks like an empty column
                streams.complain_after(f"--fields: no record has {', '.join(absent)}")
        else:
            for record in counted():
                streams.emit(record)
        streams.say_postponed()
        return number


def say_cut(shown: int, total: str | None, profile: str | None = None) -> None:
    """A list that was cut says so at its end; `total` is None where it was not."""
    if total is not None:
        where = f"profile {profile}: " if profile else ""
        streams.complain_after(f"{where}{shown:,} of {total}; -n 0 for all")


def confirm(question: str, yes: bool) -> None:
    """Ask a person before something is destroyed; refuse at once where nobody can answer.

    Raises Usage (no terminal and no --yes) and Negative by way of NotFound (the answer was no).
    """
    if yes:
        return
    if sys.stdin is None or not sys.stdin.isatty() or not sys.stderr.isatty():
        raise Usage(f"{question}: --yes is needed where nobody can be asked")
    sys.stderr.write(f"{streams.printable(question)} [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise NotFound("left alone, nothing was changed")


def chosen(
    connection: Database, named: Iterable[streams.Named], *, titles: bool = True,
    profile: str | None = None, missing_ok: bool = False,
) -> Iterator[tuple[str, Record | None]]:
    """(session id, the record that named it) for every name that resolves. One that does not is
    a warning with its candidates, so that the others are still served; the status becomes 1.
    """  # fmt: skip
    for one in named:
        other = (one.record or {}).get("profile")
        if other and other != (profile or other_profile(connection)):
            raise Damaged(
                f"session {one.ref}: the record is of profile {other!r}, not of this store"
            )
        try:
            yield resolve(connection, one.ref, exact=one.exact, titles=titles), one.record
        except NotFound as error:
            if not missing_ok:
                streams.warn(str(error))
        except StoreError as error:
            if not isinstance(error, Usage):
                streams.warn(str(error))
            else:
                raise


def chosen_here(
    connection: Database, named: Iterable[streams.Named], profile: str | None, left: set[str]
) -> Iterator[str]:
    """Ids of those named that this store has, where stores are read in turn (`Store.each`): under
    --all-profiles (`profile`) an absent one is no fault yet. What is found leaves `left`.
    """
    for one in named:
        if profile and (one.record or {}).get("profile") not in (None, profile):
            continue  # its turn comes, or came
        for session_id, _ in chosen(
            connection, [one], profile=profile, missing_ok=profile is not None
        ):
            left.discard(one.ref)
            yield session_id


def other_profile(connection: Database) -> str:
    """The profile a store's place names: HOME/profiles/NAME/state.db, else `default`."""
    folder = connection.path.absolute().parent
    return folder.name if folder.parent.name == "profiles" else "default"


def size(word: str) -> int:
    """Bytes of `500M`, `2G`, `1024`. Raises Usage."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kKmMgGtT]?)(?:i?[bB])?", word.strip())
    if not found:
        raise Usage(f"{word!r} is no size; write 500M or 2G")
    return int(float(found[1]) * 1024 ** " kmgt".index(found[2].lower() or " "))
