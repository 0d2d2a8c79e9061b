"""One thread's client: adds the current credential to a request, sends it, and turns the answer into a value or error.

It does not retry or wait, with one exception: a request that no server has processed, because of a 401 or a refused
certificate, is sent again if there is a newer credential.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar, final

from actors.errors import ApiError, Untrusted
from actors.kube.http import failures
from actors.kube.http.body import read_body, read_start
from actors.kube.http.bounds import MIB
from actors.kube.http.wire import Transport, Wire, WireCut, WireLate
from actors.runtime import elapsed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import timedelta

    from actors.kube.auth.credentials import Access, Credential
    from actors.kube.http.bounds import AnswerBounds
    from actors.kube.http.chunks import Answer
    from actors.runtime import Clock, Moment

__all__ = ["Client", "HttpRequest", "ServerClock", "decoded"]

A = TypeVar("A")

_LONGEST_REFUSAL: Final = MIB
"""Bytes that are read of an error's body. A `Status` has a few hundred; a proxy's page may be endless."""

_KEPT: Final = 1024
"""Bytes that are kept of a body that is not decoded."""


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A request as HTTP. `repr` shows the method and the path, never the body."""

    method: str
    path: str
    body: bytes | None = field(default=None, repr=False)
    content_type: str = "application/json"
    accept_encoding: str = "identity"
    changes: bool = True
    """Whether a POST changes anything; an access review does not."""
    answer: Literal["object", "list", "dropped"] = "object"
    """What a successful answer has: one object, many, or as much as there is and nothing that matters."""

    @property
    def write(self) -> bool:
        """Whether the request changes anything: if its answer is lost, it may have been carried out."""
        return self.method != "GET" and self.changes


@final
class ServerClock:
    """The server's wall clock, by the `Date` of its newest answer: whole seconds. Thread-safe."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last: tuple[str, Moment] | None = None

    def note(self, date: str | None) -> None:
        """Note an answer's header. It is parsed when somebody asks."""
        if date is not None:
            self._last = (date, self._clock.monotonic())

    def now(self) -> datetime | None:
        """Return the time there, None before the first answer, or if the server says none."""
        if self._last is None:
            return None
        date, at = self._last
        try:
            found = parsedate_to_datetime(date)
        except ValueError:
            return None
        return (found if found.tzinfo else found.replace(tzinfo=UTC)) + elapsed(at, self._clock.monotonic())


@final
class Client:
    """Not thread-safe, except for the wires."""

    def __init__(
        self,
        access: Access,
        *,
        limit: timedelta,
        user_agent: str,
        clock: Clock,
        bounds: AnswerBounds,
        server_clock: ServerClock | None = None,
    ) -> None:
        self._access = access
        self._bounds = bounds
        self._limit = limit
        self._user_agent = user_agent
        self._clock = clock
        self._server_clock = server_clock or ServerClock(clock)
        self._transport: Transport | None = None
        self._transport_of: object = None

    def fetch(self, request: HttpRequest, wire: Wire, decode: Callable[[bytes], A]) -> A | ApiError:
        """Send the request, and read and decode the whole answer.

        Raises:
            WireCut: another thread completed the call.
            WireLate: the wire's deadline has passed.
        """
        server = self._access.server
        try:
            response = self.open(request, wire)
            if isinstance(response, ApiError):
                return response
            body = self._read(response, request)
        except (WireCut, WireLate):
            raise
        except BaseException as error:  # noqa: BLE001 - whatever happened, the call completes with one of our errors
            self._drop()
            return failures.lost(error, server, sent=wire.sent, write=request.write)
        finally:
            wire.release()
        return decoded(body, decode, self._access, write=request.write)

    def open(self, request: HttpRequest, wire: Wire) -> Answer | ApiError:
        """Send the request and wait for the headers. Return a 2xx answer with its body unread, or the server's error.

        Raises:
            WireCut: another thread completed the call.
            Exception: there was no answer; `failures.lost` turns this into an error.
        """
        credential = self._access.credentials.current()
        answer = self._send(request, wire, credential)
        if isinstance(answer, ApiError) or answer.status == 401:
            newer = self._access.credentials.renewed(credential)
            if newer.differs_from(credential):
                if not isinstance(answer, ApiError) and not answer.isclosed():
                    self._drop()
                wire.again()
                credential, answer = newer, self._send(request, wire, newer)
        if isinstance(answer, ApiError) or 200 <= answer.status < 300:
            return answer
        body = read_start(answer, _LONGEST_REFUSAL)
        if not answer.isclosed():
            self._drop()
        return failures.refused(
            answer,
            body,
            self._access.server,
            self._clock.now(),
            credential=credential.source,
            redacted=self._access.credentials.redacted,
        )

    def _read(self, response: Answer, request: HttpRequest) -> bytes:
        match request.answer:
            case "object":
                return read_body(response, self._bounds.one_object, "api.max_object_size")
            case "list":
                return read_body(response, self._bounds.answer, "api.max_answer_size")
            case "dropped":
                return read_body(response, _KEPT, "", drop_rest=True)

    def _drop(self) -> None:
        """Close the connection: its answer was not read to the end."""
        if self._transport is not None:
            self._transport.drop()

    def close(self) -> None:
        """Close the connection."""
        if self._transport is not None:
            self._transport.close()

    def _send(self, request: HttpRequest, wire: Wire, credential: Credential) -> Answer | Untrusted:
        headers: Mapping[str, Any] = {
            "Accept": "application/json",
            "Accept-Encoding": request.accept_encoding,
            "User-Agent": self._user_agent,
            **({"Authorization": credential.authorization} if credential.authorization else {}),
            **credential.impersonation,
            **({"Content-Type": request.content_type} if request.body is not None else {}),
        }
        transport = self._connected_as(credential)
        try:
            answer = transport.send(wire, request.method, self._access.url + request.path, headers, request.body)
        except Exception as error:
            untrusted = failures.untrusted(error, self._access.server, credential)
            if untrusted is None:
                raise
            return untrusted
        self._server_clock.note(answer.headers.get("Date"))
        return answer

    def _connected_as(self, credential: Credential) -> Transport:
        """Return the transport; a new one if our certificate or the CA has changed."""
        if self._transport is None or self._transport_of != credential.connects_with:
            self.close()
            self._transport = Transport(credential.connection, self._limit, self._bounds.headers)
            self._transport_of = credential.connects_with
        return self._transport


def decoded(body: bytes, decode: Callable[[bytes], A], access: Access, *, write: bool) -> A | ApiError:
    """Return what a 2xx answer says; an error if it is something else."""
    try:
        return decode(body)
    except (ValueError, RecursionError) as error:
        return failures.unreadable(error, access.server, write=write, redacted=access.credentials.redacted)
