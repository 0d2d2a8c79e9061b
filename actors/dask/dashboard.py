"""`DashboardPage`: the page of a cluster's fleet, as a route of the scheduler's dashboard, in the scheduler's loop."""

from __future__ import annotations

import asyncio
from contextlib import aclosing, contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, final

from distributed.comm import get_address_host
from tornado.iostream import StreamClosedError
from tornado.web import RequestHandler

from actors.page.feed import Feed, Page
from actors.page.hosts import AllowedHosts
from actors.page.plan import PagePlan
from actors.page.site import HEADERS, Asked, Site, Stream, exposed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from distributed import Scheduler

    from actors.metrics.counts import Metrics
    from actors.runtime import Clock

__all__ = ["PATH", "DashboardPage"]

PATH: Final = "/executor-pods/"
"""Where the page is, beside the dashboard's own."""


@final
@dataclass(frozen=True, slots=True)
class DashboardPage(PagePlan):
    """Serves the page on the scheduler's HTTP server, in the running loop. It takes no actions: there is no token."""

    where: int | str = PATH
    scheduler: Scheduler = field(kw_only=True)
    loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop, kw_only=True)

    def check(self) -> None:
        """There is nothing to check: the server is there."""

    @contextmanager
    def serve(self, app_id: str, clock: Clock, metrics: Metrics | None = None) -> Iterator[Page]:
        """Add the page's routes until the context ends. Called in another thread than the loop's."""
        feed = Feed(clock)
        metrics, render = exposed(metrics)

        async def begin() -> tuple[Site, str]:
            server, hosts = self.scheduler.http_server, AllowedHosts("0.0.0.0")  # noqa: S104 - reached from elsewhere
            site = Site(feed, clock=clock, hosts=hosts, app_id=app_id, render_metrics=render)
            self.scheduler.http_application.add_handlers(".*$", [(f"{PATH}(.*)", _Handler, {"site": site})])
            host = get_address_host(self.scheduler.address)
            return site, f"http://{f'[{host}]' if ':' in host else host}:{server.port}{PATH}"

        site, url = asyncio.run_coroutine_threadsafe(begin(), self.loop).result()
        try:
            yield Page(feed, url, metrics)
        finally:
            with suppress(RuntimeError):  # the loop was closed before
                self.loop.call_soon_threadsafe(site.close)


class _Handler(RequestHandler):
    """Answers one request for the page."""

    def initialize(self, site: Site) -> None:
        """Take the site; called by tornado."""
        self._site = site

    def set_default_headers(self) -> None:
        """Let no text act."""
        for name, value in HEADERS.items():
            self.set_header(name, value)

    async def get(self, path: str) -> None:
        """Answer a GET."""
        headers = {name.lower(): value for name, value in self.request.headers.items()}
        query = {name: self.get_query_argument(name) for name in self.request.query_arguments}
        found = await self._site.answer(Asked("GET", f"/{path}", query, headers))
        if isinstance(found, Stream):
            self.set_header("Content-Type", "text/event-stream")
            async with aclosing(found.parts) as parts:
                with suppress(StreamClosedError):
                    async for part in parts:
                        self.write(part)
                        await self.flush()
            return
        self.set_status(found.status)
        self.set_header("Content-Type", found.content_type)
        for name, value in found.headers.items():
            self.set_header(name, value)
        self.write(found.body)

    head = get
