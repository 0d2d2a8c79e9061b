"""A simulated scheduler and kubelet: pods change state on a clock, by a script, without processes.

It writes what a real node writes, in the same order, so that a watch cannot tell the difference. Everything happens in
callbacks of the store and of timers: no threads, no sleeping, no chance. Each pod runs once, as with
`restartPolicy: Never`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from threading import RLock
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from actors.local.kubelet import pod_status
from actors.local.kubelet.delays import Delays
from actors.local.kubelet.pod_status import Ended
from actors.local.kubelet.processes.containers import SHUTDOWN_WINDOW, hook_of
from actors.local.kubelet.scheduler import is_schedulable
from actors.local.schema.statuses import ApiStatus
from actors.local.store.objects import FINAL_PHASES, rfc3339
from actors.manifests.pause import pause_of

if TYPE_CHECKING:
    from actors.local.store.object_store import ObjectStore, WatchMessage
    from actors.runtime import Clock, Scheduled, TimerService

__all__ = ["Plan", "Run", "Script", "ScriptedKubelet", "StayUnscheduled", "StayWaiting"]

_SIGKILL_EXIT: Final = 137
_SIGTERM_EXIT: Final = 143
_EVICTED: Final = "The node was low on resource: memory."
_NODE_GONE: Final = "PodGC: node no longer exists"


@dataclass(frozen=True, slots=True)
class Run:
    """The pod starts, runs, and ends by itself or when it is deleted."""

    start_delay: timedelta | None = None
    """From its binding to its running; None: the kubelet's."""
    exits_after: timedelta | None = None
    """From its running to its own end; None: it runs until it is deleted."""
    exit_code: int = 0
    """The exit code of its own end."""
    stop_delay: timedelta | None = None
    """From SIGTERM, which follows its deletion and its preStop hook, to its end; None: the kubelet's. If that is longer
    than what is left of the grace period, it is killed."""
    stop_exit_code: int = _SIGTERM_EXIT
    """The exit code after SIGTERM."""
    pre_stop: timedelta | None = None
    """How long the command of a preStop hook runs, unless its container ends before. None: that of `drain_timeout` as
    long as it says, another not at all. A hook that sleeps says so itself."""


@dataclass(frozen=True, slots=True)
class StayWaiting:
    """The pod is bound and never starts, with a waiting reason such as `ImagePullBackOff`."""

    reason: str = "ContainerCreating"
    message: str = ""


@dataclass(frozen=True, slots=True)
class StayUnscheduled:
    """No node has room for the pod."""

    message: str = "0/1 nodes are available: 1 Insufficient cpu."


Plan: TypeAlias = Run | StayWaiting | StayUnscheduled
Script: TypeAlias = Callable[[Mapping[str, Any]], Plan]
"""Returns the plan of a pod; called once per pod, at its first event."""


@dataclass(slots=True)
class _Sandbox:
    """What the kubelet knows of one pod, by its UID."""

    namespace: str
    name: str
    uid: str
    plan: Plan
    timers: list[Scheduled] = field(default_factory=list)
    running: bool = False
    """Its containers have started and not all ended."""
    terminating: bool = False
    """It is being deleted, and the kubelet has begun to end it."""
    exited: set[str | None] = field(default_factory=set)
    """The containers that have exited, None for all: the kubelet may not have noticed yet."""
    asleep_until: datetime | None = None
    """Until when a preStop hook sleeps. A kubelet does not notice before that that a container has ended."""


