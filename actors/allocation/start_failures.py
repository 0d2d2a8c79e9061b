"""Which executors ran long enough, and which ended before: by their own doing, or because others ended them.

Follows each executor from its start until it has proved to be of use, or has ended. What follows from that for creation
is in `actors.allocation.profile`. Nothing here sends a message or reads a clock.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from actors.pods.loss import LossKind, explain
from actors.pods.state import PodDeleted, PodRunning, PodState, PodTerminating, executor_end
from actors.pods.stuck import never_heals
from actors.runtime import Moment, elapsed

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime, timedelta

    from actors.allocation.executor_tracker import ExecutorTracker
    from actors.allocation.profile import Profiles
    from actors.messages import SnapshotBatch
    from actors.pods.pod import Pod
    from actors.pods.state import PodRules
    from actors.settings import Settings

__all__ = ["EarlyEnds", "StartFailures", "was_start_failure"]

NEVER_STARTED_YEAR: Final = 1970
"""The container runtimes' zero time."""


@dataclass(frozen=True, slots=True)
class EarlyEnds:
    """Executors that ended before they were of use, by profile."""

    failed: Mapping[str, int]
    """How many, by their own doing or refused by their node."""
    cut_short: Mapping[str, Sequence[int]]
    """Which ones others ended."""


class StartFailures:
    """Of the executors in `tracker`; a success ends the waits of its profile."""

    def __init__(self, settings: Settings, tracker: ExecutorTracker, profiles: Profiles) -> None:
        self._rules = settings.pod_rules
        self._min_run_time = settings.executor.min_run_time
        self._tracker = tracker
        self._profiles = profiles
        self._unproven: dict[int, tuple[str, Moment]] = {}
        """Running executors that have not run for `min_run_time` yet: profile, and since when."""
        self._proven: set[int] = set()
        """Executors that are shown and were of use."""
        self._judged: set[str] = set()
        """UIDs of pods still shown whose end was counted, or is not to be."""
        self._replaced: set[str] = set()
        """UIDs of pods that are being deleted because they would never have run."""

    def taken_back(self, uid: str) -> None:
        """This pod is deleted because there are too many: its end does not count."""
        self._judged.add(uid)

    def replaced(self, uid: str) -> bool:
        """This pod is deleted because it would never have run: its end counts. Answers whether that is news."""
        news = uid not in self._replaced
        self._replaced.add(uid)
        return news

    def proved(self, executor_id: int, profile: str) -> None:
        """The driver has taken it up: a success."""
        self._unproven.pop(executor_id, None)
        self._proven.add(executor_id)
        self._profiles[profile].succeeded()

    def follow(self, batch: SnapshotBatch, now: Moment) -> EarlyEnds:
        """Take a batch in, at the cost of what changed. Answers who ended before it was of use.

        Those that are asked to go may end by themselves before they are made to: that is no failure.
        """
        tracker = self._tracker
        self._prove(now)
        over: list[tuple[int, PodState]] = []
        for executor_id in sorted(batch.changed):
            state = batch.snapshot.states.get(executor_id)
            if state is None:
                continue
            if state.pod.uid in self._replaced and not state.pod.terminating and not never_heals(state.pod):
                self._replaced.discard(state.pod.uid)  # it has got on, and survived its deletion
            if isinstance(state, PodRunning) and executor_id not in tracker.registered:
                self._unproven.setdefault(executor_id, (state.pod.profile, now))
            elif state.final or isinstance(state, PodTerminating):
                over.append((executor_id, state))
        over += [(ended.executor_id, ended.state) for ended in batch.ended]
        for executor_id, _ in over:
            self._unproven.pop(executor_id, None)
        early = self._judge(
            (i, state) for i, state in over if i not in tracker.registered and not tracker.is_asked_to_go(i)
        )
        gone = [ended.uid for ended in batch.ended]
        self._judged.difference_update(gone)
        self._replaced.difference_update(gone)
        self._proven.difference_update(ended.executor_id for ended in batch.ended)
        return early

    def _prove(self, now: Moment) -> None:
        """One that has run for `min_run_time` is a success."""
        while self._unproven:
            executor_id, (profile, since) = next(iter(self._unproven.items()))
            if elapsed(since, now) < self._min_run_time:
                return  # they stand in the order of their starts: none after this one has proved either
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
