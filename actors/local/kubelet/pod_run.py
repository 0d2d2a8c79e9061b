"""`PodRun`: what the process kubelet knows of one pod, and the pod status that follows from it.

It only stores and computes. `pod_runner` starts and signals processes, writes to the store and reports the results
here. The status is a real kubelet's (`pkg/kubelet/kubelet_pods.go`, `pkg/kubelet/status/generate.go`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from actors.local.store.objects import rfc3339

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from actors.runtime import Scheduled

__all__ = ["LOOPBACK", "ContainerRun", "LogFile", "PodRun"]

LOOPBACK: Final = "127.0.0.1"
"""The address of the node and of every pod: they are processes of this machine."""

_FIRST_BACKOFF: Final = timedelta(seconds=10)
_MAX_BACKOFF: Final = timedelta(minutes=5)
_BACKOFF_RESET: Final = timedelta(minutes=10)
"""Restart delays are 10s, 20s, 40s … up to 5 minutes, reset after 10 minutes without a failure; the first restart is
immediate: https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#restart-policy. Pulls have the same
backoff, from the first failure on: https://kubernetes.io/docs/concepts/containers/images/#imagepullbackoff"""


@dataclass(slots=True)
class LogFile:
    """A container's log file, and whether it may still grow."""

    path: Path
    complete: bool = False


@dataclass(slots=True)
class RunningHook:
    """A lifecycle hook that runs."""

    name: str
    """`postStart` or `preStop`."""
    key: str | None
    """The launcher's key of its process; None of a hook that sleeps."""
    over: Callable[[int], None]
    """What follows its end, with its exit code."""