class ScriptedKubelet:
    """One node of a store. Works from its construction until `close`.

    Args:
        store: the cluster.
        clock: for timestamps.
        timers: for delays.
        node: the name of the node; created in the store if it does not exist.
        start_delay: from a pod's binding to its running, unless its plan has another.
        stop_delay: from SIGTERM to a pod's end, unless its plan has another; at most the grace period.
        script: the plan of each pod; by default pods run until they are deleted.
        delays: what a start and an end take beside that; by default no time.
    """

    def __init__(
        self,
        store: ObjectStore,
        clock: Clock,
        timers: TimerService,
        *,
        node: str = "local",
        start_delay: timedelta = timedelta(0),
        stop_delay: timedelta = timedelta(0),
        script: Script | None = None,
        delays: Delays | None = None,
    ) -> None:
        self.script: Script = script or (lambda _: Run())
        """May be replaced at any time; applies to pods that are first seen later."""
        self._store = store
        self._clock = clock
        self._timers = timers
        self._node = node
        self._start_delay = start_delay
        self._stop_delay = stop_delay
        self._delays = delays or Delays()
        self._sandboxes: dict[str, _Sandbox] = {}
        self._held: list[Callable[[], None]] | None = None
        self._lock = RLock()  # the store and the timers may call from different threads
        try:
            store.create("nodes", None, pod_status.scripted_node(node, self._now()))
        except ApiStatus as status:
            if status.reason != "AlreadyExists":
                raise
        self._subscription = store.watch("pods", None, lambda message: self._do(lambda: self._on_message(message)))

    def close(self) -> None:
        """Stop working: pods stay as they are."""
        self._subscription.cancel()
        with self._lock:
            self._held = None
            for uid in list(self._sandboxes):
                self._forget(uid)

    # ── For tests ─────────────────────────────────────────────────────────────────────────────────────────────────

    def run(self, name: str, *, namespace: str = "default") -> None:
        """Start a pod that waits, whatever its plan."""
        with self._lock:
            sandbox = self._find(namespace, name)
            self._bind(sandbox, bound=False)
            self._start(sandbox)

    def keep_waiting(self, name: str, reason: str, message: str = "", *, namespace: str = "default") -> None:
        """Let a pod that has not started wait with this reason, until `run`."""
        with self._lock:
            sandbox = self._find(namespace, name)
            _cancel_timers(sandbox)
            self._bind(sandbox, bound=False)
            pod = self._read(sandbox)
            if pod is not None:
                self._write(sandbox, pod_status.waiting(pod, reason, message, self._now()))

    def exit(
        self,
        name: str,
        code: int,
        reason: str | None = None,
        *,
        message: str = "",
        container: str | None = None,
        namespace: str = "default",
    ) -> None:
        """End a running pod's containers (or the named one) by themselves; `message` is their termination message."""
        with self._lock:
            self._exit(self._find(namespace, name), Ended.with_code(code, reason, message), only=container)

    def oom(
        self, name: str, *, code: int = _SIGKILL_EXIT, container: str | None = None, namespace: str = "default"
    ) -> None:
        """End a running pod for its memory, as the kernel does. On a real node, too, the code is not always 137."""
        self.exit(name, code, "OOMKilled", container=container, namespace=namespace)

    def evict(self, name: str, *, message: str = _EVICTED, namespace: str = "default") -> None:
        """Evict a pod to save its node: failed, with reason `Evicted` and a DisruptionTarget condition."""
        with self._lock:
            sandbox = self._find(namespace, name)
            self._write(sandbox, pod_status.disruption("TerminationByKubelet", message, self._now()))
            extra = {"reason": "Evicted", "message": message}
            self._end(sandbox, Ended(_SIGKILL_EXIT, "Error"), self._now(), extra=extra)

    def disrupt(self, name: str, reason: str, *, message: str = "", namespace: str = "default") -> None:
        """Delete a pod, with the reason of a controller (`PreemptionByScheduler`, `EvictionByEvictionAPI`, …)."""
        with self._lock:
            sandbox = self._find(namespace, name)
            self._write(sandbox, pod_status.disruption(reason, message, self._now()))
            self._store.delete("pods", namespace, name, uid=sandbox.uid)

    def lose(self, name: str, *, namespace: str = "default") -> None:
        """Lose the node of one pod: no kubelet ends it, the garbage collector of pods fails and deletes it."""
        with self._lock:
            sandbox = self._find(namespace, name)
            gone = pod_status.disruption("DeletionByPodGC", _NODE_GONE, self._now())
            self._write(sandbox, {**gone, "phase": "Failed"})
            self._delete(sandbox)

    def hold(self) -> None:
        """Stop reacting, like a lost or overloaded node: no pod starts or ends until `release`."""
        with self._lock:
            if self._held is None:
                self._held = []

    def release(self) -> None:
        """Do everything that was due since `hold`."""
        with self._lock:
            held, self._held = self._held, None
            for step in held or ():
                step()

    # ── Events of the store and of timers ─────────────────────────────────────────────────────────────────────────

    def _do(self, step: Callable[[], None]) -> None:
        with self._lock:
            if self._held is None:
                step()
            else:
                self._held.append(step)

    def _on_message(self, message: WatchMessage) -> None:
        pod = message.object
        metadata, node = pod["metadata"], pod["spec"].get("nodeName")
        uid = metadata["uid"]
        if message.type == "DELETED":
            self._forget(uid)
        elif node is not None and node != self._node:
            return
        elif uid not in self._sandboxes:
            self._admit(uid, pod)
        elif "deletionTimestamp" in metadata:
            self._terminate(self._sandboxes[uid], pod)

    def _admit(self, uid: str, pod: Mapping[str, Any]) -> None:
        """Run a pod that is new, or was on this node before."""
        metadata, phase = pod["metadata"], pod["status"]["phase"]
        bound = pod["spec"].get("nodeName") is not None
        mine = bound or is_schedulable(pod)
        if not mine or phase in FINAL_PHASES:
            return
        sandbox = _Sandbox(metadata["namespace"], metadata["name"], uid, self.script(pod), running=phase == "Running")
        self._sandboxes[uid] = sandbox
        if "deletionTimestamp" in metadata:
            self._terminate(sandbox, pod)
            return
        if sandbox.running:
            return
        match sandbox.plan:
            case StayUnscheduled(message):
                self._write(sandbox, pod_status.unschedulable(message, self._now()))
            case StayWaiting(reason, message):
                self._bind(sandbox, bound=bound)
                self._write(sandbox, pod_status.waiting(pod, reason, message, self._now()))
            case Run(start_delay):
                self._bind(sandbox, bound=bound)
                delay = self._start_delay if start_delay is None else start_delay
                delay += self._delays.start() + _sleeps(pod, "postStart")
                self._later(sandbox, delay, lambda: self._start(sandbox))

    def _bind(self, sandbox: _Sandbox, *, bound: bool) -> None:
        if not bound:
            with suppress(ApiStatus):  # deleted meanwhile: its event follows
                self._store.bind(sandbox.namespace, sandbox.name, self._node, uid=sandbox.uid)

    def _start(self, sandbox: _Sandbox) -> None:
        pod = self._read(sandbox)
        if pod is None or sandbox.running or "deletionTimestamp" in pod["metadata"]:
            return
        sandbox.running = True
        self._write(sandbox, pod_status.running(pod, self._now()))
        plan = sandbox.plan
        if isinstance(plan, Run) and plan.exits_after is not None:
            how = Ended.with_code(plan.exit_code)
            self._later(sandbox, plan.exits_after, lambda: self._exit(sandbox, how))

    def _terminate(self, sandbox: _Sandbox, pod: Mapping[str, Any]) -> None:
        """End a pod that is being deleted.

        The order is a kubelet's (`killContainer` in `pkg/kubelet/kuberuntime`): the preStop hook, for the grace period
        at the longest; SIGTERM; and SIGKILL when what is left of the grace period is over, 2 s later at the earliest. A
        second DELETE with a shorter grace period changes nothing: see `actors.local.kubelet.stopper`.
        """
        if sandbox.terminating:
            return
        sandbox.terminating = True
        if not sandbox.running:
            self._after(sandbox, self._delays.end(), lambda: self._give_up(sandbox))
            return
        if None in sandbox.exited:  # its end is noticed soon
            return
        seconds: int = pod["metadata"]["deletionGracePeriodSeconds"]
        grace, stop_delay, code, runs = timedelta(seconds=seconds), self._stop_delay, _SIGTERM_EXIT, None
        if isinstance(sandbox.plan, Run):
            stop_delay = stop_delay if sandbox.plan.stop_delay is None else sandbox.plan.stop_delay
            code, runs = sandbox.plan.stop_exit_code, sandbox.plan.pre_stop
        sleep = _sleeps(pod, "preStop")
        pause = min(grace, max(sleep, _command_runs(pod, runs)))
        left = max(grace - pause, SHUTDOWN_WINDOW)
        sandbox.asleep_until = self._clock.now() + min(grace, sleep) if sleep else None
        how = Ended.with_code(code if stop_delay <= left else _SIGKILL_EXIT)
        self._later(sandbox, pause + min(left, stop_delay), lambda: self._exit(sandbox, how))

    def _exit(self, sandbox: _Sandbox, how: Ended, *, only: str | None = None) -> None:
        """End containers that exit by themselves; while a preStop hook sleeps, that shows once it has slept."""
        if sandbox.exited & {only, None}:
            return
        sandbox.exited.add(only)
        until, now = sandbox.asleep_until or self._clock.now(), self._clock.now()
        delay, at = max(until - now, timedelta(0)) + self._delays.end(), self._now()
        self._after(sandbox, delay, lambda: self._end(sandbox, how, at, only=only))

    def _give_up(self, sandbox: _Sandbox) -> None:
        """Write that nothing is known of the containers of a pod that never ran, and delete it."""
        pod = self._read(sandbox)
        if pod is not None and pod["spec"].get("nodeName") is not None:
            self._write(sandbox, pod_status.given_up(pod, self._now()))
        self._delete(sandbox)

    def _end(
        self,
        sandbox: _Sandbox,
        how: Ended,
        at: str,
        *,
        only: str | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        """Write that containers have ended; delete the pod if that was the last step of its deletion."""
        pod = self._read(sandbox)
        if pod is None:
            return
        status = pod_status.ended(pod, how, self._now(), only, at=at)
        if "phase" in status:
            sandbox.running = False
            _cancel_timers(sandbox)
        self._write(sandbox, {**status, **(extra or {})})
        if "phase" in status and "deletionTimestamp" in pod["metadata"]:
            self._delete(sandbox)

    # ── Calls to the store; that a pod is gone is no error ────────────────────────────────────────────────────────

    def _read(self, sandbox: _Sandbox) -> Mapping[str, Any] | None:
        """Return the pod, None if it is gone or another has its name."""
        if sandbox.uid not in self._sandboxes:
            return None
        with suppress(ApiStatus):
            pod = self._store.get("pods", sandbox.namespace, sandbox.name)
            return pod if pod["metadata"]["uid"] == sandbox.uid else None
        return None

    def _write(self, sandbox: _Sandbox, status: Mapping[str, Any]) -> None:
        patch = {"metadata": {"uid": sandbox.uid}, "status": status}
        with suppress(ApiStatus):
            self._store.patch("pods", sandbox.namespace, sandbox.name, patch, "strategic", subresource="status")

    def _delete(self, sandbox: _Sandbox) -> None:
        with suppress(ApiStatus):
            self._store.delete("pods", sandbox.namespace, sandbox.name, grace_period_seconds=0, uid=sandbox.uid)

    def _find(self, namespace: str, name: str) -> _Sandbox:
        for sandbox in self._sandboxes.values():
            if (sandbox.namespace, sandbox.name) == (namespace, name):
                return sandbox
        raise LookupError(f"node {self._node} has no pod {namespace}/{name}")

    def _forget(self, uid: str) -> None:
        sandbox = self._sandboxes.pop(uid, None)
        if sandbox is not None:
            _cancel_timers(sandbox)

    def _later(self, sandbox: _Sandbox, delay: timedelta, step: Callable[[], None]) -> None:
        sandbox.timers.append(self._timers.schedule(delay, lambda: self._do(step)))

    def _after(self, sandbox: _Sandbox, delay: timedelta, step: Callable[[], None]) -> None:
        """Take a step after a delay, at once if there is none."""
        if delay:
            self._later(sandbox, delay, step)
        else:
            step()

    def _now(self) -> str:
        return rfc3339(self._clock.now())


def _sleeps(pod: Mapping[str, Any], hook: str) -> timedelta:
    """Return how long the longest hook of this name sleeps: containers are stopped side by side."""
    found = (hook_of(container, hook) for container in pod["spec"]["containers"])
    return max((each.sleep for each in found if each is not None), default=timedelta(0))


def _command_runs(pod: Mapping[str, Any], planned: timedelta | None) -> timedelta:
    """Return how long the longest command of a preStop hook runs; `planned`, if there is one and it is given."""
    found = (hook_of(container, "preStop") for container in pod["spec"]["containers"])
    commands = [each.command for each in found if each is not None and each.command]
    return max((pause_of(each) if planned is None else planned for each in commands), default=timedelta(0))


def _cancel_timers(sandbox: _Sandbox) -> None:
    for timer in sandbox.timers:
        timer.cancel()
    sandbox.timers.clear()
