"""Outputs of the command: plain lines, JSON lines, or the live table of `actors.cli.live`.

Only the main thread calls them; other threads put their events into the command's inbox. When stdout cannot be written
(`| head`, a full disk), they raise `OSError`, and the command stops.
"""

from __future__ import annotations

from typing import IO, TYPE_CHECKING, Literal

from actors.cli.streams import check_reader, say
from actors.text import LONGEST_LINE, one_line

if TYPE_CHECKING:
    from collections.abc import Callable

    from actors.cli.events import Event
    from actors.fleet.fleet import Fleet

__all__ = ["Lines", "Output", "OutputFormat"]

OutputFormat = Literal["live", "json"]


class Output:
    """Receives what is to be shown. This one discards it."""

    owns_stderr = False
    """Whatever else is written to stderr would tear the picture."""

    def show(self, event: Event) -> None:
        """Show an event."""

    def look(self, fleet: Fleet) -> None:
        """Show the fleet as it is now, from the next `refresh` on."""

    def note(self, text: str, times: int = 1) -> None:
        """Show a line of the library's log, which came so often by now."""

    def remark(self, text: str, *, stays: bool = False) -> None:
        """Show what the command itself has to say; `stays` if it is of use until the end."""

    def press(self, key: str) -> Literal["stop"] | None:
        """Take in a key. Return what it asks for."""

    def refresh(self) -> None:
        """Draw what has changed, and the ages. Called periodically."""

    def suspend(self) -> None:
        """Stop this process until it is continued, as Ctrl-Z does."""

    def resume(self) -> None:
        """Take the terminal anew after a stop."""

    def close(self) -> None:
        """Restore the terminal after the last event."""

    def plainer(self) -> Output | None:
        """Close this output after it failed, and return one to go on with; None if there is none."""


class Lines(Output):
    """Writes one line per event and flushes it. Notes go to stderr, so that stdout has only events."""

    def __init__(self, stream: IO[str], write: Callable[[Event], str]) -> None:
        self._stream = stream
        self._write = write

    def show(self, event: Event) -> None:
        """Write the event."""
        print(self._write(event), file=self._stream, flush=True)

    def remark(self, text: str, *, stays: bool = False) -> None:  # noqa: ARG002 - a line stays
        """Write the text to stderr."""
        say(one_line(text, LONGEST_LINE))

    def refresh(self) -> None:
        """Notice a reader that has ended, though there is nothing to write."""
        check_reader(self._stream)

    def note(self, text: str, times: int = 1) -> None:
        """Write the text to stderr: the first time, the tenth, the hundredth and so on."""
        if times == 1:
            say(one_line(text, LONGEST_LINE))
        elif str(times).strip("0") == "1":
            say(one_line(f"{text} ({times} times)", LONGEST_LINE))
