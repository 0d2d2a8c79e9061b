"""The cluster, as a command asks it: one question after another, in the main thread, until Ctrl-C."""

from __future__ import annotations

import logging
import signal
import sys
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from queue import Empty, SimpleQueue
from threading import Event
from typing import TYPE_CHECKING, Final, Self, TypeVar

from actors import kube
from actors.cli.streams import say
from actors.errors import ApiError
from actors.inspection.reading import FleetReader
from actors.kube.retries import requested_wait
from actors.runtime import SystemClock, elapsed, later
from actors.text import get_logger, one_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from datetime import datetime
    from pathlib import Path
    from types import TracebackType

    from actors.inspection.reading import Ask
    from actors.kube.api import Request
    from actors.kube.http.pod_api import HttpPodApi
    from actors.runtime import Moment

__all__ = ["Cluster", "interruptible", "verbose"]

logger = get_logger(__name__)

A = TypeVar("A")

_LOOK: Final = 0.5
"""Seconds: a signal that the system hands to another thread does not wake this one."""

_TOGETHER: Final = 16
"""Requests under way at once, as the driver has by default."""


class Cluster:
    """A context manager: at its end all connections are closed.

    Args:
        kubeconfig: see `kube.connect`.
        context: see `kube.connect`.
        namespace: by default the context's.
        limit: of each try, and of all tries that the server asks for by `Retry-After`.

    Raises:
        SettingsError: no kubeconfig, context or credential is usable.
    """

    def __init__(
        self,
        kubeconfig: Path | None,
        context: str | None,
        namespace: str | None,
        *,
        limit: timedelta = timedelta(seconds=10),
    ) -> None:
        self._limit = limit
        self._kubeconfig = kubeconfig
        self._context = context
        self._open = ExitStack()
        self._apis: dict[str, HttpPodApi] = {}
        self.clock: Final = SystemClock()
        self.api = self._connect(namespace)
        self.namespace: Final = self.api.namespace

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.close()

    def now(self) -> datetime:
        """Return the server's time, ours before its first answer."""
        return self.api.server_now() or self.clock.now()

    def reader(self) -> FleetReader:
        """Return what reads the fleets of the namespace."""
        return FleetReader(self.ask_in, self.namespace, self.now)

    def ask_in(self, namespace: str) -> Ask:
        """Return what asks in this namespace."""
        api = self._connect(namespace)

        def ask(request: Request[A], /) -> A:
            ((_, answer),) = self._answers(api, (request,))
            if isinstance(answer, ApiError):
                raise answer
            return answer

        return ask

    def ask(self, request: Request[A]) -> A:
        """Ask in the command's own namespace.

        Raises:
            ApiError: instead of an answer.
        """
        return self.ask_in(self.namespace)(request)

    def ask_each(self, requests: Iterable[Request[A]]) -> Iterator[tuple[Request[A], A | ApiError]]:
        """Ask all of these, several at once; yield each with its answer, in the order of the answers."""
        yield from self._answers(self.api, requests)

    def _answers(self, api: HttpPodApi, requests: Iterable[Request[A]]) -> Iterator[tuple[Request[A], A | ApiError]]:
        answers: SimpleQueue[tuple[Request[A], Moment, Moment, A | ApiError]] = SimpleQueue()
        left, under_way = iter(requests), 0
        while True:
            while under_way < _TOGETHER and (request := next(left, None)) is not None:
                self._send(api, request, self.clock.monotonic(), answers)
                under_way += 1
            if not under_way:
                return
            request, began, arrived, answer = _next(answers)
            wait = requested_wait(answer)
            if wait is not None and elapsed(began, arrived) + wait < self._limit:
                Event().wait(max(0.0, later(arrived, wait) - self.clock.monotonic()))  # several came at once
                self._send(api, request, began, answers)
            else:
                under_way -= 1
                yield request, answer

    def _send(
        self,
        api: HttpPodApi,
        request: Request[A],
        began: Moment,
        answers: SimpleQueue[tuple[Request[A], Moment, Moment, A | ApiError]],
    ) -> None:
        """Send a request, which was first sent when it `began`."""

        def reply(answer: A | ApiError) -> None:
            arrived = self.clock.monotonic()
            took = arrived - began
            result = answer if isinstance(answer, ApiError) else "ok"
            logger.debug("asked: request=%s seconds=%.3f answer=%s", one_line(repr(request), 300), took, result)
            answers.put((request, began, arrived, answer))

        api.send(request, reply)

    def _connect(self, namespace: str | None) -> HttpPodApi:
        api = self._apis.get(namespace) if namespace is not None else None
        if api is None:
            api = kube.connect(
                self._kubeconfig,
                self._context,
                namespace,
                request_timeout=self._limit,
                max_connections=_TOGETHER,
            )
            self._apis[api.namespace] = api
            self._open.callback(api.close)
        return api


def _next(answers: SimpleQueue[A]) -> A:
    while True:
        try:
            return answers.get(timeout=_LOOK)
        except Empty:
            continue


@contextmanager
def interruptible() -> Iterator[None]:
    """Let Ctrl-C raise KeyboardInterrupt, and other signals end the process, as in commands that only look."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGTERM, signal.SIGHUP):
        if before[number] is not signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _Stderr(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        """Write the record to stderr."""
        say(one_line(record.getMessage()))


@contextmanager
def verbose(*, wanted: bool) -> Iterator[None]:
    """Write the library's log to stderr: all of it if it is `wanted`, else the warnings."""
    library = logging.getLogger("actors")  # noqa: TID251 - the records of all modules
    handler, level = _Stderr(logging.DEBUG if wanted else logging.WARNING), library.level
    library.addHandler(handler)
    if wanted:
        library.setLevel(logging.DEBUG)
    try:
        yield
    finally:
        library.removeHandler(handler)
        library.setLevel(level)
        sys.stderr.flush()
