"""`Entropy`: the only module that draws random numbers.

Jitter, UIDs and generated names come from here, so that one seed reproduces a whole run.
"""

from __future__ import annotations

import hashlib
import random
import string
import uuid
from typing import TYPE_CHECKING, Final, TypeVar, final

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import timedelta

__all__ = ["Entropy"]

T = TypeVar("T")

TOKEN_ALPHABET: Final = string.ascii_lowercase + string.digits
"""Characters that are allowed anywhere in a DNS label."""


@final
class Entropy:
    """Draws from the operating system, or from `seed`. Each actor or thread needs its own."""

    def __init__(self, seed: int | None = None) -> None:
        self._seed = seed
        # Unseeded draws may become names that others should not guess, so the operating system draws them.
        self._random: random.Random = (
            random.SystemRandom() if seed is None else random.Random(seed)  # noqa: S311 - a seed is for tests
        )

    def fork(self, name: str) -> Entropy:
        """Return a separate source for `name`: its draws do not depend on the draws of other actors."""
        if self._seed is None:
            return Entropy()
        digest = hashlib.sha256(f"{self._seed}/{name}".encode()).digest()
        return Entropy(int.from_bytes(digest[:8], "big"))

    def uniform(self, low: float, high: float) -> float:
        """Return a number between `low` and `high`."""
        return self._random.uniform(low, high)

    def jittered(self, delay: timedelta, factor: float) -> timedelta:
        """Return a delay between `delay` and `delay * (1 + factor)`, as client-go's `wait.Jitter` does."""
        return delay * (1.0 + factor * self._random.random())

    def token(self, length: int) -> str:
        """Return `length` characters of a-z and 0-9."""
        return "".join(self._random.choice(TOKEN_ALPHABET) for _ in range(length))

    def uid(self) -> str:
        """Return a UUID of version 4, as the API server assigns to objects."""
        return str(uuid.UUID(int=self._random.getrandbits(128), version=4))

    def choice(self, options: Sequence[T]) -> T:
        """Return one of `options`, which must not be empty."""
        return self._random.choice(options)
