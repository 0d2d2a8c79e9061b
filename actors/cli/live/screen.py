"""`LiveTable`: the output of `executor-pods run` on a terminal.

It draws on the terminal's second screen, so that a resize leaves no remains, and gives the terminal back as it was:
at the end, while the command is suspended, and when a signal kills it. What the run came to stays on the first screen.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Final, final

from actors.cli.events import to_line
from actors.cli.live.cells import Shown
from actors.cli.live.fleet import LiveFleet
from actors.cli.live.frame import render, summary
from actors.cli.live.keyboard import in_foreground
from actors.cli.live.view import View
from actors.cli.output import Lines, Output
from actors.errors import needs_extra

with needs_extra("cli", "the command"):
    from rich.console import Console, Group
    from rich.live import Live

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime
    from types import FrameType

    from actors.cli.events import Event
    from actors.cli.live.keyboard import Keyboard
    from actors.cli.live.view import Act
    from actors.fleet.fleet import Fleet

__all__ = ["LiveTable"]

_NO_WRAP: Final = "\x1b[?7l"
_WRAP: Final = "\x1b[?7h"
"""Whether a line that is too long continues on the next one. A terminal that measures a text otherwise than we do then
loses a character, and not the picture."""

_GIVE_BACK: Final = f"{_WRAP}\x1b[?25h\x1b[?1049l"
"""Wraps lines, shows the cursor, returns to the first screen: for a signal handler that ends the process."""


@final
class LiveTable(Output):
    """The table. Only the main thread calls it.

    Args:
        console: the terminal.
        targets: the target of each profile, until the Backend says it.
        now: the time.
        keyboard: None if there are no keys.
        signalled: called with the signals that concern the terminal; None if it handles none.
    """

    def __init__(
        self,
        console: Console,
        *,
        targets: Mapping[str, int],
        now: Callable[[], datetime],
        keyboard: Keyboard | None = None,
        signalled: Callable[[signal.Signals], object] | None = None,
    ) -> None:
        self.owns_stderr = sys.stderr.isatty()
        self._console = console
        self._now = now
        self._keyboard = keyboard
        self._view = View()
        self._fleet = LiveFleet(targets, Shown(console.encoding))
        self._live: Live | None = None
        self._is_over = False
        self._handlers: dict[int, object] = {}
        if signalled is not None:
            self._handle_signals(signalled)
        self.refresh()

    # ── what is shown ───────────────────────────────────────────────────────────────────────────────────────────

    def show(self, event: Event) -> None:
        """Take in an event; `refresh` draws it."""
        self._fleet.apply(event)

    def look(self, fleet: Fleet) -> None:
        """Take in the fleet as it is now; `refresh` draws it."""
        self._fleet.look(fleet.executors, fleet.last_status)

    def note(self, text: str, times: int = 1) -> None:
        """Take in a warning: on stderr it would tear the table."""
        self._fleet.note(text, self._now(), times)

    def remark(self, text: str, *, stays: bool = False) -> None:
        """Show the text on top until the end, or among what happened."""
        self._fleet.remark(text, self._now(), stays=stays)

    def press(self, key: str) -> Act | None:
        """Take in a key."""
        return self._view.press(key)

    def frame(self) -> Group:
        """Return the current picture."""
        size = self._console.size
        lines = render(
            self._fleet,
            self._view,
            width=size.width,
            height=size.height,
            now=self._now(),
            has_keys=self._keyboard is not None,
        )
        return Group(*lines)

    def refresh(self) -> None:
        """Draw. A command in the background draws nothing, until it has the terminal again."""
        if not self._is_ours():
            return
        if self._live is None:
            self._enter()
        if self._live is not None:
            self._live.refresh()

    # ── the terminal ────────────────────────────────────────────────────────────────────────────────────────────

    def _is_ours(self) -> bool:
        try:
            return in_foreground(self._console.file.fileno())
        except OSError:  # a test's, without a descriptor
            return True

    def _enter(self) -> None:
        if self._keyboard is not None:
            self._keyboard.enter()
        self._live = Live(
            console=self._console,
            screen=True,
            auto_refresh=False,
            redirect_stdout=False,
            redirect_stderr=False,
            get_renderable=self.frame,
        )
        self._live.start()
        self._console.file.write(_NO_WRAP)

    def _leave(self) -> None:
        live, self._live = self._live, None
        try:
            if live is not None:
                self._console.file.write(_WRAP)
                live.stop()
        finally:
            if self._keyboard is not None:
                self._keyboard.leave()

    def suspend(self) -> None:
        """Stop this process as Ctrl-Z does, with the terminal as it was; return when it continues."""
        self._leave()
        handler = signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        signal.pthread_kill(threading.get_ident(), signal.SIGTSTP)
        signal.signal(signal.SIGTSTP, handler)
        self.refresh()

    def resume(self) -> None:
        """Take the terminal anew: another program may have changed it while this one was stopped."""
        if self._is_ours():
            self._leave()
            self.refresh()

    def close(self) -> None:
        """Give the terminal back, and print what the run came to."""
        if self._is_over:
            return
        with suppress(OSError):
            self._restore()
            for line in summary(self._fleet, self._console.size.width, self._now()):
                self._console.print(line, soft_wrap=True, highlight=False)

    def plainer(self) -> Output:
        """Give the terminal back, and return lines: a fleet must not end because its picture fails."""
        self._is_over = True
        self._restore()
        return Lines(self._console.file, to_line)

    def _restore(self) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)  # type: ignore[arg-type]  # what `signal` returned
        self._handlers = {}
        self._leave()

    def _handle_signals(self, signalled: Callable[[signal.Signals], object]) -> None:
        def put(number: int, _: FrameType | None) -> None:
            signalled(signal.Signals(number))

        def quit_now(number: int, _: FrameType | None) -> None:
            with suppress(OSError):
                os.write(self._console.file.fileno(), _GIVE_BACK.encode())
            if self._keyboard is not None:
                self._keyboard.restore()
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

        for number, handle in (
            (signal.SIGTSTP, put),
            (signal.SIGCONT, put),
            (signal.SIGWINCH, put),
            (signal.SIGQUIT, quit_now),
        ):
            self._handlers[number] = signal.signal(number, handle)
