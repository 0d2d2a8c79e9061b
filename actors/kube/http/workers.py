"""The bounded number of threads that run calls, each with its own client."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeAlias, final

from actors.errors import NoThread
from actors.kube.http.client import Client
from actors.runtime import start_thread
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
    """At most `limit` daemon threads, each started when there is work and none is idle.

    Another thread starts all but the first: each start takes milliseconds on a busy machine, and an actor that submits
    a job would wait for it.
    """

    def __init__(self, limit: int, make_client: Callable[[], Client]) -> None:
        self._most = limit
        self._limit = limit
        """Fewer than may be, while there are too few threads for others."""
        self._make_client = make_client
        self._lock = threading.Lock()
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        """None ends a worker."""
        self._open = 0
        """Jobs that are queued or run."""
        self._threads: list[threading.Thread] = []
        self._starter: threading.Thread | None = None
        """Starts workers until there are as many as may be."""
        self._lacking: queue.SimpleQueue[None] = queue.SimpleQueue()
        """Wakes it."""
        self._starting = threading.Lock()
        """Held while a worker is started."""
        self._closed = False

    def submit(self, job: Job) -> None:
        """Run a job in a worker, in the order of submission. Drops the job if closed.

        Raises:
            NoThread: no thread can be started, and no worker exists yet.
        """
        with self._lock:
            if self._closed:
                return
            if not self._threads:
                self._start()
            elif self._open >= len(self._threads) and len(self._threads) < self._limit:
                self._start_soon()
            self._open += 1
            self._jobs.put(job)

    def spare_one(self) -> int:
        """End one thread, but not the last, and start none until `use_all`. Return how many there may be."""
        with self._starting, self._lock:
            self._limit = max(1, len(self._threads) - 1)
            self._open += 1
            self._jobs.put(_nothing)  # a worker that is idle looks at the limit after that
            self._lacking.put(None)  # and the starter now
            return self._limit

    def use_all(self) -> None:
        """Have as many threads as may be."""
        self._limit = self._most

    def close(self) -> tuple[threading.Thread, ...]:
        """Drop queued and later jobs, and end each worker after its current job. Return the threads, to be joined."""
        with self._lock:
            self._closed = True
            with suppress(queue.Empty):
                while True:
                    self._jobs.get_nowait()
            self._lacking.put(None)
        with self._starting:  # the last start
            threads = tuple(self._threads)
            for _ in threads:
                self._jobs.put(None)
            return (*threads, *([] if self._starter is None else [self._starter]))

    def _start_soon(self) -> None:
        """Have a worker started. If that fails, the next job that finds none idle tries again."""
        if self._starter is None or not self._starter.is_alive():
            with suppress(NoThread):
                self._starter = start_thread(self._start_more, "executor-pods/kube-calls")
        self._lacking.put(None)

    def _start_more(self) -> None:
        while not self._closed and len(self._threads) < self._limit:
            self._lacking.get()
            with self._starting, suppress(NoThread):
                if len(self._threads) < min(self._open, self._limit) and not self._closed:
                    self._start()

    def _start(self) -> None:
        self._threads.append(start_thread(self._run, f"executor-pods/kube-call-{len(self._threads) + 1}"))

    def _run(self) -> None:
        client = self._make_client()
        while (job := self._jobs.get()) is not None:
            try:
                job(client)
            except BaseException:
                logger.exception("call failed with an error that should have been its answer, worker continues")
            del job  # the wait for the next job may be long, and this one may hold much memory
            with self._lock:
                self._open -= 1
                if len(self._threads) > self._limit:
                    self._threads.remove(threading.current_thread())
                    break
        client.close()


def _nothing(_: Client) -> None:
    pass
