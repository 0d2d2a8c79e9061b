"""`ApiPod`: a pod as the API's JSON has it.

Decoding skips every field that is declared neither here nor in `actors.pods.pod`. A pod therefore takes microseconds to
decode. The types bound what a field may say; `repair` reads pods that say more.
"""

from __future__ import annotations

from typing import Final

import msgspec

from actors.pods.ids import id_in_name
from actors.pods.pod import Condition, EventType, ObjectMeta, Pod, PodSpec, PodStatus, Time

__all__ = ["ApiEvent", "ApiMetadata", "ApiPod", "ApiStatus", "has_several_containers", "made_container"]

_ID_VARIABLE: Final = "EXECUTOR_ID"
"""The variable that the fleet sets in the executor's container, whatever its name. Only the fleet knows its value:
another container may have it from the pod's labels (`valueFrom`)."""


class ApiMetadata(ObjectMeta, frozen=True):
    """`metadata`."""

    resource_version: str = ""


class ApiStatus(PodStatus, frozen=True):
    """`status`."""

    pod_ip: str | None = msgspec.field(default=None, name="podIP")
    start_time: Time | None = None

    def with_conditions(self, conditions: tuple[Condition, ...] | None) -> PodStatus:
        """Return the status of a `Pod`, with these conditions in place of its own."""
        return PodStatus(
            self.phase, self.reason, self.message, conditions, self.container_statuses, self.init_container_statuses
        )


class ApiPod(msgspec.Struct, frozen=True, gc=False):
    """A pod."""

    metadata: ApiMetadata = ApiMetadata()
    spec: PodSpec | None = None
    status: ApiStatus | None = None
    made_container: str | None = None
    """See `Pod.made_container`. It is not in the JSON: whoever decodes a pod asks `made_container`."""

    def pod(self) -> Pod:
        """Return the `Pod`, which shares its parts."""
        status = self.status
        return self.with_status(None if status is None else status.with_conditions(status.conditions))

    def with_status(self, status: PodStatus | None) -> Pod:
        """Return the `Pod` with this status in place of its own, of which it has address and start."""
        found, own = self.metadata, self.status
        metadata = ObjectMeta(
            found.name,
            found.uid,
            found.shared_labels,
            found.deletion_timestamp,
            found.deletion_grace_period_seconds,
            found.owner_references,
            found.finalizers,
        )
        return Pod(
            metadata,
            self.spec,
            status,
            found.resource_version,
            None if own is None else own.pod_ip or None,
            None if own is None else own.start_time,
            id_in_name(found.name),
            self.made_container,
        )


class ApiEvent(msgspec.Struct, frozen=True, gc=False):
    """An event of a watch."""

    type: EventType
    pod: ApiPod = msgspec.field(name="object")


def has_several_containers(pod: ApiPod) -> bool:
    """Return whether a pod has more than one container, so that it matters which of them the fleet made."""
    return pod.spec is not None and pod.spec.containers is not None and len(pod.spec.containers) > 1


def made_container(manifest: object) -> str | None:
    """Return the name of the container that the fleet made, from the JSON of a pod of several containers.

    None if none has the fleet's variables. The executor's pod was requested with them, so its name, its place and its
    neighbours do not matter. To decode the variables of every pod would make each event dearer.
    """
    match manifest:
        case {"spec": {"containers": [_, _, *_] as containers}}:
            return next((name for each in containers if (name := _name_if_made(each)) is not None), None)
        case _:
            return None


def _name_if_made(container: object) -> str | None:
    match container:
        case {"name": str(name), "env": [*variables]} if any(map(_is_id, variables)):
            return name
        case _:
            return None


def _is_id(variable: object) -> bool:
    match variable:
        case {"name": str(name), "value": str()}:
            return name == _ID_VARIABLE
        case _:
            return False
