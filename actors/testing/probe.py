"""`Probe`: an actor that records its messages, in the place of an actor that a test is not about."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar, overload

from actors.runtime import Actor

if TYPE_CHECKING:
    from collections.abc import Callable

    from actors.runtime import Context

__all__ = ["Probe"]

M = TypeVar("M")


class Probe(Actor):
    """Pass its `address` to the actor under test. Call its methods from the test's thread, after settling."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.received: list[object] = []
        """The messages that the test has not taken yet, oldest first."""
        self._reply: Callable[[object], object] | None = None

    def receive(self, message: object) -> object:
        """Record the message, and answer as set by `reply_with`."""
        self.received.append(message)
        return self._reply(message) if self._reply is not None else None

    def reply_with(self, reply: Callable[[object], object]) -> None:
        """Answer every message with `reply(message)`. If `reply` raises, the probe dies."""
        self._reply = reply

    def take(self, kind: type[M]) -> M:
        """Remove and return the oldest message of this type. There must be one."""
        for index, message in enumerate(self.received):
            if isinstance(message, kind):
                del self.received[index]
                return message
        raise AssertionError(f"{self.name} expected {kind.__name__}, it has {self._kinds()}")

    @overload
    def take_all(self) -> list[object]: ...
    @overload
    def take_all(self, kind: type[M]) -> list[M]: ...
    def take_all(self, kind: type[M] | None = None) -> list[M] | list[object]:
        """Remove and return all messages (of this type), oldest first."""
        if kind is None:
            everything, self.received = self.received, []
            return everything
        taken = [message for message in self.received if isinstance(message, kind)]
        self.received = [message for message in self.received if not isinstance(message, kind)]
        return taken

    def expect_nothing(self) -> None:
        """Assert that there is no message."""
        if self.received:
            raise AssertionError(f"{self.name} expected nothing, it has {self._kinds()}")

    def _kinds(self) -> str:
        return ", ".join(repr(message) for message in self.received) or "nothing"
