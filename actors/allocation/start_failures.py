"""Starts: which executors came to be of use, and how long creation waits for those that ended before.

A crash loop must not become a storm of POSTs: executors that end right after their start make the next ones wait, from
a second up to five minutes; too many of them, and creation stops until the driver decides. Those that others end as
early (deleted, evicted, on a node that is drained) are replaced at once; but where their replacements are ended as
early, too, somebody does not want them: then creation waits in the same way, and never stops for good. Plain values in
the Allocator's hands; nothing here sends a message or reads a clock.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from actors.messages import StartFailureCount, StartFailureRecord
from actors.pods.loss import LossKind, explain
from actors.pods.state import PodDeleted, PodRules, PodRunning, PodState, PodTerminating, executor_end
from actors.pods.stuck import never_heals
from actors.runtime import Backoff
from actors.settings.durations import format_duration

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from actors.messages import SnapshotBatch
    from actors.pods.pod import Pod
    from actors.runtime import Entropy
    from actors.settings import ExecutorSettings

__all__ = ["ProfileStartFailures", "StartFailures", "was_start_failure"]

START_BACKOFF: Final = Backoff(
    initial=timedelta(seconds=1), maximum=timedelta(minutes=5), reset_after=timedelta(minutes=10), jitter=0.0
)
"""A kubelet's crash-loop back-off has the same upper end."""

NEVER_STARTED_YEAR: Final = 1970
"""The container runtimes' zero time."""


@dataclass(slots=True)
class ProfileStartFailures:
    """Executors of one profile that ended before they were of use: how often, and how long creation waits for that."""

    rounds: int = 0
    """How often creation was made to wait, without a success between."""
    until: float = 0.0
    """Not before then is the next request (monotonic)."""
    times: deque[float] = field(default_factory=deque)
    """When (monotonic), within the validity interval."""

    def failed(self, count: int, *, now: float, keep: int, interval: timedelta | None, entropy: Entropy) -> int:
        """`count` more. Answers how many there were within the interval, up to `keep`.

        Those that end while creation waits were made before it did: of one batch not all end in one round, and the wait
        is for all of them.
        """
        if now >= self.until:
            self.until = now + START_BACKOFF.delay(self.rounds, entropy).total_seconds()
            self.rounds += 1
        self.times.extend([now] * count)
        while self.times and (
            len(self.times) > keep or (interval is not None and timedelta(seconds=now - self.times[0]) > interval)
        ):
            self.times.popleft()
        return len(self.times)

    def count(self, now: float, interval: timedelta | None) -> int:
        """How many there were within the interval, up to what was kept."""
        if interval is None:
            return len(self.times)
        return sum(timedelta(seconds=now - at) <= interval for at in self.times)

    def succeeded(self) -> None:
        """An executor was of use: the next failure starts from the shortest wait again."""
        self.rounds = 0
        self.until = 0.0


@dataclass(slots=True)
class ShortLived:
    """Executors of one profile that others ended before they were of use: how often, and how long creation waits."""

    waves: int = 0
    """How often that came, without a success between."""
    until: float = 0.0
    """Not before then is the next request (monotonic)."""
    newest: int = 0
    """The highest id that there was at the last one: those above were made in the place of those that went."""

    def came(self, executor_ids: Iterable[int], *, newest: int, now: float, entropy: Entropy) -> bool:
        """These went. Answers whether they are more than the rest of what went before: then creation waits.

        Not the first time: what a drained node takes is made anew elsewhere.
        """
        if max(executor_ids) <= self.newest:
            return False
        self.newest = newest
        if self.waves:
            self.until = now + START_BACKOFF.delay(self.waves - 1, entropy).total_seconds()
        self.waves += 1
        return True

    def succeeded(self) -> None:
        """An executor was of use: the next time is the first."""
        self.waves = 0
        self.until = 0.0


@dataclass(frozen=True, slots=True)
class EarlyEnds:
    """Executors that ended before they were of use, by profile."""

    failed: Mapping[str, int]
    """How many, by their own doing or refused by their node."""
    cut_short: Mapping[str, Sequence[int]]
    """Which ones others ended."""


