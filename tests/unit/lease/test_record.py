"""Whose a lease is, and what is written into it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from actors.errors import ApiError
from actors.lease.record import (
    TARGETS,
    Take,
    Wait,
    decide,
    first_lease,
    lease_name,
    read,
    read_targets,
    released,
    taken,
)

NOW = datetime(2024, 1, 1, 12, 0, 0, 250, tzinfo=UTC)
FIFTEEN = timedelta(seconds=15)


def lease(**spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "l", "resourceVersion": "7"}, "spec": spec}


HELD = lease(holderIdentity="other", leaseDurationSeconds=15, renewTime="then", leaseTransitions=2)


def test_a_lease_that_is_ours_or_free_is_acquired_at_once() -> None:
    assert decide(read(HELD, FIFTEEN), "other", timedelta()) == Take()
    assert decide(read(lease(holderIdentity=""), FIFTEEN), "me", timedelta()) == Take()
    assert decide(read({"metadata": {"resourceVersion": "1"}}, FIFTEEN), "me", timedelta()) == Take()


def test_the_lease_of_another_is_acquired_when_it_has_not_changed_for_its_duration() -> None:
    assert decide(read(HELD, FIFTEEN), "me", FIFTEEN - timedelta(seconds=1)) == Wait("other")
    assert decide(read(HELD, FIFTEEN), "me", FIFTEEN) == Take()


@pytest.mark.parametrize("spec", [None, [], {"holderIdentity": 3, "leaseDurationSeconds": "x", "leaseTransitions": {}}])
def test_a_lease_can_contain_anything(spec: Any) -> None:
    assert read({"metadata": {"resourceVersion": "1"}, "spec": spec}, FIFTEEN).holder == ""


@pytest.mark.parametrize("seconds", [None, 0, -1, 10**18, 2**31 - 1, True, 15.5, "15"])
def test_a_lease_without_a_usable_duration_is_valid_for_as_long_as_ours(seconds: Any) -> None:
    odd = lease(holderIdentity="other", leaseDurationSeconds=seconds)
    assert read(odd, FIFTEEN).duration == FIFTEEN
    assert decide(read(odd, FIFTEEN), "me", timedelta(seconds=14)) == Wait("other")


def test_the_longest_duration_that_a_driver_may_set_is_respected() -> None:
    longest = lease(holderIdentity="other", leaseDurationSeconds=365 * 86400)
    assert decide(read(longest, FIFTEEN), "me", timedelta(days=364)) == Wait("other")


@pytest.mark.parametrize("transitions", [None, -1, 2**31 - 1, 10**18, True, "2"])
def test_a_takeover_writes_a_number_of_transitions_that_the_api_accepts(transitions: Any) -> None:
    odd = read(lease(holderIdentity="other", leaseTransitions=transitions), FIFTEEN)
    assert taken(odd, "me", FIFTEEN, NOW, last_id=0)["spec"]["leaseTransitions"] == 1


@pytest.mark.parametrize("metadata", [None, [], {}, {"resourceVersion": None}, {"resourceVersion": ""}])
def test_an_answer_without_a_version_is_not_a_lease(metadata: Any) -> None:
    with pytest.raises(ApiError, match="not a Lease"):
        read({"metadata": metadata, "spec": {}}, FIFTEEN)


def renewal(last: str | None, now: datetime = NOW) -> str:
    """What our renewal writes as its time, after the last one."""
    ours = read(lease(holderIdentity="me", renewTime=last), FIFTEEN)
    text: str = taken(ours, "me", FIFTEEN, now, last_id=0)["spec"]["renewTime"]
    return text


def test_each_renewal_has_a_later_time_though_the_wall_clock_stands_still_or_goes_back() -> None:
    first = renewal(None)
    second = renewal(first)
    third = renewal(second, NOW - timedelta(seconds=20))
    assert first == "2024-01-01T12:00:00.000250Z"
    assert second == "2024-01-01T12:00:00.000251Z"
    assert third == "2024-01-01T12:00:00.000252Z"


@pytest.mark.parametrize("last", ["9999-12-31T23:59:59.999999Z", "2024-01-01T12:00:00.000250", "then", "", "0"])
def test_a_time_that_somebody_edited_is_replaced_by_ours(last: str) -> None:
    assert renewal(last) == "2024-01-01T12:00:00.000250Z"


def test_a_takeover_counts_a_transition_and_a_renewal_does_not() -> None:
    over = taken(read(HELD, FIFTEEN), "me", FIFTEEN, NOW, last_id=4)
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
    again = taken(read(HELD, FIFTEEN), "other", FIFTEEN, NOW, last_id=4)
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
    patch = released(read(HELD, FIFTEEN), NOW, last_id=4)
    assert patch["metadata"] == {"resourceVersion": "7", "annotations": {"executor-pods/last-id": "4"}}
    assert (patch["spec"]["holderIdentity"], patch["spec"]["leaseDurationSeconds"]) == ("", 1)


def annotated(annotations: Any) -> dict[str, Any]:
    return {"metadata": {"name": "l", "resourceVersion": "7", "annotations": annotations}, "spec": HELD["spec"]}


def test_the_last_id_never_falls_whichever_driver_writes_it() -> None:
    lease = read(annotated({"executor-pods/last-id": "12"}), FIFTEEN)
    assert lease.last_id == 12
    for patch in (taken(lease, "me", FIFTEEN, NOW, last_id=9), released(lease, NOW, last_id=9)):
        assert patch["metadata"]["annotations"] == {"executor-pods/last-id": "12"}
    assert read(HELD, FIFTEEN).last_id == 0, "a lease of an earlier version"


@pytest.mark.parametrize("text", [None, 3, "", "-1", "1e3", "twelve", "٣", "9" * 19])
def test_an_invalid_last_id_counts_as_none(text: Any) -> None:
    assert read(annotated({"executor-pods/last-id": text}), FIFTEEN).last_id == 0


def test_a_renewal_records_the_targets_for_those_who_look_from_outside() -> None:
    patch = taken(read(HELD, FIFTEEN), "me", FIFTEEN, NOW, last_id=4, targets={"gpu": 2, "default": 10})
    assert patch["metadata"]["annotations"][TARGETS] == '{"default":10,"gpu":2}'
    assert read_targets(patch) == {"default": 10, "gpu": 2}
    many = {f"profile-{index}": 1 for index in range(5_000)}
    assert (
        TARGETS
        not in taken(read(HELD, FIFTEEN), "me", FIFTEEN, NOW, last_id=4, targets=many)["metadata"]["annotations"]
    )


@pytest.mark.parametrize("text", ["", "{", "[1]", '{"a":-1}', '{"a":"x"}', '{"a":1e99}', "[" * 100_000, 7, None])
def test_unusable_targets_are_none(text: Any) -> None:
    assert read_targets(annotated({TARGETS: text})) is None


@pytest.mark.parametrize("annotations", [None, [], "x"])
def test_annotations_can_be_anything(annotations: Any) -> None:
    assert read(annotated(annotations), FIFTEEN).last_id == 0
