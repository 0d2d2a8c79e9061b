"""What the API refuses: warned of once, and not asked for again in every round.

A right that was taken away is one warning, not one for each pod and round. And who wants a pod gone asks again in each
round that shows it: a request that was refused is held back for longer each time, so that a thousand of them are not a
thousand requests a second. Each for itself: what a webhook refuses of one pod must not hold another up.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from actors.errors import TooManyRequests, Unavailable
from actors.runtime import Backoff, later

if TYPE_CHECKING:
    from actors.requests.kinds import Request
    from actors.runtime import Entropy, Moment

__all__ = ["HOLD_BACK", "Refusals"]

logger = logging.getLogger(__name__)

HOLD_BACK: Final = Backoff(
    initial=timedelta(seconds=2), maximum=timedelta(minutes=1), reset_after=timedelta(minutes=2), jitter=0.5
)
"""Rights heal from outside, and are looked at again every minute or so."""


@dataclass(frozen=True, slots=True)
class _Held:
    """A request that was refused, and may be sent again then."""

    until: Moment
    refusals: int


class Refusals:
    """By kind of request: the classes and reasons of error it was refused with since one of its kind got through."""

    def __init__(self) -> None:
        self._known: dict[str, set[tuple[str, str]]] = {}
        self._held: dict[object, _Held] = {}
        """By the request's key, the one that was refused last being the last."""

    def hold_back(self, request: Request, now: Moment) -> bool:
        """Whether this request was refused too recently to be sent again."""
        held = self._held.get(request.key)
        return held is not None and now < held.until

    def note(self, request: Request, answer: object, now: Moment, entropy: Entropy) -> None:
        """Log the final answer of a request if it is a refusal, or the first of its kind that is none again."""
        error = request.refusal(answer)
        if error is not None:
            known, sort = self._known.setdefault(request.kind, set()), (type(error).__name__, error.reason)
            level = logging.DEBUG if sort in known else logging.WARNING
            logger.log(level, "a request is refused: request=%s error=%s", request, error)
            known.add(sort)
            self._hold(request, now, entropy)
            return
        self._held.pop(request.key, None)
        if request.kind in self._known and not isinstance(answer, TooManyRequests | Unavailable):
            logger.info("requests are accepted again: kind=%s", request.kind)
            del self._known[request.kind]

    def _hold(self, request: Request, now: Moment, entropy: Entropy) -> None:
        if not request.repeated:
            return
        while self._held and later((oldest := next(iter(self._held.items())))[1].until, HOLD_BACK.reset_after) < now:
            del self._held[oldest[0]]  # nobody has asked again: it is gone
        held = self._held.pop(request.key, None)
        refusals = 0 if held is None else held.refusals
        self._held[request.key] = _Held(later(now, HOLD_BACK.delay(refusals, entropy)), refusals + 1)
