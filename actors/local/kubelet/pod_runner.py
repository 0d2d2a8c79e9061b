"""The work of the process kubelet: start and restart the containers of pods, let them be stopped, write their statuses.

All of it runs on the kubelet's one thread. Decisions about a pod are in `pod_run`, stops in `stopper`, lifecycle hooks
in `hooks`, the translation of a container into a process is in `containers`.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import timedelta
from fnmatch import fnmatchcase
from pathlib import Path
from signal import SIGKILL
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from actors.local.kubelet.container_run import ContainerRun, Exit, LogFile
from actors.local.kubelet.delays import LOOK, Delays
from actors.local.kubelet.hooks import Hooks
from actors.local.kubelet.pod_run import LOOPBACK, PodRun
from actors.local.kubelet.processes.containers import (
    CANNOT_START,
    END_NOT_SEEN,
    CannotCreate,
    argv,
    environment,
    ignored,
    inherited_environment,
    log_tail,
    signal_name,
    start_error,
    unsupported,
)
from actors.local.kubelet.recorder import EventRecorder
from actors.local.kubelet.scheduler import Scheduler
from actors.local.kubelet.stopper import Stopper
from actors.local.store.object_store import ApiStatus, ObjectStore
from actors.local.store.objects import FINAL_PHASES
from actors.manifests.pause import drained_file
from actors.runtime import Clock, Scheduled
from actors.text import get_logger

if TYPE_CHECKING:
    from actors.local.kubelet.processes.processes import Processes, ProcessExited, ProcessFailed, ProcessStarted

__all__ = ["Later", "PodRunner"]

logger = get_logger(__name__)

Later: TypeAlias = Callable[[timedelta, Callable[[], None]], Scheduled]
"""Schedules an action on the kubelet's thread."""

_POD: Final = ""
"""The name of a pod's own timer."""


