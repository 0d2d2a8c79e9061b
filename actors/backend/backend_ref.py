"""`BackendRef`: what `Backend.start` returns, the address of a backend for its driver.

It takes only what a driver sends: a message of the internal protocol would be obeyed, so it is refused here, in the
driver that sends it. The backend's children use the backend's own address.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar, final

from actors.backend.driver_messages import FROM_DRIVER
from actors.errors import Refused
from actors.runtime import Address

if TYPE_CHECKING:
    from datetime import timedelta

    from actors.messages import FromDriver, Question
    from actors.runtime import DeadLetters, Future

__all__ = ["BackendRef"]

A = TypeVar("A")


@final
class BackendRef(Address):
    """The address of a backend, for its driver. It takes the messages of `actors.messages.FromDriver` and no others."""

    __slots__ = ()

    def __init__(self, backend: Address, dead_letters: DeadLetters) -> None:
        super().__init__(backend.name, dead_letters)
        self.incarnation, self.handle = backend.incarnation, backend.handle

    def tell(self, message: FromDriver) -> None:  # type: ignore[override]  # narrower on purpose: no actor is sent one
        """Send a message without waiting. A message to a backend that has ended is dropped.

        Raises:
            Refused: it is no message that a driver sends.
        """
        super().tell(_admitted(message))

    def ask(self, message: Question[A], timeout: timedelta | float) -> A:  # type: ignore[override]  # as `tell`
        """Send a message and wait for the answer. Never call this inside an actor: it handles nothing meanwhile.

        Args:
            message: the question.
            timeout: how long to wait; a number means seconds, and infinity for ever.

        Raises:
            Refused: it is no message that a driver sends, or a value in it is not allowed.
            ActorDeadError: the backend has ended, or ended before it answered.
            Timeout: no answer in time. The backend may still handle the message.
        """
        answer: A = super().ask(message, timeout)
        return answer

    def request(self, message: Question[A]) -> Future[A]:  # type: ignore[override]  # as `tell`
        """Send a message and return the future of the answer.

        Raises:
            Refused: it is no message that a driver sends.
        """
        return super().request(_admitted(message))


def _admitted(message: object) -> object:
    if type(message) not in FROM_DRIVER:
        name = f"class {message.__name__}" if isinstance(message, type) else type(message).__name__
        raise Refused(f"{name} is no message that a driver sends; see actors.messages.FromDriver")
    return message
