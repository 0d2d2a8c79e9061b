"""One profile's creation: its target, how many are requested at a time, and why and until when creation is blocked.

Plain values in the Allocator's hands: nothing here sends a message or reads a clock. Creation waits when:

- The API refuses a POST: quota and rights heal from outside, and are looked at again once a minute.
- Executors end right after their start: a crash loop must not become a storm of POSTs.
- Others end executors as early (deleted, evicted, on a node that is drained), and then those made in their place, too:
  somebody does not want them. The first ones are replaced at once.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from actors.allocation.creation_block import CreationBlock
from actors.errors import AlreadyExists, ApiError, Cancelled, QuotaExceeded
from actors.messages import StartFailureCount
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
"""After a POST that the API refused."""

START_BACKOFF: Final = Backoff(
    initial=timedelta(seconds=1), maximum=timedelta(minutes=5), reset_after=timedelta(minutes=10), jitter=0.0
)
"""A kubelet's crash-loop back-off has the same upper end."""

PUT_OFF_FOR: Final = timedelta(seconds=5)
"""A POST that is tried again for longer than this without an answer is told; shorter waits are everyday."""


class Profile:
    """A batch is what was requested in one round; the next one goes out when it is answered."""

    def __init__(self, name: str, settings: Settings) -> None:
        allocation = settings.allocation
        self.name = name
        self.target = 0
        self.awaited = 0
        """POSTs of the newest batch that are not answered."""
        self.batch_size = self._first_size = allocation.batch_size
        """How many executors to request at a time: doubles while creation succeeds, falls back when it fails.

        Slow start, as the Job and ReplicaSet controllers have it: a cluster that refuses is not asked 500 times over.
        """
        self._last_size = allocation.batch_size if allocation.pacing == "batch" else allocation.max_batch_size
        self._batch_failed = False
        """Of the newest batch, one POST made no pod."""
        self.starts = StartFailureCount()
        """Executors that ended early; the Backend keeps this for the next Allocator."""
        self._failures_allowed = settings.executor.failures_allowed
        self._failures_count_for = settings.executor.failures_validity_interval
        self.claim_wait: tuple[int, str] | None = None
        """With which target executors wait for a claim, and for which."""
        self.refusal: CreationBlock | None = None
        """Why the API refused a POST."""
        self._refusals = 0
        self._retry_at: Moment = 0.0
        self._delay: tuple[Moment, CreationBlock] | None = None
        """Since when POSTs are tried again, and why."""
        self.block: CreationBlock | None = None
        """As last reported."""

    # ── why creation is blocked ──────────────────────────────────────────────────────────────────────────────────

    @property
    def blocked_until(self) -> Moment:
        """Nothing is requested before."""
        return max(self._retry_at, self.starts.until, self.starts.waves_until)

    @property
    def awaited_claim(self) -> str | None:
        """The claim that executors wait for. With another target, that is to be seen."""
        return self.claim_wait[1] if self.claim_wait is not None and self.claim_wait[0] == self.target else None

    def report(self, fleet: CreationBlock | None, *, lacks_some: bool, now: Moment, at: datetime) -> bool:
        """Set `block` to what blocks creation now, `fleet` being what blocks every profile. Return whether it changed.

        Where no executor is missing, a refusal is over, but its wait still counts, should one be missing soon.
        """
        if not lacks_some and not self.awaited:
            self.refusal = None
        block = self._blocked_by(fleet, now, lacks_some=lacks_some)
        if block == self.block:
            return False
        self.block = replace(block, since=at) if block is not None else None
        return True

    def _blocked_by(self, fleet: CreationBlock | None, now: Moment, *, lacks_some: bool) -> CreationBlock | None:
        if self.refusal is not None:
            return self.refusal
        if self._delay is not None and elapsed(self._delay[0], now) >= PUT_OFF_FOR:
            return self._delay[1]
        if fleet is not None or not lacks_some:
            return fleet if lacks_some else None
        if (claim := self.awaited_claim) is not None:
            there = f"there is one for each of the {self.target} wanted"
            return CreationBlock("claims", f"executors wait for a claim {claim!r} to be free: {there}")
        if now < self.starts.waves_until:
            message = "executors are ended by others before they are of use, and so are those made in their place"
            return CreationBlock("cut_short", message)
        return None

    # ── POSTs ────────────────────────────────────────────────────────────────────────────────────────────────────

    def requested(self, count: int) -> None:
        """A batch goes out."""
        self.awaited += count

    def answered(self, error: ApiError | None, *, now: Moment, entropy: Entropy) -> bool:
        """Take the answer to one POST, with an error if it made no pod. Return whether it was the last of its batch.

        A name that is taken and a request that was withdrawn say nothing of the next POST. A refusal that one POST has
        got through may stand again for the next: it is over when as many have got through as are requested where
        nothing is wrong.
        """
        self._delay = None
        self.awaited -= 1
        if error is not None:
            self._batch_failed = True
            self.batch_size = min(self.batch_size, self._first_size)
            if not isinstance(error, AlreadyExists | Cancelled):
                self._refused(CreationBlock.of(error), now, entropy)
        if self.awaited > 0:
            return False
        if not self._batch_failed:
            self._refusals, self._retry_at = 0, 0.0
            if self.batch_size >= self._first_size:
                self.refusal = None
            self.batch_size = min(self.batch_size * 2, self._last_size)
        self._batch_failed = False
        return True

    def _refused(self, block: CreationBlock, now: Moment, entropy: Entropy) -> None:
        self.batch_size = 1  # one is enough to see whether it has passed
        if now >= self._retry_at:  # refusals of one batch are one refusal
            self._retry_at = later(now, CREATE_BACKOFF.delay(self._refusals, entropy))
            self._refusals += 1
        if not block.is_same(self.refusal):
            self.refusal = block

    def delayed(self, error: ApiError, now: Moment) -> None:
        """A POST is to be tried again. The cause may change; how long it has lasted counts from the first."""
        block = CreationBlock.of(error)
        since, before = self._delay or (now, block)
        self._delay = (since, before if block.is_same(before) else block)

    def ended(self, now: Moment) -> None:
        """An executor has ended: where a quota was full there may be room now."""
        if self.refusal is not None and self.refusal.cause == QuotaExceeded.__name__:
            self._refusals = 0
            self._retry_at = min(self._retry_at, later(now, CREATE_BACKOFF.initial))

    # ── early ends ───────────────────────────────────────────────────────────────────────────────────────────────

    def start_failed(self, count: int, *, now: Moment, entropy: Entropy) -> bool:
        """Count executors that ended early by their own doing. Return whether there are as many as the fleet may have.

        Those that end while creation waits were made before it did: of one batch not all end in one round, and the wait
        is for all of them.
        """
        starts, limit = self.starts, self._failures_allowed(self.target)
        if now >= starts.until:
            until = later(now, START_BACKOFF.delay(starts.rounds, entropy))
            starts = replace(starts, rounds=starts.rounds + 1, until=until)
        times = [at for at in (*starts.times, *[now] * count) if self._counts(at, now)]
        self.starts = replace(starts, times=tuple(times[-limit:]))
        return len(times) >= limit

    def start_failures(self, now: Moment) -> int:
        """How many failures count still."""
        return sum(self._counts(at, now) for at in self.starts.times)

    def _counts(self, failed_at: Moment, now: Moment) -> bool:
        return self._failures_count_for is None or elapsed(failed_at, now) <= self._failures_count_for

    def cut_short(self, executor_ids: Iterable[int], *, newest: int, now: Moment, entropy: Entropy) -> bool:
        """Count executors that others ended early, `newest` being the highest id there is. Return whether that is news.

        It is none where all were made before the last ones went: they are the rest of those.
        """
        starts = self.starts
        if max(executor_ids) <= starts.newest:
            return False
        until = later(now, START_BACKOFF.delay(starts.waves - 1, entropy)) if starts.waves else starts.waves_until
        self.starts = replace(starts, waves=starts.waves + 1, waves_until=until, newest=newest)
        return True

    def succeeded(self) -> None:
        """An executor was of use: the next wait is the shortest again."""
        self.starts = replace(self.starts, rounds=0, until=0.0, waves=0, waves_until=0.0)

    def forgive(self) -> None:
        """Count failures anew."""
        self.starts = replace(self.starts, rounds=0, until=0.0, times=())


class Profiles(dict[str, Profile]):
    """By name, each made when it is first asked for: pods of an earlier driver may have one that is in no setting."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self._settings = settings

    def __missing__(self, name: str) -> Profile:
        profile = self[name] = Profile(name, self._settings)
        return profile
