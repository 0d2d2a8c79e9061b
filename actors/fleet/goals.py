"""`Goal`: what `wait_for` waits for, and why it cannot come true. Pure, but for what it reads of the view.

It cannot come true if fewer executors are wanted, if too many executors failed to start, or if too few are left without
those whose pods no waiting heals and those that nobody can create. What only a person changes, such as a registry that
has no such image, must last for `PATIENCE`. What may heal by itself is said, and waited for.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from actors.errors import Unreachable, WaitTimeout
from actors.messages import ExecutorState
from actors.pods.stuck import Outlook, is_gated
from actors.settings.durations import format_duration

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from actors.fleet.view import Block, FleetView, Record
    from actors.messages import Executor
    from actors.runtime import Moment

__all__ = ["Goal"]

PATIENCE: Final = timedelta(seconds=45)
"""How long a refusal must last that usually only a person takes back, but that may be about to be. The kubelet tries a
pull again after 10, 20 and 40 seconds: three have failed by then. A POST is tried again more often."""

EMPTY: Final[Mapping[str, str]] = MappingProxyType({})

FOR_GOOD: Final = frozenset({"Altered", "Invalid", "TooLarge", "policy", "quota_too_small"})
"""Values of `AllocationBlocked.blocked_by` that follow from the pod itself and from the cluster's rules."""

FOR_A_PERSON: Final = frozenset({"BadRequest", "Forbidden", "namespace"})
"""Those that a person changes, and that a server which starts itself may give for a moment."""


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

    def check(self, view: FleetView, wanted: Mapping[str, int], now: Moment) -> timedelta | None:
        """Return when to check again though nothing changes, None if that is not needed.

        Args:
            wanted: how many executors are wanted, by profile.
            view: of the fleet.
            now: the moment.

        Raises:
            Unreachable: the goal cannot be reached.
        """
        number = max(self.running or 0, self.registered or 0)
        if number > (most := sum(wanted.get(name, 0) for name in self.profiles)):
            raise Unreachable(f"{self._what()}: only {most} are wanted; scale the fleet up first")
        if view.failed is not None:
            raise Unreachable("; ".join((f"{self._so_far(view)}: {view.failed}", *_last_end(view))))
        hopeless = sorted(self._hopeless(view, wanted), key=lambda each: each[0])
        left = most
        for since, count, words in hopeless:
            if (left := left - count) < number:
                if since <= now:
                    raise Unreachable(f"{self._so_far(view)}: {words}")
                return timedelta(seconds=since - now)
        return None

    def _hopeless(self, view: FleetView, wanted: Mapping[str, int]) -> Iterator[tuple[Moment, int, str]]:
        """Yield who cannot come: from when on that is believed, how many, and why.

        A block concerns those only that do not exist yet.
        """
        patience, stuck = PATIENCE.total_seconds(), self._stuck(view)
        for hope in (Outlook.NEVER, Outlook.REFUSED):
            same = [each for each in stuck if each[1].stuck is hope]
            words = _words(same) if same else ""
            for _, record in same:
                yield 0.0 if hope is Outlook.NEVER else record.stuck_since + patience, 1, words
        blocks = [(name, block) for name, block in self._blocks(view) if block.by in FOR_GOOD | FOR_A_PERSON]
        records = view.records.copy().values() if blocks else ()
        present = Counter(record.profile for record in records if _counts(record))
        for name, block in blocks:
            missing = max(0, wanted.get(name, 0) - present[name])
            yield 0.0 if block.by in FOR_GOOD else block.since + patience, missing, block.cause

    def held_up(self, view: FleetView) -> dict[object, str]:
        """Return what holds executors up now, in words, by the kind of block and by the API's reason."""
        found: dict[object, str] = {(name, block.by): _blocked(name, block) for name, block in self._blocks(view)}
        for executor_id, record in self._stuck(view):
            reason = (record.reason or "").partition(":")[0]
            if reason not in found:
                found[reason] = _words([(executor_id, record)])
        return found

    def needs_news(self, view: FleetView) -> bool:
        """Return whether the Backend knows better why pending executors wait: they are stuck, or had scheduling gates.

        A pod is reported as stuck once, and may be so for another reason by now.
        """
        records = view.records.copy().values()
        return bool(self._stuck(view)) or any(
            self._waits(each) and each.pod is not None and is_gated(each.pod) for each in records
        )

    def timed_out(
        self, view: FleetView, limit: timedelta, alive: Sequence[Executor] = (), failing: Mapping[str, str] = EMPTY
    ) -> WaitTimeout:
        """Return the error at the end of the time, with all that holds the executors up.

        `alive` are the executors as the Backend knows them: those that wait for a scheduling gate now have a reason.
        `failing` are the errors of the sources that fail now.
        """
        causes = [_blocked(name, block) for name, block in self._blocks(view)]
        if stuck := self._stuck(view):
            causes.append(_words([(i, self._now(i, record, alive)) for i, record in stuck]))
        known = {executor_id for executor_id, _ in stuck}
        gated = [each for each in alive if self._waits(each) and each.reason is not None and each.id not in known]
        if gated:
            causes.append(f"executor {gated[0].id} {gated[0].reason}{_and_more(len(gated))}")
        causes = causes or _last_end(view)
        causes += [f"the {name} fails: {error}" for name, error in failing.items()]
        return WaitTimeout(": ".join((f"{self._so_far(view)} after {format_duration(limit)}", *causes)))

    def _now(self, executor_id: int, record: Record, alive: Sequence[Executor]) -> Record:
        """Return the record with the reason that the Backend knows, if it knows one."""
        known = next((each.reason for each in alive if each.id == executor_id and self._waits(each)), None)
        return record if known is None else record._replace(reason=known)

    def _blocks(self, view: FleetView) -> list[tuple[str, Block]]:
        blocked = view.blocked.copy()
        return [(profile, blocked[profile]) for profile in self.profiles if profile in blocked]

    def _run(self, view: FleetView) -> int:
        return sum(view.running[profile] for profile in self.profiles)

    def _registered(self, view: FleetView) -> int:
        records = view.records
        return sum(
            1 for each in view.registered.copy() if (record := records.get(each)) and record.profile in self.profiles
        )

    def _stuck(self, view: FleetView) -> list[tuple[int, Record]]:
        return [each for each in view.stuck.copy().items() if self._waits(each[1])]

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


def _counts(record: Record) -> bool:
    """Return whether an executor counts towards its profile's target."""
    return record.state in {ExecutorState.PENDING, ExecutorState.RUNNING}


def _blocked(profile: str, block: Block) -> str:
    return f"{profile!r} is blocked: {block.cause}"


def _words(stuck: list[tuple[int, Record]]) -> str:
    executor_id, record = stuck[0]
    return f"executor {executor_id} is stuck: {record.reason}{_and_more(len(stuck))}"


def _and_more(count: int) -> str:
    return f" (and {count - 1} more)" if count > 1 else ""
