"""One call between a `PodApi` and its client, with at most one fault upon it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Generic, TypeVar, assert_never

from actors.errors import Ambiguous, ApiError, Unavailable
from actors.kube.calls import OpenCall, OpenCalls
from actors.local.faults.kinds import DelayAnswer, DelayRequest, Fault, LoseAnswer, Refuse, StaleList, Stall

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import timedelta

    from actors.kube.api import Call, Operation, Reply
    from actors.runtime import TimerService

__all__ = ["FaultyCall", "lost"]

A = TypeVar("A")

_WRITES: Final = frozenset({"create", "delete", "delete_collection", "patch", "create_object", "patch_object"})


class FaultyCall(Generic[A]):
    """Sends a request, or not; hands on its answer, or not; completes exactly once, at the limit at the latest.

    Args:
        operation: which of the API's.
        send: makes the real call, with this reply.
        reply: the client's.
        calls: where it is known as open.
        limit: what the client allows each call.
    """

    def __init__(
        self,
        operation: Operation,
        send: Callable[[Reply[A]], Call],
        reply: Reply[A],
        *,
        calls: OpenCalls,
        timers: TimerService,
        limit: timedelta,
    ) -> None:
        self._operation = operation
        self._send = send
        self._timers = timers
        self._limit = limit
        self.call: OpenCall[A] = OpenCall(f"the {operation}", reply, calls)

    def begin(self, fault: Fault | None, stale: Callable[[], A | None]) -> None:
        """Let it happen."""
        match fault:
            case None:
                self._go()
            case Refuse(error):
                self.call.complete(error)
            case LoseAnswer():
                self._go(lambda _: self._lose())
            case Stall(delivered):
                self._stall(delivered=delivered)
            case DelayRequest(by):
                self._delay_request(by)
            case DelayAnswer(by):
                self._go(lambda answer: self._delay_answer(answer, by))
            case StaleList():
                self._answer_stale(stale())
            case other:
                assert_never(other)

    def _go(self, answer: Reply[A] | None = None) -> None:
        if not self.call.done:
            self.call.depends_on(self._send(answer or self.call.complete))

    def _deliver(self) -> None:
        """The server gets the request; what it answers reaches nobody."""
        self._send(lambda _: None)

    def _lose(self) -> None:
        self.call.complete(lost(self._operation))

    def _stall(self, *, delivered: bool) -> None:
        if delivered:
            self._deliver()
        self._later(self._limit, self._lose)

    def _delay_request(self, by: timedelta) -> None:
        if by > self._limit:  # the client gives up, the network does not
            self._timers.schedule(by, self._deliver)
            self._later(self._limit, self._lose)
        else:
            self._later(by, self._go)

    def _delay_answer(self, answer: A | ApiError, by: timedelta) -> None:
        if by > self._limit:
            self._later(self._limit, self._lose)
        else:
            self._later(by, lambda: self.call.complete(answer))

    def _answer_stale(self, answer: A | None) -> None:
        if answer is None:
            self._go()
        else:
            self.call.complete(answer)

    def _later(self, delay: timedelta, step: Callable[[], None]) -> None:
        self.call.depends_on(self._timers.schedule(delay, step))


def lost(operation: Operation) -> Unavailable:
    """What a client says that got no answer: of a write, that it does not know."""
    if operation in _WRITES:
        return Ambiguous(f"the connection broke after the {operation} was sent (injected)")
    return Unavailable(f"the connection broke before the {operation} was answered (injected)")
