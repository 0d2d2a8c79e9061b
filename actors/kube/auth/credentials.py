"""`Access` to a server, and the `Credentials` that stay fresh for all threads.

`kubeconfig.py` and `service_account.py` read a credential; this module renews it: when it is due, when the server
refuses it, and when its CA no longer matches the server.
"""

from __future__ import annotations

import hashlib
import threading
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final, final
from urllib.parse import urlsplit

from actors.errors import SettingsError
from actors.kube import files
from actors.kube.auth.proxies import environment_proxy, is_url, proxy_url
from actors.kube.auth.secrets import Secrets
from actors.runtime import elapsed, later
from actors.text import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from actors.kube.auth.connection import Connection
    from actors.runtime import Clock, Moment


__all__ = ["Access", "Credential", "Credentials", "access_to"]

logger = get_logger(__name__)


REFRESH_BEFORE: Final = timedelta(minutes=5)
"""A credential is renewed this long before its expiry, or after half its lifetime if that is later: a plugin with
short-lived tokens must not run for every request."""


LONGEST_LIFETIME: Final = timedelta(days=365)
"""Far below what a date can hold; a plugin may print any date."""


TRY_AGAIN_AFTER: Final = timedelta(seconds=10)
"""The minimum delay after a refresh that failed or changed nothing: a refresh may run a program."""


COMPLAIN_EVERY: Final = timedelta(minutes=1)
"""The minimum interval of log lines about a refresh that keeps failing."""


@dataclass(frozen=True, slots=True)
class Credential:
    """One version of a credential, and of the way to the server. Never printed."""

    connection: Connection = field(repr=False)
    authorization: str | None = field(default=None, repr=False)
    """The `Authorization` header, for a token or a password."""
    impersonation: Mapping[str, str | tuple[str, ...]] = field(default_factory=dict, repr=False)
    """The headers that make the server treat our requests as another account's. A tuple is several lines."""
    refresh_at: datetime | None = None
    """When to read it again; None if only a refusal by the server is a reason to."""
    expires_at: datetime | None = None
    """When it expires, if that is known."""
    source: str = "the kubeconfig"
    """The user or account, and the file that defines it, for messages."""
    authority: str = "the system's CAs"
    """The CAs that must have signed the server's certificate, for messages."""
    contents: tuple[str, ...] = field(default=(), repr=False)
    """A digest of each file that connections use: a file may change under its name."""

    @property
    def connects_with(self) -> tuple[object, ...]:
        """Everything that connections depend on: after a change they must be made anew."""
        return self.connection, self.contents

    def is_due(self, now: datetime) -> bool:
        """Whether it is time to read the credential again."""
        return self.refresh_at is not None and now >= self.refresh_at

    def differs_from(self, other: Credential) -> bool:
        """Whether the server may accept one of the two and refuse the other."""
        mine, others = ((each.authorization, each.impersonation, each.connects_with) for each in (self, other))
        return mine != others


