"""The driver's own pod, where it runs in one: looked up at the start, and waited for until it is ready.

It becomes the owner of every executor, so that none outlives it; and executors connect to the driver, which a service
lets them do only once its pod is ready. A driver that outlives its pod (one deleted by force) would make executors that
are collected at once, sixty a second: so it is looked for again whenever somebody deletes an executor. A small state
machine in the Backend's hands, driven by messages.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, ClassVar, Final, TypeAlias, assert_never, get_args

from actors import kube
from actors.backend.rbac import Right, lacking
from actors.errors import ApiError, BadRequest, Forbidden, NotFound, SettingsError, Unauthorized
from actors.manifests.executor_pod import owner_reference
from actors.messages import ExecutorSeen, RemoveExecutor
from actors.pods.loss import LossKind, LossReason
from actors.pods.pod import Pod
from actors.pods.state import PodTerminating
from actors.runtime import elapsed

if TYPE_CHECKING:
    from actors.kube.api import Manifest, PodApi
    from actors.runtime import Actor, Moment
    from actors.settings import Settings

__all__ = ["DriverPod", "DriverPodMessage"]

logger = logging.getLogger(__name__)

LOOK_EVERY: Final = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class _Found:
    """The answer to a GET."""

    answer: Pod | ApiError


@dataclass(frozen=True, slots=True)
class _LookDue:
    """Time to look again."""


@dataclass(frozen=True, slots=True)
class _WaitedEnough:
    """`backend.driver_ready_timeout` is over."""


DriverPodMessage: TypeAlias = _Found | _LookDue | _WaitedEnough


class DriverPod:
    """What is known of the pod. Without `driver_pod_name` there is none: it counts as found and ready."""

    handles: ClassVar[tuple[type, ...]] = get_args(DriverPodMessage)

    def __init__(self, backend: Actor, settings: Settings, api: PodApi) -> None:
        self._backend = backend
        self._api = api
        self._name = settings.driver_pod_name or ""
        self._ready_timeout = settings.backend.driver_ready_timeout
        self.is_found = self.is_ready = not self._name
        self.owner: Manifest | None = None
        """The pod as an ownerReference, once it was found."""
        self.failure: Exception | None = None
        """Why no executors can be made, for good."""
        self.error: ApiError | None = None
        """Why it is not known yet."""
        self._uid: str | None = None
        """Once it was found."""
        self._is_done = False
        self._suspected_at: Moment | None = None
        """When it was looked for last because an executor went."""

    def begin(self) -> None:
        """GET the pod, if the driver runs in one; the rest follows."""
        if self._name:
            self._look()

    def _look(self) -> None:
        myself = self._backend.myself
        self._api.send(kube.Get(self._name), lambda answer: myself.tell(_Found(answer)))

    def handle(self, message: DriverPodMessage) -> None:
        """One case a message."""
        match message:
            case _Found(answer) if self._is_done:
                self._see_again(answer)
            case _ if self._is_done:
                pass
            case _Found(Pod() as pod):
                self._see(pod)
            case _Found(answer):
                assert isinstance(answer, ApiError)
                self._trouble(answer)
            case _LookDue():
                self._look()
            case _WaitedEnough():
                seconds = self._ready_timeout.total_seconds()
                logger.warning(
                    "the driver's pod is not ready, executors are created all the same: pod=%s waited=%gs",
                    self._name,
                    seconds,
                )
                self._end()
            case _:
                assert_never(message)

    def suspect(self, message: object) -> None:
        """An executor that somebody deletes may have been collected: make sure that it still has an owner."""
        match message:
            case ExecutorSeen(state=PodTerminating()) | RemoveExecutor(reason=LossReason(kind=LossKind.DELETED)):
                self._make_sure()
            case _:
                pass

    def _make_sure(self) -> None:
        now, last = self._backend.clock.monotonic(), self._suspected_at
        if self._is_done and (last is None or elapsed(last, now) >= LOOK_EVERY):
            self._suspected_at = now
            self._look()

    def _see_again(self, answer: Pod | ApiError) -> None:
        """All that counts now is whether it exists."""
        is_another = isinstance(answer, Pod) and answer.uid != self._uid
        if self._uid is not None and (is_another or isinstance(answer, NotFound)):
            self._is_gone()

    def _see(self, pod: Pod) -> None:
        self.error = None
        if self._uid is not None and pod.uid != self._uid:
            self._is_gone()
            return
        if self._uid is None:
            self._uid = pod.uid
            self._backend.timers.start("driver-pod.enough", self._ready_timeout, _WaitedEnough())
            self.is_found, self.owner = True, owner_reference(pod.name, pod.uid)
        if _is_ready(pod):
            self._end()
        else:
            self._look_again()

    def _trouble(self, error: ApiError) -> None:
        """What waiting does not heal ends the start; once the pod is known, that is only its end."""
        self.error = error if self._uid is None else None
        match error:
            case NotFound():
                self._is_gone()
            case Forbidden() if self._uid is None:
                self._give_up(lacking((Right("get"),), self._api.namespace, said=error))
            case Unauthorized() | BadRequest() if self._uid is None:
                self._give_up(error)
            case _:
                logger.debug("the driver's pod cannot be read, trying again: pod=%s error=%s", self._name, error)
                self._look_again()

    def _is_gone(self) -> None:
        """Executors of an owner that is no more would be collected as fast as they are made."""
        where = f"in namespace {self._api.namespace!r}"
        lacks = "there is no such pod" if self._uid is None else "there is no such pod any more"
        self._give_up(SettingsError(f"driver_pod_name = {self._name!r}: {lacks} {where} to own the executors"))

    def _give_up(self, error: Exception) -> None:
        self._finish()
        self.failure = error

    def _look_again(self) -> None:
        self._backend.timers.start("driver-pod.look", LOOK_EVERY, _LookDue())

    def _end(self) -> None:
        self._finish()
        self.is_ready = True

    def _finish(self) -> None:
        self._is_done = True
        for key in ("driver-pod.look", "driver-pod.enough"):
            self._backend.timers.cancel(key)


def _is_ready(pod: Pod) -> bool:
    conditions = (pod.status.conditions if pod.status else None) or ()
    return any((condition.type, condition.status) == ("Ready", "True") for condition in conditions)
