"""What the interpreter is made to do, seen by its audit hook: files that are opened, processes that are started."""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Reach", "reaching"]

STARTED: Final = frozenset({"subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.spawn", "pty.spawn"})


@dataclass
class Reach:
    """Of what ran meanwhile, in this thread or any other."""

    opened: set[str] = field(default_factory=set)
    started: list[str] = field(default_factory=list)

    def saw(self, event: str, arguments: tuple[Any, ...]) -> None:
        """One event of the interpreter."""
        if event == "open" and isinstance(arguments[0], str | bytes | os.PathLike):
            self.opened.add(os.path.realpath(os.fsdecode(arguments[0])))
        elif event in STARTED:
            self.started.append(f"{event} {arguments[:2]}")


_watching: list[Reach] = []
_is_hooked = False


@contextmanager
def reaching() -> Iterator[Reach]:
    """Watch for as long as this lasts. The hook stays, as none can be taken away, and sees nothing after that."""
    global _is_hooked  # noqa: PLW0603 - one hook for the process
    if not _is_hooked:
        sys.addaudithook(_hook)
        _is_hooked = True
    reach = Reach()
    _watching.append(reach)
    try:
        yield reach
    finally:
        _watching.remove(reach)


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    for reach in tuple(_watching):
        reach.saw(event, arguments)
