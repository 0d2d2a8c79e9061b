"""`PagePlan`: how a driver will serve its page, before aiohttp is loaded."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

from actors.errors import SettingsError, needs_extra

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from contextlib import AbstractContextManager

    from actors.messages import Question
    from actors.metrics.counts import Metrics
    from actors.page.feed import Page
    from actors.runtime import Clock

__all__ = ["LOOPBACK", "PagePlan", "check_page"]

LOOPBACK: Final = "127.0.0.1"

SHORTEST_TOKEN: Final = 16
"""Characters: 96 bits in base64. Nobody counts wrong ones, so a token must not be guessed."""

_LARGEST_PORT: Final = 65535


@dataclass(frozen=True, slots=True)
class PagePlan:
    """How the page is served; see `serve_page`."""

    where: int | str
    token: str | None = None
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
        acted: Callable[[Question[Any]], None] | None = None,
    ) -> AbstractContextManager[Page]:
        """Serve it. This loads aiohttp."""
        from actors.page.page import serve_page  # noqa: PLC0415 - only who has a page needs it

        return serve_page(
            self.where, app_id, token=self.token, hosts=self.hosts, metrics=metrics, acted=acted, clock=clock
        )


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
