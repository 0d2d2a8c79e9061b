"""Programs whose executors are on the node: an example, the doors, the command; and stops at any moment."""

from __future__ import annotations

import asyncio
import json
import os
import random
import secrets
import signal
import socket
import statistics
import subprocess
import sys
import threading
import time
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pytest

from actors import AsyncFleet, Fleet, Settings
from actors.examples.pi import EXECUTORS, KILL_AT, SAMPLES, TASKS, Executors, PiDriver
from actors.examples.pi_executor import count_inside
from actors.kube import connect
from actors.messages import ExecutorRemoved
from actors.pods.loss import LossKind
from tests.node.pods import HANDLES
from tests.node.programs import READY, SAFETY, SHORT, SIZE, answers, name_of
from tests.node.world import IMAGE

if TYPE_CHECKING:
    from actors.examples.pi import Outcome
    from tests.node.real import RealWorld

pytestmark = pytest.mark.node

HERE: Final = "10.88.1.1"
"""The address of node-1 among its pods: they reach a driver that listens at it."""
MOMENTS: Final = 20


# ── in this process ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_pi_is_the_same_though_executors_are_killed(node_1: RealWorld) -> None:
    token = secrets.token_urlsafe()
    with socket.create_server((HERE, 0)) as sock:
        executor: Any = {
            **node_1.placement,
            "instances": EXECUTORS,
            "image": IMAGE,
            "command": ("python", "-m", "actors.examples.pi_executor"),
            "env": {"DRIVER_TOKEN": token},
        }
        settings = Settings(app_id=name_of("pi"), driver_address="{}:{}".format(*sock.getsockname()), executor=executor)
        done: Future[Outcome] = Future()
        executors = Executors(sock, token, lambda pod: node_1.signal(pod, signal.SIGKILL))
        PiDriver.start(settings, connect(node_1.kubeconfig, namespace=settings.namespace), executors, done)
        outcome = done.result(SAFETY)
    print(f"\nπ ≈ {outcome.pi}: {TASKS} tasks, {outcome.lost} executors lost, {outcome.repeated} tasks repeated")
    inside = sum(count_inside({"seed": task, "samples": SAMPLES}) for task in range(TASKS))
    assert outcome.pi == 4 * inside / (TASKS * SAMPLES)
    assert outcome.repeated >= len(KILL_AT)  # the work may be done before a kubelet has told of the last end


def test_a_fleet_shows_itself_on_its_page(node_1: RealWorld) -> None:
    executor: Any = {**node_1.placement, "image": IMAGE, "instances": 2, "command": HANDLES}
    fleet = Fleet(app_id=name_of("fleet"), kubeconfig=node_1.kubeconfig, page=f"{HERE}:0", executor=executor)
    with fleet:
        fleet.wait_for(running=2, timeout=READY)
        assert fleet.page_url is not None
        assert answers(f"{fleet.page_url}livez")
        assert answers(f"{fleet.page_url}readyz")
        fleet.scale(3)
        fleet.wait_for(running=3, timeout=READY)
        assert {executor.node for executor in fleet.executors.values()} == {"node-1"}
    assert node_1.pods(fleet.app_id) == set()


def test_an_async_fleet_scales_and_leaves_nothing(node_1: RealWorld) -> None:
    app_id = name_of("async")
    executor: Any = {**node_1.placement, "image": IMAGE, "instances": 2, "command": HANDLES}

    async def run() -> tuple[int, ...]:
        async with AsyncFleet(app_id=app_id, kubeconfig=node_1.kubeconfig, executor=executor) as fleet:
            await fleet.wait_for(running=2, timeout=READY)
            ended = await fleet.scale(1, grace="1s")
            async for event in fleet.events():
                if isinstance(event, ExecutorRemoved):
                    assert event.reason.kind is LossKind.KILLED_BY_DRIVER
                    assert event.executor_id in ended
                    break
            return ended

    assert len(asyncio.run(asyncio.wait_for(run(), SAFETY))) == 1
    assert node_1.pods(app_id) == set()


# ── the command, and stops at any moment ─────────────────────────────────────────────────────────────────────────────


def interrupted(world: RealWorld, app_id: str, *command: str) -> tuple[float, list[dict[str, Any]]]:
    """Ctrl-C once four executors run: how long the command then takes, and what it says."""
    options = ("--executors", str(SIZE), "--image", IMAGE, "--output", "json")
    program = [sys.executable, "-m", "actors", "run", *options, "--", *command]
    env = os.environ | {"KUBECONFIG": str(world.kubeconfig), "EXECUTOR_PODS_APP_ID": app_id}
    with subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env) as process:
        limit = threading.Timer(SAFETY, process.kill)
        limit.start()
        try:
            assert process.stdout is not None
            running: set[int] = set()
            while len(running) < SIZE:
                event = json.loads(process.stdout.readline())
                running |= {event["executor_id"]} if event["event"] == "running" else set()
            began = time.monotonic()
            process.send_signal(signal.SIGINT)
            out, _ = process.communicate()
        finally:
            limit.cancel()
    return time.monotonic() - began, [json.loads(line) for line in out.splitlines()]


def test_ctrl_c_ends_four_programs_that_ignore_sigterm(node_1: RealWorld) -> None:
    took = []
    for _ in range(5):
        app_id = name_of("ctrl-c")
        seconds, events = interrupted(node_1, app_id, "sleep", "600")
        took.append(seconds)
        removed = {event["executor_id"] for event in events if event["event"] == "removed"}
        assert removed == {1, 2, 3, 4}
        assert events[-1]["event"] == "stopped"
        assert events[-1]["left_behind"] == []
        assert node_1.pods(app_id) == set()
        assert lease_holder(node_1, app_id) is None
    print(f"\nCtrl-C of four `sleep 600`: {shown(took)}")
    assert max(took) < SHORT


def test_a_stop_at_any_moment_of_the_start_is_short(node_1: RealWorld) -> None:
    seed = int(os.environ.get("STRESS_SEED", "0")) or random.SystemRandom().randrange(1 << 30)
    print(f"\nSTRESS_SEED={seed}")
    draw = random.Random(seed)
    took = []
    for _ in range(MOMENTS):
        executor: Any = {
            **node_1.placement,
            "image": IMAGE,
            "instances": SIZE,
            "command": ("python3", "-m", "actors.examples.pi_executor"),
            "env": {"DRIVER_TOKEN": "of nobody"},
        }
        observed = threading.Event()
        fleet = Fleet(
            app_id=name_of("early"),
            kubeconfig=node_1.kubeconfig,
            driver_address=f"{HERE}:9",
            on_event=partial(note, observed),
            executor=executor,
        )
        fleet.start()
        assert observed.wait(SAFETY)
        threading.Event().wait(draw.uniform(0, 3))  # the moment, which is the subject: a start takes so long
        began = time.monotonic()
        assert fleet.stop() == ()
        took.append(time.monotonic() - began)
    print(f"stops of four that start: {shown(took)}")
    assert max(took) < SHORT


def note(observed: threading.Event, _: object) -> None:
    observed.set()


def shown(seconds: list[float]) -> str:
    each = ", ".join(f"{value:.1f}" for value in sorted(seconds))
    return f"median {statistics.median(seconds):.1f} s of {each}"


def lease_holder(world: RealWorld, app_id: str) -> str | None:
    answer = world.api.get(f"leases/executor-pods-{app_id}")
    assert answer.status == 200, answer
    holder: str | None = answer.body["spec"].get("holderIdentity") or None
    return holder
