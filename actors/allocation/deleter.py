"""Deletes executors for the Allocator: overdue, lost, stuck and excess ones. Called once a round.

An abandoned executor is deleted in case its pod appears. A pending pod is deleted only in the version that was
observed: it survives if it has started meanwhile. The Backend is always notified before the delete is sent.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from actors.kube.api import DeleteOptions
from actors.messages import internal
from actors.text import get_logger

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import timedelta

    from actors.allocation.executor_tracker import ExecutorTracker
    from actors.allocation.start_failures import StartFailures
    from actors.manifests.executor_pod import ExecutorManifests
    from actors.pods.pod import Pod
    from actors.pods.snapshot import PodsSnapshot
    from actors.pods.state import PodState
    from actors.runtime import Address, Clock

__all__ = ["Deleter"]

logger = get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Deleter:
    """The deletions of one Allocator."""

    clock: Clock
    tracker: ExecutorTracker
    starts: StartFailures
    manifests: ExecutorManifests
    pool: Address
    lifecycle: Address
    backend: Address
    draining: frozenset[str] = frozenset()
    """The profiles whose pods pause before SIGTERM, unless the fleet deletes them."""

    def abandon_overdue(self, snapshot: PodsSnapshot) -> Mapping[str, Sequence[int]]:
        """Abandon executors whose pods never appeared, and return them by profile."""
        now = self.clock.monotonic()
        ids = self.tracker.overdue(snapshot, now)
        overdue: dict[str, list[int]] = {}
        for executor_id in ids:
            overdue.setdefault(self.tracker.requested[executor_id].profile, []).append(executor_id)
        if ids:
            logger.warning("executors abandoned, not observed after their creation: ids=%s", list(ids))
            seconds = self.tracker.unseen_timeout.total_seconds()
            self.abandon_and_delete(ids, f"its pod was not observed within {seconds:g} s after its creation")
        self.tracker.forget_abandoned(now)
        return overdue

    def replace_stuck(self, snapshot: PodsSnapshot) -> None:
        """Delete stuck executors, unless they have made progress meanwhile. Others are requested once they are gone."""
        for executor_id, state in self.tracker.stuck(snapshot, self.clock.monotonic()):
            if self.starts.replaced(state.pod.uid):
                logger.warning("stuck executor deleted: executor=%d pod=%s", executor_id, state.pod.name)
            self._delete(state, snapshot)

    def abandon_lost(self) -> None:
        """Abandon lost executors that the driver has killed or decommissioned."""
        self.abandon_and_delete(self.tracker.lost_and_being_ended(), internal.NOT_DESIRED)

    def delete_excess(self, missing: Mapping[str, int], snapshot: PodsSnapshot, *, stale: bool) -> None:
        """Delete excess executors, except those that are being ended. If stale, only withdraw unanswered requests."""
        for profile, count in missing.items():
            excess = -count - self.tracker.being_ended(snapshot, profile)
            if excess > 0:
                excess -= self._withdraw(profile, excess)
            if excess > 0 and not stale:
                self._delete_pods(profile, excess, snapshot)

    def abandon(self, executor_ids: Iterable[int], why: str, *, created: bool = True) -> None:
        """Abandon executors. Their pods may exist, unless not `created`."""
        ids = tuple(executor_ids)
        for executor_id in ids:
            self.tracker.abandon(executor_id, self.clock.monotonic())
        if ids:
            self._tell(internal.ExecutorsAbandoned(ids, why, created))

    def abandon_and_delete(self, executor_ids: tuple[int, ...], why: str) -> None:
        """Abandon executors, and delete the pods that may exist."""
        pods = [(self.manifests.pod_name(i), self.tracker.requested[i]) for i in executor_ids]
        self.abandon(executor_ids, why)
        for name, each in pods:
            uid = each.pod.uid if each.pod is not None else None
            options = DeleteOptions(uid=uid, grace=self._grace(each.profile))
            self.pool.tell(internal.DeletePod(name, options, goes_first=True))

    def delete_withdrawn(self, executor_id: int, pod: Pod) -> None:
        """Delete a pod that was created though its request was withdrawn, unless the executor has registered."""
        if executor_id not in self.tracker.registered:
            self._tell(internal.ExecutorsScaledDown({executor_id: pod.uid}))
            self.starts.scaled_down(pod.uid)
            self.pool.tell(internal.DeletePod(pod.name, DeleteOptions(uid=pod.uid, grace=self._grace(pod.profile))))

    def _tell(self, message: internal.ExecutorsAbandoned | internal.ExecutorsScaledDown) -> None:
        """Tell the Backend, for the ledger, and LifecycleManager, before the pod can end: its end is our doing."""
        for address in (self.backend, self.lifecycle):
            address.tell(message)

    def _grace(self, profile: str) -> timedelta | None:
        return internal.NO_PAUSE if profile in self.draining else None

    def _withdraw(self, profile: str, excess: int) -> int:
        """Withdraw unanswered requests. Repeated in each round: an in-flight one may be queued again."""
        ids = self.tracker.unanswered(profile)[:excess]
        if ids:
            self.pool.tell(internal.WithdrawPods(frozenset(ids)))
        return len(ids)

    def _delete_pods(self, profile: str, excess: int, snapshot: PodsSnapshot) -> None:
        requested, pending = self.tracker.excess(excess, snapshot, profile, self.clock.monotonic())
        if requested or pending:
            logger.info(
                "excess executors deleted: profile=%s requested=%d pending=%d", profile, len(requested), len(pending)
            )
        self.abandon_and_delete(requested, internal.NOT_DESIRED)
        if pending:
            self._tell(
                internal.ExecutorsScaledDown({executor_id: state.pod.uid for executor_id, state in pending.items()})
            )
        for state in pending.values():
            self.starts.scaled_down(state.pod.uid)
            self._delete(state, snapshot)

    def _delete(self, state: PodState, snapshot: PodsSnapshot) -> None:
        """Delete a pod in the observed version: it survives if it has started meanwhile."""
        options = DeleteOptions(uid=state.pod.uid, resource_version=state.pod.resource_version)
        self.pool.tell(internal.DeletePod(state.pod.name, options, snapshot.full_sync_at))
