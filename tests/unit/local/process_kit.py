"""A store with a process kubelet, timers that a test fires by hand, and waiting without sleeping."""

from __future__ import annotations

import os
from collections import defaultdict
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from actors.local.kubelet.process_kubelet import ProcessKubelet
from actors.local.store.object_store import ObjectStore, WatchMessage
from actors.runtime import Entropy, SystemClock

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import timedelta
    from pathlib import Path

    from actors.local.kubelet.delays import Delays

SAFETY_SECONDS = 30.0
"""No test waits this long unless something is broken."""


@dataclass
class HandTimer:
    """One scheduled callback; the test decides when it is due."""

    delay: timedelta
    callback: Callable[[], None]
    cancelled: bool = False

    def cancel(self) -> None:
        self.cancelled = True

    def fire(self) -> None:
        if not self.cancelled:
            self.callback()


@dataclass
class HandTimers:
    """A TimerService that never fires by itself."""

    scheduled: SimpleQueue[HandTimer] = field(default_factory=SimpleQueue)

    def schedule(self, delay: timedelta, callback: Callable[[], None]) -> HandTimer:
        timer = HandTimer(delay, callback)
        self.scheduled.put(timer)
        return timer

    def next(self) -> HandTimer:
        return self.scheduled.get(timeout=SAFETY_SECONDS)


class Laptop:
    """The embedded cluster without its HTTP server."""

    def __init__(self, directory: Path, max_pods: int = 500, delays: Delays | None = None) -> None:
        self.store = ObjectStore(SystemClock(), Entropy())
        self.timers = HandTimers()
        self.log_dir = directory / "logs"
        self.kubelet = ProcessKubelet(
            self.store, SystemClock(), self.timers, self.log_dir, max_pods=max_pods, delays=delays
        )
        self._seen: defaultdict[str, SimpleQueue[WatchMessage]] = defaultdict(SimpleQueue)
        """By pod: whoever waits for one misses nothing of another."""
        self.store.watch("pods", "default", lambda message: self._seen[message.object["metadata"]["name"]].put(message))

    def create(
        self, name: str, command: list[str] | None, *, container: dict[str, Any] | None = None, **spec: Any
    ) -> dict[str, Any]:
        main = {"name": "executor", "image": "none"} | ({"command": command} if command else {}) | (container or {})
        pod = {
            "metadata": {"name": name, "labels": {"executor-id": "7"}},
            "spec": {"restartPolicy": "Never", "containers": [main]} | spec,
        }
        return self.store.create("pods", "default", pod)

    def wait(self, name: str, holds: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """The pod, as soon as an event shows that the condition holds."""
        while True:
            message = self._seen[name].get(timeout=SAFETY_SECONDS)
            if message.type != "DELETED" and holds(message.object):
                return message.object

    def wait_phase(self, name: str, phase: str) -> dict[str, Any]:
        return self.wait(name, lambda pod: bool(pod["status"].get("phase") == phase))

    def wait_gone(self, name: str) -> dict[str, Any]:
        """The pod's last state."""
        while True:
            message = self._seen[name].get(timeout=SAFETY_SECONDS)
            if message.type == "DELETED":
                return message.object

    def output(self, pod: dict[str, Any], container: str = "executor", *, previous: bool = False) -> str:
        log = self.kubelet.log(pod["metadata"]["uid"], container, previous=previous)
        assert log is not None
        return log.path.read_text()


def ended(pod: dict[str, Any], container: int = 0) -> dict[str, Any]:
    """How a container ended."""
    terminated: dict[str, Any] = pod["status"]["containerStatuses"][container]["state"]["terminated"]
    return terminated


def process_of(pod: dict[str, Any]) -> int:
    """The process id that a container's status names."""
    return int(pod["status"]["containerStatuses"][0]["containerID"].removeprefix("process://"))


def is_alive(pid: int) -> bool:
    """The process is there."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
