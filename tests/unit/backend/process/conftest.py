"""A fleet's process whose children a test starts itself, in place of a Backend and its supervisor."""

from __future__ import annotations

from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Self, TypeVar

import pytest

from actors import Settings
from actors.backend import children
from actors.backend.process.fleet_process import process_for
from actors.metrics.counts import FleetCounts
from actors.runtime import Actor, ActorSystem, Address, Context, Terminated
from tests.unit.kube.conftest import client, nothing_left, server
from tests.unit.kube.scripted import SAFETY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from actors.kube.http.pod_api import HttpPodApi
    from tests.unit.kube.conftest import Client

__all__ = ["client", "nothing_left", "server"]

M = TypeVar("M")


class _Listener(Actor):
    """In place of the Backend: an address crosses only if it is an actor's."""

    def __init__(self, context: Context, told: SimpleQueue[Any]) -> None:
        super().__init__(context)
        self._told = told

    def receive(self, message: object) -> None:
        self._told.put(message)


class Fleet:
    """Children by their names, what they tell the Backend, and how they end."""

    def __init__(self, api: HttpPodApi, **settings: Any) -> None:
        self.api = api
        self.system = ActorSystem()
        self.told: SimpleQueue[Any] = SimpleQueue()
        self.ends: SimpleQueue[Terminated] = SimpleQueue()
        self.settings = Settings(app_id="app", namespace="ns", executor={"image": "worker"}, **settings)
        self.counts = FleetCounts("app", self.settings.profile_names)
        self.backend = self.system.spawn(lambda context: _Listener(context, self.told), name="backend", owner=None)
        made = process_for(self.settings, api, backend=self.backend, counts=self.counts, timers=self.system.timers)
        assert made is not None
        self.process = made
        self.addresses = {name: self.system.address(name) for name in children.MOVABLE}
        here = children.makers(
            self.settings, api, owners=(), backend=self.backend, children=self.addresses, counts=self.counts
        )
        self.makers = self.process.place(here, ())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.close()
        for address in (*self.addresses.values(), self.backend):
            address.stop()
        self.system.close()
        self.api.close()

    def spawn(self, *names: str) -> None:
        owner = Address.calling(self.ends.put, self.system.letters)
        for name in names:
            self.system.spawn(self.makers[name], name=name, owner=owner, address=self.addresses[name])

    def tell(self, name: str, *messages: object) -> None:
        for message in messages:
            self.addresses[name].tell(message)

    def hears(self, kind: type[M]) -> M:
        """Wait for a message of this kind."""
        while True:
            message = self.told.get(timeout=SAFETY)
            if isinstance(message, kind):
                return message

    def end(self) -> Terminated:
        """Wait for the end of a child."""
        return self.ends.get(timeout=SAFETY)

    @property
    def pid(self) -> int:
        assert self.process.pid is not None
        return self.process.pid


@pytest.fixture
def begin(client: Client) -> Iterator[Callable[..., Fleet]]:
    """Makes a fleet; `user` is the kubeconfig's user."""
    made: list[Fleet] = []

    def make(user: dict[str, Any] | None = None, **settings: Any) -> Fleet:
        made.append(Fleet(client.connect(**(user or {})), **settings))
        return made[-1]

    yield make
    for fleet in made:
        with fleet:
            pass


@pytest.fixture
def fleet(begin: Callable[..., Fleet]) -> Fleet:
    return begin()
