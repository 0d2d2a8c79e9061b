"""Dask's own `Adaptive` on a fleet: when it wants fewer workers, the fleet retires them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from distributed.deploy.adaptive import Adaptive

if TYPE_CHECKING:
    from collections.abc import Collection

__all__ = ["FleetAdaptive", "on_a_fleet"]


class FleetAdaptive(Adaptive):
    """`Adaptive` that leaves the retirement to the cluster.

    Dask's own would have the scheduler close the workers first. Their executors would end by themselves, and be
    replaced before the cluster is told that fewer are wanted.
    """

    async def scale_down(self, workers: Collection[Any]) -> None:
        """Retire workers, by name."""
        await self.cluster._up.targets.scale_down(workers)  # noqa: SLF001 - the coroutine behind `scale_down`

    async def scale_up(self, n: int) -> None:
        """Have so many workers in all."""
        await self.cluster._up.targets.scale_all(n)  # noqa: SLF001 - as above


def on_a_fleet(given: type[Adaptive]) -> type[Adaptive]:
    """Return the class that adapts: the user's own, with these two steps if it has none of its own."""
    if issubclass(given, FleetAdaptive) or "scale_down" in _own(given) or "scale_up" in _own(given):
        return given
    return FleetAdaptive if given is Adaptive else type(given.__name__, (given, FleetAdaptive), {})


def _own(given: type[Adaptive]) -> set[str]:
    return {name for each in given.__mro__ if each not in Adaptive.__mro__ for name in vars(each)}
