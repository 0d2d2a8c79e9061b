"""One life (incarnation) of an actor as seen from outside its thread, and the one place where it can end."""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, final

from pykka import ActorRegistry

from actors.errors import ExecutorPodsError

if TYPE_CHECKING:
    from collections.abc import Callable

    from pykka import ActorRef

    from actors.runtime.mailbox import Mailbox

__all__ = ["Handle", "Hung", "StoppedByHost", "SupervisorMessage", "Terminated", "thread_counts"]

logger = logging.getLogger(__name__)


class StoppedByHost(ExecutorPodsError):  # noqa: N818 - reads as what happened
    """The host stopped the actor through Pykka: `ref.stop()` or `ActorRegistry.stop_all()`. It wants no restart."""


class Hung(ExecutorPodsError):  # noqa: N818 - reads as what happened
    """The actor was busy with one message for too long and was fenced; its thread is abandoned."""


class SupervisorMessage:
    """Base of what an actor that owns a `Supervisor` is told and hands on to `Supervisor.handle`."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Terminated(SupervisorMessage):
    """An actor ended; told to its owner exactly once per incarnation."""

    name: str
    incarnation: int
    cause: BaseException | None
    """None after an orderly stop."""


@final
class Handle:
    """What others need to know of a running actor. Holds no strong reference to it: a dead actor's state is freed."""

    def __init__(
        self,
        name: str,
        incarnation: int,
        mailbox: Mailbox,
        ref: ActorRef[Any],
        tell_owner: Callable[[Terminated], None] | None,
    ) -> None:
        self.name = name
        self.incarnation = incarnation
        self.mailbox = mailbox
        self.ref = ref
        self.thread: threading.Thread | None = None
        """Set by the dispatcher that runs the actor in one."""
        self.abandoned = False
        """It was ended while its thread hung. Should that wake up, nobody hears of what it does."""
        self._tell_owner = tell_owner
        self._at_end: list[Callable[[], None]] = []

    def bind_thread(self) -> None:
        """Said by a thread that runs this actor and nothing else: who tells something there is known by it."""
        _thread.handle = self

    def at_end(self, callback: Callable[[], None]) -> None:
        """Have `callback` called when this life ends, by whoever ends it, in that one's thread: it must not block.

        It comes before the owner is told. To be asked for before the actor runs.
        """
        self._at_end.append(callback)

    def end(self, cause: BaseException | None, *, abandon: bool = False) -> bool:
        """Close, unregister from Pykka, tell the owner. False, and nothing done, if it had ended before.

        The actor calls this at the end of its own thread; with `abandon`, somebody else does: it may never get there.
        """
        if not self.mailbox.close(abandon=abandon):
            return False
        self.abandoned = abandon
        callbacks, self._at_end = self._at_end, []
        for callback in callbacks:
            try:
                callback()
            except Exception:
                logger.exception("what is done at the end of a life failed: actor=%s", self.name)
        ActorRegistry.unregister(self.ref)
        self.ref.actor_stopped.set()
        if self._tell_owner is not None:
            self._tell_owner(Terminated(self.name, self.incarnation, cause))
        return True

    def discard(self) -> None:
        """End what never began to run; the caller is told by an exception instead of a message."""
        self._tell_owner = None
        self.end(None)


class _Thread(threading.local):
    """Of each thread its own."""

    handle: Handle | None = None
    """Of the actor that it was started for, if any."""


_thread: Final = _Thread()


def thread_counts() -> bool:
    """Whether what this very thread says counts: not if it was an actor's that was abandoned."""
    handle = _thread.handle
    return handle is None or not handle.abandoned
