"""Which `Host` and `Origin` headers are answered. Pure.

A web page of a stranger may give its own name the address of this machine, and then reads what it likes through the
browser of whoever opens it (DNS rebinding). Such a request has that name as its `Host`. A name that no stranger can
own is safe: an IP address, a name without a dot, and the names within a cluster or a local network.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Collection

__all__ = ["AllowedHosts", "is_loopback"]

_LOCAL_SUFFIXES: Final = (".svc", ".cluster.local", ".local", ".internal", ".localhost")
"""Reserved names: no stranger can register one. The first two are those of Services."""

_LONGEST: Final = 260
"""Characters of a host's name and port: RFC 1035 allows 253 for the name."""


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
        if not host or len(host) > _LONGEST:
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
