"""`Timers`: the keyed timers of one actor. A timer sends a message that the actor handles in its own thread.

A timer belongs to the incarnation that started it. Its message may already be in the mailbox when the timer is
cancelled or replaced: the actor never receives such a message.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Protocol, final

from actors.runtime.mailbox import Signal

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

__all__ = ["Scheduled", "TimerDue", "TimerService", "Timers"]


class Scheduled(Protocol):
    """A scheduled callback."""

    def cancel(self) -> None:
        """Do not call the callback, unless it runs already. May be called at any time, also twice."""


class TimerService(Protocol):
    """Calls callbacks after a delay, in any thread. A callback must be short and must not block."""

    def schedule(self, delay: timedelta, callback: Callable[[], None]) -> Scheduled:
        """Call `callback` once after `delay`; with a delay that is not positive, as soon as possible."""


@final
@dataclass(frozen=True, slots=True)
class TimerDue(Signal):
    """Timer `key` is due. Ignored if the timer was cancelled or replaced since."""

    key: Hashable
    message: object


@dataclass(slots=True)
class _Timer:
    due: TimerDue
    interval: timedelta | None
    scheduled: Scheduled


@final
class Timers:
    """Keyed timers. Only the actor's own thread may use them."""

    def __init__(self, service: TimerService, post: Callable[[TimerDue], None]) -> None:
        self._service = service
        self._post = post
        self._timers: dict[Hashable, _Timer] = {}

    def start(self, key: Hashable, delay: timedelta, message: object) -> None:
        """Receive `message` once after `delay`. Replaces the timer of this key."""
        self._arm(key, delay, message, None)

    def every(self, key: Hashable, interval: timedelta, message: object) -> None:
        """Receive `message` every `interval`, counted from the end of the last handling: a slow actor gets fewer.

        Replaces the timer of this key.
        """
        if interval <= timedelta(0):
            raise ValueError(f"an interval must be positive, not {interval}")
        self._arm(key, interval, message, interval)

    def cancel(self, key: Hashable) -> None:
        """Cancel this key's timer, if there is one."""
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.scheduled.cancel()

    def cancel_all(self) -> None:
        """Cancel all timers."""
        for key in list(self._timers):
            self.cancel(key)

    def active(self, key: Hashable) -> bool:
        """Whether this key's message is still to come. True while a repeated one is being handled."""
        return key in self._timers

    def handle(self, due: TimerDue, receive: Callable[[Any], object]) -> None:
        """Pass the message to `receive`, unless its timer was cancelled or replaced."""
        timer = self._timers.get(due.key)
        if timer is None or timer.due is not due:
            return
        if timer.interval is None:
            del self._timers[due.key]
        try:
            receive(due.message)
        finally:
            if timer.interval is not None and self._timers.get(due.key) is timer:
                self._arm(due.key, timer.interval, due.message, timer.interval)

    def _arm(self, key: Hashable, delay: timedelta, message: object, interval: timedelta | None) -> None:
        self.cancel(key)
        due = TimerDue(key, message)
        self._timers[key] = _Timer(due, interval, self._service.schedule(delay, lambda: self._post(due)))
