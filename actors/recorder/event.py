"""A Kubernetes Event as JSON. Pure.

It is a core/v1 Event as client-go's recorder writes it, with `count` and `lastTimestamp`: every server has it, every
kubectl shows it, and its message may change. An Event of `events.k8s.io/v1` is the same object to a server, but only
its `series` may change there, and a kubectl before 1.19 does not show that.
"""

from __future__ import annotations

from datetime import UTC
from typing import TYPE_CHECKING, Any, Final

from actors.pods.pod import APP_ID_LABEL, MANAGED_BY_LABEL
from actors.text import one_line

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from actors.kube.api import Manifest
    from actors.recorder.book import Series

__all__ = ["LONGEST_MESSAGE", "event_name", "first_event", "next_event"]

LONGEST_MESSAGE: Final = 1024
"""Bytes of a message that the API accepts (`NoteLengthLimit`)."""

COMPONENT: Final = "executor-pods"

_CUT: Final = "..."

_LONGEST_NAME: Final = 230
"""Characters of the object's name that an Event's name begins with: a name has at most 253."""


def event_name(about: str, token: str) -> str:
    """Return the name of an Event about the object of this name; the random `token` makes it unique."""
    return f"{about[:_LONGEST_NAME].rstrip('-.')}.{token}"


def first_event(
    series: Series, about: Mapping[str, Any], *, name: str, namespace: str, app_id: str, instance: str
) -> Manifest:
    """Return an Event to create. `about` is the object, `instance` names this driver."""
    involved = {key: about[key] for key in ("apiVersion", "kind", "name", "uid") if key in about}
    labels = {APP_ID_LABEL: app_id, MANAGED_BY_LABEL: COMPONENT}
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "involvedObject": {**involved, "namespace": namespace},
        "reason": series.latest.reason,
        "type": series.latest.type,
        "source": {"component": COMPONENT},
        "reportingComponent": COMPONENT,
        "reportingInstance": instance[:128],
        "firstTimestamp": _whole_seconds(series.first),
        **next_event(series),
    }


def next_event(series: Series) -> Manifest:
    """Return the patch of an Event that has occurred again."""
    return {
        "message": _bounded(series.latest.message),
        "count": series.count,
        "lastTimestamp": _whole_seconds(series.last),
    }


def _bounded(text: str) -> str:
    encoded = one_line(text).encode()
    if len(encoded) <= LONGEST_MESSAGE:
        return encoded.decode()
    return encoded[: LONGEST_MESSAGE - len(_CUT)].decode(errors="ignore") + _CUT


def _whole_seconds(moment: datetime) -> str:
    """Format as Kubernetes' Time."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
