"""The fleet's process, a child of the Backend's with `source.process`, ends with that one, and leaves nothing.

A driver that was ended by SIGKILL can do nothing about it, and a process of the fleet that is stopped neither.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="processes are waited for by pidfd_open")

SAFETY: Final = 30.0
"""Seconds until a test that would hang fails instead."""

LONGEST_HEAD: Final = 4096

DRIVER: Final = """
import json, logging, multiprocessing, os, queue, signal, subprocess, sys, threading
from pathlib import Path
from actors import Backend, Settings, StopBackend

signal.signal(signal.SIGINT, signal.default_int_handler)  # who runs the tests may ignore some
for ignored in (signal.SIGHUP, signal.SIGQUIT):
    signal.signal(ignored, signal.SIG_DFL)

pids = queue.SimpleQueue()

class Ear(logging.Handler):
    def emit(self, record):
        if record.msg.startswith("process of the fleet started:"):
            pids.put(record.args[0])

logging.getLogger("actors").setLevel(logging.INFO)
logging.getLogger("actors").addHandler(Ear())

def told():
    sys.stdin.readline()

def begin():
    executor = {"image": "worker:1", "instances": 1}
    settings = Settings(app_id="ends", executor=executor, source={"process": True}, backend={"lease": False})
    backend = Backend.start(settings, lambda _: None, kubeconfig=Path(sys.argv[1]))
    return backend, pids.get()

def start():
    backend, pid = begin()
    print(json.dumps([os.getpid(), pid]), flush=True)
    return backend

def stop(backend):
    backend.tell(StopBackend(delete_pods=False))
    backend.ref.actor_stopped.wait()
"""

WAIT: Final = "start(); told()"

ENDS: Final = {
    "returns": WAIT,
    "stops the Backend": "backend = start(); told(); stop(backend)",
    "stops the Backend, and goes on": "backend = start(); told(); stop(backend); signal.pause()",
    "stops the Backend by its ref": "backend = start(); told(); backend.ref.stop(); signal.pause()",
    "raises": "start(); told(); raise SystemError('wanted')",
    "sys.exit": "start(); told(); sys.exit(3)",
    "sys.exit in a thread that started it": """
thread = threading.Thread(target=lambda: (start(), told(), sys.exit(3)))
thread.start()
thread.join()
""",
    "os._exit": "start(); told(); os._exit(3)",
    "os._exit in a thread": "start(); told(); threading.Thread(target=os._exit, args=(3,)).start(); signal.pause()",
    "abort": "start(); told(); os.abort()",
    "exec": "start(); told(); os.execv(sys.executable, [sys.executable, '-c', ''])",
    "stdin and stdout closed": "start(); told(); os.close(0); os.close(1); os._exit(3)",
}

SIGNALS: Final = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGKILL")

SUBREAPER: Final = """
import ctypes, signal, subprocess, sys
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)
subprocess.Popen([sys.executable, *sys.argv[1:]]).wait()
signal.pause()
"""
"""Stays, adopts what the driver leaves, and is in the driver's session: as tini is, or the shell of a container."""

FORKS: Final = {
    "os.fork": "start()\nif os.fork() == 0: signal.pause()\nsignal.pause()",
    "multiprocessing": """
start()
multiprocessing.get_context("fork").Process(target=signal.pause).start()
signal.pause()
""",
}


class Driver:
    """A program with a Backend, and what is known about it."""

    def __init__(self, process: subprocess.Popen[str], undo: ExitStack) -> None:
        assert process.stdout is not None
        self.process = process
        self.pid, self.fleet = json.loads(process.stdout.readline())
        """Process ids: its own, and that of the fleet's process."""
        self._ended = os.pidfd_open(self.fleet)
        undo.callback(os.close, self._ended)

    def tell(self) -> None:
        """It may go on."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def fleet_ends(self) -> bool:
        """Whether the fleet's process does, in time."""
        return bool(select.select([self._ended], [], [], SAFETY)[0])


