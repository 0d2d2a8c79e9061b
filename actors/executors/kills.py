"""Kills: the executors that the driver ends or lets finish, who hears of it, and when their pods are deleted.

A plain object of `Executors`, whose ledger it keeps in step. A killed executor has `executor.kill_grace_period` to end
by itself; then its pod is deleted, by label, so that one whose POST is still on its way is met, too.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from actors.messages import DeletePods, ExecutorDecommissioned, ExecutorKilled
from actors.messages.names import ALLOCATOR, LIFECYCLE, POOL

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from datetime import timedelta

    from actors.executors.ledger import Ledger
    from actors.messages import LedgerEntry, ToDriver
    from actors.runtime import Actor, Address
    from actors.settings import ExecutorSettings

__all__ = ["BY_DRIVER", "ROLLED", "DeleteDue", "Kills"]

logger = logging.getLogger(__name__)

BY_DRIVER: Final = "was ended by the driver"
ROLLED: Final = "was rolled, for a new one to take its place"
"""What is said of an end that was asked for, after the executor's name."""


@dataclass(frozen=True, slots=True)
class DeleteDue:
    """Killed executors had their time to end by themselves."""

    executor_ids: tuple[int, ...]


class Kills:
    """Of one fleet.

    Args:
        backend: whose timers and clock are used; `DeleteDue` comes to it.
        book: every executor, as it is now.
        keep: takes the next book.
        take_back: lowers the targets of these profiles by one each.
        address: a part of the Backend by its name.
        tell: the driver.
    """

    def __init__(
        self,
        backend: Actor,
        settings: ExecutorSettings,
        *,
        book: Callable[[], Ledger],
        keep: Callable[[Ledger], None],
        take_back: Callable[[list[str]], None],
        address: Callable[[str], Address],
        tell: Callable[[ToDriver | None], None],
    ) -> None:
        self._timers = backend.timers
        self._clock = backend.clock
        self._grace = settings.kill_grace_period
        self._book = book
        self._keep = keep
        self._take_back = take_back
        self._address = address
        self._tell = tell
        self._kills = 0

    def kill(
        self, executor_ids: Iterable[int], *, adjust_target: bool = False, words: str = BY_DRIVER
    ) -> tuple[int, ...]:
        """The driver is told at once; the pods are deleted when their time is over, those that do not run yet now."""
        killed = [entry for executor_id in executor_ids if (entry := self._kill_one(executor_id, words)) is not None]
        new = [entry for entry in killed if entry.killed is None]
        self._take_back([entry.profile for entry in new] if adjust_target else [])
        self.delete([entry.executor_id for entry in killed if not entry.running])
        self._let_end([entry.executor_id for entry in new if entry.running], self._grace)
        ids = tuple(entry.executor_id for entry in killed)
        if ids:
            logger.info("killing executors: ids=%s adjust_target=%s", list(ids), adjust_target)
        return ids

    def decommission(self, executor_ids: Iterable[int]) -> tuple[int, ...]:
        """They finish by themselves."""
        done: list[int] = []
        for executor_id in executor_ids:
            book = self._book().decommissioned(executor_id)
            if book is None:
                logger.warning("cannot decommission, there is no such executor: executor=%s", executor_id)
                continue
            self._keep(book)
            for name in (LIFECYCLE, ALLOCATOR):
                self._address(name).tell(ExecutorDecommissioned(executor_id))
            done.append(executor_id)
        if done:
            logger.info("decommissioning executors: ids=%s", done)
        return tuple(done)

    def delete(self, executor_ids: Iterable[int]) -> None:
        """By label: that also meets one whose POST is still on its way."""
        entries = (self._book().entries.get(executor_id) for executor_id in executor_ids)
        left = frozenset(entry.executor_id for entry in entries if entry is not None and entry.removed_at is None)
        if left:
            self._address(POOL).tell(DeletePods(left))

    def _kill_one(self, executor_id: int, words: str) -> LedgerEntry | None:
        """Answers with its entry from before, None if there is no such executor, or it has ended."""
        now = self._clock.monotonic()
        book = self._book()
        entry = book.entries.get(executor_id)
        delete_at = now + self._grace.total_seconds() if entry is not None and entry.running else now
        done = book.killed(ExecutorKilled(executor_id, self._clock.now(), delete_at, words), now)
        if entry is None or done is None:
            logger.warning("cannot kill, there is no such executor: executor=%s", executor_id)
            return None
        book, told = done
        self._keep(book)
        self._tell(told)
        kill = book.entries[executor_id].killed
        assert kill is not None
        for name in (LIFECYCLE, ALLOCATOR):
            self._address(name).tell(kill)
        return entry

    def _let_end(self, executor_ids: list[int], grace: timedelta) -> None:
        """They have until the end of the grace period; LifecycleManager marks their pods for whoever looks at them."""
        if executor_ids:
            self._kills += 1
            self._timers.start(("kill", self._kills), grace, DeleteDue(tuple(executor_ids)))
