"""One LIST of all executor pods, page by page: what WatchSource and PollSource have in common.

A page is one call with its own limit; an expired continue token starts the list over, because pages of two versions are
not one list. The object belongs to one actor: pages come back to it as messages, so that a late page of a list that was
given up is dropped by its number.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from actors.errors import ApiError, Gone
from actors.kube.api import Call, PodApi, PodPage

if TYPE_CHECKING:
    from actors.pods import Pod
    from actors.runtime import Address, Clock

__all__ = ["Listed", "PageArrived", "PagedList"]

PAGE_SIZE: Final = 500
"""client-go's default page size: large enough to be few calls, small enough to decode without a pause."""

MAX_RESTARTS: Final = 3
"""A server whose tokens expire faster than we read pages is reported as such instead of asked for ever."""


@dataclass(frozen=True, slots=True)
class PageArrived:
    """A page of list number `number`, or why there is none."""

    number: int
    page: PodPage | ApiError


@dataclass(frozen=True, slots=True)
class Listed:
    """A whole list."""

    pods: tuple[Pod, ...]
    resource_version: str
    requested_at: float
    malformed: int


class PagedList:
    """Asks for pages until the last; `start` again abandons what was under way."""

    def __init__(self, api: PodApi, selector: str, clock: Clock, myself: Address) -> None:
        self._api = api
        self._selector = selector
        self._clock = clock
        self._myself = myself
        self._number = 0
        self._call: Call | None = None

    def start(self) -> None:
        """Ask for the first page; each page comes to the owner as `PageArrived`, to be handed to `arrived`."""
        self.cancel()
        self._restarts = 0
        self._ask_first()

    def cancel(self) -> None:
        """Abandon the list under way, if there is one."""
        self._number += 1
        if self._call is not None:
            self._call.cancel()
            self._call = None

    def arrived(self, message: PageArrived) -> Listed | ApiError | None:
        """The whole list, why there is none, or None while pages are missing (or this one is of an abandoned list)."""
        if message.number != self._number:
            return None
        match message.page:
            case Gone() if self._continuing and self._restarts < MAX_RESTARTS:
                self._restarts += 1
                self._ask_first()
                return None
            case ApiError() as error:
                return error
            case PodPage() as page:
                self._pods.extend(page.pods)
                self._malformed += page.malformed
                if page.continue_token:
                    self._ask(page.continue_token)
                    return None
                return Listed(tuple(self._pods), page.resource_version, self._requested_at, self._malformed)

    def _ask_first(self) -> None:
        self._requested_at = self._clock.monotonic()
        self._pods: list[Pod] = []
        self._malformed = 0
        self._ask("")

    def _ask(self, continue_token: str) -> None:
        self._number += 1
        self._continuing = bool(continue_token)
        number, myself = self._number, self._myself
        self._call = self._api.list(
            self._selector,
            lambda page: myself.tell(PageArrived(number, page)),
            limit=PAGE_SIZE,
            continue_token=continue_token,
        )
