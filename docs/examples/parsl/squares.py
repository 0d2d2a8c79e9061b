"""Run Parsl apps on a fleet.

python squares.py
"""

import signal
import sys

import parsl
from fleet_provider import FleetProvider
from parsl.config import Config
from parsl.executors import HighThroughputExecutor


@parsl.python_app
def square(number: int) -> int:
    """Compute, slowly. Parsl sends this function alone: it imports what it needs."""
    import time  # noqa: PLC0415 - see above

    time.sleep(1)
    return number**2


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with FleetProvider(init_blocks=2, max_blocks=2) as provider:
        executor = HighThroughputExecutor(
            provider=provider,
            address="127.0.0.1",
            max_workers_per_node=1,
            heartbeat_period=2,
            heartbeat_threshold=6,  # seconds until the tasks of a lost block run again
        )
        with parsl.load(Config([executor], retries=3, strategy="htex_auto_scale", max_idletime=3)):
            futures = [square(number) for number in range(16)]
            for number, future in enumerate(futures):
                print(f"the square of {number} is {future.result()}", flush=True)
            print(f"the sum is {sum(future.result() for future in futures)}", flush=True)
