"""The Allocator's requests after an executor was killed for its memory, message by message."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from actors.errors import AlreadyExists, Forbidden
from actors.messages.internal import (
    AllocatorStatus,
    ExecutorKilled,
    ExecutorRegistered,
    ExecutorsRequested,
    LedgerEntry,
    LedgerLoaded,
)
from actors.pods.id_map import IdMap
from actors.pods.pod import MEMORY_STEP_LABEL
from tests.unit.allocation.test_allocator import Rig
from tests.unit.views import STARTED, failed, going, labelled, running

if TYPE_CHECKING:
    from actors.messages.internal import CreatePod
    from actors.testing import Kit

GROWS: dict[str, Any] = {
    "min_run_time": "1ms",
    "resources": {"limits": {"memory": "1Gi"}},
    "on_oom": {"factor": 2, "max": "4Gi"},
}


def steps(*creates: CreatePod) -> dict[int, int]:
    """How often the memory of each requested pod was raised."""
    labels = {create.executor_id: create.manifest["metadata"]["labels"] for create in creates}
    return {executor_id: int(each.get(MEMORY_STEP_LABEL, "0")) for executor_id, each in labels.items()}


def status(rig: Rig) -> AllocatorStatus:
    """The last status that the Backend was told."""
    return rig.backend.take_all(AllocatorStatus)[-1]


@pytest.fixture
def three(kit: Kit) -> Rig:
    """An Allocator with three executors that run, the third with more memory."""
    rig = Rig(kit, executor=GROWS).start(3)
    rig.answered()
    rig.view.show(running(1), running(2), labelled(running(3), memory__step="1"))
    rig.round()
    for executor_id in (1, 2, 3):
        rig.allocator.tell(ExecutorRegistered(executor_id, 0.0))
    kit.settle()
    rig.backend.take_all()
    return rig


def oom(executor_id: int) -> Any:
    return failed(executor_id, 137, reason="OOMKilled")


def test_one_killed_for_its_memory_is_replaced_by_one_that_asks_for_more_and_the_backend_knows(three: Rig) -> None:
    three.view.show(oom(1))
    three.round()
    creates = three.requests()
    assert steps(*creates) == {4: 1}
    container = creates[0].manifest["spec"]["containers"][0]
    assert container["resources"] == {"limits": {"memory": "2Gi"}}
    assert three.backend.take(ExecutorsRequested) == ExecutorsRequested((4,), "default", {4: 1})
    told = status(three)
    assert told.memory_steps == {"default": (1, 1)}
    assert told.profiles["default"].more_memory == 2


def test_its_end_counts_once_though_it_is_in_several_batches(three: Rig) -> None:
    three.view.show(oom(1))
    three.round()
    assert steps(*three.requests()) == {4: 1}
    three.view.show(oom(1))
    three.round()
    three.view.end(1)
    three.round()
    assert three.requests() == []
    assert status(three).memory_steps == {"default": (1, 1)}


def test_of_several_replacements_the_first_ask_for_the_most(three: Rig) -> None:
    three.view.show(failed(1, 1), oom(2), labelled(oom(3), memory__step="1"))
    three.round()
    assert steps(*three.requests()) == {4: 2, 5: 1, 6: 0}


def test_one_that_terminates_is_replaced_by_one_with_as_much_and_its_late_end_for_memory_raises_nothing(
    three: Rig,
) -> None:
    leaving = labelled(going(running(3), now=STARTED), memory__step="1")
    three.view.show(leaving)
    three.round()
    assert steps(*three.requests()) == {4: 1}
    three.view.end(3)
    three.round()
    assert three.requests() == []
    assert status(three).memory_steps == {"default": (1,)}


def test_one_that_the_driver_killed_is_replaced_by_one_with_the_profiles_memory(three: Rig) -> None:
    three.tell(ExecutorKilled(3, STARTED, 0.0))
    three.view.show(labelled(oom(3), memory__step="1"))
    three.round()
    assert steps(*three.requests()) == {4: 0}
    assert status(three).memory_steps == {}


def test_a_replacement_that_the_api_refuses_is_owed_again(three: Rig) -> None:
    three.view.show(oom(1))
    three.round()
    three.refused(Forbidden("exceeded quota"), *three.requests())
    assert status(three).memory_steps == {"default": (1, 1)}
    three.kit.advance(minutes=2)
    three.round(synced=True)
    assert steps(*three.requests()) == {5: 1}


def test_a_replacement_whose_name_is_taken_is_requested_under_the_next_with_as_much(three: Rig) -> None:
    three.view.show(oom(1))
    three.round()
    three.refused(AlreadyExists("taken"), *three.requests())
    assert steps(*three.requests()) == {5: 1}


def test_what_the_target_no_longer_needs_is_forgotten(three: Rig) -> None:
    three.want(2)
    three.view.show(oom(1))
    three.round()
    assert three.requests() == []
    assert status(three).memory_steps == {"default": (1,)}
    three.want(3)
    assert steps(*three.requests()) == {4: 0}


def test_the_next_incarnation_continues_and_sends_a_lost_request_with_the_same_memory(kit: Kit) -> None:
    rig = Rig(kit, executor=GROWS)
    entries = (LedgerEntry(1, "default", uid="uid-1"), LedgerEntry(2, "default", memory_step=2))
    ledger = IdMap({entry.executor_id: entry for entry in entries})
    rig.view.show(running(1), oom(9))
    rig.tell(LedgerLoaded(ledger, 10, memory_steps={"default": (1, 2)}))
    rig.want(3)
    rig.begin(lost=frozenset({2}))
    rig.round(synced=True)
    (again,) = rig.requests()
    assert (again.again, steps(again)) == (True, {2: 2})
    rig.created(again)
    assert steps(*rig.requests()) == {10: 1}, "the end of 9 was counted before"
    assert status(rig).memory_steps == {"default": (1, 2)}
