"""The delay before a retry: client-go's reflector backoff, or the server's `Retry-After`, which is bounded.

A refusal that no retry should help is retried, too, until it has lasted. Pure, except for the entropy passed in.
Nothing here sleeps: the caller sets a timer.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final, TypeGuard

from actors.errors import TooManyRequests, Unavailable
from actors.runtime import Backoff, elapsed

if TYPE_CHECKING:
    from actors.errors import ApiError
    from actors.runtime import Entropy, Moment


__all__ = ["MAX_RETRY_AFTER", "PATIENCE", "REFLECTOR", "Patience", "lacks_server", "requested_wait", "retry_delay"]

NO_SERVER: Final = frozenset({0, 502, 503, 504})
"""0: no connection, or no answer in time. 502 and 504: a gateway without a server, or without an answer in time. 503: a
server that is not ready, or shutting down. Every other status comes from a server that works: 429 has its own rule, and
a 500 concerns one request (a failing webhook, an object that cannot be stored).
"""


def lacks_server(answer: object) -> TypeGuard[Unavailable]:
    """Whether a request failed because no server answered. Any other answer, a refusal too, proves that one works."""
    return isinstance(answer, Unavailable) and answer.status in NO_SERVER


REFLECTOR: Final = Backoff(
    initial=timedelta(milliseconds=800), maximum=timedelta(seconds=30), reset_after=timedelta(minutes=2)
)
"""client-go's reflector: 0.8 s doubling to 30 s, jitter up to the delay itself, reset after two minutes of health."""


RETRY_AFTER_JITTER: Final = 0.5
"""Of `Retry-After`, added to it: the server sends every client the same value."""

MAX_RETRY_AFTER: Final = timedelta(minutes=1)
"""The longest `Retry-After` that counts: a proxy's maintenance page asks for an hour and is gone in ten seconds."""


def retry_delay(
    backoff: Backoff,
    failures: int,
    error: ApiError | None,
    entropy: Entropy,
    longest: timedelta = MAX_RETRY_AFTER,
) -> timedelta:
    """Return the backoff after this many failures, or `Retry-After`, at most `longest`, if that is longer.

    `Retry-After` alone is not enough: priority-and-fairness answers 1 s whatever the load.
    """
    delay = backoff.delay(failures, entropy)
    if (asked := requested_wait(error, longest)) is not None:
        delay = max(delay, entropy.jittered(asked, RETRY_AFTER_JITTER))
    return delay


def requested_wait(answer: object, longest: timedelta = MAX_RETRY_AFTER) -> timedelta | None:
    """Return the `Retry-After` of an answer, at most `longest`; None if the answer has none."""
    if isinstance(answer, TooManyRequests | Unavailable) and answer.retry_after is not None:
        return min(answer.retry_after, longest)
    return None


PATIENCE: Final = timedelta(seconds=5)
"""How long a refusal that no retry should help must last to be believed. A server that starts itself, or a proxy before
it, may answer 401, 404 or 400 for a moment, and 403 until it has read its roles."""


class Patience:
    """Since when each request is refused."""

    def __init__(self) -> None:
        self._since: Moment | None = None

    def ends(self, now: Moment) -> bool:
        """Note a refusal; return whether requests have been refused for `PATIENCE`."""
        self._since = now if self._since is None else self._since
        return elapsed(self._since, now) >= PATIENCE

    def renew(self) -> None:
        """Note another answer than a refusal."""
        self._since = None
