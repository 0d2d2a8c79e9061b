"""The stop of a Backend: a small state machine, driven by messages, that never blocks and always ends in time.

The sources and the Allocator stop first, so that nothing more is requested. The pool drains, so that no create is
under way. The fleet is deleted by label and listed until it is gone, then its claims are deleted, and the other actors
stop. If the fleet is to be left, killed executors are deleted all the same. The lease is kept until no actor is left
that writes, then released. While it is not ours nothing is deleted, and nothing at all if another driver holds it. If
the API was never reached, nothing was requested, and nothing is deleted. Each step runs even if the previous one
failed; `backend.shutdown_timeout` ends them all, with the names of the pods that may be left.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Final

from actors import kube
from actors.backend.claims_deletion import ClaimsDeletion
from actors.backend.rbac import makes_claims
from actors.errors import ApiError, NotFound
from actors.executors.ledger import ends
from actors.kube.api import DeleteOptions
from actors.messages import BackendStopped
from actors.messages.internal import (
    NO_PAUSE,
    ClaimDeleted,
    ClaimsListed,
    DeletePod,
    DeletePods,
    Drain,
    Drained,
    LeaseReleased,
    PodsDeleted,
    ReleaseLease,
    ReplaceSnapshot,
    WithdrawRequests,
)
from actors.messages.internal.names import ALLOCATOR, LEASE, POLL, POOL, WATCH
from actors.pods.loss import stopped_with_fleet
from actors.pods.pod import Pod, executor_id, fleet_selector, is_selected
from actors.runtime import elapsed, later
from actors.sources.listing import PageArrived, PagedList
from actors.text import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from actors.backend.driver_pod import DriverPod
    from actors.executors.fleet_state import FleetState
    from actors.kube.api import PodApi
    from actors.lease.write_permission import WritePermission
    from actors.messages import ToDriver
    from actors.runtime import Actor, Moment, Supervisor
    from actors.settings import Settings

__all__ = ["Shutdown"]

logger = get_logger(__name__)

WRITERS: Final = (WATCH, POLL, ALLOCATOR)
"""The children that stop first: nothing more is to be created, and no more events are needed."""

FIRST_DELAY: Final = timedelta(milliseconds=100)
LAST_DELAY: Final = timedelta(seconds=2)
"""The delays between lists while pods are left: the first, doubled up to the last."""

FIRST_ANSWER: Final = timedelta(seconds=1)
"""After the Backend's start: the API has answered by then if it can be reached. Pods of a previous driver are deleted
even if the driver stops before."""

PATIENCE: Final = 1 / 6
"""The part of `backend.shutdown_timeout` for which a child may handle one message during a stop. A hung child is found
within 1¼ of it, and a restarted pool is asked again after a backoff: most of the time is left for the fleet."""

SLICE: Final = 100
"""Executors in one bulk delete beside the one for all: an API server handles each call alone, at about 130 pods a
second, and a call that exceeds its limit is cut off."""

LOST_POSTS: Final = timedelta(seconds=2)
"""After a restart of the pool: the API server has cancelled or carried out the requests of the last one, whose
connections have ended. A list before that may lack a pod that comes."""


@dataclass(frozen=True, slots=True)
class _TimedOut:
    """`backend.shutdown_timeout` is over."""


class _UnreachedDue:
    """An API that can be reached has answered by now."""


@dataclass(frozen=True, slots=True)
class _ListDue:
    """Time to list what is left of the fleet."""


@dataclass(frozen=True, slots=True)
class _LookedUp:
    """The answer about a pod that was created and never observed."""

    name: str
    found: Pod | ApiError


class _Step(Enum):
    NOT_BEGUN = "not begun"
    WRITERS = "waiting for the sources and the Allocator"
    DRAIN = "waiting for creates under way"
    PERMISSION = "waiting for the lease, to delete the fleet"
    FLEET = "waiting for the fleet to be gone"
    CLAIMS = "waiting for the fleet's claims to be deleted"
    OTHERS = "waiting for the other actors that write"
    LEASE = "waiting for the lease to be released"
    CHILDREN = "waiting for the other actors"
    DONE = "done"


class Shutdown:
    """The stop of one Backend.

    Args:
        is_reached: returns whether the API has ever answered a request, other than with an error.
        end: called once, with the last message, when the stop is done.
    """

    _only: frozenset[int] | None
    """The executors to delete; None means all."""
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
        driver_pod: DriverPod,
        is_reached: Callable[[], bool],
        tell: Callable[[ToDriver], None],
        end: Callable[[BackendStopped], None],
    ) -> None:
        self._backend = backend
        self._api = api
        self._app_id = settings.app_id
        self._delete_inactive = settings.backend.delete_inactive_on_stop
        self._timeout = settings.backend.shutdown_timeout
        self._bounds = settings.api
        self._lease = supervisor.address(LEASE) if settings.uses_lease else None
        self._pool = supervisor.address(POOL)
        self._supervisor = supervisor
        self._state = state
        self._permission = permission
        self._driver_pod = driver_pod
        self._is_reached = is_reached
        self._made_at = backend.clock.monotonic()
        self._makes_claims = makes_claims(settings)
        self._claims = ClaimsDeletion(backend, self._pool)
        self._tell = tell
        self._end = end
        self._deletes = False
        self._delay = FIRST_DELAY
        self._left: tuple[str, ...] | None = None
        """Names of the pods in the last list, and of unseen ones; None before the first list."""
        self._listed_uids: Mapping[str, str] = {}
        """UIDs of the pods in the last list, by name."""
        self._unseen: dict[str, str] = {}
        """UIDs, by name, of pods that were created and never observed, until a list has them or they are gone."""
        self._looked_for: set[str] = set()
        """Names of those whose GET is not answered."""
        self._had_pool = False
        """A pool has started."""
        self._lost_until = self._made_at
        """A list requested before may lack a pod that comes of a request that was lost with its pool."""
        self._slices = 0
        """Bulk deletes of `SLICE` executors that are not answered yet."""
        self._draining = settings.draining
        self._one_by_one = False
        """Delete pod by pod: a few executors, or all if the bulk delete was refused, which needs a right of its own."""
        self._step = _Step.NOT_BEGUN

    def handlers(self) -> dict[type, Callable[..., object]]:
        """Map each message to its handler."""
        return {
            ClaimDeleted: self._claims_answered,
            ClaimsListed: self._claims_answered,
            Drained: self._drained,
            LeaseReleased: self._lease_released,
            PageArrived: self._listed,
            PodsDeleted: self._bulk_deleted,
            _ListDue: self._list,
            _LookedUp: self._looked_up,
            _TimedOut: self._timed_out,
            _UnreachedDue: self._give_up,
        }

    @property
    def has_begun(self) -> bool:
        """The Backend is stopping, or has stopped."""
        return self._step is not _Step.NOT_BEGUN

    def begin(self, *, delete: bool) -> None:
        """Stop the writers. `delete` says whether to delete all executors, or only those that were killed."""
        include_inactive = delete and self._delete_inactive
        self._only = None if delete else self._state.ledger.killed_ids()
        self._state.ending = self._only
        self._deletes = self._only is None or bool(self._only)
        self._one_by_one = self._only is not None
        self._bulk_delete = DeletePods(self._only, reply_to=self._backend.myself, include_inactive=include_inactive)
        selector = fleet_selector(self._app_id, active_only=not include_inactive)
        self._listing = PagedList(self._api, selector, self._backend.clock, self._backend.myself, bounds=self._bounds)
        self._step = _Step.WRITERS
        self.permission_changed()
        if not self._supervisor.children():  # it waited for the driver's pod: nothing was started
            self._left = ()
            self._finish()
            return
        self._backend.timers.start("shutdown", self._timeout, _TimedOut())
        self._supervisor.hurry(self._timeout * PATIENCE)
        if not self._is_reached():
            left = FIRST_ANSWER - elapsed(self._made_at, self._backend.clock.monotonic())
            if left <= timedelta():
                self._give_up()
                return
            self._backend.timers.start("unreached", left, _UnreachedDue())
        for name in WRITERS:
            self._supervisor.stop(name)
        self.child_ended()

    def _give_up(self, _: _UnreachedDue | None = None) -> None:
        """End the stop if the API was never reached: nothing was requested, and nothing is known that is to delete."""
        if not self._is_reached():
            logger.warning("API never reached, nothing is deleted: app_id=%s", self._app_id)
            self._left = ()
            self._deletes = False
            self._stop_children()

    def child_ended(self) -> None:
        """Take the next step if the last child that a step waits for has ended."""
        running = self._supervisor.children()
        if self._step is _Step.WRITERS and not set(WRITERS) & set(running):
            self._step = _Step.DRAIN
            self._pool.tell(Drain(self._backend.myself))
        elif self._step is _Step.OTHERS and not {*running} - {LEASE}:
            self._release()
        elif self._step is _Step.LEASE and not self._keeper_is_alive():
            self._stop_children()
        elif self._step is _Step.CHILDREN and not running:
            self._finish()

    def permission_changed(self) -> None:
        """Delete the fleet once the lease is ours. If another living driver holds it, the fleet is that driver's."""
        if self._permission.may_write:
            if self._step is _Step.PERMISSION:
                self._delete_fleet()
            return
        if self._permission.holder is not None and self._deletes:
            logger.warning("fleet not deleted, another driver holds the lease: holder=%s", self._permission.holder)
            self._deletes = False
        if self._step in {_Step.PERMISSION, _Step.FLEET, _Step.CLAIMS}:
            self._backend.timers.cancel("list")
            self._listing.cancel()
            self._decide()

    def pool_started(self) -> None:
        """Repeat the request that the last pool, if there was one, has lost."""
        if self._had_pool and self._step in {_Step.NOT_BEGUN, _Step.WRITERS, _Step.DRAIN}:
            self._lost_until = later(self._backend.clock.monotonic(), LOST_POSTS)
        self._had_pool = True
        self._slices = 0
        if self._step is _Step.DRAIN:
            self._pool.tell(Drain(self._backend.myself))
        elif self._step is _Step.FLEET:
            self._pool.tell(self._bulk_delete)
        elif self._step is _Step.CLAIMS:
            self._claims.begin()

    def fail(self, cause: BaseException) -> None:
        """End the stop now, because a child failed too often."""
        logger.warning("stop ended early: step=%s cause=%r", self._step.value, cause)
        self._supervisor.stop_all()
        self._finish()

    def _drained(self, message: Drained) -> None:
        if self._step is _Step.DRAIN:
            self._unseen = {name: pod.uid for name, pod in message.unseen.items() if self._is_unseen(pod.executor_id)}
            self._decide()

    def _is_unseen(self, executor_id: int) -> bool:
        """Whether this executor's pod is to be deleted and was never observed: no list may have it."""
        entry = self._state.ledger.entries.get(executor_id)
        is_to_go = self._only is None or executor_id in self._only
        return is_to_go and (entry is None or entry.uid is None)

    def _decide(self) -> None:
        """Delete the fleet if that is requested and permitted."""
        if not self._deletes:
            self._left = ()
            self._stop_others()
        elif self._permission.may_write:
            self._delete_fleet()
        else:
            self._step = _Step.PERMISSION
            self._list()

    def _delete_fleet(self) -> None:
        self._step = _Step.FLEET
        self._slices = 0  # requests are dropped while writes are suspended
        self._listing.cancel()
        self._pool.tell(self._bulk_delete)
        self._backend.timers.start("list", LAST_DELAY, _ListDue())  # deleting a large fleet takes time

    def _bulk_deleted(self, message: PodsDeleted) -> None:
        """List what the bulk delete has left. After the last slice, more slices may be requested."""
        if message.executor_ids != self._only:
            self._slices -= 1
            return
        self._one_by_one = self._one_by_one or message.error is not None
        self._list()

    def _list(self, _: _ListDue | None = None) -> None:
        """List the fleet; while nothing may be deleted only once, to name the pods if the time runs out."""
        if self._step is _Step.FLEET or (self._step is _Step.PERMISSION and self._left is None):
            self._listing.start()

    def _listed(self, message: PageArrived) -> None:
        match self._listing.arrived(message):
            case None:
                return
            case ApiError() as error:
                logger.debug("listing the fleet failed, retrying: error=%s", error)
            case ReplaceSnapshot(listed, requested_at=requested_at):
                pods = [pod for pod in listed if self._is_to_go(pod)]
                self._note_left(pods, requested_at)
                if self._step is _Step.PERMISSION:
                    return
                if not self._left:
                    self._delete_claims()
                    return
                self._delete([pod for pod in pods if not pod.terminating])
                self._look_up_unseen()
        delay, now = self._delay, self._backend.clock.monotonic()
        if now < self._lost_until:
            delay = min(delay, elapsed(now, self._lost_until))
        self._backend.timers.start("list", delay, _ListDue())
        self._delay = min(2 * self._delay, LAST_DELAY)

    def _coming(self, listed_at: Moment) -> set[str]:
        """Return the names of the pods that may come of requests that were lost with their pool."""
        if listed_at >= self._lost_until:
            return set()
        entries = self._state.ledger.entries.values()
        return {
            self._state.pod_name(entry)
            for entry in entries
            if (entry.removed_at is None or entry.abandoned) and self._is_unseen(entry.executor_id)
        }

    def _look_up_unseen(self) -> None:
        """Look up by name the pods that no list has had: an admission step may have taken their labels off."""
        for name in self._unseen.keys() - self._looked_for:
            self._looked_for.add(name)
            self._api.send(kube.Get(name), partial(self._tell_looked_up, name))

    def _tell_looked_up(self, name: str, found: Pod | ApiError) -> None:
        self._backend.myself.tell(_LookedUp(name, found))

    def _looked_up(self, message: _LookedUp) -> None:
        """Delete a pod that was created and never observed. It is looked up again after the next list."""
        name, found = message.name, message.found
        self._looked_for.discard(name)
        uid = self._unseen.get(name)
        if uid is None or self._step is not _Step.FLEET:
            return
        if isinstance(found, NotFound) or (isinstance(found, Pod) and found.uid != uid):
            del self._unseen[name]
            if not self._unseen:
                self._list()
        elif isinstance(found, Pod) and not found.terminating:
            self._pool.tell(DeletePod(name, DeleteOptions(uid=uid)))

    def _is_to_go(self, pod: Pod) -> bool:
        active_only = not self._bulk_delete.include_inactive
        if not is_selected(pod.labels, self._app_id, active_only=active_only):
            return False
        return self._only is None or executor_id(pod) in self._only

    def _note_left(self, pods: Sequence[Pod], listed_at: Moment) -> None:
        """Note the pods of a list, and withdraw the requests to those that it no longer has: they may live on."""
        before, self._listed_uids = self._listed_uids, {pod.name: pod.uid for pod in pods}
        self._unseen = {name: uid for name, uid in self._unseen.items() if self._listed_uids.get(name) != uid}
        self._left = tuple(sorted(self._listed_uids.keys() | self._unseen.keys() | self._coming(listed_at)))
        if gone := {name: uid for name, uid in before.items() if self._listed_uids.get(name) != uid}:
            self._pool.tell(WithdrawRequests(gone))

    def _delete(self, pods: Sequence[Pod]) -> None:
        """Speed the bulk delete up by slices of it; delete pod by pod if that is all we may do."""
        if self._one_by_one:
            for pod in pods:
                grace = NO_PAUSE if pod.profile in self._draining else None
                self._pool.tell(DeletePod(pod.name, DeleteOptions(uid=pod.uid, grace=grace)))
        elif not self._slices:
            ids = [found for pod in pods if (found := executor_id(pod)) is not None]
            for start in range(0, len(ids), SLICE):
                self._slices += 1
                ids_of_slice = frozenset(ids[start : start + SLICE])
                self._pool.tell(replace(self._bulk_delete, executor_ids=ids_of_slice))

    def _delete_claims(self) -> None:
        """Delete the claims of a fleet that is gone, if its executors do not own them."""
        if self._only is None and self._makes_claims and self._driver_pod.owners:
            self._step = _Step.CLAIMS
            self._claims.begin()
        else:
            self._stop_others()

    def _claims_answered(self, message: ClaimsListed | ClaimDeleted) -> None:
        if self._step is _Step.CLAIMS and self._claims.handle(message, self._driver_pod.owners[-1]):
            self._stop_others()

    def _lease_released(self, _: LeaseReleased) -> None:
        if self._step is _Step.LEASE:
            self._stop_children()

    def _timed_out(self, _: _TimedOut) -> None:
        """End the stop, and name the pods that may be left."""
        logger.warning("stop timed out: step=%s timeout=%ss", self._step.value, self._timeout.total_seconds())
        self._supervisor.stop_all()
        self._finish()

    def _stop_others(self) -> None:
        """Stop all children but the lease keeper: another driver may write only when they have ended."""
        if self._lease is None:
            self._stop_children()
            return
        self._step = _Step.OTHERS
        for name in reversed(self._supervisor.children()):
            if name != LEASE:
                self._supervisor.stop(name)
        self.child_ended()

    def _release(self) -> None:
        """Release the lease. If its keeper is down, the lease expires by itself."""
        self._step = _Step.LEASE
        if self._lease is not None and self._keeper_is_alive():
            self._lease.tell(ReleaseLease(self._backend.myself))
        else:
            self._stop_children()

    def _keeper_is_alive(self) -> bool:
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
            self._report_removed(left)
        if left:
            logger.warning("backend stopped, pods may be left: pods=%s", list(left))
        self._end(BackendStopped(left))

    def _report_removed(self, left: tuple[str, ...]) -> None:
        """Report each deleted executor removed."""
        for entry in self._state.ledger.present():
            if (self._only is None or entry.executor_id in self._only) and self._state.pod_name(entry) not in left:
                reason = stopped_with_fleet(
                    entry.executor_id, entry.killed.message if entry.killed is not None else None
                )
                for message in ends(entry, reason, entry.pod_in(self._state.states)):
                    self._tell(message)
