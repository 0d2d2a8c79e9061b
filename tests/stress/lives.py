"""Backends that are started and ended in every way, ten at a time in one process, each on the embedded cluster by HTTP.

Each wave has a server of its own, with a scripted kubelet, and is over when nothing of it is left in the process: no
thread, no open file, no object.
"""

from __future__ import annotations

import ctypes
import gc
import os
import socket
import threading
import time
from contextlib import ExitStack
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

import pykka

from actors.kube.http.pod_api import HttpPodApi
from actors.kube.http.streams import Stream
from actors.lease.process_mark import own_mark
from actors.local.kubelet.scripted_kubelet import ScriptedKubelet
from actors.local.server.api_server import ApiServer
from actors.local.server.credentials import new_credentials, write_kubeconfig
from actors.local.store.object_store import ObjectStore
from actors.messages import BackendFailed, BackendStarted, BackendStopped
from actors.runtime import Actor, ActorSystem, Entropy, SystemClock, TimerThread
from tests.stress.real import RealFleet, until
from tests.stress.rig import _open_descriptors
from tests.unit.local.server_kit import Logs

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["AT_ONCE", "EXECUTORS", "WAYS", "nothing_left", "resident_mebibytes"]

AT_ONCE: Final = 10
EXECUTORS: Final = 2
SHUTDOWN: Final = timedelta(seconds=1)
"""`backend.shutdown_timeout` while the API is away: nothing will ever answer."""
UNWIND: Final = timedelta(seconds=10)
"""For the last word to be heard in: ten backends end at once, beside whatever else the machine does."""
KINDS: Final = (Actor, ActorSystem, HttpPodApi, ObjectStore, Stream, TimerThread, pykka.ThreadingActor)
"""Of objects that a life is made of."""


class Cluster:
    """A namespace for each of the fleets. To be used in a `with`."""

    def __init__(self, folder: Path) -> None:
        self._clock = SystemClock()
        self._folder = folder
        self.store = ObjectStore(self._clock, Entropy(0))
        self._undo = ExitStack()

    def __enter__(self) -> Self:
        timers = TimerThread(self._clock)
        self._undo.callback(timers.close)
        self._undo.callback(ScriptedKubelet(self.store, self._clock, timers).close)
        self._credentials = new_credentials()
        self.server = ApiServer(self.store, Logs(), self._credentials, self._clock, Entropy(0))
        self.server.start()
        self._undo.callback(self.server.stop)
        self._kubeconfig = self._folder / "kubeconfig"
        write_kubeconfig(self._kubeconfig, self.server.url, self._credentials, "default")
        self._undo.callback(self._kubeconfig.unlink)
        return self

    def __exit__(self, *_: object) -> None:
        self._undo.close()

    def fleets(self, **backend: Any) -> list[RealFleet]:
        """All that there are, just started."""
        return [self._fleet(f"n{number}", backend) for number in range(AT_ONCE)]

    def fall_silent(self) -> socket.socket:
        """No server any more; whoever calls is not refused, and never answered."""
        port = int(self.server.url.rpartition(":")[2])
        self.server.stop()
        return socket.create_server(("127.0.0.1", port), backlog=1000)

    def pods(self, namespace: str | None = None) -> list[str]:
        """Of all namespaces, or of one."""
        return sorted(pod["metadata"]["name"] for pod in self.store.list("pods", namespace).items)

    def _fleet(self, namespace: str, backend: dict[str, Any]) -> RealFleet:
        self.store.create("namespaces", None, {"metadata": {"name": namespace}})
        return RealFleet(self._kubeconfig, namespace, EXECUTORS, backend=backend)


# ── ways to end ──────────────────────────────────────────────────────────────────────────────────────────────────


def in_order(cluster: Cluster) -> None:
    fleets = running(cluster)
    for fleet in fleets:
        fleet.stop()
    for fleet in fleets:
        assert fleet.until_told(BackendStopped) == BackendStopped()
        assert len(fleet.removed) == EXECUTORS
        fleet.end_driver()
    assert cluster.pods() == []


