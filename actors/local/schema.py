"""The shapes of the objects: which fields there are and of which JSON type.

A real server drops what it does not know (and says so in a warning, or refuses it when asked to be strict) and answers
400 where a value has another type than its field. `decode` does both in the one pass that copies the object; what it
returns has the right shape, so that nothing behind it need be afraid of a list where it expects a map.

Pods are known down to what this cluster acts upon; what it only stores and shows again is taken as it comes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from actors.local.quantities import parse_quantity
from actors.local.statuses import bad_request

if TYPE_CHECKING:
    from actors.local.resources import Resource

__all__ = ["copy_json", "decode", "json_type"]


@dataclass(frozen=True, slots=True)
class _Scalar:
    """A JSON scalar: the Python types that it may have, and what Go calls it."""

    types: tuple[type, ...]
    name: str


@dataclass(frozen=True, slots=True)
class _Anything:
    """Taken as it comes. `null` is dropped, as everywhere."""

    name: str = "interface {}"


@dataclass(frozen=True, slots=True)
class _MapOf:
    item: _Type

    @property
    def name(self) -> str:
        return f"map[string]{self.item.name}"


@dataclass(frozen=True, slots=True)
class _ListOf:
    item: _Type

    @property
    def name(self) -> str:
        return f"[]{self.item.name}"


@dataclass(frozen=True, slots=True)
class _Struct:
    kind: str
    fields: Mapping[str, _Type]

    @property
    def name(self) -> str:
        return f"v1.{self.kind}"


@dataclass(frozen=True, slots=True)
class _Quantity:
    """A number with a unit."""

    name: str = "resource.Quantity"


_Type: TypeAlias = _Scalar | _Quantity | _Anything | _MapOf | _ListOf | _Struct

_STRING: Final = _Scalar((str,), "string")
_INT: Final = _Scalar((int,), "int64")
_BOOL: Final = _Scalar((bool,), "bool")
_ANY: Final = _Anything()
_OBJECT: Final = _MapOf(_ANY)
_OBJECTS: Final = _ListOf(_OBJECT)
_STRINGS: Final = _ListOf(_STRING)
_STRING_MAP: Final = _MapOf(_STRING)
_QUANTITIES: Final = _MapOf(_Quantity())
_NO_QUANTITY: Final = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"


def _struct(
    kind: str,
    *,
    strings: str = "",
    ints: str = "",
    bools: str = "",
    objects: str = "",
    object_lists: str = "",
    string_lists: str = "",
    anything: str = "",
    **fields: _Type,
) -> _Struct:
    """A struct from the names of its fields by type; `fields` are those that have a shape of their own."""
    by_type = (
        (strings, _STRING),
        (ints, _INT),
        (bools, _BOOL),
        (objects, _OBJECT),
        (object_lists, _OBJECTS),
        (string_lists, _STRINGS),
        (anything, _ANY),
    )
    named: dict[str, _Type] = {name: shape for names, shape in by_type for name in names.split()}
    return _Struct(kind, MappingProxyType(named | fields))


_OWNER: Final = _struct("OwnerReference", strings="apiVersion kind name uid", bools="controller blockOwnerDeletion")
_META: Final = _struct(
    "ObjectMeta",
    strings="name generateName namespace selfLink uid resourceVersion creationTimestamp deletionTimestamp",
    ints="generation deletionGracePeriodSeconds",
    string_lists="finalizers",
    object_lists="managedFields",
    labels=_STRING_MAP,
    annotations=_STRING_MAP,
    ownerReferences=_ListOf(_OWNER),
)
_KEY_REF: Final = _struct("ConfigMapKeySelector", strings="name key", bools="optional")
_ENV_SOURCE: Final = _struct(
    "EnvVarSource",
    fieldRef=_struct("ObjectFieldSelector", strings="apiVersion fieldPath"),
    resourceFieldRef=_struct("ResourceFieldSelector", strings="containerName resource", anything="divisor"),
    configMapKeyRef=_KEY_REF,
    secretKeyRef=_KEY_REF,
    fileKeyRef=_OBJECT,
)
_ENV: Final = _struct("EnvVar", strings="name value", valueFrom=_ENV_SOURCE)
_PORT: Final = _struct("ContainerPort", strings="name hostIP protocol", ints="containerPort hostPort")
_MOUNT: Final = _struct(
    "VolumeMount",
    strings="name mountPath subPath subPathExpr mountPropagation recursiveReadOnly",
    bools="readOnly",
)
_RESOURCES: Final = _struct("ResourceRequirements", object_lists="claims", limits=_QUANTITIES, requests=_QUANTITIES)
_CONTAINER: Final = _struct(
    "Container",
    strings="name image workingDir terminationMessagePath terminationMessagePolicy imagePullPolicy restartPolicy "
    "targetContainerName",
    bools="stdin stdinOnce tty",
    string_lists="command args",
    object_lists="envFrom resizePolicy volumeDevices restartPolicyRules",
    objects="livenessProbe readinessProbe startupProbe lifecycle securityContext",
    env=_ListOf(_ENV),
    ports=_ListOf(_PORT),
    resources=_RESOURCES,
    volumeMounts=_ListOf(_MOUNT),
)
_VOLUME: Final = _struct(
    "Volume",
    strings="name",
    objects="hostPath emptyDir gcePersistentDisk awsElasticBlockStore gitRepo secret nfs iscsi glusterfs "
    "persistentVolumeClaim rbd flexVolume cinder cephfs flocker downwardAPI fc azureFile configMap vsphereVolume "
    "quobyte azureDisk photonPersistentDisk projected portworxVolume scaleIO storageos csi ephemeral image",
)
_TOLERATION: Final = _struct("Toleration", strings="key operator value effect", ints="tolerationSeconds")
_NAMED: Final = _struct("LocalObjectReference", strings="name")
_POD_SPEC: Final = _struct(
    "PodSpec",
    strings="restartPolicy dnsPolicy serviceAccountName serviceAccount nodeName hostname subdomain schedulerName "
    "priorityClassName runtimeClassName preemptionPolicy hostnameOverride",
    ints="terminationGracePeriodSeconds activeDeadlineSeconds priority",
    bools="automountServiceAccountToken hostNetwork hostPID hostIPC hostUsers shareProcessNamespace "
    "enableServiceLinks setHostnameAsFQDN",
    objects="securityContext affinity dnsConfig overhead os resources workloadRef",
    object_lists="hostAliases readinessGates topologySpreadConstraints resourceClaims",
    containers=_ListOf(_CONTAINER),
    initContainers=_ListOf(_CONTAINER),
    ephemeralContainers=_ListOf(_CONTAINER),
    volumes=_ListOf(_VOLUME),
    nodeSelector=_STRING_MAP,
    imagePullSecrets=_ListOf(_NAMED),
    tolerations=_ListOf(_TOLERATION),
    schedulingGates=_ListOf(_struct("PodSchedulingGate", strings="name")),
)
_CONDITION: Final = _struct(
    "PodCondition",
    strings="type status reason message lastProbeTime lastTransitionTime",
    ints="observedGeneration",
)
_TERMINATED: Final = _struct(
    "ContainerStateTerminated",
    strings="reason message startedAt finishedAt containerID",
    ints="exitCode signal",
)
_STATE: Final = _struct(
    "ContainerState",
    waiting=_struct("ContainerStateWaiting", strings="reason message"),
    running=_struct("ContainerStateRunning", strings="startedAt"),
    terminated=_TERMINATED,
)
_CONTAINER_STATUS: Final = _struct(
    "ContainerStatus",
    strings="name image imageID containerID stopSignal",
    ints="restartCount",
    bools="ready started",
    objects="allocatedResources resources user",
    object_lists="volumeMounts allocatedResourcesStatus",
    state=_STATE,
    lastState=_STATE,
)
_IP: Final = _struct("PodIP", strings="ip")
_POD_STATUS: Final = _struct(
    "PodStatus",
    strings="phase reason message hostIP podIP nominatedNodeName startTime qosClass resize",
    ints="observedGeneration",
    object_lists="resourceClaimStatuses",
    objects="extendedResourceClaimStatus",
    conditions=_ListOf(_CONDITION),
    containerStatuses=_ListOf(_CONTAINER_STATUS),
    initContainerStatuses=_ListOf(_CONTAINER_STATUS),
    ephemeralContainerStatuses=_ListOf(_CONTAINER_STATUS),
    podIPs=_ListOf(_IP),
    hostIPs=_ListOf(_struct("HostIP", strings="ip")),
)


def _kind(kind: str, **fields: Any) -> _Struct:
    return _struct(kind, strings=f"kind apiVersion {fields.pop('strings', '')}", metadata=_META, **fields)


_QUOTA_SPEC: Final = _struct("ResourceQuotaSpec", objects="scopeSelector", string_lists="scopes", hard=_QUANTITIES)
_KINDS: Final[Mapping[str, _Struct]] = MappingProxyType(
    {
        "Pod": _kind("Pod", spec=_POD_SPEC, status=_POD_STATUS),
        "Node": _kind("Node", objects="spec status"),
        "Namespace": _kind("Namespace", objects="spec status"),
        "Event": _kind(
            "Event",
            strings="reason message firstTimestamp lastTimestamp type eventTime action reportingComponent "
            "reportingInstance",
            ints="count",
            objects="involvedObject source series related",
        ),
        "ConfigMap": _kind("ConfigMap", bools="immutable", data=_STRING_MAP, binaryData=_STRING_MAP),
        "Secret": _kind("Secret", strings="type", bools="immutable", data=_STRING_MAP, stringData=_STRING_MAP),
        "ServiceAccount": _kind(
            "ServiceAccount", bools="automountServiceAccountToken", object_lists="secrets imagePullSecrets"
        ),
        "PersistentVolumeClaim": _kind("PersistentVolumeClaim", objects="spec status"),
        "ResourceQuota": _kind("ResourceQuota", objects="status", spec=_QUOTA_SPEC),
        "Lease": _kind("Lease", objects="spec"),
    }
)


def decode(resource: Resource, obj: Any, unknown: list[str]) -> dict[str, Any]:
    """A copy of `obj` in the shape of its resource, without `null`s; paths of fields left out go into `unknown`.

    Raises 400 where a value has the wrong type, or the object says that it is of another kind or version.
    """
    if not isinstance(obj, Mapping):
        raise bad_request(
            f"the object provided is unrecognized (must be of type {resource.kind}): couldn't get version/kind; "
            f"json parse error: json: cannot unmarshal {json_type(obj)} into Go value of type struct"
        )
    kind, api_version = obj.get("kind") or resource.kind, obj.get("apiVersion") or resource.api_version
    where = f'{kind} in version "{api_version}" cannot be handled as a {resource.kind}'
    if api_version != resource.api_version:
        raise bad_request(f'{where}: no kind "{kind}" is registered for version "{api_version}"')
    if kind != resource.kind:
        raise bad_request(f"{where}: converting (v1.{kind}) to (core.{resource.kind}): unknown conversion")
    try:
        decoded = _Decoder(unknown).value(obj, _KINDS[resource.kind], "", "", resource.kind)
    except _WrongType as problem:
        raise bad_request(f"{where}: {problem}") from None
    decoded.pop("kind", None)
    decoded.pop("apiVersion", None)
    metadata = decoded.get("metadata", {})
    metadata.pop("managedFields", None)
    metadata.pop("selfLink", None)
    decoded["metadata"] = {key: value for key, value in metadata.items() if value not in ("", {}, [])}
    assert isinstance(decoded, dict)
    return decoded


class _WrongType(Exception):  # noqa: N818 - private, and it says what happened
    """A value of another JSON type than its field's."""


