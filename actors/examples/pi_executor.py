"""The executor of `actors.examples.pi`: counts random points inside the quarter circle, task after task.

Its whole protocol is JSON, one object a line: it says who it is, gets a task, answers it, gets the next, until the
driver hangs up. A task carries its seed, so whoever computes it, and however often, the answer is the same.
"""

from __future__ import annotations

import json
import os
import random
import socket


def main() -> None:
    """Serve the driver that `DRIVER_ADDRESS` names."""
    host, _, port = os.environ["DRIVER_ADDRESS"].rpartition(":")
    with socket.create_connection((host, int(port))) as connection, connection.makefile("rw") as lines:
        hello = {"executor_id": int(os.environ["EXECUTOR_ID"]), "pod": os.environ["EXECUTOR_POD_NAME"]}
        print(json.dumps(hello), file=lines, flush=True)
        for line in lines:
            task = json.loads(line)
            answer = {"task_id": task["task_id"], "inside": count_inside(task["seed"], task["samples"])}
            print(json.dumps(answer), file=lines, flush=True)


def count_inside(seed: int, samples: int) -> int:
    """How many of `samples` points, drawn with `seed`, lie inside the quarter circle."""
    draw = random.Random(seed).random  # noqa: S311 - Monte Carlo, not cryptography
    return sum(draw() ** 2 + draw() ** 2 <= 1.0 for _ in range(samples))


if __name__ == "__main__":
    main()
