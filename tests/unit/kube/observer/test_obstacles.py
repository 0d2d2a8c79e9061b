"""An observer that is stopped, killed, closed or no observer, in the middle of what it does: each call ends once."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from datetime import timedelta
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Final

import pytest

from actors import kube
from actors.errors import Ambiguous, ApiError, Cancelled, NotSent, Unavailable
from actors.kube.api import PodPage
from actors.kube.auth.connection import Connection
from actors.kube.auth.credentials import Credential
from actors.kube.observer import pod_api
from actors.kube.observer.frames import (
    Begin,
    Body,
    CancelCall,
    Events,
    Fetch,
    FrameReader,
    LogLine,
    Ping,
    WireCredential,
    from_observer,
    pack,
)
from actors.kube.observer.pod_api import MOST_ENDS, ObserverPodApi
from actors.runtime import Deadline, SystemClock
from tests.unit.kube.auth.test_exec_plugin import credential_json, plugin, runs
from tests.unit.kube.conftest import ask
from tests.unit.kube.http.test_pod_api import pod
from tests.unit.kube.observer.test_pod_api import PAGE, identified, killed, listed, names, observer_of, silence
from tests.unit.kube.scripted import SAFETY, Peer, ScriptedServer

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.unit.kube.conftest import Client

LONG: Final = 1 << 20
"""Bytes, more than a socket takes at once."""

AT_ONCE: Final = timedelta(milliseconds=200)
"""For a call that nobody answers."""


def stopped(api: ObserverPodApi, server: ScriptedServer) -> int:
    """An observer that has begun its work, and is stopped."""
    server.answers(200, PAGE)
    listed(api)
    pid = observer_of(api)
    os.kill(pid, signal.SIGSTOP)
    return pid


def test_a_write_whose_deadline_passes_while_the_observer_is_stopped_is_not_sent(
    server: ScriptedServer, api: ObserverPodApi
) -> None:
    clock = SystemClock()
    pid = stopped(api, server)
    answers: SimpleQueue[object] = SimpleQueue()
    api.send(kube.Create(pod("a"), deadline=Deadline(clock.monotonic() + 0.05, clock)), answers.put)
    threading.Event().wait(0.1)
    os.kill(pid, signal.SIGCONT)
    assert type(answers.get(timeout=SAFETY)) is NotSent
    assert [asked.method for asked in server.asked] == ["GET"]


def test_a_call_of_a_stopped_observer_ends_at_its_limit(
    server: ScriptedServer, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pod_api, "GRACE", timedelta())
    api = ObserverPodApi(client.connect(limit=AT_ONCE))
    try:
        pid = observer_of_new(api, server)
        os.kill(pid, signal.SIGSTOP)
        assert type(ask(lambda reply: api.send(kube.Create(pod("a")), reply))) is Ambiguous
        assert type(listed(api)) is Unavailable
        os.kill(pid, signal.SIGCONT)
        assert api.pid == pid
    finally:
        api.close()


def observer_of_new(api: ObserverPodApi, server: ScriptedServer) -> int:
    """One that has answered: it needs its time to start."""
    while True:
        server.scripts.clear()
        server.answers(200, PAGE)
        if isinstance(listed(api), PodPage):
            return observer_of(api)


def test_a_closed_api_has_cancelled_its_calls_and_a_stopped_observer_sends_nothing_more(
    server: ScriptedServer, api: ObserverPodApi
) -> None:
    pid = stopped(api, server)
    answers: SimpleQueue[object] = SimpleQueue()
    api.send(kube.Create(pod("a")), answers.put)
    api.close()
    assert type(answers.get(timeout=SAFETY)) is Cancelled
    assert not Path(f"/proc/{pid}").exists()
    assert [asked.method for asked in server.asked] == ["GET"]
    assert type(ask(lambda reply: api.send(kube.Create(pod("a")), reply))) is Cancelled


class ObserverByHand:
    """The observer's process, and its connection in our hands."""

    def __init__(self, server: ScriptedServer) -> None:
        self._connection, theirs = socket.socketpair()
        with theirs:
            self._process = pod_api._spawn(theirs)
        self._reader = FrameReader(self._connection)
        way = Credential(Connection(f"http://{server.name}"))
        self.begin = Begin("ns", "ns", WireCredential.of(way), SAFETY, 4, (LONG, LONG, LONG), 30)
        self.send(self.begin)

    def send(self, *frames: Any) -> None:
        self._connection.sendall(b"".join(map(pack, frames)))

    def hear(self, kind: type) -> None:
        """Read until there is one."""
        while frames := self._reader.read():
            if any(isinstance(from_observer(frame), kind) for frame in frames):
                return
        raise AssertionError("the observer has ended")

    def begins_to_hear(self) -> None:
        """Wait for the first byte, and read none."""
        self._connection.recv(1, socket.MSG_PEEK)

    def close(self) -> int:
        self._connection.close()
        return self._process.wait(SAFETY)


