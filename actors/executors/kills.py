"""Kills: the executors that the driver ends or lets finish, and those that are rolled.

A plain object of the Backend. A killed executor has a grace period to end by itself; then its pod is deleted, by label,
so that a pod whose POST is still in flight is deleted, too.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from actors.errors import Refused
from actors.executors.roll import POLICIES, candidates, choose, lacks
from actors.messages import DecommissionExecutors, KillExecutors
from actors.messages.internal import DeletePods, ExecutorDecommissioned, ExecutorKilled
from actors.messages.internal.names import ALLOCATOR, LIFECYCLE, POOL
from actors.pods.loss import ENDED_BY_DRIVER
from actors.runtime import later
from actors.text import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from datetime import timedelta

    from actors.executors.fleet_state import FleetState
    from actors.executors.roll import RollPolicy
    from actors.messages import ToDriver
    from actors.messages.internal import LedgerEntry
    from actors.runtime import Actor, Address, Moment
    from actors.settings import Settings

__all__ = ["Kills"]

logger = get_logger(__name__)

ROLLED: Final = "was rolled, for a new one to take its place"
"""What loss reasons say after the executor's name."""

FEW: Final = 10
"""Ids that a log line names."""


@dataclass(frozen=True, slots=True)
class _DeleteDue:
    """The grace period of killed executors is over."""

    executor_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _RollDue:
    """Time to replace the next executor."""


