"""A driver killed ten times, as in tests/e2e, also with a lease, which each takes from the dead.

Each run has a new seed and prints it; `STRESS_SEED` sets it. The seed draws the moments, not how processes take turns.
"""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from tests.stress.restarts import MOMENTS, WITHOUT_LEASE, die_at, end_with_cluster
from tests.stress.rig import chosen_seed

pytestmark = [
    pytest.mark.stress,
    pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="processes are found through /proc"),
]

DEATHS = 10
SHORT_LEASE = 'lease_duration = "1s"\nrequest_timeout = "500ms"'


@pytest.mark.parametrize("lease", [SHORT_LEASE, WITHOUT_LEASE], ids=["lease", "no lease"])
def test_a_driver_killed_ten_times_has_its_fleet_again(tmp_path: Path, lease: str) -> None:
    seed = chosen_seed()
    moments = Random(seed).choices(MOMENTS, weights=(4, 1, 4, 1), k=DEATHS)
    die_at(moments, tmp_path, lease, seed)


def test_executors_do_not_outlive_a_cluster_that_is_killed_without_its_driver(tmp_path: Path) -> None:
    end_with_cluster(tmp_path, WITHOUT_LEASE, together=False)
