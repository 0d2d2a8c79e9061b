"""LifecycleManager: tells Backend what became of each executor, and clears away the pods of those that ended.

It looks at what a batch says changed and ended, and on a full sync at what should be there and is not. Each pod UID's
end is told once; the API is asked to delete a final pod in every round that still shows it. It creates nothing, counts
nothing, and never decides how many executors there should be.
"""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, assert_never, cast

from cachetools import TTLCache

from actors.lifecycle.adoption import Adoption
from actors.lifecycle.cleanup import Cleanup
from actors.lifecycle.driver_intents import DECOMMISSIONED, DriverIntents
from actors.lifecycle.pending_pods import PendingPods
from actors.lifecycle.reported_ends import ReportedEnds
from actors.messages import (
    AddSubscriber,
    BatchDone,
    ConfirmPod,
    ConnectionLost,
    EndedForgotten,
    ExecutorDecommissioned,
    ExecutorKilled,
    ExecutorRegistered,
    ExecutorsAbandoned,
    ExecutorSeen,
    ExecutorsObserved,
    ExecutorsScaledDown,
    ForgetEnded,
    LedgerEntry,
    LedgerLoaded,
    PodConfirmed,
    RemoveExecutor,
    SnapshotBatch,
    StuckObserved,
    TakenOver,
    TakeOver,
    ToLifecycleManager,
)
from actors.pods.loss import LossReason, disconnected, explain, missing
from actors.pods.pod import INACTIVE_LABEL, Pod
from actors.pods.state import PodPending, PodRules, PodRunning, PodState, PodSucceeded, PodTerminating, PodUnknown
from actors.runtime import Actor, Address, Context, Moment, elapsed

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from actors.kube.api import Manifest
    from actors.pods.snapshot import Ended, PodsSnapshot
    from actors.pods.stuck import Stuck
    from actors.settings.model import Settings

__all__ = ["LifecycleManager"]

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class _Executor:
    """An executor that Backend was told of, or that the driver registered, and that has not ended."""

    since: Moment
    """When that was."""
    uid: str | None = None
    state: PodState | None = None
    """What was last seen of it; None after our restart, so that all is told anew (Backend drops what it knows)."""
    pod: Pod | None = None
    absent_since: Moment | None = None
    """When the first of the full syncs was asked for that have not shown it, up to the last one."""


