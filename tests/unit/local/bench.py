"""A store on a manual clock, and short helpers to use it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from actors.local.store.object_store import ApiStatus, ObjectStore, WatchMessage
from actors.runtime import Entropy
from actors.testing import ManualClock, ManualTimers

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import timedelta

    from actors.local.store.history import Subscription


def manifest(name: str, *, labels: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    """A pod of one container."""
    metadata: dict[str, Any] = {"name": name}
    if labels is not None:
        metadata["labels"] = labels
    return {"metadata": metadata, "spec": {"containers": [{"name": "main", "image": "worker:1"}], **spec}}


def refusal(request: Callable[[], object]) -> ApiStatus:
    """The status that answers a request instead of an object."""
    with pytest.raises(ApiStatus) as refused:
        request()
    return refused.value


class Seen:
    """The messages that a watch received."""

    def __init__(self) -> None:
        self.messages: list[WatchMessage] = []
        self.subscription: Subscription

    def __call__(self, message: WatchMessage) -> None:
        self.messages.append(message)

    @property
    def events(self) -> list[tuple[str, str]]:
        """Type and name of each message, in order."""
        return [(message.type, message.object["metadata"].get("name", "")) for message in self.messages]

    @property
    def types(self) -> list[str]:
        """The type of each message, in order."""
        return [message.type for message in self.messages]


class Bench:
    """The store and its time."""

    def __init__(self, **store: Any) -> None:
        self.clock = ManualClock()
        self.timers = ManualTimers(self.clock)
        self.store = ObjectStore(self.clock, Entropy(7), **store)

    def pod(self, name: str, *, node: str | None = None, phase: str | None = None, **details: Any) -> dict[str, Any]:
        """Create a pod, optionally bound and in a phase."""
        self.store.create("pods", "default", manifest(name, **details))
        if node is not None:
            self.store.bind("default", name, node)
        if phase is not None:
            self.status(name, {"phase": phase})
        return self.get(name)

    def get(self, name: str) -> dict[str, Any]:
        """Read a pod."""
        return self.store.get("pods", "default", name)

    def names(self, **query: Any) -> list[str]:
        """The names of the pods in a LIST."""
        return [pod["metadata"]["name"] for pod in self.store.list("pods", "default", **query).items]

    def patch(self, name: str, patch: Any) -> dict[str, Any]:
        """Merge-patch a pod."""
        return self.store.patch("pods", "default", name, patch, "merge")

    def label(self, name: str, **labels: str | None) -> dict[str, Any]:
        """Set or remove labels of a pod."""
        return self.patch(name, {"metadata": {"labels": labels}})

    def status(self, name: str, status: dict[str, Any]) -> dict[str, Any]:
        """Write a pod's status, as a kubelet does."""
        return self.store.patch("pods", "default", name, {"status": status}, "merge", subresource="status")

    def delete(self, name: str, grace: int | None = None) -> dict[str, Any]:
        """Delete a pod."""
        return self.store.delete("pods", "default", name, grace_period_seconds=grace)

    def watch(self, resource: str = "pods", **query: Any) -> Seen:
        """Watch a resource from now on, unless the query names a version."""
        seen = Seen()
        query.setdefault("resource_version", self.store.resource_version)
        namespace = query.pop("namespace", "default")
        seen.subscription = self.store.watch(resource, namespace, seen, **query)
        return seen

    def advance(self, by: timedelta) -> None:
        """Move the clock from timer to timer."""
        target = self.clock.elapsed + by
        while (due := self.timers.next_due()) is not None and due <= target:
            self.timers.fire_next()
        self.clock.move_to(target)
