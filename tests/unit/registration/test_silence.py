"""Why a connection is silent."""

from __future__ import annotations

import socket
import struct
import sys
from typing import TYPE_CHECKING, Any

import pytest

from actors.registration.executor import BEAT_EVERY, SILENCE_LIMIT
from actors.registration.silence import Heard, heard, is_same_address, why_silent

if TYPE_CHECKING:
    from actors.messages import Suspected


@pytest.mark.parametrize(
    ("last", "is_direct", "suspected"),
    [
        pytest.param(Heard(SILENCE_LIMIT, 0.1), True, "hang", id="it acknowledges heartbeats and sends none"),
        pytest.param(Heard(SILENCE_LIMIT + BEAT_EVERY, BEAT_EVERY), True, "hang", id="so it does, a heartbeat ago"),
        pytest.param(Heard(SILENCE_LIMIT, 0.1), False, None, id="somebody between acknowledges"),
        pytest.param(Heard(SILENCE_LIMIT, SILENCE_LIMIT), True, "network", id="cut right after a heartbeat"),
        pytest.param(Heard(SILENCE_LIMIT, SILENCE_LIMIT - BEAT_EVERY), True, "network", id="cut before the next one"),
        pytest.param(Heard(SILENCE_LIMIT, SILENCE_LIMIT), False, "network", id="not even somebody between answers"),
        pytest.param(Heard(1.0, 1.0), True, None, id="the driver has not read what came"),
        pytest.param(None, True, None, id="the kernel does not tell"),
    ],
)
def test_who_is_silent_hangs_if_its_kernel_acknowledges(
    last: Heard | None, suspected: Suspected | None, *, is_direct: bool
) -> None:
    assert why_silent(last, is_direct=is_direct) == suspected


@pytest.mark.parametrize(
    ("seen", "said", "same"),
    [
        (("10.0.0.7", 4711), ["10.0.0.7", 4711], True),
        (("::ffff:10.0.0.7", 4711, 0, 0), ["10.0.0.7", 4711], True),
        (("fe80::1%eth0", 4711, 0, 2), ["fe80::1%eth1", 4711], True),
        (("10.0.0.7", 4712), ["10.0.0.7", 4711], False),
        (("127.0.0.6", 4711), ["10.0.0.7", 4711], False),
        (("10.0.0.7", 4711), None, False),
        (None, ["10.0.0.7", 4711], False),
        (("nobody", 1), ["nobody", 1], False),
        (("10.0.0.7", 4711), ["10.0.0.7", "4711"], False),
        (("10.0.0.7", 4711), ["10.0.0.7", 4711, "more"], False),
        (("10.0.0.7", 4711), {"host": "10.0.0.7"}, False),
    ],
)
def test_nobody_stands_between_two_that_see_the_same_address(seen: Any, said: Any, *, same: bool) -> None:
    assert is_same_address(seen, said) is same


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells it")
def test_the_kernel_tells_when_data_and_acknowledgements_came() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as one:
        other, _ = server.accept()
        with other:
            found = heard(other)
            one.close()
    assert found is not None
    assert all(0 <= seconds < 60 for seconds in found)
    assert heard(other) is None, "it is closed"
    assert heard(None) is None


class Kernel:
    """A socket's `struct tcp_info`: 8 bytes, then numbers, of which the twelfth and thirteenth are looked for."""

    def __init__(self, size: int) -> None:
        self.answer = struct.pack("=8s24I", b"", *range(1000, 25_000, 1000))[:size]

    def getsockopt(self, level: int, option: int, size: int) -> bytes:
        assert (level, option) == (socket.IPPROTO_TCP, socket.TCP_INFO)
        return self.answer[:size]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells it")
def test_the_two_ages_are_read_where_linux_has_them() -> None:
    assert heard(Kernel(104)) == Heard(12.0, 13.0)
    assert heard(Kernel(20)) is None, "an older kernel has fewer fields"
