"""The fleet behind `backend` on the pages: a Backend whose executors run, without a process or a socket."""

from __future__ import annotations

from contextlib import ExitStack
from datetime import timedelta
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Self

from actors import Backend, BackendStopped, ExecutorRunning, GetFleetStatus, StopBackend
from actors.local.inprocess import InProcessPodApi
from actors.local.kubelet.scripted_kubelet import ScriptedKubelet
from actors.local.store.object_store import ObjectStore
from actors.runtime import Actor, ActorSystem

if TYPE_CHECKING:
    from actors import FleetStatus, Settings
    from actors.runtime import Context

SAFETY_SECONDS = 60.0
"""What hangs ends the test after this; no test waits for it."""

SOON = timedelta(milliseconds=20)
"""The interval of the Allocator's rounds, which count the executors: no page waits for a second."""


class _Driver(Actor):
    """Hands on what it receives."""

    def __init__(self, context: Context, received: SimpleQueue[Any]) -> None:
        super().__init__(context)
        self._received = received

    def receive(self, message: Any) -> object:
        self._received.put(message)
        return None


class Fleet:
    """Is made once all its executors run."""

    def __init__(self, settings: Settings) -> None:
        self._stack = ExitStack()
        system = ActorSystem()
        self._stack.callback(system.close)
        store = ObjectStore(system.clock, system.entropy)
        self._stack.callback(ScriptedKubelet(store, system.clock, system.timers).close)
        self._received: SimpleQueue[Any] = SimpleQueue()
        driver = system.spawn(lambda context: _Driver(context, self._received), name="driver", owner=None)
        self._stack.callback(driver.stop)
        api = InProcessPodApi(store, "default", system.timers)
        allocation = settings.allocation.model_copy(update={"batch_delay": SOON})
        settings = settings.model_copy(update={"allocation": allocation})
        self.backend = Backend.start(settings, driver, api, system=system)
        status: FleetStatus = self.backend.ask(GetFleetStatus(), timedelta(seconds=SAFETY_SECONDS))
        for _ in range(sum(profile.target for profile in status.profiles.values())):
            self._wait_for(ExecutorRunning)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Stop, unless the page has done so."""
        self.backend.tell(StopBackend())
        self._wait_for(BackendStopped)
        self._stack.close()

    def _wait_for(self, kind: type) -> None:
        while not isinstance(self._received.get(timeout=SAFETY_SECONDS), kind):
            pass
