"""`serve_page`: serves the page of a driver. `Fleet(page=...)` and `executor-pods run --page-port` use it, too."""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from actors.page.feed import Feed, Page
from actors.page.hosts import AllowedHosts, check_page
from actors.page.server import READ_WITHIN_SECONDS, serve
from actors.page.site import TICK_SECONDS, Site, exposed
from actors.runtime import SystemClock

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from actors.metrics.counts import Metrics
    from actors.runtime import Clock

__all__ = ["Page", "serve_page"]


@contextmanager
def serve_page(
    page: int | str,
    app_id: str,
    *,
    token: str | None = None,
    hosts: Collection[str] = (),
    metrics: Metrics | None = None,
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
    metrics, render = exposed(metrics)
    site = partial(
        Site,
        feed,
        clock=clock,
        hosts=AllowedHosts(address, hosts),
        app_id=app_id,
        token=token,
        render_metrics=render,
        tick=tick,
    )
    with serve(address, port, site, clock, read_within=read_within) as served:
        host = f"[{address}]" if ":" in address else address
        yield Page(feed, f"http://{host}:{served}/", metrics)
