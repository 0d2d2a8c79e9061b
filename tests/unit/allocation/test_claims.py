"""Which claims an executor may take over, and which of them first."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.allocation.claims import Claim, fitting, free, read
from actors.manifests.executor_pod import ExecutorManifests, owner_reference
from actors.settings import ClaimSettings, Settings

if TYPE_CHECKING:
    from collections.abc import Sequence

CREATED = datetime(2024, 1, 1, tzinfo=UTC)
NOW = CREATED + timedelta(minutes=2)
MINUTE = timedelta(minutes=1)
OWNER = owner_reference("driver", "u")
WANTED: dict[str, Any] = {"name": "data", "mount_path": "/data", "size": "10Gi"}


def manifest(executor_id: int = 1, *, profile: str = "default", **wanted: Any) -> dict[str, Any]:
    """A claim as the API returns it a while after its creation."""
    claims = [ClaimSettings(**{**WANTED, **wanted})]
    settings = Settings(app_id="app", executor={"image": "i", "claims": claims}, profiles={"big": {}})
    (made,) = ExecutorManifests(settings, namespace="space", owners=(OWNER,)).claims(executor_id, profile)
    stored = {"creationTimestamp": "2024-01-01T00:00:00Z", "finalizers": ["kubernetes.io/pvc-protection"]}
    return {**made, "metadata": {**made["metadata"], **stored}, "status": {"phase": "Bound"}}


def changed(subject: dict[str, Any], part: str, **values: Any) -> dict[str, Any]:
    return {**subject, part: {**subject[part], **values}}


def claim(subject: dict[str, Any]) -> Claim:
    found = read(subject)
    assert found is not None
    return found


def fits(subject: dict[str, Any], *, profile: str = "default", **wanted: Any) -> bool:
    return bool(fitting([claim(subject)], ClaimSettings(**{**WANTED, **wanted}), profile, "u"))


def in_turn(*claims: dict[str, Any], in_use: Sequence[str] = (), now: datetime = NOW) -> list[str]:
    return [each.name for each in free(map(claim, claims), in_use, now=now, older_than=MINUTE)]


def test_a_claim_fits_the_setting_it_was_made_for() -> None:
    assert fits(manifest())


@pytest.mark.parametrize(
    ("made", "wanted"),
    [
        ({"size": "20Gi"}, {"size": "10Gi"}),
        ({"size": "10Gi"}, {"size": "10240Mi"}),
        ({"size": "10Gi"}, {"size": "10G"}),
        ({"access_modes": ["ReadWriteOnce", "ReadOnlyMany"]}, {"access_modes": ["ReadOnlyMany"]}),
        ({"mount_path": "/a", "read_only": True, "sub_path": "s"}, {"mount_path": "/b"}),
        ({"storage_class": "fast"}, {"storage_class": "fast"}),
        ({"storage_class": ""}, {"storage_class": ""}),
    ],
)
def test_a_claim_fits_that_has_all_that_is_required(made: dict[str, Any], wanted: dict[str, Any]) -> None:
    assert fits(manifest(**made), **wanted)


@pytest.mark.parametrize(
    ("made", "wanted"),
    [
        ({"name": "data"}, {"name": "model"}),
        ({"size": "9Gi"}, {"size": "10Gi"}),
        ({"size": "10G"}, {"size": "10Gi"}),
        ({"access_modes": ["ReadWriteOnce"]}, {"access_modes": ["ReadWriteOnce", "ReadOnlyMany"]}),
        ({"storage_class": "slow"}, {"storage_class": "fast"}),
        ({"storage_class": ""}, {"storage_class": "fast"}),
        ({"storage_class": "fast"}, {"storage_class": ""}),
        ({"storage_class": "fast"}, {}),
        ({"storage_class": ""}, {}),
        ({}, {"storage_class": "fast"}),
        ({}, {"storage_class": ""}),
    ],
)
def test_a_claim_does_not_fit_that_lacks_something(made: dict[str, Any], wanted: dict[str, Any]) -> None:
    assert not fits(manifest(**made), **wanted)


def test_a_claim_of_the_default_class_fits_whatever_class_the_api_has_written_into_it() -> None:
    stored = changed(manifest(), "spec", storageClassName="standard")

    assert fits(stored)


def test_a_claim_is_for_its_own_profile() -> None:
    assert fits(manifest(profile="big"), profile="big")
    assert not fits(manifest(profile="big"))


@pytest.mark.parametrize(
    "subject",
    [
        changed(manifest(), "metadata", ownerReferences=[owner_reference("driver", "earlier")]),
        changed(manifest(), "metadata", ownerReferences=None),
        changed(manifest(), "metadata", labels=None),
        changed(manifest(), "metadata", deletionTimestamp="2024-01-01T00:01:00Z"),
        changed(manifest(), "status", phase="Lost"),
        changed(manifest(), "spec", resources={}),
        changed(manifest(), "spec", resources={"requests": {"storage": "much"}}),
        changed(manifest(), "spec", accessModes=None),
    ],
    ids=["another owner", "no owner", "no labels", "being deleted", "lost", "no size", "no number", "no modes"],
)
def test_a_claim_that_is_lost_or_being_deleted_does_not_fit(subject: dict[str, Any]) -> None:
    assert not fits(subject)


@pytest.mark.parametrize("phase", ["Pending", "Bound"])
def test_a_claim_that_has_no_volume_yet_fits_as_well(phase: str) -> None:
    assert fits(changed(manifest(), "status", phase=phase))


def test_a_malformed_claim_is_left_out() -> None:
    assert read({"metadata": {"name": 7}}) is None
    assert read({"metadata": {"creationTimestamp": "yesterday"}}) is None
    assert read({}) == Claim()


def test_a_claim_in_use_is_not_free() -> None:
    assert in_turn(manifest(1), manifest(2), in_use=["app-exec-1-pvc-0"]) == ["app-exec-2-pvc-0"]


@pytest.mark.parametrize(("age", "is_free"), [(MINUTE, False), (MINUTE + timedelta(seconds=1), True), (-MINUTE, False)])
def test_a_claim_is_free_when_it_is_older_than_the_creation_timeout(age: timedelta, is_free: bool) -> None:
    assert bool(in_turn(manifest(), now=CREATED + age)) is is_free


def test_a_claim_without_an_age_is_not_free() -> None:
    assert in_turn(changed(manifest(), "metadata", creationTimestamp=None)) == []


def test_the_smallest_goes_first_and_then_the_oldest() -> None:
    large, small = manifest(1, size="20Gi"), manifest(4)
    older = changed(manifest(3), "metadata", creationTimestamp="2023-12-31T00:00:00Z")
    twin = manifest(2)

    assert in_turn(large, small, older, twin) == [f"app-exec-{i}-pvc-0" for i in (3, 2, 4, 1)]


@given(st.lists(st.sampled_from(["9Gi", "10Gi", "11Gi"]), max_size=6), st.sets(st.integers(0, 5)))
def test_each_claim_is_assigned_once_and_none_that_is_in_use_or_too_small(sizes: list[str], used: set[int]) -> None:
    claims = [claim(manifest(number + 1, size=size)) for number, size in enumerate(sizes)]
    in_use = {f"app-exec-{number + 1}-pvc-0" for number in used}

    handed_out = [
        each.name
        for each in free(fitting(claims, ClaimSettings(**WANTED), "default", "u"), in_use, now=NOW, older_than=MINUTE)
    ]

    assert len(set(handed_out)) == len(handed_out)
    assert set(handed_out) == {each.name for each in claims if each.size >= 10 * 2**30} - in_use
