"""The built-in executor: the program of containers without a command, as the embedded cluster has no images.

It prints its identity, then a line now and then, and exits with code 0 on SIGTERM. An isolated interpreter runs it by
path, so that a fleet starts quickly; it must not import anything of this library.
"""

import os
import signal
import sys
import threading
from typing import Final

_IDENTITY: Final = ("EXECUTOR_ID", "EXECUTOR_APP_ID", "EXECUTOR_PROFILE", "EXECUTOR_POD_NAME", "DRIVER_ADDRESS")
_LINE_SECONDS: Final = 10.0
"""Often enough for a person who follows the log, too seldom to fill a disk."""


def main() -> None:
    """Run until SIGTERM or SIGINT."""
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    known = " ".join(f"{name}={os.environ[name]}" for name in _IDENTITY if name in os.environ)
    _say(f"built-in executor started, pid {os.getpid()} {known}".rstrip())
    if sys.argv[1:]:
        _say(f"arguments: {sys.argv[1:]}")
    while not stopping.wait(_LINE_SECONDS):
        _say("running")
    _say("stopped by a signal")


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
