"""`Hooks`: runs the lifecycle hooks of containers. A hook sleeps, or is a process beside its container's.

A hook that sleeps is the kubelet's own: it sleeps in full, even if its container has ended. A command runs inside the
container, so it ends with the container's first process.
"""

from __future__ import annotations

import os
from pathlib import Path
from signal import SIGKILL
from typing import TYPE_CHECKING

from actors.local.kubelet.container_run import ContainerRun, RunningHook
from actors.local.kubelet.processes.containers import hook_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import timedelta

    from actors.local.kubelet.pod_run import PodRun
    from actors.local.kubelet.processes.processes import Processes
    from actors.runtime import Scheduled

__all__ = ["Hooks"]


class Hooks:
    """Not thread-safe: owned by the kubelet's thread.

    Args:
        processes: runs the commands.
        later: schedules an action on the kubelet's thread.
    """

    def __init__(self, processes: Processes, later: Callable[[timedelta, Callable[[], None]], Scheduled]) -> None:
        self._processes = processes
        self._later = later
        self._commands: dict[str, tuple[PodRun, ContainerRun]] = {}

    def run(
        self,
        run: PodRun,
        container: ContainerRun,
        name: str,
        over: Callable[[int], None],
        at_most: timedelta | None = None,
    ) -> bool:
        """Run a container's hook, if it has it; call `over` with its exit code when it has ended or taken `at_most`.

        A command that takes longer goes on, but nobody waits for it (a kubelet's `executePreStopHook`).
        """
        hook = hook_of(container.spec, name)
        if hook is None:
            return False
        container.hooks_run += 1
        key = f"{container.key}/{name}/{container.hooks_run}" if hook.command else None
        container.hook = RunningHook(name, key, over)
        limits = [each for each in (at_most, None if key else hook.sleep) if each is not None]
        if limits:
            run.timers[container.name] = self._later(min(limits), lambda: self._over(run, container, 0))
        if key is not None:
            container.hooks.add(key)
            self._commands[key] = run, container
            folder = container.spec.get("workingDir")
            self._processes.start(key, hook.command, container.env, folder, Path(os.devnull))
        return True

    def has(self, key: str) -> bool:
        """Return whether a process is a hook's."""
        return key in self._commands

    def process_ended(self, key: str, exit_code: int) -> bool:
        """Handle the end of a process. Return whether it was a hook's."""
        run, container = self._commands.pop(key, (None, None))
        if run is None or container is None:
            return False
        container.hooks.discard(key)
        if container.hook is not None and container.hook.key == key:
            self._over(run, container, exit_code)
        return True

    def container_exited(self, container: ContainerRun) -> None:
        """Kill the commands of a container whose first process has ended, as the kernel does."""
        for key in container.hooks:
            self._processes.signal(key, SIGKILL, group=True)

    def lost(self) -> None:
        """Handle the loss of all processes: no command runs any more."""
        for key in list(self._commands):
            self.process_ended(key, 128 + SIGKILL)

    def _over(self, run: PodRun, container: ContainerRun, exit_code: int) -> None:
        hook, container.hook = container.hook, None
        if hook is not None:
            self._cancel_timer(run, container)
            hook.over(exit_code)

    @staticmethod
    def _cancel_timer(run: PodRun, container: ContainerRun) -> None:
        if (timer := run.timers.pop(container.name, None)) is not None:
            timer.cancel()
