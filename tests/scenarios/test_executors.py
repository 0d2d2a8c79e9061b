"""Executors' ends in the whole tree: why they are gone, that it is told once, what stays, and lost connections.

Lines 10 to 12 and 15 of the issue "Allocate and account for executors under every condition".
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from actors.local.faults.kinds import DelayRequest
from actors.local.kubelet.scripted_kubelet import Run, StayWaiting
from actors.local.store.objects import rfc3339
from actors.messages import (
    ExecutorDisconnected,
    ExecutorPending,
    ExecutorRemoved,
    ExecutorRunning,
    IsExecutorExcluded,
    RegisterExecutor,
    StopBackend,
)
from actors.pods.loss import CAUSED_BY_APP, LossKind
from tests.scenarios.fleets import PARTS, ended, fleet, is_going, name, names, patch, pod

if TYPE_CHECKING:
    from collections.abc import Callable

    from actors.messages import Suspected
    from tests.scenarios.world import World


def is_accepted(world: World, executor_id: int) -> bool:
    """Whether the driver may take its connection: two questions, one answer. A question alone changes nothing."""
    is_excluded = world.ask(IsExecutorExcluded(executor_id))
    if is_excluded:
        assert not world.ask(RegisterExecutor(executor_id))
    return not is_excluded


# ── 10: why they are gone ────────────────────────────────────────────────────────────────────────────────────────────


def exits(code: int) -> Callable[[World], None]:
    return lambda world: world.kubelet.exit(name(1), code, message="its last words")


def oom(code: int) -> Callable[[World], None]:
    return lambda world: world.kubelet.oom(name(1), code=code)


def disrupted(reason: str) -> Callable[[World], None]:
    return lambda world: world.kubelet.disrupt(name(1), reason)


def preempted_by_kueue(world: World) -> None:
    """As Kueue stops a plain pod: it writes its condition, then deletes the pod."""
    condition = {
        "type": "TerminationTarget",
        "status": "True",
        "reason": "WorkloadEvictedDueToPreempted",
        "message": "Preempted to accommodate a workload in the ClusterQueue",
        "lastTransitionTime": rfc3339(world.kit.clock.now()),
    }
    conditions = {"conditions": [condition]}
    world.store.patch("pods", "default", name(1), {"status": conditions}, "strategic", subresource="status")
    world.store.delete("pods", "default", name(1))


def exceeds_its_storage(world: World) -> None:
    """As a kubelet does: without a disruption, since the limit is the pod's own."""
    [container] = world.store.get("pods", "default", name(1))["status"]["containerStatuses"]
    state = {"terminated": {"exitCode": 137, "reason": "Error", "finishedAt": rfc3339(world.kit.clock.now())}}
    status = {
        "phase": "Failed",
        "reason": "Evicted",
        "message": 'Container executor exceeded its local ephemeral storage limit "1Gi". ',
        "containerStatuses": [{**container, "ready": False, "state": state}],
    }
    world.store.patch("pods", "default", name(1), {"status": status}, "merge", subresource="status")


def deleted(grace: int) -> Callable[[World], None]:
    def delete(world: World) -> None:
        world.store.delete("pods", "default", name(1), grace_period_seconds=grace)

    return delete


def released(world: World) -> None:
    patch(world, 1, labels={"executor-pods/role": "pet"})


def refused_by_its_node(world: World) -> None:
    """As a kubelet does that has no room for it after all: no container of it ever ran."""
    world.kubelet.script = lambda _: StayWaiting()
    world.target(2)
    world.advance(2)
    status = {"phase": "Failed", "reason": "OutOfcpu", "message": "Node didn't have enough resource: cpu"}
    world.store.patch(
        "pods", "default", name(2), {"status": {**status, "containerStatuses": None}}, "merge", subresource="status"
    )


def never_healing(world: World) -> None:
    world.kubelet.script = lambda _: StayWaiting("InvalidImageName", "couldn't parse image reference")
    world.target(2)
    world.advance(5 * 60)


def disconnects(world: World) -> None:
    world.backend.tell(ExecutorDisconnected(1))


def hangs(world: World) -> None:
    world.backend.tell(ExecutorDisconnected(1, "hang"))


def goes_missing(world: World) -> None:
    """It ends while nobody looks, and what was known of it is lost: no event and no list will ever tell."""
    world.api.stall()
    world.store.delete("pods", "default", name(1), grace_period_seconds=0)
    world.crash("snapshot-store")


