"""`Delays`: how long a node takes for what happens at once in a test."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from actors.runtime import Entropy

__all__ = ["LOOK", "START", "Delays"]

START: Final = (0.7, 1.3)
"""Seconds from a pod's binding until its containers start."""
_NOTICE: Final = (0.1, 0.9)
"""Seconds until an end is in the status of its container."""
_FINISH: Final = (0.9, 1.1)
"""Seconds from there until the pod has its last phase or, if it was being deleted, its object is gone.

All measured on a node with kubelet 1.34 and containerd 1.6 that has the image."""
LOOK: Final = timedelta(seconds=1)
"""How often a kubelet looks which containers run (`genericPlegRelistPeriod` in `pkg/kubelet`)."""


class Delays:
    """Draws the delays of one node. Not thread-safe.

    Args:
        entropy: draws each delay; without it nothing takes time.
    """

    def __init__(self, entropy: Entropy | None = None) -> None:
        self._entropy = entropy

    def start(self) -> timedelta:
        """Return the time from a pod's binding until its containers start."""
        return self._draw(START)

    def notice(self) -> timedelta:
        """Return the time until an end is in the status of its container."""
        return self._draw(_NOTICE)

    def finish(self) -> timedelta:
        """Return the time from there until the pod's last phase, or until its object is gone."""
        return self._draw(_FINISH)

    def end(self) -> timedelta:
        """Return the time for both: from an end until all of it is seen."""
        return self.notice() + self.finish()

    def _draw(self, bounds: tuple[float, float]) -> timedelta:
        return timedelta(0) if self._entropy is None else timedelta(seconds=self._entropy.uniform(*bounds))
