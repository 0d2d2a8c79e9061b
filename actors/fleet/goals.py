"""`Goal`: what `wait_for` waits for, and why it cannot come true. Pure, but for what it reads of the view.

It cannot come true if fewer executors are wanted, if pods that no waiting heals leave too few, if creation is blocked
for good, or if too many executors failed to start. A missing image counts after a while: the kubelet tries again.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from actors.errors import Unreachable, WaitTimeout
from actors.messages import ExecutorState
from actors.pods.stuck import CRASHING, KINDS, NEVER_HEAL
from actors.settings.durations import format_duration

if TYPE_CHECKING:
    from actors.messages import Executor, ProfileStatus
    from actors.runtime import Moment
    from actors.view import FleetView

__all__ = ["Goal"]

PULL_PATIENCE: Final = timedelta(seconds=15)
"""How long an executor may be stuck for a reason that can heal. The kubelet tries a pull again after 10 seconds."""

FOR_GOOD: Final = frozenset({"Altered", "BadRequest", "Forbidden", "Invalid", "namespace"})
"""Values of `ProfileStatus.blocked_by` that only a person changes."""


@dataclass(frozen=True, slots=True)
class Goal:
    """So many executors of some profiles."""

    running: int | None
    registered: int | None
    profiles: tuple[str, ...]

    def __post_init__(self) -> None:
        for name, number in (("running", self.running), ("registered", self.registered)):
            if number is not None and (isinstance(number, bool) or not isinstance(number, int) or number < 0):
                raise ValueError(f"{name} = {number!r}: must be a whole number of executors")
        if self.running is None and self.registered is None:
            raise TypeError("wait_for needs running=, registered= or both")

    def is_reached(self, view: FleetView) -> bool:
        """Return whether enough executors run and are registered now."""
        return (self.running is None or self._run(view) >= self.running) and (
            self.registered is None or self._registered(view) >= self.registered
        )

    def check(self, view: FleetView, now: Moment) -> timedelta | None:
        """Return when to check again though nothing changes, None if that is not needed.

        Raises:
            Unreachable: the goal cannot be reached.
        """
        number = max(self.running or 0, self.registered or 0)
        wanted = sum(status.target for _, status in self._profiles(view))
        if number > wanted:
            raise Unreachable(f"{self._what()}: only {wanted} are wanted; scale the fleet up first")
        if view.status is not None and view.status.failed is not None:
            raise Unreachable("; ".join((f"{self._so_far(view)}: {view.status.failed}", *_last_end(view))))
        for _, status in self._profiles(view):
            if status.blocked_by in FOR_GOOD:
                raise Unreachable(f"{self._so_far(view)}: {status.blocked}")
        stuck = self._stuck(view)
        hopeless = [each for each in stuck if each.stuck in NEVER_HEAL]
        if wanted - len(hopeless) < number:
            raise Unreachable(f"{self._so_far(view)}: {_words(hopeless)}")
        if wanted - len(stuck) >= number:
            return None
        due = sorted(view.stuck.get(each.id, now) for each in stuck)[wanted - number] + PULL_PATIENCE.total_seconds()
        if due <= now:
            raise Unreachable(f"{self._so_far(view)}: {_words(stuck)}")
        return timedelta(seconds=due - now)

    def timed_out(self, view: FleetView, limit: timedelta) -> WaitTimeout:
        """Return the error at the end of the time, with all that holds the executors up."""
        causes = [f"{name!r} is blocked: {status.blocked}" for name, status in self._profiles(view) if status.blocked]
        waiting = [each for each in view.executors().values() if self._waits(each) and each.reason is not None]
        if stuck := [each for each in waiting if each.stuck is not None]:
            causes.append(_words(stuck))
        if gated := [each for each in waiting if each.stuck is None]:
            causes.append(f"executor {gated[0].id} {gated[0].reason}{_and_more(len(gated))}")
        causes = causes or _last_end(view)
        return WaitTimeout(": ".join((f"{self._so_far(view)} after {format_duration(limit)}", *causes)))

    def _profiles(self, view: FleetView) -> list[tuple[str, ProfileStatus]]:
        known = view.profiles
        return [(name, known[name]) for name in self.profiles if name in known]

    def _run(self, view: FleetView) -> int:
        return sum(view.running[profile] for profile in self.profiles)

    def _registered(self, view: FleetView) -> int:
        return sum(view.registered[profile] for profile in self.profiles)

    def _stuck(self, view: FleetView) -> list[Executor]:
        """Return the executors that are stuck for a reason that counts: no node of their own is no such reason."""
        found = (view.alive.get(executor_id) for executor_id in view.stuck.copy())
        return [
            each
            for each in found
            if each is not None and self._waits(each) and (each.stuck in KINDS or each.stuck == CRASHING)
        ]

    def _waits(self, executor: Executor) -> bool:
        return executor.profile in self.profiles and executor.state is ExecutorState.PENDING

    def _what(self) -> str:
        parts = [
            f"{number} {'executor' if number == 1 else 'executors'} should {verb}"
            for number, verb in ((self.running, "run"), (self.registered, "be registered"))
            if number is not None
        ]
        return " and ".join(parts)

    def _so_far(self, view: FleetView) -> str:
        run = f"{self._run(view)} run"
        return f"{self._what()}, {run}" + (f" and {self._registered(view)} are" if self.registered is not None else "")


def _last_end(view: FleetView) -> list[str]:
    """Return why the last executor ended, nothing if none did."""
    ended = view.ended.copy()
    return [f"the last one that ended: {ended[-1].reason}"] if ended and ended[-1].reason else []


def _words(stuck: list[Executor]) -> str:
    return f"executor {stuck[0].id} is stuck: {stuck[0].reason}{_and_more(len(stuck))}"


def _and_more(count: int) -> str:
    return f" (and {count - 1} more)" if count > 1 else ""
