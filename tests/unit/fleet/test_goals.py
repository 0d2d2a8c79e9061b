"""What `wait_for` waits for: when it is reached, why it never will be, and what it says at the end of the time."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from actors.errors import Unreachable
from actors.fleet.goals import FOR_A_PERSON, FOR_GOOD, PATIENCE, UNKNOWN_FOR, Goal
from actors.messages import Executor, ExecutorState, FleetStatus, ProfileStatus
from actors.view import FleetView
from tests.unit.changes import changed, everything, executor, fleet, only

if TYPE_CHECKING:
    from actors.testing import Kit

NOW = 1000.0
"""A moment; the kit's clock is somewhere before."""

PENDING = ExecutorState.PENDING

REFUSED = ("ErrImagePull: not found",)


@pytest.fixture
def known(kit: Kit) -> Any:
    """Makes a view of what is known."""

    def make(*executors: Executor, status: FleetStatus | int = 3) -> FleetView:
        view = FleetView(kit.clock)
        view.fold(everything(0, *executors, status=fleet(status) if isinstance(status, int) else status))
        return view

    return make


def goal(running: int | None = None, registered: int | None = None, *profiles: str) -> Goal:
    return Goal(running=running, registered=registered, profiles=profiles or ("default",))


def stuck(executor_id: int, why: str, words: str = "main") -> Executor:
    return executor(executor_id, PENDING, stuck=why, reason=f"{why}: {words}")


@pytest.mark.parametrize("number", [-1, True, 1.0, "2"])
def test_a_goal_is_a_whole_number_of_executors(number: Any) -> None:
    with pytest.raises(ValueError, match=r"^running = .*: must be a whole number of executors$"):
        goal(running=number)
    with pytest.raises(ValueError, match=r"^registered = "):
        goal(registered=number)


def test_a_goal_needs_a_number() -> None:
    with pytest.raises(TypeError, match="needs running=, registered= or both"):
        goal()


def test_a_goal_is_reached_when_enough_executors_of_its_profiles_run_and_are_registered(known: Any) -> None:
    view = known(executor(1), executor(2, registered=True), executor(3, profile="gpu"), executor(4, PENDING))
    assert goal(2).is_reached(view)
    assert not goal(3).is_reached(view)
    assert goal(3, None, "default", "gpu").is_reached(view)
    assert goal(2, 1).is_reached(view)
    assert not goal(2, 2).is_reached(view)
    assert not goal(None, 1, "gpu").is_reached(view)
    assert goal(0).is_reached(view)


def test_a_goal_beyond_the_target_is_never_reached(known: Any) -> None:
    with pytest.raises(Unreachable, match=r"^4 executors should run: only 3 are wanted; scale the fleet up first$"):
        goal(4).check(known(), NOW)
    assert goal(3).check(known(), NOW) is None
    two = fleet({"default": ProfileStatus(target=3), "gpu": ProfileStatus(target=2)})
    assert goal(5, None, "default", "gpu").check(known(status=two), NOW) is None


def test_a_fleet_that_has_failed_reaches_nothing_and_says_how_the_last_executor_ended(known: Any) -> None:
    failed = fleet(3, failed="4 executors failed to start")
    with pytest.raises(Unreachable, match=r"^1 executor should run, 0 run: 4 executors failed to start$"):
        goal(1).check(known(status=failed), NOW)
    last = executor(1, ExecutorState.ENDED, reason="exit code 1")
    with pytest.raises(Unreachable, match=r"failed to start; the last one that ended: exit code 1$"):
        goal(1).check(known(last, status=failed), NOW)


@pytest.mark.parametrize("kind", sorted(FOR_GOOD))
def test_a_block_that_follows_from_the_pod_makes_a_goal_of_more_executors_unreachable(known: Any, kind: str) -> None:
    blocked = fleet(only(target=3, blocked="not allowed", blocked_by=kind))
    with pytest.raises(Unreachable, match=r"^2 executors should run, 1 run: not allowed$"):
        goal(2).check(known(executor(1), status=blocked), NOW)
    assert goal(2).check(known(executor(1), executor(2, PENDING), status=blocked), NOW) is None, "they exist"
    elsewhere = fleet({"default": ProfileStatus(target=3), "gpu": blocked.profiles["default"]})
    assert goal(2).check(known(status=elsewhere), NOW) is None


