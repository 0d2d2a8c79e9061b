"""One driver follows another: the executors live on, with what controls the pods of these drivers."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Any

import pytest

from actors.errors import SettingsError
from actors.messages import BackendFailed, ExecutorRemoved, ExecutorRunning
from tests.scenarios.doors import KINDS, Stage
from tests.scenarios.rivals import Rivals

if TYPE_CHECKING:
    from collections.abc import Iterator

    from actors.local.store.object_store import ObjectStore

FLEET = ["app-exec-1", "app-exec-2", "app-exec-3"]


def make_controller(store: ObjectStore, name: str) -> str:
    """What stands for a ReplicaSet, of which the embedded cluster has none: any object can be an owner. Its UID."""
    uid: str = store.create("configmaps", "default", {"metadata": {"name": name}})["metadata"]["uid"]
    return uid


def make_driver_pod(store: ObjectStore, name: str, controller: str | None) -> str:
    """A ready pod that the object of this name controls; its UID."""
    owners = [] if controller is None else [reference(store, controller)]
    spec = {"containers": [{"name": "driver", "image": "driver:1"}], "schedulerName": "nobody"}
    made = store.create("pods", "default", {"metadata": {"name": name, "ownerReferences": owners}, "spec": spec})
    status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    store.patch("pods", "default", name, {"status": status}, "merge", subresource="status")
    uid: str = made["metadata"]["uid"]
    return uid


def reference(store: ObjectStore, controller: str) -> dict[str, Any]:
    uid = store.get("configmaps", "default", controller)["metadata"]["uid"]
    return {"apiVersion": "v1", "kind": "ConfigMap", "name": controller, "uid": uid, "controller": True}


class Controlled(Rivals):
    """Drivers whose executors belong to what controls the driver's pod."""

    def __init__(self, **settings: Any) -> None:
        executor = {"owned_by": "controller", **settings.pop("executor", {})}
        super().__init__(executor=executor, **settings)
        self.rings = {name: make_controller(self.store, name) for name in ("ring-1", "ring-2")}

    def all_belong_to(self, *owners: tuple[str, bool]) -> bool:
        """Whether the fleet is there, and each executor has these owners, in this order."""
        return self.owners() == {name: [*owners] for name in FLEET}

    def delete_pod(self, name: str) -> None:
        self.store.delete("pods", "default", name, grace_period_seconds=0)

    def owners(self) -> dict[str, list[tuple[str, bool]]]:
        """Executor → the UIDs of its owners, each with whether it is the controller."""
        found = self.store.list("pods", "default", label_selector="executor-pods/app-id=app").items
        return {
            pod["metadata"]["name"]: [
                (owner["uid"], owner["controller"]) for owner in pod["metadata"]["ownerReferences"]
            ]
            for pod in found
        }


@pytest.mark.parametrize("ring", ["ring-1", "ring-2"], ids=["same", "rollout"])
def test_executors_outlive_the_drivers_pod_and_belong_to_the_next_one_and_its_controller(ring: str) -> None:
    with Controlled() as cluster:
        first_pod = make_driver_pod(cluster.store, "driver-1", "ring-1")
        first = cluster.begin("first", driver_pod_name="driver-1")
        cluster.advance(10)
        assert cluster.all_belong_to((first_pod, True), (cluster.rings["ring-1"], False))
        first.kill()
        cluster.delete_pod("driver-1")
        cluster.advance(5)
        assert cluster.all_belong_to((cluster.rings["ring-1"], False))
        second_pod = make_driver_pod(cluster.store, "driver-2", ring)
        second = cluster.begin("second", driver_pod_name="driver-2")
        cluster.advance(60)
        assert cluster.all_belong_to((second_pod, True), (cluster.rings[ring], False))
        assert [message.executor_id for message in second.heard(ExecutorRunning)] == [1, 2, 3]
        assert second.heard(ExecutorRemoved) == []
        cluster.store.delete("configmaps", "default", "ring-1" if ring == "ring-2" else "ring-2")
        cluster.advance(10)
        assert sorted(cluster.pods()) == [*FLEET, "driver-2"]


def test_executors_are_collected_when_pod_and_controller_are_gone() -> None:
    with Controlled() as cluster:
        make_driver_pod(cluster.store, "driver-1", "ring-1")
        only = cluster.begin("only", driver_pod_name="driver-1")
        cluster.advance(10)
        only.kill()
        cluster.store.delete("configmaps", "default", "ring-1")
        cluster.advance(5)
        assert cluster.pods() == {}


