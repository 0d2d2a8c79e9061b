"""Drivers and executors as processes: the entrypoints of the images, SIGTERM, TLS."""

from __future__ import annotations

import asyncio
import json
import os
import re
import secrets
import signal
import socket
import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Final

import pytest

import actors
from actors import Fleet
from actors.local.cluster import LocalCluster
from actors.registration import door, executor, listener
from actors.registration.executor import End, Executor
from actors.registration.listener import Answered, Connected, Disconnected, Listener, ListenerThread
from tests.docs.pages import ROOT, blocks, read
from tests.realcluster.dockerfile import Dockerfile
from tests.stress.test_registration import Everybody
from tests.unit.kube.certificates import Authority

if TYPE_CHECKING:
    from collections.abc import Iterator

    from actors.registration.listener import Event

PAGE: Final = "docs/how-to/find-the-driver.md"
IMAGES: Final = ("driver", "executor")
SAFETY_SECONDS: Final = 60.0
"""What hangs ends the test after this; no test waits for it."""

BLOCKING_WORKER: Final = """
import sys
from actors.registration.executor import run

def wait(pipes):
    open(pipes[0], "w").close()
    return open(pipes[1]).read()

sys.exit(run(wait))
"""
"""Opens one pipe when it begins and reads the other one: a test says when it has begun and when it may end."""


@pytest.mark.parametrize("name", IMAGES)
def test_an_image_is_small_and_its_user_is_not_root(name: str) -> None:
    image = Dockerfile.of(name)
    words = {"FROM", "RUN", "COPY", "ENV", "WORKDIR", "USER", "ENTRYPOINT"}
    assert {word for word, _ in image.instructions} <= words
    assert {rest.split()[0] for word, rest in image.instructions if word == "FROM"} == {"python:3.12-slim"}
    for word, rest in image.instructions:
        if word in {"RUN", "ENTRYPOINT"}:
            assert all(isinstance(each, str) for each in json.loads(rest)), "a shell would not pass SIGTERM on"
        if word == "RUN":
            assert not re.search(r"apt|apk|gcc|build-essential|curl|wget", rest)
        if word == "RUN" and "install" in rest:
            assert "--only-binary=:all:" in rest
            assert re.search(r'"executor-pods(\[[a-z,]+\])?"\]$', rest)
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", image.last_stage()["USER"])
    assert [word for word, _ in image.instructions][-2:] == ["USER", "ENTRYPOINT"]


@pytest.mark.parametrize("name", IMAGES)
def test_a_dockerfile_is_explained_and_copies_what_the_page_has(name: str) -> None:
    assert f"config/{name}.Dockerfile" in read(PAGE)
    files = {block.file for block in blocks(PAGE)}
    assert Dockerfile.of(name).program() in files


def test_the_entrypoint_of_the_executor_needs_nothing_but_the_package_and_answers_before_it_ends(
    tmp_path: Path,
) -> None:
    (tmp_path / "worker.py").write_text(BLOCKING_WORKER, encoding="utf-8")
    began, go = tmp_path / "began", tmp_path / "go"
    for pipe in (began, go):
        os.mkfifo(pipe)
    with listening() as (told, env), process(Dockerfile.of("executor").entrypoint(), tmp_path, env, "-S") as worker:
        connected = told.get(timeout=SAFETY_SECONDS)
        assert isinstance(connected, Connected)
        connected.connection.send(1, [str(began), str(go)])
        connected.connection.send(2, "not begun")
        began.open().close()
        worker.send_signal(signal.SIGTERM)
        with go.open("w") as writing:
            writing.write("finished")
        assert worker.wait() == End.STOPPED
        assert told.get(timeout=SAFETY_SECONDS) == Answered(connected.connection, 1, "finished")
        assert told.get(timeout=SAFETY_SECONDS) == Disconnected(connected.connection)


@pytest.mark.parametrize(
    ("program", "number", "code"),
    [
        ("driver.py", signal.SIGTERM, 128 + signal.SIGTERM),
        ("driver.py", signal.SIGINT, -signal.SIGINT),
        ("async_driver.py", signal.SIGTERM, 1),
        ("actor_driver.py", signal.SIGTERM, 0),
        ("actor_driver.py", signal.SIGINT, 0),
    ],
)
def test_each_driver_of_the_page_stops_its_fleet_at_sigterm_and_at_ctrl_c(
    program: str, number: int, code: int, tmp_path: Path
) -> None:
    (text,) = [block.text for block in blocks(PAGE) if block.file == program]
    (tmp_path / "driver.py").write_text(text, encoding="utf-8")
    pipe = tmp_path / "runs"
    os.mkfifo(pipe)
    (tmp_path / "worker.py").write_text(f"open({str(pipe)!r}, 'w').close()\nimport signal\nsignal.pause()")
    with LocalCluster() as cluster:
        env = {"KUBECONFIG": str(cluster.kubeconfig_path)}
        with process([*Dockerfile.of("driver").entrypoint(), "worker.py"], tmp_path, env) as driver:
            pipe.open().close()
            driver.send_signal(number)
            assert driver.wait() == code
        assert cluster.store.list("pods", "default").items == []


