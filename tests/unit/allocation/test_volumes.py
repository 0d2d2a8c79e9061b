"""Volumes: what executors get, round by round, and what is kept of it until a snapshot shows their pods."""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from actors.allocation.claims import read
from actors.allocation.profile import Profiles
from actors.allocation.volumes import LIST_EVERY, Volumes
from actors.errors import Forbidden
from actors.manifests.executor_pod import ExecutorManifests, owner_reference
from actors.pods.ids import claim_name
from actors.pods.pod import ClaimVolume, ContainerSpec, PodSpec, Volume
from actors.settings.model import Settings
from tests.unit.views import View, failed, going, pending, running

if TYPE_CHECKING:
    from collections.abc import Sequence

    from actors.allocation.profile import Profile
    from actors.allocation.volumes import Mounts
    from actors.pods.pod import Pod

MADE = "2024-01-01T00:00:00Z"
NOW = datetime(2024, 1, 1, tzinfo=UTC) + timedelta(minutes=5)
OWNER = owner_reference("driver", "u")
DATA: dict[str, Any] = {"name": "data", "mount_path": "/data", "size": "10Gi"}
MODEL: dict[str, Any] = {"name": "model", "mount_path": "/model", "size": "1Gi"}
REFUSED = Forbidden("persistentvolumeclaims is forbidden", status=403)


def disk(executor_id: int, index: int = 0) -> str:
    return claim_name("app", executor_id, index)


def mounting(subject: Pod, *names: str) -> Pod:
    """The same pod with these claims."""
    volumes = (Volume(), *(Volume(ClaimVolume(name)) for name in names))
    return msgspec.structs.replace(subject, spec=PodSpec(containers=(ContainerSpec("executor"),), volumes=volumes))


class Rig:
    """The volumes of a fleet, a view of its pods, and the claims that a list returns."""

    def __init__(self, *claims: dict[str, Any], owner: bool = True, **executor: Any) -> None:
        everywhere: Any = {"image": "i", "claims": list(claims or (DATA,)), **executor}
        settings = Settings(app_id="app", driver_pod_name="driver", executor=everywhere, profiles={"big": {}})
        self.manifests = ExecutorManifests(settings, namespace="space", owners=(OWNER,) if owner else ())
        self.volumes = Volumes(settings, self.manifests)
        self.profiles = Profiles(settings)
        self.view = View()
        self.unseen: set[int] = set()
        self.stored: list[dict[str, Any]] = []

    def there(self, *executor_ids: int, profile: str = "default") -> None:
        """Store claims that were created for these executors long ago."""
        for executor_id in executor_ids:
            for made in self.manifests.claims(executor_id, profile):
                self.stored.append({**made, "metadata": {**made["metadata"], "creationTimestamp": MADE}})

    def look(self) -> int:
        return self.volumes.listed(self.stored, NOW)

    def equip(self, *executor_ids: int, target: int = 10, profile: str = "default") -> Sequence[Mounts]:
        """Assign claims in a round with its own list."""
        self.look()
        snapshot = self.view.batch(0.0).snapshot
        mounts = self.volumes.assign(self.profile(profile, target), executor_ids, snapshot)
        self.unseen.update(executor_ids[: len(mounts)])
        self.volumes.drop_list()
        return mounts

    def profile(self, name: str = "default", target: int = 1) -> Profile:
        self.profiles[name].target = target
        return self.profiles[name]

    def names(self, *executor_ids: int, **options: Any) -> list[str]:
        return [name for mounts in self.equip(*executor_ids, **options) for name in mounts.names.values()]

    def show(self, *pods: Pod) -> None:
        """The pods appear, or change."""
        self.view.show(*pods)
        self.unseen.difference_update(int(subject.labels["executor-pods/executor-id"]) for subject in pods)
        self.follow()

    def end(self, *executor_ids: int) -> None:
        self.view.end(*executor_ids)
        self.follow()

    def follow(self) -> None:
        self.volumes.follow(self.view.batch(0.0), self.unseen.__contains__)


def made(mounts: Mounts) -> list[str]:
    return [str(manifest["metadata"]["name"]) for manifest in mounts.made]


# ── free claims ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_without_free_claims_each_executor_gets_new_ones() -> None:
    first, second = Rig(DATA, MODEL).equip(1, 2)

    assert dict(first.names) == {"data": disk(1, 0), "model": disk(1, 1)}
    assert made(first) == [disk(1, 0), disk(1, 1)]
    assert made(second) == [disk(2, 0), disk(2, 1)]


def test_executors_that_own_their_volumes_are_assigned_nothing_and_need_no_list() -> None:
    for rig in (Rig(owner=False), Rig(own_claims=False)):
        assert rig.volumes.is_ready("default")
        assert [(dict(each.names), each.made) for each in rig.equip(1, 2)] == [({}, ()), ({}, ())]


