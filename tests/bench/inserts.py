"""What import is measured against: the same rows, one INSERT a row, under the same triggers.

python tests/bench/inserts.py FROM TO
"""

import sqlite3
import sys


def main() -> None:
    source = sqlite3.connect(f"file:{sys.argv[1]}?mode=ro", uri=True)
    target = sqlite3.connect(sys.argv[2], isolation_level=None)
    target.execute("PRAGMA foreign_keys = ON")
    target.execute("BEGIN IMMEDIATE")
    for table in ("sessions", "messages"):
        rows = source.execute(f"SELECT * FROM {table}")
        names = ", ".join(column[0] for column in rows.description)
        marks = ",".join("?" * len(rows.description))
        for row in rows:
            target.execute(f"INSERT INTO {table} ({names}) VALUES ({marks})", row)
    target.execute("COMMIT")


if __name__ == "__main__":
    main()
