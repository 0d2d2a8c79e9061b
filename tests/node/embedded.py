"""The embedded cluster as a world."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, final

from actors.local.cluster import LocalCluster
from tests.node.world import NO_IMAGE, World

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["EmbeddedWorld", "embedded"]


@final
class EmbeddedWorld(World):
    """Its containers are processes of this machine, without limits."""

    name = "embedded"

    def __init__(self, cluster: LocalCluster) -> None:
        super().__init__(cluster.kubeconfig_path, {})
        self._cluster = cluster

    def signal(self, pod: str, number: int) -> None:
        assert self._cluster.kill(pod, number)

    def exceed_memory(self, pod: str) -> None:
        """Say so: a process has no limit here."""
        assert self._cluster.oom(pod)

    def lose_node(self) -> None:
        self._cluster.lose_node()

    def restore_node(self) -> None:
        self._cluster.restore_node()


@contextmanager
def embedded() -> Iterator[EmbeddedWorld]:
    """A cluster of its own."""
    with LocalCluster(failing_pulls=(NO_IMAGE,)) as cluster:
        world = EmbeddedWorld(cluster)
        try:
            yield world
        finally:
            world.close()
