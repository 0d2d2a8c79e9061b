"""Executors that drain, as processes: whoever ends one, it is gone as soon as it says that nothing of it is needed.

The pause is an hour long here: a test that nothing ends it in would hang.
"""

from __future__ import annotations

import asyncio
import secrets
import socket
import sys
from typing import TYPE_CHECKING, Any, Final

import pytest

from actors import AsyncFleet, ExecutorRemoved, ExecutorTerminating, Fleet
from actors.local.cluster import LocalCluster
from actors.pods.loss import LossKind
from actors.registration.listener import Listener

if TYPE_CHECKING:
    from pathlib import Path

    from actors import LossReason

LIMIT: Final = 60.0
"""Seconds that only a failure waits."""

HOUR: Final = "1h"

PROGRAMS: Final = {
    "it creates the file": """
        trap 'rm "$EXECUTOR_DRAINED_FILE"; exit 7' TERM
        until [ -e {done}$EXECUTOR_ID ]; do sleep 0.05; done
        touch "$EXECUTOR_DRAINED_FILE"
        while :; do sleep 0.05; done""",
    "it ends": "until [ -e {done}$EXECUTOR_ID ]; do sleep 0.05; done; exit 7",
}
"""What an executor does once its driver tells it that it is drained, which the driver does here by a file."""


@pytest.mark.parametrize("program", PROGRAMS)
def test_the_pause_of_a_pod_that_somebody_else_deletes_ends_when(program: str, tmp_path: Path) -> None:
    done = tmp_path / "drained-"
    command = ("sh", "-c", PROGRAMS[program].format(done=done))
    with LocalCluster() as cluster:
        where: Any = {"kubeconfig": cluster.kubeconfig_path, "image": "any", "app_id": "etl"}
        with Fleet(**where, instances=1, command=command, drain_timeout=HOUR) as fleet:
            fleet.wait_for(running=1, timeout="60s")
            events = fleet.events()
            cluster.store.delete("pods", "default", "etl-exec-1")
            while not isinstance(event := events.get("60s"), ExecutorRemoved):
                assert event is not None, "nothing ends the pause"
                if isinstance(event, ExecutorTerminating):
                    assert fleet.drained(1)
                    (tmp_path / "drained-1").touch()
            loss = event.reason
            assert (event.executor_id, loss.kind, loss.exit_code) == (1, LossKind.DELETED, 7)
            assert not loss.caused_by_app


@pytest.mark.parametrize("how", ["delete", "retire", "kill", "scale down"])
def test_an_executor_that_is_told_to_stop_through_its_connection_is_gone_at_once(how: str, tmp_path: Path) -> None:
    worker = tmp_path / "worker.py"
    worker.write_text("import sys\nfrom actors.registration.executor import run\nsys.exit(run(abs))\n")
    with LocalCluster() as cluster:
        reason = asyncio.run(asyncio.wait_for(end_one(cluster, worker, how), LIMIT))
    assert reason.kind is (LossKind.DELETED if how == "delete" else LossKind.KILLED_BY_DRIVER)
    assert not reason.caused_by_app


async def end_one(cluster: LocalCluster, worker: Path, how: str) -> LossReason:
    """Run a driver whose executor is ended; it is told to stop once it is terminating."""
    token, connected = secrets.token_urlsafe(), asyncio.Queue[Any]()
    sock = socket.create_server(("127.0.0.1", 0))
    listener = Listener(token, tell=connected.put_nowait)
    where: Any = {"kubeconfig": cluster.kubeconfig_path, "image": "any", "app_id": "etl"}
    where |= {"driver_address": f"127.0.0.1:{sock.getsockname()[1]}", "env": {"DRIVER_TOKEN": token}}
    executor: Any = {"command": (sys.executable, str(worker)), "drain_timeout": HOUR, "kill_grace_period": HOUR}
    async with AsyncFleet(**where, **executor, instances=1) as fleet:
        events = fleet.events()
        await listener.serve(fleet, sock)
        try:
            connection = (await connected.get()).connection
            match how:
                case "delete":
                    cluster.store.delete("pods", "default", "etl-exec-1")
                case "retire":
                    await fleet.retire(1)
                case "kill":
                    await fleet.kill(1)
                case _:
                    await fleet.scale(0)
            async for event in events:
                if isinstance(event, ExecutorTerminating):
                    connection.stop()
                if isinstance(event, ExecutorRemoved):
                    return event.reason
        finally:
            await listener.close()
    raise AssertionError("the fleet ended before its executor")
