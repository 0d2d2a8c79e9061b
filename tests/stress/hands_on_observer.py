"""What happens to the observer, the child process of `source.process`: by signals from outside, at any moment."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final
from unittest.mock import patch

from actors.kube.api import Create, List
from actors.kube.observer import pod_api
from actors.kube.observer.pod_api import ObserverPodApi

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from random import Random

    import pytest

    from actors.kube.api import Request
    from tests.stress.free_life import Life

__all__ = ["HandsOnObserver", "be_quick", "observers"]

SILENCE: Final = timedelta(seconds=4)
"""After which an observer is killed. It starts within a second, on two cores that others use, too."""

FORGIVEN_AFTER: Final = timedelta(seconds=3)
"""From then on an observer is tried again."""

LOOKS: Final = 0.02

BUSY: Final = "while True: pass"


def be_quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """What takes a minute takes seconds."""
    monkeypatch.setattr(pod_api, "PING_EVERY", SILENCE / pod_api.MOST_UNANSWERED)
    monkeypatch.setattr(pod_api, "ENDS_WITHIN", FORGIVEN_AFTER)


def observers() -> set[int]:
    """Children of this process that are observers, zombies included if the kernel still knows what they were."""
    found: set[int] = set()
    for listing in Path("/proc/self/task").glob("*/children"):
        with suppress(OSError):
            for child in listing.read_text().split():
                with suppress(OSError):
                    if b"actors.kube.observer" in Path(f"/proc/{child}/cmdline").read_bytes():
                        found.add(int(child))
    return found


class HandsOnObserver:
    """Of the driver that lives now. Each act is drawn by the seed; `rest` lets time pass, and looks on."""

    def __init__(self, random: Random, life: Callable[[], Life], rest: Callable[[float], None]) -> None:
        self._random = random
        self._life = life
        self._rest = rest
        self._trap: type[Request[object]] | None = None
        self.done = 0
        """Acts that have met an observer."""

    def steps(self) -> Mapping[str, tuple[int, Callable[[], object]]]:
        """How often each is drawn, and what it does."""
        return {
            "observer killed": (35, self._kill),
            "observer killed in a LIST": (25, lambda: self._set_trap(List)),
            "observer killed in a POST": (45, lambda: self._set_trap(Create)),
            "observer stopped for a moment": (25, lambda: self._stop(self._random.uniform(0.05, 2))),
            "observer stopped until it is killed": (6, self._stop_for_good),
            "observer starved by turns": (12, self._starve_by_turns),
            "observer starved by priority": (6, self._starve_by_priority),
            "observer cannot be started": (8, self._cannot_be_started),
        }

    def sent(self, request: Request[object]) -> None:
        """In the thread that sends: the request is under way."""
        if self._trap is None or not isinstance(request, self._trap):
            return
        self._trap = None
        if (pid := self._pid()) is not None:
            self.done += 1
            timer = threading.Timer(self._random.choice((0, 0.001, 0.003, 0.01, 0.03)), _signal, (pid, signal.SIGKILL))
            timer.daemon = True
            timer.start()

    def _pid(self) -> int | None:
        api = self._life().api
        return api.pid if isinstance(api, ObserverPodApi) else None

    def _met(self) -> int | None:
        """The observer, if there is one."""
        pid = self._pid()
        self.done += pid is not None
        return pid

    def _kill(self) -> None:
        if (pid := self._met()) is not None:
            _signal(pid, signal.SIGKILL)

    def _set_trap(self, kind: type[Request[object]]) -> None:
        self._trap = kind

    def _stop(self, seconds: float) -> None:
        if (pid := self._met()) is not None:
            with _stopped(pid):
                self._rest(seconds)

    def _stop_for_good(self) -> None:
        if (pid := self._met()) is not None:
            with _stopped(pid):
                left = 4 * SILENCE.total_seconds() / LOOKS
                while self._pid() == pid:
                    left -= 1
                    assert left, f"{pid} does not answer, and is not killed"
                    self._rest(LOOKS)

    def _starve_by_turns(self) -> None:
        if (pid := self._met()) is not None:
            for _ in range(self._random.randint(10, 40)):
                with _stopped(pid):
                    self._rest(0.04)

    def _starve_by_priority(self) -> None:
        if (pid := self._met()) is not None:
            with _busy(os.cpu_count() or 1), suppress(ProcessLookupError):
                os.setpriority(os.PRIO_PGRP, pid, 19)
                self._rest(self._random.uniform(0.5, 2))

    def _cannot_be_started(self) -> None:
        """For a moment, in which it ends."""
        with patch.object(pod_api, "_spawn", side_effect=BlockingIOError("no process can be started")):
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
