"""An Airflow DAG with a task that owns a fleet: Dask workers that are executors, for as long as the task runs.

python squares.py
"""

import os
import sys

from airflow.sdk import dag, task


@dag(schedule=None)
def squares() -> None:
    """Square numbers on a fleet."""

    @task
    def numbers() -> list[int]:
        return list(range(40))

    @task(retries=1)
    def compute(numbers: list[int]) -> int:
        from actors.dask import PodCluster  # noqa: PLC0415 - the scheduler only reads the file

        def square(number: int) -> int:
            import time  # noqa: PLC0415 - runs elsewhere

            time.sleep(0.25)
            return number**2

        with (
            PodCluster(n_workers=2, local=True, dashboard_address=None) as cluster,
            cluster.get_client() as client,
        ):
            cluster.wait_for_workers(2, timeout="1m")
            print("the workers are the processes", *client.run(os.getpid).values(), flush=True)
            total = sum(client.gather(client.map(square, numbers)))
            for _, event in cluster.events():
                if event["action"] == "removed":
                    print(f"worker {event['executor']} was lost, and replaced", flush=True)
        return total

    @task
    def show(total: int) -> None:
        print(f"the sum of all squares is {total}", flush=True)

    show(compute(numbers()))


DAG = squares()

if __name__ == "__main__":
    state = DAG.test().state
    print(f"the run ends as {state}")
    sys.exit(state != "success")
