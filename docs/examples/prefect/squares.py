"""A Prefect flow whose tasks run on Dask workers that are executors.

python squares.py
"""

import os
import time

from prefect import flow, task
from prefect_dask import DaskTaskRunner

RUNNER = DaskTaskRunner(
    cluster_class="actors.dask.PodCluster",
    cluster_kwargs={"n_workers": 2, "local": True, "dashboard_address": None},
)


@task
def process() -> int:
    """Return the process of a worker."""
    return os.getpid()


@task
def square(number: int) -> int:
    """Compute, slowly."""
    time.sleep(3)
    return number**2


@flow(task_runner=RUNNER)
def squares() -> int:
    """Square numbers on a fleet, which begins and ends with the flow."""
    print("a worker is the process", process.submit().result(), flush=True)
    return sum(square.map(range(4)).result())


if __name__ == "__main__":
    print(f"the sum of all squares is {squares()}")