def node_is_silent(world: World) -> None:
    world.kubelet.hold()
    world.store.delete("pods", "default", name(1), grace_period_seconds=30)


ENDS: list[tuple[str, Callable[[World], None], LossKind, int, str]] = [
    ("exit 0", exits(0), LossKind.FINISHED, 0, "finished by itself with exit code 0"),
    ("exit 3", exits(3), LossKind.EXITED, 3, "exited with exit code 3"),
    ("exit 126", exits(126), LossKind.EXITED, 126, "the command cannot be executed"),
    ("exit 127", exits(127), LossKind.EXITED, 127, "the command was not found"),
    ("exit 137", exits(137), LossKind.EXITED, 137, "SIGKILL: out of memory, killed by hand"),
    ("exit 139", exits(139), LossKind.EXITED, 139, "SIGSEGV: it crashed"),
    ("exit 143", exits(143), LossKind.EXITED, 143, "SIGTERM: by its kubelet after a failed liveness"),
    ("exit 255", exits(255), LossKind.EXITED, 255, "an exit code out of range"),
    ("out of memory", oom(137), LossKind.OOM_KILLED, 137, "more memory than its limit"),
    ("out of memory, exit 0", oom(0), LossKind.OOM_KILLED, 0, "more memory than its limit"),
    ("out of memory, exit 143", oom(143), LossKind.OOM_KILLED, 143, "more memory than its limit"),
    ("node pressure", lambda world: world.kubelet.evict(name(1)), LossKind.EVICTED, 137, "low on resource: memory"),
    ("own storage", exceeds_its_storage, LossKind.STORAGE_EXCEEDED, 137, "more local storage than its pod may"),
    ("drain", disrupted("EvictionByEvictionAPI"), LossKind.EVICTED, 143, "was evicted"),
    ("taint", disrupted("DeletionByTaintManager"), LossKind.EVICTED, 143, "was evicted"),
    ("preemption", disrupted("PreemptionByScheduler"), LossKind.PREEMPTED, 143, "was preempted"),
    ("Kueue", preempted_by_kueue, LossKind.PREEMPTED, 143, "Preempted to accommodate a workload in the ClusterQueue"),
    ("node gone", disrupted("DeletionByPodGC"), LossKind.NODE_LOST, 143, "lost with its node"),
    ("node silent", node_is_silent, LossKind.NODE_LOST, -1, "lost with its node"),
    ("a person", deleted(30), LossKind.DELETED, 143, "deleted by somebody else"),
    ("a person, by force", deleted(0), LossKind.DELETED, -1, "deleted by somebody else"),
    ("the driver", lambda world: world.kill(1), LossKind.KILLED_BY_DRIVER, 143, "was ended by the driver"),
    ("no connection", disconnects, LossKind.DISCONNECTED, -1, "was disconnected from the driver for too long"),
    ("a hang, as the driver says", hangs, LossKind.HUNG, -1, "hung: it was disconnected"),
    ("labels taken away", released, LossKind.RELEASED, -1, "its pod is still alive"),
    ("no trace", goes_missing, LossKind.MISSING, -1, "its pod was app-exec-1"),
]


@pytest.mark.parametrize(("end", "kind", "code", "words"), [case[1:] for case in ENDS], ids=[case[0] for case in ENDS])
def test_an_end_is_reported_with_its_kind_exit_code_blame_and_message(
    end: Callable[[World], None], kind: LossKind, code: int, words: str
) -> None:
    with fleet(1) as world:
        end(world)
        world.advance(200)
        reason = ended(world, 1)
        assert (reason.kind, reason.exit_code, reason.caused_by_app) == (kind, code, kind in CAUSED_BY_APP)
        assert words in reason.message
        assert "executor 1 " in reason.message
        assert name(2) in names(world), "it was not replaced"


@pytest.mark.parametrize(
    ("end", "words"),
    [(refused_by_its_node, "OutOfcpu: Node didn't have enough"), (never_healing, "couldn't parse image reference")],
)
def test_one_that_can_never_run_never_started(end: Callable[[World], None], words: str) -> None:
    with fleet(1) as world:
        end(world)
        world.advance(2)
        reason = ended(world, 2)
        assert (reason.kind, reason.exit_code, reason.caused_by_app) == (LossKind.NEVER_STARTED, -1, False)
        assert words in reason.message


def test_every_kind_of_loss_is_met_here() -> None:
    assert {kind for _, _, kind, _, _ in ENDS} | {LossKind.NEVER_STARTED} == set(LossKind)


