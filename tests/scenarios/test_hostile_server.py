"""The whole tree over HTTP and a server that misbehaves: the driver hears why, and little is kept meanwhile."""

from __future__ import annotations

import gzip
import tracemalloc
from collections import deque
from contextlib import ExitStack
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

import pytest

from actors import kube
from actors.backend.backend import Backend
from actors.kube.http import pod_api  # noqa: F401 - its import must not count as memory of an answer
from actors.kube.http.bounds import MIB
from actors.messages import BackendFailed
from actors.runtime import Actor, ActorSystem, Context
from actors.settings import Settings
from tests.unit.kube.scripted import SAFETY, ScriptedServer

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.unit.kube.scripted import Peer

    Script = Callable[[Peer], None]

SETTINGS: dict[str, Any] = {"app_id": "app", "executor": {"image": "i"}, "backend": {"start_timeout": "300ms"}}


class Always(deque["Script"]):
    """One script for every request."""

    def __init__(self, script: Script) -> None:
        super().__init__()
        self._script = script

    def popleft(self) -> Script:
        return self._script


class Driver(Actor):
    def __init__(self, context: Context, heard: SimpleQueue[object]) -> None:
        super().__init__(context)
        self._heard = heard

    def receive(self, message: object) -> object:
        self._heard.put(message)
        return None


def failure(folder: Path, script: Script, **settings: Any) -> tuple[str, ScriptedServer]:
    """How the start of a fleet fails on this server."""
    with ExitStack() as stack:
        server = stack.enter_context(ScriptedServer(scripts=Always(script)))
        config = Settings(**{**SETTINGS, **settings})
        api = kube.connect(server.kubeconfig(folder), namespace="ns", bounds=config.api.bounds)
        stack.callback(api.close)
        system = ActorSystem()
        stack.callback(system.close)
        heard: SimpleQueue[object] = SimpleQueue()
        driver = system.spawn(lambda context: Driver(context, heard), name="driver", owner=None)
        Backend.start(config, driver, api, system=system)
        while not isinstance(said := heard.get(timeout=SAFETY), BackendFailed):
            pass
        return str(said.cause), server


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
BOUNDS = {"max_answer_size": "1Mi", "max_header_size": "4Ki", "max_pages": 30}


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
        why, _ = failure(tmp_path, review_or(script), api=BOUNDS)
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

    why, server = failure(tmp_path, review_or(page), api=BOUNDS)
    assert "the list of pods does not end" in why
    if full:
        assert "(api.max_pages)" in why
    assert sum(asked.method == "GET" for asked in server.asked) <= 100
