"""The executor of `actors.examples.pi`: counts random points inside the quarter circle.

The protocol is JSON, one object per line. The executor sends its id, receives a task, answers it and receives the next,
until the driver disconnects. A task has its seed, so its answer is the same whichever executor computes it.
"""

from __future__ import annotations

import json
import os
import random
import socket


def main() -> None:
    """Work for the driver at `DRIVER_ADDRESS`."""
    host, _, port = os.environ["DRIVER_ADDRESS"].rpartition(":")
    with socket.create_connection((host, int(port))) as connection, connection.makefile("rw") as lines:
        hello = {"executor_id": int(os.environ["EXECUTOR_ID"]), "pod": os.environ["EXECUTOR_POD_NAME"]}
        print(json.dumps(hello), file=lines, flush=True)
        for line in lines:
            task = json.loads(line)
            answer = {"task_id": task["task_id"], "inside": count_inside(task["seed"], task["samples"])}
            print(json.dumps(answer), file=lines, flush=True)


def count_inside(seed: int, samples: int) -> int:
    """Return how many of `samples` random points lie inside the quarter circle."""
    draw = random.Random(seed).random  # noqa: S311 - Monte Carlo, not cryptography
    return sum(draw() ** 2 + draw() ** 2 <= 1.0 for _ in range(samples))


if __name__ == "__main__":
    main()
