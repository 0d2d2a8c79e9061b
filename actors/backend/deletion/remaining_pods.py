"""`RemainingPods`: the pods whose end a stop has not seen, from its lists and from what the pool has reported.

Before the first list, they are those of the newest snapshot, and those that were requested. A list may lack pods. One
was created and never observed: an admission step may have taken our labels off. Another comes of a request that was
lost with its pool. It decides nothing, and requests nothing.
"""

from __future__ import annotations

from datetime import timedelta
from math import inf
from typing import TYPE_CHECKING, Final

from actors.pods.ids import id_in_name
from actors.pods.pod import executor_id
from actors.runtime import elapsed, later

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from actors.executors.fleet_state import FleetState
    from actors.messages.internal import UnseenPod
    from actors.pods.pod import Pod
    from actors.runtime import Clock, Moment

__all__ = ["LOST_REQUESTS", "OVERTIME", "RemainingPods"]

LOST_REQUESTS: Final = timedelta(seconds=2)
"""After the end of a pool: the API server has cancelled or carried out its requests, whose connections have ended. A
list before that may lack a pod that comes."""


OVERTIME: Final = timedelta(seconds=4)
"""How much later than its grace period a pod may end by itself. A kubelet gives a container 2 s more if its preStop
hook has used the grace period up, and reports the end of a container up to 2 s later."""


class RemainingPods:
    """What is left of the fleet, or of those executors that the stop deletes."""

    def __init__(self, state: FleetState, clock: Clock) -> None:
        self._state = state
        self._clock = clock
        self._only: frozenset[int] | None = None
        self._uids: Mapping[str, str] = {}
        """UIDs of the pods at the last look, by name."""
        self._looked_at = clock.monotonic()
        """When the last list was requested; before the first one, when the stop began."""
        self.were_listed = False
        """A list has arrived."""
        self._ends_by: dict[str, Moment] = {}
        """Until when each pod whose deletion was accepted ends by itself, by UID."""
        self._accepted_at: dict[str, Moment] = {}
        """When the API accepted deletions that no list has shown yet, by UID."""
        self.unseen: dict[str, str] = {}
        """UIDs, by name, of pods that were created and never observed, until a list has them or they are gone."""
        self._lost_until = clock.monotonic()
        """A list requested before may lack a pod that comes of a request that was lost with its pool."""

    def begin(self, only: frozenset[int] | None, pods: Sequence[Pod]) -> None:
        """The stop begins, and deletes these executors; None means all. `pods` are theirs in the newest snapshot."""
        self._only = only
        self._uids = {pod.name: pod.uid for pod in pods}
        self._looked_at = self._clock.monotonic()
        self._ends_by = {pod.uid: later(self._looked_at, self._left(pod) + OVERTIME) for pod in pods if pod.terminating}

    @property
    def names(self) -> tuple[str, ...]:
        """The pods at the last look, and those that it may lack; before the first list, all pods that may exist."""
        requested = () if self.were_listed else self._state.known_pods(self._only)
        names = {*requested, *self._uids, *self.unseen, *self._coming()}
        return tuple(sorted(names, key=lambda name: (id_in_name(name) or 0, name)))

    def ending(self) -> Mapping[str, datetime]:
        """Return the pods that end by themselves, and until when; by name.

        The API has accepted their deletion, and their time was not over at the last look. If it was, a finalizer holds
        the pod, or its node does not answer: such a pod may stay for ever.
        """
        now, date = self._clock.monotonic(), self._clock.now()
        uids = {**self.unseen, **self._uids}
        ends_by = {name: moment for name, uid in uids.items() if (moment := self._ends_by.get(uid)) is not None}
        return {name: date + elapsed(now, moment) for name, moment in ends_by.items() if moment > self._looked_at}

    @property
    def graces_end_in(self) -> timedelta:
        """The time until the grace period of each terminating pod is over; not positive if they are, or if none is."""
        now = self._clock.monotonic()
        return elapsed(now, max(self._ends_by.values(), default=now)) - OVERTIME

    def accepted(self, pods: Mapping[str, str], grace: timedelta) -> None:
        """The API has accepted the deletion of these pods, name → UID, which have at most this grace period."""
        now = self._clock.monotonic()
        for uid in pods.values():
            self._accepted_at[uid] = now
            self._ends_by.setdefault(uid, later(now, grace + OVERTIME))

    def is_accepted(self, uid: str) -> bool:
        """Whether the API has accepted the deletion of a pod, and no list was requested since."""
        return uid in self._accepted_at

    def pool_lost(self) -> None:
        """A pool has ended, perhaps with creates under way."""
        self._lost_until = later(self._clock.monotonic(), LOST_REQUESTS)

    @property
    def lost_for(self) -> timedelta:
        """How long a list may lack pods of lost requests yet; not positive if no longer."""
        return elapsed(self._clock.monotonic(), self._lost_until)

    def drained(self, unseen: Mapping[str, UnseenPod]) -> None:
        """No create is under way any more. These pods were created, and the pool has not heard of them since."""
        self.unseen = {name: pod.uid for name, pod in unseen.items() if self._is_unseen(pod.executor_id)}

    def listed(self, pods: Sequence[Pod], requested_at: Moment) -> Mapping[str, str]:
        """Note a list. Return the pods that it no longer has, name → UID: they may live on with other labels."""
        before, self._uids = self._uids, {pod.name: pod.uid for pod in pods}
        self.were_listed, self._looked_at = True, requested_at
        self.unseen = {name: uid for name, uid in self.unseen.items() if self._uids.get(name) != uid}
        self._accepted_at = {uid: at for uid, at in self._accepted_at.items() if at > requested_at}
        accepted = {uid: self._ends_by[uid] for uid in self._accepted_at}
        self._ends_by = accepted | {pod.uid: self._end_of(pod) for pod in pods if pod.terminating}
        return {name: uid for name, uid in before.items() if self._uids.get(name) != uid}

    def _end_of(self, pod: Pod) -> Moment:
        """Return until when a terminating pod ends by itself: the earliest estimate, as clocks may differ.

        One that terminated when the stop began may run a preStop hook, which a shorter grace period does not end.
        """
        now, left = self._clock.monotonic(), self._left(pod)
        known = self._state.pod_of(executor_id(pod) or 0)
        if known is not None and known.uid == pod.uid and (before := known.metadata.deletion_timestamp) is not None:
            left = max(left, before - self._clock.now())
        return min(self._ends_by.get(pod.uid, inf), later(now, left + OVERTIME))

    def _left(self, pod: Pod) -> timedelta:
        """Return what is left of the grace period of a terminating pod."""
        grace = timedelta(seconds=pod.metadata.deletion_grace_period_seconds or 0)
        deadline = pod.metadata.deletion_timestamp
        return grace if deadline is None else min(grace, deadline - self._clock.now())

    def _coming(self) -> set[str]:
        """Return the names of the pods that may come of lost requests after the last list."""
        if self._looked_at >= self._lost_until:
            return set()
        entries = self._state.ledger.entries.values()
        return {
            self._state.pod_name(entry)
            for entry in entries
            if (entry.removed_at is None or entry.abandoned) and self._is_unseen(entry.executor_id)
        }

    def _is_unseen(self, executor_id: int) -> bool:
        """Whether this executor's pod is to be deleted and was never observed: no list may have it."""
        entry = self._state.ledger.entries.get(executor_id)
        is_to_go = self._only is None or executor_id in self._only
        return is_to_go and (entry is None or entry.uid is None)
