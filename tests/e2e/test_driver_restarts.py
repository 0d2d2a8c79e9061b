"""A driver killed with SIGKILL and started again ten times, on the embedded cluster, with real processes.

Line 5 (adoption) of the issue "Allocate and account for executors under every condition". With a lease, which takes
longer: tests/stress/test_driver_restarts.py. In virtual time, at more moments: tests/scenarios/test_restarts.py.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.stress.restarts import TARGET, Restarts, descendants, die_ten_times, is_alive, processes, until

pytestmark = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="processes are found through /proc")

SEED = 5
WITHOUT_LEASE = "lease = false"
ESCAPING = "setsid sleep 600 & sleep 600 & wait"
"""An executor of which a process leaves its group, so that no signal to that reaches it."""


def test_a_driver_killed_ten_times_ends_with_the_target_and_no_process_that_nobody_owns(tmp_path: Path) -> None:
    die_ten_times(tmp_path, WITHOUT_LEASE, SEED)


@pytest.mark.parametrize("together", [False, True], ids=["local and run", "run --local"])
def test_executors_do_not_outlive_a_cluster_that_is_killed(tmp_path: Path, together: bool) -> None:
    with Restarts(tmp_path, WITHOUT_LEASE) as restarts:
        driver = restarts.start(*(("--local",) if together else ()), script=ESCAPING)
        driver.until(lambda: len(driver.ids("running")) == TARGET, "all run")
        until(lambda: sum(map(len, processes(restarts.app_id).values())) == 2 * TARGET, "each has two groups")
        cluster = driver if together else restarts.cluster
        started = descendants(cluster.process.pid)
        assert len(started) > 2 * TARGET, "the executors' processes, and who started them"
        cluster.kill()
        until(lambda: not processes(restarts.app_id), "the executors have ended")
        until(lambda: not any(is_alive(pid) for pid in started), "whatever the cluster started has ended")
        assert (driver.process.poll() is None) is not together
