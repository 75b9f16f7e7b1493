"""Export lines read back in constant memory: short lines at once, long ones as a stream of events.

    for item in items(blocks_of_bytes, name):
        item.line      number of the line
        item.message   a message object of the line, in order, or None
        item.session   the rest of the object, at the end of its line, or None
"""

import json
from base64 import b64decode
from collections.abc import Callable, Iterable, Iterator
from decimal import Decimal
from typing import Any, NamedTuple

import orjson

from hermes_tools.store.errors import Damaged
from hermes_tools.store.messages import SENTINEL

# A longer line is parsed as it comes: one session may hold 300,000 messages.
LONG = 1 << 20
NUMBERS = {"inf": float("inf"), "-inf": float("-inf")}


class Item(NamedTuple):
    """A piece of one line; `error` says what is wrong with it (then nothing else of it follows)."""

    line: int
    message: Any = None
    session: dict[str, Any] | None = None
    error: str | None = None


def items(blocks: Iterable[bytes]) -> Iterator[Item]:
    """The lines of a file given in blocks: the messages of each, then the session. Blank lines,
    CR, and a byte-order mark do not count.
    """
    source, rest, number, first = iter(blocks), b"", 0, True
    for block in source:
        if first:
            block, first = block.removeprefix(b"\xef\xbb\xbf"), False
        lines = (rest + block).split(b"\n") if rest else block.split(b"\n")
        rest = lines.pop()
        for line in lines:
            number += 1
            if line.strip():
                yield from short(line, number)
        if len(rest) > LONG:
            number += 1
            left: list[bytes] = []
            yield from long(rest, source, number, left)
            rest = b""
            for line in left:  # what came after the long line in its last block
                lines = line.split(b"\n")
                rest = lines.pop()
                for one in lines:
                    number += 1
                    if one.strip():
                        yield from short(one, number)
    if rest.strip():
        yield from short(rest, number + 1)


def short(line: bytes, number: int) -> Iterator[Item]:
    """A line that fits in memory."""
    try:
        session = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        try:  # half of a surrogate pair, as json.dumps of other programs may write it
            session = json.loads(line, parse_constant=_refuse)
        except (ValueError, RecursionError):
            yield Item(number, error=f"not JSON: {error}")
            return
    if not isinstance(session, dict):
        yield Item(number, error="not a JSON object")
        return
    messages = session.pop("messages", None)
    if messages is not None and not isinstance(messages, list):
        yield Item(number, error="messages: not a list")
        return
    for message in messages or ():
        yield Item(number, message)
    yield Item(number, session={**session, "messages": None} if messages is not None else session)


def _refuse(word: str) -> float:
    raise ValueError(f"{word} is not JSON")


def long(start: bytes, source: Iterator[bytes], number: int, left: list[bytes]) -> Iterator[Item]:
    """A line that does not: `start` is its beginning, `left` gets what follows its end."""
    import ijson

    events = ijson.sendable_list()
    parser = ijson.basic_parse_coro(events)
    build = Builder(number)
    ended, block = False, start
    try:
        while True:
            here, newline, after = block.partition(b"\n")
            parser.send(here)
            if newline:
                left.append(after)
                ended = True
                parser.close()
            for event, value in events:
                found = build(event, value)
                if found is not None:
                    yield found
            del events[:]
            if ended:
                break
            try:
                block = next(source)
            except StopIteration:
                block, ended = b"\n", True
    except (ijson.JSONError, Malformed, RecursionError) as error:
        reason = " ".join(str(error).split("\n")[0].split())
        if not ended:
            _skip(source, left)
        yield Item(number, error=f"not JSON: {reason}" if reason else "not JSON")
        return
    yield build.end()


def _skip(source: Iterator[bytes], left: list[bytes]) -> None:
    for block in source:
        _, newline, after = block.partition(b"\n")
        if newline:
            left.append(after)
            return


class Malformed(Exception):
    """A long line that is JSON, but no session."""


class Builder:
    """Makes messages, and at the end the session, of a parser's events."""

    def __init__(self, line: int) -> None:
        self.line = line
        self.session: dict[str, Any] = {}
        self._stack: list[Any] = []
        self._keys: list[str] = []
        self._key: str | None = None
        self._in_messages = False
        self._started = self._done = False

    def __call__(self, event: str, value: Any) -> Item | None:
        """Take one event; a message if it completed one."""
        if event == "map_key":
            if self._stack:
                self._keys[-1] = value
            else:
                self._key = value
            return None
        if not self._started:
            if event != "start_map":
                raise Malformed("not a JSON object")
            self._started = True
            return None
        if event in ("start_map", "start_array"):
            if not self._stack and self._key == "messages" and not self._in_messages:
                if event == "start_map":
                    raise Malformed("messages: not a list")
                self._in_messages = True
                self.session["messages"] = None
                return None
            self._stack.append({} if event == "start_map" else [])
            self._keys.append("")
            return None
        if event in ("end_map", "end_array"):
            if self._stack:
                self._keys.pop()
                return self._put(self._stack.pop())
            if event == "end_array":
                self._in_messages, self._key = False, None
            else:
                self._done = True
            return None
        if type(value) is Decimal:
            value = float(value)
            if value in NUMBERS.values():
                raise Malformed("a number without end")
        return self._put(value)

    def _put(self, value: Any) -> Item | None:
        if self._stack:
            holder = self._stack[-1]
            if type(holder) is list:
                holder.append(value)
            else:
                holder[self._keys[-1]] = value
            return None
        if self._in_messages:
            return Item(self.line, value)
        if self._key == "messages" and value is not None:
            raise Malformed("messages: not a list")
        self.session[str(self._key)] = value
        return None

    def end(self) -> Item:
        """The session, all of whose messages were given out."""
        if not self._done:
            return Item(self.line, error="not JSON: cut off")
        return Item(self.line, session=self.session)


def cells(record: dict[str, Any]) -> dict[str, Any]:
    """The cells a session or message object stands for: what was decoded is encoded again as the
    agent does, what `_raw` holds takes its place. Text that was no UTF-8 comes back as lone
    surrogates, as the opener reads it. Raises Damaged.
    """
    raw = record.pop("_raw", None)
    for name, value in record.items():
        kind = type(value)
        if kind is dict or kind is list:
            text = json.dumps(value)
            record[name] = SENTINEL + text if name == "content" else text
        elif kind is bool:
            record[name] = int(value)
        elif kind is int and not -(1 << 63) <= value < 1 << 63:
            raise Damaged(f"{name}: a number of more than 64 bits")
    if raw is not None:
        _restore(record, raw)
    return record


def _restore(record: dict[str, Any], raw: Any) -> None:
    if not isinstance(raw, dict):
        raise Damaged("_raw: not an object")
    for name, value in raw.items():
        if not isinstance(value, str):
            raise Damaged(f"_raw: {name}: not a text")
        if value in NUMBERS:
            record[name] = NUMBERS[value]
            continue
        try:
            stored = b64decode(value, validate=True)
        except ValueError as error:
            raise Damaged(f"_raw: {name}: not base64") from error
        blob = record.get(name) is None
        record[name] = stored if blob else stored.decode("utf-8", "surrogateescape")


Report = Callable[[int, str], None]
