"""LeaseKeeper: holds the application's lease, so that of two drivers with one `app_id` only one writes.

It acquires the lease, renews it every third of its duration, and says when it is ours and when it is not, or may not be
any more. It stops nobody by itself: Backend does. It is the only writer of the lease, and writes nothing else. Executor
ids that are given out are written into it at once, but nobody waits for that.
"""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Final, assert_never, cast

from actors import kube
from actors.errors import AlreadyExists, ApiError, Conflict, Forbidden, NotFound, Refused
from actors.kube.api import LEASES, Call, Manifest, PodApi
from actors.lease.record import Lease, Take, Wait, decide, first_lease, lease_name, read, released, taken
from actors.messages import IdsAllocated, KeepLease, LeaseHeld, LeaseNotHeld, LeaseReleased, ReleaseLease, ToLeaseKeeper
from actors.pods.pod import APP_ID_LABEL, MANAGED_BY_LABEL
from actors.runtime import Actor, Address, Context, elapsed, later

if TYPE_CHECKING:
    from collections.abc import Callable

    from actors.runtime import Moment
    from actors.settings import Settings

__all__ = ["LeaseKeeper"]

logger = logging.getLogger(__name__)

RETRY: Final = timedelta(seconds=2)
RETRY_JITTER: Final = 0.2
"""Between two looks at a lease that is not ours, and after an error: client-go's retry period and jitter."""

GIVE_UP_AFTER: Final = 2 / 3
"""Of its duration, from when the last renewal was sent: then we say that it may be lost, as client-go does."""

GOOD_FOR: Final = 0.75
"""Of its duration: then we do not write any more, even if nobody says anything. Others wait for the whole."""


@dataclass(frozen=True, slots=True)
class _Read:
    """The answer to a GET."""

    answer: Manifest | ApiError


@dataclass(frozen=True, slots=True)
class _Made:
    """The answer to a POST."""

    answer: Manifest | ApiError


@dataclass(frozen=True, slots=True)
class _Written:
    """The answer to a PATCH that was sent at `sent_at`, with that last id."""

    sent_at: Moment
    last_id: int
    answer: Manifest | ApiError


@dataclass(frozen=True, slots=True)
class _Look:
    """Time to renew the lease, or to see whose it is."""


@dataclass(frozen=True, slots=True)
class _Expired:
    """The lease could not be renewed in time: somebody else may take it from now on."""


@dataclass(frozen=True, slots=True)
class _LetGo:
    """The answer to the release."""

    reply_to: Address
    answer: Manifest | ApiError


