"""Which rights a fleet needs, what is made of the server's answers, and how a missing one is said."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from actors.backend.rbac import LIST_PODS, Reviews, Right, lacking, needed
from actors.backend.shutdown import stop_limit
from actors.backend.startup import opened, out_of_time
from actors.errors import ApiError, BadRequest, Forbidden, NotFound, Unauthorized, Unavailable
from actors.kube.api import CLAIMS, EVENTS, LEASES, LOGS, PODS
from actors.messages.internal import Freshness, Source
from actors.settings.model import Settings
from tests.unit.views import settings

if TYPE_CHECKING:
    from collections.abc import Iterable

CONFIG = Path(__file__).parents[3] / "config"
RBAC = CONFIG / "rbac.yaml"
WATCH_PODS, DELETE_PODS = Right("watch"), Right("delete")
SYNCED = Freshness(Source.WATCH, 1.0, None)
TIMEOUT = timedelta(seconds=30)


def failing(error: ApiError, source: Source = Source.WATCH) -> Freshness:
    return Freshness(source, None, error)


def answers(*given: tuple[Right, bool | ApiError], awaited: Iterable[Right] = ()) -> Reviews:
    reviews = Reviews((*awaited, *(right for right, _ in given)))
    for right, answer in given:
        reviews = reviews.answered(right, answer)
    return reviews


# ── which ──────────────────────────────────────────────────────────────────────────────────────────────────────


CLAIM = {"name": "scratch", "mount_path": "/scratch", "size": "1Gi"}
PATCH_PODS, MAKE_CLAIMS = Right("patch"), Right("create", CLAIMS)
KEEP_A_LEASE = {Right("get", LEASES), Right("create", LEASES), Right("patch", LEASES)}


def more(**given: Any) -> set[Right]:
    """What these settings need beyond what every fleet does."""
    executor = {"image": "worker:1", **given.pop("executor", {})}
    subject = Settings(**{"app_id": "app", **given, "executor": executor})
    return {*needed(subject)} - {*needed(settings())}


@pytest.mark.parametrize(
    "given",
    [
        {"executor": {"delete_on_termination": False}},
        {"executor": {"kill_label": "example.com/state=killed"}},
        {"executor": {"decommission_label": "example.com/state=leaving"}},
        {"executor": {"decommission_deletion_cost": 0}},
        {"driver_pod_name": "driver-0"},
    ],
)
def test_a_right_to_patch_is_needed_only_where_pods_are_labelled_or_adopted(given: dict[str, Any]) -> None:
    assert more() == set()
    assert more(**given) == {PATCH_PODS}


def test_rights_to_leases_are_needed_where_a_lease_is_required() -> None:
    assert more(backend={"lease": True}) == KEEP_A_LEASE
    assert more(backend={"lease": "auto"}) == more(backend={"lease": False}) == set()


def test_a_right_to_create_claims_is_needed_where_the_drivers_pod_owns_them() -> None:
    assert more(driver_pod_name="driver-0", executor={"claims": [CLAIM]}) == {PATCH_PODS, MAKE_CLAIMS}
    profile = {"large": {"claims": [CLAIM]}}
    assert more(driver_pod_name="driver-0", profiles=profile) == {PATCH_PODS, MAKE_CLAIMS}
    assert more(executor={"claims": [CLAIM]}) == set(), "the cluster makes those that an executor's pod owns"
    assert more(driver_pod_name="driver-0", executor={"claims": [CLAIM], "own_claims": False}) == {PATCH_PODS}


def test_the_role_that_is_shipped_has_what_any_settings_need_and_what_they_can_do_without() -> None:
    (role,) = (document for document in yaml.safe_load_all(RBAC.read_text()) if document["kind"] == "Role")
    granted = [
        (group, plural, verb)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for plural in rule["resources"]
        for verb in rule["verbs"]
    ]
    of_claims = {MAKE_CLAIMS, Right("list", CLAIMS), Right("delete", CLAIMS)}
    of_events = {Right("create", EVENTS), Right("patch", EVENTS)}
    rights = {*needed(settings()), Right("get", LOGS), PATCH_PODS, *KEEP_A_LEASE, *of_claims, *of_events}
    assert {*granted} == {(right.resource.group, right.resource.plural, right.verb) for right in rights}
    assert len(granted) == len({*granted})


def test_the_driver_that_is_shipped_runs_as_that_account_knows_its_pod_and_keeps_a_lease(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    documents = {document["kind"]: document for document in yaml.safe_load_all((CONFIG / "driver.yaml").read_text())}
    pod = documents["Deployment"]["spec"]["template"]["spec"]
    (account,) = (d for d in yaml.safe_load_all(RBAC.read_text()) if d["kind"] == "ServiceAccount")
    assert pod["serviceAccountName"] == account["metadata"]["name"]
    (variable,) = pod["containers"][0]["env"]
    assert variable["valueFrom"] == {"fieldRef": {"fieldPath": "metadata.name"}}
    for name, text in documents["ConfigMap"]["data"].items():
        (tmp_path / name).write_text(text)
    monkeypatch.setenv(variable["name"], "driver-0")
    subject = Settings.load(tmp_path / "config.toml")
    assert (subject.driver_pod_name, subject.app_id, subject.uses_lease) == ("driver-0", "etl", True)
    assert pod["terminationGracePeriodSeconds"] > stop_limit(subject).total_seconds()


# ── reviews ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_right_is_awaited_until_its_review_is_answered() -> None:
    reviews = Reviews((LIST_PODS, WATCH_PODS)).answered(LIST_PODS, True)  # noqa: FBT003 - the answer of a review
    assert (reviews.awaited, reviews.missing, reviews.error) == ((WATCH_PODS,), (), None)


def test_only_a_clear_no_makes_a_right_missing() -> None:
    away = Unavailable("no answer")
    reviews = answers((LIST_PODS, True), (WATCH_PODS, away), (DELETE_PODS, False))
    assert (reviews.awaited, reviews.missing, reviews.error) == ((), (DELETE_PODS,), away)


def test_an_unexpected_answer_changes_nothing() -> None:
    reviews = Reviews((LIST_PODS,)).abandoned()
    assert reviews.answered(LIST_PODS, False) == reviews  # noqa: FBT003 - the answer of a review
    assert isinstance(reviews.error, Unavailable)


def test_a_right_that_is_granted_later_is_missing_no_more() -> None:
    reviews = answers((DELETE_PODS, False), (WATCH_PODS, False))
    assert reviews.answered(DELETE_PODS, True).missing == (WATCH_PODS,)  # noqa: FBT003 - the answer of a review
    for still in (False, Unavailable("no answer")):
        assert reviews.answered(DELETE_PODS, still) == reviews


def test_nothing_is_abandoned_when_all_were_answered() -> None:
    reviews = answers((LIST_PODS, True))
    assert reviews.abandoned() == reviews


# ── the error ──────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("rights", "message"),
    [
        (
            [DELETE_PODS],
            (
                'the account may not delete pods in namespace "jobs": grant verb "delete" on resource "pods" '
                "(`executor-pods config --rbac` prints the rule)"
            ),
        ),
        (
            [DELETE_PODS, LIST_PODS, WATCH_PODS],
            (
                'the account may not list, watch and delete pods in namespace "jobs": grant verbs "list", "watch" and '
                '"delete" on resource "pods" (`executor-pods config --rbac` prints the rule)'
            ),
        ),
        (
            [Right("update", LEASES), DELETE_PODS],
            (
                'the account may not update leases and delete pods in namespace "jobs": grant verb "update" on '
                'resource "leases" of group "coordination.k8s.io" and verb "delete" on resource "pods" '
                "(`executor-pods config --rbac` prints the rule)"
            ),
        ),
    ],
)
def test_one_line_says_what_may_not_be_done_and_what_to_grant(rights: list[Right], message: str) -> None:
    error = lacking(rights, "jobs")
    assert (str(error), error.status, error.reason) == (message, 403, "Forbidden")


def test_the_servers_own_refusal_is_kept() -> None:
    said = Forbidden('User "etl" cannot list resource "pods"', status=403)
    assert str(lacking([LIST_PODS], "jobs", said=said)).endswith(f"; the server says: {said}")


# ── the start ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_start_is_done_when_the_fleet_was_listed_and_no_right_is_missing() -> None:
    assert opened(Reviews((LIST_PODS,)), [SYNCED], "jobs") is False
    assert opened(answers((LIST_PODS, True)), [], "jobs") is False
    assert opened(answers((LIST_PODS, True)), [SYNCED], "jobs") is True
    assert opened(answers((LIST_PODS, Unavailable("no answer"))), [SYNCED], "jobs") is True


@pytest.mark.parametrize("error", [Unauthorized("who?"), NotFound("no such path"), BadRequest("what?")])
def test_an_error_that_no_retry_helps_ends_it_at_once(error: ApiError) -> None:
    assert opened(Reviews((LIST_PODS,)), [failing(error)], "jobs") is error


def test_other_errors_of_the_first_list_are_waited_out() -> None:
    assert opened(answers((LIST_PODS, True)), [failing(Unavailable("503"))], "jobs") is False


def test_an_error_after_a_list_ends_no_start() -> None:
    polled = Freshness(Source.POLL, 1.0, None)
    assert opened(answers((LIST_PODS, True)), [failing(Unauthorized("who?")), polled], "jobs") is True


def test_a_right_that_is_missing_ends_it_once_all_were_reviewed() -> None:
    assert opened(answers((DELETE_PODS, False), awaited=(LIST_PODS,)), [SYNCED], "jobs") is False
    outcome = opened(answers((DELETE_PODS, False), (LIST_PODS, True)), [SYNCED], "jobs")
    assert isinstance(outcome, Forbidden)
    assert "may not delete pods" in str(outcome)


def test_a_refused_list_counts_as_a_missing_right() -> None:
    refused = failing(Forbidden("no", status=403))
    assert opened(Reviews((DELETE_PODS,)), [refused], "jobs") is False
    outcome = opened(answers((DELETE_PODS, False)), [refused], "jobs")
    assert isinstance(outcome, Forbidden)
    assert "may not list and delete pods" in str(outcome)


def test_out_of_time_a_start_continues_without_reviews_but_not_without_a_list() -> None:
    reviews = Reviews((Right("create", PODS),))
    assert out_of_time(reviews, [SYNCED], "jobs", TIMEOUT) is True
    silent = out_of_time(reviews, [], "jobs", TIMEOUT)
    assert isinstance(silent, Unavailable)
    assert "30 s" in str(silent)
    error = Unavailable("connection refused")
    assert out_of_time(reviews, [failing(error)], "jobs", TIMEOUT) is error


def test_out_of_time_a_right_that_is_known_to_be_missing_ends_it() -> None:
    outcome = out_of_time(answers((DELETE_PODS, False), awaited=(LIST_PODS,)), [SYNCED], "jobs", TIMEOUT)
    assert isinstance(outcome, Forbidden)
