"""`RemoteActor`: stands in the Backend's process for a child that runs in the fleet's.

It passes on what it is sent, and ends when the child has ended, for the same cause: so the Backend's supervisor keeps
both. When the process is lost, so is every child in it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, final

from actors.runtime import Actor

if TYPE_CHECKING:
    from actors.runtime import Address, Context

__all__ = ["ChildEnded", "RemoteActor"]


@dataclass(frozen=True, slots=True)
class ChildEnded:
    """The child has ended; `cause` is None after an orderly stop."""

    cause: BaseException | None


class Process(Protocol):
    """The part of the fleet's process that an actor uses."""

    def spawn(self, name: str, incarnation: int, reply_to: Address) -> None:
        """Start a child; `reply_to` gets `ChildEnded` once."""

    def tell(self, name: str, incarnation: int, message: object) -> None:
        """Send a message to a child."""

    def stop(self, name: str, incarnation: int) -> None:
        """Stop a child after all messages that came before."""


@final
class RemoteActor(Actor):
    """One incarnation of a child."""

    def __init__(self, context: Context, process: Process) -> None:
        super().__init__(context)
        self._process = process
        self._incarnation = context.incarnation

    def started(self) -> None:
        """Start the child."""
        self._process.spawn(self.name, self._incarnation, self.myself)

    def receive(self, message: object) -> None:
        """Pass a message on."""
        if isinstance(message, ChildEnded):
            self.end(message.cause)
        else:
            self._process.tell(self.name, self._incarnation, message)

    def stops_at_once(self) -> bool:
        """Stop the child first."""
        self._process.stop(self.name, self._incarnation)
        return False
