"""What the actors take for granted about the requests of a fleet, with the labels and selectors that they use."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from actors.errors import AlreadyExists, Conflict, NotFound
from actors.kube import CLAIMS, PODS, DeleteOptions
from actors.local.inprocess import InProcessPodApi
from actors.pods.pod import (
    APP_ID_LABEL,
    EXECUTOR_ID_LABEL,
    INACTIVE_LABEL,
    ROLE_EXECUTOR,
    ROLE_LABEL,
    Pod,
    fleet_selector,
)
from tests.contract.asking import Asking, manifest

if TYPE_CHECKING:
    from tests.contract.clusters import Cluster, RealCluster, StoreCluster

NOW = timedelta(0)
APP = "app-1"
ACTIVE = fleet_selector(APP)


def executor(number: int, *, app: str = APP, node: str | None = None, **labels: str) -> dict[str, Any]:
    ours = {APP_ID_LABEL: app, ROLE_LABEL: ROLE_EXECUTOR, EXECUTOR_ID_LABEL: str(number)}
    return manifest(f"{app}-exec-{number}", ours | labels, node=node)


def name(number: int) -> str:
    return f"{APP}-exec-{number}"


# ── A create whose answer was lost ───────────────────────────────────────────────────────────────────────────────────


def test_a_second_create_already_exists_and_a_get_shows_the_first(api: Asking) -> None:
    first = api.created(executor(1))
    assert type(api.create(executor(1))) is AlreadyExists
    assert api.get(name(1)) == first


def test_a_name_is_taken_until_its_pod_is_gone_and_then_free_for_another_uid(api: Asking) -> None:
    first = api.created(executor(1, node="n"))
    api.delete(name(1))
    error = api.create(executor(1))
    assert type(error) is AlreadyExists
    assert "object is being deleted" in error.message
    assert api.get(name(1)).terminating
    api.delete(name(1), DeleteOptions(grace=NOW))
    assert api.created(executor(1)).uid != first.uid


# ── Deletions ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_delete_with_the_version_that_was_seen_spares_a_pod_that_has_started_since(
    cluster: Cluster, api: Asking
) -> None:
    seen = api.created(executor(1, node="n"))
    cluster.set_status("pods", api.api.namespace, name(1), {"phase": "Running"})
    options = DeleteOptions(uid=seen.uid, resource_version=seen.resource_version)
    assert type(api.delete(name(1), options)) is Conflict
    assert not api.get(name(1)).terminating


def test_a_delete_by_uid_spares_a_later_pod_of_the_same_name(api: Asking) -> None:
    first = api.created(executor(1))
    api.delete(name(1))
    second = api.created(executor(1))
    for grace in (None, NOW):
        assert type(api.delete(name(1), DeleteOptions(uid=first.uid, grace=grace))) is Conflict
    assert api.get(name(1)) == second


def test_a_second_delete_of_a_going_pod_is_no_error_and_does_not_give_it_longer(api: Asking) -> None:
    pod = api.created(executor(1, node="n"))
    for grace in (timedelta(seconds=5), None, timedelta(seconds=50)):
        assert api.delete(name(1), DeleteOptions(uid=pod.uid, grace=grace)) is None
        assert api.get(name(1)).metadata.deletion_grace_period_seconds == 5
    assert api.delete(name(1), DeleteOptions(uid=pod.uid, grace=NOW)) is None
    assert type(api.delete(name(1), DeleteOptions(uid=pod.uid))) is NotFound


def test_a_bulk_delete_by_ids_spares_other_ids_other_apps_and_what_was_set_aside(api: Asking) -> None:
    for number in (1, 2, 3):
        api.created(executor(number))
    api.created(executor(1, app="app-2"))
    api.created(executor(4, **{INACTIVE_LABEL: "true"}))
    assert api.delete_collection(f"{ACTIVE},{EXECUTOR_ID_LABEL} in (1,2,4)") is None
    assert api.names() == {name(3), "app-2-exec-1", name(4)}


def test_a_bulk_delete_of_what_was_listed_spares_what_has_come_since(api: Asking) -> None:
    for number in (1, 2):
        api.created(executor(number))
    listed = api.listed(ACTIVE)
    api.created(executor(3))
    api.created(executor(2, app="stranger", **{APP_ID_LABEL: APP}))
    selector = f"{ACTIVE},{EXECUTOR_ID_LABEL} in (1,2,3)"
    assert api.delete_collection(selector, at_version=listed.resource_version) is None
    assert api.names() == {name(3), "stranger-exec-2"}


def test_a_bulk_delete_without_a_label_takes_those_that_do_not_have_it(api: Asking) -> None:
    api.created(executor(1))
    api.created(executor(2, **{INACTIVE_LABEL: "true"}))
    assert api.delete_collection(f"{fleet_selector(APP, active_only=False)},!{INACTIVE_LABEL}") is None
    assert api.names() == {name(2)}


def test_a_bulk_delete_of_bound_pods_shows_each_as_going(api: Asking) -> None:
    for number in (1, 2):
        api.created(executor(number, node="n"))
    watching = api.watch(ACTIVE, api.listed().resource_version)
    assert api.delete_collection(ACTIVE) is None
    events = [watching.event() for _ in range(2)]
    watching.call.cancel()
    assert {(kind, pod.name, pod.terminating) for kind, pod in events} == {
        ("MODIFIED", name(1), True),
        ("MODIFIED", name(2), True),
    }


def test_a_finalizer_holds_a_deleted_pod_in_sight(api: Asking) -> None:
    held = executor(1)
    held["metadata"]["finalizers"] = ["example.com/keep"]
    api.created(held)
    assert api.delete(name(1), DeleteOptions(grace=NOW)) is None
    assert api.listed(ACTIVE).pods[0].terminating
    assert isinstance(api.patch(name(1), {"metadata": {"finalizers": None}}), Pod)
    assert type(api.get(name(1))) is NotFound


# ── Labels, owners ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_pod_that_is_set_aside_leaves_the_list_and_the_watch_and_lives_on(api: Asking) -> None:
    pod = api.created(executor(1))
    watching = api.watch(ACTIVE, api.listed().resource_version)
    patched = api.patch(name(1), {"metadata": {"uid": pod.uid, "labels": {INACTIVE_LABEL: "true"}}})
    assert isinstance(patched, Pod)
    kind, last = watching.event()
    watching.call.cancel()
    assert (kind, last.uid, last.terminating) == ("DELETED", pod.uid, False)
    assert last.resource_version == patched.resource_version
    assert api.names(ACTIVE) == set()
    assert api.get(name(1)) == patched


def test_an_adopted_pod_gets_its_owner_only_if_it_is_the_one_that_was_seen(api: Asking) -> None:
    driver, pod = api.created(manifest("driver")), api.created(executor(1))
    owners = [{"apiVersion": "v1", "kind": "Pod", "name": "driver", "uid": driver.uid, "controller": True}]
    for uid, expected in (("another", Conflict), (pod.uid, Pod)):
        assert type(api.patch(name(1), {"metadata": {"uid": uid, "ownerReferences": owners}})) is expected
    kept = api.get(name(1)).metadata.owner_references
    assert [owner.uid for owner in kept or ()] == [driver.uid]


@pytest.mark.parametrize("value", ["", "a", "A.b_c-1", "x" * 63])
def test_a_label_keeps_any_value_that_is_allowed(api: Asking, value: str) -> None:
    api.created(executor(1, **{"executor-pods/profile": value}))
    assert api.names(f"{ACTIVE},executor-pods/profile={value}") == {name(1)}


# ── Rights ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_an_account_learns_what_it_may_not_do(real: RealCluster) -> None:
    nobody = Asking(real.connect_as("nobody", real.new_namespace()))
    answers = [nobody.may("create", PODS), nobody.may("list", CLAIMS)]
    nobody.api.close()
    assert answers == [False, False]


def test_the_store_can_deny_an_account_a_right(in_process: StoreCluster) -> None:
    connected = InProcessPodApi(in_process.store, in_process.new_namespace())
    connected.forbidden.add(("create", "pods"))
    asking = Asking(connected)
    assert (asking.may("create", PODS), asking.may("delete", PODS)) == (False, True)
