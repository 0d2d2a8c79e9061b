"""Three minutes of real time behind a proxy that breaks everything, then three of a full outage.

Each run has a new seed and prints it; `STRESS_SEED` sets it. The seed draws the faults, not how threads take turns.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from tests.scenarios.sources import rates
from tests.stress.proxy import Odds
from tests.stress.rig import QUICK, TROUBLE, Rig, chosen_seed, counts, streams

if TYPE_CHECKING:
    from pathlib import Path

    from tests.stress.proxy import CircuitBreaker

pytestmark = pytest.mark.stress

TROUBLED_SECONDS = 180.0
FLEETS = 6
"""Each reconnects a handful of times only: that is what the backoff is for."""


def test_nothing_is_lost_or_repeated_through_a_proxy_that_breaks_everything(tmp_path: Path) -> None:
    seed = chosen_seed()
    with Rig(seed, tmp_path) as rig:
        proxy = rig.proxy()
        fleets = [rig.fleet(proxy, limit=timedelta(seconds=3), **QUICK) for _ in range(FLEETS)]
        rig.busy(5)
        proxy.odds = TROUBLE
        rig.busy(TROUBLED_SECONDS)
        proxy.odds = Odds()
        for fleet in fleets:
            fleet.wait_until_it_shows_all()
        print(f"changes={rig.churn.changes} pods={len(rig.truth.lives)} connections={len(proxy.connections)}")
        print(f"faults={dict(sorted(proxy.faults.items()))}")
        for fleet in fleets:
            print(counts(fleet))
        assert [fleet.wrong() for fleet in fleets] == [[]] * FLEETS
        assert proxy.faults.total() - proxy.faults["scatter"] > 50, "there was no trouble"
        assert streams() <= 2 * FLEETS, "connections that are over are kept"


def test_in_three_minutes_of_a_full_outage_the_sources_ask_at_most_ten_times_a_minute(tmp_path: Path) -> None:
    seed = chosen_seed()
    kinds: tuple[CircuitBreaker, ...] = ("refuses", "is silent")
    with Rig(seed, tmp_path) as rig:
        proxies = {kind: rig.proxy() for kind in kinds}
        fleets = {kind: rig.fleet(proxy, limit=timedelta(seconds=10)) for kind, proxy in proxies.items()}
        rig.busy(10)
        begin = rig.clock.monotonic()
        for kind, proxy in proxies.items():
            proxy.outage(kind)
        rig.busy(TROUBLED_SECONDS)
        end = rig.clock.monotonic()
        connections = [at for at in proxies["is silent"].connections if at > begin]
        for kind, fleet in fleets.items():
            tries = [*fleet.notes.watching.tries, *fleet.notes.polling.tries]
            minutes = rates(tries, begin, end)
            print(f"the server {kind}: requests a minute={minutes} {counts(fleet)}")
            assert len(minutes) == 3
            assert max(minutes[1:]) <= 10, minutes
            assert min(minutes[1:]) >= 1, "nobody tries any more"
        print(f"connections to the one that is silent={len(connections)}")
        assert len([at for at in connections if at > begin + 60]) <= 20
        for kind, proxy in proxies.items():
            proxy.end_outage()
            fleets[kind].wait_until_it_shows_all()
        assert [fleet.wrong() for fleet in fleets.values()] == [[], []]
