"""Our contestant: a driver that follows its fleet, on a backend with default settings."""

from __future__ import annotations

import logging
import threading
import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

import pykka

from actors import kube
from actors.backend.backend import Backend
from actors.messages import (
    BackendFailed,
    BackendStopped,
    ExecutorRemoved,
    ExecutorRunning,
    GetFleetStatus,
    RegisterExecutor,
    StopBackend,
)
from actors.settings import AllocationSettings, Settings
from tests.benchmarks.pods import APP_ID

if TYPE_CHECKING:
    from typing import Self

    from actors.kube.api import PodApi
    from tests.benchmarks.serving import Serving

__all__ = ["Fleet", "connect"]

SAFETY_SECONDS: Final = 300.0
"""After this long a run has failed."""


class _Driver(pykka.ThreadingActor):
    """Registers running executors, as a driver does when they connect, and notes when each end arrives."""

    use_daemon_thread = True

    def __init__(self, fleet: Fleet) -> None:
        super().__init__()
        self._fleet = fleet

    def on_receive(self, message: object) -> None:
        fleet = self._fleet
        match message:
            case ExecutorRunning(executor_id):
                fleet.backend.tell(RegisterExecutor(executor_id))
                fleet.running += 1
                if fleet.running == fleet.size:
                    fleet.whole.set()
            case ExecutorRemoved(executor_id):
                fleet.removed[executor_id] = time.monotonic()
                fleet.heard.set()
            case BackendFailed(cause):
                logging.getLogger(__name__).error("the backend failed", exc_info=cause)
                fleet.whole.set()
            case BackendStopped():
                fleet.stopped.set()
            case _:
                pass


class Fleet:
    """Our backend and its executors, which run already or are created; complete when the `with` begins."""

    def __init__(self, api: PodApi, size: int, *, settling: float = 1.0, **settings: Any) -> None:
        """`settling`: seconds for the other actors to finish their start."""
        self.size = size
        self._settling = settling
        self._api = api
        groups: dict[str, Any] = {"executor": {"instances": size, "image": "worker"}, "backend": {"lease": False}}
        for group, values in settings.items():
            groups[group] = {**groups.get(group, {}), **values}
        self._settings = Settings(app_id=APP_ID, **groups)
        self.running = 0
        self.removed: dict[int, float] = {}
        self.heard, self.whole, self.stopped = threading.Event(), threading.Event(), threading.Event()

    def __enter__(self) -> Self:
        self._driver = _Driver.start(self)
        self.began = time.monotonic()
        self.backend = Backend.start(self._settings, self._driver, self._api)
        assert self.whole.wait(SAFETY_SECONDS), f"only {self.running} of {self.size} executors run"
        self.told = time.monotonic() - self.began
        self.backend.ask(GetFleetStatus(), timedelta(seconds=SAFETY_SECONDS))  # after every message of the driver
        time.sleep(self._settling)
        return self

    def __exit__(self, *_: object) -> None:
        self.backend.tell(StopBackend(delete_pods=False))
        self.stopped.wait(SAFETY_SECONDS)
        self._driver.stop()

    def until_removed(self, executor_id: int) -> float:
        """Return when the driver received the executor's removal."""
        while executor_id not in self.removed:
            self.heard.clear()
            if executor_id not in self.removed:
                assert self.heard.wait(SAFETY_SECONDS), f"executor {executor_id} is never removed"
        return self.removed[executor_id]


def connect(serving: Serving) -> PodApi:
    """Return our client, with a backend's number of connections."""
    return kube.connect(serving.kubeconfig, max_connections=AllocationSettings().connections)
