"""What crosses between the driver's process and the observer."""

from __future__ import annotations

import socket
import threading
from datetime import timedelta

import pytest

from actors import errors
from actors.errors import ApiError
from actors.kube.auth.connection import Connection
from actors.kube.auth.credentials import Credential
from actors.kube.observer.frames import (
    Body,
    Ended,
    FrameReader,
    FromObserver,
    Pong,
    WireCredential,
    error_of,
    failure_of,
    from_observer,
    pack,
)

ERRORS = [value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, ApiError)]


@pytest.mark.parametrize("kind", ERRORS, ids=lambda kind: kind.__name__)
def test_an_error_crosses_as_it_is(kind: type[ApiError]) -> None:
    error = kind("no", status=418, reason="Why", retry_after=timedelta(seconds=1.5), causes=(("spec", "bad"),))
    frame = from_observer(pack(Ended(7, failure_of(error), in_stream=True))[4:])
    assert isinstance(frame, Ended)
    assert frame.failure is not None
    crossed = error_of(frame.failure)
    assert (type(crossed), vars(crossed)) == (kind, vars(error))


def test_a_credential_crosses_as_it_is() -> None:
    way = Connection(
        "https://server", "ca", "certificate", "key", verify=False, server_name="name", proxy="http://proxy"
    )
    credential = Credential(way, "Bearer x", source="the file", authority="the CA", contents=("digest",))
    assert WireCredential.of(credential).credential() == credential


def frames_of(reader: FrameReader, count: int) -> list[FromObserver]:
    frames: list[FromObserver] = []
    while len(frames) < count:
        frames += map(from_observer, reader.read() or ())
    return frames


def test_a_frame_may_come_in_any_pieces() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        frame = pack(Pong())
        for piece in (frame[:2], frame[2:5], frame[5:] + frame):
            theirs.send(piece)
        reader = FrameReader(ours)
        assert frames_of(reader, 2) == [Pong(), Pong()]
        theirs.shutdown(socket.SHUT_WR)
        assert reader.read() is None


def test_frames_that_have_come_are_read_at_once() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(pack(Pong()) * 3)
        assert len(FrameReader(ours).read() or ()) == 3


@pytest.mark.parametrize("cut", [2, 6])
def test_a_connection_that_ends_within_a_frame_is_broken(cut: int) -> None:
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            theirs.send(pack(Pong())[:cut])
        with pytest.raises(OSError, match="within a frame"):
            FrameReader(ours).read()


def test_a_frame_of_an_absurd_length_is_not_read() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.send(b"\xff\xff\xff\xff")
        with pytest.raises(OSError, match="4294967295 bytes"):
            FrameReader(ours).read()


@pytest.mark.parametrize("length", [100, 100_000, 1_000_000])
def test_frames_of_any_length_cross_while_they_are_read(length: int) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        large, count = Body(1, b"x" * length), max(3, 1_000_000 // length)
        writer = threading.Thread(target=theirs.sendall, args=((pack(large) + pack(Pong())) * count,))
        writer.start()
        assert frames_of(FrameReader(ours), 2 * count) == [large, Pong()] * count
        writer.join()
