"""Compute π by Monte Carlo on executors that are killed while they work.

    python -m actors.examples.pi

A complete driver: an actor that owns a Backend and assigns 200 tasks to the connected executors. Each executor is a
process that runs `actors.examples.pi_executor` in a pod of the embedded cluster. Three of them are killed while they
work. The Backend replaces them, the driver assigns their tasks to others, and the result is the same to the last digit.
"""

from __future__ import annotations

import json
import socketserver
import sys
import threading
from collections import deque
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TextIO

import pykka

from actors import (
    Backend,
    BackendFailed,
    BackendStarted,
    BackendStopped,
    ExecutorDisconnected,
    ExecutorRemoved,
    ExecutorRunning,
    FleetFailed,
    RegisterExecutor,
    Settings,
    SettingsError,
    StopBackend,
)
from actors.kube import connect
from actors.local.cluster import LocalCluster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from actors.kube.api import PodApi

TASKS = 200
SAMPLES = 50_000
EXECUTORS = 4
KILL_AT = frozenset({40, 80, 120})
"""After this many answers, the executor that sent the last one is killed while it works on its next task."""


# ── Messages of the connections ──────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Connected:
    """An executor has connected; its tasks are written to `lines`."""

    executor_id: int
    pod: str
    lines: TextIO


@dataclass(frozen=True)
class Answered:
    """An executor has finished a task."""

    executor_id: int
    task_id: int
    inside: int


@dataclass(frozen=True)
class Disconnected:
    """An executor's connection has ended. The Backend will report why."""

    executor_id: int


