"""One profile's state: its target, its batches, and why and until when creation is blocked.

Nothing here sends a message or reads a clock. Creation waits with a growing backoff after each of these:

- The API refuses a POST: quota and permissions are fixed from outside, so it is retried once a minute.
- Executors fail to start: a crash loop must not become a storm of POSTs.
- Executors are short-lived (deleted, evicted, on a drained node), and then their replacements too. The first ones are
  replaced at once.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from actors.allocation.creation_block import QUOTA, CreationBlock
from actors.errors import AlreadyExists, ApiError, Cancelled
from actors.messages.internal import StartFailureCount
from actors.runtime import Backoff, Moment, elapsed, later

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from actors.runtime import Entropy
    from actors.settings import Settings

__all__ = ["Profile", "Profiles"]

CREATE_BACKOFF: Final = Backoff(
    initial=timedelta(seconds=1), maximum=timedelta(minutes=1), reset_after=timedelta(minutes=2), jitter=0.2
)
"""After the API refused a POST."""

START_BACKOFF: Final = Backoff(
    initial=timedelta(seconds=1), maximum=timedelta(minutes=5), reset_after=timedelta(minutes=10), jitter=0.0
)
"""After an early end. The maximum is that of a kubelet's crash-loop backoff."""

SMALL_BATCH: Final = 8
"""After a batch of so few POSTs the next one follows when all are answered; after a larger one before slots idle."""

LARGEST_BATCH: Final = 5
"""POSTs of the largest batch, for each slot. A larger one creates no sooner, as the next follows when its last POSTs
are in flight. While the actors hand a batch over, they send none: a hundred POSTs take them a few milliseconds, and
more time than the slots have if the machine is busy."""

REPORT_DELAYS_AFTER: Final = timedelta(seconds=5)
"""A POST that is retried for longer than this is reported; shorter delays are normal."""


