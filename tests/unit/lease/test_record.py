"""Whose a lease is, and what is written into it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from actors.lease.record import Take, Wait, decide, first_lease, lease_name, read, released, taken

NOW = datetime(2024, 1, 1, 12, 0, 0, 250, tzinfo=UTC)
FIFTEEN = timedelta(seconds=15)


def lease(**spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "l", "resourceVersion": "7"}, "spec": spec}


HELD = lease(holderIdentity="other", leaseDurationSeconds=15, renewTime="then", leaseTransitions=2)


def test_a_lease_that_is_ours_or_free_is_acquired_at_once() -> None:
    assert decide(read(HELD), "other", timedelta()) == Take()
    assert decide(read(lease(holderIdentity="")), "me", timedelta()) == Take()
    assert decide(read({"metadata": {"resourceVersion": "1"}}), "me", timedelta()) == Take()


def test_the_lease_of_another_is_acquired_when_it_has_not_changed_for_its_duration() -> None:
    assert decide(read(HELD), "me", FIFTEEN - timedelta(seconds=1)) == Wait("other")
    assert decide(read(HELD), "me", FIFTEEN) == Take()


@pytest.mark.parametrize("spec", [None, [], {"holderIdentity": 3, "leaseDurationSeconds": "x", "leaseTransitions": {}}])
def test_a_lease_can_contain_anything(spec: Any) -> None:
    assert read({"metadata": {"resourceVersion": "1"}, "spec": spec}).holder == ""


def test_a_takeover_counts_a_transition_and_a_renewal_does_not() -> None:
    over = taken(read(HELD), "me", FIFTEEN, NOW, last_id=4)
    assert over == {
        "metadata": {"resourceVersion": "7", "annotations": {"executor-pods/last-id": "4"}},
        "spec": {
            "holderIdentity": "me",
            "leaseDurationSeconds": 15,
            "renewTime": "2024-01-01T12:00:00.000250Z",
            "acquireTime": "2024-01-01T12:00:00.000250Z",
            "leaseTransitions": 3,
        },
    }
    again = taken(read(HELD), "other", FIFTEEN, NOW, last_id=4)
    assert again["spec"].keys() == {"holderIdentity", "leaseDurationSeconds", "renewTime"}


def test_a_new_lease_names_its_application_and_its_holder() -> None:
    made = first_lease("etl", "me", FIFTEEN, NOW, {"a": "b"}, last_id=4)
    assert made["metadata"] == {
        "name": "executor-pods-etl",
        "labels": {"a": "b"},
        "annotations": {"executor-pods/last-id": "4"},
    }
    assert lease_name("etl") == "executor-pods-etl"
    assert (made["spec"]["holderIdentity"], made["spec"]["leaseTransitions"]) == ("me", 0)


def test_a_released_lease_has_no_holder_and_no_time_left() -> None:
    patch = released(read(HELD), NOW, last_id=4)
    assert patch["metadata"] == {"resourceVersion": "7", "annotations": {"executor-pods/last-id": "4"}}
    assert (patch["spec"]["holderIdentity"], patch["spec"]["leaseDurationSeconds"]) == ("", 1)


def annotated(annotations: Any) -> dict[str, Any]:
    return {"metadata": {"name": "l", "resourceVersion": "7", "annotations": annotations}, "spec": HELD["spec"]}


def test_the_last_id_never_falls_whichever_driver_writes_it() -> None:
    lease = read(annotated({"executor-pods/last-id": "12"}))
    assert lease.last_id == 12
    for patch in (taken(lease, "me", FIFTEEN, NOW, last_id=9), released(lease, NOW, last_id=9)):
        assert patch["metadata"]["annotations"] == {"executor-pods/last-id": "12"}
    assert read(HELD).last_id == 0, "a lease of an earlier version"


@pytest.mark.parametrize("text", [None, 3, "", "-1", "1e3", "twelve", "٣", "9" * 19])
def test_an_invalid_last_id_counts_as_none(text: Any) -> None:
    assert read(annotated({"executor-pods/last-id": text})).last_id == 0


@pytest.mark.parametrize("annotations", [None, [], "x"])
def test_annotations_can_be_anything(annotations: Any) -> None:
    assert read(annotated(annotations)).last_id == 0
