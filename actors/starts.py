"""Starts: which executors came to be of use, and how long creation waits for those that ended before.

A crash loop must not become a storm of POSTs: executors that end right after their start make the next ones wait, from
a second up to five minutes. Plain values in the Allocator's hands; nothing here sends a message or reads a clock.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from actors.loss import LossKind, explain
from actors.pods import Pod, PodRules, PodRunning, PodState, executor_end
from actors.runtime import Backoff

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from actors.messages import SnapshotBatch
    from actors.runtime import Entropy

__all__ = ["StartFailures", "Starts", "was_start_failure"]

START_BACKOFF: Final = Backoff(
    initial=timedelta(seconds=1), maximum=timedelta(minutes=5), reset_after=timedelta(minutes=10), jitter=0.0
)
"""A kubelet's crash-loop back-off has the same upper end."""

NEVER_STARTED_YEAR: Final = 1970
"""The container runtimes' zero time."""


@dataclass(slots=True)
class StartFailures:
    """Executors of one profile that ended before they were of use: how often, and how long creation waits for that."""

    rounds: int = 0
    """In how many rounds in a row, without a success between."""
    until: float = 0.0
    """Not before then is the next request (monotonic)."""
    times: deque[float] = field(default_factory=deque)
    """When (monotonic), within the validity interval."""

    def failed(self, count: int, *, now: float, keep: int, interval: timedelta | None, entropy: Entropy) -> int:
        """`count` more in one round. Answers how many there were within the interval, up to `keep`."""
        self.until = now + START_BACKOFF.delay(self.rounds, entropy).total_seconds()
        self.rounds += 1
        self.times.extend([now] * count)
        while self.times and (
            len(self.times) > keep or (interval is not None and timedelta(seconds=now - self.times[0]) > interval)
        ):
            self.times.popleft()
        return len(self.times)

    def succeeded(self) -> None:
        """An executor was of use: the next failure starts from the shortest wait again."""
        self.rounds = 0
        self.until = 0.0


class Starts:
    """Follows each executor from its start until it has proved to be of use, or has ended."""

    def __init__(self, rules: PodRules, *, min_run_time: timedelta) -> None:
        self._rules = rules
        self._min_run_time = min_run_time
        self._unproven: dict[int, tuple[str, float]] = {}
        """Running executors that have not run for `min_run_time` yet: profile, and since when (monotonic)."""
        self._judged: set[str] = set()
        """UIDs of final pods still shown whose end was counted."""
        self._failures: dict[str, StartFailures] = {}

    def of(self, profile: str) -> StartFailures:
        """A profile's failures."""
        return self._failures.setdefault(profile, StartFailures())

    def forgive(self) -> None:
        """Start to count anew."""
        self._failures.clear()

    def proved(self, executor_id: int, profile: str) -> None:
        """The driver has taken it up: a success."""
        self._unproven.pop(executor_id, None)
        self.of(profile).succeeded()

    def follow(self, batch: SnapshotBatch, registered: Collection[int], now: float) -> dict[str, int]:
        """Take a batch in, at the cost of what changed. Answers how many start failures it shows, by profile."""
        self._prove(now)
        finals: list[PodState] = []
        for executor_id in sorted(batch.changed):
            state = batch.snapshot.states.get(executor_id)
            if isinstance(state, PodRunning) and executor_id not in registered:
                self._unproven.setdefault(executor_id, (state.pod.profile, now))
            elif state is not None and state.final:
                self._unproven.pop(executor_id, None)
                if executor_id not in registered:
                    finals.append(state)
        for ended in batch.ended:
            self._unproven.pop(ended.executor_id, None)
            if ended.executor_id not in registered:
                finals.append(ended.state)
        failures = self._judge(finals)
        self._judged.difference_update(ended.uid for ended in batch.ended)
        return failures

    def _prove(self, now: float) -> None:
        """One that has run for `min_run_time` is a success."""
        run_time = self._min_run_time.total_seconds()
        while self._unproven:
            executor_id, (profile, since) = next(iter(self._unproven.items()))
            if now - since < run_time:  # they stand in the order of their starts: none after this one has proved either
                return
            self.proved(executor_id, profile)

    def _judge(self, finals: Iterable[PodState]) -> dict[str, int]:
        """Count each once, though it is shown until it is cleared away and then told as ended."""
        failures: dict[str, int] = {}
        for state in finals:
            new = state.pod.uid not in self._judged
            self._judged.add(state.pod.uid)
            if new and was_start_failure(state, self._rules, min_run_time=self._min_run_time):
                failures[state.pod.profile] = failures.get(state.pod.profile, 0) + 1
        return failures


def was_start_failure(state: PodState, rules: PodRules, *, min_run_time: timedelta) -> bool:
    """Whether a final pod that the driver never registered ended before it was of use.

    By its own doing, or refused by its node: the next one may meet the same. Disruption, eviction by the node and
    deletion do not count, nor does one that ran for `min_run_time`.
    """
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
