"""PollSource: the safety net under the watch. Lists all executor pods every `executor.api_polling_interval`.

It holds no state about pods: each list goes to the store whole, and the merge rules decide what of it is news.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, assert_never, cast

from actors.errors import ApiError, Refused
from actors.listing import Listed, PageArrived, PagedList
from actors.messages import Freshness, ReplaceSnapshot, Source, StartPolling, ToPollSource
from actors.runtime import Actor, Address, Context

if TYPE_CHECKING:
    from actors.kube.api import PodApi
    from actors.settings import Settings

__all__ = ["PollSource"]

logger = logging.getLogger(__name__)

JITTER: Final = 0.1
"""Up to a tenth on top of each interval but the first, so that drivers that started together drift apart."""


@dataclass(frozen=True, slots=True)
class _PollDue:
    """The interval is over."""


class PollSource(Actor):
    """After `StartPolling`: one LIST an interval, told to the store as `ReplaceSnapshot`."""

    def __init__(
        self, context: Context, *, settings: Settings, api: PodApi, selector: str, store: Address, backend: Address
    ) -> None:
        super().__init__(context)
        self._interval = settings.executor.api_polling_interval
        self._store = store
        self._backend = backend
        self._listing = PagedList(api, selector, self.clock, self.myself)
        self._started = False
        self.at_end(self._listing.cancel)
        self._synced_at: float | None = None
        self._failing = False

    def receive(self, message: object) -> object:
        """One case a message."""
        message = cast("ToPollSource | PageArrived | _PollDue", message)
        match message:
            case StartPolling():
                self._start()
            case _PollDue():
                self._listing.start()
            case PageArrived():
                self._arrived(message)
            case _:
                assert_never(message)
        return None

    def _start(self) -> None:
        if self._started:
            raise Refused("Cannot start polling more than once.")
        self._started = True
        logger.info("polling starts: interval=%gs", self._interval.total_seconds())
        self.timers.start("poll", self._interval, _PollDue())

    def _arrived(self, message: PageArrived) -> None:
        match self._listing.arrived(message):
            case None:
                return
            case Listed() as listed:
                self._synced_at = listed.requested_at
                if self._failing:
                    logger.info("polling works again")
                self._failing = False
                logger.debug("polled: pods=%d version=%s", len(listed.pods), listed.resource_version)
                self._store.tell(
                    ReplaceSnapshot(listed.pods, listed.resource_version, listed.requested_at, consistent=True)
                )
                self._backend.tell(Freshness(Source.POLL, self._synced_at, None))
            case ApiError() as error:
                if not self._failing:
                    logger.warning("polling fails, it goes on every interval: error=%s", error)
                self._failing = True
                self._backend.tell(Freshness(Source.POLL, self._synced_at, error))
        self.timers.start("poll", self.entropy.jittered(self._interval, JITTER), _PollDue())
