"""Kubernetes Events, whose writers fill in one or the other of their times, counts and sources. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from actors.inspection.fields import text, time, value

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from actors.kube.api import Manifest

__all__ = ["ObservedEvent", "about", "observe_event", "prefix_of"]

_NAME: Final = re.compile(r"(?P<prefix>.+)-exec-[0-9]+(?P<claim>-.+)?")
"""Of an executor's pod, or of one of its claims. A prefix may itself end like the name of an executor."""

_NEVER: Final = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class ObservedEvent:
    """One Event. All texts are the cluster's."""

    at: datetime | None
    """When it happened last, None if it does not say."""
    since: datetime | None
    """When it happened first."""
    count: int
    type: str
    """`Normal` or `Warning`."""
    reason: str
    kind: str
    """Of the object that it is about."""
    name: str
    source: str
    message: str


def observe_event(manifest: Manifest) -> ObservedEvent:
    """Return what an Event, as JSON, says."""
    times = (
        time(manifest, "series", "lastObservedTime"),
        time(manifest, "lastTimestamp"),
        time(manifest, "eventTime"),
        time(manifest, "firstTimestamp"),
        time(manifest, "metadata", "creationTimestamp"),
    )
    firsts = (time(manifest, "firstTimestamp"), time(manifest, "eventTime"), times[-1])
    counts = (value(manifest, "series", "count"), value(manifest, "count"))
    return ObservedEvent(
        at=next(filter(None, times), None),
        since=next(filter(None, firsts), None),
        count=next((count for count in counts if type(count) is int and count > 0), 1),
        type=text(manifest, "type") or "",
        reason=text(manifest, "reason") or "",
        kind=text(manifest, "involvedObject", "kind") or "",
        name=text(manifest, "involvedObject", "name") or "",
        source=text(manifest, "source", "component") or text(manifest, "reportingComponent") or "",
        message=text(manifest, "message") or "",
    )


def prefix_of(pod_name: str) -> str | None:
    """Return the prefix of an executor's pod, None if this is not its name."""
    match = _NAME.fullmatch(pod_name)
    return match["prefix"] if match is not None and match["claim"] is None else None


def about(
    events: Iterable[ObservedEvent], prefixes: Collection[str], others: Collection[tuple[str, str]]
) -> list[ObservedEvent]:
    """Return the Events about executors with these prefixes, gone ones too, and about other objects; the newest last.

    `others` has the kind and the name of each: the Lease, the driver's pod.
    """
    found = [event for event in events if (event.kind, event.name) in others or _is_of(event, prefixes)]
    return sorted(found, key=lambda event: (event.at or _NEVER, event.since or _NEVER))


def _is_of(event: ObservedEvent, prefixes: Collection[str]) -> bool:
    match = _NAME.fullmatch(event.name)
    if match is None or match["prefix"] not in prefixes:
        return False
    return event.kind == ("Pod" if match["claim"] is None else "PersistentVolumeClaim")
