"""Why creation in a profile is blocked, as a value made from an error of the API or from a limit.

A block is reported when it begins, when another one replaces it, and when it ends. Repeated errors are the same block
if they differ only in the pod's name and in numbers.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from actors import errors
from actors.kube.quantities import parse_quantity
from actors.kube.retries import lacks_server

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime
    from decimal import Decimal

__all__ = ["QUOTA", "CreationBlock"]

QUOTA: Final = frozenset({errors.QuotaExceeded.__name__, "quota_too_small"})
"""The causes of blocks by a quota."""

_ADMISSION: Final[tuple[tuple[str, str, re.Pattern[str]], ...]] = (
    ("namespace", "the namespace is being deleted", re.compile(r"because it is being terminated")),
    (
        "policy",
        "the pod breaks a rule of the namespace",
        re.compile(
            r"violates PodSecurity |(?:maximum|minimum) \S+ usage per \S+ is|max limit to request ratio per "
            r"|failed quota: .* must specify|ValidatingAdmissionPolicy '.* denied request"
        ),
    ),
    (
        "webhook",
        "an admission webhook refuses the pod",
        re.compile(r"admission webhook .* denied the request|image policy webhook backend denied"),
    ),
    (
        "missing",
        "the pod needs what is not there yet",
        re.compile(
            r"error looking up service account|no PriorityClass with name .* was found|RuntimeClass .* not found"
            r"|status unknown for quota"
        ),
    ),
)
"""Causes that have no class of their own, by the words of the admission plugins in 1.34 to 1.37
(`plugin/pkg/admission`: `namespace/lifecycle`, `security/podsecurity`, `limitranger`, `resourcequota`,
`serviceaccount`, `priority`, `runtimeclass`, `imagepolicy`). Nearly all are a 403; a webhook chooses its code."""

_NUMBERS: Final = re.compile(r"exceeded quota: .*?, requested: (\S*), used: \S*, limited: (\S*)")
"""What a quota's refusal says of each of its resources that lacks room."""

_MEANINGS: Final[tuple[tuple[type[errors.ApiError], str], ...]] = (
    (errors.QuotaExceeded, "the namespace has no room"),
    (errors.Forbidden, "the API server does not allow it"),
    (errors.Unauthorized, "the API server does not accept our credential"),
    (errors.Invalid, "the manifest is invalid"),
    (errors.BadRequest, "the request is refused"),
    (errors.Altered, "the cluster makes other pods than are requested"),
    (errors.TooLarge, "the pod is larger than the API server takes"),
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
        name, meaning = _kind(error)
        if name == "namespace":
            return cls(name, f"{meaning}: {error}")
        text, *_ = error.message.partition(", requested: ")
        fields = ",".join(sorted({field for field, _ in error.causes})) if isinstance(error, errors.Invalid) else ""
        return cls(
            name,
            f"{meaning}: {error}{_next_try(error, retry_at)}",
            f"{error.reason}/{fields or re.sub(r'[0-9]+', '', text)}",
        )

    def is_same(self, other: CreationBlock | None) -> bool:
        """Whether this is the same block, perhaps with another message."""
        return other is not None and (self.cause, self.identity) == (other.cause, other.identity)


def _kind(error: errors.ApiError) -> tuple[str, str]:
    """Return the cause of a block by this error, and what it means."""
    if isinstance(error, errors.NotFound):
        return "namespace", "the namespace does not exist"
    if isinstance(error, errors.QuotaExceeded):
        if _is_larger_than_quota(error.message):
            return "quota_too_small", "one executor requests more than the whole quota of the namespace"
    elif isinstance(error, errors.Forbidden | errors.BadRequest | errors.Invalid):
        for cause, meaning, words in _ADMISSION:
            if words.search(error.message):
                return cause, meaning
    elif isinstance(error, errors.Unavailable) and error.status and not lacks_server(error):
        return type(error).__name__, "the API server fails to create the pod"
    return type(error).__name__, next(meaning for kind, meaning in _MEANINGS if isinstance(error, kind))


def _is_larger_than_quota(message: str) -> bool:
    """Whether a single request is larger than the limit, so that no executor that ends makes room for it."""
    if (found := _NUMBERS.search(message)) is None:
        return False
    requested, limits = (dict(_amounts(text)) for text in found.groups())
    return any(amount > limits[name] for name, amount in requested.items() if name in limits)


def _amounts(text: str) -> Iterator[tuple[str, Decimal]]:
    for each in text.split(","):
        name, _, value = each.rpartition("=")
        if (amount := parse_quantity(value)) is not None:
            yield name, amount


def _next_try(error: errors.ApiError, retry_at: datetime | None) -> str:
    """Say until when creation waits, and on whose word."""
    if retry_at is None:
        return ""
    asked = error.retry_after
    why = f", because the server asks for {asked.total_seconds():.0f}s" if asked else ""
    return f"; next try at {retry_at:%H:%M:%S} UTC{why}"
