"""How a Backend stops: a small state machine, driven by messages, that never waits and always ends in time.

Sources and Allocator stop first, so that nothing is requested any more; the pool drains, so that every create is
resolved; the fleet is deleted by label and listed until it is gone; then the other actors stop. Each step runs even if
the one before it failed, and `backend.shutdown_timeout` ends it all with the names of what may be left.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from typing import TYPE_CHECKING, Final, TypeAlias, assert_never

from actors.errors import ApiError
from actors.kube.api import DeleteOptions
from actors.listing import Listed, PageArrived, PagedList
from actors.messages import DeletePod, DeletePods, Drain, Drained, PodsDeleted
from actors.pods import executor_id, fleet_selector

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from actors.kube.api import PodApi
    from actors.pods import Pod
    from actors.runtime import Actor, Address, Supervisor

__all__ = ["Stopping", "StoppingMessage"]

logger = logging.getLogger(__name__)

FIRST_LOOK: Final = timedelta(milliseconds=100)
LAST_LOOK: Final = timedelta(seconds=2)
"""How soon to list again while pods are left: from the first, doubling, to the last."""

SLICE: Final = 100
"""Executors in one bulk delete, beside the one for all: an API server works each off alone, at some 130 pods a second,
and a call that takes longer than its limit is cut off."""


@dataclass(frozen=True, slots=True)
class _TimedOut:
    """`backend.shutdown_timeout` is over."""


@dataclass(frozen=True, slots=True)
class _LookDue:
    """Time to list what is left of the fleet."""


StoppingMessage: TypeAlias = _TimedOut | _LookDue | PageArrived | Drained | PodsDeleted
"""What the Backend hands on to `Stopping.handle`."""


class _Step(Enum):
    WRITERS = "waiting for the sources and the Allocator"
    DRAIN = "waiting for creates under way"
    FLEET = "waiting for the fleet to be gone"
    CHILDREN = "waiting for the other actors"
    DONE = "done"


class Stopping:
    """One stop of one Backend. `finished(left_behind)` is called once, when there is nothing more to do."""

    def __init__(
        self,
        backend: Actor,
        *,
        supervisor: Supervisor,
        api: PodApi,
        app_id: str,
        delete_pods: bool,
        timeout: timedelta,
        pool: Address,
        writers: Sequence[str],
        known_pods: Callable[[], tuple[str, ...]],
        finished: Callable[[tuple[str, ...]], None],
    ) -> None:
        self._backend = backend
        self._supervisor = supervisor
        self._delete_pods = delete_pods
        self._timeout = timeout
        self._pool = pool
        self._writers = writers
        self._known_pods = known_pods
        self._finished = finished
        self._listing = PagedList(api, fleet_selector(app_id), backend.clock, backend.myself)
        self._look_in = FIRST_LOOK
        self._left: tuple[str, ...] | None = None
        """Names of the pods that the last list showed, None before the first."""
        self._slices = 0
        """Bulk deletes of some that are not answered yet."""
        self._one_by_one = False
        """The bulk delete was refused: it needs a right of its own."""
        self._step = _Step.WRITERS

    def begin(self) -> None:
        """Stop what writes; the rest follows."""
        self._backend.timers.start("shutdown", self._timeout, _TimedOut())
        for name in self._writers:
            self._supervisor.stop(name)
        self.child_ended()

    def child_ended(self) -> None:
        """A child of the Backend has ended: perhaps the last one of a step."""
        running = self._supervisor.children()
        if self._step is _Step.WRITERS and not set(self._writers) & set(running):
            self._step = _Step.DRAIN
            self._pool.tell(Drain(self._backend.myself))
        elif self._step is _Step.CHILDREN and not running:
            self._finish()

    def handle(self, message: StoppingMessage) -> None:
        """One case a message."""
        match message:
            case Drained():
                self._drained()
            case PodsDeleted(executor_ids, error):
                self._bulk_deleted(executor_ids, error)
            case _LookDue():
                self._look()
            case PageArrived():
                self._looked(message)
            case _TimedOut():
                self._timed_out()
            case _:
                assert_never(message)

    def pool_restarted(self) -> None:
        """What the pool was asked and had not done it has forgotten."""
        self._slices = 0
        if self._step is _Step.DRAIN:
            self._pool.tell(Drain(self._backend.myself))
        elif self._step is _Step.FLEET:
            self._pool.tell(DeletePods(None, reply_to=self._backend.myself))

    def give_up(self, cause: BaseException) -> None:
        """A part cannot be kept alive: the stop ends here, with what it has done."""
        logger.warning("the stop is cut short: step=%s cause=%r", self._step.value, cause)
        self._supervisor.stop_all()
        self._finish()

    def _drained(self) -> None:
        if self._step is not _Step.DRAIN:
            return
        if self._delete_pods:
            self._step = _Step.FLEET
            self._pool.tell(DeletePods(None, reply_to=self._backend.myself))
            self._backend.timers.start("look", LAST_LOOK, _LookDue())  # a fleet that is large takes its time
        else:
            self._left = ()
            self._stop_children()

    def _bulk_deleted(self, executor_ids: frozenset[int] | None, error: ApiError | None) -> None:
        """Look how far it got. Of the slices the last one says that more can be asked for."""
        if executor_ids is not None:
            self._slices -= 1
            return
        self._one_by_one = error is not None
        self._look()

    def _look(self) -> None:
        if self._step is _Step.FLEET:
            self._listing.start()

    def _looked(self, message: PageArrived) -> None:
        match self._listing.arrived(message):
            case None:
                return
            case ApiError() as error:
                logger.debug("what is left of the fleet cannot be listed: error=%s", error)
            case Listed(pods):
                self._left = tuple(sorted(pod.name for pod in pods))
                if not pods:
                    self._stop_children()
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
                self._pool.tell(DeletePods(part, reply_to=self._backend.myself))

    def _timed_out(self) -> None:
        """Out of time: whatever was under way is given up, and what may be left is named."""
        logger.warning("the stop took too long: step=%s timeout=%ss", self._step.value, self._timeout.total_seconds())
        self._supervisor.stop_all()
        self._finish()

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
            left = self._known_pods() if self._delete_pods else ()
        self._finished(left)
