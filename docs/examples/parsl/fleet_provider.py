"""Parsl's blocks as executors of a fleet: Parsl decides how many there are, and whether a lost one is replaced."""

import itertools
import secrets
import socket
import sys
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from parsl.jobs.states import JobState, JobStatus
from parsl.providers.base import ExecutionProvider

from actors import ExecutorRemoved, ExecutorRunning, Fleet
from actors.registration.listener import Answered, Connected, Connection, Listener, ListenerThread


@dataclass
class Job:
    """One block."""

    command: str
    state: JobState = JobState.PENDING
    message: str | None = None
    executor_id: int | None = None


class FleetProvider(ExecutionProvider):
    """Each job is an executor. The first executor that connects gets the oldest job that waits.

    All executors of a fleet have the same command, and each block has its own: so a block's command is sent to its
    executor. The fleet has `replace="never"`; the jobs that wait and the executors without a job are equally many.
    """

    label = "fleet"
    status_polling_interval = 1

    def __init__(self, *, init_blocks: int = 1, min_blocks: int = 0, max_blocks: int = 1) -> None:
        self.init_blocks, self.min_blocks, self.max_blocks = init_blocks, min_blocks, max_blocks
        self.nodes_per_block, self.parallelism = 1, 1.0
        self.script_dir = self.cores_per_node = self.mem_per_node = None
        self.resources: dict[int, Job] = {}
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        token = secrets.token_urlsafe()
        sock = self._stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        self._fleet = self._stack.enter_context(
            Fleet(
                local=True,
                instances=0,
                replace="never",
                command=[sys.executable, str(Path(__file__).with_name("block.py"))],
                env={"DRIVER_TOKEN": token},
                driver_address=f"127.0.0.1:{sock.getsockname()[1]}",
                on_event=self._heard,
            )
        )
        self._stack.enter_context(ListenerThread(Listener(token, tell=self._heard), self._fleet, sock))
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    # ── what Parsl calls ────────────────────────────────────────────────────────────────────────────────────────

    def submit(self, command: str, *_: object) -> int:
        """Want one executor more."""
        with self._lock:
            number = next(self._numbers)
            self.resources[number] = Job(command)
        self._fleet.scale(self._fleet.status().profiles["default"].target + 1)
        return number

    def status(self, job_ids: Sequence[object]) -> list[JobStatus]:
        """Return what became of each job."""
        with self._lock:
            return [JobStatus(job.state, job.message) for job in map(self.resources.__getitem__, job_ids)]

    def cancel(self, job_ids: Sequence[object]) -> list[bool]:
        """End the executors of these jobs. One that has not connected yet finds no job then, and ends."""
        with self._lock:
            jobs = [job for job in map(self.resources.__getitem__, job_ids) if not JobStatus(job.state).terminal]
            for job in jobs:
                job.state = JobState.CANCELLED
        self._fleet.kill([job.executor_id for job in jobs if job.executor_id is not None], grace="1s", replace=False)
        return [True] * len(job_ids)

    # ── what the executors and the fleet tell ───────────────────────────────────────────────────────────────────

    def _heard(self, message: object) -> None:
        """Called by two threads, the listener's and the fleet's."""
        with self._lock:
            match message:
                case Connected(connection):
                    self._connected(connection)
                case Answered(connection, number, code):
                    job = self.resources[number]
                    if not JobStatus(job.state).terminal:
                        job.state = JobState.FAILED if code else JobState.COMPLETED
                        job.message = f"exit code {code}"
                    connection.stop()
                case ExecutorRunning(executor_id):
                    print(f"block on executor {executor_id} runs", flush=True)
                case ExecutorRemoved(executor_id, reason):
                    print(f"block on executor {executor_id} is gone: {reason.kind.name}", flush=True)
                    self._removed(executor_id, reason.message)

    def _connected(self, connection: Connection) -> None:
        for number, job in self.resources.items():
            if job.state is JobState.PENDING:
                job.state, job.executor_id = JobState.RUNNING, connection.executor_id
                connection.send(number, job.command)
                return
        connection.stop()

    def _removed(self, executor_id: int, why: str) -> None:
        """Note the end of an executor's job; of one that never connected, that of a job that waits."""
        lost = [job for job in self.resources.values() if job.executor_id == executor_id]
        for job in lost or [job for job in self.resources.values() if job.state is JobState.PENDING][-1:]:
            if not JobStatus(job.state).terminal:
                job.state, job.message = JobState.FAILED, why
