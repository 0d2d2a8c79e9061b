"""Fleets as they are read from a cluster: pages, namespaces, rights, strangers."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from actors import kube
from actors.errors import ApiError, Forbidden, Gone, NotFound
from actors.inspection.events import about, observe_event, prefix_of
from actors.inspection.fleets import FleetState
from actors.inspection.reading import FleetReader, everything
from actors.kube.api import CLAIMS, LEASES, PODS, ObjectPage
from tests.unit.inspection.objects import NOW, RUNNING, Cluster, at, lease, pod


def reader(cluster: Cluster) -> FleetReader:
    return FleetReader(cluster.ask_in, "default", lambda: NOW)


def test_fleets_are_told_apart_by_their_app_id() -> None:
    others = {"metadata": {"name": "stranger"}, "spec": {"containers": [{"name": "a", "image": "x"}]}}
    cluster = Cluster(pod(1), pod(2), pod(1, app_id="web"), leases=(lease(), lease("old", 3, "")))
    cluster.store.create("pods", "default", others)
    read = reader(cluster).all()
    assert [(each.app_id, each.state, len(each.executors)) for each in read.fleets] == [
        ("etl", FleetState.ALIVE, 2),
        ("old", FleetState.ENDED, 0),
        ("web", FleetState.UNKNOWN, 1),
    ]
    assert read.warnings == ()


@pytest.mark.parametrize("count", [1_200, pytest.param(5_000, marks=pytest.mark.stress)])
def test_a_fleet_of_thousands_is_read_in_pages(count: int) -> None:
    cluster = Cluster(leases=(lease(),))
    manifest = pod(1, state=RUNNING)
    items = [{**manifest, "metadata": pod(number)["metadata"]} for number in range(1, count + 1)]
    asked: list[kube.ListPage] = []

    def ask(request: kube.Request[Any], /) -> Any:
        if isinstance(request, kube.ListPage) and request.resource is PODS:
            asked.append(request)
            start = int(request.continue_token or 0)
            end = start + request.limit
            return ObjectPage(items[start:end], str(end) if end < len(items) else "")
        return cluster.ask_in("default")(request)

    (fleet,) = FleetReader(lambda _: ask, "default", lambda: NOW).all().fleets
    assert len(asked) == -(-count // 500)
    assert fleet.counts["default"].running == count
    assert [each.id for each in fleet.executors] == list(range(1, count + 1))


def test_a_list_whose_token_expired_is_begun_again_and_not_for_ever() -> None:
    expired = Gone("the token has expired", status=410)
    answers: list[Any] = [ObjectPage([{"a": 1}], "t"), expired, ObjectPage([{"a": 2}])]

    def ask(_: kube.Request[Any], /) -> Any:
        answer = answers.pop(0) if answers else expired
        if isinstance(answer, ApiError):
            raise answer
        return answer

    assert everything(ask, PODS, dict) == [{"a": 2}]
    with pytest.raises(Gone):
        everything(ask, PODS, dict)


def test_without_the_right_to_leases_the_fleets_are_shown_all_the_same() -> None:
    cluster = Cluster(pod(1), leases=(lease(),))
    cluster.api.forbidden |= {("list", "leases"), ("get", "leases")}
    read = reader(cluster).all()
    assert [each.state for each in read.fleets] == [FleetState.UNKNOWN]
    (warning,) = read.warnings
    assert 'cannot list resource "leases"' in warning
    fleet, (said,) = reader(cluster).one("etl")
    assert 'cannot get resource "leases"' in said
    assert "its Lease cannot be read" in fleet.driver.why
    with pytest.raises(Forbidden):
        reader(cluster).one("other")


def test_without_the_right_to_pods_nothing_is_shown() -> None:
    cluster = Cluster(pod(1))
    cluster.api.forbidden |= {("list", "pods")}
    with pytest.raises(Forbidden, match='cannot list resource "pods"'):
        reader(cluster).all()


def test_a_fleet_that_is_not_there_is_answered_with_those_that_are() -> None:
    cluster = Cluster(pod(1), leases=(lease("web"),))
    with pytest.raises(NotFound, match="no fleet 'nope' in namespace 'default'; those there are: etl, web"):
        reader(cluster).one("nope")
    with pytest.raises(NotFound, match="there is none"):
        reader(Cluster()).one("nope")
    many = Cluster(*(pod(1, app_id=f"app-{number:02}") for number in range(25)))
    with pytest.raises(NotFound, match=r"app-19 and 5 more$"):
        reader(many).one("nope")


def test_one_executor_of_many_is_read_alone_and_all_if_it_has_no_pod() -> None:
    cluster = Cluster(*(pod(number) for number in (1, 2, 12)), leases=(lease(),))
    fleet, seen, _ = reader(cluster).executor("etl", 2)
    assert seen is not None
    assert (seen.id, [each.id for each in fleet.executors], fleet.state) == (2, [2], FleetState.ALIVE)
    fleet, seen, _ = reader(cluster).executor("etl", 7)
    assert (seen, [each.id for each in fleet.executors]) == (None, [1, 2, 12])
    with pytest.raises(NotFound, match="those there are: etl"):
        reader(cluster).executor("web", 1)


def test_the_drivers_pod_is_read_where_there_is_no_lease() -> None:
    cluster = Cluster(pod(1))
    cluster.store.create(
        "pods", "default", {"metadata": {"name": "driver"}, "spec": {"containers": [{"name": "a", "image": "x"}]}}
    )
    uid = cluster.store.get("pods", "default", "driver")["metadata"]["uid"]
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "driver", "uid": uid}
    cluster.store.patch("pods", "default", "etl-exec-1", {"metadata": {"ownerReferences": [owner]}}, "merge")
    assert reader(cluster).one("etl")[0].state is FleetState.ALIVE
    cluster.store.patch("pods", "default", "driver", {"status": {"phase": "Failed"}}, "merge", subresource="status")
    assert reader(cluster).one("etl")[0].state is FleetState.ORPHANED
    cluster.api.forbidden |= {("get", "pods")}
    assert reader(cluster).one("etl")[0].state is FleetState.UNKNOWN
    cluster.add_lease(lease())
    cluster.asked.clear()
    assert reader(cluster).one("etl")[0].state is FleetState.ALIVE
    assert Counter(type(request) for request in cluster.asked) == {kube.ListPage: 1, kube.GetObject: 1}


def test_what_a_server_lists_against_the_selector_is_left_out() -> None:
    strangers = [
        {**pod(1), "metadata": {**pod(1)["metadata"], "labels": labels}} for labels in (None, {}, {"a": "b"}, 7)
    ]
    nameless = pod(2, metadata={"uid": ""})

    def ask(request: kube.Request[Any], /) -> Any:
        is_of_pods = isinstance(request, kube.ListPage) and request.resource is PODS
        if isinstance(request, kube.GetObject):
            raise NotFound("none", status=404)
        return ObjectPage([*strangers, pod(3), nameless] if is_of_pods else [{"metadata": None}, {}])

    subject = FleetReader(lambda _: ask, "default", lambda: NOW)
    (fleet,) = subject.all().fleets
    assert [each.id for each in fleet.executors] == [3]
    assert fleet.unreadable == 1
    assert [each.id for each in subject.one("etl")[0].executors] == [3]


def test_claims_are_those_of_the_fleet() -> None:
    cluster = Cluster()
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    for app_id in ("etl", "web"):
        metadata = {"name": f"{app_id}-exec-1-pvc-0", "labels": pod(1, app_id=app_id)["metadata"]["labels"]}
        cluster.store.create(CLAIMS.plural, "default", {"metadata": metadata, "spec": spec})
    assert [claim["metadata"]["name"] for claim in reader(cluster).claims("etl")] == ["etl-exec-1-pvc-0"]
    assert LEASES not in {getattr(request, "resource", None) for request in cluster.asked}


# ── Events ───────────────────────────────────────────────────────────────────────────────────────────────────────


def event(name: str, kind: str = "Pod", **fields: Any) -> dict[str, Any]:
    return {"involvedObject": {"kind": kind, "name": name}, "reason": name, **fields}


def test_events_about_a_fleet_are_those_of_its_executors_also_gone_ones_and_of_its_lease() -> None:
    listed = [
        event("etl-exec-7", lastTimestamp=at(10)),
        event("etl-exec-1", eventTime=at(30)),
        event("etl-exec-1-pvc-0", "PersistentVolumeClaim", lastTimestamp=at(5)),
        event("etl-exec-1-pvc-0", lastTimestamp=at(5)),
        event("etl2-exec-1", lastTimestamp=at(1)),
        event("etl-exec-x", lastTimestamp=at(1)),
        event("executor-pods-etl", "Lease", series={"lastObservedTime": at(20), "count": 4}),
        event("etl-exec-2", metadata={"creationTimestamp": at(40)}),
        event("etl-exec-3"),
    ]
    found = about(map(observe_event, listed), {"etl"}, {("Lease", "executor-pods-etl")})
    assert [each.name for each in found] == [
        "etl-exec-3",
        "etl-exec-2",
        "etl-exec-1",
        "executor-pods-etl",
        "etl-exec-7",
        "etl-exec-1-pvc-0",
    ]
    assert [each.count for each in found] == [1, 1, 1, 4, 1, 1]


def test_an_event_may_say_anything() -> None:
    odds: tuple[Any, ...] = (None, 7, [], "x")
    for odd in odds:
        found = observe_event(
            {"involvedObject": odd, "count": odd, "lastTimestamp": odd, "message": odd, "series": odd}
        )
        assert (found.at, found.count, found.name) == (None, 7 if odd == 7 else 1, "")


def test_the_prefix_of_a_pods_name_is_before_the_id() -> None:
    assert prefix_of("my-etl-exec-12") == "my-etl"
    assert prefix_of("etl-exec-1-pvc-0") is None
    assert prefix_of("driver") is None
    assert prefix_of("etl-exec-1-exec-12") == "etl-exec-1", "an app_id may look like an executor"
    assert prefix_of("etl-exec-1-exec-12-pvc-0") is None
