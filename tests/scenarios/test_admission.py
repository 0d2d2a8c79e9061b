"""What a POST made is not what was requested: an admission step changes the pod, before or after the answer."""

from __future__ import annotations

import copy
from datetime import timedelta
from itertools import count
from random import Random
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from actors import kube
from actors.errors import BadRequest, Forbidden, Invalid, Unavailable
from actors.local.faults.kinds import DelayAnswer
from actors.local.inprocess import InProcessPodApi
from actors.messages import AllocationBlocked, AllocationUnblocked, ExecutorRemoved, GetFleetStatus
from actors.pods.pod import APP_ID_LABEL, EXECUTOR_ID_LABEL, INACTIVE_LABEL, PROFILE_LABEL, ROLE_LABEL
from tests.scenarios.fleets import name, names, patch
from tests.scenarios.test_allocation import now, posts
from tests.scenarios.test_volumes import Disks
from tests.scenarios.world import World

if TYPE_CHECKING:
    from collections.abc import Callable

    from actors.errors import ApiError

Manifest = dict[str, Any]


class Admission(InProcessPodApi):
    """A server with an admission step. With `silent`, its answers to POSTs do not show what the step has done."""

    change: Callable[[Manifest], object] | None = None
    silent = False

    def _answer(self, request: kube.Request[Any]) -> Any:
        if not isinstance(request, kube.Create) or self.change is None:
            return super()._answer(request)
        manifest = copy.deepcopy(dict(request.manifest))
        self.change(manifest)
        made = super()._answer(kube.Create(manifest))
        if not self.silent:
            return made
        metadata = msgspec.structs.replace(made.metadata, shared_labels=request.manifest["metadata"]["labels"])
        return msgspec.structs.replace(made, metadata=metadata)


class AdmissionWorld(World):
    door = Admission

    @property
    def admission(self) -> Admission:
        found = self.api._inner
        assert isinstance(found, Admission)
        return found


class OwnedWorld(Disks):
    """The driver runs in a pod, which owns the executors."""

    door = Admission


def without_labels(*keys: str) -> Callable[[Manifest], object]:
    return lambda pod: [pod["metadata"]["labels"].pop(key) for key in keys or tuple(pod["metadata"]["labels"])]


def labelled(key: str, value: str) -> Callable[[Manifest], object]:
    return lambda pod: pod["metadata"]["labels"].update({key: value})


def owned_by(uid: str) -> Callable[[Manifest], object]:
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "other", "uid": uid}
    return lambda pod: pod["metadata"].setdefault("ownerReferences", []).append(owner)


CHANGES: dict[str, tuple[Callable[[Manifest], object], str]] = {
    "no labels": (without_labels(), APP_ID_LABEL),
    "no app id": (without_labels(APP_ID_LABEL), APP_ID_LABEL),
    "no role": (without_labels(ROLE_LABEL), ROLE_LABEL),
    "no executor id": (without_labels(EXECUTOR_ID_LABEL), EXECUTOR_ID_LABEL),
    "another executor's id": (labelled(EXECUTOR_ID_LABEL, "77"), EXECUTOR_ID_LABEL),
    "another profile": (labelled(PROFILE_LABEL, "other"), PROFILE_LABEL),
    "set aside": (labelled(INACTIVE_LABEL, "true"), INACTIVE_LABEL),
    "restarted": (lambda pod: pod["spec"].update(restartPolicy="Always"), "restartPolicy"),
    "another owner": (owned_by("other"), "owners"),
}


def made(world: World) -> list[str]:
    """The pods of our names in the cluster, whatever their labels."""
    return [each for each in names(world) if each.startswith("app-exec-")]


@pytest.mark.parametrize("change", CHANGES)
def test_a_pod_that_is_not_what_was_requested_is_deleted_and_blocks_creation(change: str) -> None:
    with AdmissionWorld() as world:
        world.admission.change, word = CHANGES[change]
        world.target(3)
        world.advance(5)
        (blocked,) = world.heard(AllocationBlocked)
        assert word in blocked.cause
        assert "admission" in blocked.cause
        world.advance(295)
        assert posts(world) <= 3 + 12, "with a backoff up to a minute"
        assert made(world) == []
        assert len(world.heard(AllocationBlocked)) == 1
        assert world.ask(GetFleetStatus()).profiles["default"].blocked_by == "Altered"
        assert world.heard(ExecutorRemoved) == []
        world.admission.change = None
        world.advance(120)
        assert world.running() == 3
        assert len(world.heard(AllocationUnblocked)) == 1
        assert world.stop().left_behind == ()
        assert names(world) == []


@pytest.mark.parametrize("kinds", [(Forbidden,), (Forbidden, Invalid, BadRequest)], ids=["one kind", "several"])
def test_refusals_of_one_batch_are_reported_once_whatever_each_says(kinds: tuple[type[ApiError], ...]) -> None:
    texts = (f"{random.randbytes(8).hex()} says no" for random in [Random(0)] for _ in count())
    with World(allocation={"batch_size": 200, "max_requests_in_flight": 200}) as world:
        for number in range(400):
            world.api.fail_next("create", kinds[number % len(kinds)](next(texts), reason=next(texts)))
        world.target(200)
        world.advance(300)
        tries = posts(world) - 200
        assert len(world.heard(AllocationBlocked)) <= 1 + tries, "once a try, and a try is one POST"
        assert tries <= 12


