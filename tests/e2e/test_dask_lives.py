"""Dask clusters that end, in order or by Ctrl-C, leave nothing.

One more in the default suite: tests/e2e/test_dask.py.
"""

from __future__ import annotations

import asyncio
import os
import pty
import select
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import pytest

pytest.importorskip("distributed")

from distributed import Client

from tests.e2e.dask_clusters import LIMIT, SLEEPER, busy, cluster_of, until
from tests.e2e.leftovers import environment, kept, left, opened, running

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LIVES: Final = 100
"""With threads, and as many with asyncio."""

STUBBORN: Final = ("sh", "-c", "trap '' TERM; sleep 1000 & wait; wait")
"""As `SLEEPER`; it ends by SIGKILL only."""


@pytest.mark.stress
def test_a_hundred_clusters_of_a_program_with_threads_leave_nothing(folder: Path) -> None:
    def life(number: int) -> None:
        with cluster_of(number % 2, drain_timeout=0) as cluster:
            if number % 2:
                with cluster.get_client() as client:  # whose end cancels the task, which computes on
                    _task = client.submit(time.sleep, 1000)
                    cluster.sync(until, lambda: busy(cluster))

    for number in (0, 1):  # what is loaded once
        life(number)
    threads, files = running(), opened()
    for number in range(LIVES):
        life(number)
        assert kept(threads) == set(), f"after {number} lives"
        assert opened() - files == set(), f"after {number} lives"
        assert left(folder) == [], f"after {number} lives"


@pytest.mark.stress
def test_a_hundred_clusters_of_one_event_loop_leave_nothing(folder: Path) -> None:
    async def life(number: int) -> None:
        async with cluster_of(number % 2, drain_timeout=0, asynchronous=True) as cluster:
            if number % 2:
                async with Client(cluster, asynchronous=True) as client:
                    _task = client.submit(time.sleep, 1000)
                    await until(lambda: busy(cluster))

    async def program() -> None:
        for number in (0, 1):
            await life(number)
        threads, files, tasks = running(), opened(), asyncio.all_tasks()
        for number in range(LIVES):
            await life(number)
            assert kept(threads) == set(), f"after {number} lives"
            assert opened() - files == set(), f"after {number} lives"
            assert asyncio.all_tasks() - tasks == set(), f"after {number} lives"
            assert left(folder) == [], f"after {number} lives"

    asyncio.run(program())


FORKED: Final = """
import os, sys
from actors.dask import PodCluster

if __name__ == "__main__":
    with PodCluster(1, local=True, dashboard_address=None, security=True) as cluster:
        cluster.wait_for_workers(1, timeout="1m")
        child = os.fork()
        if child == 0:
            calls = [
                lambda: cluster.scale(2),
                lambda: cluster.scale_down([1]),
                lambda: cluster.adapt(maximum=2),
                lambda: cluster.wait_for_workers(1),
                cluster.fleet_status,
                cluster.get_logs,
            ]
            refused = 0
            for call in calls:
                try:
                    call()
                except RuntimeError as error:
                    refused += "a process that was forked cannot use it" in str(error)
            sys.exit(refused)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 6
        cluster.scale(2)
        cluster.wait_for_workers(2, timeout="1m")  # which need the files of the certificates
"""


