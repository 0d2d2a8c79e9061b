"""What blocks the creation of executors, before the Allocator may begin. Plain values."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from actors.messages import ProfileStatus

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime

    from actors.messages import LedgerEntry

__all__ = ["Blockers"]


@dataclass(frozen=True, slots=True)
class _Blocker:
    words: str
    since: datetime
    quiet: bool


class Blockers:
    """By what, in words for a person, and since when. True while anything does."""

    def __init__(self) -> None:
        self._blockers: dict[str, _Blocker] = {}
        self._told = ""

    def __bool__(self) -> bool:
        return bool(self._blockers)

    def of(self, what: str) -> str | None:
        """Why this holds creation up, None if it does not."""
        return self._blockers[what].words if what in self._blockers else None

    def is_quiet(self, what: str) -> bool:
        """This holds creation up, which was never news."""
        return what in self._blockers and self._blockers[what].quiet

    def begin(self, what: str, words: str, now: datetime, *, quiet: bool = False) -> None:
        """This holds creation up from now on, or for another reason than before; `quiet`: it is shown, but no news."""
        since = self._blockers[what].since if what in self._blockers else now
        self._blockers[what] = _Blocker(words, since, quiet)

    def end(self, what: str) -> None:
        """This does not any more."""
        self._blockers.pop(what, None)

    def news(self) -> str | None:
        """What is to be told: the words, nothing in words if nothing holds it up any more, None if that was told."""
        news = "; ".join(blocker.words for blocker in self._blockers.values() if not blocker.quiet)
        if news == self._told:
            return None
        self._told = news
        return news

    def over(
        self, profiles: Mapping[str, ProfileStatus], entries: Iterable[LedgerEntry]
    ) -> Mapping[str, ProfileStatus]:
        """The Allocator's counts; while anything holds it up nobody counts, but executors come and go: by the book."""
        if not self._blockers:
            return profiles
        present = [entry for entry in entries if entry.is_present]
        going = Counter(entry.profile for entry in present if entry.terminating)
        running = Counter(entry.profile for entry in present if entry.running and not entry.terminating)
        pending = Counter(entry.profile for entry in present if not entry.running and not entry.terminating)
        words = "; ".join(blocker.words for blocker in self._blockers.values())
        since = min(blocker.since for blocker in self._blockers.values())
        return {
            name: replace(
                profiles.get(name, ProfileStatus()),
                requested=0,
                pending=pending[name],
                running=running[name],
                terminating=going[name],
                blocked=words,
                blocked_since=since,
                blocked_by=next(iter(self._blockers)),
            )
            for name in sorted({*profiles, *running, *pending, *going})
        }
