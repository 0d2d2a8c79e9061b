"""Refusals: remembers which requests the API server refused.

A missing right is logged as one warning, not as one per pod and round. A refused request that its sender repeats every
round is held back with a growing delay, so that a thousand of them do not become a thousand requests a second. Each
request has a delay of its own: a webhook that rejects one pod must not block another.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from actors.errors import TooManyRequests, Unavailable
from actors.runtime import Backoff, later
from actors.text import get_logger

if TYPE_CHECKING:
    from actors.requests.kinds import Request
    from actors.runtime import Entropy, Moment

__all__ = ["BACKOFF", "Refusals"]

logger = get_logger(__name__)

BACKOFF: Final = Backoff(
    initial=timedelta(seconds=2), maximum=timedelta(minutes=1), reset_after=timedelta(minutes=2), jitter=0.5
)
"""Rights change from outside, so a refused request is tried again every minute or so."""

MAX_CAUSES: Final = 20
"""Causes of refusals to log for a kind of request: a server may have another text each time."""


@dataclass(frozen=True, slots=True)
class _Held:
    """A request that was refused and may be sent again at `until`."""

    until: Moment
    refusals: int


class Refusals:
    """The refusals of each kind of request since one of that kind was accepted."""

    def __init__(self) -> None:
        self._known: dict[str, set[tuple[str, str]]] = {}
        """By kind: class and reason of the errors that were logged."""
        self._held: dict[object, _Held] = {}
        """By key of the request, the latest refusal last."""

    def holds_back(self, request: Request, now: Moment) -> bool:
        """Return whether this request was refused too recently to be sent again."""
        held = self._held.get(request.key)
        return held is not None and now < held.until

    def hasten(self) -> None:
        """Hold nothing back any more, and begin with the shortest delay again."""
        self._held.clear()

    def note(self, request: Request, answer: object, now: Moment, entropy: Entropy) -> None:
        """Record a final answer. Log the first refusal of its cause, and the first success after refusals."""
        error = request.refusal(answer)
        if error is not None:
            known, cause = self._known.setdefault(request.kind, set()), (type(error).__name__, error.reason)
            level = logging.DEBUG if cause in known or len(known) >= MAX_CAUSES else logging.WARNING
            logger.log(level, "request refused: request=%s error=%s", request, error)
            if level == logging.WARNING:
                known.add(cause)
            self._hold(request, now, entropy)
            return
        self._held.pop(request.key, None)
        if request.kind in self._known and not isinstance(answer, TooManyRequests | Unavailable):
            logger.info("requests accepted again: kind=%s", request.kind)
            del self._known[request.kind]

    def _hold(self, request: Request, now: Moment, entropy: Entropy) -> None:
        if not request.repeated:
            return
        while self._held and later((oldest := next(iter(self._held.items())))[1].until, BACKOFF.reset_after) < now:
            del self._held[oldest[0]]  # its sender has stopped to repeat it
        held = self._held.pop(request.key, None)
        refusals = 0 if held is None else held.refusals
        self._held[request.key] = _Held(later(now, BACKOFF.delay(refusals, entropy)), refusals + 1)
