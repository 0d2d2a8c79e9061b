"""When a Backend's start is done, and what ends it.

Done means that the fleet was listed and that our rights are known, as far as the server says. Errors that waiting may
heal are waited out, for as long as `backend.start_timeout`. What is made of the answers is pure; `Startup` asks.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias, assert_never

from actors import kube
from actors.backend.rbac import LIST_PODS, Reviews, Right, lacking, needed
from actors.errors import ApiError, BadRequest, Forbidden, NotFound, Unauthorized, Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable
    from datetime import timedelta

    from actors.kube.api import PodApi
    from actors.messages import Freshness
    from actors.runtime import Actor, Address
    from actors.settings.model import Settings

__all__ = ["Outcome", "Startup", "StartupMessage", "opened", "out_of_time"]

logger = logging.getLogger(__name__)

Outcome: TypeAlias = bool | ApiError
"""Whether the start is done, or the error that ends it."""


@dataclass(frozen=True, slots=True)
class _Reviewed:
    """What the server says of one of our rights."""

    right: Right
    answer: bool | ApiError


class _TimedOut:
    """`backend.start_timeout` is over."""


StartupMessage: TypeAlias = _Reviewed | _TimedOut
"""What the Backend hands on to `Startup.handle`."""

_TIMER: Final = "start"


class Startup:
    """One start of one Backend. Calls `done()` or `failed(error)`, once, unless it is ended before.

    `sources` answers with what each source said last, `before` with why nothing could be listed yet, if that is known.
    """

    def __init__(
        self,
        backend: Actor,
        api: PodApi,
        settings: Settings,
        *,
        sources: Callable[[], Collection[Freshness]],
        before: Callable[[], ApiError | None],
        done: Callable[[], None],
        failed: Callable[[ApiError], None],
    ) -> None:
        self._backend = backend
        self._api = api
        self._timeout = settings.backend.start_timeout
        self._reviews = Reviews(needed(settings))
        self._sources = sources
        self._before = before
        self._done = done
        self._failed = failed
        self._is_over = False

    def begin(self) -> None:
        """Time runs."""
        self._backend.timers.start(_TIMER, self._timeout, _TimedOut())

    def review_rights(self) -> None:
        """Ask for all at once, beside the first list. Parts that come up again find the answers here."""
        for right in self._reviews.awaited:
            self._api.send(
                kube.ReviewAccess(right.verb, right.resource), partial(_tell_answer, self._backend.myself, right)
            )

    def end(self) -> None:
        """Nobody waits for it any more."""
        self._is_over = True
        self._backend.timers.cancel(_TIMER)

    def handle(self, message: StartupMessage) -> None:
        """One case a message."""
        match message:
            case _Reviewed(right, answer):
                self._reviews = self._reviews.answered(right, answer)
                self.look()
            case _TimedOut():
                late = out_of_time(self._reviews, self._sources(), self._api.namespace, self._timeout)
                self._judge(self._before() or late)
            case _:
                assert_never(message)

    def look(self) -> None:
        """Something is known that was not before."""
        self._judge(opened(self._reviews, self._sources(), self._api.namespace))

    def _judge(self, outcome: Outcome) -> None:
        if self._is_over or outcome is False:
            return
        self.end()
        if isinstance(outcome, ApiError):
            self._failed(outcome)
            return
        if self._reviews.error is not None:
            logger.info("our rights cannot be reviewed, going on as if we had them: error=%s", self._reviews.error)
        self._done()


def _tell_answer(backend: Address, right: Right, answer: bool | ApiError) -> None:
    backend.tell(_Reviewed(right, answer))


def opened(reviews: Reviews, sources: Iterable[Freshness], namespace: str) -> Outcome:
    """What is to be made of the answers so far."""
    words = tuple(sources)
    synced = any(word.synced_at is not None for word in words)
    errors = [] if synced else [word.error for word in words if word.error is not None]
    for error in errors:
        if isinstance(error, Unauthorized | NotFound | BadRequest):
            return error
    if reviews.awaited:  # so that all that is missing is said at once
        return False
    refused = next((error for error in errors if isinstance(error, Forbidden)), None)
    missing = {*reviews.missing, *((LIST_PODS,) if refused is not None else ())}
    return lacking(missing, namespace, said=refused) if missing else synced


def out_of_time(reviews: Reviews, sources: Iterable[Freshness], namespace: str, timeout: timedelta) -> Outcome:
    """The same when there is no more waiting: a review that is not answered is no reason to fail, a list is."""
    words = tuple(sources)
    outcome = opened(reviews.abandoned(), words, namespace)
    if outcome is not False:
        return outcome
    errors = [word.error for word in words if word.error is not None]
    return errors[-1] if errors else Unavailable(f"the API did not answer a list within {timeout.total_seconds():g} s")
