"""Pods as tests write them: one line, only what the test is about."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from actors.pods.pod import (
    APP_ID_LABEL,
    EXECUTOR_ID_LABEL,
    PROFILE_LABEL,
    ROLE_EXECUTOR,
    ROLE_LABEL,
    ClaimVolume,
    ObjectMeta,
    OwnerReference,
    Pod,
    PodEvent,
    PodSpec,
    PodStatus,
    Volume,
)
from actors.store.history import Merged
from actors.store.merge import Merge

if TYPE_CHECKING:
    from collections.abc import Sequence

    from actors.pods.pod import EventType
    from actors.store.history import History

APP_ID = "app"

DELETION = datetime(2024, 1, 1, tzinfo=UTC)


def pod_name(executor_id: int) -> str:
    return f"{APP_ID}-exec-{executor_id}"


def labels(executor_id: int, app_id: str = APP_ID) -> dict[str, str]:
    return {
        APP_ID_LABEL: app_id,
        ROLE_LABEL: ROLE_EXECUTOR,
        EXECUTOR_ID_LABEL: str(executor_id),
        PROFILE_LABEL: "default",
    }


def pod(
    executor_id: int = 1,
    *,
    version: int | str = 1,
    uid: str | None = None,
    phase: str = "Running",
    app_id: str = APP_ID,
    terminating: bool = False,
    owner_uid: str | None = None,
    claims: Sequence[str] = (),
) -> Pod:
    return Pod(
        metadata=ObjectMeta(
            name=pod_name(executor_id),
            uid=uid or f"uid-{executor_id}",
            shared_labels=labels(executor_id, app_id),
            deletion_timestamp=DELETION if terminating else None,
            owner_references=(OwnerReference(kind="Pod", name="driver", uid=owner_uid),) if owner_uid else None,
        ),
        spec=PodSpec(volumes=tuple(Volume(ClaimVolume(claim)) for claim in claims)) if claims else None,
        status=PodStatus(phase=phase),
        resource_version=str(version),
    )


def event(kind: EventType, subject: Pod) -> PodEvent:
    return PodEvent(kind, subject)


def apply_events(
    history: History, events: Sequence[PodEvent], resource_version: str, stream: int, now: float
) -> Merged:
    """Merge one read as a step of its own."""
    merge = Merge(history)
    applied = merge.read(events, resource_version, stream, now)
    return merge.finish() if applied else Merged(history, applied=False)