class Profile:
    """The state of one profile. A batch is what one round requests; the next one follows when most are answered."""

    def __init__(self, name: str, settings: Settings) -> None:
        allocation = settings.allocation
        self.name = name
        self.target = 0
        self.awaited = 0
        """POSTs that are not answered yet."""
        self.batch_size = self._first_size = allocation.batch_size
        """How many executors to request at a time: doubled while creation succeeds, reset when it fails.

        Slow start, as in the Job and ReplicaSet controllers: a cluster that refuses does not get 500 POSTs.
        """
        self._slots = allocation.max_requests_in_flight
        largest = max(min(allocation.max_batch_size, LARGEST_BATCH * self._slots), allocation.batch_size)
        self._last_size = allocation.batch_size if allocation.pacing == "batch" else largest
        self._few = 0
        """The next batch may follow while so many POSTs are not answered."""
        self._follows = False
        """It may follow now, and `batch_size` is its size."""
        self._batch_failed = False
        """A POST has created no pod since all were answered."""
        self.starts = StartFailureCount()
        """Early ends; the Backend keeps them for the next Allocator."""
        self._never_seen: int | None = None
        """The highest id when executors were last abandoned because their pods never appeared."""
        self._failures_count_for = settings.executor.failures_validity_interval
        self.claim_wait: tuple[int, str] | None = None
        """The target and the claim when executors began to wait for a claim."""
        self.refusal: CreationBlock | None = None
        """Why the API refused a POST, until enough have succeeded."""
        self._refusals = 0
        self._retry_at: Moment = 0.0
        self._delay: tuple[Moment, CreationBlock] | None = None
        """Since when POSTs are retried, and why."""
        self.block: CreationBlock | None = None
        """The last reported block."""

    # ── why creation is blocked ──────────────────────────────────────────────────────────────────────────────────

    @property
    def blocked_until(self) -> Moment:
        """No executor is requested before this moment."""
        return max(self._retry_at, self.starts.until, self.starts.waves_until)

    @property
    def awaited_claim(self) -> str | None:
        """The claim that executors wait for, if the target is still the same."""
        return self.claim_wait[1] if self.claim_wait is not None and self.claim_wait[0] == self.target else None

    def report(self, fleet: CreationBlock | None, *, lacks_some: bool, now: Moment, at: datetime) -> bool:
        """Set `block` to what blocks creation now; `fleet` blocks every profile. Return whether the block changed.

        If the profile lacks no executor, a refusal is over, but its backoff still applies.
        """
        if not lacks_some and not self.awaited:
            self.refusal = None
        block = self._blocked_by(fleet, now, lacks_some=lacks_some)
        if block == self.block:
            return False
        if block is not None and self.block is not None and block.identity and block.is_same(self.block):
            self.block = replace(block, since=self.block.since)  # only when it is tried again has changed
            return False
        self.block = replace(block, since=at) if block is not None else None
        return True

    def _blocked_by(self, fleet: CreationBlock | None, now: Moment, *, lacks_some: bool) -> CreationBlock | None:
        if self.refusal is not None:
            return self.refusal
        if self._delay is not None and elapsed(self._delay[0], now) >= REPORT_DELAYS_AFTER:
            return self._delay[1]
        if not lacks_some:
            return None
        if fleet is not None:
            return fleet
        if (claim := self.awaited_claim) is not None:
            message = f"executors wait for a free claim {claim!r}: all {self.target} that the target allows exist"
            return CreationBlock("claims", message)
        if now < self.starts.waves_until:
            message = "executors and their replacements are deleted or evicted soon after their start"
            return CreationBlock("cut_short", message)
        return None

    # ── POSTs ────────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def waits(self) -> bool:
        """The next batch has to wait for answers."""
        return self.awaited > 0 and (self._batch_failed or not self._follows)

    def requested(self, count: int) -> None:
        """Note that a batch is sent. Half of a large one shows that the server takes them: the next follows early."""
        self.awaited += count
        self._follows = False
        self._few = min(count // 2, self._slots - 1) if count > SMALL_BATCH and self.refusal is None else 0

    def answered(self, error: ApiError | None, *, now: Moment, entropy: Entropy) -> bool:
        """Note the answer to a POST, with the error if it created no pod. Return whether the next batch may follow.

        A taken name or a withdrawn request says nothing about the next POST. One success does not end a refusal: it is
        over when a whole batch of the initial size has succeeded.
        """
        self._delay = None
        self.awaited -= 1
        if error is not None:
            self._batch_failed = True
            self.batch_size = min(self.batch_size, self._first_size)
            if not isinstance(error, AlreadyExists | Cancelled):
                self.refused(error, now=now, entropy=entropy)
        if self.awaited > 0 and (self._follows or self._batch_failed or self.awaited > self._few):
            return False
        if not self._batch_failed and not self._follows:
            self._follows = True
            self._refusals, self._retry_at = 0, 0.0
            if self.batch_size >= self._first_size:
                self.refusal = None
            self.batch_size = min(self.batch_size * 2, self._last_size)
        if self.awaited == 0:
            self._batch_failed = False
        return True

    def refused(self, error: ApiError, *, now: Moment, entropy: Entropy) -> None:
        """Note that a POST was refused. Refusals of one batch count once, whatever each of them says."""
        self.batch_size = 1  # one POST shows whether the cause is gone
        if now < self._retry_at:
            return
        self._retry_at = later(now, CREATE_BACKOFF.delay(self._refusals, entropy))
        self._refusals += 1
        block = CreationBlock.of(error)
        if not block.is_same(self.refusal):
            self.refusal = block

    def delayed(self, error: ApiError, now: Moment, retry_at: datetime) -> None:
        """Note that a POST is retried. The cause may change; the delay counts from the first."""
        block = CreationBlock.of(error, retry_at)
        since, before = self._delay or (now, block)
        self._delay = (since, replace(block, identity=before.identity) if block.cause == before.cause else block)

    @property
    def lacks_quota(self) -> bool:
        """A full quota refuses its executors."""
        return self.refusal is not None and self.refusal.cause in QUOTA

    def tries_quota(self, now: Moment) -> bool:
        """Whether a POST may show now if a quota is still full. One that hangs for other reasons does not count."""
        return now >= self._retry_at and (not self.awaited or self._delay is not None)

    def hasten(self, now: Moment) -> None:
        """Retry soon: a quota that was full may have room now, as an executor has ended or was created."""
        if self.lacks_quota:
            self._refusals = 0
            self._retry_at = min(self._retry_at, later(now, CREATE_BACKOFF.initial))

    # ── early ends ───────────────────────────────────────────────────────────────────────────────────────────────

    def add_start_failures(self, count: int, *, most: int, now: Moment, entropy: Entropy) -> None:
        """Count start failures, and remember the last `most`.

        Failures during a wait do not prolong it: their executors were created before it began.
        """
        starts = self.starts
        if now >= starts.until:
            until = later(now, START_BACKOFF.delay(starts.rounds, entropy))
            starts = replace(starts, rounds=starts.rounds + 1, until=until)
        times = [at for at in (*starts.times, *[now] * count) if self._counts(at, now)]
        self.starts = replace(starts, times=tuple(times[-most:]))

    def start_failures(self, now: Moment) -> int:
        """Return how many start failures count now."""
        return sum(self._counts(at, now) for at in self.starts.times)

    def _counts(self, failed_at: Moment, now: Moment) -> bool:
        return self._failures_count_for is None or elapsed(failed_at, now) <= self._failures_count_for

    def add_never_seen(self, executor_ids: Iterable[int], *, newest: int) -> int:
        """Return how many of these abandoned executors count as start failures; `newest` is the highest id so far.

        The first ones are replaced at once. Their replacements count: something takes each pod out of our sight.
        """
        before, self._never_seen = self._never_seen, newest
        return 0 if before is None else sum(executor_id > before for executor_id in executor_ids)

    def add_short_lived(self, executor_ids: Iterable[int], *, newest: int, now: Moment, entropy: Entropy) -> bool:
        """Count short-lived executors; `newest` is the highest id so far. Return whether any was a replacement.

        Those that were created before the last ones ended belong to the same event: they do not count again.
        """
        starts = self.starts
        if max(executor_ids) <= starts.newest:
            return False
        until = later(now, START_BACKOFF.delay(starts.waves - 1, entropy)) if starts.waves else starts.waves_until
        self.starts = replace(starts, waves=starts.waves + 1, waves_until=until, newest=newest)
        return True

    def succeeded(self) -> None:
        """Note that an executor ran long enough: the waits start again from the shortest."""
        self._never_seen = None
        self.starts = replace(self.starts, rounds=0, until=0.0, waves=0, waves_until=0.0)

    def forgive(self) -> None:
        """Forget the start failures."""
        self.starts = self.starts.cleared()


class Profiles(dict[str, Profile]):
    """Profiles by name, made on first use: pods of a previous driver may have one that is not in the settings."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self._settings = settings

    def __missing__(self, name: str) -> Profile:
        profile = self[name] = Profile(name, self._settings)
        return profile

    def sharing_quota_with(self, profile: Profile) -> tuple[Profile, ...]:
        """Return the other profiles that the same full quota refuses."""
        if not profile.lacks_quota or profile.refusal is None:
            return ()
        others = (other for other in self.values() if other is not profile)
        return tuple(other for other in others if profile.refusal.is_same(other.refusal))

    def forget_strangers(self, alive: Iterable[str]) -> None:
        """Forget profiles that are not in the settings and have no executor any more: anybody can create a pod."""
        for name in self.keys() - set(self._settings.profile_names) - set(alive):
            if self[name].block is None and not self[name].awaited:
                del self[name]
