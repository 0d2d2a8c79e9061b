"""The manifests of one executor: its pod and its volume claims, made from its profile's shape.

Pure. The shape holds what all pods of a profile have in common (`pod_shapes`); what would break the fleet is refused
before anything is started (`pod_checks`). What is added here tells one executor from another.
"""

from __future__ import annotations

import re
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from actors.manifests.pod_template import executor_of, shape_of
from actors.manifests.template_checks import check_template
from actors.pods.pod import (
    APP_ID_LABEL,
    EXECUTOR_ID_LABEL,
    MANAGED_BY_LABEL,
    PROFILE_LABEL,
    ROLE_EXECUTOR,
    ROLE_LABEL,
    parse_executor_id,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from actors.settings import ClaimSettings, Settings

__all__ = [
    "CLAIM_LABEL",
    "CLASS_ANNOTATION",
    "ExecutorManifests",
    "check_template",
    "claim_name",
    "name",
    "owner_reference",
]

CLAIM_LABEL: Final = "executor-pods/claim"
"""On a PersistentVolumeClaim: which of the profile's `claims` it was made for, so that it is reused for the same."""

CLASS_ANNOTATION: Final = "executor-pods/storage-class"
"""On a PersistentVolumeClaim: the class that was asked for, if any was. The API writes the default one into `spec`, be
it later, so that `spec` does not tell a claim of the default class from one of a class of that name.
"""

_NO_CLAIMS: Final[Mapping[str, str]] = MappingProxyType({})


def name(prefix: str, executor_id: int) -> str:
    """The name of an executor's pod."""
    return f"{prefix}-exec-{executor_id}"


def claim_name(prefix: str, executor_id: int, index: int) -> str:
    """The name of the claim that is made for an executor, for the one of this index among its profile's `claims`."""
    return f"{name(prefix, executor_id)}-pvc-{index}"


def owner_reference(pod_name: str, uid: str) -> dict[str, Any]:
    """Makes a pod (the driver's) the owner of what has this reference: the garbage collector takes it with its owner.

    It is the controller, as with Spark: so no other controller adopts an executor, and a drain of its node evicts it
    without force. It does not block its owner's deletion, which would need the right to update the owner's finalizers.
    """
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "name": pod_name,
        "uid": uid,
        "controller": True,
        "blockOwnerDeletion": False,
    }


