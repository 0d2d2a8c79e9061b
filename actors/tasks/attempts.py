"""`Attempts`: how often the executor of a task was lost, and whether the task may run again. Pure.

Only losses that the application caused count against the limit: the task may be their cause. A cluster that takes nodes
away would otherwise fail a task that has no fault.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Self

if TYPE_CHECKING:
    from actors.pods.loss import LossReason

__all__ = ["DEFAULT_LIMIT", "Attempts"]

DEFAULT_LIMIT: Final = 4
"""As `spark.task.maxFailures`."""


@dataclass(frozen=True, slots=True)
class Attempts:
    """The losses of one task's executors, and how many are allowed. It does not change: `after` returns another one.

    ::

        attempts = attempts.after(reason)
        if not attempts.may_run_again:
            print(attempts.refusal)
    """

    limit: int = DEFAULT_LIMIT
    """Losses that the application caused (`LossReason.caused_by_app`). At so many, the task does not run again."""
    other_limit: int | None = None
    """The same for losses that the cluster or the driver caused; None: any number is allowed."""
    by_app: int = 0
    """Losses so far that the application caused."""
    by_others: int = 0
    """Losses so far that the cluster or the driver caused."""
    last: LossReason | None = None
    """The last loss."""

    def __post_init__(self) -> None:
        """Check the limits.

        Raises:
            ValueError: a limit is no whole number from 1.
        """
        if not _is_limit(self.limit):
            raise ValueError(f"limit = {self.limit!r}: must be a whole number, at least 1")
        if self.other_limit is not None and not _is_limit(self.other_limit):
            raise ValueError(f"other_limit = {self.other_limit!r}: must be a whole number, at least 1, or None")

    def after(self, reason: LossReason) -> Self:
        """Return the attempts after another loss."""
        if reason.caused_by_app:
            return replace(self, by_app=self.by_app + 1, last=reason)
        return replace(self, by_others=self.by_others + 1, last=reason)

    @property
    def may_run_again(self) -> bool:
        """Whether the task may run again."""
        return self.refusal is None

    def allows(self, more: int) -> bool:
        """Whether the task may run again whatever caused so many more losses."""
        by_app, by_others = self.by_app + more, self.by_others + more
        return by_app < self.limit and (self.other_limit is None or by_others < self.other_limit)

    @property
    def refusal(self) -> str | None:
        """Why the task must not run again: which limit is reached, and the last loss. None: it may."""
        if self.by_app >= self.limit:
            said = f"the application lost its executor {_times(self.by_app)} (limit = {self.limit})"
        elif self.other_limit is not None and self.by_others >= self.other_limit:
            said = (
                f"the cluster or the driver ended its executor {_times(self.by_others)} "
                f"(other_limit = {self.other_limit})"
            )
        else:
            return None
        return said if self.last is None else f"{said}; the last loss: {self.last.message}"


def _is_limit(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"
