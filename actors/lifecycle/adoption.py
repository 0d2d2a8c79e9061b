"""Adoption: gives the fleet's pods the owners that this driver gives its own. Pure.

Pods that an earlier incarnation of the driver created have its owners: that driver's pod, or the ReplicaSet of an
earlier rollout. Kubernetes collects them once those are gone, unless they get ours.
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
        owners: of the executors, as ownerReferences; none if the driver runs in no pod, and nothing is adopted.
    """

    def __init__(self, owners: tuple[Manifest, ...]) -> None:
        self._owners = owners
        self._uids = frozenset(str(owner["uid"]) for owner in owners)
        self._open: dict[int, AdoptPod] = {}
        self._had: dict[int, str] = {}
        """The UIDs of pods that had all our owners, by executor."""

    def observe(self, executor_id: int, pod: Pod) -> AdoptPod | None:
        """Return the request that a live pod needs now, None if it needs none or has to wait for `unfinished`.

        A pod that loses one of our owners waits: the garbage collector takes an owner that is gone off each pod as
        often as the pod gets it.
        """
        if not self._owners:
            return None
        if self._uids <= {owner.uid for owner in pod.metadata.owner_references or ()}:
            self._had[executor_id] = pod.uid
            self._open.pop(executor_id, None)
            return None
        if pod.terminating:
            self._open.pop(executor_id, None)
            return None
        self._open[executor_id] = AdoptPod(pod.name, pod.uid, self._owners)
        return self._open[executor_id] if self._had.get(executor_id) != pod.uid else None

    def forget(self, executor_id: int) -> None:
        """Forget an executor that ended or was abandoned."""
        self._open.pop(executor_id, None)
        self._had.pop(executor_id, None)

    def unfinished(self, snapshot: PodsSnapshot) -> Iterator[AdoptPod]:
        """Yield the requests without an effect on pods in the snapshot: they may have been dropped or refused."""
        for executor_id, request in self._open.items():
            state = snapshot.states.get(executor_id)
            if state is not None and state.pod.uid == request.uid:
                yield replace(request, observed_at=snapshot.full_sync_at)
