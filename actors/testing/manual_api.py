"""`ManualPodApi`: a `PodApi` that records every call and does nothing else. The test answers, or scripts the answers.

For tests of one actor, message by message: the test controls the API's answers as it controls the mailbox. The contract
of `PodApi` holds (each call completes once, a cancelled one with `Cancelled`): breaking it is an `AssertionError`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeVar

from actors.errors import Cancelled
from actors.kube.api import WatchEnded, WatchEvents

if TYPE_CHECKING:
    from collections.abc import Callable

    from actors.errors import ApiError
    from actors.kube.api import Operation, Reply, Request, Watch, WatchSink
    from actors.pods.pod import PodEvent

__all__ = ["ManualCall", "ManualPodApi"]

A = TypeVar("A")

_OPEN_STREAM: Final = "a watch is answered by `send` and `end`"


@dataclass(eq=False)
class ManualCall:
    """A recorded call, which the test answers."""

    request: Any
    """A `Request` or a `Watch`. Any: the test knows which, and reads its fields."""
    reply: Callable[[Any], None] = field(repr=False)
    answered: bool = False
    """Whether the call has completed."""
    cancelled: bool = False
    """Whether the caller cancelled the call before it was answered."""
    taken: bool = field(default=False, repr=False)

    @property
    def operation(self) -> Operation:
        """The operation of the request."""
        operation: Operation = self.request.operation
        return operation

    def answer(self, answer: object) -> None:
        """Complete the call with the request's answer, or with an `ApiError`."""
        assert self.operation != "watch", _OPEN_STREAM
        self._complete(answer)

    def send(self, *events: PodEvent, version: str, malformed: int = 0, initial_events_end: bool = False) -> None:
        """Send events on this watch, as one read; no events make a bookmark."""
        assert self.operation == "watch", f"a {self.operation} is completed by `answer`"
        assert not self.answered, f"the stream has ended: {self}"
        self.reply(WatchEvents(events, version, malformed, initial_events_end))

    def end(self, error: ApiError | None = None, *, in_stream: bool = False) -> None:
        """End this watch: cleanly, with the answer `error`, or with an ERROR event if `in_stream`."""
        assert self.operation == "watch", f"a {self.operation} is completed by `answer`"
        self._complete(WatchEnded(error, in_stream))

    def cancel(self) -> None:
        """See `Call`: called by the actor under test."""
        if self.answered:
            return
        self.cancelled = True
        error = Cancelled(f"the {self.operation} was cancelled")
        self._complete(WatchEnded(error) if self.operation == "watch" else error)

    def _complete(self, answer: object) -> None:
        assert not self.answered, f"the call has completed before: {self}"
        self.answered = True
        self.reply(answer)


class ManualPodApi:
    """A `PodApi` whose answers come from the test."""

    def __init__(self, namespace: str = "default") -> None:
        self.namespace = namespace
        self.calls: list[ManualCall] = []
        """All calls, in order."""
        self.closed = False
        self._scripts: dict[Operation, list[object]] = {}
        self._answered: Counter[Operation] = Counter()

    def script(self, operation: Operation, *answers: object) -> None:
        """Answer the calls of an operation with these, one each, as they come; an `ApiError` is an answer too.

        A call that comes after the last of them is an `AssertionError` for its sender.
        """
        if operation == "watch":
            raise ValueError(_OPEN_STREAM)
        self._scripts.setdefault(operation, []).extend(answers)

    def take(self, operation: Operation) -> ManualCall:
        """Return the oldest open call of this operation that was not taken before. There must be one."""
        for call in self.calls:
            if call.operation == operation and not call.taken and not call.answered:
                call.taken = True
                return call
        raise AssertionError(f"no {operation} is under way; under way are {self.open() or 'none'}")

    def open(self, *operations: Operation) -> tuple[ManualCall, ...]:
        """Return the open calls (of these operations), oldest first."""
        return tuple(
            call for call in self.calls if not call.answered and (not operations or call.operation in operations)
        )

    # ── PodApi ───────────────────────────────────────────────────────────────────────────────────────────────────

    def send(self, request: Request[A], reply: Reply[A]) -> ManualCall:
        """Record a request, and answer it if its operation has a script."""
        call = self._record(ManualCall(request, reply))
        if call.operation in self._scripts and not call.answered:
            self._answer_by_script(call)
        return call

    def watch(self, request: Watch, sink: WatchSink) -> ManualCall:
        """Record a watch."""
        return self._record(ManualCall(request, sink))

    def close(self) -> None:
        """Cancel the open calls, and every later one."""
        self.closed = True
        for call in self.open():
            call.cancel()

    def _record(self, call: ManualCall) -> ManualCall:
        self.calls.append(call)
        if self.closed:
            call.cancel()
        return call

    def _answer_by_script(self, call: ManualCall) -> None:
        answers, number = self._scripts[call.operation], self._answered[call.operation]
        if number == len(answers):
            scripted = ", ".join(f"{operation}: {len(script)}" for operation, script in self._scripts.items())
            raise AssertionError(
                f"no answer is scripted for {call.operation} number {number + 1}: {call.request}. Scripted: {scripted}"
            )
        self._answered[call.operation] += 1
        call.answer(answers[number])
