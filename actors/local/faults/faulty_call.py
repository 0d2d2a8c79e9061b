"""One call with at most one fault."""

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

_WRITES: Final = frozenset(
    {"create", "delete", "delete_collection", "patch", "create_object", "patch_object", "delete_object"}
)


class FaultyCall(OpenCall[A]):
    """Sends a request or not, passes on its answer or not, and completes at the latest at the limit.

    Args:
        operation: the name of the operation.
        send: sends the real request, with the given reply.
        reply: the client's reply.
        calls: the calls under way.
        limit: the client's limit for a call.
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
        """Inject the fault, if any. `stale` returns a stale answer, if there is one."""
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
            case DelayRequest(by) if by > self._limit:  # the client's limit passes first, the network delivers later
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
        """Send the request and drop the answer."""
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
    """Return the error of a call without an answer: the outcome of a write is unknown."""
    if operation in _WRITES:
        return Ambiguous(f"the connection broke after the {operation} was sent (injected)")
    return Unavailable(f"the connection broke before the {operation} was answered (injected)")
