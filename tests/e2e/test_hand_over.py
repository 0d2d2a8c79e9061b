"""Drivers that follow each other, as processes on one embedded cluster: SIGTERM hands the executors over."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from actors.local.cluster import LocalCluster
from tests.e2e.leftovers import environment

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LIMIT = 60.0
"""Seconds that only a failure meets."""

COMMAND = ("-m", "actors", "run", "--config", "fleet.toml", "--output", "json")

CONFIG = """
app_id = "etl"

[executor]
instances = 2
image = "any"
command = ["sh", "-c", "trap 'exit 0' TERM; sleep 600 & wait"]

[backend]
on_sigterm = "hand-over"
"""

PROGRAM = """
from actors import Fleet

with Fleet("fleet.toml") as fleet:
    fleet.wait_for(running=2, timeout="1m")
    print(*fleet.executors, flush=True)
    for event in fleet.events():
        pass
"""

ASYNC_PROGRAM = """
import asyncio

from actors import AsyncFleet


async def main():
    async with AsyncFleet("fleet.toml") as fleet:
        await fleet.wait_for(running=2, timeout="1m")
        print(*fleet.executors, flush=True)
        await asyncio.Event().wait()


asyncio.run(main())
"""

SERVICE = """
from actors import AsyncFleet
from aiohttp import web


async def keep_fleet(app):
    async with AsyncFleet("fleet.toml") as fleet:
        await fleet.wait_for(running=2, timeout="1m")
        print(*fleet.executors, flush=True)
        yield


app = web.Application()
app.cleanup_ctx.append(keep_fleet)
web.run_app(app, host="127.0.0.1", port=0, print=None)
"""


class Site:
    """The cluster, and a folder from which drivers start."""

    def __init__(self, cluster: LocalCluster, folder: Path) -> None:
        self.cluster = cluster
        self._folder = folder
        self._begun: list[subprocess.Popen[str]] = []
        (folder / "fleet.toml").write_text(CONFIG)

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        env = environment(self._folder) | {"KUBECONFIG": str(self.cluster.kubeconfig_path)}
        driver = subprocess.Popen(
            [sys.executable, *arguments],
            cwd=self._folder,
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._begun.append(driver)
        return driver

    def run_command(self) -> subprocess.Popen[str]:
        """`executor-pods run`, once both executors run."""
        driver = self.start(*COMMAND)
        until(driver, "running")
        until(driver, "running")
        return driver

    def executors(self) -> dict[str, str]:
        """Name → UID of those that live."""
        found = self.cluster.store.list("pods", "default", label_selector="executor-pods/app-id=etl").items
        living = (pod["metadata"] for pod in found if "deletionTimestamp" not in pod["metadata"])
        return {metadata["name"]: metadata["uid"] for metadata in living}

    def end(self) -> None:
        for driver in self._begun:
            driver.kill()
            driver.communicate()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with LocalCluster() as cluster:
        made = Site(cluster, tmp_path)
        yield made
        made.end()


def until(driver: subprocess.Popen[str], kind: str) -> dict[str, Any]:
    assert driver.stdout is not None
    for line in driver.stdout:
        event: dict[str, Any] = json.loads(line)
        if event["event"] == kind:
            return event
    raise AssertionError(f"no {kind}: {driver.communicate()[1]}")


def ends(driver: subprocess.Popen[str], number: signal.Signals = signal.SIGTERM) -> tuple[int, str]:
    """Its exit code after a signal, and what it said after that."""
    driver.send_signal(number)
    out, errors = driver.communicate(timeout=LIMIT)
    return driver.returncode, out + errors


def test_the_next_command_goes_on_with_the_executors_of_the_one_that_sigterm_ended(site: Site) -> None:
    first = site.run_command()
    before = site.executors()
    code, said = ends(first)
    assert code == 143
    events = [json.loads(line) for line in said.splitlines()]
    assert [(event["event"], event["reason"]) for event in events] == [
        ("stopping", "SIGTERM received, handing over"),
        ("stopped", "SIGTERM received, handing over"),
    ]
    assert site.executors() == before
    second = site.run_command()
    assert site.executors() == before
    assert ends(second, signal.SIGINT)[0] == 130
    assert site.executors() == {}, "Ctrl-C is a stop"


def test_a_standby_driver_goes_on_when_the_holder_hands_over(site: Site) -> None:
    first = site.run_command()
    before = site.executors()
    second = site.start(*COMMAND)
    assert until(second, "blocked")["blocked_by"] == "lease"
    assert ends(first)[0] == 143
    until(second, "unblocked")
    assert site.executors() == before
    assert ends(second)[0] == 143


@pytest.mark.parametrize("program", [PROGRAM, ASYNC_PROGRAM], ids=["threads", "asyncio"])
def test_a_program_without_a_handler_hands_over_and_exits_with_143(site: Site, program: str) -> None:
    first = site.start("-c", program)
    assert first.stdout is not None
    assert first.stdout.readline() == "1 2\n"
    before = site.executors()
    code, said = ends(first)
    assert (code, said.strip()) == (143, "")
    assert site.executors() == before
    second = site.start("-c", program)
    assert second.stdout is not None
    assert second.stdout.readline() == "1 2\n"
    assert site.executors() == before
    assert ends(second, signal.SIGINT)[0] != 143
    assert site.executors() == {}


def test_a_program_whose_framework_handles_sigterm_hands_over_and_ends_as_that_wants(site: Site) -> None:
    service = site.start("-c", SERVICE)
    assert service.stdout is not None
    assert service.stdout.readline() == "1 2\n"
    before = site.executors()
    assert ends(service) == (0, "")
    assert site.executors() == before


def test_a_command_with_a_cluster_of_its_own_stops(site: Site) -> None:
    driver = site.start(*COMMAND, "--local")
    until(driver, "running")
    code, said = ends(driver)
    assert code == 0, said
    assert '"reason": "SIGTERM received"' in said
