"""The Allocator and the claims of its executors: when it has them listed, and what it asks the pool to make."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from actors.errors import AlreadyExists, ApiError, Forbidden, QuotaExceeded
from actors.manifests.executor_pod import owner_reference
from actors.messages.internal import (
    AllocatorStatus,
    ClaimsListed,
    CreatePod,
    CreationBlocked,
    ExecutorsRequested,
    ListClaims,
    PodCreateFailed,
    SetTotalExpectedExecutors,
)
from actors.pods.ids import claim_name
from tests.unit.allocation.test_allocator import MINUTE, SECOND, Rig
from tests.unit.allocation.test_volumes import mounting
from tests.unit.views import going, labelled, running

if TYPE_CHECKING:
    from typing import Self

    from actors.kube.api import Manifest
    from actors.pods.pod import Pod
    from actors.testing import Kit

DATA: dict[str, Any] = {"name": "data", "mount_path": "/data", "size": "10Gi"}


class Disks(Rig):
    """An Allocator whose executors have a claim each, which the driver's pod owns."""

    owners = (owner_reference("driver", "u"),)

    def __init__(self, kit: Kit, *, executor: dict[str, Any] | None = None, **allocation: Any) -> None:
        super().__init__(kit, executor={"claims": [DATA], **(executor or {})}, **allocation)
        self.stored: list[Manifest] = []

    def start(self, total: int = 0) -> Self:
        super().start(total)
        return self

    def look(self, answer: ApiError | None = None) -> None:
        """The pool answers the one requested list."""
        asked = self.pool.take(ListClaims)
        asked.reply_to.tell(ClaimsListed(answer if answer is not None else tuple(self.stored)))
        self.kit.settle()

    def keep(self, *creates: CreatePod) -> None:
        """Their claims were created long ago."""
        for claim in (claim for create in creates for claim in create.claims):
            metadata = {**claim["metadata"], "creationTimestamp": "2000-01-01T00:00:00Z"}
            self.stored.append({**claim, "metadata": metadata})


def disk(executor_id: int) -> str:
    return claim_name("app", executor_id, 0)


def mounts(create: CreatePod) -> list[str]:
    return [volume["persistentVolumeClaim"]["claimName"] for volume in create.manifest["spec"]["volumes"]]


def test_nothing_is_requested_before_the_claims_are_listed_and_they_are_listed_once(kit: Kit) -> None:
    rig = Disks(kit).start(2)
    for _ in range(3):
        rig.round()
    assert rig.requests() == []
    rig.look()

    assert [mounts(create) for create in rig.requests()] == [[disk(1)], [disk(2)]]
    assert rig.pool.take_all(ListClaims) == []


def test_a_list_is_for_one_round(kit: Kit) -> None:
    rig = Disks(kit).start(1)
    rig.look()
    rig.created(*rig.requests())
    rig.want(2)
    assert rig.requests() == []
    rig.look()

    assert rig.requested() == [2]


def test_a_list_that_is_not_awaited_any_more_does_nothing(kit: Kit) -> None:
    rig = Disks(kit).start(1)
    rig.want(0)
    rig.look()
    assert rig.requests() == []
    rig.want(1)
    assert rig.requests() == []
    rig.look()
    assert rig.requested() == [1]


def test_ids_resume_after_those_in_the_names_of_claims(kit: Kit) -> None:
    earlier = Disks(kit).start(3)
    earlier.look()
    rig = Disks(kit, executor={"claims": [{**DATA, "size": "20Gi"}]}).start(1)
    rig.keep(*earlier.requests())
    rig.look()

    (create,) = rig.requests()
    assert (create.executor_id, mounts(create)) == (4, [disk(4)])
    assert rig.backend.take_all(ExecutorsRequested)[-1].executor_ids == (4,)


def test_profiles_without_claims_do_not_wait_for_the_list(kit: Kit) -> None:
    rig = Disks(kit, executor={"claims": []}).start(2)

    assert rig.requested() == [1, 2]
    assert rig.pool.take_all(ListClaims) == []


def test_a_claim_of_an_abandoned_executor_is_kept_until_its_pod_cannot_appear_any_more(kit: Kit) -> None:
    rig = Disks(kit, executor={"removed_executors_ttl": "3m"}).start(1)
    rig.look()
    (first,) = rig.requests()
    rig.created(first)
    rig.keep(first)
    kit.advance(MINUTE + SECOND)
    rig.round(synced=True)
    rig.round()
    rig.look()
    (second,) = rig.requests()
    assert mounts(second) == [disk(2)], "the first one's pod may still appear with its claim"
    rig.created(second)
    rig.view.show(running(2))

    kit.advance(timedelta(minutes=4))
    rig.round(synced=True)
    rig.round()
    rig.want(2)
    rig.look()
    (third,) = rig.requests()
    assert mounts(third) == [disk(1)]


@pytest.mark.parametrize(
    ("error", "next_one"),
    [(QuotaExceeded("exceeded quota", status=403), 1), (AlreadyExists("exists", status=409), 2)],
)
def test_the_claims_of_a_refused_pod_go_to_the_next_one_unless_they_are_not_ours(
    kit: Kit, error: ApiError, next_one: int
) -> None:
    rig = Disks(kit).start(1)
    rig.look()
    rig.refused(error, *rig.requests())
    kit.advance(2 * SECOND)
    rig.round()
    rig.look()

    (create,) = rig.requests()
    assert (create.executor_id, mounts(create)) == (2, [disk(next_one)])
    assert [claim["metadata"]["name"] for claim in create.claims] == [disk(next_one)]


def test_a_late_refusal_of_an_earlier_epoch_frees_no_claim(kit: Kit) -> None:
    rig = Disks(kit).start(1)
    rig.look()
    (create,) = rig.requests()
    create.reply_to.tell(PodCreateFailed(create.executor_id, create.epoch + 1, Forbidden("no", status=403)))
    kit.settle()
    rig.want(2)
    rig.created(create)
    rig.look()

    assert [mounts(each) for each in rig.requests()] == [[disk(2)]]


def test_neither_an_awaited_list_nor_a_refused_one_blocks_creation(kit: Kit) -> None:
    rig = Disks(kit).start(1)
    rig.look(Forbidden("cannot list", status=403))

    assert rig.requested() == [1]
    assert rig.backend.take_all(CreationBlocked) == []


def test_each_profile_that_is_blocked_reports_its_own_cause(kit: Kit) -> None:
    rig = Disks(kit, executor={"wait_to_reuse_claim": True}, profiles=("large",)).start()

    def create() -> list[CreatePod]:
        rig.look()
        creates = rig.requests()
        rig.keep(*creates)
        rig.created(*creates)
        return creates

    def end(*pods: Pod) -> None:
        for observed in (pods, map(going, pods)):
            rig.view.show(*observed)
            rig.round()

    rig.tell(SetTotalExpectedExecutors({"default": 1, "large": 1}))
    _, large = create()
    end(running(1))
    create()
    end(running(3), mounting(labelled(running(2), profile="large"), *mounts(large)))
    rig.look()
    status = rig.backend.take_all(AllocatorStatus)[-1].profiles
    blocked_by = {name: profile.blocked_by for name, profile in status.items()}
    assert blocked_by == {"default": "cut_short", "large": "claims"}
