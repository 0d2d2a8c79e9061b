"""One life (incarnation) of an actor as seen from outside its thread, and the one place where it can end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, final

from pykka import ActorRegistry

from actors.errors import ExecutorPodsError

if TYPE_CHECKING:
    import threading

    from pykka import ActorRef

    from actors.runtime.address import Address
    from actors.runtime.mailbox import Mailbox

__all__ = ["Hung", "Life", "StoppedByHost", "SupervisorMessage", "Terminated"]


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
class Life:
    """What others need to know of a running actor. Holds no strong reference to it: a dead actor's state is freed."""

    def __init__(
        self, name: str, incarnation: int, mailbox: Mailbox, ref: ActorRef[Any], owner: Address | None
    ) -> None:
        self.name = name
        self.incarnation = incarnation
        self.mailbox = mailbox
        self.ref = ref
        self.thread: threading.Thread | None = None
        """Set by the dispatcher that runs the actor in one."""
        self._owner = owner

    def end(self, cause: BaseException | None, *, abandon: bool = False) -> bool:
        """Close, unregister from Pykka, tell the owner. False, and nothing done, if it had ended before.

        The actor calls this at the end of its own thread; with `abandon`, somebody else does: it may never get there.
        """
        if not self._close(abandon=abandon):
            return False
        if self._owner is not None:
            self._owner.tell(Terminated(self.name, self.incarnation, cause))
        return True

    def discard(self) -> None:
        """End what never began to run; the caller is told by an exception instead of a message."""
        self._close(abandon=False)

    def _close(self, *, abandon: bool) -> bool:
        if not self.mailbox.close(abandon=abandon):
            return False
        ActorRegistry.unregister(self.ref)
        self.ref.actor_stopped.set()
        return True
