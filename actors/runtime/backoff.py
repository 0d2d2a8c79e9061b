"""`Backoff`: the delay before a retry, exponential with jitter and a maximum. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from actors.runtime.entropy import Entropy

__all__ = ["Backoff"]

MAX_EXPONENT: Final = 64
"""Every sensible `maximum` is reached long before; a float power overflows at about 1000."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """The defaults are those of client-go's reflector: 0.8 s to 30 s, factor 2, jitter 1.0, reset after 2 minutes."""

    initial: timedelta = timedelta(milliseconds=800)
    maximum: timedelta = timedelta(seconds=30)
    """The longest delay, before jitter."""
    factor: float = 2.0
    jitter: float = 1.0
    """The largest random extension, as a fraction of the delay, so that clients that failed together spread out."""
    reset_after: timedelta = timedelta(minutes=2)
    """After this long without a failure, the caller starts counting from zero again."""

    def delay(self, failures: int, entropy: Entropy) -> timedelta:
        """Return the delay before the next try; `failures` counts the failures in a row *before* the last one."""
        grown = self.initial.total_seconds() * self.factor ** min(failures, MAX_EXPONENT)
        return entropy.jittered(
            min(timedelta(seconds=min(grown, self.maximum.total_seconds())), self.maximum), self.jitter
        )
