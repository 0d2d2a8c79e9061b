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
from typing import TYPE_CHECKING, assert_never, cast

from cachetools import TTLCache

from actors.kube.api import DeleteOptions
from actors.loss import LossReason, explain, missing
from actors.messages import (
    AddSubscriber,
    BatchDone,
    ConfirmPod,
    DeletePod,
    ExecutorDisconnected,
    ExecutorKilled,
    ExecutorRegistered,
    ExecutorSeen,
    ExecutorsGivenUp,
    ExecutorsKnown,
    LabelPod,
    LedgerEntry,
    PodConfirmed,
    RemoveExecutor,
    SnapshotBatch,
    ToLifecycleManager,
)
from actors.pods import INACTIVE_LABEL, Pod, PodDeleted, PodRules, PodState, PodSucceeded, PodTerminating, PodUnknown
from actors.runtime import Actor, Address, Context

if TYPE_CHECKING:
    from collections.abc import Iterable

    from actors.settings import Settings
    from actors.snapshot import Ended, PodsSnapshot

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
    absent_at: float | None = None
    """When the full sync was asked for that first did not show it (monotonic)."""


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
    ) -> None:
        super().__init__(context)
        self._settings = settings.executor
        self._rules = rules
        self._store = store
        self._pool = pool
        self._backend = backend
        self._executors: dict[int, _Executor] = {}
        self._killed: set[int] = set()
        self._unwanted: dict[int, PodState] = {}
        """Pods that the snapshot shows and that should go, asked for in every round: final ones, and live ones of
        executors that were killed, given up, or told to have ended (and back since: relabelled, or from a backup)."""
        self._terminating: dict[int, tuple[PodTerminating, float]] = {}
        """Executors about to go, and since when (monotonic)."""
        self._told: set[str] = set()
        """UIDs whose end was told and that the snapshot still shows."""
        ttl = self._settings.removed_executors_ttl.total_seconds()
        self._gone: TTLCache[str, bool] = TTLCache(math.inf, ttl, timer=self.clock.monotonic)
        """UIDs whose end was told and that the snapshot no longer shows."""
        self._given_up: TTLCache[int, bool] = TTLCache(math.inf, ttl, timer=self.clock.monotonic)
        """What comes up under these ids is deleted on sight. Once forgotten here, Backend knows such an id for one that
        it has given out before, and says so again."""
        self._confirming: dict[str, Ended] = {}
        """By UID: pods that left without a deletion, until a GET has said where to."""

    def receive(self, message: object) -> object:
        """One case a message."""
        message = cast("ToLifecycleManager", message)
        match message:
            case ExecutorsKnown(ledger):
                self._learn(ledger.values())
            case ExecutorRegistered(executor_id, at):
                self._executors.setdefault(executor_id, _Executor(since=at))
            case ExecutorKilled(executor_id):
                self._kill(executor_id)
            case ExecutorDisconnected():
                logger.debug("disconnected, its pod will say why: executor=%d", message.executor_id)
            case ExecutorsGivenUp(executor_ids):
                self._give_up(executor_ids)
            case PodConfirmed():
                self._confirmed(message)
            case SnapshotBatch():
                self._round(message)
            case _:
                assert_never(message)
        return None

    def _learn(self, entries: Iterable[LedgerEntry]) -> None:
        """Take the ledger up at a start, then subscribe: the first batch shows everything."""
        for entry in entries:
            if entry.given_up:
                self._given_up[entry.executor_id] = True
                continue
            if entry.removed_at is not None:
                if entry.uid is not None:
                    self._gone[entry.uid] = True
                continue
            if entry.killed:
                self._killed.add(entry.executor_id)
            since = entry.told_at if entry.told_at is not None else entry.registered_at
            if since is not None:
                self._executors[entry.executor_id] = _Executor(since, entry.uid, None, entry.pod)
        self._store.tell(AddSubscriber(self.address, self._settings.event_processing_interval))

    def _kill(self, executor_id: int) -> None:
        self._killed.add(executor_id)
        self._want_no_more(self._executors.get(executor_id), executor_id)

    def _give_up(self, executor_ids: Iterable[int]) -> None:
        for executor_id in executor_ids:
            self._given_up[executor_id] = True
            self._killed.discard(executor_id)
            self._terminating.pop(executor_id, None)
            self._want_no_more(self._executors.pop(executor_id, None), executor_id)

    def _want_no_more(self, executor: _Executor | None, executor_id: int) -> None:
        """From the next round on, ask for the end of one that is shown, unless it is under way."""
        if executor is not None and executor.state is not None and not isinstance(executor.state, PodTerminating):
            self._unwanted[executor_id] = executor.state

    # ── a round ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _round(self, batch: SnapshotBatch) -> None:
        for ended in batch.ended:
            self._ended(ended)
        for executor_id in sorted(batch.changed):
            state = batch.snapshot.states.get(executor_id)
            if state is not None:
                self._shown(executor_id, state)
        if batch.full_sync:
            self._look_for_missing(batch.snapshot)
        self._clear_away()
        self._give_up_terminating()
        self._store.tell(BatchDone(self.address, batch.seq))

    def _shown(self, executor_id: int, state: PodState) -> None:
        """A state that is new since the last batch."""
        uid = state.pod.uid
        told = uid in self._told or uid in self._gone or uid in self._confirming
        if told:  # shown again, or still, after its end was told: nothing to tell, but to be cleared away
            self._gone.pop(uid, None)
            self._told.add(uid)
        if state.final:
            if not told and executor_id not in self._given_up:
                self._report_end(executor_id, state)
                self._told.add(uid)
            if not isinstance(state, PodDeleted):
                self._unwanted[executor_id] = state
            return
        given_up = executor_id in self._given_up
        if (told or given_up or executor_id in self._killed) and not isinstance(state, PodTerminating):
            self._unwanted[executor_id] = state
        else:
            self._unwanted.pop(executor_id, None)
        if not told and not given_up:
            self._alive(executor_id, state)

    def _alive(self, executor_id: int, state: PodState) -> None:
        """Tell Backend when a state begins, not when a detail of it changes."""
        known = self._executors.get(executor_id)
        if known is None:
            known = self._executors[executor_id] = _Executor(since=self.clock.monotonic())
        news = known.uid != state.pod.uid or type(known.state) is not type(state)
        known.uid, known.state, known.pod, known.absent_at = state.pod.uid, state, state.pod, None
        if isinstance(state, PodTerminating) and (
            executor_id not in self._terminating or self._terminating[executor_id][0].pod.uid != state.pod.uid
        ):
            self._terminating[executor_id] = (state, self.clock.monotonic())
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

    def _ended(self, ended: Ended) -> None:
        """A pod left the snapshot."""
        self._unwanted.pop(ended.executor_id, None)
        self._terminating.pop(ended.executor_id, None)
        if ended.uid in self._told:
            self._told.discard(ended.uid)
            self._gone[ended.uid] = True
        elif ended.uid in self._gone or ended.uid in self._confirming:
            return
        elif ended.executor_id in self._given_up:
            self._gone[ended.uid] = True
        elif not ended.confirmed:
            self._confirming[ended.uid] = ended
            self._pool.tell(ConfirmPod(ended.executor_id, ended.state.pod.name, ended.uid, self.myself))
        else:
            self._report_end(ended.executor_id, ended.state)
            self._gone[ended.uid] = True

    def _confirmed(self, answer: PodConfirmed) -> None:
        ended = self._confirming.pop(answer.uid, None)
        if ended is not None:
            pod = answer.pod
            released = pod is not None and not pod.terminating and pod.labels.get(INACTIVE_LABEL) != "true"
            self._report_end(ended.executor_id, ended.state, released=released)
            self._gone[ended.uid] = True

    def _report_end(
        self, executor_id: int, state: PodState, *, released: bool = False, node_lost: bool = False
    ) -> None:
        """Tell Backend. One that succeeds though nobody asked it to go is unusual enough for an operator to see."""
        killed = executor_id in self._killed
        reason = explain(
            executor_id, state, self._rules, killed_by_driver=killed, released=released, node_lost=node_lost
        )
        if isinstance(state, PodSucceeded):
            asked = killed or state.pod.terminating
            level = logging.DEBUG if asked else logging.INFO
            logger.log(level, "succeeded: executor=%d pod=%s asked=%s", executor_id, state.pod.name, asked)
        else:
            logger.debug("ended: executor=%d pod=%s state=%s", executor_id, state.pod.name, type(state).__name__)
        self._remove(executor_id, state.pod.uid, reason)

    def _remove(self, executor_id: int, uid: str | None, reason: LossReason) -> None:
        self._executors.pop(executor_id, None)
        self._killed.discard(executor_id)
        self._backend.tell(RemoveExecutor(executor_id, uid, reason))

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
        for executor_id, executor in list(self._executors.items()):
            if executor_id in snapshot.states or executor_id in unconfirmed:
                executor.absent_at = None
                continue
            overdue = timedelta(seconds=now - executor.since) >= self._settings.missing_pod_detect_delta
            if overdue and executor.absent_at is not None and executor.absent_at < synced_at:
                logger.info("missing, no pod of it is left: executor=%d", executor_id)
                self._remove(executor_id, executor.uid, missing(executor_id, executor.pod, self._rules))
            elif executor.absent_at is None:
                executor.absent_at = synced_at

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
                self._told.add(state.pod.uid)
                self._report_end(executor_id, state, node_lost=True)
