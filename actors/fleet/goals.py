"""`Goal`: what `wait_for` waits for, and why it cannot come true. Pure, but for what it reads of the view.

It cannot come true if fewer executors are wanted, if pods that no waiting heals leave too few, if creation is blocked
for good, or if too many executors failed to start. A missing image counts after a while: the kubelet tries again.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from actors.errors import Unreachable, WaitTimeout
from actors.messages import ExecutorState
from actors.pods.stuck import CRASHING, KINDS, NEVER_HEAL, is_gated
from actors.settings.durations import format_duration

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from actors.fleet.view import FleetView, Record
    from actors.messages import AllocationBlocked, Executor
    from actors.runtime import Moment

__all__ = ["Goal"]

PULL_PATIENCE: Final = timedelta(seconds=15)
"""How long an executor may be stuck for a reason that can heal. The kubelet tries a pull again after 10 seconds."""

EMPTY: Final[Mapping[str, str]] = MappingProxyType({})

FOR_GOOD: Final = frozenset({"Altered", "BadRequest", "Forbidden", "Invalid", "namespace"})
"""Values of `AllocationBlocked.blocked_by` that only a person changes."""


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
            self.registered is None
            or (len(view.registered) >= self.registered and self._registered(view) >= self.registered)
        )

    def check(self, view: FleetView, wanted: int, now: Moment) -> timedelta | None:
        """Return when to check again though nothing changes, None if that is not needed.

        Args:
            wanted: how many executors of these profiles are wanted.
            view: of the fleet.
            now: the moment.

        Raises:
            Unreachable: the goal cannot be reached.
        """
        number = max(self.running or 0, self.registered or 0)
        if number > wanted:
            raise Unreachable(f"{self._what()}: only {wanted} are wanted; scale the fleet up first")
        if view.failed is not None:
            raise Unreachable("; ".join((f"{self._so_far(view)}: {view.failed}", *_last_end(view))))
        for block in self._blocks(view):
            if block.blocked_by in FOR_GOOD:
                raise Unreachable(f"{self._so_far(view)}: {block.cause}")
        stuck = self._stuck(view)
        hopeless = [each for each in stuck if each[1].stuck in NEVER_HEAL]
        if wanted - len(hopeless) < number:
            raise Unreachable(f"{self._so_far(view)}: {_words(hopeless)}")
        if wanted - len(stuck) >= number:
            return None
        due = sorted(record.stuck_since for _, record in stuck)[wanted - number] + PULL_PATIENCE.total_seconds()
        if due <= now:
            raise Unreachable(f"{self._so_far(view)}: {_words(stuck)}")
        return timedelta(seconds=due - now)

    def is_gated(self, view: FleetView) -> bool:
        """Return whether the pod of a pending executor had scheduling gates when it was first observed."""
        records = view.records.copy().values()
        return any(self._waits(each) and each.pod is not None and is_gated(each.pod) for each in records)

    def timed_out(
        self, view: FleetView, limit: timedelta, alive: Sequence[Executor] = (), failing: Mapping[str, str] = EMPTY
    ) -> WaitTimeout:
        """Return the error at the end of the time, with all that holds the executors up.

        `alive` are the executors as the Backend knows them: those that wait for a scheduling gate now have a reason.
        `failing` are the errors of the sources that fail now.
        """
        causes = [f"{block.profile!r} is blocked: {block.cause}" for block in self._blocks(view)]
        if stuck := self._stuck(view, all_kinds=True):
            causes.append(_words(stuck))
        known = {executor_id for executor_id, _ in stuck}
        gated = [each for each in alive if self._waits(each) and each.reason is not None and each.id not in known]
        if gated:
            causes.append(f"executor {gated[0].id} {gated[0].reason}{_and_more(len(gated))}")
        causes = causes or _last_end(view)
        causes += [f"the {name} fails: {error}" for name, error in failing.items()]
        return WaitTimeout(": ".join((f"{self._so_far(view)} after {format_duration(limit)}", *causes)))

    def _blocks(self, view: FleetView) -> list[AllocationBlocked]:
        blocked = view.blocked.copy()
        return [blocked[profile] for profile in self.profiles if profile in blocked]

    def _run(self, view: FleetView) -> int:
        return sum(view.running[profile] for profile in self.profiles)

    def _registered(self, view: FleetView) -> int:
        records = view.records
        return sum(
            1 for each in view.registered.copy() if (record := records.get(each)) and record.profile in self.profiles
        )

    def _stuck(self, view: FleetView, *, all_kinds: bool = False) -> list[tuple[int, Record]]:
        return [
            (executor_id, record)
            for executor_id, record in view.stuck.copy().items()
            if self._waits(record) and (all_kinds or record.stuck in KINDS or record.stuck == CRASHING)
        ]

    def _waits(self, executor: Record | Executor) -> bool:
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
    lost = view.last_loss()
    return [f"the last one that ended: {lost.reason}"] if lost is not None and lost.reason else []


def _words(stuck: list[tuple[int, Record]]) -> str:
    executor_id, record = stuck[0]
    return f"executor {executor_id} is stuck: {record.reason}{_and_more(len(stuck))}"


def _and_more(count: int) -> str:
    return f" (and {count - 1} more)" if count > 1 else ""
