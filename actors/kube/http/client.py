"""A request put together and sent: with the credential of the moment, once more if that has expired, and judged.

A `Client` belongs to one thread. It neither retries nor waits; the one repetition is of a request that nobody looked
at, once there is another credential: it was refused (401), or one side does not accept the other's certificate.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeVar, final

from actors.errors import ApiError, Untrusted
from actors.kube.http import failures
from actors.kube.http.wire import Transport, Wire, WireCut

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import timedelta

    import urllib3

    from actors.kube.auth.credentials import Access, Credential
    from actors.runtime import Clock

__all__ = ["Client", "HttpRequest"]

A = TypeVar("A")

_LONGEST_REFUSAL: Final = 1024 * 1024
"""Bytes of an error's body that are read: a `Status` is a few hundred, and a proxy's page may be endless."""


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """What to ask of the server. `repr` tells the method and the path, not what is in the body."""

    method: str
    path: str
    body: bytes | None = field(default=None, repr=False)
    content_type: str = "application/json"
    accept_encoding: str = "identity"
    changes: bool = True
    """Whether a POST makes something; one that only asks a question does not."""

    @property
    def write(self) -> bool:
        """It changes something: when its answer is lost, it may have happened."""
        return self.method != "GET" and self.changes


@final
class Client:
    """One thread's way to the server. Not thread-safe, but for the wires."""

    def __init__(self, access: Access, *, limit: timedelta, user_agent: str, clock: Clock) -> None:
        self._access = access
        self._limit = limit
        self._user_agent = user_agent
        self._clock = clock
        self._transport: Transport | None = None
        self._transport_of: object = None

    def fetch(self, request: HttpRequest, wire: Wire, decode: Callable[[bytes], A]) -> A | ApiError:
        """Send the request and read the whole answer.

        Raises:
            WireCut: somebody else ended it.
        """
        server = self._access.server
        try:
            response = self.open(request, wire)
            if isinstance(response, ApiError):
                return response
            body = response.read()
        except WireCut:
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, the call is to be completed, with one of our errors
            return failures.lost(error, server, sent=wire.sent, write=request.write)
        finally:
            wire.release()
        try:
            return decode(body)
        except (ValueError, RecursionError) as error:
            return failures.unreadable(error, server, write=request.write)

    def open(self, request: HttpRequest, wire: Wire) -> urllib3.BaseHTTPResponse | ApiError:
        """Send the request and wait for the headers: the 2xx answer, its body to be read, or the server's error.

        Raises:
            WireCut: somebody else ended it.
            Exception: what `failures.lost` knows how to tell.
        """
        credential = self._access.credentials.current()
        answer = self._send(request, wire, credential)
        if isinstance(answer, ApiError) or answer.status == 401:
            newer = self._access.credentials.renewed(credential)
            if newer.differs_from(credential):
                if not isinstance(answer, ApiError):
                    _discard(answer)
                wire.again()
                credential, answer = newer, self._send(request, wire, newer)
        if isinstance(answer, ApiError) or 200 <= answer.status < 300:
            return answer
        body = answer.read(_LONGEST_REFUSAL)
        _discard(answer)
        return failures.refused(answer, body, self._access.server, self._clock.now(), credential=credential.source)

    def close(self) -> None:
        """Close the connection."""
        if self._transport is not None:
            self._transport.close()

    def _send(self, request: HttpRequest, wire: Wire, credential: Credential) -> urllib3.BaseHTTPResponse | Untrusted:
        headers: Mapping[str, Any] = {
            "Accept": "application/json",
            "Accept-Encoding": request.accept_encoding,
            "User-Agent": self._user_agent,
            **({"Authorization": credential.authorization} if credential.authorization else {}),
            **({"Content-Type": request.content_type} if request.body is not None else {}),
        }
        transport = self._connected_as(credential)
        try:
            return transport.send(wire, request.method, self._access.url + request.path, headers, request.body)
        except Exception as error:
            untrusted = failures.untrusted(error, self._access.server, credential)
            if untrusted is None:
                raise
            return untrusted

    def _connected_as(self, credential: Credential) -> Transport:
        """The transport, made anew when a certificate, ours or the CA's, is another than it was made with."""
        if self._transport is None or self._transport_of != credential.connects_with:
            self.close()
            self._transport = Transport(credential.configuration, self._limit)
            self._transport_of = credential.connects_with
        return self._transport


def _discard(response: urllib3.BaseHTTPResponse) -> None:
    """Done with this answer. Its connection is kept only if it was read to the end."""
    if response.connection is not None:
        response.close()
