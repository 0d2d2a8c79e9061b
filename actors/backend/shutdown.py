"""The stop of a Backend: a small state machine, driven by messages, that never blocks and always ends in time.

`_Step` has the steps in their order, `Shutdown._begin_step` what each does, and `Shutdown._waits` whether it has
something to wait for: a step without that is left out. If the fleet is to be left, killed executors are deleted all the
same. While the lease is not ours nothing is deleted, and nothing at all if another driver holds it. If the API was
never reached, nothing was requested, and nothing is deleted. `stop_limit` ends all steps. An executor whose pod will
end by itself is reported removed, with that reason; the other pods are named as those that may be left.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from typing import TYPE_CHECKING, Final, assert_never

from actors.backend.deletion.claims_deletion import ClaimsDeletion
from actors.backend.deletion.fleet_deletion import FleetDeletion, FleetDeletionEvent, ListDue, LookedUp
from actors.backend.deletion.remaining_pods import LOST_REQUESTS
from actors.backend.rbac import makes_claims
from actors.manifests.stop_grace import longest_pause, longest_stop_grace
from actors.messages import BackendStopped
from actors.messages.internal import (
    ClaimDeleted,
    ClaimsListed,
    Drain,
    Drained,
    LeaseReleased,
    PodsDeleted,
    ReleaseLease,
)
from actors.messages.internal.names import ALLOCATOR, LEASE, POLL, POOL, WATCH
from actors.pods.loss import stopped_with_fleet
from actors.runtime import elapsed
from actors.sources.listing import PageArrived
from actors.text import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from datetime import datetime

    from actors.backend.driver_pod import DriverPod
    from actors.executors.executors import Executors
    from actors.executors.fleet_context import FleetContext
    from actors.kube.api import PodApi
    from actors.lease.write_permission import WritePermission
    from actors.runtime import Supervisor
    from actors.settings import Settings

__all__ = ["PATIENCE", "Shutdown", "stop_limit"]

logger = get_logger(__name__)

WRITERS: Final = (WATCH, POLL, ALLOCATOR)
"""The children that stop first: nothing more is to be created, and no more events are needed."""

FIRST_ANSWER: Final = timedelta(seconds=1)
"""After the Backend's start: the API has answered by then if it can be reached. Pods of a previous driver are deleted
even if the driver stops before."""

AFTER_GRACE: Final = timedelta(seconds=10)
"""What a stop waits for beyond the grace period. A kubelet gives a container 2 s more if its preStop hook has used the
grace period up (`minimumGracePeriodInSeconds`), and reports its end up to 2 s later. 2 s may pass until a list shows
that. 3 s are for the Lease, and 1 s is to spare."""

SLOW_REQUESTS: Final = 2
"""Requests of a stop that may take `backend.request_timeout` each: a create under way, and the deletion."""

PATIENCE: Final = 1 / 6
"""The part of a stop's limit for which a child may handle one message during a stop. A hung child is found
within 1¼ of it, and a restarted pool is asked again after a backoff: most of the time is left for the fleet."""

FOR_LEASE: Final = LOST_REQUESTS + timedelta(seconds=1)
"""Of the limit: kept for the end of what was sent, and for the release of the Lease."""

FOR_LEASE_AT_MOST: Final = 1 / 4
"""Of the limit: most of a short one is left for the fleet. The Lease may expire by itself then."""


class _FleetOverdue:
    """There is only time left to release the Lease."""


class _RequestsOver:
    """The API server has carried out or cancelled whatever was under way when the pool was stopped."""


@dataclass(frozen=True, slots=True)
class _TimedOut:
    """The stop's limit is over."""


class _UnreachedDue:
    """An API that can be reached has answered by now."""


def stop_limit(settings: Settings) -> timedelta:
    """Return how long a stop may take: `backend.shutdown_timeout`, or what follows from the fleet's grace periods.

    The templates of the settings must have passed `check_template`.
    """
    if settings.backend.shutdown_timeout is not None:
        return settings.backend.shutdown_timeout
    longest = longest_stop_grace(settings) + longest_pause(settings)
    return longest + AFTER_GRACE + SLOW_REQUESTS * settings.backend.request_timeout