def test_the_message_ends_with_the_executors_termination_message() -> None:
    with fleet(1) as world:
        world.kubelet.exit(name(1), 1, message="KeyError: 'shard'")
        world.advance(1)
        assert ended(world, 1).message.endswith("; termination message: KeyError: 'shard'")


def test_an_excess_pending_executor_is_reported_as_scaled_down() -> None:
    with fleet(1) as world:
        world.kubelet.script = lambda _: StayWaiting()
        world.target(2)
        world.advance(60)
        world.target(1)
        world.advance(10)
        reason = ended(world, 2)
        assert reason.kind is LossKind.KILLED_BY_DRIVER
        assert "was scaled down to a lower target" in reason.message


def test_one_that_is_scaled_down_is_excluded_from_its_delete_to_its_end() -> None:
    with fleet(1) as world:
        world.kubelet.script = lambda _: StayWaiting()
        world.target(2)
        world.advance(61)
        assert is_accepted(world, 2)
        world.kubelet.hold()
        world.target(1)
        world.advance(1)
        assert is_going(world, 2)
        assert not is_accepted(world, 2)
        world.crash("lifecycle-manager")
        world.advance(20)
        assert not is_accepted(world, 2)
        world.kubelet.release()
        world.advance(60)
        assert not is_accepted(world, 2)
        assert "was scaled down" in ended(world, 2).message


def test_one_that_runs_before_it_could_be_scaled_down_is_accepted() -> None:
    """Its DELETE names the version in which it was pending, and is refused."""
    with fleet(1) as world:
        world.kubelet.script = lambda _: Run(start_delay=timedelta(seconds=64))
        world.target(2)
        world.advance(61)
        world.api.fail_next("delete", DelayRequest(timedelta(seconds=5)))
        world.target(1)
        world.advance(1)
        assert not is_accepted(world, 2)
        world.advance(10)
        assert is_accepted(world, 2)
        assert name(2) in names(world)
        assert not is_going(world, 2)


@pytest.mark.parametrize("delete_pods", [True, False])
def test_whoever_is_deleted_in_a_stop_is_excluded_as_soon_as_it_begins(*, delete_pods: bool) -> None:
    with fleet(2) as world:
        world.kubelet.hold()
        world.kill(1)
        world.backend.tell(StopBackend(delete_pods))
        world.advance(1)
        assert not is_accepted(world, 1)
        assert is_accepted(world, 2) is not delete_pods


# ── 11: once ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_one_that_ends_before_anybody_sees_it_alive_is_reported_pending_and_then_removed() -> None:
    """`command = ["false"]`: it starts and ends between two rounds."""
    with fleet(1) as world:
        moment = timedelta(milliseconds=5)
        world.kubelet.script = lambda _: Run(start_delay=timedelta(0), exits_after=moment, exit_code=1)
        world.target(3)
        world.advance(0.9)
        assert type(world.about(2)[0]) is ExecutorRunning, "the first start is told at once"
        assert [type(message) for message in world.about(3)] == [ExecutorPending, ExecutorRemoved]
        assert ended(world, 3).exit_code == 1
        world.advance(60)
        assert len(world.removals()) > 3


@pytest.mark.parametrize("adopted", [False, True], ids=["its own", "an earlier life's"])
def test_an_end_is_reported_once_though_the_pod_stays_for_half_an_hour_and_actors_crash(*, adopted: bool) -> None:
    with fleet(2) as world:
        if adopted:
            world.stop(delete_pods=False)
            world.restart()
            world.advance(5)
        patch(world, 1, finalizers=["example.com/held"])
        world.kubelet.exit(name(1), 3)
        for part in PARTS:
            world.advance(7 * 60)
            world.crash(part)
            world.advance(20)
            patch(world, 1, annotations={"seen-after": part})
        world.advance(60)
        assert is_going(world, 1)
        assert ended(world, 1).exit_code == 3
        patch(world, 1, finalizers=None)
        world.advance(10 * 60)
        assert ended(world, 1).exit_code == 3
        assert names(world) == [name(2), name(3)]


def test_an_executor_lost_with_its_node_that_ends_long_after_is_reported_once() -> None:
    with fleet(1) as world:
        node_is_silent(world)
        world.advance(900)
        assert ended(world, 1).kind is LossKind.NODE_LOST
        world.crash("lifecycle-manager")
        world.advance(20)
        world.kubelet.release()
        world.advance(60)
        assert ended(world, 1).kind is LossKind.NODE_LOST
        assert names(world) == [name(2)]


