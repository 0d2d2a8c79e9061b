"""What an answer of the API means to each kind of request."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from actors import kube
from actors.errors import (
    AlreadyExists,
    Ambiguous,
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
from actors.kube.api import CLAIMS, DeleteOptions
from actors.messages import (
    AdoptPod,
    ClaimsListed,
    ConfirmPod,
    CreatePod,
    DeletePod,
    DeletePods,
    LabelPod,
    ListClaims,
    PodConfirmed,
    PodsDeleted,
)
from actors.pods.pod import fleet_selector
from actors.requests.kinds import (
    CONFIRM_TRIES,
    IDS_PER_CALL,
    Adopt,
    BulkDelete,
    ClaimList,
    Confirm,
    Create,
    Delete,
    Done,
    Label,
    Retry,
)
from actors.testing.manual_api import ManualPodApi
from tests.unit.builders import APP_ID, labels, pod, pod_name
from tests.unit.views import labelled

if TYPE_CHECKING:
    from actors.kube.api import Manifest
    from actors.pods.pod import Pod
    from actors.requests.kinds import Request
    from actors.testing import Kit, Probe
    from actors.testing.manual_api import ManualCall

EXISTS = AlreadyExists("pods already exists", status=409)
QUOTA = QuotaExceeded("exceeded quota", status=403)
LOST = Ambiguous("the connection broke before the answer")
REFUSALS = [
    BadRequest("strict decoding error", status=400),
    Unauthorized("Unauthorized", status=401),
    Forbidden("cannot create pods", status=403),
    QUOTA,
    NotFound("namespaces not found", status=404),
    Invalid("spec.containers: Required value", status=422),
]
TRANSIENT = [TooManyRequests("slow", status=429), Unavailable("down", status=503), Unavailable("refused"), LOST]


def kind(answer: object) -> str:
    return type(answer).__name__


def wire(request: Request) -> ManualCall:
    """What the request puts on the wire."""
    api = ManualPodApi()
    request.send(api, lambda _: None)
    return api.calls[0]


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
    """The request, once it got these answers, each of which asks for another try."""
    for answer in answers:
        assert isinstance(request.judge(answer), Retry), answer
    return request


# ── create ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_create_posts_its_manifest_and_is_done_with_the_pod(asker: Probe) -> None:
    request = create(asker)
    call = wire(request)
    assert (call.operation, call.request.manifest) == ("create", manifest())
    assert request.judge(pod(1)) == Done()
    assert request.outcome == pod(1)


@pytest.mark.parametrize("refusal", REFUSALS, ids=kind)
def test_a_refusal_of_the_first_try_is_final(asker: Probe, refusal: ApiError) -> None:
    request = create(asker)
    assert request.judge(refusal) == Done()
    assert request.outcome is refusal
    assert not request.may_exist


@pytest.mark.parametrize("trouble", [*TRANSIENT, Conflict("object has been modified", status=409)], ids=kind)
def test_trouble_that_passes_is_tried_again_by_the_same_post(asker: Probe, trouble: ApiError) -> None:
    request = create(asker)
    assert request.judge(trouble) == Retry(trouble)
    assert wire(request).operation == "create"
    assert request.judge(pod(1)) == Done()
    assert request.outcome == pod(1)


@pytest.mark.parametrize(
    ("answer", "may_exist"),
    [
        (TooManyRequests("slow", status=429), False),
        (Conflict("object has been modified", status=409), False),
        (Unavailable("connection refused"), False),
        (Unavailable("internal error", status=500), True),
        (Unavailable("timeout", status=504), True),
        (LOST, True),
    ],
)
def test_only_an_answer_that_leaves_it_open_makes_a_pod_possible(
    asker: Probe, answer: ApiError, may_exist: bool
) -> None:
    assert after(create(asker), answer).may_exist is may_exist


def test_once_a_pod_is_possible_a_later_refusal_of_another_kind_does_not_rule_it_out(asker: Probe) -> None:
    assert after(create(asker), LOST, TooManyRequests("slow", status=429)).may_exist


def test_a_name_that_is_taken_is_looked_at_at_once(asker: Probe) -> None:
    request = create(asker)
    assert request.judge(EXISTS) == Retry(None)
    call = wire(request)
    assert (call.operation, call.request.name) == ("get", pod_name(1))


def test_a_name_taken_by_our_own_pod_is_success(asker: Probe) -> None:
    request = after(create(asker), LOST, EXISTS)
    assert request.judge(pod(1)) == Done()
    assert request.outcome == pod(1)


@pytest.mark.parametrize("phase", ["Pending", "Succeeded", "Failed"])
def test_our_own_pod_counts_as_made_whatever_became_of_it(asker: Probe, phase: str) -> None:
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
    """It may have been our own pod, ended by now: an id is never used twice."""
    request = after(create(asker), LOST, EXISTS)
    assert request.judge(NotFound("gone", status=404)) == Done()
    assert request.outcome is EXISTS


@pytest.mark.parametrize("refusal", REFUSALS, ids=kind)
def test_a_refusal_after_a_lost_answer_is_not_believed_before_a_look(asker: Probe, refusal: ApiError) -> None:
    """The server checks quota before names: our own pod may be what exhausted it."""
    request = after(create(asker), LOST, refusal)
    assert wire(request).operation == "get"
    assert request.judge(pod(1)) == Done()
    assert request.outcome == pod(1)


def test_a_refusal_after_a_lost_answer_stands_when_there_is_no_pod(asker: Probe) -> None:
    request = after(create(asker), LOST, QUOTA)
    assert request.judge(NotFound("no such pod", status=404)) == Done()
    assert request.outcome is QUOTA


@pytest.mark.parametrize("trouble", TRANSIENT, ids=kind)
def test_a_look_that_meets_trouble_is_tried_again_as_a_look(asker: Probe, trouble: ApiError) -> None:
    request = after(create(asker), EXISTS)
    assert request.judge(trouble) == Retry(trouble)
    assert wire(request).operation == "get"


def test_a_look_that_is_not_allowed_leaves_the_first_refusal(asker: Probe) -> None:
    request = after(create(asker), EXISTS)
    assert request.judge(Forbidden("cannot get pods", status=403)) == Done()
    assert request.outcome is EXISTS


def test_after_a_lost_answer_a_look_that_is_not_allowed_is_repeated(asker: Probe) -> None:
    """The name may be taken by the pod that was made then: to give it up would leave one too many."""
    forbidden = Forbidden("cannot get pods", status=403)
    request = after(create(asker), LOST, EXISTS)
    assert request.judge(forbidden) == Retry(forbidden)
    assert wire(request).operation == "get"
    assert request.judge(pod(1)) == Done()
    assert request.outcome == pod(1)


def test_a_create_that_nobody_wants_any_more_only_looks(asker: Probe) -> None:
    request = after(create(asker), LOST)
    request.only_look("it is not wanted any more")
    assert wire(request).operation == "get"
    assert request.judge(NotFound("no such pod", status=404)) == Done()
    assert isinstance(request.outcome, Cancelled)


def test_a_create_that_was_refused_before_it_was_unwanted_stays_refused(asker: Probe) -> None:
    request = after(create(asker), EXISTS)
    request.only_look("it is not wanted any more")
    request.judge(NotFound("no such pod", status=404))
    assert request.outcome is EXISTS


# ── create, with claims ──────────────────────────────────────────────────────────────────────────────────────────


def with_claims(asker: Probe, *names: str) -> Create:
    claims = tuple({"metadata": {"name": name}} for name in names)
    return Create(CreatePod(1, 1, manifest(), asker.address, claims))


def posted(request: Request) -> str:
    """The name of what it POSTs now."""
    call = wire(request)
    assert call.operation in {"create", "create_object"}, call
    assert call.operation == "create" or call.request.resource == CLAIMS
    return str(call.request.manifest["metadata"]["name"])


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
    assert not request.may_exist


@pytest.mark.parametrize("trouble", [*TRANSIENT, Conflict("object has been modified", status=409)], ids=kind)
def test_trouble_that_passes_with_a_claim_is_tried_again_and_makes_no_pod_possible(
    asker: Probe, trouble: ApiError
) -> None:
    request = with_claims(asker, own_claim())
    assert request.judge(trouble) == Retry(trouble)
    assert posted(request) == own_claim()
    assert not request.may_exist


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


def test_a_lost_answer_says_nothing_of_the_next_claim(asker: Probe) -> None:
    request = after(with_claims(asker, own_claim(0), own_claim(1)), LOST, EXISTS)
    assert request.judge(EXISTS) == Done()
    assert request.outcome is EXISTS


def test_a_claim_named_after_another_executor_is_taken_as_it_is(asker: Probe) -> None:
    request = after(with_claims(asker, f"{pod_name(11)}-pvc-0"), EXISTS)
    assert posted(request) == pod_name(1)


# ── list claims ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_fleets_claims_are_listed_by_its_labels_whatever_became_of_their_executors(kit: Kit, asker: Probe) -> None:
    request = ClaimList(ListClaims(asker.address), APP_ID)
    selector = "executor-pods/app-id=app,executor-pods/role=executor"
    assert wire(request).request == kube.ListObjects(CLAIMS, selector)
    assert not request.writes
    assert request.judge([{"kind": "a"}]) == Done()
    request.report([{"kind": "a"}])
    kit.settle()
    assert asker.take(ClaimsListed).claims == ({"kind": "a"},)


def test_who_asks_for_claims_that_may_not_be_listed_hears_so(kit: Kit, asker: Probe) -> None:
    request, refusal = ClaimList(ListClaims(asker.address), APP_ID), Forbidden("cannot list", status=403)
    assert request.judge(refusal) == Done()
    assert request.judge(LOST) == Retry(LOST)
    request.report(refusal)
    kit.settle()
    assert asker.take(ClaimsListed).claims is refusal


# ── delete, label ────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_delete_carries_its_preconditions_and_grace() -> None:
    options = DeleteOptions(uid="u", resource_version="7", grace=timedelta(seconds=5))
    assert wire(Delete(DeletePod("a", options))).request == kube.Delete("a", options)


@pytest.mark.parametrize(
    "answer", [None, NotFound("gone", status=404), Conflict("uid", status=409), Forbidden("no", status=403)], ids=kind
)
def test_a_delete_is_done_with_any_answer_that_is_not_transient(answer: object) -> None:
    assert Delete(DeletePod("a")).judge(answer) == Done()


@pytest.mark.parametrize("trouble", TRANSIENT, ids=kind)
def test_deletes_and_labels_are_tried_again_on_trouble_that_passes(trouble: ApiError) -> None:
    for request in (Delete(DeletePod("a")), Label(LabelPod("a", "u", {"x": "y"})), BulkDelete(DeletePods(None), "app")):
        assert request.judge(trouble) == Retry(trouble)


@pytest.mark.parametrize(
    "answer", [None, NotFound("gone", status=404), Conflict("uid", status=409), *TRANSIENT], ids=kind
)
def test_what_is_gone_or_changed_or_not_answered_is_no_refusal(answer: object) -> None:
    assert Delete(DeletePod("a")).refusal(answer) is None


@pytest.mark.parametrize(
    "refusal", [Forbidden("cannot delete pods", status=403), Unauthorized("no", status=401)], ids=kind
)
def test_an_answer_that_the_request_was_not_allowed_is_a_refusal(refusal: ApiError) -> None:
    assert Delete(DeletePod("a")).refusal(refusal) is refusal


def test_a_label_is_a_patch_with_the_uid_as_precondition() -> None:
    call = wire(Label(LabelPod("a", "u", {"x": "y"})))
    assert (call.operation, call.request.name) == ("patch", "a")
    assert call.request.patch == {"metadata": {"uid": "u", "labels": {"x": "y"}}}


def test_a_mark_may_have_annotations() -> None:
    call = wire(Label(LabelPod("a", "u", {}, {"x": "y"})))
    assert call.request.patch == {"metadata": {"uid": "u", "annotations": {"x": "y"}}}


def test_an_adoption_replaces_every_owner_with_the_uid_as_precondition() -> None:
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "driver", "uid": "new", "controller": True}
    call = wire(Adopt(AdoptPod("a", "u", owner)))
    assert (call.operation, call.request.name) == ("patch", "a")
    assert call.request.patch == {"metadata": {"uid": "u", "ownerReferences": [owner]}}


# ── bulk delete ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_deleting_all_selects_the_application_and_leaves_what_was_set_aside() -> None:
    call = wire(BulkDelete(DeletePods(None), APP_ID))
    assert call.request == kube.DeleteCollection(fleet_selector(APP_ID))
    assert "executor-pods/inactive!=true" in fleet_selector(APP_ID)


def test_deleting_some_selects_them_by_id() -> None:
    call = wire(BulkDelete(DeletePods(frozenset({10, 9, 2})), APP_ID))
    assert call.request.selector == f"{fleet_selector(APP_ID)},executor-pods/executor-id in (2,9,10)"


def test_deleting_many_takes_several_calls_none_too_long_for_a_url(asker: Probe) -> None:
    ids = frozenset(range(10**18, 10**18 + 2 * IDS_PER_CALL + 1))
    request = BulkDelete(DeletePods(ids, reply_to=asker.address), APP_ID)
    selectors = []
    for last in (False, False, True):
        selectors.append(wire(request).request.selector)
        assert request.judge(None) == (Done() if last else Retry(None))
    assert max(map(len, selectors)) < 8000
    asked = [int(number) for selector in selectors for number in selector.partition(" in (")[2][:-1].split(",")]
    assert asked == sorted(ids)


def test_a_call_that_fails_keeps_no_other_from_being_made_and_is_told(asker: Probe, kit: Kit) -> None:
    request = BulkDelete(DeletePods(ids := frozenset(range(1, IDS_PER_CALL + 2)), reply_to=asker.address), APP_ID)
    error = Forbidden("cannot deletecollection pods", status=403)
    assert request.judge(error) == Retry(None)
    assert request.judge(None) == Done()
    assert request.refusal(None) is error
    request.report()
    kit.settle()
    assert asker.take(PodsDeleted) == PodsDeleted(ids, error)


# ── confirm ──────────────────────────────────────────────────────────────────────────────────────────────────────


def confirm(asker: Probe) -> Confirm:
    return Confirm(ConfirmPod(1, pod_name(1), "uid-1", asker.address))


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        (pod(1), pod(1)),
        (pod(1, uid="later"), None),
        (NotFound("gone", status=404), None),
        (Forbidden("cannot get pods", status=403), None),
    ],
    ids=["lives", "another of its name lives", "gone", "cannot be read"],
)
def test_a_confirmation_tells_whether_that_very_pod_lives(
    asker: Probe, kit: Kit, answer: Pod | ApiError, found: Pod | None
) -> None:
    request = confirm(asker)
    assert request.judge(answer) == Done()
    request.report(answer)
    kit.settle()
    assert asker.take(PodConfirmed) == PodConfirmed(1, "uid-1", found)


def test_a_confirmation_is_not_tried_for_ever(asker: Probe) -> None:
    request, trouble = confirm(asker), Unavailable("down", status=503)
    verdicts = []
    for request.tries in range(1, CONFIRM_TRIES + 1):
        verdicts.append(request.judge(trouble))
    assert verdicts == [Retry(trouble)] * (CONFIRM_TRIES - 1) + [Done()]
