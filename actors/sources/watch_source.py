"""WatchSource: lists all executor pods, then watches every change from the LIST's version.

A connection runs in the API client's thread and sends one message per read to this actor, which drops the messages of a
closed connection. A *stream* is everything that follows one LIST, over any number of connections. Streams are numbered
across restarts of this actor.

The LIST is read page by page or, with `source.streaming_list`, from the start of the watch, which needs less memory of
the server. If the server does not support that, the source uses pages until its next restart.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Final, assert_never

from actors import kube
from actors.errors import ApiError, Gone, Refused, Unavailable
from actors.kube.api import Call, PodApi, WatchEnded, WatchEvents
from actors.kube.retries import REFLECTOR, lacks_server, retry_delay
from actors.messages import internal
from actors.runtime import Actor, Address, Context, Moment, elapsed
from actors.sources.freshness import FreshnessReporter
from actors.sources.listing import PageArrived, PagedList, StreamedList, cannot_stream
from actors.text import get_logger

if TYPE_CHECKING:
    from collections.abc import Iterable

    from actors.pods.pod import PodEvent
    from actors.settings.model import Settings

__all__ = ["WatchSource"]

logger = get_logger(__name__)

LIFETIME: Final = (timedelta(minutes=5), timedelta(minutes=10))
"""The server timeout of a connection, drawn at random, as client-go's reflector does. It also limits how long a
connection runs on an expired credential."""

HEALTHY_LIFETIME: Final = timedelta(seconds=1)
"""A connection that ends cleanly sooner was short-lived: the next one backs off, or there would be 900 a second."""

STABLE_LIFETIME: Final = timedelta(seconds=10)
"""A connection that lasted so long, and longer than the delay before it, resets the backoff. client-go waits for two
minutes: after an API server was flapping, its watch stays closed for up to a minute although the server is back."""

FIRST_LIST: Final = 1 / 15
"""Of `backend.start_timeout`: the longest backoff before the first LIST, by default two seconds, and four with jitter.
So a start that waits for its server continues soon after the server is ready."""

ABANDON_AFTER: Final = timedelta(minutes=5)
"""A stream that could not be resumed for so long is abandoned, so that the store can drop its tombstones. By then
etcd has compacted its version anyway."""


@dataclass(slots=True, eq=False)
class _Connection:
    """One connection of the watch."""

    opened_at: Moment
    streamed_list: StreamedList | None
    """The LIST at the start of the connection, until it is complete."""
    call: Call | None = None


@dataclass(frozen=True, slots=True)
class _Received:
    """A message of a connection."""

    connection: _Connection
    what: WatchEvents | WatchEnded


@dataclass(frozen=True, slots=True)
class _RetryDue:
    """The backoff has elapsed."""


@dataclass(frozen=True, slots=True)
class _SilenceDue:
    """The connection is silent for too long, unless data arrived meanwhile."""

    connection: _Connection


@dataclass(frozen=True, slots=True)
class _AbandonDue:
    """The stream could not be resumed for `ABANDON_AFTER`."""


class WatchSource(Actor):
    """After `StartWatching`, sends `ReplaceSnapshot` and then `UpdatePods` to the store until it is stopped."""

    def __init__(
        self, context: Context, *, settings: Settings, api: PodApi, selector: str, store: Address, backend: Address
    ) -> None:
        super().__init__(context)
        self._api = api
        self._selector = selector
        self._store = store
        self._max_retry_after = settings.api.max_retry_after
        longest = min(REFLECTOR.maximum, max(REFLECTOR.initial, settings.backend.start_timeout * FIRST_LIST))
        self._backoff = replace(REFLECTOR, maximum=longest)
        self._max_pods = settings.api.max_pods
        self._silence = settings.source.inactivity_timeout
        self._list_silence = min(settings.backend.request_timeout, self._silence)
        """The limit while a connection delivers its LIST, because the server then has no reason to be silent."""
        self._streams_list = settings.source.streaming_list
        self._freshness = FreshnessReporter(internal.Source.WATCH, backend, self.clock)
        self._listing = PagedList(
            api, selector, self.clock, self.myself, bounds=settings.api, freshness=self._freshness
        )
        self._started = False
        self.at_end(self._close)
        self._stream = context.incarnation << 32
        self._connection: _Connection | None = None
        self._version: str | None = None
        """The version to resume from; None if a LIST is needed."""
        self._has_stream = context.incarnation > 1
        """Whether the store has a stream of this source or of a crashed incarnation that was not abandoned."""
        self._failures = 0
        self._last_delay = timedelta()
        """The delay before the last try."""
        self._error: ApiError | None = None

    def receive(
        self, message: internal.ToWatchSource | PageArrived | _Received | _RetryDue | _SilenceDue | _AbandonDue
    ) -> object:
        """One case a message."""
        match message:
            case internal.StartWatching():
                self._start()
            case internal.Relist():
                self._relist()
            case internal.RetryNow():
                self._retry_now()
            case PageArrived():
                self._listed(message)
            case _Received(connection, what):
                if connection is self._connection:
                    self._received(connection, what)
            case _RetryDue():
                self._resume()
            case _SilenceDue(connection):
                self._check_silence(connection)
            case _AbandonDue():
                self._abandon_stream()
            case _:
                assert_never(message)
        return None

    def _close(self) -> None:
        """Close the connection when the actor ends, for whatever reason."""
        self._listing.cancel()
        self._disconnect()
        self._freshness.stopped()

    def _start(self) -> None:
        if self._started:
            raise Refused("Cannot start the watcher twice.")
        self._started = True
        logger.info("watch started: labels=%s", self._selector)
        self._freshness.started(self.context.incarnation)
        self._resume()

    def _resume(self) -> None:
        if self._version is not None:
            self._connect(self._version)
        elif self._streams_list:
            self._connect("", StreamedList(self.clock.monotonic(), self._max_pods))
        else:
            self._listing.start()

    def _relist(self) -> None:
        """LIST again for the store. Back off first, so that a lagging replica is not listed in a tight loop."""
        if self._started:
            logger.info("listing again for the snapshot store: stream=%d", self._stream)
            self._listing.cancel()
            self._disconnect()
            self._version = None
            self._back_off(None)

    def _listed(self, message: PageArrived) -> None:
        match self._listing.arrived(message):
            case None:
                pass
            case ApiError() as error:
                self._back_off(error)
            case internal.ReplaceSnapshot() as listed:
                self._synced(listed)
                self._connect(listed.resource_version)

    def _synced(self, listed: internal.ReplaceSnapshot) -> None:
        """Start a new stream from a complete LIST."""
        self._stream += 1
        self._has_stream = True
        self._version = listed.resource_version
        self._backoff = REFLECTOR
        logger.debug("listed: pods=%d version=%s stream=%d", len(listed.pods), self._version, self._stream)
        self._store.tell(replace(listed, stream=self._stream))
        self._recovered()
        self._freshness.synced(listed.requested_at)

    def _connect(self, version: str, streamed_list: StreamedList | None = None) -> None:
        self._disconnect()
        connection = self._connection = _Connection(self.clock.monotonic(), streamed_list)
        myself = self.myself
        lifetime = timedelta(seconds=self.entropy.uniform(*(bound.total_seconds() for bound in LIFETIME)))
        connection.call = self._api.watch(
            kube.Watch(self._selector, version, lifetime, send_initial_events=streamed_list is not None),
            lambda what: myself.tell(_Received(connection, what)),
        )
        self.timers.start("silence", self._longest_silence(connection), _SilenceDue(connection))
        logger.debug("watching: version=%s stream=%d", version, self._stream)

    def _disconnect(self) -> timedelta:
        """Close the connection, if there is one, and return how long it was open. Its later messages are dropped."""
        connection, self._connection = self._connection, None
        self.timers.cancel("silence")
        if connection is None or connection.call is None:
            return timedelta()
        connection.call.cancel()
        lived = elapsed(connection.opened_at, self.clock.monotonic())
        if lived >= max(STABLE_LIFETIME, self._last_delay):
            self._failures = 0
        return lived

    def _received(self, connection: _Connection, what: WatchEvents | WatchEnded) -> None:
        match what:
            case WatchEvents() if connection.streamed_list is not None:
                match connection.streamed_list.arrived(what):
                    case None:
                        self._freshness.received(works=False)
                    case ApiError() as error:
                        self._ended(error)
                    case listed:  # only changes follow
                        connection.streamed_list = None
                        self._synced(listed)
            case WatchEvents(events, version, unchanged=unchanged):
                if logger.isEnabledFor(logging.DEBUG):
                    _log(events)
                self._version = version or self._version
                if self._version is not None:
                    self._store.tell(internal.UpdatePods(events, self._version, self._stream, unchanged))
                self._recovered()
                self._freshness.received(works=True)
            case WatchEnded() if connection.streamed_list is not None:
                self._list_ended(what)
            case WatchEnded(error):
                self._ended(error)

    def _list_ended(self, ended: WatchEnded) -> None:
        """The connection ended before its LIST was complete."""
        if cannot_stream(ended):
            self._stop_streaming_lists(ended.error)
            self._disconnect()
            self._resume()
        else:
            self._ended(ended.error or Unavailable("the watch ended before its LIST was complete"))

    def _stop_streaming_lists(self, reason: ApiError | None) -> None:
        """Use pages until the next restart. A server is upgraded too rarely to try again sooner."""
        logger.info("streaming list not supported, listing page by page: reason=%s", reason)
        self._streams_list = False

    def _ended(self, error: ApiError | None) -> None:
        lived = self._disconnect()
        match error:
            case None if lived >= HEALTHY_LIFETIME:
                self._recovered()
                self._freshness.recovered()
                self._resume()
            case Gone():
                logger.info("watch version expired, listing again: error=%s", error)
                self._version = None
                self._back_off(None)
            case _:
                self._back_off(error)

    def _back_off(self, error: ApiError | None) -> None:
        """Retry after the backoff, or after the server's Retry-After if that is longer."""
        delay = retry_delay(self._backoff, self._failures, error, self.entropy, self._max_retry_after)
        self._failures += 1
        self._last_delay = delay
        self.timers.start("retry", delay, _RetryDue())
        if error is None:
            return
        if self._has_stream and not self.timers.active("abandon"):
            self.timers.start("abandon", ABANDON_AFTER, _AbandonDue())
        level = logging.DEBUG if type(self._error) is type(error) else logging.WARNING
        logger.log(level, "watch fails, retrying: error=%s delay=%.1fs", error, delay.total_seconds())
        self._error = error
        self._freshness.failed(error)

    def _retry_now(self) -> None:
        """End a backoff that waits for a server, because a server answers again. If this fails, the backoff grows.

        A Retry-After of the server is still honoured.
        """
        error = self._error
        if self.timers.active("retry") and lacks_server(error) and error.retry_after is None:
            logger.debug("watch retries after a successful poll: stream=%d", self._stream)
            self.timers.cancel("retry")
            self._resume()

    def _recovered(self) -> None:
        """The stream works, so do not abandon it."""
        self.timers.cancel("abandon")
        if self._error is not None:
            logger.info("watch works again: stream=%d", self._stream)
            self._error = None

    def _longest_silence(self, connection: _Connection) -> timedelta:
        return self._silence if connection.streamed_list is None else self._list_silence

    def _check_silence(self, connection: _Connection) -> None:
        """Check for silence when the timer is due: restarting it with every event would cost more than the event."""
        since = max(connection.opened_at, self._freshness.heard_at or connection.opened_at)
        silence = self._longest_silence(connection)
        left = silence - elapsed(since, self.clock.monotonic())
        if left > timedelta():
            self.timers.start("silence", left, _SilenceDue(connection))
            return
        error = Unavailable(f"no byte on the watch for {silence.total_seconds():g} s")
        if connection.streamed_list is not None:
            self._stop_streaming_lists(error)  # a server without support may stay silent
        self._ended(error)

    def _abandon_stream(self) -> None:
        """Abandon the stream and LIST again: at once if a connection is open without data, else after the backoff."""
        logger.warning("stream abandoned, it could not be resumed: stream=%d", self._stream)
        self._store.tell(internal.StreamAbandoned(self._stream))
        self._has_stream, self._version = False, None
        if self._connection is not None and self._connection.streamed_list is None:
            self._disconnect()
            self._resume()


def _log(events: Iterable[PodEvent]) -> None:
    """Log events that have news; the others are not delivered."""
    for event in events:
        pod = event.pod
        phase = pod.status.phase if pod.status is not None else None
        logger.debug("event: type=%s pod=%s phase=%s version=%s", event.type, pod.name, phase, pod.resource_version)