def fetch(serial: int, method: str) -> Fetch:
    return Fetch(serial, method, "/a", None, "application/json", "identity", True, "object", None)  # noqa: FBT003


def test_a_write_that_is_cancelled_before_it_is_read_is_not_sent(server: ScriptedServer) -> None:
    observer = ObserverByHand(server)
    server.answers(200, {})
    observer.send(fetch(1, "POST"), CancelCall(1), fetch(2, "GET"), Ping())
    observer.hear(Body)
    assert observer.close() == 0
    assert [asked.method for asked in server.asked] == ["GET"]


def test_an_observer_that_fails_in_the_middle_of_a_long_frame_says_why_after_it(server: ScriptedServer) -> None:
    observer = ObserverByHand(server)
    server.answers(200, b"{" + b" " * (LONG - 2) + b"}")
    observer.send(fetch(1, "GET"))
    observer.begins_to_hear()
    observer.send(observer.begin)
    observer.hear(Body)
    observer.hear(LogLine)
    assert observer.close() == 0


def test_an_observer_whose_first_frame_is_another_ends() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        process = pod_api._spawn(theirs)
        theirs.close()
        ours.sendall(pack(Ping()))
        assert FrameReader(ours).read() is not None, "it says why"
        assert process.wait(SAFETY) == 0


GARBAGE: Final = {
    "text": b"Traceback (most recent call last):\n",
    "a frame of a gigabyte": (1 << 30).to_bytes(4, "big"),
    "a frame that is none": b"\0\0\0\1\xc1",
    "half a frame": b"\0\0\0\7\x91",
    "an unknown pod": pack(Events(1, [("DELETED", 7, None)], "9", 0, False, 0)),  # noqa: FBT003
    "nothing": b"",
}


@pytest.mark.parametrize("garbage", GARBAGE.values(), ids=GARBAGE)
def test_an_observer_that_sends_something_else_is_ended_and_this_process_observes(
    server: ScriptedServer, api: ObserverPodApi, monkeypatch: pytest.MonkeyPatch, garbage: bytes
) -> None:
    def something_else(theirs: socket.socket) -> subprocess.Popen[bytes]:
        number = theirs.fileno()
        program = f"import os, socket; socket.socket(fileno={number}).sendall({garbage!r}); os._exit(0)"
        return subprocess.Popen([sys.executable, "-c", program], pass_fds=[number])

    monkeypatch.setattr(pod_api, "_spawn", something_else)
    for _ in range(MOST_ENDS):
        assert type(listed(api)) is Unavailable
        assert api._observer is not None
        api._observer._reader.join(SAFETY)
    server.answers(200, PAGE)
    assert names(listed(api)) == ["a", "b"]
    assert api.pid is None


def test_an_interpreter_that_cannot_observe_says_so(
    api: ObserverPodApi, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    program = tmp_path / "no-python"
    program.write_text("#!/bin/sh\nexit 7\n")
    program.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(program))
    assert type(listed(api)) is Unavailable
    assert "reason=it exited with 7" in caplog.text


