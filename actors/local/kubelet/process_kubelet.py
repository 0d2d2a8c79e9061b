"""`ProcessKubelet`: runs the pods of the embedded cluster as processes of this machine.

It is scheduler and kubelet of one node. One thread owns all state; watch messages, launcher events and timers reach it
through one queue, so it polls nothing and shares nothing.

A process is not a container: it has no image, mount, limit or probe. A pod that cannot run without one is refused;
fields that are ignored are listed in an event (`NotSupported`). Restarts have the backoff of a real kubelet. Each
container is a session of its own and ends with its first process; the others of its group are then killed. As with a
container runtime, SIGTERM goes to the first process only, and only if process 1 of a namespace would get it; SIGKILL
goes to the group. A container's log is one file, deleted with its pod. Lifecycle hooks sleep, or run a command as a
process of its own, which ends with its container.
"""

from __future__ import annotations

import shutil
import threading
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue
from signal import SIGKILL
from typing import TYPE_CHECKING, Final, TypeAlias, assert_never

from actors.local.kubelet.delays import Delays
from actors.local.kubelet.nodes import NodeLifecycle, local_node
from actors.local.kubelet.pod_runner import PodRunner
from actors.local.kubelet.processes.processes import (
    LauncherLost,
    Processes,
    ProcessEvent,
    ProcessExited,
    ProcessFailed,
    ProcessStarted,
)
from actors.local.store.object_store import ApiStatus, ObjectStore, Subscription, WatchMessage
from actors.runtime import start_thread
from actors.text import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import timedelta
    from pathlib import Path

    from actors.local.kubelet.container_run import LogFile
    from actors.runtime import Clock, Scheduled, TimerService

__all__ = ["ProcessKubelet"]

logger = get_logger(__name__)

_DEFAULT_MAX_PODS: Final = 500
"""Enough for any fleet that a laptop can run; few enough that a runaway driver cannot exhaust its processes."""
_ANSWER_SECONDS: Final = 10.0
"""The kubelet's thread does nothing slow; this only keeps a bug from blocking the caller forever."""


@dataclass(frozen=True, slots=True)
class _Do:
    """An action of a timer or another thread, to run on the kubelet's thread."""

    action: Callable[[], None]


@dataclass(frozen=True, slots=True)
class _DoAtOnce:
    """The same for an action that is not the node's: it runs while the node is lost, too."""

    action: Callable[[], None]


@dataclass(frozen=True, slots=True)
class _Stop:
    """Kill everything and end."""


_Message: TypeAlias = WatchMessage | ProcessEvent | _Do | _DoAtOnce


