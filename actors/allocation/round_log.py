"""What the rounds of the Allocator say at DEBUG: their counts, and which executors they still wait for.

A round that has nothing new to say says nothing, so a wait is said once, with the time at which it began.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from actors.pods.id_ranges import IdRanges
from actors.runtime import elapsed
from actors.text import get_logger, rfc3339

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from actors.allocation.expectations import Expectations
    from actors.messages import ProfileStatus
    from actors.runtime import Clock, Moment

__all__ = ["RoundLog", "ranges"]

logger = get_logger(__name__)


class RoundLog:
    """The log of one Allocator's rounds."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._said: Mapping[str, tuple[object, ...]] = {}
        """The counts of the last round, by profile."""
        self._unanswered: Mapping[str, Mapping[int, Moment]] = {}
        self._unobserved: Mapping[str, Mapping[int, Moment]] = {}

    def counts(self, statuses: Mapping[str, ProfileStatus], missing: Mapping[str, int]) -> None:
        """Say what a round knows of each profile after its decisions, if that is new; negative `missing` is excess."""
        if not logger.isEnabledFor(logging.DEBUG):
            return
        said = self._said
        self._said = {
            name: (
                status.target,
                status.requested,
                status.pending,
                status.running,
                status.terminating,
                missing[name],
                status.blocked_by,
            )
            for name, status in statuses.items()
        }
        for name, counts in self._said.items():
            if said.get(name) != counts:
                logger.debug(
                    "allocation round: profile=%s target=%d requested=%d pending=%d running=%d terminating=%d "
                    "missing=%d blocked=%s",
                    name,
                    *counts,
                )

    def waits(self, requested: Expectations) -> None:
        """Say which requests have no answer, and which pods are in no snapshot, if others than in the last round."""
        if not logger.isEnabledFor(logging.DEBUG):
            return
        unanswered: dict[str, dict[int, Moment]] = {}
        unobserved: dict[str, dict[int, Moment]] = {}
        for executor_id, each in requested.items():
            if each.answered_at is None:
                unanswered.setdefault(each.profile, {})[executor_id] = each.requested_at
            else:
                unobserved.setdefault(each.profile, {})[executor_id] = each.answered_at
        for profile, ids, since in self._new(unanswered, self._unanswered):
            logger.debug("creation not answered yet: profile=%s ids=%s since=%s", profile, ids, since)
        for profile, ids, since in self._new(unobserved, self._unobserved):
            logger.debug("pods not observed yet: profile=%s ids=%s since=%s", profile, ids, since)
        self._unanswered, self._unobserved = unanswered, unobserved

    def _new(
        self, waits: Mapping[str, Mapping[int, Moment]], said: Mapping[str, Mapping[int, Moment]]
    ) -> list[tuple[str, str, str]]:
        """Return the waits that differ from what was said: the profile, the ids, and the begin of the longest wait."""
        now, date = self._clock.monotonic(), self._clock.now()
        return [
            (profile, ranges(ids), rfc3339(date - elapsed(min(ids.values()), now)))
            for profile, ids in sorted(waits.items())
            if ids != said.get(profile)
        ]


def ranges(ids: Collection[int]) -> str:
    """Return ids as text: `1-3,7`. There may be hundreds."""
    spans = IdRanges.of(ids).spans
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in spans)