class LeaseKeeper(Actor):
    """After `KeepLease`: `LeaseHeld` and `LeaseNotHeld` to Backend, each when it becomes true.

    `identity` is who we are in the lease: the same after a restart of this actor, another in another driver.
    """

    def __init__(self, context: Context, *, settings: Settings, api: PodApi, identity: str, backend: Address) -> None:
        super().__init__(context)
        self._api = api
        self._app_id = settings.app_id
        self._name = lease_name(settings.app_id)
        self._duration = settings.backend.lease_duration
        self._identity = identity
        self._backend = backend
        self._started = False
        self._release_to: Address | None = None
        """Who waits for the release: nothing is acquired or renewed any more."""
        self._held: bool | None = None
        """What Backend was told last; None before that."""
        self._why = ""
        self._last: Lease | None = None
        """The lease as it was read or written last."""
        self._last_id = 0
        """The highest executor id that we know to be given out."""
        self._seen: Lease | None = None
        self._seen_at: Moment = 0.0
        """Since when the record has been as it is."""
        self._has_looked = False
        """There was a first look: what we find changed after that was written by one that lives."""
        self._holder_lives = False
        """Whoever holds the lease has written it since the first look."""
        self._error: ApiError | None = None
        """What went wrong last."""
        self._call: Call | None = None
        """Under way."""
        self.at_end(self._cancel)

    def receive(self, message: object) -> object:
        """One case a message."""
        message = cast("ToLeaseKeeper | _Read | _Made | _Written | _Look | _Expired | _LetGo", message)
        match message:
            case KeepLease():
                self._start()
            case IdsAllocated(last_id):
                self._given_out(last_id)
            case ReleaseLease(reply_to):
                self._finish(reply_to)
            case _Look():
                self._look()
            case _Read(answer):
                self._read(answer)
            case _Made(answer):
                self._made(answer)
            case _Written():
                self._written(message)
            case _Expired():
                self._expired()
            case _LetGo(reply_to, answer):
                self._let_go(reply_to, answer)
            case _:
                assert_never(message)
        return None

    def _cancel(self) -> None:
        if self._call is not None:
            self._call.cancel()

    def _start(self) -> None:
        if self._started:
            raise Refused("Cannot start to keep the lease twice.")
        self._started = True
        self.timers.start("expiry", self._duration * GIVE_UP_AFTER, _Expired())  # nobody waits longer to hear why
        self._look()

    def _send(self, request: kube.Request[Manifest], answered: Callable[[Manifest | ApiError], object]) -> None:
        myself = self.myself
        self._call = self._api.send(request, lambda answer: myself.tell(answered(answer)))

    def _received(self, answer: Manifest | ApiError) -> Lease | None:
        """Return the lease in an answer; None if it is an error, or if the lease is to be released."""
        self._call = None
        if not isinstance(answer, ApiError):
            self._last = read(answer)
        if self._release_to is not None:
            self._release(self._release_to)
        elif isinstance(answer, ApiError):
            self._failed(answer)
        else:
            return self._last
        return None

    # ── looking and taking ───────────────────────────────────────────────────────────────────────────────────────

    def _look(self) -> None:
        self._send(kube.GetObject(LEASES, self._name), _Read)

    def _read(self, answer: Manifest | ApiError) -> None:
        if isinstance(answer, NotFound) and self._release_to is None:
            self._call, self._has_looked = None, True
            self._create()
        elif (lease := self._received(answer)) is not None:
            self._judge(lease)
            self._has_looked = True

    def _judge(self, lease: Lease) -> None:
        now = self.clock.monotonic()
        if self._seen is None or (lease.holder, lease.renewed) != (self._seen.holder, self._seen.renewed):
            self._seen, self._seen_at = lease, now
            self._holder_lives = self._has_looked
        match decide(lease, self._identity, elapsed(self._seen_at, now)):
            case Take():
                self._take(lease)
            case Wait(holder):
                self._not_held(self._words_of(holder, lease.duration), holder=holder)
                self._again(RETRY)

    def _words_of(self, holder: str, duration: timedelta) -> str:
        """Who has it, in words that stay the same until we know better."""
        if self._holder_lives:
            return f"it is held by {holder!r}, another driver with this app_id"
        seconds = math.ceil((duration + RETRY * (1 + RETRY_JITTER)).total_seconds())
        return f"it is held by {holder!r}, which may have ended: if it has, it is ours in at most {seconds} s"

    def _create(self) -> None:
        labels = {APP_ID_LABEL: self._app_id, MANAGED_BY_LABEL: "executor-pods"}
        now = self.clock.now()
        lease = first_lease(self._app_id, self._identity, self._duration, now, labels, last_id=self._last_id)
        self._send(kube.CreateObject(LEASES, lease), _Made)

    def _made(self, answer: Manifest | ApiError) -> None:
        """A lease that we may not renew is none: that is tried before it is believed in."""
        if (lease := self._received(answer)) is not None:
            self._take(lease)

    def _take(self, lease: Lease) -> None:
        self._last_id = last_id = max(self._last_id, lease.last_id)
        patch = taken(lease, self._identity, self._duration, self.clock.now(), last_id=last_id)
        written = partial(_Written, self.clock.monotonic(), last_id)
        self._send(kube.PatchObject(LEASES, self._name, patch), written)

    def _written(self, written: _Written) -> None:
        if self._received(written.answer) is None:
            return
        self._error = None
        age = elapsed(written.sent_at, self.clock.monotonic())
        left = self._duration * GIVE_UP_AFTER - age
        if left > timedelta(0):
            self._hold(later(written.sent_at, self._duration * GOOD_FOR), written.last_id)
            self.timers.start("expiry", left, _Expired())
        self._again(max(self._duration / 3 - age, timedelta(0)))
        if self._last_id > written.last_id:
            self._record()

    def _given_out(self, last_id: int) -> None:
        if last_id > self._last_id:
            self._last_id = last_id
            self._record()

    def _record(self) -> None:
        """A renewal ahead of time takes the last id along. Where none can be sent now, the next one does.

        After an error the lease may be another than we know, and is looked at first.
        """
        if self._held is True and self._call is None and self._error is None and self._release_to is None:
            assert self._last is not None
            self.timers.cancel("look")
            self._take(self._last)

    def _hold(self, until: Moment, last_id: int) -> None:
        if self._held is not True:
            logger.info("the lease is ours: lease=%s identity=%s", self._name, self._identity)
        self._held, self._why = True, ""
        self._backend.tell(LeaseHeld(until, last_id))

    def _expired(self) -> None:
        if self._held is not False:
            cause = "no answer" if self._error is None else str(self._error)
            lost = self._held is not None
            words = "could not be renewed in time, and may be another driver's by now" if lost else "cannot be read"
            self._not_held(f"it {words}: {cause}")

    def _failed(self, error: ApiError) -> None:
        """Somebody was faster, or the API is away: look again."""
        self._error = error
        if isinstance(error, Forbidden):
            self._not_held(f"it may not be read or written: {error}", forbidden=True)
        elif not isinstance(error, Conflict | AlreadyExists):
            logger.debug("the lease cannot be read or written, trying again: lease=%s error=%s", self._name, error)
        self._again(RETRY)

    def _again(self, delay: timedelta) -> None:
        """Never later than a third of the duration."""
        self.timers.start("look", self.entropy.jittered(min(delay, self._duration / 3), RETRY_JITTER), _Look())

    def _not_held(self, why: str, *, holder: str | None = None, forbidden: bool = False) -> None:
        if self._held is not False or why != self._why:
            logger.warning("the lease is not ours, nothing is written: lease=%s why=%s", self._name, why)
            self._held, self._why = False, why
            lives = holder is not None and self._holder_lives
            self._backend.tell(LeaseNotHeld(f"the lease {self._name} is not ours: {why}", holder, lives, forbidden))

    # ── letting go ───────────────────────────────────────────────────────────────────────────────────────────────

    def _finish(self, reply_to: Address) -> None:
        """What is under way is waited for: if it was a renewal, what we know of the lease is old."""
        self._release_to = reply_to
        for key in ("look", "expiry"):
            self.timers.cancel(key)
        if self._call is None:
            self._release(reply_to)

    def _release(self, reply_to: Address) -> None:
        if self._held is not True:
            reply_to.tell(LeaseReleased())
            return
        assert self._last is not None
        patch = released(self._last, self.clock.now(), last_id=self._last_id)
        self._send(kube.PatchObject(LEASES, self._name, patch), partial(_LetGo, reply_to))

    def _let_go(self, reply_to: Address, answer: Manifest | ApiError) -> None:
        if isinstance(answer, ApiError):
            logger.info("the lease could not be released, it runs out: lease=%s error=%s", self._name, answer)
        reply_to.tell(LeaseReleased())
