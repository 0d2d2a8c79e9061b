"""The server's own changes to objects: defaults, system fields, and the fields that an update must keep.

Pure. Takes decoded objects (`schema.decode`) and returns new ones. It never changes its arguments: lists and watches
share stored objects.
"""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from actors.local.schema.statuses import bad_request, internal_error
from actors.local.store import claims, services

if TYPE_CHECKING:
    from collections.abc import Mapping

    from actors.local.schema.resources import Resource
    from actors.local.store.history import Object

__all__ = ["bound", "check_identity", "defaulted", "evicted", "new_object", "rfc3339", "updated_object"]

DEFAULT_GRACE_PERIOD: Final = 30
"""`terminationGracePeriodSeconds` of a pod without one."""

FINAL_PHASES: Final = ("Succeeded", "Failed")
DEFAULT_SCHEDULER: Final = "default-scheduler"
_TOLERATED_SECONDS: Final = 300
"""The DefaultTolerationSeconds admission plugin: how long a pod stays on a node that is not ready."""

_SYSTEM_FIELDS: Final = ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation")
_GENERATED_SUFFIX: Final = 5
_MAX_GENERATED_BASE: Final = 63 - _GENERATED_SUFFIX
"""`generateName` is cut so that the name stays a DNS label."""

_POD_DEFAULTS: Final[Mapping[str, Any]] = {
    "restartPolicy": "Always",
    "terminationGracePeriodSeconds": DEFAULT_GRACE_PERIOD,
    "dnsPolicy": "ClusterFirst",
    "securityContext": {},
    "schedulerName": DEFAULT_SCHEDULER,
    "priority": 0,
    "enableServiceLinks": True,
    "preemptionPolicy": "PreemptLowerPriority",
}
_TOLERATIONS: Final[tuple[Mapping[str, Any], ...]] = tuple(
    {
        "key": f"node.kubernetes.io/{trouble}",
        "operator": "Exists",
        "effect": "NoExecute",
        "tolerationSeconds": _TOLERATED_SECONDS,
    }
    for trouble in ("not-ready", "unreachable")
)
_CONTAINER_DEFAULTS: Final[Mapping[str, Any]] = {
    "resources": {},
    "terminationMessagePath": "/dev/termination-log",
    "terminationMessagePolicy": "File",
}


_GATED_OFF: Final = ("preferredHolder", "strategy")
"""Fields of leases that a real server drops silently: the gate CoordinatedLeaderElection is off."""
_EVICTED: Final[Mapping[str, Any]] = {
    "type": "DisruptionTarget",
    "status": "True",
    "reason": "EvictionByEvictionAPI",
    "message": "Eviction API: evicting",
}
_GATED: Final[Mapping[str, Any]] = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "SchedulingGated",
    "message": "Scheduling is blocked due to non-empty scheduling gates",
}


def rfc3339(moment: datetime) -> str:
    """Format a timestamp as in `metadata`: UTC, whole seconds."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def check_identity(obj: Object, namespace: str, name: str | None) -> None:
    """Refuse an object whose name or namespace differs from the request's URL."""
    metadata = obj["metadata"]
    if metadata.get("namespace", namespace) != namespace:
        raise bad_request("the namespace of the provided object does not match the namespace sent on the request")
    if name is not None and not metadata.get("name"):
        raise bad_request(f"the name of the object ({name} based on URL) was undeterminable: name must be provided")
    if name is not None and metadata["name"] != name:
        raise bad_request(
            f"the name of the object ({metadata.get('name')}) does not match the name on the URL ({name})"
        )


