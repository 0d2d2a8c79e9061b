"""Timers of one actor. What a timer brings is a message like any other, handled in the actor's own thread.

A timer belongs to the incarnation that started it and is known by a key. Its message can be on its way, even in the
mailbox, when the timer is cancelled, replaced, or its actor gone: the number it carries tells, and it is not seen.
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
    """A callback that will be called."""

    def cancel(self) -> None:
        """Do not call it, if that has not begun. May be called at any time, also twice."""


class TimerService(Protocol):
    """Calls back after a while, from a thread of its own choice. The callback must be short and must not block."""

    def schedule(self, delay: timedelta, callback: Callable[[], None]) -> Scheduled:
        """Call `callback` once, `delay` from now; a delay that is not positive means as soon as possible."""


@final
@dataclass(frozen=True, slots=True)
class TimerDue(Signal):
    """Timer `key` is due, unless it was cancelled or replaced meanwhile: it is another one's then."""

    key: Hashable
    message: object


@dataclass(slots=True)
class _Timer:
    due: TimerDue
    interval: timedelta | None
    scheduled: Scheduled


@final
class Timers:
    """Keyed timers. To be used from the actor's own thread only."""

    def __init__(self, service: TimerService, post: Callable[[TimerDue], None]) -> None:
        self._service = service
        self._post = post
        self._timers: dict[Hashable, _Timer] = {}

    def start(self, key: Hashable, delay: timedelta, message: object) -> None:
        """Receive `message` once, `delay` from now. Replaces the timer of this key."""
        self._arm(key, delay, message, None)

    def every(self, key: Hashable, interval: timedelta, message: object) -> None:
        """Receive `message` after each `interval`, counted from when the last one was handled: a slow actor gets fewer.

        Replaces the timer of this key.
        """
        if interval <= timedelta(0):
            raise ValueError(f"an interval must be positive, not {interval}")
        self._arm(key, interval, message, interval)

    def cancel(self, key: Hashable) -> None:
        """Forget this key's timer, if there is one."""
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.scheduled.cancel()

    def cancel_all(self) -> None:
        """Forget them all."""
        for key in list(self._timers):
            self.cancel(key)

    def active(self, key: Hashable) -> bool:
        """Whether this key's message is still to come. While a repeated one is being handled, the next is."""
        return key in self._timers

    def handle(self, due: TimerDue, receive: Callable[[Any], object]) -> None:
        """Hand the message on, if its timer still stands."""
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
