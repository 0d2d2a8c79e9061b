"""`Delays`: how long a node takes for what happens at once in a test."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from actors.runtime import Entropy

__all__ = ["END", "START", "Delays"]

START: Final = (0.7, 1.3)
"""Seconds from a pod's binding until its containers start."""
END: Final = (1.0, 2.0)
"""Seconds until the end of a container is in its pod's status, and from a pod's end until its object is gone.

Both measured on a node with kubelet 1.34 and containerd 1.6 that has the image. The kubelet looks for ended containers
once a second (`genericPlegRelistPeriod`), and takes down a pod's network and volumes before it deletes the object."""


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

    def end(self) -> timedelta:
        """Return the time until an end is in the pod's status."""
        return self._draw(END)

    def _draw(self, bounds: tuple[float, float]) -> timedelta:
        return timedelta(0) if self._entropy is None else timedelta(seconds=self._entropy.uniform(*bounds))
