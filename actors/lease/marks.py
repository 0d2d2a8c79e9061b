"""What shows that the holder of the Lease has ended: then nobody waits until the Lease expires.

The holder writes its marks into an annotation: that of its process, and the pod that it runs in. A driver that can see
by one of them that the holder has ended takes the Lease at once. Otherwise it waits.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from actors.kube.auth.own_pod import own_pod
from actors.kube.names import dns_subdomain_problem
from actors.lease.process_mark import own_mark
from actors.pods.pod import NOT_LOCATED, container_statuses, ends, init_statuses

if TYPE_CHECKING:
    from actors.pods.pod import Pod

__all__ = ["MARKS", "NO_MARKS", "Marks", "has_pod_ended", "own_marks", "read_marks", "written_marks"]

MARKS: Final = "executor-pods/holder"
"""The annotation with the holder's name and marks, as JSON."""

_LONGEST: Final = 2000
"""Characters of an annotation that is read."""


@dataclass(frozen=True, slots=True)
class Marks:
    """The marks of one driver."""

    process: str | None = None
    """See `process_mark`."""
    pod: tuple[str, str] | None = None
    """The name and UID of its pod, if that is in the fleet's namespace."""


NO_MARKS: Final = Marks()
"""Of a driver whose end nobody sees."""


def own_marks(namespace: str) -> Marks:
    """Return the marks of this process, for a fleet in that namespace."""
    pod = own_pod()
    return Marks(own_mark(), (pod.name, pod.uid) if pod is not None and pod.namespace == namespace else None)


def written_marks(holder: str, marks: Marks) -> Mapping[str, str]:
    """Return the annotation with the marks of that holder, if it has any."""
    if marks == NO_MARKS:
        return {}
    return {MARKS: json.dumps({"holder": holder, "process": marks.process, "pod": marks.pod})}


def read_marks(holder: str, annotation: object) -> Marks:
    """Return the marks of that holder. An annotation with another one's name is an earlier holder's."""
    try:
        said = json.loads(annotation) if isinstance(annotation, str) and len(annotation) <= _LONGEST else None
    except (ValueError, RecursionError):
        said = None
    if not isinstance(said, Mapping) or said.get("holder") != holder:
        return NO_MARKS
    process = said.get("process")
    return Marks(process if isinstance(process, str) else None, _pod(said.get("pod")))


def _pod(said: Any) -> tuple[str, str] | None:
    match said:
        case [str(name), str(uid)] if dns_subdomain_problem(name) is None:
            return name, uid
        case _:
            return None


def has_pod_ended(pod: Pod, uid: str) -> bool:
    """Return whether the kubelet says that all containers of the pod with that UID have ended.

    A pod that is not there shows nothing: it may have been deleted by force, while its containers run on a node that
    nobody reaches. A phase alone shows nothing either: controllers set it for pods of such nodes.
    """
    if pod.uid != uid or pod.status is None or pod.status.phase not in {"Succeeded", "Failed"}:
        return False
    statuses = (*container_statuses(pod), *init_statuses(pod))
    seen = [end for end in ends(statuses) if end.reason != NOT_LOCATED]
    return len(seen) == len(statuses) > 0
