"""Minutes on real threads over the embedded cluster's HTTPS, with real processes, in which everything goes wrong.

Each run has a new seed and prints it; `STRESS_SEED` sets it. It draws what is done and when, not how threads and
processes take turns. `STRESS_SECONDS` (180) is how long the trouble lasts; with a process of the fleet, `STRESS_ACTS`
(200) is how often something happens to that.
"""

from __future__ import annotations

import gc
import logging
import os
import threading
from collections import Counter
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, Final

import pykka
import pytest

from actors.allocation.executor_tracker import ExecutorTracker
from actors.backend.shutdown import Shutdown
from actors.kube.http.streams import Stream
from actors.kube.http.wire import Transport
from actors.lease.process_mark import own_mark
from tests.scenarios.planted import (
    LEFT,
    SIGNS,
    TOO_MANY,
    Bug,
    the_fleet_is_left_behind,
    the_unseen_do_not_count,
)
from tests.stress.free_run import FreeChaos
from tests.stress.hands_on_process import be_watched, fleet_processes
from tests.stress.real import until
from tests.stress.rig import _open_descriptors, chosen_seed

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [
    pytest.mark.stress,
    pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="processes are found through /proc"),
]

SECONDS: Final = float(os.environ.get("STRESS_SECONDS", "180"))

ACTS: Final = int(os.environ.get("STRESS_ACTS", "200"))

SEARCH_SECONDS: Final = 60.0
"""After so much trouble, and the calm that follows, a planted bug was found; most are in ten seconds."""


def test_no_invariant_breaks_on_real_threads_with_real_processes(tmp_path: Path) -> None:
    with nothing_left():
        live(tmp_path, SECONDS)


def test_no_invariant_breaks_while_the_process_of_the_fleet_is_killed_stopped_and_starved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seed = chosen_seed()
    be_watched(monkeypatch, seed)
    with nothing_left(), FreeChaos(Random(seed), tmp_path, process=True) as chaos:
        while chaos.hands.done < ACTS:
            chaos.trouble(1)
        settle(chaos)
        print(f"{chaos.hands.done} acts on the process: {dict(chaos.hands.met.most_common())}")


@contextmanager
def nothing_left() -> Iterator[None]:
    """This process is as it was before."""
    own_mark()  # one file for the whole life of the process
    gc.collect()
    threads, descriptors = set(threading.enumerate()), _open_descriptors()
    actors = set(pykka.ActorRegistry.get_all())
    yield
    assert not fleet_processes(), "a process of the fleet is left"
    until(lambda: set(threading.enumerate()) <= threads, "each thread ends")
    gc.collect()
    assert _open_descriptors() <= descriptors, "left open"
    assert set(pykka.ActorRegistry.get_all()) <= actors, "actors that are over are registered"
    assert not any(isinstance(each, Stream) for each in gc.get_objects()), "connections that are over are kept"


def requests_are_logged(right: Any, transport: Any, wire: Any, method: str, url: str, headers: Any, body: Any) -> Any:
    logging.getLogger("actors.kube").debug("sending: %s %s", method, headers)
    return right(transport, wire, method, url, headers, body)


BUGS: Final = (
    (Bug(TOO_MANY, ExecutorTracker, "expected", the_unseen_do_not_count), SIGNS[TOO_MANY]),
    (Bug(LEFT, Shutdown, "_delete_fleet", the_fleet_is_left_behind), SIGNS[LEFT]),
    (Bug("credential leak", Transport, "send", requests_are_logged), "^9: "),
)


@pytest.mark.parametrize(("bug", "sign"), BUGS, ids=[bug.kind.replace(" ", "-") for bug, _ in BUGS])
def test_a_planted_bug_is_found_on_real_threads(bug: Bug, sign: str, tmp_path: Path) -> None:
    with bug.planted(), pytest.raises(AssertionError, match=f"(?m){sign}"):
        live(tmp_path, SEARCH_SECONDS)


def live(folder: Path, seconds: float) -> None:
    """So many seconds of trouble, then calm, then a stop."""
    with FreeChaos(Random(chosen_seed()), folder) as chaos:
        chaos.trouble(seconds)
        settle(chaos)


def settle(chaos: FreeChaos) -> None:
    converged, stopped = chaos.converge(), chaos.stop()
    report(chaos, f"converged in {converged:.1f} s, stopped in {stopped:.1f} s")


def report(chaos: FreeChaos, words: str) -> None:
    print(f"{words}; {chaos.truth.created} pods, {chaos.ear.records} log records")
    print(f"done: {dict(chaos.counts.most_common())}")
    print(f"HTTP faults: {dict(chaos.proxy.faults.most_common())}")
    print(f"struck: {dict(chaos.clock.struck.most_common())}")
    heard = sum((life.heard for life in chaos.lives), Counter[str]())
    print(f"{len(chaos.lives)} drivers heard: {dict(heard.most_common())}")
