"""Why creation in a profile is blocked, as a value; an error of the API makes one.

A block is reported when it begins, when another takes its place, and when it ends. In between, the next error is the
same story, though it names another pod and other numbers: `identity` tells.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
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

if TYPE_CHECKING:
    from datetime import datetime

__all__ = ["CreationBlock"]

_TERMINATING: Final = "because it is being terminated"
"""The API server's NamespaceLifecycle admission, of a namespace: a 403 Forbidden with these words."""

_MEANINGS: Final[tuple[tuple[type[ApiError], str], ...]] = (
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
    (ApiError, "the API server refuses it"),
)
"""The first class that fits."""


@dataclass(frozen=True, slots=True)
class CreationBlock:
    """One cause, in one word and in a sentence."""

    cause: str
    """The class of the API's error, or what else blocks creation; a value of the metric's label `cause`."""
    message: str
    """For people: what it means, and the API's own words."""
    identity: str = ""
    """Two errors of one identity are one block: the same but for the pod's name and for how much of a quota is used."""
    since: datetime | None = field(default=None, compare=False)

    @classmethod
    def of(cls, error: ApiError) -> CreationBlock:
        """The block that the API's error makes. A namespace that is being deleted is gone in the end: one block."""
        meaning = next(meaning for kind, meaning in _MEANINGS if isinstance(error, kind))
        if isinstance(error, Forbidden) and _TERMINATING in error.message:
            return cls("namespace", f"the namespace is being deleted: {error}")
        if isinstance(error, NotFound):
            return cls("namespace", f"{meaning}: {error}")
        name, (text, *_) = type(error).__name__, error.message.partition(", requested: ")
        fields = ",".join(sorted({field for field, _ in error.causes})) if isinstance(error, Invalid) else ""
        return cls(name, f"{meaning}: {error}", f"{error.reason}/{fields or re.sub(r'[0-9]+', '', text)}")

    def is_same(self, other: CreationBlock | None) -> bool:
        """Whether it is the same block, be it in other words."""
        return other is not None and (self.cause, self.identity) == (other.cause, other.identity)
