"""Households on real threads, each with its own connections through a proxy to the embedded cluster's server."""

from __future__ import annotations

import gc
import logging
import os
import secrets
import threading
from contextlib import ExitStack, suppress
from pathlib import Path
from queue import SimpleQueue
from random import Random
from typing import TYPE_CHECKING, Self

from actors import kube
from actors.kube.http.streams import Stream
from actors.local.kubelet import pod_status
from actors.local.server.api_server import ApiServer
from actors.local.server.credentials import new_credentials
from actors.local.store.object_store import ObjectStore
from actors.local.store.objects import rfc3339
from actors.runtime import ActorSystem, Entropy, SystemClock
from actors.settings.model import Settings
from tests.scenarios.churn import Churn
from tests.scenarios.oracle import Truth, all_ends_are_told, shows_all_there_is, verdict
from tests.scenarios.sources import Household, Noted, Notes, hasty
from tests.stress.proxy import Odds, Proxy
from tests.unit.builders import APP_ID
from tests.unit.local.server_kit import Logs

if TYPE_CHECKING:
    from datetime import timedelta
    from typing import Any

SAFETY = 120.0
"""Seconds until a test that would hang fails instead."""

PACE = 0.05
"""Seconds between two changes."""

DESCRIPTORS = Path("/proc/self/fd")

TROUBLE = Odds(
    too_many=0.06,
    broken=0.06,
    expired=0.05,
    hang=0.04,
    refuse=0.05,
    lose=0.06,
    delay=0.1,
    cut=0.001,
    freeze=0.0005,
    stall=0.002,
    expire=0.0007,
    fail=0.0005,
    finish=0.0007,
    scatter=0.2,
)
"""A stream lives for about ten seconds at twenty changes a second."""

QUICK = {
    "source": {"inactivity_timeout": "10s"},
    "executor": {"api_polling_interval": "5s"},
}


class Fleet:
    """One household with a client of its own."""

    def __init__(self, rig: Rig, kubeconfig: Path, limit: timedelta, settings: dict[str, Any]) -> None:
        self._rig = rig
        self._system = ActorSystem(rig.clock)
        self._api = kube.connect(kubeconfig, namespace="default", request_timeout=limit, max_connections=4)
        self.notes = Notes(watching=Noted(self._api, rig.clock), polling=Noted(self._api, rig.clock))
        self._batches: SimpleQueue[None] = SimpleQueue()
        self._household = self._system.spawn(
            lambda context: Household(
                context, Settings(app_id=APP_ID, **settings), self.notes, lambda: self._batches.put(None)
            ),
            name="household",
            owner=None,
        )

    def wait_until_it_shows_all(self) -> None:
        """Until the watch is back, the snapshot is the store, every end is told, and what is over is forgotten.

        Nothing changes any more, so that only a bookmark says how far the watch has come.
        """
        deadline = self._rig.clock.monotonic() + SAFETY
        while not self._shows_all():
            self._rig.store.bookmark()
            self._batches.get(timeout=max(0.0, deadline - self._rig.clock.monotonic()))

    def _shows_all(self) -> bool:
        history = self.notes.stores[-1]._history if self.notes.stores else None
        return (
            history is not None
            and not history.tombstones
            and not history.absent
            and self.notes.passage.has_reached(self._rig.store.resource_version)
            and all_ends_are_told(self._rig.truth, self.notes.story)
            and shows_all_there_is(self.notes.story.snapshot, self._rig.store)
        )

    def wrong(self) -> list[str]:
        """What the oracle has found."""
        notes = self.notes
        return [
            *notes.escalated,
            *verdict(self._rig.truth, notes.passage, notes.story, self._rig.churn.asked_to_end),
            *hasty(notes.watching.tries, abandoned=notes.passage.abandoned, polls=notes.polling.tries),
        ]

    def close(self) -> None:
        """End it; its threads end soon."""
        self._household.stop()
        self._api.close()
        self._system.close()


