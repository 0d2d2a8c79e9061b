"""Where the server is and what to show it: `load` finds out, `Credentials` keeps it fresh.

Reading a kubeconfig, running its exec plugin and finding a pod's own account are the `kubernetes` package's, in
`kubeconfig.py` and `account.py`; what it lacks is here. Its refresh hook is not thread-safe, runs an exec plugin again
for every request once that has failed, and never looks again at a token that the server refused, or at a CA that does
not vouch for the server any more.
"""

from __future__ import annotations

import hashlib
import logging
import threading
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final, final
from urllib.parse import urlsplit

from actors.errors import SettingsError
from actors.runtime import elapsed, later

if TYPE_CHECKING:
    from collections.abc import Callable

    from kubernetes.client import Configuration

    from actors.runtime import Clock, Moment


__all__ = ["Access", "Credential", "Credentials", "access_to"]

logger = logging.getLogger(__name__)


REFRESH_BEFORE: Final = timedelta(minutes=5)
"""A credential is renewed so long before it expires, as the `kubernetes` package does it; at half its life if that is
shorter, lest a plugin whose tokens live for less is run for every request."""


TRY_AGAIN_AFTER: Final = timedelta(seconds=10)
"""A refresh that failed, or brought nothing new, is not tried again sooner: it may run a program."""


COMPLAIN_EVERY: Final = timedelta(minutes=1)
"""How often a refresh that keeps failing is logged."""


@dataclass(frozen=True, slots=True)
class Credential:
    """One state of a credential, with the `kubernetes` package's configuration that it came with. Never printed."""

    configuration: Configuration = field(repr=False)
    refresh_at: datetime | None = None
    """When to look for a newer one; None if only the server's refusal tells."""
    expires_at: datetime | None = None
    """From when on it is worthless, if that is known."""
    source: str = "the kubeconfig"
    """Whose it is and where that stands, for messages."""
    authority: str = "the system's CAs"
    """Whom it trusts to know the server, for messages."""
    contents: tuple[str, ...] = field(default=(), repr=False)
    """A digest of each file that a connection is made with: they may change under their names."""

    @property
    def authorization(self) -> str | None:
        """The header's value, if it is a token or a password."""
        return self.configuration.api_key.get("BearerToken")

    @property
    def connects_with(self) -> tuple[object, ...]:
        """What a connection is made with; connections made with something else are of no use."""
        config = self.configuration
        names = config.cert_file, config.key_file, config.ssl_ca_cert
        return *names, *self.contents, config.verify_ssl, config.tls_server_name, config.proxy

    def is_due(self, now: datetime) -> bool:
        """It is time to look for a newer one."""
        return self.refresh_at is not None and now >= self.refresh_at

    def differs_from(self, other: Credential) -> bool:
        """The server may answer the one where it refused the other."""
        return (self.authorization, self.connects_with) != (other.authorization, other.connects_with)


@final
class Credentials:
    """The newest credential, for all threads. Reads it anew when it is due, and when the server refused it."""

    def __init__(self, first: Credential, read: Callable[[], Credential], clock: Clock) -> None:
        """`read` finds the credential as it is by then, or raises `SettingsError`."""
        self._read = read
        self._clock = clock
        self._lock = threading.Lock()
        self._newest = first
        self._not_before: Moment | None = None
        self._complained_at: Moment | None = None

    def current(self) -> Credential:
        """The credential to show. Waits for its renewal only if it is worthless without."""
        credential, now = self._newest, self._clock.now()
        if not credential.is_due(now):
            return credential
        expired = credential.expires_at is not None and now >= credential.expires_at
        return self._renew(credential, wait=expired, refused=False)

    def renewed(self, refused: Credential) -> Credential:
        """A newer credential than one that failed: refused by the server, or with a CA that does not know the server.

        The same if there is none.
        """
        return self._renew(refused, wait=True, refused=True)

    def _renew(self, old: Credential, *, wait: bool, refused: bool) -> Credential:
        if not self._lock.acquire(blocking=wait):
            return old
        try:
            # Another thread may have read it since: the same again is refused as well, if this one was.
            none_newer = self._newest is old or (refused and not self._newest.differs_from(old))
            if none_newer and not self._too_soon():
                self._newest = self._read_or(self._newest, refused=refused)
            return self._newest
        finally:
            self._lock.release()

    def _too_soon(self) -> bool:
        return self._not_before is not None and self._clock.monotonic() < self._not_before

    def _read_or(self, old: Credential, *, refused: bool) -> Credential:
        try:
            found = self._read()
        except SettingsError as error:
            self._wait()  # from now on, not from before: a plugin may have taken all its time to fail
            self._complain(error)
            return old
        self._complained_at = None
        fruitless = not found.differs_from(old) and (refused or found.is_due(self._clock.now()))
        if fruitless:
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
            logger.warning("the credential cannot be renewed, the old one is used: error=%s", error)


@dataclass(frozen=True, slots=True)
class Access:
    """A server, and how to be let in."""

    url: str
    """Its base URL, without a slash at the end."""
    namespace: str
    """The one that the context or the account names, else `default`."""
    credentials: Credentials

    @property
    def server(self) -> str:
        """Host and port, for messages."""
        return _server(self.url)


def access_to(read: Callable[[], Credential], namespace: str, clock: Clock) -> Access:
    """Access by what `read` finds now and later. A later one that names another server is refused: it is not ours."""
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
    """Own what the `kubernetes` package would do by itself: retries, and a refresh by hook."""
    config = credential.configuration
    if not _is_url(_url(credential)):
        raise SettingsError("the server's address is not an http or https URL")
    config.retries = False
    config.refresh_api_key_hook = None
    config.connection_pool_maxsize = 1
    config.keep_alive = True
    token = config.api_key.get("BearerToken")
    if token is not None:
        # A token file often ends with a newline, which the package keeps and which no header may have.
        token = token.strip()
        if not (token.isascii() and token.isprintable()):
            raise SettingsError("the token has characters that no token has")
        config.api_key["BearerToken"] = token
    return replace(credential, contents=tuple(map(_digest, (config.cert_file, config.key_file, config.ssl_ca_cert))))


def _is_url(text: str) -> bool:
    try:
        url = urlsplit(text)
        return url.scheme in ("http", "https") and bool(url.hostname) and url.port != 0
    except ValueError:  # a bracket without its other, or a port that is no number
        return False


def _digest(file: str | None) -> str:
    """Tells what is in a file from what was; empty if there is none. Whoever connects with it says why."""
    with suppress(OSError):
        return hashlib.sha256(Path(file).read_bytes()).hexdigest() if file else ""
    return ""


def _server(url: str) -> str:
    return urlsplit(url).netloc.rpartition("@")[2]


def _url(credential: Credential) -> str:
    return str(credential.configuration.host).rstrip("/")


def refresh_time(now: datetime, expires_at: datetime) -> datetime:
    """When to renew what expires then."""
    return max(expires_at - REFRESH_BEFORE, now + (expires_at - now) / 2)
