"""The entry point of `executor-pods`: installs the signal handlers, then runs the arguments.

The handlers are installed before anything heavy is imported, and stay. Ctrl-C is always an item in the main thread's
inbox, never an exception in the middle of something.

Exit codes: 0 ended as asked (also by SIGTERM), 1 the fleet failed, 2 usage, 130 Ctrl-C, 143 handed over after SIGTERM.
"""

from __future__ import annotations

import gc
import signal
from queue import SimpleQueue
from typing import TYPE_CHECKING

import actors
from actors.cli.streams import prepare, say
from actors.errors import MissingExtra, needs_extra

if TYPE_CHECKING:
    from types import FrameType

    from actors.cli.main_loop import Inbox

__all__ = ["main", "stranger"]


def main() -> int:
    """Run the command with the process's arguments; return the exit code."""
    prepare()
    if (problem := stranger()) is not None:
        say(problem)
        return 2
    inbox: Inbox = SimpleQueue()
    _take_signals(inbox)
    try:
        with needs_extra("cli", "the command"):
            from actors.cli.arguments import execute  # noqa: PLC0415 - see the module's docstring
    except MissingExtra as error:
        say(str(error))
        return 2
    try:
        return execute(inbox)
    finally:
        gc.freeze()  # else the interpreter visits every object when it exits, which takes as long as some imports


def stranger() -> str | None:
    """Return what is wrong if the package `actors` is not ours: another one hides it, or was installed over it."""
    if "Fleet" in getattr(actors, "__all__", ()):
        return None
    path = getattr(actors, "__file__", None) or "the package `actors`, which has lost its `__init__.py`,"
    return f"{path} is not of executor-pods: see `Another package named actors` in docs/reference/install.md"


def _take_signals(inbox: Inbox) -> None:
    """Handle SIGINT even if the shell ignores it for background jobs. Respect `nohup`."""

    def put(number: int, _frame: FrameType | None) -> None:
        inbox.put(signal.Signals(number))

    signal.signal(signal.SIGINT, put)
    signal.signal(signal.SIGTERM, put)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        signal.signal(signal.SIGHUP, put)
