"""Both doors in virtual time, with one behaviour: a scenario is a coroutine that either door carries out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from actors.fleet.async_fleet import AsyncFleet
from actors.fleet.fleet import Fleet
from actors.testing import FakeCluster, Kit

if TYPE_CHECKING:
    from collections.abc import Coroutine

KINDS = ("threads", "asyncio")


class Awaited:
    """A `Fleet` whose methods can be awaited: they return at once, when the virtual time has passed."""

    WAITING = frozenset(
        {"status", "scale", "wait_for", "kill", "retire", "drained", "hold", "decommission", "register"}
        | {"is_excluded", "start", "stop", "abandon", "get", "autoscale"}
        | {"acquire_lease", "release", "renew", "warm"}
    )

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    async def __aenter__(self) -> Any:
        entered = self.inner.__enter__()
        return self if entered is self.inner else entered

    async def __aexit__(self, *error: object) -> None:
        self.inner.__exit__(*error)

    def __aiter__(self) -> Awaited:
        return self

    async def __anext__(self) -> Any:
        try:
            return next(self.inner)
        except StopIteration:
            raise StopAsyncIteration from None

    def events(self) -> Awaited:
        return Awaited(self.inner.events())

    def acquire(self, *args: Any, **more: Any) -> Awaited:
        return Awaited(self.inner.acquire(*args, **more))

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.inner, name)
        if name not in self.WAITING:
            return found

        async def call(*args: Any, **more: Any) -> Any:
            return found(*args, **more)

        return call


class Stage:
    """A kit, a fake cluster in it, and a way to run a program with a fleet of either kind."""

    def __init__(self, kind: str, **cluster: Any) -> None:
        self.kind = kind
        self.kit = Kit()
        self.cluster = FakeCluster(self.kit, **cluster)

    def fleet(self, *args: Any, **values: Any) -> Any:
        """A fleet to enter with `async with`."""
        if not args:
            values.setdefault("image", "worker:1")
        values = {"pod_api": self.cluster.api, "system": self.kit.system, **values}
        return Awaited(Fleet(*args, **values)) if self.kind == "threads" else AsyncFleet(*args, **values)

    def run(self, program: Coroutine[Any, Any, Any]) -> Any:
        """Run a program to its end."""
        if self.kind == "asyncio":
            return self.kit.run(program)
        try:
            program.send(None)
        except StopIteration as end:
            return end.value
        raise AssertionError("a program on Fleet awaited something else")