def by_its_ref(cluster: Cluster) -> None:
    fleets = running(cluster)
    for fleet in fleets:
        fleet.backend.stop(block=False)
    for fleet in fleets:
        assert fleet.until_told(BackendStopped) == BackendStopped()
        fleet.end_driver()
    assert len(cluster.pods()) == AT_ONCE * EXECUTORS, "the fleets are left as they are"


def with_all_actors_of_the_process(cluster: Cluster) -> None:
    running(cluster)
    pykka.ActorRegistry.stop_all()
    assert len(cluster.pods()) == AT_ONCE * EXECUTORS, "the fleets are left as they are"


def with_its_driver(cluster: Cluster) -> None:
    fleets = running(cluster)
    for fleet in fleets:
        fleet.end_driver()
    until(lambda: not any(fleet.backend.is_alive() for fleet in fleets), "all have seen that their driver is gone")
    assert len(cluster.pods()) == AT_ONCE * EXECUTORS, "the fleets are left as they are"


def during_its_start(cluster: Cluster) -> None:
    """Before it has asked for anything, with the fleet listed, with POSTs on the wire."""
    fleets = cluster.fleets()
    for number, fleet in enumerate(fleets):
        match number % 3:
            case 1:
                fleet.until_told(BackendStarted)
            case 2:
                until(partial(cluster.pods, f"n{number}"), "a pod is made")
            case _:
                pass
        fleet.stop()
    for fleet in fleets:
        assert fleet.until_told(BackendStopped) == BackendStopped()
        assert not fleet.told(BackendFailed)
        fleet.end_driver()
    assert cluster.pods() == []


def without_the_api(cluster: Cluster, *, silent: bool) -> None:
    """In time, and it names what it could not delete."""
    fleets = running(cluster, shutdown_timeout=f"{SHUTDOWN.total_seconds()}s", request_timeout="900ms")
    with ExitStack() as undo:
        if silent:
            undo.enter_context(cluster.fall_silent())
        else:
            cluster.server.stop()
        began = time.monotonic()
        for fleet in fleets:
            fleet.stop()
        for fleet in fleets:
            stopped = fleet.until_told(BackendStopped)
            assert sorted(stopped.left_behind) == sorted(fleet.pods.values())
            assert len(stopped.left_behind) == EXECUTORS
            fleet.end_driver()
        took = timedelta(seconds=time.monotonic() - began)
    assert took <= SHUTDOWN + UNWIND, f"it took {took}"


def running(cluster: Cluster, **backend: Any) -> list[RealFleet]:
    fleets = cluster.fleets(**backend)
    for fleet in fleets:
        fleet.until_running(EXECUTORS)
    return fleets


WAYS: Final[dict[str, Callable[[Cluster], None]]] = {
    "in order": in_order,
    "by its ref": by_its_ref,
    "with all actors of the process": with_all_actors_of_the_process,
    "with its driver": with_its_driver,
    "during its start": during_its_start,
    "while the API refuses": partial(without_the_api, silent=False),
    "while the API is silent": partial(without_the_api, silent=True),
}


# ── what is left ─────────────────────────────────────────────────────────────────────────────────────────────────


def nothing_left(folder: Path, end: Callable[[Cluster], None]) -> None:
    """One wave, that ends like this; the process is as it was before."""
    own_mark()  # one file for the whole life of the process
    gc.collect()
    threads, descriptors, objects = set(threading.enumerate()), _open_descriptors(), _objects()
    actors = set(pykka.ActorRegistry.get_all())
    _wave(folder, end)
    until(lambda: set(threading.enumerate()) <= threads, "each thread ends")
    left = _open_descriptors() - descriptors
    assert not left, f"left open: {left}"
    assert set(pykka.ActorRegistry.get_all()) <= actors, "actors that are over are registered"
    del actors
    gc.collect()
    assert _objects() <= objects, "objects that are over are kept"


def resident_mebibytes() -> float:
    """What this process takes of the machine's memory, without what its allocator keeps in store; Linux only."""
    gc.collect()
    if hasattr(libc := ctypes.CDLL(None), "malloc_trim"):  # glibc's
        libc.malloc_trim(0)
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


def _wave(folder: Path, end: Callable[[Cluster], None]) -> None:
    with Cluster(folder) as cluster:
        end(cluster)


def _objects() -> int:
    return sum(isinstance(each, KINDS) for each in gc.get_objects())
