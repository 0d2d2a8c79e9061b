"""`Watchdog`: whether one process of a fleet works, by what its Backend hears of it."""

from __future__ import annotations

from datetime import timedelta
from enum import Enum, auto
from typing import TYPE_CHECKING, Final, final

from actors.runtime import Hung

if TYPE_CHECKING:
    from actors.backend.process.frames import Hang

__all__ = ["Stage", "Watchdog", "ping_interval"]

PING_EVERY: Final = timedelta(seconds=5)
"""At the most; oftener if a child may be busy for less than four times as long."""

PINGS_PER_PATIENCE: Final = 4

MOST_UNANSWERED: Final = 3
"""A process that answers so many pings with nothing is killed: it hangs, or is stopped. They are counted, as this
process may have been stopped itself."""

START_LIMIT: Final = timedelta(minutes=1)
"""A process that is not ready so long after it was sent the first frame is killed. That takes a second, and many beside
others that compute. What is counted are the intervals between pings, for the same reason."""

MOST_HANGS: Final = 2
"""A process is killed when so many pongs in a row say that a child hangs. If both processes were stopped, the driver's
may wake first: then the child's may report a child as hung that could not tell the Backend something meanwhile."""


class Stage(Enum):
    """What a process has reached. It never goes back."""

    LAUNCHED = auto()
    """It was sent nothing. A login program may run for its first frame."""
    SETTING_UP = auto()
    """It was sent the first frame, and is not ready: `START_LIMIT` runs."""
    READY = auto()
    """It runs children, and is pinged."""
    ENDED = auto()
    """It was reaped, and its children are lost."""


@final
class Watchdog:
    """Counts what speaks against one process."""

    def __init__(self) -> None:
        self._setting_up_for = timedelta()
        self._unanswered = 0
        """Pings since the process was heard."""
        self._hangs = 0
        """Pongs in a row that say that a child hangs."""

    def heard(self) -> None:
        """The process has sent something."""
        self._unanswered = 0

    def check(self, stage: Stage) -> str:
        """Return why the process is to be killed; "" if nothing speaks against it."""
        if self._unanswered >= MOST_UNANSWERED:
            return "it does not answer"
        if stage is Stage.SETTING_UP and self._setting_up_for >= START_LIMIT:
            return "it does not begin"
        return ""

    def pinged(self) -> None:
        """A ping is about to be sent."""
        self._unanswered += 1

    def sets_up(self, interval: timedelta) -> None:
        """The process has yet another interval to be ready."""
        self._setting_up_for += interval

    def hung(self, hang: Hang | None) -> Hung | None:
        """Take what a pong says of a child that hangs. Return its error if the process is to be killed for it."""
        self._hangs = self._hangs + 1 if hang is not None else 0
        if hang is None or self._hangs < MOST_HANGS:
            return None
        hung = Hung(f"{hang.name} was busy with {hang.message} for {hang.seconds:.1f}s")
        hung.add_note(hang.stack)
        return hung


def ping_interval(patience: timedelta) -> timedelta:
    """Return how often to ping a process in which a child may be busy with one message for as long as `patience`."""
    return min(PING_EVERY, patience / PINGS_PER_PATIENCE)
