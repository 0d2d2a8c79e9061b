"""Kills: the executors that the driver ends or lets finish, and those that are rolled.

A plain object of the Backend. A killed executor has a grace period to end by itself; then its pod is deleted. The
LifecycleManager asks for the same until it observes the deletion, and the RequestPool sends it once. A retired one is a
killed one that no longer counts: it is replaced, or the target has fallen, while it drains.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final

from actors.errors import Refused
from actors.executors.roll import LONGEST_CHOICE, POLICIES, candidates, choose, lacks
from actors.kube.api import DeleteOptions
from actors.messages import DecommissionExecutors, ExecutorDrained, KillExecutors, RetireExecutors
from actors.messages.internal import DeletePod, DrainEnded, ExecutorDecommissioned, ExecutorKilled, GracePeriods
from actors.messages.internal.names import ALLOCATOR, LIFECYCLE, POOL
from actors.pods.loss import ENDED_BY_DRIVER
from actors.runtime import TookTooLong, later
from actors.text import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from datetime import timedelta

    from actors.executors.fleet_context import FleetContext
    from actors.executors.roll import Candidate, RollPolicy
    from actors.messages.internal import LedgerEntry

__all__ = ["Kills"]

logger = get_logger(__name__)

RETIRED: Final = "was retired by the driver"
ROLLED: Final = "was rolled, for a new one to take its place"
"""What loss reasons say after the executor's name."""