class Rig:
    """A served store in which things happen, with proxies and fleets. A context manager that leaves nothing."""

    def __init__(self, seed: int, folder: Path) -> None:
        self.clock = SystemClock()
        self.random = Random(seed)
        self.store = ObjectStore(self.clock, Entropy(seed))
        self.store.create("nodes", None, pod_status.scripted_node("node", rfc3339(self.clock.now())))
        self.truth = Truth()
        self.truth.watch(self.store)
        self.churn = Churn(self.store, self.random, self.clock)
        self._folder = folder
        self._proxies = 0
        self._running = ExitStack()

    def __enter__(self) -> Self:
        self._streams = streams()
        self._threads, self._descriptors = set(threading.enumerate()), _open_descriptors()
        noisy = logging.getLogger("urllib3.connection")
        noisy.addFilter(_without_frames)
        self._running.callback(noisy.removeFilter, _without_frames)
        self._credentials = new_credentials()
        self._server = ApiServer(self.store, Logs(), self._credentials, self.clock, Entropy(0))
        self._server.start()
        self._running.callback(self._server.stop)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._running.close()
        for thread in set(threading.enumerate()) - self._threads:
            thread.join(SAFETY)
            assert not thread.is_alive(), f"{thread.name} goes on"
        if kind is None:
            assert streams() <= self._streams, "connections that are over are kept"
            left = _open_descriptors() - self._descriptors
            assert not left, f"left open: {left}"

    def proxy(self) -> Proxy:
        """Another way to the server."""
        self._proxies += 1
        proxy = Proxy(self._server.url, self._credentials, Random(self.random.random()), self.clock)
        self._running.enter_context(proxy)
        return proxy

    def fleet(self, proxy: Proxy, *, limit: timedelta, **settings: Any) -> Fleet:
        """Another one who looks at the cluster."""
        path = self._folder / f"kubeconfig-{id(proxy)}"
        if not path.exists():
            proxy.write_kubeconfig(path)
        fleet = Fleet(self, path, limit, settings)
        self._running.callback(fleet.close)
        return fleet

    def busy(self, seconds: float) -> None:
        """Time passes, with about twenty changes a second."""
        until = self.clock.monotonic() + seconds
        pace = threading.Event()
        while self.clock.monotonic() < until:
            self.churn.step()
            pace.wait(PACE)


def chosen_seed() -> int:
    """A new one, unless one was asked for. Printed, so that it can be asked for."""
    seed = int(os.environ.get("STRESS_SEED") or secrets.randbelow(1 << 32))
    print(f"\nSTRESS_SEED={seed}")
    return seed


def counts(fleet: Fleet) -> str:
    """What a fleet has been through."""
    notes, passage, story = fleet.notes, fleet.notes.passage, fleet.notes.story
    watches = sum(one.verb == "watch" for one in notes.watching.tries)
    return (
        f"watches={watches} watch_lists={len(notes.watching.tries) - watches} polls={len(notes.polling.tries)} "
        f"events={passage.events} lists={passage.lists} ends={len(story.ended)} batches={story.batches}"
    )


def streams() -> int:
    """How many connections of watches are in memory, in the whole process."""
    gc.collect()
    return sum(isinstance(each, Stream) for each in gc.get_objects())


def _without_frames(record: logging.LogRecord) -> bool:
    """The record without its traceback: whoever keeps it, as pytest does, would keep the stream in whose thread it was.

    urllib3 logs headers that were cut off with the frames of their thread, and goes on. The error is among the
    message's arguments, too.
    """
    record.msg, record.args, record.exc_info = record.getMessage(), None, None
    return True


def _open_descriptors() -> set[str]:
    """What is open, by what it is, as numbers are used again; where a system does not tell, nothing.

    Not the lock on the folder of this process's keys: it is held until the process ends.
    """
    found = set()
    for descriptor in DESCRIPTORS.iterdir() if DESCRIPTORS.is_dir() else ():
        with suppress(OSError):  # the one that read the folder
            found.add(str(descriptor.readlink()))
    return {each for each in found if not (each.endswith("/lock") and "/executor-pods-" in each)}
