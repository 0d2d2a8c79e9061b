"""The whole tree over HTTP and a server that misbehaves: the driver hears why, and little is kept meanwhile."""

from __future__ import annotations

import gzip
import tracemalloc
from collections import deque
from contextlib import closing
from datetime import timedelta
from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

import pytest

from actors import kube
from actors.backend.backend import Backend
from actors.kube.http import pod_api  # noqa: F401 - its import must not count as memory of an answer
from actors.kube.http.bounds import MIB
from actors.messages import BackendFailed
from actors.settings import Settings
from actors.testing import Kit
from tests.unit.kube.scripted import SAFETY, ScriptedServer

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from actors.kube.http.pod_api import HttpPodApi
    from tests.unit.kube.scripted import Asked, Peer

    Script = Callable[[Peer], None]

SETTINGS: dict[str, Any] = {"app_id": "app", "executor": {"image": "i"}}


class Always(deque["Script"]):
    """One script for every request."""

    def __init__(self, script: Script) -> None:
        super().__init__()
        self._script = script

    def popleft(self) -> Script:
        return self._script


class InTurn:
    """A `PodApi` over HTTP whose answers the test's own thread hands over, so that its clock is the test's."""

    def __init__(self, api: HttpPodApi) -> None:
        self.namespace = api.namespace
        self.watch, self.close = api.watch, api.close
        self._api = api
        self._answers: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._open = 0

    def send(self, request: kube.Request[Any], reply: kube.Reply[Any]) -> kube.Call:
        """See `PodApi`."""
        self._open += 1
        return self._api.send(request, lambda answer: self._answers.put(partial(reply, answer)))

    def hand_over(self) -> bool:
        """Wait for an answer, if a call is open, and hand it over."""
        if not self._open:
            return False
        self._open -= 1
        self._answers.get(timeout=SAFETY)()
        return True


def failure(folder: Path, script: Script) -> tuple[str, list[Asked]]:
    """How the start of a fleet fails on this server, and what it was asked."""
    config = Settings(**SETTINGS, api=BOUNDS)
    with ScriptedServer(scripts=Always(script)) as server, closing(Kit()) as kit:  # not open: the client has threads
        http = kube.connect(server.kubeconfig(folder), namespace="ns", bounds=config.api.bounds)
        api, driver = InTurn(http), kit.probe("driver")
        backend = Backend.start(config, driver.address, api, system=kit.system)
        kit.settle()
        while backend.is_alive():
            while api.hand_over():
                kit.settle()
            kit.advance(timedelta(seconds=1))
        return str(driver.take(BackendFailed).cause), server.asked


def is_list(peer: Peer) -> bool:
    return peer.asked.method == "GET" and peer.asked.path.endswith("/pods")


def review_or(script: Script) -> Script:
    """Grant every right; answer everything else like this."""

    def answer(peer: Peer) -> None:
        if is_list(peer):
            script(peer)
        else:
            peer.answer(201, {"status": {"allowed": True}})

    return answer


BOMB = gzip.compress(b" " * (16 * MIB))
LISTS = 16
"""Of a source that backs off, in `backend.start_timeout`: for at most a fifteenth of it."""
BOUNDS: Any = {"max_answer_size": "1Mi", "max_header_size": "4Ki", "max_pages": 5}


def bomb(peer: Peer) -> None:
    peer.answer(200, BOMB, {"Content-Encoding": "gzip"})


def endless(peer: Peer) -> None:
    peer.stream()
    while not peer.gone(within=0):
        peer.chunk(b" " * MIB)


def long_headers(peer: Peer) -> None:
    peer.answer(200, {}, {"X-Long": "x" * 3000, "X-Longer": "x" * 3000})


@pytest.mark.parametrize(
    ("script", "says"),
    [
        (bomb, "more than 1048576 bytes (api.max_answer_size)"),
        (endless, "more than 1048576 bytes (api.max_answer_size)"),
        (long_headers, "more than 4096 bytes (api.max_header_size)"),
    ],
)
def test_an_answer_without_an_end_fails_the_start_with_its_setting_and_little_memory(
    tmp_path: Path, script: Script, says: str
) -> None:
    tracemalloc.start()
    try:
        why, _ = failure(tmp_path, review_or(script))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert says in why
    assert peak < 6 * MIB, f"{peak / MIB:.0f} MiB"


@pytest.mark.parametrize("full", [False, True], ids=["empty pages", "pages"])
def test_endless_pages_fail_the_start_with_their_setting_after_few_lists(tmp_path: Path, full: bool) -> None:
    tokens = iter(range(10**9))

    def page(peer: Peer) -> None:
        items = [{"metadata": {"name": "a", "uid": f"u-{next(tokens)}", "resourceVersion": "1"}}] if full else []
        peer.answer(200, {"metadata": {"resourceVersion": "1", "continue": f"t{next(tokens)}"}, "items": items})

    why, asked = failure(tmp_path, review_or(page))
    assert "the list of pods does not end" in why
    if full:
        assert "(api.max_pages)" in why
    assert sum(each.path.endswith("/pods") for each in asked) <= 5 * LISTS
