"""`meta.k8s.io/v1` Tables: what `kubectl get` prints. Columns and cells are the real server's.

From `pkg/printers/internalversion/printers.go` of Kubernetes. A resource without columns of its own gets name and age.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from actors.local.schema.nesting import value_at
from actors.local.store.objects import FINAL_PHASES
from actors.text import age

if TYPE_CHECKING:
    from actors.local.schema.resources import Resource

__all__ = ["IncludeObject", "pod_status", "table"]

Object: TypeAlias = Mapping[str, Any]
IncludeObject: TypeAlias = Literal["None", "Metadata", "Object"]

_API_VERSION: Final = "meta.k8s.io/v1"
_NONE: Final = "<none>"
_UNKNOWN: Final = "<unknown>"


@dataclass(frozen=True, slots=True)
class _Column:
    name: str
    cell: Callable[[Object, datetime], Any]
    type: str = "string"
    priority: int = 0
    """0: always shown; 1: with `-o wide`."""


def table(
    resource: Resource,
    objects: Sequence[Object],
    now: datetime,
    *,
    metadata: Mapping[str, Any],
    include: IncludeObject = "Metadata",
    header: bool = True,
) -> dict[str, Any]:
    """Build a Table of these objects. A watch sends the header with its first event only."""
    columns = _COLUMNS.get(resource.plural, _GENERIC)
    result: dict[str, Any] = {"kind": "Table", "apiVersion": _API_VERSION, "metadata": metadata}
    result["columnDefinitions"] = [_definition(column) for column in columns] if header else []
    result["rows"] = [_row(resource, columns, obj, now, include) for obj in objects]
    return result


def _definition(column: _Column) -> dict[str, Any]:
    return {
        "name": column.name,
        "type": column.type,
        "format": "name" if column.name == "Name" else "",
        "description": "",
        "priority": column.priority,
    }


def _row(
    resource: Resource, columns: Sequence[_Column], obj: Object, now: datetime, include: IncludeObject
) -> dict[str, Any]:
    row: dict[str, Any] = {"cells": [column.cell(obj, now) for column in columns]}
    if include == "Metadata":
        row["object"] = {"kind": "PartialObjectMetadata", "apiVersion": _API_VERSION, "metadata": obj["metadata"]}
    elif include == "Object":
        row["object"] = {"kind": resource.kind, "apiVersion": resource.api_version, **obj}
    return row


# ── Cells ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _at(*path: str, default: str = _NONE) -> Callable[[Object, datetime], Any]:
    return lambda obj, _now: value_at(obj, *path) or default


def _since(text: Any, now: datetime) -> str:
    try:
        return _human(now - datetime.fromisoformat(str(text)))
    except (ValueError, TypeError):  # not a time, or one without a zone
        return _UNKNOWN


def _age(obj: Object, now: datetime) -> str:
    return _since(obj["metadata"].get("creationTimestamp"), now)


def _human(passed: timedelta) -> str:
    return "<invalid>" if passed <= timedelta(seconds=-2) else age(passed)


def _statuses(pod: Object, key: str = "containerStatuses") -> Sequence[Object]:
    return value_at(pod, "status", key) or ()


def _conditions(obj: Object) -> Mapping[str, str]:
    """Return the statuses of an object's conditions, by type."""
    return {each.get("type"): each.get("status") for each in value_at(obj, "status", "conditions") or ()}


def _ready(pod: Object, _now: datetime) -> str:
    ready = sum(bool(each.get("ready")) and value_at(each, "state", "running") is not None for each in _statuses(pod))
    return f"{ready}/{len(pod['spec'].get('containers') or ())}"


def _restarts(pod: Object, now: datetime) -> str:
    statuses = (*_statuses(pod), *_statuses(pod, "initContainerStatuses"))
    count = sum(each.get("restartCount") or 0 for each in statuses)
    ends = [value_at(each, "lastState", "terminated", "finishedAt") for each in statuses]
    last = max((end for end in ends if end), default=None)
    return f"{count} ({_since(last, now)} ago)" if count and last else str(count)


def pod_status(pod: Object) -> str:
    """Return the text of the STATUS column: the phase, or a more telling reason."""
    status = pod.get("status") or {}
    reason = status.get("reason") or status.get("phase") or ""
    gated = (each.get("reason") == "SchedulingGated" for each in status.get("conditions") or ())
    reason = "SchedulingGated" if any(gated) else reason
    init_reason = _init_reason(pod)
    reason = init_reason or _container_reason(pod, reason)
    if pod["metadata"].get("deletionTimestamp"):
        if status.get("reason") == "NodeLost":
            return "Unknown"
        if status.get("phase") not in FINAL_PHASES:
            return "Terminating"
    return str(reason)


def _init_reason(pod: Object) -> str | None:
    statuses = _statuses(pod, "initContainerStatuses")
    for index, each in enumerate(statuses):
        state = each.get("state") or {}
        terminated, waiting = state.get("terminated"), state.get("waiting") or {}
        if terminated is not None:
            if terminated.get("exitCode") == 0:
                continue
            return f"Init:{terminated.get('reason') or _exit_reason(terminated)}"
        if waiting.get("reason") not in {None, "", "PodInitializing"}:
            return f"Init:{waiting['reason']}"
        return f"Init:{index}/{len(statuses)}"
    return None


