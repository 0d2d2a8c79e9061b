"""Orders: whom the Allocator has made, under which ids, and how many at a time.

A plain object in the Allocator's hands, which tells it once a round. Ids are given out in their order, and Backend
hears of each before it is used. What went down with a pool is asked for again before anything new, under its own id: it
may have been made, and a name is never made twice.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from actors.messages import CreatePod, ExecutorsRequested, ListClaims

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from actors.allocation.executor_tracker import ExecutorTracker
    from actors.allocation.profile import Profile, Profiles
    from actors.allocation.volumes import Mounts, Volumes
    from actors.manifests.executor_pod import ExecutorManifests
    from actors.pods.snapshot import PodsSnapshot
    from actors.runtime import Address, Clock
    from actors.settings import AllocationSettings

__all__ = ["Creator", "shares", "slots"]

logger = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class Creator:
    """Of one Allocator, at `reply_to`, whose number is `epoch`."""

    settings: AllocationSettings
    clock: Clock
    epoch: int
    reply_to: Address
    tracker: ExecutorTracker
    profiles: Profiles
    volumes: Volumes
    manifests: ExecutorManifests
    pool: Address
    backend: Address
    next_id: int = 1
    created: int = 0
    """Pods that were requested in the driver's life and not refused."""

    def count_on(self, next_id: int) -> None:
        """Lower ids were given out, or may have been."""
        self.next_id = max(self.next_id, next_id)

    def limit_reached(self) -> bool:
        """Whether `allocation.max_created` allows no more."""
        return self.settings.max_created is not None and self.created >= self.settings.max_created

    def request(self, missing: Mapping[str, int], snapshot: PodsSnapshot) -> None:
        """Ask again for what is lost, and for what is missing as far as the limits leave any, shared among profiles."""
        for name, ids in self.tracker.lost().items():
            profile = self.profiles[name]
            if self._may_go_on(profile) and not profile.awaited:
                batch = ids[: profile.batch_size]
                self._ask_for(profile, batch, self._equip(profile, batch, snapshot), again=True)
        left = slots(self.settings.max_created, self.created)
        pending = slots(self.settings.max_pending_pods, self.tracker.pending(snapshot))
        free = min((limit for limit in (left, pending) if limit is not None), default=None)
        wanted = {
            name: self._wanted(self.profiles[name], count, snapshot) for name, count in missing.items() if count > 0
        }
        for name, count in shares(wanted, free).items():
            new = range(self.next_id, self.next_id + count)
            self._request(self.profiles[name], new, self._equip(self.profiles[name], new, snapshot))

    def _wanted(self, profile: Profile, missing: int, snapshot: PodsSnapshot) -> int:
        """How many executors of a profile may be requested now, were it the only one.

        `pacing = "batch"`: none of the last batch is unseen or pending. `"pipelined"`: its POSTs are answered.
        """
        pending = self.tracker.pending(snapshot, profile.name)
        if not self._may_go_on(profile) or (pending if self.settings.pacing == "batch" else profile.awaited):
            return 0
        limit = slots(self.settings.max_pending_pods_per_profile, pending)
        return min(missing, profile.batch_size, *(() if limit is None else (limit,)))

    def _may_go_on(self, profile: Profile) -> bool:
        return self.clock.monotonic() >= profile.blocked_until

    def _equip(self, profile: Profile, ids: Sequence[int], snapshot: PodsSnapshot) -> Sequence[Mounts]:
        """What the first of these executors mount; fewer than all if the others have to wait for a claim."""
        if not ids:
            return ()
        if self.volumes.is_ready(profile.name):
            return self.volumes.equip(profile, ids, snapshot)
        if self.volumes.should_ask(profile, self.clock.monotonic()):
            self.pool.tell(ListClaims(self.reply_to))
        return ()

    def _request(self, profile: Profile, ids: Sequence[int], mounts: Sequence[Mounts]) -> None:
        """As many new executors as can be equipped."""
        given = tuple(ids[: len(mounts)])
        if not given:
            return
        self.next_id += len(given)
        self.created += len(given)
        self.backend.tell(ExecutorsRequested(given, profile.name))
        now = self.clock.monotonic()
        for executor_id in given:
            self.tracker.newly.requested(executor_id, profile.name, now)
        self._ask_for(profile, given, mounts)

    def _ask_for(self, profile: Profile, ids: Sequence[int], mounts: Sequence[Mounts], *, again: bool = False) -> None:
        asked = ids[: len(mounts)]
        if not asked:
            return
        logger.info("requesting executors: profile=%s ids=%d-%d again=%s", profile.name, asked[0], asked[-1], again)
        profile.requested(len(asked))
        for executor_id, mounted in zip(asked, mounts, strict=True):
            if again:
                self.tracker.newly.asked_again(executor_id)
            pod = self.manifests.pod(executor_id, profile.name, mounted.names)
            self.pool.tell(CreatePod(executor_id, self.epoch, pod, self.reply_to, mounted.made, again))


def slots(limit: int | None, used: int) -> int | None:
    """What a limit on pods leaves, None without a limit."""
    return None if limit is None else max(0, limit - used)


def shares(wanted: Mapping[str, int], free: int | None) -> dict[str, int]:
    """How many of the free slots each profile gets that wants any.

    Evenly, the remainder one each to the first; what a profile does not want goes to the others, in the same way.
    """
    if free is None:
        return dict(wanted)
    given = dict.fromkeys(wanted, 0)
    while free > 0 and (short := [profile for profile, want in wanted.items() if want > given[profile]]):
        share = free // len(short)
        if share == 0:  # the remainder: to those that have least, in their order
            short, share = sorted(short, key=given.__getitem__)[:free], 1
        for profile in short:
            more = min(wanted[profile] - given[profile], share)
            given[profile] += more
            free -= more
    return given
