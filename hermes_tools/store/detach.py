"""Sets the optional cjk index aside, as the agent does where its tokenizer is missing."""

import re

from hermes_tools.store import schema
from hermes_tools.store.db import Database, transaction

STALE = "INSERT OR REPLACE INTO state_meta (key, value) VALUES ('fts_cjk_stale', '1')"


def unloadable_cjk(db: Database) -> list[str]:
    """The triggers that write into the cjk index, if its tokenizer is not here; else none."""
    create = db.schema.virtual.get(schema.CJK)
    if create is None or schema.has_tokenizer(schema.tokenizer(create)):
        return []
    into = re.compile(rf"\bINTO\s+[\"'`\[]?{schema.CJK}\b", re.I)
    return sorted(name for name, (_, sql) in db.schema.triggers.items() if into.search(sql))


def detach_cjk(db: Database) -> bool:
    """Mark the cjk index stale, then drop its triggers, in one transaction and in that order; the
    agent answers from its other indexes until it rebuilds this one (store-facts 1.7). Whether
    there was anything to do.
    """
    triggers = unloadable_cjk(db)
    if not triggers:
        return False
    with transaction(db):
        db.execute(STALE)
        for name in triggers:
            db.execute(f'DROP TRIGGER "{name}"')
    db.__dict__.pop("schema", None)  # it is read anew
    return True