def test_posts_that_are_retried_are_reported_once_whatever_each_says() -> None:
    texts = (f"{random.randbytes(8).hex()} is down" for random in [Random(0)] for _ in count())
    with World(allocation={"batch_size": 50}) as world:
        for _ in range(2000):
            world.api.fail_next("create", Unavailable(next(texts), status=500))
        world.target(50)
        world.advance(300)
        assert len(world.heard(AllocationBlocked)) == 1


def test_a_pod_that_is_not_what_was_requested_blocks_creation_though_it_is_seen_before_the_answer() -> None:
    with AdmissionWorld() as world:
        world.admission.change = CHANGES["restarted"][0]
        world.api.fail_next("create", DelayAnswer(timedelta(seconds=2)), times=100)
        world.target(1)
        world.advance(300)
        assert posts(world) <= 13
        assert any("restartPolicy" in blocked.cause for blocked in world.heard(AllocationBlocked))
        assert made(world) == []


def test_a_pod_without_its_owner_is_deleted() -> None:
    with OwnedWorld(0) as world:
        assert isinstance(world.api._inner, Admission)
        world.api._inner.change = lambda pod: pod["metadata"].pop("ownerReferences")
        world.target(2)
        world.advance(5)
        (blocked,) = world.heard(AllocationBlocked)
        assert "owners" in blocked.cause
        assert made(world) == []


@pytest.mark.parametrize("change", ["restarted", "no labels"])
def test_the_claim_of_an_altered_pod_that_is_not_deleted_yet_is_given_to_no_other(change: str) -> None:
    with OwnedWorld(0) as world:
        assert isinstance(world.api._inner, Admission)
        world.api._inner.change, _ = CHANGES[change]
        world.forbidden.add(("delete", "pods"))
        world.target(2)
        world.advance(0.5)
        world.api._inner.change = None
        world.advance(60)
        assert {name(3), name(4)} <= set(names(world))
        assert world.shared == []


def test_an_altered_pod_that_could_not_be_deleted_is_deleted_by_the_stop() -> None:
    with AdmissionWorld() as world:
        world.admission.change = without_labels()
        world.target(1)
        world.api.fail_next("delete", Forbidden("no", status=403, reason="Forbidden"), times=1)
        world.advance(0.5)
        world.target(0)
        world.advance(10)
        assert made(world) == [name(1)]
        assert world.stop().left_behind == ()
        assert made(world) == []


def test_what_was_created_and_never_seen_is_deleted_by_the_stop() -> None:
    with AdmissionWorld() as world:
        world.admission.change, world.admission.silent = without_labels(), True
        world.target(3)
        world.advance(5)
        assert made(world) == [name(1), name(2), name(3)]
        assert world.stop().left_behind == ()
        assert made(world) == []


def test_what_was_created_and_never_seen_is_deleted_by_the_stop_though_a_finalizer_holds_another() -> None:
    with AdmissionWorld(executor={"instances": 2}) as world:
        world.advance(5)
        patch(world, 1, finalizers=["example.com/hold"])
        world.admission.change, world.admission.silent = without_labels(), True
        world.target(4)
        world.advance(5)
        assert made(world) == [name(1), name(2), name(3), name(4)]
        assert world.stop().left_behind == (name(1),)
        assert made(world) == [name(1)]


def test_what_was_created_and_never_seen_and_cannot_be_deleted_is_named_by_the_stop() -> None:
    with AdmissionWorld() as world:
        world.admission.change, world.admission.silent = without_labels(), True
        world.target(2)
        world.advance(5)
        world.admission.forbidden = {("delete", "pods")}
        assert world.stop().left_behind == (name(1), name(2))


def test_a_stop_that_leaves_the_fleet_leaves_what_was_never_seen() -> None:
    with AdmissionWorld() as world:
        world.admission.change, world.admission.silent = without_labels(), True
        world.target(2)
        world.advance(5)
        assert world.stop(delete_pods=False).left_behind == ()
        assert made(world) == [name(1), name(2)]


def test_executors_that_are_never_seen_wave_after_wave_are_failures_to_start() -> None:
    with AdmissionWorld(executor={"max_failures": 100}) as world:
        world.admission.change, world.admission.silent = without_labels(), True
        world.target(3)
        world.advance(1800)
        assert posts(world) <= 3 * 12, "a wave takes a minute to be missed, and waits up to five minutes more"
        assert world.ask(GetFleetStatus()).profiles["default"].start_failures > 3
        world.admission.change = None
        since = now(world)
        world.advance(400)
        assert (world.running(), posts(world, since)) == (3, 3)
        assert world.stop().left_behind == ()
        assert names(world) == []
