"""Titles for many sessions: from records, or from a program that is given their first exchange."""

from collections.abc import Iterator

from hermes_tools.console import options, shell, streams
from hermes_tools.console.streams import Named, Record
from hermes_tools.store import titles
from hermes_tools.store.db import Database
from hermes_tools.store.errors import Damaged, Negative, StoreError, Usage
from hermes_tools.store.titles import Wish

IN_A_ROW = 3  # failures after which a program is not called again


def requests(source: str) -> list[Record]:
    """The records of `--set FILE|-`, all of them before any lock. Raises Damaged."""
    if source == "-":
        found = list(streams.records())
    else:
        with open(source, "rb") as file:
            found = list(streams.records(file, source))
    for number, record in enumerate(found, 1):
        if not isinstance(record.get("session_id"), str) or not record["session_id"]:
            raise Damaged(f"record {number}: without session_id")
        if not isinstance(record.get("title"), str | None):
            raise Damaged(f"record {number}: its title is no text")
    return found


class Granter:
    """Grants wishes one by one; what is refused is a warning and a record that says why."""

    def __init__(self, db: Database, auto_number: bool, dry_run: bool, live: bool) -> None:
        self.db, self.auto_number = db, auto_number
        self.dry_run, self.live = dry_run, live

    def one(self, wish: Wish) -> Record:
        """The session record with what was done. Raises Negative."""
        return titles.grant(self.db, wish, dry_run=self.dry_run, live=self.live)

    def records(self, asked: list[Record]) -> Iterator[Record]:
        """A record for each that names a session of this store. A title of null, or none, never
        takes one away; `expect`, where it is there, must hold.
        """
        for one in asked:
            named = [Named(one["session_id"], True, one)]
            for session_id, _ in options.chosen(self.db, named):
                expect = (one["expect"],) if "expect" in one else None
                yield self._tried(session_id, one.get("title"), expect)

    def _tried(
        self, session_id: str, title: str | None, expect: tuple[str | None] | None
    ) -> Record:
        if title is None:
            return {**titles.row_record(self.db, session_id), "action": "unchanged"}
        try:
            wish = Wish(session_id, titles.check(title), expect, auto_number=self.auto_number)
            return self.one(wish)
        except (Negative, Usage) as error:
            return self.refused(session_id, error)

    def refused(self, session_id: str, error: StoreError) -> Record:
        """A warning, and the record of a session that stays as it is."""
        words = str(error)
        streams.warn(words if session_id in words else f"session {session_id}: {words}")
        return {
            **titles.row_record(self.db, session_id), "action": "refused", "reason": words,
        }  # fmt: skip

    def by_program(
        self, asked: list[Record], command: str, timeout: float, jobs: int
    ) -> Iterator[Record]:
        """Titles from the first line of CMD's output; a continuation takes the next of its
        conversation's line without asking. Raises Negative after three failures in a row.
        """
        failures = 0
        given = {one["session_id"]: one["title"] for one in asked if one["title"]}
        for session_id, next_title in given.items():
            yield self._named(session_id, next_title)
        if self.dry_run:
            for one in asked:
                if one["session_id"] not in given:
                    yield {**titles.row_record(self.db, one["session_id"]), "action": "would_title"}
            return
        open_ones = [one for one in asked if one["session_id"] not in given]
        for one, answer in shell.call_each(command, open_ones, timeout, jobs):
            try:
                found = titles.suggested(answer())
                failures = 0
            except StoreError as error:
                failures += 1
                yield self.refused(one["session_id"], error)
                if failures == IN_A_ROW:
                    raise Negative(f"stopped: {failures} failures in a row") from None
                continue
            yield self._named(one["session_id"], found)

    def _named(self, session_id: str, title: str) -> Record:
        """A program's title, where there is still none."""
        try:
            return self.one(Wish(session_id, title, (None,), by="llm", auto_number=True))
        except Negative as error:
            return self.refused(session_id, error)
