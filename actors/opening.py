"""When a Backend's start is done, and what ends it. Pure.

Done means that the fleet was listed and that our rights are known, as far as the server says. Errors that waiting may
heal are waited out, for as long as `backend.start_timeout`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from actors.errors import ApiError, BadRequest, Forbidden, NotFound, Unauthorized, Unavailable
from actors.rights import LIST_PODS, lacking

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import timedelta

    from actors.messages import Freshness
    from actors.rights import Reviews

__all__ = ["Outcome", "opened", "out_of_time"]

Outcome: TypeAlias = bool | ApiError
"""Whether the start is done, or the error that ends it."""


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
    outcome = opened(reviews.given_up(), words, namespace)
    if outcome is not False:
        return outcome
    errors = [word.error for word in words if word.error is not None]
    return errors[-1] if errors else Unavailable(f"the API did not answer a list within {timeout.total_seconds():g} s")
