"""Adoption: pods of an earlier life belong to a driver's pod that may be gone, and are collected unless they get ours.

Which of the fleet's live pods lack our driver's pod as their owner. A plain value in the LifecycleManager's hands.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from actors.messages import AdoptPod

if TYPE_CHECKING:
    from actors.kube.api import Manifest
    from actors.pods.pod import Pod

__all__ = ["Adoption"]


class Adoption:
    """`owner` is the driver's pod as an ownerReference; None if it runs in none, and nothing is adopted."""

    def __init__(self, owner: Manifest | None) -> None:
        self._owner = owner
        self._open: dict[int, AdoptPod] = {}

    def see(self, executor_id: int, pod: Pod) -> AdoptPod | None:
        """A live pod is shown as it is now. Answers with what is to be asked for, if it is not ours."""
        owner = self._owner
        owners = pod.metadata.owner_references or ()
        if owner is None or pod.terminating or any(own.uid == owner["uid"] for own in owners):
            self._open.pop(executor_id, None)
            return None
        self._open[executor_id] = AdoptPod(pod.name, pod.uid, owner)
        return self._open[executor_id]

    def forget(self, executor_id: int) -> None:
        """It has ended, or is not to stay."""
        self._open.pop(executor_id, None)

    def open(self) -> tuple[AdoptPod, ...]:
        """What was asked for and is not seen to be done: it may have been dropped, or refused."""
        return tuple(self._open.values())
