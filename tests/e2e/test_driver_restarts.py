"""A driver that is killed with SIGKILL and started again, on the embedded cluster, with real processes.

More deaths, at every stage, and with a lease: tests/stress/test_driver_restarts.py. In virtual time:
tests/scenarios/test_restarts.py.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.stress.restarts import WITHOUT_LEASE, die_at, end_with_cluster

pytestmark = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="processes are found through /proc")

SEED = 5


def test_a_driver_killed_while_it_starts_and_creates_ends_with_the_target_and_no_process_without_owner(
    tmp_path: Path,
) -> None:
    die_at(("started", "creating"), tmp_path, WITHOUT_LEASE, SEED)


def test_executors_do_not_outlive_a_cluster_that_is_killed_with_its_driver(tmp_path: Path) -> None:
    end_with_cluster(tmp_path, WITHOUT_LEASE, together=True)
