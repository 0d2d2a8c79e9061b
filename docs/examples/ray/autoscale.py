"""Run Ray tasks on nodes that come by demand, are replaced when they are killed, and go when they are idle.

python autoscale.py
"""

import logging
import os
import secrets
import signal
import sys
import tempfile
import time

import ray
from fleet_provider import HEAD, Config, autoscaled

from actors import BackendFailed, ExecutorRemoved, ExecutorRunning, Fleet, FleetFailed

NODE_TYPES = {
    "small": {"resources": {"CPU": 1}, "node_config": {}, "min_workers": 0, "max_workers": 2},
    "accelerated": {"resources": {"CPU": 1, "accelerator": 1}, "node_config": {}, "min_workers": 0, "max_workers": 1},
}
IDLE_SECONDS = 3.0


@ray.remote(num_cpus=1, max_retries=-1)
def square(number: int) -> int:
    """Compute, slowly."""
    time.sleep(2)
    return number**2


def show(event: object) -> None:
    """Print which nodes come and go."""
    match event:
        case ExecutorRunning(executor_id, profile=profile):
            print(f"node {executor_id} runs: {profile}", flush=True)
        case ExecutorRemoved(executor_id, reason):
            print(f"node {executor_id} is gone: {reason.kind.name}", flush=True)
        case FleetFailed(cause) | BackendFailed(cause):
            print(f"nodes end too early: {cause}", flush=True)


def node(gcs_address: str, folder: str, name: str, resources: dict) -> dict:
    """Return the profile of a node type. The pod's name tells Ray which of its nodes is which executor.

    Nodes of one machine that start at once may take the same sockets: each has a folder of its own.
    """
    cpus = resources["CPU"]
    others = {kind: amount for kind, amount in resources.items() if kind != "CPU"}
    identity = ["env", "RAY_CLOUD_INSTANCE_ID=$(EXECUTOR_POD_NAME)", f"RAY_NODE_TYPE_NAME={name}"]
    start = [
        "ray",
        "start",
        "--block",
        "--address",
        gcs_address,
        f"--num-cpus={cpus}",
        f"--temp-dir={folder}/$(EXECUTOR_ID)",
    ]
    memory = ["--object-store-memory=100000000", "--disable-usage-stats"]
    custom = ["--resources", str(others).replace("'", '"')] if others else []
    return {"instances": 0, "replace": "never", "command": [*identity, *start, *memory, *custom]}


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    os.environ |= {"RAY_CLOUD_INSTANCE_ID": HEAD, "RAY_NODE_TYPE_NAME": HEAD, "RAY_enable_autoscaler_v2": "1"}
    os.environ["RAY_AUTH_TOKEN"] = token = secrets.token_hex()
    ray.init(
        num_cpus=0,
        include_dashboard=False,
        object_store_memory=100_000_000,
        log_to_driver=False,
        logging_level=logging.WARNING,
    )
    gcs_address = ray.get_runtime_context().gcs_address
    with (
        tempfile.TemporaryDirectory() as folder,
        Fleet(
            local=True,
            instances=0,
            profiles={name: node(gcs_address, folder, name, each["resources"]) for name, each in NODE_TYPES.items()},
            env={"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": token},
            on_event=show,
        ) as fleet,
        autoscaled(fleet, gcs_address, Config(NODE_TYPES, IDLE_SECONDS)),
    ):
        waiting = [square.remote(number) for number in range(12)]
        waiting.append(square.options(resources={"accelerator": 1}).remote(12))
        total = 0
        while waiting:
            done, waiting = ray.wait(waiting)
            total += sum(ray.get(done))
            print(f"{len(waiting)} tasks are left", flush=True)
        print(f"the sum of 13 squares is {total}", flush=True)
        while fleet.executors:
            time.sleep(0.5)
        print("no node is left", flush=True)
