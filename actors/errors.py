"""Every exception that this library raises, or passes as a value, in one tree.

::

    ExecutorPodsError
    ├── SettingsError            a setting, template, kubeconfig or flag is wrong; nothing was started
    ├── MissingExtra             a package is not installed; the message says which extra brings it
    ├── NoThread                 the system starts no further thread; a `RuntimeError`
    ├── Refused                  the receiver cannot accept a message; an error for its sender only
    ├── ActorCrashed             the actor crashed while it handled the question
    ├── ExecutorLost             a leased executor has ended, or its lease has; the error says why
    ├── FleetEnded               a `Fleet` has ended or failed, or did not start or stop in time
    ├── Unreachable              what `wait_for` or `acquire` waits for cannot come true
    ├── WaitTimeout              what `wait_for` or `acquire` waits for did not come true in time; a `TimeoutError`
    └── ApiError                 a failed call to the Kubernetes API, classified
        ├── BadRequest           400: the request itself is malformed
        ├── Unauthorized         401: the credential is missing or not accepted
        ├── Forbidden            403: the credential lacks a right
        │   └── QuotaExceeded    403 "exceeded quota": the namespace's quota is used up
        ├── NotFound             404
        ├── AlreadyExists        409 on a POST: the name is taken
        ├── Conflict             409: a precondition failed, or another client wrote first
        ├── Gone                 410: the version or continue token is outside the server's window
        ├── Invalid              422: the server's validation names the fields
        ├── Altered              201, but an admission step changed the pod
        ├── TooLarge             413, or a 500 of etcd: the object is larger than the server takes
        ├── TooManyRequests      429: wait for `retry_after`
        └── Unavailable          5xx, no connection, no answer in time
            ├── NotSent          the call's deadline had passed before it could be sent
            ├── Untrusted        no connection: the server's certificate or ours is not accepted
            └── Ambiguous        the answer to a write was lost: it may or may not have happened
                └── Cancelled    the caller cancelled the call

`actors.kube` turns every error of urllib3 into an `ApiError`.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from actors.text import one_line

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import timedelta

__all__ = [
    "ActorCrashed",
    "AlreadyExists",
    "Altered",
    "Ambiguous",
    "ApiError",
    "BadRequest",
    "Cancelled",
    "Conflict",
    "ExecutorLost",
    "ExecutorPodsError",
    "FleetEnded",
    "Forbidden",
    "Gone",
    "Invalid",
    "MissingExtra",
    "NoThread",
    "NotFound",
    "NotSent",
    "QuotaExceeded",
    "Refused",
    "SettingsError",
    "TooLarge",
    "TooManyRequests",
    "Unauthorized",
    "Unavailable",
    "Unreachable",
    "Untrusted",
    "WaitTimeout",
    "needs_extra",
]


_LONGEST_REASON: Final = 200
"""Characters of a `Status.reason`, which is one word in CamelCase."""

_MOST_CAUSES: Final = 20
"""The server's validation names a handful of fields."""


class ExecutorPodsError(Exception):
    """Base of every error of this library."""


class SettingsError(ExecutorPodsError, ValueError):
    """A value from the user is wrong; each line of the message names one and what is allowed. Nothing was started."""

    def __init__(self, message: str) -> None:
        super().__init__("\n".join(one_line(line) for line in message.split("\n")))


class MissingExtra(ExecutorPodsError, ImportError):
    """A package is not installed that an extra of this library brings; the message says how to install it."""


class NoThread(ExecutorPodsError, RuntimeError):
    """The system starts no further thread; the message says how many there are, and which limit it knows."""


