"""The whole tree while its credential is not accepted: it says so, goes on asking at a slow pace, and heals."""

from __future__ import annotations

import logging
from collections import Counter
from typing import get_args

import pytest

from actors.errors import ApiError, Unauthorized, Untrusted
from actors.kube.api import Operation
from actors.messages import (
    AllocationBlocked,
    AllocationUnblocked,
    BackendFailed,
    ExecutorRemoved,
    FleetStatus,
    GetFleetStatus,
)
from tests.scenarios.test_whole_tree import pod_name
from tests.scenarios.world import World

REVOKED = Unauthorized("one.example does not accept the credential of context 'c' of k: Unauthorized", status=401)
UNKNOWN_CA = Untrusted("there is no TLS connection to one.example: its certificate is not accepted")

FOR_EVER = 10_000
"""More calls than any test makes."""


@pytest.fixture(params=[REVOKED, UNKNOWN_CA], ids=["the token is revoked", "the CA is replaced"])
def error(request: pytest.FixtureRequest) -> ApiError:
    found: ApiError = request.param
    return found


def revoke(world: World, error: ApiError) -> None:
    """From now on every request is answered like this. A watch under way goes on: a server does not end it for that."""
    for operation in get_args(Operation):
        world.api.fail_next(operation, error, times=FOR_EVER)
    world.api.asked.clear()


def per_minute(world: World, since: float) -> Counter[int]:
    """Calls of each minute."""
    return Counter(int((at - since) // 60) for at, _ in world.api.asked)


def warnings(caplog: pytest.LogCaptureFixture, name: str) -> list[str]:
    records = [record for record in caplog.records if record.name == f"actors.{name}"]
    return [record.getMessage() for record in records if record.levelno >= logging.WARNING]


def test_each_source_says_it_once_the_status_shows_it_and_requests_stay_few(
    error: ApiError, caplog: pytest.LogCaptureFixture
) -> None:
    with World(executor={"instances": 5}) as world:
        world.advance(20)
        since = world.kit.clock.monotonic()
        caplog.clear()
        revoke(world, error)
        world.api.cut()
        world.target(8)
        world.advance(600)
        (watch,) = [line for line in warnings(caplog, "sources.watch_source") if error.message in line]
        (poll,) = [line for line in warnings(caplog, "sources.poll_source") if error.message in line]
        assert "watch fails, retrying" in watch
        assert "polling fails, retrying every interval" in poll
        status = world.ask(GetFleetStatus())
        assert isinstance(status, FleetStatus)
        assert {source.error for source in status.sources.values()} == {error.message}
        assert not any(source.synced for source in status.sources.values())
        counts = per_minute(world, since)
        assert all(counts[minute] <= 10 for minute in range(1, 10)), counts
        assert counts[0] <= 40, counts
        assert [*world.heard(ExecutorRemoved), *world.heard(BackendFailed)] == []
        assert world.running() == 5


def test_a_refused_credential_is_reported_once_when_it_begins_and_once_when_it_ends() -> None:
    with World(executor={"instances": 5}) as world:
        world.advance(20)
        revoke(world, REVOKED)
        world.target(8)
        world.advance(600)
        (blocked,) = world.heard(AllocationBlocked)
        assert blocked.cause == f"the API server does not accept our credential: {REVOKED.message}"
        assert world.heard(AllocationUnblocked) == []
        world.api.calm()
        world.advance(150)
        assert world.running() == 8
        assert len(world.heard(AllocationBlocked)) == len(world.heard(AllocationUnblocked)) == 1
        world.stop()


def test_when_the_credential_is_accepted_again_the_fleet_recovers_by_itself(error: ApiError) -> None:
    with World(executor={"instances": 5}) as world:
        world.advance(20)
        revoke(world, error)
        world.api.cut()
        world.target(8)
        world.kubelet.exit(pod_name(world, 2), 9)
        world.kill(3)
        world.advance(600)
        assert 2 not in world.removals(), "nobody can know"
        world.api.calm()
        world.advance(150)
        assert world.running() == 8
        assert world.removals()[2].reason.exit_code == 9
        assert sorted(world.removals()) == [2, 3]
        status = world.ask(GetFleetStatus())
        assert {source.error for source in status.sources.values()} == {None}
        world.stop()


def test_a_stop_without_a_credential_ends_in_time_and_names_what_is_left(error: ApiError) -> None:
    with World(executor={"instances": 3}) as world:
        world.advance(20)
        names = {pod["metadata"]["name"] for pod in world.pods()}
        revoke(world, error)
        assert set(world.stop(within=60).left_behind) == names


def test_many_deletions_that_are_refused_are_not_asked_for_every_second() -> None:
    with World(executor={"instances": 40}) as world:
        world.advance(20)
        since = world.kit.clock.monotonic()
        revoke(world, REVOKED)
        world.target(0)
        world.kill(*range(1, 41))
        world.advance(360)
        counts = per_minute(world, since)
        assert all(counts[minute] <= 60 for minute in range(1, 6)), counts
        world.api.calm()
        world.advance(120)
        assert world.pods() == []
        world.stop()
