"""Which sessions are meant: filters as a value, and whether a conversation answers to them."""

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hermes_tools.store.sessions import Conversation

INTERNAL_SOURCES = frozenset({"subagent", "tool", "kanban", "oneshot"})


def same(source: str | None) -> str:
    """A source as it is compared: case and `-`/`_` are equal, NULL and empty are `unknown`."""
    return (source or "unknown").casefold().replace("-", "_")


@dataclass(repr=False, eq=False)
class Selection:
    """Filters on conversations; None means any. Ages and times in seconds, `ended` True or False.

    archived, internal, pinned: no, only or any.
    """

    sources: tuple[str, ...] = ()
    not_sources: tuple[str, ...] = ()
    older_than: float | None = None
    older_by_source: dict[str, float] = field(default_factory=dict)
    newer_than: float | None = None
    newer_by_source: dict[str, float] = field(default_factory=dict)
    after: float | None = None
    before: float | None = None
    title_like: str | None = None
    model: str | None = None
    user: str | None = None
    end_reason: str | None = None
    cwd: str | None = None
    min_messages: int | None = None
    max_messages: int | None = None
    min_tokens: int | None = None
    max_tokens: int | None = None
    min_cost: float | None = None
    max_cost: float | None = None
    ended: bool | None = None
    archived: str = "any"
    internal: str = "any"
    pinned: str = "any"

    def narrow(self) -> bool:
        """Whether most conversations may fail it, so that reading all links at once pays."""
        common = ("archived", "internal", "pinned", "newer_than")
        plain = vars(Selection())
        return any(plain[name] != value for name, value in vars(self).items() if name not in common)

    def too_old(self, one: "Conversation", now: float) -> bool:
        """Whether it fails --newer-than, and so will all that were active before it."""
        if self.newer_than is None or self.newer_by_source or one.last_active is None:
            return False
        return now - one.last_active >= self.newer_than

    def takes(self, one: "Conversation", now: float | None = None) -> bool:
        """Whether a conversation is meant."""
        now = time.time() if now is None else now
        return all(
            (
                self._source(one),
                self._age(one, now),
                _within(one.started, self.after, self.before, exclusive=True),
                _contains(one.title, self.title_like),
                _contains(one.model, self.model),
                self.user is None or one.user_id == self.user,
                self.end_reason is None or one.end_reason == self.end_reason,
                self.cwd is None or _below(one.cwd, self.cwd),
                _within(one.message_count, self.min_messages, self.max_messages),
                _within(one.tokens, self.min_tokens, self.max_tokens),
                _within(one.cost, self.min_cost, self.max_cost),
                self.ended is None or self.ended == (one.ended is not None),
                three(self.archived, one.archived),
                three(self.internal, one.internal),
                three(self.pinned, one.pinned),
            )
        )

    def _source(self, one: "Conversation") -> bool:
        mine = same(one.source)
        if self.sources and mine not in map(same, self.sources):
            return False
        return mine not in map(same, self.not_sources)

    def _age(self, one: "Conversation", now: float) -> bool:
        older = age_for(one.source, self.older_than, self.older_by_source)
        newer = age_for(one.source, self.newer_than, self.newer_by_source)
        if self.older_by_source and older is None:
            return False  # `cron=7d` alone means cron only
        if self.newer_by_source and newer is None:
            return False
        if older is None and newer is None:
            return True
        if one.last_active is None:
            return False  # never by a time that is none
        passed = now - one.last_active
        return (older is None or passed >= older) and (newer is None or passed < newer)


def age_for(
    source: str | None, common: float | None, by_source: dict[str, float]
) -> float | None:
    """The age that holds for a source: its own, else the common one."""
    for name, age in by_source.items():
        if same(name) == same(source):
            return age
    return common


def three(word: str, value: bool) -> bool:
    """no, only, any against a flag."""
    return word == "any" or value == (word == "only")


def _contains(value: str | None, wanted: str | None) -> bool:
    return wanted is None or wanted.casefold() in (value or "").casefold()


def _below(path: str | None, folder: str) -> bool:
    folder = folder.rstrip("/") or "/"
    return path is not None and (
        path.rstrip("/") == folder or path.startswith("/" if folder == "/" else folder + "/")
    )


def _within(
    value: float | None, least: float | None, most: float | None, exclusive: bool = False
) -> bool:
    if least is None and most is None:
        return True
    if value is None:
        return False
    if least is not None and value < least:
        return False
    return most is None or (value < most if exclusive else value <= most)
