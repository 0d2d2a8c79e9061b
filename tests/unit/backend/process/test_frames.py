"""What crosses between the Backend's process and the fleet's."""

from __future__ import annotations

import socket
import threading
from datetime import timedelta
from typing import Any

import pytest

from actors import errors
from actors.backend.process.frames import (
    FrameReader,
    FromFleet,
    MessageToBackend,
    MessageToChild,
    Pong,
    pack,
    resolve,
    unpack,
)
from actors.errors import ApiError
from actors.kube.metered import ApiCounts
from actors.messages.internal import (
    Drain,
    ExecutorSeen,
    ExecutorsObserved,
    LedgerEntry,
    LedgerLoaded,
    RemoveExecutor,
    StartFailureRecord,
)
from actors.metrics.counts import ProcessCounts
from actors.pods.id_map import IdMap
from actors.pods.loss import LossKind, LossReason
from actors.pods.pod import DEFAULT_PROFILE
from actors.pods.state import PodRunning
from actors.runtime import Address, DeadLetters
from actors.testing import pod

ERRORS = [value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, ApiError)]


def crossed(value: object) -> Any:
    (frame,) = unpack(pack([MessageToBackend(value)])[4:])
    return frame.message


@pytest.mark.parametrize("kind", ERRORS, ids=lambda kind: kind.__name__)
def test_an_error_crosses_as_it_is(kind: type[ApiError]) -> None:
    error = kind("no", status=418, reason="Why", retry_after=timedelta(seconds=1.5), causes=(("spec", "bad"),))
    there = crossed(error)
    assert (type(there), vars(there), str(there)) == (kind, vars(error), str(error))


ENTRY = LedgerEntry(7, DEFAULT_PROFILE, uid="u", running=True)
STATE = PodRunning(pod(7))
MESSAGES = (
    LedgerLoaded(IdMap({7: ENTRY}), 8, 7, StartFailureRecord(), {"default": (1,)}, IdMap({7: STATE})),
    ExecutorSeen(7, "u", STATE),
    RemoveExecutor(7, "u", LossReason(LossKind.EXITED, 1, caused_by_app=True, message="it ended"), 1.5, pod(7)),
    ExecutorsObserved(IdMap({7: STATE})),
)


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_a_message_crosses_as_it_is(message: object) -> None:
    assert crossed(message) == message


def test_each_address_becomes_the_one_of_the_backend() -> None:
    backend, other = Address("backend", DeadLetters()), Address("backend", DeadLetters())
    resolve(backend)
    (frame,) = unpack(pack([MessageToChild("request-pool", 1, Drain(other))])[4:])
    assert frame.message.reply_to is backend


def test_counts_cross_while_others_count() -> None:
    counts = ApiCounts()
    counts.start("list")
    counts.end("list", "ok", 0.5)
    there: ApiCounts = crossed(counts)
    there.start("get")
    assert there.in_flight() == {"list": 0, "get": 1}
    assert there.durations()["list"].read() == counts.durations()["list"].read()
    assert counts.in_flight() == {"list": 0}


def test_something_else_is_no_list_of_frames() -> None:
    with pytest.raises(TypeError, match="int is no list of frames"):
        unpack(pack(7)[4:])  # type: ignore[arg-type]


PONG = Pong(None, ProcessCounts())


def frames_of(reader: FrameReader, count: int) -> list[FromFleet]:
    frames: list[FromFleet] = []
    while len(frames) < count:
        for read in reader.read() or ():
            frames += unpack(read)
    return frames


def test_a_frame_may_come_in_any_pieces() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        frame = pack([MessageToBackend("x")])
        for piece in (frame[:2], frame[2:5], frame[5:] + frame):
            theirs.send(piece)
        reader = FrameReader(ours)
        assert frames_of(reader, 2) == [MessageToBackend("x"), MessageToBackend("x")]
        theirs.shutdown(socket.SHUT_WR)
        assert reader.read() is None


def test_frames_that_have_come_are_read_at_once() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(pack([PONG]) * 3)
        assert len(FrameReader(ours).read() or ()) == 3


@pytest.mark.parametrize("cut", [2, 6])
def test_a_connection_that_ends_within_a_frame_is_broken(cut: int) -> None:
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            theirs.send(pack([PONG])[:cut])
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
        large, count = MessageToBackend("x" * length), max(3, 1_000_000 // length)
        data = (pack([large]) + pack([MessageToBackend("y")])) * count
        writer = threading.Thread(target=theirs.sendall, args=(data,))
        writer.start()
        assert frames_of(FrameReader(ours), 2 * count) == [large, MessageToBackend("y")] * count
        writer.join()
