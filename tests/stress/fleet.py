"""`executor-pods run` as a process of its own, and what it says of its fleet, event by event."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

import actors
from tests.stress.plane import DIES_WITH_US

if TYPE_CHECKING:
    from collections.abc import Collection

__all__ = ["Event", "Fleet", "Usage"]

Event = dict[str, Any]

SAFETY_SECONDS: Final = 120.0
"""Without any event a wait ends after this: the fleet hangs. What is waited for takes seconds."""


@dataclass(frozen=True, slots=True)
class Usage:
    """What the command took of the machine so far."""

    cpu_seconds: float
    peak_mebibytes: float


class Fleet:
    """The command, for so many executors, with `more` on its command line.

    It is read by a thread, so that it never waits for its reader.
    """

    def __init__(self, folder: Path, kubeconfig: Path, executors: int, *more: str) -> None:
        self._executors = executors
        self.stderr = folder / "stderr"
        arguments = ["--executors", str(executors), "--image", "x", "--kubeconfig", str(kubeconfig), *more]
        env = {name: value for name, value in os.environ.items() if not name.startswith("EXECUTOR_PODS_")}
        with self.stderr.open("wb") as stderr:
            self.process = subprocess.Popen(
                [*DIES_WITH_US, sys.executable, "-m", "actors", "run", "--output", "json", *arguments],
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
                env=env | {"PYTHONPATH": str(Path(actors.__file__).parents[1])},
            )
        self.events: list[Event] = []
        self.running: dict[int, str] = {}
        """Executor id → pod's name."""
        self.removed: dict[int, Event] = {}
        self._inbox: queue.SimpleQueue[Event | None] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, name="reader of the fleet", daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        self._reader.join()
        assert self.process.stdout is not None
        self.process.stdout.close()

    @property
    def selector(self) -> str:
        """Of its pods."""
        started = self.events[0] if self.events else self.next()
        assert started["event"] == "started", started
        return f"executor-pods/app-id={started['app_id']}"

    def until_whole(self, *, without: Collection[int] = ()) -> None:
        """Until as many as asked for run, and these were told to be gone."""
        while len(self.running) != self._executors or not self.removed.keys() >= set(without):
            self.next()

    def next(self) -> Event:
        try:
            event = self._inbox.get(timeout=SAFETY_SECONDS)
        except queue.Empty:
            event = None
        if event is None:
            last = "\n".join(map(str, self.events[-5:]))
            raise AssertionError(f"no event any more, after\n{last}\nand on stderr\n{self.stderr.read_text()}")
        self._take(event)
        return event

    def interrupt(self) -> int:
        """Ctrl-C, and what is told then; the exit code."""
        self.press_ctrl_c()
        return self.end()

    def press_ctrl_c(self) -> None:
        self.process.send_signal(signal.SIGINT)

    def end(self) -> int:
        """Take in events until there are none any more; the exit code."""
        while (event := self._inbox.get(timeout=SAFETY_SECONDS)) is not None:
            self._take(event)
        return self.process.wait(SAFETY_SECONDS)

    def usage(self) -> Usage:
        """As Linux has it; nothing elsewhere."""
        process = Path(f"/proc/{self.process.pid}")
        if not process.exists():
            return Usage(0.0, 0.0)
        after_name = (process / "stat").read_text().rpartition(") ")[2].split()
        ticks = int(after_name[11]) + int(after_name[12])
        peak = next(line.split()[1] for line in (process / "status").read_text().splitlines() if "VmHWM" in line)
        return Usage(ticks / os.sysconf("SC_CLK_TCK"), int(peak) / 1024)

    def _take(self, event: Event) -> None:
        self.events.append(event)
        executor_id = event["executor_id"]
        if event["event"] == "running":
            self.running[executor_id] = event["pod"]
        elif event["event"] in {"terminating", "removed"}:
            self.running.pop(executor_id, None)
        if event["event"] == "removed":
            assert executor_id not in self.removed, f"told twice: {self.removed[executor_id]} and {event}"
            self.removed[executor_id] = event

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._inbox.put(json.loads(line))
        self._inbox.put(None)
