"""Faults between a client and a server, as values, and the chance of each."""

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
    """The server, or a proxy, answers with this error and does nothing. A watch does not begin."""

    error: ApiError


@dataclass(frozen=True, slots=True)
class LoseAnswer:
    """The server carries out the request; the connection breaks before the answer arrives."""


@dataclass(frozen=True, slots=True)
class Stall:
    """No answer comes until the call's limit. With `delivered`, the server gets the request: a half-open connection."""

    delivered: bool = False


@dataclass(frozen=True, slots=True)
class DelayRequest:
    """The request reaches the server late, even after the client's limit."""

    by: timedelta


@dataclass(frozen=True, slots=True)
class DelayAnswer:
    """The answer arrives late: a list is outdated by then."""

    by: timedelta


@dataclass(frozen=True, slots=True)
class StaleList:
    """A lagging cache answers a LIST: with the oldest known answer for the same page."""


Fault: TypeAlias = Refuse | LoseAnswer | Stall | DelayRequest | DelayAnswer | StaleList


def too_many_requests(retry_after: timedelta = timedelta(seconds=1)) -> TooManyRequests:
    """Return the 429 of priority-and-fairness."""
    message = "Too many requests, please try again later."
    return TooManyRequests(message, status=429, reason="TooManyRequests", retry_after=retry_after)


def server_error(code: int = 500) -> Unavailable:
    """Return a 5xx."""
    return Unavailable("an error on the server has prevented the request from succeeding", status=code)


def over_quota() -> QuotaExceeded:
    """Return the 403 of an exceeded quota."""
    return QuotaExceeded(
        'pods "" is forbidden: exceeded quota: injected, requested: pods=1, used: pods=9, limited: pods=9',
        status=403,
        reason="Forbidden",
    )


def gone() -> Gone:
    """Return a 410."""
    return Gone("too old resource version: 1 (2)", status=410, reason="Expired")


@dataclass(frozen=True, slots=True)
class Chances:
    """The probability of each fault, from 0 to 1, drawn for every call, stream or event that it applies to."""

    too_many_requests: float = 0.0
    server_error: float = 0.0
    quota: float = 0.0
    """For creates."""
    lost_answer: float = 0.0
    stall: float = 0.0
    half_open: float = 0.0
    delay_request: float = 0.0
    delay_answer: float = 0.0
    stale_list: float = 0.0
    gone: float = 0.0
    """For watches, at their beginning, and for later pages of a LIST."""
    cut: float = 0.0
    """For watches, at each event."""
    freeze: float = 0.0
    """For watches, at each event: the stream stays open and delivers nothing more."""
    lag: float = 0.0
    """For watches, at each event: this event and those behind it are late."""
    max_delay: timedelta = timedelta(seconds=3)
    """The upper bound of delays and lags, which are drawn from 0 on."""

    @property
    def any_of_streams(self) -> bool:
        """Whether any fault of open streams is possible."""
        return bool(self.cut or self.freeze or self.lag)

    def draw(self, operation: Operation, entropy: Entropy, *, later_page: bool = False) -> Fault | None:
        """Draw the fault of one call, if any."""
        if self == _NO_CHANCES:  # draw nothing: without chances the wrapper must not change a run
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
