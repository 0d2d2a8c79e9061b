"""The channel to the driver: sends messages until the last one, which is sent once.

A plain object of the Backend. It counts the messages for the metrics, and hands what operators ask about to the
EventRecorder.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast, get_args

from actors.errors import Refused
from actors.messages import (
    BackendFailed,
    BackendStarted,
    BackendStopped,
    ExecutorRemoved,
    ExecutorRunning,
    ExecutorStuck,
)
from actors.messages.internal import ToEventRecorder
from actors.text import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from actors.messages import ToDriver
    from actors.metrics.counts import BackendCounts
    from actors.runtime import ActorSystem, Address, Clock

__all__ = ["CrashReport", "DriverChannel", "DriverFunction"]

logger = get_logger(__name__)

_RECORDED: Final = frozenset(get_args(ToEventRecorder))


class DriverChannel:
    """The channel of one Backend, whose start begins now.

    Args:
        driver: the receiver.
        recorder: the EventRecorder, if there is one.
    """

    def __init__(
        self, driver: Address, clock: Clock, *, counts: BackendCounts, recorder: Address | None = None
    ) -> None:
        self._driver = driver
        self._recorder = recorder
        self._clock = clock
        self._counts = counts
        self._held: list[ToDriver] | None = None
        """The messages of this turn, if they are sent at its end."""
        self._is_over = False
        self._is_stopping = False
        self._began = clock.monotonic()
        """When the start began, or the stop."""

    def tell(self, message: ToDriver | None) -> None:
        """Send a message, if there is one, unless the last message was sent."""
        if message is not None and not self._is_over:
            if self._held is None:
                self._driver.tell(message)
            else:
                self._held.append(message)
            self._count(message)
            if type(message) in _RECORDED:
                self.record(cast("ToEventRecorder", message))

    def hold(self) -> None:
        """From now on, send what is to be sent at each `release`: whoever follows the fleet is told before."""
        self._held = self._held or []

    def release(self) -> None:
        """Send what is held."""
        while self._held:
            held, self._held = self._held, []
            for message in held:
                self._driver.tell(message)

    def record(self, message: ToEventRecorder) -> None:
        """Have a message recorded as a Kubernetes Event, if that is on and the recorder is up."""
        if self._recorder is not None and self._recorder.is_alive():
            self._recorder.tell(message)

    def stop_begins(self) -> None:
        """Measure the time from now to the end."""
        self._is_stopping = True
        self._began = self._clock.monotonic()

    def end(self, last: BackendStopped | BackendFailed) -> None:
        """Send the last message, unless one was sent."""
        if self._is_over:
            return
        self.release()
        self._is_over = True
        if self._is_stopping:
            seconds = self._counts.stop_seconds = self._clock.monotonic() - self._began
            logger.info("backend ended: stop=%.1fs", seconds)
        self._driver.tell(last)

    def _count(self, message: ToDriver) -> None:
        match message:
            case ExecutorRunning():
                self._counts.running.add(self._counts.label(message.profile))
            case ExecutorStuck():
                self._counts.stuck.add(self._counts.label(message.profile))
            case ExecutorRemoved():
                self._counts.removed.add(self._counts.label(message.profile), message.reason.kind)
            case BackendStarted():
                self._counts.start_seconds = self._clock.monotonic() - self._began
            case _:
                pass


class CrashReport:
    """A context that reports a crash of the Backend within it to the driver, as the last message."""

    def __init__(self, channel: DriverChannel) -> None:
        self._channel = channel

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        del kind, traceback
        if error is not None and not isinstance(error, Refused):
            self._channel.end(BackendFailed(error))


class DriverFunction:
    """Calls the driver's function with each message, in a thread of its own, where it may block.

    The last message ends the thread.
    """

    def __init__(self, function: Callable[[ToDriver], object], system: ActorSystem) -> None:
        self._function = function
        self.__name__ = getattr(function, "__name__", type(function).__name__)
        """Of the address, for logs."""
        self._calls = system.calls(self._call, "executor-pods/driver")
        self._calls.start()

    def __call__(self, message: ToDriver) -> None:
        """Have the function called with a message."""
        self._calls.put(message)
        if isinstance(message, BackendStopped | BackendFailed):
            self._calls.end()

    def _call(self, message: ToDriver) -> None:
        try:
            self._function(message)
        except BaseException:  # a `sys.exit` in it must not end the calls
            logger.exception(
                "function that receives messages failed: function=%s message=%s", self.__name__, type(message).__name__
            )
