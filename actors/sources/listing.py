"""LISTs of all executor pods: `PagedList` reads one page by page, `StreamedList` from the start of a watch.

Each page is one call with its own limit. An expired continue token restarts the LIST, because pages of two versions are
not one LIST. Pages arrive as numbered messages to the actor that owns the `PagedList`, so that a late page of an
abandoned LIST is dropped.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from actors import kube
from actors.errors import ApiError, BadRequest, Forbidden, Gone, Invalid, TooManyRequests, Unauthorized, Unavailable
from actors.kube.api import Call, PodApi, PodPage, WatchEnded, WatchEvents
from actors.messages.internal import ReplaceSnapshot

if TYPE_CHECKING:
    from actors.pods.pod import Pod
    from actors.runtime import Address, Clock, Moment
    from actors.settings import ApiSettings
    from actors.sources.freshness import FreshnessReporter

__all__ = ["PageArrived", "PagedList", "StreamedList", "cannot_stream"]

PAGE_SIZE: Final = 500
"""client-go's default page size: large enough for few calls, small enough to decode without a pause."""

FROM_CACHE: Final = "0"
"""The version that lets the server answer from its cache, however old."""

MAX_RESTARTS: Final = 3
"""After so many expired tokens the LIST fails: the server's tokens expire faster than we read pages."""


MAX_EMPTY: Final = 100
"""Empty pages in a row. A server may answer some while it looks for pods that the selector matches."""


@dataclass(frozen=True, slots=True)
class PageArrived:
    """The page that answers request `number`, or its error."""

    number: int
    page: PodPage | ApiError


class PagedList:
    """Requests page after page. `start` abandons the LIST under way."""

    def __init__(
        self,
        api: PodApi,
        selector: str,
        clock: Clock,
        myself: Address,
        *,
        bounds: ApiSettings,
        freshness: FreshnessReporter | None = None,
    ) -> None:
        self._api = api
        self._bounds = bounds
        self._selector = selector
        self._clock = clock
        self._myself = myself
        self._freshness = freshness
        self._pods: list[Pod] = []
        self._versions: list[str] = []
        """The listed version of each of them."""
        self._pages = self._empty = 0
        """Pages of the LIST under way, and how many of them, the last ones, were empty."""
        self._token = ""
        """What the request under way continues."""
        self._number = 0
        self._call: Call | None = None

    def start(self, *, consistent: bool = True) -> None:
        """Request the first page. The owner receives each page as `PageArrived` and passes it to `arrived`."""
        self.cancel()
        self._restarts = 0
        self._consistent = consistent
        self._ask_first()

    def cancel(self) -> None:
        """Abandon the LIST under way, if there is one."""
        self._number += 1
        if self._call is not None:
            self._call.cancel()
            self._call = None

    def arrived(self, message: PageArrived) -> ReplaceSnapshot | ApiError | None:
        """Return the whole LIST or its error; None if pages are missing or the page is of an abandoned LIST."""
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
                self._versions.extend(page.listed_versions)
                if (endless := self._endless(page)) is not None:
                    self._clear()
                    return Unavailable(f"the list of pods does not end: {endless}")
                if page.continue_token:
                    self._ask(page.continue_token)
                    if self._freshness is not None:
                        self._freshness.received(works=False)
                    return None
                pods, versions = tuple(self._pods), self._versions
                self._clear()  # do not keep old pods in memory
                return ReplaceSnapshot(
                    pods, page.resource_version, self._requested_at, consistent=self._consistent, versions=versions
                )

    def _clear(self) -> None:
        self._pods, self._versions = [], []

    def _endless(self, page: PodPage) -> str | None:
        """Return why no page may follow this one; None if one may, or if it is the last."""
        self._pages += 1
        self._empty = 0 if page.pods or page.malformed else self._empty + 1
        if len(self._pods) > self._bounds.max_pods:
            return f"it has more than {self._bounds.max_pods} pods (api.max_pods)"
        if not page.continue_token:
            return None
        if page.continue_token == self._token:
            return "a page names itself as the next one"
        if self._empty >= MAX_EMPTY:
            return f"{self._empty} pages in a row were empty"
        if self._pages >= self._bounds.max_pages:
            return f"it has more than {self._bounds.max_pages} pages (api.max_pages)"
        return None

    def _ask_first(self) -> None:
        self._requested_at = self._clock.monotonic()
        self._clear()
        self._pages = self._empty = 0
        self._ask("")

    def _ask(self, continue_token: str) -> None:
        self._number += 1
        self._token = continue_token
        self._continuing = bool(continue_token)
        number, myself = self._number, self._myself
        version = None if continue_token or self._consistent else FROM_CACHE
        self._call = self._api.send(
            kube.List(self._selector, PAGE_SIZE, continue_token, version),
            lambda page: myself.tell(PageArrived(number, page)),
        )


class StreamedList:
    """Collects a LIST from the initial events of a watch.

    Changes may arrive among the initial events, because the server reads on while it sends. They are applied.
    """

    def __init__(self, requested_at: Moment, max_pods: int) -> None:
        self._requested_at = requested_at
        self._max_pods = max_pods
        self._pods: dict[str, Pod] = {}

    def arrived(self, read: WatchEvents) -> ReplaceSnapshot | ApiError | None:
        """Return the whole LIST, or why it is too large; None until the initial events end."""
        for event in read.events:
            if event.type == "DELETED":
                self._pods.pop(event.pod.uid, None)
            else:
                self._pods[event.pod.uid] = event.pod
        if len(self._pods) > self._max_pods:
            return Unavailable(f"the streaming list has more than {self._max_pods} pods (api.max_pods)")
        if not read.initial_events_end:
            return None
        return ReplaceSnapshot(tuple(self._pods.values()), read.resource_version, self._requested_at, consistent=True)


def cannot_stream(ended: WatchEnded) -> bool:
    """Whether the watch ended because the server does not support initial events.

    An older server refuses the request. A server whose etcd cannot report progress accepts the request and ends the
    stream with an ERROR event of code 500. Errors that pass or concern our rights do not count.
    """
    match ended.error:
        case BadRequest() | Invalid():
            return True
        case None | Unauthorized() | Forbidden() | TooManyRequests() | Gone():
            return False
        case _:
            return ended.in_stream
