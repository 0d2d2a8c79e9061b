"""`Goal`: what `wait_for` waits for, and why it cannot come true. Pure, but for what it reads of the view.

It cannot come true if fewer executors are wanted, if too many executors failed to start, or if too few are left without
those whose pods no waiting heals and those that nobody can create. What only a person changes, such as a registry that
has no such image, must last for `PATIENCE`. What may heal by itself is said, and waited for.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from actors.errors import Unreachable, WaitTimeout
from actors.messages import ExecutorState
from actors.pods.stuck import Outlook
from actors.settings.durations import format_duration

if TYPE_CHECKING:
    from collections.abc import Iterator

    from actors.messages import Executor, ProfileStatus
    from actors.runtime import Moment
    from actors.view import FleetView

__all__ = ["Goal"]

PATIENCE: Final = timedelta(seconds=45)
"""How long a refusal must last that usually only a person takes back, but that may be about to be. The kubelet tries a
pull again after 10, 20 and 40 seconds: three have failed by then. A POST is tried again more often."""

FOR_GOOD: Final = frozenset({"Altered", "Invalid", "TooLarge", "policy", "quota_too_small"})
"""Values of `ProfileStatus.blocked_by` that follow from the pod itself and from the cluster's rules."""

FOR_A_PERSON: Final = frozenset({"BadRequest", "Forbidden", "namespace"})
"""Those that a person changes, and that a server which starts itself may give for a moment."""

UNKNOWN_FOR: Final = timedelta(seconds=1)
"""How long a fleet waits for its lease before that is said. A moment after the start it has it, or knows the holder."""


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
        left = sum(status.target for _, status in self._profiles(view))
        if number > left:
            raise Unreachable(f"{self._what()}: only {left} are wanted; scale the fleet up first")
        if view.status is not None and view.status.failed is not None:
            raise Unreachable("; ".join((f"{self._so_far(view)}: {view.status.failed}", *_last_end(view))))
        for since, count, words in sorted(self._hopeless(view), key=lambda each: each[0]):
            if (left := left - count) < number:
                if since <= now:
                    raise Unreachable(f"{self._so_far(view)}: {words}")
                return timedelta(seconds=since - now)
        unsaid = [since - now for _, _, since in self._blocked(view) if since > now]
        return timedelta(seconds=min(unsaid)) if unsaid else None

    def _hopeless(self, view: FleetView) -> Iterator[tuple[Moment, int, str]]:
        """Yield who cannot come: from when on that is believed, how many, and why.

        A block concerns those only that do not exist yet.
        """
        patience, stuck = PATIENCE.total_seconds(), self._stuck(view)
        for hope in (Outlook.NEVER, Outlook.REFUSED):
            same = [executor for executor in stuck if view.stuck[executor.id].outlook is hope]
            words = _words(same) if same else ""
            for executor in same:
                yield 0.0 if hope is Outlook.NEVER else view.stuck[executor.id].since + patience, 1, words
        blocks = [each for each in self._profiles(view) if each[1].blocked_by in FOR_GOOD | FOR_A_PERSON]
        alive = view.alive.copy().values() if blocks else ()
        present = Counter(executor.profile for executor in alive if _counts(executor))
        for name, status in blocks:
            missing = max(0, status.target - present[name])
            since = 0.0 if status.blocked_by in FOR_GOOD else view.blocked_since(name) + patience
            yield since, missing, status.blocked or ""

    def held_up(self, view: FleetView, now: Moment) -> dict[object, str]:
        """Return what holds executors up now, in words, by the kind of block and by the API's reason."""
        found: dict[object, str] = {
            (name, status.blocked_by): _blocked(name, status)
            for name, status, since in self._blocked(view)
            if since <= now
        }
        for executor in self._stuck(view):
            found.setdefault(executor.stuck, _words([executor]))
        return found

    def _blocked(self, view: FleetView) -> Iterator[tuple[str, ProfileStatus, Moment]]:
        """Yield the profiles that are blocked, and from when on that is said."""
        for name, status in self._profiles(view):
            if status.blocked:
                quiet = UNKNOWN_FOR if status.blocked_by == "lease" else timedelta(0)
                yield name, status, view.blocked_since(name) + quiet.total_seconds()

    def timed_out(self, view: FleetView, limit: timedelta) -> WaitTimeout:
        """Return the error at the end of the time, with all that holds the executors up, and the sources that fail."""
        causes = [_blocked(name, status) for name, status in self._profiles(view) if status.blocked]
        waiting = [each for each in view.executors().values() if self._waits(each) and each.reason is not None]
        if stuck := [each for each in waiting if each.stuck is not None]:
            causes.append(_words(stuck))
        if gated := [each for each in waiting if each.stuck is None]:
            causes.append(f"executor {gated[0].id} {gated[0].reason}{_and_more(len(gated))}")
        causes = causes or _last_end(view)
        if view.status is not None:
            sources = view.status.sources.items()
            causes += [f"the {name} fails: {source.error}" for name, source in sources if source.error is not None]
        return WaitTimeout(": ".join((f"{self._so_far(view)} after {format_duration(limit)}", *causes)))

    def _profiles(self, view: FleetView) -> list[tuple[str, ProfileStatus]]:
        known = view.profiles
        return [(name, known[name]) for name in self.profiles if name in known]

    def _run(self, view: FleetView) -> int:
        return sum(view.running[profile] for profile in self.profiles)

    def _registered(self, view: FleetView) -> int:
        return sum(view.registered[profile] for profile in self.profiles)

    def _stuck(self, view: FleetView) -> list[Executor]:
        """Return the executors that wait and are stuck now."""
        found = (view.alive.get(executor_id) for executor_id in view.stuck.copy())
        return [each for each in found if each is not None and self._waits(each) and each.stuck is not None]

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


def _counts(executor: Executor) -> bool:
    """Return whether an executor counts towards its profile's target."""
    return executor.state in {ExecutorState.PENDING, ExecutorState.RUNNING}


def _blocked(profile: str, status: ProfileStatus) -> str:
    return f"{profile!r} is blocked: {status.blocked}"


def _words(stuck: list[Executor]) -> str:
    return f"executor {stuck[0].id} is stuck: {stuck[0].reason}{_and_more(len(stuck))}"


def _and_more(count: int) -> str:
    return f" (and {count - 1} more)" if count > 1 else ""
