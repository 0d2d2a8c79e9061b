"""The actor: writes one request at a time and few a minute.

What it cannot write yet it counts. An error of the API makes it pause, a missing right makes it stop writing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

from actors import kube
from actors.errors import AlreadyExists, ApiError, BadRequest, Forbidden, Invalid, NotFound, QuotaExceeded
from actors.kube.api import EVENTS, LEASES
from actors.kube.retries import Patience
from actors.messages import AllocationBlocked, AllocationUnblocked
from actors.recorder.book import EventBook, Series
from actors.recorder.event import event_name, first_event, next_event
from actors.recorder.occurrences import occurrence
from actors.runtime import Actor, Context
from actors.text import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable

    from actors.kube.api import Manifest, PodApi
    from actors.messages.internal import ToEventRecorder
    from actors.runtime import Address, Moment

__all__ = ["EventRecorder"]

logger = get_logger(__name__)

PAUSE: Final = timedelta(seconds=30)
"""From an error to the next request. An Event that comes late is of use, an API server without load to spare is not."""


@dataclass(frozen=True, slots=True)
class _LeaseRead:
    """The answer to a GET of the lease, whose UID is needed."""

    answer: Manifest | ApiError


@dataclass(frozen=True, slots=True)
class _Written:
    """The answer to a POST or PATCH of an Event with this count."""

    series: Series
    count: int
    answer: Manifest | ApiError


class _WriteDue:
    """Time to write the next Event."""


class EventRecorder(Actor):
    """Writes Events about one object.

    Args:
        app_id: of the fleet.
        about: the driver's pod, with its `uid`; or the Lease by its name, whose UID is then read.
        instance: names this driver in its Events.
        pace: spends one request, or returns the time until one may be sent.
    """

    def __init__(
        self,
        context: Context,
        *,
        app_id: str,
        api: PodApi,
        about: Mapping[str, Any],
        instance: str,
        pace: Callable[[Moment], timedelta],
    ) -> None:
        super().__init__(context)
        self._app_id = app_id
        self._api = api
        self._about = about
        self._instance = instance
        self._pace = pace
        self._book = EventBook()
        self._blocked: set[str] = set()
        """Profiles whose creation is blocked, as far as it was recorded: only those can be resumed."""
        self._is_waiting = False
        """A request is under way."""
        self._is_off = False
        self._patience = Patience()
        """With a missing right."""

    def receive(self, message: object) -> None:
        """Handle one message."""
        match message:
            case _LeaseRead(answer):
                self._lease_read(answer)
            case _Written():
                self._written(message)
            case _WriteDue():
                self._write()
            case _:
                self._note(cast("ToEventRecorder", message))

    def _note(self, message: ToEventRecorder) -> None:
        if self._is_off or not self._is_news(message):
            return
        found = occurrence(message, self._instance)
        if found is not None:
            self._book.note(found, self.clock.now())
            self._write()

    def _is_news(self, message: ToEventRecorder) -> bool:
        """Whether no other Event says it: `LeaseLost` says why creation is blocked by the lease."""
        match message:
            case AllocationBlocked(blocked_by="lease"):
                return False
            case AllocationBlocked(profile):
                self._blocked.add(profile)
            case AllocationUnblocked(profile):
                if profile not in self._blocked:
                    return False
                self._blocked.remove(profile)
            case _:
                pass
        return True

    # ── writing ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _write(self) -> None:
        """Write the next Event, if there is one and it is time."""
        if self._is_off or self._is_waiting or self.timers.active("write"):
            return
        series = self._book.next()
        if series is None:
            return
        if wait := self._pace(self.clock.monotonic()):
            self.timers.start("write", wait, _WriteDue())
            return
        self._is_waiting = True
        if "uid" not in self._about:
            myself = self.myself
            self._api.send(kube.GetObject(LEASES, self._about["name"]), lambda answer: myself.tell(_LeaseRead(answer)))
        else:
            self._send(series)

    def _send(self, series: Series) -> None:
        written = partial(_tell_written, self.myself, series, series.count)
        if series.exists:
            assert series.name is not None
            self._api.send(kube.PatchObject(EVENTS, series.name, next_event(series)), written)
            return
        if series.name is None:
            series.name = event_name(self._about["name"], self.entropy.token(16))
        event = first_event(
            series,
            self._about,
            name=series.name,
            namespace=self._api.namespace,
            app_id=self._app_id,
            instance=self._instance,
        )
        self._api.send(kube.CreateObject(EVENTS, event), written)

    def _lease_read(self, answer: Manifest | ApiError) -> None:
        self._is_waiting = False
        if isinstance(answer, ApiError):
            self._failed(answer)
            return
        self._patience.renew()
        metadata = answer.get("metadata")
        uid = metadata.get("uid") if isinstance(metadata, Mapping) else None
        if not isinstance(uid, str) or not uid:
            self._failed(ApiError("the server's answer is not a Lease with a UID", status=200))
            return
        self._about = {**self._about, "uid": uid}
        self._write()

    def _written(self, message: _Written) -> None:
        self._is_waiting = False
        series, answer = message.series, message.answer
        match answer:
            case AlreadyExists() if not series.exists:  # an earlier POST succeeded, its answer was lost
                series.exists = True
            case NotFound() if series.exists:  # somebody deleted it, or it has expired
                series.exists, series.name = False, None
            case Invalid() | BadRequest():
                logger.debug("event refused, forgotten: reason=%s error=%s", series.latest.reason, answer)
                self._book.forget(series)
            case ApiError():
                self._failed(answer)
                return
            case _:
                series.exists, series.written = True, message.count
                self._patience.renew()
        self._write()

    def _failed(self, error: ApiError) -> None:
        """Write nothing more if we have no right after a pause either, else pause."""
        is_right_missing = isinstance(error, Forbidden) and not isinstance(error, QuotaExceeded)
        if is_right_missing and self._patience.ends(self.clock.monotonic()):
            logger.info("Kubernetes Events are not written, a right is missing: error=%s", error)
            self._is_off = True
            self._book.clear()
            return
        logger.debug("writing an event failed, pausing: error=%s", error)
        self.timers.start("write", PAUSE, _WriteDue())


def _tell_written(recorder: Address, series: Series, count: int, answer: Manifest | ApiError) -> None:
    recorder.tell(_Written(series, count, answer))