class ProcessKubelet:
    """The one node of an embedded cluster.

    Args:
        store: the pods to run.
        clock: for the times in statuses.
        timers: for grace periods and backoffs.
        log_dir: for the containers' logs; created at the start and removed at the end.
        node: the node's name.
        max_pods: further pods stay unbound.
        delays: how long starts and ends take; by default no time.
    """

    def __init__(
        self,
        store: ObjectStore,
        clock: Clock,
        timers: TimerService,
        log_dir: Path,
        *,
        node: str = "local",
        max_pods: int = _DEFAULT_MAX_PODS,
        delays: Delays | None = None,
    ) -> None:
        self._store = store
        self._clock = clock
        self._timers = timers
        self._log_dir = log_dir
        self._node = node
        self._max_pods = max_pods
        self._inbox: SimpleQueue[_Message | _Stop] = SimpleQueue()
        self._processes = Processes(self._inbox.put)
        self._runner = PodRunner(
            store,
            clock,
            self._processes,
            self._later,
            log_dir,
            node=node,
            max_pods=max_pods,
            delays=delays or Delays(),
        )
        self._lifecycle = NodeLifecycle(store, clock, self._later_in_any_case, node)
        self._held: list[_Message] | None = None
        """What the node has missed since it was lost; None while it is not lost."""
        self._subscription: Subscription | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Register the node and begin to run pods. Raises any error of the start."""
        self._log_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        ready: Future[None] = Future()
        self._thread = start_thread(partial(self._run, ready), "executor-pods/kubelet")
        try:
            ready.result()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Kill every process and wait for its end, without writing statuses. A second call does nothing."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        self._inbox.put(_Stop())
        thread.join()
        shutil.rmtree(self._log_dir, ignore_errors=True)

    def kill(self, namespace: str, name: str, number: int = SIGKILL) -> int:
        """Signal all processes of a pod, like `kill` in a shell; return how many containers were signalled.

        0 if the kubelet does not run.
        """
        return self._count(lambda: self._runner.kill(namespace, name, number))

    def oom(self, namespace: str, name: str) -> int:
        """Kill all processes of a pod for their memory; return how many containers were killed, as `kill` does."""
        return self._count(lambda: self._runner.oom(namespace, name))

    def fail_pulls(self, *patterns: str) -> None:
        """Let pulls of these images fail from now on, by `*` and `?`; without patterns, none.

        A container that waits pulls again after its backoff, as on a real node.
        """

        def fail() -> None:
            self._runner.failing_pulls = patterns

        self._ask(fail)

    def lose_node(self) -> None:
        """Lose the node: its processes are killed, and nothing is reported until `restore_node`.

        Its pods stay as they were, are not ready, and are deleted when they no longer tolerate the loss. A deletion
        does not end. A second call does nothing.
        """
        self._ask(self._lose_node)

    def restore_node(self) -> None:
        """Restart a lost node: it reports what ended, and goes on. A second call does nothing."""
        self._ask(self._restore_node)

    def plan_loss(self, after: timedelta, outage: timedelta | None = None) -> None:
        """Lose the node after a time, and restore it after an outage, or never."""
        self._later_in_any_case(after, self._lose_node)
        if outage is not None:
            self._later_in_any_case(after + outage, self._restore_node)

    def _count(self, action: Callable[[], int]) -> int:
        """Return what an action returns; 0 while the node is lost."""
        counts: list[int] = []

        def act() -> None:
            if self._held is None:
                counts.append(action())

        self._ask(act)
        return sum(counts)

    def _ask(self, action: Callable[[], None]) -> None:
        """Run an action on the kubelet's thread and wait for its end; do nothing if the kubelet does not run."""
        if self._thread is None or self._thread is threading.current_thread():
            return
        answer: Future[None] = Future()

        def answered() -> None:
            action()
            answer.set_result(None)

        self._inbox.put(_DoAtOnce(answered))
        answer.result(_ANSWER_SECONDS)

    def _lose_node(self) -> None:
        if self._held is not None or self._subscription is None:
            return
        logger.info("node lost: node=%s", self._node)
        self._held = []
        self._processes.close()
        self._runner.scheduler.node_lost()
        self._lifecycle.lost()

    def _restore_node(self) -> None:
        held, self._held = self._held, None
        if held is None:
            return

        def catch_up() -> None:
            for message in held:
                self._receive(message)

        self._lifecycle.back()
        self._runner.launcher_lost(catch_up)
        self._runner.scheduler.node_back()
        logger.info("node restored: node=%s", self._node)

    def log(self, uid: str, container: str, *, previous: bool = False) -> LogFile | None:
        """Return the log of a container's current (or previous) run, None if there is none."""
        return self._runner.log(uid, container, previous=previous)

    def _later(self, delay: timedelta, action: Callable[[], None]) -> Scheduled:
        return self._timers.schedule(delay, lambda: self._inbox.put(_Do(action)))

    def _later_in_any_case(self, delay: timedelta, action: Callable[[], None]) -> Scheduled:
        return self._timers.schedule(delay, lambda: self._inbox.put(_DoAtOnce(action)))

    def _run(self, ready: Future[None]) -> None:
        try:
            self._processes.open()  # on this thread: the launcher dies with the thread that opened it
            self._register()
            self._subscription = self._store.watch("pods", None, self._inbox.put)
            ready.set_result(None)
        except BaseException as error:  # noqa: BLE001 - raised in `start`
            ready.set_exception(error)
        while not isinstance(message := self._inbox.get(), _Stop):
            try:
                self._receive(message)
            except Exception:  # one pod that cannot be handled must not end all others
                logger.exception("message not handled: type=%s", type(message).__name__)
        if self._subscription is not None:
            self._subscription.cancel()
        self._subscription = self._held = None
        self._processes.close()
        self._runner.close()
        while not self._inbox.empty():  # answers a `kill` that came too late: nothing is left to signal
            if isinstance(late := self._inbox.get(), _DoAtOnce):
                late.action()

    def _receive(self, message: _Message) -> None:
        if self._held is not None and not _concerns_control_plane(message):
            if isinstance(message, WatchMessage | _Do):  # the end of a process is one that the loss has caused
                self._held.append(message)
            return
        match message:
            case WatchMessage(type="DELETED", object=pod):
                self._runner.pod_gone(pod)
            case WatchMessage(object=pod):
                self._runner.pod_changed(pod)
            case ProcessStarted():
                self._runner.process_started(message)
            case ProcessFailed():
                self._runner.process_failed(message)
            case ProcessExited():
                self._runner.process_exited(message)
            case LauncherLost():
                self._runner.launcher_lost()
            case _Do(action=action) | _DoAtOnce(action=action):
                action()
            case _:
                assert_never(message)

    def _register(self) -> None:
        node = local_node(self._node, self._max_pods, self._clock.now())
        try:
            self._store.create("nodes", None, node)
        except ApiStatus as status:
            if status.reason != "AlreadyExists":
                raise
        self._store.patch("nodes", None, self._node, {"status": node["status"]}, "merge", subresource="status")


def _concerns_control_plane(message: _Message) -> bool:
    """Return whether a message is not for the node: it is handled while the node is lost, too."""
    match message:
        case WatchMessage(object=pod):
            return not pod["spec"].get("nodeName")
        case _DoAtOnce():
            return True
        case _:
            return False
