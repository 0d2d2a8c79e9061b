"""Builds the manifests of one executor, its pod and its volume claims, from the shape of its profile.

Pure. The shape (`pod_template`) holds what all pods of a profile have in common; this module adds what differs between
executors. `template_checks` refuses templates that would break the fleet.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from actors.manifests.memory import memory_of, shapes_of
from actors.manifests.pause import pause_variables
from actors.manifests.pod_template import executor_of
from actors.manifests.template_checks import check_template
from actors.pods.ids import believed, claim_name, id_in_claim, pod_name
from actors.pods.pod import (
    APP_ID_LABEL,
    EXECUTOR_ID_LABEL,
    MANAGED_BY_LABEL,
    MEMORY_STEP_LABEL,
    PROFILE_LABEL,
    ROLE_EXECUTOR,
    ROLE_LABEL,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from actors.pods.pod import Pod
    from actors.settings import ClaimSettings, Settings

__all__ = [
    "CLAIM_LABEL",
    "CLASS_ANNOTATION",
    "ExecutorManifests",
    "check_template",
    "controller_reference",
    "owner_reference",
]

CLAIM_LABEL: Final = "executor-pods/claim"
"""On a PersistentVolumeClaim: for which of the profile's `claims` it was made, and may be reused."""

CLASS_ANNOTATION: Final = "executor-pods/storage-class"
"""On a PersistentVolumeClaim: the storage class that was requested, if any. `spec` does not say: the API server writes
the default class into it when none was requested.
"""

_NO_CLAIMS: Final[Mapping[str, str]] = MappingProxyType({})


def owner_reference(pod_name: str, uid: str) -> dict[str, Any]:
    """The reference that makes a pod (the driver's) an owner: the garbage collector deletes objects with their owner.

    The owner is the controller, as in Spark: no other controller adopts an executor, and a drain of its node evicts it
    without force. It does not block the owner's deletion, which would need the right to update the owner's finalizers.
    """
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "name": pod_name,
        "uid": uid,
        "controller": True,
        "blockOwnerDeletion": False,
    }


def controller_reference(pod: Pod) -> dict[str, Any] | None:
    """The reference that makes what controls a pod an owner beside that pod, None if nothing controls it.

    The garbage collector deletes an object with its last owner. This owner is not the controller of executors: a
    ReplicaSet takes itself off the owners of each pod that it controls and does not select.
    """
    for owner in pod.metadata.owner_references or ():
        if owner.controller:
            return {
                "apiVersion": owner.api_version,
                "kind": owner.kind,
                "name": owner.name,
                "uid": owner.uid,
                "controller": False,
                "blockOwnerDeletion": False,
            }
    return None