def defaulted(resource: Resource, obj: Object) -> Object:
    """Return the object with the defaults of its kind."""
    if resource.plural == "secrets" and "stringData" in obj:
        return _with_encoded_strings(obj)
    if resource.plural == "persistentvolumeclaims":
        return obj | {"spec": claims.defaulted_spec(obj.get("spec", {}))}
    if resource.plural == "services":
        return obj | {"spec": services.defaulted_spec(obj.get("spec", {}))}
    if resource.plural == "leases":
        return obj | {"spec": {key: value for key, value in obj.get("spec", {}).items() if key not in _GATED_OFF}}
    if resource.plural != "pods":
        return obj
    spec = {**_POD_DEFAULTS, **obj.get("spec", {})}
    for key in ("containers", "initContainers"):
        if key in spec:
            spec[key] = [_defaulted_container(container) for container in spec[key]]
    if "volumes" in spec:
        spec["volumes"] = [volume if len(volume) > 1 else {**volume, "emptyDir": {}} for volume in spec["volumes"]]
    tolerations = spec.get("tolerations", [])
    missing = [each for each in _TOLERATIONS if not any(_tolerates(one, each["key"]) for one in tolerations)]
    spec["tolerations"] = [*tolerations, *missing]
    if spec["terminationGracePeriodSeconds"] < 0:
        spec["terminationGracePeriodSeconds"] = 1
    return obj | {"spec": spec}


def _tolerates(toleration: Mapping[str, str], key: str) -> bool:
    return toleration.get("key", key) == key and toleration.get("effect", "NoExecute") in ("", "NoExecute")


def _with_encoded_strings(secret: Object) -> Object:
    """Return the secret with its write-only `stringData` moved to `data`."""
    encoded = {key: base64.b64encode(text.encode()).decode() for key, text in secret["stringData"].items()}
    others = {key: value for key, value in secret.items() if key != "stringData"}
    return others | {"data": {**secret.get("data", {}), **encoded}}


def _defaulted_container(container: Object) -> Object:
    result = {**_CONTAINER_DEFAULTS, **container}
    if "imagePullPolicy" not in result:
        result["imagePullPolicy"] = "Always" if _is_latest(result.get("image", "")) else "IfNotPresent"
    if "ports" in result:
        result["ports"] = [{"protocol": "TCP", **port} for port in result["ports"]]
    if "env" in result:
        result["env"] = [_defaulted_variable(variable) for variable in result["env"]]
    resources = result["resources"]
    if limits := resources.get("limits"):
        result["resources"] = resources | {"requests": {**limits, **resources.get("requests", {})}}
    return result


def _defaulted_variable(variable: Object) -> Object:
    source = variable.get("valueFrom", {})
    if "fieldRef" not in source:
        return variable
    return variable | {"valueFrom": source | {"fieldRef": {"apiVersion": "v1", **source["fieldRef"]}}}


def _is_latest(image: str) -> bool:
    if "@" in image:
        return False
    _, colon, tag = image.rpartition("/")[2].partition(":")
    return not colon or tag == "latest"


def new_object(resource: Resource, namespace: str, obj: Object, *, uid: str, suffix: str, now: datetime) -> Object:
    """Return a POST's object as it is stored, except for its version: name, UID, timestamp and first status."""
    sent = obj["metadata"]
    if sent.get("resourceVersion"):
        raise internal_error("resourceVersion should not be set on objects to be created")
    metadata: Object = {}
    if name := sent.get("name") or _generated(sent.get("generateName", ""), suffix):
        metadata["name"] = name
    for key in ("generateName", "labels", "annotations", "ownerReferences", "finalizers"):
        if key in sent:
            metadata[key] = sent[key]
    if resource.namespaced:
        metadata["namespace"] = namespace
    metadata |= {"uid": uid, "creationTimestamp": rfc3339(now)}
    if resource.has_generation:
        metadata["generation"] = 1
    return _with_first_status(resource, defaulted(resource, {**obj, "metadata": metadata}), now)


