"""A temporary copy of as much of a store as an import would touch, so that a dry run is the run."""

import os
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from urllib.parse import quote

from hermes_tools.store.db import LOCK_WAIT, Database, connect
from hermes_tools.store.exporting import bound, quoted
from hermes_tools.store.lineage import Lineage
from hermes_tools.store.migration import SCHEMA
from hermes_tools.store.staging import Staging

# Their rows decide what an import does; of all other tables their declaration is enough.
WHOLE = (
    "schema_version", "sessions", "state_meta", "system_prompts", "session_model_usage",
    "compression_locks", "session_turn_leases", "gateway_routing",
)  # fmt: skip
OBJECTS = """
SELECT type, name, sql FROM origin.sqlite_master
WHERE type = 'table' AND sql NOT LIKE 'CREATE VIRTUAL%' AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'
    AND name NOT LIKE 'messages\\_fts%' ESCAPE '\\'
    OR type = 'index' AND name = 'idx_sessions_title_unique'
ORDER BY type DESC
"""


@contextmanager
def rehearsal(origin: Database | None, staging: Staging) -> Iterator[Database]:
    """A store to import into that nobody will miss. `origin` is open for reading, None for a
    store that does not exist yet. Messages are copied for the conversations that are in question.
    """
    handle, name = tempfile.mkstemp(prefix="hermes-rehearsal-", suffix=".db")
    os.close(handle)
    try:
        with closing(sqlite3.connect(name, isolation_level=None)) as made:
            if origin is None:
                made.executescript(SCHEMA.read_text(encoding="utf-8"))
            else:
                made.executescript(f"PRAGMA user_version = {os.getpid() % 1000}")
        with closing(connect(Path(name), "rw", 10.0, LOCK_WAIT)) as db:
            db.execute("PRAGMA synchronous = OFF")
            if origin is not None:
                _copy(db, origin, staging)
            db.execute("PRAGMA foreign_keys = ON")
            yield db
    finally:
        for leftover in (name, f"{name}-journal"):
            with suppress(OSError):
                os.unlink(leftover)


def _copy(db: Database, origin: Database, staging: Staging) -> None:
    uri = f"file:{quote(os.fsencode(origin.path.absolute()))}?mode=ro"
    db.execute("ATTACH ? AS origin", (uri,))
    db.execute("BEGIN")
    for kind, name, sql in db.execute(OBJECTS).fetchall():
        db.execute(sql)
        if kind == "table" and name in WHOLE:
            db.execute(f"INSERT INTO main.{quoted([name])} SELECT * FROM origin.{quoted([name])}")
    names = [row[0] for row in staging.db.execute("SELECT id FROM sessions")]
    names += [row[0] for row in staging.db.execute(
        "SELECT DISTINCT parent_session_id FROM sessions WHERE parent_session_id IS NOT NULL"
    )]  # fmt: skip
    lineage, copied = Lineage(origin), set[str]()
    for one in names:
        if one in copied or lineage.link(one) is None:
            continue
        for row in lineage.members(one):
            if row in copied:
                continue
            copied.add(row)
            place, value = bound(row)
            db.execute(
                f"INSERT INTO main.messages SELECT * FROM origin.messages "
                f"WHERE session_id = {place}", (value,),
            )  # fmt: skip
    db.execute("COMMIT")
    vars(db).pop("schema", None)
