"""The driver's own pod, if the driver runs in one: read at the start, and polled until it is ready.

The pod owns every executor, so that none outlives it; or what controls the pod owns them too, so that they outlive the
pod and not its controller. Executors connect to the driver through a Service, which routes only to ready pods. A driver
that outlives its pod (deleted by force) would create executors that are garbage collected at once, sixty a second: so
the pod is read again whenever an executor is deleted by others. If the executors outlive the pod, such a driver would
keep the Lease from its successor: so the pod is read as often as the fleet is polled. A small state machine of the
Backend, driven by messages.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, ClassVar, Final, TypeAlias, assert_never, get_args

from actors import kube
from actors.backend.rbac import Right, lacking
from actors.errors import ApiError, BadRequest, Forbidden, NotFound, SettingsError, Unauthorized
from actors.kube.retries import Patience, retry_delay
from actors.manifests.executor_pod import controller_reference, owner_reference
from actors.messages.internal import ExecutorSeen, RemoveExecutor
from actors.pods.loss import LossKind
from actors.pods.pod import Pod
from actors.pods.state import PodTerminating
from actors.runtime import Backoff, elapsed
from actors.text import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable

    from actors.executors.fleet_context import FleetContext
    from actors.kube.api import Manifest, PodApi
    from actors.runtime import Moment

__all__ = ["DriverPod", "DriverPodMessage"]

logger = get_logger(__name__)

READ_EVERY: Final = timedelta(seconds=1)

_PACE: Final = Backoff(initial=READ_EVERY, maximum=READ_EVERY, jitter=0)
"""The delay after an error, unless the server asks for a longer one."""


@dataclass(frozen=True, slots=True)
class _Read:
    """The answer to a GET."""

    answer: Pod | ApiError


@dataclass(frozen=True, slots=True)
class _ReadDue:
    """Time to read the pod again."""


@dataclass(frozen=True, slots=True)
class _ReadyTimedOut:
    """`backend.driver_ready_timeout` is over."""


DriverPodMessage: TypeAlias = _Read | _ReadDue | _ReadyTimedOut


class DriverPod:
    """What is known of the driver's pod. Without `driver_pod_name` there is no pod, which counts as found and ready."""

    handles: ClassVar[tuple[type, ...]] = get_args(DriverPodMessage)

    def __init__(self, context: FleetContext, api: PodApi) -> None:
        settings = context.settings
        self._backend = context.backend
        self._api = api
        self._name = settings.driver_pod_name or ""
        self._ready_timeout = settings.backend.driver_ready_timeout
        self._is_outlived = settings.executor.owned_by == "controller"
        """The executors may outlive the pod."""
        self._look_every = settings.executor.api_polling_interval
        self._max_retry_after = settings.api.max_retry_after
        self.is_found = self.is_ready = not self._name
        self.owners: tuple[Manifest, ...] = ()
        """Those of the executors, once the pod is found: the pod, then its controller if that is to own them."""
        self.failure: Exception | None = None
        """Why the backend must fail, None while it need not."""
        self.error: ApiError | None = None
        """Why the last GET failed, until the pod is found."""
        self._uid: str | None = None
        """Set once the pod is found."""
        self._is_done = False
        self._patience = Patience()
        self._suspected_at: Moment | None = None
        """When the pod was last read because an executor was deleted."""

    def begin(self) -> None:
        """GET the pod, if the driver runs in one."""
        if self._name:
            self._read()

    def _read(self) -> None:
        myself = self._backend.myself
        self._api.send(kube.Get(self._name), lambda answer: myself.tell(_Read(answer)))

    def handle(self, message: DriverPodMessage) -> None:
        """Update what is known; the caller then reads the attributes."""
        match message:
            case _Read(answer) if self._is_done:
                self._check_existence(answer)
            case _ReadDue():
                self._read()
            case _ if self._is_done:
                pass
            case _Read(Pod() as pod):
                self._observe(pod)
            case _Read(answer):
                assert isinstance(answer, ApiError)
                self._failed_to_read(answer)
            case _ReadyTimedOut():
                seconds = self._ready_timeout.total_seconds()
                logger.warning(
                    "driver's pod not ready, creating executors all the same: pod=%s waited=%gs",
                    self._name,
                    seconds,
                )
                self._end()
            case _:
                assert_never(message)

    def listeners(self) -> dict[type, Callable[..., object]]:
        """Map each message that may tell of an executor that is garbage collected: then the pod is gone."""
        return {ExecutorSeen: self._executor_seen, RemoveExecutor: self._executor_removed}

    def _executor_seen(self, message: ExecutorSeen) -> None:
        if isinstance(message.state, PodTerminating):
            self._read_again_soon()

    def _executor_removed(self, message: RemoveExecutor) -> None:
        if message.reason.kind in {LossKind.DELETED, LossKind.NEVER_STARTED}:
            self._read_again_soon()

    def _read_again_soon(self) -> None:
        now, last = self._backend.clock.monotonic(), self._suspected_at
        if self._is_done and (last is None or elapsed(last, now) >= READ_EVERY):
            self._suspected_at = now
            self._read()

    def _check_existence(self, answer: Pod | ApiError) -> None:
        """Fail if the pod is gone; its readiness counts no more."""
        is_another = isinstance(answer, Pod) and answer.uid != self._uid
        if self._uid is not None and (is_another or self._is_absent(answer)):
            self._is_gone()

    def _is_absent(self, answer: Pod | ApiError) -> bool:
        """Whether the API server says so: a proxy before a server that starts answers 404 for every path."""
        return isinstance(answer, NotFound) and f'pods "{self._name}" not found' in answer.message

    def _observe(self, pod: Pod) -> None:
        self.error = None
        if self._uid is not None and pod.uid != self._uid:
            self._is_gone()
            return
        if self._uid is None:
            owners = owner_reference(pod.name, pod.uid), controller_reference(pod) if self._is_outlived else None
            self.owners = tuple(owner for owner in owners if owner is not None)
            if self._is_outlived and len(self.owners) == 1:
                self._fail(SettingsError(f'executor.owned_by = "controller": {_uncontrolled(pod)}'))
                return
            self._uid, self.is_found = pod.uid, True
            self._backend.timers.start("driver-pod.ready", self._ready_timeout, _ReadyTimedOut())
        if _is_ready(pod):
            self._end()
        else:
            self._retry()

    def _failed_to_read(self, error: ApiError) -> None:
        """Retry, unless no retry helps. Once the pod is found, only its end is such an error."""
        self.error = error if self._uid is None else None
        if not isinstance(error, Unauthorized | BadRequest | Forbidden | NotFound):
            self._patience.renew()
        match error:
            case NotFound() if self._is_absent(error):
                self._is_gone()
            case Unauthorized() | BadRequest() | Forbidden() | NotFound() if self._uid is None and self._has_lasted():
                is_right = isinstance(error, Forbidden)
                self._fail(lacking((Right("get"),), self._api.namespace, said=error) if is_right else error)
            case _:
                logger.debug("reading the driver's pod failed, retrying: pod=%s error=%s", self._name, error)
                self._retry(error)

    def _has_lasted(self) -> bool:
        return self._patience.ends(self._backend.clock.monotonic())

    def _is_gone(self) -> None:
        """Fail: executors of an owner that is gone are garbage collected as fast as they are created.

        If they outlive the pod, they belong to the driver of the next pod.
        """
        where = f"in namespace {self._api.namespace!r}"
        lacks = "there is no such pod" if self._uid is None else "there is no such pod any more"
        left = self._is_outlived and self._uid is not None
        then = "; the executors are left to the driver of the next pod" if left else " to own the executors"
        self._fail(SettingsError(f"driver_pod_name = {self._name!r}: {lacks} {where}{then}"))

    def _fail(self, error: Exception) -> None:
        self._finish()
        self.failure = error

    def _retry(self, error: ApiError | None = None) -> None:
        delay = retry_delay(_PACE, 0, error, self._backend.entropy, self._max_retry_after)
        self._backend.timers.start("driver-pod.read", delay, _ReadDue())

    def _end(self) -> None:
        self._finish()
        self.is_ready = True
        if self._is_outlived:
            self._backend.timers.every("driver-pod.look", self._look_every, _ReadDue())

    def _finish(self) -> None:
        self._is_done = True
        for key in ("driver-pod.read", "driver-pod.ready", "driver-pod.look"):
            self._backend.timers.cancel(key)


def _uncontrolled(pod: Pod) -> str:
    return (
        f"nothing controls the driver's pod {pod.name!r}; run it by a Deployment, a StatefulSet or a Job, "
        'or set "driver"'
    )


def _is_ready(pod: Pod) -> bool:
    conditions = (pod.status.conditions if pod.status else None) or ()
    return any((condition.type, condition.status) == ("Ready", "True") for condition in conditions)
