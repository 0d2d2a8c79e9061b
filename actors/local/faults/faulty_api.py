"""`FaultyPodApi`: a wrapper around any `PodApi` that breaks what networks and servers break, by script or by chance.

Quiet until it is told otherwise. One seed gives one run of faults, whatever is wrapped. What it hands on is always
something that the real thing could have done, and each call still completes exactly once.

A cluster restored from a backup is not its business: `ObjectStore.restore`, then `cut`.
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

_REMEMBERED_LISTS: Final = 8
"""Answers kept per page, for stale lists."""
_REMEMBERED_PAGES: Final = 64
"""Pages whose answers are kept."""


class FaultyPodApi:
    """A `PodApi` with faults.

    Args:
        inner: what works.
        timers: for delays.
        entropy: for chances.
        call_limit: after this a call that stalls is given up, as the HTTP client does with each of its calls.
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
        """What may happen to any call, stream or event. Can be replaced at any time."""
        self.lag = timedelta(0)
        """Every watched event comes so much later, as from a replica that lags. Order is kept."""
        self.calls = OpenCalls()
        """Not answered yet."""
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
        """What happens to the next call of this operation that has nothing planned yet; an error means `Refuse`."""
        planned = Refuse(fault) if isinstance(fault, ApiError) else fault
        if operation == "watch" and not isinstance(planned, Refuse):
            raise ValueError(f"a watch can be refused; for {type(planned).__name__} speak to its stream")
        if isinstance(planned, StaleList) and operation != "list":
            raise ValueError(f"a {operation} has no stale answer")
        with self._lock:
            self._next[operation].extend([planned] * times)

    @property
    def outage(self) -> bool:
        """The server is away: streams are cut, connections refused."""
        return self._outage

    @outage.setter
    def outage(self, away: bool) -> None:
        self._outage = away
        if away:
            self.cut()

    def cut(self) -> None:
        """Break every stream's connection."""
        self._each_stream(lambda stream: stream.break_off(broken_connection()))

    def expire(self) -> None:
        """End every stream with 410, as a server does whose window has moved on."""
        self._each_stream(lambda stream: stream.break_off(gone()))

    def stall(self) -> None:
        """Hold back what streams bring, bookmarks too, until `resume`."""
        self._each_stream(FaultyStream.stall)

    def resume(self) -> None:
        """Let stalled streams bring what they held back, in order."""
        self._each_stream(FaultyStream.resume)

    def freeze(self) -> None:
        """Make every stream half-open: it never brings anything again, its end included, and does not say so."""
        self._each_stream(FaultyStream.freeze)

    def calm(self) -> None:
        """No fault any more: forget the script, the chances and the lag, end the outage, resume stalled streams.

        Frozen streams stay frozen: nothing comes back from a half-open connection.
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
        operation, send = request.operation, partial(self._pass_on, request)
        faulty = FaultyCall(operation, send, reply, calls=self.calls, timers=self._timers, limit=self._limit)
        if self.calls.closed:
            faulty.cancel()
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

    # ── Making it happen ─────────────────────────────────────────────────────────────────────────────────────────

    def _each_stream(self, do: Callable[[FaultyStream], None]) -> None:
        for call in self.calls.open():
            if isinstance(call, FaultyStream):
                do(call)

    def _fault_of(self, operation: Operation, *, later_page: bool = False) -> Fault | None:
        """What happens to this call: an outage before the script, the script before chance."""
        if self._outage:
            return Refuse(Unavailable("connection refused (injected)"))
        with self._lock:
            if self._next[operation]:
                return self._next[operation].popleft()
            return self.chances.draw(operation, self._entropy, later_page=later_page)

    def _pass_on(self, request: Request[A], reply: Reply[A]) -> Call:
        def answered(answer: A | ApiError) -> None:
            if isinstance(request, List) and isinstance(answer, PodPage):
                self._remember(_page(request), answer)
            reply(answer)

        return self._inner.send(request, answered)

    def _remember(self, page: List, answer: PodPage) -> None:
        with self._lock:
            if page not in self._lists and len(self._lists) >= _REMEMBERED_PAGES:
                del self._lists[next(iter(self._lists))]
            self._lists.setdefault(page, deque(maxlen=_REMEMBERED_LISTS)).append(answer)

    def _recall(self, request: Request[Any]) -> Any:
        """A stale answer to this, if there is one."""
        with self._lock:
            answers = self._lists.get(_page(request)) if isinstance(request, List) else None
            return answers[0] if answers else None


def _page(request: List) -> List:
    """The same page, from whatever version the list was wanted."""
    return structs.replace(request, resource_version=None)