NEVER: Final = 0.0
"""When the Backend observes a pod: what it asks for is not repeated once it was carried out."""

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
        context: see `FleetContext`.
        policy: chooses the executor to roll; by default `roll.policy`.
    """

    def __init__(self, context: FleetContext, policy: RollPolicy | None = None) -> None:
        settings = context.settings
        self._timers = context.backend.timers
        self._clock = context.backend.clock
        self._settings = settings
        self._grace = settings.executor.kill_grace_period
        self._graces = GracePeriods.without_pause(settings.draining)
        self._roll_interval = settings.roll.interval
        self._policy = POLICIES[settings.roll.policy] if policy is None else partial(self._asked, policy)
        self._system = context.backend.context.system
        self._state = context.state
        self._children = context.children
        self._tell = context.tell
        self._why_not = context.why_not

    def handlers(self) -> dict[type, Callable[..., object]]:
        """Map each message to its handler."""
        return {
            DecommissionExecutors: self._decommission,
            ExecutorDrained: self._drained,
            KillExecutors: self._kill,
            RetireExecutors: self._retire,
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

    def _retire(self, message: RetireExecutors) -> tuple[int, ...]:
        self._check_permission()
        return self.retire(message.executor_ids, RETIRED, message.deadline, adjust_target=message.adjust_target)

    def _drained(self, message: ExecutorDrained) -> bool:
        self._check_permission()
        ledger = self._state.ledger.drained(message.executor_id)
        if ledger is None:
            return False
        self._state.ledger = ledger
        self._children[LIFECYCLE].tell(DrainEnded(message.executor_id))
        return True

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
            leases = self._state.leases
            chosen = choose([each for each in among if not leases.is_leased(each.executor_id)], self._policy)
        except TookTooLong:
            logger.exception("roll policy takes too long, no executor is rolled any more")
            self._timers.cancel("roll")  # or each roll would leave a thread behind
            return
        except BaseException:  # a `sys.exit` in it must not end the fleet
            logger.exception("roll policy failed, no executor is rolled")
            return
        if chosen is not None:
            logger.info("rolling executor: executor=%d pod=%s", chosen.executor_id, chosen.pod.name)
            if self.drains(chosen.profile):
                self.retire((chosen.executor_id,), ROLLED, is_loss=False)
            else:  # its replacement waits until it is gone, so that the fleet never has more pods than its target
                self._let_finish((chosen.executor_id,))
                self.end((chosen.executor_id,), message=ROLLED, is_loss=False)

    def _asked(self, policy: RollPolicy, among: Sequence[Candidate]) -> int | None:
        return self._system.call_within(LONGEST_CHOICE, lambda: policy(among))

    # ── ends ────────────────────────────────────────────────────────────────────────────────────────────────────

    def end(
        self,
        executor_ids: Iterable[int],
        *,
        adjust_target: bool = False,
        grace: timedelta | None = None,
        message: str = ENDED_BY_DRIVER,
        is_loss: bool = True,
    ) -> tuple[int, ...]:
        """Kill executors, and return their ids. They are a loss to the fleet unless the target falls with them."""
        grace = self._grace if grace is None else grace
        counted = self._state.ledger.counted
        is_loss = is_loss and not adjust_target
        killed = self._end_all(self._known(executor_ids, "kill"), grace, message, is_loss=is_loss)
        if adjust_target and self._lower_target(killed, counted):
            self._children[ALLOCATOR].tell(self._state.target())
        ids = tuple(entry.executor_id for entry in killed)
        if ids:
            logger.info("killing executors: ids=%s adjust_target=%s", _few(ids), adjust_target)
        return ids

    def retire(
        self,
        executor_ids: Iterable[int],
        message: str,
        deadline: timedelta | None = None,
        *,
        adjust_target: bool = False,
        is_loss: bool = True,
    ) -> tuple[int, ...]:
        """Let executors drain, and delete them at the deadline, without counting them meanwhile; return the ids."""
        counted = self._state.ledger.counted
        retired: list[LedgerEntry] = []
        by_profile: dict[str, list[int]] = {}
        for executor_id in self._known(executor_ids, "retire"):
            by_profile.setdefault(self._state.ledger.entries[executor_id].profile, []).append(executor_id)
        for profile, ids in by_profile.items():
            grace = next(g for g in (deadline, self._settings.drain_timeout(profile), self._grace) if g is not None)
            retired += self._end_all(ids, grace, message, retired=True, is_loss=is_loss and not adjust_target)
        if adjust_target:
            self._lower_target(retired, counted)
        ids = [entry.executor_id for entry in retired]
        if ids:
            logger.info("retiring executors: ids=%s adjust_target=%s", _few(ids), adjust_target)
            self._children[ALLOCATOR].tell(self._state.target(retired=frozenset(ids)))
        return tuple(ids)

    def drains(self, profile: str) -> bool:
        """Whether executors of a profile drain: then those in excess and rolled ones retire."""
        return self._settings.drain_timeout(profile) is not None

    def _end_all(
        self,
        executor_ids: Iterable[int],
        grace: timedelta,
        message: str,
        *,
        is_loss: bool,
        retired: bool = False,
    ) -> list[LedgerEntry]:
        """Kill known executors. Delete pods that run after the grace period, others now; return the earlier entries."""
        delete_at = later(self._clock.monotonic(), grace)
        kill = ExecutorKilled(0, self._clock.now(), delete_at, message, retired, is_loss)
        ended = [self._end_one(replace(kill, executor_id=executor_id)) for executor_id in executor_ids]
        self._delete(entry.executor_id for entry in ended if not entry.runs)
        running = (entry for entry in ended if entry.runs)
        if due := tuple(e.executor_id for e in running if e.killed is None or delete_at < e.killed.delete_at):
            self._timers.start(("kill", due), grace, _DeleteDue(due))
        return ended

    def _known(self, executor_ids: Iterable[int], verb: str) -> list[int]:
        """Return the executors that are known and have not ended; log the others."""
        known: list[int] = []
        others: list[int] = []
        for executor_id in executor_ids:
            (others if self._state.ledger.current(executor_id) is None else known).append(executor_id)
        if others:
            logger.warning("cannot %s unknown or ended executors: ids=%s", verb, _few(others))
        return known

    def _end_one(self, kill: ExecutorKilled) -> LedgerEntry:
        """Kill one executor, which is deleted at once if it does not run. Return its entry from before."""
        now, entry = self._clock.monotonic(), self._state.ledger.entries[kill.executor_id]
        if not entry.runs:
            kill = replace(kill, delete_at=now)
        ledger, kill, report = self._state.ledger.killed(kill, now, entry.pod_in(self._state.states))
        self._state.enter(ledger, kill.executor_id)
        self._tell(report)
        self._children[LIFECYCLE].tell(kill)
        if not kill.retired:  # the Allocator is told of all that retire in one message, with the target
            self._children[ALLOCATOR].tell(kill)
        return entry

    def _let_finish(self, executor_ids: Iterable[int]) -> tuple[int, ...]:
        ids = self._known(executor_ids, "decommission")
        for executor_id in ids:
            self._state.enter(self._state.ledger.decommissioned(executor_id), executor_id)
            for name in (LIFECYCLE, ALLOCATOR):
                self._children[name].tell(ExecutorDecommissioned(executor_id))
        if ids:
            logger.info("decommissioning executors: ids=%s", _few(ids))
        return tuple(ids)

    def _lower_target(self, ended: Iterable[LedgerEntry], counted: Mapping[str, int]) -> bool:
        """Lower each profile's target by its newly killed executors, without those that were in excess of it.

        Return whether there were any.

        `counted` is how many counted toward it before, by the ledger. The ledger may not know yet that some have ended,
        which the Allocator has replaced already: there were no more than its last count says, if there was one.
        """
        totals = self._state.totals
        pools = self._state.leases.profiles
        killed = Counter(entry.profile for entry in ended if entry.killed is None and not entry.scaled_down)
        for profile in killed.keys() & totals.keys() - pools:
            alive, status = counted.get(profile, 0), self._state.profiles.get(profile)
            if status is not None:
                alive = min(alive, status.requested + status.pending + status.running - status.retiring)
            excess = max(0, alive - totals[profile])
            totals[profile] -= min(totals[profile], max(0, killed[profile] - excess))
        return bool(killed)

    def _delete(self, executor_ids: Iterable[int]) -> None:
        """Delete those that have not ended, also one whose POST is still in flight.

        One whose pod has left the snapshot, or terminates, is left to the LifecycleManager.
        """
        for entry in filter(None, map(self._state.ledger.current, executor_ids)):
            pod = entry.pod_in(self._state.states)
            if entry.uid is None or (pod is not None and not pod.terminating):
                options = DeleteOptions(uid=entry.uid, grace=self._graces.of(entry.profile))
                self._children[POOL].tell(DeletePod(self._state.pod_name(entry), options, observed_at=NEVER))


def _few(executor_ids: Sequence[int]) -> str:
    """Return the first ids as text, and how many there are."""
    text = ", ".join(map(str, executor_ids[:FEW]))
    return text if len(executor_ids) <= FEW else f"{text}, ... ({len(executor_ids)} executors)"
