"""Children that run in the fleet's process: what they do there, how they end, and how the process does."""

from __future__ import annotations

import errno
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Final, NoReturn

import pytest

from actors.backend.process import launch, watchdog
from actors.backend.process.fleet_process import MOST_FAILED_STARTS
from actors.backend.process.frames import Ended, Hang, Ping, Pong, pack
from actors.errors import Unauthorized
from actors.messages.internal import (
    AllowWrites,
    ClaimsListed,
    ConfirmPod,
    DeletePod,
    Drain,
    Drained,
    Freshness,
    ListClaims,
    PodConfirmed,
    ReplaceSnapshot,
    StartPolling,
    StartWatching,
)
from actors.messages.internal.names import POLL, POOL, STORE, WATCH
from actors.metrics.counts import ProcessCounts
from actors.runtime import Hung, Lost
from actors.text.version import package_version
from tests.unit.kube.auth.test_exec_plugin import credential_json, plugin, runs
from tests.unit.kube.http.test_pod_api import pod
from tests.unit.kube.scripted import SAFETY, Peer, ScriptedServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.unit.backend.process.conftest import Fleet

    Begin = Callable[..., Fleet]

SOON: Final = timedelta(milliseconds=50)

HANG: Final = Hang(POOL, "DeletePod", 2.0, "the stack")

NO_CLAIMS: Final = {"metadata": {"resourceVersion": "9"}, "items": []}


def silence(peer: Peer) -> None:
    """Answer nothing, until the client goes."""
    peer.gone()


def works(fleet: Fleet) -> None:
    """The pool, which was started, works."""
    fleet.tell(POOL, Drain(fleet.backend))
    fleet.hears(Drained)


def killed(fleet: Fleet) -> int:
    """Kill the process, and return its id once its pool is lost."""
    pid = fleet.pid
    os.kill(pid, signal.SIGKILL)
    assert isinstance(fleet.end().cause, Lost)
    return pid


def wait_until(counted: Callable[[], bool]) -> None:
    """Wait for counts of the process, which come with its pongs."""
    pause = threading.Event()
    while not counted():
        pause.wait(SOON.total_seconds())


