"""A fence: a `PodApi` for one incarnation of an actor, which sends nothing once that has ended.

Nothing can end a thread from outside. One that was given up because it hung may wake up at any time and go on where it
was, beside its replacement. Before this fence it finds every way to the API shut, and what it had under way given up.
A call that hangs in the very middle of being sent is given up as soon as it has been.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, TypeVar, final

from actors.errors import Cancelled
from actors.kube.api import WatchEnded

if TYPE_CHECKING:
    from actors.errors import ApiError
    from actors.kube.api import Call, PodApi, Reply, Request, Watch, WatchEvents, WatchSink

__all__ = ["FencedPodApi"]

A = TypeVar("A")

SHUT = "nothing is sent for an actor that has ended"


@final
class FencedPodApi:
    """Passes everything on to `api`, until it is shut. See `actors.kube.api.PodApi` for the methods."""

    def __init__(self, api: PodApi) -> None:
        self.namespace = api.namespace
        self._api = api
        self._lock = threading.Lock()
        self._open: set[_FencedCall] = set()
        self._is_shut = False

    def close(self) -> None:
        """Shut it, from any thread: what is under way completes with `Cancelled`, what comes later at once.

        `api` is left open: it is not ours alone.
        """
        with self._lock:
            self._is_shut = True
            still_open = tuple(self._open)
        for call in still_open:
            call.cancel()

    def send(self, request: Request[A], reply: Reply[A]) -> Call:
        """See `PodApi`."""
        call = _FencedCall()
        if not self._remember(call):
            reply(Cancelled(SHUT))
            return call

        def answered(answer: A | ApiError) -> None:
            self._forget(call)
            reply(answer)

        call.sent_as(self._api.send(request, answered))
        return call

    def watch(self, request: Watch, sink: WatchSink) -> Call:
        """See `PodApi`."""
        call = _FencedCall()
        if not self._remember(call):
            sink(WatchEnded(Cancelled(SHUT)))
            return call

        def told(message: WatchEvents | WatchEnded) -> None:
            if isinstance(message, WatchEnded):
                self._forget(call)
            sink(message)

        call.sent_as(self._api.watch(request, told))
        return call

    def _remember(self, call: _FencedCall) -> bool:
        """Have `close` end it; False if that was called."""
        with self._lock:
            if self._is_shut:
                return False
            self._open.add(call)
            return True

    def _forget(self, call: _FencedCall) -> None:
        with self._lock:
            self._open.discard(call)


@final
class _FencedCall:
    """A call that can be given up before it is known as what it was sent: whichever comes second cancels it."""

    def __init__(self) -> None:
        self._sent: Call | None = None
        self._cancelled = False

    def sent_as(self, call: Call) -> None:
        self._sent = call
        if self._cancelled:
            call.cancel()

    def cancel(self) -> None:
        self._cancelled = True
        if self._sent is not None:
            self._sent.cancel()
