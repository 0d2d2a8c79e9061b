"""`MainLoop`: what the main thread of `executor-pods run` does, item by item of its one inbox.

Other threads put in what happens: events of the fleet, log records, keys and signals. It passes the fleet's events to
the driver, shows what the driver tells, begins a stop, and decides the exit code.
"""

from __future__ import annotations

import logging
import signal
import sys
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Final, TypeAlias

from actors.cli.driver import FORCE_AFTER, Driver, Plan
from actors.cli.events import NOTHING_MADE, Event
from actors.cli.logs import LogFormat, Repeats, as_json, as_text, is_told_by_event
from actors.cli.output import Output
from actors.cli.streams import discard, has_no_reader, say, say_raw, unwritten
from actors.fleet.stream import EventsMissed
from actors.runtime import elapsed, later

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from actors.fleet.fleet import Fleet
    from actors.messages import ToDriver
    from actors.runtime import Clock, Entropy, Moment

__all__ = [
    "EXIT_FAILED",
    "EXIT_HANDED_OVER",
    "EXIT_INTERRUPTED",
    "EXIT_OK",
    "LOCAL_STOP",
    "REDRAW_SECONDS",
    "Happened",
    "Inbox",
    "Item",
    "Key",
    "MainLoop",
]

EXIT_OK: Final = 0
"""Ended as asked: after `--for`, by SIGTERM, or because stdout was closed."""
EXIT_FAILED: Final = 1
"""The fleet failed, or could not be started."""
EXIT_INTERRUPTED: Final = 130
"""Ctrl-C: 128 + SIGINT, as in shells."""
EXIT_HANDED_OVER: Final = 143
"""SIGTERM, and the executors are left to the next driver: 128 + SIGTERM. With 0, a Job would count as done."""

REDRAW_SECONDS: Final = 0.5
"""Ages have seconds: at twice that rate, every second is visible."""

LOCAL_STOP: Final = FORCE_AFTER + timedelta(seconds=3)
"""How long an orderly stop may take on the embedded cluster, which ends with the command and leaves nothing behind.
After `FORCE_AFTER` no pod is left; the rest is the Backend's, to report that."""

FRAME: Final = timedelta(milliseconds=50)
REST: Final = 4
"""The least time between two pictures, and as a multiple of what one takes."""


@dataclass(frozen=True, slots=True)
class Happened:
    """An event of the fleet. It may wait while the output is written."""

    at: datetime
    event: ToDriver | EventsMissed


@dataclass(frozen=True, slots=True)
class Key:
    """A key that was pressed."""

    name: str


Item: TypeAlias = Happened | Key | logging.LogRecord | signal.Signals
Inbox = SimpleQueue[Item]
"""What the main thread reads. A SimpleQueue, because its `put` is safe in a signal handler."""


