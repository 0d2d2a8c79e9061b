"""What blocks the creation of executors before the Allocator may begin: the lease, the driver's pod. Plain values."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from actors.messages import ProfileStatus

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime

    from actors.messages.internal import LedgerEntry

__all__ = ["Blockers"]


@dataclass(frozen=True, slots=True)
class _Blocker:
    reason: str
    since: datetime
    quiet: bool


class Blockers:
    """The blockers by name, each with a reason for people and since when. True while there is one."""

    def __init__(self) -> None:
        self._blockers: dict[str, _Blocker] = {}
        self._notified = ""
        """The reason that the driver was notified of."""

    def __bool__(self) -> bool:
        return bool(self._blockers)

    @property
    def notified_of(self) -> str | None:
        """The name of the first blocker that the driver is notified of, None if there is none."""
        return next((name for name, blocker in self._blockers.items() if not blocker.quiet), None)

    def of(self, name: str) -> str | None:
        """Return the reason of one blocker, None if it does not block."""
        return self._blockers[name].reason if name in self._blockers else None

    def is_quiet(self, name: str) -> bool:
        """Whether this blocks, and the driver is not to be notified of it."""
        return name in self._blockers and self._blockers[name].quiet

    def begin(self, name: str, reason: str, now: datetime, *, quiet: bool = False) -> None:
        """Block, or change the reason. A `quiet` blocker is in the status, but the driver is not notified of it."""
        since = self._blockers[name].since if name in self._blockers else now
        self._blockers[name] = _Blocker(reason, since, quiet)

    def end(self, name: str) -> None:
        """Block no longer."""
        self._blockers.pop(name, None)

    def changed(self) -> str | None:
        """Return the reason to notify the driver of, "" if nothing blocks any more, None if it was notified of that."""
        reason = "; ".join(blocker.reason for blocker in self._blockers.values() if not blocker.quiet)
        if reason == self._notified:
            return None
        self._notified = reason
        return reason

    def over(
        self, profiles: Mapping[str, ProfileStatus], entries: Iterable[LedgerEntry]
    ) -> Mapping[str, ProfileStatus]:
        """Return the Allocator's counts. While creation is blocked here it does not count: count the ledger instead."""
        if not self._blockers:
            return profiles
        present = [entry for entry in entries if entry.is_present]
        terminating = Counter(entry.profile for entry in present if entry.terminating)
        running = Counter(entry.profile for entry in present if entry.running and not entry.terminating)
        pending = Counter(entry.profile for entry in present if not entry.running and not entry.terminating)
        reason = "; ".join(blocker.reason for blocker in self._blockers.values())
        since = min(blocker.since for blocker in self._blockers.values())
        return {
            name: replace(
                profiles.get(name, ProfileStatus()),
                requested=0,
                pending=pending[name],
                running=running[name],
                terminating=terminating[name],
                blocked=reason,
                blocked_since=since,
                blocked_by=next(iter(self._blockers)),
            )
            for name in sorted({*profiles, *running, *pending, *terminating})
        }
