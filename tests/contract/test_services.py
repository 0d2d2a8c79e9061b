"""Services and config maps: plain objects, which Spark makes and deletes by label. A Service does nothing here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.contract.test_writing import STRATEGIC

if TYPE_CHECKING:
    from tests.contract.raw import Raw

HEADLESS: dict[str, Any] = {"clusterIP": "None", "selector": {"a": "b"}, "ports": [{"name": "x", "port": 7078}]}
TWO = [{"name": "x", "port": 80}, {"name": "y", "port": 81, "targetPort": "web", "protocol": "UDP"}]


def service(name: str, labels: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "labels": labels or {}}, "spec": spec}


def config(name: str, labels: dict[str, str] | None = None) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": labels or {}}, "data": {"a": "b"}}


def test_a_service_gets_its_defaults(raw: Raw) -> None:
    made = raw.made("services", service("a", **HEADLESS | {"ports": TWO}))
    assert made["kind"] == "Service"
    assert made["spec"]["ports"] == [
        {"name": "x", "port": 80, "protocol": "TCP", "targetPort": 80},
        {"name": "y", "port": 81, "protocol": "UDP", "targetPort": "web"},
    ]
    assert {key: made["spec"][key] for key in ("type", "sessionAffinity", "clusterIP", "selector")} == {
        "type": "ClusterIP",
        "sessionAffinity": "None",
        "clusterIP": "None",
        "selector": {"a": "b"},
    }
    assert made["status"] == {"loadBalancer": {}}
    assert raw.get("services/a").body == made


def test_a_service_without_ports_needs_another_way_to_be_found(raw: Raw) -> None:
    assert raw.made("services", service("a", clusterIP="None"))["spec"].get("ports", []) == []
    made = raw.made("services", service("b", type="ExternalName", externalName="example.com"))
    assert made["spec"] == {"type": "ExternalName", "externalName": "example.com", "sessionAffinity": "None"}


@pytest.mark.parametrize(
    ("bad", "causes"),
    [
        (service("a"), [("spec.ports", "FieldValueRequired")]),
        (service("a.b", **HEADLESS), [("metadata.name", "FieldValueInvalid")]),
        (service("a", type="ExternalName"), [("spec.externalName", "FieldValueRequired")]),
        (service("a", type="x", ports=TWO), [("spec.type", "FieldValueNotSupported")]),
        (service("a", ports=[{"port": 1, "protocol": "X"}]), [("spec.ports[0].protocol", "FieldValueNotSupported")]),
        (
            service("a", ports=[{"port": 0}, {"name": "A", "port": 70000, "targetPort": 1}]),
            [
                ("spec.ports[0].name", "FieldValueRequired"),
                ("spec.ports[0].port", "FieldValueInvalid"),
                ("spec.ports[0].targetPort", "FieldValueInvalid"),
                ("spec.ports[1].name", "FieldValueInvalid"),
                ("spec.ports[1].port", "FieldValueInvalid"),
            ],
        ),
    ],
)
def test_post_an_invalid_service_is_422_with_field_and_reason(
    raw: Raw, bad: dict[str, Any], causes: list[tuple[str, str]]
) -> None:
    answer = raw.post("services", bad)
    assert (answer.status, answer.body["reason"], answer.body["details"]["kind"]) == (422, "Invalid", "Service")
    assert answer.causes == causes


def test_a_wrong_type_is_400(raw: Raw) -> None:
    assert raw.post("services", service("a", **HEADLESS | {"ports": [{"port": "80"}]})).status == 400


def test_a_port_is_patched_by_its_number(raw: Raw) -> None:
    raw.made("services", service("a", **HEADLESS | {"ports": TWO}))
    order = [{"port": 81}, {"port": 80}]
    patch = {"spec": {"$setElementOrder/ports": order, "ports": [{"port": 81, "name": "z"}]}}
    ports = raw.patch("services/a", patch, STRATEGIC).body["spec"]["ports"]
    assert [(port["port"], port["name"]) for port in ports] == [(81, "z"), (80, "x")]


@pytest.mark.parametrize("kind", ["services", "configmaps"])
def test_they_are_listed_watched_patched_and_deleted_by_label(raw: Raw, kind: str) -> None:
    version = raw.get(kind).body["metadata"]["resourceVersion"]
    for name, label in (("a", "x"), ("b", "x"), ("c", "y")):
        labels = {"app": label}
        raw.made(kind, config(name, labels) if kind == "configmaps" else service(name, labels, **HEADLESS))
    assert raw.names(kind, labelSelector="app=x") == {"a", "b"}
    patched = raw.patch(f"{kind}/c", {"metadata": {"labels": {"new": "label"}}})
    assert patched.body["metadata"]["labels"] == {"app": "y", "new": "label"}
    answer = raw.delete(kind, labelSelector="app=x")
    assert (answer.status, {item["metadata"]["name"] for item in answer.body["items"]}) == (200, {"a", "b"})
    assert raw.names(kind) == {"c"}
    watch = raw.watch(kind, resourceVersion=version)
    assert [watch.told() for _ in range(6)][:4] == [("ADDED", "a"), ("ADDED", "b"), ("ADDED", "c"), ("MODIFIED", "c")]
    watch.close()


@pytest.mark.parametrize(
    ("kind", "body", "answered"),
    [
        ("services", service("a", **HEADLESS), "Service"),
        ("serviceaccounts", {"metadata": {"name": "a"}}, "ServiceAccount"),
        ("resourcequotas", {"metadata": {"name": "a"}}, "ResourceQuota"),
        ("configmaps", config("a"), "Status"),
        ("secrets", {"metadata": {"name": "a"}}, "Status"),
    ],
)
def test_a_delete_is_answered_by_the_object_or_by_a_status(
    raw: Raw, kind: str, body: dict[str, Any], answered: str
) -> None:
    raw.made(kind, body)
    answer = raw.delete(f"{kind}/a")
    assert (answer.status, answer.body["kind"]) == (200, answered)
    assert raw.get(f"{kind}/a").status == 404
