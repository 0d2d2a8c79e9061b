"""`Sigterm`: tells a fleet of SIGTERM before the program leaves, so that the fleet hands its executors over.

Only a fleet with `backend.on_sigterm = "hand-over"` takes the signal. The program's own handler is called after that. A
program without one leaves as by `sys.exit(143)`.
"""

from __future__ import annotations

import os
import signal
import threading
from typing import TYPE_CHECKING, Any, Final

from actors.errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

__all__ = ["Sigterm"]

EXIT_CODE: Final = 128 + signal.SIGTERM
"""As in shells."""


class Sigterm:
    """SIGTERM between `take` and `give_back`. `received` is called in the main thread, in the middle of anything."""

    def __init__(self, received: Callable[[], object]) -> None:
        self._received = received
        self._before: Any = None
        """The handler that the program had."""
        self._process: int | None = None
        """The one that takes the signal, None before and after that."""
        self._came = False

    def take(self) -> None:
        """Handle the signal from now on, unless the program ignores it, or handles it outside of Python.

        Raises:
            SettingsError: this is not the main thread, which alone can handle signals.
        """
        if threading.current_thread() is not threading.main_thread():
            raise SettingsError(
                'backend.on_sigterm = "hand-over": only the main thread can handle SIGTERM, and this fleet is entered '
                'in another one; set "stop", and hand over by stop(keep=True)'
            )
        self._before = signal.getsignal(signal.SIGTERM)
        if self._before not in (signal.SIG_IGN, None):
            self._process = os.getpid()
            signal.signal(signal.SIGTERM, self._handle)

    def give_back(self) -> None:
        """Handle it no more. Outside of the main thread, the next signal gives it back."""
        self._process = None
        if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) == self._handle:
            signal.signal(signal.SIGTERM, self._before)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._process != os.getpid():  # it was given back, or this is a forked child
            self._pass_on(number, frame)
            return
        is_first, self._came = not self._came, True
        self._received()
        if callable(self._before):
            self._before(number, frame)
        elif is_first:  # the program is leaving after that
            raise SystemExit(EXIT_CODE)

    def _pass_on(self, number: int, frame: FrameType | None) -> None:
        """Leave the signal to the program. A fleet that was entered after this one may have called us."""
        if signal.getsignal(signal.SIGTERM) == self._handle:
            signal.signal(signal.SIGTERM, self._before)
            signal.raise_signal(signal.SIGTERM)
        elif callable(self._before):
            self._before(number, frame)
        else:
            raise SystemExit(EXIT_CODE)
