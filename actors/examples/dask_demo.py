"""Share a computation among Dask workers that are killed, out of memory, drained, and fewer or more than before.

    python -m actors.examples.dask_demo
    python -m actors.examples.dask_demo --tasks 6000      # ten times as long

A complete program on `PodCluster`, with four minutes of work for eight workers. They are pods of an embedded cluster,
so that the program can end them as others end them in a real one. It checks that the result is right, and that no task
of a worker that could drain was computed again: each task notes which worker begins it. Then it prints why each worker
went, in the fleet's words.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Final

from distributed import as_completed

from actors.dask import PodCluster
from actors.local.cluster import LocalCluster

NAME: Final = "demo"
"""Of the cluster. Its pods are `demo-exec-1`, `demo-exec-2` and so on."""


class Event(StrEnum):
    """What happens to the cluster, or to a worker."""

    KILLED = "worker {} is killed"
    OUT_OF_MEMORY = "worker {} is out of memory"
    DELETED = "the pod of worker {} is deleted"
    FEWER = "3 workers are enough"
    MORE = "8 workers are wanted again"


TIMETABLE: Final = (
    (0.15, Event.KILLED),
    (0.30, Event.OUT_OF_MEMORY),
    (0.45, Event.DELETED),
    (0.60, Event.FEWER),
    (0.75, Event.MORE),
)
"""What happens when this part of the tasks is done."""


@dataclass
class Outcome:
    """What came of it."""

    total: int = 0
    """The sum of the results."""
    executions: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    """By task: the workers that began it, in this order."""
    lost: set[int] = field(default_factory=set)
    """Workers that were ended at once, with all results that they had."""
    drained: set[int] = field(default_factory=set)
    """Workers whose pods were deleted."""
    reasons: dict[int, str] = field(default_factory=dict)
    """By worker that went: why."""

    def repeated(self) -> Counter[int]:
        """Return how many tasks another worker computed again, by the worker that had them."""
        return Counter(worker for workers in self.executions.values() for worker in workers[:-1])

    def problems(self, tasks: int) -> list[str]:
        """Return what is wrong."""
        right = sum(number**2 for number in range(tasks))
        problems = [] if self.total == right else [f"the sum is {self.total}, and should be {right}"]
        for worker, count in self.repeated().items():
            if worker not in self.lost:
                problems.append(f"tasks of worker {worker}, which could drain, were computed again: {count}")
        return problems


def work(number: int, seconds: float, notes: str) -> tuple[int, int]:
    """Compute the square of a number, slowly. Returns it, and the worker that has computed it."""
    worker = int(os.environ["EXECUTOR_ID"])
    with Path(notes).open("a") as file:
        file.write(f"{number} {worker}\n")
    time.sleep(seconds)
    return number**2, worker


def compute(tasks: int, seconds: float, folder: str) -> Outcome:
    """Compute, while all of this happens to the cluster."""
    with (
        LocalCluster() as kubernetes,
        PodCluster(
            n_workers=8,
            name=NAME,
            kubeconfig=kubernetes.kubeconfig_path,
            image="any",  # the embedded cluster runs commands of this machine, not images
            worker_command=(sys.executable, "-m", "distributed.cli.dask_worker"),
            worker_options={"local-directory": folder},
            host="127.0.0.1",
            dashboard_address=None,
            silence_logs="critical",  # Dask warns of each lost result
        ) as cluster,
        cluster.get_client() as client,
    ):
        cluster.wait_for_workers(8, timeout="2m")
        print(f"8 workers share {tasks} tasks of {seconds:g} s", flush=True)
        outcome, timetable, notes = Outcome(), list(TIMETABLE), Path(folder, "notes")
        futures = client.map(work, range(tasks), seconds=seconds, notes=str(notes), pure=False)
        for done, (_, (square, worker)) in enumerate(as_completed(futures, with_results=True), start=1):
            outcome.total += square
            if timetable and done >= timetable[0][0] * tasks and worker not in outcome.lost | outcome.drained:
                _, event = timetable.pop(0)
                print(f"{done} tasks are done: {event.format(worker)}", flush=True)
                let_happen(event, worker, cluster, kubernetes, outcome)
        for line in notes.read_text().splitlines():
            task, worker = map(int, line.split())
            outcome.executions[task].append(worker)
        while not outcome.lost | outcome.drained <= outcome.reasons.keys():
            time.sleep(0.1)
            removals = [event for _, event in cluster.events() if event["action"] == "removed"]
            outcome.reasons = {each["executor"]: each["message"] for each in removals}
        return outcome


def let_happen(event: Event, worker: int, cluster: PodCluster, kubernetes: LocalCluster, outcome: Outcome) -> None:
    """Do it, to the worker that has just finished a task if it happens to one."""
    pod = f"{NAME}-exec-{worker}"
    match event:
        case Event.KILLED:
            outcome.lost.add(worker)
            kubernetes.kill(pod)
        case Event.OUT_OF_MEMORY:
            outcome.lost.add(worker)
            kubernetes.oom(pod)
        case Event.DELETED:
            outcome.drained.add(worker)
            kubernetes.store.delete("pods", "default", pod)  # as `kubectl delete pod` does
        case Event.FEWER:
            cluster.scale(3)
        case Event.MORE:
            cluster.scale(8)


def report(outcome: Outcome, tasks: int) -> int:
    """Print what came of it. Returns the exit code: 1 if something is wrong."""
    for worker, reason in sorted(outcome.reasons.items()):
        print(f"worker {worker} went: {reason.partition('; containers:')[0]}")
    repeated = outcome.repeated()
    of_workers = ", ".join(f"{count} of worker {worker}" for worker, count in repeated.items())
    print(f"the sum of {tasks} squares is {outcome.total}; computed again: {of_workers or 'no task'}")
    problems = outcome.problems(tasks)
    print("\n".join(problems) or "that is right, and no task of a worker that could drain was computed again")
    return 1 if problems else 0


def main() -> int:
    """Run it. Ctrl-C ends the workers, too."""
    parser = argparse.ArgumentParser(prog="python -m actors.examples.dask_demo")
    parser.add_argument("--tasks", type=int, default=600, help="how many (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=0.4, help="how long each takes (default: %(default)s)")
    given = parser.parse_args()
    try:
        with tempfile.TemporaryDirectory(prefix=f"{NAME}-") as folder:
            outcome = compute(given.tasks, given.seconds, folder)
    except KeyboardInterrupt:
        print("interrupted: all workers have ended")
        return 130
    return report(outcome, given.tasks)


if __name__ == "__main__":
    sys.exit(main())
