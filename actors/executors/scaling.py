"""Scaling: sets the driver's target and ends the running executors in excess of it, as `ScaleExecutors` says.

A plain object of the Backend. Only running (or registered) executors are chosen here: the Allocator deletes those that
do not run yet. So the two never end an executor too many, whatever each of them knows first. It is level-triggered:
the running executors are counted again whenever one begins to run or becomes idle, until the profile's next target.
"""

from __future__ import annotations

import traceback
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from math import inf
from operator import itemgetter
from typing import TYPE_CHECKING, Final

from actors.errors import Refused
from actors.executors.fleet_state import ScaleDown
from actors.executors.roll import LONGEST_CHOICE
from actors.executors.status import living_executor
from actors.messages import ExecutorBusy, ExecutorIdle, HoldFleet, RegisterExecutor, ResumeFleet, ScaleExecutors
from actors.messages.internal import ExecutorSeen
from actors.messages.internal.names import ALLOCATOR
from actors.pods.loss import SCALED_DOWN
from actors.pods.state import PodRunning
from actors.runtime import TookTooLong
from actors.text import get_logger, one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from actors.executors.fleet_context import FleetContext
    from actors.executors.kills import Kills
    from actors.messages import Executor
    from actors.messages.internal import LedgerEntry
    from actors.runtime import Moment

__all__ = ["Scaling", "running", "victims"]

logger = get_logger(__name__)

TOGETHER: Final = timedelta(milliseconds=100)
"""Executors that begin to run, or become idle, within this time are counted once: a count takes 0.2 µs an executor."""

LONGEST_ERROR: Final = 200
"""Characters of a function's error."""

HELD: Final = "was retired, as the fleet is on hold"
"""The loss message of an executor that `HoldFleet` ended, after its name."""

RETRY: Final = timedelta(seconds=1)
"""How often to look whether the lease is back, while there are too many executors."""


@dataclass(frozen=True, slots=True)
class _CountDue:
    """Time to count the running executors of the profiles that were scaled."""


