"""Whatever a server says of pods, and however it refuses, the Backend and the other executors live on."""

from __future__ import annotations

import pytest

from tests.fuzz.hostile_fleet import HostileFleet

MANY = 100_000
"""Pods."""


@pytest.mark.parametrize("seed", range(2))
def test_whatever_is_said_of_pods_harms_no_other(seed: int, caplog: pytest.LogCaptureFixture) -> None:
    with HostileFleet(seed) as fleet:
        for _ in range(10):
            fleet.step()
        fleet.calm_down()
        fleet.verify(caplog.records)


@pytest.mark.stress
def test_whatever_is_said_of_many_pods_harms_no_other_and_takes_no_memory(caplog: pytest.LogCaptureFixture) -> None:
    said = held = seed = 0
    while said < MANY:
        caplog.clear()
        with HostileFleet(seed) as fleet:
            fleet.calm_down()
            held = fleet.held()
            fleet.liar.say, fleet.liar.also = fleet._say, fleet._strays
            for _ in range(100):
                fleet.step()
            fleet.calm_down()
            fleet.verify(caplog.records)
            assert fleet.held() < 2 * held
            said += fleet.said
        seed += 1
        print(f"seed={seed} pods={said}")