class ExecutorManifests:
    """The pods and claims of one fleet's executors, in one namespace."""

    def __init__(self, settings: Settings, *, namespace: str, owner: Mapping[str, Any] | None = None) -> None:
        """`owner` is an `owner_reference`, that of the driver's pod."""
        self._shapes = {name: shape_of(settings, name) for name in settings.profile_names}
        self._app_id = settings.app_id
        self._prefix = settings.pod_prefix
        self._driver_address = settings.driver_address
        self._namespace = namespace
        self._owner = owner

    @property
    def owner_uid(self) -> str | None:
        """The UID of the driver's pod, if it owns the executors."""
        return self._owner["uid"] if self._owner is not None else None

    def pod_name(self, executor_id: int) -> str:
        """The name of an executor's pod."""
        return name(self._prefix, executor_id)

    def claimant(self, claim: str) -> int:
        """The id of the executor that a claim was made for, by its name; 0 if it is none of ours."""
        match = re.fullmatch(rf"{re.escape(self._prefix)}-exec-([0-9]+)-pvc-[0-9]+", claim)
        return (parse_executor_id(match[1]) if match is not None else None) or 0

    def pod(self, executor_id: int, profile: str, claims: Mapping[str, str] = _NO_CLAIMS) -> dict[str, Any]:
        """The v1 Pod, as JSON, of one executor.

        `claims` has, for each of the profile's claims that outlives the pod, the PersistentVolumeClaim to mount: one
        that `claims` makes, or another's. The others are generic ephemeral volumes: the cluster makes a claim
        `<pod>-<name>` for each, which the pod owns.
        """
        shape = self._shapes[profile]
        pod = shape.copy()
        metadata = pod["metadata"]
        metadata["name"], metadata["namespace"] = self.pod_name(executor_id), self._namespace
        metadata["labels"] = {
            **(metadata.get("labels") or {}),
            **self._labels(profile),
            EXECUTOR_ID_LABEL: str(executor_id),
        }
        if self._owner is not None:
            metadata["ownerReferences"] = [*(metadata.get("ownerReferences") or ()), dict(self._owner)]
        executor = executor_of(pod["spec"]["containers"], shape.container)
        own = self._environment(executor_id, profile)
        executor["env"] = [*own, *(executor.get("env") or ())]  # first, so that the template's can refer to them
        for claim in shape.claims:
            _mount(pod["spec"], executor, claim, self._volume(claim, claims.get(claim.name), profile))
        return pod

    def claims(self, executor_id: int, profile: str, reused: Collection[str] = ()) -> list[dict[str, Any]]:
        """The v1 PersistentVolumeClaims, as JSON, to be made for an executor: one for each claim not `reused`, by name.

        They have the fleet's labels but no executor id, for one executor after the other may have them.
        """
        return [
            _claim(
                claim,
                {
                    "name": claim_name(self._prefix, executor_id, index),
                    "namespace": self._namespace,
                    "labels": {**self._labels(profile), CLAIM_LABEL: claim.name},
                    **({} if self._owner is None else {"ownerReferences": [dict(self._owner)]}),
                },
            )
            for index, claim in enumerate(self._shapes[profile].claims)
            if claim.name not in reused
        ]

    def _labels(self, profile: str) -> dict[str, str]:
        return {
            APP_ID_LABEL: self._app_id,
            ROLE_LABEL: ROLE_EXECUTOR,
            PROFILE_LABEL: profile,
            MANAGED_BY_LABEL: "executor-pods",
        }

    def _environment(self, executor_id: int, profile: str) -> list[dict[str, Any]]:
        """What an executor finds in its environment."""
        own: list[dict[str, Any]] = [
            {"name": "EXECUTOR_ID", "value": str(executor_id)},
            {"name": "EXECUTOR_APP_ID", "value": self._app_id},
            {"name": "EXECUTOR_PROFILE", "value": profile},
            {"name": "EXECUTOR_POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "EXECUTOR_POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        ]
        if self._driver_address is not None:
            own.append({"name": "DRIVER_ADDRESS", "value": self._driver_address})
        return own

    def _volume(self, claim: ClaimSettings, claim_name: str | None, profile: str) -> dict[str, Any]:
        """Where a volume comes from: a claim of this name, or one that comes and goes with the pod."""
        if claim_name is None:
            template = {"metadata": {"labels": self._labels(profile)}, "spec": _claim_spec(claim)}
            return {"ephemeral": {"volumeClaimTemplate": template}}
        read_only = {"readOnly": True} if claim.read_only else {}
        return {"persistentVolumeClaim": {"claimName": claim_name, **read_only}}


def _mount(spec: dict[str, Any], executor: dict[str, Any], claim: ClaimSettings, volume: dict[str, Any]) -> None:
    mount: dict[str, Any] = {"name": claim.name, "mountPath": claim.mount_path}
    if claim.read_only:
        mount["readOnly"] = True
    if claim.sub_path is not None:
        mount["subPath"] = claim.sub_path
    spec["volumes"] = [*(spec.get("volumes") or ()), {"name": claim.name, **volume}]
    executor["volumeMounts"] = [*(executor.get("volumeMounts") or ()), mount]


def _claim(claim: ClaimSettings, metadata: dict[str, Any]) -> dict[str, Any]:
    if claim.storage_class is not None:
        metadata["annotations"] = {CLASS_ANNOTATION: claim.storage_class}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": _claim_spec(claim)}


def _claim_spec(claim: ClaimSettings) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "accessModes": list(claim.access_modes),
        "resources": {"requests": {"storage": claim.size}},
    }
    if claim.storage_class is not None:  # "" is not the same as none: it asks for a volume without a class
        spec["storageClassName"] = claim.storage_class
    return spec
