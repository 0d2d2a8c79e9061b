"""The actor: looks at what changed and ended in a batch, and on a full sync also at executors without a pod.

The end of each pod UID is reported once.
"""

from __future__ import annotations

import logging
import math
from typing import TYPE_CHECKING, assert_never

import msgspec
from cachetools import TTLCache

from actors.lifecycle.adoption import Adoption
from actors.lifecycle.cleanup import Cleanup
from actors.lifecycle.connections import Connections, judged
from actors.lifecycle.driver_intents import DECOMMISSIONED, DriverIntents
from actors.lifecycle.pending_pods import PendingPods
from actors.lifecycle.reported_ends import ReportedEnds
from actors.messages import internal
from actors.pods.loss import LossReason, disconnected, explain, missing
from actors.pods.pod import INACTIVE_LABEL, Pod
from actors.pods.state import PodRules, PodRunning, PodState, PodSucceeded, PodTerminating, PodUnknown
from actors.runtime import Actor, Address, Context, Moment, elapsed
from actors.text import get_logger

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from actors.kube.api import Manifest
    from actors.lifecycle.connections import Lost
    from actors.pods.snapshot import Ended, PodsSnapshot
    from actors.pods.stuck import Stuck
    from actors.settings.model import Settings

__all__ = ["LifecycleManager"]

logger = get_logger(__name__)


class _Executor(msgspec.Struct, gc=False):
    """An executor that was reported to the Backend or registered by the driver, and that has not ended."""

    since: Moment
    """When it was reported or registered."""
    uid: str | None = None
    kind: type[PodState] | None = None
    """The last observed state. None after our restart: every state is reported again, the Backend drops known ones."""
    pod: Pod | None = None
    """Its last pod, once the snapshot does not have it; after our restart, the one that the Backend knew."""
    registered_at: Moment | None = None
    absent_since: Moment | None = None
    """When the first full sync without its pod was requested; None while the pod is visible."""


