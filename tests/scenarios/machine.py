"""Hypothesis' hand on `chaos`: it draws what the driver, the cluster and the network do, and when.

A step does one thing and lets some time pass; after each everything is looked at, and at the end the fleet must settle
down. What breaks is printed as the steps that led there.
"""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar, Final

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from actors.errors import Forbidden
from actors.local.faults.kinds import (
    DelayAnswer,
    LoseAnswer,
    Refuse,
    Stall,
    gone,
    over_quota,
    server_error,
    too_many_requests,
)
from actors.local.kubelet.scripted_kubelet import Run, StayUnscheduled, StayWaiting
from actors.messages import (
    BackendStarted,
    ExecutorBusy,
    ExecutorDrained,
    ExecutorIdle,
    ExecutorRemoved,
)
from actors.pods.pod import DEFAULT_PROFILE, INACTIVE_LABEL
from tests.scenarios.chaos import GATED, GENERATIONS, PROFILES, Chaos
from tests.scenarios.strangers import COSTLY, NONSENSE, STRAY_IDS, STRAY_PROFILES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from actors.kube.api import Operation
    from actors.local.faults.kinds import Fault
    from actors.local.kubelet.scripted_kubelet import Plan
    from actors.messages import FromDriver, Victims

__all__ = ["FleetMachine"]

PLANS: Final[Mapping[str, Plan]] = {
    "run": Run(),
    "end at once": Run(exits_after=timedelta(), exit_code=1),
    "end well": Run(exits_after=timedelta(seconds=5)),
    "take their time to stop": Run(stop_delay=timedelta(seconds=4)),
    "start slowly": Run(start_delay=timedelta(seconds=15)),
    "find no image": StayWaiting("ImagePullBackOff", "Back-off pulling image"),
    "have a wrong image": StayWaiting("InvalidImageName", "couldn't parse image name"),
    "find no secret": StayWaiting("CreateContainerConfigError", 'secret "s" not found'),
    "find no node": StayUnscheduled(),
}
"""What becomes of pods that the node sees from then on."""

FAULTS: Final[Mapping[str, Fault]] = {
    "lost answer": LoseAnswer(),
    "429": Refuse(too_many_requests(timedelta(seconds=2))),
    "500": Refuse(server_error()),
    "503": Refuse(server_error(503)),
    "forbidden": Refuse(Forbidden("pods is forbidden (injected)", status=403, reason="Forbidden")),
    "quota": Refuse(over_quota()),
    "stall": Stall(),
    "half-open": Stall(delivered=True),
    "late answer": DelayAnswer(timedelta(seconds=3)),
}
"""Without late requests and stale lists: what the network delivers after its definitive answer breaks invariant 1 by
definition, and a consistent list is never stale."""

OPERATIONS: Final[tuple[Operation, ...]] = ("create", "create", "create", "delete", "delete_collection", "list", "get")

PARTS: Final = ("allocator", "lifecycle-manager", "snapshot-store", "request-pool", "poll-source", "watch-source")

QUOTAS: Final[Mapping[str, dict[str, str] | None]] = {
    "none": None,
    "two pods": {"pods": "2"},
    "eight pods": {"pods": "8"},
    "one processor": {"requests.cpu": "1"},
    "few of both": {"pods": "3", "requests.cpu": "1"},
}

VICTIMS: Final[Mapping[str, Victims]] = {
    "newest": "newest",
    "oldest": "oldest",
    "idle": "idle",
    "lowest id": lambda executor: executor.id,
    "not connected, by node": lambda executor: (executor.registered, executor.node or ""),
}
"""Who goes first. At the end nobody is busy, so each of them ends whatever is in excess."""

KILL_GRACES: Final[Mapping[str, timedelta | None]] = {
    "none": timedelta(),
    "the setting's": None,
    "eight seconds": timedelta(seconds=8),
}

PICKS: Final = st.integers(0, 7)
AFTER: Final = st.sampled_from((0.0, 0.0, 0.004, 0.1, 1.0, 4.0))
"""Seconds. Between what a machine does in one moment, and more than a round."""
GRACES: Final = st.sampled_from((0, 1, 30))
TOTALS: Final = st.integers(0, 5)
ENDS: Final = st.sampled_from((0, 0, GENERATIONS))
"""Generations at the end: to see that a life is forgotten takes as long as the life."""


