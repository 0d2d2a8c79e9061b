"""LifecycleManager: tells Backend what became of each executor, and clears away the pods of those that ended.

It looks at what a batch says changed and ended, and on a full sync at what should be there and is not. Each pod UID's
end is told once; the API is asked to delete a final pod in every round that still shows it. It creates nothing, counts
nothing, and never decides how many executors there should be.
"""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, TypeAlias, assert_never, cast

from cachetools import TTLCache

from actors.kube.api import DeleteOptions, Manifest
from actors.lifecycle.adoption import Adoption
from actors.lifecycle.driver_intents import DECOMMISSIONED, DriverIntents
from actors.lifecycle.pending_pods import PendingPods
from actors.lifecycle.reported_ends import ReportedEnds
from actors.messages import (
    AddSubscriber,
    BatchDone,
    ConfirmPod,
    ConnectionLost,
    DeletePod,
    EndedForgotten,
    ExecutorDecommissioned,
    ExecutorKilled,
    ExecutorRegistered,
    ExecutorsAbandoned,
    ExecutorSeen,
    ExecutorsObserved,
    ExecutorsScaledDown,
    ForgetEnded,
    LabelPod,
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
from actors.pods.state import (
    PodDeleted,
    PodPending,
    PodRules,
    PodRunning,
    PodState,
    PodSucceeded,
    PodTerminating,
    PodUnknown,
)
from actors.runtime import Actor, Address, Context

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from actors.lifecycle.driver_intents import Mark
    from actors.pods.snapshot import Ended, PodsSnapshot
    from actors.pods.stuck import Stuck
    from actors.settings.model import Settings

__all__ = ["LifecycleManager"]

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class _Executor:
    """An executor that Backend was told of, or that the driver registered, and that has not ended."""

    since: float
    """When that was (monotonic)."""
    uid: str | None = None
    state: PodState | None = None
    """What was last seen of it; None after our restart, so that all is told anew (Backend drops what it knows)."""
    pod: Pod | None = None


_FromDriver: TypeAlias = ExecutorRegistered | ExecutorKilled | ExecutorDecommissioned | ConnectionLost


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
        self._absent: dict[int, float] = {}
        """Those of them that the last full sync did not show, and when the first such was asked for (monotonic)."""
        self._marks: dict[int, Mark] = {}
        """What their pods were last asked to be marked with."""
        self._wishes = DriverIntents(self._settings)
        self._waiting = PendingPods(self._settings.stuck_timeout)
        self._unwanted: dict[int, PodState] = {}
        """Pods that the snapshot shows and that should go, asked for in every round: final ones, and live ones of
        executors that were killed, given up, or told to have ended (and back since: relabelled, or from a backup)."""
        self._terminating: dict[int, tuple[PodTerminating, float]] = {}
        """Executors about to go, and since when (monotonic)."""
        ttl, timer = self._settings.removed_executors_ttl, self.clock.monotonic
        self._told = ReportedEnds(ttl, timer)
        self._given_up: TTLCache[int, bool] = TTLCache(math.inf, ttl.total_seconds(), timer=timer)
        """What comes up under these ids is deleted on sight. Once forgotten here, Backend knows such an id for one that
        it has given out before, and says so again."""
        self._since: float | None = None
        """When the store had what shows the ends that are being told (monotonic)."""
        self._confirming: dict[str, Ended] = {}
        """By UID: pods that left without a deletion, until a GET has said where to."""

    def receive(self, message: object) -> object:
        """One case a message."""
        message = cast("ToLifecycleManager", message)
        match message:
            case LedgerLoaded(ledger, shown=shown):
                self._learn(ledger.values(), shown)
            case ExecutorRegistered() | ExecutorKilled() | ExecutorDecommissioned() | ConnectionLost():
                if not self._told.has_ended(message.executor_id):  # Backend may hear of that after it has said this
                    self._take_in(message)
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

    def _take_in(self, word: _FromDriver) -> None:
        """What the driver says of an executor, through Backend."""
        executor_id = word.executor_id
        match word:
            case ExecutorRegistered(_, at):
                self._executors.setdefault(executor_id, _Executor(since=at))
                self._wishes.connected(executor_id)
            case ExecutorKilled():
                self._wishes.kill(word)
                self._mark(executor_id, self.clock.monotonic())
            case ExecutorDecommissioned():
                self._wishes.decommission(executor_id)
                self._mark(executor_id, self.clock.monotonic())
            case ConnectionLost(_, at):
                logger.debug("disconnected, its pod will say why: executor=%d", executor_id)
                self._wishes.disconnected(executor_id, at)
            case _:
                assert_never(word)

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
            since = entry.told_at if entry.told_at is not None else entry.registered_at
            if since is not None:
                self._executors[entry.executor_id] = _Executor(since, entry.uid, None, entry.pod_in(shown))
        self._store.tell(AddSubscriber(self.address, self._settings.event_processing_interval))

    def _give_up(self, executor_ids: Iterable[int]) -> None:
        for executor_id in executor_ids:
            self._given_up[executor_id] = True
            executor = self._executors.get(executor_id)
            self._forget(executor_id)
            self._terminating.pop(executor_id, None)
            self._want_no_more(executor, executor_id)

    def _find_gone(self, executor_ids: frozenset[int]) -> None:
        if (states := self._states) is not None:
            self._backend.tell(EndedForgotten(frozenset(i for i in executor_ids if i not in states)))

    def _mark(self, executor_id: int, now: float) -> None:
        """Mark the pod of one that is asked to go, for whoever looks at it; what a pod shows is not asked for again."""
        known = self._executors.get(executor_id)
        if known is None or known.state is None or known.state.pod.terminating:
            return
        pod = known.state.pod
        mark = self._wishes.mark(executor_id, pod, now)
        if mark and mark != self._marks.get(executor_id):
            self._marks[executor_id] = mark
            self._pool.tell(LabelPod(pod.name, pod.uid, mark.labels, mark.annotations))

    def _want_no_more(self, executor: _Executor | None, executor_id: int) -> None:
        """From the next round on, ask for the end of one that is shown, unless it is under way."""
        if executor is not None and executor.state is not None and not isinstance(executor.state, PodTerminating):
            self._unwanted[executor_id] = executor.state

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
            self._look_for_missing(batch.snapshot)
            self._ask_again_for_adoption()
        self._look_for_stuck()
        self._end_killed()
        self._remove_disconnected()
        self._clear_away()
        self._give_up_terminating()
        self._store.tell(BatchDone(self.address, batch.seq))

    def _shown(self, executor_id: int, state: PodState, now: float) -> None:
        """A state that is new since the last batch."""
        uid = state.pod.uid
        told = uid in self._told or uid in self._confirming
        if told:  # shown again, or still, after its end was told: nothing to tell, but to be cleared away
            self._told.remember(uid, visible=True)
        if state.final:
            if not told and executor_id not in self._given_up:
                self._report_end(executor_id, state, visible=True)
            if not isinstance(state, PodDeleted):
                self._unwanted[executor_id] = state
            return
        abandoned = executor_id in self._given_up
        if (abandoned or told) and not isinstance(state, PodTerminating):
            self._unwanted[executor_id] = state
        else:
            self._unwanted.pop(executor_id, None)
        if not told and not abandoned:
            self._adopt(executor_id, state.pod)
            self._alive(executor_id, state, now)

    def _adopt(self, executor_id: int, pod: Pod) -> None:
        adopt = self._adoption.see(executor_id, pod)
        if adopt is not None:
            self._pool.tell(adopt)

    def _ask_again_for_adoption(self) -> None:
        for adopt in self._adoption.open():
            self._pool.tell(adopt)

    def _take_over(self) -> None:
        """Adopt what is not ours, as soon as the whole fleet was seen; Backend waits for that to go on."""
        if self._states is not None and self._taking_over is not None:
            self._ask_again_for_adoption()
            self._backend.tell(TakenOver(self._taking_over))
            self._taking_over = None

    def _alive(self, executor_id: int, state: PodState, now: float) -> None:
        """Tell Backend when a state begins, not when a detail of it changes."""
        known = self._executors.get(executor_id)
        if known is None:
            known = self._executors[executor_id] = _Executor(since=now)
        news = known.uid != state.pod.uid or type(known.state) is not type(state)
        known.uid, known.state, known.pod = state.pod.uid, state, state.pod
        self._absent.pop(executor_id, None)
        if not isinstance(state, PodTerminating):
            self._terminating.pop(executor_id, None)  # a cluster restored from a backup takes deletions back
        elif executor_id not in self._terminating or self._terminating[executor_id][0].pod.uid != state.pod.uid:
            self._terminating[executor_id] = (state, now)
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
        self._mark(executor_id, now)
        if isinstance(state, PodRunning):
            self._wishes.runs(state.pod.uid)
        if not isinstance(state, PodPending):
            self._waiting.over(executor_id)
        elif (stuck := self._waiting.shown(executor_id, state.pod, now)) is not None:
            self._stuck(executor_id, state.pod, stuck)

    def _stuck(self, executor_id: int, pod: Pod, stuck: Stuck) -> None:
        logger.info("stuck: executor=%d reason=%s message=%s", executor_id, stuck.reason, stuck.message)
        self._backend.tell(StuckObserved(executor_id, pod.uid, stuck))

    def _ended(self, ended: Ended) -> None:
        """A pod left the snapshot."""
        self._unwanted.pop(ended.executor_id, None)
        self._terminating.pop(ended.executor_id, None)
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
        self._absent.pop(executor_id, None)
        self._marks.pop(executor_id, None)
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

    def _look_for_missing(self, snapshot: PodsSnapshot) -> None:
        """Executors that should be there and that neither the snapshot nor an end accounts for.

        One that a LIST does not show may still have its end under way (the store tells it with the DELETED event, or
        at the next LIST at the latest), so the second full sync without it decides.
        """
        synced_at = snapshot.full_sync_at
        if synced_at is None:
            return
        now = self.clock.monotonic()
        unconfirmed = {ended.executor_id for ended in self._confirming.values()}
        absent = self._executors.keys() - snapshot.states.keys() - unconfirmed
        self._absent = {executor_id: self._absent.get(executor_id, synced_at) for executor_id in sorted(absent)}
        for executor_id, absent_at in list(self._absent.items()):
            executor = self._executors[executor_id]
            overdue = timedelta(seconds=now - executor.since) >= self._settings.missing_pod_detect_delta
            if overdue and absent_at < synced_at:
                logger.info("missing, no pod of it is left: executor=%d", executor_id)
                asked = self._wishes.asked(executor_id, executor.uid)
                self._remove(executor_id, executor.uid, missing(executor_id, executor.pod, self._rules, asked))

    def _look_for_stuck(self) -> None:
        for executor_id, pod, stuck in self._waiting.overdue(self.clock.monotonic()):
            self._stuck(executor_id, pod, stuck)

    def _end_killed(self) -> None:
        """Backend has them deleted when their time is over; what is still shown after that is asked for again."""
        for executor_id in self._wishes.to_end(self.clock.monotonic()):
            self._want_no_more(self._executors.get(executor_id), executor_id)

    def _remove_disconnected(self) -> None:
        """An executor that has been without a connection for so long is of no use, whatever its pod does."""
        for executor_id in self._wishes.lost(self.clock.monotonic(), self._settings.disconnect_timeout):
            known = self._executors.get(executor_id)
            if known is None or known.state is None or isinstance(known.state, PodTerminating):
                continue  # not shown, or about to go: its end will be told
            logger.info("disconnected for too long, removing it: executor=%d", executor_id)
            self._want_no_more(known, executor_id)
            reason = disconnected(executor_id, known.state.pod, self._rules)
            self._remove(executor_id, known.uid, reason, visible=True)

    def _clear_away(self) -> None:
        """Ask for what should go and is still shown. The pool takes the same request once while it is open."""
        for state in self._unwanted.values():
            pod = state.pod
            if state.final and not self._settings.delete_on_termination:
                self._pool.tell(LabelPod(pod.name, pod.uid, {INACTIVE_LABEL: "true"}))
            else:
                self._pool.tell(DeletePod(pod.name, DeleteOptions(uid=pod.uid)))

    def _give_up_terminating(self) -> None:
        """A pod that outlives its grace period by far is on a node that nobody hears from."""
        now = self.clock.monotonic()
        for executor_id, (state, since) in list(self._terminating.items()):
            grace = timedelta(seconds=state.pod.metadata.deletion_grace_period_seconds or 0)
            if timedelta(seconds=now - since) < grace + self._settings.terminating_timeout:
                continue
            del self._terminating[executor_id]
            if state.pod.uid not in self._told:
                self._report_end(executor_id, state, visible=True, node_lost=True)
