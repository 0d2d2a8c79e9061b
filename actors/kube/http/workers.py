"""The threads that calls run in: a bounded number, each with a client of its own."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, TypeAlias, final

from actors.kube.http.client import Client

__all__ = ["Job", "Workers", "tell"]

logger = logging.getLogger(__name__)

Job: TypeAlias = Callable[[Client], None]
"""Something for a worker to do with the client that is its own."""


def tell(reply: Callable[[Any], None], answer: object) -> None:
    """Hand over an answer. A reply that raises has broken its contract; its thread must not suffer for it."""
    try:
        reply(answer)
    except BaseException:
        logger.exception("a reply raised, its answer is lost: answer=%s", type(answer).__name__)


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
        """Do `job` in a worker, in the order of submission. Dropped once closed.

        Raises:
            RuntimeError: no thread can be started, and there is none yet.
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
        """Take no more jobs, drop those that wait, and end each worker after its job; the threads, to be joined."""
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
                logger.exception("a call's worker met an error that it should have reported, it goes on")
            del job  # the wait for the next one may be long, and it may hold much
        client.close()

    def _next(self) -> Job | None:
        with self._changed:
            self._idle += 1
            while not self._jobs and not self._closed:
                self._changed.wait()
            self._idle -= 1
            return self._jobs.popleft() if self._jobs else None
