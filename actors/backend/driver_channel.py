"""The line to the driver: what it is told, and that nothing is told after the last word, which is said once.

A plain object of the Backend. What is said is counted for whoever looks at the fleet from outside.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from actors.errors import Refused
from actors.messages import (
    BackendFailed,
    BackendStarted,
    BackendStopped,
    ExecutorRemoved,
    ExecutorRunning,
    ExecutorStuck,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from actors.messages import ToDriver
    from actors.metrics.counts import BackendCounts
    from actors.runtime import Address, Clock

__all__ = ["DriverChannel"]


class DriverChannel:
    """Of one Backend, whose start begins now.

    Args:
        driver: who is told.
        profile_of: an executor's profile.
    """

    def __init__(
        self,
        driver: Address,
        clock: Clock,
        *,
        counts: BackendCounts,
        profile_of: Callable[[int], str],
    ) -> None:
        self._driver = driver
        self._clock = clock
        self._counts = counts
        self._profile_of = profile_of
        self._is_over = False
        self._is_stopping = False
        self._began = clock.monotonic()
        """When the start began, or the stop."""

    def tell(self, message: ToDriver | None) -> None:
        """Say it, unless the last word is said, or there is nothing to be said."""
        if message is not None and not self._is_over:
            self._driver.tell(message)
            self._count(message)

    def stop_begins(self) -> None:
        """Of how long it takes the end will tell."""
        self._is_stopping = True
        self._began = self._clock.monotonic()

    def end(self, last_word: BackendStopped | BackendFailed) -> None:
        """Say it, unless another one was said."""
        if self._is_over:
            return
        self._is_over = True
        if self._is_stopping:
            self._counts.stop_seconds = self._clock.monotonic() - self._began
        self._driver.tell(last_word)

    @contextmanager
    def crashes_told(self) -> Iterator[None]:
        """What the Backend dies of in here is what the driver should hear."""
        try:
            yield
        except Refused:
            raise
        except BaseException as error:
            self.end(BackendFailed(error))
            raise

    def _count(self, told: ToDriver) -> None:
        match told:
            case ExecutorRunning(executor_id):
                self._counts.running.add(self._profile_of(executor_id))
            case ExecutorStuck(executor_id):
                self._counts.stuck.add(self._profile_of(executor_id))
            case ExecutorRemoved(executor_id, reason):
                self._counts.removed.add(self._profile_of(executor_id), reason.kind.name)
            case BackendStarted():
                self._counts.start_seconds = self._clock.monotonic() - self._began
            case _:
                pass