def _container_reason(pod: Object, reason: str) -> str:
    running = False
    for each in reversed(_statuses(pod)):
        state = each.get("state") or {}
        waiting, terminated = state.get("waiting") or {}, state.get("terminated")
        if waiting.get("reason"):
            reason = waiting["reason"]
        elif terminated is not None:
            reason = terminated.get("reason") or _exit_reason(terminated)
        elif each.get("ready") and "running" in state:
            running = True
    if reason == "Completed" and running:
        return "Running" if _conditions(pod).get("Ready") == "True" else "NotReady"
    return reason


def _exit_reason(terminated: Object) -> str:
    signal = terminated.get("signal")
    return f"Signal:{signal}" if signal else f"ExitCode:{terminated.get('exitCode', 0)}"


def _gates(pod: Object, _now: datetime) -> str:
    gates = pod["spec"].get("readinessGates") or ()
    if not gates:
        return _NONE
    conditions = _conditions(pod)
    return f"{sum(conditions.get(gate.get('conditionType')) == 'True' for gate in gates)}/{len(gates)}"


def _node_status(node: Object, _now: datetime) -> str:
    status = {"True": "Ready", None: "Unknown"}.get(_conditions(node).get("Ready"), "NotReady")
    return f"{status},SchedulingDisabled" if value_at(node, "spec", "unschedulable") else status


def _node_roles(node: Object, _now: datetime) -> str:
    prefix = "node-role.kubernetes.io/"
    roles = sorted(key[len(prefix) :] for key in node["metadata"].get("labels") or {} if key.startswith(prefix))
    return ",".join(roles) or _NONE


def _node_address(node: Object, _now: datetime) -> str:
    addresses = value_at(node, "status", "addresses") or ()
    return str(next((each["address"] for each in addresses if each.get("type") == "InternalIP"), _NONE))


def _event_object(event: Object, _now: datetime) -> str:
    involved = event.get("involvedObject") or {}
    return f"{str(involved.get('kind', '')).lower()}/{involved.get('name', '')}"


def _last_seen(event: Object, now: datetime) -> str:
    return _since(event.get("lastTimestamp") or event.get("eventTime") or event.get("firstTimestamp"), now)


def _data(obj: Object, _now: datetime) -> int:
    return len(obj.get("data") or {}) + len(obj.get("binaryData") or {})


def _service_selector(service: Object, _now: datetime) -> str:
    selector = value_at(service, "spec", "selector") or {}
    return ",".join(f"{key}={selector[key]}" for key in sorted(selector)) or _NONE


def _service_ports(service: Object, _now: datetime) -> str:
    ports = value_at(service, "spec", "ports") or ()
    shown = (f"{port.get('port')}{_node_port(port)}/{port.get('protocol')}" for port in ports)
    return ",".join(shown) or _NONE


def _node_port(port: Object) -> str:
    return f":{port['nodePort']}" if port.get("nodePort") else ""


_NAME: Final = _Column("Name", _at("metadata", "name"))
_AGE: Final = _Column("Age", _age)
_GENERIC: Final = (_NAME, _AGE)
_COLUMNS: Final[Mapping[str, Sequence[_Column]]] = {
    "pods": (
        _NAME,
        _Column("Ready", _ready),
        _Column("Status", lambda pod, _now: pod_status(pod)),
        _Column("Restarts", _restarts),
        _AGE,
        _Column("IP", _at("status", "podIP"), priority=1),
        _Column("Node", _at("spec", "nodeName"), priority=1),
        _Column("Nominated Node", _at("status", "nominatedNodeName"), priority=1),
        _Column("Readiness Gates", _gates, priority=1),
    ),
    "nodes": (
        _NAME,
        _Column("Status", _node_status),
        _Column("Roles", _node_roles),
        _AGE,
        _Column("Version", _at("status", "nodeInfo", "kubeletVersion")),
        _Column("Internal-IP", _node_address, priority=1),
        _Column("OS-Image", _at("status", "nodeInfo", "osImage", default=_UNKNOWN), priority=1),
        _Column("Kernel-Version", _at("status", "nodeInfo", "kernelVersion", default=_UNKNOWN), priority=1),
        _Column(
            "Container-Runtime", _at("status", "nodeInfo", "containerRuntimeVersion", default=_UNKNOWN), priority=1
        ),
    ),
    "namespaces": (_NAME, _Column("Status", _at("status", "phase")), _AGE),
    "events": (
        _Column("Last Seen", _last_seen),
        _Column("Type", _at("type")),
        _Column("Reason", _at("reason")),
        _Column("Object", _event_object),
        _Column("Message", _at("message", default="")),
        _Column("Name", _at("metadata", "name"), priority=1),
    ),
    "configmaps": (_NAME, _Column("Data", _data, type="integer"), _AGE),
    "services": (
        _NAME,
        _Column("Type", _at("spec", "type")),
        _Column("Cluster-IP", _at("spec", "clusterIP")),
        _Column("External-IP", _at("spec", "externalName")),
        _Column("Port(s)", _service_ports),
        _AGE,
        _Column("Selector", _service_selector, priority=1),
    ),
    "secrets": (_NAME, _Column("Type", _at("type")), _Column("Data", _data, type="integer"), _AGE),
}
