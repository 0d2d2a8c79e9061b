"""`Keyboard`: the keys of a terminal, one by one, without echo; as the terminal was once it is left.

Ctrl-C and Ctrl-Z stay signals. A command in the background reads nothing: the terminal is the shell's then.
"""

from __future__ import annotations

import codecs
import os
import re
import select
import termios
import tty
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, final

from actors.errors import NoThread
from actors.runtime import start_thread

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterator

__all__ = ["Keyboard", "in_foreground", "keys_of"]

_ESCAPE_PAUSE: Final = 0.05
"""How long the rest of an escape sequence may take; a lone ESC is the key."""

_MOST: Final = 1024
"""Bytes of one read: what a person types, or pastes."""

_TOKEN: Final = re.compile(r"\x1b(?:\[[0-9;?]*[@-~]|O[@-~])|.", re.DOTALL)
_BEGUN: Final = re.compile(r"\x1b(?:\[[0-9;?]*|O)?\Z")
_NAMES: Final = {
    "\r": "enter",
    "\n": "enter",
    "\x1b": "escape",
    "\x7f": "backspace",
    "\b": "backspace",
    "\x1b[A": "up",
    "\x1bOA": "up",
    "\x1b[B": "down",
    "\x1bOB": "down",
    "\x1b[5~": "pageup",
    "\x1b[6~": "pagedown",
    "\x1b[H": "home",
    "\x1bOH": "home",
    "\x1b[1~": "home",
    "\x1b[F": "end",
    "\x1bOF": "end",
    "\x1b[4~": "end",
}


def keys_of(text: str) -> Iterator[str]:
    """Yield the keys that a terminal sends as this text: names, or printable characters. Others are dropped."""
    for token in _TOKEN.findall(text):
        if token in _NAMES:
            yield _NAMES[token]
        elif token.isprintable():
            yield token


def in_foreground(descriptor: int) -> bool:
    """Whether this terminal is ours now. True if it is not our controlling terminal: no shell uses it beside us."""
    try:
        return os.tcgetpgrp(descriptor) == os.getpgrp()
    except OSError:
        return True


@final
class Keyboard:
    """Reads a terminal's keys in a thread, between `enter` and `leave`.

    Args:
        descriptor: of the terminal.
        press: called with each key, in that thread.
    """

    def __init__(self, descriptor: int, press: Callable[[str], object]) -> None:
        self._terminal = descriptor
        self._press = press
        self._before: list[Any] | None = None
        """The terminal's modes from before; None while it is not entered."""
        self._wake: tuple[int, int] | None = None
        self._thread: threading.Thread | None = None

    def enter(self) -> None:
        """Take the terminal's keys one by one, from now on."""
        if self._before is not None:
            return
        with suppress(termios.error):  # it is gone: there are no keys
            self._before = termios.tcgetattr(self._terminal)
            tty.setcbreak(self._terminal, termios.TCSADRAIN)
            self._wake = os.pipe()
            with suppress(NoThread):  # as above
                self._thread = start_thread(partial(self._read, self._wake[0]), "executor-pods/keys")

    def leave(self) -> None:
        """Restore the terminal. What was typed meanwhile is not passed on to the shell."""
        before, self._before = self._before, None
        if before is not None:
            with suppress(termios.error):
                termios.tcsetattr(self._terminal, termios.TCSAFLUSH, before)
        if self._wake is not None:
            if self._thread is not None:
                os.write(self._wake[1], b".")
                self._thread.join()
            for descriptor in self._wake:
                os.close(descriptor)
        self._wake = self._thread = None

    def restore(self) -> None:
        """Restore the terminal's modes and nothing else: for a signal handler that ends the process."""
        if self._before is not None:
            with suppress(termios.error):
                termios.tcsetattr(self._terminal, termios.TCSANOW, self._before)

    def _read(self, wake: int) -> None:
        decoder = codecs.getincrementaldecoder("utf-8")("ignore")
        text = ""
        while True:
            pause = _ESCAPE_PAUSE if text else None
            ready = select.select([self._terminal, wake], (), (), pause)[0]
            if wake in ready or (ready and not in_foreground(self._terminal)):
                return
            if ready:
                try:
                    chunk = os.read(self._terminal, _MOST)
                except OSError:  # it was hung up, or is another's now
                    return
                if not chunk:
                    return
                text += decoder.decode(chunk)
                if _BEGUN.search(text) and len(text) < _MOST:
                    continue
            for key in keys_of(text):
                self._press(key)
            text = ""
