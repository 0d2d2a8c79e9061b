"""A Dask program for a pod of the cluster: it prints a line when somebody may do something to a worker."""

import os
import sys
import time

from distributed import wait

from actors.dask import PodCluster


def pod() -> str:
    """The worker's pod."""
    return os.environ["EXECUTOR_POD_NAME"]


def square(number: int) -> int:
    time.sleep(0.2)  # long enough that a worker is killed among its tasks
    return number * number


def say(*words: object) -> None:
    print(*words, flush=True)


if __name__ == "__main__":
    node, deed = sys.argv[1:]
    with PodCluster(
        n_workers=3,
        name=os.environ["NAME"],
        image="registry.example/driver:1.4",
        nthreads=1,
        memory_limit="300MiB",
        resources={"requests": {"cpu": "50m", "memory": "300Mi"}, "limits": {"memory": "400Mi"}},
        settings={"executor": {"node_selector": {"kubernetes.io/hostname": node}}},
    ) as cluster:
        cluster.wait_for_workers(3, timeout="4m")
        client = cluster.get_client()
        workers = sorted(client.run(pod).values())
        if deed == "kill":
            squares = client.map(square, range(60))
            say("kill", workers[0])
            say("sum", sum(client.gather(squares)))
            cluster.wait_for_workers(3, timeout="4m")
            say("workers", 3)
        else:
            squares = client.map(square, range(30))
            wait(squares)
            say("delete", workers[0])
            gone = {address for address, name in client.run(pod).items() if name == workers[0]}
            while gone & set(client.scheduler_info()["workers"]):
                time.sleep(0.1)
            say("handed over")
            say("sum", sum(client.gather(squares)))
    say("closed")
