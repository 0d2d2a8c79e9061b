"""`Targets`: how many workers each group should have, as the user or Dask's `Adaptive` says.

The fleet does the rest: it creates what lacks, and retires what is in excess, in the order of what an end costs here.
`FleetAdaptive` is Dask's own `Adaptive`; when it wants fewer workers, the fleet retires them.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from dask.utils import parse_bytes
from distributed.deploy.adaptive import Adaptive

from actors.dask.draining import costs
from actors.messages import ExecutorState
from actors.pods.pod import DEFAULT_PROFILE

if TYPE_CHECKING:
    from collections.abc import Collection, Coroutine, Iterable, Mapping, Sequence

    from distributed import Scheduler

    from actors.dask.link import Link
    from actors.fleet.async_fleet import AsyncFleet
    from actors.messages import Executor

__all__ = ["FleetAdaptive", "Targets", "at_least", "at_most", "how_many", "on_a_fleet"]

UNCONNECTED: Final = (0, -1, 0)
"""What the end of an executor costs whose worker has not connected: less than that of any worker."""


class Targets:
    """The numbers of workers of one cluster.

    Args:
        wanted: by worker group: how many workers to start with.
        scheduler: knows what the end of a worker costs.
        fleet: is told the numbers.
        link: knows which workers are connected.
    """

    def __init__(self, wanted: Mapping[str, int], *, scheduler: Scheduler, fleet: AsyncFleet, link: Link) -> None:
        self.wanted = dict(wanted)
        self._scheduler = scheduler
        self._fleet = fleet
        self._link = link

    def total(self) -> int:
        """Return how many workers there should be."""
        return sum(self.wanted.values())

    def scale(self, n: int, group: str = DEFAULT_PROFILE) -> Coroutine[Any, Any, None]:
        """Set the number of one group; the coroutine tells the fleet.

        Raises:
            ValueError: `n` is no number of workers.
        """
        if isinstance(n, bool) or not isinstance(n, int) or n < 0:
            raise ValueError(f"n = {n!r}: must be a whole number of workers")
        self.wanted[group] = n
        return self._tell_fleet()

    async def scale_all(self, n: int) -> None:
        """Set the number of all workers: those of other groups than the default one stay."""
        await self.scale(max(0, n - self.total() + self.wanted[DEFAULT_PROFILE]))

    def scale_down(self, workers: Iterable[Any]) -> Coroutine[Any, Any, None]:
        """Want these workers no more, by name or address; the coroutine has the fleet retire them.

        Names of `plan` without a worker count, too.
        """
        groups = {name: group for group, names in self._planned().items() for name in names}
        names = {_name(self._scheduler, each) for each in workers} & groups.keys()
        for group, number in Counter(groups[name] for name in names).items():
            self.wanted[group] -= number
        return self._retire([name for name in names if isinstance(name, int)])

    async def _retire(self, executor_ids: list[int]) -> None:
        if executor_ids:
            await self._fleet.retire(executor_ids, replace=False)
        await self._tell_fleet()

    async def _tell_fleet(self) -> None:
        cost = costs(self._scheduler)
        await self._fleet.scale(self.wanted, victims=lambda executor: cost.get(executor.id, UNCONNECTED))

    def plan(self) -> set[Any]:
        """Return the names of the workers that should exist, as many as are wanted; `"gpu/0"` for one without a pod."""
        return {name for names in self._planned().values() for name in names}

    def _planned(self) -> Mapping[str, Sequence[Any]]:
        connected = self._link.connected()
        planned = {}
        for group, wanted in self.wanted.items():
            staying = (each.id for each in self._fleet.executors.values() if _stays(each, group))
            names: list[Any] = sorted(staying, key=lambda name: name not in connected)
            names += [f"{group}/{number}" for number in range(wanted - len(names))]
            planned[group] = names[:wanted]
        return planned


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


def how_many(n: int | None, memory: str | int | None, cores: int | None, args: Sequence[str]) -> int:
    """Return how many workers are asked for: `n`, or as many as have so much memory or so many threads together.

    Args:
        n: so many.
        memory: of all together.
        cores: threads of all together.
        args: of one worker of the group.

    Raises:
        ValueError: no number is given, or the group's workers have no limit of memory.
    """
    number = at_least(n, memory, cores, args)
    if number is None:
        raise ValueError("scale needs a number of workers, memory= or cores=")
    return number


def at_least(n: int | None, memory: str | int | None, cores: int | None, args: Sequence[str]) -> int | None:
    """Return the fewest workers that have all of this; None if nothing is given. Arguments are as of `how_many`."""
    numbers = [] if n is None else [n]
    return max([*numbers, *map(math.ceil, _amounts(memory, cores, args))], default=None)


def at_most(n: float | None, memory: str | int | None, cores: int | None, args: Sequence[str]) -> float | None:
    """Return the most workers that have no more than any of this; None if nothing is given."""
    numbers = [] if n is None else [n]
    return min([*numbers, *map(math.floor, _amounts(memory, cores, args))], default=None)


def _amounts(memory: str | int | None, cores: int | None, args: Sequence[str]) -> list[float]:
    """Return how many workers have so much memory, and how many have so many threads, if that is given."""
    amounts: list[float] = []
    if memory is not None:
        limit = _option(args, "--memory-limit")
        size = 0 if limit == "auto" else parse_bytes(limit)
        if size <= 1:  # a part of the machine, or no limit
            raise ValueError("workers for an amount of memory need memory_limit as an amount, or memory in resources")
        amounts.append(parse_bytes(memory) / size)
    if cores is not None:
        amounts.append(cores / int(_option(args, "--nthreads")))
    return amounts


def _option(args: Sequence[str], name: str) -> str:
    return args[args.index(name) + 1]


def _stays(executor: Executor, group: str) -> bool:
    return executor.profile == group and executor.state is not ExecutorState.TERMINATING


def _name(scheduler: Scheduler, worker: Any) -> Any:
    """Return a worker's name: an executor's id may come as text, and a worker by its address."""
    if worker in scheduler.workers:
        return scheduler.workers[worker].name
    return int(worker) if isinstance(worker, str) and worker.isdecimal() else worker


def _own(given: type[Adaptive]) -> set[str]:
    return {name for each in given.__mro__ if each not in Adaptive.__mro__ for name in vars(each)}
