"""How long to wait after a failure: exponential, with jitter, bounded. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from actors.runtime.entropy import Entropy

__all__ = ["Backoff"]

MAX_EXPONENT: Final = 64
"""Beyond this every sensible `maximum` is reached; a float's power would overflow at about a thousand."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """client-go's reflector uses 0.8 s → 30 s, factor 2, jitter 1.0, reset after 2 minutes: the defaults here."""

    initial: timedelta = timedelta(milliseconds=800)
    maximum: timedelta = timedelta(seconds=30)
    """Of the delay before jitter."""
    factor: float = 2.0
    jitter: float = 1.0
    """Each delay is stretched at random by up to this part of itself, so that many who failed together spread out."""
    reset_after: timedelta = timedelta(minutes=2)
    """After this long without a failure the next one counts as the first; whoever counts the failures applies it."""

    def delay(self, failures: int, entropy: Entropy) -> timedelta:
        """How long to wait now, after `failures` *earlier* failures in a row: with 0, `initial` and its jitter."""
        grown = self.initial.total_seconds() * self.factor ** min(failures, MAX_EXPONENT)
        return entropy.jittered(
            min(timedelta(seconds=min(grown, self.maximum.total_seconds())), self.maximum), self.jitter
        )
