"""Which proxy leads to a server: by the variables of the environment, read as Go reads them, and so as kubectl does.

Python's own libraries read `NO_PROXY` in three other ways, none of which knows networks of IPv6, and they send even
requests to this very machine through a proxy. The rules are those of `golang.org/x/net/http/httpproxy`, but that names
match with and without a dot at their end, as for curl.
"""

from __future__ import annotations

import ipaddress
import os
from base64 import b64encode
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeAlias
from urllib.parse import unquote, urlsplit

from actors.errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

__all__ = ["ProxyAccount", "environment_proxy", "is_url", "proxy_url", "split_account"]

_Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address

_PORTS: Final = {"http": 80, "https": 443}

_SCHEMES: Final = ("http", "https", "socks5", "socks5h")
"""What client-go takes (`parseProxyURL` in `tools/clientcmd`)."""


def environment_proxy(url: str, environ: Mapping[str, str] = os.environ) -> str | None:
    """Return the proxy for a server, None if there is none, or if `NO_PROXY` excepts the server.

    `HTTPS_PROXY` or `HTTP_PROXY` names it, by the scheme of the server's URL, else `ALL_PROXY`, as for curl. This
    machine is never reached through a proxy, whatever its name.

    Raises:
        SettingsError: the variable has no URL of a proxy.
    """
    server = urlsplit(url)
    name = "HTTPS_PROXY" if server.scheme == "https" else "HTTP_PROXY"
    if name == "HTTP_PROXY" and "REQUEST_METHOD" in environ:
        name = "http_proxy"  # a CGI program gets HTTP_PROXY from the client's header `Proxy`
    name, proxy = _first(environ, name, "ALL_PROXY")
    host, port = _relative((server.hostname or "").casefold()), server.port or _PORTS.get(server.scheme, 0)
    if not proxy or _is_excepted(host, port, _first(environ, "NO_PROXY")[1]):
        return None
    return proxy_url(proxy, name)


def proxy_url(text: str, place: str) -> str:
    """Return a proxy's URL: `http`, if the text has no scheme.

    Raises:
        SettingsError: it is not one. The message names the place, not the text, which may have a password.
    """
    text = text.strip()
    found = text if "://" in text else f"http://{text}"
    if is_url(found, _SCHEMES):
        return found
    raise SettingsError(f"{place} is not the URL of a proxy: it must be {', '.join(_SCHEMES[:-1])} or {_SCHEMES[-1]}")


@dataclass(frozen=True, slots=True)
class ProxyAccount:
    """The account that a proxy's URL has."""

    text: str = field(repr=False)
    """As it stands in the URL."""

    @property
    def user(self) -> str:
        """The user, decoded."""
        return unquote(self.text.partition(":")[0])

    @property
    def password(self) -> str:
        """The password, decoded; empty if there is none."""
        return unquote(self.text.partition(":")[2])

    @property
    def basic(self) -> str:
        """The account as basic authentication sends it (RFC 7617)."""
        return b64encode(f"{self.user}:{self.password}".encode()).decode()


def split_account(url: str) -> tuple[str, ProxyAccount | None]:
    """Return a proxy's URL without its account, and the account, None if it has none."""
    scheme, _, rest = url.partition("://")
    account, _, address = rest.rpartition("@")
    return f"{scheme.lower()}://{address}", ProxyAccount(account) if account else None


def is_url(text: str, schemes: Collection[str]) -> bool:
    """Whether a text is the URL of a host, with one of these schemes."""
    try:
        url = urlsplit(text)
        return url.scheme in schemes and bool(url.hostname) and url.port != 0
    except ValueError:  # an unmatched bracket, or a port that is not a number
        return False


def _first(environ: Mapping[str, str], *names: str) -> tuple[str, str]:
    """Return the first variable that is not empty, in capitals or not, and its value."""
    each_way = (each for name in names for each in dict.fromkeys((name, name.lower())))
    return next(((name, value) for name in each_way if (value := environ.get(name, "").strip())), ("", ""))


def _is_excepted(host: str, port: int, no_proxy: str) -> bool:
    address = _address(host)
    if host == "localhost" or (address is not None and address.is_loopback):
        return True
    rules = (rule for text in no_proxy.casefold().split(",") if (rule := text.strip()))
    return any(_matches(rule, host, address, port) for rule in rules)


def _matches(rule: str, host: str, address: _Address | None, port: int) -> bool:
    """Whether one rule of `NO_PROXY` matches: `*`, a network, or an address or a name, perhaps with a port."""
    if rule == "*":
        return True
    if "/" in rule:
        return address is not None and _has(rule, address)
    name, rule_port = _without_port(rule)
    if rule_port and rule_port != str(port):
        return False
    if (rule_address := _address(name)) is not None:
        return address == rule_address
    domain = _relative(name.removeprefix("*"))
    if domain.startswith("."):  # the names below it, but not itself
        return len(domain) > 1 and host.endswith(domain)
    return bool(domain) and (host == domain or host.endswith(f".{domain}"))


def _relative(name: str) -> str:
    """Return a host name without the dot of the root at its end: with and without it, it names the same host."""
    return name.removesuffix(".")


def _has(network: str, address: _Address) -> bool:
    try:
        return address in ipaddress.ip_network(network, strict=False)
    except ValueError:
        return False


def _without_port(rule: str) -> tuple[str, str]:
    """Split `name:port`, `[address]:port`; an IPv6 address without brackets has no port."""
    name, colon, port = rule.rpartition(":")
    if not colon or not port.isdecimal() or (":" in name and not name.endswith("]")):
        name, port = rule, ""
    return name.removeprefix("[").removesuffix("]"), port


def _address(host: str) -> _Address | None:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address
