"""How soon a driver works: its import of the library, its first requests, and its first processes."""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from queue import SimpleQueue
from typing import Final

from actors import Backend, ExecutorRunning, Fleet, Settings
from actors.local.kubelet.processes import containers
from tests.benchmarks.pods import APP_ID
from tests.benchmarks.serving import Serving

__all__ = ["measure"]

IMPORTS: Final = {
    "ours": "from actors import Fleet",
    "kubernetes": "from kubernetes import client, config, watch",
    "lightkube": "from lightkube import Client",
    "kr8s": "import kr8s",
    "kopf": "import kopf",
}

IMPORT: Final = """
import time
wall, cpu = time.monotonic(), time.process_time()
{}
print(time.monotonic() - wall, time.process_time() - cpu)
"""

SAFETY_SECONDS: Final = 60.0


def measure(who: str, *, until: str, executors: int = 4) -> dict[str, float]:
    """Measure until the library is imported, a command has answered, the first LIST or POST is sent, or all run."""
    if until == "imported":
        return _imported(IMPORTS[who])
    if until == "answered":
        return _answered(who)
    if until == "running":
        return _running(executors) if who == "ours" else _spawned(executors)
    return _requested(until)


def _imported(statement: str) -> dict[str, float]:
    """Measure an import, in a process that has imported nothing else."""
    done = subprocess.run([sys.executable, "-c", IMPORT.format(statement)], capture_output=True, text=True, check=True)
    seconds, cpu = map(float, done.stdout.split())
    return {"seconds": seconds, "cpu s": cpu}


def _answered(command: str) -> dict[str, float]:
    """Measure a command from its start to its end."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    subprocess.run([sys.executable, "-m", "actors", *command.split()], capture_output=True, check=True)
    seconds, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return {"seconds": seconds, "cpu s": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime}


def _requested(until: str) -> dict[str, float]:
    """Measure from the start of a backend, which loads the packages of its connection."""
    settings = Settings(app_id=APP_ID, executor={"image": "worker", "instances": 1}, backend={"lease": False})
    heard: SimpleQueue[object] = SimpleQueue()
    with Serving(0, starts=True) as serving:
        began, cpu = time.monotonic(), time.process_time()
        backend = Backend.start(settings, heard.put, kubeconfig=serving.kubeconfig)
        while not isinstance(heard.get(timeout=SAFETY_SECONDS), ExecutorRunning):
            pass
        cpu = time.process_time() - cpu
        counts = serving.ask("counts")
        backend.stop()
    sent = counts["first_list"] if until == "LIST" else counts["posts"][0]
    return {"seconds": sent - began, "cpu s": cpu}


def _running(executors: int) -> dict[str, float]:
    """Measure from the making of a fleet on the embedded cluster, whose packages it loads."""
    began, cpu = time.monotonic(), time.process_time()
    with Fleet(local=True, instances=executors) as fleet:
        fleet.wait_for(running=executors, timeout=f"{SAFETY_SECONDS:g}s")
        return {"seconds": time.monotonic() - began, "cpu s": time.process_time() - cpu}


def _spawned(executors: int) -> dict[str, float]:
    """Measure until the same processes run. A process runs when it has become the program: then `Popen` returns."""
    command = containers.argv({}, {})
    began, cpu = time.monotonic(), time.process_time()
    spawned = [subprocess.Popen(command, stdout=subprocess.DEVNULL) for _ in range(executors)]
    figures = {"seconds": time.monotonic() - began, "cpu s": time.process_time() - cpu}
    for process in spawned:
        process.kill()
        process.wait()
    return figures