@contextmanager
def needs_extra(extra: str, what: str) -> Iterator[None]:
    """Import the packages of an extra within this context. `what` needs them, and begins the sentence of the error.

    Raises:
        MissingExtra: one of them is not installed.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package == "actors":
            raise
        advice = f"pip install 'executor-pods[{extra}]'"
        raise MissingExtra(f"{what} needs the package {package}: {advice}", name=package) from None


class Refused(ExecutorPodsError):
    """The receiver cannot accept a message now. Its sender gets this error; the receiver continues."""


class ActorCrashed(ExecutorPodsError):
    """The actor crashed while it handled the question; `__cause__` is the error."""


class ExecutorLost(ExecutorPodsError):
    """A leased executor has ended, or the time of its lease is over; the message says why.

    Attributes:
        reason: the executor's `LossReason`; None if the lease expired.
    """

    def __init__(self, message: str, reason: Any = None) -> None:
        super().__init__(message)
        self.reason = reason

    def __reduce__(self) -> tuple[type[ExecutorLost], tuple[str, Any]]:
        """Pickle the reason, too."""
        return type(self), (str(self), self.reason)


class FleetEnded(ExecutorPodsError):
    """The fleet has ended or failed, or did not start or stop in time; `__cause__` is the failure, if there is one."""


class Unreachable(ExecutorPodsError):
    """What `wait_for` or `acquire` waits for cannot come true.

    The message says why, in the words of the pods or of the API.
    """


class WaitTimeout(ExecutorPodsError, TimeoutError):
    """What `wait_for` or `acquire` waits for did not come true in time.

    The message says what holds the executors up.
    """


class ApiError(ExecutorPodsError):
    """One failed call to the Kubernetes API. Its texts are the server's, each on one line and of bounded length.

    Attributes:
        status: HTTP status, or 0 when there was no answer.
        reason: the server's machine-readable reason (`Status.reason`), such as `"AlreadyExists"`, or our class's name.
        message: the server's message, or what went wrong on the way to the server.
        retry_after: the server's `Retry-After`, when it sent one.
        causes: for `Invalid`, the first `(field, message)` pairs that the server lists.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int = 0,
        reason: str = "",
        retry_after: timedelta | None = None,
        causes: tuple[tuple[str, str], ...] = (),
    ) -> None:
        self.message = one_line(message)
        super().__init__(self.message)
        self.status = status
        self.reason = one_line(reason, _LONGEST_REASON) or type(self).__name__
        self.retry_after = retry_after
        self.causes = tuple((one_line(path), one_line(text)) for path, text in causes[:_MOST_CAUSES])

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.message!r}, status={self.status}, reason={self.reason!r})"


class BadRequest(ApiError):
    """400: the request itself is malformed."""


class Unauthorized(ApiError):
    """401: the credential is missing or not accepted."""


class Forbidden(ApiError):
    """403: the credential lacks a right; the message names verb, resource and namespace."""


class QuotaExceeded(Forbidden):
    """403 with "exceeded quota": the namespace's quota is used up, until something ends or the quota grows."""


class NotFound(ApiError):
    """404."""


class AlreadyExists(ApiError):
    """409 on a POST: an object of that name exists."""


class Conflict(ApiError):
    """409: a precondition (UID, resourceVersion) failed, or another client wrote the object first."""


class Gone(ApiError):
    """410: the resourceVersion or continue token is outside the server's window."""


class Invalid(ApiError):
    """422: the server's validation rejects the object; `causes` lists the fields."""


class Altered(ApiError):
    """A POST was answered with a pod that is not what was requested: an admission step changed it. It is deleted."""


class TooLarge(ApiError):
    """413, or a 500 of the storage behind the server: the object is larger than it takes. No repetition helps."""


class TooManyRequests(ApiError):
    """429: the server sheds load, and has done nothing."""


class Unavailable(ApiError):
    """5xx, no connection, or no answer in time to a request that changes nothing or was never sent."""


class NotSent(Unavailable):
    """The call's deadline had passed before it could be sent: the permission to write had ended."""


class Untrusted(Unavailable):
    """No connection: one side does not accept the other's certificate. Another certificate or CA is needed."""


class Ambiguous(Unavailable):
    """A write was sent and not answered: it may or may not have happened."""


class Cancelled(Ambiguous):
    """The caller cancelled the call before it was answered."""
