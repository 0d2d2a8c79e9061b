"""`serve_page`: serves the page of a driver. `Fleet(page=...)` and `executor-pods run --page-port` use it, too."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, final

from actors.errors import MissingExtra, SettingsError
from actors.page.feed import Feed
from actors.page.hosts import AllowedHosts
from actors.page.server import READ_WITHIN_SECONDS, serve
from actors.page.site import TICK_SECONDS, Site
from actors.runtime import SystemClock

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from actors.messages import Question
    from actors.metrics.counts import Metrics
    from actors.runtime import Address, Clock

__all__ = ["LOOPBACK", "Page", "check_page", "serve_page"]

LOOPBACK: Final = "127.0.0.1"

SHORTEST_TOKEN: Final = 16
"""Characters: 96 bits in base64. Nobody counts wrong ones, so a token must not be guessed."""

_LARGEST_PORT: Final = 65535


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


def check_page(page: int | str, token: str | None) -> tuple[str, int]:
    """Return address and port of `8080`, `"0.0.0.0:8080"` or `"[::]:8080"`. A port alone is on the loopback.

    Raises:
        SettingsError: it is none of these, or the token is too short.
    """
    if token is not None and not (isinstance(token, str) and len(token) >= SHORTEST_TOKEN and token.isprintable()):
        raise SettingsError(f"the page's token must have at least {SHORTEST_TOKEN} printable characters")
    problem = f"page = {page!r}: must be a port, such as 8080, or an address and a port, such as '0.0.0.0:8080'"
    if isinstance(page, bool) or not isinstance(page, int | str):
        raise SettingsError(problem)
    address, _, port = (LOOPBACK, "", str(page)) if isinstance(page, int) else page.rpartition(":")
    if not (port.isascii() and port.isdecimal() and len(port) <= len(str(_LARGEST_PORT))) or int(port) > _LARGEST_PORT:
        raise SettingsError(problem)
    if address.startswith("[") and address.endswith("]"):
        address = address[1:-1]
    elif ":" in address:
        raise SettingsError(problem)
    return address or LOOPBACK, int(port)


@contextmanager
def serve_page(
    page: int | str,
    app_id: str,
    *,
    token: str | None = None,
    hosts: Collection[str] = (),
    metrics: Metrics | None = None,
    acted: Callable[[Question[Any]], None] | None = None,
    clock: Clock | None = None,
    tick: float = TICK_SECONDS,
    read_within: float = READ_WITHIN_SECONDS,
) -> Iterator[Page]:
    """Serve a page until the context ends.

    The driver starts its Backend with `metrics=page.metrics`, sets `page.backend`, and calls `page.feed` with each
    message that it receives.

    Args:
        page: a port of the loopback, or an address and a port; port 0 chooses one.
        app_id: of the fleet.
        token: whoever shows it may scale, retire, kill, hold and resume; None: nobody.
        hosts: names under which it is reached, besides those that no stranger can own.
        metrics: those of the Backend, if it has some; else the page makes them.
        acted: called after each action, in the page's thread.
        clock: the time.
        tick: seconds between two looks for news.
        read_within: seconds in which a viewer must read what he is told.

    Raises:
        SettingsError: the address is not one of this machine, the port is in use, or the token is too short.
        MissingExtra: aiohttp is not installed.
    """
    address, port = check_page(page, token)
    clock = clock or SystemClock()
    feed = Feed(clock)
    metrics, render = _metrics(metrics)

    def make() -> Site:
        loop = asyncio.get_running_loop()
        site = Site(
            feed,
            clock=clock,
            hosts=AllowedHosts(address, hosts),
            app_id=app_id,
            token=token,
            render_metrics=render,
            acted=acted,
            tick=tick,
        )

        def call() -> None:
            with suppress(RuntimeError):  # the server has ended
                loop.call_soon_threadsafe(site.drain)

        feed.call = call
        return site

    with serve(address, port, make, clock, read_within=read_within) as served:
        host = f"[{address}]" if ":" in address else address
        yield Page(feed, f"http://{host}:{served}/", metrics)


def _metrics(given: Metrics | None) -> tuple[Metrics | None, Callable[[], bytes] | None]:
    """Return the metrics for the Backend, and what renders them."""
    try:
        from actors.metrics.exposition import exposition  # noqa: PLC0415 - of an extra
    except MissingExtra:
        return given, None
    return exposition(given)
