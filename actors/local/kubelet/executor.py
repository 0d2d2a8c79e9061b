"""The small built-in executor: what a container without a command runs on the embedded cluster, where no image exists.

It says who it is, says now and then that it is alive, and ends with exit code 0 when told to. It is run by path with an
isolated interpreter, so that a fleet of them starts quickly, and so must not import anything of this library.
"""

import os
import signal
import sys
import threading
from typing import Final

_IDENTITY: Final = ("EXECUTOR_ID", "EXECUTOR_APP_ID", "EXECUTOR_PROFILE", "EXECUTOR_POD_NAME", "DRIVER_ADDRESS")
_SIGN_OF_LIFE_SECONDS: Final = 10.0
"""Often enough for a person who follows the log, too seldom to fill a disk."""


def main() -> None:
    """Run until SIGTERM or SIGINT."""
    told_to_stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: told_to_stop.set())
    known = " ".join(f"{name}={os.environ[name]}" for name in _IDENTITY if name in os.environ)
    _say(f"built-in executor started, pid {os.getpid()} {known}".rstrip())
    if sys.argv[1:]:
        _say(f"arguments: {sys.argv[1:]}")
    while not told_to_stop.wait(_SIGN_OF_LIFE_SECONDS):
        _say("still here")
    _say("told to stop: bye")


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
