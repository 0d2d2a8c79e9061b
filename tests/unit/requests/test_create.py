"""Create: what each answer of the API means."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from actors import kube
from actors.errors import (
    AlreadyExists,
    ApiError,
    BadRequest,
    Cancelled,
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    QuotaExceeded,
    TooManyRequests,
    Unauthorized,
    Unavailable,
)
from actors.kube.api import CLAIMS
from actors.messages.internal import CreatePod
from actors.requests.create import Create
from actors.requests.kinds import Done, Lane, Retry
from tests.unit.builders import labels, pod, pod_name
from tests.unit.requests.test_kinds import LOST, TRANSIENT, kind
from tests.unit.views import labelled

if TYPE_CHECKING:
    from actors.kube.api import Manifest
    from actors.pods.pod import Pod
    from actors.requests.kinds import Request
    from actors.testing import Kit, Probe

VERIFY = kube.Get(pod_name(1))
EXISTS = AlreadyExists("pods already exists", status=409)
QUOTA = QuotaExceeded("exceeded quota", status=403)
REFUSALS = [
    BadRequest("strict decoding error", status=400),
    Unauthorized("Unauthorized", status=401),
    Forbidden("cannot create pods", status=403),
    QUOTA,
    NotFound("namespaces not found", status=404),
    Invalid("spec.containers: Required value", status=422),
]


def manifest(executor_id: int = 1, owner_uid: str | None = None) -> Manifest:
    metadata: dict[str, Any] = {"name": pod_name(executor_id), "labels": labels(executor_id)}
    if owner_uid is not None:
        metadata["ownerReferences"] = [{"kind": "Pod", "name": "driver", "uid": owner_uid}]
    return {"metadata": metadata}


@pytest.fixture
def asker(kit: Kit) -> Probe:
    return kit.probe("asker")


def create(asker: Probe, owner_uid: str | None = None) -> Create:
    return Create(CreatePod(1, 1, manifest(owner_uid=owner_uid), asker.address))


def after(request: Create, *answers: object) -> Create:
    """Return the request after these answers, each of which leads to another try."""
    for answer in answers:
        assert isinstance(request.judge(answer), Retry), answer
    return request


def may_exist(request: Create) -> bool:
    """Return whether it is verified when it is cancelled."""
    request.cancelled = Cancelled("the Allocator cancelled it")
    return request.settle(Retry()) == Retry()


# ── create ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_create_posts_its_manifest_and_is_done_with_the_pod(asker: Probe) -> None:
    request = create(asker)
    assert request.call == kube.Create(manifest())
    assert request.judge(pod(1)) == Done()
    assert request.outcome == pod(1)


@pytest.mark.parametrize("refusal", REFUSALS, ids=kind)
def test_a_refusal_of_the_first_try_is_final(asker: Probe, refusal: ApiError) -> None:
    request = create(asker)
    assert request.judge(refusal) == Done()
    assert request.outcome is refusal
    assert not may_exist(request)


@pytest.mark.parametrize("trouble", [*TRANSIENT, Conflict("object has been modified", status=409)], ids=kind)
def test_a_transient_error_is_retried_by_the_same_post(asker: Probe, trouble: ApiError) -> None:
    request = create(asker)
    assert request.judge(trouble) == Retry(trouble)
    assert request.call == kube.Create(manifest())
    assert request.judge(pod(1)) == Done()
    assert request.outcome == pod(1)


@pytest.mark.parametrize(
    ("answer", "possible"),
    [
        (TooManyRequests("slow", status=429), False),
        (Conflict("object has been modified", status=409), False),
        (Unavailable("connection refused"), False),
        (Unavailable("internal error", status=500), True),
        (Unavailable("timeout", status=504), True),
        (LOST, True),
    ],
)
def test_only_an_ambiguous_answer_makes_a_pod_possible(asker: Probe, answer: ApiError, possible: bool) -> None:
    assert may_exist(after(create(asker), answer)) is possible


def test_once_a_pod_is_possible_a_later_refusal_of_another_kind_does_not_rule_it_out(asker: Probe) -> None:
    assert may_exist(after(create(asker), LOST, TooManyRequests("slow", status=429)))


def test_a_name_that_is_taken_is_verified_at_once(asker: Probe) -> None:
    request = create(asker)
    assert request.judge(EXISTS) == Retry(None)
    assert request.call == VERIFY


def test_a_name_taken_by_our_own_pod_is_success(asker: Probe) -> None:
    request = after(create(asker), LOST, EXISTS)
    assert request.judge(pod(1)) == Done()
    assert request.outcome == pod(1)


@pytest.mark.parametrize("phase", ["Pending", "Succeeded", "Failed"])
def test_our_own_pod_counts_as_made_in_any_phase(asker: Probe, phase: str) -> None:
    request = after(create(asker), LOST, EXISTS)
    request.judge(pod(1, phase=phase))
    assert request.outcome == pod(1, phase=phase)


@pytest.mark.parametrize(
    "other",
    [
        pod(1, app_id="another"),
        pod(2),
        pod(1, terminating=True),
        pod(1, owner_uid="driver-before"),
        labelled(pod(1, owner_uid="driver-now"), inactive="true"),
    ],
    ids=["another application's", "another executor's", "terminating", "another driver's", "set aside"],
)
def test_a_name_taken_by_another_pod_is_failure(asker: Probe, other: Pod) -> None:
    request = after(create(asker, owner_uid="driver-now"), EXISTS)
    assert request.judge(other) == Done()
    assert request.outcome is EXISTS


def test_a_pod_of_ours_with_our_owner_is_ours(asker: Probe) -> None:
    request = after(create(asker, owner_uid="driver-now"), EXISTS)
    request.judge(pod(1, owner_uid="driver-now"))
    assert request.outcome == pod(1, owner_uid="driver-now")


def test_a_name_that_was_taken_and_is_free_again_is_not_used_again(asker: Probe) -> None:
    """It may have been our own pod, which has ended: an id is never used twice."""
    request = after(create(asker), LOST, EXISTS)
    assert request.judge(NotFound("gone", status=404)) == Done()
    assert request.outcome is EXISTS


@pytest.mark.parametrize("refusal", REFUSALS, ids=kind)
def test_a_refusal_after_a_lost_answer_is_verified(asker: Probe, refusal: ApiError) -> None:
    """The server checks quota before names: our own pod may be what exhausted it."""
    request = after(create(asker), LOST, refusal)
    assert request.call == VERIFY
    assert request.judge(pod(1)) == Done()
    assert request.outcome == pod(1)


def test_a_refusal_after_a_lost_answer_stands_when_there_is_no_pod(asker: Probe) -> None:
    request = after(create(asker), LOST, QUOTA)
    assert request.judge(NotFound("no such pod", status=404)) == Done()
    assert request.outcome is QUOTA


@pytest.mark.parametrize("trouble", TRANSIENT, ids=kind)
def test_a_verification_that_fails_for_a_transient_error_is_retried(asker: Probe, trouble: ApiError) -> None:
    request = after(create(asker), EXISTS)
    assert request.judge(trouble) == Retry(trouble)
    assert request.call == VERIFY


def test_a_verification_that_is_forbidden_leaves_the_first_refusal(asker: Probe) -> None:
    request = after(create(asker), EXISTS)
    assert request.judge(Forbidden("cannot get pods", status=403)) == Done()
    assert request.outcome is EXISTS


def test_after_a_lost_answer_a_verification_that_is_forbidden_is_retried(asker: Probe) -> None:
    """The pod of that try may have the name: to report a failure would leave an excess pod."""
    forbidden = Forbidden("cannot get pods", status=403)
    request = after(create(asker), LOST, EXISTS)
    assert request.judge(forbidden) == Retry(forbidden)
    assert request.call == VERIFY
    assert request.judge(pod(1)) == Done()
    assert request.outcome == pod(1)


def test_a_cancelled_create_whose_pod_may_exist_is_verified(asker: Probe) -> None:
    request = after(create(asker), LOST)
    request.cancelled = Cancelled("the Allocator cancelled it")
    assert request.settle(Retry()) == Retry()
    assert (request.call, request.lane, request.writes) == (VERIFY, Lane.READ, False)
    assert request.judge(NotFound("no such pod", status=404)) == Done()
    assert isinstance(request.outcome, Cancelled)


def test_a_create_that_was_refused_before_it_was_cancelled_stays_refused(asker: Probe) -> None:
    request = after(create(asker), EXISTS)
    request.cancelled = Cancelled("the Allocator cancelled it")
    assert request.settle(Retry()) == Retry()
    request.judge(NotFound("no such pod", status=404))
    assert request.outcome is EXISTS


def test_the_answer_to_a_cancelled_create_in_flight_decides_whether_it_is_verified(asker: Probe) -> None:
    ended, looks = create(asker), create(asker)
    for request in (ended, looks):
        request.cancelled = Cancelled("the Allocator cancelled it")
    assert ended.judge(Unavailable("refused")) == Done()
    assert ended.outcome is ended.cancelled
    assert looks.judge(LOST) == Retry(LOST)
    assert looks.call == VERIFY


def test_a_create_whose_pod_was_observed_is_not_tried_again(asker: Probe) -> None:
    request = create(asker)
    request.observed = pod(1)
    assert request.judge(LOST) == Done()
    assert request.outcome == pod(1)


def test_only_a_pod_or_an_error_answers_a_post_of_a_pod(asker: Probe) -> None:
    with pytest.raises(TypeError, match="was answered with None"):
        create(asker).judge(None)


# ── create, with claims ──────────────────────────────────────────────────────────────────────────────────────────


def with_claims(asker: Probe, *names: str) -> Create:
    claims = tuple({"metadata": {"name": name}} for name in names)
    return Create(CreatePod(1, 1, manifest(), asker.address, claims))


def posted(request: Request) -> str:
    """Return the name of the object that it POSTs now."""
    call = request.call
    assert isinstance(call, kube.Create | kube.CreateObject)
    assert isinstance(call, kube.Create) or call.resource == CLAIMS
    return str(call.manifest["metadata"]["name"])


def own_claim(index: int = 0) -> str:
    return f"{pod_name(1)}-pvc-{index}"


def test_claims_are_made_in_their_order_and_the_pod_after_them(asker: Probe) -> None:
    request = with_claims(asker, own_claim(0), own_claim(1))
    sent = [posted(request)]
    for _ in range(2):
        assert request.judge({"kind": "PersistentVolumeClaim"}) == Retry(None), "at once"
        sent.append(posted(request))
    assert sent == [own_claim(0), own_claim(1), pod_name(1)]
    assert request.judge(pod(1)) == Done()


@pytest.mark.parametrize("refusal", REFUSALS, ids=kind)
def test_a_claim_that_is_refused_refuses_the_pod_which_is_not_sent(asker: Probe, refusal: ApiError) -> None:
    request = with_claims(asker, own_claim())
    assert request.judge(refusal) == Done()
    assert request.outcome is refusal
    assert not may_exist(request)


@pytest.mark.parametrize("trouble", [*TRANSIENT, Conflict("object has been modified", status=409)], ids=kind)
def test_a_transient_error_with_a_claim_is_retried_and_makes_no_pod_possible(asker: Probe, trouble: ApiError) -> None:
    request = with_claims(asker, own_claim())
    assert request.judge(trouble) == Retry(trouble)
    assert posted(request) == own_claim()
    assert not may_exist(request)


def test_a_claim_that_an_earlier_try_may_have_made_counts_as_made_when_it_exists(asker: Probe) -> None:
    request = after(with_claims(asker, own_claim()), LOST, TooManyRequests("slow", status=429), EXISTS)
    assert posted(request) == pod_name(1)


@pytest.mark.parametrize("earlier", [(), (Unavailable("refused"),), (TooManyRequests("slow", status=429),)], ids=str)
def test_a_claim_of_the_executors_name_that_no_try_has_made_is_not_mounted(
    asker: Probe, earlier: tuple[ApiError, ...]
) -> None:
    request = after(with_claims(asker, own_claim()), *earlier)
    assert request.judge(EXISTS) == Done()
    assert request.outcome is EXISTS


def test_a_lost_answer_does_not_concern_the_next_claim(asker: Probe) -> None:
    request = after(with_claims(asker, own_claim(0), own_claim(1)), LOST, EXISTS)
    assert request.judge(EXISTS) == Done()
    assert request.outcome is EXISTS


def test_a_claim_named_after_another_executor_is_taken_as_it_is(asker: Probe) -> None:
    request = after(with_claims(asker, f"{pod_name(11)}-pvc-0"), EXISTS)
    assert posted(request) == pod_name(1)