def test_executors_of_a_fleet_for_threads_connect_and_work(tmp_path: Path) -> None:
    (tmp_path / "worker.py").write_text(
        "import sys\nfrom actors.registration.executor import run\nsys.exit(run(abs))\n"
    )
    told: SimpleQueue[Event] = SimpleQueue()
    sock, token = socket.create_server(("127.0.0.1", 0)), secrets.token_urlsafe()
    with (
        Fleet(
            local=True,
            instances=1,
            driver_address=f"127.0.0.1:{sock.getsockname()[1]}",
            command=[sys.executable, str(tmp_path / "worker.py")],
            env={"DRIVER_TOKEN": token, "PYTHONPATH": str(ROOT)},
        ) as fleet,
        ListenerThread(Listener(token, told.put), fleet, sock),
    ):
        connected = told.get(timeout=SAFETY_SECONDS)
        assert isinstance(connected, Connected)
        fleet.wait_for(registered=1, timeout="60s")
        connected.connection.send(1, -7)
        assert told.get(timeout=SAFETY_SECONDS) == Answered(connected.connection, 1, 7)


def test_a_crash_of_the_function_is_the_exit_of_the_executor(tmp_path: Path) -> None:
    (tmp_path / "worker.py").write_text(
        "import sys\nfrom actors.registration.executor import run\nrun(lambda work: sys.exit(work))"
    )
    with listening() as (told, env), process(["python", "worker.py"], tmp_path, env) as worker:
        connected = told.get(timeout=SAFETY_SECONDS)
        assert isinstance(connected, Connected)
        connected.connection.send(1, 7)
        assert worker.wait() == 7
        assert told.get(timeout=SAFETY_SECONDS) == Disconnected(connected.connection)


def test_with_tls_an_executor_talks_to_the_driver_that_its_ca_knows_and_to_no_other(tmp_path: Path) -> None:
    authority, stranger = Authority("ours"), Authority("another")
    (tmp_path / "ca.crt").write_bytes(authority.pem)
    (tmp_path / "another.crt").write_bytes(stranger.pem)

    async def main(env: dict[str, str], told: SimpleQueue[Event]) -> None:
        false = Executor(square, env | {"DRIVER_CA": str(tmp_path / "another.crt")})
        refused = asyncio.ensure_future(false.run())
        true = Executor(square, env | {"DRIVER_CA": str(tmp_path / "ca.crt")})
        running = asyncio.ensure_future(true.run())
        connected = await asyncio.to_thread(told.get)
        connected.connection.send(1, 7)
        connected.connection.stop()
        assert await running is End.STOPPED
        assert await asyncio.to_thread(told.get) == Answered(connected.connection, 1, 49)
        false.stop()
        assert await refused is End.STOPPED

    with listening(authority.server(tmp_path)) as (told, env):
        asyncio.run(main(env, told))


def test_the_numbers_on_the_page_are_those_of_the_modules() -> None:
    rows = re.findall(r"^\| `([A-Z_]+)` \| ([^|]+) \|", read(PAGE), re.MULTILINE)
    assert {name: _shown(name) for name, _ in rows} == dict(rows)
    public = {name for module in (listener, executor, door) for name in vars(module) if name.isupper()}
    assert public - {name for name, _ in rows} == {"BEAT", "HIGHEST_ID", "STRANGERS_SHARE", "TYPE_CHECKING"}


def _shown(name: str) -> str:
    value: Any = getattr(listener, name, None) or getattr(executor, name, None) or getattr(door, name)
    match value:
        case (low, high):
            return f"{low:g} to {high:g} s"
        case float():
            return f"{value:g} s"
        case int() if value % 2**20 == 0:
            return f"{value // 2**20} MiB"
        case int() if value % 2**10 == 0:
            return f"{value // 2**10} KiB"
        case _:
            return f"{value:,}"


async def square(work: int) -> int:
    return work**2


@contextmanager
def listening(tls: Any = None) -> Iterator[tuple[SimpleQueue[Event], dict[str, str]]]:
    """A listener, what it tells, and the environment of its executor."""
    told: SimpleQueue[Event] = SimpleQueue()
    token = secrets.token_urlsafe()
    sock = socket.create_server(("127.0.0.1", 0))
    env = {"DRIVER_ADDRESS": f"127.0.0.1:{sock.getsockname()[1]}", "DRIVER_TOKEN": token, "EXECUTOR_ID": "3"}
    with ListenerThread(Listener(token, told.put), Everybody(), sock, tls):
        yield told, env


@contextmanager
def process(command: list[str], folder: Path, env: dict[str, str], *options: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run the command; `python` is ours, with these options."""
    assert command[0] == "python"
    everything = os.environ | {"PYTHONPATH": str(Path(actors.__file__).parents[1])} | env
    with subprocess.Popen([sys.executable, *options, *command[1:]], cwd=folder, env=everything) as started:
        safety = threading.Timer(SAFETY_SECONDS, started.kill)
        safety.start()
        try:
            yield started
        finally:
            safety.cancel()
            started.kill()