# ── 12: pods that are left for inspection ────────────────────────────────────────────────────────────────────────────


def left_alone(world: World, executor_id: int) -> None:
    """It is set aside, and nothing is done to it or told of it any more."""
    version = pod(world, executor_id)["metadata"]["resourceVersion"]
    assert pod(world, executor_id)["metadata"]["labels"]["executor-pods/inactive"] == "true"
    heard = len(world.about(executor_id))
    world.advance(10 * 60)
    assert pod(world, executor_id)["metadata"]["resourceVersion"] == version
    assert len(world.about(executor_id)) == heard


def test_without_delete_on_termination_an_ended_pod_is_labelled_inactive_and_ignored() -> None:
    with fleet(2, executor={"delete_on_termination": False}) as world:
        world.kubelet.exit(name(1), 3)
        world.advance(2)
        assert ended(world, 1).exit_code == 3
        left_alone(world, 1)
        for part in PARTS:
            world.crash(part)
            world.advance(20)
        left_alone(world, 1)
        assert names(world) == [name(1), name(2), name(3)]


@pytest.mark.parametrize("clean", [False, True])
def test_a_stop_deletes_what_was_set_aside_only_if_asked_to(*, clean: bool) -> None:
    backend = {"delete_inactive_on_stop": clean}
    with fleet(2, executor={"delete_on_termination": False}, backend=backend) as world:
        world.kubelet.exit(name(1), 3)
        world.advance(2)
        assert world.stop().left_behind == ()
        assert names(world) == ([] if clean else [name(1)])


def test_a_driver_that_restarts_keeps_inactive_pods_and_does_not_reuse_their_ids() -> None:
    with fleet(2, executor={"delete_on_termination": False}) as world:
        for executor_id in (1, 2):
            world.kubelet.exit(name(executor_id), 3)
        world.advance(2)
        world.stop()
        assert names(world) == [name(1), name(2)]
        world.restart()
        world.advance(10)
        assert sorted(message.executor_id for message in world.heard(ExecutorRunning)) == [3, 4]
        assert world.about(1) == world.about(2) == []
        left_alone(world, 1)
        assert names(world) == [name(1), name(2), name(3), name(4)]


# ── 15: executors without a connection ───────────────────────────────────────────────────────────────────────────────


def test_one_whose_connection_stays_away_is_removed_deleted_and_replaced_in_time() -> None:
    with fleet(2) as world:
        world.ask(RegisterExecutor(1))
        world.backend.tell(ExecutorDisconnected(1))
        world.advance(119)
        assert world.about(1)[-1] == world.heard(ExecutorRunning)[0], "it is waited for"
        world.advance(2)
        assert ended(world, 1).kind is LossKind.DISCONNECTED
        world.advance(5)
        assert names(world) == [name(2), name(3)]
        world.stop()


def test_one_that_stays_away_alone_hangs_and_counts_against_the_application() -> None:
    with fleet(3) as world:
        for executor_id in (1, 2, 3):
            world.ask(RegisterExecutor(executor_id))
        world.backend.tell(ExecutorDisconnected(1))
        world.advance(121)
        reason = ended(world, 1)
        assert (reason.kind, reason.exit_code, reason.caused_by_app) == (LossKind.HUNG, -1, True)
        assert "hung: it was disconnected from the driver for too long, and 2 of 2 others stayed connected" in (
            reason.message
        )
        world.advance(5)
        assert names(world) == [name(2), name(3), name(4)]


def test_those_of_a_cut_network_are_not_the_applications_fault_though_they_are_noticed_one_by_one() -> None:
    with fleet(5) as world:
        for executor_id in range(1, 6):
            world.ask(RegisterExecutor(executor_id))
        for executor_id in (1, 2, 3):
            world.backend.tell(ExecutorDisconnected(executor_id))
            world.advance(20)
        world.advance(130)
        assert sorted(world.removals()) == [1, 2, 3]
        assert [ended(world, i).kind for i in (1, 2, 3)] == [LossKind.DISCONNECTED] * 3


