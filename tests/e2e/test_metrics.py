"""A metrics page that threads read while fleets start, change, crash and stop. The command's: test_command.py."""

from __future__ import annotations

import threading
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from actors import (
    Backend,
    BackendFailed,
    BackendStarted,
    BackendStopped,
    ExecutorRemoved,
    ExecutorRunning,
    PrometheusMetrics,
    Settings,
    StopBackend,
)
from actors.local.inprocess import InProcessPodApi
from actors.local.kubelet.scripted_kubelet import ScriptedKubelet
from actors.local.store.object_store import ObjectStore
from actors.runtime import Actor, ActorSystem, Address, SupervisorMessage

if TYPE_CHECKING:
    from collections.abc import Iterator

    from actors.runtime import Context

SAFETY = 60.0
"""Seconds until a test that hangs fails."""

PAUSE = 0.005
"""Seconds between two pages of one thread, so that the fleets get on."""


class Listener(Actor):
    """A driver that hands on what it hears."""

    def __init__(self, context: Context, heard: SimpleQueue[Any]) -> None:
        super().__init__(context)
        self._heard = heard

    def receive(self, message: Any) -> object:
        self._heard.put(message)
        return None


class Fleet:
    """A backend on threads and the machine's clock, with an embedded cluster in this process."""

    def __init__(self, app_id: str, metrics: PrometheusMetrics) -> None:
        self.system = ActorSystem()
        self.store = ObjectStore(self.system.clock, self.system.entropy)
        self.kubelet = ScriptedKubelet(self.store, self.system.clock, self.system.timers)
        self.heard: SimpleQueue[Any] = SimpleQueue()
        self.driver = self.system.spawn(lambda context: Listener(context, self.heard), name="driver", owner=None)
        settings = Settings(app_id=app_id, executor={"instances": 3, "image": "x"}, backend={"lease": False})
        api = InProcessPodApi(self.store, "default", self.system.timers)
        self.backend = Backend.start(settings, self.driver, api, system=self.system, metrics=metrics)

    def until(self, kind: type, count: int = 1) -> None:
        """Wait for so many messages of a kind."""
        while count:
            count -= isinstance(self.heard.get(timeout=SAFETY), kind)

    def close(self) -> None:
        self.driver.stop()
        self.kubelet.close()
        self.system.close()


class Scrapers:
    """Threads that read one page after the other until they are told to stop."""

    def __init__(self, registry: CollectorRegistry, count: int) -> None:
        self._registry = registry
        self._over = threading.Event()
        self.pages: list[str] = []
        self.errors: list[Exception] = []
        self._threads = [threading.Thread(target=self._scrape) for _ in range(count)]
        for thread in self._threads:
            thread.start()

    def _scrape(self) -> None:
        while not self._over.wait(PAUSE):
            try:
                self.pages.append(generate_latest(self._registry).decode())
            except Exception as error:  # noqa: BLE001 - whatever it is, the test fails of it
                self.errors.append(error)

    def stop(self) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(SAFETY)
            assert not thread.is_alive()


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
def scrapers(registry: CollectorRegistry) -> Iterator[Scrapers]:
    scrapers = Scrapers(registry, 2)
    yield scrapers
    scrapers.stop()


def test_pages_are_read_on_many_threads_while_fleets_start_change_crash_and_stop(
    registry: CollectorRegistry, scrapers: Scrapers
) -> None:
    metrics = PrometheusMetrics(registry)
    first, second = Fleet("first", metrics), Fleet("second", metrics)
    for fleet in (first, second):
        fleet.until(BackendStarted)
        fleet.until(ExecutorRunning, 3)
    first.kubelet.exit("first-exec-1", 1)
    first.until(ExecutorRemoved)
    first.until(ExecutorRunning)
    Address.tell(second.backend, SupervisorMessage())  # past the check of what a driver sends
    second.until(BackendFailed)
    first.backend.tell(StopBackend())
    first.until(BackendStopped)
    scrapers.stop()
    for fleet in (first, second):
        fleet.close()
    assert scrapers.errors == []
    last = generate_latest(registry).decode()
    assert [line for line in last.splitlines() if line.startswith("executor_pods_up")] == [
        'executor_pods_up{app_id="first"} 0.0',
        'executor_pods_up{app_id="second"} 0.0',
    ]
    assert 'executor_pods_executors_running_total{app_id="first",profile="default"} 4.0' in last
    assert any('executor_pods_up{app_id="second"} 1.0' in page for page in scrapers.pages)
