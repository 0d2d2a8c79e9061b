"""The actor: acquires the lease, and renews it every third of its duration.

It is the only writer of the lease and writes nothing else. It also records allocated executor ids in the lease at once;
nothing waits for that.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar, assert_never

from actors import errors, kube
from actors.kube.api import LEASES, Call, Manifest, PodApi
from actors.kube.retries import Patience, requested_wait
from actors.lease.marks import NO_MARKS, Marks, has_pod_ended
from actors.lease.process_mark import has_ended
from actors.lease.record import Lease, Take, Wait, decide, first_lease, lease_name, read, released, taken
from actors.messages import internal
from actors.pods.pod import APP_ID_LABEL, MANAGED_BY_LABEL, Pod
from actors.runtime import Actor, Address, Context, elapsed, later
from actors.text import get_logger, one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from actors.runtime import Moment
    from actors.settings import Settings

__all__ = ["LeaseKeeper"]

T = TypeVar("T")

logger = get_logger(__name__)

RETRY: Final = timedelta(seconds=2)
RETRY_JITTER: Final = 0.2
"""The delay between two reads of a lease that is not ours, and after an error: client-go's retry period and jitter."""

RENEW_DEADLINE: Final = 2 / 3
"""Of the duration, from the last renewal: then we report the lease lost, as client-go does."""

VALID_FOR: Final = 0.75
"""Of the duration: then the Backend must not write, even without a report. Other drivers wait for all of it."""

OVERDUE: Final = 1 / 2
"""Of the duration, without a renewal: then the holder may have ended. It renews every third."""

_LONGEST_HOLDER: Final = 300
"""Characters of a holder's name that are shown: ours are a pod's or a host's name and a token."""


@dataclass(frozen=True, slots=True)
class _Read:
    """The answer to a GET."""

    answer: Manifest | errors.ApiError


@dataclass(frozen=True, slots=True)
class _Created:
    """The answer to a POST."""

    answer: Manifest | errors.ApiError


@dataclass(frozen=True, slots=True)
class _Written:
    """The answer to a PATCH that was sent at `sent_at`, with that last id."""

    sent_at: Moment
    last_id: int
    answer: Manifest | errors.ApiError


@dataclass(frozen=True, slots=True)
class _HolderRead:
    """The answer to the GET of the pod that the holder of `lease` runs in."""

    lease: Lease
    uid: str
    answer: Pod | errors.ApiError


@dataclass(frozen=True, slots=True)
class _GetDue:
    """Time to read or renew the lease."""


@dataclass(frozen=True, slots=True)
class _Expired:
    """The lease was not renewed in time: another driver may acquire it from now on."""


@dataclass(frozen=True, slots=True)
class _Released:
    """The answer to the release."""

    reply_to: Address
    answer: Manifest | errors.ApiError


_Answer: TypeAlias = _Read | _HolderRead | _Created | _Written | _Released


