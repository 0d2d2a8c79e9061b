"""Where the page listens, and which `Host` headers it answers. Pure.

A web page of a stranger may give its own name the address of this machine, and then reads what it likes through the
browser of whoever opens it (DNS rebinding). Such a request has that name as its `Host`. A name that no stranger can
own is safe: an IP address, a name without a dot, and the names within a cluster or a local network.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from actors.errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import Collection

__all__ = ["LONGEST_TOKEN", "LOOPBACK", "AllowedHosts", "check_page", "is_loopback"]

LOOPBACK: Final = "127.0.0.1"

LONGEST_TOKEN: Final = 4096
SHORTEST_TOKEN: Final = 16
"""Characters: 96 bits in base64. Nobody counts wrong ones, so a token must not be guessed."""

_LARGEST_PORT: Final = 65535

_LOCAL_SUFFIXES: Final = (".svc", ".cluster.local", ".local", ".internal", ".localhost")
"""Reserved names: no stranger can register one. The first two are those of Services."""

_LONGEST: Final = 260
"""Characters of a host's name and port: RFC 1035 allows 253 for the name."""


def check_page(page: int | str, token: str | None) -> tuple[str, int]:
    """Return address and port of `8080`, `"0.0.0.0:8080"` or `"[::]:8080"`. A port alone is on the loopback.

    Raises:
        SettingsError: it is none of these, or the token is too short or too long.
    """
    shown = token.strip() if isinstance(token, str) else ""
    if token is not None and not (SHORTEST_TOKEN <= len(shown) <= LONGEST_TOKEN and shown.isprintable()):
        allowed = f"at least {SHORTEST_TOKEN} printable characters, at most {LONGEST_TOKEN}"
        raise SettingsError(f"the page's token must have {allowed}")
    problem = f"page = {page!r}: must be a port, such as 8080, or an address and a port, such as '0.0.0.0:8080'"
    if isinstance(page, bool) or not isinstance(page, int | str):
        raise SettingsError(problem)
    address, _, port = (LOOPBACK, "", str(page)) if isinstance(page, int) else page.rpartition(":")
    if not (port.isascii() and port.isdecimal() and len(port) <= len(str(_LARGEST_PORT))) or int(port) > _LARGEST_PORT:
        raise SettingsError(problem)
    if address.startswith("[") and address.endswith("]"):
        address = address[1:-1]
    elif ":" in address:
        raise SettingsError(problem)
    return address or LOOPBACK, int(port)


@dataclass(frozen=True, slots=True)
class AllowedHosts:
    """The hosts under which a page is reached.

    Args:
        address: that it listens on.
        names: other names, such as that of an Ingress.
    """

    address: str
    names: Collection[str] = ()

    def allows(self, host: str | None) -> bool:
        """Return whether a request for this `Host` is answered. The port does not matter: it may be forwarded."""
        if not host or len(host) > _LONGEST or "@" in host:  # a Host has no user (RFC 9110)
            return False
        name = name_of(host)
        if name == "localhost" or name in {each.lower() for each in self.names} or name == self.address.lower():
            return True
        if is_loopback(self.address):
            return is_loopback(name)
        return _is_address(name) or "." not in name or name.endswith(_LOCAL_SUFFIXES)


def is_loopback(name: str) -> bool:
    """Return whether only this machine reaches this address."""
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def name_of(host: str) -> str:
    """Return a `Host` without its port, and an IPv6 address without its brackets."""
    host = host.strip().lower()
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0].removesuffix(".")


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
