"""Stops of whole fleets, fleets that outlive their driver, and drivers that come back, in both worlds."""

from __future__ import annotations

import time
import uuid
from typing import TYPE_CHECKING, Any, Final

import pytest

from actors import Fleet
from actors.messages import ExecutorRemoved
from actors.pods.loss import LossKind
from tests.node.embedded import embedded
from tests.node.life import merged
from tests.node.pods import HANDLES, LOSES
from tests.node.real import RealWorld
from tests.node.world import IMAGE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.node.world import World

SIZE: Final = 4
READY: Final = "5m"
"""Reached by a failure only."""


@pytest.fixture(scope="module", params=["embedded", pytest.param("real", marks=pytest.mark.node)])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    if request.param == "embedded":
        with embedded() as found:
            yield found
        return
    real = RealWorld(request.getfixturevalue("machines"), 1)
    yield real
    real.close()


class Driver:
    """A driver of four executors, and what it was told of their ends."""

    def __init__(self, world: World, app_id: str, command: tuple[str, ...], **executor: Any) -> None:
        self.ends: dict[int, ExecutorRemoved] = {}
        self._world = world
        self._app_id = app_id
        values: Any = merged({"image": IMAGE, "instances": SIZE, "command": command}, world.placement, executor)
        self.fleet = Fleet(app_id=app_id, kubeconfig=world.kubeconfig, on_event=self._note, executor=values)

    def enter(self) -> None:
        self.fleet.start()
        self.fleet.wait_for(running=SIZE, timeout=READY)
        for executor in self.fleet.executors.values():
            assert executor.pod is not None
            self._world.await_line(executor.pod, "ready")

    def leave(self, *, keep: bool = False) -> float:
        """Stop the fleet; how long that took."""
        began = time.monotonic()
        left = self.fleet.stop(keep=keep)
        assert left == ()
        return time.monotonic() - began

    def _note(self, event: object) -> None:
        if isinstance(event, ExecutorRemoved):
            self.ends[event.executor_id] = event


def app_id() -> str:
    return f"fleet-{uuid.uuid4().hex[:8]}"


@pytest.mark.parametrize("command", [HANDLES, LOSES], ids=["handles SIGTERM", "loses SIGTERM"])
def test_a_stop_tells_of_each_executor_and_leaves_no_pod(world: World, command: tuple[str, ...]) -> None:
    grace = {"template_patch": {"spec": {"terminationGracePeriodSeconds": 5}}}
    driver = Driver(world, app_id(), command, **grace)
    driver.enter()
    took = driver.leave()
    print(f"\n{world.name}: a stop of four took {took:.1f} s")
    assert sorted(driver.ends) == [1, 2, 3, 4]
    assert {end.reason.kind for end in driver.ends.values()} == {LossKind.KILLED_BY_DRIVER}
    assert world.pods(driver.fleet.app_id) == set()


def test_a_fleet_that_is_kept_is_adopted_by_the_next_driver(world: World) -> None:
    first = Driver(world, app_id(), HANDLES)
    first.enter()
    first.leave(keep=True)
    assert first.ends == {}
    pods = world.pods(first.fleet.app_id)
    assert len(pods) == SIZE
    second = Driver(world, first.fleet.app_id, HANDLES)
    second.enter()
    assert {executor.pod for executor in second.fleet.executors.values()} == pods
    second.leave()
    assert sorted(second.ends) == [1, 2, 3, 4]
    assert world.pods(first.fleet.app_id) == set()
