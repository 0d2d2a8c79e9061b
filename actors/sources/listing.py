"""One list of all executor pods, page by page or as the beginning of a watch.

`PagedList` is what WatchSource and PollSource have in common. A page is one call with its own limit; an expired
continue token starts the list over, because pages of two versions are not one list. The object belongs to one actor:
pages come back to it as messages, so that a late page of a list that was given up is dropped by its number.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from actors import kube
from actors.errors import ApiError, BadRequest, Forbidden, Gone, Invalid, TooManyRequests, Unauthorized
from actors.kube.api import Call, PodApi, PodPage, WatchEnded, WatchEvents
from actors.messages import ReplaceSnapshot

if TYPE_CHECKING:
    from actors.pods.pod import Pod
    from actors.runtime import Address, Clock, Moment
    from actors.sources.freshness import FreshnessReporter

__all__ = ["PageArrived", "PagedList", "StreamedList", "cannot_stream"]

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


class PagedList:
    """Asks for pages until the last; `start` again abandons what was under way."""

    def __init__(
        self, api: PodApi, selector: str, clock: Clock, myself: Address, freshness: FreshnessReporter | None = None
    ) -> None:
        self._api = api
        self._selector = selector
        self._clock = clock
        self._myself = myself
        self._freshness = freshness
        self._pods: list[Pod] = []
        self._moved: dict[str, str] = {}
        self._number = 0
        self._call: Call | None = None

    def start(self, *, consistent: bool = True) -> None:
        """Ask for the first page; each page comes to the owner as `PageArrived`, to be handed to `arrived`."""
        self.cancel()
        self._restarts = 0
        self._consistent = consistent
        self._ask_first()

    def cancel(self) -> None:
        """Abandon the list under way, if there is one."""
        self._number += 1
        if self._call is not None:
            self._call.cancel()
            self._call = None

    def arrived(self, message: PageArrived) -> ReplaceSnapshot | ApiError | None:
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
                    if self._freshness is not None:
                        self._freshness.received(works=False)
                    return None
                pods, moved = tuple(self._pods), self._moved
                self._pods, self._moved = [], {}  # what has changed since is not to be kept for us
                return ReplaceSnapshot(
                    pods, page.resource_version, self._requested_at, consistent=self._consistent, moved=moved
                )

    def _ask_first(self) -> None:
        self._requested_at = self._clock.monotonic()
        self._pods, self._moved = [], {}
        self._ask("")

    def _ask(self, continue_token: str) -> None:
        self._number += 1
        self._continuing = bool(continue_token)
        number, myself = self._number, self._myself
        version = None if continue_token or self._consistent else FROM_CACHE
        self._call = self._api.send(
            kube.List(self._selector, PAGE_SIZE, continue_token, version),
            lambda page: myself.tell(PageArrived(number, page)),
        )


class StreamedList:
    """A list that comes as the beginning of a watch: collects it up to its end mark.

    The server reads on while it sends, so that a change may come before the mark: the list is what remains.
    """

    def __init__(self, requested_at: Moment) -> None:
        self._requested_at = requested_at
        self._pods: dict[str, Pod] = {}

    def arrived(self, read: WatchEvents) -> ReplaceSnapshot | None:
        """The whole list, None while its end mark has not come."""
        for event in read.events:
            if event.type == "DELETED":
                self._pods.pop(event.pod.uid, None)
            else:
                self._pods[event.pod.uid] = event.pod
        if not read.initial_events_end:
            return None
        return ReplaceSnapshot(tuple(self._pods.values()), read.resource_version, self._requested_at, consistent=True)


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
