"""Drives a SessionDB over JSON lines on the standard streams: the agent's own, or ours.

`python sessiondb_driver.py MODULE`, MODULE hermes_state or hermes_tools. A request is
`[now, method, arguments, options]`, `[now, "open", path]`, or `[now, "rows"]` for every row of the
store; an answer is `{"result": …}` or `{"error": [names of the exception's classes]}`. Nothing
of the project is imported here, since the agent's interpreter runs it too.
"""

import json
import logging
import pathlib
import sqlite3
import sys
import time
from importlib import import_module

# The agent says where it falls back; the answers are compared, not the words.
logging.disable(logging.CRITICAL)


def plain(value):
    """A result as JSON can hold it, so that nothing different compares equal."""
    if isinstance(value, bytes):
        return {"bytes": value.hex()}
    if isinstance(value, float):
        return {"float": repr(value)}
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value


def given(value):
    """An argument as the method wants it: bytes come marked."""
    if isinstance(value, dict) and set(value) == {"bytes"}:
        return bytes.fromhex(value["bytes"])
    return value


def rows(path):
    """Every row of the store, the index included."""
    db = sqlite3.connect(path)
    try:
        return [
            db.execute("SELECT * FROM sessions ORDER BY rowid").fetchall(),
            db.execute("SELECT * FROM messages ORDER BY id").fetchall(),
            db.execute("SELECT * FROM state_meta ORDER BY key").fetchall(),
            db.execute("SELECT rowid, content FROM messages_fts ORDER BY rowid").fetchall(),
        ]
    finally:
        db.close()


def main():
    """Answer requests until standard input ends."""
    interface = import_module(sys.argv[1]).SessionDB
    db = path = None
    now = [0.0]
    time.time = lambda: now[0]
    for line in sys.stdin:
        now[0], method, *call = json.loads(line)
        try:
            if method == "open":
                if db is not None:
                    db.close()
                path = pathlib.Path(call[0])
                db, found = interface(db_path=path), None
            elif method == "rows":
                found = rows(path)
            else:
                arguments, options = call
                found = getattr(db, method)(
                    *map(given, arguments), **{key: given(item) for key, item in options.items()}
                )
            answer = {"result": plain(found)}
        except Exception as error:
            kinds = [kind.__name__ for kind in type(error).__mro__]
            answer = {"error": kinds[: kinds.index("Exception")], "text": str(error)}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


main()
