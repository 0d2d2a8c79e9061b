"""`Stage`: one interface to the kit in both its modes and to the loop of production."""

from __future__ import annotations

from contextlib import ExitStack
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Self

from actors.runtime import Actor, ActorSystem, Address, Context, Supervisor, SupervisorMessage, Terminated
from actors.testing import Kit

if TYPE_CHECKING:
    from collections.abc import Callable

SAFETY = 30.0
"""Seconds until a hanging test fails."""


class Recorder(Actor):
    """Records its messages and answers `"all"` with them."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.received: list[object] = []

    def receive(self, message: object) -> object:
        if message == "all":
            return list(self.received)
        self.received.append(message)
        return None


class Stage:
    def __init__(self, mode: str) -> None:
        self._kit = None if mode == "loop" else Kit(threads=mode == "serial threads")
        self.system = self._kit.system if self._kit is not None else ActorSystem()
        self.owner = self.spawn(Recorder, name="owner")
        self._left = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._left.close()
        self.owner.stop()
        if self._kit is not None:
            self._kit.close()
        self.system.close()

    def spawn(self, factory: Callable[[Context], Actor], *, name: str, owned: bool = False) -> Address:
        address = self.system.spawn(factory, name=name, owner=self.owner if owned else None)
        if name != "owner":
            self._left.callback(address.stop)
        self.settle()
        return address

    def settle(self) -> None:
        if self._kit is not None:
            self._kit.settle()

    def ask(self, address: Address, message: object) -> Any:
        if self._kit is not None:
            return self._kit.ask(address, message)
        return address.ask(message, timedelta(seconds=SAFETY))

    def ended(self, address: Address) -> list[Terminated]:
        """Wait until the actor has ended, and return what its owner received about it."""
        self.settle()
        assert address.handle is not None
        address.handle.ref.actor_stopped.wait(SAFETY)
        assert not address.is_alive(), f"{address} lives"
        return [m for m in self.ask(self.owner, "all") if isinstance(m, Terminated) and m.name == address.name]


class Boss(Actor):
    """Owns a supervisor and calls its messages with it."""

    def __init__(self, context: Context, journal: list[str], hang_timeout: timedelta) -> None:
        super().__init__(context)
        self.supervisor = Supervisor(self, self._escalated, hang_timeout)
        self._journal = journal
        self.escalated: list[tuple[str, BaseException]] = []

    def receive(self, message: Any) -> object:
        if isinstance(message, SupervisorMessage):
            self.supervisor.handle(message)
            return None
        return message(self.supervisor)

    def _escalated(self, name: str, cause: BaseException) -> None:
        self._journal.append(f"{name} given up")
        self.escalated.append((name, cause))
