"""Selections: which conversations answer to which filters."""

from typing import Any

import pytest
from filled import T

from hermes_tools.store.selection import Selection, same
from hermes_tools.store.sessions import Conversation

DAY = 86400.0
NOW = T + 100 * DAY


def conversation(**given: Any) -> Conversation:
    """A conversation of T, last active a day before NOW."""
    return Conversation(
        **{"id": "t", "root": "r", "rows": ["r", "t"], "title": "Garden Plan", "source": "cli",
           "model": "Nous/Hermes-4", "user_id": "42", "started": T, "started_at": T,
           "ended": None, "ended_at": None, "end_reason": None, "last_active": NOW - DAY,
           "newest_row": "t", "message_count": 10, "tool_call_count": 0, "parent": None,
           "tokens": 100, "cost": 0.5, "cwd": "/home/u/garden", "archived": False,
           "pinned": False, "hidden": False, "internal": False, "lineage_root": "r", **given}
    )  # fmt: skip


CASES = [
    ({}, {}, True),
    ({"sources": ("CLI",)}, {}, True),
    ({"sources": ("api-server",)}, {"source": "API_Server"}, True),
    ({"sources": ("unknown",)}, {"source": None}, True),
    ({"sources": ("unknown",)}, {"source": ""}, True),
    ({"sources": ("cron",)}, {}, False),
    ({"not_sources": ("Cli",)}, {}, False),
    ({"older_than": DAY}, {}, True),
    ({"older_than": DAY + 1}, {}, False),
    ({"newer_than": DAY}, {}, False),
    ({"newer_than": DAY + 1}, {}, True),
    ({"older_than": 0.0}, {"last_active": None}, False),
    ({"newer_than": 9e9}, {"last_active": None}, False),
    ({"older_by_source": {"cron": DAY}}, {}, False),
    ({"older_by_source": {"cron": DAY}}, {"source": "cron"}, True),
    ({"older_than": 9 * DAY, "older_by_source": {"cli": DAY}}, {}, True),
    ({"newer_than": DAY / 2, "newer_by_source": {"Cli": 2 * DAY}}, {}, True),
    ({"after": T}, {}, True),
    ({"before": T}, {}, False),
    ({"before": T + 1}, {}, True),
    ({"after": T - 1}, {"started": None}, False),
    ({"title_like": "garden"}, {}, True),
    ({"title_like": "GARDEN%"}, {}, False),
    ({"title_like": "ЛАМПОЧКА"}, {"title": "новая лампочка"}, True),
    ({"title_like": "x"}, {"title": None}, False),
    ({"model": "hermes"}, {}, True),
    ({"model": "hermes"}, {"model": None}, False),
    ({"user": "42"}, {}, True),
    ({"user": "4"}, {}, False),
    ({"end_reason": "idle"}, {"end_reason": "idle"}, True),
    ({"end_reason": "idle"}, {"end_reason": "idle_reset"}, False),
    ({"cwd": "/home/u/garden/"}, {}, True),
    ({"cwd": "/home/u"}, {}, True),
    ({"cwd": "/"}, {}, True),
    ({"cwd": "/home/u/gar"}, {}, False),
    ({"cwd": "/home/u"}, {"cwd": None}, False),
    ({"min_messages": 10, "max_messages": 10}, {}, True),
    ({"min_messages": 11}, {}, False),
    ({"max_tokens": 99}, {}, False),
    ({"min_cost": 0.0}, {"cost": None}, False),
    ({"max_cost": 1.0}, {"cost": None}, False),
    ({"min_cost": 0.5}, {}, True),
    ({"ended": True}, {}, False),
    ({"ended": False}, {}, True),
    ({"ended": True}, {"ended": T}, True),
    ({"archived": "no"}, {"archived": True}, False),
    ({"archived": "only"}, {"archived": True}, True),
    ({"archived": "only"}, {}, False),
    ({"internal": "no"}, {"internal": True}, False),
    ({"pinned": "only"}, {"pinned": True}, True),
]


@pytest.mark.parametrize(("filters", "given", "taken"), CASES)
def test_takes(filters: dict[str, Any], given: dict[str, Any], taken: bool) -> None:
    assert Selection(**filters).takes(conversation(**given), NOW) is taken


def test_narrow_says_whether_most_may_fail() -> None:
    assert not Selection().narrow()
    assert not Selection(archived="no", internal="no", newer_than=DAY).narrow()
    assert Selection(title_like="x").narrow()


def test_too_old_ends_a_walk_from_the_newest() -> None:
    assert Selection(newer_than=DAY).too_old(conversation(), NOW)
    assert not Selection(newer_than=DAY * 2).too_old(conversation(), NOW)
    assert not Selection(newer_than=DAY).too_old(conversation(last_active=None), NOW)
    assert not Selection(newer_than=DAY, newer_by_source={"cron": 9 * DAY}).too_old(
        conversation(), NOW
    )


def test_sources_are_compared_loosely() -> None:
    assert same("API-Server") == same("api_server")
    assert same(None) == same("") == same("Unknown")