def test_a_profile_without_claims_needs_no_list() -> None:
    assert Rig().volumes.is_ready("unknown")
    assert not Rig().volumes.is_ready("default")


def test_free_claims_are_reused_and_the_others_are_created() -> None:
    rig = Rig(DATA, MODEL)
    rig.there(1)
    rig.stored = [each for each in rig.stored if each["metadata"]["name"] == disk(1, 1)]

    (mounts,) = rig.equip(3)

    assert dict(mounts.names) == {"data": disk(3, 0), "model": disk(1, 1)}
    assert made(mounts) == [disk(3, 0)]


def test_profiles_do_not_take_from_each_other() -> None:
    rig = Rig()
    rig.there(1, profile="big")

    assert rig.names(2) == [disk(2)]
    assert rig.names(3, profile="big") == [disk(1)]


# ── the list ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_list_is_requested_once_and_serves_one_round() -> None:
    rig = Rig()
    volumes = rig.volumes

    assert not volumes.is_ready("default")
    assert volumes.should_list(rig.profile(target=1), 0.0)
    assert not volumes.should_list(rig.profile(target=1), 0.0), "one is requested already"
    rig.look()
    assert volumes.is_ready("default")
    volumes.drop_list()
    assert not volumes.is_ready("default")
    assert volumes.should_list(rig.profile(target=1), 0.0)


def test_ids_resume_after_those_in_the_names_of_claims() -> None:
    rig = Rig()
    assert rig.look() == 1
    rig.there(4, 11, 7)
    assert rig.look() == 12


def test_claims_that_cannot_be_listed_are_not_reused_and_that_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    rig = Rig(wait_to_reuse_claim=True)
    with caplog.at_level(logging.WARNING):
        for executor_id in (1, 2):
            assert rig.volumes.listed(REFUSED, NOW) == 1
            assert rig.volumes.is_ready("default")
            snapshot = rig.view.batch(0.0).snapshot
            (mounts,) = rig.volumes.assign(rig.profile(), [executor_id], snapshot)
            assert made(mounts) == [disk(executor_id)]
    assert len(caplog.records) == 1

    rig.look()
    rig.volumes.listed(REFUSED, NOW)
    assert len(caplog.records) == 2, "it is logged again after a success"


# ── claims in use ────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_claim_stays_with_an_executor_that_is_not_in_a_snapshot_yet() -> None:
    rig = Rig()
    rig.there(1)
    assert rig.names(2) == [disk(1)]
    rig.follow()

    assert rig.names(3) == [disk(3)]


@pytest.mark.parametrize("state", [pending, running, lambda number: going(running(number))])
def test_a_claim_stays_with_a_pod_that_is_alive(state: Any) -> None:
    rig = Rig()
    rig.there(1)
    rig.equip(2)
    rig.show(mounting(state(2), disk(1)))

    assert rig.names(3) == [disk(3)]


def test_a_claim_is_free_when_its_pod_has_ended_whether_it_is_gone_or_not() -> None:
    rig = Rig()
    rig.there(1, 2)
    rig.show(mounting(running(1), disk(1)), mounting(running(2), disk(2)))
    rig.show(mounting(failed(1), disk(1)))
    rig.end(2)

    assert sorted(rig.names(3, 4, 5)) == [disk(1), disk(2), disk(5)]


def test_a_claim_is_free_when_its_pod_is_deleted_by_force_though_its_phase_is_running() -> None:
    rig = Rig()
    rig.there(1)
    rig.show(mounting(going(running(1), grace=0), disk(1)))

    assert rig.names(2) == [disk(1)]


def test_a_claim_stays_with_a_pod_whose_executor_has_ended_but_not_its_sidecar() -> None:
    rig = Rig()
    rig.there(1)
    ended = failed(1)
    assert ended.status is not None
    running_on = msgspec.structs.replace(ended, status=msgspec.structs.replace(ended.status, phase="Running"))
    rig.show(mounting(running_on, disk(1)))

    assert rig.names(2) == [disk(2)]


def test_a_claim_is_free_again_when_the_pod_it_was_meant_for_was_refused() -> None:
    rig = Rig()
    rig.there(1)
    rig.equip(2)
    rig.volumes.refused(2, taken=False)

    assert rig.names(3) == [disk(1)]


def test_claims_made_for_a_refused_pod_go_to_the_next_one_first() -> None:
    rig = Rig()
    rig.equip(1)
    rig.volumes.refused(1, taken=False)
    rig.there(5)

    first, second, third = rig.equip(6, 7, 8)

    assert [*first.names.values(), *second.names.values(), *third.names.values()] == [disk(1), disk(5), disk(8)]
    assert (made(first), made(second), made(third)) == ([disk(1)], [], [disk(8)])


