"""Reading pods with unusable fields."""

from __future__ import annotations

import copy
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from actors.pods.api_pod import ApiPod
from actors.pods.repair import UNREADABLE_TIME, pod_from
from tests.fuzz.test_answers import POD

if TYPE_CHECKING:
    from actors.pods.pod import Grace


def with_field(place: str, value: Any) -> ApiPod:
    changed = copy.deepcopy(POD)
    *way, last = place.split(".")
    part: Any = changed
    for step in way:
        part = part[int(step)] if isinstance(part, list) else part[step]
    part[last] = value
    return pod_from(changed)


def test_a_good_pod_is_read_as_it_is() -> None:
    assert pod_from(POD) == msgspec.convert(POD, ApiPod)


@pytest.mark.parametrize(
    ("value", "expected"), [(10**14, 2**31 - 1), (1e300, 2**31 - 1), (-1, None), ("30", None), (True, None), (0, 0)]
)
def test_a_grace_period_is_bounded(value: Any, expected: Grace | None) -> None:
    assert with_field("metadata.deletionGracePeriodSeconds", value).metadata.deletion_grace_period_seconds == expected


@pytest.mark.parametrize("value", ["0000-01-01T00:00:00Z", "soon", "", 3, [], {}, False])
def test_a_deletion_that_has_begun_is_known_whatever_its_timestamp_says(value: Any) -> None:
    assert with_field("metadata.deletionTimestamp", value).metadata.deletion_timestamp == UNREADABLE_TIME
    assert with_field("metadata.deletionTimestamp", None).metadata.deletion_timestamp is None


def test_a_timestamp_without_a_zone_is_utc_and_an_unreadable_one_is_none() -> None:
    zoneless, unreadable = (
        with_field("status.startTime", f"{year}-01-02T00:00:00").status for year in ("2024", "0000")
    )
    assert zoneless is not None
    assert zoneless.start_time == datetime(2024, 1, 2, tzinfo=UTC)
    assert unreadable == msgspec.structs.replace(zoneless, start_time=None)


def test_lists_and_maps_lose_what_cannot_be_used() -> None:
    statuses = [7, {"name": 7, "restartCount": 10**20, "state": {"terminated": {"exitCode": "1"}}}]
    found = with_field("status.containerStatuses", statuses).status
    assert found is not None
    assert found.container_statuses is not None
    (status,) = found.container_statuses
    assert (status.name, status.restart_count) == ("", 2**31 - 1)
    assert status.state is not None
    assert status.state.terminated is not None
    assert status.state.terminated.exit_code == -1
    assert with_field("metadata.labels", {"a": "b", "c": 3}).metadata.labels == {"a": "b"}


@pytest.mark.parametrize("place", ["metadata", "metadata.name", "metadata.uid"])
@pytest.mark.parametrize("value", [3, None, "", [], "\N{REPLACEMENT CHARACTER}"])
def test_a_pod_that_cannot_be_identified_is_refused(place: str, value: Any) -> None:
    with pytest.raises(msgspec.ValidationError):
        with_field(place, value)
