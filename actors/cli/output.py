"""How the command shows a fleet: a table that redraws, plain lines, or JSON lines.

All of it is called by one thread, the main one; whoever else has something to say puts it into the command's inbox.
A reader that goes away (`| head`) raises `BrokenPipeError` here, which the command takes as a wish to stop.
"""

from __future__ import annotations

import sys
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from actors.cli.events import Event, one_line, to_json, to_line

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime, timedelta
    from typing import TextIO

__all__ = ["Lines", "LiveTable", "Output", "OutputFormat", "choose_output"]

OutputFormat = Literal["live", "json"]

_RECENT_EVENTS: Final = 8
_ALIVE: Final = ("pending", "running", "terminating", "stuck")
_COLOURS: Final = {
    "pending": "yellow",
    "running": "green",
    "terminating": "magenta",
    "stuck": "bold red",
    "removed": "red",
    "blocked": "bold red",
    "failed": "bold red",
    "warning": "yellow",
}
_FEWEST_ROWS: Final = 5
"""Executors that are shown however low the terminal is."""


class Output:
    """Where events go. This one shows nothing, and does as long as nobody looks."""

    def show(self, event: Event) -> None:
        """One more event."""

    def note(self, text: str) -> None:
        """A warning of the library, or a word of the command itself: not an event of the fleet."""

    def refresh(self) -> None:
        """Called now and then, so that ages can move on."""

    def close(self) -> None:
        """Nothing more comes; the terminal is left as it was found."""


def choose_output(kind: OutputFormat, *, target: int, now: Callable[[], datetime]) -> Output:
    """A table where there is a terminal to redraw; a pipe or a file gets lines."""
    if kind == "json":
        return Lines(sys.stdout, to_json)
    console = Console()
    return LiveTable(console, target=target, now=now) if console.is_terminal else Lines(sys.stdout, to_line)


class Lines(Output):
    """One line an event, each flushed; notes go to stderr, so that stdout has events only."""

    def __init__(self, stream: TextIO, write: Callable[[Event], str]) -> None:
        self._stream = stream
        self._write = write

    def show(self, event: Event) -> None:
        """Write the event."""
        print(self._write(event), file=self._stream, flush=True)

    def note(self, text: str) -> None:
        """Write it to stderr."""
        print(f"executor-pods: {one_line(text)}", file=sys.stderr, flush=True)


@dataclass(slots=True)
class _Row:
    executor_id: int
    pod: str
    state: str
    since: datetime
    reason: str = ""


_WHOLE: Final = frozenset({"failed", "blocked"})
"""Events whose words say what is to be done, and usually at their end: however narrow the terminal is."""


class LiveTable(Output):
    """The fleet in one line, its executors in a table, what happened last below."""

    def __init__(self, console: Console, *, target: int, now: Callable[[], datetime]) -> None:
        self._console = console
        self._target = target
        self._now = now
        self._rows: dict[int, _Row] = {}
        self._removed = 0
        self._title = "starting"
        self._hint = ""
        self._recent: deque[Text] = deque(maxlen=_RECENT_EVENTS)
        self._live = Live(console=console, auto_refresh=False, get_renderable=self.render)
        self._live.start()

    def show(self, event: Event) -> None:
        """Take the event into the table, and into what happened last."""
        if event.executor_id is not None:
            self._move(event.executor_id, event)
        elif event.event == "started":
            self._title = f"{event.details['app_id']} in namespace {event.details['namespace']}"
            self._hint = f"export KUBECONFIG={event.details['kubeconfig']}" if "kubeconfig" in event.details else ""
        self._recent.append(
            Text(
                to_line(event),
                style=_COLOURS.get(event.event, ""),
                no_wrap=event.event not in _WHOLE,
                overflow="fold" if event.event in _WHOLE else "ellipsis",
            )
        )
        self.refresh()

    def note(self, text: str) -> None:
        """Shown among the events: a line on stderr would tear the table."""
        line = f"{self._now().astimezone():%H:%M:%S}  {one_line(text)}"
        self._recent.append(Text(line, style=_COLOURS["warning"], no_wrap=True, overflow="ellipsis"))
        self.refresh()

    def refresh(self) -> None:
        """Draw."""
        self._live.refresh()

    def close(self) -> None:
        """Leave the last picture standing."""
        with suppress(OSError):
            self._live.stop()

    def _move(self, executor_id: int, event: Event) -> None:
        if event.event == "removed":
            self._removed += 1
            self._rows.pop(executor_id, None)
            return
        row = self._rows.setdefault(executor_id, _Row(executor_id, event.pod or "", event.event, event.time))
        if row.state != event.event:
            row.state, row.since = event.event, event.time
        row.reason = one_line(": ".join(part for part in (event.reason, event.message) if part))

    def render(self) -> Group:
        """The picture as things stand."""
        counts = dict.fromkeys(_ALIVE, 0)
        for row in self._rows.values():
            counts[row.state] += 1
        summary = [
            f"target {self._target}",
            *(f"{state} {count}" for state, count in counts.items() if count or state in _ALIVE[:2]),
        ]
        head = Text.assemble((self._title, "bold"), "   ", "  ".join((*summary, f"removed {self._removed}")))
        head.no_wrap = True
        hint = [Text(self._hint, style="dim", no_wrap=True)] if self._hint else []
        return Group(head, *hint, self._table(), *self._recent)

    def _table(self) -> Table:
        """As many executors as the terminal has room for; those that do not run come first, being of interest."""
        table = Table(box=None, pad_edge=False, header_style="dim")
        for name, width in (("ID", 5), ("POD", 24), ("STATE", 11), ("FOR", 6)):
            table.add_column(name, no_wrap=True, min_width=width)
        table.add_column("REASON", no_wrap=True, overflow="ellipsis", ratio=1)
        room = max(_FEWEST_ROWS, self._console.size.height - _RECENT_EVENTS - 5)
        rows = sorted(self._rows.values(), key=lambda row: (row.state == "running", row.executor_id))
        now = self._now()
        for row in sorted(rows[:room], key=lambda row: row.executor_id):
            state = Text(row.state, style=_COLOURS[row.state])
            table.add_row(str(row.executor_id), row.pod, state, age(now - row.since), row.reason)
        if len(rows) > room:
            table.add_row("…", f"and {len(rows) - room} more", "", "", "")
        return table


def age(duration: timedelta) -> str:
    """As kubectl shows ages: the largest unit, or two of them while it is young."""
    seconds = max(0, int(duration.total_seconds()))
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    if minutes < 2:
        return f"{seconds}s"
    if minutes < 10:
        return f"{minutes}m{seconds % 60}s"
    if hours < 3:
        return f"{minutes}m"
    return f"{hours}h" if hours < 48 else f"{days}d"
