"""`Autoscaler`: a target that follows a backlog, such as a queue of jobs whose workers fetch them themselves.

The target is the most that the last looks asked for, so that a short pause of the queue ends nobody. Only idle
executors end. `scale` is called only if the target changes, because each call forgives earlier failures to start.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, TypeAlias, final

from actors.fleet.waiting import Pause
from actors.text import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable

    from actors.fleet.door import Door
    from actors.fleet.waiting import Steps

__all__ = ["Autoscaler", "Backlog"]

logger = get_logger(__name__)

Backlog: TypeAlias = tuple[int, Collection[str]]
"""How many jobs wait, and the names of the pods whose executors have one."""

NO_GRACE: Final = timedelta()
"""An idle executor has nothing to finish: it gets SIGTERM at once, and then has its pod's own grace period."""


@final
class Autoscaler:
    """Follows one backlog.

    Args:
        door: of the fleet.
        wanted: returns how many executors so many jobs need.
        every: the time between two looks.
        looks: how many looks the target remembers.
        profile: whose target follows.

    Raises:
        ValueError: an argument is not allowed.
    """

    def __init__(self, door: Door, wanted: Callable[[int], int], *, every: timedelta, looks: int, profile: str) -> None:
        if not isinstance(looks, int) or isinstance(looks, bool) or looks < 1:
            raise ValueError(f"looks = {looks!r}: must be a whole number, at least 1")
        names = door.settings.profile_names
        if profile not in names:
            raise ValueError(f"profile = {profile!r}: there is no such profile; there are {', '.join(names)}")
        self._door = door
        self._wanted = wanted
        self._every = every
        self._profile = profile
        self._recent: deque[int] = deque(maxlen=looks)
        self._target: int | None = None
        self._busy: frozenset[int] = frozenset()
        """The executors that are marked busy."""

    def follow(self, backlog: Backlog) -> Steps[None]:
        """Note who is busy, set the target that this look asks for, and wait until the next one.

        Raises:
            TypeError: the look did not return a backlog.
            FleetEnded: the fleet has ended.
        """
        waiting, pods = _checked(backlog)
        executors = [each for each in self._door.executors().values() if each.profile == self._profile]
        busy = frozenset(each.id for each in executors if each.pod in pods)
        for executor_id in busy ^ self._busy:
            self._door.mark(executor_id, busy=executor_id in busy)
        self._busy = busy
        self._recent.append(self._wanted(waiting + len(busy)))
        target = max(self._recent)
        if target != self._target:
            ended = yield from self._door.scale({self._profile: target}, "idle", NO_GRACE)
            self._target = target
            logger.info(
                "target follows the backlog: profile=%s waiting=%d busy=%d target=%d ended=%s",
                *(self._profile, waiting, len(busy), target, list(ended)),
            )
        yield Pause(lambda: self._door.state.is_over, self._door.state, self._every)
        self._door.check_alive()


def _checked(backlog: Any) -> Backlog:
    match backlog:
        case (int(waiting), Collection() as pods) if not isinstance(pods, str | bytes) and waiting >= 0:
            return waiting, pods
    raise TypeError(f"look returned {backlog!r}: must be how many jobs wait, and the pods whose executors have one")
