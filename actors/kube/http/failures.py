"""From failures of a request to `ApiError`s, whose messages are sentences that name the server.

No exception of urllib3, ssl or socket leaves this package, and no message repeats a header, a token or a request.
"""

from __future__ import annotations

import errno
import http.client
import ssl
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Final

from urllib3 import exceptions

from actors.errors import Ambiguous, ApiError, Unavailable, Untrusted
from actors.kube.http import decode
from actors.kube.http.body import TooLarge
from actors.kube.status import error_from_status, wait_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import timedelta

    from actors.kube.auth.credentials import Credential
    from actors.kube.http.chunks import Answer

__all__ = ["late", "lost", "refused", "unanswered", "unreadable", "untrusted"]

_LONGEST_QUOTE: Final = 200
"""Characters that an error quotes of a body that is no `Status`, such as a proxy's page."""

LONGEST_NUMBER: Final = 20
"""Digits of a number of seconds that are read: more than any that counts."""

_FILE_LIBRARIES: Final = frozenset({"ASN1", "PEM", "X509"})
"""The OpenSSL libraries that fail on certificate and key files. Data from the peer fails in `SSL`."""

_UNREADABLE: Final = frozenset({errno.ENOENT, errno.EACCES, errno.EISDIR})
"""Errors of reading a file that using a connection does not raise."""


def refused(
    response: Answer,
    body: bytes,
    server: str,
    now: datetime,
    *,
    credential: str,
    redacted: Callable[[str], str],
) -> ApiError:
    """Return the error of an answer that is not 2xx.

    `credential` is the source of the credential; `redacted` returns a text of the server without the credential.
    """
    status: Mapping[str, object] = decode.status(body)
    if not status.get("message"):
        quote = " ".join(redacted(body.decode("utf-8", "replace"))[:4096].split())[:_LONGEST_QUOTE]
        phrase = f"{response.status} {redacted(response.reason or '')}".strip()
        status = {**status, "message": f"{server} answered {phrase}" + (f": {quote}" if quote else "")}
    if response.status == 401:  # the server's own message is just "Unauthorized"
        status = {**status, "message": f"{server} does not accept the credential of {credential}: {status['message']}"}
    retry_after = _retry_after(response.headers.get("Retry-After"), now)
    return error_from_status(status, response.status, retry_after, redacted)


def untrusted(error: BaseException, server: str, credential: Credential) -> Untrusted | None:
    """Return the error of a connection that failed because of a certificate; None for any other failure.

    The server has not processed the request: the TLS handshake comes first.
    """
    cause = _first_cause(error)
    match error, cause:
        case exceptions.SSLError(), ssl.SSLCertVerificationError():
            problem = f"{_problem(error)} (it was checked against {credential.authority})"
        case exceptions.SSLError(), ssl.SSLError() if cause.library in _FILE_LIBRARIES:
            problem = f"{_files(credential)} cannot be used: {_reason(cause)}"
        case exceptions.SSLError(), ssl.SSLError() if _is_refusal(cause.reason or ""):
            problem = f"it does not accept the client certificate of {credential.source}: {_reason(cause)}"
        case exceptions.SSLError() | exceptions.ProtocolError(), OSError() if cause.errno in _UNREADABLE:
            problem = f"{_files(credential)} cannot be read: {cause.strerror}"
        case _:
            return None
    return Untrusted(f"there is no TLS connection to {server}: {problem}")


def lost(error: BaseException, server: str, *, sent: bool, write: bool) -> ApiError:
    """Return the error of a request without an answer, or with half of one."""
    return unanswered(_sentence(error, server), carried_out=sent and write)


def late(server: str, limit: timedelta, *, started: bool, sent: bool, write: bool) -> ApiError:
    """Return the error of a request that reached its limit."""
    seconds = f"{limit.total_seconds():g} s"
    if not started:
        return Unavailable(
            f"the request to {server} was not sent: no worker was free, or it had no credential, in {seconds}"
        )
    if not sent:
        return Unavailable(f"there was no connection to {server} in {seconds}")
    return unanswered(f"{server} gave no full answer in {seconds}", carried_out=write)


def unreadable(error: Exception, server: str, *, write: bool, redacted: Callable[[str], str]) -> ApiError:
    """Return the error of a 2xx answer that cannot be decoded."""
    problem = redacted(str(error))  # which may quote a value
    return unanswered(f"{server} answered with something other than the request asks for: {problem}", carried_out=write)


def unanswered(sentence: str, *, carried_out: bool) -> ApiError:
    """Return `Ambiguous` if the request may have been carried out, else `Unavailable`."""
    return Ambiguous(f"{sentence}; the request may have been carried out") if carried_out else Unavailable(sentence)


def _retry_after(header: str | None, now: datetime) -> timedelta | None:
    """Parse `Retry-After`: a number of seconds or a date (RFC 9110 §10.2.3). None if it is neither."""
    if header is None:
        return None
    text = header.strip()
    if text.isascii() and text.isdecimal():
        return wait_of(int(text[:LONGEST_NUMBER]))
    try:
        date = parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return None
    return wait_of(((date if date.tzinfo else date.replace(tzinfo=UTC)) - now).total_seconds())


def _sentence(error: BaseException, server: str) -> str:
    if isinstance(cause := _first_cause(error), TooLarge):
        return f"{server} {cause}"
    match error:
        case exceptions.NameResolutionError():
            return f"the name of {server} cannot be resolved: {_problem(error)}"
        case exceptions.NewConnectionError() | exceptions.ConnectTimeoutError():
            return f"cannot connect to {server}: {_problem(error)}"
        case exceptions.ProxyError():
            return f"the proxy on the way to {server} failed: {_problem(error)}"
        case exceptions.SSLError() | ssl.SSLError():
            return f"there is no TLS connection to {server}: {_problem(error)}"
        case exceptions.DecodeError():
            return f"{server} answered with a body that cannot be decompressed"
        case exceptions.ProtocolError() | http.client.HTTPException() | OSError():
            return f"the connection to {server} was cut: {_problem(error)}"
        case _:
            return f"the request to {server} failed: {_problem(error)}"


def _is_refusal(reason: str) -> bool:
    """Whether OpenSSL's reason is the alert of a server that refuses the client certificate, or its absence."""
    return "_ALERT_" in reason and ("CERTIFICATE" in reason or "UNKNOWN_CA" in reason)


def _files(credential: Credential) -> str:
    return f"one of the files {', '.join(credential.connection.files)}"


def _reason(error: ssl.SSLError) -> str:
    return (error.reason or "no reason").replace("_", " ").lower()


def _problem(error: BaseException) -> str:
    """Describe the first cause in a text of our own: urllib3 and http.client may quote their input."""
    match cause := _first_cause(error):
        case ssl.SSLCertVerificationError():
            return f"its certificate is not accepted: {cause.verify_message}"
        case http.client.IncompleteRead():
            return "the answer is incomplete"
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


def _first_cause(error: BaseException) -> BaseException:
    while (deeper := _wrapped_by(error)) is not None:
        error = deeper
    return error


def _wrapped_by(error: BaseException) -> BaseException | None:
    """Return the exception that urllib3 wrapped, as the cause or as the last argument."""
    if error.__cause__ is not None:
        return error.__cause__
    wrapped = error.args[-1] if error.args else None
    return wrapped if isinstance(wrapped, BaseException) else None
