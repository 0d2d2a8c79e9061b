"""A real API server that is killed again and again at random moments, while the target moves between 0 and 200.

Line "Must show" of the issue "Survive everything". What lives is seen by an observer with its own watch, past the code
under test; the driver in the test's process is told of the rest. `STRESS_DEATHS` (50) is how often the server dies,
`STRESS_SEED` draws when, for how long, and every target. All settings are the default ones.
"""

from __future__ import annotations

import os
import re
import time
from collections import Counter
from datetime import timedelta
from random import Random
from threading import Event
from typing import TYPE_CHECKING, Final

import pytest

from actors.messages import AllocationBlocked, BackendFailed, BackendStopped, FleetFailed
from actors.pods.loss import LossKind
from actors.settings.model import Settings
from tests.contract.control_plane import TOKEN
from tests.stress import test_control_plane
from tests.stress.observer import Observer
from tests.stress.plane import API_SERVER, WholePlane
from tests.stress.real import RealFleet, until
from tests.stress.rig import chosen_seed

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = test_control_plane.pytestmark

DEATHS: Final = int(os.environ.get("STRESS_DEATHS", "50"))
MOST: Final = 200
"""The highest target."""
LONGEST_LIFE_SECONDS: Final = 6.0
LONGEST_DEATH_SECONDS: Final = 4.0
"""Until the server is started again, which takes some seconds more."""
LOOK_SECONDS: Final = 0.1
ON_THE_WIRE_SECONDS: Final = Settings().backend.request_timeout.total_seconds() + 2.0
"""So long after it was right to, a POST may still make its pod, and the observer see it."""
CONVERGED_WITHIN: Final = 2 * Settings().executor.api_polling_interval
GIVEN_UP: Final = re.compile(r"executor abandoned: executor=(\d+) ")
OUR_DOING: Final = {LossKind.KILLED_BY_DRIVER}
"""Why executors may be gone here: nobody else touches them."""


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[WholePlane]:
    plane = WholePlane(test_control_plane.ASSETS, tmp_path)
    try:
        plane.start()
        yield plane
    finally:
        plane.stop()


class Ceiling(Observer):
    """An observer who knows the targets: the fleet may grow to the highest of those in force, never beyond."""

    def __init__(self, plane: WholePlane) -> None:
        super().__init__(plane.server, plane.authority, TOKEN, "executor-pods/app-id=real")
        self.violations: list[str] = []
        self._targets: list[tuple[float, int]] = [(time.monotonic(), 0)]
        self._last_count = 0
        self._last_look = time.monotonic()

    def asked_for(self, target: int) -> None:
        """By the driver, from now on."""
        self._targets.append((time.monotonic(), target))

    def _count(self) -> None:
        super()._count()
        count, ceiling = len(self.alive), self._ceiling(self._last_look - ON_THE_WIRE_SECONDS)
        if count > max(self._last_count, ceiling):
            self.violations.append(f"{count} live, before {self._last_count}, though at most {ceiling} were asked for")
        self._last_count, self._last_look = count, time.monotonic()

    def _ceiling(self, since: float) -> int:
        """The highest target in force at any time from then on: the last one before, and those after."""
        targets = list(self._targets)
        before = max(at for at, _ in targets if at <= since or at == targets[0][0])
        return max(target for at, target in targets if at >= before)


class Driver:
    """Moves the target, and ends whom it has too many of, as one with dynamic allocation does."""

    def __init__(self, fleet: RealFleet, ceiling: Ceiling, dice: Random) -> None:
        self._fleet = fleet
        self._ceiling = ceiling
        self._dice = dice
        self.target = 0

    def move(self) -> None:
        """To any target; the ends of the range are drawn more often."""
        self.target = self._dice.choice((0, MOST, self._dice.randint(1, MOST - 1), self._dice.randint(1, MOST - 1)))
        self._ceiling.asked_for(self.target)
        self._fleet.ask_for(self.target)

    def spend(self, seconds: float) -> None:
        until_then, pause = time.monotonic() + seconds, Event()
        while time.monotonic() < until_then:
            self.trim()
            pause.wait(LOOK_SECONDS)

    def has_converged(self) -> bool:
        """The cluster has who is wanted, and the driver was told of just these."""
        self.trim()
        pods = sorted(self._fleet.pods[executor_id] for executor_id in self._fleet.running)
        return len(pods) == self.target and sorted(self._ceiling.alive.values()) == pods

    def trim(self) -> None:
        """Asked again where that was refused: without the lease nobody is ended."""
        self._fleet.kinds()  # takes in what it was told
        excess = len(self._fleet.running) - self.target
        if excess > 0:
            self._fleet.kill(sorted(self._fleet.running)[:excess])


def test_a_fleet_with_a_moving_target_survives_every_death_of_the_api_server(
    plane: WholePlane, caplog: pytest.LogCaptureFixture
) -> None:
    dice = Random(chosen_seed())
    caplog.set_level("INFO", "actors.executors.executors")
    with Ceiling(plane) as ceiling, RealFleet(plane.kubeconfig, "default", 0) as fleet:
        driver = Driver(fleet, ceiling, dice)
        driver.move()
        for death in range(DEATHS):
            die_once(plane, driver, dice)
            print(f"death {death + 1}: target {driver.target}, {len(ceiling.alive)} live, {len(fleet.running)} known")
        began = time.monotonic()
        until(driver.has_converged, f"the target of {driver.target} after the last death")
        took = timedelta(seconds=time.monotonic() - began)
        print(f"converged to {driver.target} {took} after the last death of {DEATHS}; {len(ceiling.seen)} pods in all")
        assert took <= CONVERGED_WITHIN
        assert ceiling.violations == []
        assert not fleet.told(BackendFailed)
        assert not fleet.told(FleetFailed)
        print(f"blocked: {Counter(each.cause for each in fleet.told(AllocationBlocked))}")

        fleet.stop()
        assert fleet.until_told(BackendStopped) == BackendStopped()
        until(lambda: not ceiling.alive, "none is left")
        check_ends(fleet, ceiling, abandoned=set(GIVEN_UP.findall(caplog.text)))


def die_once(plane: WholePlane, driver: Driver, dice: Random) -> None:
    """The target moves before the death, and every other time also while the server is away."""
    driver.spend(dice.uniform(0, LONGEST_LIFE_SECONDS))
    driver.move()
    driver.spend(dice.uniform(0, 1))
    plane.kill(API_SERVER)
    if dice.random() < 0.5:
        driver.move()
    driver.spend(dice.uniform(0, LONGEST_DEATH_SECONDS))
    plane.start_again(API_SERVER)
    for program in plane.ended():
        plane.start_again(program)


def check_ends(fleet: RealFleet, ceiling: Ceiling, abandoned: set[str]) -> None:
    """Each executor that the driver was told of has ended, once (`RealFleet` sees to that), for a true reason.

    It is told of all but those that were withdrawn when the target fell, and turned out to have a pod all the same.
    """
    names = Counter(ceiling.seen.values())
    assert max(names.values()) == 1, "a name was used again"
    unheard = names.keys() - set(fleet.pods.values())
    print(f"withdrawn before the driver heard of them: {len(unheard)}")
    assert {name.rpartition("-")[2] for name in unheard} <= abandoned, "pods that nobody knows of"
    kinds = Counter(reason.kind for reason in fleet.removed.values())
    print(f"removed: {dict(kinds)}")
    assert fleet.pods.keys() == fleet.removed.keys()
    wrong = {executor_id: reason for executor_id, reason in fleet.removed.items() if reason.kind not in OUR_DOING}
    assert not wrong, f"nobody but the driver ends any: {wrong}"
