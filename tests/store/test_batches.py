"""Batches: short locks, fair pauses, told after the commit and never before."""

import signal
import sqlite3
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest

from hermes_tools.store import batches
from hermes_tools.store.db import writer

IDS = [f"20260301_10000{ending}" for ending in ("9_comple", "6_failed")]


def named(path: Path) -> set[str]:
    """Ids titled by these tests."""
    with closing(sqlite3.connect(path)) as db:
        return {row[0] for row in db.execute("SELECT id FROM sessions WHERE title LIKE 't %'")}


def entitle(now: batches.Moment, name: str) -> batches.Outcome:
    """A small change."""
    now.reader.db.execute("UPDATE sessions SET title = 't ' || id WHERE id = ?", (name,))
    return batches.Outcome(now.reader.conversation(name), "titled")


@pytest.mark.parametrize("held", [0.0, 0.004, 0.06, 0.15, 0.3, 5.0])
def test_whoever_waits_gets_a_turn(held: float) -> None:
    """The moments at which SQLite asks again: one of them falls into the pause."""
    asks, at = [], 0.0
    for step in (*batches.STEPS, *[batches.STEPS[-1]] * 60):
        at += step
        asks.append(at)
    end = held + batches.pause_after(held)
    assert any(held < ask < end for ask in asks)


def test_outcomes_come_after_their_commit(store) -> None:
    path = store("v22")
    with writer(path) as db:
        for outcome in batches.batches(db, IDS, entitle, None, speed=1.0):
            assert outcome.one.id in named(path)
    assert named(path) == set(IDS)


def test_small_ones_share_a_transaction_long_ones_do_not(store) -> None:
    path = store("v22")
    with writer(path) as db:
        list(batches.batches(db, IDS, entitle, None, speed=0.001))
        assert db.writes == 1
        list(batches.batches(db, IDS, entitle, None, speed=9.0))
        assert db.writes == 3


def test_what_would_lock_too_long_is_left(store) -> None:
    path = store("v22")

    def left(name: str) -> batches.Outcome:
        return batches.Outcome(batches.Reader(db).conversation(name), "skipped", "max_lock")

    with writer(path) as db:
        found = list(
            batches.batches(
                db, IDS, entitle, None, speed=1.0, cost=lambda name: float(name == IDS[1]),
                max_lock=0.5, left=left,
            )
        )  # fmt: skip
    assert [one.action for one in found] == ["titled", "skipped"] and named(path) == {IDS[0]}


def test_an_error_leaves_its_batch_undone(store) -> None:
    path = store("v22")

    def fail(now: batches.Moment, name: str) -> batches.Outcome:
        if name == IDS[1]:
            raise ValueError
        return entitle(now, name)

    told = []
    with writer(path) as db, pytest.raises(ValueError):
        for outcome in batches.batches(db, IDS, fail, None, speed=0.001):
            told.append(outcome)
    assert told == [] and named(path) == set()


def test_a_signal_waits_until_what_is_done_is_told(store, monkeypatch) -> None:
    path, told = store("v22"), []

    class Stop(BaseException):
        pass

    def stop(number: int, frame: object) -> None:
        raise Stop

    def signalled(now: batches.Moment, name: str) -> batches.Outcome:
        if name == IDS[1]:  # it arrives between the commit and the telling
            # To this thread: a test runner has others, which do not block it.
            def arrive(held: float) -> float:
                signal.pthread_kill(threading.get_ident(), signal.SIGTERM)
                return 0.0

            monkeypatch.setattr(batches, "pause_after", arrive)
        return entitle(now, name)

    before = signal.signal(signal.SIGTERM, stop)
    try:
        with writer(path) as db, pytest.raises(Stop):
            for outcome in batches.batches(db, IDS, signalled, None, speed=0.001):
                told.append(outcome.one.id)
            time.sleep(1)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert told == IDS and named(path) == set(IDS)