def test_a_forked_child_is_refused_in_words_and_its_end_leaves_the_cluster_alone(tmp_path: Path) -> None:
    pytest.importorskip("cryptography")
    done = subprocess.run(
        [sys.executable, "-c", FORKED],
        capture_output=True,
        text=True,
        timeout=LIMIT,
        env=environment(tmp_path),
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert left(tmp_path) == []


class Session:
    """An interactive Python in a terminal, as a person or a notebook has it."""

    def __init__(self, folder: Path) -> None:
        self._terminal, end = pty.openpty()
        self._python = subprocess.Popen(
            [sys.executable, "-iq"],
            stdin=end,
            stdout=end,
            stderr=end,
            start_new_session=True,
            env=environment(folder) | {"TERM": "dumb", "PYTHON_BASIC_REPL": "1"},
        )
        os.close(end)
        self.said = ""

    def enter(self, *lines: str) -> None:
        """Type lines. A print of `ready` is a line that `until_printed` finds."""
        for line in lines:
            os.write(self._terminal, f"{line}\n".encode())

    def until_printed(self, text: str) -> None:
        """Wait until this was printed. What was typed is printed, too: type `'o' 'k'`, and wait for `ok`."""
        while text not in self.said:
            self.said += self._read()
        self.said = self.said[self.said.index(text) + len(text) :]

    def interrupt(self) -> None:
        """Press Ctrl-C: a terminal sends it to all processes in its foreground."""
        os.killpg(self._python.pid, signal.SIGINT)

    def end(self) -> int:
        """Leave, and wait for the end of the session. A Ctrl-D is lost while no prompt is there."""
        self.enter("exit()")
        try:
            while True:
                self.said += self._read()
        except OSError:  # the terminal's other end is closed
            return self._python.wait(LIMIT)

    def close(self) -> None:
        self._python.kill()
        self._python.wait()
        os.close(self._terminal)

    def _read(self) -> str:
        ready, _, _ = select.select([self._terminal], [], [], LIMIT)
        assert ready, f"the session says nothing more and does not end, after: {self.said[-500:]}"
        return os.read(self._terminal, 4096).decode(errors="replace")


@contextmanager
def session(folder: Path) -> Iterator[Session]:
    """A session that has loaded what it needs."""
    session = Session(folder)
    try:
        session.enter("import time", "from actors.dask import PodCluster")
        session.enter("how = {'local': True, 'dashboard_address': None}", "print('load' 'ed')")
        session.until_printed("loaded")
        yield session
    finally:
        session.close()


def still_works(session: Session) -> None:
    """After a Ctrl-C, a session goes on."""
    session.until_printed("KeyboardInterrupt")
    session.enter("print('go' 'es on')")
    session.until_printed("goes on")


@pytest.mark.stress
def test_ctrl_c_while_a_cluster_opens_leaves_nothing(tmp_path: Path) -> None:
    with session(tmp_path) as terminal:
        terminal.enter("print('open' 'ing'); cluster = PodCluster(1, **how)")
        terminal.until_printed("opening")
        terminal.interrupt()
        still_works(terminal)
        assert terminal.end() == 0
    assert left(tmp_path) == []


@pytest.mark.stress
def test_ctrl_c_while_workers_are_waited_for_leaves_nothing(tmp_path: Path) -> None:
    with session(tmp_path) as terminal:
        terminal.enter(f"cluster = PodCluster(1, worker_command={SLEEPER}, **how)")
        terminal.enter("print('wait' 'ing'); cluster.wait_for_workers(1)")
        terminal.until_printed("waiting")
        terminal.interrupt()
        still_works(terminal)
        assert terminal.end() == 0
    assert left(tmp_path) == []


@pytest.mark.stress
def test_ctrl_c_while_workers_compute_leaves_nothing(tmp_path: Path) -> None:
    with session(tmp_path) as terminal:
        terminal.enter("cluster = PodCluster(1, **how)", "client = cluster.get_client()")
        terminal.enter(
            "client.submit(int, 1).result(); print('comput' 'ing'); client.submit(time.sleep, 1000).result()"
        )
        terminal.until_printed("computing")
        terminal.interrupt()
        still_works(terminal)
        terminal.enter("print(client.submit(len, 'abc').key)")
        assert terminal.end() == 0
    assert left(tmp_path) == []


@pytest.mark.stress
def test_ctrl_c_while_a_cluster_closes_leaves_nothing(tmp_path: Path) -> None:
    with session(tmp_path) as terminal:
        terminal.enter(f"cluster = PodCluster(1, worker_command={STUBBORN}, **how)")
        terminal.enter("while not any(e['action'] == 'running' for _, e in cluster.events()): time.sleep(0.01)", "")
        terminal.enter("print('clos' 'ing'); cluster.close()")
        terminal.until_printed("closing")
        terminal.interrupt()
        still_works(terminal)
        assert terminal.end() == 0
    assert left(tmp_path) == []
