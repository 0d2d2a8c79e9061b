"""`FleetDeletion`: deletes the fleet at a stop, or some executors, and lists what is left until it is gone.

A list comes first: only what it shows to be ours is deleted. Each call deletes a slice of the listed executors by their
ids, as they were at the version of the list: what comes after it, or has the labels of the fleet and no id of these, is
not hit. Pods that share an id with something else are deleted one by one, by their UIDs, and all are if the bulk delete
is refused. What has our labels and is no executor of ours is named, and left alone. If the server refuses to list,
the pods of the newest snapshot are deleted one by one.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from math import ceil
from typing import TYPE_CHECKING, Final, TypeAlias, assert_never

from actors import kube
from actors.backend.deletion.remaining_pods import OVERTIME, RemainingPods
from actors.errors import ApiError, Gone, NotFound, TooManyRequests
from actors.kube.api import DeleteOptions
from actors.kube.retries import lacks_server
from actors.manifests.stop_grace import longest_stop_grace, stop_graces
from actors.messages.internal import DeletePod, DeletePods, PodsDeleted, ReplaceSnapshot, WithdrawRequests
from actors.messages.internal.names import POOL
from actors.pods.ids import id_in_name
from actors.pods.pod import EXECUTOR_ID_LABEL, INACTIVE_LABEL, Pod, executor_id, fleet_selector, is_selected
from actors.sources.listing import PageArrived, PagedList
from actors.text import get_logger

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from actors.backend.driver_pod import DriverPod
    from actors.executors.fleet_context import FleetContext
    from actors.kube.api import PodApi
    from actors.messages.internal import Drained

__all__ = ["FleetDeletion", "FleetDeletionEvent", "ListDue", "LookedUp", "in_bulk"]

logger = get_logger(__name__)

FIRST_DELAY: Final = timedelta(milliseconds=100)
LAST_DELAY: Final = timedelta(seconds=2)
"""The delays between lists while pods are left: the first, doubled up to the last."""

DELAY_AT_END: Final = timedelta(milliseconds=500)
EACH_AT_END: Final = timedelta(milliseconds=5)
"""When the grace periods have just ended: the longest delay, and the delay for each pod that is left. Pods end then,
also those of programs that ignored SIGTERM. Most of a large fleet has left the lists by then; a short list is cheap."""

SLICE: Final = 100
"""Executors in one call: an API server handles each call alone, at about 130 pods a second, and a call that exceeds its
limit is cut off. Their ids are part of the URL, and many proxies accept no line over 8 KiB: 100 of 18 digits fit."""


@dataclass(frozen=True, slots=True)
class ListDue:
    """Time to list what is left of the fleet."""


@dataclass(frozen=True, slots=True)
class LookedUp:
    """The answer about a pod that was created and never observed."""

    name: str
    found: Pod | ApiError


FleetDeletionEvent: TypeAlias = ListDue | LookedUp | PageArrived | PodsDeleted
"""What the Backend receives and passes to `FleetDeletion.handle`."""


class FleetDeletion:
    """The deletion of one fleet."""

    _include_inactive: bool
    _listing: PagedList

    def __init__(self, context: FleetContext, api: PodApi, driver_pod: DriverPod) -> None:
        settings = context.settings
        self._backend = context.backend
        self._timers = context.backend.timers
        self._api = api
        self._app_id = settings.app_id
        self._bounds = settings.api
        self._graces = stop_graces(settings)
        self._longest_grace = longest_stop_grace(settings)
        self._pool = context.children[POOL]
        self._state = context.state
        self._driver_pod = driver_pod
        self._only: frozenset[int] | None = None
        """The executors to delete; None means all."""
        self.remaining: Final = RemainingPods(context.state, context.backend.clock)
        self.has_begun = False
        """It may delete, or might before."""
        self._deletes = False
        """It may delete."""
        self._delay = FIRST_DELAY
        self._open: set[str] = set()
        """UIDs of the pods whose bulk delete is not answered."""
        self._one_by_one = False
        """The bulk delete was refused, which needs a right of its own."""
        self._strangers: dict[str, str] = {}
        """The names of pods with our labels that are not ours, by UID."""
        self._looked_for: set[str] = set()
        """Names of those whose GET is not answered."""

    def begin(self, only: frozenset[int] | None, *, include_inactive: bool) -> None:
        """A stop begins, that deletes these executors, or all; nothing is deleted yet."""
        self._only, self._include_inactive = only, include_inactive
        selector = fleet_selector(self._app_id, active_only=not include_inactive)
        self._listing = PagedList(self._api, selector, self._backend.clock, self._backend.myself, bounds=self._bounds)
        self.remaining.begin(only, self._observed())

    def drained(self, message: Drained) -> None:
        """The pool has no create under way any more."""
        self.remaining.drained(message.unseen)

    def look(self) -> None:
        """List the fleet once, to name the pods if the time runs out before anything may be deleted."""
        self._deletes = False
        if not self.remaining.were_listed:
            self._listing.start()

    def delete(self) -> None:
        """Delete what is ours from now on. Called again if the pool has crashed, and has lost what it had not sent."""
        self.has_begun = self._deletes = True
        self._open.clear()
        self._listing.start()

    def rest(self) -> None:
        """Delete no more, and list no more."""
        self._deletes = False
        self._timers.cancel("list")
        self._listing.cancel()

    def handle(self, message: FleetDeletionEvent) -> bool:
        """Request what follows from a message. Return whether all is gone that is to be deleted."""
        match message:
            case ListDue():
                self._listing.start()
            case LookedUp():
                self._looked_up(message)
            case PodsDeleted():
                self._answered(message)
            case PageArrived():
                return self._arrived(message)
            case _:
                assert_never(message)
        return False

    # ── lists ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _arrived(self, message: PageArrived) -> bool:
        match self._listing.arrived(message):
            case None:
                return False
            case ApiError() as error:
                logger.debug("listing the fleet failed, retrying: error=%s", error)
                if self._deletes and not (lacks_server(error) or isinstance(error, TooManyRequests)):
                    self._delete_observed()
            case ReplaceSnapshot() as listed:
                pods = self._listed(listed)
                if not self._deletes:
                    return False
                if not self.remaining.names:
                    return True
                self._delete(pods, listed)
                self._look_up_unseen()
        self._timers.start("list", self._next_delay(), ListDue())
        return False

    def _listed(self, listed: ReplaceSnapshot) -> Sequence[Pod]:
        """Return the listed pods that are to go, and name those that are not ours."""
        pods = [pod for pod in listed.pods if self._is_to_go(pod)]
        if gone := self.remaining.listed(pods, listed.requested_at):
            self._pool.tell(WithdrawRequests(gone))
        strange = {pod.uid: pod.name for pod in listed.pods if self._is_selected(pod) and not self._is_ours(pod)}
        if strange.keys() - self._strangers.keys():
            names = sorted(strange.values())
            logger.warning("pods left alone, they have the fleet's labels but no name, id or owner: pods=%s", names)
        self._strangers |= strange
        return pods

    def _next_delay(self) -> timedelta:
        """Return the delay before the next list."""
        if self._open:  # deleting a large fleet takes time
            return LAST_DELAY
        delay, lost_for, graces_end_in = self._delay, self.remaining.lost_for, self.remaining.graces_end_in
        self._delay = min(2 * delay, LAST_DELAY)
        if graces_end_in > timedelta():
            delay = min(delay, graces_end_in)
        elif graces_end_in > -OVERTIME:
            delay = min(delay, DELAY_AT_END, max(FIRST_DELAY, EACH_AT_END * len(self.remaining.names)))
        return min(delay, lost_for) if lost_for > timedelta() else delay

    # ── what is ours ─────────────────────────────────────────────────────────────────────────────────────────────

    def _is_selected(self, pod: Pod) -> bool:
        return is_selected(pod.labels, self._app_id, active_only=not self._include_inactive)

    def _is_ours(self, pod: Pod) -> bool:
        """Whether a pod with our labels has an executor's name and id and, if the driver owns its executors, its owner.

        Once adoption is over, its id is one that the ledger knows, unless an earlier driver set the pod aside. One that
        the ledger knows by its UID may have lost its owner or its id, or may not have been adopted yet.
        """
        number = executor_id(pod)
        entry = self._state.ledger.entries.get(id_in_name(pod.name) or 0)
        if entry is not None and entry.uid == pod.uid:
            return True
        if number is None or not (self._state.is_ours(number) or pod.labels.get(INACTIVE_LABEL) == "true"):
            return False
        ours = {str(owner["uid"]) for owner in self._driver_pod.owners}
        return not ours or any(owner.uid in ours for owner in pod.metadata.owner_references or ())

    def _is_to_go(self, pod: Pod) -> bool:
        return (
            self._is_selected(pod) and self._is_ours(pod) and (self._only is None or id_in_name(pod.name) in self._only)
        )

    def _observed(self) -> list[Pod]:
        """Return the pods of the newest snapshot that are to go."""
        return [state.pod for state in self._state.states.values() if self._is_to_go(state.pod)]

    def _needs_delete(self, pod: Pod) -> bool:
        """Whether no deletion is under way that gives it as little time to end as a stop does."""
        grace, given = self._graces.of(pod.profile), pod.metadata.deletion_grace_period_seconds
        has_longer = grace is not None and given is not None and given > ceil(grace.total_seconds())
        is_requested = pod.uid in self._open or self.remaining.is_accepted(pod.uid)
        return not is_requested and (not pod.terminating or has_longer)

    # ── deletions ────────────────────────────────────────────────────────────────────────────────────────────────

    def _delete(self, pods: Sequence[Pod], listed: ReplaceSnapshot) -> None:
        """Delete the pods of a list that need it."""
        needing = list(filter(self._needs_delete, pods))
        believed = not self._one_by_one and all(map(self._is_selected, listed.pods))  # else it ignores our selector
        bulk = in_bulk(needing, listed.pods) if believed else frozenset()
        by_grace: dict[timedelta | None, list[Pod]] = {}
        for pod in needing:
            if pod.uid in bulk:
                by_grace.setdefault(self._graces.of(pod.profile), []).append(pod)
            else:
                self._delete_one(pod.name, pod.uid, pod.profile)
        for grace, together in by_grace.items():
            for start in range(0, len(together), SLICE):
                self._delete_slice(together[start : start + SLICE], grace, listed.resource_version)

    def _delete_slice(self, pods: Sequence[Pod], grace: timedelta | None, version: str) -> None:
        self._open |= {pod.uid for pod in pods}
        self._pool.tell(
            DeletePods(
                {pod.name: pod.uid for pod in pods},
                frozenset(filter(None, map(executor_id, pods))),
                version,
                self._backend.myself,
                grace=grace,
                include_inactive=self._include_inactive,
            )
        )

    def _delete_one(self, name: str, uid: str, profile: str) -> None:
        options = DeleteOptions(uid=uid, grace=self._graces.of(profile))
        self._pool.tell(DeletePod(name, options, reply_to=self._backend.myself))

    def _delete_observed(self) -> None:
        """Delete what the newest snapshot has, if nothing can be listed."""
        if not self.remaining.were_listed:
            for pod in filter(self._needs_delete, self._observed()):
                self._delete_one(pod.name, pod.uid, pod.profile)
            self._look_up_unseen()

    def _answered(self, message: PodsDeleted) -> None:
        """Note what the API has accepted. After the last slice, list what is left."""
        uids = set(message.pods.values())
        if message.error is None:
            self.remaining.accepted(message.pods, self._longest_grace)
        elif uids & self._open:
            self._one_by_one = self._one_by_one or not isinstance(message.error, Gone)  # the list was too old
        if uids & self._open:
            self._open -= uids
            if not self._open and self._deletes:
                self._listing.start()

    # ── unseen pods ──────────────────────────────────────────────────────────────────────────────────────────────

    def _look_up_unseen(self) -> None:
        """Look up by name the pods that no list has had: an admission step may have taken their labels off."""
        for name in self.remaining.unseen.keys() - self._looked_for:
            self._looked_for.add(name)
            self._api.send(kube.Get(name), partial(self._tell_looked_up, name))

    def _tell_looked_up(self, name: str, found: Pod | ApiError) -> None:
        self._backend.myself.tell(LookedUp(name, found))

    def _looked_up(self, message: LookedUp) -> None:
        """Delete a pod that was created and never observed. It is looked up again after the next list."""
        name, found = message.name, message.found
        self._looked_for.discard(name)
        uid = self.remaining.unseen.get(name)
        if uid is None or not self._deletes:
            return
        if isinstance(found, NotFound) or (isinstance(found, Pod) and found.uid != uid):
            del self.remaining.unseen[name]
            if not self.remaining.unseen:
                self._listing.start()
        elif isinstance(found, Pod) and not found.terminating:
            self._delete_one(name, uid, found.profile)


def in_bulk(pods: Iterable[Pod], listed: Iterable[Pod]) -> frozenset[str]:
    """Return the UIDs of those of these pods that a selector by their ids hits, and nothing else in the list."""
    by_uid = {pod.uid: pod for pod in pods}
    others = {pod.labels.get(EXECUTOR_ID_LABEL) for pod in listed if pod.uid not in by_uid}
    return frozenset(
        uid
        for uid, pod in by_uid.items()
        if executor_id(pod) is not None and pod.labels.get(EXECUTOR_ID_LABEL) not in others
    )
