"""Lines of executors' logs: cut from bytes, and kept for one reader, bounded.

A full buffer makes those wait that read the logs, so nothing is lost and the server sends no more. There is no lock:
Ctrl-C in the reader would leave it locked. A writer takes a token for each line from a `SimpleQueue`, and the reader
gives it back.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from queue import SimpleQueue
from typing import TYPE_CHECKING, Final, final

from actors.fleet.waiting import Waitable
from actors.text import one_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["LineBuffer", "LogLine", "lines"]

LONGEST_LINE: Final = 16 * 1024
"""Bytes of a line. A longer one is cut in several, as container runtimes do at this length."""

MOST_LINES: Final = 1000
"""Lines that wait for a reader: 16 MiB at most, as each has at most `LONGEST_LINE`."""


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line that an executor has printed."""

    executor_id: int
    text: str
    """As it was printed, without the end of the line. Bytes that are not UTF-8 are replaced."""
    is_note: bool = False
    """The line is ours: it says why lines of this executor may be missing here."""

    def __str__(self) -> str:
        """The line with its executor before it, and every character escaped that acts on a terminal."""
        text = "\t".join(one_line(part, LONGEST_LINE) for part in self.text.split("\t"))
        return f"[{self.executor_id}] {text}"


def lines(blocks: Iterable[bytes]) -> Iterator[str]:
    """Yield the lines of a log. It keeps less than one line and one block."""
    rest = b""
    for block in blocks:
        *whole, rest = (rest + block).split(b"\n")
        while len(rest) > LONGEST_LINE:
            whole.append(rest[:LONGEST_LINE])
            rest = rest[LONGEST_LINE:]
        for line in whole:
            for start in range(0, max(1, len(line)), LONGEST_LINE):
                yield _text(line[start : start + LONGEST_LINE])
    if rest:
        yield _text(rest)


def _text(line: bytes) -> str:
    return line.removesuffix(b"\r").decode("utf-8", "replace")


@final
class LineBuffer(Waitable):
    """Written by the threads that read logs, read by one reader in any thread.

    Args:
        size: how many lines may wait.
    """

    def __init__(self, size: int = MOST_LINES) -> None:
        super().__init__()
        self._lines: deque[LogLine] = deque()
        self._room: SimpleQueue[None] = SimpleQueue()
        for _ in range(size):
            self._room.put(None)
        self.is_closed = False
        """The reader has left."""
        self.has_ended = False
        """No line will be added."""
        self.error: BaseException | None = None
        """Why it has ended."""

    def put(self, line: LogLine) -> bool:
        """Add a line once there is room. False: the reader has left."""
        self._room.get()
        if self.is_closed:
            self._room.put(None)  # wakes the next one that waits
            return False
        self._lines.append(line)
        self.changed()
        return True

    def end(self, error: BaseException | None = None) -> None:
        """Add nothing any more. The reader still gets what is there, then the error."""
        self.error = self.error or error
        self.has_ended = True
        self.changed()

    def close(self) -> None:
        """The reader leaves: nobody waits for room any more."""
        self.is_closed = True
        self._lines.clear()
        self._room.put(None)
        self.end()

    def has_news(self) -> bool:
        """Whether `take` returns a line, or no line will ever come."""
        return bool(self._lines) or self.has_ended

    def take(self) -> LogLine | None:
        """Return the next line, None if there is none now."""
        try:
            line = self._lines.popleft()
        except IndexError:
            return None
        self._room.put(None)
        return line
