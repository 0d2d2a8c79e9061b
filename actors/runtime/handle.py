"""`Handle`: one incarnation of an actor as other threads see it, and the only place where it ends."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, final

from pykka import ActorRegistry

from actors.errors import ExecutorPodsError
from actors.text import get_logger, logging_survived

if TYPE_CHECKING:
    from collections.abc import Callable

    from pykka import ActorRef

    from actors.runtime.mailbox import Mailbox

__all__ = ["Handle", "Hung", "Lost", "Sender", "StoppedByHost", "SupervisorMessage", "Terminated", "running"]

logger = get_logger(__name__)


class StoppedByHost(ExecutorPodsError):  # noqa: N818 - reads as what happened
    """The host stopped the actor through Pykka: `ref.stop()` or `ActorRegistry.stop_all()`. It is not restarted."""


class Hung(ExecutorPodsError):  # noqa: N818 - reads as what happened
    """The actor was busy with one message for too long. It is fenced and its thread abandoned."""


class Lost(ExecutorPodsError):  # noqa: N818 - reads as what happened
    """What the actor stands for is lost, by no fault of its own, such as its process. It is restarted for ever."""


class SupervisorMessage:
    """Base class of the messages that an owner passes to `Supervisor.handle`."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Terminated(SupervisorMessage):
    """An actor ended. Its owner receives this exactly once per incarnation."""

    name: str
    incarnation: int
    cause: BaseException | None
    """None after an orderly stop."""


class Sender:
    """Who sends messages: an actor, or a thread that runs none."""

    abandoned = False
    """Its messages do not count."""


@final
class Handle(Sender):
    """What other threads use of an actor. Holds no strong reference to the actor, so a dead one's state is freed."""

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
        """The thread that runs the actor, or ran it last; the dispatcher sets it."""
        self.cause: BaseException | None = None
        """Why the actor ended; None while it lives and after an orderly stop."""
        self.abandoned = False
        """The actor was ended while its thread hung. Messages from that thread are dropped from then on."""
        self._tell_owner = tell_owner
        self._at_end: list[Callable[[], None]] = []
        self._claim = threading.Lock()

    def claim(self) -> bool:
        """Return True for the first caller: the actor's thread, which then runs it, or who gives up starting it.

        Ctrl-C in `Thread.start` does not say whether the thread runs.
        """
        return self._claim.acquire(blocking=False)  # never released

    def at_end(self, callback: Callable[[], None]) -> None:
        """Call `callback` when this incarnation ends, before the owner is notified.

        The thread that ends the actor calls it, so it must not block. Register it before the actor runs.
        """
        self._at_end.append(callback)

    def end(self, cause: BaseException | None, *, abandon: bool = False) -> bool:
        """Close the mailbox, unregister from Pykka, notify the owner. Return False if the actor had ended before.

        The actor's own thread calls this, or with `abandon` another thread, because the actor's own may never get here.
        """
        if not self.mailbox.close(abandon=abandon):
            return False
        self.cause, self.abandoned = cause, abandon
        callbacks, self._at_end = self._at_end, []
        for callback in callbacks:
            try:
                callback()
            except BaseException:  # nobody but the owner can go on from here
                logger.exception("callback at the end of an actor failed: actor=%s", self.name)
        with logging_survived:  # it logs when it is done
            ActorRegistry.unregister(self.ref)
        if self._tell_owner is not None:
            self._tell_owner(Terminated(self.name, self.incarnation, cause))
        self.ref.actor_stopped.set()
        return True

    def discard(self) -> None:
        """End an actor that never ran, without notifying the owner: the caller gets an exception instead."""
        self._tell_owner = None
        self.end(None)


class _Running(threading.local):
    """Thread-local state."""

    sender = Sender()
    """The actor that this thread runs; a dispatcher sets it before it runs one."""


running: Final = _Running()
"""What the calling thread runs."""
