"""`FreshnessReporter`: how a source stands with the API server, and what Backend is told of it.

Both sources report alike, and cheaply: a stream may bring 100,000 events a second, so that what is only "still in
touch" is told at most once a second, decided when something arrives. No timer is needed for that: when nothing arrives,
there is nothing to tell.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from actors.errors import Unavailable
from actors.messages import Freshness

if TYPE_CHECKING:
    from actors.errors import ApiError
    from actors.messages import Source
    from actors.runtime import Address, Clock, Moment

__all__ = ["REPORT_EVERY", "FreshnessReporter"]

REPORT_EVERY: Final = 1.0
"""Seconds. What a person reads as an age need not be truer than that."""


class FreshnessReporter:
    """One source's. Belongs to one incarnation of it: what an earlier one had, Backend remembers."""

    def __init__(self, source: Source, backend: Address, clock: Clock) -> None:
        self.heard_at: Moment | None = None
        """When something of the cluster last came."""
        self._source = source
        self._backend = backend
        self._clock = clock
        self._synced_at: Moment | None = None
        self._error: ApiError | None = None
        self._reported_at = -math.inf

    def received(self, *, works: bool) -> None:
        """Something of the cluster came; if the source `works`, that ends what was wrong with it."""
        self.heard_at = now = self._clock.monotonic()
        if works and self._error is not None:
            self.recovered()
        elif now - self._reported_at >= REPORT_EVERY:
            self._report()

    def recovered(self) -> None:
        """Nothing came, and nothing is wrong: the server says so."""
        if self._error is not None:
            self._error = None
            self._report()

    def synced(self, requested_at: Moment | None) -> None:
        """A list has come whole; it is a full sync if it has a moment when it was asked for."""
        self.heard_at = self._clock.monotonic()
        self._synced_at = self._synced_at if requested_at is None else requested_at
        self._error = None
        self._report()

    def failed(self, error: ApiError) -> None:
        """There is no freshness, for this reason."""
        self._error = error
        self._report()

    def started(self, incarnation: int) -> None:
        """The source starts. One before it may have hung, and not have said that it ended."""
        if incarnation > 1:
            self.failed(Unavailable(f"the {self._source.value} has started again and not listed yet"))

    def stopped(self) -> None:
        """The source ends, of whatever: until another one has listed, nobody is in freshness."""
        self.failed(Unavailable(f"the {self._source.value} has ended"))

    def _report(self) -> None:
        self._reported_at = self._clock.monotonic()
        self._backend.tell(Freshness(self._source, self._synced_at, self._error, self.heard_at))
