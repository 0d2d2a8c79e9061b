"""The launcher's guarantee: no process that it started outlives the program that uses it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from queue import SimpleQueue

import pytest

import actors
from actors.local.kubelet.processes.processes import (
    LauncherLost,
    Processes,
    ProcessEvent,
    ProcessExited,
    ProcessFailed,
    ProcessStarted,
)
from tests.unit.local.process_kit import SAFETY_SECONDS

socket_pair = socket.socketpair

HOST = """
import os, sys
from pathlib import Path
from actors.local.kubelet.processes.processes import Processes
processes = Processes(print)
processes.open()
command = "setsid sleep 1000 & sh -c 'echo up; exec sleep 1000' & exec sleep 1000"
processes.start("a", ["sh", "-c", f"({command}) > {sys.argv[1]}"], dict(os.environ), None, Path(sys.argv[2]))
sys.stdin.read()
"""


def test_when_the_host_is_killed_so_are_all_its_processes(tmp_path: Path) -> None:
    pipe = tmp_path / "held"
    os.mkfifo(pipe)
    root = Path(actors.__file__).parents[1]
    arguments = [sys.executable, "-c", HOST, str(pipe), str(tmp_path / "log")]
    with subprocess.Popen(arguments, cwd=root, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as host:
        with pipe.open() as held_open:
            assert held_open.readline() == "up\n"
            host.kill()
            assert held_open.read() == ""  # ends with the last process that holds the pipe
        assert host.wait(SAFETY_SECONDS) == -9


TREE = "setsid sh -c 'setsid sleep 1000 & exec sleep 1000' & sh -c 'setsid sleep 1000 & echo up; exec sleep 1000'"


def relatives(pid: int) -> list[int]:
    """The process and all that it has started, the oldest first."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *(each for child in children for each in relatives(int(child)))]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has subreapers")
@pytest.mark.parametrize("victim", [0, 1])
def test_when_the_launcher_is_killed_so_are_processes_that_left_their_session(tmp_path: Path, victim: int) -> None:
    received: SimpleQueue[ProcessEvent] = SimpleQueue()
    pipe = tmp_path / "held"
    os.mkfifo(pipe)
    processes = Processes(received.put)
    processes.open()
    try:
        assert processes._launcher is not None
        processes.start("a", ["sh", "-c", f"({TREE}) > {pipe}"], dict(os.environ), None, tmp_path / "log")
        with pipe.open() as held_open:
            assert held_open.readline() == "up\n"
            assert isinstance(received.get(timeout=SAFETY_SECONDS), ProcessStarted)
            guardian, launcher, *_ = relatives(processes._launcher.pid)
            os.kill((guardian, launcher)[victim], signal.SIGKILL)
            assert held_open.read() == ""  # ends with the last process that holds the pipe
        assert isinstance(received.get(timeout=SAFETY_SECONDS), LauncherLost)
    finally:
        processes.close()


def test_events_of_one_process_come_in_order_and_both_outputs_go_to_its_log(tmp_path: Path) -> None:
    received: SimpleQueue[ProcessEvent] = SimpleQueue()
    processes = Processes(received.put)
    processes.open()
    try:
        log = tmp_path / "log"
        processes.start("a", ["sh", "-c", "echo one; echo two >&2; exit 3"], {"PATH": os.defpath}, None, log)
        events = [received.get(timeout=SAFETY_SECONDS) for _ in range(2)]
    finally:
        processes.close()
    started, exited = events
    assert isinstance(started, ProcessStarted)
    assert exited == ProcessExited("a", 3)
    assert log.read_text() == "one\ntwo\n"
    assert log.stat().st_mode & 0o777 == 0o600


def test_a_socket_timeout_of_the_host_program_is_none_of_the_launchers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    received: SimpleQueue[ProcessEvent] = SimpleQueue()
    processes = Processes(received.put)
    monkeypatch.setattr(socket, "socketpair", timed_out_at_once)
    processes.open()
    try:
        processes.start("a", ["sh", "-c", "read line"], {"PATH": os.defpath}, None, tmp_path / "log")
        events = [received.get(timeout=SAFETY_SECONDS) for _ in range(2)]
    finally:
        processes.close()
    assert [type(event) for event in events] == [ProcessStarted, ProcessExited]


def timed_out_at_once() -> tuple[socket.socket, socket.socket]:
    """As after `socket.setdefaulttimeout(0)`."""
    pair = socket_pair()
    for end in pair:
        end.settimeout(0)
    return pair


HOST_THAT_IGNORES_ITS_CHILDREN = """
import os, signal, sys
from pathlib import Path
from queue import SimpleQueue
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
from actors.local.kubelet.processes.processes import Processes
received = SimpleQueue()
processes = Processes(received.put)
processes.open()
processes.start("a", ["sh", "-c", "exit 3"], {"PATH": os.defpath}, None, Path(sys.argv[1]))
print(received.get(timeout=60).key, received.get(timeout=60).exit_code)
processes.close()
"""


def test_exit_codes_are_known_though_the_host_program_ignores_sigchld(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", HOST_THAT_IGNORES_ITS_CHILDREN, str(tmp_path / "log")],
        cwd=Path(actors.__file__).parents[1],
        capture_output=True,
        text=True,
        timeout=SAFETY_SECONDS,
        check=True,
    )
    assert (done.stdout, done.stderr) == ("a 3\n", "")


def test_an_impossible_argument_fails_its_process_only(tmp_path: Path) -> None:
    received: SimpleQueue[ProcessEvent] = SimpleQueue()
    processes = Processes(received.put)
    processes.open()
    try:
        processes.start("a", ["echo", "\0"], {"PATH": os.defpath}, None, tmp_path / "log")
        failed = received.get(timeout=SAFETY_SECONDS)
        processes.start("b", ["true"], {"PATH": os.defpath}, None, tmp_path / "log")
        assert isinstance(received.get(timeout=SAFETY_SECONDS), ProcessStarted)
    finally:
        processes.close()
    assert isinstance(failed, ProcessFailed)


def test_a_closed_launcher_sends_no_event_and_can_be_opened_again(tmp_path: Path) -> None:
    received: SimpleQueue[ProcessEvent] = SimpleQueue()
    processes = Processes(received.put)
    for _ in range(2):
        processes.open()
        processes.start("a", ["sleep", "1000"], {"PATH": os.defpath}, None, tmp_path / "log")
        assert isinstance(received.get(timeout=SAFETY_SECONDS), ProcessStarted)
        processes.close()
        assert received.empty()
