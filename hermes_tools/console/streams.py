"""Standard input and output: ids and records in, records out, words on standard error."""

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any, BinaryIO

import orjson
import typer

from hermes_tools import __version__
from hermes_tools.store.errors import Damaged, Failed, Usage

Record = dict[str, Any]

program = "hermes-session"
warned = 0  # soft errors so far; they make the final status 1
place = "the store"  # that a failure of SQLite is about
postponed: list[str] = []  # words that belong below the records


def begin() -> None:
    """Forget the warnings of an earlier command in this process (tests run many)."""
    global warned, place
    warned, place = 0, "the store"
    postponed.clear()


def complain(message: str) -> None:
    """One line for a person, on standard error."""
    try:
        sys.stderr.write(f"{program}: {printable(message)}\n")
        sys.stderr.flush()
    except (OSError, ValueError):  # nobody is there to read it
        return


def complain_after(message: str) -> None:
    """One line for a person that is to stand below the records, where the eye ends up."""
    postponed.append(message)


def say_postponed() -> None:
    """The records are written: hand them over, then what was to be said after them."""
    if postponed:
        flush()
    while postponed:
        complain(postponed.pop(0))


def warn(message: str) -> None:
    """A soft error: said now, work goes on, the final status is 1."""
    global warned
    warned += 1
    complain(message)


def printable(message: str) -> str:
    """Names and titles are hostile input: no control character reaches the terminal but \\n."""
    return "".join(
        letter if letter == "\n" or letter.isprintable() or letter == " " else "\ufffd"
        for letter in message
    )


def show_version(asked: bool) -> None:
    """--version, before anything is opened."""
    if asked:
        write(f"{program} (hermes-tools) {__version__}\n".encode())
        flush()
        raise typer.Exit


Version = Annotated[
    bool,
    typer.Option(
        "--version", callback=show_version, is_eager=True,
        help="Print name and version, and exit.", rich_help_panel="Store",
    ),
]  # fmt: skip


def stdout() -> BinaryIO:
    """Standard output as bytes: the same under every locale."""
    if sys.stdout is None:
        raise Failed("standard output is closed")
    return sys.stdout.buffer


def about(path: os.PathLike[str]) -> None:
    """The store that is worked on, for the words of a failure."""
    global place
    place = os.fspath(path)


def write(data: bytes) -> None:
    """Bytes to standard output."""
    stdout().write(data)


def flush() -> None:
    """What was written is handed over now, while a failure can still be reported."""
    if sys.stdout is not None:
        sys.stdout.flush()


def abandon() -> None:
    """Point standard output at nothing, lest the interpreter's own flush complain (status 120)."""
    try:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)
    except (OSError, ValueError, AttributeError):
        pass


def dumps(record: Any) -> bytes:
    """One line of JSON, ended. Lone surrogates (bytes that were no UTF-8) become U+FFFD, and what
    orjson cannot hold, integers over 64 bits, takes the slower way.
    """
    try:
        return orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE)
    except TypeError:
        import json

        text = json.dumps(clean(record), ensure_ascii=False, separators=(",", ":"))
        return text.encode() + b"\n"


def clean(value: Any) -> Any:
    """The same value with every string valid UTF-8 and bytes made readable."""
    if isinstance(value, str):
        try:
            return value.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
        except UnicodeEncodeError:  # half of a surrogate pair, from somebody's JSON
            return value.encode("utf-8", "replace").decode()
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, dict):
        return {clean(key): clean(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [clean(item) for item in value]
    if (isinstance(value, float) and value != value) or value in (float("inf"), float("-inf")):
        return None
    return value


def emit(record: Record) -> None:
    """One record, one line of standard output."""
    write(dumps(record))


def lines(stream: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
    """Numbered lines without their end; blank ones, CR and a byte-order mark do not count."""
    for number, line in enumerate(stream, 1):
        if number == 1:
            line = line.removeprefix(b"\xef\xbb\xbf")
        line = line.strip(b" \t\r\n")
        if line:
            yield number, line


def arriving(silence: float) -> Iterator[tuple[int, bytes] | None]:
    """Numbered lines of a standard input that may never end, as they come; None each time nothing
    has come for `silence` seconds. A last line without an end is taken when the input ends.
    """
    import select

    handle = stdin().fileno()
    rest, number = b"", 0
    while True:
        if not select.select([handle], [], [], silence)[0]:
            yield None
            continue
        block = os.read(handle, 65536)
        *whole, rest = (rest + block).split(b"\n")
        if not block and rest:
            whole, rest = [rest], b""
        for found in lines(whole):
            yield number + found[0], found[1]
        number += len(whole)
        if not block:
            return


def stdin() -> BinaryIO:
    """Standard input as bytes. Raises Usage where it is closed."""
    if sys.stdin is None:
        raise Usage("standard input is closed")
    return sys.stdin.buffer


def records(
    stream: Iterable[bytes] | None = None, name: str = "standard input"
) -> Iterator[Record]:
    """JSON Lines as records. Raises Damaged with the line's number."""
    for number, line in lines(stream if stream is not None else stdin()):
        yield record(line, f"{name}, line {number}")


def record(line: bytes, where: str) -> Record:
    """One line as a record. Raises Damaged."""
    try:
        value = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise Damaged(f"{where}: not JSON: {error}") from error
    if not isinstance(value, dict):
        raise Damaged(f"{where}: not a JSON object")
    return value


@dataclass(repr=False, eq=False)
class Named:
    """A session as somebody named it. From standard input only exact ids count (`exact`), and
    `record` is the whole record where one came.
    """

    ref: str
    exact: bool = False
    record: Record | None = None


def names(operands: list[str] | None, null: bool = False) -> list[Named]:
    """The sessions named by operands, or by standard input for `-` or none; each once, in order.

    All of them are read before this returns, so that a slow upstream never holds a lock of ours.
    Raises Usage (a terminal instead of input, `-` beside ids) and Damaged (a malformed line).
    """
    if operands and operands != ["-"]:
        if "-" in operands:
            raise Usage("'-' (standard input) does not go together with other operands")
        if any(not operand.strip() for operand in operands):
            raise Usage("an empty session name (an unset variable?)")
        return list({operand: Named(operand) for operand in operands}.values())
    if not operands and stdin() and sys.stdin.isatty():
        raise Usage("no session named, and standard input is a terminal")
    found: dict[str, Named] = {}
    if null:
        for cell in stdin().read().split(b"\0"):
            if cell.strip():
                text = cell.decode("utf-8", "surrogateescape")
                found.setdefault(text, Named(text, exact=True))
        return list(found.values())
    for number, line in lines(stdin()):
        where = f"standard input, line {number}"
        if line.startswith(b"{"):
            one = record(line, where)
            ref = one.get("session_id", one.get("id"))
            if not isinstance(ref, str) or not ref:
                raise Damaged(f"{where}: a record without session_id")
            found.setdefault(ref, Named(ref, True, one))
        else:
            text = line.decode("utf-8", "surrogateescape")
            found.setdefault(text, Named(text, exact=True))
    return list(found.values())


Renderer = Callable[[Iterable[Record]], Iterable[str]]
