"""What a completed call leaves behind."""

from __future__ import annotations

import gc
import weakref
from typing import TYPE_CHECKING, Any

from actors import kube
from actors.errors import NotFound
from actors.kube.calls import OpenCall, OpenCalls
from actors.kube.fence import FencedPodApi

if TYPE_CHECKING:
    from actors.kube.api import Call, Reply, Request


class Api:
    """Sends nothing: the test completes the calls."""

    namespace = "jobs"

    def __init__(self) -> None:
        self._calls = OpenCalls()
        self.made: weakref.ref[OpenCall[Any]]

    def send(self, request: Request[Any], reply: Reply[Any]) -> Call:
        call: OpenCall[Any] = OpenCall(f"the {request.operation}", reply, self._calls)
        self.made = weakref.ref(call)
        return call

    def watch(self, *_: object) -> Call:
        raise NotImplementedError

    def close(self) -> None:
        self._calls.close()


def test_a_completed_call_is_freed_without_a_garbage_collection() -> None:
    """Who gets the answer may hold the call, as a fence does. A thousand POSTs would leave 20,000 objects."""
    api, answers = Api(), list[Any]()
    gc.disable()
    try:
        FencedPodApi(api).send(kube.Create({}), answers.append)
        call = api.made()
        assert call is not None, "it is under way"
        call.complete(NotFound("gone"))
        del call
        assert api.made() is None
    finally:
        gc.enable()
    assert [type(answer) for answer in answers] == [NotFound]