@pytest.fixture
def pinged(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes are pinged often, and may answer late."""
    monkeypatch.setattr(watchdog, "PING_EVERY", SOON)
    monkeypatch.setattr(watchdog, "MOST_UNANSWERED", 1_000)


class Handler(logging.Handler):
    """A handler of the driver's, for records of the pool's."""

    def __init__(self, act: Callable[[logging.LogRecord], object]) -> None:
        super().__init__()
        self._act = act

    def emit(self, record: logging.LogRecord) -> None:
        if record.process != os.getpid():
            self._act(record)


@pytest.fixture
def handled() -> Iterator[Callable[[Callable[[logging.LogRecord], object]], None]]:
    added: list[Handler] = []

    def add(act: Callable[[logging.LogRecord], object]) -> None:
        added.append(Handler(act))
        logging.getLogger("actors").addHandler(added[-1])

    yield add
    for each in added:
        logging.getLogger("actors").removeHandler(each)


def test_a_child_works_in_the_process_and_answers_the_backend(fleet: Fleet, server: ScriptedServer) -> None:
    fleet.spawn(POOL)
    server.answers(200, pod("a"))
    fleet.tell(POOL, AllowWrites(), ConfirmPod(7, "a", "u", fleet.backend))
    assert fleet.hears(PodConfirmed).executor_id == 7
    (asked,) = server.asked
    assert (asked.method, asked.headers["authorization"]) == ("GET", "Bearer secret-token")
    assert Path(f"/proc/{fleet.pid}/stat").read_text().split()[3] == str(os.getpid())


def test_a_watch_fills_the_store_there_and_the_backend_hears_how_fresh_it_is(
    fleet: Fleet, server: ScriptedServer
) -> None:
    listed = {"metadata": {"resourceVersion": "9"}, "items": []}
    server.answers(200, listed)
    server.then(silence)
    fleet.spawn(STORE, WATCH)
    fleet.tell(WATCH, StartWatching())
    while fleet.hears(Freshness).synced_at is None:
        pass


def test_a_child_that_is_stopped_ends_after_what_it_was_sent_before(fleet: Fleet) -> None:
    fleet.spawn(POOL, STORE)
    fleet.tell(POOL, Drain(fleet.backend))
    fleet.addresses[POOL].stop()
    ended = fleet.end()
    assert (ended.name, ended.cause) == (POOL, None)
    fleet.hears(Drained)
    assert fleet.addresses[STORE].is_alive()


def test_a_child_that_crashes_ends_alone_and_the_next_one_starts_in_the_same_process(
    fleet: Fleet, handled: Callable[[Callable[[logging.LogRecord], object]], None]
) -> None:
    records: SimpleQueue[logging.LogRecord] = SimpleQueue()
    handled(lambda record: records.put(record) if record.levelno == logging.ERROR else None)
    fleet.spawn(POOL, STORE)
    works(fleet)
    pid = fleet.pid
    fleet.tell(STORE, ("nobody", "knows this"))
    ended = fleet.end()
    assert (ended.name, type(ended.cause)) == (STORE, AssertionError)
    record = records.get(timeout=SAFETY)
    assert record.name == "actors.runtime.actor"
    assert record.getMessage() == "actor crashed: actor=snapshot-store-1 message=tuple"
    assert "AssertionError" in (record.exc_text or "")
    assert (record.process, vars(record)["app_id"]) == (fleet.pid, "app")
    works(fleet)
    fleet.spawn(STORE)
    assert fleet.pid == pid


def test_a_message_to_a_child_that_has_ended_does_not_reach_the_next_one(fleet: Fleet) -> None:
    fleet.spawn(POOL, STORE)
    before = fleet.addresses[STORE].handle
    fleet.addresses[STORE].stop()
    fleet.end()
    fleet.spawn(STORE)
    process = fleet.process._process
    assert process is not None
    assert before is not None
    process.tell(STORE, before.incarnation, ("nobody", "knows this"))
    works(fleet)
    assert fleet.ends.empty()


def test_all_children_are_lost_with_the_process_and_the_next_ones_start_another(
    fleet: Fleet, caplog: pytest.LogCaptureFixture
) -> None:
    fleet.spawn(POOL, STORE)
    works(fleet)
    pid = killed(fleet)
    assert isinstance(fleet.end().cause, Lost)
    fleet.spawn(POOL)
    works(fleet)
    assert fleet.pid != pid
    assert f"process of the fleet ended: pid={pid} reason=it was killed by SIGKILL" in caplog.text


def test_a_process_that_does_not_answer_is_killed(begin: Begin, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watchdog, "PING_EVERY", SOON)
    with monkeypatch.context() as patient:
        patient.setattr(watchdog, "MOST_UNANSWERED", 1_000)
        fleet = begin()
        fleet.spawn(POOL)
        works(fleet)
        os.kill(fleet.pid, signal.SIGSTOP)
    ended = fleet.end()
    assert "it does not answer" in str(ended.cause)


def test_a_process_that_does_not_begin_is_killed(begin: Begin, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watchdog, "PING_EVERY", SOON)
    monkeypatch.setattr(watchdog, "START_LIMIT", 2 * SOON)
    monkeypatch.setattr(launch, "PROGRAM", "import signal; signal.pause()")
    fleet = begin()
    fleet.spawn(POOL)
    assert "it does not begin" in str(fleet.end().cause)


@dataclass(frozen=True)
class Hanging(DeletePod):
    """In another process than the one that makes it, its name takes for ever."""

    gate: str = ""
    home: int = field(default_factory=os.getpid)

    def __getattribute__(self, name: str) -> Any:
        if name == "name" and os.getpid() != object.__getattribute__(self, "home"):
            Path(object.__getattribute__(self, "gate")).read_text()
        return object.__getattribute__(self, name)


def test_a_process_in_which_a_child_hangs_is_killed_and_the_log_shows_where(
    begin: Begin, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(watchdog, "MOST_UNANSWERED", 1_000)
    os.mkfifo(tmp_path / "gate")
    fleet = begin(backend={"hang_timeout": "1s"})
    fleet.spawn(POOL, STORE)
    works(fleet)
    fleet.tell(POOL, AllowWrites(), Hanging("a", gate=str(tmp_path / "gate")))
    ends = {ended.name: ended.cause for ended in (fleet.end(), fleet.end())}
    assert [type(ends[name]) for name in (POOL, STORE)] == [Hung, Lost], "only the one that hangs has failed"
    assert all("request-pool was busy with Hanging for" in str(cause) for cause in ends.values())
    (record,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert "actor hangs, its process is killed: actor=request-pool message=Hanging" in record.getMessage()
    assert record.exc_info is not None
    assert isinstance(record.exc_info[1], Hung)
    assert "__getattribute__" in "".join(record.exc_info[1].__notes__)


def test_a_write_of_a_process_that_is_killed_may_have_been_carried_out(fleet: Fleet, server: ScriptedServer) -> None:
    arrived = threading.Event()

    def never_answer(peer: Peer) -> None:
        arrived.set()
        peer.gone()

    server.then(never_answer)
    fleet.spawn(POOL)
    fleet.tell(POOL, AllowWrites(), DeletePod("a"))
    assert arrived.wait(SAFETY)
    killed(fleet)


def test_after_too_many_processes_that_never_work_this_process_runs_the_children(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    program = tmp_path / "no-python"
    program.write_text("#!/bin/sh\nexit 7\n")
    program.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(program))
    for _ in range(MOST_FAILED_STARTS):
        fleet.spawn(POOL)
        assert "it exited with 7" in str(fleet.end().cause)
    fleet.spawn(POOL)
    works(fleet)
    assert fleet.process.pid is None
    assert "this process observes and writes itself" in caplog.text


@pytest.mark.parametrize("lacking", [("executable", None), ("frozen", True)], ids=lambda lacking: lacking[0])
def test_where_no_process_can_be_started_this_process_runs_the_children(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch, lacking: tuple[str, Any]
) -> None:
    monkeypatch.setattr(sys, *lacking, raising=False)
    fleet.spawn(POOL)
    assert isinstance(fleet.end().cause, Lost)
    fleet.spawn(POOL)
    works(fleet)
    assert fleet.process.pid is None


def test_after_one_that_worked_another_process_is_tried_some_more_times(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet.spawn(POOL)
    works(fleet)
    killed(fleet)
    with monkeypatch.context() as patch:
        patch.setattr(sys, "executable", None)
        for _ in range(MOST_FAILED_STARTS - 1):
            fleet.spawn(POOL)
            assert isinstance(fleet.end().cause, Lost)
    fleet.spawn(POOL)
    works(fleet)
    assert fleet.process.pid is not None


def test_after_an_upgrade_under_a_running_driver_its_process_runs_the_children_in_the_end(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    fleet.spawn(POOL)
    works(fleet)
    killed(fleet)
    monkeypatch.setattr(fleet.process, "_version", "0.0.1")
    for _ in range(MOST_FAILED_STARTS):
        fleet.spawn(POOL)
        assert isinstance(fleet.end().cause, Lost)
    assert "RuntimeError: the driver runs version 0.0.1, and version" in caplog.text
    fleet.spawn(POOL)
    works(fleet)
    assert fleet.process.pid is None


GARBAGE: Final = {
    "text": b"Traceback (most recent call last):\n",
    "a frame of a gigabyte": (1 << 30).to_bytes(4, "big"),
    "frames that are none": b"\0\0\0\1\xc1",
    "half a frame": b"\0\0\0\7\x91",
    "a frame of the other side": pack([Ping(SOON)]),
    "the end of a stranger": pack([Ended("nobody", 7, None)]),
    "nothing": b"",
}


def sends(data: bytes) -> Callable[[socket.socket, str], subprocess.Popen[bytes]]:
    """What starts a process that sends these bytes and ends."""

    def start(theirs: socket.socket, _version: str) -> subprocess.Popen[bytes]:
        number = theirs.fileno()
        program = f"import os, socket; socket.socket(fileno={number}).sendall({data!r}); os._exit(0)"
        return subprocess.Popen([sys.executable, "-c", program], pass_fds=[number])

    return start


@pytest.mark.parametrize("garbage", GARBAGE.values(), ids=GARBAGE)
def test_a_process_that_sends_something_else_and_ends_is_lost(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch, garbage: bytes
) -> None:
    monkeypatch.setattr(launch, "start", sends(garbage))
    fleet.spawn(POOL)
    assert isinstance(fleet.end().cause, Lost)
    assert fleet.process.pid is None


@pytest.mark.parametrize(("hangs", "cause"), [((HANG, None, HANG), Lost), ((HANG, HANG), Hung)])
def test_a_child_has_failed_if_it_hangs_twice_in_a_row(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch, hangs: tuple[Hang | None, ...], cause: type[Exception]
) -> None:
    monkeypatch.setattr(launch, "start", sends(pack([Pong(hang, ProcessCounts()) for hang in hangs])))
    fleet.spawn(POOL)
    assert type(fleet.end().cause) is cause


def test_a_process_whose_first_frame_is_another_says_so_and_ends() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        process = launch.start(theirs, package_version())
        theirs.close()
        ours.sendall(pack([Ping(SOON)]))
        said = ours.makefile("rb").read()
        assert b"the process of the fleet has failed: TypeError: the first frame is Ping" in said
        assert process.wait(SAFETY) == 0


def test_frames_that_cannot_cross_end_the_process(fleet: Fleet, caplog: pytest.LogCaptureFixture) -> None:
    fleet.spawn(POOL)
    works(fleet)
    fleet.tell(POOL, lambda: None)
    assert "frames cannot cross" in str(fleet.end().cause)
    assert "frames cannot cross" in caplog.text


def test_what_is_no_text_in_the_path_of_imports_is_left_out(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", ["", Path(), *sys.path, "\udcff"])
    fleet.spawn(POOL)
    works(fleet)


def test_close_ends_the_process_and_its_children_and_leaves_no_zombie(fleet: Fleet) -> None:
    fleet.spawn(POOL)
    works(fleet)
    pid = fleet.pid
    fleet.process.close()
    assert fleet.end().cause is None
    assert fleet.process.pid is None
    assert not Path(f"/proc/{pid}").exists()


def test_close_may_come_before_the_process_has_begun(fleet: Fleet) -> None:
    fleet.spawn(POOL)
    fleet.process.close()
    assert fleet.end().cause is None
    assert fleet.process.pid is None


def test_a_login_program_runs_once_and_here_when_the_process_needs_a_newer_credential(
    server: ScriptedServer, begin: Begin, tmp_path: Path
) -> None:
    fleet = begin(plugin(tmp_path, credential_json(token="old")))
    fleet.spawn(POOL)
    works(fleet)
    plugin(tmp_path, credential_json(token="new"), then="echo $PPID > parent")
    server.answers(401, {})
    server.answers(200, NO_CLAIMS)
    fleet.tell(POOL, AllowWrites(), ListClaims(fleet.backend))
    assert fleet.hears(ClaimsListed).claims == ()
    assert runs(tmp_path) == 2
    assert int((tmp_path / "parent").read_text()) == os.getpid()
    assert [asked.headers["authorization"] for asked in server.asked] == ["Bearer old", "Bearer new"]
    server.answers(401, {})
    fleet.tell(POOL, ListClaims(fleet.backend))
    assert isinstance(fleet.hears(ClaimsListed).claims, Unauthorized), "there is no newer one"


def test_a_login_program_that_hangs_at_the_start_holds_up_no_caller(
    server: ScriptedServer, begin: Begin, tmp_path: Path
) -> None:
    fleet = begin(plugin(tmp_path, credential_json(token="old", expirationTimestamp="2020-01-01T00:00:00Z")))
    os.mkfifo(tmp_path / "gate")
    plugin(tmp_path, credential_json(token="new"), then="exec 3< gate")
    fleet.spawn(POOL)
    server.answers(200, NO_CLAIMS)
    fleet.tell(POOL, AllowWrites(), ListClaims(fleet.backend))
    with (tmp_path / "gate").open("w"):
        assert fleet.told.empty()
    fleet.hears(ClaimsListed)
    assert server.asked[0].headers["authorization"] == "Bearer new"


@pytest.mark.usefixtures("pinged")
def test_counts_arrive_with_the_pongs_and_the_next_process_continues_them(fleet: Fleet, server: ScriptedServer) -> None:
    def asked(times: int) -> None:
        fleet.spawn(POOL)
        server.answers(200, NO_CLAIMS)
        fleet.tell(POOL, AllowWrites(), ListClaims(fleet.backend))
        fleet.hears(ClaimsListed)
        wait_until(lambda: fleet.counts.requests().results.read().get(("list_objects", "ok"), 0) >= times)

    asked(1)
    killed(fleet)
    asked(2)
    assert fleet.counts.requests().any_succeeded()


@pytest.mark.usefixtures("pinged")
def test_this_process_continues_the_counts_when_it_runs_the_children_itself(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    def listed(times: int) -> None:
        fleet.spawn(STORE)
        fleet.tell(STORE, ReplaceSnapshot((), "9", fleet.system.clock.monotonic(), consistent=True))
        wait_until(lambda: fleet.counts.store.lists.read().get(("poll", "applied"), 0) >= times)

    listed(1)
    killed(fleet)
    monkeypatch.setattr(sys, "executable", None)
    for _ in range(MOST_FAILED_STARTS):
        fleet.spawn(STORE)
        assert isinstance(fleet.end().cause, Lost)
    listed(2)
    assert fleet.process.pid is None


def test_a_source_goes_on_in_the_next_process(fleet: Fleet, server: ScriptedServer) -> None:
    for _ in range(2):
        fleet.spawn(POLL)
        fleet.tell(POLL, StartPolling())
        fleet.spawn(POOL)
        works(fleet)
        os.kill(fleet.pid, signal.SIGKILL)
        assert {fleet.end().name, fleet.end().name} == {POLL, POOL}
    assert server.asked == []


def test_a_log_handler_that_ends_its_thread_loses_nothing_that_is_told(
    fleet: Fleet,
    handled: Callable[[Callable[[logging.LogRecord], object]], None],
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(logging, "raiseExceptions", True)
    handled(lambda _: sys.exit())
    fleet.spawn(POOL, STORE)
    fleet.tell(STORE, ("nobody", "knows this"))
    assert type(fleet.end().cause) is AssertionError
    works(fleet)
    killed(fleet)
    assert "SystemExit" in capfd.readouterr().err


def test_a_log_handler_that_blocks_holds_up_nothing_that_is_told(
    fleet: Fleet, handled: Callable[[Callable[[logging.LogRecord], object]], None]
) -> None:
    gate = threading.Event()
    handled(lambda _: gate.wait(SAFETY))
    try:
        fleet.spawn(POOL, STORE)
        fleet.tell(STORE, ("nobody", "knows this"))
        assert type(fleet.end().cause) is AssertionError
        works(fleet)
        killed(fleet)
    finally:
        gate.set()


def test_a_process_without_a_credential_is_ended(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def no_credential() -> NoReturn:
        raise PermissionError("no such luck")

    monkeypatch.setattr(fleet.api.access.credentials, "current", no_credential)
    fleet.spawn(POOL)
    assert "it has no credential: PermissionError" in str(fleet.end().cause)
    assert "no such luck" in caplog.text


def test_a_socket_timeout_of_the_host_program_is_none_of_the_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    def timed_out_at_once(make: Callable[[], tuple[socket.socket, socket.socket]] = socket.socketpair) -> Any:
        pair = make()
        for end in pair:
            end.settimeout(0)
        return pair

    monkeypatch.setattr(socket, "socketpair", timed_out_at_once)
    for end in launch.connection_pair():
        with end:
            assert end.gettimeout() is None


@pytest.mark.parametrize("worked", [False, True], ids=["at first", "later"])
def test_without_a_descriptor_no_process_is_started_and_no_child_has_failed(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch, *, worked: bool
) -> None:
    def no_descriptor() -> NoReturn:
        raise OSError(errno.EMFILE, "Too many open files")

    if worked:
        fleet.spawn(POOL)
        works(fleet)
        killed(fleet)
    with monkeypatch.context() as patch:
        patch.setattr(socket, "socketpair", no_descriptor)
        if worked:
            with pytest.raises(Lost, match="Too many open files"):
                fleet.spawn(POOL)
        else:
            fleet.spawn(POOL)
            works(fleet)
    if worked:
        fleet.spawn(POOL)
        works(fleet)
    assert (fleet.process.pid is not None) == worked


@pytest.mark.usefixtures("pinged")
def test_calls_of_a_process_that_is_lost_are_under_way_no_more(fleet: Fleet, server: ScriptedServer) -> None:
    server.then(silence)
    fleet.spawn(POOL)
    fleet.tell(POOL, AllowWrites(), ListClaims(fleet.backend))
    wait_until(lambda: bool(fleet.counts.requests().in_flight().get("list_objects")))
    killed(fleet)
    assert fleet.counts.requests().in_flight() == {"list_objects": 0}
    assert fleet.counts.requests().results.read() == {("list_objects", "Lost"): 1}


def test_in_a_hurry_a_hang_is_found_at_once(begin: Begin, monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = begin()
    fleet.spawn(POOL)
    works(fleet)
    os.kill(fleet.pid, signal.SIGSTOP)
    fleet.process.hurry(4 * SOON)
    assert "it does not answer" in str(fleet.end().cause)


def test_a_path_of_imports_may_have_any_character(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path, "/\U0001f680"])
    fleet.spawn(POOL)
    works(fleet)


def test_the_process_leaves_sigterm_to_the_driver(fleet: Fleet) -> None:
    fleet.spawn(POOL)
    works(fleet)
    os.kill(fleet.pid, signal.SIGTERM)
    works(fleet)


PIPE: Final = """
import signal, socket, sys
from actors.backend.process.incarnation import NO_SIGNAL
signal.signal(signal.SIGPIPE, signal.SIG_DFL)
ours, theirs = socket.socketpair()
theirs.close()
for flags in (socket.MSG_DONTWAIT | NO_SIGNAL, NO_SIGNAL):
    try:
        ours.sendall(b"x", flags)
    except BrokenPipeError:
        print("alive")
"""


def test_a_driver_that_sigpipe_ends_is_not_ended_by_what_it_sends() -> None:
    program = subprocess.run([sys.executable, "-c", PIPE], capture_output=True, text=True, check=True)
    assert program.stdout == "alive\nalive\n"