@dataclass(slots=True)
class ContainerRun:
    """One container: its current run, and its restarts."""

    spec: Mapping[str, Any]
    init: bool
    state: dict[str, Any] = field(default_factory=lambda: {"waiting": {"reason": "PodInitializing"}})
    last_state: dict[str, Any] = field(default_factory=dict)
    key: str | None = None
    """The launcher's key of its process, None without a process."""
    pid: int | None = None
    started_at: datetime | None = None
    restarts: int = 0
    quick_failures: int = 0
    """Consecutive runs shorter than `_BACKOFF_RESET`."""
    failed_pulls: int = 0
    """Consecutive pulls of its image that failed."""
    attempted: bool = False
    """A first start was attempted."""
    env: Mapping[str, str] = field(default_factory=dict)
    """The environment of its last run, which its hooks share."""
    hook: RunningHook | None = None
    """The lifecycle hook that runs, None while none does."""
    hooks_run: int = 0
    """How many hooks it has run. Makes the keys of their processes unique."""
    out_of_memory: bool = False
    """Its processes were killed for their memory."""
    told: bool = False
    """It received SIGTERM: its preStop hook is over, or it has none."""
    log: LogFile | None = None
    previous_log: LogFile | None = None

    @property
    def name(self) -> str:
        """Its name in the pod's spec."""
        return str(self.spec["name"])

    @property
    def is_stopping(self) -> bool:
        """Its preStop hook runs. A kubelet does not notice before its end that the container has exited."""
        return self.hook is not None and self.hook.name == "preStop"

    @property
    def exit_code(self) -> int | None:
        """The exit code of its last run, None while it runs or waits."""
        terminated = self.state.get("terminated")
        return int(terminated["exitCode"]) if terminated else None

    def new_log(self, directory: Path) -> Path:
        """Return the log file of its next run. The previous run's log is kept, older ones are removed."""
        if self.previous_log is not None:
            self.previous_log.path.unlink(missing_ok=True)
        self.previous_log, self.log = self.log, LogFile(directory / f"{self.name}.{self.restarts}.log")
        return self.log.path

    def started(self, pid: int, now: datetime) -> None:
        """Record that its process runs."""
        self.pid, self.started_at = pid, now
        self.state = {"running": {"startedAt": rfc3339(now)}}

    def ended(self, exit_code: int, reason: str, message: str, now: datetime) -> None:
        """Record that its process has ended, or could not be started."""
        long_run = self.started_at is not None and now - self.started_at >= _BACKOFF_RESET
        self.quick_failures = 0 if long_run else self.quick_failures + 1
        terminated = {
            "exitCode": exit_code,
            "reason": reason,
            "startedAt": rfc3339(self.started_at or now),
            "finishedAt": rfc3339(now),
        }
        if message:
            terminated["message"] = message
        if self.pid is not None:
            terminated["containerID"] = self._container_id()
        self.state = {"terminated": terminated}
        self.key = self.started_at = None
        self.out_of_memory = False
        if self.log is not None:
            self.log.complete = True

    def restart_delay(self) -> timedelta:
        """Return the delay before its next restart."""
        return _backoff(self.quick_failures - 2) if self.quick_failures >= 2 else timedelta()

    def pull_failed(self) -> tuple[str, timedelta]:
        """Record a failed pull of its image; return the error and the delay before the next pull."""
        image = self.spec["image"]
        message = f'rpc error: code = NotFound desc = failed to resolve image "{image}": not found (injected)'
        self.state = {"waiting": {"reason": "ErrImagePull", "message": message}}
        self.failed_pulls += 1
        return message, _backoff(self.failed_pulls - 1)

    def will_pull(self, error: str) -> str:
        """Record that the next pull waits; return why."""
        message = f'Back-off pulling image "{self.spec["image"]}"'
        self.state = {"waiting": {"reason": "ImagePullBackOff", "message": f"{message}: ErrImagePull: {error}"}}
        return message

    def will_restart(self, delay: timedelta, pod_name: str) -> None:
        """Record that its last run will be followed by another."""
        self.restarts += 1
        self.last_state, self.pid = self.state, None
        seconds = f"{delay.total_seconds():.0f}s"
        message = f"back-off {seconds} restarting failed container={self.name} pod={pod_name}"
        self.state = {"waiting": {"reason": "CrashLoopBackOff", "message": message}}

    def status(self) -> dict[str, Any]:
        """Return its `v1.ContainerStatus`."""
        running = "running" in self.state
        image = self.spec.get("image") or ""
        return {
            "name": self.name,
            "image": image,
            "imageID": "",
            "ready": self.exit_code == 0 if self.init else running,
            "started": running,
            "restartCount": self.restarts,
            "state": self.state,
            "lastState": self.last_state,
        } | ({"containerID": self._container_id()} if self.pid is not None else {})

    def _container_id(self) -> str:
        """Contains the pid, so that a person who lists containers can find the process with `ps`."""
        return f"process://{self.pid}"


def _backoff(doublings: int) -> timedelta:
    return min(_MAX_BACKOFF, _FIRST_BACKOFF * (1 << min(doublings, 10)))


