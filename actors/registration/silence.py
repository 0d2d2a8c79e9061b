"""Why a connection is silent: the kernel of a process that hangs still acknowledges data, one that is cut off does not.

Only Linux tells when the last acknowledgement came. It proves nothing about the executor if somebody stands between who
acknowledges in its place, such as the sidecar of a service mesh: then the executor and the driver see other addresses.
"""

from __future__ import annotations

import ipaddress
import socket
import struct
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from actors.registration.executor import BEAT_EVERY, SILENCE_LIMIT

if TYPE_CHECKING:
    from actors.messages import Suspected

__all__ = ["Heard", "heard", "is_same_address", "why_silent"]

_TCP_INFO: Final = getattr(socket, "TCP_INFO", None)

_LAST_HEARD: Final = struct.Struct("=52xII")
"""`tcpi_last_data_recv` and `tcpi_last_ack_recv` of `struct tcp_info` (`include/uapi/linux/tcp.h`), in milliseconds."""

ANSWERS_WITHIN: Final = 1.5 * BEAT_EVERY
"""Seconds. The driver's heartbeats, one in `BEAT_EVERY`, are acknowledged at once. If the network was cut, the last
acknowledgement is at least `SILENCE_LIMIT` minus `BEAT_EVERY` old: the executor has not sent its next heartbeat."""


class Heard(NamedTuple):
    """What the kernel has received last, as seconds ago."""

    data: float
    acknowledgement: float


def heard(sock: Any) -> Heard | None:
    """Return what the kernel knows about a TCP connection, None if it does not tell."""
    if sock is None or _TCP_INFO is None:
        return None
    try:
        found = sock.getsockopt(socket.IPPROTO_TCP, _TCP_INFO, _LAST_HEARD.size)
    except OSError:
        return None
    if len(found) < _LAST_HEARD.size:
        return None
    data, acknowledgement = _LAST_HEARD.unpack(found)
    return Heard(data / 1000, acknowledgement / 1000)


def why_silent(last: Heard | None, *, is_direct: bool) -> Suspected | None:
    """Return why an executor is silent for `SILENCE_LIMIT`, None if nobody knows.

    If the kernel has data that nobody has read, it was this process that did not listen.
    """
    if last is None or last.data < SILENCE_LIMIT - BEAT_EVERY:
        return None
    if last.acknowledgement >= ANSWERS_WITHIN:
        return "network"
    return "hang" if is_direct else None


def is_same_address(seen: object, said: object) -> bool:
    """Whether the address that the driver sees is the one that the executor has: nobody stands between."""
    match seen, said:
        case (str(host), int(port), *_), [str(other), int(other_port)]:
            return port == other_port and _plain(host) == _plain(other) is not None
        case _:
            return False


def _plain(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Return an IP address, an IPv4 one also if a socket for both families shows it; None if it is none."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address