class LifecycleManager(Actor):
    """Subscribes to the SnapshotStore at `executor.event_processing_interval` once it has the ledger.

    Args:
        context: see `Actor`.
        settings: of the Backend.
        rules: how pods are classified.
        namespace: of the pods, for the log.
        store: the SnapshotStore.
        pool: the RequestPool.
        backend: receives the reports.
        owners: of the executors, as ownerReferences.
    """

    def __init__(
        self,
        context: Context,
        *,
        settings: Settings,
        rules: PodRules,
        namespace: str,
        store: Address,
        pool: Address,
        backend: Address,
        owners: tuple[Manifest, ...] = (),
    ) -> None:
        super().__init__(context)
        self._settings = settings.executor
        self._rules = rules
        self._namespace = namespace
        self._store = store
        self._pool = pool
        self._backend = backend
        self._adoption = Adoption(owners)
        self._snapshot: PodsSnapshot | None = None
        """The newest snapshot, None before the first full sync."""
        self._states: Mapping[int, PodState] = {}
        """The states of the newest snapshot."""
        self._told_states: Mapping[int, PodState] | None = None
        """Those that the Backend was told last."""
        self._taking_over: int | None = None
        """The serial of the `TakeOver` that waits for the first full sync."""
        self._adopting: internal.TakeOver | None = None
        """The one that waits for a full sync with all pods of previous drivers."""
        self._executors: dict[int, _Executor] = {}
        self._intents = DriverIntents(self._settings)
        self._connections = Connections()
        self._pending = PendingPods(self._settings.stuck_timeout)
        self._cleanup = Cleanup(self._settings, settings.draining)
        ttl, timer = self._settings.removed_executors_ttl, self.clock.monotonic
        self._reported = ReportedEnds(ttl, timer)
        self._abandoned: TTLCache[int, bool] = TTLCache(math.inf, ttl.total_seconds(), timer=timer)
        """Pods of these ids are deleted when they are observed. When a later one is reported as seen, the Backend
        recognizes the id and abandons it again."""
        self._urgent_since: Moment | None = None
        """When the store received the first of the ends that are being reported."""
        self._confirming: dict[str, Ended] = {}
        """By UID: pods that left the snapshot without a deletion, until a GET shows whether they still exist."""

    def receive(self, message: internal.ToLifecycleManager) -> object:  # noqa: C901, PLR0912 - one case a message
        """Handle one message."""
        match message:
            case internal.LedgerLoaded(ledger, observed=observed):
                self._load_ledger(ledger.values(), observed)
            case (
                internal.ExecutorRegistered(executor_id)
                | internal.ExecutorKilled(executor_id)
                | internal.ExecutorDecommissioned(executor_id)
                | internal.ConnectionLost(executor_id)
                | internal.DrainEnded(executor_id)
            ) if self._reported.has_ended(executor_id):
                pass  # the Backend sent it before it received our report
            case internal.ExecutorRegistered(executor_id, at):
                self._executors.setdefault(executor_id, _Executor(since=at)).registered_at = at
                self._connections.connect(executor_id, at)
            case internal.ExecutorKilled(executor_id):
                self._intents.kill(message)
                self._label(executor_id, self.clock.monotonic())
            case internal.ExecutorDecommissioned(executor_id):
                self._intents.decommission(executor_id)
                self._label(executor_id, self.clock.monotonic())
            case internal.ConnectionLost(executor_id, at, suspected):
                logger.debug("executor disconnected: executor=%d suspected=%s", executor_id, suspected)
                self._connections.lose(executor_id, at, suspected)
            case internal.DrainEnded(executor_id):
                self._drained(executor_id)
            case internal.ExecutorsScaledDown(pods):
                self._intents.scale_down(pods.values())
            case internal.ExecutorsAbandoned(executor_ids):
                self._abandon(executor_ids)
            case internal.TakeOver(serial, since):
                self._taking_over = serial
                self._adopting = message if since is not None else None
                self._take_over()
            case internal.ForgetEnded(executor_ids):
                self._forget_ended(executor_ids)
            case internal.PodConfirmed():
                self._confirmed(message)
            case internal.SnapshotBatch():
                self._round(message)
            case _:
                assert_never(message)
        return None

    def _load_ledger(self, entries: Iterable[internal.LedgerEntry], observed: Mapping[int, PodState]) -> None:
        """Restore our state from the ledger, then subscribe: the first batch has every pod."""
        live: list[internal.LedgerEntry] = []
        for entry in entries:
            if entry.abandoned:
                self._abandoned[entry.executor_id] = True
            elif entry.removed_at is not None:
                self._reported.add(entry.executor_id, entry.uid, visible=False)
            else:
                live.append(entry)
        self._intents.load(live)
        self._connections.load(live)
        for entry in live:
            since = entry.notified_at if entry.notified_at is not None else entry.registered_at
            if since is None and entry.uid is not None:  # the Allocator has observed its pod, and we reported nothing
                since = self.clock.monotonic()
            if since is not None:
                self._executors[entry.executor_id] = _Executor(
                    since, entry.uid, None, entry.pod_in(observed), entry.registered_at
                )
        self._store.tell(
            internal.AddSubscriber(self.address, self._settings.event_processing_interval, follows_starts=True)
        )

    def _abandon(self, executor_ids: Iterable[int]) -> None:
        for executor_id in executor_ids:
            self._abandoned[executor_id] = True
            self._cleanup.remove(executor_id)
            self._forget(executor_id)

    def _drained(self, executor_id: int) -> None:
        self._intents.drained(executor_id)
        if self._snapshot is not None:
            self._cleanup.remove(executor_id)
            self._clean_up(self._snapshot)

    def _clean_up(self, snapshot: PodsSnapshot) -> None:
        for request in self._cleanup.requests(snapshot):
            self._pool.tell(request)

    def _forget_ended(self, executor_ids: frozenset[int]) -> None:
        if self._snapshot is not None:
            states = self._snapshot.states
            self._backend.tell(internal.EndedForgotten(frozenset(i for i in executor_ids if i not in states)))

    def _label(self, executor_id: int, now: Moment) -> None:
        """Label the pod of a killed or decommissioned executor."""
        known, state = self._executors.get(executor_id), self._states.get(executor_id)
        if known is None or state is None or known.uid != state.pod.uid:
            return
        if (label := self._intents.label(executor_id, state.pod, now)) is not None:
            self._pool.tell(label)

    # ── a round ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _round(self, batch: internal.SnapshotBatch) -> None:
        self._urgent_since = batch.urgent_since
        for ended in batch.ended:
            self._ended(ended)
        self._withdraw(ended.state.pod for ended in batch.ended)
        now = self.clock.monotonic()
        before, self._states = self._states, batch.snapshot.states
        for executor_id in sorted(batch.changed):
            state = self._states.get(executor_id)
            if state is not None:
                self._observe(executor_id, state, now)
        self._urgent_since = None
        self._tell_states(batch)
        if batch.snapshot.full_sync_at is not None:
            self._snapshot = batch.snapshot
            self._take_over()
        if batch.full_sync:
            self._intents.synced(batch.snapshot.states)
            self._report_missing(batch.snapshot, before, now)
            self._repeat_patches(batch.snapshot)
        for executor_id, pod, stuck in self._pending.overdue(now):
            self._stuck(executor_id, pod, stuck)
        self._delete_overdue(now)
        self._remove_disconnected(now)
        self._clean_up(batch.snapshot)
        self._report_lost_nodes(now)
        self._log_held_pods()
        self._store.tell(internal.BatchDone(self.address, batch.seq))

    def _tell_states(self, batch: internal.SnapshotBatch) -> None:
        """Tell the Backend of new states. That there are none it knows better than we do before the first list."""
        is_synced = batch.snapshot.full_sync_at is not None
        if self._states is not self._told_states and (self._states or is_synced):
            changed = batch.changed.union(ended.executor_id for ended in batch.ended)
            self._backend.tell(internal.ExecutorsObserved(self._states, None if self._told_states is None else changed))
            self._told_states = self._states

    def _observe(self, executor_id: int, state: PodState, now: Moment) -> None:
        """Handle a state that has changed since the last batch."""
        uid = state.pod.uid
        reported = uid in self._reported or uid in self._confirming
        if reported:  # still or again in the snapshot: delete it, report nothing
            self._reported.remember(uid, visible=True)
        stays = not reported and executor_id not in self._abandoned
        self._cleanup.observe(executor_id, state, now, stays=stays)
        if stays and state.final:
            self._report_end(executor_id, state, visible=True)
        elif stays:
            if (adopt := self._adoption.observe(executor_id, state.pod)) is not None:
                self._pool.tell(adopt)
            self._observe_alive(executor_id, state, now)

    def _repeat_patches(self, snapshot: PodsSnapshot) -> None:
        """Request again what has no observed effect: the pool may have been suspended, or the server has refused."""
        for adopt in self._adoption.unfinished(snapshot):
            self._pool.tell(adopt)
        for label in self._intents.unfinished(snapshot, self.clock.monotonic()):
            self._pool.tell(label)

    def _take_over(self) -> None:
        """Request adoptions and report `TakenOver` after the first full sync: the Backend waits for it.

        `AdoptionEnded` follows after a full sync that was requested once nobody else could write.
        """
        if self._snapshot is None:
            return
        if self._taking_over is not None:
            self._repeat_patches(self._snapshot)
            self._backend.tell(internal.TakenOver(self._taking_over))
            self._taking_over = None
        synced_at, adopting = self._snapshot.full_sync_at, self._adopting
        if adopting is not None and adopting.since is not None and (synced_at or 0.0) >= adopting.since:
            self._backend.tell(internal.AdoptionEnded(adopting.serial))
            self._adopting = None

    def _observe_alive(self, executor_id: int, state: PodState, now: Moment) -> None:
        """Report a live executor when its state begins, not when details of the pod change."""
        known = self._executors.get(executor_id)
        if known is None:
            known = self._executors[executor_id] = _Executor(since=now)
        is_new = known.uid != state.pod.uid or known.kind is not type(state)
        known.uid, known.kind, known.absent_since = state.pod.uid, type(state), None
        if is_new:
            if isinstance(state, PodUnknown):
                phase = state.pod.status.phase if state.pod.status else None
                logger.warning(
                    "unknown phase, executor counted as alive: executor=%d namespace=%s pod=%s phase=%s",
                    executor_id,
                    self._namespace,
                    state.pod.name,
                    phase,
                )
            logger.debug(
                "executor seen: executor=%d pod=%s state=%s", executor_id, state.pod.name, type(state).__name__
            )
            self._backend.tell(internal.ExecutorSeen(executor_id, state.pod.uid, state))
        self._intents.observe_alive(executor_id, state.pod)
        self._label(executor_id, now)
        if isinstance(state, PodRunning):
            self._intents.forget_pod(state.pod.uid)
        if (stuck := self._pending.follow(executor_id, state, now)) is not None:
            self._stuck(executor_id, state.pod, stuck)

    def _stuck(self, executor_id: int, pod: Pod, stuck: Stuck) -> None:
        logger.info("executor stuck: executor=%d reason=%s message=%s", executor_id, stuck.reason, stuck.message)
        self._backend.tell(internal.StuckObserved(executor_id, pod.uid, stuck, pod))

    def _withdraw(self, pods: Iterable[Pod]) -> None:
        """Have no more sent to pods that left the snapshot: they may live on outside the fleet."""
        if left := {pod.name: pod.uid for pod in pods}:
            self._pool.tell(internal.WithdrawRequests(left))

    def _ended(self, ended: Ended) -> None:
        """Handle a pod that left the snapshot."""
        self._cleanup.left(ended.executor_id)
        if self._reported.left(ended.uid) or ended.uid in self._confirming:
            return
        if ended.executor_id in self._abandoned:
            self._reported.remember(ended.uid, visible=False)
        elif not ended.confirmed:
            self._confirming[ended.uid] = ended
            self._pool.tell(internal.ConfirmPod(ended.executor_id, ended.state.pod.name, ended.uid, self.myself))
        else:
            self._report_end(ended.executor_id, ended.state)

    def _confirmed(self, answer: internal.PodConfirmed) -> None:
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
        """Report why an executor ended. A success that was not requested is logged for the operator."""
        pod = state.pod
        requested = self._intents.requested_end(executor_id, pod.uid)
        decommissioned = self._intents.is_decommissioned(executor_id)
        reason = explain(
            executor_id,
            state,
            self._rules,
            requested=requested,
            finished=DECOMMISSIONED if decommissioned else None,
            released=released,
            node_lost=node_lost,
            waited=self._pending.cause(executor_id),
        )
        if isinstance(state, PodSucceeded):
            expected = requested is not None or decommissioned or pod.terminating
            level = logging.DEBUG if expected else logging.INFO
            logger.log(level, "executor succeeded: executor=%d pod=%s expected=%s", executor_id, pod.name, expected)
        else:
            logger.debug("executor ended: executor=%d pod=%s state=%s", executor_id, pod.name, type(state).__name__)
        self._remove(executor_id, pod.uid, reason, pod, visible=visible)

    def _forget(self, executor_id: int) -> None:
        """Forget an executor that ended or was abandoned."""
        self._executors.pop(executor_id, None)
        self._pending.forget(executor_id)
        self._adoption.forget(executor_id)
        self._intents.forget(executor_id)
        self._connections.forget(executor_id)

    def _remove(
        self, executor_id: int, uid: str | None, reason: LossReason, pod: Pod | None, *, visible: bool = False
    ) -> None:
        """Report the end of an executor, once. A pod that appears later is deleted and not reported."""
        self._forget(executor_id)
        if uid is not None:
            self._intents.forget_pod(uid)
        self._reported.add(executor_id, uid, visible=visible)
        self._backend.tell(internal.RemoveExecutor(executor_id, uid, reason, self._urgent_since, pod))

    # ── at the end of a round ────────────────────────────────────────────────────────────────────────────────

    def _report_missing(self, snapshot: PodsSnapshot, before: Mapping[int, PodState], now: Moment) -> None:
        """Report the executors without a pod in two full syncs; `before` has the states of the last round.

        After the first one, the end may still be on its way: the store reports it with the DELETED event, or at the
        next LIST at the latest.
        """
        synced_at = snapshot.full_sync_at
        if synced_at is None:
            return
        unconfirmed = {ended.executor_id for ended in self._confirming.values()}
        absent = sorted(self._executors.keys() - snapshot.states.keys() - unconfirmed)
        for executor_id in absent:
            if (state := before.get(executor_id)) is not None:
                self._executors[executor_id].pod = state.pod
        self._withdraw(pod for executor_id in absent if (pod := self._executors[executor_id].pod) is not None)
        for executor_id in absent:
            executor = self._executors[executor_id]
            if executor.absent_since is None:
                executor.absent_since = synced_at
            overdue = elapsed(executor.since, now) >= self._settings.missing_pod_detect_delta
            if overdue and executor.absent_since < synced_at:
                logger.info("executor missing: executor=%d", executor_id)
                requested = self._intents.requested_end(executor_id, executor.uid)
                registered_at = executor.registered_at
                reason = missing(
                    executor_id,
                    executor.pod,
                    self._rules,
                    requested,
                    absent=elapsed(executor.absent_since, now),
                    registered=None if registered_at is None else elapsed(registered_at, now),
                )
                self._remove(executor_id, executor.uid, reason, executor.pod)

    def _delete_overdue(self, now: Moment) -> None:
        """Delete drained executors, and killed ones after their grace period; the Backend has requested that once."""
        for executor_id in self._intents.overdue(now):
            self._cleanup.remove(executor_id)

    def _remove_disconnected(self, now: Moment) -> None:
        """Remove executors that have been disconnected for too long: they are useless, even if their pods run."""
        overdue: list[tuple[int, Lost, str, PodState]] = []
        for executor_id, lost in self._connections.overdue(now, self._settings.disconnect_timeout):
            known, state = self._executors.get(executor_id), self._states.get(executor_id)
            if known is None or state is None or known.uid != state.pod.uid or isinstance(state, PodTerminating):
                continue  # not observed yet, terminating, or gone from the snapshot: its end will be reported
            if not self._intents.is_killed(executor_id):  # a killed one ends anyway
                overdue.append((executor_id, lost, known.uid, state))
        if not overdue:
            return
        peers = self._connections.peers(now, self._settings.disconnect_timeout, self._running())
        for executor_id, lost, uid, state in overdue:
            hung, why = judged(lost, state, peers, now)
            logger.info("executor removed, disconnected for too long: executor=%d hung=%s", executor_id, hung)
            self._connections.give_up(executor_id, state.pod.node)
            self._cleanup.remove(executor_id)
            reason = disconnected(executor_id, state.pod, self._rules, hung=hung, why=why)
            self._remove(executor_id, uid, reason, state.pod, visible=True)

    def _running(self) -> Iterator[tuple[int, PodState]]:
        """Yield the executors that run, without killed ones."""
        for executor_id, state in self._states.items():
            if isinstance(state, PodRunning) and not self._intents.is_killed(executor_id):
                yield executor_id, state

    def _report_lost_nodes(self, now: Moment) -> None:
        """Report executors whose pods outlive their grace period: their nodes no longer respond."""
        for executor_id, state in self._cleanup.overdue(now):
            known = self._executors.get(executor_id)
            if known is not None and known.uid == state.pod.uid:
                self._report_end(executor_id, state, visible=True, node_lost=True)

    def _log_held_pods(self) -> None:
        """Log, once, the pods that finalizers hold: an operator may have to remove them."""
        for executor_id, pod, since in self._cleanup.held(self.clock.now()):
            finalizers = list(pod.metadata.finalizers or ())
            text = "pod held by finalizers: executor=%d pod=%s finalizers=%s since=%s"
            logger.warning(text, executor_id, pod.name, finalizers, since.isoformat())
