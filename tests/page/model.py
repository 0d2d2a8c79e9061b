"""A fleet that is made up: what its Backend would tell and answer, at any size and in any trouble."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from random import Random
from typing import TYPE_CHECKING, Any

from actors.messages import (
    AllocationBlocked,
    BackendStarted,
    Executor,
    ExecutorPending,
    ExecutorRemoved,
    ExecutorRunning,
    ExecutorState,
    ExecutorStuck,
    ExecutorTerminating,
    FleetChanged,
    FleetStatus,
    FollowFleet,
    HasEnoughExecutors,
    HeldPod,
    HoldFleet,
    KillExecutors,
    ProfileStatus,
    ResumeFleet,
    RetireExecutors,
    ScaleExecutors,
    SourceStatus,
    ToDriver,
)
from actors.pods.loss import LossKind, LossReason
from actors.pods.pod import PROFILE_LABEL, ObjectMeta, Pod, PodSpec, PodStatus
from actors.runtime import Actor, Context

if TYPE_CHECKING:
    from collections.abc import Callable

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>\x1b[31mred\x1b]8;;http://x\x07\u202egnp.exe\n\"'`{{7*7}}&amp;"

QUOTA = (
    'pods "etl-exec-41" is forbidden: exceeded quota: batch, requested: pods=1,requests.cpu=4, used: pods=40,'
    "requests.cpu=160, limited: pods=40,requests.cpu=160"
)

OUTAGE = "no connection to 10.96.0.1:443: connection refused"

LOSSES = (
    (
        LossKind.EXITED,
        1,
        True,
        r"exit code 1; termination message: Traceback (most recent call last):\nValueError: bad record in part-0071",
    ),
    (LossKind.OOM_KILLED, 137, True, "exit code 137, out of memory: its limit is 4Gi"),
    (LossKind.PREEMPTED, 143, False, "preempted: preempting to accommodate a higher priority pod"),
    (LossKind.EVICTED, 143, False, "evicted: the node was low on resource: ephemeral-storage"),
    (LossKind.NODE_LOST, -1, False, "node spot-17 is gone"),
    (LossKind.KILLED_BY_DRIVER, 143, False, "was ended by the driver"),
    (LossKind.FINISHED, 0, False, "exit code 0"),
)


@dataclass
class One:
    """An executor."""

    id: int
    profile: str
    state: ExecutorState
    since: float
    node: str | None = None
    reason: str | None = None
    stuck: str | None = None
    retiring: bool = False
    registered: bool = False
    restarts: int = 0
    due: float = 0.0
    """When it goes on to its next state."""


@dataclass
class Model:
    """A made-up fleet. `step` lets time pass, tells what a driver would be told, and publishes what a Backend would."""

    size: int
    tell: Callable[[ToDriver | FleetChanged, float], None]
    scene: str = "churn"
    seed: int = 1
    life: float = 600.0
    """How many seconds an executor lives on average."""
    hostile: bool = False
    targets: dict[str, int] = field(default_factory=dict)
    alive: dict[int, One] = field(default_factory=dict)
    next_id: int = 1
    on_hold: bool = False
    now: float = 0.0
    sequence: int = 0

    def __post_init__(self) -> None:
        self.random = Random(self.seed)
        if not self.targets:
            gpu = self.size // 5
            self.targets = {"default": self.size - gpu, "gpu": gpu}

    # ── what happens ────────────────────────────────────────────────────────────────────────────────────────────

    def begin(self, now: float) -> None:
        self.now = now
        self.tell(BackendStarted("etl", "batch"), now)
        if self.scene == "blocked":
            self.tell(AllocationBlocked("default", QUOTA, "QuotaExceeded"), now + 40)

    def changed(self, one: One, now: float, loss: LossReason | None = None) -> None:
        """Publish an executor."""
        value = self._value(one)
        if loss is not None:
            value = replace(value, state=ExecutorState.ENDED, since=self._at(now), loss=loss, reason=loss.message)
        self.publish(now, value)

    def publish(self, now: float, *executors: Executor, status: FleetStatus | None = None) -> None:
        self.sequence += 1
        self.tell(FleetChanged(self.sequence, self._at(now), executors, status=status), now)

    def everything(self) -> FleetChanged:
        executors = tuple(self._value(self.alive[each]) for each in sorted(self.alive))
        return FleetChanged(self.sequence, self._at(self.now), executors, status=self.status(), complete=True)

    def step(self, now: float) -> None:
        """Let all happen that is due until `now`."""
        self.now = now
        self.publish(now, status=self.status())
        if self.scene == "outage":
            return
        for one in sorted((one for one in self.alive.values() if one.due <= now), key=lambda one: one.due):
            self._next(one, one.due)
        for profile, target in self.targets.items():
            has = sum(one.profile == profile and not one.retiring for one in self.alive.values())
            wanted = 0 if self.on_hold else target
            if self.scene == "blocked":
                wanted = min(wanted, int(target * 0.6))
            for _ in range(min(wanted - has, max(20, self.size // 4))):
                self._request(profile, now)

    def _request(self, profile: str, now: float) -> None:
        one = One(self.next_id, profile, ExecutorState.REQUESTED, now)
        one.due = now + self.random.uniform(0.05, 1.5)
        self.alive[one.id] = one
        self.next_id += 1
        self.changed(one, now)

    def _next(self, one: One, now: float) -> None:
        one.since = now
        match one.state:
            case ExecutorState.REQUESTED:
                one.state, one.due = ExecutorState.PENDING, now + self.random.uniform(0.5, 6.0)
                self.changed(one, now)
                self.tell(ExecutorPending(one.id, self.pod(one)), now)
            case ExecutorState.PENDING if self.scene == "stuck" and one.id % 4 == 1:
                reason, text = "ImagePullBackOff", 'Back-off pulling image "ghcr.io/acme/etl:8"'
                one.reason, one.stuck, one.due = f"{reason}: {text}", reason, now + 1e9
                self.changed(one, now)
                self.tell(ExecutorStuck(one.id, reason, text, self._at(now), one.profile, "node-1"), now)
            case ExecutorState.PENDING:
                one.state, one.due = ExecutorState.RUNNING, now + self.random.expovariate(1 / self.life)
                one.node, one.registered = f"node-{one.id % max(1, self.size // 8)}", True
                self.changed(one, now)
                self.tell(ExecutorRunning(one.id, self.pod(one)), now)
            case ExecutorState.RUNNING if self.random.random() < 0.5:
                self.end(one.id, "pod is being deleted", now)
            case _:
                kind, code, by_app, text = self.random.choice(LOSSES)
                del self.alive[one.id]
                message = HOSTILE if self.hostile else f"executor {one.id} {text}"
                loss = LossReason(kind, code, by_app, message)
                self.changed(one, now, loss)
                self.tell(ExecutorRemoved(one.id, loss, one.profile, one.node, self.ip(one)), now)

    def end(self, executor_id: int, reason: str, now: float, *, retiring: bool = False) -> bool:
        one = self.alive.get(executor_id)
        if one is None or one.state is ExecutorState.TERMINATING:
            return False
        one.state, one.reason, one.retiring, one.since = ExecutorState.TERMINATING, reason, retiring, now
        one.due = now + self.random.uniform(1, 8)
        self.changed(one, now)
        self.tell(ExecutorTerminating(one.id, None, reason, one.profile, one.node, self.ip(one), retiring), now)
        return True

    # ── what it is ──────────────────────────────────────────────────────────────────────────────────────────────

    def pod(self, one: One) -> Pod:
        name = f"etl-exec-{one.id}"
        meta = ObjectMeta(name=name, uid=f"uid-{one.id}", shared_labels={PROFILE_LABEL: one.profile})
        return Pod(meta, PodSpec(node_name=one.node or ""), PodStatus(phase="Running"), ip=self.ip(one))

    def ip(self, one: One) -> str | None:
        return None if one.node is None else f"10.{one.id >> 16 & 255}.{one.id >> 8 & 255}.{one.id & 255}"

    def _value(self, one: One) -> Executor:
        return Executor(
            one.id,
            one.profile,
            one.state,
            None if one.state is ExecutorState.REQUESTED else f"etl-exec-{one.id}",
            HOSTILE if self.hostile and one.node else one.node,
            self.ip(one),
            self._at(one.since),
            one.registered,
            one.restarts,
            HOSTILE if self.hostile else one.reason,
            None,
            one.retiring,
            one.stuck,
        )

    def status(self) -> FleetStatus:
        profiles = {name: self._profile(name, target) for name, target in self.targets.items()}
        heard = timedelta(seconds=self.now % 3)
        if self.scene == "outage":
            heard = timedelta(minutes=4)
            watch, poll = (
                SourceStatus(synced=False, since_full_sync=heard, since_heard=heard, error=OUTAGE) for _ in range(2)
            )
        else:
            watch, poll = (_fresh(self.now, heard) for _ in range(2))
        held: tuple[HeldPod, ...] = ()
        if self.scene == "stuck":
            held = (HeldPod(3, "etl-exec-3", ("acme.example/backup",), self._at(self.now - 900)),)
        status = FleetStatus("etl", "batch", profiles, {"watch": watch, "poll": poll}, held=held, lease_held=True)
        if self.scene == "standby":
            return replace(status, may_write=False, lease_held=False)
        return replace(status, on_hold=self.on_hold)

    def _profile(self, name: str, target: int) -> ProfileStatus:
        ours = [one for one in self.alive.values() if one.profile == name]

        def count(state: ExecutorState) -> int:
            return sum(one.state is state for one in ours)

        status = ProfileStatus(
            target,
            count(ExecutorState.REQUESTED),
            count(ExecutorState.PENDING),
            count(ExecutorState.RUNNING),
            count(ExecutorState.TERMINATING),
            sum(one.retiring for one in ours),
            sum(one.registered for one in ours),
        )
        if self.scene == "blocked" and name == "default":
            since = self._at(self.now - 95)
            return replace(status, blocked=QUOTA, blocked_by="QuotaExceeded", blocked_since=since)
        if self.scene == "standby":
            cause = "another driver holds the lease: etl-driver-7c9_ab12cd34"
            return replace(status, blocked=cause, blocked_by="lease", blocked_since=self._at(self.now - 60))
        if self.scene == "stuck" and name == "default":
            until = self._at(self.now + 80)
            return replace(status, start_failures=3, backoff_until=until)
        return status

    @staticmethod
    def _at(seconds: float) -> datetime:
        return datetime.fromtimestamp(seconds, UTC)


def _fresh(now: float, heard: timedelta) -> SourceStatus:
    return SourceStatus(synced=True, since_full_sync=timedelta(seconds=now % 30), since_heard=heard, error=None)


class ModelBackend(Actor):
    """Answers for a made-up fleet, as a Backend does."""

    def __init__(self, context: Context, *, model: Model) -> None:
        super().__init__(context)
        self._model = model

    def receive(self, message: object) -> Any:
        model, now = self._model, self.clock.now().timestamp()
        match message:
            case FollowFleet(follower):
                follower(model.everything())
                return None
            case HasEnoughExecutors():
                return True
            case ScaleExecutors():
                model.targets |= message.by_profile
                return ()
            case RetireExecutors(ids):
                text = "executor {} was retired by the driver"
                return tuple(each for each in ids if model.end(each, text.format(each), now, retiring=True))
            case KillExecutors(ids):
                return tuple(each for each in ids if model.end(each, f"executor {each} was ended by the driver", now))
            case HoldFleet():
                model.on_hold = True
                return tuple(each for each in [*model.alive] if model.end(each, "on hold", now, retiring=True))
            case ResumeFleet():
                model.on_hold = False
                return None
            case _:
                raise AssertionError(message)


__all__ = ["HOSTILE", "Model", "ModelBackend"]
