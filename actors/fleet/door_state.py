"""`DoorState`: what the fleet's actor tells the door: the fleet's begin and end, and that something has changed.

That actor alone writes it, and folds the view in it. Any thread reads both.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, final

from actors.fleet.waiting import Waitable
from actors.messages import BackendFailed, BackendStarted, BackendStopped
from actors.view import FleetView

if TYPE_CHECKING:
    from actors.fleet.stream import EventBuffer
    from actors.messages import FleetChanged, ToDriver
    from actors.page.feed import Page
    from actors.runtime import Address, Clock

__all__ = ["DoorState"]


@final
class DoorState(Waitable):
    """The state of one door."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self.view = FleetView(clock)
        self.backend: Address | None = None
        """Set once the Backend was started."""
        self.started: BackendStarted | None = None
        self.failure: BaseException | None = None
        """Why the fleet could not start or continue."""
        self.left_behind: tuple[str, ...] = ()
        self.is_over = False
        """The fleet has ended, and so have all actors but its own."""
        self.page: Page | None = None
        """Gets each event; set before the Backend is started."""
        self.change = object()
        """Another one after each change."""
        self._readers: dict[weakref.ref[EventBuffer], None] = {}

    # ── for the fleet's actor ───────────────────────────────────────────────────────────────────────────────────

    def fold(self, change: FleetChanged) -> None:
        """Take in what has changed."""
        self.view.fold(change)
        self.touch()

    def apply(self, event: ToDriver) -> None:
        """Take in one event, and pass it on."""
        match event:
            case BackendStarted():
                self.started = event
            case BackendFailed(cause):
                self.failure = cause
            case BackendStopped(left_behind):
                self.left_behind = left_behind
            case _:
                pass
        if self.page is not None:
            self.page.feed(event)
        self.touch()
        for reader in list(self._readers):
            buffer = reader()
            if buffer is not None:
                buffer.put(event)

    def end(self, failure: BaseException | None = None) -> None:
        """The fleet has ended; keep an earlier failure."""
        self.failure = self.failure or failure
        self.is_over = True
        for reader in list(self._readers):
            buffer = reader()
            if buffer is not None:
                buffer.end()
        self.touch()

    def touch(self) -> None:
        """Let everybody who waits look again."""
        self.change = object()
        self.changed()

    # ── for every thread ────────────────────────────────────────────────────────────────────────────────────────

    def add_reader(self, buffer: EventBuffer) -> None:
        """Pass each event from now on to this buffer, as long as somebody else refers to it."""
        self._readers[weakref.ref(buffer, lambda gone: self._readers.pop(gone, None))] = None
        if self.is_over:  # after the buffer is added: either this or `end` ends it
            buffer.end()

    def has_changed(self, since: object) -> bool:
        """Return whether `change` is another one by now."""
        return self.change is not since
