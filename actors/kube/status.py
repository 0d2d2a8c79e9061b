"""From an answer's `Status` to an `ApiError`: the one table from status codes and reasons to classes.

Pure, and never raises: a `Status` may come from a proxy, an old server or a broken one, so every field may be missing
or of another type.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, Final

from actors import errors

__all__ = ["error_from_status", "wait_of"]

_QUOTA_WORDS: Final = "exceeded quota"
"""A quota refusal has no reason of its own: it is a 403 Forbidden whose message contains this."""

_TOO_LARGE: Final = ("etcdserver: request is too large", "trying to send message larger than max")
"""How etcd refuses an object of more than 1.5 MiB, and the server's own client of etcd one of more than 2 MiB. Both
come as a 500 without a reason. Other refusals with `ResourceExhausted` pass: etcd is full, or has too many requests."""

_UID_FIELD: Final = "metadata.uid"
"""A PATCH with another object's UID is refused with 422, as a change of an immutable field. A DELETE gets 409 for the
same failed precondition."""

LONGEST_WAIT: Final = timedelta(days=365)
"""Far below what a `timedelta` and a timer can hold."""

_BY_CODE: Final[Mapping[int, type[errors.ApiError]]] = {
    400: errors.BadRequest,
    401: errors.Unauthorized,
    403: errors.Forbidden,
    404: errors.NotFound,
    408: errors.Unavailable,  # from a proxy: the request was too slow, and not carried out
    409: errors.Conflict,
    410: errors.Gone,
    413: errors.TooLarge,
    422: errors.Invalid,
    429: errors.TooManyRequests,
}


def error_from_status(
    status: Mapping[str, Any], code: int, retry_after: timedelta | None, redacted: Callable[[str], str] = str
) -> errors.ApiError:
    """Return the error of a failed call.

    Args:
        status: the `v1.Status` in the answer's body or in a watch's ERROR event; may be empty.
        code: the answer's HTTP status, or the `code` of the ERROR event.
        retry_after: the answer's `Retry-After`; without it, `details.retryAfterSeconds` counts.
        redacted: returns a text of the server without our credential.
    """
    reason = redacted(_text(status, "reason"))
    message = redacted(_text(status, "message")) or f"the server answered {code} without saying why"
    details = status.get("details")
    details = details if isinstance(details, Mapping) else {}
    causes = tuple((redacted(field), redacted(message)) for field, message in _causes(details))
    return _class_of(code, reason, message, causes)(
        message,
        status=code,
        reason=reason,
        retry_after=_seconds(details) if retry_after is None else retry_after,
        causes=causes,
    )


def _class_of(code: int, reason: str, message: str, causes: tuple[tuple[str, str], ...]) -> type[errors.ApiError]:
    if reason == "AlreadyExists":
        return errors.AlreadyExists
    if reason == "Expired":
        return errors.Gone
    if code == 403 and _QUOTA_WORDS in message:
        return errors.QuotaExceeded
    if code == 422 and {field for field, _ in causes} == {_UID_FIELD}:
        return errors.Conflict
    if code == 500 and any(words in message for words in _TOO_LARGE):
        return errors.TooLarge
    if code >= 500:
        return errors.Unavailable
    return _BY_CODE.get(code, errors.ApiError)


def _causes(details: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    causes = details.get("causes")
    if not isinstance(causes, list):
        return ()
    return tuple((_text(cause, "field"), _text(cause, "message")) for cause in causes if isinstance(cause, Mapping))


def _seconds(details: Mapping[str, Any]) -> timedelta | None:
    seconds = details.get("retryAfterSeconds")
    return wait_of(seconds) if isinstance(seconds, int) and seconds > 0 else None


def wait_of(seconds: float) -> timedelta:
    """Return a wait that a server asks for, whatever number it sends. `retry_delay` bounds it further."""
    return timedelta(seconds=min(max(seconds, 0), LONGEST_WAIT.total_seconds()))


def _text(mapping: Mapping[str, Any], key: str) -> str:
    value = mapping.get(key)
    return value if isinstance(value, str) else ""
