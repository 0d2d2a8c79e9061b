"""A world in which executors live: the embedded cluster, or a real node. What a life does to its pod, it does here.

Requests to the API server are the same for both. What happens to a node is each world's own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import urllib3

from tests.contract.raw import HttpDoor, Raw

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

__all__ = ["IMAGE", "NAMESPACE", "NO_IMAGE", "World"]

NAMESPACE: Final = "default"
IMAGE: Final = "registry.example/worker:1.4"
NO_IMAGE: Final = "registry.example/no-such:1.4"
"""An image that no registry has."""

SAFETY: Final = 120.0
"""Seconds until a log without the awaited line, or a watch without any, fails a test."""


class World(ABC):
    """One cluster with one node on which the executors are. Safe to use by several threads."""

    name: str
    """`embedded` or `real`."""

    def __init__(self, kubeconfig: Path, placement: Mapping[str, Any]) -> None:
        self.kubeconfig = kubeconfig
        self.placement = placement
        """Settings of executors that are on this node."""
        self._door = HttpDoor(kubeconfig, SAFETY)
        self.api = Raw(self._door, NAMESPACE)

    def within(self, namespace: str) -> Raw:
        """The same API, in another namespace."""
        return Raw(self._door, namespace)

    def close(self) -> None:
        """Leave no connection."""
        self._door.close()

    # ── what anybody may ask of the API server ──────────────────────────────────────────────────────────────────────

    def delete(self, pod: str, *, grace: int | None = None) -> None:
        """`kubectl delete pod`; with a grace period of 0, by force."""
        options = {"kind": "DeleteOptions", "apiVersion": "v1"}
        answer = self.api.delete(f"pods/{pod}", options if grace is None else options | {"gracePeriodSeconds": grace})
        assert answer.status == 200, answer

    def evict(self, pod: str) -> None:
        """Evict it, as `kubectl drain` does."""
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod, "namespace": NAMESPACE}}
        answer = self.api.post(f"pods/{pod}/eviction", body)
        assert answer.status == 201, answer

    def await_object(self, collection: str, name: str, is_so: Callable[[dict[str, Any]], bool]) -> None:
        """Watch an object until it is so."""
        watch = self.api.watch(collection, fieldSelector=f"metadata.name={name}")
        try:
            while not is_so(watch.next()["object"]):
                pass
        finally:
            watch.close()

    def pods(self, app_id: str) -> set[str]:
        """The pods of a fleet."""
        return self.api.names("pods", labelSelector=f"executor-pods/app-id={app_id}")

    def await_line(self, pod: str, line: str, container: str = "executor") -> None:
        """Wait until a container has written this line."""
        with self.followed(pod, container) as lines:
            seen = []
            for each in lines:
                seen.append(each)
                if each == line:
                    return
        raise AssertionError(f"{pod} wrote {seen}, not {line!r}")

    @contextmanager
    def followed(self, pod: str, container: str) -> Iterator[Iterator[str]]:
        """The lines of a container's log, as they are written."""
        path = f"{self._door.server}/api/v1/namespaces/{NAMESPACE}/pods/{pod}/log?follow=true&container={container}"
        headers = {"Authorization": f"Bearer {self._door.token}"}
        with urllib3.PoolManager(ca_certs=str(self._door.authority), timeout=SAFETY) as pool:
            response = pool.request("GET", path, headers=headers, preload_content=False)
            assert response.status == 200, response.read()
            try:
                yield _lines(response)
            finally:
                response.close()

    # ── what happens on the node ────────────────────────────────────────────────────────────────────────────────────

    @abstractmethod
    def signal(self, pod: str, number: int) -> None:
        """Send a signal to the executor's process, from the node."""

    @abstractmethod
    def exceed_memory(self, pod: str) -> None:
        """Let the program of `lives.GREEDY` use more memory than its limit."""

    @abstractmethod
    def lose_node(self) -> None:
        """Switch the node off: its processes are gone, and nobody is told."""

    @abstractmethod
    def restore_node(self) -> None:
        """Switch it on again, with its disk."""


def _lines(response: urllib3.BaseHTTPResponse) -> Iterator[str]:
    rest = b""
    while data := response.read1():
        *lines, rest = (rest + data).split(b"\n")
        yield from (line.decode() for line in lines)
