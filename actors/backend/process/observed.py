"""The states of the newest snapshot, as they cross: what is different from those that crossed last."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final, final

from actors.backend.process.frames import Observed
from actors.kube.deduplication import SharedParts
from actors.messages.internal import ExecutorsObserved
from actors.pods.id_map import IdMap

if TYPE_CHECKING:
    from collections.abc import Iterator

    from actors.pods.state import PodState

__all__ = ["CrossedStates", "KnownStates"]

AT_ONCE: Final = 500
"""Executors of one frame: some hundred KiB, so that no side ever holds a large fleet twice."""


@final
class CrossedStates:
    """The side of the fleet's process."""

    def __init__(self) -> None:
        self._last: IdMap[PodState] = IdMap()
        self._is_first = True
        """The other side may still have the states of another process: the first ones cross even if there are none."""

    def frames(self, states: IdMap[PodState]) -> Iterator[Observed]:
        """Yield what is to cross. They must be sent in this order, all of them."""
        changes = states.changes_since(self._last)
        self._last = states
        pairs, left = iter(changes.items()), len(changes)
        while left or self._is_first:
            self._is_first = False
            chunk = dict(islice(pairs, AT_ONCE))
            left -= len(chunk)
            yield Observed(chunk, is_last=not left)


@final
class KnownStates:
    """The Backend's side."""

    def __init__(self) -> None:
        self._parts = SharedParts()
        self.states: IdMap[PodState] = IdMap()
        self._changed: set[int] = set()
        self._is_first = True

    def take(self, frame: Observed) -> None:
        """Take over what is different. Equal parts of pods are kept once."""
        self._changed.update(frame.changes)
        for executor_id, state in frame.changes.items():
            if state is not None:
                last = self.states.get(executor_id)
                self._parts.share(state.pod, None if last is None else last.pod)
        self.states = self.states.with_changes(frame.changes)

    def observed(self) -> ExecutorsObserved:
        """Return the message about what was taken since the last one."""
        changed = None if self._is_first else frozenset(self._changed)
        self._is_first = False
        self._changed.clear()
        return ExecutorsObserved(self.states, changed)