def test_a_frozen_program_is_not_started_once_more(
    server: ScriptedServer, api: ObserverPodApi, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    server.answers(200, PAGE)
    assert names(listed(api)) == ["a", "b"]
    assert api.pid is None
    assert "a frozen program has no Python interpreter" in caplog.text


def test_what_is_no_text_in_the_path_of_imports_is_left_out(
    server: ScriptedServer, api: ObserverPodApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", ["", Path(), *sys.path, "\udcff"])
    server.answers(200, PAGE)
    assert names(listed(api)) == ["a", "b"]
    assert api.pid is not None


def test_an_observer_that_is_killed_in_the_middle_of_a_large_list_leaves_no_half_of_it(
    server: ScriptedServer, api: ObserverPodApi
) -> None:
    arrived = threading.Event()

    def half(peer: Peer) -> None:
        peer.head(200, {"Content-Length": str(1 << 25)})
        peer.send(b'{"metadata":{"resourceVersion":"9"},"items":[')
        peer.send(b" " * (1 << 20))
        arrived.set()
        peer.gone()

    server.then(half)
    answers: SimpleQueue[object] = SimpleQueue()
    api.send(kube.List("a=b"), answers.put)
    assert arrived.wait(SAFETY)
    killed(api)
    assert type(answers.get(timeout=SAFETY)) is Unavailable
    many = [identified(f"p{number}") for number in range(3000)]
    server.answers(200, {"metadata": {"resourceVersion": "10"}, "items": many})
    assert len(names(listed(api))) == 3000
    assert answers.empty()


def test_each_call_that_races_with_the_observers_death_ends_once(server: ScriptedServer, api: ObserverPodApi) -> None:
    calls = 200
    server.answers(200, PAGE)
    listed(api)
    server.then(*[lambda peer: peer.answer(200, pod("a"))] * calls)
    answers: SimpleQueue[object] = SimpleQueue()
    for number in range(calls):
        if number == calls // 2:
            os.kill(observer_of(api), signal.SIGKILL)
        api.send(kube.Get("a"), answers.put)
    got = [answers.get(timeout=SAFETY) for _ in range(calls)]
    assert len(server.asked) <= calls + 1
    assert {type(each) for each in got if isinstance(each, ApiError)} <= {Unavailable}
    server.scripts.clear()
    server.answers(200, PAGE)
    listed(api)
    assert answers.empty()


def test_a_reply_may_close_the_api(server: ScriptedServer, client: Client) -> None:
    api = ObserverPodApi(client.connect())
    server.answers(200, PAGE)
    closed: SimpleQueue[object] = SimpleQueue()

    def close(answer: object) -> None:
        api.close()
        closed.put(answer)

    api.send(kube.List("a=b"), close)
    assert isinstance(closed.get(timeout=SAFETY), PodPage)
    assert api._observer is not None
    api._observer._reader.join(SAFETY)
    assert api.pid is None


def test_the_api_may_be_closed_by_many_while_it_starts(server: ScriptedServer, client: Client) -> None:
    server.then(*[silence] * 8)
    api = ObserverPodApi(client.connect())
    answers: SimpleQueue[object] = SimpleQueue()
    gate = threading.Barrier(8)

    def then(act: Callable[[], object]) -> None:
        gate.wait(SAFETY)
        act()

    threads = [
        threading.Thread(target=then, args=(act,))
        for act in (api.close, lambda: api.send(kube.List("a=b"), answers.put))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SAFETY)
    api.close()
    assert [type(answers.get(timeout=SAFETY)) for _ in range(4)] == [Cancelled] * 4
    assert answers.empty()
    assert api.pid is None


def test_close_cancels_a_call_although_the_end_of_the_observer_is_noticed_first(
    server: ScriptedServer, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.then(silence)
    api = ObserverPodApi(client.connect())
    answers: SimpleQueue[object] = SimpleQueue()
    api.send(kube.List("a=b"), answers.put)
    observer = api._observer
    assert observer is not None
    close = observer._calls.close

    def close_after_the_end() -> None:
        observer._reader.join(SAFETY)
        close()

    monkeypatch.setattr(observer._calls, "close", close_after_the_end)
    api.close()
    assert type(answers.get(timeout=SAFETY)) is Cancelled


def test_a_login_program_runs_once_and_here_when_the_observer_needs_a_newer_credential(
    server: ScriptedServer, client: Client, tmp_path: Path
) -> None:
    user = plugin(tmp_path, credential_json(token="old"))
    api = ObserverPodApi(client.connect(**user))
    try:
        server.answers(200, PAGE)
        listed(api)
        plugin(tmp_path, credential_json(token="new"), then="echo $PPID > parent")
        server.answers(401, {})
        server.answers(200, PAGE)
        assert names(listed(api)) == ["a", "b"]
        server.answers(200, pod("a"))
        assert ask(lambda reply: api.send(kube.Get("a"), reply)).name == "a"
        assert runs(tmp_path) == 2
        assert int((tmp_path / "parent").read_text()) == os.getpid()
        assert [asked.headers["authorization"] for asked in server.asked][-2:] == ["Bearer new"] * 2
    finally:
        api.close()


def test_a_login_program_that_hangs_holds_up_only_the_call_that_needs_it(
    server: ScriptedServer, client: Client, tmp_path: Path
) -> None:
    user = plugin(tmp_path, credential_json(token="old"))
    api = ObserverPodApi(client.connect(**user))
    os.mkfifo(tmp_path / "gate")
    try:
        server.answers(200, PAGE)
        listed(api)
        plugin(tmp_path, credential_json(token="new"), then="exec 3< gate")
        server.answers(401, {})
        server.answers(200, PAGE)
        answers: SimpleQueue[Any] = SimpleQueue()
        api.send(kube.List("a=b"), answers.put)
        with (tmp_path / "gate").open("w"):  # it has begun
            assert answers.empty()
        assert names(answers.get(timeout=SAFETY)) == ["a", "b"]
    finally:
        api.close()


def test_a_login_program_that_runs_before_the_observer_can_begin_holds_up_no_caller(
    server: ScriptedServer, client: Client, tmp_path: Path
) -> None:
    expired = credential_json(token="old", expirationTimestamp="2020-01-01T00:00:00Z")
    user = plugin(tmp_path, expired)
    os.mkfifo(tmp_path / "gate")
    api = ObserverPodApi(client.connect(**user))
    plugin(tmp_path, credential_json(token="new"), then="exec 3< gate")
    try:
        server.answers(200, PAGE)
        answers: SimpleQueue[Any] = SimpleQueue()
        api.send(kube.List("a=b"), answers.put)
        with (tmp_path / "gate").open("w"):
            assert answers.empty()
        assert names(answers.get(timeout=SAFETY)) == ["a", "b"]
        assert server.asked[0].headers["authorization"] == "Bearer new"
    finally:
        api.close()
