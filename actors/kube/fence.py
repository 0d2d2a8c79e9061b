"""A fence: a `PodApi` for one incarnation of an actor, which sends nothing once that has ended.

Nothing can end a thread from outside. One that was given up because it hung may wake up at any time and go on where it
was, beside its replacement. Before this fence it finds every way to the API shut, and what it had under way given up.
A call that hangs in the very middle of being sent is given up as soon as it has been.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar, final

from actors.errors import Cancelled
from actors.kube.api import WatchEnded
from actors.kube.calls import OpenCalls

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
        self._calls = OpenCalls()

    def close(self) -> None:
        """Shut it, from any thread: what is under way completes with `Cancelled`, what comes later at once.

        `api` is left open: it is not ours alone.
        """
        self._calls.close()

    def send(self, request: Request[A], reply: Reply[A]) -> Call:
        """See `PodApi`."""
        call = _FencedCall()
        self._calls.add(call)
        if self._calls.closed:
            reply(Cancelled(SHUT))
            return call

        def answered(answer: A | ApiError) -> None:
            self._calls.discard(call)
            reply(answer)

        call.sent_as(self._api.send(request, answered))
        return call

    def watch(self, request: Watch, sink: WatchSink) -> Call:
        """See `PodApi`."""
        call = _FencedCall()
        self._calls.add(call)
        if self._calls.closed:
            sink(WatchEnded(Cancelled(SHUT)))
            return call

        def told(message: WatchEvents | WatchEnded) -> None:
            if isinstance(message, WatchEnded):
                self._calls.discard(call)
            sink(message)

        call.sent_as(self._api.watch(request, told))
        return call


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
