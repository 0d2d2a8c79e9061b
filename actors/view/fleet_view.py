"""`FleetView`: a fleet as values, as of the last `FleetChanged`. One thread folds it, any thread reads it."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple, final

from actors.messages import Executor, ExecutorState, FleetChanged, FleetStatus, FollowFleet
from actors.messages.executor import ENDED_KEPT
from actors.pods.stuck import Outlook, outlook
from actors.runtime import elapsed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import timedelta

    from actors.messages import ProfileStatus
    from actors.runtime import Address, Clock, Moment

__all__ = ["FleetView", "Stuck"]

BACKS_OFF: Final = "ImagePullBackOff"

NOBODY: Final[Mapping[int, Executor]] = MappingProxyType({})
NO_PROFILES: Final[Mapping[str, ProfileStatus]] = MappingProxyType({})


def _ask_nobody() -> None:
    """Do nothing: the view follows nobody yet."""


class Stuck(NamedTuple):
    """A pending executor that is stuck, or was."""

    outlook: Outlook
    """What waiting may help."""
    since: Moment
    """When that was first known."""


@final
class FleetView:
    """What is known of one fleet.

    Args:
        clock: tells since when executors are stuck, and how old a status is.
    """

    def __init__(self, clock: Clock) -> None:
        self._now = clock.monotonic
        self._ask: Callable[[], object] = _ask_nobody
        self._sequence: int | None = None
        self._is_behind = False
        """Something was missed, and everything was asked for."""
        self._status_at: Moment = 0.0
        self._change = object()
        """Another one after each change of an executor."""
        self._shown: tuple[object, Mapping[int, Executor]] = (self._change, NOBODY)
        """What `executors` returned last, and `_change` at that time."""
        self.status: FleetStatus | None = None
        """The newest one. Its ages are those of when it came; see `status_now`."""
        self.alive: dict[int, Executor] = {}
        """All executors that are requested or alive."""
        self.ended: deque[Executor] = deque(maxlen=ENDED_KEPT)
        """The last ones that ended, the newest last."""
        self.running: Counter[str] = Counter()
        """How many executors run, by profile."""
        self.registered: Counter[str] = Counter()
        """How many are registered, by profile."""
        self.stuck: dict[int, Stuck] = {}
        """Pending executors that are, or were, stuck. There are few, while a wait looks at them often."""
        self._blocks: dict[str, tuple[str | None, Moment]] = {}
        """What blocks creation, and since when, by profile."""

    def follow(self, backend: Address, follower: Callable[[FleetChanged], object]) -> None:
        """Have a Backend send everything to `follower`, now and after a gap. What it gets is for `fold`."""

        def ask() -> None:
            backend.tell(FollowFleet(follower))

        self._ask = ask
        ask()

    # ── for the thread that folds ───────────────────────────────────────────────────────────────────────────────

    def fold(self, change: FleetChanged) -> None:
        """Take in what has changed. If something before it is missing, ask for everything, once."""
        if change.complete:
            self._is_behind = False
            self.ended = deque(maxlen=ENDED_KEPT)
            for executor_id in self.alive.keys() - {executor.id for executor in change.executors}:
                self._drop(executor_id)
        elif (self._sequence is None or change.sequence != self._sequence + 1) and not self._is_behind:
            self._is_behind = True
            self._ask()
        self._sequence = change.sequence
        for executor in change.executors:
            self._set(executor)
        for executor_id in change.withdrawn:
            self._drop(executor_id)
        if change.executors or change.withdrawn:
            self._change = object()
        if change.status is not None:
            self.status, self._status_at = change.status, self._now()
            self._note_blocks(change.status.profiles)

    def _set(self, executor: Executor) -> None:
        if executor.state is ExecutorState.ENDED:
            self._drop(executor.id)
            self.ended.append(executor)
            return
        self._count(self.alive.get(executor.id), -1)
        self._count(executor, 1)
        self.alive[executor.id] = executor
        if executor.state is not ExecutorState.PENDING:
            if self.stuck:
                self.stuck.pop(executor.id, None)
        elif executor.stuck is not None:
            self._note_stuck(executor, executor.stuck)

    def _note_stuck(self, executor: Executor, reason: str) -> None:
        """Note what waiting may help. A kubelet that waits to pull again need not repeat why it failed."""
        hope, before = outlook(reason, executor.reason or ""), self.stuck.get(executor.id)
        if before is None or (hope is not before.outlook and (reason, hope) != (BACKS_OFF, Outlook.HEALS)):
            self.stuck[executor.id] = Stuck(hope, self._now())

    def _note_blocks(self, profiles: Mapping[str, ProfileStatus]) -> None:
        earlier, now = self._blocks, self._now()
        blocked = ((name, status.blocked_by) for name, status in profiles.items() if status.blocked is not None)
        self._blocks = {
            name: earlier[name] if name in earlier and earlier[name][0] == by else (by, now) for name, by in blocked
        }

    def _drop(self, executor_id: int) -> None:
        self._count(self.alive.pop(executor_id, None), -1)
        self.stuck.pop(executor_id, None)

    def _count(self, executor: Executor | None, by: int) -> None:
        if executor is not None and executor.state is ExecutorState.RUNNING:
            self.running[executor.profile] += by
        if executor is not None and executor.registered:
            self.registered[executor.profile] += by

    # ── for every thread ────────────────────────────────────────────────────────────────────────────────────────

    def executors(self) -> Mapping[int, Executor]:
        """Return the executors whose pods were observed or that have registered, by id. It does not change."""
        change, (shown_at, shown) = self._change, self._shown
        if shown_at is change:
            return shown
        alive = sorted(self.alive.copy().items())
        requested = ExecutorState.REQUESTED
        found = MappingProxyType({i: each for i, each in alive if each.state is not requested or each.registered})
        self._shown = change, found
        return found

    @property
    def profiles(self) -> Mapping[str, ProfileStatus]:
        """The status of each profile. It does not change."""
        return NO_PROFILES if self.status is None else MappingProxyType({**self.status.profiles})

    def blocked_since(self, profile: str) -> Moment:
        """Return since when the creation of a profile is blocked by what blocks it now; now if nothing does."""
        _, since = self._blocks.get(profile, (None, self._now()))
        return since

    def status_now(self) -> FleetStatus | None:
        """Return the status with its ages as of now."""
        status = self.status
        if status is None:
            return None
        passed = elapsed(self._status_at, self._now())

        def later(age: timedelta | None) -> timedelta | None:
            return None if age is None else age + passed

        sources = {
            name: replace(source, since_full_sync=later(source.since_full_sync), since_heard=later(source.since_heard))
            for name, source in status.sources.items()
        }
        return replace(status, sources=sources)
