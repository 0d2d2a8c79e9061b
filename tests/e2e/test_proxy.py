"""Eight seconds on real threads and sockets, through a proxy that breaks everything. (Longer: tests/stress.)"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from actors.runtime import Backoff
from actors.sources import watch_source
from tests.scenarios import sources
from tests.stress.proxy import Odds
from tests.stress.rig import TROUBLE, Rig, counts

if TYPE_CHECKING:
    from pathlib import Path

SEED = 4
FLEETS = 3

QUICK = {
    "source": {"inactivity_timeout": "3s"},
    "executor": {"api_polling_interval": "1s"},
}

BACKOFF = Backoff(initial=timedelta(milliseconds=200), maximum=timedelta(seconds=2), reset_after=timedelta(minutes=2))
"""Shorter than the real one, so that there are more connections to break, and nobody waits for a minute at the end."""


@pytest.fixture(autouse=True)
def _shorter_backoff(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (watch_source, sources):
        monkeypatch.setattr(module, "REFLECTOR", BACKOFF)


def test_nothing_is_lost_or_repeated_through_a_proxy_that_breaks_everything(tmp_path: Path) -> None:
    with Rig(SEED, tmp_path) as rig:
        proxy = rig.proxy()
        proxy.odds = TROUBLE
        fleets = [rig.fleet(proxy, limit=timedelta(seconds=2), **QUICK) for _ in range(FLEETS)]
        rig.busy(4)
        proxy.outage("refuses")
        rig.busy(1)
        proxy.outage("is silent")
        rig.busy(1)
        proxy.end_outage()
        rig.busy(2)
        proxy.odds = Odds()
        for fleet in fleets:
            fleet.wait_until_it_shows_all()
            print(counts(fleet))
        print(dict(proxy.faults))
        assert [fleet.wrong() for fleet in fleets] == [[]] * FLEETS
