"""Executors as values: what events say of profile, node and IP, and that `GetExecutors` says the same as the events."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from actors.local.kubelet.scripted_kubelet import StayWaiting
from actors.messages import (
    ExecutorPending,
    ExecutorRemoved,
    ExecutorRunning,
    ExecutorState,
    ExecutorStuck,
    ExecutorTerminating,
    GetExecutors,
    RequestTotalExecutors,
)
from tests.scenarios.fleets import fleet, name

if TYPE_CHECKING:
    from actors.messages import Executor
    from tests.scenarios.world import World

GPU = {"gpu": {"image": "worker:1", "instances": 1}}
STATES = {
    ExecutorPending: ExecutorState.PENDING,
    ExecutorRunning: ExecutorState.RUNNING,
    ExecutorTerminating: ExecutorState.TERMINATING,
    ExecutorRemoved: ExecutorState.ENDED,
}


def by_events(world: World) -> dict[int, ExecutorState]:
    """The state of each executor, as a driver that reads nothing but events has it."""
    heard: list[Any] = [message for message in world.heard(object) if type(message) in STATES]
    return {message.executor_id: STATES[type(message)] for message in heard}


def by_answer(world: World) -> dict[int, Executor]:
    answer = world.ask(GetExecutors())
    return {executor.id: executor for executor in (*answer.ended, *answer.alive)}


def agree(world: World) -> None:
    found = by_answer(world)
    assert {i: e.state for i, e in found.items() if e.state is not ExecutorState.REQUESTED} == by_events(world)


def gpu_fleet() -> World:
    world = fleet(2, seconds=0, profiles=GPU)
    world.invariants.retarget({"default": 2, "gpu": 1})
    world.advance(5)
    return world


def test_every_event_of_an_executor_has_its_profile_node_and_ip() -> None:
    with gpu_fleet() as world:
        world.kill(3)
        world.kubelet.exit(name(1), 1)
        world.advance(20)
        pending, *events = cast("list[Any]", world.about(3))
        assert (type(pending), pending.profile) == (ExecutorPending, "gpu")
        assert [type(event) for event in events] == [
            ExecutorRunning,
            ExecutorTerminating,
            ExecutorRemoved,
        ]
        for event in events:
            assert (event.profile, event.node, event.ip) == ("gpu", "local", "127.0.0.1")
        removed = world.removals()[1]
        assert (removed.profile, removed.node, removed.ip) == ("default", "local", "127.0.0.1")
        stop = world.stop()
        assert stop.left_behind == ()
        assert {removed.node for removed in world.heard(ExecutorRemoved)} == {"local"}


def test_a_stuck_executor_has_its_node() -> None:
    with fleet(0) as world:
        world.kubelet.script = lambda _: StayWaiting("ErrImagePull", "no such image")
        world.target(1)
        world.advance(5)
        (stuck,) = world.heard(ExecutorStuck)
        assert (stuck.profile, stuck.node) == ("default", "local")
        (executor,) = world.ask(GetExecutors()).alive
        assert executor.reason == f"{stuck.reason}: {stuck.message}"


def test_the_last_known_node_and_ip_stay_although_the_last_status_has_none() -> None:
    """As an evicted pod's: the kubelet replaces its status."""
    with fleet(1) as world:
        status = {"phase": "Failed", "reason": "Evicted", "podIP": None, "podIPs": None}
        world.store.patch("pods", "default", name(1), {"status": status}, "merge", subresource="status")
        world.advance(5)
        assert (world.removals()[1].node, world.removals()[1].ip) == ("local", "127.0.0.1")
        (ended,) = world.ask(GetExecutors()).ended
        assert (ended.pod, ended.node, ended.ip) == (name(1), "local", "127.0.0.1")


def test_the_answer_says_the_same_as_the_events_whatever_happens_and_restarts() -> None:
    with gpu_fleet() as world:
        agree(world)
        world.invariants.retarget({"default": 4, "gpu": 2})
        world.backend.tell(RequestTotalExecutors({"default": 4, "gpu": 2}))
        for seconds in (0, 0.5, 1, 2):
            world.advance(seconds)
            agree(world)
        world.kill(2, 3)
        agree(world)
        world.store.delete("pods", "default", name(4), grace_period_seconds=2)
        world.kubelet.evict(name(1))
        world.crash("lifecycle-manager")
        world.crash("allocator")
        for seconds in (0.5, 1, 5, 60):
            world.advance(seconds)
            agree(world)
        assert all(event.deadline is not None for event in world.heard(ExecutorTerminating))
        alive = by_answer(world)
        assert {e.profile for e in alive.values()} == {"default", "gpu"}
        assert sum(e.state is ExecutorState.RUNNING for e in alive.values()) == 6
        assert [e.id for e in world.ask(GetExecutors()).ended] == list(world.removals())
