"""What scenarios about single executors say often, in few words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from actors.messages import ExecutorRemoved
from tests.scenarios.world import World

if TYPE_CHECKING:
    from actors.pods.loss import LossReason

PARTS = ("request-pool", "snapshot-store", "lifecycle-manager", "allocator")


def name(executor_id: int) -> str:
    return f"app-exec-{executor_id}"


def pod(world: World, executor_id: int) -> dict[str, Any]:
    found: dict[str, Any] = world.store.get("pods", "default", name(executor_id))
    return found


def patch(world: World, executor_id: int, **metadata: Any) -> None:
    world.store.patch("pods", "default", name(executor_id), {"metadata": metadata}, "merge")


def is_going(world: World, executor_id: int) -> bool:
    return "deletionTimestamp" in pod(world, executor_id)["metadata"]


def names(world: World) -> list[str]:
    return sorted(pod["metadata"]["name"] for pod in world.pods())


def ended(world: World, executor_id: int) -> LossReason:
    """How the one end of an executor was told."""
    told = [message.reason for message in world.heard(ExecutorRemoved) if message.executor_id == executor_id]
    assert len(told) == 1, f"the end of executor {executor_id} was told {len(told)} times"
    return told[0]


def fleet(count: int = 1, *, seconds: float = 5, **options: Any) -> World:
    """A fleet that runs for a while."""
    executor = {"instances": count, **options.pop("executor", {})}
    world = World(executor=executor, **options)
    world.advance(seconds)
    return world
