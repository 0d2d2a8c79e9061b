"""What happens to the fleet's process, that of `source.process`: by signals from outside, at any moment."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections import Counter
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final
from unittest.mock import patch

from actors.backend.process import launch, watchdog
from actors.runtime import supervisor
from tests.stress.watched import program

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from random import Random

    import pytest

    from tests.stress.free_life import Life

__all__ = ["SILENCE", "HandsOnProcess", "be_watched", "fleet_processes"]

SILENCE: Final = timedelta(seconds=4)
"""After which a process that has begun its work is killed at the latest."""

STARTED_WITHIN: Final = timedelta(seconds=8)
"""Else a process is killed. It takes a second, on two cores that others use, too."""

TRAPS: Final = {
    "LIST": re.compile(rb"GET /api/v1/namespaces/[^/]+/pods\?(?!.*watch=true)"),
    "POST": re.compile(rb"POST /api/v1/namespaces/[^/]+/pods[ ?]"),
}
"""The first lines of requests of the fleet's process. A Backend that stops lists, too."""

LOOKS: Final = timedelta(milliseconds=20)

BUSY: Final = "while True: pass"


def be_watched(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Processes tell what happens in them; one that does not answer is soon killed, and one that has ended replaced."""
    monkeypatch.setattr(watchdog, "PING_EVERY", SILENCE / watchdog.MOST_UNANSWERED)
    monkeypatch.setattr(watchdog, "START_LIMIT", STARTED_WITHIN)
    monkeypatch.setattr(launch, "PROGRAM", program(seed))
    monkeypatch.setattr(supervisor, "MOST_DOUBLINGS", 0)  # each is lost soon, and is to live meanwhile


def fleet_processes() -> set[int]:
    """Children of this process that run fleets, zombies included if the kernel still knows what they were."""
    found: set[int] = set()
    for listing in Path("/proc/self/task").glob("*/children"):
        with suppress(OSError):
            for child in listing.read_text().split():
                with suppress(OSError):
                    if b"actors.backend.process" in Path(f"/proc/{child}/cmdline").read_bytes():
                        found.add(int(child))
    return found


class HandsOnProcess:
    """Of the driver that lives now. Each act is drawn by the seed; `rest` lets time pass, and looks on."""

    def __init__(self, random: Random, life: Callable[[], Life], rest: Callable[[float], None]) -> None:
        self._random = random
        self._life = life
        self._rest = rest
        self._traps: set[str] = set()
        self.met: Counter[str] = Counter()
        """Acts that have met a process, by their names."""

    @property
    def done(self) -> int:
        """Acts that have met a process."""
        return self.met.total()

    def steps(self) -> Mapping[str, tuple[int, Callable[[], object]]]:
        """How often each is drawn, and what it does."""
        return {
            "process killed": (6, self._kill),
            "process killed in a LIST": (5, lambda: self._set_trap("LIST")),
            "process killed in a POST": (15, lambda: self._set_trap("POST")),
            "process stopped for a moment": (10, lambda: self._stop(self._random.uniform(0.05, 2))),
            "process stopped until it is killed": (3, self._stop_for_good),
            "process starved by turns": (5, self._starve_by_turns),
            "process starved by priority": (3, self._starve_by_priority),
            "process cannot be started": (4, self._cannot_be_started),
        }

    def sent(self, line: bytes) -> None:
        """In the thread to which a request with this first line has come."""
        trap = next((each for each in tuple(self._traps) if TRAPS[each].match(line)), None)
        if trap is None:
            return
        self._traps.discard(trap)
        if (pid := self._met(f"killed in a {trap}")) is not None:
            timer = threading.Timer(self._random.choice((0, 0.001, 0.003, 0.01, 0.03)), _signal, (pid, signal.SIGKILL))
            timer.daemon = True
            timer.start()

    def _pid(self) -> int | None:
        return self._life().pid

    def _met(self, act: str) -> int | None:
        """The process, if there is one."""
        pid = self._pid()
        if pid is not None:
            self.met[act] += 1
        return pid

    def _kill(self) -> None:
        if (pid := self._met("killed")) is not None:
            _signal(pid, signal.SIGKILL)

    def _set_trap(self, kind: str) -> None:
        self._traps.add(kind)

    def _stop(self, seconds: float) -> None:
        if (pid := self._met("stopped")) is not None:
            with _stopped(pid):
                self._rest(seconds)

    def _stop_for_good(self) -> None:
        if (pid := self._met("stopped until it is killed")) is not None:
            with _stopped(pid):
                left = 2 * (STARTED_WITHIN + SILENCE) // LOOKS
                while self._pid() == pid:
                    left -= 1
                    assert left, f"{pid} does not answer, and is not killed"
                    self._rest(LOOKS.total_seconds())

    def _starve_by_turns(self) -> None:
        if (pid := self._met("starved by turns")) is not None:
            for _ in range(self._random.randint(10, 40)):
                with _stopped(pid):
                    self._rest(0.04)

    def _starve_by_priority(self) -> None:
        if (pid := self._met("starved by priority")) is not None:
            with _busy(os.cpu_count() or 1), suppress(ProcessLookupError):
                os.setpriority(os.PRIO_PGRP, pid, 19)
                self._rest(self._random.uniform(0.5, 2))

    def _cannot_be_started(self) -> None:
        """For a moment, in which it ends."""
        with patch.object(launch, "start", side_effect=BlockingIOError("no process can be started")):
            self._kill()
            self._rest(self._random.uniform(0.1, 2))


def _signal(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


@contextmanager
def _stopped(pid: int) -> Iterator[None]:
    _signal(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        _signal(pid, signal.SIGCONT)


@contextmanager
def _busy(processes: int) -> Iterator[None]:
    """Others who compute."""
    started = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(processes)]
    try:
        yield
    finally:
        for each in started:
            each.kill()
            each.wait()
