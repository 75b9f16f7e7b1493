"""Turns a plain function into a console script: options, signals, messages, exit status."""

import gc
import inspect
import os
import signal
import sqlite3
import sys
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Annotated, Any, NoReturn, get_origin, get_type_hints

import typer
from typer.core import TyperCommand

from hermes_tools.console import streams
from hermes_tools.console.status import Status, Terminated, status_of
from hermes_tools.store.errors import StoreError

Command = Callable[..., "Status | None"]


class Group:
    """Options that go together, as one parameter of a command: annotated fields and their
    defaults. No dataclass: to generate the methods of each would cost every start a hundredth.
    """

    def __init__(self, **given: Any) -> None:
        vars(self).update(given)
        self.check()

    def check(self) -> None:
        """Raises Usage for values that are none."""

    @classmethod
    def options(cls) -> dict[str, Any]:
        """Its fields, those of what it extends first, each with its annotation."""
        hints = get_type_hints(cls, include_extras=True)
        return {name: hint for name, hint in hints.items() if get_origin(hint) is Annotated}


class Sectioned(TyperCommand):
    """--help with its options under the headings their declarations name."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write one section a heading, a command's own options first."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            line = parameter.get_help_record(ctx)
            if line is not None:
                usual = "Arguments" if parameter.param_type_name == "argument" else "Options"
                heading = getattr(parameter, "rich_help_panel", None) or usual
                sections.setdefault(heading, []).append((line[0], line[1].replace("  [x>=0]", "")))
        order = ["Arguments", "Options", "Selecting sessions", "Output", "Store"]
        for heading in sorted(sections, key=lambda name: order.index(name)):
            with formatter.section(heading):
                formatter.write_dl(sections[heading])


def entry(command: Command) -> Callable[[], None]:
    """The `main` of a script made of one function, named after its module."""
    app = _app()
    app.command(cls=Sectioned)(framed(flatten(command)))
    _loaded()
    return lambda: _run(app, program_of(command))


def group(*commands: Command) -> Callable[[], None]:
    """The `main` of a script with verbs, each a function named after its verb (`list_` → list)."""
    app = _app()
    app.callback()(_verbs(sys.modules[commands[0].__module__].__doc__ or ""))
    for command in commands:
        app.command(name=command.__name__.strip("_"), cls=Sectioned)(framed(flatten(command)))
    _loaded()
    return lambda: _run(app, program_of(commands[0]))


def _loaded() -> None:
    """What hermes_tools.commands has turned off while modules load."""
    gc.freeze()
    gc.enable()


def _app() -> typer.Typer:
    return typer.Typer(
        add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 98},
    )  # fmt: skip


def _verbs(doc: str) -> Callable[..., None]:
    def verbs(version: streams.Version = False) -> None:
        pass

    verbs.__doc__ = doc.partition(": ")[2].strip().capitalize() or doc
    return verbs


def program_of(command: Command) -> str:
    """`hermes_tools.commands.import_` → `hermes-session-import`."""
    return "hermes-session-" + command.__module__.rpartition(".")[2].strip("_")


def flatten(command: Command) -> Command:
    """Let typer see the options of a parameter that is a Group, and make the group before the
    call.
    """
    shown: list[inspect.Parameter] = []
    groups: dict[str, tuple[type[Group], list[str]]] = {}
    for parameter in inspect.signature(command, eval_str=True).parameters.values():
        kind = parameter.annotation
        if not (isinstance(kind, type) and issubclass(kind, Group)):
            shown.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))
            continue
        options = kind.options()
        groups[parameter.name] = kind, list(options)
        shown.extend(
            inspect.Parameter(
                name, inspect.Parameter.KEYWORD_ONLY, default=getattr(kind, name), annotation=hint
            )
            for name, hint in options.items()
        )

    def call(**values: Any) -> "Status | None":
        for name, (kind, fields) in groups.items():
            values[name] = kind(**{field: values.pop(field) for field in fields})
        return command(**values)

    call.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined]
    call.__doc__, call.__module__ = command.__doc__, command.__module__
    return call


def framed(command: Command) -> Command:
    """Run a command inside the frame: soft errors counted, stdout flushed, exceptions turned into
    one line and a status. Stands inside typer, which would turn a closed pipe into status 1.
    """

    def call(**values: Any) -> None:
        streams.begin()
        try:
            status = command(**values) or Status.OK
            streams.flush()
        except (Exception, KeyboardInterrupt, Terminated) as error:
            status = report(error)
        if status == Status.OK and streams.warned:
            status = Status.NEGATIVE
        raise typer.Exit(int(status))

    call.__signature__ = inspect.signature(command)  # type: ignore[attr-defined]
    call.__doc__, call.__module__ = command.__doc__, command.__module__
    return call


def report(error: BaseException) -> Status:
    """Say what went wrong in one line (nothing for a closed pipe) and give its status."""
    if isinstance(error, typer.TyperException | typer.Exit):  # a bad option found by a command
        raise error
    status = status_of(error)
    if os.environ.get("HERMES_DEBUG"):
        import traceback

        traceback.print_exc()
    if status is Status.PIPE:
        streams.abandon()
        return status
    with suppress(OSError, ValueError):
        streams.flush()  # the records of what is done stand before the reason for stopping
    streams.complain(_words(error, status))
    if status is Status.IO:
        streams.abandon()
    return status


def _words(error: BaseException, status: Status) -> str:
    if isinstance(error, KeyboardInterrupt):
        return "interrupted"
    if isinstance(error, Terminated):
        return "terminated"
    if isinstance(error, OSError) and error.strerror:
        where = f"{error.filename}: " if error.filename else ""
        return f"{where}{error.strerror.lower()}"
    if isinstance(error, StoreError):
        return str(error)
    if isinstance(error, sqlite3.Error):
        if status is Status.BUSY:
            return f"{streams.place}: locked by another process"
        if status is Status.DATA:
            return f"{streams.place}: damaged ({error}); hermes-session-check says where"
        if status is Status.IO and "full" in str(error):
            return (f"{streams.place}: the disk is full, here or where temporary files go "
                    "(SQLITE_TMPDIR, TMPDIR)")  # fmt: skip
        return f"{streams.place}: SQLite: {error}"
    if isinstance(error, UnicodeError):
        return f"the store or the input is damaged: {error}"
    if status is Status.BUG:
        return f"a bug: {type(error).__name__}: {error} (HERMES_DEBUG=1 shows where)"
    return str(error) or type(error).__name__


def _run(app: typer.Typer, program: str) -> None:
    streams.program = program
    signal.signal(signal.SIGTERM, _terminate)
    if sys.stderr is None:  # closed by the caller; words go nowhere, statuses still count
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    try:
        status = app(prog_name=program, standalone_mode=False)
        streams.flush()
    except typer.TyperException as error:
        streams.complain(f"{error.format_message()}\nTry '{program} --help'.")
        status = error.exit_code
    except (Exception, KeyboardInterrupt, Terminated) as error:  # --help into a full disk
        status = report(error)
    _leave(int(status or 0))


def _terminate(signum: int, frame: FrameType | None) -> NoReturn:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a second one must not break the rollback
    raise Terminated


def _leave(status: int) -> NoReturn:
    gc.freeze()  # a last collection over every module costs a tenth of a short run
    sys.exit(status)
