"""Compute π by Monte Carlo on executors that are killed while they work.

    python -m actors.examples.pi

A complete driver: an actor that owns a Backend and assigns 200 tasks to the connected executors. Each executor is a
process that runs `actors.examples.pi_executor` in a pod of the embedded cluster. Three of them are killed while they
work. The Backend replaces them, the driver assigns their tasks to others, and the result is the same to the last digit.
"""

from __future__ import annotations

import secrets
import socket
import sys
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pykka

from actors import (
    Backend,
    BackendFailed,
    BackendStarted,
    BackendStopped,
    ExecutorRemoved,
    ExecutorRunning,
    FleetFailed,
    Settings,
    SettingsError,
    StopBackend,
    TaskQueue,
)
from actors.kube import connect
from actors.local.cluster import LocalCluster
from actors.registration.door import BackendDoor
from actors.registration.listener import (
    Answered,
    Connected,
    Connection,
    Disconnected,
    Listener,
    ListenerThread,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from actors.kube.api import PodApi

TASKS = 200
SAMPLES = 20_000
EXECUTORS = 4
KILL_AT = frozenset({40, 80, 120})
"""After this many answers, the executor that sent the last one is killed while it works on its next task."""


@dataclass(frozen=True)
class Outcome:
    """The result."""

    pi: float
    lost: int
    """Executors that ended before the work was done."""
    repeated: int
    """Tasks that were assigned more than once."""


@dataclass(frozen=True)
class Executors:
    """How the driver reaches its executors."""

    socket: socket.socket
    """They connect to it."""
    token: str
    """They say it when they connect."""
    kill: Callable[[str], object]
    """Kills one of them, by its pod's name."""


class PiDriver(pykka.ThreadingActor):
    """Hands out tasks, at most one per connection at a time, until each has an answer."""

    use_daemon_thread = True

    def __init__(self, settings: Settings, api: PodApi | None, executors: Executors, done: Future[Outcome]) -> None:
        super().__init__()
        self._settings, self._api, self._executors, self._done = settings, api, executors, done
        self._listener: ListenerThread | None = None
        self._tasks: TaskQueue[int, Connection] = TaskQueue(range(TASKS))
        self._answers: dict[int, int] = {}
        self._lost = 0

    def on_start(self) -> None:
        """Start the fleet. Pykka would only log an exception raised here."""
        try:
            self._backend = Backend.start(self._settings, owner=self.actor_ref, api=self._api)
        except SettingsError as error:
            self._finish(error)

    def on_failure(self, _type: Any, error: BaseException | None, _traceback: Any) -> None:
        """Fail the future: a bug in the driver must not block its caller for ever."""
        self._finish(error or RuntimeError("the driver crashed"))

    def on_receive(self, message: Any) -> None:  # noqa: C901, PLR0912 - one case a message
        """Handle one message of the listener or of the Backend."""
        match message:
            case BackendStarted(app_id, namespace):
                self._app_id = app_id
                print(f"fleet {app_id} in namespace {namespace}")
                listener = Listener(self._executors.token, self.actor_ref.tell)
                self._listener = ListenerThread(listener, BackendDoor(self._backend), self._executors.socket)
            case ExecutorRunning(executor_id, pod):
                print(f"executor {executor_id} runs in pod {pod.name}")
            case Connected(connection):
                self._tasks.connected(connection)
            case Answered(connection, task_id, inside):
                self._record_answer(connection, task_id, inside)
            case Disconnected(connection):
                self._tasks.disconnected(connection)
            case ExecutorRemoved(executor_id, reason):
                self._tasks.removed(executor_id, reason)
                if len(self._answers) < TASKS:
                    self._lost += 1
                    print(f"executor {executor_id} is gone: {reason.message}")
            case FleetFailed(cause):
                self._finish(RuntimeError(cause))
            case BackendFailed(cause):
                self._finish(cause)
            case BackendStopped():
                self._finish(None)
            case _:
                pass  # this driver does not need the Backend's other messages
        for connection, task_id in self._tasks.assign():
            connection.send(task_id, {"seed": task_id, "samples": SAMPLES})
        for task_id, attempts in self._tasks.failed.items():
            self._finish(RuntimeError(f"task {task_id} has failed: {attempts.refusal}"))

    def _record_answer(self, connection: Connection, task_id: int, inside: int) -> None:
        """Record the first answer to a task. Any other would be equal to it."""
        if not self._tasks.answered(connection, task_id):
            return
        self._answers[task_id] = inside
        if self._tasks.is_done:
            self._backend.tell(StopBackend())
        elif len(self._answers) in KILL_AT:
            self._executors.kill(f"{self._app_id}-exec-{connection.executor_id}")

    def _finish(self, failure: BaseException | None) -> None:
        """End, and say how: the first one counts."""
        if self._done.done():
            return
        if self._listener is not None:
            self._listener.close()
        if failure is not None or len(self._answers) < TASKS:
            self._done.set_exception(failure or RuntimeError("the backend stopped before the work was done"))
        else:
            pi = 4 * sum(self._answers.values()) / (TASKS * SAMPLES)
            self._done.set_result(Outcome(pi, self._lost, self._tasks.repeated))
        self.stop()


def compute() -> Outcome:
    """Run the computation on an embedded cluster."""
    with LocalCluster() as cluster, socket.create_server(("127.0.0.1", 0)) as sock:
        token = secrets.token_urlsafe()
        settings = Settings(
            driver_address="{}:{}".format(*sock.getsockname()),
            executor={
                "instances": EXECUTORS,
                "image": "any",  # the embedded cluster runs commands of this machine, not images
                "command": (sys.executable, "-m", "actors.examples.pi_executor"),
                "env": {"DRIVER_TOKEN": token},
            },
        )
        done: Future[Outcome] = Future()
        api = connect(kubeconfig=cluster.kubeconfig_path, namespace=settings.namespace)
        PiDriver.start(settings, api, Executors(sock, token, cluster.kill), done)
        return done.result()


def main() -> None:
    """Print the result."""
    outcome = compute()
    print(f"π ≈ {outcome.pi}: {TASKS} tasks, {outcome.lost} executors lost, {outcome.repeated} tasks repeated")


if __name__ == "__main__":
    main()
