"""Whatever a row of the schema may hold survives export, import --exact, and export again."""

import io
import sqlite3
import string
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hermes_tools.store import columns, parsing
from hermes_tools.store.db import reader, writer
from hermes_tools.store.exporting import Exporter
from hermes_tools.store.importing import Import, Options
from hermes_tools.store.migration import create
from hermes_tools.store.staging import Staging
from hermes_tools.store.transfer import staged

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner,
                                                                max_size=3),
    max_leaves=6,
)  # fmt: skip
ENCODED = st.one_of(
    JSON.map(lambda value: __import__("json").dumps(value)),
    JSON.map(lambda value: __import__("json").dumps(value, ensure_ascii=False, indent=1)),
)
TEXT = st.one_of(
    st.text(st.characters(codec="utf-8"), max_size=20), ENCODED,
    ENCODED.map("\x00json:".__add__), st.sampled_from(["", "\x00", "\x00json:", "[", "{}", "null"]),
)  # fmt: skip
CELL = st.one_of(
    st.none(), TEXT, st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False), st.binary(max_size=12),
    st.binary(max_size=12).map(lambda data: ("text", data)),  # text that may be no UTF-8
)  # fmt: skip
NAMES = st.text(string.ascii_lowercase, min_size=1, max_size=6).map("later_".__add__)
MESSAGES = [name for name in columns.MESSAGES if name not in ("id", "session_id", "timestamp")]
SESSIONS = [name for name in columns.SESSIONS if name not in ("id", "parent_session_id", "title")]


def put(db: sqlite3.Connection, table: str, cells: dict[str, Any]) -> None:
    marks = ["CAST(? AS TEXT)" if isinstance(value, tuple) else "?" for value in cells.values()]
    values = [value[1] if isinstance(value, tuple) else value for value in cells.values()]
    listed = ", ".join(f'"{name}"' for name in cells)
    db.execute(f"INSERT INTO {table} ({listed}) VALUES ({', '.join(marks)})", values)


def exported(path: Path) -> bytes:
    with reader(path) as db:
        file, exporter = io.BytesIO(), Exporter(db)
        for (name,) in db.execute("SELECT id FROM sessions ORDER BY id").fetchall():
            file.writelines(exporter.line(name))
    return file.getvalue()


def cells_of(path: Path, table: str) -> list[Any]:
    db = sqlite3.connect(path)
    db.text_factory = bytes
    names = sorted(row[1].decode() for row in db.execute(f"PRAGMA table_info({table})"))
    listed = ", ".join(f'"{name}", typeof("{name}")' for name in names)
    return [names, *db.execute(f"SELECT {listed} FROM {table} ORDER BY id")]


def imported(path: Path, data: bytes) -> None:
    create(path)
    for staging in staged([("input", [data])]):
        assert isinstance(staging, Staging)
        with writer(path) as db:
            for _ in Import(db, staging, Options(exact=True)).run():
                pass


@pytest.mark.slow
@settings(max_examples=30, deadline=None,
          suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])  # fmt: skip
@given(st.data())
def test_any_row_survives(data: st.DataObject) -> None:
    extra = {table: data.draw(st.dictionaries(
        NAMES, st.sampled_from(["", "TEXT", "REAL", "INTEGER", "BLOB", "NUMERIC"]), max_size=2
    )) for table in ("sessions", "messages")}  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        old, new = Path(folder, "old.db"), Path(folder, "new.db")
        create(old)
        db = sqlite3.connect(old)
        for table, more in extra.items():
            for name, kind in more.items():
                db.execute(f"ALTER TABLE {table} ADD COLUMN {name} {kind}")
        for number in range(data.draw(st.integers(1, 3))):
            some = data.draw(st.lists(st.sampled_from([*SESSIONS, *extra["sessions"]]),
                                      max_size=6, unique=True))  # fmt: skip
            row = {name: data.draw(CELL) for name in some}
            row = {"source": "cli", "started_at": 1.5} | {
                name: value for name, value in row.items()
                if value is not None or name not in ("source", "started_at")
            }  # fmt: skip
            put(db, "sessions", {"id": f"s{number}", **row})
            for _ in range(data.draw(st.integers(0, 4))):
                some = data.draw(st.lists(st.sampled_from([*MESSAGES, *extra["messages"]]),
                                          max_size=5, unique=True))  # fmt: skip
                row = {name: data.draw(CELL) for name in some if name != "role"}
                put(db, "messages", {
                    "session_id": f"s{number}", "role": data.draw(st.sampled_from("ab")),
                    "timestamp": data.draw(CELL.filter(lambda cell: cell is not None)), **row,
                })  # fmt: skip
        db.commit()
        db.close()
        first = exported(old)
        imported(new, first)
        assert exported(new) == first
        wanted, found = cells_of(old, "messages"), cells_of(new, "messages")
        empty = {name for name in extra["messages"] if name not in found[0]}
        if not empty:
            assert found == wanted
        usual, parsing.LONG = parsing.LONG, 64
        try:
            imported(Path(folder, "long.db"), first)
        finally:
            parsing.LONG = usual
        assert exported(Path(folder, "long.db")) == first
