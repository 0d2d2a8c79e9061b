"""`PodRun`: what the process kubelet knows of one pod, and the pod status that follows from it.

It only stores and computes. `pod_runner` starts and signals processes, writes to the store and reports the results
here. The status is a real kubelet's (`pkg/kubelet/kubelet_pods.go`, `pkg/kubelet/status/generate.go`).
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from actors.local.kubelet.container_run import STATUS_UNKNOWN, ContainerRun
from actors.local.store.objects import FINAL_PHASES, rfc3339

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from datetime import datetime

    from actors.runtime import Scheduled

__all__ = ["LOOPBACK", "PodRun"]

LOOPBACK: Final = "127.0.0.1"
"""The address of the node and of every pod: they are processes of this machine."""

_LEAST_GRACE: Final = timedelta(seconds=1)
"""A kubelet takes a shorter grace period for this: `calculateEffectiveGracePeriod` in `pkg/kubelet/pod_workers.go`."""


class _Condition(NamedTuple):
    """Whether a pod condition holds (`True` or `False`), and why."""

    status: str
    reason: str | None = None
    message: str | None = None


class PodRun:
    """One pod of this node, until its object is gone.

    A kubelet does one thing at a time for a pod: it starts or stops containers, or ends the pod. What comes meanwhile,
    also a deletion, waits (`is_busy`): https://github.com/kubernetes/kubernetes/issues/113606
    """

    def __init__(self, pod: Mapping[str, Any], now: datetime) -> None:
        spec = pod["spec"]
        self.pod = pod
        self.uid: str = pod["metadata"]["uid"]
        self.namespace: str = pod["metadata"]["namespace"]
        self.name: str = pod["metadata"]["name"]
        self.restart_policy: str = spec.get("restartPolicy") or "Always"
        inits = spec.get("initContainers") or ()
        initial = {"waiting": {"reason": "PodInitializing" if inits else "ContainerCreating"}}
        self.inits = [ContainerRun(container, init=True, initial=initial) for container in inits]
        self.mains = [ContainerRun(container, init=False, initial=initial) for container in spec["containers"]]
        self.began_at = now
        self.rejected: tuple[str, str] | None = None
        """Reason and message, if the kubelet refused to run the pod."""
        self.preparing = False
        """The node prepares it: its network and its first containers."""
        self.has_sandbox = False
        """The node has prepared it: its containers may start."""
        self.ending = False
        """Its main containers, or its initialization, have ended for good: its sidecars are stopped."""
        self.terminating = False
        """It is being deleted: its containers are stopped. Its status is written again when all have ended."""
        self.stopped = False
        """All containers have ended for good: its network is taken down, its last status follows."""
        self.finished = False
        """Its last status was written."""
        self.gone = False
        """Its object is gone: its status cannot be written."""
        self.timers: dict[str, Scheduled] = {}
        """The next step of each container that waits: a restart, the end of a hook, its turn, SIGKILL, or that its end
        is noticed; by its name. The pod's own next step has no name."""
        self._given_up: str | None = None
        """Its phase before `give_up`."""
        self._shown = "Pending"
        """The phase in its last status."""
        self._transitions: dict[str, tuple[str, str]] = {}

    # ── What it consists of ───────────────────────────────────────────────────────────────────────────────────────

    @property
    def full_name(self) -> str:
        """Its name as a kubelet writes it (`format.Pod`)."""
        return f"{self.name}_{self.namespace}({self.uid})"

    def containers(self) -> Iterator[ContainerRun]:
        """All containers, in the order of their start."""
        yield from self.inits
        yield from self.mains

    def live(self) -> list[ContainerRun]:
        """The containers that the kubelet still has to wait for."""
        return [container for container in self.containers() if container.is_live]

    def cancel_timers(self) -> None:
        """Cancel every next step."""
        for timer in self.timers.values():
            timer.cancel()
        self.timers.clear()

    def close_logs(self) -> None:
        """Mark the logs complete: followers stop waiting."""
        for container in self.containers():
            if container.log is not None:
                container.log.complete = True

    # ── Its deletion ──────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def is_deleted(self) -> bool:
        """Somebody has deleted it, perhaps by force."""
        return self.gone or "deletionTimestamp" in self.pod["metadata"]

    @property
    def grace(self) -> timedelta:
        """The grace period of its end, at least a second, also of a deletion by force."""
        seconds = self.pod["metadata"].get("deletionGracePeriodSeconds")
        if seconds is None:
            seconds = self.pod["spec"].get("terminationGracePeriodSeconds") or 0
        return max(_LEAST_GRACE, timedelta(seconds=seconds))

    @property
    def has_process_1(self) -> bool:
        """The first process of a container is process 1 of its namespace: the kernel shields it from signals."""
        return not (self.pod["spec"].get("shareProcessNamespace") or self.pod["spec"].get("hostPID"))

    def may_end(self, container: ContainerRun) -> bool:
        """Return whether it is a container's turn: a sidecar ends after the main containers and later sidecars.

        `newTerminationOrdering` in `pkg/kubelet/kuberuntime/kuberuntime_termination_order.go`.
        """
        if not container.is_sidecar:
            return True
        later = self.inits[self.inits.index(container) + 1 :]
        return not any(each.is_live for each in (*self.mains, *later))

    def give_up(self) -> None:
        """Record that nothing more will be known of its containers (`TerminatePod` in `pkg/kubelet/status`)."""
        self._given_up = self._phase()
        begun = [index for index, init in enumerate(self.inits) if "waiting" not in init.state or init.last_state]
        unknown = self.inits[: max(begun, default=0) + 1]
        if self.initialized:
            unknown += self.mains
        for container in self.containers():
            container.blocked = None
        for container in unknown:
            if "terminated" not in container.state:
                container.state = {"terminated": STATUS_UNKNOWN}

    # ── Its course ────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def is_busy(self) -> bool:
        """The kubelet starts or stops a container, or waits for a hook."""
        return self.preparing or any(
            container.hook is not None
            or (container.is_live and container.stop is not None)
            or (container.key is not None and container.pid is None)
            for container in self.containers()
        )

    def restarts(self, container: ContainerRun) -> bool:
        """Return whether an ended container is to be restarted."""
        if self.is_deleted or self.is_over:
            return False
        return container.is_sidecar or self._policy_restarts(container)

    @property
    def is_over(self) -> bool:
        """All main containers have ended for good, or an init container has: sidecars do not count."""
        ends = (init for init in self.inits if not init.is_sidecar and init.exit_code not in {0, None})
        if any(not self._policy_restarts(init) for init in ends):
            return True
        return all(main.exit_code is not None and not self._policy_restarts(main) for main in self.mains)

    def next_to_start(self) -> list[ContainerRun]:
        """Return the containers to start next: the next init container, or else the main containers.

        A sidecar that has once run holds up nothing afterwards, as in `computeInitContainerActions` of
        `pkg/kubelet/kuberuntime`.
        """
        begun = max((index for index, init in enumerate(self.inits) if init.attempted), default=None)
        if begun is not None and not self._has_served(self.inits[begun]):
            return []
        after = 0 if begun is None else begun + 1
        following = self.inits[after : after + 1] or self.mains
        return [container for container in following if not container.attempted]

    @property
    def initialized(self) -> bool:
        """All init containers have succeeded, and its sidecars have started."""
        return any("waiting" not in main.state or main.last_state for main in self.mains) or all(
            self._has_served(init) for init in self.inits[-1:]
        )

    def _policy_restarts(self, container: ContainerRun) -> bool:
        failed = container.exit_code != 0
        match self.restart_policy:
            case "Never":
                return False
            case "OnFailure":
                return failed
            case _:
                return failed or not container.init

    @staticmethod
    def _has_served(init: ContainerRun) -> bool:
        return init.is_running if init.is_sidecar else init.exit_code == 0

    # ── Its status ────────────────────────────────────────────────────────────────────────────────────────────────

    def phase(self) -> str:
        """Return the pod's phase, which is final only when all of its containers have stopped.

        `SetPodStatus` in `pkg/kubelet/status` keeps the phase before that.
        """
        phase = self._phase()
        if self._given_up is not None and phase not in FINAL_PHASES:
            return "Failed"
        is_final = self.finished or (self.stopped and self.terminating)
        return phase if is_final or phase not in FINAL_PHASES else self._shown

    def _phase(self) -> str:
        """Return the phase of its containers: `getPhase` in `pkg/kubelet/kubelet_pods.go`."""
        if self._given_up is not None:
            return self._given_up
        if self.rejected is not None:
            return "Failed"
        codes = [main.exit_code for main in self.mains]
        if self.stopped and None not in codes:
            return "Failed" if any(codes) else "Succeeded"
        regular = [init for init in self.inits if not init.is_sidecar]
        if any(init.exit_code not in {0, None} and not self._policy_restarts(init) for init in regular):
            return "Failed"
        sidecars = [init for init in self.inits if init.is_sidecar]
        waits = [container for container in (*sidecars, *self.mains) if self._waits(container)]
        if waits or any(init.exit_code is None and not init.last_state for init in regular):
            return "Pending"
        if any(container.is_running for container in (*sidecars, *self.mains)):
            return "Running"
        if any(self._policy_restarts(main) for main in self.mains):
            return "Running"
        return "Succeeded" if not any(codes) else "Failed"

    @staticmethod
    def _waits(container: ContainerRun) -> bool:
        """Return whether it has never run."""
        return "waiting" in container.state and not container.last_state

    def status(self, now: datetime) -> dict[str, Any]:
        """Return the pod's `status`, as a patch of the one in the store."""
        self._shown = self.phase()
        status: dict[str, Any] = {
            "phase": self._shown,
            "conditions": self._conditions(self._phase(), rfc3339(now)),
            "hostIP": LOOPBACK,
            "hostIPs": [{"ip": LOOPBACK}],
            "startTime": rfc3339(self.began_at),
        }
        if self.rejected is not None:
            status["reason"], status["message"] = self.rejected
            return status
        if self.has_sandbox:
            status |= {"podIP": LOOPBACK, "podIPs": [{"ip": LOOPBACK}]}
        status["containerStatuses"] = [main.status() for main in self.mains]
        if self.inits:
            status["initContainerStatuses"] = [init.status() for init in self.inits]
        return status

    def _conditions(self, phase: str, now: str) -> list[dict[str, Any]]:
        ready = self._ready_condition(phase)
        known = {
            "PodReadyToStartContainers": _Condition("True" if self.has_sandbox and not self.stopped else "False"),
            "PodScheduled": _Condition("True"),
            "Initialized": self._initialized_condition(phase),
            "ContainersReady": ready,
            "Ready": ready,
        }
        return [self._condition(name, condition, now) for name, condition in known.items()]

    def _initialized_condition(self, phase: str) -> _Condition:
        begun = any("waiting" not in main.state for main in self.mains)
        names = [init.name for init in self.inits if not self._has_served(init)]
        if phase == "Succeeded":
            return _Condition("True", "PodCompleted")
        if begun or not names:
            return _Condition("True")
        return _Condition(
            "False", "ContainersNotInitialized", f"containers with incomplete status: [{' '.join(names)}]"
        )

    def _ready_condition(self, phase: str) -> _Condition:
        if phase in FINAL_PHASES:
            return _Condition("False", "PodCompleted" if phase == "Succeeded" else "PodFailed")
        sidecars = (init for init in self.inits if init.is_sidecar)
        names = [each.name for each in (*sidecars, *self.mains) if not each.is_running]
        if not names:
            return _Condition("True")
        return _Condition("False", "ContainersNotReady", f"containers with unready status: [{' '.join(names)}]")

    def _condition(self, name: str, condition: _Condition, now: str) -> dict[str, Any]:
        """Return one condition; its transition time changes only with its status."""
        previous = self._transitions.get(name)
        since = previous[1] if previous is not None and previous[0] == condition.status else now
        self._transitions[name] = (condition.status, since)
        # an explicit None in a patch removes an earlier value
        return {
            "type": name,
            "status": condition.status,
            "lastProbeTime": None,
            "lastTransitionTime": since,
            "reason": condition.reason,
            "message": condition.message,
        }
