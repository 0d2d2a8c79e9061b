"""The launcher: a small program that starts, signals and reaps the processes of the process kubelet.

It exists for two reasons: code between fork and exec is unsafe in the kubelet's program, which has threads; and no
process may outlive the kubelet, even one killed by SIGKILL. The launcher has one thread. Its socket ends when the
kubelet dies; it then kills everything it started. As a *child subreaper* (Linux) it also inherits, and finally kills,
processes that left their process group with `setsid`.

If the launcher itself is killed, the kernel sends SIGKILL to its direct children (`PR_SET_PDEATHSIG`, where the
platform has it), and its *guardian* kills the others: a process above it that does nothing else, and inherits as a
subreaper what the launcher leaves. If the guardian is killed, the launcher kills everything and ends. The kubelet's
socket ends only after all that, as both hold it.

It is run by path, isolated (`python -I -S launcher.py`), starts in some 20 ms, and must never import anything of this
library. Requests and events are JSON, one per line, exchanged with `actors.local.kubelet.processes.processes`:

    {"start": key, "argv": [...], "env": {...}, "cwd": path or null, "log": path}
    {"signal": key, "number": 15, "group": false, "to_process_1": true}
    {"started": key, "pid": n}
    {"failed": key, "errno": n, "at": "exec", "message": "..."}
    {"exited": key, "pid": n, "code": n}
"""

import ctypes
import json
import os
import select
import signal
import socket
import sys
from contextlib import suppress
from typing import Any, Final, NoReturn

_PR_SET_PDEATHSIG: Final = 1
_PR_SET_CHILD_SUBREAPER: Final = 36
"""Both from <linux/prctl.h>."""
_RESTORED_SIGNALS: Final = (signal.SIGPIPE, signal.SIGXFSZ)
"""Python ignores these at start, and an ignored signal stays ignored across exec."""


def main() -> None:
    """Become the guardian of a launcher. Both end when the kubelet closes its end of file descriptor 0."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # if the program ignores it, so would we: the kernel reaps then
    _prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    guardian = os.getpid()
    launcher = os.fork()
    if launcher == 0:
        _launch(guardian)
        return
    signal.signal(signal.SIGTERM, lambda *_: _kill(launcher, signal.SIGTERM))
    os.waitpid(launcher, 0)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    _kill_children()


def _launch(guardian: int) -> None:
    """Serve the kubelet until it closes its end, then kill all processes."""
    kubelet = socket.socket(fileno=0)
    _prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != guardian:
        return  # the guardian died before the kernel tied this process to it
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    wake, woken = socket.socketpair()
    wake.settimeout(0)
    woken.settimeout(0)
    signal.set_wakeup_fd(woken.fileno(), warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGTERM, lambda *_: None)  # both use `wake`: an exception could interrupt the killing
    launcher = _Launcher(kubelet)
    try:
        _serve(kubelet, wake, launcher)
    except ConnectionError:
        pass  # the kubelet died between two lines: the same as the end of its stream
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        launcher.kill_everything()


def _serve(kubelet: socket.socket, wake: socket.socket, launcher: "_Launcher") -> None:
    pending = b""
    while True:
        ready, _, _ = select.select([kubelet, wake], [], [])
        if wake in ready:
            signals = wake.recv(4096)
            launcher.reap()
            if signal.SIGTERM in signals:
                return
        if kubelet in ready:
            data = kubelet.recv(1 << 16)
            if not data:
                return
            *lines, pending = (pending + data).split(b"\n")
            for line in lines:
                launcher.handle(json.loads(line))


class _Launcher:
    def __init__(self, kubelet: socket.socket) -> None:
        self._kubelet = kubelet
        self._pids: dict[str, int] = {}
        self._keys: dict[int, str] = {}

    def handle(self, request: dict[str, Any]) -> None:
        if "start" in request:
            self._start(request)
        else:
            self._signal(request["signal"], request["number"], request["group"], request["to_process_1"])

    def _start(self, request: dict[str, Any]) -> None:
        key = request["start"]
        launcher = os.getpid()
        try:
            failure_read, failure_write = os.pipe()  # closed by a successful exec: nothing to read means success
        except OSError as error:
            self._failed(key, error)
            return
        try:
            pid = os.fork()
        except OSError as error:  # no further process, or no memory
            os.close(failure_read)
            os.close(failure_write)
            self._failed(key, error)
            return
        if pid == 0:
            _become(request, failure_write, launcher)
        os.close(failure_write)
        with open(failure_read, "rb") as pipe:  # noqa: PTH123 - a descriptor, not a path
            failure = pipe.read()
        if failure:
            os.waitpid(pid, 0)
            self._tell({"failed": key, **json.loads(failure)})
            return
        self._pids[key], self._keys[pid] = pid, key
        self._tell({"started": key, "pid": pid})

    def _failed(self, key: str, error: OSError) -> None:
        self._tell({"failed": key, "errno": error.errno, "at": "fork", "message": str(error)})

    def _signal(self, key: str, number: int, group: bool, to_process_1: bool) -> None:
        """Send a signal. A process that was not reaped yet keeps its id, so no other process gets it."""
        pid = self._pids.get(key)
        if pid is not None and not (to_process_1 and _drops(pid, number)):
            with suppress(ProcessLookupError, PermissionError):
                (os.killpg if group else os.kill)(pid, number)

    def reap(self) -> None:
        """Reap ended processes. A container ends with its first process: the others of its group are killed."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            key = self._keys.pop(pid, None)
            if key is None:
                continue  # an orphan of some container, inherited as its subreaper
            del self._pids[key]
            _kill_group(pid)
            self._tell({"exited": key, "pid": pid, "code": os.waitstatus_to_exitcode(status)})

    def kill_everything(self) -> None:
        """SIGKILL all groups, then the orphans that the kernel hands over, until no child is left."""
        for pid in self._keys:
            _kill_group(pid)
        _kill_children()

    def _tell(self, event: dict[str, Any]) -> None:
        self._kubelet.sendall(json.dumps(event).encode() + b"\n")


