"""`Page`: what a driver holds of its page, whatever server serves it."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, final

from actors.errors import MissingExtra
from actors.page.site import Site

if TYPE_CHECKING:
    from collections.abc import Callable

    from actors.metrics.counts import Metrics
    from actors.page.feed import Feed
    from actors.runtime import Address

__all__ = ["Page", "exposed", "new_site"]


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
        """Whom the page asks. Set it to what `Backend.start` returned."""
        return self._feed.backend

    @backend.setter
    def backend(self, backend: Address) -> None:
        self._feed.backend = backend

    def feed(self, message: object) -> None:
        """Pass on a message that the driver received, of whatever kind. Takes a microsecond, and never blocks."""
        self._feed.put(message)

    def annotate(self, executor_id: int, /, **columns: object) -> None:
        """Set columns of the table for an executor. None clears one; one of an unknown executor has no effect."""
        self._feed.annotate(executor_id, columns)


def new_site(feed: Feed, **options: Any) -> Site:
    """Return a site for the running loop, and let the feed call it there. Its other arguments are those of `Site`."""
    loop, site = asyncio.get_running_loop(), Site(feed, **options)

    def call() -> None:
        with suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(site.drain)

    feed.call = call
    return site


def exposed(given: Metrics | None) -> tuple[Metrics | None, Callable[[], bytes] | None]:
    """Return the metrics for the Backend, and what renders them."""
    try:
        from actors.metrics.exposition import exposition  # noqa: PLC0415 - of an extra
    except MissingExtra:
        return given, None
    return exposition(given)
