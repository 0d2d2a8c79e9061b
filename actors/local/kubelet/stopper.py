"""`Stopper`: stops containers in the order and the times of a kubelet (`killContainer` in `pkg/kubelet/kuberuntime`).

The grace period holds the preStop hook, for a sidecar the wait for its turn, and the rest between SIGTERM and SIGKILL.
A stop that has begun cannot be made shorter: a second DELETE with a shorter grace period changes nothing on the node,
as `SyncTerminatingPod` cannot be interrupted (Kubernetes 1.34 to 1.37,
https://github.com/kubernetes/kubernetes/issues/113606).
"""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from signal import SIGKILL, SIGTERM
from typing import TYPE_CHECKING

from actors.local.kubelet.container_run import ContainerRun, Stop
from actors.local.kubelet.processes.containers import SHUTDOWN_WINDOW

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from actors.local.kubelet.hooks import Hooks
    from actors.local.kubelet.pod_run import PodRun
    from actors.local.kubelet.processes.processes import Processes
    from actors.local.kubelet.recorder import EventRecorder
    from actors.runtime import Clock, Scheduled

__all__ = ["Stopper"]


class Stopper:
    """Not thread-safe: owned by the kubelet's thread.

    Args:
        clock: counts the grace periods.
        later: schedules an action on the kubelet's thread.
        processes: receives the signals.
        hooks: runs the preStop hooks.
        events: gets an event for each stop.
        stopped: called when a hook is over whose container has exited meanwhile.
    """

    def __init__(
        self,
        clock: Clock,
        later: Callable[[timedelta, Callable[[], None]], Scheduled],
        processes: Processes,
        hooks: Hooks,
        *,
        events: EventRecorder,
        stopped: Callable[[PodRun, ContainerRun], None],
    ) -> None:
        self._clock = clock
        self._later = later
        self._processes = processes
        self._hooks = hooks
        self._events = events
        self._stopped = stopped

    def stop(self, run: PodRun, containers: Iterable[ContainerRun], grace: timedelta, why: str = "") -> None:
        """Begin to stop containers of a pod; `why` replaces the text of their events."""
        for container in containers:
            self._events.record(run.pod, "Killing", why or f"Stopping container {container.name}")
            container.stop = Stop(self._clock.now(), grace)
            if not self._hooks.run(run, container, "preStop", partial(self._paused, run, container), at_most=grace):
                self.proceed(run, container)

    def proceed(self, run: PodRun, container: ContainerRun) -> None:
        """Send SIGTERM to a container, if it is its turn, or its grace period is over while it waits."""
        stop = container.stop
        if stop is None or stop.told or container.hook is not None or container.key is None:
            return
        left = stop.grace - timedelta(seconds=(self._clock.now() - stop.began) // timedelta(seconds=1))
        if left > timedelta(0) and not run.may_end(container):
            if container.name not in run.timers:
                run.timers[container.name] = self._later(left, partial(self._tell, run, container, SHUTDOWN_WINDOW))
            return
        self._tell(run, container, max(SHUTDOWN_WINDOW, left))

    def _paused(self, run: PodRun, container: ContainerRun, exit_code: int) -> None:
        """Handle the end of a preStop hook."""
        if exit_code:
            self._events.record(run.pod, "FailedPreStopHook", "PreStopHook failed", "Warning")
        if container.key is None:
            self._stopped(run, container)
        else:
            self.proceed(run, container)

    def _tell(self, run: PodRun, container: ContainerRun, left: timedelta) -> None:
        """Send SIGTERM, and SIGKILL when this much time is over."""
        if container.stop is None or container.key is None:
            return
        container.stop.told = True
        if (timer := run.timers.pop(container.name, None)) is not None:
            timer.cancel()
        self._processes.signal(container.key, SIGTERM, group=False, to_process_1=run.has_process_1)
        run.timers[container.name] = self._later(left, partial(self._kill, container))

    def _kill(self, container: ContainerRun) -> None:
        if container.key is not None:
            self._processes.signal(container.key, SIGKILL, group=True)
