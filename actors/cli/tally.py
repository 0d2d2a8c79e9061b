"""`Tally`: what a run came to, from its events. Pure."""

from __future__ import annotations

import re
from collections import Counter, deque
from typing import TYPE_CHECKING, Final, final

from actors.pods.loss import LossKind

if TYPE_CHECKING:
    from collections.abc import Mapping

    from actors.cli.events import Detail, Event
    from actors.messages import ProfileStatus

__all__ = ["Tally", "counted", "gist", "stands_by"]

_LEASE: Final = "lease"
"""`blocked_by` while another driver holds the lease: this one stands by, as it was asked to."""


@final
class Tally:
    """How many executors ran, were lost and were replaced."""

    def __init__(self) -> None:
        self.ran = 0
        self.lost: Counter[str] = Counter()
        """How many ended before the fleet was stopped, by loss kind; and those that ended otherwise since."""
        self.lost_by_profile: Counter[str] = Counter()
        self.replaced = 0
        self.stopping: str | None = None
        self._newest = 0
        self._ran: set[int] = set()
        self._to_replace: dict[str, deque[int]] = {}
        """The newest id at the time of each loss, by profile: an executor with a higher one is the replacement."""

    def apply(self, event: Event) -> None:
        """Count one event."""
        profile = str(event.details.get("profile"))
        if event.executor_id is not None:
            self._newest = max(self._newest, event.executor_id)
        match event.event:
            case "running" if event.executor_id is not None and event.executor_id not in self._ran:
                self._count_start(profile, event.executor_id)
            case "removed" if self.stopping is None or event.reason != LossKind.KILLED_BY_DRIVER:
                self.lost[str(event.reason)] += 1
                self.lost_by_profile[profile] += 1
                self._to_replace.setdefault(profile, deque()).append(self._newest)
            case "stopping":
                self.stopping = event.reason
            case _:
                pass

    def _count_start(self, profile: str, executor_id: int) -> None:
        self._ran.add(executor_id)
        self.ran += 1
        waiting = self._to_replace.get(profile)
        if waiting and executor_id > waiting[0]:
            waiting.popleft()
            self.replaced += 1

    def nothing_made(self, profiles: Mapping[str, ProfileStatus]) -> str | None:
        """Return why no pod of any executor was ever made, None if one was or if nothing prevented it."""
        blocked = {name: status for name, status in profiles.items() if status.blocked and status.blocked_by != _LEASE}
        causes = {status.blocked: name for name, status in blocked.items()}
        if self._newest or not causes:
            return None
        return f"no executor could be made: {'; '.join(f'{name!r}: {cause}' for cause, name in causes.items())}"

    def sums(self) -> Mapping[str, Detail]:
        """Return the numbers, for programs."""
        return {"ran": self.ran, "lost": dict(self.lost), "replaced": self.replaced}

    def __str__(self) -> str:
        text = f"{self.ran} executor{'s' * (self.ran != 1)} ran"
        if self.lost:
            text += f", {self.lost.total()} lost ({counted(self.lost)}), {self.replaced} replaced"
        return text


def counted(losses: Mapping[str, int]) -> str:
    """Return losses by kind as text, the most frequent kind first."""
    return ", ".join(f"{kind} {count}" for kind, count in sorted(losses.items(), key=lambda item: (-item[1], item[0])))


def gist(text: str) -> str:
    """Return what two texts have in common that differ only in numbers: ids, times, how much of a quota is used."""
    return re.sub(r"[0-9]+", "0", text)


def stands_by(profiles: Mapping[str, ProfileStatus]) -> bool:
    """Return whether another driver may hold the lease, so that the executors may be another driver's."""
    return any(status.blocked_by == _LEASE for status in profiles.values())
