"""What the pod of an executor that is asked to go is marked with, for others to see: a label, an annotation. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from actors.pods import Pod
    from actors.settings import ExecutorSettings

__all__ = ["NO_MARK", "Mark", "of_decommissioned", "of_killed"]

DELETION_COST: Final = "controller.kubernetes.io/pod-deletion-cost"
"""The annotation by which ReplicaSets, and other controllers, choose whom to delete first."""


@dataclass(frozen=True, slots=True)
class Mark:
    """Labels and annotations; false if there are none."""

    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.labels or self.annotations)

    @classmethod
    def of(cls, marks: Iterable[Mark]) -> Mark:
        """All of these in one."""
        labels: dict[str, str] = {}
        annotations: dict[str, str] = {}
        for mark in marks:
            labels |= mark.labels
            annotations |= mark.annotations
        return cls(labels, annotations)

    def is_on(self, pod: Pod) -> bool:
        """Whether a pod has the labels; annotations, which are not read, come with them."""
        return bool(self.labels) and all(pod.labels.get(key) == value for key, value in self.labels.items())


NO_MARK: Final = Mark()


def of_killed(settings: ExecutorSettings) -> Mark:
    """What the driver ends: `executor.kill_label`."""
    return Mark(_label(settings.kill_label))


def of_decommissioned(settings: ExecutorSettings) -> Mark:
    """What the driver lets finish: `executor.decommission_label` and `executor.decommission_deletion_cost`."""
    cost = settings.decommission_deletion_cost
    return Mark(_label(settings.decommission_label), {} if cost is None else {DELETION_COST: str(cost)})


def _label(text: str | None) -> dict[str, str]:
    key, _, value = (text or "").partition("=")
    return {key: value} if key else {}
