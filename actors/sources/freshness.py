"""`FreshnessReporter`: reports to Backend when a source last heard from the API server, and why it fails.

Both sources use it. A stream may deliver 100,000 events a second, so an unchanged status is reported at most once a
second, and only when something arrives. That needs no timer.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from actors.errors import Unavailable
from actors.messages.internal import Freshness

if TYPE_CHECKING:
    from actors.errors import ApiError
    from actors.messages.internal import Source
    from actors.runtime import Address, Clock, Moment

__all__ = ["REPORT_EVERY", "FreshnessReporter"]

REPORT_EVERY: Final = 1.0
"""Seconds. People read the value as an age and need it no more exact."""


class FreshnessReporter:
    """Reports for one incarnation of a source. Backend remembers the values of earlier ones."""

    def __init__(self, source: Source, backend: Address, clock: Clock) -> None:
        self.heard_at: Moment | None = None
        """When data from the API server last arrived."""
        self._source = source
        self._backend = backend
        self._clock = clock
        self._synced_at: Moment | None = None
        self._error: ApiError | None = None
        self._reported_at = -math.inf

    def received(self, *, works: bool) -> None:
        """Data arrived. If the source `works`, its last error is over."""
        self.heard_at = now = self._clock.monotonic()
        if works and self._error is not None:
            self.recovered()
        elif now - self._reported_at >= REPORT_EVERY:
            self._report()

    def recovered(self) -> None:
        """The source works although no data arrived: its last error is over."""
        if self._error is not None:
            self._error = None
            self._report()

    def synced(self, requested_at: Moment | None) -> None:
        """A LIST is complete. `requested_at` is None if it is no full sync."""
        self.heard_at = self._clock.monotonic()
        self._synced_at = self._synced_at if requested_at is None else requested_at
        self._error = None
        self._report()

    def failed(self, error: ApiError) -> None:
        """The source fails with this error."""
        self._error = error
        self._report()

    def started(self, incarnation: int) -> None:
        """The source starts. An earlier incarnation that hung did not report its end."""
        if incarnation > 1:
            self.failed(Unavailable(f"the {self._source.value} was restarted and has no LIST yet"))

    def stopped(self) -> None:
        """The source ends, for whatever reason."""
        self.failed(Unavailable(f"the {self._source.value} has ended"))

    def _report(self) -> None:
        self._reported_at = self._clock.monotonic()
        self._backend.tell(Freshness(self._source, self._synced_at, self._error, self.heard_at))
