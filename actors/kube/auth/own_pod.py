"""The pod that this program runs in, as the API server says in the token that the pod has from it."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from actors.kube import files

__all__ = ["SERVICE_ACCOUNT", "OwnPod", "own_pod"]

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""The folder with the token, CA and namespace of a pod's service account."""


@dataclass(frozen=True, slots=True)
class OwnPod:
    """A pod, and its UID, which no other pod ever has."""

    namespace: str
    name: str
    uid: str


def own_pod(account: Path = SERVICE_ACCOUNT) -> OwnPod | None:
    """Return our pod, None outside of a pod.

    A bound service account token names the pod that it was made for. The setting `driver_pod_name` does not show that
    we run in that pod; nor does a host name.
    """
    try:
        claims = files.read(account / "token").split(b".")[1]
        said = json.loads(base64.urlsafe_b64decode(claims + b"=" * (-len(claims) % 4)))["kubernetes.io"]
        found = (said["namespace"], said["pod"]["name"], said["pod"]["uid"])
    except (OSError, ValueError, LookupError, TypeError):
        return None
    return OwnPod(*found) if all(isinstance(each, str) and each for each in found) else None
