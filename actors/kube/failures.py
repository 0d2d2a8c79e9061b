"""What went wrong on the way to the server and back, as `ApiError`s whose message is a sentence that names the server.

No exception of urllib3, ssl or socket leaves this package, and no message repeats a header, a token or a request.
"""

from __future__ import annotations

import http.client
import ssl
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Final

from urllib3 import exceptions

from actors.errors import Ambiguous, ApiError, Unavailable
from actors.kube import decode
from actors.kube.errors import error_from_status

if TYPE_CHECKING:
    from collections.abc import Mapping

    import urllib3

__all__ = ["late", "lost", "refused", "unreadable"]

_LONGEST_QUOTE: Final = 200
"""Characters of a body that is no `Status` (a proxy's page) which are repeated in an error."""

_LONGEST_RETRY_AFTER: Final = timedelta(hours=1)
"""What a server may ask for at most; a date far off is a clock that is wrong."""


def refused(response: urllib3.BaseHTTPResponse, body: bytes, server: str, now: datetime) -> ApiError:
    """The error of an answer that is not 2xx."""
    status: Mapping[str, object] = decode.status(body)
    if not status.get("message"):
        said = " ".join(body[:4096].decode("utf-8", "replace").split())[:_LONGEST_QUOTE]
        phrase = f"{response.status} {response.reason or ''}".strip()
        status = {**status, "message": f"{server} answered {phrase}" + (f": {said}" if said else "")}
    return error_from_status(status, response.status, _retry_after(response.headers.get("Retry-After"), now))


def lost(error: BaseException, server: str, *, sent: bool, write: bool) -> ApiError:
    """The error of a request that got no answer, or half of one."""
    sentence = _sentence(error, server)
    if sent and write:
        return Ambiguous(f"{sentence}; the request may have been carried out")
    return Unavailable(sentence)


def late(server: str, limit: timedelta, *, started: bool, sent: bool, write: bool) -> ApiError:
    """The error of a request that reached its limit."""
    seconds = f"{limit.total_seconds():g} s"
    if not started:
        return Unavailable(
            f"the request to {server} was not sent: no worker was free, or it had no credential, in {seconds}"
        )
    if not sent:
        return Unavailable(f"there was no connection to {server} in {seconds}")
    if write:
        return Ambiguous(f"{server} gave no full answer in {seconds}; the request may have been carried out")
    return Unavailable(f"{server} gave no full answer in {seconds}")


def unreadable(error: Exception, server: str, *, write: bool) -> ApiError:
    """The error of a 2xx answer that is not what was asked for."""
    sentence = f"{server} answered with something else than was asked for: {error}"
    return Ambiguous(f"{sentence}; the request may have been carried out") if write else Unavailable(sentence)


def _retry_after(header: str | None, now: datetime) -> timedelta | None:
    """`Retry-After`, which is a number of seconds or a date (RFC 9110 §10.2.3); None if it is neither."""
    if header is None:
        return None
    text = header.strip()
    if text.isascii() and text.isdecimal() and len(text) < 10:
        return min(timedelta(seconds=int(text)), _LONGEST_RETRY_AFTER)
    try:
        date = parsedate_to_datetime(text)
    except ValueError:
        return None
    wait = (date if date.tzinfo else date.replace(tzinfo=UTC)) - now
    return min(max(wait, timedelta()), _LONGEST_RETRY_AFTER)


def _sentence(error: BaseException, server: str) -> str:
    match error:
        case exceptions.NameResolutionError():
            return f"the name of {server} cannot be resolved: {_words(error)}"
        case exceptions.NewConnectionError() | exceptions.ConnectTimeoutError():
            return f"cannot connect to {server}: {_words(error)}"
        case exceptions.ProxyError():
            return f"the proxy on the way to {server} failed: {_words(error)}"
        case exceptions.SSLError():
            return f"there is no TLS connection to {server}: {_words(error)}"
        case exceptions.DecodeError():
            return f"{server} answered with a body that cannot be decompressed"
        case exceptions.ProtocolError():
            return f"the connection to {server} was cut: {_words(error)}"
        case _:
            return f"the request to {server} failed: {_words(error)}"


def _words(error: BaseException) -> str:
    """The words of the first cause, in which urllib3 and http.client do not quote what they were given."""
    cause = error
    while (deeper := _beneath(cause)) is not None:
        cause = deeper
    match cause:
        case ssl.SSLCertVerificationError():
            return f"its certificate is not accepted: {cause.verify_message}"
        case http.client.IncompleteRead():
            return "the answer is not complete"
        case http.client.RemoteDisconnected():
            return "the server closed it without an answer"
        case http.client.BadStatusLine():
            return "the answer is not HTTP"
        case exceptions.ReadTimeoutError() | exceptions.ConnectTimeoutError() | TimeoutError():
            return "no answer in time"
        case exceptions.LocationParseError() | exceptions.InvalidHeader() | ValueError():
            return type(cause).__name__
        case OSError():
            return cause.strerror or str(cause) or type(cause).__name__
        case _:
            return type(cause).__name__


def _beneath(error: BaseException) -> BaseException | None:
    """What urllib3 wrapped: as the cause, or as the last argument."""
    if error.__cause__ is not None:
        return error.__cause__
    wrapped = error.args[-1] if error.args else None
    return wrapped if isinstance(wrapped, BaseException) else None
