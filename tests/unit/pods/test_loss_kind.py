"""Each way an executor can end, as real nodes report it: the second table of the page on loss kinds."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from actors.pods.loss import RequestedEnd, explain
from actors.pods.loss_kind import REJECTIONS, LossKind
from actors.pods.pod import NOT_LOCATED
from actors.pods.repair import pod_from
from actors.pods.state import PodFailed, PodRules
from tests.docs.pages import read
from tests.unit.builders import labels
from tests.unit.views import View

if TYPE_CHECKING:
    from collections.abc import Mapping

    from actors.pods.loss import LossReason

BEGUN = datetime(2026, 3, 1, 12, tzinfo=UTC)
"""When the executor's deletion, or its disruption, began."""

GRACE = 30
RUNNING = {"running": {"startedAt": "2026-03-01T11:00:00Z"}}
ALIVE: dict[str, Any] = {"phase": "Running", "executor": RUNNING}


def at(seconds: float) -> str:
    """A moment so many seconds after `BEGUN`."""
    return (BEGUN + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


def ended(code: int, reason: str = "Error", *, after: float = 2, message: str | None = None) -> dict[str, Any]:
    """The state of a container that ran."""
    times = {"startedAt": "2026-03-01T11:00:00Z", "finishedAt": at(after)}
    return {"terminated": {"exitCode": code, "reason": reason, "message": message, **times}}


LOST = {"terminated": {"exitCode": 137, "reason": NOT_LOCATED, "startedAt": None, "finishedAt": None}}
"""What a kubelet makes up for a container that it does not find, and for one that waits when its pod is deleted."""


def waiting(reason: str, message: str = "") -> dict[str, Any]:
    return {"waiting": {"reason": reason, "message": message}}


def disrupted(reason: str, kind: str = "DisruptionTarget") -> dict[str, Any]:
    return {"conditions": [{"type": kind, "status": "True", "reason": reason, "lastTransitionTime": at(0)}]}


def observed(
    *,
    phase: str = "Failed",
    deleted: bool = False,
    inits: Mapping[str, Any] | None = None,
    executor: Any = None,
    sidecar: Any = None,
    **status: Any,
) -> dict[str, Any]:
    """One observation of the pod, whose deletion began at `BEGUN` if it is `deleted`."""
    states = {name: state for name, state in (("sidecar", sidecar), ("executor", executor)) if state is not None}
    metadata: dict[str, Any] = {"name": "app-exec-7", "uid": "uid-7", "labels": labels(7)}
    if deleted:
        metadata |= {"deletionTimestamp": at(GRACE), "deletionGracePeriodSeconds": GRACE}
    made = {"name": "executor", "env": [{"name": "EXECUTOR_ID", "value": "7"}]}
    containers = [made] if sidecar is None else [{"name": "sidecar"}, made]
    return {
        "metadata": metadata,
        "spec": {"containers": containers, "nodeName": "node-1"},
        "status": {
            "phase": phase,
            "containerStatuses": [{"name": name, "state": state} for name, state in states.items()],
            "initContainerStatuses": [{"name": name, "state": state} for name, state in (inits or {}).items()],
            **status,
        },
    }


@dataclass(frozen=True)
class Life:
    """What was observed of an executor, in this order."""

    observations: list[dict[str, Any]]
    gone: bool = False
    """At last its pod was gone."""
    by_force: bool = False
    """Without a deletion before."""
    requested: RequestedEnd | None = None
    node_lost: bool = False
    rules: PodRules = field(default_factory=PodRules)

    def end(self) -> LossReason:
        """Return what the driver is told."""
        view = View()
        for each in self.observations:
            view.show(pod_from(each).pod())
        if self.gone:
            view.end(7, deleted=not self.by_force)
        batch = view.batch(0.0)
        state = batch.ended[0].state if batch.ended else batch.snapshot.states[7]
        return explain(7, state, self.rules, requested=self.requested, node_lost=self.node_lost)


def ran(**end: Any) -> Life:
    """It ran, and ended so. Its pod was not deleted."""
    return Life([observed(**ALIVE), observed(**end)])


def deleted_while_it_ran(*, after: float = 2, **life: Any) -> Life:
    end = observed(deleted=True, executor=ended(143, after=after))
    return Life([observed(**ALIVE), observed(deleted=True, **ALIVE), end], **life)


def never_ran(reason: str, **life: Any) -> Life:
    """It waited for this reason until its pod was deleted."""
    waits: dict[str, Any] = {"phase": "Pending", "executor": waiting(reason, "the kubelet's words")}
    return Life([observed(**waits), observed(deleted=True, **waits), observed(deleted=True, executor=LOST)], **life)


def exceeded(message: str) -> Life:
    return ran(executor=ended(137), reason="Evicted", message=message)


def evicted(condition: str, code: int = 143, **status: Any) -> Life:
    return ran(executor=ended(code), **disrupted(condition), **status)


KILLED = RequestedEnd("was ended by the driver", BEGUN)
SHORT = "The node was low on resource: memory. "
REFUSED: dict[str, Any] = {"reason": "NodeAffinity", "message": "Pod was rejected: Predicate NodeAffinity failed"}

LIVES = {
    "it ended with exit code 0": ran(phase="Succeeded", executor=ended(0, "Completed")),
    "it ended with another exit code": ran(executor=ended(3)),
    "it ended with exit code 255": ran(executor=ended(255)),
    "a signal of its own ended it": ran(executor=ended(139)),
    "its command does not exist": Life([observed(executor=ended(128, "StartError"))]),
    "its liveness or startup probe failed": ran(executor=ended(143)),
    "it used too much memory": ran(executor=ended(137, "OOMKilled")),
    "a child used too much memory, and the program ended for that": ran(executor=ended(9)),
    "an init container failed": Life(
        [observed(inits={"setup": ended(7)}, executor=waiting("PodInitializing"))],
    ),
    "a sidecar failed while it ran": ran(phase="Running", executor=RUNNING, sidecar=ended(4)),
    "a sidecar used too much memory while it ran": ran(
        phase="Running", executor=RUNNING, sidecar=ended(137, "OOMKilled")
    ),
    "a sidecar used too much memory after it had ended with 0": ran(
        executor=ended(0, "Completed"), sidecar=ended(137, "OOMKilled", after=5)
    ),
    "it ended, and a sidecar among the init containers runs on": ran(
        phase="Running", inits={"proxy": RUNNING}, executor=ended(3)
    ),
    "a sidecar among the init containers used too much memory; it ended with 0": ran(
        phase="Succeeded", inits={"proxy": ended(137, "OOMKilled")}, executor=ended(0, "Completed")
    ),
    "it used more than its ephemeral storage": exceeded(
        'Container executor exceeded its local ephemeral storage limit "1Gi". '
    ),
    "its pod used more than its ephemeral storage": exceeded(
        "Pod ephemeral local storage usage exceeds the total limit of containers 1Gi. "
    ),
    "it used more than the `sizeLimit` of an `emptyDir`": exceeded(
        'Usage of EmptyDir volume "scratch" exceeds the limit "1Gi". '
    ),
    "the `activeDeadlineSeconds` of its pod were over": ran(executor=ended(143), reason="DeadlineExceeded"),
    "the eviction API evicted it": evicted("EvictionByEvictionAPI"),
    "a taint evicted it": evicted("DeletionByTaintManager"),
    "its node was short of memory or disk": evicted("TerminationByKubelet", 137, reason="Evicted", message=SHORT),
    "its node was shut down in order": evicted("TerminationByKubelet", reason="Terminated"),
    "its node stopped to answer, and the taint for that evicted it": Life(
        [observed(**ALIVE), observed(deleted=True, **ALIVE, **disrupted("DeletionByTaintManager"))], node_lost=True
    ),
    "the scheduler preempted it": evicted("PreemptionByScheduler"),
    "its kubelet made room for a critical pod": evicted("TerminationByKubelet", reason="Preempting"),
    "its node is gone, and the garbage collector removed its pod": Life(
        [observed(**ALIVE), observed(executor=RUNNING, **disrupted("DeletionByPodGC"))], gone=True
    ),
    "its node was rebooted": ran(executor=ended(255, "Unknown")),
    "its kubelet lost its container": ran(executor=LOST),
    "somebody deleted its pod, whose node does not answer": Life(
        [observed(**ALIVE), observed(deleted=True, **ALIVE)], node_lost=True
    ),
    "its kubelet was restarted and refused its pod": ran(**REFUSED),
    "its kubelet was restarted and refused its pod; the containers were ended": ran(executor=ended(137), **REFUSED),
    "its node refused its pod at the start": Life([observed(phase="Pending"), observed(reason="OutOfcpu")]),
    "somebody deleted its pod": deleted_while_it_ran(),
    "somebody deleted its pod, whose node's clock is behind": deleted_while_it_ran(after=-300),
    "somebody deleted its pod by force": Life([observed(**ALIVE)], gone=True, by_force=True),
    "somebody deleted its pod before it ran": never_ran("ImagePullBackOff"),
    "somebody deleted its pod before it had a node": Life([observed(phase="Pending")], gone=True),
    "its pod could never run, and was replaced": never_ran("CreateContainerConfigError"),
    "you killed it": deleted_while_it_ran(requested=KILLED),
    "you killed it, and its node's clock is behind": deleted_while_it_ran(after=-300, requested=KILLED),
    "you killed it, and it ended by itself before its pod was deleted": Life(
        [observed(**ALIVE), observed(executor=ended(1))], requested=KILLED
    ),
    "you killed it before it ran": never_ran("ContainerCreating", requested=KILLED),
    "it had failed before you killed it": Life(
        [observed(**ALIVE), observed(executor=ended(3, after=-9)), observed(deleted=True, executor=ended(3, after=-9))],
        requested=KILLED,
    ),
    "it had failed before its pod was deleted": Life(
        [observed(**ALIVE), observed(executor=ended(3)), observed(deleted=True, executor=ended(3))]
    ),
}


def table() -> dict[str, tuple[LossKind, int, bool]]:
    """The rows of the page."""
    rows = re.findall(
        r"^\| (\w.+) \| `([A-Z_]+)` \| (-?\d+) \| (yes|no) \|$", read("docs/reference/loss-kinds.md"), re.MULTILINE
    )
    return {how: (LossKind(kind), int(code), by_app == "yes") for how, kind, code, by_app in rows}


NO_END_SEEN = {LossKind.DISCONNECTED, LossKind.HUNG, LossKind.MISSING, LossKind.RELEASED}
"""The kinds of executors whose pods were not seen to end."""


def test_the_page_has_each_way_to_end() -> None:
    assert list(table()) == list(LIVES)


def test_there_is_a_way_to_end_for_each_kind() -> None:
    assert {life.end().kind for life in LIVES.values()} == set(LossKind) - NO_END_SEEN


@pytest.mark.parametrize("how", LIVES)
def test_the_driver_is_told_of_each_end_what_the_page_says(how: str) -> None:
    reason = LIVES[how].end()
    assert (reason.kind, reason.exit_code, reason.caused_by_app) == table()[how]


@pytest.mark.parametrize("condition", ["EvictionByEvictionAPI", "PreemptionByScheduler", "DeletionByTaintManager"])
@pytest.mark.parametrize("behind", [0, 3, 300])
def test_an_eviction_is_one_whatever_the_nodes_clock_says_once_it_was_observed(condition: str, behind: int) -> None:
    life = Life(
        [
            observed(**ALIVE),
            observed(**ALIVE, **disrupted(condition)),
            observed(executor=ended(143, after=-behind), **disrupted(condition)),
        ]
    )
    reason = life.end()
    assert (reason.kind, reason.caused_by_app) == (
        LossKind.PREEMPTED if condition == "PreemptionByScheduler" else LossKind.EVICTED,
        False,
    )


def test_what_a_pod_waited_for_is_in_the_message_though_its_kubelet_overwrote_it() -> None:
    message = never_ran("CreateContainerConfigError").end().message
    assert "never started: its pod was deleted before" in message
    assert "it waited: CreateContainerConfigError: executor: the kubelet's words" in message


@pytest.mark.parametrize("reason", sorted(REJECTIONS | {"OutOfcpu", "OutOfexample.com/gpu"}))
def test_a_refusal_is_the_nodes_doing_before_and_after_the_pod_ran(reason: str) -> None:
    for life, kind in (
        (ran(reason=reason), LossKind.EVICTED),
        (ran(reason=reason, executor=ended(137)), LossKind.EVICTED),
        (Life([observed(phase="Pending", executor=waiting("ContainerCreating")), observed(reason=reason)]), None),
    ):
        loss = life.end()
        assert (loss.kind, loss.caused_by_app) == (kind or LossKind.NEVER_STARTED, False)


@pytest.mark.parametrize("executor", [LOST, ended(255, "Unknown")], ids=["kubelet", "containerd"])
def test_an_end_that_nobody_saw_is_the_nodes_also_if_nothing_was_observed_before(executor: dict[str, Any]) -> None:
    reason = explain(7, PodFailed(pod_from(observed(executor=executor)).pod()), PodRules())
    assert (reason.kind, reason.exit_code, reason.caused_by_app) == (LossKind.NODE_LOST, -1, False)


@pytest.mark.parametrize("code", [0, 3])
def test_the_own_end_of_an_executor_decides_beside_containers_whose_end_nobody_saw(code: int) -> None:
    reason = ran(executor=ended(code), sidecar=LOST).end()
    assert (reason.kind, reason.exit_code) == (LossKind.FINISHED if code == 0 else LossKind.EXITED, code)
