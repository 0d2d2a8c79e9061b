"""CarriedOut: remembers which requests had their effect as far as the API server is concerned. Pure.

Senders repeat a request every round, or after every list, until they observe its effect. It may never be seen: a
finalizer holds the pod, the watch is silent, or the snapshot is old. Therefore a request that was carried out is sent
again only if its pod was observed after the answer. "Not found" and a failed precondition count as well.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from actors.errors import TooManyRequests, Unavailable
from actors.runtime import later

if TYPE_CHECKING:
    from collections.abc import Collection

    from actors.requests.kinds import Request
    from actors.runtime import Moment

__all__ = ["FORGOTTEN_AFTER", "CarriedOut"]

FORGOTTEN_AFTER: Final = timedelta(minutes=2)
"""A request whose repetition is overdue for so long is not repeated: its pod is gone, or has what was requested."""


@dataclass(frozen=True, slots=True)
class _Known:
    name: str
    """The name of its pod."""
    answered_at: Moment
    repeated_at: Moment


class CarriedOut:
    """The requests that were carried out and may still be repeated, each after `interval` at the latest."""

    def __init__(self, interval: timedelta) -> None:
        self._kept_for = interval + FORGOTTEN_AFTER
        self._known: dict[object, _Known] = {}
        """By key of the request, the one that was repeated last at the end."""

    def __len__(self) -> int:
        return len(self._known)

    def holds_back(self, request: Request, now: Moment) -> bool:
        """Return whether this request was carried out, and its pod was not observed since."""
        known = self._known.get(request.key)
        if known is None or request.observed_at is None or request.observed_at > known.answered_at:
            return False
        del self._known[request.key]
        self._known[request.key] = replace(known, repeated_at=now)
        return True

    def note(self, request: Request, answer: object, now: Moment) -> None:
        """Record a final answer."""
        while self._known and later((oldest := next(iter(self._known.items())))[1].repeated_at, self._kept_for) < now:
            del self._known[oldest[0]]
        self._known.pop(request.key, None)
        failed = request.refusal(answer) is not None or isinstance(answer, TooManyRequests | Unavailable)
        if request.observed_at is not None and not failed:
            self._known[request.key] = _Known(request.name, now, now)

    def forget(self, names: Collection[str]) -> None:
        """Forget the requests about these pods, which are gone."""
        for key in [key for key, known in self._known.items() if known.name in names]:
            del self._known[key]
