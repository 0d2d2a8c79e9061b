"""A real Backend in the test's process, on a real control plane, and the driver that it works for."""

from __future__ import annotations

import queue
import threading
import time
from collections import Counter
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

import pykka

from actors import kube
from actors.backend.backend import Backend
from actors.messages import (
    BackendStarted,
    ExecutorPending,
    ExecutorRemoved,
    ExecutorRunning,
    ExecutorTerminating,
    GetFleetStatus,
    KillExecutors,
    RegisterExecutor,
    RequestTotalExecutors,
    StopBackend,
    ToDriver,
)
from actors.settings.model import Settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from actors.messages import FleetStatus
    from actors.pods.loss import LossReason

__all__ = ["RealFleet", "until"]

SAFETY_SECONDS: Final = 120.0
"""What takes longer has failed; no test waits for it."""
LOOK_SECONDS: Final = 0.05

M = TypeVar("M")


def until(true: Callable[[], object], what: str) -> None:
    """Look until it is so."""
    pause, began = threading.Event(), time.monotonic()
    while not true():
        assert time.monotonic() - began < SAFETY_SECONDS, f"{what}: not within {SAFETY_SECONDS:.0f} s"
        pause.wait(LOOK_SECONDS)


class Driver(pykka.ThreadingActor):
    """Hands on what it is told."""

    def __init__(self, heard: queue.SimpleQueue[ToDriver]) -> None:
        super().__init__()
        self._heard = heard

    def on_receive(self, message: ToDriver) -> None:
        self._heard.put(message)


class RealFleet:
    """To be used in a `with`: at its end the Backend is dropped, as a host does it, and the fleet left as it is."""

    def __init__(self, kubeconfig: Path, namespace: str, executors: int, **settings: Any) -> None:
        executor: Any = {"instances": executors, "image": "worker:1", **settings.pop("executor", {})}
        subject = Settings(app_id="real", namespace=namespace, executor=executor, **settings)
        self._inbox: queue.SimpleQueue[ToDriver] = queue.SimpleQueue()
        self._driver = Driver.start(self._inbox)
        self._backend = Backend.start(
            subject,
            self._driver,
            kube.connect(kubeconfig, namespace=namespace, max_connections=subject.allocation.connections),
        )
        self.heard: list[ToDriver] = []
        self.pods: dict[int, str] = {}
        """Executor id → pod's name, of all that the driver was ever told of."""
        self.running: set[int] = set()
        self.removed: dict[int, LossReason] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._backend.stop()
        self._driver.stop()

    @property
    def backend(self) -> pykka.ActorRef[Backend]:
        """As a host that speaks Pykka holds it."""
        assert self._backend.ref is not None
        return self._backend.ref

    def end_driver(self) -> None:
        """And leave the Backend to itself."""
        self._driver.stop()

    def ask_for(self, totals: int | dict[str, int]) -> None:
        self._backend.tell(RequestTotalExecutors(totals))

    def kill(self, executor_ids: Iterable[int]) -> None:
        """As the driver; nobody replaces them unless the target says so."""
        self._backend.tell(KillExecutors(tuple(executor_ids)))

    def register(self, executor_ids: Iterable[int]) -> None:
        """As the driver, when they connect."""
        for executor_id in executor_ids:
            assert self._backend.ask(RegisterExecutor(executor_id), timedelta(seconds=SAFETY_SECONDS))

    def stop(self) -> None:
        """In order, and delete the fleet."""
        self._backend.tell(StopBackend(delete_pods=True))

    def status(self) -> FleetStatus:
        answer: FleetStatus = self._backend.ask(GetFleetStatus(), timedelta(seconds=SAFETY_SECONDS))
        return answer

    def told(self, kind: type[M]) -> list[M]:
        """All of this kind that the driver has heard so far."""
        self._listen()
        return [message for message in self.heard if isinstance(message, kind)]

    def until_told(self, kind: type[M], count: int = 1) -> M:
        """Until the driver has heard so many of these; the last."""
        until(lambda: len(self.told(kind)) >= count, f"{kind.__name__} number {count}, after {self.heard[-5:]}")
        return self.told(kind)[-1]

    def until_running(self, count: int, *, removed: int = 0) -> None:
        """Until so many run and so many were removed, as the driver is told."""
        until(lambda: self._is(count, removed), f"{count} run, {removed} removed, after {self.heard[-5:]}")

    def _is(self, running: int, removed: int) -> bool:
        self._listen()
        return (len(self.running), len(self.removed)) == (running, removed)

    def _listen(self) -> None:
        while True:
            try:
                self._take(self._inbox.get_nowait())
            except queue.Empty:
                return

    def _take(self, message: ToDriver) -> None:
        self.heard.append(message)
        match message:
            case ExecutorPending(executor_id, pod):
                self.pods[executor_id] = pod.name
            case ExecutorRunning(executor_id, pod):
                self.pods[executor_id] = pod.name
                self.running.add(executor_id)
            case ExecutorTerminating(executor_id):
                self.running.discard(executor_id)
            case ExecutorRemoved(executor_id, reason):
                assert executor_id not in self.removed, f"told twice: {self.removed[executor_id]} and {reason}"
                self.running.discard(executor_id)
                self.removed[executor_id] = reason
            case _:
                pass

    def kinds(self) -> Counter[str]:
        """How often each kind was heard, but for those about single executors that do well."""
        self._listen()
        usual = (BackendStarted, ExecutorPending, ExecutorRunning, ExecutorTerminating)
        return Counter(type(message).__name__ for message in self.heard if not isinstance(message, usual))
