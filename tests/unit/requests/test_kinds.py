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
    Gone,
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
    LabelPod,
    ListClaims,
    PodConfirmed,
    PodsDeleted,
)
from actors.pods.pod import fleet_selector
from actors.requests.kinds import (
    CONFIRM_TRIES,
    BulkDelete,
    ClaimList,
    Confirm,
    Done,
    FindAndDelete,
    PodDelete,
    Retry,
    adopt,
    label,
)
from tests.unit.builders import APP_ID, pod, pod_name
from tests.unit.views import labelled

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
    assert PodDelete(DeletePod("a", options)).call == kube.Delete("a", options)


@pytest.mark.parametrize(
    "answer", [None, NotFound("gone", status=404), Conflict("uid", status=409), Forbidden("no", status=403)], ids=kind
)
def test_a_delete_is_done_with_any_answer_that_is_not_transient(answer: object) -> None:
    assert PodDelete(DeletePod("a")).judge(answer) == Done()


@pytest.mark.parametrize("trouble", TRANSIENT, ids=kind)
def test_deletes_and_labels_are_retried_after_transient_errors(asker: Probe, trouble: ApiError) -> None:
    for request in (PodDelete(DeletePod("a")), label(LabelPod("a", "u", {"x": "y"})), bulk(asker)):
        assert request.judge(trouble) == Retry(trouble)


@pytest.mark.parametrize(
    "answer", [None, NotFound("gone", status=404), Conflict("uid", status=409), *TRANSIENT], ids=kind
)
def test_not_found_conflict_and_transient_errors_are_no_refusals(answer: object) -> None:
    assert PodDelete(DeletePod("a")).refusal(answer) is None


@pytest.mark.parametrize(
    "refusal", [Forbidden("cannot delete pods", status=403), Unauthorized("no", status=401)], ids=kind
)
def test_an_answer_that_the_request_was_not_allowed_is_a_refusal(refusal: ApiError) -> None:
    assert PodDelete(DeletePod("a")).refusal(refusal) is refusal


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


def bulk(asker: Probe, *, grace: timedelta | None = None, include_inactive: bool = False) -> BulkDelete:
    pods = {pod_name(executor_id): f"uid-{executor_id}" for executor_id in (10, 9, 2)}
    ids = frozenset({10, 9, 2})
    message = DeletePods(pods, ids, "7", asker.address, grace=grace, include_inactive=include_inactive)
    return BulkDelete(message, APP_ID)


def test_a_bulk_delete_selects_by_id_what_a_list_had(asker: Probe) -> None:
    selector = f"{fleet_selector(APP_ID)},executor-pods/executor-id in (2,9,10)"
    five = timedelta(seconds=5)
    assert bulk(asker, grace=five).call == kube.DeleteCollection(selector, five, "7")
    everyone = f"{fleet_selector(APP_ID, active_only=False)},executor-pods/executor-id in (2,9,10)"
    assert bulk(asker, include_inactive=True).call == kube.DeleteCollection(everyone, None, "7")


@pytest.mark.parametrize("error", [None, Forbidden("no", status=403), Gone("too old", status=410)])
def test_the_answer_to_a_bulk_delete_is_reported_and_a_list_that_is_too_old_is_no_refusal(
    asker: Probe, kit: Kit, error: ApiError | None
) -> None:
    request = bulk(asker)
    assert request.judge(error) == Done()
    assert request.refusal(error) is (error if isinstance(error, Forbidden) else None)
    request.report(error)
    kit.settle()
    uids = {pod_name(10): "uid-10", pod_name(9): "uid-9", pod_name(2): "uid-2"}
    assert asker.take(PodsDeleted) == PodsDeleted(uids, error)


# ── a pod that was not observed ──────────────────────────────────────────────────────────────────────────────────


def test_a_pod_that_was_requested_and_not_observed_is_looked_up_and_deleted_by_its_uid() -> None:
    grace = timedelta(seconds=1)
    request = FindAndDelete(DeletePod(pod_name(1), DeleteOptions(grace=grace)), APP_ID)
    assert (request.call, request.writes) == (kube.Get(pod_name(1)), False)
    assert request.judge(pod(1)) == Retry()
    assert (request.call, request.uid) == (kube.Delete(pod_name(1), DeleteOptions(uid="uid-1", grace=grace)), "uid-1")
    assert request.judge(None) == Done()


@pytest.mark.parametrize(
    "answer",
    [
        NotFound("no such pod", status=404),
        Forbidden("cannot get pods", status=403),
        labelled(pod(1), app__id="other"),
        labelled(pod(1), executor__id="2"),
    ],
    ids=["none", "cannot be read", "another fleet's", "another executor's"],
)
def test_what_is_not_the_executors_pod_keeps_its_name(answer: object) -> None:
    request = FindAndDelete(DeletePod(pod_name(1)), APP_ID)
    assert request.judge(answer) == Done()
    assert request.call == kube.Get(pod_name(1))


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
