"""A fence: the `PodApi` of one incarnation of an actor. It sends nothing once that incarnation has ended.

A thread cannot be ended from outside. The thread of an actor that hung and was replaced may wake up at any time; by
then the fence has cancelled its calls under way, and refuses every new one. A call that hangs in `send` itself is
cancelled as soon as `send` returns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar, final

from actors.errors import Cancelled
from actors.kube.api import WatchEnded
from actors.kube.calls import OpenCalls

if TYPE_CHECKING:
    from actors.errors import ApiError
    from actors.kube.api import Call, PodApi, Reply, Request, Watch, WatchEvents, WatchSink

__all__ = ["FencedPodApi"]

A = TypeVar("A")

SHUT: Final = "the actor that sent this request has ended"


@final
class FencedPodApi:
    """Passes every request to `api`, until it is closed."""

    def __init__(self, api: PodApi) -> None:
        self.namespace = api.namespace
        self._api = api
        self._calls = OpenCalls()

    def close(self) -> None:
        """Cancel the calls under way, from any thread, and later ones at once. `api` stays open: others use it."""
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

        def passed_on(message: WatchEvents | WatchEnded) -> None:
            if isinstance(message, WatchEnded):
                self._calls.discard(call)
            sink(message)

        call.sent_as(self._api.watch(request, passed_on))
        return call


@final
class _FencedCall:
    """A call that can be cancelled before `send` returns: the later of `cancel` and `sent_as` cancels the inner one."""

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
