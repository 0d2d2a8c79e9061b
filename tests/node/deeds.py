"""What happens to an executor: each deed waits for its moment, and acts."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Any, Final

from tests.node.real import RealWorld
from tests.node.world import IMAGE, NAMESPACE

if TYPE_CHECKING:
    from tests.node.life import Living

MORE_MEMORY: Final = "64Mi"

# ── of anybody, or of its driver ─────────────────────────────────────────────────────────────────────────────────────


def deleted(life: Living) -> None:
    life.is_ready()
    life.world.delete(life.pod)


def deleted_by_force(life: Living) -> None:
    life.is_ready()
    life.world.delete(life.pod, grace=0)


def deleted_while_stuck(life: Living) -> None:
    life.is_stuck()
    life.acts()
    life.world.delete(life.pod)


def killed_while_stuck(life: Living) -> None:
    life.is_stuck()
    kill(life)


def evicted(life: Living) -> None:
    life.is_ready()
    life.world.evict(life.pod)


def killed(life: Living) -> None:
    life.is_ready()
    kill(life)


def killed_after_crash(life: Living) -> None:
    """Its sidecar crashes first."""
    life.is_ready()
    life.world.await_object("pods", life.pod, sidecar_restarted)
    kill(life)


def retired(life: Living) -> None:
    life.is_ready()
    assert life.fleet.retire(1) == (1,)
    life.terminates()
    assert life.fleet.drained(1)


def deleted_and_said_to_be_drained(life: Living) -> None:
    deleted(life)
    life.terminates()
    life.acts()
    assert life.fleet.drained(1)


def deleted_and_drained(life: Living) -> None:
    """SIGUSR1 is how its driver tells it."""
    deleted(life)
    life.terminates()
    life.acts()
    life.world.signal(life.pod, signal.SIGUSR1)


def killed_on_its_node(life: Living) -> None:
    life.is_ready()
    life.world.signal(life.pod, signal.SIGKILL)


def out_of_memory(life: Living) -> None:
    life.is_ready()
    life.world.exceed_memory(life.pod)


def signalled(life: Living) -> None:
    """SIGUSR1 starts what its program is for."""
    life.is_ready()
    life.world.signal(life.pod, signal.SIGUSR1)


def scaled_down(life: Living) -> None:
    life.is_ready()
    life.fleet.scale(0)


def stuck(life: Living) -> None:
    life.is_stuck()
    life.acts()


def node_lost(life: Living) -> None:
    life.is_ready()
    life.world.lose_node()
    try:
        life.is_gone()
    finally:
        life.world.restore_node()


def node_rebooted(life: Living) -> None:
    life.is_ready()
    life.world.lose_node()
    life.world.restore_node()


# ── what only a real node can ────────────────────────────────────────────────────────────────────────────────────────


def kubelet_away(life: Living) -> None:
    world = on_a_real_node(life)
    life.is_ready()
    world.machines.stop("kubelet", world.node)
    try:
        life.is_gone()
    finally:
        world.start_kubelet()


def node_deleted(life: Living) -> None:
    world = on_a_real_node(life)
    life.is_ready()
    world.machines.stop("kubelet", world.node)
    try:
        assert world.api.delete(world.path).status == 200
        life.is_gone()
    finally:
        world.start_kubelet()


def killed_unwatched(life: Living) -> None:
    world = on_a_real_node(life)
    life.is_ready()
    world.machines.stop("kubelet", world.node)
    try:
        world.signal(life.pod, signal.SIGKILL)
    finally:
        world.start_kubelet()


def kubelet_restarted(life: Living) -> None:
    world = on_a_real_node(life)
    life.is_ready()
    world.machines.stop("kubelet", world.node)
    world.start_kubelet()
    kill(life)


def containerd_restarted(life: Living) -> None:
    world = on_a_real_node(life)
    life.is_ready()
    world.machines.again("containerd", world.node)
    world.await_ready()
    kill(life)


def tainted(life: Living) -> None:
    world = on_a_real_node(life)
    life.is_ready()
    world.taint([{"key": "test", "value": "yes", "effect": "NoExecute"}])
    try:
        life.is_gone()
    finally:
        world.taint([])


def preempted(life: Living) -> None:
    """An urgent pod takes the place that is left for one of them."""
    world = on_a_real_node(life)
    life.is_ready()
    urgent = f"urgent-{life.app_id}"
    priority = {"metadata": {"name": urgent}, "value": 1_000_000, "description": "for a test"}
    container = {"name": "urgent", "image": IMAGE, "command": ["sleep", "600"], "resources": {"requests": {"cpu": "1"}}}
    spec = {
        "priorityClassName": urgent,
        "containers": [container],
        "nodeSelector": world.placement["node_selector"],
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 0,
    }
    classes = "/apis/scheduling.k8s.io/v1/priorityclasses"
    world.api.made(classes, priority)
    try:
        world.api.made("pods", {"metadata": {"name": urgent, "namespace": NAMESPACE}, "spec": spec})
        life.is_gone()
    finally:
        world.api.delete(f"pods/{urgent}", {"gracePeriodSeconds": 0})
        world.api.delete(f"{classes}/{urgent}")


def pressed(life: Living) -> None:
    """The kubelet's threshold is set above what the machine has."""
    world = on_a_real_node(life)
    life.is_ready()
    with world.threshold("memory.available", "95%"):
        life.is_gone()


def resized(life: Living) -> None:
    life.is_ready()
    resources = {"requests": {"memory": MORE_MEMORY}, "limits": {"memory": MORE_MEMORY}}
    patch = {"spec": {"containers": [{"name": "executor", "resources": resources}]}}
    kind = "application/strategic-merge-patch+json"
    answer = life.world.api.patch(f"pods/{life.pod}/resize", patch, kind)
    assert answer.status == 200, answer
    life.world.await_object("pods", life.pod, is_resized)
    kill(life)


def on_a_real_node(life: Living) -> RealWorld:
    assert isinstance(life.world, RealWorld)
    return life.world


# ── what they have in common ─────────────────────────────────────────────────────────────────────────────────────────


def kill(life: Living) -> None:
    life.acts()
    assert life.fleet.kill(1, grace="1s") == (1,)


def sidecar_restarted(pod: dict[str, Any]) -> bool:
    return any(status["restartCount"] > 0 for status in pod["status"].get("initContainerStatuses", ()))


def is_resized(pod: dict[str, Any]) -> bool:
    """In place: the kubelet has the new limit, and the container was not restarted."""
    (status,) = pod["status"]["containerStatuses"]
    assert status["restartCount"] == 0
    limit: str = status.get("resources", {}).get("limits", {}).get("memory", "")
    return limit == MORE_MEMORY
