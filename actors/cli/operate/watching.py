"""`status --watch`: looks again and again. A terminal is redrawn; a pipe gets what has changed."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext
from threading import Event
from typing import TYPE_CHECKING, Any, Final, NoReturn

from actors.cli.operate import as_json
from actors.cli.operate.tables import executors_table, status_lines
from actors.cli.operate.target import show, warn
from actors.cli.streams import say
from actors.errors import TooManyRequests, Unavailable, needs_extra
from actors.text import one_line

with needs_extra("cli", "the command"):
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Iterable

    from actors.cli.operate.cluster import Cluster
    from actors.inspection.executors import ObservedExecutor
    from actors.inspection.fleets import ObservedFleet

__all__ = ["Changes", "Screen", "watch_fleet"]

_EVERY: Final = 2.0
"""Seconds between two looks, as `watch` has by default."""

_SHARE: Final = 5
"""A look that takes long, at a large fleet, is followed by a pause of so many times its length."""

_HEAD: Final = 4
"""Lines of a screen that are no executors and no profiles."""


class Screen:
    """Redraws a terminal."""

    def __init__(self, *, wide: bool) -> None:
        self._wide = wide
        self._console = Console()
        self._live = Live(console=self._console, auto_refresh=False, screen=True)

    def context(self) -> AbstractContextManager[object]:
        """Return what restores the terminal at its end."""
        return self._live

    def show(self, fleet: ObservedFleet) -> None:
        """Draw the fleet: as many executors as fit, those that do not run first."""
        room = max(1, self._console.size.height - _HEAD - len(fleet.counts) - 2)
        self._draw(status_lines(fleet, wide=self._wide, room=room))

    def note(self, text: str) -> None:
        """Draw a problem in place of the fleet."""
        self._draw([text, "looking again, until Ctrl-C"])

    def _draw(self, lines: Iterable[str]) -> None:
        self._live.update(Text("\n".join(lines), no_wrap=True, overflow="ellipsis"), refresh=True)


class Changes:
    """Writes the fleet once, then the rows of the executors that have changed; as JSON, a line for each change."""

    def __init__(self, *, wide: bool, json: bool) -> None:
        self._wide = wide
        self._json = json
        self._before: object = None
        self._rows: dict[str, ObservedExecutor] = {}
        self._noted = ""

    def context(self) -> AbstractContextManager[object]:
        """Return nothing in particular."""
        return nullcontext()

    def show(self, fleet: ObservedFleet) -> None:
        """Write what has changed."""
        self._noted = ""
        rows = {each.pod.uid: each for each in fleet.executors}
        now = fleet.state, fleet.counts, {uid: _essence(each) for uid, each in rows.items()}
        before, self._before = self._before, now
        earlier, self._rows = self._rows, rows
        if before == now:
            return
        if self._json:
            show([as_json.as_text(as_json.status(fleet), one_line=True)])
        elif before is None:
            show(status_lines(fleet, wide=self._wide))
        else:
            self._show_changed(fleet, earlier)

    def note(self, text: str) -> None:
        """Write a problem to stderr, once until it is over."""
        if text != self._noted:
            self._noted = text
            say(f"{text}; looking again, until Ctrl-C")

    def _show_changed(self, fleet: ObservedFleet, earlier: dict[str, ObservedExecutor]) -> None:
        changed = [
            each for uid, each in self._rows.items() if uid not in earlier or _essence(earlier[uid]) != _essence(each)
        ]
        _, *lines = executors_table(changed, fleet.at, wide=self._wide)
        gone = [each for uid, each in earlier.items() if uid not in self._rows]
        show([*lines, *(one_line(f"pod {each.pod.name} is gone") for each in gone)])


def _essence(executor: ObservedExecutor) -> tuple[Any, ...]:
    return executor.id, executor.state, executor.restarts, executor.why, executor.pod.node, executor.pod.ip


def watch_fleet(cluster: Cluster, app_id: str, *, wide: bool, json: bool) -> NoReturn:
    """Look until KeyboardInterrupt. An outage is shown, and passes.

    Raises:
        ApiError: the first look failed, or a later one for another reason than an outage.
    """
    reader, pause = cluster.reader(), Event()
    screen = Screen(wide=wide) if sys.stdout.isatty() and not json else Changes(wide=wide, json=json)
    fleet, warnings = reader.one(app_id)
    warn(warnings)
    with screen.context():
        screen.show(fleet)
        took = 0.0
        while True:
            pause.wait(max(_EVERY, _SHARE * took))
            began = cluster.clock.monotonic()
            try:
                fleet, _ = reader.one(app_id)
            except (TooManyRequests, Unavailable) as error:
                screen.note(error.message)
            else:
                screen.show(fleet)
            took = cluster.clock.monotonic() - began
