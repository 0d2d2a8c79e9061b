"""The whole tree, from the driver's message to the cluster's store and back, in virtual time.

By default some of the runs that show that a seed, or none, gives one order; all two hundred: `pytest -m stress`.
"""

from __future__ import annotations

from datetime import timedelta

import pytest

from actors.errors import Unavailable
from actors.local.kubelet.scripted_kubelet import Run
from actors.messages import (
    BackendFailed,
    BackendStarted,
    ExecutorPending,
    ExecutorRemoved,
    ExecutorRunning,
    ExecutorTerminating,
    GetExecutorIds,
    GetFleetStatus,
)
from actors.pods.loss import LossKind
from tests.scenarios.seeds import seeds
from tests.scenarios.world import World


def everything(seed: int | None, *, threads: bool = False) -> tuple[str, ...]:
    """Start, scale 0 → 20 → 5 → 20, three kills, a crash of a source, stop; the trace of all that happened."""
    with World(seed, threads=threads) as world:
        world.advance(1)
        world.target(20)
        world.advance(5)
        assert world.running() == 20
        world.target(5)
        world.advance(5)
        assert world.running() == 20, "running executors are the driver's to end"
        world.target(20)
        world.kill(3)
        world.advance(0.5)
        world.kubelet.exit(pod_name(world, 7), 1)
        world.crash("watch-source")
        world.advance(1)
        world.store.delete("pods", "default", pod_name(world, 11), grace_period_seconds=0)
        world.advance(90)
        assert world.running() == 20
        removals = world.removals()
        assert {i: removals[i].reason.kind for i in (3, 7, 11)} == {
            3: LossKind.KILLED_BY_DRIVER,
            7: LossKind.EXITED,
            11: LossKind.DELETED,
        }
        assert world.stop().left_behind == ()
        assert world.pods() == []
        return tuple(world.kit.trace)


def pod_name(world: World, executor_id: int) -> str:
    """The name of an executor's pod."""
    return f"{world.settings.pod_prefix}-exec-{executor_id}"


@pytest.mark.parametrize("runs", [3, pytest.param(200, marks=pytest.mark.stress)])
def test_every_run_gives_one_and_the_same_trace(runs: int) -> None:
    first = everything(None)
    assert len(first) > 500
    for run in range(1, runs):
        assert everything(None) == first, f"run {run + 1} went another way"


@pytest.mark.parametrize("block", seeds(1, of=40))
def test_seeds_change_the_order_and_break_no_invariant(block: int) -> None:
    traces = {everything(seed) for seed in range(5 * block, 5 * block + 5)}
    assert len(traces) > 1, "seeds do not change the order of messages"


def test_real_threads_give_the_same_trace_as_none() -> None:
    assert everything(5, threads=True) == everything(5)


def test_a_fleet_starts_with_its_initial_executors() -> None:
    with World(executor={"instances": 4}) as world:
        world.advance(3)
        assert world.heard(BackendStarted) == [BackendStarted("app", "default")]
        assert [m.executor_id for m in world.heard(ExecutorRunning)] == [1, 2, 3, 4]
        assert world.ask(GetExecutorIds()) == (1, 2, 3, 4)
        world.stop()


def test_a_terminal_event_reaches_the_driver_and_is_replaced_in_milliseconds() -> None:
    with World(executor={"instances": 4}) as world:
        world.advance(30)
        created = world.invariants.created
        world.kubelet.exit(pod_name(world, 2), 137)
        world.advance(0.1)
        reason = world.removals()[2].reason
        assert (reason.kind, reason.exit_code) == (LossKind.EXITED, 137)
        assert world.invariants.created == created + 1
        world.stop()


def test_an_executor_deleted_by_force_is_replaced_at_once_though_its_event_says_running() -> None:
    with World(executor={"instances": 2}) as world:
        world.advance(30)
        created = world.invariants.created
        world.store.delete("pods", "default", pod_name(world, 1), grace_period_seconds=0)
        world.advance(0.1)
        assert world.removals()[1].reason.kind is LossKind.DELETED
        assert world.invariants.created == created + 1
        world.stop()


def test_a_command_that_fails_at_once_slows_creation_down_and_fails_the_fleet() -> None:
    with World(executor={"instances": 1, "max_failures": 4}) as world:
        world.kubelet.script = lambda _: Run(exits_after=timedelta(), exit_code=127)
        created = []
        for _ in range(40):
            world.advance(1)
            created.append(world.invariants.created)
        assert world.invariants.created == 5
        waits = [created.index(n + 1) - created.index(n) for n in range(1, 5)]
        assert waits == sorted(waits)
        assert waits[-1] >= 8
        assert all(removal.reason.exit_code == 127 for removal in world.heard(ExecutorRemoved))


def test_a_malformed_pod_harms_no_other() -> None:
    with World(executor={"instances": 2}) as world:
        labels = {"executor-pods/app-id": "app", "executor-pods/role": "executor", "executor-pods/executor-id": "seven"}
        pod = {"metadata": {"name": "odd", "labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
        world.store.create("pods", "default", pod)
        world.advance(40)
        assert sorted(world.ask(GetExecutorIds())) == [1, 2]
        world.stop()


def test_a_driver_that_starts_again_takes_over_what_lives() -> None:
    with World(executor={"instances": 3}) as world:
        world.advance(10)
        world.stop(delete_pods=False)
        assert world.running() == 3
        world.restart()
        world.advance(10)
        assert [m.executor_id for m in world.heard(ExecutorRunning)] == [1, 2, 3]
        assert world.running() == 3
        world.kubelet.exit(pod_name(world, 2), 0)
        world.advance(10)
        assert world.heard(ExecutorRunning)[-1].executor_id == 4


def test_a_graceful_deletion_is_reported_before_the_end() -> None:
    with World(executor={"instances": 1}, start_delay=timedelta(seconds=2)) as world:
        world.kubelet.script = lambda _: Run(stop_delay=timedelta(seconds=4))
        world.advance(20)
        world.store.delete("pods", "default", pod_name(world, 1), grace_period_seconds=5)
        world.advance(30)
        kinds = [type(m) for m in world.about(1)]
        assert kinds == [ExecutorPending, ExecutorRunning, ExecutorTerminating, ExecutorRemoved]
        world.stop()


def test_the_status_counts_what_there_is() -> None:
    with World(executor={"instances": 3}) as world:
        world.advance(5)
        status = world.ask(GetFleetStatus())
        assert (status.profiles["default"].target, status.profiles["default"].running) == (3, 3)
        assert status.sources["watch"].synced
        world.stop()


def test_without_the_api_the_start_fails_with_what_the_api_said() -> None:
    with World(outage=True) as world:
        world.advance(40)
        (failed,) = world.heard(BackendFailed)
        assert isinstance(failed.cause, Unavailable)
        assert not world.backend.is_alive()
