"""Whether an executor that is lost is replaced. If it is not, the target of its profile falls by one.

`executor.replace` says so, of each profile; a function of the driver replaces that setting. In a profile that does not
replace every loss, the Allocator counts each executor until it is told that its end was decided on, in one message with
the target: so nothing is created and taken back.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

from actors.executors.roll import LONGEST_CHOICE
from actors.messages import ExecutorRemoved
from actors.runtime import TookTooLong
from actors.text import get_logger

if TYPE_CHECKING:
    from actors.executors.fleet_state import FleetState
    from actors.messages.internal import LedgerEntry
    from actors.runtime.actor import System
    from actors.settings import Settings

__all__ = ["ReplaceRule", "Replacement"]

logger = get_logger(__name__)

ReplaceRule: TypeAlias = Callable[[ExecutorRemoved], bool]
"""Returns whether the executor is replaced. It is called for each loss, and may take 5 s: if it takes longer, it is not
called any more, and all are replaced."""


class Replacement:
    """What follows from the losses of one fleet.

    Args:
        settings: of the fleet.
        state: what is known of the fleet; its targets are lowered here.
        system: calls the function.
        rule: decides for all profiles, instead of `executor.replace`.
    """

    def __init__(
        self, settings: Settings, *, state: FleetState, system: System, rule: ReplaceRule | None = None
    ) -> None:
        self._state = state
        self._replaced: Final = {name: settings.replaced(name) for name in settings.profile_names}
        self._rule: ReplaceRule | None = None if rule is None else partial(_asked, rule, system)
        self.profiles: Final = frozenset(
            name
            for name, kinds in self._replaced.items()
            if (rule is not None or kinds is not None) and name not in settings.pool_names
        )
        """Those that do not replace every loss. The target of a profile with a pool follows its leases."""

    def decide(self, entry: LedgerEntry, removal: ExecutorRemoved) -> ExecutorRemoved:
        """Lower the target if the executor, which has been removed from the ledger, is not replaced."""
        if not self._is_loss(entry) or self._is_replaced(removal):
            return removal
        self._state.totals[entry.profile] -= 1
        logger.info(
            "executor not replaced: executor=%d kind=%s profile=%s target=%d",
            *(entry.executor_id, removal.reason.kind, entry.profile, self._state.totals[entry.profile]),
        )
        return replace(removal, lowered_target=True)

    def _is_loss(self, entry: LedgerEntry) -> bool:
        """Whether the profile has fewer executors than are wanted because this one has ended."""
        profile, state = entry.profile, self._state
        if profile not in self.profiles or state.ending is None or not state.ledger.has_begun:
            return False
        if entry.scaled_down or (entry.killed is not None and not entry.killed.is_loss):
            return False
        return state.ledger.counted.get(profile, 0) < state.totals.get(profile, 0)

    def _is_replaced(self, removal: ExecutorRemoved) -> bool:
        if self._rule is None:
            kinds = self._replaced[removal.profile]
            return kinds is None or removal.reason.kind in kinds
        try:
            return bool(self._rule(removal))
        except TookTooLong:
            logger.exception("the function `replace_if` takes too long, every loss is replaced from now on")
            self._rule = _every  # or each loss would leave a thread behind
        except BaseException:  # a `sys.exit` in it must not end the fleet
            logger.exception("the function `replace_if` failed, replaced: executor=%d", removal.executor_id)
        return True


def _asked(rule: ReplaceRule, system: System, removal: ExecutorRemoved) -> bool:
    return system.call_within(LONGEST_CHOICE, lambda: rule(removal))


def _every(_: ExecutorRemoved) -> bool:
    return True