class LifecycleManager(Actor):
    """Subscribes to the store at `executor.event_processing_interval` once it has the ledger."""

    def __init__(
        self,
        context: Context,
        *,
        settings: Settings,
        rules: PodRules,
        store: Address,
        pool: Address,
        backend: Address,
        owner: Manifest | None = None,
    ) -> None:
        super().__init__(context)
        self._settings = settings.executor
        self._rules = rules
        self._store = store
        self._pool = pool
        self._backend = backend
        self._adoption = Adoption(owner)
        """`owner` is the driver's pod as an ownerReference, which pods of an earlier life do not have yet."""
        self._states: Mapping[int, PodState] | None = None
        """What was last shown, None before the whole fleet was."""
        self._taking_over: int | None = None
        """Who asked for that, and waits."""
        self._executors: dict[int, _Executor] = {}
        self._wishes = DriverIntents(self._settings)
        self._waiting = PendingPods(self._settings.stuck_timeout)
        self._cleanup = Cleanup(self._settings)
        ttl, timer = self._settings.removed_executors_ttl, self.clock.monotonic
        self._told = ReportedEnds(ttl, timer)
        self._given_up: TTLCache[int, bool] = TTLCache(math.inf, ttl.total_seconds(), timer=timer)
        """What comes up under these ids is deleted on sight. Once forgotten here, Backend knows such an id for one that
        it has given out before, and says so again."""
        self._since: Moment | None = None
        """When the store had what shows the ends that are being told."""
        self._confirming: dict[str, Ended] = {}
        """By UID: pods that left without a deletion, until a GET has said where to."""

    def receive(self, message: object) -> object:  # noqa: C901, PLR0912 - one case a message
        """One case a message."""
        message = cast("ToLifecycleManager", message)
        match message:
            case LedgerLoaded(ledger, observed=shown):
                self._learn(ledger.values(), shown)
            case (
                ExecutorRegistered(executor_id)
                | ExecutorKilled(executor_id)
                | ExecutorDecommissioned(executor_id)
                | ConnectionLost(executor_id)
            ) if self._told.has_ended(executor_id):
                pass  # Backend may hear of that after it has said this
            case ExecutorRegistered(executor_id, at):
                self._executors.setdefault(executor_id, _Executor(since=at))
                self._wishes.connected(executor_id)
            case ExecutorKilled(executor_id):
                self._wishes.kill(message)
                self._label(executor_id, self.clock.monotonic())
            case ExecutorDecommissioned(executor_id):
                self._wishes.decommission(executor_id)
                self._label(executor_id, self.clock.monotonic())
            case ConnectionLost(executor_id, at):
                logger.debug("disconnected, its pod will say why: executor=%d", executor_id)
                self._wishes.disconnected(executor_id, at)
            case ExecutorsScaledDown(pods):
                self._wishes.take_back(pods.values())
            case ExecutorsAbandoned(executor_ids):
                self._give_up(executor_ids)
            case TakeOver(serial):
                self._taking_over = serial
                self._take_over()
            case ForgetEnded(executor_ids):
                self._find_gone(executor_ids)
            case PodConfirmed():
                self._confirmed(message)
            case SnapshotBatch():
                self._round(message)
            case _:
                assert_never(message)
        return None

    def _learn(self, entries: Iterable[LedgerEntry], shown: Mapping[int, PodState]) -> None:
        """Take the ledger up at a start, then subscribe: the first batch shows everything."""
        live: list[LedgerEntry] = []
        for entry in entries:
            if entry.abandoned:
                self._given_up[entry.executor_id] = True
            elif entry.removed_at is not None:
                self._told.tell(entry.executor_id, entry.uid, visible=False)
            else:
                live.append(entry)
        self._wishes.learn(live)
        for entry in live:
            since = entry.notified_at if entry.notified_at is not None else entry.registered_at
            if since is not None:
                self._executors[entry.executor_id] = _Executor(since, entry.uid, None, entry.pod_in(shown))
        self._store.tell(AddSubscriber(self.address, self._settings.event_processing_interval))

    def _give_up(self, executor_ids: Iterable[int]) -> None:
        for executor_id in executor_ids:
            self._given_up[executor_id] = True
            if (executor := self._executors.get(executor_id)) is not None:
                self._cleanup.remove(executor_id, executor.state)
            self._forget(executor_id)

    def _find_gone(self, executor_ids: frozenset[int]) -> None:
        if (states := self._states) is not None:
            self._backend.tell(EndedForgotten(frozenset(i for i in executor_ids if i not in states)))

    def _label(self, executor_id: int, now: Moment) -> None:
        """Label the pod of one that is asked to go, for whoever looks at it."""
        known = self._executors.get(executor_id)
        if known is None or known.state is None or known.state.pod.terminating:
            return
        if (label := self._wishes.label(executor_id, known.state.pod, now)) is not None:
            self._pool.tell(label)

    # ── a round ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _round(self, batch: SnapshotBatch) -> None:
        self._since = batch.urgent_since
        for ended in batch.ended:
            self._ended(ended)
        now = self.clock.monotonic()
        for executor_id in sorted(batch.changed):
            state = batch.snapshot.states.get(executor_id)
            if state is not None:
                self._shown(executor_id, state, now)
        self._since = None
        if batch.changed or batch.ended:
            self._backend.tell(ExecutorsObserved(batch.snapshot.states))
        if batch.snapshot.full_sync_at is not None:
            self._states = batch.snapshot.states
            self._take_over()
        if batch.full_sync:
            self._wishes.synced(batch.snapshot.states)
            self._look_for_missing(batch.snapshot, now)
            self._ask_again_for_adoption()
        for executor_id, pod, stuck in self._waiting.overdue(now):
            self._stuck(executor_id, pod, stuck)
        self._end_killed(now)
        self._remove_disconnected(now)
        for request in self._cleanup.requests():
            self._pool.tell(request)
        self._give_up_terminating(now)
        self._store.tell(BatchDone(self.address, batch.seq))

    def _shown(self, executor_id: int, state: PodState, now: Moment) -> None:
        """A state that is new since the last batch."""
        uid = state.pod.uid
        told = uid in self._told or uid in self._confirming
        if told:  # shown again, or still, after its end was told: nothing to tell, but to be cleared away
            self._told.remember(uid, visible=True)
        stays = not told and executor_id not in self._given_up
        self._cleanup.observe(executor_id, state, now, stays=stays)
        if stays and state.final:
            self._report_end(executor_id, state, visible=True)
        elif stays:
            if (adopt := self._adoption.see(executor_id, state.pod)) is not None:
                self._pool.tell(adopt)
            self._alive(executor_id, state, now)

    def _ask_again_for_adoption(self) -> None:
        for adopt in self._adoption.open():
            self._pool.tell(adopt)

    def _take_over(self) -> None:
        """Adopt what is not ours, as soon as the whole fleet was seen; Backend waits for that to go on."""
        if self._states is not None and self._taking_over is not None:
            self._ask_again_for_adoption()
            self._backend.tell(TakenOver(self._taking_over))
            self._taking_over = None

    def _alive(self, executor_id: int, state: PodState, now: Moment) -> None:
        """Tell Backend when a state begins, not when a detail of it changes."""
        known = self._executors.get(executor_id)
        if known is None:
            known = self._executors[executor_id] = _Executor(since=now)
        news = known.uid != state.pod.uid or type(known.state) is not type(state)
        known.uid, known.state, known.pod, known.absent_since = state.pod.uid, state, state.pod, None
        if news:
            if isinstance(state, PodUnknown):
                phase = state.pod.status.phase if state.pod.status else None
                logger.warning(
                    "a phase that nobody knows, counted as alive: executor=%d pod=%s phase=%s",
                    executor_id,
                    state.pod.name,
                    phase,
                )
            self._backend.tell(ExecutorSeen(executor_id, state.pod.uid, state))
        self._label(executor_id, now)
        if isinstance(state, PodRunning):
            self._wishes.forget_pod(state.pod.uid)
        if not isinstance(state, PodPending):
            self._waiting.over(executor_id)
        elif (stuck := self._waiting.shown(executor_id, state.pod, now)) is not None:
            self._stuck(executor_id, state.pod, stuck)

    def _stuck(self, executor_id: int, pod: Pod, stuck: Stuck) -> None:
        logger.info("stuck: executor=%d reason=%s message=%s", executor_id, stuck.reason, stuck.message)
        self._backend.tell(StuckObserved(executor_id, pod.uid, stuck))

    def _ended(self, ended: Ended) -> None:
        """A pod left the snapshot."""
        self._cleanup.left(ended.executor_id)
        if self._told.left(ended.uid) or ended.uid in self._confirming:
            return
        if ended.executor_id in self._given_up:
            self._told.remember(ended.uid, visible=False)
        elif not ended.confirmed:
            self._confirming[ended.uid] = ended
            self._pool.tell(ConfirmPod(ended.executor_id, ended.state.pod.name, ended.uid, self.myself))
        else:
            self._report_end(ended.executor_id, ended.state)

    def _confirmed(self, answer: PodConfirmed) -> None:
        ended = self._confirming.pop(answer.uid, None)
        if ended is not None:
            pod = answer.pod
            released = pod is not None and not pod.terminating and pod.labels.get(INACTIVE_LABEL) != "true"
            self._report_end(ended.executor_id, ended.state, released=released)

    def _report_end(
        self,
        executor_id: int,
        state: PodState,
        *,
        visible: bool = False,
        released: bool = False,
        node_lost: bool = False,
    ) -> None:
        """Tell Backend. One that succeeds though nobody asked it to go is unusual enough for an operator to see."""
        asked = self._wishes.asked(executor_id, state.pod.uid)
        finishing = self._wishes.is_finishing(executor_id)
        reason = explain(
            executor_id,
            state,
            self._rules,
            asked=asked,
            finished=DECOMMISSIONED if finishing else None,
            released=released,
            node_lost=node_lost,
        )
        if isinstance(state, PodSucceeded):
            expected = asked is not None or finishing or state.pod.terminating
            level = logging.DEBUG if expected else logging.INFO
            logger.log(level, "succeeded: executor=%d pod=%s asked=%s", executor_id, state.pod.name, expected)
        else:
            logger.debug("ended: executor=%d pod=%s state=%s", executor_id, state.pod.name, type(state).__name__)
        self._remove(executor_id, state.pod.uid, reason, visible=visible)

    def _forget(self, executor_id: int) -> None:
        """It has ended, or does not count."""
        self._executors.pop(executor_id, None)
        self._waiting.forget(executor_id)
        self._adoption.forget(executor_id)
        self._wishes.forget(executor_id)

    def _remove(self, executor_id: int, uid: str | None, reason: LossReason, *, visible: bool = False) -> None:
        """Its end is told now, and never again; should its pod turn up after this, it is nobody's."""
        self._forget(executor_id)
        if uid is not None:
            self._wishes.forget_pod(uid)
        self._told.tell(executor_id, uid, visible=visible)
        self._backend.tell(RemoveExecutor(executor_id, uid, reason, self._since))

    # ── what a round does besides ────────────────────────────────────────────────────────────────────────────────

    def _look_for_missing(self, snapshot: PodsSnapshot, now: Moment) -> None:
        """Executors that should be there and that neither the snapshot nor an end accounts for.

        One that a LIST does not show may still have its end under way (the store tells it with the DELETED event, or
        at the next LIST at the latest), so the second full sync without it decides.
        """
        synced_at = snapshot.full_sync_at
        if synced_at is None:
            return
        unconfirmed = {ended.executor_id for ended in self._confirming.values()}
        for executor_id in sorted(self._executors.keys() - snapshot.states.keys() - unconfirmed):
            executor = self._executors[executor_id]
            if executor.absent_since is None:
                executor.absent_since = synced_at
            overdue = elapsed(executor.since, now) >= self._settings.missing_pod_detect_delta
            if overdue and executor.absent_since < synced_at:
                logger.info("missing, no pod of it is left: executor=%d", executor_id)
                asked = self._wishes.asked(executor_id, executor.uid)
                self._remove(executor_id, executor.uid, missing(executor_id, executor.pod, self._rules, asked))

    def _end_killed(self, now: Moment) -> None:
        """Backend has them deleted when their time is over; what is still shown after that is asked for again."""
        for executor_id in self._wishes.to_end(now):
            if (executor := self._executors.get(executor_id)) is not None:
                self._cleanup.remove(executor_id, executor.state)

    def _remove_disconnected(self, now: Moment) -> None:
        """An executor that has been without a connection for so long is of no use, whatever its pod does."""
        for executor_id in self._wishes.lost(now, self._settings.disconnect_timeout):
            known = self._executors.get(executor_id)
            if known is None or known.state is None or isinstance(known.state, PodTerminating):
                continue  # not shown, or about to go: its end will be told
            logger.info("disconnected for too long, removing it: executor=%d", executor_id)
            self._cleanup.remove(executor_id, known.state)
            reason = disconnected(executor_id, known.state.pod, self._rules)
            self._remove(executor_id, known.uid, reason, visible=True)

    def _give_up_terminating(self, now: Moment) -> None:
        """A pod that outlives its grace period by far is on a node that nobody hears from."""
        for executor_id, state in self._cleanup.overdue(now):
            known = self._executors.get(executor_id)
            if known is not None and known.uid == state.pod.uid:
                self._report_end(executor_id, state, visible=True, node_lost=True)