class _Step(Enum):
    """The steps in their order, each with what it waits for, in the words of the log."""

    NOT_BEGUN = "not begun"
    WRITERS = "waiting for the sources and the Allocator"
    """They stop first: nothing more is requested."""
    DRAIN = "waiting for creates under way"
    """The pool answers each that it has sent."""
    PERMISSION = "waiting for the lease, to delete the fleet"
    """Without a lease, and with ours, there is nothing to wait for. A lost lease leads back to here."""
    FLEET = "waiting for the fleet to be gone"
    """`FleetDeletion` deletes it, and lists what is left."""
    CLAIMS = "waiting for the fleet's claims to be deleted"
    """`ClaimsDeletion` deletes them, if no executor owns them."""
    OTHERS = "waiting for the other actors that write"
    """The lease is kept until they have ended."""
    REQUESTS = "waiting for requests that were under way"
    """Only if the actors had to stop before the API had answered all that they had sent."""
    LEASE = "waiting for the lease to be released"
    """If its keeper is down, the lease expires by itself."""
    CHILDREN = "waiting for the other actors"
    DONE = "done"


_STEPS: Final = tuple(_Step)

WITH_FLEET: Final = frozenset({_Step.WRITERS, _Step.DRAIN, _Step.PERMISSION, _Step.FLEET, _Step.CLAIMS})
"""The steps before the actors that write stop."""

WITH_PERMISSION: Final = frozenset({_Step.PERMISSION, _Step.FLEET, _Step.CLAIMS})
"""The steps that a lost lease interrupts."""


