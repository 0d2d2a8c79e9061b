"""A fleet as values: what changes are folded into, and what is asked for when one is missing."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from actors.messages import ExecutorState, FollowFleet, SourceStatus
from actors.messages.executor import ENDED_KEPT
from actors.pods.stuck import Outlook
from actors.view import FleetView
from actors.view.fleet_view import Stuck
from tests.unit.changes import changed, everything, executor, fleet

if TYPE_CHECKING:
    from collections.abc import Callable

    from actors.testing import Kit
    from actors.testing.probe import Probe

SECOND = timedelta(seconds=1)


@pytest.fixture
def view(kit: Kit) -> FleetView:
    return FleetView(kit.clock)


@pytest.fixture
def backend(kit: Kit) -> Probe:
    return kit.probe("backend")


@pytest.fixture
def asked(kit: Kit, backend: Probe) -> Callable[[], list[object]]:
    """Returns what the Backend was asked since the last look."""

    def look() -> list[object]:
        kit.settle()
        return backend.take_all()

    return look


def test_an_executor_is_its_last_value_until_it_ends(view: FleetView) -> None:
    view.fold(everything(0, executor(2), executor(1)))
    first = view.executors()
    assert [*first] == [1, 2]
    newer = executor(1, restarts=1)
    view.fold(changed(1, newer))
    assert view.executors()[1] is newer
    assert view.executors()[2] is first[2]
    assert first[1] is not newer, "a mapping that was read does not change"
    view.fold(changed(2, executor(1, ExecutorState.ENDED)))
    assert [*view.executors()] == [2]
    assert [each.id for each in view.ended] == [1]


def test_the_same_mapping_is_returned_until_an_executor_changes(view: FleetView) -> None:
    view.fold(everything(0, executor(1)))
    first = view.executors()
    view.fold(changed(1, status=fleet(3)))
    assert view.executors() is first


def test_requested_executors_are_shown_once_they_register(view: FleetView) -> None:
    requested = ExecutorState.REQUESTED
    view.fold(everything(0, executor(1, requested), executor(2, requested, registered=True)))
    assert [*view.executors()] == [2]
    assert view.registered["default"] == 1
    view.fold(changed(1, withdrawn=(1,)))
    assert [*view.alive] == [2]
    assert not view.ended


def test_running_and_registered_executors_are_counted_by_profile(view: FleetView) -> None:
    view.fold(everything(0, executor(1, registered=True), executor(2), executor(3, profile="gpu")))
    assert (view.running, view.registered) == ({"default": 2, "gpu": 1}, {"default": 1})
    view.fold(changed(1, executor(1, ExecutorState.TERMINATING, registered=True)))
    view.fold(changed(2, executor(2, registered=True), executor(3, ExecutorState.ENDED, profile="gpu")))
    assert (view.running["default"], view.running["gpu"], view.registered["default"]) == (1, 0, 2)


def test_a_pending_executor_is_stuck_since_it_was_first(view: FleetView, kit: Kit) -> None:
    pulling = executor(1, ExecutorState.PENDING, stuck="ErrImagePull")
    view.fold(everything(0, pulling))
    since = kit.clock.monotonic()
    kit.advance(5 * SECOND)
    view.fold(changed(1, executor(1, ExecutorState.PENDING)))
    view.fold(changed(2, pulling))
    assert view.stuck == {1: Stuck(Outlook.HEALS, since)}
    view.fold(changed(3, executor(1)))
    assert view.stuck == {}


def test_only_the_last_ends_are_kept(view: FleetView) -> None:
    view.fold(everything(0, *(executor(i, ExecutorState.ENDED) for i in range(1, ENDED_KEPT + 3))))
    assert [view.ended[0].id, view.ended[-1].id, len(view.ended)] == [3, ENDED_KEPT + 2, ENDED_KEPT]


def test_a_view_that_missed_something_asks_for_everything_once(view: FleetView, backend: Probe, asked: Any) -> None:
    view.follow(backend.address, view.fold)
    assert asked() == [FollowFleet(view.fold)]
    view.fold(everything(4, executor(1), executor(2)))
    view.fold(changed(5, executor(3)))
    assert asked() == []
    view.fold(changed(7, executor(4)))
    view.fold(changed(9, executor(5)))
    assert asked() == [FollowFleet(view.fold)]
    assert [*view.executors()] == [1, 2, 3, 4, 5], "what came is true all the same"
    view.fold(everything(9, executor(4), executor(5), executor(2, ExecutorState.ENDED)))
    assert [*view.executors()] == [4, 5]
    assert [each.id for each in view.ended] == [2]
    assert view.running["default"] == 2
    view.fold(changed(10))
    assert asked() == []
    view.fold(changed(12))
    assert asked() == [FollowFleet(view.fold)], "of the next gap"


def test_a_view_that_missed_the_beginning_asks(view: FleetView, backend: Probe, asked: Any) -> None:
    view.follow(backend.address, view.fold)
    asked()
    view.fold(changed(3, executor(1)))
    assert asked() == [FollowFleet(view.fold)]


def test_the_status_grows_older(view: FleetView, kit: Kit) -> None:
    assert view.status_now() is None
    assert view.profiles == {}
    sources = {"watch": SourceStatus(True, 2 * SECOND, None, None)}  # noqa: FBT003 - as the Backend makes it
    view.fold(everything(0, status=fleet(3, on_hold=True, sources=sources)))
    kit.advance(3 * SECOND)
    status = view.status_now()
    assert status is not None
    assert status.sources["watch"] == SourceStatus(True, 5 * SECOND, None, None)  # noqa: FBT003 - as above
    assert (status.on_hold, view.profiles["default"].target) == (True, 3)
