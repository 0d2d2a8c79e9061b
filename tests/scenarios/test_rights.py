"""A fleet whose account lacks a right: from the start, or from some moment on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from actors.backend.rbac import needed
from actors.cli.rbac import render_rbac
from actors.kube.api import CLAIMS, EVENTS, LEASES, PODS
from actors.local.inprocess import InProcessPodApi
from actors.messages import (
    AllocationBlocked,
    AllocationUnblocked,
    BackendFailed,
    BackendStarted,
    ExecutorRemoved,
    ExecutorRunning,
)
from actors.settings.model import Settings
from tests.scenarios.test_volumes import Disks
from tests.scenarios.world import WatchedApi, World
from tests.unit.cli.test_config import rights

if TYPE_CHECKING:
    from collections.abc import Collection

ALL_RIGHTS = {
    (verb, resource.plural)
    for verb in ("get", "list", "watch", "create", "patch", "update", "delete", "deletecollection")
    for resource in (PODS, LEASES, CLAIMS, EVENTS)
}
VERBS = tuple(right.verb for right in needed(Settings(executor={"delete_on_termination": False})))


class Restricted(World):
    """A world in which the account may not do all."""

    def __init__(self, *forbidden: str, **options: Any) -> None:
        self._forbidden = {(verb, PODS.plural) for verb in forbidden}
        super().__init__(**options)

    def _connect(self) -> WatchedApi:
        api = super()._connect()
        assert isinstance(api._inner, InProcessPodApi)
        api._inner.forbidden = self._forbidden
        return api

    def forbid(self, *verbs: str) -> None:
        """From now on these are all that the account may not do."""
        self._forbidden.clear()
        self._forbidden.update((verb, PODS.plural) for verb in verbs)


class Granted(Disks):
    """A world in which the account has the rights that the command prints for these settings, and no other."""

    def _start(self) -> None:
        granted = {(right.verb, right.resource.plural) for right in rights(render_rbac(self.settings))}
        self.inner.forbidden = ALL_RIGHTS - granted
        super()._start()


@pytest.mark.parametrize("verb", VERBS)
def test_without_one_right_no_fleet_starts_and_no_pod_is_made(verb: str) -> None:
    with Restricted(verb, executor={"instances": 3, "delete_on_termination": verb != "patch"}) as world:
        world.advance(60)
        (failed,) = world.heard(BackendFailed)
        assert f'grant verb "{verb}" on resource "pods"' in str(failed.cause)
        assert world.heard(BackendStarted) == []
        assert world.pods() == []
        assert not world.backend.is_alive()


@pytest.mark.parametrize("seed", range(5))
def test_a_driver_that_comes_back_without_a_right_leaves_its_fleet_as_it_is(seed: int) -> None:
    with Restricted(seed=seed, executor={"instances": 3}) as world:
        world.advance(5)
        world.stop(delete_pods=False)
        before = _names(world.pods("Running"))
        assert len(before) == 3
        world.forbid("deletecollection")
        world.restart()
        world.advance(60)
        assert [type(message) for message in world._drivers[-1].heard][:1] == [BackendFailed]
        assert _names(world.pods("Running")) == before


@pytest.mark.parametrize(
    "settings",
    [
        {"executor": {"claims": []}, "driver_pod_name": None},
        {"backend": {"lease": True}},
        {"executor": {"delete_on_termination": False, "own_claims": False}},
    ],
)
def test_a_fleet_runs_with_the_rights_that_the_command_prints_for_its_settings(settings: dict[str, Any]) -> None:
    with Granted(**settings) as world:
        world.advance(5)
        world.kubelet.exit("app-exec-1", 1)
        world.advance(30)
        assert world.running() == 2
        assert world.heard(AllocationBlocked) == []
        world.stop()
        assert [pod["status"]["phase"] for pod in world.pods() if pod["status"]["phase"] != "Failed"] == []


def test_a_right_to_create_that_is_taken_away_blocks_creation_until_it_is_back() -> None:
    with Restricted(executor={"instances": 2}) as world:
        world.advance(5)
        world.forbid("create")
        world.target(4)
        world.advance(60)
        (blocked,) = world.heard(AllocationBlocked)
        assert 'cannot create resource "pods"' in blocked.cause
        assert world.running() == 2
        world.forbid()
        world.advance(120)
        assert len(world.heard(AllocationUnblocked)) == 1
        assert world.running() == 4


@pytest.mark.parametrize("seed", range(5))
def test_a_server_that_knows_its_roles_three_seconds_late_starts_the_fleet(seed: int) -> None:
    with Restricted("list", "watch", "create", seed=seed, executor={"instances": 3}) as world:
        world.advance(3)
        world.forbid()
        world.advance(10)
        assert len(world.heard(BackendStarted)) == 1
        assert world.heard(BackendFailed) == []
        assert world.running() == 3


def test_a_read_right_that_is_revoked_ends_nothing_and_ends_are_reported_when_it_is_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with Restricted(executor={"instances": 2}) as world:
        world.advance(5)
        world.forbid("list", "watch")
        world.advance(20 * 60)  # no stream lives that long
        world.kubelet.exit("app-exec-1", 1)
        world.advance(60)
        assert world.heard(ExecutorRemoved) == []
        world.forbid()
        world.advance(120)
        assert [removed.executor_id for removed in world.heard(ExecutorRemoved)] == [1]
        assert [running.executor_id for running in world.heard(ExecutorRunning)] == [1, 2, 3]
        assert world.running() == 2
        assert world.heard(BackendFailed) == []
    said = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert len([line for line in said if line.startswith("watch fails")]) == 1
    assert len([line for line in said if line.startswith("polling fails")]) == 1


def _names(pods: Collection[dict[str, Any]]) -> set[str]:
    return {pod["metadata"]["name"] for pod in pods}
