"""Requests executors for the Allocator: how many, and under which ids. Called once a round.

Ids are allocated in order, and the Backend is notified of each before it is used. Requests that were lost with a pool
are sent again first, under their own ids: their pods may exist, and one name is never created twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from actors.allocation.round_log import ranges
from actors.messages.internal import CreatePod, ExecutorsRequested, ListClaims
from actors.text import get_logger

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from actors.allocation.executor_tracker import ExecutorTracker
    from actors.allocation.memory_steps import MemorySteps
    from actors.allocation.profile import Profile, Profiles
    from actors.allocation.volumes import Mounts, Volumes
    from actors.manifests.executor_pod import ExecutorManifests
    from actors.pods.snapshot import PodsSnapshot
    from actors.runtime import Address, Clock
    from actors.settings import AllocationSettings

__all__ = ["Creator", "shares", "slots"]

logger = get_logger(__name__)


@dataclass(slots=True, kw_only=True)
class Creator:
    """The creations of one Allocator, which gets the answers at `reply_to`."""

    settings: AllocationSettings
    clock: Clock
    epoch: int
    reply_to: Address
    tracker: ExecutorTracker
    profiles: Profiles
    volumes: Volumes
    memory: MemorySteps
    manifests: ExecutorManifests
    store: Address
    pool: Address
    backend: Address
    next_id: int = 1
    created: int = 0
    """Pods that were requested since the driver started, and not refused."""

    def resume_from(self, next_id: int) -> None:
        """Never allocate an id below `next_id`: lower ones may have been used."""
        self.next_id = max(self.next_id, next_id)

    def limit_reached(self) -> bool:
        """Whether `allocation.max_created` allows no more."""
        return self.settings.max_created is not None and self.created >= self.settings.max_created

    def request(self, missing: Mapping[str, int], snapshot: PodsSnapshot) -> None:
        """Send lost requests again, and request missing executors within the limits, shared among the profiles."""
        self.memory.forget_abandoned(snapshot)
        posts: list[CreatePod] = []
        for name, ids in self.tracker.lost().items():
            profile = self.profiles[name]
            if self._may_request(profile) and not profile.awaited:
                batch = ids[: min(profile.batch_size, self._room(profile, len(ids), snapshot))]
                posts += self._posts(profile, batch, self._mounts(profile, batch, snapshot))
        left = slots(self.settings.max_created, self.created)
        pending = slots(self.settings.max_pending_pods, self.tracker.pending(snapshot))
        free = min((limit for limit in (left, pending) if limit is not None), default=None)
        has = {name: self.profiles[name].target - count for name, count in missing.items() if count > 0}
        requestable = {
            name: self._requestable(self.profiles[name], missing[name], snapshot)
            for name in sorted(has, key=has.__getitem__)
        }
        for name, count in shares(requestable, free).items():
            new = range(self.next_id, self.next_id + count)
            mounts = self._mounts(self.profiles[name], new, snapshot)
            posts += self._request(self.profiles[name], new, mounts, has[name])
        for post in sorted(posts, key=lambda post: post.rank):
            self.pool.tell(post)

    def _room(self, profile: Profile, lost: int, snapshot: PodsSnapshot) -> int:
        """Return how many of its lost requests a profile has room for. Others replace executors that are not gone."""
        return max(0, profile.target - (self.tracker.expected(snapshot, profile.name) - lost))

    def _requestable(self, profile: Profile, missing: int, snapshot: PodsSnapshot) -> int:
        """Return how many executors of a profile may be requested now, if it were the only one.

        With `pacing = "batch"` all requested executors must be observed; with `"pipelined"` few POSTs may be left.
        Profiles that one full quota refuses go on together, with equal batches: none takes all the room that there is.
        """
        unobserved = self.tracker.requested.count(profile.name)
        if not self._may_request(profile) or (unobserved if self.settings.pacing == "batch" else profile.waits):
            return 0
        together = self.profiles.sharing_quota_with(profile)
        if not all(other.tries_quota(self.clock.monotonic()) for other in together):
            return 0
        batch_size = min((other.batch_size for other in together), default=profile.batch_size)
        limit = slots(self.settings.max_pending_pods_per_profile, self.tracker.pending(snapshot, profile.name))
        return min(missing, profile.batch_size, batch_size, *(() if limit is None else (limit,)))

    def _may_request(self, profile: Profile) -> bool:
        return self.clock.monotonic() >= profile.blocked_until

    def _mounts(self, profile: Profile, ids: Sequence[int], snapshot: PodsSnapshot) -> Sequence[Mounts]:
        """Return what the first of these executors mount; fewer than all if the others have to wait for a claim."""
        if not ids:
            return ()
        if self.volumes.is_ready(profile.name):
            return self.volumes.assign(profile, ids, snapshot)
        if self.volumes.should_list(profile, self.clock.monotonic()):
            self.pool.tell(ListClaims(self.reply_to))
        return ()

    def _request(
        self, profile: Profile, ids: Sequence[int], mounts: Sequence[Mounts], rank: int
    ) -> Sequence[CreatePod]:
        """Request as many new executors as have mounts. The profile has `rank` executors already."""
        new = tuple(ids[: len(mounts)])
        if not new:
            return ()
        self.next_id += len(new)
        self.created += len(new)
        raised = self.memory.give(profile.name, new)
        requested = ExecutorsRequested(new, profile.name, raised)
        self.backend.tell(requested)
        self.store.tell(requested)
        now = self.clock.monotonic()
        for executor_id in new:
            self.tracker.request(executor_id, profile.name, now)
        for executor_id, step in raised.items():
            memory = self.manifests.memory(profile.name, step)
            logger.info(
                "more memory: executor=%d profile=%s memory=%s raises=%d", executor_id, profile.name, memory, step
            )
        return self._posts(profile, new, mounts, rank)

    def _posts(
        self, profile: Profile, ids: Sequence[int], mounts: Sequence[Mounts], rank: int | None = None
    ) -> Sequence[CreatePod]:
        """Return the requests; without a rank they were lost, and are sent again before all others."""
        sent, again = ids[: len(mounts)], rank is None
        if not sent:
            return ()
        logger.info("executors requested: profile=%s ids=%s again=%s", profile.name, ranges(sent), again)
        profile.requested(len(sent))
        posts = []
        for number, (executor_id, mounted) in enumerate(zip(sent, mounts, strict=True)):
            if again:
                self.tracker.requested.requested_again(executor_id)
            step = self.memory.step_of(executor_id, profile.name)
            pod = self.manifests.pod(executor_id, profile.name, mounted.names, memory_step=step)
            order = 0 if rank is None else rank + number
            posts.append(CreatePod(executor_id, self.epoch, pod, self.reply_to, mounted.made, again, order))
        return posts


def slots(limit: int | None, used: int) -> int | None:
    """Return how many pods a limit leaves, None without a limit."""
    return None if limit is None else max(0, limit - used)


def shares(requestable: Mapping[str, int], free: int | None) -> dict[str, int]:
    """Return how many of the free slots each profile gets.

    The slots are shared evenly, and the first profiles get one more each if there is a remainder. Slots that a profile
    does not need are shared among the others in the same way.
    """
    if free is None:
        return dict(requestable)
    given = dict.fromkeys(requestable, 0)
    while free > 0 and (short := [profile for profile, count in requestable.items() if count > given[profile]]):
        share = free // len(short)
        if share == 0:  # the remainder goes to those that have least
            short, share = sorted(short, key=given.__getitem__)[:free], 1
        for profile in short:
            more = min(requestable[profile] - given[profile], share)
            given[profile] += more
            free -= more
    return given
