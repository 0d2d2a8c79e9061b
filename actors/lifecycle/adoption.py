"""Adoption: makes our driver's pod the owner of the fleet's pods. Pure.

Pods that an earlier incarnation of the driver created are owned by that driver's pod. Kubernetes collects them once
that owner is gone, unless they get ours.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from actors.messages.internal import AdoptPod

if TYPE_CHECKING:
    from collections.abc import Iterator

    from actors.kube.api import Manifest
    from actors.pods.pod import Pod
    from actors.pods.snapshot import PodsSnapshot

__all__ = ["Adoption"]


class Adoption:
    """The live pods that still have to be adopted.

    Args:
        owner: the driver's pod as an ownerReference; None if the driver runs in no pod, and nothing is adopted.
    """

    def __init__(self, owner: Manifest | None) -> None:
        self._owner = owner
        self._open: dict[int, AdoptPod] = {}

    def observe(self, executor_id: int, pod: Pod) -> AdoptPod | None:
        """Return the request that a live pod needs, None if it is ours already."""
        owner = self._owner
        owners = pod.metadata.owner_references or ()
        if owner is None or pod.terminating or any(own.uid == owner["uid"] for own in owners):
            self._open.pop(executor_id, None)
            return None
        self._open[executor_id] = AdoptPod(pod.name, pod.uid, owner)
        return self._open[executor_id]

    def forget(self, executor_id: int) -> None:
        """Forget an executor that ended or was abandoned."""
        self._open.pop(executor_id, None)

    def unfinished(self, snapshot: PodsSnapshot) -> Iterator[AdoptPod]:
        """Yield the requests without an effect on pods in the snapshot: they may have been dropped or refused."""
        for executor_id, request in self._open.items():
            state = snapshot.states.get(executor_id)
            if state is not None and state.pod.uid == request.uid:
                yield replace(request, observed_at=snapshot.full_sync_at)