class Listener(socketserver.ThreadingTCPServer):
    """Accepts the executors' connections. Each has a thread, which only passes messages to the driver."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Connection)
        self.driver: pykka.ActorRef[PiDriver]

    @property
    def address(self) -> str:
        """The value of `DRIVER_ADDRESS` in the executors' environment."""
        host, port = self.socket.getsockname()
        return f"{host}:{port}"

    def tell(self, message: Connected | Answered | Disconnected) -> None:
        """Tell the driver, unless it has ended."""
        with suppress(pykka.ActorDeadError):
            self.driver.tell(message)

    @contextmanager
    def serving(self) -> Iterator[None]:
        """Accept connections until the context ends."""
        thread = threading.Thread(target=self.serve_forever, name="listener", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self.shutdown()
            thread.join()


class _Connection(socketserver.BaseRequestHandler):
    server: Listener

    def handle(self) -> None:
        """Turn one executor's lines into messages, until it disconnects or is killed in the middle of a line."""
        with self.request.makefile("rw") as lines:
            hello = json.loads(lines.readline())
            self.server.tell(Connected(hello["executor_id"], hello["pod"], lines))
            with suppress(OSError, ValueError):
                for line in lines:
                    answer = json.loads(line)
                    self.server.tell(Answered(hello["executor_id"], answer["task_id"], answer["inside"]))
            self.server.tell(Disconnected(hello["executor_id"]))


# ── The driver ───────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Outcome:
    """The result."""

    pi: float
    lost: int
    """Executors that ended before the work was done."""
    repeated: int
    """Tasks that were assigned more than once."""


class PiDriver(pykka.ThreadingActor):
    """Assigns tasks, at most one per executor at a time, until each has an answer."""

    use_daemon_thread = True

    def __init__(self, settings: Settings, api: PodApi, kill: Callable[[str], object], done: Future[Outcome]) -> None:
        super().__init__()
        self._settings, self._api, self._kill, self._done = settings, api, kill, done
        self._open = deque(range(TASKS))
        self._working_on: dict[int, int] = {}
        """By executor id: the task that it works on."""
        self._connections: dict[int, Connected] = {}
        self._answers: dict[int, int] = {}
        self._lost = self._repeated = 0

    def on_start(self) -> None:
        """Start the fleet. Pykka would only log an exception raised here."""
        try:
            self._backend = Backend.start(self._settings, owner=self.actor_ref, api=self._api)
        except SettingsError as error:
            self._finish(error)

    def on_failure(self, _type: Any, error: BaseException | None, _traceback: Any) -> None:
        """Fail the future: a bug in the driver must not block its caller for ever."""
        self._finish(error or RuntimeError("the driver crashed"))

    def on_receive(self, message: Any) -> None:  # noqa: C901 - one case a message
        """Handle one message of a connection or of the Backend."""
        match message:
            case BackendStarted(app_id, namespace):
                print(f"fleet {app_id} in namespace {namespace}")
            case ExecutorRunning(executor_id, pod):
                print(f"executor {executor_id} runs in pod {pod.name}")
            case Connected(executor_id):
                self._connections[executor_id] = message
                self._backend.tell(RegisterExecutor(executor_id))
                self._assign(executor_id)
            case Answered(executor_id, task_id, inside):
                self._record_answer(executor_id, task_id, inside)
            case Disconnected(executor_id):
                self._backend.tell(ExecutorDisconnected(executor_id))
                self._reassign(executor_id)
            case ExecutorRemoved(executor_id, reason):
                self._reassign(executor_id)
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

    def _assign(self, executor_id: int) -> None:
        """Send an idle executor its next task. The write fails if it has just ended; the Backend will report that."""
        connection = self._connections.get(executor_id)
        if connection is None or executor_id in self._working_on or not self._open:
            return
        task_id = self._open.popleft()
        self._working_on[executor_id] = task_id
        try:
            print(
                json.dumps({"task_id": task_id, "seed": task_id, "samples": SAMPLES}), file=connection.lines, flush=True
            )
        except (OSError, ValueError):
            self._reassign(executor_id)

    def _record_answer(self, executor_id: int, task_id: int, inside: int) -> None:
        """Record the first answer to a task. Any other would be equal to it."""
        pod = self._connections[executor_id].pod
        self._working_on.pop(executor_id, None)
        self._assign(executor_id)
        if task_id in self._answers:
            return
        self._answers[task_id] = inside
        if len(self._answers) == TASKS:
            self._backend.tell(StopBackend())
        elif len(self._answers) in KILL_AT:
            self._kill(pod)

    def _reassign(self, executor_id: int) -> None:
        """Assign the task of a lost executor to an idle one."""
        self._connections.pop(executor_id, None)
        task_id = self._working_on.pop(executor_id, None)
        if task_id is not None and task_id not in self._answers:
            self._repeated += 1
            self._open.appendleft(task_id)
            for other in list(self._connections):
                self._assign(other)

    def _finish(self, failure: BaseException | None) -> None:
        if failure is not None or len(self._answers) < TASKS:
            self._done.set_exception(failure or RuntimeError("the backend stopped before the work was done"))
        else:
            pi = 4 * sum(self._answers.values()) / (TASKS * SAMPLES)
            self._done.set_result(Outcome(pi, self._lost, self._repeated))
        self.stop()


def compute() -> Outcome:
    """Run the computation on an embedded cluster."""
    with LocalCluster() as cluster, Listener() as listener:
        settings = Settings(
            driver_address=listener.address,
            executor={
                "instances": EXECUTORS,
                "image": "any",  # the embedded cluster runs commands of this machine, not images
                "command": (sys.executable, "-m", "actors.examples.pi_executor"),
            },
        )
        done: Future[Outcome] = Future()
        api = connect(kubeconfig=cluster.kubeconfig_path, namespace=settings.namespace)
        listener.driver = PiDriver.start(settings, api, cluster.kill, done)
        with listener.serving():
            return done.result()


def main() -> None:
    """Print the result."""
    outcome = compute()
    print(f"π ≈ {outcome.pi}: {TASKS} tasks, {outcome.lost} executors lost, {outcome.repeated} tasks repeated")


if __name__ == "__main__":
    main()
