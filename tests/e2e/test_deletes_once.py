"""Whoever ends many executors at once sends one DELETE for each pod, as a server of HTTP counts them."""

from __future__ import annotations

import threading
from collections import Counter
from contextlib import ExitStack
from datetime import timedelta
from typing import TYPE_CHECKING, Final, Self

import pytest
from aiohttp import web

from actors import ExecutorRemoved, Fleet
from actors.local.kubelet.scripted_kubelet import Run, ScriptedKubelet
from actors.local.server.api_server import ApiServer
from actors.local.server.credentials import new_credentials, write_kubeconfig
from actors.local.store.object_store import ObjectStore
from actors.pods.ids import id_in_name
from actors.runtime import Entropy, SystemClock, TimerThread
from tests.unit.local.server_kit import Logs

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from aiohttp.typedefs import Handler

EXECUTORS: Final = 40
SECONDS: Final = 30.0
LIMIT: Final = timedelta(seconds=SECONDS)


class Server:
    """Counts the DELETEs of each executor's pod; a bulk delete is one of each that it names. To be used in a `with`."""

    def __init__(self, folder: Path) -> None:
        self.deletes: Counter[int] = Counter()
        self.requests = 0
        """DELETEs of pods."""
        self.kubeconfig = folder / "kubeconfig"
        self._undo = ExitStack()

    def __enter__(self) -> Self:
        credentials, clock = new_credentials(), SystemClock()
        store, timers = ObjectStore(clock, Entropy(0)), TimerThread(clock)
        self._undo.callback(timers.close)
        slowly = Run(stop_delay=timedelta(milliseconds=300))
        kubelet = ScriptedKubelet(store, clock, timers, script=lambda _: slowly)
        self._undo.callback(kubelet.close)
        server = ApiServer(store, Logs(), credentials, clock, Entropy(0), middlewares=(self._count,))
        server.start()
        self._undo.callback(server.stop)
        write_kubeconfig(self.kubeconfig, server.url, credentials, "default")
        return self

    def __exit__(self, *_: object) -> None:
        self._undo.close()

    @web.middleware
    async def _count(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.method == "DELETE" and "/pods" in request.path:
            self.requests += 1
            named = request.query.get("labelSelector", "").partition("executor-id in (")[2].rstrip(")")
            ids = map(int, named.split(",")) if named else [id_in_name(request.path) or 0]
            self.deletes.update(ids)
        return await handler(request)


def kill(fleet: Fleet) -> None:
    fleet.kill(fleet.executors, grace="0s", replace=False)


def kill_later(fleet: Fleet) -> None:
    fleet.kill(fleet.executors, grace="200ms", replace=False)


def retire(fleet: Fleet) -> None:
    fleet.retire(fleet.executors, deadline="200ms", replace=False)


def hold(fleet: Fleet) -> None:
    fleet.hold(deadline="200ms")


def scale(fleet: Fleet) -> None:
    fleet.scale(0, grace="200ms")


@pytest.mark.parametrize("end", [kill, kill_later, retire, hold, scale])
def test_each_pod_of_many_that_are_ended_at_once_is_deleted_by_one_request(
    tmp_path: Path, end: Callable[[Fleet], None]
) -> None:
    removed: set[int] = set()
    all_gone = threading.Event()

    def note(event: object) -> None:
        if isinstance(event, ExecutorRemoved):
            removed.add(event.executor_id)
            if len(removed) == EXECUTORS:
                all_gone.set()

    with Server(tmp_path) as server:
        with Fleet(kubeconfig=server.kubeconfig, image="any", instances=EXECUTORS, on_event=note) as fleet:
            fleet.wait_for(running=EXECUTORS, timeout=LIMIT)
            ids = set(fleet.executors)
            end(fleet)
            assert all_gone.wait(SECONDS)
        assert server.deletes == dict.fromkeys(ids, 1)


def test_a_stop_deletes_each_pod_by_one_request_and_a_hundred_by_the_same(tmp_path: Path) -> None:
    with Server(tmp_path) as server:
        with Fleet(kubeconfig=server.kubeconfig, image="any", instances=EXECUTORS) as fleet:
            fleet.wait_for(running=EXECUTORS, timeout=LIMIT)
            ids = set(fleet.executors)
        assert server.deletes == dict.fromkeys(ids, 1)
        assert server.requests == 1
