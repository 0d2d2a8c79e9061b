from __future__ import annotations

import socket
import threading
from contextlib import ExitStack
from datetime import timedelta
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

import pytest

from actors import kube
from actors.kube.auth import discovery as auth
from actors.kube.http.pod_api import HttpPodApi
from actors.testing import ManualClock, ManualTimers
from tests.unit.kube.scripted import SAFETY, ScriptedServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from actors.kube import Call
    from actors.kube.http.bounds import AnswerBounds

LIMIT = timedelta(seconds=10)
"""Of a client whose limits pass by hand."""


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    """No test leaves a thread of ours behind. Clusters that other tests share have some, too."""
    before = set(threading.enumerate())
    yield
    for thread in our_threads() - before:
        thread.join(SAFETY)
        assert not thread.is_alive(), f"{thread.name} goes on"


def our_threads() -> set[threading.Thread]:
    """Those that this library started and that run."""
    return {thread for thread in threading.enumerate() if thread.name.startswith("executor-pods/")}


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with ScriptedServer() as scripted:
        yield scripted


@pytest.fixture
def deaf() -> Iterator[socket.socket]:
    """A listener whose backlog is full: connecting to it takes for ever."""
    with ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        for _ in range(8):
            filler = stack.enter_context(socket.socket())
            filler.settimeout(0)
            filler.connect_ex(listener.getsockname())
        yield listener


class Client:
    """Connects to the scripted server, and waits for answers."""

    def __init__(self, server: ScriptedServer, folder: Path) -> None:
        self._server = server
        self._folder = folder
        self._made: list[HttpPodApi] = []

    def connect(
        self,
        *,
        limit: timedelta = timedelta(seconds=SAFETY),
        workers: int = 4,
        bounds: AnswerBounds | None = None,
        **user: Any,
    ) -> HttpPodApi:
        """`user` is the kubeconfig's user."""
        path = self._server.kubeconfig(self._folder, **user)
        api = kube.connect(path, namespace="ns", request_timeout=limit, max_connections=workers, bounds=bounds)
        self._made.append(api)
        return api

    def connect_by_hand(self, *, workers: int = 4) -> tuple[HttpPodApi, ManualTimers]:
        """With limits that pass when the test says so."""
        timers = ManualTimers(ManualClock())
        access = auth.load(self._server.kubeconfig(self._folder))
        api = HttpPodApi(access, namespace="ns", request_timeout=LIMIT, max_connections=workers, timers=timers)
        self._made.append(api)
        return api, timers

    def close(self) -> None:
        for api in self._made:
            api.close()


@pytest.fixture
def client(server: ScriptedServer, tmp_path: Path) -> Iterator[Client]:
    made = Client(server, tmp_path)
    yield made
    made.close()


def ask(call: Callable[[Callable[[Any], None]], Call]) -> Any:
    """What a call is answered with."""
    answers: SimpleQueue[Any] = SimpleQueue()
    call(answers.put)
    return answers.get(timeout=SAFETY)
