"""A driver that is stopped (SIGSTOP) while it creates, and goes on when the Lease is another's: nothing is written.

Its process is real, and so are its threads and sockets. The server runs here, and counts what arrives.
"""

from __future__ import annotations

import asyncio
import signal
import threading
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final, Self

import pytest
from aiohttp import web

from actors.lease.record import lease_name
from actors.local.server.api_server import ApiServer
from actors.local.server.credentials import new_credentials, write_kubeconfig
from actors.local.store.object_store import ObjectStore
from actors.runtime import Entropy, SystemClock
from tests.stress.real import until
from tests.stress.restarts import Program
from tests.unit.local.server_kit import Logs

if TYPE_CHECKING:
    from pathlib import Path

    from aiohttp.typedefs import Handler

pytestmark = pytest.mark.stress

APP_ID: Final = "app"
EXECUTORS: Final = 800
LEASE_SECONDS: Final = 3
LEASE: Final = f'lease_duration = "{LEASE_SECONDS}s"\nrequest_timeout = "2s"'
ANSWER_SECONDS: Final = 0.02
"""So that as many POSTs as may be are under way when the process is stopped."""


class Server:
    """Answers slowly, and counts writes of pods and reads of the Lease. To be used in a `with`."""

    def __init__(self, folder: Path) -> None:
        self.store = ObjectStore(SystemClock(), Entropy(0))
        self.writes = 0
        self.looks = 0
        self.kubeconfig = folder / "kubeconfig"
        self._undo = ExitStack()

    def __enter__(self) -> Self:
        credentials, clock = new_credentials(), SystemClock()
        server = ApiServer(self.store, Logs(), credentials, clock, Entropy(0), middlewares=(self._count,))
        server.start()
        self._undo.callback(server.stop)
        write_kubeconfig(self.kubeconfig, server.url, credentials, "default")
        return self

    def __exit__(self, *_: object) -> None:
        self._undo.close()

    @web.middleware
    async def _count(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        self.writes += "/pods" in request.path and request.method != "GET"
        self.looks += "/leases/" in request.path and request.method == "GET"
        if request.method == "POST":
            await asyncio.sleep(ANSWER_SECONDS)
        return await handler(request)

    def give_lease_away(self) -> None:
        """Another driver acquires it."""
        spec = {"holderIdentity": "another", "leaseDurationSeconds": 60}
        self.store.patch("leases", "default", lease_name(APP_ID), {"spec": spec}, "merge")


@pytest.mark.parametrize("when", range(10))
def test_a_driver_that_was_stopped_writes_nothing_after_its_lease_was_taken(tmp_path: Path, when: int) -> None:
    config = tmp_path / "driver.toml"
    config.write_text(f'app_id = "{APP_ID}"\n[backend]\n{LEASE}\n', encoding="utf-8")
    with Server(tmp_path) as server:
        cluster = ("--kubeconfig", str(server.kubeconfig), "--config", str(config), "--output", "json")
        driver = Program(tmp_path / "driver", "run", *cluster, "--executors", str(EXECUTORS), "--image", "none")
        try:
            driver.until(lambda: server.writes > 50 + 7 * when, "it creates")
            driver.process.send_signal(signal.SIGSTOP)
            threading.Event().wait(LEASE_SECONDS + 1)
            server.give_lease_away()
            before, looked = server.writes, server.looks
            assert before < EXECUTORS, "it was stopped too late"
            driver.process.send_signal(signal.SIGCONT)
            until(lambda: server.looks >= looked + 3, "it looks at the Lease again and again")
            assert server.writes == before, f"{server.writes - before} writes after waking"
        finally:
            driver.process.send_signal(signal.SIGCONT)
            driver.kill()
