"""Refusals by 422, with their fields and messages; and quotas."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.kube.quantities import format_quantity, parse_quantity
from actors.local.schema.statuses import ApiStatus
from tests.unit.local.bench import Bench, manifest, refusal


def _container(**more: Any) -> dict[str, Any]:
    return {"name": "c", "image": "i", **more}


def _causes(status: ApiStatus) -> list[tuple[str, str]]:
    assert (status.code, status.reason) == (422, "Invalid")
    assert status.details is not None
    return [(cause["field"], cause["reason"]) for cause in status.details["causes"]]


@pytest.mark.parametrize("name", ["P_1", "-a", "a-", "a..b", "a" * 254])
def test_a_pods_name_is_a_dns_subdomain(bench: Bench, name: str) -> None:
    status = refusal(lambda: bench.pod(name))
    assert _causes(status) == [("metadata.name", "FieldValueInvalid")]


def test_a_name_is_required(bench: Bench) -> None:
    status = refusal(lambda: bench.store.create("pods", "default", manifest("")))
    assert _causes(status) == [("metadata.name", "FieldValueRequired")]
    assert status.message == 'Pod "" is invalid: metadata.name: Required value: name or generateName is required'


def test_a_namespaces_name_is_a_dns_label(bench: Bench) -> None:
    status = refusal(lambda: bench.store.create("namespaces", None, {"metadata": {"name": "a.b"}}))
    assert _causes(status) == [("metadata.name", "FieldValueInvalid")]


def test_another_groups_kind_is_named_with_its_group(bench: Bench) -> None:
    status = refusal(lambda: bench.store.create("leases", "default", {"metadata": {"name": "A"}}))
    assert status.message.startswith('Lease.coordination.k8s.io "A" is invalid: metadata.name: Invalid value: "A"')


@pytest.mark.parametrize("sent", [{"metadata": {"name": "a"}}, {"metadata": {"name": "a"}, "spec": {}}])
def test_a_pod_needs_containers(bench: Bench, sent: dict[str, Any]) -> None:
    status = refusal(lambda: bench.store.create("pods", "default", sent))
    assert _causes(status) == [("spec.containers", "FieldValueRequired")]
    assert status.message == 'Pod "a" is invalid: spec.containers: Required value'


@pytest.mark.parametrize(
    ("spec", "causes"),
    [
        ({"containers": [{}]}, ["spec.containers[0].name: Required", "spec.containers[0].image: Required"]),
        ({"containers": [_container(), _container()]}, ["spec.containers[1].name: Duplicate"]),
        ({"initContainers": [_container()], "containers": [_container()]}, ["spec.initContainers[0].name: Duplicate"]),
        ({"containers": [_container(name="C_")]}, ["spec.containers[0].name: Invalid"]),
        ({"containers": [_container(image=" i")]}, ["spec.containers[0].image: Invalid"]),
        ({"restartPolicy": "Sometimes"}, ["spec.restartPolicy: NotSupported"]),
        ({"activeDeadlineSeconds": 0}, ["spec.activeDeadlineSeconds: Invalid"]),
        ({"nodeName": "N_"}, ["spec.nodeName: Invalid"]),
        ({"hostname": "a.b"}, ["spec.hostname: Invalid"]),
        ({"volumes": [{"name": "v"}, {"name": "v"}]}, ["spec.volumes[1].name: Duplicate"]),
        ({"containers": [_container(imagePullPolicy="X")]}, ["spec.containers[0].imagePullPolicy: NotSupported"]),
        (
            {"containers": [_container(terminationMessagePolicy="X")]},
            ["spec.containers[0].terminationMessagePolicy: NotSupported"],
        ),
        ({"containers": [_container(env=[{"value": "x"}])]}, ["spec.containers[0].env[0].name: Required"]),
        ({"containers": [_container(env=[{"name": "a=b"}])]}, ["spec.containers[0].env[0].name: Invalid"]),
        (
            {"containers": [_container(env=[{"name": "a", "valueFrom": {"fieldRef": {"fieldPath": "x"}}}])]},
            ["spec.containers[0].env[0].valueFrom.fieldRef.fieldPath: Invalid"],
        ),
        (
            {"containers": [_container(env=[{"name": "a", "value": "1", "valueFrom": {}}])]},
            ["spec.containers[0].env[0].valueFrom: Invalid", "spec.containers[0].env[0].valueFrom: Invalid"],
        ),
        ({"containers": [_container(ports=[{}])]}, ["spec.containers[0].ports[0].containerPort: Required"]),
        (
            {"containers": [_container(ports=[{"containerPort": 70000}])]},
            ["spec.containers[0].ports[0].containerPort: Invalid"],
        ),
        (
            {"containers": [_container(volumeMounts=[{"name": "v", "mountPath": "/v"}])]},
            ["spec.containers[0].volumeMounts[0].name: NotFound"],
        ),
        (
            {"containers": [_container(env=[{"name": "a", "valueFrom": {"fieldRef": {}}}])]},
            ["spec.containers[0].env[0].valueFrom.fieldRef.fieldPath: Required"],
        ),
        (
            {"containers": [_container(resources={"requests": {"foo": "1"}})]},
            ["spec.containers[0].resources.requests[foo]: Invalid"] * 2,
        ),
        (
            {"containers": [_container(ports=[{"containerPort": 1, "name": "A_"}])]},
            ["spec.containers[0].ports[0].name: Invalid", "spec.containers[0].ports[0].name: Invalid"],
        ),
        (
            {"containers": [_container(volumeMounts=[{"name": "v"}])], "volumes": [{"name": "v"}]},
            ["spec.containers[0].volumeMounts[0].mountPath: Required"],
        ),
        (
            {"containers": [_container(resources={"limits": {"cpu": "-1"}})]},
            [
                "spec.containers[0].resources.limits[cpu]: Invalid",
                "spec.containers[0].resources.requests[cpu]: Invalid",
            ],
        ),
        (
            {
                "containers": [
                    _container(
                        env=[
                            {
                                "name": "a",
                                "valueFrom": {
                                    "fieldRef": {"fieldPath": "status.podIP"},
                                    "secretKeyRef": {"name": "s", "key": "k"},
                                },
                            }
                        ]
                    )
                ]
            },
            ["spec.containers[0].env[0].valueFrom: Invalid"],
        ),
        ({"dnsPolicy": "X"}, ["spec.dnsPolicy: NotSupported"]),
        ({"nodeSelector": {"a b": "c"}}, ["spec.nodeSelector: Invalid"]),
        ({"tolerations": [{"key": "a", "operator": "X"}]}, ["spec.tolerations[0].operator: NotSupported"]),
        (
            {"containers": [_container(resources={"limits": {"cpu": "1"}, "requests": {"cpu": "1500m"}})]},
            ["spec.containers[0].resources.requests: Invalid"],
        ),
    ],
)
def test_a_pods_spec_is_validated(bench: Bench, spec: dict[str, Any], causes: list[str]) -> None:
    status = refusal(lambda: bench.pod("a", **spec))
    expected = [tuple(cause.split(": ")) for cause in causes]
    assert _causes(status) == [(field, f"FieldValue{reason}") for field, reason in expected]


def test_all_problems_are_reported_at_once(bench: Bench) -> None:
    status = refusal(lambda: bench.pod("a", containers=[{}]))
    assert status.message == (
        'Pod "a" is invalid: [spec.containers[0].name: Required value, spec.containers[0].image: Required value]'
    )


def test_a_negative_grace_is_one_second(bench: Bench) -> None:
    assert bench.pod("a", terminationGracePeriodSeconds=-1)["spec"]["terminationGracePeriodSeconds"] == 1


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        ({"a b": "x"}, "name part must consist of"),
        ({"/a": "x"}, "prefix part must be non-empty"),
        ({"UP/a": "x"}, "prefix part a lowercase RFC 1123 subdomain"),
        ({"a" * 64: "x"}, "name part must be no more than 63 characters"),
        ({"a": "x y"}, "a valid label must be an empty string or consist of"),
        ({"a": "x" * 64}, "must be no more than 63 characters"),
    ],
)
def test_labels_are_validated(bench: Bench, labels: dict[str, str], words: str) -> None:
    status = refusal(lambda: bench.pod("a", labels=labels))
    assert _causes(status) == [("metadata.labels", "FieldValueInvalid")]
    assert words in status.message


def test_labels_are_validated_in_a_patch_too(bench: Bench) -> None:
    bench.pod("a")
    assert _causes(refusal(lambda: bench.label("a", x="a b"))) == [("metadata.labels", "FieldValueInvalid")]


def test_owners_and_finalizers_are_validated(bench: Bench) -> None:
    sent = manifest("a")
    sent["metadata"] |= {"finalizers": ["x"], "ownerReferences": [{"name": "o"}]}
    status = refusal(lambda: bench.store.create("pods", "default", sent))
    assert [field for field, _ in _causes(status)] == [
        "metadata.ownerReferences[0].apiVersion",
        "metadata.ownerReferences[0].kind",
        "metadata.ownerReferences[0].uid",
        "metadata.finalizers[0]",
    ]


def test_annotations_have_a_limit(bench: Bench) -> None:
    sent = manifest("a")
    sent["metadata"]["annotations"] = {"big": "x" * 300_000}
    status = refusal(lambda: bench.store.create("pods", "default", sent))
    assert _causes(status) == [("metadata.annotations", "FieldValueTooLong")]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["name", "image", "env", "valueFrom", "fieldRef", "resources", "limits", "ports", "metadata"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(metadata=JSON, containers=JSON, more=JSON)
def test_whatever_is_sent_is_stored_or_refused_and_never_breaks_the_store(
    metadata: Any, containers: Any, more: Any
) -> None:
    bench = Bench()
    sent = {"metadata": metadata, "spec": {"containers": containers, "volumes": more, "initContainers": more}}
    try:
        bench.store.create("pods", "default", sent)
    except ApiStatus as status:
        assert status.code in (400, 422)  # noqa: PT017 - both outcomes are fine, this is about the second
    bench.pod("next")


# ── Quotas ───────────────────────────────────────────────────────────────────────────────────────────────────────


def _quota(bench: Bench, name: str = "q", **hard: str) -> None:
    keys = {key.replace("__", "/").replace("_", "."): value for key, value in hard.items()}
    bench.store.create("resourcequotas", "default", {"metadata": {"name": name}, "spec": {"hard": keys}})


def _status(bench: Bench, name: str = "q") -> Any:
    return bench.store.get("resourcequotas", "default", name)["status"]


def test_over_quota_is_forbidden_with_the_real_servers_message(bench: Bench) -> None:
    _quota(bench, pods="2")
    bench.pod("q0")
    bench.pod("q1")
    status = refusal(lambda: bench.pod("q2"))
    assert (status.code, status.reason, status.details) == (403, "Forbidden", {"name": "q2", "kind": "pods"})
    assert status.message == (
        'pods "q2" is forbidden: exceeded quota: q, requested: pods=1, used: pods=2, limited: pods=2'
    )


def test_a_quota_counts_what_is_there_when_it_is_made(bench: Bench) -> None:
    bench.pod("a")
    _quota(bench, pods="1", count__pods="5")
    assert _status(bench) == {"hard": {"pods": "1", "count/pods": "5"}, "used": {"pods": "1", "count/pods": "1"}}


def test_room_comes_back_when_a_pod_ends_or_is_deleted(bench: Bench) -> None:
    _quota(bench, pods="1")
    bench.pod("a", node="n")
    bench.status("a", {"phase": "Failed"})
    assert _status(bench)["used"] == {"pods": "0"}
    bench.pod("b")
    bench.delete("b")
    bench.pod("c")
    assert _status(bench)["used"] == {"pods": "1"}


def test_a_count_quota_counts_ended_pods_too(bench: Bench) -> None:
    _quota(bench, count__pods="1")
    bench.pod("a", node="n", phase="Failed")
    assert "count/pods=1" in refusal(lambda: bench.pod("b")).message


def test_a_quota_of_another_namespace_does_not_count(bench: Bench) -> None:
    bench.store.create("namespaces", None, {"metadata": {"name": "team"}})
    _quota(bench, pods="0")
    assert bench.store.create("pods", "team", manifest("a"))["metadata"]["name"] == "a"


def test_a_quota_of_cpu_and_memory_adds_up_requests(bench: Bench) -> None:
    _quota(bench, requests_cpu="1", memory="1Gi")
    resources = {"requests": {"cpu": "600m", "memory": "512Mi"}}
    bench.pod("a", containers=[_container(resources=resources)])
    status = refusal(lambda: bench.pod("b", containers=[_container(resources=resources)]))
    assert status.message.endswith(
        "exceeded quota: q, requested: requests.cpu=600m, used: requests.cpu=600m, limited: requests.cpu=1"
    )
    assert _status(bench)["used"] == {"requests.cpu": "600m", "memory": "512Mi"}


def test_a_raised_quota_gives_room(bench: Bench) -> None:
    _quota(bench, pods="0")
    refusal(lambda: bench.pod("a"))
    bench.store.patch("resourcequotas", "default", "q", {"spec": {"hard": {"pods": "1"}}}, "merge")
    bench.pod("a")
    assert _status(bench) == {"hard": {"pods": "1"}, "used": {"pods": "1"}}


def test_a_quota_without_limits_limits_nothing(bench: Bench) -> None:
    bench.store.create("resourcequotas", "default", {"metadata": {"name": "q"}})
    bench.pod("a")
    assert _status(bench) == {"hard": {}, "used": {}}


def test_a_quota_that_would_not_be_enforced_is_refused(bench: Bench) -> None:
    status = refusal(lambda: _quota(bench, services__loadbalancers="1"))
    assert _causes(status) == [("spec.hard[services/loadbalancers]", "FieldValueNotSupported")]


@pytest.mark.parametrize(
    ("text", "number"),
    [("1", 1), ("500m", "0.5"), ("1Gi", 1 << 30), ("2k", 2000), ("1e3", 1000), ("1.5", "1.5"), (".5", "0.5"), (3, 3)],
)
def test_quantities(text: Any, number: Any) -> None:
    assert parse_quantity(text) == Decimal(number)


@pytest.mark.parametrize("text", ["", "x", "1 Gi", "1gi", True, None, "1" * 65, [], "1e999"])
def test_what_is_no_quantity(text: Any) -> None:
    assert parse_quantity(text) is None


@given(st.integers(min_value=0, max_value=1 << 62))
def test_a_written_quantity_is_read_as_the_same_number(millis: int) -> None:
    number = Decimal(millis) / 1000
    assert parse_quantity(format_quantity(number)) == number
