"""What every `PodApi` does, whatever is behind it. A real API server has the last word on what is right here."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from actors.allocation.creation_block import CreationBlock
from actors.errors import (
    AlreadyExists,
    ApiError,
    BadRequest,
    Cancelled,
    Conflict,
    Gone,
    Invalid,
    NotFound,
    QuotaExceeded,
    TooLarge,
    Unavailable,
)
from actors.kube import DeleteOptions
from actors.pods.pod import Pod
from tests.contract.asking import WATCH, Asking, manifest

if TYPE_CHECKING:
    from tests.contract.clusters import Cluster

NOW = timedelta(0)

# ── Creating ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_created_pod_is_answered_as_the_server_stored_it(api: Asking) -> None:
    pod = api.created(manifest("a", {"app": "x"}))
    assert pod.name == "a"
    assert pod.labels == {"app": "x"}
    assert pod.uid
    assert pod.resource_version.isdecimal()
    assert pod.status is not None
    assert pod.status.phase == "Pending"
    assert not pod.terminating


def test_a_name_that_is_taken_is_answered_by_already_exists(api: Asking) -> None:
    api.created(manifest("a"))
    error = api.create(manifest("a"))
    assert type(error) is AlreadyExists
    assert (error.status, error.reason) == (409, "AlreadyExists")
    assert "a" in error.message


@pytest.mark.parametrize(
    ("pod", "field"),
    [
        (manifest("Not_A_Name"), "metadata.name"),
        ({**manifest("a"), "spec": {"containers": []}}, "spec.containers"),
        (manifest("a", {"app": "no spaces allowed"}), "metadata.labels"),
    ],
)
def test_an_invalid_pod_is_answered_with_the_field_that_is_wrong(
    api: Asking, pod: dict[str, object], field: str
) -> None:
    error = api.create(pod)
    assert type(error) is Invalid
    assert (error.status, error.reason) == (422, "Invalid")
    assert field in [cause for cause, _ in error.causes]


def test_a_pod_of_another_shape_is_a_bad_request(api: Asking) -> None:
    error = api.create({**manifest("a"), "spec": {"containers": "none"}})
    assert type(error) is BadRequest
    assert error.status == 400


def test_a_namespace_that_does_not_exist_is_not_found(cluster: Cluster) -> None:
    connected = cluster.connect("no-such-namespace")
    error = Asking(connected).create(manifest("a"))
    connected.close()
    assert type(error) is NotFound
    assert "no-such-namespace" in error.message


def test_a_pod_over_the_quota_is_answered_by_quota_exceeded(cluster: Cluster, api: Asking) -> None:
    cluster.allow_pods(api.api.namespace, 1)
    api.created(manifest("a"))
    error = api.create(manifest("b"))
    assert type(error) is QuotaExceeded
    assert (error.status, error.reason) == (403, "Forbidden")
    assert "exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=1" in error.message


def test_a_pod_larger_than_the_whole_quota_is_answered_with_what_it_requests_and_the_limit(
    cluster: Cluster, api: Asking
) -> None:
    cluster.allow_pods(api.api.namespace, 0)
    error = api.create(manifest("a"))
    assert type(error) is QuotaExceeded
    assert CreationBlock.of(error).cause == "quota_too_small"


@pytest.mark.parametrize(
    ("size", "words"),
    [
        (1.7, "etcdserver: request is too large"),
        (2.3, "code = ResourceExhausted desc = trying to send message larger than max"),
    ],
)
def test_a_pod_that_is_too_large_is_answered_by_too_large(api: Asking, size: float, words: str) -> None:
    pod = manifest("a")
    pod["spec"]["containers"][0]["env"] = [{"name": "TEXT", "value": "x" * int(size * 2**20)}]
    error = api.create(pod)
    assert type(error) is TooLarge
    assert (error.status, words in error.message) == (500, True)
    assert type(api.get("a")) is NotFound


# ── Reading ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_pod_can_be_read_by_name(api: Asking) -> None:
    pod = api.created(manifest("a"))
    assert api.get("a") == pod


def test_a_pod_that_is_not_there_is_not_found(api: Asking) -> None:
    error = api.get("a")
    assert type(error) is NotFound
    assert (error.status, error.reason) == (404, "NotFound")


@pytest.mark.parametrize("name", ["", ".", "..", "a/b"])
def test_a_name_that_would_mean_something_else_is_refused(api: Asking, name: str) -> None:
    api.created(manifest("a"))
    assert isinstance(api.delete(name), ApiError)
    assert isinstance(api.get(name), ApiError)
    assert isinstance(api.patch(name, {}), ApiError)
    assert api.names() == {"a"}


def test_a_list_shows_what_is_there_and_its_version(api: Asking) -> None:
    assert api.listed().pods == ()
    pod = api.created(manifest("a"))
    page = api.listed()
    assert page.pods == (pod,)
    assert int(page.resource_version) >= int(pod.resource_version)
    assert page.continue_token == ""
    assert page.malformed == 0


def test_a_list_comes_in_pages_of_one_version(api: Asking) -> None:
    made = {api.created(manifest(f"p{i}")).name for i in range(5)}
    first = api.listed(limit=2)
    assert len(first.pods) == 2
    assert first.continue_token
    api.created(manifest("too-late"))
    second = api.listed(limit=2, continue_token=first.continue_token)
    third = api.listed(limit=2, continue_token=second.continue_token)
    assert [len(page.pods) for page in (second, third)] == [2, 1]
    assert third.continue_token == ""
    assert {pod.name for page in (first, second, third) for pod in page.pods} == made
    assert first.resource_version == second.resource_version == third.resource_version


def test_a_broken_continue_token_is_a_bad_request(api: Asking) -> None:
    assert type(api.list(limit=1, continue_token="broken")) is BadRequest


@pytest.mark.parametrize("selector", ["a=(", "a in b", "!", "a b"])
def test_a_broken_selector_is_a_bad_request(api: Asking, selector: str) -> None:
    assert type(api.list(selector)) is BadRequest


def test_a_broken_version_is_refused(api: Asking) -> None:
    assert type(api.list(resource_version="broken")) is BadRequest


def test_a_list_of_a_version_that_is_not_there_yet_is_to_be_asked_for_again(api: Asking) -> None:
    version = int(api.listed().resource_version) + 1_000_000
    error = api.list(resource_version=str(version))
    assert type(error) is Unavailable
    assert (error.status, error.reason) == (504, "Timeout")
    assert error.retry_after == timedelta(seconds=1)


def test_a_list_may_be_answered_from_the_cache(api: Asking) -> None:
    pod = api.created(manifest("a"))
    assert set(api.listed(resource_version=pod.resource_version).pods) == {pod}
    assert api.listed(resource_version="0").resource_version.isdecimal()


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ("tier=web", {"a"}),
        ("tier==web", {"a"}),
        ("tier!=web", {"b", "c"}),
        ("tier in (web,db)", {"a", "b"}),
        ("tier notin (web)", {"b", "c"}),
        ("tier", {"a", "b"}),
        ("!tier", {"c"}),
        ("app=x,tier!=db", {"a", "c"}),
        ("app=x,tier in (db),!absent", {"b"}),
        ("example.com/role=main", {"a"}),
        ("", {"a", "b", "c"}),
    ],
)
def test_a_selector_chooses_by_label(api: Asking, selector: str, names: set[str]) -> None:
    api.created(manifest("a", {"app": "x", "tier": "web", "example.com/role": "main"}))
    api.created(manifest("b", {"app": "x", "tier": "db"}))
    api.created(manifest("c", {"app": "x"}))
    assert api.names(selector) == names


# ── Watching ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_watch_tells_what_happens_after_its_version(api: Asking) -> None:
    api.created(manifest("before"))
    watching = api.watch("", api.listed().resource_version)
    created = api.created(manifest("a"))
    assert watching.event() == ("ADDED", created)
    patched = api.patch("a", {"metadata": {"labels": {"x": "y"}}})
    assert watching.event() == ("MODIFIED", patched)
    api.delete("a")
    kind, last = watching.event()
    while kind == "MODIFIED":  # a server may show the deletion's beginning
        kind, last = watching.event()
    assert (kind, last.uid) == ("DELETED", created.uid)
    assert int(last.resource_version) > int(patched.resource_version)
    watching.call.cancel()


def test_a_bookmark_moves_a_watch_past_what_it_does_not_see(cluster: Cluster, api: Asking) -> None:
    watching = api.watch("app=x", api.listed().resource_version, timeout=WATCH)
    api.created(manifest("seen", {"app": "x"}))
    watching.event()
    unseen = api.created(manifest("unseen"))
    cluster.bookmark()
    assert int(watching.bookmark()) >= int(unseen.resource_version)
    watching.call.cancel()


def test_a_watch_resumes_where_another_stopped(api: Asking) -> None:
    first = api.watch("", api.listed().resource_version)
    api.created(manifest("a"))
    first.event()
    first.call.cancel()
    b = api.created(manifest("b"))
    second = api.watch("", first.version)
    assert second.event() == ("ADDED", b)
    second.call.cancel()


def test_a_watch_from_outside_of_the_window_ends_with_gone(cluster: Cluster, api: Asking) -> None:
    error = api.watch("", cluster.version_outside_the_window()).end()
    assert type(error) is Gone
    assert (error.status, error.reason) == (410, "Expired")


def test_a_watch_from_a_version_above_the_servers_is_silent(api: Asking) -> None:
    version = int(api.listed().resource_version) + 1_000_000
    watching = api.watch("", str(version))
    witness = api.watch("", api.listed().resource_version)
    api.created(manifest("a"))
    witness.event()
    witness.call.cancel()
    assert watching.quiet()
    watching.call.cancel()
    assert type(watching.end()) is Cancelled


def test_a_watch_ends_cleanly_when_its_time_is_over(api: Asking) -> None:
    assert api.watch("", api.listed().resource_version, timeout=timedelta(seconds=1)).end() is None


def test_a_watch_with_a_broken_selector_ends_with_a_bad_request(api: Asking) -> None:
    assert type(api.watch("a in b", api.listed().resource_version).end()) is BadRequest


def test_a_watch_by_selector_sees_a_relabelled_pod_come_and_go(api: Asking) -> None:
    api.created(manifest("other", {"app": "y"}))
    watching = api.watch("app=x", api.listed().resource_version)
    pod = api.created(manifest("a", {"app": "x"}))
    assert watching.event() == ("ADDED", pod)
    left = api.patch("a", {"metadata": {"labels": {"app": "y"}}})
    kind, shown = watching.event()
    assert (kind, shown.uid, shown.resource_version) == ("DELETED", pod.uid, left.resource_version)
    assert shown.labels == {"app": "x"}, "a pod that left is shown as it was when it still matched"
    back = api.patch("a", {"metadata": {"labels": {"app": "x"}}})
    assert watching.event() == ("ADDED", back)
    watching.call.cancel()


def test_a_cancelled_watch_ends_with_cancelled_and_tells_nothing_more(api: Asking) -> None:
    version = api.listed().resource_version
    watching = api.watch("", version)
    witness = api.watch("", version)
    watching.call.cancel()
    assert type(watching.end()) is Cancelled
    watching.call.cancel()
    api.created(manifest("a"))
    witness.event()
    witness.call.cancel()
    assert watching.quiet()


def test_a_watch_that_is_closed_ends_with_cancelled(cluster: Cluster) -> None:
    asking = Asking(cluster.connect(cluster.new_namespace()))
    watching = asking.watch("", asking.listed().resource_version)
    asking.api.close()
    assert type(watching.end()) is Cancelled
    assert type(asking.get("a")) is Cancelled, "a closed client sends nothing"


# ── Changing ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_patch_adds_changes_and_takes_away_labels(api: Asking) -> None:
    pod = api.created(manifest("a", {"keep": "1", "change": "1", "drop": "1"}))
    patched = api.patch("a", {"metadata": {"labels": {"change": "2", "drop": None, "add": "1"}}})
    assert isinstance(patched, Pod)
    assert patched.labels == {"keep": "1", "change": "2", "add": "1"}
    assert patched.uid == pod.uid
    assert int(patched.resource_version) > int(pod.resource_version)


def test_a_patch_with_the_right_uid_is_taken(api: Asking) -> None:
    pod = api.created(manifest("a"))
    patched = api.patch("a", {"metadata": {"uid": pod.uid, "labels": {"x": "y"}}})
    assert isinstance(patched, Pod)
    assert patched.labels == {"x": "y"}


def test_a_patch_with_another_uid_is_a_conflict(api: Asking) -> None:
    api.created(manifest("a"))
    error = api.patch("a", {"metadata": {"uid": "another", "labels": {"x": "y"}}})
    assert type(error) is Conflict, "the server says Invalid, as it would of any field that cannot change"
    assert (error.status, error.reason) == (422, "Invalid")
    assert api.get("a").labels == {}


def test_a_patch_with_an_old_version_is_a_conflict(api: Asking) -> None:
    pod = api.created(manifest("a"))
    api.patch("a", {"metadata": {"labels": {"x": "y"}}})
    error = api.patch("a", {"metadata": {"resourceVersion": pod.resource_version, "labels": {"x": "z"}}})
    assert type(error) is Conflict
    assert error.status == 409


def test_a_patch_of_what_cannot_change_is_invalid(api: Asking) -> None:
    api.created(manifest("a"))
    error = api.patch("a", {"spec": {"containers": [{"name": "other", "image": "worker:1"}]}})
    assert type(error) is Invalid
    assert "spec" in [cause for cause, _ in error.causes]


def test_a_patch_of_a_pod_that_is_not_there_is_not_found(api: Asking) -> None:
    assert type(api.patch("a", {"metadata": {"labels": {"x": "y"}}})) is NotFound


# ── Deleting ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_pod_on_no_node_is_gone_at_once(api: Asking) -> None:
    api.created(manifest("a"))
    assert api.delete("a") is None
    assert type(api.get("a")) is NotFound
    assert type(api.delete("a")) is NotFound


def test_a_pod_on_a_node_stays_until_its_kubelet_lets_it_go(api: Asking) -> None:
    pod = api.created(manifest("a", node="n"))
    assert api.delete("a", DeleteOptions(uid=pod.uid)) is None
    going = api.get("a")
    assert going.terminating
    assert going.metadata.deletion_grace_period_seconds == 30
    assert api.delete("a", DeleteOptions(grace=NOW)) is None
    assert type(api.get("a")) is NotFound


def test_a_delete_can_name_a_shorter_grace(api: Asking) -> None:
    api.created(manifest("a", node="n"))
    assert api.delete("a", DeleteOptions(grace=timedelta(seconds=5))) is None
    assert api.get("a").metadata.deletion_grace_period_seconds == 5


def test_a_fraction_of_a_second_of_grace_is_rounded_up_as_none_would_be_a_deletion_by_force(api: Asking) -> None:
    api.created(manifest("a", {"app": "x"}, node="n"))
    assert api.delete("a", DeleteOptions(grace=timedelta(milliseconds=1500))) is None
    assert api.get("a").metadata.deletion_grace_period_seconds == 2
    assert api.delete_collection("app=x", grace=timedelta(milliseconds=500)) is None
    assert api.get("a").metadata.deletion_grace_period_seconds == 1, "a bulk delete names its grace, too"


@pytest.mark.parametrize("options", [DeleteOptions(uid="another"), DeleteOptions(resource_version="1")])
def test_a_delete_with_a_precondition_that_fails_is_a_conflict(api: Asking, options: DeleteOptions) -> None:
    api.created(manifest("a"))
    error = api.delete("a", options)
    assert type(error) is Conflict
    assert error.status == 409
    assert api.names() == {"a"}


def test_a_delete_with_preconditions_that_hold_is_taken(api: Asking) -> None:
    pod = api.created(manifest("a"))
    assert api.delete("a", DeleteOptions(uid=pod.uid, resource_version=pod.resource_version)) is None
    assert api.names() == set()


def test_a_bulk_delete_takes_what_its_selector_names(api: Asking) -> None:
    for i in range(4):
        api.created(manifest(f"p{i}", {"app": "x", "id": str(i)}))
    api.created(manifest("other", {"app": "y", "id": "1"}))
    assert api.delete_collection("app=x,id in (1,3)") is None
    assert api.names() == {"p0", "p2", "other"}
    assert api.delete_collection("app=x,id in (1,3)") is None, "nothing to delete is no error"


def test_a_bulk_delete_gives_each_bound_pod_its_own_grace_period(api: Asking) -> None:
    for name in ("a", "b"):
        api.created(manifest(name, {"app": "x"}, node="n"))
    assert api.delete_collection("app=x") is None
    assert [pod.metadata.deletion_grace_period_seconds for pod in api.listed().pods] == [30, 30]
    for name in ("a", "b"):
        assert api.delete(name, DeleteOptions(grace=NOW)) is None
    assert api.names() == set()


def test_what_a_kubelet_reports_is_seen(cluster: Cluster, api: Asking) -> None:
    api.created(manifest("a", node="n"))
    watching = api.watch("", api.listed().resource_version)
    ended = {"terminated": {"exitCode": 3, "reason": "Error"}}
    container = {"name": "executor", "image": "i", "imageID": "i", "ready": False, "restartCount": 0, "state": ended}
    status = {"phase": "Failed", "podIP": "10.1.2.3", "containerStatuses": [container]}
    cluster.set_status("pods", api.api.namespace, "a", status)
    kind, pod = watching.event()
    watching.call.cancel()
    assert kind == "MODIFIED"
    assert pod.status is not None
    assert (pod.status.phase, pod.ip) == ("Failed", "10.1.2.3")
    assert pod.status.container_statuses is not None
    state = pod.status.container_statuses[0].state
    assert state is not None
    assert state.terminated is not None
    assert (state.terminated.exit_code, state.terminated.reason) == (3, "Error")
