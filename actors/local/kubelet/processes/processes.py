"""The process kubelet's connection to the launcher: start, signal and observe processes, and leave none behind.

`launcher` explains why a second program forks. This module starts it, turns its lines into typed events, and reports
its death as an event, too.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from actors.runtime import start_thread
from actors.text import get_logger

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Mapping, Sequence

__all__ = ["LauncherLost", "ProcessEvent", "ProcessExited", "ProcessFailed", "ProcessStarted", "Processes"]

logger = get_logger(__name__)

_LAUNCHER: Final = Path(__file__).with_name("launcher.py")
_CLOSE_SECONDS: Final = 5.0
"""The launcher kills with SIGKILL. Only a process stuck in the kernel takes longer, and nothing can end it."""


@dataclass(frozen=True, slots=True)
class ProcessStarted:
    """The program runs, as process `pid` and leader of its own session and group."""

    key: str
    pid: int


@dataclass(frozen=True, slots=True)
class ProcessFailed:
    """The program could not be started."""

    key: str
    at: str
    """The failed step: `exec`, `chdir`, `log` or `setup`."""
    number: int
    """The system's error number (`errno`), 0 if it has none."""
    message: str
    """The system's error text."""


@dataclass(frozen=True, slots=True)
class ProcessExited:
    """The program has ended, and its group with it. As in Kubernetes, a death by signal is 128 + its number."""

    key: str
    exit_code: int


@dataclass(frozen=True, slots=True)
class LauncherLost:
    """The launcher was killed: its processes are dead, and their exit codes unknown."""


ProcessEvent: TypeAlias = ProcessStarted | ProcessFailed | ProcessExited | LauncherLost


class Processes:
    """Processes started through one launcher.

    Owned by one thread, which must outlive them all: on some platforms the launcher dies with the *thread* that called
    `open`. `on_event` is called on a thread of this object, must be quick, and is not called after `close`.
    """

    def __init__(self, on_event: Callable[[ProcessEvent], None]) -> None:
        self._on_event = on_event
        self._launcher: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._reader: threading.Thread | None = None
        self._pids: set[int] = set()

    def open(self) -> None:
        """Start the launcher. Raises OSError if that is impossible."""
        ours, theirs = socket.socketpair()
        for end in (ours, theirs):
            end.settimeout(None)  # whatever the program has set by `socket.setdefaulttimeout`
        try:
            with theirs:
                self._launcher = subprocess.Popen(  # noqa: S603 - our own program
                    [sys.executable, "-I", "-S", str(_LAUNCHER)],
                    stdin=theirs.fileno(),
                    stdout=subprocess.DEVNULL,
                    start_new_session=True,  # a terminal's Ctrl-C must reach the host program only
                )
        except BaseException:
            ours.close()
            raise
        self._socket = ours
        self._pids.clear()
        try:
            self._reader = start_thread(partial(self._read, ours), "executor-pods/processes")
        except BaseException:
            self.close()
            raise

    def start(self, key: str, argv: Sequence[str], env: Mapping[str, str], cwd: str | None, log: Path) -> None:
        """Run `argv`, found through the PATH of `env`, with both outputs appended to `log`.

        `ProcessStarted` or `ProcessFailed` follows.
        """
        self._send({"start": key, "argv": list(argv), "env": dict(env), "cwd": cwd, "log": str(log)})

    def signal(self, key: str, number: int, *, group: bool, to_process_1: bool = False) -> None:
        """Signal a process, or its whole group; does nothing if it has ended.

        `to_process_1` drops the signal as the kernel does for the first process of a PID namespace: unless the process
        handles or blocks it (`sig_task_ignored` in `kernel/signal.c`, and pid_namespaces(7)). Only Linux can tell;
        elsewhere the signal is sent.
        """
        self._send({"signal": key, "number": number, "group": group, "to_process_1": to_process_1})

    def close(self) -> None:
        """Kill all processes and wait for their end. `open` may be called again."""
        launcher, ours, reader = self._launcher, self._socket, self._reader
        self._launcher = self._socket = self._reader = None
        if ours is not None:
            with suppress(OSError):
                ours.shutdown(socket.SHUT_RDWR)
        if launcher is not None:
            try:
                launcher.wait(_CLOSE_SECONDS)
            except subprocess.TimeoutExpired:
                logger.warning("launcher abandoned, a process cannot be killed: pid=%d", launcher.pid)
                launcher.kill()
                launcher.wait()
        if reader is not None:
            reader.join()
        if ours is not None:
            ours.close()

    def _send(self, request: dict[str, Any]) -> None:
        """Send a request. A launcher that is gone is reported by `_read`, not here."""
        if self._socket is not None:
            with suppress(OSError):
                self._socket.sendall(json.dumps(request).encode() + b"\n")

    def _read(self, ours: socket.socket) -> None:
        with suppress(OSError), ours.makefile("rb") as lines:
            for line in lines:
                if self._socket is ours:
                    self._on_event(self._event(json.loads(line)))
        if self._socket is ours:
            logger.warning("launcher lost, its processes are killed")
            for pid in self._pids:  # only needed where the kernel does not tie them to the launcher
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(pid, signal.SIGKILL)
            self._on_event(LauncherLost())

    def _event(self, line: dict[str, Any]) -> ProcessEvent:
        match line:
            case {"started": str(key), "pid": int(pid)}:
                self._pids.add(pid)
                return ProcessStarted(key, pid)
            case {"failed": str(key), "errno": int(number), "at": str(at), "message": str(message)}:
                return ProcessFailed(key, at, number, os.strerror(number) if number else message)
            case {"exited": str(key), "pid": int(pid), "code": int(code)}:
                self._pids.discard(pid)
                return ProcessExited(key, code if code >= 0 else 128 - code)
            case _:
                raise AssertionError(f"unknown event from the launcher: {line!r}")