class Kills:
    """The kills and rolls of one fleet.

    Args:
        backend: its timers and clock are used.
        settings: of the fleet.
        state: what is known of the fleet; changed here.
        children: the addresses of the Backend's children, by name.
        tell: sends a message, unless it is None, to the driver.
        why_not: returns why nothing may be written now, "" while it may.
        policy: chooses the executor to roll; by default `roll.policy`.
    """

    def __init__(
        self,
        backend: Actor,
        settings: Settings,
        *,
        state: FleetState,
        children: Mapping[str, Address],
        tell: Callable[[ToDriver | None], None],
        why_not: Callable[[], str],
        policy: RollPolicy | None = None,
    ) -> None:
        self._timers = backend.timers
        self._clock = backend.clock
        self._grace = settings.executor.kill_grace_period
        self._roll_interval = settings.roll.interval
        self._policy = policy or POLICIES[settings.roll.policy]
        self._state = state
        self._children = children
        self._tell = tell
        self._why_not = why_not

    def handlers(self) -> dict[type, Callable[..., object]]:
        """Map each message to its handler."""
        return {
            DecommissionExecutors: self._decommission,
            KillExecutors: self._kill,
            _DeleteDue: self._delete_killed,
            _RollDue: self._roll,
        }

    def begin(self) -> None:
        """Start the timer of rolls: the fleet is managed from now on."""
        if self._roll_interval is not None:
            self._timers.every("roll", self._roll_interval, _RollDue())

    # ── from the driver ─────────────────────────────────────────────────────────────────────────────────────────

    def _kill(self, message: KillExecutors) -> tuple[int, ...]:
        self._check_permission()
        return self.end(message.executor_ids, adjust_target=message.adjust_target, grace=message.grace)

    def _decommission(self, message: DecommissionExecutors) -> tuple[int, ...]:
        self._check_permission()
        return self._let_finish(message.executor_ids)

    def _check_permission(self) -> None:
        if why_not := self._why_not():
            raise Refused(f"executors cannot be ended now: {why_not}")

    # ── timers ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _delete_killed(self, due: _DeleteDue) -> None:
        if not self._why_not():
            self._delete(due.executor_ids)

    def _roll(self, _: _RollDue) -> None:
        """Replace one executor, unless the last replacement does not run yet: the fleet never shrinks by two."""
        if self._why_not():
            return
        among = candidates(self._state.ledger.entries.values(), self._state.states, self._clock.monotonic())
        lacking = lacks(among, self._state.totals, self._state.profiles)
        if lacking is not None:
            logger.info("not rolling, executors are missing or blocked: profile=%s", lacking)
            return
        try:
            chosen = choose(among, self._policy)
        except Exception:
            logger.exception("roll policy failed, no executor is rolled")
            return
        if chosen is not None:
            logger.info("rolling executor: executor=%d pod=%s", chosen.executor_id, chosen.pod.name)
            self._let_finish((chosen.executor_id,))
            self.end((chosen.executor_id,), message=ROLLED)

    # ── ends ────────────────────────────────────────────────────────────────────────────────────────────────────

    def end(
        self,
        executor_ids: Iterable[int],
        *,
        adjust_target: bool = False,
        grace: timedelta | None = None,
        message: str = ENDED_BY_DRIVER,
    ) -> tuple[int, ...]:
        """Kill executors. Delete pods that run after the grace period, others now; return the ids."""
        grace = self._grace if grace is None else grace
        delete_at = later(self._clock.monotonic(), grace)
        counted = self._state.ledger.counted() if adjust_target else Counter()
        killed = [self._end_one(executor_id, delete_at, message) for executor_id in self._known(executor_ids, "kill")]
        new = [entry for entry in killed if entry.killed is None and not entry.scaled_down]
        if adjust_target and new:
            self._lower_target(Counter(entry.profile for entry in new), counted)
        self._delete(entry.executor_id for entry in killed if not entry.running)
        running = (entry for entry in killed if entry.running)
        if due := tuple(e.executor_id for e in running if e.killed is None or delete_at < e.killed.delete_at):
            self._timers.start(("kill", due), grace, _DeleteDue(due))
        ids = tuple(entry.executor_id for entry in killed)
        if ids:
            logger.info("killing executors: ids=%s adjust_target=%s", _few(ids), adjust_target)
        return ids

    def _known(self, executor_ids: Iterable[int], verb: str) -> list[int]:
        """Return the executors that are known and have not ended; log the others."""
        known: list[int] = []
        others: list[int] = []
        for executor_id in executor_ids:
            (others if self._state.ledger.current(executor_id) is None else known).append(executor_id)
        if others:
            logger.warning("cannot %s unknown or ended executors: ids=%s", verb, _few(others))
        return known

    def _end_one(self, executor_id: int, delete_at: Moment, message: str) -> LedgerEntry:
        """Kill one executor, to be deleted at `delete_at` if it runs. Return its entry from before."""
        now, entry = self._clock.monotonic(), self._state.ledger.entries[executor_id]
        kill = ExecutorKilled(executor_id, self._clock.now(), delete_at if entry.running else now, message)
        self._state.ledger, kill, report = self._state.ledger.killed(kill, now, entry.pod_in(self._state.states))
        self._tell(report)
        self._tell_both(kill)
        return entry

    def _let_finish(self, executor_ids: Iterable[int]) -> tuple[int, ...]:
        ids = self._known(executor_ids, "decommission")
        for executor_id in ids:
            self._state.ledger = self._state.ledger.decommissioned(executor_id)
            self._tell_both(ExecutorDecommissioned(executor_id))
        if ids:
            logger.info("decommissioning executors: ids=%s", _few(ids))
        return tuple(ids)

    def _lower_target(self, killed: Counter[str], counted: Counter[str]) -> None:
        """Lower each profile's target by its killed executors, without those that were in excess of it.

        `counted` is how many counted toward it before, by the ledger. The ledger may not know yet that some have ended,
        which the Allocator has replaced already: there were no more than its last count says, if there was one.
        """
        totals = self._state.totals
        for profile in killed.keys() & totals.keys():
            alive, status = counted[profile], self._state.profiles.get(profile)
            if status is not None:
                alive = min(alive, status.requested + status.pending + status.running)
            excess = max(0, alive - totals[profile])
            totals[profile] -= min(totals[profile], max(0, killed[profile] - excess))
        self._children[ALLOCATOR].tell(self._state.target())

    def _delete(self, executor_ids: Iterable[int]) -> None:
        """Delete those that have not ended. By label, which includes a pod whose POST is still in flight."""
        left = frozenset(i for i in executor_ids if self._state.ledger.current(i) is not None)
        if left:
            self._children[POOL].tell(DeletePods(left))

    def _tell_both(self, message: ExecutorKilled | ExecutorDecommissioned) -> None:
        self._children[LIFECYCLE].tell(message)
        self._children[ALLOCATOR].tell(message)


def _few(executor_ids: Sequence[int]) -> str:
    """Return the first ids as text, and how many there are."""
    text = ", ".join(map(str, executor_ids[:FEW]))
    return text if len(executor_ids) <= FEW else f"{text}, ... ({len(executor_ids)} executors)"
