"""The bounded number of threads that run calls, each with its own client."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any, TypeAlias, final

from actors.kube.http.client import Client
from actors.text import get_logger

__all__ = ["Job", "Workers", "deliver"]

logger = get_logger(__name__)

Job: TypeAlias = Callable[[Client], None]
"""A task that a worker runs with its own client."""


def deliver(reply: Callable[[Any], None], answer: object) -> None:
    """Call `reply`. A reply must not raise; one that does is logged, so that the thread survives."""
    try:
        reply(answer)
    except BaseException:
        logger.exception("reply raised, answer lost: answer=%s", type(answer).__name__)


@final
class Workers:
    """At most `limit` daemon threads, each started when there is work and none is idle."""

    def __init__(self, limit: int, make_client: Callable[[], Client]) -> None:
        self._limit = limit
        self._make_client = make_client
        self._changed = threading.Condition()
        self._jobs: deque[Job] = deque()
        self._threads: list[threading.Thread] = []
        self._idle = 0
        self._closed = False

    def submit(self, job: Job) -> None:
        """Run a job in a worker, in the order of submission. Drops the job if closed.

        Raises:
            RuntimeError: no thread can be started, and no worker exists yet.
        """
        with self._changed:
            if self._closed:
                return
            self._jobs.append(job)
            if self._idle >= len(self._jobs):
                self._changed.notify()
            elif len(self._threads) < self._limit:
                try:
                    self._start()
                except RuntimeError:
                    if not self._threads:
                        self._jobs.pop()
                        raise

    def close(self) -> tuple[threading.Thread, ...]:
        """Drop queued and later jobs, and end each worker after its current job. Return the threads, to be joined."""
        with self._changed:
            self._closed = True
            self._jobs.clear()
            self._changed.notify_all()
            return tuple(self._threads)

    def _start(self) -> None:
        thread = threading.Thread(
            target=self._run, name=f"executor-pods/kube-call-{len(self._threads) + 1}", daemon=True
        )
        thread.start()
        self._threads.append(thread)

    def _run(self) -> None:
        client = self._make_client()
        while (job := self._next()) is not None:
            try:
                job(client)
            except BaseException:
                logger.exception("call failed with an error that should have been its answer, worker continues")
            del job  # the wait for the next job may be long, and this one may hold much memory
        client.close()

    def _next(self) -> Job | None:
        with self._changed:
            self._idle += 1
            while not self._jobs and not self._closed:
                self._changed.wait()
            self._idle -= 1
            return self._jobs.popleft() if self._jobs else None