@final
class Credentials:
    """The newest credential, for all threads. Reads it again when it is due, and when the server refuses it."""

    def __init__(self, first: Credential, read: Callable[[], Credential], clock: Clock) -> None:
        """`read` returns the current credential, or raises `SettingsError`."""
        self._read = read
        self._clock = clock
        self._lock = threading.Lock()
        self._newest = first
        self._secrets = Secrets()
        self._secrets.add(first.authorization, first.connection)
        self._not_before: Moment | None = None
        self._complained_at: Moment | None = None

    def current(self) -> Credential:
        """Return the credential to use. Waits for a renewal only if the credential has expired."""
        credential, now = self._newest, self._clock.now()
        if not credential.is_due(now):
            return credential
        expired = credential.expires_at is not None and now >= credential.expires_at
        return self._renew(credential, wait=expired, refused=False)

    def renewed(self, refused: Credential) -> Credential:
        """Return a newer credential than a failed one, or the same if there is none.

        A credential fails if the server refuses it, or if its CA has not signed the server's certificate.
        """
        return self._renew(refused, wait=True, refused=True)

    def redacted(self, text: str) -> str:
        """Return text that came from a server, without the credentials that it got from us."""
        return self._secrets.redacted(text)

    def _renew(self, old: Credential, *, wait: bool, refused: bool) -> Credential:
        if not self._lock.acquire(blocking=wait):
            return old
        try:
            # Another thread may have read it since. An equal credential is refused as well.
            none_newer = self._newest is old or (refused and not self._newest.differs_from(old))
            if none_newer and not self._too_soon():
                self._newest = self._read_or(self._newest, refused=refused)
                self._secrets.add(self._newest.authorization, self._newest.connection)
            return self._newest
        finally:
            self._lock.release()

    def _too_soon(self) -> bool:
        return self._not_before is not None and self._clock.monotonic() < self._not_before

    def _read_or(self, old: Credential, *, refused: bool) -> Credential:
        try:
            found = self._read()
        except SettingsError as error:
            self._wait()  # counts from now: a plugin may have taken long to fail
            self._complain(error)
            return old
        self._complained_at = None
        useless = not found.differs_from(old) and (refused or found.is_due(self._clock.now()))
        if useless:
            self._wait()
        else:
            self._not_before = None
        return found

    def _wait(self) -> None:
        self._not_before = later(self._clock.monotonic(), TRY_AGAIN_AFTER)

    def _complain(self, error: SettingsError) -> None:
        now = self._clock.monotonic()
        if self._complained_at is None or elapsed(self._complained_at, now) >= COMPLAIN_EVERY:
            self._complained_at = now
            logger.warning("credential not renewed, the old one stays in use: error=%s", error)


@dataclass(frozen=True, slots=True)
class Access:
    """A server, and the credentials for it."""

    url: str
    """Its base URL, without a slash at the end."""
    namespace: str
    """The namespace of the context or service account, else `default`."""
    credentials: Credentials

    @property
    def server(self) -> str:
        """Host and port, for messages."""
        return _server(self.url)


def access_to(read: Callable[[], Credential], namespace: str, clock: Clock) -> Access:
    """Return the access that `read` describes now and later. A later credential for another server is refused."""
    first = _checked(read())
    url = _url(first)

    def of_this_server() -> Credential:
        found = _checked(read())
        if _url(found) != url:
            now = _server(_url(found))
            raise SettingsError(f"{found.source} names another server now: {now} instead of {_server(url)}")
        return found

    return Access(url, namespace, Credentials(first, of_this_server, clock))


def _checked(credential: Credential) -> Credential:
    """Check the server's URL and the token, and add the environment's proxy and the digests of the files."""
    connection = credential.connection
    if not is_url(connection.url, ("http", "https")):
        raise SettingsError("the server's address is not an http or https URL")
    # A token file often ends with a newline, which a header must not have.
    token = credential.authorization and credential.authorization.strip()
    if token is not None and not (token.isascii() and token.isprintable()):
        raise SettingsError("the token has characters that are not allowed in a token")
    if connection.proxy:
        proxy: str | None = proxy_url(connection.proxy, f"proxy-url of {credential.source}")
    else:
        proxy = environment_proxy(connection.url)
    return replace(
        credential,
        connection=replace(connection, proxy=proxy),
        authorization=token,
        contents=tuple(map(_digest, connection.files)),
    )


def _digest(file: str) -> str:
    """Return a digest of a file's content; empty if it cannot be read: connecting with it gives the error."""
    with suppress(OSError):
        return hashlib.sha256(files.read(Path(file))).hexdigest()
    return ""


def _server(url: str) -> str:
    return urlsplit(url).netloc.rpartition("@")[2]


def _url(credential: Credential) -> str:
    return credential.connection.url


def refresh_time(now: datetime, expires_at: datetime) -> datetime:
    """Return when to renew a credential that expires at `expires_at`."""
    left = min(expires_at - now, LONGEST_LIFETIME)
    return now + max(left - REFRESH_BEFORE, left / 2)
