"""The work of the process kubelet: start, restart, signal and end the containers of pods, and write their statuses.

All of it runs on the kubelet's one thread. Decisions about a pod are in `pod_run`, the translation of a container into
a process is in `containers`.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from datetime import timedelta
from fnmatch import fnmatchcase
from pathlib import Path
from signal import SIGKILL, SIGTERM
from typing import TYPE_CHECKING, Any, TypeAlias

from actors.local.kubelet.containers import (
    SHUTDOWN_WINDOW,
    CannotCreate,
    argv,
    environment,
    hook_of,
    ignored,
    inherited_environment,
    log_tail,
    signal_name,
    unsupported,
)
from actors.local.kubelet.pod_run import LOOPBACK, ContainerRun, LogFile, PodRun, RunningHook
from actors.local.kubelet.processes.processes import NOT_FOUND
from actors.local.kubelet.recorder import EventRecorder
from actors.local.kubelet.scheduler import Scheduler
from actors.local.store.object_store import ApiStatus, ObjectStore
from actors.local.store.objects import FINAL_PHASES
from actors.runtime import Clock, Scheduled
from actors.text import get_logger

if TYPE_CHECKING:
    from actors.local.kubelet.processes.processes import Processes, ProcessExited, ProcessFailed, ProcessStarted

__all__ = ["Later", "PodRunner"]

logger = get_logger(__name__)

Later: TypeAlias = Callable[[timedelta, Callable[[], None]], Scheduled]
"""Schedules an action on the kubelet's thread."""


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
    ) -> None:
        self._store = store
        self._clock = clock
        self._processes = processes
        self._later = later
        self._log_dir = log_dir
        self._node = node
        self._environment = inherited_environment()
        self._events = EventRecorder(store, clock, host=node)
        self._runs: dict[str, PodRun] = {}
        self._by_key: dict[str, tuple[PodRun, ContainerRun]] = {}
        self._hooks: dict[str, tuple[PodRun, ContainerRun]] = {}
        """By the launcher's keys: containers whose hook runs a command."""
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
            if "deletionTimestamp" in pod["metadata"]:
                self._terminate(run, pod["metadata"].get("deletionGracePeriodSeconds") or 0)
        elif not node:
            self.scheduler.offer(pod)
        elif node == self._node and pod["status"].get("phase") not in FINAL_PHASES:
            self.scheduler.placed(uid)
            self._accept(pod)

    def pod_gone(self, pod: Mapping[str, Any]) -> None:
        """Handle the end of a pod's object, perhaps by a forced deletion: kill its processes."""
        run = self._runs.get(pod["metadata"]["uid"])
        if run is None:
            self.scheduler.freed(pod["metadata"]["uid"])
        else:
            run.gone = True
            self._kill_containers(run)
            self._forget_if_ended(run)

    def process_started(self, event: ProcessStarted) -> None:
        """Handle a container's start."""
        if event.key in self._hooks:
            return
        run, container = self._by_key[event.key]
        self._events.record(run.pod, "Started", f"Started container {container.name}")

        def runs(exit_code: int) -> None:
            if exit_code:
                self._events.record(run.pod, "FailedPostStartHook", "PostStartHook failed", "Warning")
                self._signal(container, SIGKILL, group=True)
            container.started(event.pid, self._clock.now())
            self._write_status(run)

        if run.grace is not None or not self._run_hook(run, container, "postStart", runs):
            runs(0)

    def process_failed(self, failure: ProcessFailed) -> None:
        """Handle a container that could not be started."""
        if self._hook_ended(failure.key, failure.exit_code):
            return
        run, container = self._by_key.pop(failure.key)
        program = argv(container.spec, {})[0]
        missing = failure.exit_code == NOT_FOUND and "/" not in program
        message = {
            "exec": f'exec: "{program}": {"executable file not found in $PATH" if missing else failure.message}',
            "chdir": f'chdir to working directory "{container.spec.get("workingDir")}": {failure.message}',
        }.get(failure.at, f"{failure.at}: {failure.message}")
        container.ended(failure.exit_code, "ContainerCannotRun", message, self._clock.now())
        self._events.record(run.pod, "Failed", f"Error: {message}", "Warning")
        self._container_ended(run, container)

    def process_exited(self, event: ProcessExited) -> None:
        """Handle a container's end."""
        if self._hook_ended(event.key, event.exit_code):
            return
        run, container = self._by_key.pop(event.key)
        message = ""
        falls_back = container.spec.get("terminationMessagePolicy") == "FallbackToLogsOnError"
        if event.exit_code != 0 and falls_back and container.log is not None:
            message = log_tail(container.log.path)
        reason = "OOMKilled" if container.out_of_memory else "Error" if event.exit_code else "Completed"
        container.ended(event.exit_code, reason, message, self._clock.now())
        if container.hook is not None and (container.hook.key is not None or not container.is_stopping):
            self._abort_hook(run, container)  # the processes of a container end with it
        if not container.is_stopping:
            self._container_ended(run, container)

    def launcher_lost(self, meanwhile: Callable[[], None] | None = None) -> None:
        """Handle the launcher's death: its processes are dead; start another launcher, and record the deaths.

        `meanwhile` handles what happened in between.
        """
        self._processes.close()
        self._processes.open()
        lost, self._by_key = list(self._by_key.values()), {}
        for run, container in lost:
            self._abort_hook(run, container)
        self._hooks.clear()
        if meanwhile is not None:
            meanwhile()
        message = "The container could not be located when the pod was terminated"
        for _, container in lost:
            container.ended(128 + SIGKILL, "ContainerStatusUnknown", message, self._clock.now())
        for run, container in lost:
            self._container_ended(run, container)

    def kill(self, namespace: str, name: str, number: int) -> int:
        """Signal all processes of a pod; return how many containers were signalled."""
        live = self._live(namespace, name)
        for container in live:
            logger.info("container signalled: pod=%s signal=%s", name, signal_name(number))
            self._signal(container, number, group=True)
        return len(live)

    def oom(self, namespace: str, name: str) -> int:
        """Kill all processes of a pod for their memory; return how many containers were killed."""
        for container in self._live(namespace, name):
            container.out_of_memory = True
        return self.kill(namespace, name, SIGKILL)

    def log(self, uid: str, container: str, *, previous: bool) -> LogFile | None:
        """Return the log of a container's current or previous run; from any thread."""
        run = self._runs.get(uid)
        found = next((each for each in run.containers() if each.name == container), None) if run else None
        if found is None:
            return None
        return found.previous_log if previous else found.log

    def _live(self, namespace: str, name: str) -> list[ContainerRun]:
        return [
            container
            for run in self._runs.values()
            if (run.namespace, run.name) == (namespace, name)
            for container in run.live()
        ]

    def close(self) -> None:
        """Cancel all timers and end all followers of logs."""
        for run in self._runs.values():
            run.cancel_timers()
            run.close_logs()
        self._runs.clear()

    # ── Starting ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _accept(self, pod: Mapping[str, Any]) -> None:
        """Run a pod that was bound to this node."""
        run = self._runs[pod["metadata"]["uid"]] = PodRun(pod, self._clock.now())
        if "deletionTimestamp" in pod["metadata"]:
            self._terminate(run, 0)
            return
        if problem := unsupported(pod):
            run.rejected = ("NotSupported", problem)
            self._events.record(pod, "NotSupported", problem, "Warning")
            self._after_end(run)
            return
        if fields := ignored(pod):
            message = f"not applied to processes of this machine: {', '.join(fields)}"
            self._events.record(pod, "NotSupported", message, "Warning")
        (self._log_dir / run.uid).mkdir(mode=0o700, exist_ok=True)
        self._start_next(run)

    def _start_next(self, run: PodRun) -> None:
        """Start the next containers, if it is their turn: one init container at a time, then all main containers."""
        for container in run.next_to_start():
            self._start_container(run, container)

    def _start_container(self, run: PodRun, container: ContainerRun) -> None:
        container.attempted = True
        if any(fnmatchcase(container.spec["image"], pattern) for pattern in self.failing_pulls):
            self._plan_pull(run, container)
            return
        container.failed_pulls = 0
        pod = {**run.pod, "status": {"podIP": LOOPBACK, "hostIP": LOOPBACK}}
        try:
            env = environment(container.spec, pod, self._environment)
        except CannotCreate as problem:
            container.state = {"waiting": {"reason": "CreateContainerConfigError", "message": str(problem)}}
            self._events.record(pod, "Failed", f"Error: {problem}", "Warning")
            self._write_status(run)
            return
        container.env = env
        log = container.new_log(self._log_dir / run.uid)
        container.key = f"{run.uid}/{container.name}/{container.restarts}"
        container.state = {"waiting": {"reason": "ContainerCreating"}}
        self._by_key[container.key] = (run, container)
        arguments = argv(container.spec, env)
        self._processes.start(container.key, arguments, env, container.spec.get("workingDir"), log)

    def _plan_pull(self, run: PodRun, container: ContainerRun) -> None:
        """Fail to pull the container's image, and plan the next pull."""
        error, delay = container.pull_failed()
        self._events.record(run.pod, "Failed", f'Failed to pull image "{container.spec["image"]}": {error}', "Warning")
        self._events.record(run.pod, "Failed", "Error: ErrImagePull", "Warning")
        self._write_status(run)
        self._events.record(run.pod, "BackOff", container.will_pull(error))
        self._write_status(run)
        run.timers[container.name] = self._later(delay, lambda: self._restart_due(run, container))

    # ── Ending ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _container_ended(self, run: PodRun, container: ContainerRun) -> None:
        if run.gone or run.grace is not None:
            self._after_end(run)
        elif run.restarts(container):
            self._plan_restart(run, container)
        else:
            self._start_next(run)
            self._after_end(run)

    def _after_end(self, run: PodRun) -> None:
        """Write the status after a final end of a container; finish the pod if it was the last."""
        if run.gone:
            self._forget_if_ended(run)
            return
        run.finished = not run.live() and (run.grace is not None or run.phase() in FINAL_PHASES)
        self._write_status(run)
        if not run.finished:
            return
        run.cancel_timers()
        if run.grace is not None:
            self._remove(run)
        self.scheduler.freed(run.uid)

    def _plan_restart(self, run: PodRun, container: ContainerRun) -> None:
        delay = container.restart_delay()
        container.will_restart(delay, run.name)
        if not delay:
            self._start_container(run, container)
            return
        self._events.record(run.pod, "BackOff", f"Back-off restarting failed container {container.name}", "Warning")
        run.timers[container.name] = self._later(delay, lambda: self._restart_due(run, container))
        self._write_status(run)

    def _restart_due(self, run: PodRun, container: ContainerRun) -> None:
        if run.timers.pop(container.name, None) is not None and not run.gone and run.grace is None:
            self._start_container(run, container)

    def _terminate(self, run: PodRun, grace: int) -> None:
        """Begin the pod's deletion, or shorten it: then a preStop hook that runs begins anew with that grace period.

        The order is a kubelet's (`killContainer` in `pkg/kubelet/kuberuntime`): the preStop hook, for the grace period
        at the longest; SIGTERM; and SIGKILL when what is left of the grace period is over.
        https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#pod-termination
        """
        if run.finished or run.gone or run.grace == grace:
            return
        first, run.grace = run.grace is None, grace
        run.cancel_timers()
        live = run.live()
        if not live:
            self._after_end(run)
            return
        for container in live:
            if first:
                self._events.record(run.pod, "Killing", f"Stopping container {container.name}")
            self._abort_hook(run, container)
            if container.key is not None:
                self._stop(run, container, timedelta(seconds=grace))
        if grace == 0:
            self._kill_containers(run)
        if not run.live():  # the last one had exited while its hook slept
            self._after_end(run)

    def _stop(self, run: PodRun, container: ContainerRun, grace: timedelta) -> None:
        """Stop a container: preStop hook, SIGTERM, SIGKILL. One that was told already has this long for the rest."""
        began = self._clock.now()

        def hook_over(_: int) -> None:
            self._tell(run, container, max(SHUTDOWN_WINDOW, grace - (self._clock.now() - began)))

        if not (grace and not container.told and self._run_hook(run, container, "preStop", hook_over, at_most=grace)):
            self._tell(run, container, grace)

    def _tell(self, run: PodRun, container: ContainerRun, left: timedelta) -> None:
        """Send SIGTERM, once, and SIGKILL when this much time is over."""
        if container.key is None:  # it exited while its hook slept
            self._container_ended(run, container)
            return
        if not container.told:
            container.told = True
            self._signal(container, SIGTERM, group=False)
        run.timers[container.name] = self._later(left, lambda: self._kill(container))

    def _kill_containers(self, run: PodRun) -> None:
        for container in run.live():
            self._abort_hook(run, container)
            self._kill(container)

    def _kill(self, container: ContainerRun) -> None:
        self._signal(container, SIGKILL, group=True)

    def _signal(self, container: ContainerRun, number: int, *, group: bool) -> None:
        if container.key is not None:
            self._processes.signal(container.key, number, group=group)

    # ── Lifecycle hooks ───────────────────────────────────────────────────────────────────────────────────────────

    def _run_hook(
        self,
        run: PodRun,
        container: ContainerRun,
        name: str,
        over: Callable[[int], None],
        at_most: timedelta | None = None,
    ) -> bool:
        """Run a container's hook, if it has it, and call `over` when it has ended or taken `at_most`."""
        hook = hook_of(container.spec, name)
        if hook is None:
            return False
        container.hooks_run += 1
        key = f"{container.key}/{name}/{container.hooks_run}" if hook.command else None
        container.hook = RunningHook(name, key, over)
        limits = [each for each in (at_most, None if key else hook.sleep) if each is not None]
        if limits:
            run.timers[container.name] = self._later(min(limits), lambda: self._hook_over(run, container))
        if key is not None:
            self._hooks[key] = run, container
            folder = container.spec.get("workingDir")
            self._processes.start(key, hook.command, container.env, folder, Path(os.devnull))
        return True

    def _hook_ended(self, key: str, exit_code: int) -> bool:
        """Return whether the process that ended was a hook's. If the hook was not over, it is now."""
        run, container = self._hooks.pop(key, (None, None))
        if run is None or container is None:
            return False
        if container.hook is not None and container.hook.key == key:
            self._hook_over(run, container, exit_code)
        return True

    def _hook_over(self, run: PodRun, container: ContainerRun, exit_code: int = 0) -> None:
        hook = self._abort_hook(run, container)
        if hook is not None:
            hook.over(exit_code)

    def _abort_hook(self, run: PodRun, container: ContainerRun) -> RunningHook | None:
        """End the hook that runs, with its process, and return it."""
        hook, container.hook = container.hook, None
        if hook is not None:
            if (timer := run.timers.pop(container.name, None)) is not None:
                timer.cancel()
            if hook.key is not None:
                self._processes.signal(hook.key, SIGKILL, group=True)
        return hook

    def _remove(self, run: PodRun) -> None:
        """Delete the pod's object, the last step of its deletion, which only its kubelet may take."""
        try:
            self._store.delete("pods", run.namespace, run.name, grace_period_seconds=0, uid=run.uid)
        except ApiStatus as status:
            if status.code not in {404, 409}:  # already deleted by force
                raise

    def _forget_if_ended(self, run: PodRun) -> None:
        if run.live():
            return
        run.cancel_timers()
        run.close_logs()
        self._runs.pop(run.uid, None)
        shutil.rmtree(self._log_dir / run.uid, ignore_errors=True)
        self.scheduler.freed(run.uid)

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
