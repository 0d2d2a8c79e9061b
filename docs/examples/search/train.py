"""An executor: trains the model that a trial describes, and answers how good it is."""

import math
import random
import sys

from actors.registration.executor import run

INPUTS = 8


def data(rng: random.Random, count: int) -> list[tuple[list[float], int]]:
    """Draw points, and on which side of a noisy plane each one lies."""
    points = [[rng.gauss(0, 1) for _ in range(INPUTS)] for _ in range(count)]
    return [(point, int(sum(point) + rng.gauss(0, 1) > 0)) for point in points]


def train(trial: dict) -> float:
    """Fit a logistic regression by gradient descent. Returns its loss on points that it has not seen."""
    rng = random.Random(33)
    seen, unseen = data(rng, 400), data(rng, 400)
    weights = [0.0] * INPUTS

    def chance(point: list[float]) -> float:
        return 1 / (1 + math.exp(-sum(map(float.__mul__, weights, point))))

    for epoch in range(trial["epochs"]):
        rate = trial["rate"] * trial["decay"] ** epoch
        for point, side in seen:
            step = rate * (side - chance(point))
            weights = [weight + step * value for weight, value in zip(weights, point, strict=True)]
    return -sum(math.log(max(1e-9, abs(1 - side - chance(point)))) for point, side in unseen) / len(unseen)


if __name__ == "__main__":
    sys.exit(run(train))
