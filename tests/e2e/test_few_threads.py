"""Few threads, as in a container with a small limit of processes: a fleet runs, or says so, and leaves nothing."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from actors import Fleet
from actors.errors import ExecutorPodsError, WaitTimeout
from actors.local.cluster import LocalCluster
from actors.runtime.threads.start import FEWEST
from tests.e2e.leftovers import kept, running

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster() as cluster:
        with fleet(cluster) as each:  # the cluster starts its own threads when they are first needed
            each.wait_for(running=8, timeout="20s")
        yield cluster


@contextmanager
def threads(most: int) -> Iterator[None]:
    """Let at most so many threads start beside those that there are."""
    start, others = threading.Thread.start, running()

    def limited(thread: threading.Thread) -> None:
        if len(running() - others) >= most:
            raise RuntimeError("can't start new thread")
        start(thread)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(threading.Thread, "start", limited)
        yield


def fleet(cluster: LocalCluster, **values: Any) -> Fleet:
    values = {"instances": 8, "command": ["sh", "-c", "trap exit TERM; sleep 99 & wait"], **values}
    return Fleet(kubeconfig=cluster.kubeconfig_path, image="any", backend={"start_timeout": "2s"}, **values)


@pytest.mark.parametrize("most", [FEWEST, FEWEST + 1, FEWEST + 5])
def test_a_fleet_runs_with_as_few_threads_as_it_needs(cluster: LocalCluster, most: int) -> None:
    before = running()
    with threads(most), fleet(cluster) as each:
        each.wait_for(running=8, timeout="20s")
    assert kept(before) == set()
    assert cluster.store.list("pods", None).items == []


@pytest.mark.parametrize("most", range(FEWEST - 1))
def test_a_fleet_with_fewer_says_so_and_leaves_nothing(cluster: LocalCluster, most: int) -> None:
    before = running()
    said = pytest.raises(ExecutorPodsError, match=r"no thread can be started: .* threads.*; a fleet needs 5")
    with threads(most), said, fleet(cluster):
        raise AssertionError("not reached")
    assert kept(before) == set()
    assert cluster.store.list("pods", None).items == []


def test_a_fleet_that_cannot_watch_says_why_it_does_not_see_its_executors(cluster: LocalCluster) -> None:
    before = running()
    said = pytest.raises(WaitTimeout, match=r"the watch fails: no thread can be started: .*; a fleet needs 5")
    with threads(FEWEST - 1), fleet(cluster) as each, said:
        each.wait_for(running=8, timeout="1s")
    assert kept(before) == set()
    assert cluster.store.list("pods", None).items == []
