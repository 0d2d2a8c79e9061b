"""The side of the fleet's process: what the Backend was told is sent before a request that follows from it."""

from __future__ import annotations

import socket
import threading
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

from actors import kube
from actors.backend.process import fleet, outbox
from actors.backend.process.fleet import _AnnouncedPodApi, _portable
from actors.backend.process.frames import FrameReader, MessageToBackend, Observed, unpack
from actors.backend.process.outbox import Outbox
from actors.errors import ActorCrashed, Conflict
from actors.messages.internal import ExecutorsObserved, Polled
from actors.pods.id_map import IdMap
from actors.pods.state import PodRunning
from actors.testing import pod
from actors.text.version import package_version
from tests.unit.kube.scripted import SAFETY

if TYPE_CHECKING:
    from collections.abc import Iterator

    from actors.kube.api import Call


class Connection:
    """An outbox, and the other end of its connection."""

    def __init__(self, outbox: Outbox, theirs: socket.socket) -> None:
        self.outbox = outbox
        self.theirs = theirs

    def arrived(self) -> list[Any]:
        """What has arrived, without waiting."""
        self.theirs.settimeout(0)
        reader, frames = FrameReader(self.theirs), list[Any]()
        try:
            while read := reader.read():
                frames += [frame for data in read for frame in unpack(data)]
        except BlockingIOError:
            pass
        return frames


@pytest.fixture
def connection(monkeypatch: pytest.MonkeyPatch) -> Iterator[Connection]:
    monkeypatch.setattr(Outbox, "_write", lambda _: None)  # nothing is sent but by `flush`
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield Connection(Outbox(ours), theirs)


class Api:
    """Notes what has arrived when it is asked for something."""

    namespace = "ns"

    def __init__(self, connection: Connection) -> None:
        self.arrived: list[Any] = []
        self._connection = connection

    def send(self, _request: object, _reply: object) -> Call:
        self.arrived += self._connection.arrived()
        return self

    def watch(self, _request: object, _sink: object) -> Call:
        return self

    def cancel(self) -> None:
        pass

    def close(self) -> None:
        pass


def test_what_the_backend_was_told_has_been_sent_when_a_request_is(connection: Connection) -> None:
    api = Api(connection)
    announced = _AnnouncedPodApi(api, connection.outbox)
    connection.outbox.tell("before")
    announced.send(kube.Get("a"), lambda _: None)
    connection.outbox.tell("after")
    assert api.arrived == [MessageToBackend("before")]
    announced.send(kube.Get("a"), lambda _: None)
    assert api.arrived == [MessageToBackend("before"), MessageToBackend("after")]


class _Noting:
    """A lock that says when a thread asks for it."""

    def __init__(self, asked: threading.Event) -> None:
        self._asked = asked
        self._lock = threading.Lock()

    def acquire(self, timeout: float) -> bool:
        if self._lock.locked():
            self._asked.set()
        return self._lock.acquire(timeout=timeout)

    def release(self) -> None:
        self._lock.release()


def test_a_request_waits_for_what_another_thread_is_just_sending(connection: Connection) -> None:
    ours, asked, sent = connection.outbox, threading.Event(), threading.Event()
    ours._sending = _Noting(asked)  # type: ignore[assignment]
    ours.tell(bytes(1 << 22))
    sending = threading.Thread(target=ours.flush)
    sending.start()
    assert connection.theirs.recv(1, socket.MSG_PEEK), "more than the connection holds is on its way"

    def send() -> None:
        ours.flush()
        sent.set()
        asked.set()

    request = threading.Thread(target=send)
    request.start()
    assert asked.wait(SAFETY)
    assert not sent.is_set(), "it has not waited"
    assert FrameReader(connection.theirs).read() is not None
    for thread in (sending, request):
        thread.join(SAFETY)
        assert not thread.is_alive()


def test_of_the_states_that_wait_only_the_newest_cross(connection: Connection) -> None:
    first = PodRunning(pod(1))
    for number in range(2, 5):
        connection.outbox.tell(ExecutorsObserved(IdMap({1: first, number: PodRunning(pod(number))})))
    connection.outbox.tell(Polled())
    connection.outbox.flush()
    assert connection.arrived() == [
        Observed({1: first, 4: PodRunning(pod(4))}, is_last=True),
        MessageToBackend(Polled()),
    ]


class _Strange(Exception):  # noqa: N818 - what it is
    def __init__(self, one: object, two: object) -> None:
        super().__init__(f"{one} and {two}")
        self.remedy = lambda: one  # which cannot cross, however errors are pickled in this process


def test_a_cause_crosses_as_it_is_or_in_its_words() -> None:
    same = Conflict("no", status=409)
    assert vars(_portable(same)) == vars(same)
    strange = _portable(_Strange(1, 2))
    assert type(strange) is ActorCrashed
    assert "_Strange: 1 and 2" in str(strange)


def test_what_cannot_cross_ends_the_process_as_the_backend_must_not_miss_it(
    connection: Connection, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Exited(BaseException):
        pass

    def end(code: int) -> NoReturn:
        raise Exited(code)

    monkeypatch.setattr("os._exit", end)
    connection.outbox.tell(lambda: None)
    with pytest.raises(Exited, match="1"):
        connection.outbox.flush()
    assert "Traceback" in capsys.readouterr().err


def test_only_the_newest_states_wait_for_a_process_that_does_not_read(connection: Connection) -> None:
    for number in range(1, 101):
        connection.outbox.tell(ExecutorsObserved(IdMap({number: PodRunning(pod(number))})))
        connection.outbox.tell(Polled())
    assert sum(frame is not None and frame != MessageToBackend(Polled()) for frame in connection.outbox._waiting) == 1
    connection.outbox.flush()
    assert connection.arrived()[-2:] == [
        Observed({100: PodRunning(pod(100))}, is_last=True),
        MessageToBackend(Polled()),
    ]


def test_a_process_whose_driver_does_not_read_for_a_minute_ends(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Exited(BaseException):
        pass

    def end(code: int) -> NoReturn:
        raise Exited(code)

    monkeypatch.setattr("os._exit", end)
    monkeypatch.setattr(outbox, "UNREAD_LIMIT", 1)
    unread = Outbox(connection.outbox.connection)
    unread.tell("x" * (1 << 22))
    with pytest.raises(Exited, match="0"):
        unread.flush()


def test_a_driver_of_another_version_is_refused() -> None:
    fleet._check_version(package_version())
    with pytest.raises(RuntimeError, match=r"the driver runs version 0\.0\.1, and version"):
        fleet._check_version("0.0.1")
