"""The command `executor-pods`: signals and exit codes. Arguments are read in `actors.cli.arguments`.

Signals are taken before anything heavy is imported, and for the process's whole life: whenever Ctrl-C comes, it is an
item in the main thread's inbox, never an exception in the middle of something.

Exit codes: 0 ended as asked (also by SIGTERM), 1 the fleet failed, 2 usage, 130 Ctrl-C.
"""

from __future__ import annotations

import signal
from queue import SimpleQueue
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import FrameType

    from actors.cli.run import Inbox

__all__ = ["main"]


def main() -> int:
    """Run the command on the process's arguments; the exit code."""
    inbox: Inbox = SimpleQueue()
    _take_signals(inbox)
    from actors.cli.arguments import execute  # noqa: PLC0415 - see the module's docstring

    return execute(inbox)


def _take_signals(inbox: Inbox) -> None:
    """Ctrl-C counts even where a shell starts its background jobs with SIGINT ignored; `nohup` is respected."""

    def put(number: int, _frame: FrameType | None) -> None:
        inbox.put(signal.Signals(number))

    signal.signal(signal.SIGINT, put)
    signal.signal(signal.SIGTERM, put)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        signal.signal(signal.SIGHUP, put)
