"""A driver in a pod: its executors belong to that pod, and live and go with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from actors.errors import SettingsError
from actors.messages import (
    AllocationBlocked,
    AllocationUnblocked,
    BackendFailed,
    ExecutorPending,
    ExecutorRemoved,
    ExecutorRunning,
)
from tests.scenarios.rivals import Rivals
from tests.scenarios.world import World

if TYPE_CHECKING:
    import pytest

    from actors.local.store.object_store import ObjectStore


def make_driver_pod(store: ObjectStore, name: str = "driver-0", *, ready: bool = True) -> str:
    """A pod that no kubelet of ours starts; its UID."""
    spec = {"containers": [{"name": "driver", "image": "driver:1"}], "schedulerName": "nobody"}
    uid: str = store.create("pods", "default", {"metadata": {"name": name}, "spec": spec})["metadata"]["uid"]
    set_ready(store, name, ready=ready)
    return uid


def set_ready(store: ObjectStore, name: str = "driver-0", *, ready: bool = True) -> None:
    conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
    patch = {"status": {"phase": "Running", "conditions": conditions}}
    store.patch("pods", "default", name, patch, "merge", subresource="status")


class InPod(World):
    """A world whose driver runs in the pod `driver-0`."""

    def __init__(self, *, ready: bool = True, **options: Any) -> None:
        self._is_ready = ready
        super().__init__(driver_pod_name="driver-0", **options)

    def _start(self) -> None:
        self.uid = make_driver_pod(self.store, ready=self._is_ready)
        super()._start()

    def executors(self) -> dict[str, list[str]]:
        """Name → the UIDs of its owners, of the pods that live."""
        return {
            pod["metadata"]["name"]: [owner["uid"] for owner in pod["metadata"].get("ownerReferences", ())]
            for pod in self.pods("Pending", "Running")
            if pod["metadata"]["name"].startswith("app-exec-")
        }


def test_every_executor_belongs_to_the_drivers_pod() -> None:
    with InPod(executor={"instances": 3}) as world:
        world.advance(5)
        assert world.executors() == {f"app-exec-{number}": [world.uid] for number in (1, 2, 3)}
        world.stop()


def test_executors_get_the_address_of_the_drivers_pod_with_its_port(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POD_IP", "10.0.0.7")
    with InPod(driver_address=":7077", executor={"instances": 1}) as world:
        world.advance(5)
        (pod,) = (each for each in world.pods() if each["metadata"]["name"] == "app-exec-1")
        assert {"name": "DRIVER_ADDRESS", "value": "10.0.0.7:7077"} in pod["spec"]["containers"][0]["env"]
        world.stop()


def test_when_the_drivers_pod_is_deleted_its_fleet_is_collected() -> None:
    with InPod(executor={"instances": 3}) as world:
        world.advance(5)
        world.store.delete("pods", "default", "driver-0", grace_period_seconds=0)
        assert [pod for pod in world.pods("Running") if "deletionTimestamp" not in pod["metadata"]] == []


def test_a_driver_that_outlives_its_pod_creates_no_executors_and_is_notified_why() -> None:
    with InPod(executor={"instances": 3}) as world:
        world.advance(5)
        world.store.delete("pods", "default", "driver-0", grace_period_seconds=0)
        world.advance(60)
        (failed,) = world.heard(BackendFailed)
        assert str(failed.cause) == (
            "driver_pod_name = 'driver-0': there is no such pod any more in namespace 'default' to own the executors"
        )
        assert len(world.heard(ExecutorPending)) <= 2 * 3, "none was made after that was known"


def test_executors_that_others_delete_are_replaced_as_long_as_the_drivers_pod_exists() -> None:
    with InPod(executor={"instances": 3}) as world:
        world.advance(5)
        for number in (1, 2, 3):
            world.store.delete("pods", "default", f"app-exec-{number}", grace_period_seconds=0)
            world.advance(2)
        assert sorted(world.executors()) == [f"app-exec-{number}" for number in (4, 5, 6)]
        assert world.heard(BackendFailed) == []
        world.stop()


def test_a_drivers_pod_that_is_not_ready_later_changes_nothing() -> None:
    with InPod(executor={"instances": 2}) as world:
        world.advance(5)
        set_ready(world.store, ready=False)
        world.target(4)
        world.advance(120)
        assert len(world.executors()) == 4
        assert world.heard(AllocationBlocked) == []
        world.stop()


def test_creation_waits_for_a_drivers_pod_that_is_not_ready() -> None:
    with InPod(ready=False, executor={"instances": 2}) as world:
        world.advance(20)
        assert world.executors() == {}
        assert len(world.heard(AllocationBlocked)) == 1
        set_ready(world.store)
        world.advance(10)
        assert len(world.executors()) == 2
        assert len(world.heard(AllocationUnblocked)) == 1
        world.stop()


def test_a_drivers_pod_that_is_missing_ends_the_start_and_nothing_is_made() -> None:
    with Rivals(driver_pod_name="driver-0", backend={"lease": False}) as cluster:
        only = cluster.begin("only")
        cluster.advance(60)
        (failed,) = only.heard(BackendFailed)
        assert isinstance(failed.cause, SettingsError)
        assert "driver_pod_name = 'driver-0'" in str(failed.cause)
        assert {operation for _, operation in only.api.asked} == {"get"}
        assert cluster.pods() == {}


def test_a_driver_that_takes_over_makes_its_pod_the_owner_of_all_it_observed_on_standby() -> None:
    with Rivals() as cluster:
        old, new = (make_driver_pod(cluster.store, name) for name in ("driver-0", "driver-1"))
        first = cluster.begin("first", driver_pod_name="driver-0")
        cluster.advance(10)
        second = cluster.begin("second", driver_pod_name="driver-1")
        cluster.advance(60)
        assert owners(cluster.store) == {old}
        first.kill()
        cluster.advance(60)
        assert cluster.holder() is second
        assert owners(cluster.store) == {new}
        writes = [what for what in second.wrote if what in {"patch pods", "create pods"}]
        assert writes == ["patch pods"] * 3, "nobody was made anew"
        cluster.store.delete("pods", "default", "driver-0", grace_period_seconds=0)
        cluster.advance(10)
        assert sorted(cluster.pods()) == ["app-exec-1", "app-exec-2", "app-exec-3", "driver-1"]
        assert [message.executor_id for message in second.heard(ExecutorRunning)] == [1, 2, 3]
        assert second.heard(ExecutorRemoved) == []


def owners(store: ObjectStore) -> set[str]:
    pods = store.list("pods", "default", label_selector="executor-pods/app-id=app").items
    return {owner["uid"] for pod in pods for owner in pod["metadata"]["ownerReferences"]}
