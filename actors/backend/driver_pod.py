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
from typing import TYPE_CHECKING, Final, TypeAlias, assert_never

from actors import kube
from actors.backend.rbac import Right, lacking
from actors.errors import ApiError, BadRequest, Forbidden, NotFound, SettingsError, Unauthorized
from actors.manifests.executor_pod import owner_reference
from actors.messages import ExecutorSeen, RemoveExecutor
from actors.pods.loss import LossKind, LossReason
from actors.pods.pod import Pod
from actors.pods.state import PodTerminating

if TYPE_CHECKING:
    from collections.abc import Callable

    from actors.kube.api import Manifest, PodApi
    from actors.runtime import Actor

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
"""What the Backend hands on to `DriverPod.handle`."""


class DriverPod:
    """Calls `found(owner)` once, with the ownerReference for executors; later `ready()`, once; or `failed(error)`."""

    def __init__(
        self,
        backend: Actor,
        api: PodApi,
        name: str,
        *,
        ready_timeout: timedelta,
        found: Callable[[Manifest], None],
        ready: Callable[[], None],
        failed: Callable[[Exception], None],
    ) -> None:
        self._backend = backend
        self._api = api
        self._name = name
        self._ready_timeout = ready_timeout
        self._found = found
        self._ready = ready
        self._failed = failed
        self.error: ApiError | None = None
        """Why it is not known yet."""
        self._uid: str | None = None
        """Once it was found."""
        self._is_done = False
        self._suspected_at: float | None = None
        """When it was looked for last because an executor went (monotonic)."""

    def look(self) -> None:
        """GET the pod; the rest follows."""
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
                self.look()
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
        if self._is_done and (last is None or now - last >= LOOK_EVERY.total_seconds()):
            self._suspected_at = now
            self.look()

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
            self._found(owner_reference(pod.name, pod.uid))
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
        self._failed(error)

    def _look_again(self) -> None:
        self._backend.timers.start("driver-pod.look", LOOK_EVERY, _LookDue())

    def _end(self) -> None:
        self._finish()
        self._ready()

    def _finish(self) -> None:
        self._is_done = True
        for key in ("driver-pod.look", "driver-pod.enough"):
            self._backend.timers.cancel(key)


def _is_ready(pod: Pod) -> bool:
    conditions = (pod.status.conditions if pod.status else None) or ()
    return any((condition.type, condition.status) == ("Ready", "True") for condition in conditions)
