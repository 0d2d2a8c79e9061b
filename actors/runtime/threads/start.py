"""`start_thread`: starts a thread, or says which limit of the system keeps it from starting."""

from __future__ import annotations

import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from actors.errors import NoThread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["FEWEST", "in_words", "start_thread"]

FEWEST: Final = 5
"""Threads that a Backend needs beside those of the program: for the actors, the look after that thread, the timers of
the connections, a request and the watch. Each further request at a time takes one more, up to
`allocation.max_requests_in_flight` and five."""

_GROUPS: Final = Path("/sys/fs/cgroup")


def start_thread(run: Callable[[], object], name: str) -> threading.Thread:
    """Start a daemon thread.

    Raises:
        NoThread: the system starts no further one.
    """
    thread = threading.Thread(target=run, name=name, daemon=True)
    try:
        thread.start()
    except RuntimeError as error:
        need = f"a fleet needs {FEWEST} beside the program's own"
        raise NoThread(f"no thread can be started: {error}; {_found()}; {need}") from None
    return thread


def in_words(error: OSError) -> str:
    """Return why a process cannot be started; with the limit, if it is one of processes and threads."""
    return f"{error.strerror or error}{f'; {_found()}' if isinstance(error, BlockingIOError) else ''}"


def _found() -> str:
    """Return how many threads this process has and what limits them, as far as the system says."""
    return f"this process has {_threads()} threads{''.join(f', {limit}' for limit in _limits())}"


def _threads() -> int:
    with suppress(OSError):
        return len([*Path("/proc/self/task").iterdir()])  # those of other languages, too
    return threading.active_count()


def _limits() -> Iterator[str]:
    with suppress(ImportError, OSError, ValueError, AttributeError):
        import resource  # noqa: PLC0415 - not on every system

        limit, _ = resource.getrlimit(resource.RLIMIT_NPROC)
        if limit != resource.RLIM_INFINITY:
            yield f"its user may have {limit} threads and processes (ulimit -u)"
    for group in _groups():
        with suppress(OSError):
            if (limit_of_group := (group / "pids.max").read_text().strip()) != "max":
                count = (group / "pids.current").read_text().strip()
                yield f"its control group has {count} of {limit_of_group} (pids.max)"


def _groups() -> Iterator[Path]:
    """Yield the control groups that may limit this process: its own, and what a container sees as the root."""
    with suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers in ("", "pids"):
                root = _GROUPS / controllers
                yield from dict.fromkeys((root / path.lstrip("/"), root))
