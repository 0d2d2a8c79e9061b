"""The kinds of requests: what each sends, and what each answer means."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from actors import kube
from actors.errors import (
    Ambiguous,
    ApiError,
    Conflict,
    Forbidden,
    NotFound,
    TooManyRequests,
    Unauthorized,
    Unavailable,
)
from actors.kube.api import CLAIMS, DeleteOptions
from actors.messages.internal import (
    AdoptPod,
    ClaimsListed,
    ConfirmPod,
    DeletePod,
    DeletePods,
    GracePeriods,
    LabelPod,
    ListClaims,
    PodConfirmed,
    PodsDeleted,
)
from actors.pods.pod import fleet_selector
from actors.requests.kinds import (
    CONFIRM_TRIES,
    IDS_PER_CALL,
    BulkDelete,
    ClaimList,
    Confirm,
    Done,
    Retry,
    adopt,
    delete,
    label,
)
from tests.unit.builders import APP_ID, pod, pod_name

if TYPE_CHECKING:
    from actors.pods.pod import Pod
    from actors.testing import Kit, Probe

LOST = Ambiguous("the connection broke before the answer")
TRANSIENT = [TooManyRequests("slow", status=429), Unavailable("down", status=503), Unavailable("refused"), LOST]


def kind(answer: object) -> str:
    return type(answer).__name__


@pytest.fixture
def asker(kit: Kit) -> Probe:
    return kit.probe("asker")


# ── list claims ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_pods_that_pause_are_deleted_by_calls_of_their_own_without_their_pause() -> None:
    graces = GracePeriods.without_pause(frozenset({"b", "a"}))
    request = BulkDelete(DeletePods(frozenset({1}), graces=graces), APP_ID)
    selector = f"{fleet_selector(APP_ID)},executor-pods/executor-id in (1)"
    assert request.call == kube.DeleteCollection(f"{selector},executor-pods/profile in (a,b)", timedelta(seconds=1))
    assert request.judge(None) == Retry()
    assert request.call == kube.DeleteCollection(f"{selector},executor-pods/profile notin (a,b)")
    assert request.judge(None) == Done()


def test_one_call_deletes_all_pods_of_one_grace_period() -> None:
    five, nine = timedelta(seconds=5), timedelta(seconds=9)
    named = {"slow": None, "a": five, "quick": nine, "b": five, "late": None}
    request = BulkDelete(DeletePods(None, graces=GracePeriods(named, five)), APP_ID)
    calls = [request.call]
    while request.judge(None) == Retry():
        calls.append(request.call)
    everyone = fleet_selector(APP_ID)
    assert calls == [
        kube.DeleteCollection(f"{everyone},executor-pods/profile in (late,slow)"),
        kube.DeleteCollection(f"{everyone},executor-pods/profile in (quick)", nine),
        kube.DeleteCollection(f"{everyone},executor-pods/profile notin (late,quick,slow)", five),
    ]


def test_a_grace_period_that_all_profiles_have_takes_one_call_without_their_names() -> None:
    five = timedelta(seconds=5)
    request = BulkDelete(DeletePods(None, graces=GracePeriods({"a": five, "b": five}, five)), APP_ID)
    assert request.call == kube.DeleteCollection(fleet_selector(APP_ID), five)
    assert request.judge(None) == Done()


def test_the_fleets_claims_are_listed_by_its_labels_even_if_their_executors_are_gone(kit: Kit, asker: Probe) -> None:
    request = ClaimList(ListClaims(asker.address), APP_ID)
    selector = "executor-pods/app-id=app,executor-pods/role=executor"
    assert request.call == kube.ListObjects(CLAIMS, selector)
    assert not request.writes
    assert request.judge([{"kind": "a"}]) == Done()
    request.report([{"kind": "a"}])
    kit.settle()
    assert asker.take(ClaimsListed).claims == ({"kind": "a"},)


def test_a_forbidden_list_of_claims_is_reported(kit: Kit, asker: Probe) -> None:
    request, refusal = ClaimList(ListClaims(asker.address), APP_ID), Forbidden("cannot list", status=403)
    assert request.judge(refusal) == Done()
    assert request.judge(LOST) == Retry(LOST)
    request.report(refusal)
    kit.settle()
    assert asker.take(ClaimsListed).claims is refusal


# ── delete, label ────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_delete_carries_its_preconditions_and_grace() -> None:
    options = DeleteOptions(uid="u", resource_version="7", grace=timedelta(seconds=5))
    assert delete(DeletePod("a", options)).call == kube.Delete("a", options)


@pytest.mark.parametrize(
    "answer", [None, NotFound("gone", status=404), Conflict("uid", status=409), Forbidden("no", status=403)], ids=kind
)
def test_a_delete_is_done_with_any_answer_that_is_not_transient(answer: object) -> None:
    assert delete(DeletePod("a")).judge(answer) == Done()


@pytest.mark.parametrize("trouble", TRANSIENT, ids=kind)
def test_deletes_and_labels_are_retried_after_transient_errors(trouble: ApiError) -> None:
    for request in (delete(DeletePod("a")), label(LabelPod("a", "u", {"x": "y"})), BulkDelete(DeletePods(None), "app")):
        assert request.judge(trouble) == Retry(trouble)


@pytest.mark.parametrize(
    "answer", [None, NotFound("gone", status=404), Conflict("uid", status=409), *TRANSIENT], ids=kind
)
def test_not_found_conflict_and_transient_errors_are_no_refusals(answer: object) -> None:
    assert delete(DeletePod("a")).refusal(answer) is None


@pytest.mark.parametrize(
    "refusal", [Forbidden("cannot delete pods", status=403), Unauthorized("no", status=401)], ids=kind
)
def test_an_answer_that_the_request_was_not_allowed_is_a_refusal(refusal: ApiError) -> None:
    assert delete(DeletePod("a")).refusal(refusal) is refusal


def test_a_label_is_a_patch_with_the_uid_as_precondition() -> None:
    call = label(LabelPod("a", "u", {"x": "y"})).call
    assert call == kube.Patch("a", {"metadata": {"uid": "u", "labels": {"x": "y"}}})


def test_a_label_request_may_have_annotations() -> None:
    call = label(LabelPod("a", "u", {}, {"x": "y"})).call
    assert call == kube.Patch("a", {"metadata": {"uid": "u", "annotations": {"x": "y"}}})


def test_labels_are_the_same_request_in_whatever_order_they_are() -> None:
    first, other = {"x": "1", "y": "2"}, {"y": "2", "x": "1"}
    assert label(LabelPod("a", "u", first)).key == label(LabelPod("a", "u", other)).key
    assert label(LabelPod("a", "u", first)).key != label(LabelPod("a", "u", {}, first)).key


def test_an_adoption_replaces_every_owner_with_the_uid_as_precondition() -> None:
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "driver", "uid": "new", "controller": True}
    call = adopt(AdoptPod("a", "u", (owner,))).call
    assert call == kube.Patch("a", {"metadata": {"uid": "u", "ownerReferences": [owner]}})


# ── bulk delete ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_deleting_all_selects_the_application_without_inactive_pods() -> None:
    assert BulkDelete(DeletePods(None), APP_ID).call == kube.DeleteCollection(fleet_selector(APP_ID))
    assert "executor-pods/inactive!=true" in fleet_selector(APP_ID)


def test_deleting_some_selects_them_by_id() -> None:
    selector = f"{fleet_selector(APP_ID)},executor-pods/executor-id in (2,9,10)"
    assert BulkDelete(DeletePods(frozenset({10, 9, 2})), APP_ID).call == kube.DeleteCollection(selector)


def test_deleting_many_takes_several_calls_none_too_long_for_a_url(asker: Probe) -> None:
    ids = frozenset(range(10**18, 10**18 + 2 * IDS_PER_CALL + 1))
    request = BulkDelete(DeletePods(ids, reply_to=asker.address), APP_ID)
    selectors = []
    for last in (False, False, True):
        assert isinstance(request.call, kube.DeleteCollection)
        selectors.append(request.call.selector)
        assert request.judge(None) == (Done() if last else Retry(None))
    assert max(map(len, selectors)) < 8000
    asked = [int(number) for selector in selectors for number in selector.partition(" in (")[2][:-1].split(",")]
    assert asked == sorted(ids)


def test_a_call_that_fails_does_not_prevent_the_others_and_is_reported(asker: Probe, kit: Kit) -> None:
    request = BulkDelete(DeletePods(ids := frozenset(range(1, IDS_PER_CALL + 2)), reply_to=asker.address), APP_ID)
    error = Forbidden("cannot deletecollection pods", status=403)
    assert request.judge(error) == Retry(None)
    assert request.judge(None) == Done()
    assert request.refusal(None) is error
    request.report(None)
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
    ids=["exists", "another pod has its name", "gone", "cannot be read"],
)
def test_a_confirmation_reports_whether_the_same_pod_still_exists(
    asker: Probe, kit: Kit, answer: Pod | ApiError, found: Pod | None
) -> None:
    request = confirm(asker)
    assert request.judge(answer) == Done()
    request.report(answer)
    kit.settle()
    assert asker.take(PodConfirmed) == PodConfirmed(1, "uid-1", found)


def test_a_confirmation_has_a_limit_of_tries(asker: Probe) -> None:
    request, trouble = confirm(asker), Unavailable("down", status=503)
    verdicts = []
    for request.tries in range(1, CONFIRM_TRIES + 1):
        verdicts.append(request.judge(trouble))
    assert verdicts == [Retry(trouble)] * (CONFIRM_TRIES - 1) + [Done()]