@pytest.mark.parametrize("kind", sorted(FOR_A_PERSON))
def test_a_block_that_a_person_ends_is_given_some_time(known: Any, kit: Kit, kind: str) -> None:
    view = known(status=fleet(only(target=3, blocked="not allowed", blocked_by=kind)))
    since, patience = kit.clock.monotonic(), PATIENCE.total_seconds()
    assert goal(2).check(view, since + patience - 4) == timedelta(seconds=4)
    kit.advance(timedelta(seconds=10))
    view.fold(changed(1, status=fleet(only(target=3, blocked="not allowed", blocked_by=kind))))
    with pytest.raises(Unreachable, match=r"0 run: not allowed$"):
        goal(2).check(view, since + patience)
    view.fold(changed(2, status=fleet(only(target=3))))
    view.fold(changed(3, status=fleet(only(target=3, blocked="not allowed", blocked_by=kind))))
    assert goal(2).check(view, since + patience) == timedelta(seconds=10), "it began anew"


def test_a_block_that_may_end_is_waited_for_and_named_at_the_end(known: Any) -> None:
    view = known(status=fleet(only(target=3, blocked="quota exceeded", blocked_by="QuotaExceeded")))
    assert goal(2).check(view, NOW) is None
    said = str(goal(2).timed_out(view, timedelta(minutes=1)))
    assert said == "2 executors should run, 0 run after 1m: 'default' is blocked: quota exceeded"


@pytest.mark.parametrize(
    ("why", "words"), [("InvalidImageName", "main"), ("CreateContainerConfigError", "main: breaks non-root policy")]
)
def test_pods_that_never_heal_are_given_up_at_once_if_they_leave_too_few(known: Any, why: str, words: str) -> None:
    view = known(stuck(1, why, words), executor(2), executor(3))
    assert goal(2).check(view, NOW) is None
    with pytest.raises(Unreachable, match=rf"^3 executors should run, 2 run: executor 1 is stuck: {why}: {words}$"):
        goal(3).check(view, NOW)


def test_an_image_that_its_registry_refuses_is_given_some_time(known: Any, kit: Kit) -> None:
    view = known(stuck(1, "ErrImagePull", "not found"), stuck(2, "ErrImageNeverPull"))
    since = kit.clock.monotonic()
    assert goal(1).check(view, since) is None, "one more is wanted"
    patience = PATIENCE.total_seconds()
    assert goal(3).check(view, since + patience - 4) == timedelta(seconds=4)
    with pytest.raises(Unreachable, match=r"executor 1 is stuck: ErrImagePull: not found \(and 1 more\)$"):
        goal(3).check(view, since + patience)


def test_the_time_of_a_refusal_begins_with_the_refusal_and_goes_on_between_two_pulls(known: Any, kit: Kit) -> None:
    view = known(stuck(1, "ErrImagePull", "i/o timeout"))
    kit.advance(timedelta(seconds=60))
    refused_at = kit.clock.monotonic()
    assert goal(3).check(view, refused_at) is None
    for sequence, words in enumerate((*REFUSED, "ImagePullBackOff: main", *REFUSED), 1):
        why, _, rest = words.partition(": ")
        view.fold(changed(sequence, stuck(1, why, rest)))
        kit.advance(timedelta(seconds=1))
    assert goal(3).check(view, refused_at) == PATIENCE


def test_executors_without_room_are_waited_for(known: Any) -> None:
    view = known(*(stuck(executor_id, "Unschedulable") for executor_id in (1, 2, 3)))
    assert goal(3).check(view, NOW) is None
    said = str(goal(3).timed_out(view, timedelta(seconds=5)))
    assert said == ("3 executors should run, 0 run after 5s: executor 1 is stuck: Unschedulable: main (and 2 more)")


def test_executors_of_other_profiles_hold_nothing_up(known: Any) -> None:
    other = executor(1, PENDING, profile="gpu", stuck="InvalidImageName", reason="InvalidImageName: main")
    view = known(other, status=3)
    assert goal(3).check(view, NOW) is None
    assert str(goal(3).timed_out(view, timedelta(seconds=5))) == "3 executors should run, 0 run after 5s"


def test_the_end_of_the_time_names_gates(known: Any) -> None:
    gated = executor(1, PENDING, reason="waits for the scheduling gate example.com/wait")
    said = str(goal(1, 1).timed_out(known(gated), timedelta(seconds=5)))
    assert said == (
        "1 executor should run and 1 executor should be registered, 0 run and 0 are after 5s: "
        "executor 1 waits for the scheduling gate example.com/wait"
    )


def test_a_start_that_waits_for_its_lease_says_so_after_a_second_only(known: Any) -> None:
    waits = ProfileStatus(target=1, blocked="waiting for the lease of 'etl'", blocked_by="lease")
    view = known(status=fleet({"default": waits}))
    begin = view.blocked_since("default")
    assert goal(1).held_up(view, begin) == {}
    assert goal(1).check(view, begin) == UNKNOWN_FOR
    assert [*goal(1).held_up(view, begin + UNKNOWN_FOR.total_seconds()).values()] == [
        "'default' is blocked: waiting for the lease of 'etl'"
    ]