def test_one_on_a_node_that_does_not_answer_is_not_the_applications_fault() -> None:
    with fleet(3) as world:
        for executor_id in (1, 2, 3):
            world.ask(RegisterExecutor(executor_id))
        world.backend.tell(ExecutorDisconnected(1))
        world.advance(45)
        silent = {"conditions": [{"type": "Ready", "status": "False"}]}
        world.store.patch("pods", "default", name(1), {"status": silent}, "strategic", subresource="status")
        world.advance(80)
        assert ended(world, 1).kind is LossKind.DISCONNECTED
        assert "its node does not answer" in ended(world, 1).message


@pytest.mark.parametrize(
    ("suspected", "part", "kind"),
    [
        ("hang", None, LossKind.HUNG),
        ("hang", "lifecycle-manager", LossKind.HUNG),
        ("network", None, LossKind.DISCONNECTED),
    ],
)
def test_what_the_driver_suspects_decides_also_after_a_crash(
    suspected: Suspected, part: str | None, kind: LossKind
) -> None:
    with fleet(3) as world:
        for executor_id in (1, 2, 3):
            world.ask(RegisterExecutor(executor_id))
        world.backend.tell(ExecutorDisconnected(1))
        world.advance(60)
        world.backend.tell(ExecutorDisconnected(1, suspected))
        if part is not None:
            world.crash(part)
        world.advance(65)
        assert ended(world, 1).kind is kind


@pytest.mark.parametrize("cut", [False, True])
def test_a_task_that_freezes_its_executors_fails_after_its_allowed_deaths_and_one_behind_a_cut_network_does_not(
    *, cut: bool
) -> None:
    """A driver that gives the task to the newest executor, until it has cost four, as Spark and Dask do."""
    with fleet(4) as world:
        connected: set[int] = set()
        deaths = given = 0
        for _ in range(8):
            for number in {i for i in range(1, 99) if name(i) in names(world)} - connected:
                world.ask(RegisterExecutor(number))
                connected.add(number)
            holder, given = max(connected), given + 1
            for number in {holder, min(connected)} if cut else {holder}:
                world.backend.tell(ExecutorDisconnected(number))
                connected.discard(number)
            world.advance(130)
            deaths += ended(world, holder).caused_by_app
            if deaths == 4:
                break
        assert (deaths, given) == ((0, 8) if cut else (4, 4))


def test_one_that_reconnects_in_time_stays() -> None:
    with fleet(1) as world:
        for _ in range(5):
            world.backend.tell(ExecutorDisconnected(1))
            world.advance(100)
            assert world.ask(RegisterExecutor(1))
        world.advance(300)
        assert world.removals() == {}
        assert names(world) == [name(1)]


def test_a_second_loss_of_a_connection_does_not_start_the_time_anew() -> None:
    with fleet(1) as world:
        world.backend.tell(ExecutorDisconnected(1))
        world.advance(100)
        world.backend.tell(ExecutorDisconnected(1))
        world.advance(21)
        assert ended(world, 1).kind is LossKind.DISCONNECTED


@pytest.mark.parametrize("part", ["lifecycle-manager", "snapshot-store", "request-pool"])
def test_a_restart_keeps_the_time_of_each_lost_connection(part: str) -> None:
    """Each is due in its own time, whatever the order of their ids."""
    with fleet(30) as world:
        for executor_id in range(30, 0, -1):
            world.backend.tell(ExecutorDisconnected(executor_id))
            world.advance(2)
        world.crash(part)
        world.advance(61)
        assert sorted(world.removals()) == [30]
        world.advance(20)
        assert sorted(world.removals()) == list(range(20, 31))


def test_a_disconnected_executor_that_ends_within_the_delay_is_reported_with_its_own_end() -> None:
    with fleet(1) as world:
        world.backend.tell(ExecutorDisconnected(1))
        world.advance(60)
        world.kubelet.oom(name(1))
        world.advance(300)
        assert ended(world, 1).kind is LossKind.OOM_KILLED


def test_a_killed_executor_is_reported_as_killed_though_an_outage_outlasts_its_connection() -> None:
    with fleet(1) as world:
        world.api.outage = True
        world.kill(1)
        world.backend.tell(ExecutorDisconnected(1))
        world.advance(200)
        assert world.removals() == {}
        world.api.outage = False
        world.advance(60)
        assert ended(world, 1).kind is LossKind.KILLED_BY_DRIVER


def test_a_lost_connection_reported_after_the_end_changes_nothing() -> None:
    with fleet(1) as world:
        world.kubelet.exit(name(1), 3)
        world.advance(1)
        world.backend.tell(ExecutorDisconnected(1))
        world.advance(300)
        assert ended(world, 1).exit_code == 3
