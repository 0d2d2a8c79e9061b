"""Outputs of the command: a live table, plain lines, or JSON lines.

Only the main thread calls them; other threads put their events into the command's inbox. When stdout cannot be written
(`| head`, a full disk), they raise `OSError`, and the command stops.
"""

from __future__ import annotations

import sys
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from actors.cli.events import Event, to_json, to_line
from actors.cli.streams import say
from actors.errors import needs_extra
from actors.text import LONGEST_LINE, one_line

with needs_extra("cli", "the command"):
    from rich.console import Console, Group
    from rich.live import Live
    from rich.table import Table
    from rich.text import Text

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
"""Executors in the table, however small the terminal is."""


class Output:
    """Receives events and notes. This one discards them."""

    def show(self, event: Event) -> None:
        """Show an event."""

    def note(self, text: str) -> None:
        """Show a warning of the library, or a remark of the command itself."""

    def refresh(self) -> None:
        """Update the ages. Called periodically."""

    def close(self) -> None:
        """Restore the terminal after the last event."""


def choose_output(kind: OutputFormat, *, target: int, now: Callable[[], datetime]) -> Output:
    """Return a table for a terminal, lines for a pipe or a file."""
    if kind == "json":
        return Lines(sys.stdout, to_json)
    console = Console()
    # rich also takes a pipe for a terminal, if FORCE_COLOR is set
    is_terminal = console.is_terminal and sys.stdout.isatty()
    return LiveTable(console, target=target, now=now) if is_terminal else Lines(sys.stdout, to_line)


class Lines(Output):
    """Writes one line per event and flushes it. Notes go to stderr, so that stdout has only events."""

    def __init__(self, stream: TextIO, write: Callable[[Event], str]) -> None:
        self._stream = stream
        self._write = write

    def show(self, event: Event) -> None:
        """Write the event."""
        print(self._write(event), file=self._stream, flush=True)

    def note(self, text: str) -> None:
        """Write the text to stderr."""
        say(one_line(text, LONGEST_LINE))


@dataclass(slots=True)
class _Row:
    executor_id: int
    pod: str
    state: str
    since: datetime
    reason: str = ""


_NEVER_TRUNCATED: Final = frozenset({"failed", "blocked"})
"""Events that are never truncated: their messages say, usually at the end, what the user should do."""


class LiveTable(Output):
    """Shows the fleet in one line, the executors in a table, and the latest events below."""

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
        """Update the table, and add the event to the latest ones."""
        if event.executor_id is not None:
            self._move(event.executor_id, event)
        elif event.event == "started":
            self._title = one_line(f"{event.details['app_id']} in namespace {event.details['namespace']}")
            kubeconfig = event.details.get("kubeconfig")
            self._hint = one_line(f"export KUBECONFIG={kubeconfig}") if kubeconfig else ""
        self._recent.append(
            Text(
                to_line(event),
                style=_COLOURS.get(event.event, ""),
                no_wrap=event.event not in _NEVER_TRUNCATED,
                overflow="fold" if event.event in _NEVER_TRUNCATED else "ellipsis",
            )
        )
        self.refresh()

    def note(self, text: str) -> None:
        """Add the text to the latest events: a line on stderr would tear the table."""
        line = f"{self._now().astimezone():%H:%M:%S}  {one_line(text)}"
        self._recent.append(Text(line, style=_COLOURS["warning"], no_wrap=True, overflow="ellipsis"))
        self.refresh()

    def refresh(self) -> None:
        """Draw the table again."""
        self._live.refresh()

    def close(self) -> None:
        """Leave the last table on the screen."""
        with suppress(OSError):
            self._live.stop()

    def _move(self, executor_id: int, event: Event) -> None:
        if event.event == "removed":
            self._removed += 1
            self._rows.pop(executor_id, None)
            return
        pod = one_line(event.pod or "")
        row = self._rows.setdefault(executor_id, _Row(executor_id, pod, event.event, event.time))
        if row.state != event.event:
            row.state, row.since = event.event, event.time
        row.reason = one_line(": ".join(part for part in (event.reason, event.message) if part))

    def render(self) -> Group:
        """Return the current table."""
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
        """Return as many executors as fit the terminal, preferring those that do not run."""
        table = Table(box=None, pad_edge=False, header_style="dim")
        for name, width in (("ID", 5), ("POD", 24), ("STATE", 11), ("FOR", 6)):
            table.add_column(name, no_wrap=True, min_width=width)
        table.add_column("REASON", no_wrap=True, overflow="ellipsis", ratio=1)
        room = max(_FEWEST_ROWS, self._console.size.height - _RECENT_EVENTS - 5)
        rows = sorted(self._rows.values(), key=lambda row: (row.state == "running", row.executor_id))
        now = self._now()
        for row in sorted(rows[:room], key=lambda row: row.executor_id):
            state = Text(row.state, style=_COLOURS[row.state])
            # a `Text` has no markup: a str would be read for `[…]`
            cells = (str(row.executor_id), row.pod, state, age(now - row.since), row.reason)
            table.add_row(*(Text(cell) if isinstance(cell, str) else cell for cell in cells))
        if len(rows) > room:
            table.add_row("…", f"and {len(rows) - room} more", "", "", "")
        return table


def age(duration: timedelta) -> str:
    """Format an age as kubectl does: the largest unit, or two of them for short ages."""
    seconds = max(0, int(duration.total_seconds()))
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    if minutes < 2:
        return f"{seconds}s"
    if minutes < 10:
        return f"{minutes}m{seconds % 60}s"
    if hours < 3:
        return f"{minutes}m"
    return f"{hours}h" if hours < 48 else f"{days}d"