class StartFailures:
    """Follows each executor from its start until it has proved to be of use, or has ended."""

    def __init__(self, rules: PodRules, settings: ExecutorSettings) -> None:
        self._rules = rules
        self._settings = settings
        self._min_run_time = settings.min_run_time
        self.exceeded: str | None = None
        """Why creation has stopped for good, unless the driver sets another target."""
        self.exceeded_since: datetime | None = None
        self._unproven: dict[int, tuple[str, float]] = {}
        """Running executors that have not run for `min_run_time` yet: profile, and since when (monotonic)."""
        self._proven: set[int] = set()
        """Executors that are shown and were of use."""
        self._judged: set[str] = set()
        """UIDs of pods still shown whose end was counted, or is not to be."""
        self._replaced: set[str] = set()
        """UIDs of pods that are being deleted because they would never have run."""
        self._failures: dict[str, ProfileStartFailures] = {}
        self._cut_short: dict[str, ShortLived] = {}

    def taken_back(self, uid: str) -> None:
        """This pod is deleted because there are too many: its end does not count."""
        self._judged.add(uid)

    def replaced(self, uid: str) -> bool:
        """This pod is deleted because it would never have run: its end counts. Answers whether that is news."""
        news = uid not in self._replaced
        self._replaced.add(uid)
        return news

    # ── counts ───────────────────────────────────────────────────────────────────────────────────────────────────

    def learn(self, record: StartFailureRecord) -> None:
        """Go on from what was counted before our restart."""
        self.exceeded, self.exceeded_since = record.failed, record.failed_since
        for profile, tally in record.tallies.items():
            self._failures[profile] = ProfileStartFailures(tally.rounds, tally.until, deque(tally.times))
            self._cut_short[profile] = ShortLived(tally.waves, tally.waves_until, tally.newest)

    def record(self) -> StartFailureRecord:
        """What must not be forgotten in a restart."""
        tallies = {profile: self._tally(profile) for profile in {**self._failures, **self._cut_short}}
        nothing = StartFailureCount()
        known = {profile: tally for profile, tally in tallies.items() if tally != nothing}
        return StartFailureRecord(known, self.exceeded, self.exceeded_since)

    def _tally(self, profile: str) -> StartFailureCount:
        failures, cut_short = self.of(profile), self.cut_short_of(profile)
        times = tuple(failures.times)
        return StartFailureCount(
            failures.rounds, failures.until, times, cut_short.waves, cut_short.until, cut_short.newest
        )

    def may_go_on(self, profile: str, now: float) -> bool:
        """Whether creation need not wait."""
        return self.exceeded is None and now >= max(self.of(profile).until, self.cut_short_of(profile).until)

    def waits_for(self, profile: str, now: float) -> str | None:
        """Why creation waits though nothing has failed, None if it does not."""
        if now >= self.cut_short_of(profile).until:
            return None
        return "executors are ended by others before they are of use, and so are those made in their place"

    def count(self, profile: str, now: float) -> int:
        """How many failed of a profile, of those that count still."""
        return self.of(profile).count(now, self._settings.failures_validity_interval)

    def failed(
        self, profile: str, count: int, *, target: int, now: float, at: datetime, entropy: Entropy
    ) -> tuple[float, bool]:
        """So many more failed. Answers how long creation waits for that, and whether it has stopped now."""
        interval, limit = self._settings.failures_validity_interval, self._settings.failures_allowed(target)
        failures = self.of(profile)
        seen = failures.failed(count, now=now, keep=limit, interval=interval, entropy=entropy)
        stops = seen >= limit and self.exceeded is None
        if stops:
            within = f" within {format_duration(interval)}" if interval is not None else ""
            self.exceeded = f"{seen} executors of profile {profile!r} ended before they were of use{within}"
            self.exceeded_since = at
        return failures.until - now, stops

    def cut_short(
        self, profile: str, executor_ids: Iterable[int], *, newest: int, now: float, entropy: Entropy
    ) -> float | None:
        """Others ended these. Answers how long creation waits for that, None if it is no news; `newest` is an id."""
        cut_short = self.cut_short_of(profile)
        news = cut_short.came(executor_ids, newest=newest, now=now, entropy=entropy)
        return max(0.0, cut_short.until - now) if news else None

    def of(self, profile: str) -> ProfileStartFailures:
        """A profile's failures."""
        return self._failures.setdefault(profile, ProfileStartFailures())

    def cut_short_of(self, profile: str) -> ShortLived:
        """The same of those that others ended."""
        return self._cut_short.setdefault(profile, ShortLived())

    def forgive(self) -> bool:
        """Start to count anew if creation has stopped. Answers whether it had."""
        if self.exceeded is None:
            return False
        self.exceeded = self.exceeded_since = None
        self._failures.clear()
        return True

    # ── executors ────────────────────────────────────────────────────────────────────────────────────────────────

    def proved(self, executor_id: int, profile: str) -> None:
        """The driver has taken it up: a success."""
        self._unproven.pop(executor_id, None)
        self._proven.add(executor_id)
        self.of(profile).succeeded()
        self.cut_short_of(profile).succeeded()

    def follow(
        self,
        batch: SnapshotBatch,
        registered: Collection[int],
        now: float,
        *,
        is_asked_to_go: Callable[[int], bool] = lambda _: False,
    ) -> EarlyEnds:
        """Take a batch in, at the cost of what changed. Answers who ended before it was of use.

        Those that are asked to go may end by themselves before they are made to: that is no failure.
        """
        self._prove(now)
        over: list[tuple[int, PodState]] = []
        for executor_id in sorted(batch.changed):
            state = batch.snapshot.states.get(executor_id)
            if state is None:
                continue
            if state.pod.uid in self._replaced and not state.pod.terminating and not never_heals(state.pod):
                self._replaced.discard(state.pod.uid)  # it has got on, and survived its deletion
            if isinstance(state, PodRunning) and executor_id not in registered:
                self._unproven.setdefault(executor_id, (state.pod.profile, now))
            elif state.final or isinstance(state, PodTerminating):
                over.append((executor_id, state))
        over += [(ended.executor_id, ended.state) for ended in batch.ended]
        for executor_id, _ in over:
            self._unproven.pop(executor_id, None)
        early = self._judge([(i, state) for i, state in over if i not in registered and not is_asked_to_go(i)])
        gone = [ended.uid for ended in batch.ended]
        self._judged.difference_update(gone)
        self._replaced.difference_update(gone)
        self._proven.difference_update(ended.executor_id for ended in batch.ended)
        return early

    def _prove(self, now: float) -> None:
        """One that has run for `min_run_time` is a success."""
        run_time = self._min_run_time.total_seconds()
        while self._unproven:
            executor_id, (profile, since) = next(iter(self._unproven.items()))
            if now - since < run_time:  # they stand in the order of their starts: none after this one has proved either
                return
            self.proved(executor_id, profile)

    def _judge(self, over: Iterable[tuple[int, PodState]]) -> EarlyEnds:
        """Count each once, though it is shown until it is cleared away and then told as ended."""
        failed: dict[str, int] = {}
        cut_short: dict[str, list[int]] = {}
        for executor_id, state in over:
            uid, profile = state.pod.uid, state.pod.profile
            if uid in self._judged or (uid in self._replaced and not state.final):
                continue
            self._judged.add(uid)
            if uid in self._replaced or was_start_failure(state, self._rules, min_run_time=self._min_run_time):
                failed[profile] = failed.get(profile, 0) + 1
            elif executor_id not in self._proven and not self._ran_long_enough(state.pod):
                cut_short.setdefault(profile, []).append(executor_id)
        return EarlyEnds(failed, cut_short)

    def _ran_long_enough(self, pod: Pod) -> bool:
        run = _run_time(pod, self._rules)
        return run is not None and run >= self._min_run_time


def was_start_failure(state: PodState, rules: PodRules, *, min_run_time: timedelta) -> bool:
    """Whether a final pod that the driver never registered ended before it was of use.

    By its own doing, or refused by its node: the next one may meet the same. Disruption, eviction by the node and
    deletion do not count, nor does one that ran for `min_run_time`.
    """
    if isinstance(state, PodDeleted) and executor_end(state.pod, rules) is None:
        return False  # whoever deleted it, it had not ended
    reason = explain(0, state, rules)
    if not reason.caused_by_app and reason.kind is not LossKind.NEVER_STARTED:
        return False
    run = _run_time(state.pod, rules)
    return run is None or run < min_run_time


def _run_time(pod: Pod, rules: PodRules) -> timedelta | None:
    end = executor_end(pod, rules)
    if end is None or end.started_at is None or end.finished_at is None:
        return None
    return _between(end.started_at, end.finished_at)


def _between(start: datetime, end: datetime) -> timedelta | None:
    """A run time, unless the timestamps make none.

    A container that could not be started at all ("StartError") has 1970 as its start; a time zone may be missing.
    """
    if (start.tzinfo is None) != (end.tzinfo is None) or end < start or start.year <= NEVER_STARTED_YEAR:
        return None
    return end - start
