"""hermes-session-list: list conversations, newest first"""

from collections.abc import Iterable, Iterator

from hermes_tools.console import text
from hermes_tools.console.app import entry
from hermes_tools.console.options import Filters, Output, Store
from hermes_tools.console.streams import Record
from hermes_tools.store.sessions import conversations


def list_(filters: Filters, output: Output, store: Store) -> None:
    """List conversations, newest first."""
    with store.read() as db:
        found = conversations(db, filters.selection(archived="no", internal="no"))
        output.write((one.record() for one in found), table, store.quiet)


def table(records: Iterable[Record]) -> Iterator[str]:
    """Title, Preview, Last Active, ID."""
    rows = [
        (one["title"] or "—", one["preview"] or "", text.ago(one["last_active"]), one["session_id"])
        for one in records
    ]
    yield from text.table(rows, ("Title", "Preview", "Last Active", "ID"), fixed=(2, 3))


main = entry(list_)