def test_a_driver_that_outlives_its_pod_ends_and_leaves_the_executors() -> None:
    with Controlled() as cluster:
        make_driver_pod(cluster.store, "driver-1", "ring-1")
        only = cluster.begin("only", driver_pod_name="driver-1")
        cluster.advance(10)
        before = only.wrote.count("patch pods")
        cluster.delete_pod("driver-1")
        cluster.advance(45)
        (failed,) = only.heard(BackendFailed)
        assert str(failed.cause) == (
            "driver_pod_name = 'driver-1': there is no such pod any more in namespace 'default'; "
            "the executors are left to the driver of the next pod"
        )
        assert sorted(cluster.pods()) == FLEET
        assert only.wrote.count("patch pods") - before <= len(FLEET), "it does not fight with the garbage collector"


def test_a_drivers_pod_without_a_controller_ends_the_start() -> None:
    with Controlled() as cluster:
        make_driver_pod(cluster.store, "driver-1", None)
        only = cluster.begin("only", driver_pod_name="driver-1")
        cluster.advance(10)
        (failed,) = only.heard(BackendFailed)
        assert isinstance(failed.cause, SettingsError)
        assert str(failed.cause) == (
            "executor.owned_by = \"controller\": nothing controls the driver's pod 'driver-1'; "
            'run it by a Deployment, a StatefulSet or a Job, or set "driver"'
        )
        assert only.wrote == []


def test_claims_belong_to_the_controller_too_and_are_reused_by_the_next_driver() -> None:
    claims = [{"name": "data", "size": "1Gi", "mount_path": "/data"}]
    with Controlled(executor={"claims": claims}) as cluster:
        make_driver_pod(cluster.store, "driver-1", "ring-1")
        first = cluster.begin("first", driver_pod_name="driver-1")
        cluster.advance(10)
        first.stop(delete_pods=False)
        cluster.delete_pod("driver-1")
        make_driver_pod(cluster.store, "driver-2", "ring-1")
        second = cluster.begin("second", driver_pod_name="driver-2")
        cluster.advance(90)
        cluster.store.delete("pods", "default", "app-exec-2", grace_period_seconds=0)
        cluster.advance(10)
        made = cluster.store.list("persistentvolumeclaims", "default").items
        assert [claim["metadata"]["name"] for claim in made] == [f"{name}-pvc-0" for name in FLEET]
        assert sorted(name for name in cluster.pods() if "exec" in name) == ["app-exec-1", "app-exec-3", "app-exec-4"]
        assert second.stop().left_behind == ()
        assert cluster.store.list("persistentvolumeclaims", "default").items == []


# ── SIGTERM ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def quiet() -> Iterator[list[int]]:
    """A program that notes SIGTERM, and goes on until it leaves by itself."""
    came: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: came.append(number))
    yield came
    signal.signal(signal.SIGTERM, before)


def run(kind: str, *, on_sigterm: str, at: str) -> tuple[list[int], list[int]]:
    """A program that SIGTERM reaches at a moment. The ids that are left, and those of the next driver."""
    stage = Stage(kind)
    options: Any = {"app_id": "app", "instances": 3, "backend": {"on_sigterm": on_sigterm}}

    async def program() -> None:
        fleet = stage.fleet(**options)
        if at == "before":
            signal.raise_signal(signal.SIGTERM)
        async with fleet:
            await fleet.wait_for(running=3, timeout="1m")
            if at == "inside":
                signal.raise_signal(signal.SIGTERM)
        if at == "after":
            signal.raise_signal(signal.SIGTERM)

    async def successor() -> list[int]:
        async with stage.fleet(**options) as fleet:
            await fleet.wait_for(running=3, timeout="1m")
            return list(fleet.executors)

    stage.run(program())
    left = sorted(stage.cluster.pods)
    return left, sorted(stage.run(successor()))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("on_sigterm", "at", "is_left"),
    [
        ("hand-over", "inside", True),
        ("hand-over", "before", False),
        ("hand-over", "after", False),
        ("hand-over", "never", False),
        ("stop", "inside", False),
    ],
)
def test_a_program_that_sigterm_reaches_within_its_fleet_hands_over(
    kind: str, on_sigterm: str, at: str, quiet: list[int], *, is_left: bool
) -> None:
    handler = signal.getsignal(signal.SIGTERM)
    left, then = run(kind, on_sigterm=on_sigterm, at=at)
    assert left == ([1, 2, 3] if is_left else [])
    assert (then == [1, 2, 3]) is is_left, "the next driver adopts them, or makes its own"
    assert len(quiet) == (at != "never"), "the program's own handler is called"
    assert signal.getsignal(signal.SIGTERM) is handler
