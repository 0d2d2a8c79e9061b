"""Calls and the workers they run in.

A call is completed exactly once, by whoever is first: the worker with its answer, its caller by `cancel`, the timer
that watches its limit, or `close`. The others' news is dropped.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias, final

from actors.errors import ApiError, Cancelled
from actors.kube.http.client import Client
from actors.kube.http.wire import Wire

if TYPE_CHECKING:
    from actors.runtime import Scheduled

__all__ = ["Job", "PendingCall", "Workers", "tell"]

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
class PendingCall:
    """One call from its submission to its completion. What happens in between is up to whoever has the wire."""

    def __init__(self, name: str, reply: Callable[[Any], None], on_completed: Callable[[PendingCall], None]) -> None:
        self.name = name
        """What it asks for, in words, such as "POST pods"."""
        self.wire = Wire()
        self._reply = reply
        self._on_completed = on_completed
        self._lock = threading.Lock()
        self._completed = False
        self._limit: Scheduled | None = None

    def limited_by(self, timer: Scheduled) -> None:
        """Stop this timer when the call is completed, or now if it is."""
        with self._lock:
            if not self._completed:
                self._limit = timer
                return
        timer.cancel()

    def cancel(self) -> None:
        """See `actors.kube.api.Call`."""
        if self.complete(Cancelled(f"{self.name} was cancelled")):
            self.wire.cut()

    def give_up(self, error: ApiError) -> None:
        """Complete it with this error, whatever its worker does."""
        if self.complete(error):
            self.wire.cut()

    def complete(self, answer: object) -> bool:
        """Complete it; False if it was already."""
        with self._lock:
            if self._completed:
                return False
            self._completed = True
            limit, self._limit = self._limit, None
        if limit is not None:
            limit.cancel()
        self._on_completed(self)
        tell(self._reply, answer)
        return True


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
