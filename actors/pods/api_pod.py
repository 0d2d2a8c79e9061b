"""`ApiPod`: a pod as the API's JSON has it.

Decoding skips every field that is declared neither here nor in `actors.pods.pod`. A pod therefore takes microseconds to
decode. The types bound what a field may say; `repair` reads pods that say more.
"""

from __future__ import annotations

import msgspec

from actors.pods.ids import id_in_name
from actors.pods.pod import Condition, EventType, ObjectMeta, Pod, PodSpec, PodStatus, Time

__all__ = ["ApiEvent", "ApiMetadata", "ApiPod", "ApiStatus"]


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
            found.labels,
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
        )


class ApiEvent(msgspec.Struct, frozen=True, gc=False):
    """An event of a watch."""

    type: EventType
    pod: ApiPod = msgspec.field(name="object")
