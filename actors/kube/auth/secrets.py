"""What must not be shown of the credentials in use, and how text from a server is freed of it.

A server, or a proxy that wants to help, may send a request's headers back in its error.
"""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING, Final, final

from actors.kube.auth.proxies import split_account

if TYPE_CHECKING:
    from collections.abc import Iterator

    from actors.kube.auth.connection import Connection

__all__ = ["REDACTED", "Secrets", "secrets_of"]

REDACTED: Final = "<redacted>"

SHORTEST: Final = 4
"""Characters. A shorter password would be found in every text."""

REMEMBERED: Final = 16
"""Secrets that are remembered, the newest: an answer may come after the credential was renewed."""


@final
class Secrets:
    """The secrets of the newest credentials. Threads share it: it is replaced, never changed."""

    def __init__(self) -> None:
        self._known: tuple[str, ...] = ()

    def add(self, authorization: str | None, connection: Connection) -> None:
        """Remember what requests with this header send, on this connection."""
        new = tuple(dict.fromkeys(secrets_of(authorization, connection)))
        if not set(new) <= set(self._known):
            self._known = tuple(dict.fromkeys((*new, *self._known)))[:REMEMBERED]

    def redacted(self, text: str) -> str:
        """Return the text without the secrets."""
        for secret in self._known:
            if secret in text:
                text = text.replace(secret, REDACTED)
        return text


def secrets_of(authorization: str | None, connection: Connection) -> Iterator[str]:
    """Yield what requests carry: a token, or a password as it is and as it is sent, and the same of the proxy.

    A user without a password is a token.
    """
    scheme, _, rest = (authorization or "").partition(" ")
    found = [rest or scheme]
    if scheme.lower() == "basic":
        found.append(_password(rest))
    account = split_account(connection.proxy)[1] if connection.proxy else None
    if account is not None:
        written, _, password = account.text.partition(":")
        found += [password or written, account.password or account.user, account.basic]
    yield from (secret for secret in found if len(secret) >= SHORTEST)


def _password(encoded: str) -> str:
    try:
        return base64.b64decode(encoded).decode("utf-8", "replace").partition(":")[2]
    except (binascii.Error, ValueError):
        return ""
