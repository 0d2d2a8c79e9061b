"""`JoinedList`: pages of a LIST that cross to the driver's process together, because they have hardly any news.

Each page that crosses takes the interpreter from the driver, and a poll of 10,000 unchanged pods has twenty.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final, final

from msgspec import structs

from actors.errors import Cancelled, Gone
from actors.kube.api import List, PodPage

if TYPE_CHECKING:
    from collections.abc import Callable

    from actors.errors import ApiError
    from actors.kube.api import Call, PodApi, Reply
    from actors.runtime import Clock

__all__ = ["JoinedList"]

MOST_PAGES: Final = 20
"""Pages that are joined at most: 10,000 pods, which the driver's process reads in about two milliseconds."""

MOST_NEWS: Final = 50
"""Pods that the driver's process lacks, after which no page is joined: those of the first LIST cross page by page."""

JOIN_WITHIN: Final = 0.25
"""Seconds after which no page is joined. The driver's process waits hardly longer for an answer than for one page."""


@final
class JoinedList:
    """One request for pages: the one that `first` asks for, and those that follow.

    `reply` gets pages as one, with the continue token of the last, or the error of any: without all pages there is no
    LIST. Only if the token of a later page has expired, the pages before are the answer: who continues there begins
    anew. A list without an end is noticed by who continues, too: an empty page is the last one here, and so is one that
    names itself as the next.

    Args:
        lacked: returns how many pods of a page the driver's process lacks.
    """

    def __init__(
        self, api: PodApi, first: List, reply: Reply[PodPage], *, lacked: Callable[[PodPage], int], clock: Clock
    ) -> None:
        self._api = api
        self._first = first
        self._reply = reply
        self._lacked = lacked
        self._clock = clock
        self._began = clock.monotonic()
        self._lock = threading.Lock()
        self._pages: list[PodPage] = []
        self._news = 0
        self._call: tuple[int, Call] | None = None
        """The newest request, and how many pages came before."""
        self._cancelled = False

    def start(self) -> None:
        """Request the first page."""
        self._ask(self._first)

    def cancel(self) -> None:
        """See `Call`."""
        with self._lock:
            self._cancelled = True
            call = self._call
        if call is not None:
            call[1].cancel()

    def _ask(self, request: List) -> None:
        place = len(self._pages)
        call = self._api.send(request, self._arrived)
        with self._lock:
            if self._call is None or self._call[0] < place:  # a later request may have been sent meanwhile
                self._call = place, call
            cancelled = self._cancelled
        if cancelled:
            call.cancel()

    def _arrived(self, answer: PodPage | ApiError) -> None:
        if self._cancelled:
            self._reply(Cancelled("the list was cancelled"))
        elif isinstance(answer, Gone) and self._pages:
            self._reply(self._joined())
        elif not isinstance(answer, PodPage):
            self._reply(answer)
        else:
            self._pages.append(answer)
            if self._may_continue(answer):
                self._ask(structs.replace(self._first, continue_token=answer.continue_token, resource_version=None))
            else:
                self._reply(self._joined())

    def _may_continue(self, page: PodPage) -> bool:
        before = self._pages[-2].continue_token if len(self._pages) > 1 else self._first.continue_token
        if not page.pods or page.continue_token in ("", before):
            return False
        self._news += self._lacked(page)
        seconds = self._clock.monotonic() - self._began
        return len(self._pages) < MOST_PAGES and self._news <= MOST_NEWS and seconds < JOIN_WITHIN

    def _joined(self) -> PodPage:
        if len(self._pages) == 1:
            return self._pages[0]
        last = self._pages[-1]
        return PodPage(
            tuple([pod for page in self._pages for pod in page.pods]),
            last.resource_version,
            last.continue_token,
            sum(page.malformed for page in self._pages),
            [page.version_of(place) for page in self._pages for place in range(len(page.pods))],
            len(self._pages),
        )
