"""The executor of `actors.examples.pi`: counts random points inside the quarter circle.

A task has its seed, so its answer is the same whichever executor computes it.
"""

from __future__ import annotations

import random
import sys
from typing import Any

from actors.registration.executor import run


def count_inside(task: dict[str, Any]) -> int:
    """Return how many of the task's random points lie inside the quarter circle."""
    draw = random.Random(task["seed"]).random  # noqa: S311 - Monte Carlo, not cryptography
    return sum(draw() ** 2 + draw() ** 2 <= 1.0 for _ in range(task["samples"]))


if __name__ == "__main__":
    sys.exit(run(count_inside))