class _Decoder:
    """Copies values into their shape. `path` has list indices, for warnings; `plain` has none, as Go spells a field."""

    def __init__(self, unknown: list[str]) -> None:
        self._unknown = unknown

    def value(self, value: Any, shape: _Type, path: str, plain: str, owner: str) -> Any:
        match shape:
            case _Anything():
                return copy_json(value)
            case _Quantity():
                return _quantity(value)
            case _Scalar() if isinstance(value, shape.types) and (shape is _BOOL or not isinstance(value, bool)):
                return value
            case _Struct() if isinstance(value, Mapping):
                return self._struct(value, shape, path, plain)
            case _ListOf() if isinstance(value, list | tuple):
                return self._list(value, shape, path, plain, owner)
            case _MapOf() if isinstance(value, Mapping):
                return self._map(value, shape, path, plain, owner)
            case _:
                pass
        raise _WrongType(
            f"json: cannot unmarshal {json_type(value)} into Go struct field {owner}.{plain} of type {shape.name}"
        )

    def _list(self, items: Sequence[Any], shape: _ListOf, path: str, plain: str, owner: str) -> list[Any]:
        return [
            self.value(item, shape.item, f"{path}[{index}]", plain, owner)
            for index, item in enumerate(items)
            if item is not None
        ]

    def _map(self, items: Mapping[str, Any], shape: _MapOf, path: str, plain: str, owner: str) -> dict[str, Any]:
        return {
            str(key): self.value(item, shape.item, f"{path}.{key}", plain, owner)
            for key, item in items.items()
            if item is not None
        }

    def _struct(self, value: Mapping[str, Any], shape: _Struct, path: str, plain: str) -> dict[str, Any]:
        decoded: dict[str, Any] = {}
        for key, item in value.items():
            inner = f"{path}.{key}" if path else key
            field = shape.fields.get(key)
            if field is None:
                self._unknown.append(inner)
            elif item is not None:
                decoded[key] = self.value(item, field, inner, f"{plain}.{key}" if plain else key, shape.kind)
        return decoded


def _quantity(value: Any) -> str:
    if parse_quantity(value) is None:
        raise _WrongType(_NO_QUANTITY)
    return str(value)


def json_type(value: Any) -> str:
    """What Go's decoder calls the type of a JSON value."""
    match value:
        case str():
            return "string"
        case bool():
            return "bool"
        case int() | float():
            return "number"
        case list() | tuple():
            return "array"
        case None:
            return "null"
        case _:
            return "object"


def copy_json(value: Any) -> Any:
    """A deep copy of a JSON value: several times faster than `copy.deepcopy`, which looks for cycles."""
    if isinstance(value, Mapping):
        return {key: copy_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [copy_json(item) for item in value]
    return value
