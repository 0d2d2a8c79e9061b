"""A closed fence sends nothing, and its calls under way are cancelled. See test_hangs.py, too."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import pytest

from actors import kube
from actors.errors import Cancelled, NotFound
from actors.kube.api import LEASES, WatchEnded, WatchEvents
from actors.kube.fence import FencedPodApi
from actors.testing.manual_api import ManualPodApi

if TYPE_CHECKING:
    from collections.abc import Callable

    from actors.kube.api import Call, Operation, PodApi, Request
    from actors.testing.manual_api import ManualCall

A = TypeVar("A")
Reply: TypeAlias = "Callable[[Any], None]"

POD = {"metadata": {"name": "pod"}}

REQUESTS: dict[Operation, Any] = {
    request.operation: request
    for request in (
        kube.List("a=b", limit=7, continue_token="next", resource_version="0"),
        kube.Watch("a=b", "7", timedelta(seconds=9), send_initial_events=True),
        kube.Create(POD),
        kube.ReviewAccess("patch", LEASES),
    )
}


def put(api: PodApi, operation: Operation, reply: Reply) -> Call:
    """Have it sent."""
    request = REQUESTS[operation]
    return api.watch(request, reply) if operation == "watch" else api.send(request, reply)


class Fenced:
    def __init__(self) -> None:
        self.inner = ManualPodApi("jobs")
        self.fence = FencedPodApi(self.inner)
        self.answers: list[Any] = []

    def send(self, operation: Operation) -> Call:
        return put(self.fence, operation, self.answers.append)

    def cancelled(self, operation: Operation) -> bool:
        """Whether the one answer is that it was cancelled, in the shape that such a call has it."""
        (answer,) = self.answers
        return isinstance(answer.error if operation == "watch" else answer, Cancelled)


@pytest.fixture
def fenced() -> Fenced:
    return Fenced()


@pytest.mark.parametrize("operation", REQUESTS)
def test_a_request_passes_unchanged_while_the_actor_is_alive(operation: Operation, fenced: Fenced) -> None:
    fenced.send(operation)
    (passed,) = fenced.inner.calls
    assert passed.request is REQUESTS[operation]
    answer = WatchEnded(None) if operation == "watch" else NotFound("no such thing")
    passed.reply(answer)
    assert fenced.answers == [answer]


@pytest.mark.parametrize("operation", REQUESTS)
def test_nothing_is_sent_once_the_fence_is_closed(operation: Operation, fenced: Fenced) -> None:
    fenced.fence.close()
    fenced.send(operation).cancel()
    assert fenced.inner.calls == []
    assert fenced.cancelled(operation)


@pytest.mark.parametrize("operation", REQUESTS)
def test_a_call_under_way_is_cancelled_when_the_fence_closes(operation: Operation, fenced: Fenced) -> None:
    fenced.send(operation)
    fenced.fence.close()
    assert fenced.inner.calls[0].cancelled
    assert fenced.cancelled(operation)
    assert not fenced.inner.closed, "others use it"


@pytest.mark.parametrize("operation", REQUESTS)
def test_a_caller_may_cancel_its_call(operation: Operation, fenced: Fenced) -> None:
    fenced.send(operation).cancel()
    assert fenced.inner.calls[0].cancelled
    assert fenced.cancelled(operation)


def test_a_stream_that_delivered_events_can_still_be_cancelled(fenced: Fenced) -> None:
    fenced.send("watch")
    fenced.inner.calls[0].send(version="8")
    fenced.fence.close()
    assert fenced.inner.calls[0].cancelled
    assert [type(answer) for answer in fenced.answers] == [WatchEvents, WatchEnded]


def test_a_completed_call_is_forgotten(fenced: Fenced) -> None:
    fenced.send("create")
    answer = NotFound("gone")
    fenced.inner.calls[0].answer(answer)
    assert not fenced.fence._calls.open(), "a fence that stands for weeks would remember every call"
    fenced.fence.close()
    assert fenced.answers == [answer]
    assert not fenced.inner.calls[0].cancelled


def test_a_call_that_hangs_in_send_is_cancelled_once_send_returns(fenced: Fenced) -> None:
    class Slow(ManualPodApi):
        def send(self, request: Request[A], reply: Reply) -> ManualCall:
            fence.close()  # meanwhile, in another thread
            return super().send(request, reply)

    slow = Slow()
    fence = FencedPodApi(slow)
    fence.send(kube.Create(POD), fenced.answers.append)
    assert slow.calls[0].cancelled
    assert fenced.cancelled("create")


def test_it_is_of_the_namespace_that_it_shuts_off(fenced: Fenced) -> None:
    assert fenced.fence.namespace == "jobs"
