"""Orders: whom the Allocator has made, under which ids, and how many at a time.

A plain object in the Allocator's hands, which tells it once a round. Ids are given out in their order, and Backend
hears of each before it is used. What went down with a pool is asked for again before anything new, under its own id: it
may have been made, and a name is never made twice.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from actors.allocation.batch_pacing import BatchPacing
from actors.allocation.decisions import shares, slots
from actors.messages import CreatePod, ExecutorsRequested, ListClaims

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from actors.allocation.executor_tracker import ExecutorTracker
    from actors.allocation.start_failures import StartFailures
    from actors.allocation.volumes import Mounts, Volumes
    from actors.manifests.executor_pod import ExecutorManifests
    from actors.pods.snapshot import PodsSnapshot
    from actors.runtime import Address, Clock
    from actors.settings import AllocationSettings

__all__ = ["Creator"]

logger = logging.getLogger(__name__)


class Creator:
    """Of one Allocator, at `reply_to`, whose number is `epoch`."""

    def __init__(
        self,
        settings: AllocationSettings,
        clock: Clock,
        *,
        epoch: int,
        tracker: ExecutorTracker,
        starts: StartFailures,
        volumes: Volumes,
        manifests: ExecutorManifests,
        pool: Address,
        backend: Address,
        reply_to: Address,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._epoch = epoch
        self._tracker = tracker
        self._starts = starts
        self._volumes = volumes
        self._manifests = manifests
        self._pool = pool
        self._backend = backend
        self._reply_to = reply_to
        self.next_id = 1
        self.created = 0
        """Pods that were requested in the driver's life and not refused."""
        self.creations: dict[str, BatchPacing] = {}
        """By profile."""

    def creation(self, profile: str) -> BatchPacing:
        """How creation goes in a profile."""
        if profile not in self.creations:
            size = self._settings.batch_size
            most = size if self._settings.pacing == "batch" else self._settings.max_batch_size
            self.creations[profile] = BatchPacing(size, most)
        return self.creations[profile]

    def count_on(self, next_id: int) -> None:
        """Lower ids were given out, or may have been."""
        self.next_id = max(self.next_id, next_id)

    def limit_reached(self) -> bool:
        """Whether `allocation.max_created` allows no more."""
        return self._settings.max_created is not None and self.created >= self._settings.max_created

    def request(self, missing: Mapping[str, int], totals: Mapping[str, int], snapshot: PodsSnapshot) -> None:
        """Ask again for what is lost, and for what is missing as far as the limits leave any, shared among profiles."""
        for profile, ids in self._tracker.lost().items():
            if self._may_go_on(profile) and not self.creation(profile).awaited:
                batch = ids[: self.creation(profile).size.current]
                self._ask_for(profile, batch, self._equip(profile, batch, totals, snapshot), again=True)
        left = slots(self._settings.max_created, self.created)
        pending = slots(self._settings.max_pending_pods, self._tracker.pending(snapshot))
        free = min((limit for limit in (left, pending) if limit is not None), default=None)
        wanted = {profile: self._wanted(profile, count, snapshot) for profile, count in missing.items() if count > 0}
        for profile, count in shares(wanted, free).items():
            new = range(self.next_id, self.next_id + count)
            self._request(profile, new, self._equip(profile, new, totals, snapshot))

    def _wanted(self, profile: str, missing: int, snapshot: PodsSnapshot) -> int:
        """How many executors of a profile may be requested now, were it the only one."""
        if not self._may_go_on(profile) or not self._may_request(profile, snapshot):
            return 0
        limit = slots(self._settings.max_pending_pods_per_profile, self._tracker.pending(snapshot, profile))
        return min(missing, self.creation(profile).size.current, *(() if limit is None else (limit,)))

    def _may_go_on(self, profile: str) -> bool:
        """Neither what was refused nor what ended too soon is waited for."""
        now = self._clock.monotonic()
        return now >= self.creation(profile).creation_block.until and self._starts.may_go_on(profile, now)

    def _may_request(self, profile: str, snapshot: PodsSnapshot) -> bool:
        """`pacing = "batch"`: none of the last batch is unseen or pending. `"pipelined"`: its POSTs are answered."""
        if self._settings.pacing == "batch":
            return self._tracker.pending(snapshot, profile) == 0
        return not self.creation(profile).awaited

    def _equip(
        self, profile: str, ids: Sequence[int], totals: Mapping[str, int], snapshot: PodsSnapshot
    ) -> Sequence[Mounts]:
        """What the first of these executors mount; fewer than all if the others have to wait for a claim."""
        target = totals.get(profile, 0)
        if not ids:
            return ()
        if self._volumes.is_ready(profile):
            return self._volumes.equip(profile, ids, target=target, snapshot=snapshot)
        if self._volumes.should_ask(profile, target, self._clock.monotonic()):
            self._pool.tell(ListClaims(self._reply_to))
        return ()

    def _request(self, profile: str, ids: Sequence[int], mounts: Sequence[Mounts]) -> None:
        """As many new executors as can be equipped."""
        given = tuple(ids[: len(mounts)])
        if not given:
            return
        self.next_id += len(given)
        self.created += len(given)
        self._backend.tell(ExecutorsRequested(given, profile))
        now = self._clock.monotonic()
        for executor_id in given:
            self._tracker.newly.requested(executor_id, profile, now)
        self._ask_for(profile, given, mounts)

    def _ask_for(self, profile: str, ids: Sequence[int], mounts: Sequence[Mounts], *, again: bool = False) -> None:
        asked = ids[: len(mounts)]
        if not asked:
            return
        logger.info("requesting executors: profile=%s ids=%d-%d again=%s", profile, asked[0], asked[-1], again)
        self.creation(profile).requested(len(asked))
        for executor_id, mounted in zip(asked, mounts, strict=True):
            if again:
                self._tracker.newly.asked_again(executor_id)
            pod = self._manifests.pod(executor_id, profile, mounted.names)
            self._pool.tell(CreatePod(executor_id, self._epoch, pod, self._reply_to, mounted.made, again))
