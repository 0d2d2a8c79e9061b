"""The README's first program, as a user runs it: whatever is wrong, it says so in a sentence and ends in time."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

import actors
from actors.backend.rbac import Right
from actors.kube.api import PODS
from actors.local.cluster import LocalCluster
from tests.contract.accounts import open_account
from tests.docs.pages import blocks

if TYPE_CHECKING:
    from tests.contract.control_plane import ControlPlane

PROGRAM: Final = next(block.text for block in blocks("README.md") if block.kind == "python")
LIMIT: Final = 60.0
"""Seconds after which a program counts as hanging: many times what the slowest one takes on a busy machine."""

STOP_TIMEOUT: Final = 30.0
"""Seconds that a stop may take by default."""

ASYNC_PROGRAM: Final = """
import asyncio
from actors import AsyncFleet

async def main():
    async with AsyncFleet(image="registry.example/worker:1.4", instances=3) as fleet:
        await fleet.wait_for(running=3, timeout="5m")
        async for event in fleet.events():
            print(event, flush=True)

asyncio.run(main())
"""


def start(directory: Path, program: str, *, kubeconfig: Path | None, **settings: str) -> subprocess.Popen[str]:
    file = directory / "program.py"
    file.write_text(program, encoding="utf-8")
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("KUBE", "EXECUTOR_PODS_"))}
    env = clean | {"HOME": str(directory), "PYTHONPATH": str(Path(actors.__file__).parents[1])}
    if kubeconfig is not None:
        env["KUBECONFIG"] = str(kubeconfig)
    env |= {f"EXECUTOR_PODS_{name.upper()}": value for name, value in settings.items()}
    return subprocess.Popen(
        [sys.executable, str(file)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env
    )


def ends(program: subprocess.Popen[str]) -> tuple[int, str]:
    """The exit code, and the last line of stderr."""
    try:
        _, errors = program.communicate(timeout=LIMIT)
    except subprocess.TimeoutExpired:
        program.kill()
        raise AssertionError(f"it hangs: {program.communicate()}") from None
    lines = [line for line in errors.strip().splitlines() if not line.startswith("sys:1: ")]  # Python's own last words
    return program.returncode, lines[-1] if lines else ""


NEVER_LEFT: Final = """
import os, sys
from actors import Fleet

fleet = Fleet(image="registry.example/worker:1.4", instances=1)
fleet.start()
fleet.wait_for(running=1, timeout="1m")
child = os.fork()
if child == 0:
    try:
        fleet.scale(2)
    except RuntimeError:
        sys.exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
assert fleet.status().profiles["default"].target == 1
raise KeyError("of the program")
"""

FORKED_LOCAL: Final = """
import os, sys
from actors import Fleet

if __name__ == "__main__":
    ends_at_once = {"template_patch": {"spec": {"shareProcessNamespace": True}}}
    with Fleet(local=True, instances=1, executor=ends_at_once) as fleet:
        fleet.wait_for(running=1, timeout="1m")
        child = os.fork()
        if child == 0:
            sys.exit(0)
        os.waitpid(child, 0)
        fleet.scale(2)
        fleet.wait_for(running=2, timeout="20s")
