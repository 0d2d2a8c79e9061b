"""Finds what an admission step of the cluster has changed in a pod that we requested. Pure.

Only what the fleet depends on counts: name, labels, owners, restart policy. Other changes are the operator's affair.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from actors.pods.pod import APP_ID_LABEL, EXECUTOR_ID_LABEL, INACTIVE_LABEL, PROFILE_LABEL, ROLE_LABEL

if TYPE_CHECKING:
    from collections.abc import Mapping

    from actors.kube.api import Manifest
    from actors.pods.pod import Pod

__all__ = ["alteration"]

_LABELS: Final = (APP_ID_LABEL, ROLE_LABEL, EXECUTOR_ID_LABEL, PROFILE_LABEL, INACTIVE_LABEL)
"""By these the fleet's pods are selected and counted."""


def alteration(requested: Manifest, pod: Pod) -> str | None:
    """Return in what the pod differs from the manifest that was requested, for an error; None if it does not matter."""
    metadata: Mapping[str, Any] = requested["metadata"]
    if pod.name != metadata["name"]:
        return f"its name is {pod.name!r}"
    labels: Mapping[str, str] = metadata.get("labels") or {}
    for key in _LABELS:
        found = pod.labels.get(key)
        if found != labels.get(key):
            return f"label {key} is missing" if found is None else f"label {key} is {found!r}"
    owners = sorted(reference.uid for reference in pod.metadata.owner_references or ())
    if owners != sorted(reference["uid"] for reference in metadata.get("ownerReferences") or ()):
        return f"its owners are {owners}"
    policy = pod.spec.restart_policy if pod.spec is not None else None
    if policy not in {None, (requested.get("spec") or {}).get("restartPolicy", policy)}:
        return f"its restartPolicy is {policy!r}"
    return None
