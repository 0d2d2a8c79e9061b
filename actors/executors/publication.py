"""Publication: tells whoever follows the fleet what has changed, as values.

A plain object of the Backend. It publishes once for all messages that wait in the mailbox when the first change comes:
those of a round are one `FleetChanged`. What the driver itself changes is published before it is answered. Only
executors that changed are looked at. While nobody follows, nothing is done.
"""

from __future__ import annotations

from dataclasses import replace
from types import BuiltinMethodType, MethodType
from typing import TYPE_CHECKING, Final, get_args

from actors.executors.status import ended_executor, fleet_executors, living_executor
from actors.messages import (
    ExecutorBusy,
    ExecutorIdle,
    FleetChanged,
    FollowFleet,
    FromDriver,
    GetExecutorIds,
    GetExecutors,
    GetFleetStatus,
    HasEnoughExecutors,
    IsExecutorActive,
    IsExecutorExcluded,
)
from actors.runtime import Address

if TYPE_CHECKING:
    from collections.abc import Callable

    from actors.executors.fleet_context import FleetContext
    from actors.messages import Executor, FleetStatus

__all__ = ["Publication"]


class _PublishDue:
    """Time to publish what has changed."""


_QUIET: Final = frozenset(
    {ExecutorBusy, ExecutorIdle, FollowFleet, GetExecutorIds, GetExecutors, GetFleetStatus, HasEnoughExecutors}
    | {IsExecutorActive, IsExecutorExcluded, _PublishDue}
)
"""Messages after which no value can be another one. Some of them come often."""

_ACTS: Final = frozenset(get_args(FromDriver)) - _QUIET
"""Messages of the driver that may change a value."""


class Publication:
    """What one Backend publishes.

    Args:
        context: see `FleetContext`.
        status: returns the fleet's status.
        hold: holds the messages to the driver back from now on.
        release: sends those that are held back.
    """

    def __init__(
        self,
        context: FleetContext,
        *,
        status: Callable[[], FleetStatus],
        hold: Callable[[], None],
        release: Callable[[], None],
    ) -> None:
        self._backend = context.backend
        self._state = context.state
        self._status = status
        self._hold = hold
        self._release = release
        self._followers: list[tuple[Callable[[FleetChanged], object], Address]] = []
        self._sequence = 0
        self._told: object = None
        """What of the status was published last."""
        self._is_due = False
        """`_PublishDue` is in the mailbox."""

    def handlers(self) -> dict[type, Callable[..., object]]:
        """Map each message to its handler."""
        return {FollowFleet: self._follow, _PublishDue: self._publish_due}

    def turn_ends(self, message: object) -> None:
        """A message was handled: publish what it changed, now or soon."""
        if not self._followers or type(message) in _QUIET:
            return
        if type(message) in _ACTS:
            self.publish()
        elif not self._is_due:
            self._is_due = True
            self._backend.myself.tell(_PublishDue())

    def publish(self) -> None:
        """Tell whoever follows the fleet what has changed, and the driver what has happened."""
        if not self._followers:
            return
        executors, withdrawn = self._changes()
        status = self._new_status()
        if executors or withdrawn or status is not None:
            self._sequence += 1
            change = FleetChanged(self._sequence, self._backend.clock.now(), executors, withdrawn, status)
            for _, follower in self._followers:
                follower.tell(change)
        self._release()

    def end(self) -> None:
        """Publish for the last time."""
        self.publish()
        self._followers.clear()
        self._backend.timers.cancel("held")

    def _publish_due(self, _: _PublishDue) -> None:
        self._is_due = False
        self.publish()

    def _follow(self, message: FollowFleet) -> None:
        self.publish()
        known = [(each, address) for each, address in self._followers if not _is_same(each, message.follower)]
        address = Address.calling(message.follower, self._backend.context.system.letters)
        self._followers = [*known, (message.follower, address)]
        self._state.changed = self._state.changed or {}
        self._hold()
        self._told, at = self._lasting(status := self._status()), self._backend.clock.now()
        found = fleet_executors(self._state.ledger.entries.values(), self._state.states, self._state.ended, at)
        address.tell(FleetChanged(self._sequence, at, (*found.alive, *found.ended), status=status, complete=True))

    def _changes(self) -> tuple[tuple[Executor, ...], tuple[int, ...]]:
        """Return the executors that have changed, and those that are requested no longer."""
        state, at = self._state, self._backend.clock.now()
        changed, state.changed = state.changed or {}, {}
        executors: list[Executor] = []
        withdrawn: list[int] = []
        for executor_id, ended in changed.items():
            entry = state.ledger.entries.get(executor_id)
            if ended is not None:
                executors.append(ended_executor(ended))
            elif entry is not None and entry.removed_at is None:
                executors.append(living_executor(entry, state.states, at))
            elif entry is not None:
                withdrawn.append(executor_id)
        return tuple(executors), tuple(withdrawn)

    def _new_status(self) -> FleetStatus | None:
        """Return the status, None if it is the last one."""
        status = self._status()
        self._await_held()
        if (lasting := self._lasting(status)) == self._told:
            return None
        self._told = lasting
        return status

    def _lasting(self, status: FleetStatus) -> object:
        """Return a status without ages, but with what they are made of."""
        return replace(status, sources={}), dict(self._state.sources)

    def _await_held(self) -> None:
        """Publish again when the next grace period ends of a pod that finalizers hold."""
        at = self._backend.clock.now()
        if waits := [pod.since - at for pod in self._state.finalized.values() if pod.since > at]:
            self._backend.timers.start("held", min(waits), _PublishDue())


def _is_same(one: object, other: object) -> bool:
    """Whether two followers are one: each look at an object's method makes another one, which is equal."""
    are_methods = type(one) is type(other) and isinstance(one, MethodType | BuiltinMethodType)
    return one is other or (are_methods and one == other)
