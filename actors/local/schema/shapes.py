"""The fields of every kind, and their JSON types: the tables that `schema.decode` checks against.

Pods are listed down to the fields that this cluster acts on. Deeper fields are stored unchecked.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from actors.kube.quantities import parse_quantity
from actors.kube.strategic_merge import copy_json

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = [
    "BINDING",
    "DELETE_OPTIONS",
    "EVICTION",
    "KINDS",
    "REVIEW",
    "Leaf",
    "ListOf",
    "MapOf",
    "Struct",
    "Type",
    "WrongType",
]

_NO_QUANTITY: Final = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
_MICRO_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}(Z|[+-]\d\d:\d\d)")
_MICRO_LAYOUT: Final = "2006-01-02T15:04:05.000000Z07:00"
"""Go's `metav1.RFC3339Micro`: exactly six digits."""


class WrongType(Exception):  # noqa: N818 - reads as what happened
    """The value has another JSON type than its field."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """A JSON value without fields: its Python types, its name in Go, and how to copy it."""

    types: tuple[type, ...]
    name: str
    keep: Callable[[Any], Any] = copy_json

    def takes(self, value: Any) -> bool:
        """Return whether the value has one of the types. Python counts a bool as an int; JSON does not."""
        return isinstance(value, self.types) and (bool in self.types or not isinstance(value, bool))


@dataclass(frozen=True, slots=True)
class MapOf:
    """A JSON object with free keys."""

    item: Type

    @property
    def name(self) -> str:
        """The name in Go."""
        return f"map[string]{self.item.name}"


@dataclass(frozen=True, slots=True)
class ListOf:
    """A JSON array."""

    item: Type

    @property
    def name(self) -> str:
        """The name in Go."""
        return f"[]{self.item.name}"


@dataclass(frozen=True, slots=True)
class Struct:
    """A JSON object with fixed fields."""

    kind: str
    fields: Mapping[str, Type]

    @property
    def name(self) -> str:
        """The name in Go."""
        return f"v1.{self.kind}"


Type: TypeAlias = Leaf | MapOf | ListOf | Struct


def _quantity(value: Any) -> str:
    if parse_quantity(value) is None:
        raise WrongType(_NO_QUANTITY)
    return str(value)


def _micro_time(text: str) -> str:
    """Return the same moment in UTC, as a real server stores it."""
    if not _MICRO_TIME.fullmatch(text):
        raise WrongType(f'parsing time "{text}" as "{_MICRO_LAYOUT}": cannot parse "{text}" as "2006"')
    try:
        return f"{datetime.fromisoformat(text).astimezone(UTC):%Y-%m-%dT%H:%M:%S.%fZ}"
    except (ValueError, OverflowError):
        raise WrongType(f'parsing time "{text}": day out of range') from None


_STRING: Final = Leaf((str,), "string")
_INT: Final = Leaf((int,), "int64")
_INT32: Final = Leaf((int,), "int32")
_INT_OR_STRING: Final = Leaf((int, str), "intstr.IntOrString")
_BOOL: Final = Leaf((bool,), "bool")
_MOMENT: Final = Leaf((str,), "v1.MicroTime", _micro_time)
_ANY: Final = Leaf((object, bool), "interface {}")
_OBJECT: Final = MapOf(_ANY)
_OBJECTS: Final = ListOf(_OBJECT)
_STRINGS: Final = ListOf(_STRING)
_STRING_MAP: Final = MapOf(_STRING)
_QUANTITIES: Final = MapOf(Leaf((object, bool), "resource.Quantity", _quantity))


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
    **fields: Type,
) -> Struct:
    """Build a struct from field names by type; `fields` have a shape of their own."""
    by_type = (
        (strings, _STRING),
        (ints, _INT),
        (bools, _BOOL),
        (objects, _OBJECT),
        (object_lists, _OBJECTS),
        (string_lists, _STRINGS),
        (anything, _ANY),
    )
    named: dict[str, Type] = {name: shape for names, shape in by_type for name in names.split()}
    return Struct(kind, MappingProxyType(named | fields))


_OWNER: Final = _struct("OwnerReference", strings="apiVersion kind name uid", bools="controller blockOwnerDeletion")
_META: Final = _struct(
    "ObjectMeta",
    strings="name generateName namespace selfLink uid resourceVersion creationTimestamp deletionTimestamp",
    ints="generation deletionGracePeriodSeconds",
    string_lists="finalizers",
    object_lists="managedFields",
    labels=_STRING_MAP,
    annotations=_STRING_MAP,
    ownerReferences=ListOf(_OWNER),
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
_HOOK: Final = _struct(
    "LifecycleHandler",
    objects="httpGet tcpSocket",
    exec=_struct("ExecAction", string_lists="command"),
    sleep=_struct("SleepAction", ints="seconds"),
)
_CONTAINER: Final = _struct(
    "Container",
    strings="name image workingDir terminationMessagePath terminationMessagePolicy imagePullPolicy restartPolicy "
    "targetContainerName",
    bools="stdin stdinOnce tty",
    string_lists="command args",
    object_lists="envFrom resizePolicy volumeDevices restartPolicyRules",
    objects="livenessProbe readinessProbe startupProbe securityContext",
    lifecycle=_struct("Lifecycle", strings="stopSignal", postStart=_HOOK, preStop=_HOOK),
    env=ListOf(_ENV),
    ports=ListOf(_PORT),
    resources=_RESOURCES,
    volumeMounts=ListOf(_MOUNT),
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
    containers=ListOf(_CONTAINER),
    initContainers=ListOf(_CONTAINER),
    ephemeralContainers=ListOf(_CONTAINER),
    volumes=ListOf(_VOLUME),
    nodeSelector=_STRING_MAP,
    imagePullSecrets=ListOf(_NAMED),
    tolerations=ListOf(_TOLERATION),
    schedulingGates=ListOf(_struct("PodSchedulingGate", strings="name")),
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
    conditions=ListOf(_CONDITION),
    containerStatuses=ListOf(_CONTAINER_STATUS),
    initContainerStatuses=ListOf(_CONTAINER_STATUS),
    ephemeralContainerStatuses=ListOf(_CONTAINER_STATUS),
    podIPs=ListOf(_IP),
    hostIPs=ListOf(_struct("HostIP", strings="ip")),
)


def _kind(kind: str, **fields: Any) -> Struct:
    return _struct(kind, strings=f"kind apiVersion {fields.pop('strings', '')}", metadata=_META, **fields)


_QUOTA_SPEC: Final = _struct("ResourceQuotaSpec", objects="scopeSelector", string_lists="scopes", hard=_QUANTITIES)
_ACCESS_MODES: Final = ListOf(Leaf((str,), "v1.PersistentVolumeAccessMode"))
_CLAIM_SPEC: Final = _struct(
    "PersistentVolumeClaimSpec",
    strings="volumeName storageClassName volumeMode volumeAttributesClassName",
    objects="selector dataSource dataSourceRef",
    accessModes=_ACCESS_MODES,
    resources=_struct("VolumeResourceRequirements", limits=_QUANTITIES, requests=_QUANTITIES),
)
_CLAIM_STATUS: Final = _struct(
    "PersistentVolumeClaimStatus",
    strings="phase currentVolumeAttributesClassName",
    objects="modifyVolumeStatus",
    object_lists="conditions",
    accessModes=_ACCESS_MODES,
    capacity=_QUANTITIES,
    allocatedResources=_QUANTITIES,
    allocatedResourceStatuses=_STRING_MAP,
)
_LEASE_SPEC: Final = _struct(
    "LeaseSpec",
    strings="holderIdentity strategy preferredHolder",
    leaseDurationSeconds=_INT32,
    leaseTransitions=_INT32,
    acquireTime=_MOMENT,
    renewTime=_MOMENT,
)
_SERVICE_PORT: Final = _struct(
    "ServicePort", strings="name protocol appProtocol", ints="port nodePort", targetPort=_INT_OR_STRING
)
_SERVICE_SPEC: Final = _struct(
    "ServiceSpec",
    strings="type clusterIP externalName sessionAffinity loadBalancerIP loadBalancerClass externalTrafficPolicy "
    "internalTrafficPolicy ipFamilyPolicy trafficDistribution",
    ints="healthCheckNodePort",
    bools="publishNotReadyAddresses allocateLoadBalancerNodePorts",
    string_lists="clusterIPs externalIPs ipFamilies loadBalancerSourceRanges",
    objects="sessionAffinityConfig",
    selector=_STRING_MAP,
    ports=ListOf(_SERVICE_PORT),
)
KINDS: Final[Mapping[str, Struct]] = MappingProxyType(
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
        "Service": _kind(
            "Service",
            spec=_SERVICE_SPEC,
            status=_struct("ServiceStatus", objects="loadBalancer", object_lists="conditions"),
        ),
        "Secret": _kind("Secret", strings="type", bools="immutable", data=_STRING_MAP, stringData=_STRING_MAP),
        "ServiceAccount": _kind(
            "ServiceAccount", bools="automountServiceAccountToken", object_lists="secrets imagePullSecrets"
        ),
        "PersistentVolumeClaim": _kind("PersistentVolumeClaim", spec=_CLAIM_SPEC, status=_CLAIM_STATUS),
        "ResourceQuota": _kind("ResourceQuota", objects="status", spec=_QUOTA_SPEC),
        "Lease": _kind("Lease", spec=_LEASE_SPEC),
    }
)

DELETE_OPTIONS: Final = _struct(
    "DeleteOptions",
    strings="kind apiVersion propagationPolicy",
    ints="gracePeriodSeconds",
    bools="orphanDependents ignoreStoreReadErrorWithClusterBreakingPotential",
    string_lists="dryRun",
    preconditions=_struct("Preconditions", strings="uid resourceVersion"),
)
EVICTION: Final = _kind("Eviction", deleteOptions=DELETE_OPTIONS)
BINDING: Final = _kind("Binding", objects="target")
_ATTRIBUTES: Final = _struct(
    "ResourceAttributes",
    strings="namespace verb group version resource subresource name",
    objects="fieldSelector labelSelector",
)
REVIEW: Final = _kind(
    "SelfSubjectAccessReview",
    spec=_struct(
        "SelfSubjectAccessReviewSpec",
        resourceAttributes=_ATTRIBUTES,
        nonResourceAttributes=_struct("NonResourceAttributes", strings="path verb"),
    ),
    status=_struct("SubjectAccessReviewStatus", strings="reason evaluationError", bools="allowed denied"),
)
