"""How a Backend stops: a small state machine, driven by messages, that never waits and always ends in time.

Sources and Allocator stop first, so that nothing is requested any more; the pool drains, so that every create is
resolved; the fleet is deleted by label and listed until it is gone; then the other actors stop. Where the fleet is to
be left, those that were killed before go all the same. A lease is kept until nobody is left who writes, then released:
while it is not ours nothing is deleted, and nothing at all if another driver has it. Each step runs even if the one
before it failed, and `backend.shutdown_timeout` ends it all with the names of what may be left.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import Enum
from typing import TYPE_CHECKING, Final

from actors.errors import ApiError
from actors.kube.api import DeleteOptions
from actors.messages import (
    BackendStopped,
    DeletePod,
    DeletePods,
    Drain,
    Drained,
    ExecutorRemoved,
    LeaseReleased,
    PodsDeleted,
    ReleaseLease,
    ReplaceSnapshot,
)
from actors.messages.names import ALLOCATOR, LEASE, POLL, POOL, WATCH
from actors.pods.loss import stopped_with_fleet
from actors.pods.pod import executor_id, fleet_selector
from actors.sources.listing import PageArrived, PagedList

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from actors.executors.fleet_state import FleetState
    from actors.kube.api import PodApi
    from actors.lease.write_permission import WritePermission
    from actors.messages import ToDriver
    from actors.pods.pod import Pod
    from actors.runtime import Actor, Supervisor
    from actors.settings import Settings

__all__ = ["Shutdown"]

logger = logging.getLogger(__name__)

WRITERS: Final = (WATCH, POLL, ALLOCATOR)
"""Which stop first: the Allocator, so that nothing more is created, and the sources, which nobody needs then."""

FIRST_LOOK: Final = timedelta(milliseconds=100)
LAST_LOOK: Final = timedelta(seconds=2)
"""How soon to list again while pods are left: from the first, doubling, to the last."""

PATIENCE: Final = 1 / 6
"""Of `backend.shutdown_timeout`: how long any part may be busy with one message while all are stopped. One that hangs
is found within 1¼ of it, and a pool is asked once more after a backoff; most of the time is left for the fleet."""

SLICE: Final = 100
"""Executors in one bulk delete, beside the one for all: an API server works each off alone, at some 130 pods a second,
and a call that takes longer than its limit is cut off."""


@dataclass(frozen=True, slots=True)
class _TimedOut:
    """`backend.shutdown_timeout` is over."""


@dataclass(frozen=True, slots=True)
class _LookDue:
    """Time to list what is left of the fleet."""


class _Step(Enum):
    NOT_BEGUN = "not begun"
    WRITERS = "waiting for the sources and the Allocator"
    DRAIN = "waiting for creates under way"
    PERMISSION = "waiting for the lease, to delete the fleet"
    FLEET = "waiting for the fleet to be gone"
    REST = "waiting for whoever else may write"
    LEASE = "waiting for the lease to be released"
    CHILDREN = "waiting for the other actors"
    DONE = "done"


class Shutdown:
    """One stop of one Backend. It writes while it has the permission.

    Args:
        end: called once with the last word, when there is nothing more to do.
    """

    _only: frozenset[int] | None
    """The executors that are deleted, None meaning all."""
    _bulk_delete: DeletePods
    _listing: PagedList

    def __init__(
        self,
        backend: Actor,
        settings: Settings,
        api: PodApi,
        *,
        supervisor: Supervisor,
        state: FleetState,
        permission: WritePermission,
        tell: Callable[[ToDriver], None],
        end: Callable[[BackendStopped], None],
    ) -> None:
        self._backend = backend
        self._api = api
        self._app_id = settings.app_id
        self._delete_inactive = settings.backend.delete_inactive_on_stop
        self._timeout = settings.backend.shutdown_timeout
        self._lease = supervisor.address(LEASE) if settings.uses_lease else None
        self._pool = supervisor.address(POOL)
        self._supervisor = supervisor
        self._state = state
        self._permission = permission
        self._tell = tell
        self._end = end
        self._deletes = False
        self._look_in = FIRST_LOOK
        self._left: tuple[str, ...] | None = None
        """Names of the pods that the last list showed, None before the first."""
        self._slices = 0
        """Bulk deletes of some that are not answered yet."""
        self._one_by_one = False
        """So are a few; and all, if the bulk delete was refused: it needs a right of its own."""
        self._step = _Step.NOT_BEGUN

    def handlers(self) -> dict[type, Callable[..., object]]:
        """Who handles what."""
        return {
            Drained: self._drained,
            LeaseReleased: self._lease_released,
            PageArrived: self._looked,
            PodsDeleted: self._bulk_deleted,
            _LookDue: self._look,
            _TimedOut: self._timed_out,
        }

    @property
    def has_begun(self) -> bool:
        """The Backend stops, or has stopped."""
        return self._step is not _Step.NOT_BEGUN

    def begin(self, *, delete: bool) -> None:
        """Stop what writes; the rest follows. Executors that were killed go, whether the others are deleted or left."""
        include_inactive = delete and self._delete_inactive
        self._only = None if delete else self._state.ledger.killed_ids()
        self._deletes = self._only is None or bool(self._only)
        self._one_by_one = self._only is not None
        self._bulk_delete = DeletePods(self._only, reply_to=self._backend.myself, include_inactive=include_inactive)
        selector = fleet_selector(self._app_id, active_only=not include_inactive)
        self._listing = PagedList(self._api, selector, self._backend.clock, self._backend.myself)
        self._step = _Step.WRITERS
        self.permission_changed()
        if not self._supervisor.children():  # it was waiting for the driver's pod: nothing was begun
            self._left = ()
            self._finish()
            return
        self._backend.timers.start("shutdown", self._timeout, _TimedOut())
        self._supervisor.hurry(self._timeout * PATIENCE)
        for name in WRITERS:
            self._supervisor.stop(name)
        self.child_ended()

    def child_ended(self) -> None:
        """A child of the Backend has ended: perhaps the last one of a step."""
        running = self._supervisor.children()
        if self._step is _Step.WRITERS and not set(WRITERS) & set(running):
            self._step = _Step.DRAIN
            self._pool.tell(Drain(self._backend.myself))
        elif self._step is _Step.REST and not {*running} - {LEASE}:
            self._release()
        elif self._step is _Step.LEASE and not self._keeper_lives():
            self._stop_children()
        elif self._step is _Step.CHILDREN and not running:
            self._finish()

    def permission_changed(self) -> None:
        """The lease is ours, or not: if another driver that lives has it, the fleet is that driver's."""
        if self._permission.may_write:
            if self._step is _Step.PERMISSION:
                self._delete_fleet()
            return
        if self._permission.holder is not None and self._deletes:
            logger.warning("the fleet is not deleted, it is another driver's: holder=%s", self._permission.holder)
            self._deletes = False
        if self._step in {_Step.PERMISSION, _Step.FLEET}:
            self._backend.timers.cancel("look")
            self._listing.cancel()
            self._decide()

    def pool_restarted(self) -> None:
        """What the pool was asked and had not done it has forgotten."""
        self._slices = 0
        if self._step is _Step.DRAIN:
            self._pool.tell(Drain(self._backend.myself))
        elif self._step is _Step.FLEET:
            self._pool.tell(self._bulk_delete)

    def give_up(self, cause: BaseException) -> None:
        """A part cannot be kept alive: the stop ends here, with what it has done."""
        logger.warning("the stop is cut short: step=%s cause=%r", self._step.value, cause)
        self._supervisor.stop_all()
        self._finish()

    def _drained(self, _: Drained) -> None:
        if self._step is _Step.DRAIN:
            self._decide()

    def _decide(self) -> None:
        """Whether the fleet is to be deleted, and may be."""
        if not self._deletes:
            self._left = ()
            self._let_go()
        elif self._permission.may_write:
            self._delete_fleet()
        else:
            self._step = _Step.PERMISSION
            self._look()

    def _delete_fleet(self) -> None:
        self._step = _Step.FLEET
        self._listing.cancel()
        self._pool.tell(self._bulk_delete)
        self._backend.timers.start("look", LAST_LOOK, _LookDue())  # a fleet that is large takes its time

    def _bulk_deleted(self, message: PodsDeleted) -> None:
        """Look how far it got. Of the slices the last one says that more can be asked for."""
        if message.executor_ids != self._only:
            self._slices -= 1
            return
        self._one_by_one = self._one_by_one or message.error is not None
        self._look()

    def _look(self, _: _LookDue | None = None) -> None:
        """While nothing may be deleted once is enough: to name what is there, should the time run out."""
        if self._step is _Step.FLEET or (self._step is _Step.PERMISSION and self._left is None):
            self._listing.start()

    def _looked(self, message: PageArrived) -> None:
        match self._listing.arrived(message):
            case None:
                return
            case ApiError() as error:
                logger.debug("what is left of the fleet cannot be listed: error=%s", error)
            case ReplaceSnapshot(listed):
                pods = [pod for pod in listed if self._only is None or executor_id(pod) in self._only]
                self._left = tuple(sorted(pod.name for pod in pods))
                if self._step is _Step.PERMISSION:
                    return
                if not pods:
                    self._let_go()
                    return
                self._delete([pod for pod in pods if not pod.terminating])
        self._backend.timers.start("look", self._look_in, _LookDue())
        self._look_in = min(2 * self._look_in, LAST_LOOK)

    def _delete(self, pods: Sequence[Pod]) -> None:
        """Help the bulk delete: many at a time, each call a part of them; one by one where that is all we may."""
        if self._one_by_one:
            for pod in pods:
                self._pool.tell(DeletePod(pod.name, DeleteOptions(uid=pod.uid)))
        elif not self._slices:
            ids = [found for pod in pods if (found := executor_id(pod)) is not None]
            for start in range(0, len(ids), SLICE):
                self._slices += 1
                part = frozenset(ids[start : start + SLICE])
                self._pool.tell(replace(self._bulk_delete, executor_ids=part))

    def _lease_released(self, _: LeaseReleased) -> None:
        if self._step is _Step.LEASE:
            self._stop_children()

    def _timed_out(self, _: _TimedOut) -> None:
        """Out of time: whatever was under way is given up, and what may be left is named."""
        logger.warning("the stop took too long: step=%s timeout=%ss", self._step.value, self._timeout.total_seconds())
        self._supervisor.stop_all()
        self._finish()

    def _let_go(self) -> None:
        """The fleet is seen to. Another driver may take over once nobody is left who writes."""
        if self._lease is None:
            self._stop_children()
            return
        self._step = _Step.REST
        for name in reversed(self._supervisor.children()):
            if name != LEASE:
                self._supervisor.stop(name)
        self.child_ended()

    def _release(self) -> None:
        """A keeper that is down holds nothing up: the lease runs out."""
        self._step = _Step.LEASE
        if self._lease is not None and self._keeper_lives():
            self._lease.tell(ReleaseLease(self._backend.myself))
        else:
            self._stop_children()

    def _keeper_lives(self) -> bool:
        return self._lease is not None and self._lease.is_alive()

    def _stop_children(self) -> None:
        self._step = _Step.CHILDREN
        self._supervisor.stop_all()
        self.child_ended()

    def _finish(self) -> None:
        if self._step is _Step.DONE:
            return
        self._step = _Step.DONE
        self._listing.cancel()
        left = self._left
        if left is None:
            left = self._state.known_pods(self._only) if self._deletes else ()
        if self._deletes:
            self._tell_the_ends(left)
        if left:
            logger.warning("the backend has stopped, pods may be left: pods=%s", list(left))
        self._end(BackendStopped(left))

    def _tell_the_ends(self, left: tuple[str, ...]) -> None:
        """Each executor that went with the fleet is reported removed."""
        for entry in self._state.ledger.present():
            if (self._only is None or entry.executor_id in self._only) and self._state.pod_name(entry) not in left:
                reason = stopped_with_fleet(
                    entry.executor_id, entry.killed.message if entry.killed is not None else None
                )
                self._tell(ExecutorRemoved(entry.executor_id, reason))
