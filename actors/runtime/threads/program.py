"""Functions of the program, such as its exporters and policies: called in threads of their own, within limits."""

from __future__ import annotations

import contextvars
import queue
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, cast, final

from actors.errors import NoThread
from actors.runtime.threads.start import start_thread

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable
    from datetime import timedelta

__all__ = ["AtOnce", "Calls", "Courier", "TookTooLong", "call_within"]

T = TypeVar("T")
V_contra = TypeVar("V_contra", contravariant=True)


class TookTooLong(TimeoutError):  # noqa: N818 - reads as what happened, as those of `errors`
    """A function of the program did not return in time. Its thread is left behind."""


def call_within(limit: timedelta, function: Callable[[], T]) -> T:
    """Return what a function of the program returns, which may block for ever: it runs in a thread of its own.

    Raises:
        TookTooLong: the function still runs after `limit`.
        NoThread: no thread can be started.
        BaseException: the function raised it.
    """
    answers: queue.SimpleQueue[tuple[T, None] | tuple[None, BaseException]] = queue.SimpleQueue()

    def answer() -> None:
        try:
            answers.put((function(), None))
        except BaseException as error:  # noqa: BLE001 - who waits raises it
            answers.put((None, error))

    start_thread(partial(contextvars.copy_context().run, answer), "executor-pods/program")
    try:
        result, error = answers.get(timeout=limit.total_seconds())
    except queue.Empty:
        raise TookTooLong(f"it took longer than {limit.total_seconds():g} s") from None
    if error is not None:
        raise error
    return cast("T", result)


class Calls(Protocol[V_contra]):
    """Calls of one function, one value after the other."""

    dropped: int
    """Values with which the function was not called, because too many waited."""

    def start(self) -> None:
        """Be ready for values."""

    def put(self, value: V_contra, /) -> None:
        """Have the function called with a value, without waiting."""

    def end(self) -> None:
        """Have it called no more after the values that wait."""

    def join(self, limit: float) -> bool:
        """After `end`, wait at most so many seconds for the last call. Return whether it was made."""


@final
class AtOnce(Generic[T]):
    """Calls in the thread of who puts: in virtual time there is no other."""

    def __init__(self, call: Callable[[T], object]) -> None:
        self._call = call
        self.dropped = 0

    def start(self) -> None:
        """See `Calls`."""

    def put(self, value: T, /) -> None:
        """See `Calls`."""
        self._call(value)

    def end(self) -> None:
        """See `Calls`."""

    def join(self, limit: float) -> bool:  # noqa: ARG002 - nothing waits
        """See `Calls`."""
        return True


@final
class Courier(Generic[T]):
    """Calls in a thread of its own, which the first value starts, if `start` has not. Used by one thread.

    The thread of a function that blocks for ever is left behind.

    Args:
        call: must raise nothing.
        name: of the thread.
        most: values that may wait; more are dropped. 0 for any number.
    """

    def __init__(self, call: Callable[[T], object], name: str, most: int = 0) -> None:
        self._call = call
        self._name = name
        self._most = most
        self._waiting: queue.SimpleQueue[T | None] = queue.SimpleQueue()
        """None ends the thread."""
        self._thread: threading.Thread | None = None
        self.dropped = 0

    def start(self) -> None:
        """See `Calls`.

        Raises:
            NoThread: no thread can be started.
        """
        if self._thread is None:
            self._thread = start_thread(partial(contextvars.copy_context().run, self._run), self._name)

    def put(self, value: T, /) -> None:
        """See `Calls`."""
        if self._most and self._waiting.qsize() >= self._most:
            self.dropped += 1
        else:
            self._waiting.put(value)
        with suppress(NoThread):  # the next value tries again
            self.start()

    def end(self) -> None:
        """See `Calls`."""
        self._waiting.put(None)

    def join(self, limit: float) -> bool:
        """See `Calls`."""
        if self._thread is None:
            return False
        self._thread.join(limit)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while (value := self._waiting.get()) is not None:
            self._call(cast("Any", value))
            value = None  # it may hold much memory, and the wait for the next one may be long
