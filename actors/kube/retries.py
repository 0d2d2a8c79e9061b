"""How long to wait before something is tried again: client-go's reflector backoff, and what the server asks for.

Pure but for the chance that it is handed. Who waits does so by its own timer; nothing here sleeps.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final, TypeGuard

from actors.errors import TooManyRequests, Unavailable
from actors.runtime import Backoff

if TYPE_CHECKING:
    from actors.errors import ApiError
    from actors.runtime import Entropy


__all__ = ["REFLECTOR", "lacks_server", "retry_delay"]

NO_SERVER: Final = frozenset({0, 502, 503, 504})
"""No connection or no answer in time; a gateway with nobody behind it, or nobody in time; a server that is not ready,
or shutting down. Every other status was given by a server that works: 429 has its own rule, and a 500 is a matter of
one request (a webhook that fails, an object that cannot be stored).
"""


def lacks_server(answer: object) -> TypeGuard[Unavailable]:
    """Whether this is what a request gets when there is no server. Any other answer, a refusal too, proves one."""
    return isinstance(answer, Unavailable) and answer.status in NO_SERVER


REFLECTOR: Final = Backoff(
    initial=timedelta(milliseconds=800), maximum=timedelta(seconds=30), reset_after=timedelta(minutes=2)
)
"""client-go's reflector: 0.8 s doubling to 30 s, jitter up to the delay itself, reset after two minutes of health."""


RETRY_AFTER_JITTER: Final = 0.5
"""On top of what the server asks for, which is the same for everyone it asks."""


def retry_delay(backoff: Backoff, failures: int, error: ApiError | None, entropy: Entropy) -> timedelta:
    """The backoff after so many earlier failures, or what the server asked for if that is longer.

    Priority-and-fairness answers `Retry-After: 1` whatever the load, so that alone is not enough.
    """
    delay = backoff.delay(failures, entropy)
    if isinstance(error, TooManyRequests | Unavailable) and error.retry_after is not None:
        delay = max(delay, entropy.jittered(error.retry_after, RETRY_AFTER_JITTER))
    return delay
