"""What holds the creation of executors up before the Allocator may begin: a lease, a driver's pod. Plain values."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from actors.messages import ProfileStatus

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime

    from actors.messages import LedgerEntry

__all__ = ["Holdups"]


class Holdups:
    """By what, in words for a person, and since when. True while anything does."""

    def __init__(self) -> None:
        self._words: dict[str, str] = {}
        self._since: dict[str, datetime] = {}
        self._quiet: set[str] = set()
        self._told = ""

    def __bool__(self) -> bool:
        return bool(self._words)

    def of(self, what: str) -> str | None:
        """Why this holds creation up, None if it does not."""
        return self._words.get(what)

    @property
    def words(self) -> str:
        """All of it."""
        return "; ".join(self._words.values())

    def is_quiet(self, what: str) -> bool:
        """This holds creation up, which was never news."""
        return what in self._quiet

    def begin(self, what: str, words: str, now: datetime, *, quiet: bool = False) -> None:
        """This holds creation up from now on, or for another reason than before; `quiet`: it is shown, but no news."""
        self._since.setdefault(what, now)
        self._words[what] = words
        if quiet:
            self._quiet.add(what)
        else:
            self._quiet.discard(what)

    def end(self, what: str) -> None:
        """This does not any more."""
        self._since.pop(what, None)
        self._words.pop(what, None)
        self._quiet.discard(what)

    def news(self) -> str | None:
        """What is to be told: the words, nothing in words if nothing holds it up any more, None if that was told."""
        news = "; ".join(words for what, words in self._words.items() if what not in self._quiet)
        if news == self._told:
            return None
        self._told = news
        return news

    def over(
        self, profiles: Mapping[str, ProfileStatus], entries: Iterable[LedgerEntry]
    ) -> Mapping[str, ProfileStatus]:
        """The Allocator's counts; while anything holds it up nobody counts, but executors come and go: by the book."""
        if not self._words:
            return profiles
        present = [entry for entry in entries if entry.told_at is not None and entry.removed_at is None]
        going = Counter(entry.profile for entry in present if entry.terminating)
        running = Counter(entry.profile for entry in present if entry.running and not entry.terminating)
        pending = Counter(entry.profile for entry in present if not entry.running and not entry.terminating)
        since = min(self._since.values())
        return {
            name: replace(
                profiles.get(name, ProfileStatus()),
                newly_created=0,
                pending=pending[name],
                running=running[name],
                terminating=going[name],
                blocked=self.words,
                blocked_since=since,
                blocked_by=next(iter(self._words)),
            )
            for name in sorted({*profiles, *running, *pending, *going})
        }
