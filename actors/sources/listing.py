"""One list of all executor pods, page by page or as the beginning of a watch.

`PagedList` is what WatchSource and PollSource have in common. A page is one call with its own limit; an expired
continue token starts the list over, because pages of two versions are not one list. The object belongs to one actor:
pages come back to it as messages, so that a late page of a list that was given up is dropped by its number.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from actors import kube
from actors.errors import ApiError, BadRequest, Forbidden, Gone, Invalid, TooManyRequests, Unauthorized
from actors.kube.api import Call, PodApi, PodPage, WatchEnded, WatchEvents
from actors.messages import ReplaceSnapshot

if TYPE_CHECKING:
    from collections.abc import Mapping

    from actors.pods.pod import Pod
    from actors.runtime import Address, Clock

__all__ = ["FROM_CACHE", "Listed", "PageArrived", "PagedList", "StreamedList", "cannot_stream"]

PAGE_SIZE: Final = 500
"""client-go's default page size: large enough to be few calls, small enough to decode without a pause."""

FROM_CACHE: Final = "0"
"""The version to ask for when an answer from the server's cache will do, however old."""

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
    moved: Mapping[str, str] = field(default_factory=dict)
    """See `PodPage`."""

    def for_store(self, *, consistent: bool, stream: int | None = None) -> ReplaceSnapshot:
        """What the store is told of it."""
        return ReplaceSnapshot(
            self.pods,
            self.resource_version,
            self.requested_at,
            consistent=consistent,
            stream=stream,
            moved=self.moved,
        )


class PagedList:
    """Asks for pages until the last; `start` again abandons what was under way."""

    def __init__(self, api: PodApi, selector: str, clock: Clock, myself: Address) -> None:
        self._api = api
        self._selector = selector
        self._clock = clock
        self._myself = myself
        self._pods: list[Pod] = []
        self._moved: dict[str, str] = {}
        self._number = 0
        self._call: Call | None = None

    def start(self, resource_version: str | None = None) -> None:
        """Ask for the first page; each page comes to the owner as `PageArrived`, to be handed to `arrived`.

        Without a version the list is a consistent one.
        """
        self.cancel()
        self._restarts = 0
        self._resource_version = resource_version
        self._ask_first()

    def cancel(self) -> None:
        """Abandon the list under way, if there is one."""
        self._number += 1
        if self._call is not None:
            self._call.cancel()
            self._call = None

    def is_page(self, message: PageArrived) -> bool:
        """Whether it brings a page of the list under way."""
        return message.number == self._number and isinstance(message.page, PodPage)

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
                self._moved.update(page.moved)
                if page.continue_token:
                    self._ask(page.continue_token)
                    return None
                pods, moved = tuple(self._pods), self._moved
                self._pods, self._moved = [], {}  # what has changed since is not to be kept for us
                return Listed(pods, page.resource_version, self._requested_at, moved)

    def _ask_first(self) -> None:
        self._requested_at = self._clock.monotonic()
        self._pods, self._moved = [], {}
        self._ask("")

    def _ask(self, continue_token: str) -> None:
        self._number += 1
        self._continuing = bool(continue_token)
        number, myself = self._number, self._myself
        version = None if continue_token else self._resource_version
        self._call = self._api.send(
            kube.List(self._selector, PAGE_SIZE, continue_token, version),
            lambda page: myself.tell(PageArrived(number, page)),
        )


class StreamedList:
    """A list that comes as the beginning of a watch: collects it up to its end mark.

    The server reads on while it sends, so that a change may come before the mark: the list is what remains.
    """

    def __init__(self, requested_at: float) -> None:
        self._requested_at = requested_at
        self._pods: dict[str, Pod] = {}

    def arrived(self, read: WatchEvents) -> Listed | None:
        """The whole list, None while its end mark has not come."""
        for event in read.events:
            if event.type == "DELETED":
                self._pods.pop(event.pod.uid, None)
            else:
                self._pods[event.pod.uid] = event.pod
        if not read.initial_events_end:
            return None
        return Listed(tuple(self._pods.values()), read.resource_version, self._requested_at)


def cannot_stream(ended: WatchEnded) -> bool:
    """Whether a watch that was to begin with a list ended because the server cannot do that.

    One that does not know how refuses the request; one whose etcd cannot show progress takes it and ends the stream
    with an event that says so, of code 500 like many another. What heals by itself, or is about us, is no such answer.
    """
    match ended.error:
        case BadRequest() | Invalid():
            return True
        case None | Unauthorized() | Forbidden() | TooManyRequests() | Gone():
            return False
        case _:
            return ended.in_stream