class Scaling:
    """The targets of one fleet that are reached by ending executors. `kills` ends them."""

    def __init__(self, context: FleetContext, kills: Kills) -> None:
        self._timers = context.backend.timers
        self._clock = context.backend.clock
        self._system = context.backend.context.system
        self._state = context.state
        self._allocator = context.children[ALLOCATOR]
        self._why_not = context.why_not
        self._kills = kills

    def handlers(self) -> dict[type, Callable[..., object]]:
        """Map each message to its handler."""
        return {
            ExecutorBusy: self._busy,
            ExecutorIdle: self._idle,
            HoldFleet: self._hold,
            ResumeFleet: self._resume,
            ScaleExecutors: self._scale,
            _CountDue: self._count,
        }

    def listeners(self) -> dict[type, Callable[..., object]]:
        """Map each message of which another part makes an executor that may be in excess."""
        return {ExecutorSeen: self._seen, RegisterExecutor: self._registered}

    def end(self) -> None:
        """End no more executors."""
        self._state.scale_downs.clear()
        self._state.hold = None
        self._timers.cancel("excess")

    # ── from the driver ─────────────────────────────────────────────────────────────────────────────────────────

    def _scale(self, message: ScaleExecutors) -> tuple[int, ...]:
        """Choose the victims first: if that fails, nothing has changed."""
        totals = message.by_profile
        scale_down = ScaleDown(message.victims, message.grace, self._clock.monotonic())
        try:
            chosen = self._choose(dict.fromkeys(totals, scale_down), totals)
        except TookTooLong as error:
            raise Refused(f"ScaleExecutors.victims failed: {error}") from error
        except BaseException as error:  # a `sys.exit` in it must not end the fleet
            said = traceback.format_exception_only(error)[-1].strip()
            raise Refused(f"ScaleExecutors.victims failed: {one_line(said, LONGEST_ERROR)}") from error
        self._state.totals = {**self._state.totals, **totals}
        self._state.scale_downs |= dict.fromkeys(totals, scale_down)
        self._state.forgive()
        # before the Allocator is told: it may not have seen yet that they run, and would end others, too
        ended = self._end(chosen, self._state.scale_downs)
        self._allocator.tell(self._state.target())
        return ended

    def _hold(self, message: HoldFleet) -> tuple[int, ...]:
        logger.info("fleet on hold: all executors retire, none is created")
        self._state.hold = ScaleDown("newest", message.deadline, self._clock.monotonic())
        rules, totals = self._state.excess_rules()
        ended = self._end(self._choose(rules, totals), rules, HELD)
        self._allocator.tell(self._state.target())
        return ended

    def _resume(self, _: ResumeFleet) -> None:
        if self._state.hold is not None:
            logger.info("fleet resumed: executors are created again")
            self._state.hold = None
            self._allocator.tell(self._state.target())

    def _busy(self, message: ExecutorBusy) -> None:
        self._state.ledger = self._state.ledger.marked(message.executor_id, busy=True)

    def _idle(self, message: ExecutorIdle) -> None:
        self._state.ledger = self._state.ledger.marked(message.executor_id, busy=False)
        self._count_soon()

    # ── from others ─────────────────────────────────────────────────────────────────────────────────────────────

    def _seen(self, message: ExecutorSeen) -> None:
        if isinstance(message.state, PodRunning):
            self._count_soon()

    def _registered(self, _: RegisterExecutor) -> None:
        self._count_soon()

    # ── excess ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _count_soon(self) -> None:
        """Count again: an executor has begun to run, or may be ended now."""
        if (self._state.scale_downs or self._state.hold) and not self._timers.active("excess"):
            self._timers.start("excess", TOGETHER, _CountDue())

    def _count(self, _: _CountDue) -> None:
        rules, totals = self._state.excess_rules()
        try:
            self._end(self._choose(rules, totals), rules, SCALED_DOWN if self._state.hold is None else HELD)
        except TookTooLong:
            logger.exception("choosing victims takes too long, executors in excess stay until the next target is set")
            for profile in [name for name, rule in self._state.scale_downs.items() if callable(rule.victims)]:
                del self._state.scale_downs[profile]  # or each count would leave a thread behind
        except BaseException:
            logger.exception("choosing victims failed, executors in excess of the target stay")

    def _choose(self, scale_downs: Mapping[str, ScaleDown], totals: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
        """Return the executors to end, by profile.

        Raises:
            BaseException: a function of the program raised it.
            TookTooLong: it has taken too long.
        """
        excess = {
            profile: (entries, len(entries) - totals.get(profile, 0))
            for profile, entries in running(self._state.ledger.entries.values(), scale_downs).items()
            if len(entries) > totals.get(profile, 0)
        }
        value = partial(living_executor, states=self._state.states, at=self._clock.now())
        choice = partial(_victims_of, excess, scale_downs, value)
        if any(callable(scale_downs[profile].victims) for profile in excess):
            return self._system.call_within(LONGEST_CHOICE, choice)
        return choice()

    def _end(
        self, chosen: Mapping[str, tuple[int, ...]], rules: Mapping[str, ScaleDown], message: str = SCALED_DOWN
    ) -> tuple[int, ...]:
        """End or retire the chosen executors and return their ids. While nothing may be written, look again later."""
        if any(chosen.values()) and self._why_not():
            self._timers.start("excess", RETRY, _CountDue())
            return ()
        ended: tuple[int, ...] = ()
        for profile, ids in chosen.items():
            if self._state.hold is not None or self._kills.drains(profile):
                ended += self._kills.retire(ids, message, rules[profile].grace, is_loss=False)
            else:
                ended += self._kills.end(ids, grace=rules[profile].grace, message=message, is_loss=False)
        return ended


def running(entries: Iterable[LedgerEntry], profiles: Iterable[str]) -> Mapping[str, Sequence[LedgerEntry]]:
    """Return the executors of these profiles that run or are registered, without those that are to end anyway."""
    found: dict[str, list[LedgerEntry]] = {profile: [] for profile in profiles}
    for entry in entries:
        if entry.runs and entry.profile in found and entry.counts and not entry.decommissioned:
            found[entry.profile].append(entry)
    return found


def _victims_of(
    excess: Mapping[str, tuple[Sequence[LedgerEntry], int]],
    scale_downs: Mapping[str, ScaleDown],
    value: Callable[[LedgerEntry], Executor],
) -> dict[str, tuple[int, ...]]:
    return {
        profile: victims(entries, number, scale_downs[profile], value) for profile, (entries, number) in excess.items()
    }


def victims(
    among: Sequence[LedgerEntry], excess: int, scale_down: ScaleDown, value: Callable[[LedgerEntry], Executor]
) -> tuple[int, ...]:
    """Return at most `excess` ids of executors to end, the first victim first.

    One that has begun to run since the target was set was in excess then: it goes before the others.
    """
    ordered = sorted(among, key=_newest_first)
    match scale_down.victims:
        case "newest":
            pass
        case "oldest":
            ordered.reverse()
        case "idle":
            ordered = sorted((entry for entry in ordered if not entry.busy), key=_is_connected)
        case function:
            keys = ((entry, function(value(entry))) for entry in ordered)
            ordered = [
                entry for entry, _ in sorted(((e, key) for e, key in keys if key is not None), key=itemgetter(1))
            ]
    ordered.sort(key=lambda entry: not _began_after(entry, scale_down.since))
    return tuple(entry.executor_id for entry in ordered[: max(0, excess)])


def _newest_first(entry: LedgerEntry) -> tuple[float, int]:
    return -_began(entry), -entry.executor_id


def _is_connected(entry: LedgerEntry) -> bool:
    return entry.registered_at is not None and entry.active


def _began_after(entry: LedgerEntry, moment: Moment) -> bool:
    return _began(entry) > moment


def _began(entry: LedgerEntry) -> Moment:
    """Return when it began to run; one that has registered and was not observed to run has just begun."""
    return inf if entry.running_at is None else entry.running_at
