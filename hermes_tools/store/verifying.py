"""Whether an export holds what the store holds, cell by cell and type by type."""

from collections.abc import Iterable
from itertools import zip_longest
from typing import Any, BinaryIO

from hermes_tools.store.db import Database
from hermes_tools.store.errors import Failed
from hermes_tools.store.exporting import Exporter, Row
from hermes_tools.store.parsing import cells, items

BLOCK = 1 << 18


def blocks(file: BinaryIO) -> Iterable[bytes]:
    """A file in blocks, from where it stands."""
    return iter(lambda: file.read(BLOCK), b"")


def verify(db: Database, file: BinaryIO) -> list[str]:
    """Read an export and compare every row in it with the store's; the ids of its sessions, in
    order. Raises Failed at the first difference.
    """
    exporter, found = Exporter(db), []
    stored: Any = None
    for item in items(blocks(file)):
        where = f"line {item.line} of the export"
        if item.error:
            raise Failed(f"{where}: {item.error}")
        if item.session is None:
            message = cells(item.message)
            if stored is None:
                stored = exporter.messages(message.get("session_id"))
            same(exporter.message_names, next(stored, None), message, where)
            continue
        session = dict(item.session)
        tables = session.pop("_tables", {})
        session.pop("messages", None)
        session.pop("_format", None)
        session = cells(session)
        row = exporter.session(session.get("id"))
        same(exporter.session_names, row, session, where)
        if next(stored if stored is not None else exporter.messages(session["id"]), None):
            raise Failed(f"{where}: messages of {session['id']} are missing in it")
        if tables != exporter.tables(session["id"], row):
            raise Failed(f"{where}: {', '.join(tables)}: not what the store holds")
        found.append(session["id"])
        stored = None
    return found


def same(names: list[str], row: Row | None, record: dict[str, Any], where: str) -> None:
    """Every cell of a row against a record. Raises Failed."""
    if row is None:
        raise Failed(f"{where}: a message the store does not hold")
    if list(record) != names:
        raise Failed(f"{where}: its columns are not those of the store")
    for name, cell, value in zip_longest(names, row, record.values()):
        if type(cell) is not type(value) or cell != value:
            raise Failed(f"{where}: {name}: not what the store holds")