def _become(request: dict[str, Any], failure: int, launcher: int) -> NoReturn:
    """Turn the forked child into the container's process, or write the error into `failure`."""
    at = "setup"
    try:
        os.setsid()
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != launcher:
            os._exit(127)  # the launcher died before the kernel tied this process to it
        signal.set_wakeup_fd(-1)
        for number in (*_RESTORED_SIGNALS, signal.SIGCHLD, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        at = "log"
        log = os.open(request["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for source, target in ((nothing, 0), (log, 1), (log, 2)):
            os.dup2(source, target)
        if request["cwd"]:
            at = "chdir"
            os.chdir(request["cwd"])
        at = "exec"
        os.execvpe(request["argv"][0], request["argv"], request["env"])  # noqa: S606 - running it is the purpose
    except (OSError, ValueError) as error:
        code = getattr(error, "errno", None) or 0
        os.write(failure, json.dumps({"errno": code, "at": at, "message": str(error)}).encode())
    finally:
        os._exit(127)


def _kill_children() -> None:
    """SIGKILL the children, and those that they leave to this process, until none is left."""
    while True:
        for pid in _children():
            _kill(pid, signal.SIGKILL)
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


def _kill(pid: int, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def _kill_group(pid: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def _drops(pid: int, number: int) -> bool:
    """Return whether the kernel would drop a signal if the process were the first of a PID namespace.

    It does so unless the signal is handled or blocked. Signals that `sigwait` waits for count as blocked in the kernel,
    but not in `/proc`, which also hides which ones they are: a process that waits so gets any signal.
    """
    try:
        with open(f"/proc/{pid}/status") as status:  # noqa: PTH123 - pathlib costs start-up time
            masks = [int(line.split()[1], 16) for line in status if line.startswith(("SigBlk:", "SigCgt:"))]
        with open(f"/proc/{pid}/wchan") as waits:  # noqa: PTH123 - as above
            in_sigwait = "sigtimedwait" in waits.read()
    except OSError:
        return False  # this platform does not tell
    return not in_sigwait and not any(mask >> (number - 1) & 1 for mask in masks)


def _children() -> list[int]:
    """Return this process's children, empty if the kernel does not list them (then only the groups were killed)."""
    try:
        with open(f"/proc/self/task/{os.getpid()}/children") as listing:  # noqa: PTH123 - pathlib costs start-up time
            return [int(pid) for pid in listing.read().split()]
    except OSError:
        return []


def _prctl(option: int, value: int) -> None:
    """Linux only. Elsewhere only the end of the kubelet's stream triggers the killing."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


if __name__ == "__main__":
    main()
