"""New stores, and old ones brought to version 11."""

import os
import sqlite3
import stat
from pathlib import Path

import pytest

from hermes_tools.store import migration
from hermes_tools.store.db import reader
from hermes_tools.store.errors import Damaged, Negative


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_create_makes_a_private_store_in_wal_mode(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        migration.create(tmp_path / "new" / "home" / "state.db")
    finally:
        os.umask(old)
    path = tmp_path / "new" / "home" / "state.db"
    assert mode(path) == 0o600
    assert mode(path.parent) == mode(path.parent.parent) == 0o700
    assert [entry.name for entry in path.parent.iterdir()] == ["state.db"]
    with reader(path) as db:
        assert db.schema.version == 11
        assert db.schema.inline
        assert db.execute("PRAGMA journal_mode").fetchone()[0] == "wal"


def test_create_replaces_nothing(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    path.write_bytes(b"mine")
    with pytest.raises(Negative):
        migration.create(path)
    assert path.read_bytes() == b"mine"


def test_create_refuses_beside_a_left_over_log(tmp_path: Path) -> None:
    log = tmp_path / "state.db-wal"
    log.write_bytes(b"something")
    with pytest.raises(Damaged):
        migration.create(tmp_path / "state.db")
    assert [entry.name for entry in tmp_path.iterdir()] == ["state.db-wal"]


def test_create_leaves_nothing_when_it_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "schema.sql"
    broken.write_text("CREATE TABLE one (x); CREATE NONSENSE;")
    monkeypatch.setattr(migration, "SCHEMA", broken)
    with pytest.raises(sqlite3.OperationalError):
        migration.create(tmp_path / "home" / "state.db")
    assert list((tmp_path / "home").iterdir()) == []