class Server:
    """Accepts connections, and answers nothing."""

    def __init__(self, listener: socket.socket, folder: Path) -> None:
        self._listener = listener
        self._folder = folder
        self._accepted: list[socket.socket] = []

    def kubeconfig(self) -> Path:
        """Leads here."""
        path = self._folder / "kubeconfig"
        name, port = self._listener.getsockname()
        entries = {
            "clusters": [{"name": "c", "cluster": {"server": f"http://{name}:{port}"}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "users": [{"name": "u", "user": {"token": "t"}}],
            "current-context": "x",
        }
        path.write_text(json.dumps(entries))
        return path

    def is_asked(self) -> None:
        """The fleet's process has begun its work. Only that asks for pods."""
        self._listener.settimeout(SAFETY)
        asked = b""
        while b"/pods" not in asked.partition(b"\r\n")[0]:
            connection, _ = self._listener.accept()
            self._accepted.append(connection)
            connection.settimeout(SAFETY)
            asked = connection.recv(LONGEST_HEAD)

    def close(self) -> None:
        for each in self._accepted:
            each.close()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        made = Server(listener, tmp_path)
        yield made
        made.close()


@contextmanager
def driver(
    server: Server, program: str, *, under: str | None = None, isolated: bool = False, **options: Any
) -> Iterator[Driver]:
    """One that runs; with its fleet's process at work. `under` is the program that starts it."""
    found = f"import sys\nsys.path[:0] = {sys.path!r}\n"
    arguments = [*(["-I"] if isolated else []), "-c", found + DRIVER + program, str(server.kubeconfig())]
    with ExitStack() as undo:
        process = undo.enter_context(
            subprocess.Popen(
                [sys.executable, *arguments] if under is None else [sys.executable, "-c", under, *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                **options,
            )
        )
        undo.callback(process.kill)
        if options.get("start_new_session"):
            undo.callback(_kill_group, process.pid)
        driver = Driver(process, undo)
        undo.callback(_kill_group, driver.fleet)
        server.is_asked()
        yield driver


def _kill_group(leader: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)


@pytest.mark.parametrize("how", ENDS)
def test_the_process_of_the_fleet_ends_with_the_program(server: Server, how: str) -> None:
    with driver(server, ENDS[how]) as found:
        found.tell()
        assert found.fleet_ends()


@pytest.mark.parametrize("how", SIGNALS)
def test_the_process_of_the_fleet_ends_when_a_signal_ends_the_driver(server: Server, how: str) -> None:
    with driver(server, WAIT) as found:
        found.process.send_signal(signal.Signals[how])
        assert found.fleet_ends()


@pytest.mark.parametrize("leader", [False, True], ids=["in a session", "leads its session"])
@pytest.mark.parametrize("under", [None, SUBREAPER], ids=["alone", "under a subreaper"])
def test_a_stopped_process_of_the_fleet_ends_when_the_driver_is_killed(
    server: Server, under: str | None, *, leader: bool
) -> None:
    with driver(server, WAIT, under=under, start_new_session=leader) as found:
        os.kill(found.fleet, signal.SIGSTOP)
        os.kill(found.pid, signal.SIGKILL)
        assert found.fleet_ends()


@pytest.mark.parametrize("how", FORKS)
@pytest.mark.parametrize("stopped", [False, True], ids=["running", "stopped"])
def test_the_process_of_the_fleet_ends_with_a_driver_that_has_forked(
    server: Server, how: str, *, stopped: bool
) -> None:
    with driver(server, FORKS[how], under=SUBREAPER, start_new_session=True) as found:
        if stopped:
            os.kill(found.fleet, signal.SIGSTOP)
        os.kill(found.pid, signal.SIGKILL)
        assert found.fleet_ends()


def test_a_thread_that_ends_takes_no_process_of_the_fleet_with_it(server: Server) -> None:
    program = """
thread = threading.Thread(target=start)
thread.start()
thread.join()
print("joined", flush=True)
told()
"""
    with driver(server, program) as found:
        assert found.process.stdout is not None
        assert found.process.stdout.readline() == "joined\n"
        assert Path(f"/proc/{found.fleet}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
        found.tell()
        assert found.fleet_ends()


def test_the_process_of_the_fleet_has_no_descriptor_but_its_connections(server: Server, tmp_path: Path) -> None:
    program = f"""
held = open({str(tmp_path / "held")!r}, "w")
inheritable = os.open({str(tmp_path / "held")!r}, os.O_RDONLY)
os.set_inheritable(inheritable, True)
start()
told()
"""
    with driver(server, program) as found:
        open_there = sorted(each.readlink().name.split(":")[0] for each in Path(f"/proc/{found.fleet}/fd").iterdir())
        assert "held" not in open_there
        kinds = [each for each in open_there if each not in {"null", "[eventpoll]"}]
        assert set(kinds) <= {"socket"}, kinds
        found.tell()


def test_a_driver_without_standard_streams_has_a_process_of_the_fleet(server: Server) -> None:
    program = """
report = int(sys.argv[2])
os.closerange(0, 3)
backend, pid = begin()
os.write(report, str(pid).encode())
os.close(report)
signal.pause()
"""
    reader, writer = os.pipe()
    with ExitStack() as undo:
        arguments = [sys.executable, "-c", DRIVER + program, str(server.kubeconfig()), str(writer)]
        process = undo.enter_context(subprocess.Popen(arguments, pass_fds=[writer]))
        undo.callback(process.kill)
        os.close(writer)
        undo.callback(os.close, reader)
        fleet = int(os.read(reader, 100))
        server.is_asked()
        assert set(Path(f"/proc/{fleet}/task/{fleet}/stat").read_text().split()[3:4]) == {str(process.pid)}


def test_no_zombie_is_left_by_a_stop(server: Server) -> None:
    program = """
backend = start()
told()
stop(backend)
print([each.read_text() for each in Path("/proc/self/task").glob("*/children")], flush=True)
"""
    with driver(server, program) as found:
        found.tell()
        assert found.process.stdout is not None
        children = json.loads(found.process.stdout.readline().replace("'", '"'))
        assert not "".join(children).strip()


def test_the_process_of_the_fleet_is_as_isolated_as_the_interpreter(server: Server) -> None:
    with driver(server, WAIT, isolated=True) as found:
        assert b"-I" in Path(f"/proc/{found.fleet}/cmdline").read_bytes().split(b"\0")
        found.tell()
        assert found.fleet_ends()
