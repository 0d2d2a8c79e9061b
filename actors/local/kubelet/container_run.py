"""`ContainerRun`: what the process kubelet knows of one container, and the container status that follows from it."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from actors.local.store.objects import rfc3339

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

__all__ = ["STATUS_UNKNOWN", "ContainerRun", "Exit", "LogFile", "RunningHook", "Stop"]

_FIRST_BACKOFF: Final = timedelta(seconds=10)
_MAX_BACKOFF: Final = timedelta(minutes=5)
_BACKOFF_RESET: Final = timedelta(minutes=10)
"""Restart delays are 10s, 20s, 40s … up to 5 minutes, reset after 10 minutes without a failure; the first restart is
immediate: https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#restart-policy. Pulls have the same
backoff, from the first failure on: https://kubernetes.io/docs/concepts/containers/images/#imagepullbackoff"""

_NEVER: Final = "1970-01-01T00:00:00Z"
"""When a container started whose program could not be started: containerd has no time for it, a kubelet shows zero."""

STATUS_UNKNOWN: Final[Mapping[str, Any]] = {
    "exitCode": 137,
    "reason": "ContainerStatusUnknown",
    "message": "The container could not be located when the pod was terminated",
}
"""How a container ended that a kubelet knows nothing of (`TerminatePod` in `pkg/kubelet/status`). It has no times."""


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
class Stop:
    """The stop of one container by the kubelet."""

    began: datetime
    grace: timedelta
    """The time for its preStop hook, its turn and its end after SIGTERM."""
    told: bool = False
    """It received SIGTERM: its preStop hook is over, and it is its turn."""


@dataclass(frozen=True, slots=True)
class Exit:
    """The end of a container's process, or the failure to start it."""

    code: int
    reason: str
    message: str
    at: datetime


@dataclass(slots=True)
class ContainerRun:
    """One container: its current run, and its restarts."""

    spec: Mapping[str, Any]
    init: bool
    initial: Mapping[str, Any]
    """The state of a container that was not started yet, and that nothing blocks."""
    state: Mapping[str, Any] = field(init=False)
    last_state: Mapping[str, Any] = field(default_factory=dict)
    blocked: Mapping[str, str] | None = None
    """Reason and message, if it cannot be started now: the waiting state that replaces `state`."""
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
    """The lifecycle hook that the kubelet waits for, None while it waits for none."""
    hooks: set[str] = field(default_factory=set)
    """The launcher's keys of its hooks' processes, also of one that the kubelet no longer waits for."""
    hooks_run: int = 0
    """How many hooks it has run. Makes the keys of their processes unique."""
    out_of_memory: bool = False
    """Its processes were killed for their memory."""
    stop: Stop | None = None
    """Its stop by the kubelet, None while there is none."""
    exit: Exit | None = None
    """Its process has ended, and the kubelet has not noticed yet."""
    log: LogFile | None = None
    previous_log: LogFile | None = None

    def __post_init__(self) -> None:
        self.state = self.initial

    @property
    def name(self) -> str:
        """Its name in the pod's spec."""
        return str(self.spec["name"])

    @property
    def is_sidecar(self) -> bool:
        """It is a native sidecar: an init container that runs beside the main containers (KEP-753)."""
        return self.init and self.spec.get("restartPolicy") == "Always"

    @property
    def is_live(self) -> bool:
        """It has a process, a hook runs, or the kubelet has not noticed its end."""
        return self.key is not None or self.hook is not None or self.exit is not None

    @property
    def is_running(self) -> bool:
        """It runs, as far as the kubelet has noticed, and its postStart hook is over."""
        return "running" in self.state

    @property
    def exit_code(self) -> int | None:
        """The exit code of its last run, None if none has ended or another has begun."""
        terminated = self.state.get("terminated")
        return int(terminated["exitCode"]) if terminated else None

    def begin(self, uid: str, env: Mapping[str, str], directory: Path) -> tuple[str, Path]:
        """Begin its first or next run; return the launcher's key of its process, and its log file.

        The previous run's log is kept, older ones are removed.
        """
        if "terminated" in self.state:
            self.restarts += 1
            self.last_state, self.state = self.state, self.initial
        key = f"{uid}/{self.name}/{self.restarts}"
        self.key, self.env, self.pid, self.blocked, self.failed_pulls = key, env, None, None, 0
        if self.previous_log is not None:
            self.previous_log.path.unlink(missing_ok=True)
        self.previous_log, self.log = self.log, LogFile(directory / f"{self.name}.{self.restarts}.log")
        return key, self.log.path

    def started(self, pid: int, now: datetime) -> None:
        """Record that its process has started."""
        self.pid, self.started_at = pid, now

    def runs(self) -> None:
        """Record that its postStart hook is over, if it has one."""
        if self.started_at is not None:
            self.state = {"running": {"startedAt": rfc3339(self.started_at)}}

    def ended(self) -> None:
        """Record the end of its process, or that it could not be started."""
        end, self.exit = self.exit, None
        if end is None:
            return
        long_run = self.started_at is not None and end.at - self.started_at >= _BACKOFF_RESET
        self.quick_failures = 0 if long_run else self.quick_failures + 1
        terminated = {
            "exitCode": end.code,
            "reason": end.reason,
            "startedAt": _NEVER if self.pid is None else rfc3339(self.started_at or end.at),
            "finishedAt": rfc3339(end.at),
        }
        if end.message:
            terminated["message"] = end.message
        if self.pid is not None:
            terminated["containerID"] = self._container_id()
        self.state = {"terminated": terminated}
        self.stop = self.started_at = None
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
        self.blocked = {"reason": "ErrImagePull", "message": message}
        self.failed_pulls += 1
        return message, _backoff(self.failed_pulls - 1)

    def will_pull(self, error: str) -> str:
        """Record that the next pull waits; return why."""
        message = f'Back-off pulling image "{self.spec["image"]}"'
        self.blocked = {"reason": "ImagePullBackOff", "message": f"{message}: ErrImagePull: {error}"}
        return message

    def will_restart(self, delay: timedelta, pod: str) -> None:
        """Record that its last run will be followed by another; `pod` is the pod's name as a kubelet writes it."""
        seconds = f"{delay.total_seconds():.0f}s"
        message = f"back-off {seconds} restarting failed container={self.name} pod={pod}"
        self.blocked = {"reason": "CrashLoopBackOff", "message": message}

    def status(self) -> dict[str, Any]:
        """Return its `v1.ContainerStatus`."""
        state, last_state = self.state, self.last_state
        if self.blocked is not None:
            last_state = state if "terminated" in state else last_state
            state = {"waiting": self.blocked}
        running = "running" in state
        return {
            "name": self.name,
            "image": self.spec.get("image") or "",
            "imageID": "",
            "ready": self.exit_code == 0 if self.init and not self.is_sidecar else running,
            "started": running,
            "restartCount": self.restarts,
            "state": state,
            "lastState": last_state,
        } | ({"containerID": self._container_id()} if self.pid is not None else {})

    def _container_id(self) -> str:
        """Contains the pid, so that a person who lists containers can find the process with `ps`."""
        return f"process://{self.pid}"


def _backoff(doublings: int) -> timedelta:
    return min(_MAX_BACKOFF, _FIRST_BACKOFF * (1 << min(doublings, 10)))