class PodRun:
    """One pod of this node, until its object is gone."""

    def __init__(self, pod: Mapping[str, Any], now: datetime) -> None:
        spec = pod["spec"]
        self.pod = pod
        self.uid: str = pod["metadata"]["uid"]
        self.namespace: str = pod["metadata"]["namespace"]
        self.name: str = pod["metadata"]["name"]
        self.restart_policy: str = spec.get("restartPolicy") or "Always"
        self.inits = [ContainerRun(container, init=True) for container in spec.get("initContainers") or ()]
        self.mains = [ContainerRun(container, init=False) for container in spec["containers"]]
        self.started_at = now
        self.rejected: tuple[str, str] | None = None
        """Reason and message, if the kubelet refused to run the pod."""
        self.grace: int | None = None
        """The grace period of its deletion, None while it is not being deleted."""
        self.finished = False
        """Its last status is written and, if it was being deleted, its object too is deleted."""
        self.gone = False
        """Its object is gone: its status cannot be written, its processes must be killed."""
        self.timers: dict[str, Scheduled] = {}
        """The next step of each container that waits: a restart, the end of a hook, or SIGKILL; by its name."""
        self._transitions: dict[str, tuple[str, str]] = {}

    def containers(self) -> Iterator[ContainerRun]:
        """All containers, in the order of their start."""
        yield from self.inits
        yield from self.mains

    def live(self) -> list[ContainerRun]:
        """The containers that have a process, or a preStop hook that goes on sleeping."""
        return [container for container in self.containers() if container.key is not None or container.is_stopping]

    def cancel_timers(self) -> None:
        """Cancel restarts, hooks that sleep, and SIGKILL."""
        for timer in self.timers.values():
            timer.cancel()
        self.timers.clear()

    def close_logs(self) -> None:
        """Mark the logs complete: followers stop waiting."""
        for container in self.containers():
            if container.log is not None:
                container.log.complete = True

    def restarts(self, container: ContainerRun) -> bool:
        """Return whether an ended container is to be restarted."""
        failed = container.exit_code != 0
        match self.restart_policy:
            case "Never":
                return False
            case "OnFailure":
                return failed
            case _:
                return failed or not container.init

    def next_to_start(self) -> list[ContainerRun]:
        """Return the containers to start next: the first unfinished init container, or else the main containers."""
        for init in self.inits:
            if init.exit_code != 0:
                return [] if init.attempted else [init]
        return [main for main in self.mains if not main.attempted]

    @property
    def initialized(self) -> bool:
        """All init containers have succeeded."""
        return all(init.exit_code == 0 for init in self.inits)

    def phase(self) -> str:
        """Return the pod's phase. An end that is followed by a restart does not count."""
        if self.rejected is not None:
            return "Failed"
        if not self.initialized:
            final = any(init.exit_code not in {0, None} and not self.restarts(init) for init in self.inits)
            return "Failed" if final or (self.grace is not None and not self.live()) else "Pending"
        codes = [main.exit_code for main in self.mains]
        if all(code is not None for code in codes):
            return "Succeeded" if not any(codes) else "Failed"
        begun = any("waiting" not in main.state or main.restarts for main in self.mains)
        return "Running" if begun else "Pending"

    def status(self, now: datetime) -> dict[str, Any]:
        """Return the pod's `status`, as a patch of the one in the store."""
        phase = self.phase()
        status: dict[str, Any] = {
            "phase": phase,
            "conditions": self._conditions(phase, rfc3339(now)),
            "hostIP": LOOPBACK,
            "hostIPs": [{"ip": LOOPBACK}],
            "podIP": LOOPBACK,
            "podIPs": [{"ip": LOOPBACK}],
            "startTime": rfc3339(self.started_at),
        }
        if self.rejected is not None:
            status["reason"], status["message"] = self.rejected
            return status
        status["containerStatuses"] = [main.status() for main in self.mains]
        if self.inits:
            status["initContainerStatuses"] = [init.status() for init in self.inits]
        return status

    def _conditions(self, phase: str, now: str) -> list[dict[str, Any]]:
        unready = [main.name for main in self.mains if "running" not in main.state]
        uninitialized = [init.name for init in self.inits if init.exit_code != 0]
        ready = self._unready(phase, unready)
        initialized = (
            ("ContainersNotInitialized", f"containers with incomplete status: [{' '.join(uninitialized)}]")
            if uninitialized
            else None
        )
        problems = {"PodScheduled": None, "Initialized": initialized, "ContainersReady": ready, "Ready": ready}
        return [self._condition(name, problem, now) for name, problem in problems.items()]

    def _unready(self, phase: str, unready: list[str]) -> tuple[str, str] | None:
        if phase == "Succeeded":
            return "PodCompleted", ""
        if phase == "Failed":
            return "PodFailed", ""
        return ("ContainersNotReady", f"containers with unready status: [{' '.join(unready)}]") if unready else None

    def _condition(self, name: str, problem: tuple[str, str] | None, now: str) -> dict[str, Any]:
        """Return one condition; its transition time changes only with its status."""
        status = "True" if problem is None else "False"
        previous = self._transitions.get(name)
        since = previous[1] if previous is not None and previous[0] == status else now
        self._transitions[name] = (status, since)
        # an explicit None in a patch removes an earlier value
        reason, message = problem or (None, None)
        return {
            "type": name,
            "status": status,
            "lastProbeTime": None,
            "lastTransitionTime": since,
            "reason": reason or None,
            "message": message or None,
        }