class LeaseKeeper(Actor):
    """Sends the Backend `LeaseHeld` and `LeaseNotHeld`, from `KeepLease` on, when either becomes true.

    `identity` is our name in the lease: this actor's next incarnation has the same, another driver another one. `marks`
    are what shows others that we have ended.
    """

    def __init__(
        self,
        context: Context,
        *,
        settings: Settings,
        api: PodApi,
        identity: str,
        backend: Address,
        marks: Marks = NO_MARKS,
    ) -> None:
        super().__init__(context)
        self._api = api
        self._app_id = settings.app_id
        self._name = lease_name(settings.app_id)
        self._duration = settings.backend.lease_duration
        self._identity = identity
        self._marks = marks
        self._backend = backend
        self._started = False
        self._release_to: Address | None = None
        """Who waits for the release. Once set, nothing is acquired or renewed."""
        self._held: bool | None = None
        """What was last reported to the Backend, None before the first report."""
        self._reported: set[object] = set()
        """The last reason why it is not ours, or the classes of the refusals that were reported since it was."""
        self._last: Lease | None = None
        """The lease as last read or written."""
        self._last_id = 0
        """The highest allocated executor id that we know of."""
        self._targets: Mapping[str, int] = {}
        """The target of each profile, as the Backend sent it last."""
        self._seen: Lease | None = None
        self._seen_at: Moment = 0.0
        """When the record was last found changed."""
        self._has_read = False
        """The lease was read once: if it has changed after that, its holder is alive."""
        self._holder_is_alive = False
        """The holder has written the lease since we first read it."""
        self._ended: str | None = None
        """A holder that was found to have ended."""
        self._error: errors.ApiError | None = None
        """The last error, None after a success."""
        self._patience = Patience()
        """With a missing right, renewed by each write that succeeds."""
        self._max_retry_after = settings.api.max_retry_after
        self._call: Call | None = None
        """The call in flight."""
        self.at_end(self._cancel)

    def receive(self, message: internal.ToLeaseKeeper | _GetDue | _Expired | _Answer) -> object:
        """Handle one message."""
        match message:
            case internal.KeepLease():
                self._start()
            case internal.IdsAllocated(last_id, targets):
                self._targets = targets
                self._ids_allocated(last_id)
            case internal.ReleaseLease(reply_to):
                self._begin_release(reply_to)
            case _GetDue():
                self._get()
            case _Expired():
                self._expired()
            case _:
                self._answered(message)
        return None

    def _answered(self, message: _Answer) -> None:
        match message:
            case _Read(answer):
                self._read(answer)
            case _HolderRead():
                self._holder_read(message)
            case _Created(answer):
                self._created(answer)
            case _Written():
                self._written(message)
            case _Released(reply_to, answer):
                self._released(reply_to, answer)
            case _:
                assert_never(message)

    def _cancel(self) -> None:
        if self._call is not None:
            self._call.cancel()

    def _start(self) -> None:
        if self._started:
            raise errors.Refused("Cannot start to keep the lease twice.")
        self._started = True
        self.timers.start(
            "expiry", self._duration * RENEW_DEADLINE, _Expired()
        )  # report an error after that time at the latest
        self._get()

    def _send(self, request: kube.Request[T], answered: Callable[[T | errors.ApiError], object]) -> None:
        myself = self.myself
        self._call = self._api.send(request, lambda answer: myself.tell(answered(answer)))

    def _received(self, answer: Manifest | errors.ApiError, *, written: bool = False) -> Lease | None:
        """Return the lease in an answer; None if it is an error, or if the lease is to be released."""
        self._call = None
        lease = self._understood(answer, written=written)
        if isinstance(lease, Lease):
            self._last = lease
        if self._release_to is not None:
            self._release(self._release_to)
        elif isinstance(lease, errors.ApiError):
            self._failed(lease, written=written)
        else:
            return lease
        return None

    def _understood(self, answer: Manifest | errors.ApiError, *, written: bool) -> Lease | errors.ApiError:
        """Return the lease in an answer, or the error. One that we wrote must be ours, as admission may change it."""
        if isinstance(answer, errors.ApiError):
            return answer
        try:
            lease = read(answer, self._duration)
        except errors.ApiError as error:
            return error
        if written and lease.holder != self._identity:
            return errors.ApiError(
                f"it was written, but the server says that {_quoted(lease.holder)} holds it", status=200
            )
        return lease

    # ── looking and taking ──────────────────────────────────────────────────────────────────────────────────────

    def _get(self) -> None:
        self._send(kube.GetObject(LEASES, self._name), _Read)

    def _read(self, answer: Manifest | errors.ApiError) -> None:
        if isinstance(answer, errors.NotFound) and self._release_to is None:
            self._call, self._has_read = None, True
            self._create()
        elif (lease := self._received(answer)) is not None:
            self._judge(lease)
            self._has_read = True

    def _judge(self, lease: Lease) -> None:
        now = self.clock.monotonic()
        if self._seen is None or (lease.holder, lease.renewed) != (self._seen.holder, self._seen.renewed):
            self._seen, self._seen_at = lease, now
            self._holder_is_alive = self._has_read
        unchanged_for = elapsed(self._seen_at, now)
        match decide(lease, self._identity, unchanged_for):
            case Take():
                self._take(lease)
            case Wait() if not self._holder_is_alive or unchanged_for >= lease.duration * OVERDUE:
                self._look_for_holder(lease)
            case Wait():
                self._wait(lease)

    def _wait(self, lease: Lease) -> None:
        self._patience.renew()  # it can be read, and nothing is to be written
        self._not_held(self._describe(lease.holder, lease.duration), holder=lease.holder)
        self._again(RETRY)

    def _look_for_holder(self, lease: Lease) -> None:
        """Take the lease if the holder has ended. If it has not, or we cannot see it, wait."""
        process, pod = lease.marks.process, lease.marks.pod
        if self._ended == lease.holder or (process is not None and has_ended(process)):
            self._take_from(lease, "its process")
        elif pod is not None:
            name, uid = pod
            self._send(kube.Get(name), partial(_HolderRead, lease, uid))
        else:
            self._wait(lease)

    def _holder_read(self, read: _HolderRead) -> None:
        self._call = None
        if self._release_to is not None:
            self._release(self._release_to)
        elif isinstance(read.answer, Pod) and has_pod_ended(read.answer, read.uid):
            self._take_from(read.lease, "its pod")
        else:
            self._wait(read.lease)

    def _take_from(self, lease: Lease, ended: str) -> None:
        if self._ended != lease.holder:
            logger.info(
                "the holder of the lease has ended: lease=%s holder=%s ended=%s", self._name, lease.holder, ended
            )
        self._ended = lease.holder
        self._take(lease)

    def _describe(self, holder: str, duration: timedelta) -> str:
        """Say who holds it. The text stays the same until we know more, so that it is reported once."""
        held = f"it is held by {_quoted(holder)}"
        if self._holder_is_alive:
            return f"{held}, another driver with this app_id"
        seconds = math.ceil((duration + RETRY * (1 + RETRY_JITTER)).total_seconds())
        return f"{held}, which may have ended: if it has, it is ours in at most {seconds} s"

    def _create(self) -> None:
        labels = {APP_ID_LABEL: self._app_id, MANAGED_BY_LABEL: "executor-pods"}
        now = self.clock.now()
        lease = first_lease(
            self._app_id,
            self._identity,
            self._duration,
            now,
            labels,
            last_id=self._last_id,
            marks=self._marks,
            targets=self._targets,
        )
        self._send(kube.CreateObject(LEASES, lease), _Created)

    def _created(self, answer: Manifest | errors.ApiError) -> None:
        """Renew the new lease before we rely on it: we may lack the right to renew."""
        if (lease := self._received(answer, written=True)) is not None:
            self._take(lease)

    def _take(self, lease: Lease) -> None:
        self._last_id = last_id = max(self._last_id, lease.last_id)
        patch = taken(
            lease,
            self._identity,
            self._duration,
            self.clock.now(),
            last_id=last_id,
            marks=self._marks,
            targets=self._targets,
        )
        written = partial(_Written, self.clock.monotonic(), last_id)
        self._send(kube.PatchObject(LEASES, self._name, patch), written)

    def _written(self, written: _Written) -> None:
        if self._received(written.answer, written=True) is None:
            return
        self._error = None
        self._patience.renew()
        age = elapsed(written.sent_at, self.clock.monotonic())
        left = self._duration * RENEW_DEADLINE - age
        if left > timedelta(0):
            self._hold(later(written.sent_at, self._duration * VALID_FOR), written.last_id)
            self.timers.start("expiry", left, _Expired())
        self._again(max(self._duration / 3 - age, timedelta(0)))
        if self._last_id > written.last_id:
            self._record()

    def _ids_allocated(self, last_id: int) -> None:
        if last_id > self._last_id:
            self._last_id = last_id
            self._record()

    def _record(self) -> None:
        """Renew early to record the last id. If no renewal can be sent now, the next one records it.

        After an error the lease may have changed, and is read first.
        """
        if self._held is True and self._call is None and self._error is None and self._release_to is None:
            assert self._last is not None
            self.timers.cancel("get")
            self._take(self._last)

    def _hold(self, until: Moment, last_id: int) -> None:
        if self._held is not True:
            logger.info("lease acquired: lease=%s identity=%s", self._name, self._identity)
        self._held, self._reported = True, set()
        self._backend.tell(internal.LeaseHeld(until, last_id))

    def _expired(self) -> None:
        if self._held is not False:
            cause = "no answer" if self._error is None else str(self._error)
            lost = self._held is not None
            problem = "was not renewed in time, another driver may hold it" if lost else "cannot be read or acquired"
            self._not_held(f"it {problem}: {cause}")

    def _failed(self, error: errors.ApiError, *, written: bool) -> None:
        """Read again: another driver was faster, the API does not answer, or it refuses.

        A refusal is reported once a class: its words may differ each time. A missing right is reported once that has
        lasted: until then a lease that we hold is ours.
        """
        self._error = error
        if isinstance(error, errors.Forbidden):
            if self._patience.ends(self.clock.monotonic()):
                self._not_held(f"it may not be read or written: {error}", refusal=type(error), forbidden=True)
        elif not isinstance(error, errors.Conflict | errors.AlreadyExists):
            logger.debug("reading or writing the lease failed, retrying: lease=%s error=%s", self._name, error)
            passes = isinstance(error, errors.Unavailable | errors.TooManyRequests)
            if written and self._held is not True and not (passes and self._held is None):
                holder = "" if self._last is None else self._last.holder
                held = f"is held by {_quoted(holder)}, and " if holder else ""
                self._not_held(f"it {held}cannot be acquired: {error}", refusal=type(error))
        self._again(max(RETRY, requested_wait(error, self._max_retry_after) or RETRY))

    def _again(self, delay: timedelta) -> None:
        """Read or renew after `delay`, at most a third of the duration."""
        self.timers.start("get", self.entropy.jittered(min(delay, self._duration / 3), RETRY_JITTER), _GetDue())

    def _not_held(
        self,
        reason: str,
        *,
        refusal: type[errors.ApiError] | None = None,
        holder: str | None = None,
        forbidden: bool = False,
    ) -> None:
        """Report the reason, unless it was the last to be reported, or a refusal of this class was among the last."""
        kind = refusal or reason
        if self._held is not False or kind not in self._reported:
            logger.warning("lease not held, writing nothing: lease=%s reason=%s", self._name, reason)
            self._held = False
            self._reported = {kind} if refusal is None else {*self._reported, kind}
            is_alive = holder is not None and self._holder_is_alive
            self._backend.tell(
                internal.LeaseNotHeld(f"the lease {self._name} is not ours: {reason}", holder, is_alive, forbidden)
            )

    # ── releasing ───────────────────────────────────────────────────────────────────────────────────────────────

    def _begin_release(self, reply_to: Address) -> None:
        """Release the lease after the call in flight: if that is a renewal, its answer has the lease's new version."""
        self._release_to = reply_to
        for key in ("get", "expiry"):
            self.timers.cancel(key)
        if self._call is None:
            self._release(reply_to)

    def _release(self, reply_to: Address) -> None:
        if self._held is not True:
            reply_to.tell(internal.LeaseReleased())
            return
        assert self._last is not None
        patch = released(self._last, self.clock.now(), last_id=self._last_id)
        self._send(kube.PatchObject(LEASES, self._name, patch), partial(_Released, reply_to))

    def _released(self, reply_to: Address, answer: Manifest | errors.ApiError) -> None:
        if isinstance(answer, errors.ApiError):
            logger.info("lease not released, it expires by itself: lease=%s error=%s", self._name, answer)
        reply_to.tell(internal.LeaseReleased())


def _quoted(holder: str) -> str:
    return f"'{one_line(holder, _LONGEST_HOLDER)}'"
