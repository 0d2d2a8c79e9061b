"""A fleet as somebody sees it who has only the API: while its driver lives, once it is dead, and while it is mended."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from actors.errors import ApiError
from actors.inspection.cleanup import must_watch, refusal, release_lease, take_lease
from actors.inspection.fleets import Counts, FleetState
from actors.inspection.leases import observe_lease
from actors.inspection.reading import FleetReader
from actors.local.inprocess import InProcessPodApi
from tests.scenarios.rivals import APP_ID, Rivals

if TYPE_CHECKING:
    from actors import kube
    from actors.inspection.fleets import ObservedFleet


class Outsider:
    """Reads and writes with an account of its own; an answer is there at once."""

    def __init__(self, cluster: Rivals) -> None:
        self._cluster = cluster
        self._api = InProcessPodApi(cluster.store, "default")
        self.now = cluster.kit.clock.now
        self._reader = FleetReader(lambda _: self.ask, "default", self.now)

    def ask(self, request: kube.Request[Any], /) -> Any:
        answers: list[Any] = []
        self._api.send(request, answers.append)
        (answer,) = answers
        if isinstance(answer, ApiError):
            raise answer
        return answer

    def look(self) -> ObservedFleet:
        fleet, warnings = self._reader.one(APP_ID)
        assert warnings == ()
        return fleet


def test_the_target_is_seen_from_outside_and_costs_no_request() -> None:
    with Rivals("first", instances=2) as cluster:
        (driver,) = cluster.drivers
        outsider = Outsider(cluster)
        cluster.advance(30)
        assert outsider.look().counts == {"default": Counts(2, running=2)}
        writes = [operation for _, operation in driver.api.asked].count("patch_object")
        driver.target(1)  # which ends nobody, so that no new id is recorded
        cluster.advance(12)
        assert outsider.look().counts == {"default": Counts(1, running=2)}
        cluster.advance(48)
        assert [operation for _, operation in driver.api.asked].count("patch_object") - writes <= 13


def test_the_target_is_recorded_by_a_lease_keeper_that_was_restarted() -> None:
    with Rivals("first") as cluster:
        (driver,) = cluster.drivers
        cluster.advance(10)
        driver.crash("lease-keeper")
        cluster.kit.crashes.clear()
        driver.target(5)
        cluster.advance(30)
        assert Outsider(cluster).look().counts == {"default": Counts(5, running=5)}


def test_a_driver_that_was_killed_leaves_an_orphan_and_the_next_one_ends_that() -> None:
    with Rivals("first") as cluster:
        outsider = Outsider(cluster)
        cluster.advance(10)
        assert outsider.look().state is FleetState.ALIVE
        cluster.drivers[0].kill()
        cluster.advance(10)
        assert outsider.look().state is FleetState.ALIVE  # nobody can know yet
        cluster.advance(6)
        fleet = outsider.look()
        assert (fleet.state, refusal(fleet)) == (FleetState.ORPHANED, None)
        cluster.begin("second")
        cluster.advance(30)
        assert outsider.look().state is FleetState.ALIVE


def test_a_driver_that_was_paused_writes_nothing_while_its_fleet_is_cleaned_up() -> None:
    with Rivals("first") as cluster:
        (driver,) = cluster.drivers
        outsider = Outsider(cluster)
        cluster.advance(10)
        driver.pause()
        cluster.advance(40)
        fleet = outsider.look()
        assert fleet.lease is not None
        duration = must_watch(fleet.lease, outsider.now())
        assert duration is not None  # this server stamps no write
        cluster.advance(duration.total_seconds())
        held = observe_lease(outsider.ask(take_lease(APP_ID, fleet.lease, "cleanup", outsider.now())))
        assert held is not None
        driver.resume()
        cluster.advance(20)
        wrote = len(driver.wrote)
        for executor in fleet.executors:
            cluster.store.delete("pods", "default", executor.pod.name, uid=executor.pod.uid)
        cluster.advance(10)
        assert cluster.pods() == {}
        assert len(driver.wrote) == wrote  # `Rivals` checks that nothing was written before, too
        outsider.ask(release_lease(APP_ID, held, outsider.now()))
        cluster.advance(40)
        assert outsider.look().counts == {"default": Counts(3, running=3)}