class Shutdown:
    """The stop of one Backend.

    Args:
        context: see `FleetContext`.
        is_reached: returns whether the API has ever answered a request, other than with an error.
        end: called once, with the last message, when the stop is done.
    """

    _only: frozenset[int] | None
    """The executors to delete; None means all."""

    def __init__(
        self,
        context: FleetContext,
        api: PodApi,
        *,
        supervisor: Supervisor,
        permission: WritePermission,
        driver_pod: DriverPod,
        is_reached: Callable[[], bool],
        executors: Executors,
        end: Callable[[BackendStopped], None],
    ) -> None:
        settings = context.settings
        self._backend = context.backend
        self._app_id = settings.app_id
        self._delete_inactive = settings.backend.delete_inactive_on_stop
        self._longest_grace = longest_stop_grace(settings)
        self.limit: Final = stop_limit(settings)
        """How long the stop may take."""
        self._lease = context.children.get(LEASE)
        self._pool = context.children[POOL]
        self._supervisor = supervisor
        self._state = context.state
        self._permission = permission
        self._driver_pod = driver_pod
        self._is_reached = is_reached
        self._made_at = context.backend.clock.monotonic()
        self._makes_claims = makes_claims(settings)
        self._fleet = FleetDeletion(context, api, driver_pod)
        self._claims = ClaimsDeletion(context)
        self._executors = executors
        self._end = end
        self._deletes = False
        self._were_stopped_early = False
        """The actors that write were stopped before the API had answered all that they had sent."""
        self._had_pool = False
        """A pool has started."""
        self._step = _Step.NOT_BEGUN

    def handlers(self) -> dict[type, Callable[..., object]]:
        """Map each message to its handler."""
        return {
            ClaimDeleted: self._claims_answered,
            ClaimsListed: self._claims_answered,
            Drained: self._drained,
            LeaseReleased: self._lease_released,
            ListDue: self._fleet_answered,
            LookedUp: self._fleet_answered,
            PageArrived: self._fleet_answered,
            PodsDeleted: self._fleet_answered,
            _FleetOverdue: self._fleet_overdue,
            _RequestsOver: self._requests_over,
            _TimedOut: self._timed_out,
            _UnreachedDue: self._give_up,
        }

    @property
    def has_begun(self) -> bool:
        """The Backend is stopping, or has stopped."""
        return self._step is not _Step.NOT_BEGUN

    def begin(self, *, delete: bool) -> None:
        """Begin the stop. `delete` says whether to delete all executors, or only those that were killed."""
        include_inactive = delete and self._delete_inactive
        self._only = None if delete else self._state.to_delete()
        self._state.ending = self._only
        self._deletes = self._only is None or bool(self._only)
        self._fleet.begin(self._only, include_inactive=include_inactive)
        self._leave_to_another_driver()
        if not self._supervisor.children():  # it waited for the driver's pod: nothing was started
            self._go_to(_Step.DONE)
            return
        self._backend.timers.start("shutdown", self.limit, _TimedOut())
        if self._lease is not None:
            until = self.limit - min(FOR_LEASE, self.limit * FOR_LEASE_AT_MOST)
            self._backend.timers.start("fleet", until, _FleetOverdue())
        self._supervisor.hurry(self.limit * PATIENCE)
        if not self._is_reached():
            left = FIRST_ANSWER - elapsed(self._made_at, self._backend.clock.monotonic())
            if left <= timedelta():
                self._give_up()
                return
            self._backend.timers.start("unreached", left, _UnreachedDue())
        self._go_to(_Step.WRITERS)

    # ── the order ───────────────────────────────────────────────────────────────────────────────────────────────

    def _go_to(self, step: _Step) -> None:
        """Take a step, or the first one after it that has something to wait for."""
        if self._step is _Step.DONE:
            return
        while not self._waits(step):
            step = _after(step)
        self._step = step
        self._begin_step()
        self.advance()  # what the step waits for may be there already

    def advance(self) -> None:
        """Take the next step if the current one has nothing to wait for any more. Called again whenever a child ends.

        The answer that a step waits for leads on by its handler.
        """
        if not self._waits(self._step):
            self._go_to(_after(self._step))

    def _waits(self, step: _Step) -> bool:
        """Whether a step has something to wait for."""
        running = set(self._supervisor.children())
        match step:
            case _Step.WRITERS:
                return not running.isdisjoint(WRITERS)
            case _Step.PERMISSION:
                return self._deletes and not self._permission.may_write
            case _Step.FLEET:
                return self._deletes
            case _Step.CLAIMS:
                return self._deletes and self._only is None and self._makes_claims and bool(self._driver_pod.owners)
            case _Step.OTHERS:
                return self._lease is not None and bool(running - {LEASE})
            case _Step.REQUESTS:
                return self._were_stopped_early
            case _Step.LEASE:
                return self._keeper_is_alive()
            case _Step.CHILDREN:
                return bool(running)
            case _Step.NOT_BEGUN | _Step.DRAIN | _Step.DONE:
                return True
            case _:
                assert_never(step)

    def _begin_step(self) -> None:  # noqa: C901, PLR0912 - one case a step
        """Do what the current step begins with."""
        match self._step:
            case _Step.WRITERS:
                for name in WRITERS:
                    self._supervisor.stop(name)
            case _Step.DRAIN:
                self._pool.tell(Drain(self._backend.myself))
            case _Step.PERMISSION:
                self._fleet.look()
            case _Step.FLEET:
                self._delete_fleet()
            case _Step.CLAIMS:
                self._claims.begin()
            case _Step.OTHERS:
                for name in reversed(self._supervisor.children()):
                    if name != LEASE:
                        self._supervisor.stop(name)
            case _Step.REQUESTS:
                self._backend.timers.start("requests", LOST_REQUESTS, _RequestsOver())
            case _Step.LEASE:
                self._supervisor.address(LEASE).tell(ReleaseLease(self._backend.myself))
            case _Step.CHILDREN:
                self._supervisor.stop_all()
            case _Step.DONE:
                self._finish()
            case _Step.NOT_BEGUN:
                pass
            case _:
                assert_never(self._step)

    # ── answers ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _drained(self, message: Drained) -> None:
        if self._step is _Step.DRAIN:
            self._fleet.drained(message)
            self._go_to(_Step.PERMISSION)

    def _fleet_answered(self, message: FleetDeletionEvent) -> None:
        if self._step in {_Step.PERMISSION, _Step.FLEET} and self._fleet.handle(message):
            self._fleet.rest()
            self._go_to(_Step.CLAIMS)

    def _claims_answered(self, message: ClaimsListed | ClaimDeleted) -> None:
        if self._step is _Step.CLAIMS and self._claims.handle(message, self._driver_pod.owners[-1]):
            self._go_to(_Step.OTHERS)

    def _requests_over(self, _: _RequestsOver) -> None:
        self._go_to(_Step.LEASE)

    def _lease_released(self, _: LeaseReleased) -> None:
        if self._step is _Step.LEASE:
            self._go_to(_Step.CHILDREN)

    def permission_changed(self) -> None:
        """Delete the fleet once the lease is ours. If another living driver holds it, the fleet is that driver's."""
        self._leave_to_another_driver()
        if not self._permission.may_write and self._step in WITH_PERMISSION:
            self._fleet.rest()
            self._go_to(_Step.PERMISSION)
        else:
            self.advance()

    def _leave_to_another_driver(self) -> None:
        permission = self._permission
        if not permission.may_write and permission.holder is not None and self._deletes:
            logger.warning("fleet not deleted, another driver holds the lease: holder=%s", permission.holder)
            self._deletes = False

    def pool_started(self) -> None:
        """Repeat the request that the last pool, if there was one, has lost."""
        if self._had_pool and self._step in {_Step.NOT_BEGUN, _Step.WRITERS, _Step.DRAIN}:
            self._fleet.remaining.pool_lost()
        self._had_pool = True
        if self._step in {_Step.DRAIN, _Step.FLEET, _Step.CLAIMS}:
            self._begin_step()

    # ── ends before their time ──────────────────────────────────────────────────────────────────────────────────

    def _give_up(self, _: _UnreachedDue | None = None) -> None:
        """End the stop if the API was never reached: nothing was requested, and nothing is known that is to delete."""
        if not self._is_reached():
            logger.warning("API never reached, nothing is deleted: app_id=%s", self._app_id)
            self._deletes = False
            self._go_to(_Step.CHILDREN)

    def _fleet_overdue(self, _: _FleetOverdue) -> None:
        """Give the fleet up while there is time to release the lease: the next driver would wait for its expiry."""
        if self._step in WITH_FLEET:
            logger.warning("stop times out: step=%s limit=%ss", self._step.value, self.limit.total_seconds())
            self._give_fleet_up()

    def _give_fleet_up(self) -> None:
        """Stop the actors that write, though the API may not have answered all that they have sent."""
        self._fleet.rest()
        self._were_stopped_early = True
        self._go_to(_Step.OTHERS)

    def fail(self, cause: BaseException) -> None:
        """End the stop now, because a child failed too often."""
        logger.warning("stop ended early: step=%s cause=%r", self._step.value, cause)
        if self._keeper_is_alive() and self._step in WITH_FLEET:
            self._give_fleet_up()
        else:
            self._end_now()

    def _timed_out(self, _: _TimedOut) -> None:
        """End the stop, and name the pods that may be left."""
        logger.warning("stop timed out: step=%s limit=%ss", self._step.value, self.limit.total_seconds())
        self._end_now()

    def _end_now(self) -> None:
        self._supervisor.stop_all()
        self._go_to(_Step.DONE)

    def _keeper_is_alive(self) -> bool:
        return self._lease is not None and self._lease.is_alive()

    # ── the fleet ───────────────────────────────────────────────────────────────────────────────────────────────

    def _delete_fleet(self) -> None:
        if not self._fleet.has_begun:
            count = len(self._state.ledger.present()) if self._only is None else len(self._only)
            grace, limit = self._longest_grace.total_seconds(), self.limit.total_seconds()
            logger.info("deleting executors: executors=%d grace=%gs limit=%gs", count, grace, limit)
        self._fleet.delete()

    def _finish(self) -> None:
        """Report what was deleted and what is left."""
        self._fleet.rest()
        remaining = self._fleet.remaining
        ending = remaining.ending() if self._fleet.has_begun else {}
        left = tuple(name for name in remaining.names if name not in ending) if self._deletes else ()
        if self._deletes:
            self._report_removed(left, ending)
        if ending:
            logger.info("backend stopped, pods end by themselves: pods=%s until=%s", [*ending], max(ending.values()))
        if left:
            logger.warning("backend stopped, pods may be left: pods=%s", list(left))
        self._end(BackendStopped(left))

    def _report_removed(self, left: Collection[str], ending: Mapping[str, datetime]) -> None:
        """Report each deleted executor removed."""
        for entry in self._state.ledger.present():
            pod = self._state.pod_name(entry)
            if (self._only is None or entry.executor_id in self._only) and pod not in left:
                requested = entry.killed.message if entry.killed is not None else None
                reason = stopped_with_fleet(entry.executor_id, requested, ends_by=ending.get(pod))
                self._executors.remove(entry.executor_id, entry.uid, reason)


def _after(step: _Step) -> _Step:
    return _STEPS[_STEPS.index(step) + 1]
