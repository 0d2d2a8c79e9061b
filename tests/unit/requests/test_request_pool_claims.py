"""The RequestPool and the claims of a pod: one create in steps, which can be cancelled between two of them."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from actors.errors import AlreadyExists, Cancelled, Forbidden, QuotaExceeded, TooManyRequests
from actors.messages.internal import (
    BeginEpoch,
    ClaimsListed,
    CreatePod,
    DeletePod,
    Drain,
    EpochBegun,
    ListClaims,
    PodCreated,
    PodCreateFailed,
    SuspendWrites,
)
from tests.unit.builders import labels, pod, pod_name
from tests.unit.requests.test_request_pool import UID, World

if TYPE_CHECKING:
    from actors.testing import Kit

CLAIM = {"kind": "PersistentVolumeClaim"}


@pytest.fixture
def world(kit: Kit) -> World:
    return World(kit)


def create(world: World, executor_id: int = 1, *, again: bool = False) -> None:
    manifest = {"metadata": {"name": pod_name(executor_id), "labels": labels(executor_id)}}
    claim = {"metadata": {"name": f"{pod_name(executor_id)}-pvc-0"}}
    world.tell(CreatePod(executor_id, 1, manifest, world.allocator.address, (claim,), again))


def test_a_pod_is_posted_once_its_claim_is_made(world: World) -> None:
    create(world)
    assert [call.operation for call in world.api.open()] == ["create_object"]
    world.answer_next("create_object", CLAIM)
    assert [call.operation for call in world.api.open()] == ["create"]
    world.answer_next("create", pod(1))

    assert world.allocator.take(PodCreated).executor_id == 1


def test_a_claim_that_is_refused_is_the_answer_to_the_create(world: World) -> None:
    refusal = QuotaExceeded("exceeded quota", status=403)
    create(world)
    world.answer_next("create_object", refusal)

    assert world.allocator.take(PodCreateFailed).error is refusal
    assert not world.api.open()


@pytest.mark.parametrize("how", ["suspended", "drained", "another epoch"])
def test_a_pod_whose_create_is_cancelled_while_its_claim_is_made_is_not_posted(world: World, how: str) -> None:
    create(world)
    (call,) = world.api.open("create_object")
    messages = {
        "suspended": SuspendWrites("another driver has the lease"),
        "drained": Drain(world.backend.address),
        "another epoch": BeginEpoch(2, world.allocator.address),
    }
    world.tell(messages[how])
    if how != "suspended":  # else the call is cancelled, so that the claim is not made either if possible
        world.answer(call, CLAIM)

    assert call.cancelled is (how == "suspended")
    assert isinstance(world.allocator.take(PodCreateFailed).error, Cancelled)
    assert not world.api.open("create")


def test_a_pod_whose_claim_was_made_in_the_epoch_before_was_dropped(world: World) -> None:
    create(world)
    (call,) = world.api.open("create_object")
    world.tell(BeginEpoch(2, world.allocator.address))
    assert world.allocator.take_all(EpochBegun) == []
    world.answer(call, CLAIM)

    assert world.allocator.take(EpochBegun) == EpochBegun(2, dropped=frozenset({1}))


def test_a_claim_that_an_earlier_pool_may_have_made_is_ours(world: World) -> None:
    create(world, again=True)
    world.answer_next("create_object", AlreadyExists("exists", status=409))
    world.answer_next("create", pod(1))

    assert world.allocator.take(PodCreated).executor_id == 1


def test_claims_wait_for_the_pause_after_a_429_and_deletes_do_not(world: World) -> None:
    create(world)
    world.answer_next("create_object", TooManyRequests("slow", status=429, retry_after=timedelta(seconds=5)))
    create(world, 2)
    world.tell(DeletePod("other", UID))
    assert [call.operation for call in world.api.open()] == ["delete"]

    assert world.wait_for("create_object").total_seconds() >= 5


def test_claims_are_listed_while_writes_are_suspended(world: World) -> None:
    world.tell(SuspendWrites("another driver has the lease"), ListClaims(world.allocator.address))
    world.answer_next("list_objects", Forbidden("cannot list", status=403))

    assert isinstance(world.allocator.take(ClaimsListed).claims, Forbidden)


def test_two_senders_that_list_claims_get_an_answer_each_and_a_repeated_request_one(world: World) -> None:
    for asker in (world.allocator, world.backend, world.allocator):
        world.tell(ListClaims(asker.address))
    assert len(world.api.open("list_objects")) == 2
    for _ in range(2):
        world.answer_next("list_objects", [CLAIM])

    assert world.allocator.take(ClaimsListed).claims == world.backend.take(ClaimsListed).claims == (CLAIM,)
