"""Functions of the program that block for ever: the fleet goes on, or says so, and leaves no pod and no actor."""

from __future__ import annotations

import threading
from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

import pytest

from actors import Backend, Fleet, Settings
from actors.backend import backend as backend_module
from actors.errors import FleetEnded
from actors.executors import kills
from actors.executors.roll import LONGEST_CHOICE
from actors.local.cluster import LocalCluster
from actors.messages import BackendStarted, BackendStopped, StopBackend
from actors.metrics import tracing
from tests.e2e.leftovers import kept, running

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import datetime


SAFETY = 30.0
"""Seconds that only a failure takes."""

COMMAND = ["sh", "-c", "trap exit TERM; sleep 99 & wait"]


class Gate:
    """Blocks who passes, until it is opened."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.opened = threading.Event()

    def block(self, *_: object) -> None:
        self.reached.set()
        self.opened.wait(SAFETY)

    add = block
    """As `Metrics`."""


class Traced:
    """Traces whose function blocks."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    def begin(self, app_id: str, now: Callable[[], datetime]) -> Callable[[object], object]:
        return self._gate.block


class NeverBegun(Traced):
    """Traces that block before the fleet starts."""

    def begin(self, app_id: str, now: Callable[[], datetime]) -> Callable[[object], object]:
        self._gate.block()
        return print


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster() as cluster:
        with fleet(cluster) as each:  # the cluster starts its own threads when they are first needed
            each.wait_for(running=2, timeout="20s")
        yield cluster


@pytest.fixture
def gate(cluster: LocalCluster) -> Iterator[Gate]:
    """A gate. Once it is open, nothing is left of the test's fleet."""
    before, gate = running(), Gate()
    yield gate
    gate.opened.set()
    assert kept(before) == set()
    assert cluster.store.list("pods", None).items == []


def fleet(cluster: LocalCluster, **values: Any) -> Fleet:
    return Fleet(kubeconfig=cluster.kubeconfig_path, image="any", instances=2, command=COMMAND, **values)


@pytest.mark.parametrize(
    ("exporter", "words"),
    [
        (lambda gate: {"metrics": gate}, "the exporter of metrics does not take the fleet: it took longer than 0.1 s"),
        (lambda gate: {"traces": NeverBegun(gate)}, "the exporter of traces does not begin: it took longer than 0.1 s"),
    ],
    ids=["metrics", "traces"],
)
def test_an_exporter_that_blocks_at_the_start_is_an_error_of_the_start(
    cluster: LocalCluster, gate: Gate, monkeypatch: pytest.MonkeyPatch, exporter: Any, words: str
) -> None:
    for module in (backend_module, tracing):
        monkeypatch.setattr(module, "LONGEST_CALL", tracing.LONGEST_CALL / 50)
    with pytest.raises(FleetEnded, match=words), fleet(cluster, **exporter(gate)):
        raise AssertionError("not reached")
    assert gate.reached.is_set()


def test_traces_that_block_hold_up_neither_the_fleet_nor_its_stop(
    cluster: LocalCluster, gate: Gate, caplog: pytest.LogCaptureFixture
) -> None:
    with fleet(cluster, traces=Traced(gate)) as each:
        each.wait_for(running=2, timeout="20s")
        assert gate.reached.wait(SAFETY)
        each.scale(3)
        each.wait_for(running=3, timeout="20s")
    assert "the exporter of traces is still busy, it is left behind: missed=0" in caplog.text


def test_traces_that_do_not_keep_up_miss_what_is_too_much_and_that_is_said_once(
    cluster: LocalCluster, gate: Gate, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracing, "MOST_WAITING", 1)
    with fleet(cluster, traces=Traced(gate)) as each:
        each.wait_for(running=2, timeout="20s")
    assert caplog.text.count("the exporter of traces does not keep up, it misses messages: waiting=1") == 1


def test_a_driver_s_function_that_blocks_holds_up_its_own_messages_only(cluster: LocalCluster, gate: Gate) -> None:
    told: SimpleQueue[object] = SimpleQueue()
    run, gone = threading.Event(), threading.Event()

    def heard(message: object) -> None:
        told.put(message)
        gate.block()

    def look(_: object) -> None:
        phases = [pod["status"]["phase"] for pod in cluster.store.list("pods", None).items]
        if phases == ["Running"] * 2:
            run.set()
        elif run.is_set() and not phases:
            gone.set()

    pods = cluster.store.watch("pods", None, look)
    settings = Settings(app_id="blocked", executor={"instances": 2, "image": "any", "command": COMMAND})
    backend = Backend.start(settings, heard, kubeconfig=cluster.kubeconfig_path)
    assert run.wait(SAFETY)
    backend.tell(StopBackend(delete_pods=True))
    assert gone.wait(SAFETY)
    pods.cancel()
    assert isinstance(told.get(timeout=SAFETY), BackendStarted)
    assert told.empty(), "it has not returned from the first"
    gate.opened.set()
    assert BackendStopped() in iter(partial(told.get, timeout=SAFETY), None), "the others have waited"


def test_a_roll_policy_that_blocks_is_asked_no_more(
    cluster: LocalCluster, gate: Gate, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(kills, "LONGEST_CHOICE", LONGEST_CHOICE / 50)
    asked: list[int] = []

    def policy(among: Any) -> int | None:
        asked.append(len(among))
        gate.block()
        return None

    told: SimpleQueue[object] = SimpleQueue()
    settings = Settings(
        app_id="rolled", roll={"interval": "1s"}, executor={"instances": 1, "image": "any", "command": COMMAND}
    )
    backend = Backend.start(settings, told.put, kubeconfig=cluster.kubeconfig_path, roll_policy=policy)
    assert gate.reached.wait(SAFETY)
    backend.tell(StopBackend(delete_pods=True))
    assert BackendStopped() in iter(partial(told.get, timeout=SAFETY), None)
    assert asked == [1]
    assert "roll policy takes too long, no executor is rolled any more" in caplog.text
