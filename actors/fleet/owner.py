"""`FleetOwner`: the one actor of a door, and `DoorState`: what it tells the door.

It owns the Backend, and the embedded cluster if the fleet is local. It follows the fleet, and passes the Backend's
messages to the door and to the readers of events. It starts everything in its own thread, which may block: reading
files, loading packages and starting the embedded cluster do not hold up an event loop. It alone writes the state and
folds the view in it; any thread reads both.
"""

from __future__ import annotations

import weakref
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias, final, get_args

from actors.fleet.leases.lease import DoorLeases
from actors.fleet.waiting import Waitable
from actors.messages import (
    AcquireRefused,
    BackendFailed,
    BackendStarted,
    BackendStopped,
    ExecutorAcquired,
    FleetChanged,
    LeaseExpired,
    LeaseLost,
    StopBackend,
    ToDriver,
)
from actors.runtime import Actor, Address, Context, Terminated
from actors.text import get_logger
from actors.view import FleetView

if TYPE_CHECKING:
    from collections.abc import Callable

    from actors.fleet.stream import EventBuffer
    from actors.page.feed import Page
    from actors.runtime import Clock

__all__ = ["CatchUp", "DoorState", "FleetOwner", "LeaveFleet", "ToFleetOwner"]

logger = get_logger(__name__)

EVENTS = frozenset(get_args(ToDriver))


@final
class DoorState(Waitable):
    """The state of one door."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self.view = FleetView(clock)
        self.leases = DoorLeases()
        self.backend: Address | None = None
        """The Backend, once it was started."""
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

    def follow(self, backend: Address, follower: Callable[[FleetChanged], object]) -> None:
        """Follow the Backend that was started."""
        self.view.follow(backend, follower)
        self.backend = backend
        self.touch()

    def fold(self, change: FleetChanged) -> None:
        """Take in what has changed."""
        self.view.fold(change)
        self.touch()

    def apply(self, event: ToDriver) -> None:
        """Take in one event, and pass it on, unless it answers the program."""
        match event:
            case ExecutorAcquired() | AcquireRefused():
                self.leases.answered(event)
                return
            case LeaseLost() | LeaseExpired():
                self.leases.ended(event)
            case BackendStarted():
                self.started = event
            case BackendFailed(cause):
                self.failure = cause
                self.leases.wake()
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

    def end(self) -> None:
        """The fleet has ended."""
        self.is_over = True
        self.leases.wake()
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

    @property
    def has_failed(self) -> bool:
        """Whether the fleet has failed or ended."""
        return self.failure is not None or self.is_over

    def has_changed(self, since: object) -> bool:
        """Return whether `change` is another one by now."""
        return self.change is not since


@dataclass(frozen=True, slots=True)
class LeaveFleet:
    """Stop the Backend. Further ones have no effect."""

    delete_pods: bool | None


@dataclass(frozen=True, slots=True)
class CatchUp:
    """Answered once everything was taken in that the Backend has sent until now."""


ToFleetOwner: TypeAlias = ToDriver | FleetChanged | Terminated | LeaveFleet | CatchUp


class FleetOwner(Actor):
    """Owns one Backend.

    Args:
        state: of the door; written here.
        start: starts the Backend for an owner. What it registers on the stack is closed after the Backend's end.
    """

    def __init__(
        self,
        context: Context,
        *,
        state: DoorState,
        start: Callable[[Address, ExitStack], Address],
    ) -> None:
        super().__init__(context)
        self._state = state
        self._start = start
        self._closing = ExitStack()
        self._backend: Address | None = None
        self._has_crashed = True
        """Unless `stopped` runs, which it does not after a crash."""
        self.at_end(self._end)

    def started(self) -> None:
        """Start the Backend. What is wrong goes to the door: it is the user's error, not a crash."""
        try:
            self._backend = self._start(self.address, self._closing)
            self._state.follow(self._backend, self.address.tell)
        except BaseException as error:  # noqa: BLE001 - whoever enters the fleet gets it, also a `sys.exit` of its
            self._state.failure = error
            self.stop()

    def receive(self, message: ToFleetOwner) -> None:
        """Handle one message."""
        if type(message) in EVENTS:
            self._state.apply(message)  # type: ignore[arg-type]  # by the set, which is faster than a match
            return
        match message:
            case FleetChanged():
                self._state.fold(message)
            case LeaveFleet(delete_pods):
                if self._backend is not None:
                    self._backend.tell(StopBackend(delete_pods))
            case Terminated(cause=cause):
                if cause is not None and self._state.failure is None:
                    self._state.apply(BackendFailed(cause))
                self.stop()
            case CatchUp():
                pass
            case _:
                raise AssertionError(f"no handler for {type(message).__name__}")

    def stopped(self) -> None:
        """Note that this is no crash."""
        self._has_crashed = False

    def _end(self) -> None:
        """Close what was started, then let everybody know."""
        try:
            if self._has_crashed and self._state.failure is None:
                self._state.apply(BackendFailed(RuntimeError("the fleet's actor crashed; the log says why")))
            self._closing.close()
        finally:
            self._state.end()