class PodRunner:
    """The pods of one node. Only `log` is thread-safe."""

    def __init__(
        self,
        store: ObjectStore,
        clock: Clock,
        processes: Processes,
        later: Later,
        log_dir: Path,
        *,
        node: str,
        max_pods: int,
        delays: Delays,
    ) -> None:
        self._store = store
        self._clock = clock
        self._processes = processes
        self._later = later
        self._log_dir = log_dir
        self._node = node
        self._delays = delays
        self._environment = inherited_environment()
        self._events = EventRecorder(store, clock, host=node)
        self._hooks = Hooks(processes, later)
        self._stopper = Stopper(clock, later, processes, self._hooks, events=self._events, stopped=self._notice)
        self._runs: dict[str, PodRun] = {}
        self._by_key: dict[str, tuple[PodRun, ContainerRun]] = {}
        self.failing_pulls: tuple[str, ...] = ()
        """Patterns of images whose pulls fail."""
        self.scheduler = Scheduler(store, self._events, node=node, max_pods=max_pods)

    # ── Events ────────────────────────────────────────────────────────────────────────────────────────────────────

    def pod_changed(self, pod: Mapping[str, Any]) -> None:
        """Handle a pod that is new or changed."""
        uid, node = pod["metadata"]["uid"], pod["spec"].get("nodeName")
        run = self._runs.get(uid)
        if run is not None:
            run.pod = pod
            self._sync(run)
        elif not node:
            self.scheduler.offer(pod)
        elif node == self._node and pod["status"].get("phase") not in FINAL_PHASES:
            self.scheduler.placed(uid)
            self._accept(pod)

    def pod_gone(self, pod: Mapping[str, Any]) -> None:
        """Handle the end of a pod's object. Its containers get their grace period, also after a deletion by force."""
        uid = pod["metadata"]["uid"]
        self.scheduler.freed(uid)
        run = self._runs.get(uid)
        if run is not None:
            run.gone = True
            self._sync(run)

    def process_started(self, event: ProcessStarted) -> None:
        """Handle a container's start."""
        if self._hooks.has(event.key):
            return
        run, container = self._by_key[event.key]
        self._events.record(run.pod, "Started", f"Started container {container.name}")
        container.started(event.pid, self._clock.now())

        def runs(exit_code: int) -> None:
            if exit_code:
                container.runs()
                self._events.record(run.pod, "FailedPostStartHook", "PostStartHook failed", "Warning")
                self._stopper.stop(run, [container], run.grace, "FailedPostStartHook")
                self._notice(run, container)
            elif container.is_sidecar and container.key is not None:
                self._in(run, container.name, LOOK, lambda: self._runs_now(run, container))
                self._sync(run)
            else:
                self._runs_now(run, container)

        if not self._hooks.run(run, container, "postStart", runs):
            runs(0)

    def _runs_now(self, run: PodRun, container: ContainerRun) -> None:
        """Record that a container runs. A sidecar that ends before the kubelet looks does not count as started."""
        container.runs()
        self._write_status(run)
        self._notice(run, container)

    def process_failed(self, failure: ProcessFailed) -> None:
        """Handle a container that could not be started."""
        if self._hooks.process_ended(failure.key, CANNOT_START):
            return
        run, container = self._by_key.pop(failure.key)
        message = start_error(container.spec, failure.at, failure.number, failure.message)
        self._events.record(run.pod, "Failed", f"Error: {message}", "Warning")
        self._exited(run, container, CANNOT_START, "StartError", message)

    def process_exited(self, event: ProcessExited) -> None:
        """Handle a container's end."""
        if self._hooks.process_ended(event.key, event.exit_code):
            return
        run, container = self._by_key.pop(event.key)
        message = ""
        falls_back = container.spec.get("terminationMessagePolicy") == "FallbackToLogsOnError"
        if event.exit_code != 0 and falls_back and container.log is not None:
            message = log_tail(container.log.path)
        reason = "OOMKilled" if container.out_of_memory else "Error" if event.exit_code else "Completed"
        self._exited(run, container, event.exit_code, reason, message)

    def launcher_lost(self, meanwhile: Callable[[], None] | None = None) -> None:
        """Handle the launcher's death: its processes are dead; start another launcher, and record the deaths.

        `meanwhile` handles what happened in between.
        """
        self._processes.close()
        self._processes.open()
        lost, self._by_key = list(self._by_key.values()), {}
        for run, container in lost:
            container.exit, container.key = Exit(END_NOT_SEEN, "Unknown", "", self._clock.now()), None
            if container.hook is None:
                self._cancel(run, container.name)
        if meanwhile is not None:
            meanwhile()
        self._hooks.lost()
        for run, container in lost:
            self._notice(run, container)

    def kill(self, namespace: str, name: str, number: int) -> int:
        """Signal all processes of a pod; return how many containers were signalled."""
        found = self._with_process(namespace, name)
        for container in found:
            logger.info("container signalled: pod=%s signal=%s", name, signal_name(number))
            if container.key is not None:
                self._processes.signal(container.key, number, group=True)
        return len(found)

    def oom(self, namespace: str, name: str) -> int:
        """Kill all processes of a pod for their memory; return how many containers were killed."""
        for container in self._with_process(namespace, name):
            container.out_of_memory = True
        return self.kill(namespace, name, SIGKILL)

    def log(self, uid: str, container: str, *, previous: bool) -> LogFile | None:
        """Return the log of a container's current or previous run; from any thread."""
        run = self._runs.get(uid)
        found = next((each for each in run.containers() if each.name == container), None) if run else None
        if found is None:
            return None
        return found.previous_log if previous else found.log

    def _with_process(self, namespace: str, name: str) -> list[ContainerRun]:
        runs = (run for run in self._runs.values() if (run.namespace, run.name) == (namespace, name))
        return [container for run in runs for container in run.containers() if container.key is not None]

    def close(self) -> None:
        """Cancel all timers, end all followers of logs, and remove what pods have left: their processes have ended."""
        for run in self._runs.values():
            run.cancel_timers()
            run.close_logs()
            _remove_drained_file(run)
        self._runs.clear()

    # ── The next step of a pod ────────────────────────────────────────────────────────────────────────────────────

    def _accept(self, pod: Mapping[str, Any]) -> None:
        """Run a pod that was bound to this node."""
        run = self._runs[pod["metadata"]["uid"]] = PodRun(pod, self._clock.now())
        if run.is_deleted:
            self._sync(run)
            return
        if problem := unsupported(pod):
            run.rejected = ("NotSupported", problem)
            self._events.record(pod, "NotSupported", problem, "Warning")
            self._finish(run)
            return
        if fields := ignored(pod):
            message = f"not applied to processes of this machine: {', '.join(fields)}"
            self._events.record(pod, "NotSupported", message, "Warning")
        (self._log_dir / run.uid).mkdir(mode=0o700, exist_ok=True)
        self._write_status(run)
        run.preparing = True
        self._in(run, _POD, self._delays.start(), lambda: self._prepared(run))

    def _prepared(self, run: PodRun) -> None:
        """Start the first containers. Even a pod that was deleted meanwhile starts, and is stopped then."""
        run.preparing, run.has_sandbox = False, True
        self._start_next(run)
        self._sync(run)

    def _sync(self, run: PodRun) -> None:
        """Take the next step of a pod, unless one is under way."""
        if run.finished:
            if run.is_deleted and not run.gone:  # the deletion came before the last status, and was learned of after it
                self._remove(run)
            self._forget_if_gone(run)
        elif run.is_busy or run.stopped:
            return
        elif run.is_deleted and not run.terminating:
            self._terminate(run)
        elif run.terminating or run.ending:
            self._finish_if_ended(run)
        elif run.is_over:
            self._end(run)
        elif run.has_sandbox:
            self._start_next(run)

    def _end(self, run: PodRun) -> None:
        """End a pod whose main containers have ended for good: stop its sidecars."""
        run.ending = True
        self._write_status(run)
        if run.live():
            self._stop(run)
        else:
            self._stopped(run)

    def _terminate(self, run: PodRun) -> None:
        """Begin the pod's deletion: stop all containers. Its status is written again when all have ended.

        https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#pod-termination
        """
        run.terminating = True
        for container in run.containers():
            container.ended()
            container.blocked = None
        self._write_status(run)
        self._stop(run)

    def _stop(self, run: PodRun) -> None:
        run.cancel_timers()
        self._stopper.stop(run, run.live(), run.grace)
        self._finish_if_ended(run)

    def _finish_if_ended(self, run: PodRun) -> None:
        if not run.live() and not run.stopped:
            run.stopped = True
            self._in(run, _POD, self._delays.notice(), lambda: self._stopped(run, write=True))

    def _stopped(self, run: PodRun, *, write: bool = False) -> None:
        """Write what the containers of a pod have ended with, if that is not written yet; then take the pod down."""
        run.stopped = True
        if write:
            self._write_status(run)
        self._in(run, _POD, self._delays.finish(), lambda: self._finish(run))

    def _finish(self, run: PodRun) -> None:
        """Write the last status of a pod. If it was being deleted, delete its object."""
        run.finished = run.stopped = True
        run.give_up()
        run.cancel_timers()
        self._write_status(run)
        if run.is_deleted and not run.gone:
            self._remove(run)
        self.scheduler.freed(run.uid)
        self._forget_if_gone(run)

    def _remove(self, run: PodRun) -> None:
        """Delete the pod's object, the last step of its deletion, which only its kubelet may take."""
        try:
            self._store.delete("pods", run.namespace, run.name, grace_period_seconds=0, uid=run.uid)
        except ApiStatus as status:
            if status.code not in {404, 409}:  # already deleted by force
                raise

    def _forget_if_gone(self, run: PodRun) -> None:
        if not run.gone:
            return
        run.cancel_timers()
        run.close_logs()
        self._runs.pop(run.uid, None)
        shutil.rmtree(self._log_dir / run.uid, ignore_errors=True)
        _remove_drained_file(run)

    # ── Containers ────────────────────────────────────────────────────────────────────────────────────────────────

    def _start_next(self, run: PodRun) -> None:
        """Start the next containers, if it is their turn: one init container at a time, then all main containers."""
        for container in run.next_to_start():
            self._start_container(run, container)

    def _start_container(self, run: PodRun, container: ContainerRun) -> None:
        container.attempted = True
        if any(fnmatchcase(container.spec["image"], pattern) for pattern in self.failing_pulls):
            self._plan_pull(run, container)
            return
        pod = {**run.pod, "status": {"podIP": LOOPBACK, "hostIP": LOOPBACK}}
        try:
            env = environment(container.spec, pod, self._environment)
        except CannotCreate as problem:
            container.blocked = {"reason": "CreateContainerConfigError", "message": str(problem)}
            self._events.record(pod, "Failed", f"Error: {problem}", "Warning")
            self._write_status(run)
            return
        key, log = container.begin(run.uid, env, self._log_dir / run.uid)
        self._by_key[key] = (run, container)
        self._processes.start(key, argv(container.spec, env), env, container.spec.get("workingDir"), log)

    def _plan_pull(self, run: PodRun, container: ContainerRun) -> None:
        """Fail to pull the container's image, and plan the next pull."""
        error, delay = container.pull_failed()
        self._events.record(run.pod, "Failed", f'Failed to pull image "{container.spec["image"]}": {error}', "Warning")
        self._events.record(run.pod, "Failed", "Error: ErrImagePull", "Warning")
        self._write_status(run)
        self._events.record(run.pod, "BackOff", container.will_pull(error))
        self._write_status(run)
        self._in(run, container.name, delay, lambda: self._start_container(run, container))

    def _plan_restart(self, run: PodRun, container: ContainerRun) -> None:
        delay = container.restart_delay()
        if delay:
            container.will_restart(delay, run.full_name)
            self._events.record(run.pod, "BackOff", f"Back-off restarting failed container {container.name}", "Warning")
            self._write_status(run)
        self._in(run, container.name, delay, lambda: self._start_container(run, container))

    def _exited(self, run: PodRun, container: ContainerRun, code: int, reason: str, message: str) -> None:
        """Record the end of a container's process, or the failure to start it."""
        container.exit, container.key = Exit(code, reason, message, self._clock.now()), None
        self._hooks.container_exited(container)
        if container.hook is None:
            self._cancel(run, container.name)
        self._notice(run, container)

    def _notice(self, run: PodRun, container: ContainerRun) -> None:
        """Notice an end: once no hook is awaited, and at once if the kubelet itself stops the container."""
        if container.exit is None or container.hook is not None:
            self._sync(run)
        elif container.stop is not None:
            self._ended(run, container)
        else:
            self._in(run, container.name, self._delays.notice(), lambda: self._ended(run, container))

    def _ended(self, run: PodRun, container: ContainerRun) -> None:
        container.ended()
        for other in run.live():
            self._stopper.proceed(run, other)
        if run.restarts(container):
            self._plan_restart(run, container)
        elif not (run.is_deleted or run.is_over):
            self._write_status(run)
        self._sync(run)

    # ── Timers and the store ──────────────────────────────────────────────────────────────────────────────────────

    def _in(self, run: PodRun, name: str, delay: timedelta, action: Callable[[], None]) -> None:
        """Act after a delay, at once if there is none."""

        def due() -> None:
            run.timers.pop(name, None)
            action()

        if delay:
            run.timers[name] = self._later(delay, due)
        else:
            action()

    @staticmethod
    def _cancel(run: PodRun, name: str) -> None:
        if (timer := run.timers.pop(name, None)) is not None:
            timer.cancel()

    def _write_status(self, run: PodRun) -> None:
        """Write the pod's status. A strategic patch keeps conditions of other writers, such as a disruption."""
        if run.gone:
            return
        patch = {"metadata": {"uid": run.uid}, "status": run.status(self._clock.now())}
        try:
            self._store.patch("pods", run.namespace, run.name, patch, "strategic", subresource="status")
        except ApiStatus as refusal:
            if refusal.code not in {404, 409, 422}:  # gone, or replaced by another pod of that name
                raise


def _remove_drained_file(run: PodRun) -> None:
    """Remove the file with which an executor ends its pause. A real pod's /dev/shm goes with the pod."""
    with suppress(OSError):  # most have made none, and not every system has the folder
        Path(drained_file(run.uid)).unlink()
