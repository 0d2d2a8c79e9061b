"""`Tracing`: passes on what happens to each executor to the program's exporter of traces, which may block.

A plain object of the Backend. The exporter is called in a thread of its own; the Backend never waits for it, but for a
moment at its end.
"""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Final, get_args

from actors.messages import BackendStopped
from actors.metrics.counts import Traced
from actors.runtime import TookTooLong
from actors.text import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable

    from actors.metrics.counts import Traces
    from actors.runtime import ActorSystem

__all__ = ["LONGEST_CALL", "Tracing"]

logger = get_logger(__name__)

LONGEST_CALL: Final = timedelta(seconds=5)
"""How long an exporter may take to begin. It makes an object, and has no reason to wait for anything."""

MOST_WAITING: Final = 10_000
"""Messages that wait for an exporter; more are dropped. A fleet of a thousand that starts has four thousand."""

LAST_CALLS: Final = 2.0
"""Seconds that the end of the Backend waits for an exporter: as long as for connections (`pod_api.JOIN_LIMIT`)."""

_KINDS: Final = frozenset(get_args(Traced))


class Tracing:
    """The traces of one Backend."""

    def __init__(self, trace: Callable[[Traced], object], system: ActorSystem) -> None:
        self._trace = trace
        self._calls = system.calls(self._call, "executor-pods/traces", MOST_WAITING)
        self._dropped = 0

    @classmethod
    def begin(cls, traces: Traces, app_id: str, system: ActorSystem) -> Tracing:
        """Begin to trace a fleet.

        Raises:
            TimeoutError: the exporter blocks.
            BaseException: the exporter raised it.
        """
        try:
            trace = system.call_within(LONGEST_CALL, partial(traces.begin, app_id, system.clock.now))
        except TookTooLong as error:
            raise TimeoutError(f"the exporter of traces does not begin: {error}") from error
        return cls(trace, system)

    def notice(self, message: object) -> None:
        """Pass on a message, if it is one that is traced."""
        if type(message) not in _KINDS:
            return
        self._calls.put(message)  # type: ignore[arg-type]  # by the set
        if self._calls.dropped and not self._dropped:
            logger.warning("the exporter of traces does not keep up, it misses messages: waiting=%d", MOST_WAITING)
        self._dropped = self._calls.dropped

    def close(self) -> None:
        """Pass on the end of the Backend, and wait a moment for the exporter."""
        self._calls.put(BackendStopped())
        self._calls.end()
        if not self._calls.join(LAST_CALLS):
            logger.warning("the exporter of traces is still busy, it is left behind: missed=%d", self._calls.dropped)

    def _call(self, message: Traced) -> None:
        try:
            self._trace(message)
        except BaseException:  # a `sys.exit` in it must not end the traces
            logger.exception("the exporter of traces failed: message=%s", type(message).__name__)