class MainLoop:
    """The loop of the main thread: shows events, turns signals into stops, and determines the exit code.

    Args:
        inbox: see `Inbox`. The fleet puts its events into it.
        output: shows the events, and the fleet as it is.
        fleet: is started.
        plan: what to do with it.
        clock: measures time.
        entropy: chooses whom to kill.
        log_format: of log records: notes of the output, or JSON on stderr.
    """

    def __init__(
        self,
        inbox: Inbox,
        output: Output,
        fleet: Fleet,
        plan: Plan,
        *,
        clock: Clock,
        entropy: Entropy,
        log_format: LogFormat = "text",
    ) -> None:
        self._inbox = inbox
        self._output = output
        self._fleet = fleet
        self._driver = Driver(fleet, plan, show=self._show, clock=clock, entropy=entropy)
        self._is_local = plan.force is not None
        self._clock = clock
        self._log_format = log_format
        self._repeats = Repeats()
        self._exit_code: int | None = None
        self._over: Event | None = None
        """The last event."""
        self._deadline: Moment | None = None
        self._changed = True
        """Something has happened since the last picture."""
        self._draw_from: Moment = clock.monotonic()

    def run(self) -> int:
        """Run until the fleet has stopped, its time is over, or a second Ctrl-C comes; return the exit code."""
        while not self._is_late():
            self._driver.act()
            match self._next():
                case None:
                    pass
                case signal.Signals.SIGINT if self._exit_code == EXIT_INTERRUPTED:
                    self.remark("exiting at once")
                    break
                case item:
                    self._take(item)
            if self._over is not None:
                self._write(self._look)  # the output may still say what blocks the fleet
                return self._final_exit_code(left_behind=bool(self._over.details.get("left_behind")))
        return self._final_exit_code(left_behind=not self._is_local)

    def _next(self) -> Item | None:
        """Return the next item, None if there is none for a while. Draw what has changed, but not for each item."""
        now = self._clock.monotonic
        if self._changed and now() >= self._draw_from:
            self._draw()
        pause = self._draw_from - now() if self._changed else REDRAW_SECONDS
        if self._driver.next_due is not None:
            pause = min(pause, self._driver.next_due - now())
        try:
            item = self._inbox.get(timeout=max(pause, 0.0))
        except Empty:
            self._draw()
            return None
        self._changed = True
        return item

    def _draw(self) -> None:
        """Draw, and then leave most of the time to other things: the picture of a large fleet takes a while."""
        begun = self._clock.monotonic()
        self._write(self._look)
        self._write(self._output.refresh)
        ended = self._clock.monotonic()
        self._draw_from = later(ended, max(FRAME, REST * elapsed(begun, ended)))
        self._changed = False

    def _look(self) -> None:
        self._output.look(self._fleet)

    def _take(self, item: Item) -> None:
        match item:
            case Key(name):
                if self._output.press(name) == "stop":
                    self._stop(EXIT_OK, "a key was pressed")
            case logging.LogRecord() if self._log_format == "json" and not self._output.owns_stderr:
                say_raw(as_json(item))
            case logging.LogRecord():
                # with the events in a file, only stderr says why the command has ended
                if not is_told_by_event(item) or (item.levelno >= logging.ERROR and not self._output.owns_stderr):
                    self._log(item)
            case signal.Signals():
                self._handle_signal(item)
            case Happened(at, event):
                assert not isinstance(event, EventsMissed), "all events of the fleet may wait"
                self._driver.take(event, at)

    def _show(self, event: Event) -> None:
        self._write(partial(self._output.show, event))
        if event.event == "stopped":
            self._over = event
        elif event.reason == NOTHING_MADE:
            self._exit_code = EXIT_FAILED
        elif event.event == "failed":
            self._stop(EXIT_FAILED, "the fleet failed")
        elif event.event == "stopping" and self._exit_code is None:  # the driver's own stop came before any signal
            self._exit_code = EXIT_OK

    def remark(self, text: str, *, stays: bool = False) -> None:
        """Show a remark of the command itself; `stays` if it is of use until the end."""
        self._write(partial(self._output.remark, text, stays=stays))

    def _log(self, record: logging.LogRecord) -> None:
        """Show a record. The same warning again is counted, and said more and more rarely.

        Whoever asks for lesser records gets each line: they differ in what looks the same, such as the executor's id. A
        picture has no room for that.
        """
        text = as_text(record)
        is_counted = record.levelno >= logging.WARNING or self._output.owns_stderr
        self._write(partial(self._output.note, text, self._repeats.count(text) if is_counted else 1))

    def _handle_signal(self, number: signal.Signals) -> None:
        """Begin to stop, or do what concerns the terminal."""
        match number:
            case signal.Signals.SIGINT:
                self.remark("stopping; press Ctrl-C again to exit at once")
                self._stop(EXIT_INTERRUPTED, "interrupted")
            case signal.Signals.SIGTERM if self._fleet.settings.backend.hands_over and not self._is_local:
                self._stop(EXIT_HANDED_OVER, "SIGTERM received, handing over", hands_over=True)
            case signal.Signals.SIGTSTP:
                self._write(self._output.suspend)
            case signal.Signals.SIGCONT:
                self._write(self._output.resume)
            case signal.Signals.SIGWINCH:
                pass  # the next picture has the new size
            case _:
                self._stop(EXIT_OK, f"{number.name} received")

    def _stop(self, exit_code: int, why: str, *, hands_over: bool = False) -> None:
        """Begin an orderly stop. The first reason decides the exit code, except that Ctrl-C always wins."""
        if self._exit_code is None or exit_code == EXIT_INTERRUPTED:
            self._exit_code = exit_code
        if self._deadline is None and self._is_local:
            self._deadline = later(self._clock.monotonic(), LOCAL_STOP)
        self._driver.stop(why, hands_over=hands_over)

    def _is_late(self) -> bool:
        return self._deadline is not None and self._clock.monotonic() > self._deadline

    def _final_exit_code(self, *, left_behind: bool) -> int:
        if self._exit_code is None or self._exit_code == EXIT_OK:
            return EXIT_FAILED if left_behind else EXIT_OK
        return self._exit_code

    def _write(self, write: Callable[[], None]) -> None:
        """Write to the output. Stop the fleet if stdout cannot be written: only a reader that ended is no failure.

        A picture that cannot be drawn for another reason is a defect of ours, and no reason to leave the fleet alone.
        """
        try:
            write()
        except OSError as error:
            self._output, is_closed = Output(), has_no_reader(error)
            discard(sys.stdout)
            if is_closed:
                self._stop(EXIT_OK, "stdout was closed")
                return
            say(f"{unwritten(error)}; stopping the fleet")
            self._stop(EXIT_FAILED, "stdout cannot be written")
            if self._exit_code == EXIT_OK:
                self._exit_code = EXIT_FAILED
        except Exception as error:
            plainer = self._output.plainer()
            if plainer is None:
                raise
            self._output = plainer
            self.remark(f"the table failed, going on with lines: {error!r}")
