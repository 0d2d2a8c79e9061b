"""`Feed`: how a driver's threads pass what they learn to the page's, without a lock. `Page` is the driver's end of it.

Whoever receives the messages to the driver appends them, and the Backend what has changed; the page takes them when
somebody looks, or when many wait.
Appending to a deque and taking from it are single steps for all threads.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias, cast, final, get_args

from actors.messages import FleetChanged, ToDriver
from actors.text import one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from datetime import datetime

    from actors.metrics.counts import Metrics
    from actors.page.documents import Timestamp
    from actors.runtime import Address, Clock

__all__ = ["CALL_AT", "MOST_WAITING", "Feed", "Notes", "Page"]

CALL_AT: Final = 1_000
"""So many messages may wait while nobody looks. The page is called once for them: a quiet fleet costs nothing."""

MOST_WAITING: Final = 100_000
"""Beyond that the oldest are lost: the page's thread has not run for minutes. It then asks for everything."""

LONGEST_NOTE: Final = 200
"""Characters in a column of the driver's own."""

LONGEST_NAME: Final = 60
"""Characters of such a column's name."""


class Notes(NamedTuple):
    """What the driver says of an executor."""

    executor_id: int
    columns: Mapping[str, str | None]


Fed: TypeAlias = ToDriver | FleetChanged | Notes

TAKEN: Final = frozenset(get_args(ToDriver)) | {FleetChanged}


def _nobody() -> None:
    """Call nobody: the page is not served yet."""


@final
class Feed:
    """Written by any thread, read by the page's.

    Args:
        clock: for the time of each message.
    """

    def __init__(self, clock: Clock) -> None:
        self._now = clock.now
        self._waiting: deque[tuple[datetime, Fed]] = deque(maxlen=MOST_WAITING)
        self._is_called = False
        self.call: Callable[[], None] = _nobody
        """Lets the page's thread `take`. Set by the page."""
        self.backend: Address | None = None
        """Whom the page follows; None before there is one."""

    def put(self, message: object) -> None:
        """Pass on a message to the driver, or what has changed. Nothing is kept of others that a driver receives."""
        if type(message) in TAKEN:
            self._append(cast("Fed", message))

    def annotate(self, executor_id: int, columns: Mapping[str, object]) -> None:
        """Pass on columns of the driver's own, as texts: its objects belong to its thread."""
        texts = {
            one_line(name, LONGEST_NAME): None if value is None else one_line(str(value), LONGEST_NOTE)
            for name, value in columns.items()
        }
        self._append(Notes(executor_id, texts))

    def take(self) -> Iterator[tuple[Timestamp, Fed]]:
        """Return what waits, each with its time."""
        self._is_called = False
        for _ in range(len(self._waiting)):
            try:
                at, fed = self._waiting.popleft()
            except IndexError:  # it was full, and the oldest were lost
                return
            yield round(at.timestamp(), 3), fed

    def _append(self, fed: Fed) -> None:
        self._waiting.append((self._now(), fed))
        if len(self._waiting) >= CALL_AT and not self._is_called:
            self._is_called = True
            self.call()


@final
class Page:
    """A page that is served. All methods may be called by any thread."""

    def __init__(self, feed: Feed, url: str, metrics: Metrics | None) -> None:
        self._feed = feed
        self.url: Final = url
        """Where it is."""
        self.metrics: Final = metrics
        """For `Backend.start`, so that the page has `/metrics`; None without the package prometheus_client."""

    @property
    def backend(self) -> Address | None:
        """Whom the page follows. Set it to what `Backend.start` returned."""
        return self._feed.backend

    @backend.setter
    def backend(self, backend: Address) -> None:
        self._feed.backend = backend
        self._feed.call()

    def feed(self, message: object) -> None:
        """Pass on a message that the driver received, of whatever kind. Takes a microsecond, and never blocks."""
        self._feed.put(message)

    def annotate(self, executor_id: int, /, **columns: object) -> None:
        """Set columns of the table for an executor. None clears one; one of an unknown executor has no effect."""
        self._feed.annotate(executor_id, columns)
