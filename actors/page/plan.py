"""`PagePlan`: how a driver will serve its page, before aiohttp is loaded."""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import TYPE_CHECKING

from actors.errors import needs_extra
from actors.page.hosts import check_page

if TYPE_CHECKING:
    from collections.abc import Iterable
    from contextlib import AbstractContextManager

    from actors.metrics.counts import Metrics
    from actors.page.feed import Page
    from actors.runtime import Clock

__all__ = ["PagePlan"]


@dataclass(frozen=True, slots=True)
class PagePlan:
    """How the page is served; see `serve_page`."""

    where: int | str
    token: str | None = field(default=None, repr=False)
    hosts: tuple[str, ...] = ()

    @classmethod
    def of(cls, page: int | str | PagePlan | None, token: str | None, hosts: Iterable[str]) -> PagePlan | None:
        """Return the plan from the arguments of a fleet, None for no page."""
        if isinstance(page, PagePlan):
            return page
        if page is not None:
            return cls(page, token, tuple(hosts))
        if token is not None or hosts:
            raise TypeError("page_token and page_hosts need page")
        return None

    def check(self) -> None:
        """Check it before anything is started, and load nothing: an event loop may wait.

        Raises:
            SettingsError: a value is wrong.
            MissingExtra: aiohttp is not installed.
        """
        check_page(self.where, self.token)
        with needs_extra("page", "the page"):
            if find_spec("aiohttp") is None:
                raise ModuleNotFoundError(name="aiohttp")

    def serve(
        self,
        app_id: str,
        clock: Clock,
        metrics: Metrics | None = None,
    ) -> AbstractContextManager[Page]:
        """Serve it. This loads aiohttp."""
        from actors.page.page import serve_page  # noqa: PLC0415 - only who has a page needs it

        return serve_page(self.where, app_id, token=self.token, hosts=self.hosts, metrics=metrics, clock=clock)
