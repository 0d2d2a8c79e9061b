"""Why creation in a profile is blocked, as a value made from an error of the API or from a limit.

A block is reported when it begins, when another one replaces it, and when it ends. Repeated errors are the same block
if they differ only in the pod's name and in numbers.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from actors import errors

if TYPE_CHECKING:
    from datetime import datetime

__all__ = ["CreationBlock"]

_TERMINATING: Final = "because it is being terminated"
"""The NamespaceLifecycle admission plugin refuses pods with a 403 Forbidden that has this text."""

_MEANINGS: Final[tuple[tuple[type[errors.ApiError], str], ...]] = (
    (errors.QuotaExceeded, "the namespace has no room"),
    (errors.Forbidden, "the API server does not allow it"),
    (errors.Unauthorized, "the API server does not accept our credential"),
    (errors.NotFound, "the namespace does not exist"),
    (errors.Invalid, "the manifest is invalid"),
    (errors.BadRequest, "the request is refused"),
    (errors.Altered, "the cluster makes other pods than are requested"),
    (errors.TooManyRequests, "the API server throttles our requests"),
    (errors.Conflict, "the namespace's quota is being changed concurrently"),
    (errors.Untrusted, "a certificate is not trusted"),
    (errors.Ambiguous, "the API server does not answer, but pods may have been created"),
    (errors.Unavailable, "the API server is not available"),
    (errors.ApiError, "the API server refuses it"),
)
"""What an error means, by the first class that matches."""


@dataclass(frozen=True, slots=True)
class CreationBlock:
    """A cause, as one word and as a sentence."""

    cause: str
    """The class of the API's error, or the limit's name: a value of the metric label `cause`."""
    message: str
    """For people: what it means, and the API's own message."""
    identity: str = ""
    """The same for errors that differ only in the pod's name and in how much of a quota is used."""
    since: datetime | None = field(default=None, compare=False)

    @classmethod
    def of(cls, error: errors.ApiError, retry_at: datetime | None = None) -> CreationBlock:
        """Make the block of an error, after which the next try is sent at `retry_at`, if that is known.

        A namespace that is being deleted and one that is gone are the same block.
        """
        meaning = next(meaning for kind, meaning in _MEANINGS if isinstance(error, kind))
        if isinstance(error, errors.Forbidden) and _TERMINATING in error.message:
            return cls("namespace", f"the namespace is being deleted: {error}")
        if isinstance(error, errors.NotFound):
            return cls("namespace", f"{meaning}: {error}")
        name, (text, *_) = type(error).__name__, error.message.partition(", requested: ")
        fields = ",".join(sorted({field for field, _ in error.causes})) if isinstance(error, errors.Invalid) else ""
        return cls(
            name,
            f"{meaning}: {error}{_next_try(error, retry_at)}",
            f"{error.reason}/{fields or re.sub(r'[0-9]+', '', text)}",
        )

    def is_same(self, other: CreationBlock | None) -> bool:
        """Whether this is the same block, perhaps with another message."""
        return other is not None and (self.cause, self.identity) == (other.cause, other.identity)


def _next_try(error: errors.ApiError, retry_at: datetime | None) -> str:
    """Say until when creation waits, and on whose word."""
    if retry_at is None:
        return ""
    asked = error.retry_after
    why = f", because the server asks for {asked.total_seconds():.0f}s" if asked else ""
    return f"; next try at {retry_at:%H:%M:%S} UTC{why}"