def test_claims_made_for_a_refused_pod_are_not_created_again_once_a_list_has_them() -> None:
    rig = Rig()
    rig.equip(1)
    rig.volumes.refused(1, taken=False)
    rig.there(1)
    (mounts,) = rig.equip(2)
    assert (dict(mounts.names), made(mounts)) == ({"data": disk(1)}, [])

    rig.volumes.refused(2, taken=False)
    assert rig.names(3, 4) == [disk(1), disk(4)], "one executor gets it, not two"


def test_with_reuse_off_claims_made_for_a_refused_pod_still_go_to_the_next_one() -> None:
    rig = Rig(reuse_claims=False)
    snapshot = rig.view.batch(0.0).snapshot
    rig.volumes.assign(rig.profile(), [1], snapshot)
    rig.volumes.refused(1, taken=False)

    (mounts,) = rig.volumes.assign(rig.profile(), [2], snapshot)

    assert made(mounts) == [disk(1)]


def test_names_that_others_have_taken_are_left_alone() -> None:
    rig = Rig()
    rig.equip(1)
    rig.volumes.refused(1, taken=True)

    assert rig.names(2) == [disk(2)]


def test_the_refusal_of_an_executor_without_claims_changes_nothing() -> None:
    rig = Rig()
    rig.volumes.refused(1, taken=False)

    assert rig.names(2) == [disk(2)]


# ── waiting ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_waiting_profile_gets_new_claims_only_until_there_is_one_for_each_executor() -> None:
    rig = Rig(wait_to_reuse_claim=True)

    assert rig.names(1, 2, 3, target=2) == [disk(1), disk(2)]
    assert rig.profile(target=2).awaited_claim == "data"


def test_assigned_claims_count_once_whether_a_list_has_them_or_not() -> None:
    rig = Rig(wait_to_reuse_claim=True)
    rig.equip(1, 2, target=4)
    rig.there(1)

    assert rig.names(3, 4, 5, target=4) == [disk(3), disk(4)]


def test_claims_that_were_made_for_refused_pods_count_too() -> None:
    rig = Rig(wait_to_reuse_claim=True)
    rig.equip(1, 2, target=2)
    rig.volumes.refused(1, taken=False)

    assert rig.names(3, 4, target=2) == [disk(1)]


def test_claims_that_do_not_fit_are_not_waited_for() -> None:
    rig = Rig(wait_to_reuse_claim=True)
    rig.there(1, 2)
    for stored in rig.stored:
        stored["status"] = {"phase": "Lost"}

    assert rig.names(3, 4, target=2) == [disk(3), disk(4)]


def test_an_executor_that_waits_for_one_of_two_claims_takes_neither() -> None:
    rig = Rig(DATA, MODEL, wait_to_reuse_claim=True)
    rig.there(1)
    rig.show(mounting(running(1), disk(1, 1)))
    assert rig.equip(2, target=1) == []
    rig.end(1)

    assert rig.names(2, target=1) == [disk(1, 0), disk(1, 1)]


def test_the_wait_is_over_with_a_claim_or_another_target() -> None:
    rig = Rig(wait_to_reuse_claim=True)
    rig.there(1)
    rig.show(mounting(running(1), disk(1)))
    assert rig.equip(2, target=1) == []
    assert rig.profile("default", 1).awaited_claim is not None
    assert rig.profile("default", 2).awaited_claim is None
    assert rig.profile("big", 1).awaited_claim is None

    rig.end(1)
    assert rig.names(2, target=1) == [disk(1)]
    assert rig.profile("default", 1).awaited_claim is None


def test_a_waiting_profile_lists_again_after_a_while_after_an_end_or_with_another_target() -> None:
    rig, soon = Rig(wait_to_reuse_claim=True), LIST_EVERY.total_seconds()
    rig.there(1)
    rig.show(mounting(running(1), disk(1)))
    volumes = rig.volumes
    for now in (0.0, soon):
        assert volumes.should_list(rig.profile(target=1), now)
        assert rig.equip(2, target=1) == []
        assert not volumes.should_list(rig.profile(target=1), now + soon / 2)
    rig.end(1)
    assert volumes.should_list(rig.profile(target=1), soon + 0.1)
    rig.stored.clear()
    rig.there(3)
    rig.show(mounting(running(3), disk(3)))
    assert rig.equip(4, target=1) == []
    assert volumes.should_list(rig.profile(target=2), soon + 0.2)


def test_a_claim_reads_back_as_it_was_made() -> None:
    (manifest,) = Rig().manifests.claims(1, "default")
    claim = read(manifest)

    assert claim is not None
    assert (claim.name, int(claim.size), claim.is_owned_by("u")) == (disk(1), 10 * 2**30, True)
