"""Which executor is replaced next."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from actors.executors.roll import POLICIES, candidates, choose, lacks
from actors.messages import ProfileStatus
from actors.messages.internal import ExecutorKilled, LedgerEntry
from actors.pods.pod import ContainerStatus, PodStatus, executor_id
from actors.pods.state import PodRunning
from tests.unit.views import STARTED, running

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from actors.pods.pod import Pod
    from actors.pods.state import PodState


def entry(executor_id: int, *, running_at: float = 0.0, **changes: object) -> LedgerEntry:
    plain = LedgerEntry(executor_id, "default", f"uid-{executor_id}", running_at=running_at, running=True)
    return msgspec.structs.replace(plain, **changes)


def states(*pods: Pod) -> Mapping[int, PodState]:
    """A snapshot's states; of the first nine all run, but for these."""
    return {i: PodRunning(running(i)) for i in range(1, 10)} | {executor_id(pod) or 0: PodRunning(pod) for pod in pods}


def chosen(policy: str, *entries: LedgerEntry, pods: Sequence[Pod] = ()) -> int | None:
    found = choose(candidates(entries, states(*pods), 100.0), POLICIES[policy])
    return found.executor_id if found is not None else None


def test_by_id_the_lowest_goes() -> None:
    assert chosen("id", entry(3), entry(2), entry(9)) == 2


def test_by_age_the_oldest_goes_and_the_lowest_of_equals() -> None:
    assert chosen("age", entry(3, running_at=5.0), entry(4, running_at=2.0), entry(2, running_at=7.0)) == 4
    assert chosen("age", entry(4), entry(3)) == 3


def test_by_failures_the_one_that_failed_most_goes_and_none_where_nothing_failed() -> None:
    assert chosen("failures", entry(1), entry(2)) is None
    assert chosen("failures", entry(1, disconnects=1), entry(2, disconnects=3), entry(3)) == 2
    restarted = msgspec.structs.replace(
        running(3), status=PodStatus(phase="Running", container_statuses=(ContainerStatus(restart_count=4),))
    )
    assert chosen("failures", entry(2, disconnects=3), entry(3), pods=[restarted]) == 3


@pytest.mark.parametrize(
    "going",
    [
        entry(1, running=False),
        entry(1, terminating=True),
        entry(1, killed=ExecutorKilled(1, STARTED, 0.0)),
        entry(1, decommissioned=True),
        entry(1, removed_at=3.0),
        entry(1, uid="of another pod"),
        entry(10),
    ],
)
def test_only_one_that_runs_and_stays_can_be_chosen(going: LedgerEntry) -> None:
    assert chosen("id", going) is None
    assert chosen("id", going, entry(2)) == 2


def test_a_policy_of_the_drivers_own_sees_profile_age_failures_and_pod() -> None:
    among = candidates([entry(1, running_at=40.0, disconnects=2)], states(), 100.0)
    (only,) = among
    assert (only.profile, only.age, only.failures, only.pod.name) == ("default", 60.0, 2, "app-exec-1")
    assert choose(among, lambda them: them[0].executor_id) == only
    assert choose(among, lambda _: None) is None


def test_a_policy_that_chooses_an_unknown_executor_is_refused() -> None:
    with pytest.raises(ValueError, match="chose 7, which is none of the running executors"):
        choose(candidates([entry(1)], states(), 0.0), lambda _: 7)


def test_candidates_come_by_id_whatever_the_order_of_the_ledger() -> None:
    assert [each.executor_id for each in candidates([entry(9), entry(1), entry(4)], states(), 0.0)] == [1, 4, 9]


ENOUGH = {"default": ProfileStatus(target=2, running=2)}


def test_no_profile_lacks_executors_when_as_many_run_as_are_desired() -> None:
    two = candidates([entry(1), entry(2)], states(), 0.0)
    assert lacks(two, {"default": 2}, ENOUGH) is None
    assert lacks(two, {"default": 3}, ENOUGH) == "default"
    assert (
        lacks(candidates([entry(1), entry(2, decommissioned=True)], states(), 0.0), {"default": 2}, ENOUGH) == "default"
    )


def test_a_profile_lacks_executors_when_too_few_run_or_creation_is_blocked() -> None:
    two = candidates([entry(1), entry(2)], states(), 0.0)
    more = {**ENOUGH, "big": ProfileStatus(target=1)}
    assert lacks(two, {"default": 2, "big": 1}, more) == "big"
    assert lacks(two, {"default": 2, "big": 0}, more) is None
    assert lacks(two, {"default": 2}, {"default": ProfileStatus(blocked="the quota is full")}) == "default"
    assert lacks(two, {"default": 2}, {}) == "default", "the Allocator has not counted yet"