class ExecutorManifests:
    """Makes the pods and claims of one fleet's executors, in one namespace."""

    def __init__(self, settings: Settings, *, namespace: str, owners: Sequence[Mapping[str, Any]] = ()) -> None:
        """`owners` are the ownerReferences of all pods and claims, the one that lasts longest last."""
        self._shapes = {name: shapes_of(settings, name) for name in settings.profile_names}
        """By profile and memory step."""
        self._app_id = settings.app_id
        self._prefix = settings.pod_prefix
        self._driver_address = settings.driver_address
        self._namespace = namespace
        self._owners = owners
        self._variables = {name: self._environment(settings, name) for name in settings.profile_names}
        """By profile: the variables that every executor gets, but for its id. All pods share them: hundreds wait for
        their POSTs, and the more objects there are, the more often the interpreter looks for garbage among them."""

    @property
    def owner_uid(self) -> str | None:
        """The UID of the owner that lasts longest, None if there is none."""
        return self._owners[-1]["uid"] if self._owners else None

    def pod_name(self, executor_id: int) -> str:
        """The name of an executor's pod."""
        return pod_name(self._prefix, executor_id)

    def claimant(self, claim: str) -> int:
        """Return the id of the executor that a claim of this name was made for, 0 if it is not ours or not believed."""
        found = id_in_claim(claim) or 0
        return believed(found) if claim.startswith(f"{self.pod_name(found)}-") else 0

    def memory_steps(self, profile: str) -> int:
        """Return how often `on_oom` can raise the memory of a profile's executors."""
        return len(self._shapes[profile]) - 1 if profile in self._shapes else 0

    def memory(self, profile: str, memory_step: int) -> str | None:
        """Return the memory of an executor's container after so many raises, None if it has none."""
        return memory_of(self._shapes[profile][memory_step])

    def pod(
        self, executor_id: int, profile: str, claims: Mapping[str, str] = _NO_CLAIMS, *, memory_step: int = 0
    ) -> dict[str, Any]:
        """Return the v1 Pod of one executor, as JSON.

        `claims` names the PersistentVolumeClaim to mount for each of the profile's claims that outlives the pod: one
        that the method `claims` makes, or a reused one. The others are generic ephemeral volumes: the cluster makes a
        claim `<pod>-<name>` for each, which the pod owns. `memory_step` is how often the memory was raised.

        The variables of the fleet itself belong to all pods. Everything else can be changed.
        """
        shape = self._shapes[profile][memory_step]
        pod = shape.copy()
        metadata = pod["metadata"]
        metadata["name"], metadata["namespace"] = self.pod_name(executor_id), self._namespace
        metadata["labels"] = {
            **(metadata.get("labels") or {}),
            **self._labels(profile),
            EXECUTOR_ID_LABEL: str(executor_id),
            **({MEMORY_STEP_LABEL: str(memory_step)} if memory_step else {}),
        }
        if self._owners:
            metadata["ownerReferences"] = [*(metadata.get("ownerReferences") or ()), *map(dict, self._owners)]
        executor = executor_of(pod["spec"]["containers"], shape.container)
        executor["env"] = [
            {"name": "EXECUTOR_ID", "value": str(executor_id)},
            *self._variables[profile],
            *(executor.get("env") or ()),
        ]  # first, so that the template's variables can refer to them
        for claim in shape.claims:
            _mount(pod["spec"], executor, claim, self._volume(claim, claims.get(claim.name), profile))
        return pod

    def claims(self, executor_id: int, profile: str, reused: Collection[str] = ()) -> list[dict[str, Any]]:
        """Return the v1 PersistentVolumeClaims to create for an executor, as JSON: one for each claim not in `reused`.

        They have the fleet's labels but no executor id: one executor after another may use them.
        """
        return [
            _claim(
                claim,
                {
                    "name": claim_name(self._prefix, executor_id, index),
                    "namespace": self._namespace,
                    "labels": {**self._labels(profile), CLAIM_LABEL: claim.name},
                    **({"ownerReferences": [*map(dict, self._owners)]} if self._owners else {}),
                },
            )
            for index, claim in enumerate(self._shapes[profile][0].claims)
            if claim.name not in reused
        ]

    def _labels(self, profile: str) -> dict[str, str]:
        return {
            APP_ID_LABEL: self._app_id,
            ROLE_LABEL: ROLE_EXECUTOR,
            PROFILE_LABEL: profile,
            MANAGED_BY_LABEL: "executor-pods",
        }

    def _environment(self, settings: Settings, profile: str) -> list[dict[str, Any]]:
        own: list[dict[str, Any]] = [
            {"name": "EXECUTOR_APP_ID", "value": self._app_id},
            {"name": "EXECUTOR_PROFILE", "value": profile},
            {"name": "EXECUTOR_POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "EXECUTOR_POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        ]
        if self._driver_address is not None:
            own.append({"name": "DRIVER_ADDRESS", "value": self._driver_address})
        if profile in settings.draining and settings.profile(profile).drain_command is None:
            own += pause_variables()
        return own

    def _volume(self, claim: ClaimSettings, claim_name: str | None, profile: str) -> dict[str, Any]:
        """The source of a volume: the claim of this name, or an ephemeral one."""
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
    if claim.storage_class is not None:  # "" differs from none: it requests a volume without a class
        spec["storageClassName"] = claim.storage_class
    return spec