"""

PROGRAMS = pytest.mark.parametrize("program", [PROGRAM, ASYNC_PROGRAM], ids=["threads", "asyncio"])


def test_without_a_kubeconfig(tmp_path: Path) -> None:
    code, last = ends(start(tmp_path, PROGRAM, kubeconfig=None))
    assert code == 1
    assert last.startswith("actors.errors.SettingsError: ")
    assert "kubeconfig" in last


def test_with_an_api_that_is_away(tmp_path: Path) -> None:
    with LocalCluster(kubeconfig=tmp_path / "kubeconfig") as cluster:
        text = cluster.kubeconfig_path.read_text(encoding="utf-8")
    kubeconfig = tmp_path / "of-a-cluster-that-is-gone"
    kubeconfig.write_text(text, encoding="utf-8")
    began = time.monotonic()
    code, last = ends(start(tmp_path, PROGRAM, kubeconfig=kubeconfig, backend__start_timeout="2s"))
    assert code == 1
    assert last.startswith("actors.errors.Unavailable: ")
    assert "127.0.0.1" in last
    assert time.monotonic() - began < LIMIT / 2


def test_on_a_real_server_without_a_right(tmp_path: Path, plane: ControlPlane) -> None:
    namespace = f"program-{uuid.uuid4().hex[:10]}"
    plane.request("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
    kubeconfig = open_account(plane, namespace, without=Right("create", PODS))
    code, last = ends(start(tmp_path, PROGRAM, kubeconfig=kubeconfig))
    assert code == 1
    assert last.startswith("actors.errors.Forbidden: ")
    assert "create" in last
    assert "pods" in last
    assert namespace in last


def test_on_a_real_server_without_the_namespace(tmp_path: Path, plane: ControlPlane) -> None:
    code, last = ends(start(tmp_path, PROGRAM, kubeconfig=plane.kubeconfig, namespace="nowhere"))
    assert code == 1
    assert "nowhere" in last


def test_with_a_namespace_that_is_not_there(tmp_path: Path) -> None:
    with LocalCluster() as cluster:
        code, last = ends(start(tmp_path, PROGRAM, kubeconfig=cluster.kubeconfig_path, namespace="nowhere"))
    assert code == 1
    assert "nowhere" in last


@pytest.mark.stress  # it takes the 45 seconds in which a refused pull may heal; test_doors has it in virtual time
def test_with_an_image_that_is_not_there(tmp_path: Path) -> None:
    with LocalCluster(failing_pulls=("*",)) as cluster:
        code, last = ends(start(tmp_path, PROGRAM, kubeconfig=cluster.kubeconfig_path))
        assert cluster.store.list("pods", "default").items == []
    assert code == 1
    assert last.startswith("actors.errors.Unreachable: 3 executors should run, 0 run: executor 1 is stuck: ")
    assert "registry.example/worker:1.4" in last


def interrupt(directory: Path, cluster: LocalCluster, program: str, delay: float) -> None:
    """Ctrl-C after a time: the program ends, and leaves no pod."""
    running = start(directory, program, kubeconfig=cluster.kubeconfig_path)
    try:
        running.wait(timeout=delay)
    except subprocess.TimeoutExpired:
        running.send_signal(signal.SIGINT)
    code, last = ends(running)
    assert "KeyboardInterrupt" in last, (delay, last)  # a package that it loads may have something to say of it, too
    assert code != 0
    assert cluster.store.list("pods", "default").items == [], delay


@PROGRAMS
def test_ctrl_c_leaves_nothing(tmp_path: Path, program: str) -> None:
    with LocalCluster() as cluster:
        interrupt(tmp_path, cluster, program, 1.5)


@pytest.mark.parametrize("program", [PROGRAM, pytest.param(ASYNC_PROGRAM, marks=pytest.mark.stress)])
def test_ctrl_c_before_the_api_was_reached_ends_at_once(tmp_path: Path, program: str) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    with socket.create_server(("127.0.0.1", 0)) as silent:  # it accepts connections, and never answers
        cluster = {"server": f"http://127.0.0.1:{silent.getsockname()[1]}"}
        context = {"name": "a", "context": {"cluster": "a"}}
        config = {"clusters": [{"name": "a", "cluster": cluster}], "contexts": [context], "current-context": "a"}
        kubeconfig.write_text(json.dumps(config), encoding="utf-8")
        running = start(tmp_path, program, kubeconfig=kubeconfig)
        silent.accept()[0].close()
        running.send_signal(signal.SIGINT)
        began = time.monotonic()
        code, last = ends(running)
    assert (code, last) == (-signal.SIGINT, "KeyboardInterrupt")
    assert time.monotonic() - began < STOP_TIMEOUT


def test_a_fleet_that_is_never_left_is_stopped_at_the_exit_and_by_no_forked_child(tmp_path: Path) -> None:
    with LocalCluster() as cluster:
        code, last = ends(start(tmp_path, NEVER_LEFT, kubeconfig=cluster.kubeconfig_path))
        assert (code, last) == (1, "KeyError: 'of the program'")
        assert cluster.store.list("pods", "default").items == []


def test_a_forked_child_that_exits_leaves_the_local_cluster_alone(tmp_path: Path) -> None:
    code, last = ends(start(tmp_path, FORKED_LOCAL, kubeconfig=None))
    assert code == 0, last


@pytest.mark.stress
@PROGRAMS
def test_ctrl_c_at_any_moment_leaves_nothing(tmp_path: Path, program: str) -> None:
    moments = random.Random(14)
    with LocalCluster() as cluster:
        for _ in range(20):
            interrupt(tmp_path, cluster, program, moments.uniform(0.05, 4.0))