def _with_first_status(resource: Resource, created: Object, now: datetime) -> Object:
    metadata = created["metadata"]
    match resource.plural:
        case "pods":
            created["status"] = {"phase": "Pending", "qosClass": _qos_class(created["spec"])}
            if created["spec"].get("schedulingGates"):
                created["status"]["conditions"] = [{**_GATED} | {"lastTransitionTime": rfc3339(now)}]
        case "namespaces":
            metadata["labels"] = {**metadata.get("labels", {}), "kubernetes.io/metadata.name": metadata.get("name", "")}
            created |= {"spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"}}
        case "persistentvolumeclaims":
            created["status"] = {"phase": "Pending"}
            if claims.PROTECTION not in metadata.get("finalizers", ()):
                metadata["finalizers"] = [*metadata.get("finalizers", ()), claims.PROTECTION]
        case "resourcequotas":
            created["status"] = {}
        case "services":
            created["status"] = {"loadBalancer": {}}
        case "secrets":
            created.setdefault("type", "Opaque")
        case _:
            pass
    return created


def _generated(base: str, suffix: str) -> str:
    return f"{base[:_MAX_GENERATED_BASE]}{suffix}" if base else ""


def _qos_class(spec: Object) -> str:
    """BestEffort: no container has requests or limits. Guaranteed: each has limits, equal to its requests."""
    resources = [container["resources"] for container in spec.get("containers", []) + spec.get("initContainers", [])]
    if not any(part.get("requests") or part.get("limits") for part in resources):
        return "BestEffort"
    guaranteed = all(
        {"cpu", "memory"} <= part.get("limits", {}).keys() and part.get("requests") == part.get("limits")
        for part in resources
    )
    return "Guaranteed" if guaranteed else "Burstable"


def updated_object(resource: Resource, old: Object, new: Object, subresource: str | None) -> Object:
    """Return a PUT's or PATCH's object as it is stored, except for its version.

    System fields never change. Through the object's own path `status` does not change; through `/status` only it and
    the labels, annotations and finalizers do, as on a real server.
    """
    of_status = subresource == "status"
    fixed = ("name", "namespace", *_SYSTEM_FIELDS, *(("ownerReferences",) if of_status else ()))
    metadata = _with_old(new["metadata"], old["metadata"], *fixed)
    metadata.pop("resourceVersion", None)
    if of_status:
        updated = {**old, "metadata": metadata, "status": new.get("status", {})}
        if resource.plural == "pods":
            updated["status"] = {"qosClass": old["status"].get("qosClass", "BestEffort"), **updated["status"]}
        return updated
    updated = defaulted(resource, {**new, "metadata": metadata})
    if resource.has_status:
        updated = _with_old(updated, old, "status")
    if resource.plural == "namespaces":
        updated["spec"] = old["spec"]
    if resource.has_generation and updated.get("spec") != old.get("spec"):
        metadata["generation"] = old["metadata"].get("generation", 0) + 1
    return updated


def _with_old(new: Object, old: Object, *keys: str) -> Object:
    """Return the new object, with the old values of these keys."""
    changed = {key: value for key, value in new.items() if key not in keys}
    return changed | {key: old[key] for key in keys if key in old}


def evicted(pod: Object, now: datetime) -> Object:
    """Return the pod with the condition of an eviction through the API."""
    known = next((each for each in pod["status"].get("conditions", ()) if each["type"] == _EVICTED["type"]), None)
    if known is not None and known.items() >= _EVICTED.items():
        return pod
    began = known is not None and known["status"] == _EVICTED["status"]
    moment = known["lastTransitionTime"] if known is not None and began else rfc3339(now)
    return _with_condition(pod, {**_EVICTED, "lastProbeTime": None, "lastTransitionTime": moment})


def bound(pod: Object, node: str, now: datetime) -> Object:
    """Return the pod as a scheduler binds it to a node."""
    scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": rfc3339(now)}
    return _with_condition(pod, scheduled) | {"spec": pod["spec"] | {"nodeName": node}}


def _with_condition(pod: Object, condition: Object) -> Object:
    others = [each for each in pod["status"].get("conditions", ()) if each["type"] != condition["type"]]
    return pod | {"status": pod["status"] | {"conditions": [*others, condition]}}