class FleetMachine(RuleBasedStateMachine):
    """One fleet's life."""

    lives: ClassVar[Counter[str]] = Counter()
    """What there was: lives, pods, seconds, and how often each reason for an end was told."""

    def __init__(self, world: Chaos | None = None) -> None:
        super().__init__()
        self.lives["lives"] += 1
        self.world = world or Chaos()
        self._sound = True
        """The last step was looked at, and nothing was broken."""

    @initialize(generations=ENDS)
    def _begin(self, generations: int) -> None:
        self.world.generations = generations

    def teardown(self) -> None:
        """The end; of a run that broke something, only the closing of what is open."""
        try:
            if self._sound:
                self.world.settle_down()
                self._count()
        finally:
            self.world.close()

    def _count(self) -> None:
        self.lives["pods"] += self.world.invariants.created
        self.lives["seconds"] += round(self.world.kit.clock.elapsed.total_seconds())
        self.lives.update(removed.reason.kind.name for removed in self.world.heard(ExecutorRemoved))

    def _do(self, action: Callable[[], object], after: float) -> None:
        self._sound = False
        action()
        self.world.go_on(after)
        self.world.look()
        self._sound = True

    # ── the driver ───────────────────────────────────────────────────────────────────────────────────────────────

    @rule(default=TOTALS, gated=st.integers(0, 3), costly=st.integers(0, 3), after=AFTER)
    def the_driver_wants(self, default: int, gated: int, costly: int, after: float) -> None:
        self._do(lambda: self.world.want({DEFAULT_PROFILE: default, GATED: gated, COSTLY: costly}), after)

    @rule(
        totals=st.dictionaries(st.sampled_from(PROFILES), st.integers(0, 4), max_size=2),
        victims=st.sampled_from(sorted(VICTIMS)),
        grace=st.sampled_from(sorted(KILL_GRACES)),
        after=AFTER,
    )
    def the_driver_scales(self, totals: dict[str, int], victims: str, grace: str, after: float) -> None:
        self._do(lambda: self.world.scale(totals, VICTIMS[victims], KILL_GRACES[grace]), after)

    @rule(which=st.integers(0, len(NONSENSE) - 1), after=AFTER)
    def the_driver_sends_nonsense(self, which: int, after: float) -> None:
        self._do(lambda: self.world.backend.tell(NONSENSE[which]), after)

    @rule(
        pick=PICKS,
        number=st.integers(1, 3),
        adjust_target=st.booleans(),
        grace=st.sampled_from(sorted(KILL_GRACES)),
        after=AFTER,
    )
    def the_driver_kills(self, pick: int, number: int, adjust_target: bool, grace: str, after: float) -> None:
        ids = self.world.present(pick, number)
        self._do(lambda: self.world.end(ids, KILL_GRACES[grace], adjust_target=adjust_target), after)

    @rule(
        pick=PICKS,
        number=st.integers(1, 3),
        adjust_target=st.booleans(),
        grace=st.sampled_from(sorted(KILL_GRACES)),
        drained=st.booleans(),
        after=AFTER,
    )
    def the_driver_retires(
        self, pick: int, number: int, adjust_target: bool, grace: str, drained: bool, after: float
    ) -> None:
        ids, deadline = self.world.present(pick, number), KILL_GRACES[grace]
        self._do(lambda: self.world.retire_some(ids, deadline, adjust_target=adjust_target, drained=drained), after)

    @rule(pick=PICKS, after=AFTER)
    def an_executor_is_drained(self, pick: int, after: float) -> None:
        self._tell_of(pick, ExecutorDrained, after)

    @rule(holds=st.booleans(), grace=st.sampled_from(sorted(KILL_GRACES)), after=AFTER)
    def the_driver_holds_or_resumes(self, holds: bool, grace: str, after: float) -> None:
        self._do(lambda: self.world.hold_or_resume(KILL_GRACES[grace], holds=holds), after)

    @rule(pick=PICKS, after=AFTER)
    def the_driver_decommissions(self, pick: int, after: float) -> None:
        ids = self.world.present(pick)
        self._do(lambda: self.world.decommission(ids), after)

    @rule(pick=PICKS, seen=st.booleans(), after=AFTER)
    def an_executor_registers(self, pick: int, seen: bool, after: float) -> None:
        ids = self.world.present(pick) if seen else self.world.requested(pick)
        self._do(lambda: self.world.register(ids), after)

    @rule(pick=PICKS, after=AFTER)
    def an_executor_loses_its_connection(self, pick: int, after: float) -> None:
        ids = self.world.connected(pick) or self.world.present(pick)
        self._do(lambda: self.world.disconnect(ids), after)

    @rule(pick=PICKS, after=AFTER)
    def an_executor_is_busy(self, pick: int, after: float) -> None:
        self._tell_of(pick, ExecutorBusy, after)

    @rule(pick=PICKS, after=AFTER)
    def an_executor_is_idle(self, pick: int, after: float) -> None:
        self._tell_of(pick, ExecutorIdle, after)

    @rule(in_order=st.booleans(), after=AFTER)
    def the_driver_starts_again(self, in_order: bool, after: float) -> None:
        if not self.world.api.outage:  # or the new one fails, and rightly so
            self._do(lambda: self.world.leave(in_order=in_order), after)

    def _tell_of(self, pick: int, message: Callable[[int], FromDriver], after: float) -> None:
        ids = self.world.present(pick)
        self._do(lambda: self.world.backend.tell(message(ids[0])) if ids else None, after)

    # ── the cluster ──────────────────────────────────────────────────────────────────────────────────────────────

    @rule(plan=st.sampled_from(sorted(PLANS)), after=AFTER)
    def new_pods(self, plan: str, after: float) -> None:
        self.world.kubelet.script = lambda _: PLANS[plan]
        self._do(lambda: None, after)

    @rule(pick=PICKS, code=st.sampled_from((0, 1, 137, 143)), after=AFTER)
    def a_pod_exits(self, pick: int, code: int, after: float) -> None:
        self._to_a_running_pod(pick, lambda name: self.world.kubelet.exit(name, code), after)

    @rule(pick=PICKS, after=AFTER)
    def a_pod_is_out_of_memory(self, pick: int, after: float) -> None:
        self._to_a_running_pod(pick, self.world.kubelet.oom, after)

    @rule(pick=PICKS, after=AFTER)
    def a_pod_is_evicted_by_its_node(self, pick: int, after: float) -> None:
        self._to_a_running_pod(pick, self.world.kubelet.evict, after)

    @rule(pick=PICKS, after=AFTER)
    def a_pod_is_preempted_or_loses_its_node(self, pick: int, after: float) -> None:
        reason = "DeletionByPodGC" if pick % 2 else "PreemptionByScheduler"
        self._to_a_running_pod(pick, lambda name: self.world.disrupt(name, reason), after)

    @rule(pick=PICKS, grace=GRACES, after=AFTER)
    def somebody_deletes_a_pod(self, pick: int, grace: int, after: float) -> None:
        self._to_a_pod(pick, lambda pod: self.world.delete(pod, grace), after)

    @rule(pick=PICKS, after=AFTER)
    def a_pod_terminates_for_ever(self, pick: int, after: float) -> None:
        self._to_a_pod(pick, self.world.hold, after)

    @rule(after=AFTER)
    def nothing_keeps_pods_from_going(self, after: float) -> None:
        self._do(self.world.let_go, after)

    @rule(pick=PICKS, after=AFTER)
    def somebody_takes_a_pod_out_of_the_fleet(self, pick: int, after: float) -> None:
        self._to_a_pod(pick, self.world.release, after)

    @rule(pick=PICKS, after=AFTER)
    def somebody_brings_a_pod_back(self, pick: int, after: float) -> None:
        self._do(lambda: self.world.bring_back(pick), after)

    @rule(pick=PICKS, after=AFTER)
    def somebody_sets_a_pod_aside(self, pick: int, after: float) -> None:
        self._to_a_pod(pick, lambda pod: self.world.label(pod["metadata"]["name"], {INACTIVE_LABEL: "true"}), after)

    @rule(pick=PICKS, after=AFTER)
    def somebody_annotates_a_pod(self, pick: int, after: float) -> None:
        self._to_a_pod(pick, lambda pod: self.world.annotate(pod["metadata"]["name"]), after)

    @rule(number=st.sampled_from(STRAY_IDS), profile=st.sampled_from(STRAY_PROFILES), after=AFTER)
    def a_stranger_creates_a_pod(self, number: str, profile: str | None, after: float) -> None:
        self._do(lambda: self.world.add_stray(number, profile), after)

    @rule(pick=PICKS, after=AFTER)
    def a_pod_gets_a_finalizer(self, pick: int, after: float) -> None:
        self._to_a_pod(pick, self.world.add_finalizer, after)

    @rule(quota=st.sampled_from(sorted(QUOTAS)), after=AFTER)
    def the_quota_is_set(self, quota: str, after: float) -> None:
        self._do(lambda: self.world.strangers.set_quota(QUOTAS[quota]), after)

    @rule(after=AFTER)
    def the_lease_is_stolen(self, after: float) -> None:
        self._do(self.world.strangers.steal_lease, after)

    @rule(after=AFTER)
    def gates_open(self, after: float) -> None:
        self._do(self.world.open_gates, after)

    @rule(after=AFTER)
    def a_backup_is_made_or_restored(self, after: float) -> None:
        self._do(self.world.restore_backup, after)

    def _to_a_pod(self, pick: int, action: Callable[[Mapping[str, Any]], object], after: float) -> None:
        pod = self.world.pick(pick)
        self._do(lambda: action(pod) if pod is not None else None, after)

    def _to_a_running_pod(self, pick: int, action: Callable[[str], object], after: float) -> None:
        pod = self.world.pick(pick, "Running")
        self._do(lambda: action(pod["metadata"]["name"]) if pod is not None else None, after)

    # ── the network, and the API server ──────────────────────────────────────────────────────────────────────────

    @rule(
        operation=st.sampled_from(OPERATIONS),
        fault=st.sampled_from(sorted(FAULTS)),
        times=st.integers(1, 3),
        after=AFTER,
    )
    def the_next_calls_fail(self, operation: Operation, fault: str, times: int, after: float) -> None:
        if fault in {"forbidden", "quota"} and not self.world.heard(BackendStarted):
            return  # a backend that starts without a right that it needs fails, and rightly so
        self._do(lambda: self.world.api.fail_next(operation, FAULTS[fault], times=times), after)

    @rule(expired=st.booleans(), after=AFTER)
    def the_next_watch_is_refused(self, expired: bool, after: float) -> None:
        self._do(lambda: self.world.api.fail_next("watch", gone() if expired else server_error()), after)

    @rule(away=st.booleans(), after=AFTER)
    def the_server_goes_away_or_comes_back(self, away: bool, after: float) -> None:
        self._do(lambda: setattr(self.world.api, "outage", away), after)

    @rule(how=st.sampled_from(("cut", "expire", "freeze", "stall", "resume")), after=AFTER)
    def the_watch(self, how: str, after: float) -> None:
        self._do(getattr(self.world.api, how), after)

    @rule(seconds=st.sampled_from((0.0, 0.3, 3.0)), after=AFTER)
    def the_watch_lags(self, seconds: float, after: float) -> None:
        self._do(lambda: setattr(self.world.api, "lag", timedelta(seconds=seconds)), after)

    @rule(after=AFTER)
    def the_server_forgets_its_history(self, after: float) -> None:
        self._do(self.world.store.expire, after)

    # ── ourselves, and time ──────────────────────────────────────────────────────────────────────────────────────

    @rule(part=st.sampled_from(PARTS), after=AFTER)
    def an_actor_crashes(self, part: str, after: float) -> None:
        self._do(lambda: self.world.kill_part(part), after)

    @rule(seconds=st.sampled_from((0.02, 0.5, 2.0, 6.0, 12.0, 25.0, 40.0)))
    def time_passes(self, seconds: float) -> None:
        self._do(lambda: None, seconds)

    @rule(seconds=st.sampled_from((20.0, 60.0, 60.0, 120.0, 600.0)))
    def much_time_passes(self, seconds: float) -> None:
        self._do(lambda: None, seconds)
