"""A reader that sleeps for ten minutes, under a thousand events a second: the door holds no more than before."""

from __future__ import annotations

import gc
import tracemalloc
from typing import TYPE_CHECKING, Final

import pytest

from actors.fleet.owner import DoorState, FleetOwner
from actors.fleet.stream import Event, EventBuffer, EventsMissed
from actors.messages import ExecutorPending, ExecutorRemoved, ExecutorRunning, ExecutorState, FleetChanged
from actors.pods.loss import LossKind, LossReason
from actors.testing import Kit
from tests.unit.builders import pod
from tests.unit.changes import changed, executor

if TYPE_CHECKING:
    from collections.abc import Iterator

    from actors.runtime import Address

RATE: Final = 1_000
WARM_UP: Final = 3_000
"""Events after which the buffers and the list of those that ended are full."""
FEW_KIB: Final = 64
TEN_MINUTES: Final = 600


def lives(first: int, events: int) -> Iterator[Event | FleetChanged]:
    """Executors that wait, run and end, a thousand events a second; each id is a new one."""
    for executor_id in range(first, first + events // 3):
        yield ExecutorPending(executor_id, pod(executor_id, phase="Pending"))
        yield change(executor_id, ExecutorState.RUNNING)
        yield ExecutorRunning(executor_id, pod(executor_id))
        yield change(executor_id, ExecutorState.ENDED)
        yield ExecutorRemoved(executor_id, LossReason(LossKind.DELETED, -1, caused_by_app=False, message="deleted"))


def change(executor_id: int, state: ExecutorState) -> FleetChanged:
    sequence = 2 * executor_id + (state is ExecutorState.ENDED)
    return changed(sequence, executor(executor_id, state))


@pytest.mark.parametrize("seconds", [6, pytest.param(TEN_MINUTES, marks=pytest.mark.stress)])
def test_a_reader_that_sleeps_leaves_memory_where_it_was(seconds: int) -> None:
    with Kit() as kit:
        backend = kit.probe("backend").address
        state, read, unread = DoorState(kit.clock), EventBuffer(1_000), EventBuffer(1_000)
        state.add_reader(read)
        state.add_reader(unread)
        owner: Address = kit.spawn(
            lambda context: FleetOwner(context, state=state, start=lambda _owner, _closing: backend), name="fleet"
        )

        def second(first: int, events: int) -> None:
            for event in lives(first, events):
                owner.tell(event)
            kit.advance(seconds=1)
            while read.take() is not None:
                pass
            kit.trace.clear()

        second(1, WARM_UP)
        tracemalloc.start()
        try:
            second(WARM_UP, RATE)
            gc.collect()
            before, _ = tracemalloc.get_traced_memory()
            for number in range(1, seconds):
                second(WARM_UP + number * RATE, RATE)
            gc.collect()
            after, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert (after - before) / 1024 < FEW_KIB
        taken = [unread.take() for _ in range(1_001)]
        assert taken[-1] == EventsMissed(WARM_UP // 3 * 3 + seconds * (RATE // 3 * 3) - 1_000)
        assert unread.take() is None
        assert state.view.alive == {}
