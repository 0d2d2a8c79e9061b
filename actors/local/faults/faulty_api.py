"""`FaultyPodApi`: a wrapper around any `PodApi` that injects faults, by script or by chance.

Without a script or chances it passes everything on. One seed gives one sequence of faults, whatever is wrapped. Every
call still completes exactly once. It does not restore a cluster from a backup: use `ObjectStore.restore`, then `cut`.
"""

from __future__ import annotations

from collections import defaultdict, deque
from datetime import timedelta
from functools import partial
from threading import RLock
from typing import TYPE_CHECKING, Any, Final, TypeVar

from msgspec import structs

from actors.errors import ApiError, Unavailable
from actors.kube.api import List, PodPage
from actors.kube.calls import OpenCalls
from actors.local.faults.faulty_call import FaultyCall
from actors.local.faults.faulty_stream import FaultyStream, broken_connection
from actors.local.faults.kinds import Chances, Fault, Refuse, StaleList, gone

if TYPE_CHECKING:
    from collections.abc import Callable

    from actors.kube.api import Call, Operation, PodApi, Reply, Request, Watch, WatchSink
    from actors.runtime import Entropy, TimerService

__all__ = ["FaultyPodApi"]

A = TypeVar("A")

_LISTS_PER_PAGE: Final = 8
"""Answers to keep of each page, for stale lists."""
_PAGES: Final = 64
"""Pages whose answers are kept."""


class FaultyPodApi:
    """A `PodApi` with faults.

    Args:
        inner: the API without faults.
        timers: for delays.
        entropy: for chances.
        call_limit: the time after which a stalled call fails, like the limit of the HTTP client.
    """

    def __init__(
        self,
        inner: PodApi,
        timers: TimerService,
        entropy: Entropy,
        *,
        call_limit: timedelta = timedelta(seconds=10),
    ) -> None:
        self.chances = Chances()
        """The probability of each fault. Can be replaced at any time."""
        self.lag = timedelta(0)
        """The delay of every event, as from a lagging replica. The order is kept."""
        self.calls = OpenCalls()
        """The calls and streams that have not completed."""
        self.namespace = inner.namespace
        self._inner = inner
        self._timers = timers
        self._entropy = entropy
        self._limit = call_limit
        self._outage = False
        self._next: defaultdict[Operation, deque[Fault]] = defaultdict(deque)
        self._lists: dict[List, deque[PodPage]] = {}
        self._lock = RLock()

    # ── The script ───────────────────────────────────────────────────────────────────────────────────────────────

    def fail_next(self, operation: Operation, fault: Fault | ApiError, *, times: int = 1) -> None:
        """Plan a fault for the next call of this operation without one. An error means `Refuse`."""
        planned = Refuse(fault) if isinstance(fault, ApiError) else fault
        if operation == "watch" and not isinstance(planned, Refuse):
            raise ValueError(f"a watch can only be refused; {type(planned).__name__} is for other operations")
        if isinstance(planned, StaleList) and operation != "list":
            raise ValueError(f"only a list can be stale, not a {operation}")
        with self._lock:
            self._next[operation].extend([planned] * times)

    @property
    def outage(self) -> bool:
        """Whether the server is unreachable: streams are cut, and connections refused."""
        return self._outage

    @outage.setter
    def outage(self, begins: bool) -> None:
        self._outage = begins
        if begins:
            self.cut()

    def cut(self) -> None:
        """Break the connection of every stream."""
        self._each_stream(lambda stream: stream.break_off(broken_connection()))

    def expire(self) -> None:
        """End every stream with 410, as a server does once the version is outside its window."""
        self._each_stream(lambda stream: stream.break_off(gone()))

    def stall(self) -> None:
        """Hold back the events of all streams, bookmarks too, until `resume`."""
        self._each_stream(FaultyStream.stall)

    def resume(self) -> None:
        """Deliver the events that stalled streams held back, in order."""
        self._each_stream(FaultyStream.resume)

    def freeze(self) -> None:
        """Make every stream half-open: it delivers nothing more, not even its end."""
        self._each_stream(FaultyStream.freeze)

    def calm(self) -> None:
        """End all faults: clear the script, the chances and the lag, end the outage, and resume stalled streams.

        Frozen streams stay frozen: a half-open connection does not recover.
        """
        with self._lock:
            self._next.clear()
        self.chances = Chances()
        self.lag = timedelta(0)
        self.outage = False
        self.resume()

    # ── PodApi ───────────────────────────────────────────────────────────────────────────────────────────────────

    def send(self, request: Request[A], reply: Reply[A]) -> Call:
        """See `PodApi`."""
        sent = structs.replace(request, deadline=None)  # the network delays what was sent before
        operation, send = request.operation, partial(self._pass_on, sent)
        faulty = FaultyCall(operation, send, reply, calls=self.calls, timers=self._timers, limit=self._limit)
        if self.calls.closed:
            faulty.cancel()
        elif request.late:
            faulty.not_sent()
        else:
            later_page = isinstance(request, List) and bool(request.continue_token)
            faulty.begin(self._fault_of(operation, later_page=later_page), partial(self._recall, request))
        return faulty

    def watch(self, request: Watch, sink: WatchSink) -> Call:
        """See `PodApi`."""
        stream = FaultyStream(sink, self.calls, lambda: (self.chances, self.lag), self._timers, self._entropy)
        if self.calls.closed:
            stream.cancel()
            return stream
        fault = self._fault_of(request.operation)
        if fault is not None:
            assert isinstance(fault, Refuse)
            stream.break_off(fault.error)
        else:
            stream.depends_on(self._inner.watch(request, stream.on_message))
        return stream

    def close(self) -> None:
        """See `PodApi`."""
        self.calls.close()
        self._inner.close()

    # ── Faults ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _each_stream(self, do: Callable[[FaultyStream], None]) -> None:
        for call in self.calls.open():
            if isinstance(call, FaultyStream):
                do(call)

    def _fault_of(self, operation: Operation, *, later_page: bool = False) -> Fault | None:
        """Choose the fault of a call: an outage comes before the script, the script before chance."""
        if self._outage:
            return Refuse(Unavailable("connection refused (injected)"))
        with self._lock:
            if self._next[operation]:
                return self._next[operation].popleft()
            return self.chances.draw(operation, self._entropy, later_page=later_page)

    def _pass_on(self, request: Request[A], reply: Reply[A]) -> Call:
        """Send the request, and remember the pages of lists."""

        def answered(answer: A | ApiError) -> None:
            if isinstance(request, List) and isinstance(answer, PodPage):
                self._remember(_page(request), answer)
            reply(answer)

        return self._inner.send(request, answered)

    def _remember(self, page: List, answer: PodPage) -> None:
        with self._lock:
            if page not in self._lists and len(self._lists) >= _PAGES:
                del self._lists[next(iter(self._lists))]
            self._lists.setdefault(page, deque(maxlen=_LISTS_PER_PAGE)).append(answer)

    def _recall(self, request: Request[Any]) -> Any:
        """Return a stale answer to the request, if there is one."""
        with self._lock:
            answers = self._lists.get(_page(request)) if isinstance(request, List) else None
            return answers[0] if answers else None


def _page(request: List) -> List:
    """Return the key of a page: its request without the version."""
    return structs.replace(request, resource_version=None)
