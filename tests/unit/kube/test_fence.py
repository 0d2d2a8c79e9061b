"""Once an actor's fence is shut it sends nothing, and what it had under way is given up. See test_hangs.py, too."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest

from actors.errors import Cancelled, NotFound
from actors.kube.api import LEASES, DeleteOptions, WatchEnded, WatchEvents
from actors.kube.fence import FencedPodApi
from actors.testing.manual_api import ManualPodApi

if TYPE_CHECKING:
    from collections.abc import Callable

    from actors.kube.api import Call, Manifest, PodApi
    from actors.testing.manual_api import ManualCall, Verb

Reply: TypeAlias = "Callable[[Any], None]"

POD = {"metadata": {"name": "pod"}}

CALLS: dict[Verb, Callable[[PodApi, Reply], Call]] = {
    "list": lambda api, reply: api.list("a=b", reply, limit=7, continue_token="next", resource_version="0"),
    "watch": lambda api, reply: api.watch("a=b", "7", reply, timeout=timedelta(seconds=9), send_initial_events=True),
    "get": lambda api, reply: api.get("pod", reply),
    "create": lambda api, reply: api.create(POD, reply),
    "delete": lambda api, reply: api.delete("pod", DeleteOptions(uid="u"), reply),
    "delete_collection": lambda api, reply: api.delete_collection("a=b", reply, grace=timedelta(seconds=3)),
    "patch": lambda api, reply: api.patch("pod", POD, reply),
    "may": lambda api, reply: api.may("patch", LEASES, reply),
    "get_object": lambda api, reply: api.get_object(LEASES, "lease", reply),
    "list_objects": lambda api, reply: api.list_objects(LEASES, "a=b", reply),
    "create_object": lambda api, reply: api.create_object(LEASES, POD, reply),
    "patch_object": lambda api, reply: api.patch_object(LEASES, "lease", POD, reply),
}


class Fenced:
    def __init__(self) -> None:
        self.inner = ManualPodApi("jobs")
        self.fence = FencedPodApi(self.inner)
        self.answers: list[Any] = []

    def send(self, verb: Verb) -> Call:
        return CALLS[verb](self.fence, self.answers.append)

    def cancelled(self, verb: Verb) -> bool:
        """Whether the one answer is that it was cancelled, in the shape that such a call has it."""
        (answer,) = self.answers
        return isinstance(answer.error if verb == "watch" else answer, Cancelled)


@pytest.fixture
def fenced() -> Fenced:
    return Fenced()


@pytest.mark.parametrize("verb", CALLS)
def test_a_call_goes_through_as_it_is_while_the_actor_lives(verb: Verb, fenced: Fenced) -> None:
    fenced.send(verb)
    (passed,) = fenced.inner.calls
    direct = ManualPodApi()
    CALLS[verb](direct, fenced.answers.append)
    assert (passed.verb, passed.arguments) == (verb, direct.calls[0].arguments)
    answer = WatchEnded(None) if verb == "watch" else NotFound("no such thing")
    passed.reply(answer)
    assert fenced.answers == [answer]


@pytest.mark.parametrize("verb", CALLS)
def test_nothing_is_sent_once_it_is_shut(verb: Verb, fenced: Fenced) -> None:
    fenced.fence.close()
    fenced.send(verb).cancel()
    assert fenced.inner.calls == []
    assert fenced.cancelled(verb)


@pytest.mark.parametrize("verb", CALLS)
def test_what_is_under_way_when_it_is_shut_is_cancelled(verb: Verb, fenced: Fenced) -> None:
    fenced.send(verb)
    fenced.fence.close()
    assert fenced.inner.calls[0].cancelled
    assert fenced.cancelled(verb)
    assert not fenced.inner.closed, "others use it"


@pytest.mark.parametrize("verb", CALLS)
def test_a_caller_may_cancel_as_ever(verb: Verb, fenced: Fenced) -> None:
    fenced.send(verb).cancel()
    assert fenced.inner.calls[0].cancelled
    assert fenced.cancelled(verb)


def test_a_stream_stays_open_to_be_cancelled_whatever_it_brought(fenced: Fenced) -> None:
    fenced.send("watch")
    fenced.inner.calls[0].send(version="8")
    fenced.fence.close()
    assert fenced.inner.calls[0].cancelled
    assert [type(answer) for answer in fenced.answers] == [WatchEvents, WatchEnded]


def test_a_call_that_was_answered_is_forgotten(fenced: Fenced) -> None:
    fenced.send("get")
    answer = NotFound("gone")
    fenced.inner.calls[0].answer(answer)
    assert not fenced.fence._open, "a fence that stands for weeks would remember every call"
    fenced.fence.close()
    assert fenced.answers == [answer]
    assert not fenced.inner.calls[0].cancelled


def test_a_call_that_hangs_while_it_is_sent_is_given_up_as_soon_as_it_was(fenced: Fenced) -> None:
    class Slow(ManualPodApi):
        def create(self, manifest: Manifest, reply: Reply) -> ManualCall:
            fence.close()  # meanwhile, in another thread
            return super().create(manifest, reply)

    slow = Slow()
    fence = FencedPodApi(slow)
    fence.create(POD, fenced.answers.append)
    assert slow.calls[0].cancelled
    assert fenced.cancelled("create")


def test_it_is_of_the_namespace_that_it_shuts_off(fenced: Fenced) -> None:
    assert fenced.fence.namespace == "jobs"
