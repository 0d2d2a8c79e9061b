"""Seeds for scenarios that draw what happens."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    from random import Random

    from _pytest.mark import ParameterSet

    from tests.scenarios.world import World

__all__ = ["PAUSES", "crash_one", "lag", "seeds"]

PAUSES: Final = (0.0, 0.0, 0.004, 0.1, 0.7, 1.0, 2.5, 6.0)
"""Seconds between two steps."""

PARTS: Final = ("allocator", "lifecycle-manager", "request-pool", "snapshot-store", "watch-source")
"""The actors that may crash."""


def seeds(few: int, of: int) -> list[ParameterSet]:
    """The first few seeds for the default suite, and the others for stress runs."""
    return [pytest.param(seed, marks=[pytest.mark.stress] if seed >= few else []) for seed in range(of)]


def crash_one(random: Random, world: World) -> None:
    """One of the Backend's actors crashes, unless it is down already."""
    part = random.choice(PARTS)
    if world.lives(part):
        world.crash(part)


def lag(random: Random, world: World) -> None:
    """Events arrive later from now on, or at once again."""
    world.api.lag = timedelta(seconds=random.choice((0.0, 0.0, 0.5, 2.0)))
