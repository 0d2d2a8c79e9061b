"""A driver killed ten times, as in tests/e2e, with a lease: each has to wait until that of the dead has run out.

Each run has a new seed and prints it; `STRESS_SEED` sets it. The seed draws the moments, not how processes take turns.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.stress.restarts import die_ten_times
from tests.stress.rig import chosen_seed

pytestmark = [
    pytest.mark.stress,
    pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="processes are found through /proc"),
]

SHORT_LEASE = 'lease_duration = "1s"\nrequest_timeout = "500ms"'


def test_a_driver_killed_ten_times_has_its_lease_back_and_its_fleet(tmp_path: Path) -> None:
    die_ten_times(tmp_path, SHORT_LEASE, chosen_seed())
