"""PollSource: lists all executor pods every `executor.api_polling_interval`, in case the watch misses an event.

It keeps no pods: each LIST goes to the store, and the merge rules decide what changed. If the settings allow it, most
LISTs come from the server's cache; every tenth is consistent, because only a consistent LIST can prove anything.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, assert_never

from actors.errors import ApiError, Refused
from actors.kube.retries import retry_delay
from actors.messages.internal import LookAgain, Polled, ReplaceSnapshot, Source, StartPolling, ToPollSource
from actors.runtime import Actor, Address, Backoff, Context
from actors.sources.freshness import FreshnessReporter
from actors.sources.listing import PageArrived, PagedList
from actors.text import get_logger

if TYPE_CHECKING:
    from actors.kube.api import PodApi
    from actors.settings.model import Settings

__all__ = ["PollSource"]

logger = get_logger(__name__)

JITTER: Final = 0.1
"""Extends each interval except the first by up to a tenth, so that drivers that started together drift apart."""


CONSISTENT_EVERY: Final = 10
"""With `executor.polling_from_cache`, one poll of so many is consistent. Only that one detects a missing executor or a
reset: at the default interval within five minutes."""


@dataclass(frozen=True, slots=True)
class _PollDue:
    """The next poll is due."""


@dataclass(frozen=True, slots=True)
class _LookDue:
    """The poll is due that the store has asked for."""


class PollSource(Actor):
    """After `StartPolling`, sends one LIST per interval to the store as `ReplaceSnapshot`."""

    def __init__(
        self, context: Context, *, settings: Settings, api: PodApi, selector: str, store: Address, backend: Address
    ) -> None:
        super().__init__(context)
        self._interval = settings.executor.api_polling_interval
        self._pace = Backoff(initial=self._interval, maximum=self._interval, jitter=JITTER)
        self._max_retry_after = settings.api.max_retry_after
        self._from_cache = settings.executor.polling_from_cache
        self._store = store
        self._backend = backend
        self._freshness = FreshnessReporter(Source.POLL, backend, self.clock)
        self._listing = PagedList(
            api, selector, self.clock, self.myself, bounds=settings.api, freshness=self._freshness
        )
        self._started = False
        self.at_end(self._listing.cancel)
        self.at_end(self._freshness.stopped)
        self._polls = 0
        """Successful LISTs. A failed one does not count, so that its retry is consistent if it was to be."""
        self._failing = False

    def receive(self, message: ToPollSource | PageArrived | _PollDue | _LookDue) -> object:
        """One case a message."""
        match message:
            case StartPolling():
                self._start()
            case _PollDue():
                self._poll(consistent=not self._from_cache or self._polls % CONSISTENT_EVERY == 0)
            case LookAgain(after):
                if not self.timers.active("look"):
                    self.timers.start("look", after, _LookDue())
            case _LookDue():
                self.timers.cancel("poll")  # it would abandon this one
                self._polls = 0  # so that its retry is consistent, too
                self._poll(consistent=True)
            case PageArrived():
                self._arrived(message)
            case _:
                assert_never(message)
        return None

    def _start(self) -> None:
        if self._started:
            raise Refused("Cannot start polling more than once.")
        self._started = True
        logger.info("polling started: interval=%gs", self._interval.total_seconds())
        self._freshness.started(self.context.incarnation)
        self.timers.start("poll", self._interval, _PollDue())

    def _poll(self, *, consistent: bool) -> None:
        logger.debug("polling: consistent=%s", consistent)
        self._listing.start(consistent=consistent)

    def _arrived(self, message: PageArrived) -> None:
        match self._listing.arrived(message):
            case None:
                return
            case ReplaceSnapshot() as listed:
                self._polled(listed)
                self._poll_again(None)
            case ApiError() as error:
                if not self._failing:
                    logger.warning("polling fails, retrying every interval: error=%s", error)
                self._failing = True
                self._freshness.failed(error)
                self._poll_again(error)

    def _poll_again(self, error: ApiError | None) -> None:
        """Wait for the interval, or for the server's Retry-After if that is longer."""
        delay = retry_delay(self._pace, 0, error, self.entropy, self._max_retry_after)
        self.timers.start("poll", delay, _PollDue())

    def _polled(self, listed: ReplaceSnapshot) -> None:
        self._polls += 1
        if self._failing:
            logger.info("polling works again")
        self._failing = False
        logger.debug(
            "polled: pods=%d version=%s consistent=%s", len(listed.pods), listed.resource_version, listed.consistent
        )
        self._store.tell(listed)
        self._freshness.synced(listed.requested_at if listed.consistent else None)
        self._backend.tell(Polled())
