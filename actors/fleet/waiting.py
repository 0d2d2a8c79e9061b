"""Waits, written once for threads and for event loops.

What a door does is a generator of `Pause`s (`Steps`). `run` carries it out in a thread that blocks, `run_async` of
`event_loop` in a coroutine. Only who waits differs. An exception of the wait, such as Ctrl-C or a cancellation, is
raised at the pause.

A thread waits on a `SimpleQueue`: unlike a `Condition`, no lock stays locked when Ctrl-C comes in the middle.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Generator
from dataclasses import dataclass
from datetime import timedelta
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias, TypeVar, final

from actors.runtime import elapsed, later

if TYPE_CHECKING:
    from collections.abc import Iterator

    from actors.runtime import ActorSystem, Clock, Moment

__all__ = ["SHORTEST", "Buffer", "Pause", "Steps", "Waitable", "Waiter", "end_of", "next_of", "run", "seconds_left"]

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

SHORTEST: Final = timedelta(microseconds=1)
"""The shortest wait: a time that rounds to nothing must pass too."""

LONGEST_SLEEP: Final = 0.5
"""Seconds. Ctrl-C is only noticed between two sleeps if it comes just before one, or is delivered to another thread."""


class Waiter(Protocol):
    """Somebody who waits."""

    def wake(self) -> None:
        """Look again. May be called by any thread, often, and late."""


class Waitable:
    """Something that changes in one thread, and that others wait for.

    The waiters are the keys of a dictionary: adding, removing and listing them are single steps for all threads.
    """

    def __init__(self) -> None:
        self._waiters: dict[Waiter, None] = {}

    def add(self, waiter: Waiter) -> None:
        """Wake this waiter at each change."""
        self._waiters[waiter] = None

    @contextlib.contextmanager
    def waited_by(self, waiter: Waiter) -> Iterator[None]:
        """Wake this waiter at each change within the context."""
        self.add(waiter)
        try:
            yield
        finally:
            self._waiters.pop(waiter, None)

    def changed(self) -> None:
        """Wake all who wait."""
        if self._waiters:
            for waiter in list(self._waiters):
                waiter.wake()


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait until a condition holds; the generator is sent whether it does."""

    until: Callable[[], bool]
    source: Waitable
    """What the condition depends on."""
    limit: timedelta | None = None
    """How long to wait at most."""


Steps: TypeAlias = Generator[Pause, bool, T]


class Buffer(Protocol[T_co]):
    """What one reader takes from: a `Waitable` that changes with each addition, and at the end."""

    has_ended: bool

    def has_news(self) -> bool:
        """Whether `take` returns something, or nothing will ever come."""

    def take(self) -> T_co | None:
        """Return the oldest that waits, None if nothing does."""


def next_of(source: Waitable, buffer: Buffer[T], limit: timedelta | None, clock: Clock) -> Steps[tuple[T | None, bool]]:
    """Return what comes next in a buffer, which is `source`; None at the end, or after `limit`.

    The second value is whether the buffer had ended before it was looked at.
    """
    now = clock.monotonic
    end = None if limit is None else later(now(), limit)
    while True:
        has_ended = buffer.has_ended  # before `take`: the last one is added before the end is noted
        found = buffer.take()
        if found is not None or has_ended or (end is not None and now() >= end):
            return found, has_ended
        yield Pause(buffer.has_news, source, None if end is None else max(elapsed(now(), end), SHORTEST))


def run(steps: Steps[T], system: ActorSystem) -> T:
    """Carry the steps out, and block this thread at each pause."""
    error: BaseException | None = None
    while True:
        try:
            pause = next(steps) if error is None else steps.throw(error)
            while True:
                pause = steps.send(_wait(pause, system))
        except StopIteration as end:
            value: T = end.value
            return value
        except BaseException as raised:
            if inspect.getgeneratorstate(steps) == inspect.GEN_CLOSED:  # they have ended with it
                raise
            error = raised  # they raise it at their pause, and may clean up


def _wait(pause: Pause, system: ActorSystem) -> bool:
    if system.wait is not None:
        return system.wait(pause.until, pause.limit)
    waiter, end = _ThreadWaiter(), end_of(pause, system)
    with pause.source.waited_by(waiter):
        while not pause.until():
            left = seconds_left(end, system)
            if left is not None and left <= 0:
                return False
            waiter.sleep(left)
    return True


def end_of(pause: Pause, system: ActorSystem) -> Moment | None:
    """Return when the pause's limit is over, if it begins now; None: it has no limit."""
    return None if pause.limit is None else system.clock.monotonic() + pause.limit.total_seconds()


def seconds_left(end: Moment | None, system: ActorSystem) -> float | None:
    """Return the time until then; None: any time."""
    return None if end is None else end - system.clock.monotonic()


@final
class _ThreadWaiter:
    """A thread that waits."""

    def __init__(self) -> None:
        self._wakes: SimpleQueue[None] = SimpleQueue()

    def wake(self) -> None:
        if self._wakes.empty():
            self._wakes.put(None)

    def sleep(self, seconds: float | None) -> None:
        """Return at the next wake, after a time, or earlier."""
        with contextlib.suppress(Empty):
            self._wakes.get(timeout=LONGEST_SLEEP if seconds is None else min(seconds, LONGEST_SLEEP))
