"""The production timers, in real time. The tests wait for events, never for time to pass."""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
import weakref
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from actors.runtime import SystemClock, TimerThread
from actors.runtime.timers import TimerHeap
from tests.unit.runtime.stage import SAFETY

if TYPE_CHECKING:
    from collections.abc import Iterator

SOON = timedelta(milliseconds=1)
FAR = timedelta(days=100_000)


@pytest.fixture
def timers() -> Iterator[TimerThread]:
    timers = TimerThread()
    yield timers
    timers.close()


@contextlib.contextmanager
def busy(timers: TimerThread) -> Iterator[None]:
    """Keep the timer thread busy, so that it calls no other callback."""
    entered, leave = threading.Event(), threading.Event()

    def hold() -> None:
        entered.set()
        leave.wait(SAFETY)

    timers.schedule(timedelta(0), hold)
    assert entered.wait(SAFETY)
    yield
    leave.set()


class SlowClock(SystemClock):
    """A clock that stands still until released, so that callbacks are due in the order of their delays."""

    def __init__(self) -> None:
        self.stands_at: float | None = super().monotonic()

    def monotonic(self) -> float:
        return super().monotonic() if self.stands_at is None else self.stands_at


def test_callbacks_come_in_the_order_they_are_due_then_scheduled() -> None:
    clock = SlowClock()
    timers = TimerThread(clock)
    rang: queue.SimpleQueue[str] = queue.SimpleQueue()
    with busy(timers):
        timers.schedule(3 * SOON, lambda: rang.put("fourth"))
        timers.schedule(SOON, lambda: rang.put("first"))
        timers.schedule(2 * SOON, lambda: rang.put("second"))
        timers.schedule(2 * SOON, lambda: rang.put("third"))
        clock.stands_at = None
    assert [rang.get(timeout=SAFETY) for _ in range(4)] == ["first", "second", "third", "fourth"]
    timers.close()


def test_a_timer_that_is_due_sooner_overtakes_an_earlier_one() -> None:
    class Watched(SystemClock):
        """Signals when the timer thread has read the time, which it does before it waits."""

        def monotonic(self) -> float:
            if threading.current_thread().name == "executor-pods/timers":
                looked.set()
            return super().monotonic()

    looked, rang = threading.Event(), threading.Event()
    timers = TimerThread(Watched())
    timers.schedule(FAR, lambda: None)
    assert looked.wait(SAFETY)
    timers.schedule(SOON, rang.set)
    assert rang.wait(SAFETY)
    timers.close()


def test_a_cancelled_callback_is_not_called(timers: TimerThread) -> None:
    rang: queue.SimpleQueue[str] = queue.SimpleQueue()
    with busy(timers):
        cancelled = timers.schedule(SOON, lambda: rang.put("cancelled"))
        timers.schedule(2 * SOON, lambda: rang.put("other"))
        cancelled.cancel()
        cancelled.cancel()
    assert rang.get(timeout=SAFETY) == "other"
    assert rang.empty()


@pytest.mark.parametrize("error", [ValueError("boom"), SystemExit(1)])
def test_a_callback_that_fails_is_logged_and_stops_no_other(
    timers: TimerThread, error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> None:
        raise error

    rang = threading.Event()
    timers.schedule(SOON, fail)
    timers.schedule(2 * SOON, rang.set)
    assert rang.wait(SAFETY)
    (record,) = caplog.records
    assert (record.name, record.levelno) == ("actors.runtime.timers", logging.ERROR)
    assert record.exc_info is not None
    assert record.exc_info[1] is error


def test_there_is_one_thread_from_the_first_timer_to_the_close() -> None:
    before = set(threading.enumerate())
    timers = TimerThread()
    assert set(threading.enumerate()) <= before
    for _ in range(10):
        timers.schedule(FAR, lambda: None)
    assert len(set(threading.enumerate()) - before) == 1
    timers.close()
    assert set(threading.enumerate()) <= before


def test_after_the_close_nothing_is_called(timers: TimerThread) -> None:
    rang: list[str] = []
    timers.schedule(FAR, lambda: rang.append("dropped"))
    timers.close()
    timers.schedule(timedelta(0), lambda: rang.append("late")).cancel()
    timers.close()
    assert rang == []


def test_a_callback_may_close_the_timers_itself(timers: TimerThread) -> None:
    closed = threading.Event()

    def close() -> None:
        timers.close()
        closed.set()

    timers.schedule(SOON, close)
    assert closed.wait(SAFETY)


def test_cancelled_timers_do_not_pile_up_until_they_are_due(timers: TimerThread) -> None:
    for _ in range(10_000):
        timers.schedule(FAR, lambda: None).cancel()
    assert len(timers._heap._entries) < 200


def test_nobody_wakes_for_a_cancelled_timer() -> None:
    heap = TimerHeap(SlowClock(), threading.RLock())
    first, second = heap.add(timedelta(seconds=1), lambda: None)[0], heap.add(timedelta(seconds=2), lambda: None)[0]
    heap.add(timedelta(seconds=3), lambda: None)
    second.cancel()
    assert heap.wait() == pytest.approx(1)
    first.cancel()
    assert heap.wait() == pytest.approx(3)


def test_a_callback_is_released_after_its_call(timers: TimerThread) -> None:
    class Big:
        def ring(self) -> None:
            rang.set()

    rang, big = threading.Event(), Big()
    gone = threading.Event()
    weakref.finalize(big, gone.set)
    entry = timers.schedule(SOON, big.ring)
    del big
    assert rang.wait(SAFETY)
    assert gone.wait(SAFETY)
    entry.cancel()


def test_a_missing_timer_thread_is_an_error_of_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_more(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    timers = TimerThread()
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", no_more)
        with pytest.raises(RuntimeError, match="can't start new thread"):
            timers.schedule(SOON, lambda: None)
    rang = threading.Event()
    timers.schedule(SOON, rang.set)
    assert rang.wait(SAFETY), "the next timer starts the thread"
    timers.close()
