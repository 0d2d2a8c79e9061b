"""One call between a `PodApi` and its client, with at most one fault upon it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar, assert_never

from actors.errors import Ambiguous, ApiError, Unavailable
from actors.kube.calls import OpenCall, OpenCalls
from actors.local.faults.kinds import DelayAnswer, DelayRequest, Fault, LoseAnswer, Refuse, StaleList, Stall

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import timedelta

    from actors.kube.api import Call, Operation, Reply
    from actors.runtime import TimerService

__all__ = ["FaultyCall"]

A = TypeVar("A")

_WRITES: Final = frozenset({"create", "delete", "delete_collection", "patch", "create_object", "patch_object"})


class FaultyCall(OpenCall[A]):
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
        super().__init__(f"the {operation}", reply, calls)
        self._operation = operation
        self._send = send
        self._timers = timers
        self._limit = limit

    def begin(self, fault: Fault | None, stale: Callable[[], A | None]) -> None:
        """Let it happen."""
        match fault:
            case None:
                self._go(self.complete)
            case Refuse(error):
                self.complete(error)
            case LoseAnswer():
                self._go(lambda _: self._lose())
            case Stall(delivered):
                if delivered:
                    self._deliver()
                self._later(self._limit, self._lose)
            case DelayRequest(by) if by > self._limit:  # the client gives up, the network does not
                self._timers.schedule(by, self._deliver)
                self._later(self._limit, self._lose)
            case DelayRequest(by):
                self._later(by, lambda: self._go(self.complete))
            case DelayAnswer(by):
                self._go(lambda answer: self._delay_answer(answer, by))
            case StaleList():
                self._answer_stale(stale())
            case other:
                assert_never(other)

    def _go(self, answered: Reply[A]) -> None:
        if not self.done:
            self.depends_on(self._send(answered))

    def _deliver(self) -> None:
        """The server gets the request; what it answers reaches nobody."""
        self._send(lambda _: None)

    def _lose(self) -> None:
        self.complete(_lost(self._operation))

    def _delay_answer(self, answer: A | ApiError, by: timedelta) -> None:
        if by > self._limit:
            self._later(self._limit, self._lose)
        else:
            self._later(by, lambda: self.complete(answer))

    def _answer_stale(self, answer: A | None) -> None:
        if answer is None:
            self._go(self.complete)
        else:
            self.complete(answer)

    def _later(self, delay: timedelta, step: Callable[[], None]) -> None:
        self.depends_on(self._timers.schedule(delay, step))


def _lost(operation: Operation) -> Unavailable:
    """What a client says that got no answer: of a write, that it does not know."""
    if operation in _WRITES:
        return Ambiguous(f"the connection broke after the {operation} was sent (injected)")
    return Unavailable(f"the connection broke before the {operation} was answered (injected)")
