"""What can go wrong between a client and a server, as values: `faults` makes it happen."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final, TypeAlias

from actors.errors import ApiError, Gone, QuotaExceeded, TooManyRequests, Unavailable

if TYPE_CHECKING:
    from actors.kube.api import Operation
    from actors.runtime import Entropy

__all__ = [
    "Chances",
    "DelayAnswer",
    "DelayRequest",
    "Fault",
    "LoseAnswer",
    "Refuse",
    "StaleList",
    "Stall",
    "gone",
    "over_quota",
    "server_error",
    "too_many_requests",
]


@dataclass(frozen=True, slots=True)
class Refuse:
    """The server (or what is in front of it) answers with this error and does nothing. A watch does not begin."""

    error: ApiError


@dataclass(frozen=True, slots=True)
class LoseAnswer:
    """The server does what it is asked to; the connection breaks before its answer is through."""


@dataclass(frozen=True, slots=True)
class Stall:
    """Nobody answers, until the call's limit. `delivered` says whether the server got the request: a half-open one."""

    delivered: bool = False


@dataclass(frozen=True, slots=True)
class DelayRequest:
    """The request reaches the server only after a while, even if its client has given up by then."""

    by: timedelta


@dataclass(frozen=True, slots=True)
class DelayAnswer:
    """The server answers at once, and the answer arrives only after a while: a list is old by then."""

    by: timedelta


@dataclass(frozen=True, slots=True)
class StaleList:
    """A LIST is answered from a cache that lags: with the oldest answer remembered for the same page."""


Fault: TypeAlias = Refuse | LoseAnswer | Stall | DelayRequest | DelayAnswer | StaleList


def too_many_requests(retry_after: timedelta = timedelta(seconds=1)) -> TooManyRequests:
    """429 as priority-and-fairness answers it."""
    message = "Too many requests, please try again later."
    return TooManyRequests(message, status=429, reason="TooManyRequests", retry_after=retry_after)


def server_error(code: int = 500) -> Unavailable:
    """5xx."""
    return Unavailable("an error on the server has prevented the request from succeeding", status=code)


def over_quota() -> QuotaExceeded:
    """403 with the words of a quota."""
    return QuotaExceeded(
        'pods "" is forbidden: exceeded quota: injected, requested: pods=1, used: pods=0, limited: pods=0',
        status=403,
        reason="Forbidden",
    )


def gone() -> Gone:
    """410."""
    return Gone("too old resource version: 1 (2)", status=410, reason="Expired")


@dataclass(frozen=True, slots=True)
class Chances:
    """How probable each fault is, from 0 to 1, drawn anew for every call, stream and event they can happen to."""

    too_many_requests: float = 0.0
    server_error: float = 0.0
    quota: float = 0.0
    """Of a create."""
    lost_answer: float = 0.0
    stall: float = 0.0
    half_open: float = 0.0
    delay_request: float = 0.0
    delay_answer: float = 0.0
    stale_list: float = 0.0
    gone: float = 0.0
    """Of a watch, at its begin, and of a LIST's later pages."""
    cut: float = 0.0
    """Of a watch, at each event."""
    freeze: float = 0.0
    """Of a watch, at each event: it stays open and brings nothing any more."""
    lag: float = 0.0
    """Of a watch, at each event: this and what follows comes late."""
    max_delay: timedelta = timedelta(seconds=3)
    """Delays and lags are drawn from 0 to this."""

    @property
    def any_of_streams(self) -> bool:
        """Something can happen to open streams."""
        return bool(self.cut or self.freeze or self.lag)

    def draw(self, operation: Operation, entropy: Entropy, *, later_page: bool = False) -> Fault | None:
        """What happens to one call: at most one fault."""
        if self == _NO_CHANCES:  # draw nothing, so that a quiet wrapper changes nothing about a run
            return None
        dice = entropy.uniform(0.0, 1.0)
        for chance, fault in self._faults(operation, entropy, later_page=later_page):
            if dice < chance:
                return fault
            dice -= chance
        return None

    def _faults(self, operation: Operation, entropy: Entropy, *, later_page: bool) -> list[tuple[float, Fault]]:
        faults: list[tuple[float, Fault]] = [
            (self.too_many_requests, Refuse(too_many_requests())),
            (self.server_error, Refuse(server_error())),
            (self.quota if operation == "create" else 0.0, Refuse(over_quota())),
            (self.gone if operation == "watch" or later_page else 0.0, Refuse(gone())),
        ]
        if operation != "watch":
            delay = entropy.uniform(0.0, 1.0) * self.max_delay
            faults += [
                (self.lost_answer, LoseAnswer()),
                (self.stall, Stall()),
                (self.half_open, Stall(delivered=True)),
                (self.delay_request, DelayRequest(delay)),
                (self.delay_answer, DelayAnswer(delay)),
                (self.stale_list if operation == "list" else 0.0, StaleList()),
            ]
        return faults


_NO_CHANCES: Final = Chances()
