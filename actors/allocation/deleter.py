"""Deletions: whom the Allocator gives up, takes back or replaces, and who hears of it in which order.

A plain object in the Allocator's hands, which tells it once a round. A newly created executor that is given up is
deleted in case it comes up; a pending pod is deleted only as it was last seen, so that one which has started meanwhile
survives; Backend always hears first.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from actors.kube.api import DeleteOptions
from actors.messages import NOT_DESIRED, DeletePod, ExecutorsAbandoned, ExecutorsScaledDown, WithdrawPods

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from actors.allocation.executor_tracker import ExecutorTracker
    from actors.allocation.start_failures import StartFailures
    from actors.manifests.executor_pod import ExecutorManifests
    from actors.pods.pod import Pod
    from actors.pods.snapshot import PodsSnapshot
    from actors.pods.state import PodState
    from actors.runtime import Address, Clock

__all__ = ["Deleter"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Deleter:
    """Of one Allocator."""

    clock: Clock
    tracker: ExecutorTracker
    starts: StartFailures
    manifests: ExecutorManifests
    pool: Address
    backend: Address

    def give_up_overdue(self, snapshot: PodsSnapshot) -> None:
        """Those that never appeared are deleted, in case they do, and their number is requested anew in this round."""
        now = self.clock.monotonic()
        if ids := self.tracker.overdue(snapshot, now):
            logger.warning("executors were not seen after their creation, giving them up: ids=%s", list(ids))
            seconds = self.tracker.unseen_timeout.total_seconds()
            self.take_back(ids, f"no pod was seen within {seconds:g} s after its creation")
        self.tracker.forget_given_up(now)

    def replace_stuck(self, snapshot: PodsSnapshot) -> None:
        """Delete those that will never run, unless they have got on since: they are missing then, and made anew."""
        for executor_id, state in self.tracker.hopeless(snapshot, self.clock.monotonic()):
            if self.starts.replaced(state.pod.uid):
                logger.warning("one will never run, replacing it: executor=%d pod=%s", executor_id, state.pod.name)
            self._delete(state)

    def drop_lost(self) -> None:
        """Those whose request is lost and that the driver has ended since."""
        self.take_back(self.tracker.lost_and_ended(), NOT_DESIRED)

    def delete_surplus(self, missing: Mapping[str, int], snapshot: PodsSnapshot, *, stale: bool) -> None:
        """Where there are too many, short of those that go already; of a stale snapshot only what is not made yet."""
        for profile, count in missing.items():
            excess = -count - self.tracker.going(snapshot, profile)
            if excess > 0:
                excess -= self._withdraw(profile, excess)
            if excess > 0 and not stale:
                self._delete_so_many(profile, excess, snapshot)

    def forget(self, executor_ids: Iterable[int], why: str, *, created: bool = True) -> None:
        """Give ids up. Their pods may have been made, unless not `created`."""
        ids = tuple(executor_ids)
        for executor_id in ids:
            self.tracker.give_up(executor_id, self.clock.monotonic())
        if ids:
            self.backend.tell(ExecutorsAbandoned(ids, why, created))

    def take_back(self, executor_ids: tuple[int, ...], why: str) -> None:
        """Give ids up, and delete what may exist of them."""
        pods = [(self.manifests.pod_name(i), self.tracker.newly[i].pod) for i in executor_ids]
        self.forget(executor_ids, why)
        for name, pod in pods:
            self.pool.tell(DeletePod(name, DeleteOptions(uid=pod.uid if pod is not None else None)))

    def take_back_shown(self, executor_id: int, pod: Pod) -> None:
        """One that was made though nobody wanted it any more, unless it is in use by now."""
        if executor_id not in self.tracker.registered:
            self.backend.tell(ExecutorsScaledDown({executor_id: pod.uid}))
            self.starts.taken_back(pod.uid)
            self.pool.tell(DeletePod(pod.name, DeleteOptions(uid=pod.uid)))

    def _withdraw(self, profile: str, excess: int) -> int:
        """Those that wait for a POST are not made. Said in each round, for one on the wire may come back to wait."""
        ids = self.tracker.unanswered(profile)[:excess]
        if ids:
            self.pool.tell(WithdrawPods(frozenset(ids)))
        return len(ids)

    def _delete_so_many(self, profile: str, excess: int, snapshot: PodsSnapshot) -> None:
        unseen, pending = self.tracker.surplus(excess, snapshot, profile, self.clock.monotonic())
        if unseen or pending:
            logger.info(
                "deleting executors that are too many: profile=%s newly_created=%d pending=%d",
                profile,
                len(unseen),
                len(pending),
            )
        self.take_back(unseen, NOT_DESIRED)
        if pending:
            self.backend.tell(
                ExecutorsScaledDown({executor_id: state.pod.uid for executor_id, state in pending.items()})
            )
        for state in pending.values():
            self.starts.taken_back(state.pod.uid)
            self._delete(state)

    def _delete(self, state: PodState) -> None:
        """If it is still as we know it: one that has started meanwhile survives."""
        options = DeleteOptions(uid=state.pod.uid, resource_version=state.pod.resource_version)
        self.pool.tell(DeletePod(state.pod.name, options))
