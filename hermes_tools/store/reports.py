"""What an import did, a record for each conversation."""

from collections.abc import Iterable, Iterator
from typing import Any

from hermes_tools.store.db import Database
from hermes_tools.store.exporting import Exporter
from hermes_tools.store.importing import LEFT, Outcome
from hermes_tools.store.sessions import RECORD, Reader

# The word for a deed that was rehearsed; what was left alone stays what it is.
WOULD = {
    "imported": "would_import", "updated": "would_update", "replaced": "would_replace",
    "deleted": "would_delete",
    **{word: word for word in ("unchanged", "skipped", "older", *LEFT)},
}  # fmt: skip


def trees(batches: Iterable[list[Outcome]]) -> Iterator[list[Outcome]]:
    """The outcomes of each lineage together, once the last of them is committed."""
    waiting: list[Outcome] = []
    for batch in batches:
        for outcome in batch:
            if waiting and waiting[0].tree != outcome.tree:
                yield waiting
                waiting = []
            waiting.append(outcome)
    if waiting:
        yield waiting


def report(connection: Database, outcomes: list[Outcome]) -> Iterator[dict[str, Any]]:
    """One record a conversation: as it stands in the store now, what became of it, its digest."""
    reader = Reader(connection)
    lineage, exporter = reader.lineage, Exporter(connection)
    grouped: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        grouped.setdefault(lineage.conversation(outcome.session_id), []).append(outcome)
    for root, parts in grouped.items():
        if lineage.link(root) is None:
            record = dict.fromkeys(RECORD)
            record["session_id"] = root
        else:
            record = reader.conversation(root).record()
        actions = {part.action for part in parts} - {"unchanged"}
        failed = [part for part in parts if part.failed]
        record["action"] = (
            failed[0].action if failed
            else actions.pop() if len(actions) == 1
            else "updated" if actions else "unchanged"
        )
        record["reason"] = next((part.reason for part in failed or parts if part.reason), None)
        record["messages"] = sum(part.messages for part in parts)
        for part in parts:
            merge(record, part)
        if lineage.link(root) is not None:
            record["digest"] = exporter.digest(lineage.members(root))
        yield record


def merge(record: dict[str, Any], part: Outcome) -> None:
    """Add what had to be changed in one row to the record of its conversation."""
    for name, value in part.details.items():
        if name == "message_ids":
            record.setdefault(name, {})[part.session_id] = value
        elif isinstance(value, list):
            record[name] = list(dict.fromkeys([*record.get(name, ()), *value]))
        else:
            record[name] = value
