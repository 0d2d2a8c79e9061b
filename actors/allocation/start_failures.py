"""Finds executors that end soon after their start, by themselves (start failures) or ended from outside (short-lived).

Follows each executor until it has run long enough, has registered, or has ended. `Profile` decides how long creation
waits after an early end. Nothing here sends a message or reads a clock.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from actors.pods.loss import explain
from actors.pods.loss_kind import CAUSED_BY_APP, LossKind, was_deleted
from actors.pods.state import PodRunning, PodState, PodTerminating, executor_end
from actors.pods.stuck import never_heals
from actors.runtime import Moment, elapsed

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime, timedelta

    from actors.allocation.executor_tracker import ExecutorTracker
    from actors.allocation.profile import Profiles
    from actors.messages.internal import SnapshotBatch
    from actors.pods.pod import Pod
    from actors.pods.state import PodRules
    from actors.settings import Settings

__all__ = ["ENDED_BY_ITSELF", "EarlyEnds", "StartFailures", "was_start_failure"]

ENDED_BY_ITSELF: Final = CAUSED_BY_APP | {LossKind.FINISHED, LossKind.NEVER_STARTED}
"""The kinds that count as start failures. A program that only ends at once would otherwise be created in a loop."""

NEVER_STARTED_YEAR: Final = 1970
"""The container runtimes' zero time."""


@dataclass(frozen=True, slots=True)
class EarlyEnds:
    """Executors that ended soon after their start, by profile."""

    failed: Mapping[str, int]
    """How many ended by themselves, or were refused by their node."""
    short_lived: Mapping[str, Sequence[int]]
    """The ids of those that were deleted or evicted."""


class StartFailures:
    """The starts of the executors in `tracker`. An executor that runs long enough ends the waits of its profile."""

    def __init__(self, settings: Settings, tracker: ExecutorTracker, profiles: Profiles) -> None:
        self._rules = settings.pod_rules
        self._min_run_time = settings.executor.min_run_time
        self._tracker = tracker
        self._profiles = profiles
        self._starting: dict[int, tuple[str, Moment]] = {}
        """Executors that have not run for `min_run_time` yet: profile, and since when they run, earliest first."""
        self._succeeded: set[int] = set()
        """Executors in the snapshot that registered or ran long enough."""
        self._counted: set[str] = set()
        """UIDs of pods in the snapshot whose end was counted, or must not count."""
        self._replaced: set[str] = set()
        """UIDs of stuck pods that are being deleted."""

    def scaled_down(self, uid: str) -> None:
        """Note that this pod is deleted as excess: its end does not count."""
        self._counted.add(uid)

    def replaced(self, uid: str) -> bool:
        """Note that this stuck pod is deleted: its end counts. Return whether that was not known."""
        is_new = uid not in self._replaced
        self._replaced.add(uid)
        return is_new

    def succeeded(self, executor_id: int, profile: str) -> None:
        """Note that an executor registered or ran long enough."""
        self._starting.pop(executor_id, None)
        self._succeeded.add(executor_id)
        self._profiles[profile].succeeded()

    def follow(self, batch: SnapshotBatch, now: Moment) -> EarlyEnds:
        """Apply a batch, at the cost of what changed. Return which executors ended early.

        An executor that is being ended may end by itself first: that is not a failure.
        """
        tracker = self._tracker
        self._find_successes(now)
        ends: list[tuple[int, PodState]] = []
        for executor_id in sorted(batch.changed):
            state = batch.snapshot.states.get(executor_id)
            if state is None:
                continue
            if state.pod.uid in self._replaced and not state.pod.terminating and not never_heals(state.pod):
                self._replaced.discard(state.pod.uid)  # it can start now, and its deletion failed
            if isinstance(state, PodRunning) and executor_id not in tracker.registered:
                self._starting.setdefault(executor_id, (state.pod.profile, now))
            elif state.final or isinstance(state, PodTerminating):
                ends.append((executor_id, state))
        ends += [(ended.executor_id, ended.state) for ended in batch.ended]
        for executor_id, _ in ends:
            self._starting.pop(executor_id, None)
        early = self._classify(
            (i, state) for i, state in ends if i not in tracker.registered and not tracker.is_being_ended(i)
        )
        gone = [ended.uid for ended in batch.ended]
        self._counted.difference_update(gone)
        self._replaced.difference_update(gone)
        self._succeeded.difference_update(ended.executor_id for ended in batch.ended)
        return early

    def _find_successes(self, now: Moment) -> None:
        """Find the executors that have run for `min_run_time` by now."""
        while self._starting:
            executor_id, (profile, since) = next(iter(self._starting.items()))
            if elapsed(since, now) < self._min_run_time:
                return  # those after it started later
            self.succeeded(executor_id, profile)

    def _classify(self, ends: Iterable[tuple[int, PodState]]) -> EarlyEnds:
        """Count each end once, though the pod stays in the snapshot until it is deleted and then ends again."""
        failed: dict[str, int] = {}
        short_lived: dict[str, list[int]] = {}
        for executor_id, state in ends:
            uid, profile = state.pod.uid, state.pod.profile
            if uid in self._counted:
                continue
            self._counted.add(uid)
            if uid in self._replaced or was_start_failure(state, self._rules, min_run_time=self._min_run_time):
                failed[profile] = failed.get(profile, 0) + 1
            elif executor_id not in self._succeeded and not self._ran_long_enough(state.pod):
                short_lived.setdefault(profile, []).append(executor_id)
        return EarlyEnds(failed, short_lived)

    def _ran_long_enough(self, pod: Pod) -> bool:
        run = _run_time(pod, self._rules)
        return run is not None and run >= self._min_run_time


def was_start_failure(state: PodState, rules: PodRules, *, min_run_time: timedelta) -> bool:
    """Whether the final pod of an executor that never registered failed to start, so that the next one may fail too.

    It ended by itself before `min_run_time`, or its node refused it. Disruption, eviction and deletion do not count.
    """
    if was_deleted(state, executor_end(state.pod, rules)):
        return False
    if explain(0, state, rules).kind not in ENDED_BY_ITSELF:
        return False
    run = _run_time(state.pod, rules)
    return run is None or run < min_run_time


def _run_time(pod: Pod, rules: PodRules) -> timedelta | None:
    end = executor_end(pod, rules)
    if end is None or end.started_at is None or end.finished_at is None:
        return None
    return _between(end.started_at, end.finished_at)


def _between(start: datetime, end: datetime) -> timedelta | None:
    """Return the time between two timestamps, or None if they are unusable.

    A container that could not be started at all ("StartError") has 1970 as its start.
    """
    return None if end < start or start.year <= NEVER_STARTED_YEAR else end - start
