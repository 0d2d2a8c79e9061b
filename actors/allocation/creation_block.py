"""Why creation in a profile stands still: what the API refuses or puts off, each class of error in words of its own.

A cause is news when it begins, when another takes its place, and when it ends; in between, the next refusal is the same
story, though it names another pod and other numbers. Plain values in the Allocator's hands; nothing here sends a
message or reads a clock.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from actors.errors import (
    Ambiguous,
    ApiError,
    BadRequest,
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    QuotaExceeded,
    TooManyRequests,
    Unauthorized,
    Unavailable,
    Untrusted,
)
from actors.runtime import Backoff

if TYPE_CHECKING:
    from actors.runtime import Entropy

__all__ = ["CreationBlock", "words"]

CREATE_BACKOFF: Final = Backoff(
    initial=timedelta(seconds=1), maximum=timedelta(minutes=1), reset_after=timedelta(minutes=2), jitter=0.2
)
"""After a POST that the API refused: quota and rights heal from outside, and are looked at again once a minute."""

PUT_OFF_FOR: Final = timedelta(seconds=5)
"""A POST that is tried again for longer than this without an answer is told; shorter waits are everyday."""

_TERMINATING: Final = "because it is being terminated"
"""The API server's NamespaceLifecycle admission, of a namespace: a 403 Forbidden with these words."""

_WORDS: Final[tuple[tuple[type[ApiError], str], ...]] = (
    (QuotaExceeded, "the namespace has no room"),
    (Forbidden, "the API server does not allow it"),
    (Unauthorized, "the API server does not accept our credential"),
    (NotFound, "what the pod belongs to is not there"),
    (Invalid, "what was to be made is invalid"),
    (BadRequest, "the request is refused"),
    (TooManyRequests, "the API server asks us to slow down"),
    (Conflict, "others change the namespace's quota at the same time"),
    (Untrusted, "a certificate is not accepted"),
    (Ambiguous, "the API server does not answer, and pods may have been made all the same"),
    (Unavailable, "the API server is not available"),
)
"""The first class that fits."""


def words(error: ApiError) -> str:
    """What a person is told: what it means, and the API's own words."""
    if _is_terminating(error):
        return f"the namespace is being deleted: {error}"
    meaning = next((words for kind, words in _WORDS if isinstance(error, kind)), "the API server refuses it")
    return f"{meaning}: {error}"


def sort_of(error: ApiError) -> str:
    """Two errors of one sort are one cause: the same but for the pod's name and for how much of a quota is used.

    A namespace that is being deleted is gone in the end.
    """
    if isinstance(error, NotFound) or _is_terminating(error):
        return "namespace"
    told, *_ = error.message.partition(", requested: ")
    fields = ",".join(sorted({field for field, _ in error.causes})) if isinstance(error, Invalid) else ""
    return f"{type(error).__name__}/{error.reason}/{fields or re.sub(r'[0-9]+', '', told)}"


def _is_terminating(error: ApiError) -> bool:
    return isinstance(error, Forbidden) and _TERMINATING in error.message


@dataclass(frozen=True, slots=True)
class _Cause:
    sort: str
    words: str
    since: float


class CreationBlock:
    """Why creation in one profile stands still, until when it does, and what of that was told."""

    def __init__(self) -> None:
        self._refusal: _Cause | None = None
        self._delay: _Cause | None = None
        """What the answers that are awaited are put off for."""
        self._refusals = 0
        self.until = 0.0
        """Not before then is the next request (monotonic)."""
        self.told: str | None = None
        """The words, None while creation does not stand still."""
        self.told_since: datetime | None = None
        self.told_sort: str | None = None
        """The same as the class of the error, or the sort of what else there was."""

    def refused(self, error: ApiError, *, now: float, entropy: Entropy) -> bool:
        """The API refused a POST. Answers whether that is news: the first refusal, or one of another sort."""
        if now >= self.until:  # refusals of one batch are one refusal
            self.until = now + CREATE_BACKOFF.delay(self._refusals, entropy).total_seconds()
            self._refusals += 1
        sort = sort_of(error)
        news = self._refusal is None or self._refusal.sort != sort
        if news:
            self._refusal = _Cause(sort, words(error), now)
        return news

    def hasten(self, now: float) -> None:
        """One of ours has ended: where a quota was full there may be room now."""
        if self._refusal is not None and self._refusal.sort.startswith(QuotaExceeded.__name__):
            self._refusals = 0
            self.until = min(self.until, now + CREATE_BACKOFF.initial.total_seconds())

    def put_off(self, error: ApiError, now: float) -> None:
        """A POST is to be tried again. The sort of trouble may change; how long it has lasted counts from the first."""
        sort = sort_of(error)
        if self._delay is None:
            self._delay = _Cause(sort, words(error), now)
        elif self._delay.sort != sort:
            self._delay = _Cause(sort, words(error), self._delay.since)

    def answered(self) -> None:
        """A POST was answered: nothing is put off any more."""
        self._delay = None

    def got_through(self, *, enough: bool) -> None:
        """A batch made pods and nothing of it was refused: no more waiting. `enough` of them end a refusal."""
        self._refusals, self.until = 0, 0.0
        if enough:
            self._refusal = None

    def rest(self) -> None:
        """Nothing is wanted: whatever is refused holds nobody up. Should more be wanted soon, the wait still counts."""
        self._refusal = None

    def tell(self, others: str | None, *, now: float, at: datetime, sort: str | None = None) -> bool:
        """What is to be told now, `others` being what holds creation up besides the API. Says whether that is news."""
        cause = others
        if self._refusal is not None:
            cause, sort = self._refusal.words, self._refusal.sort
        elif self._delay is not None and now - self._delay.since >= PUT_OFF_FOR.total_seconds():
            cause, sort = self._delay.words, self._delay.sort
        if cause == self.told:
            return False
        self.told, self.told_since = cause, at if cause is not None else None
        self.told_sort = sort.partition("/")[0] if cause is not None and sort is not None else None
        return True
