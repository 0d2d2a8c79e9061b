"""Any part of a Backend, made to crash at any of its messages, and what must hold all the same.

A crash is planted into the real class: its hook raises at the n-th call, counted over all incarnations, before it has
done anything (the message is lost) or when it is done (what it knew is lost, what it told others is not). The world
around it is the same in every case: a fleet that grows, shrinks, loses executors in every way and its API server twice.
"""

from __future__ import annotations

import logging
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import cycle, islice, takewhile
from typing import TYPE_CHECKING, Any, Final

from actors.allocation.allocator import Allocator
from actors.backend.backend import Backend
from actors.backend.children import MAX_CRASHES
from actors.backend.startup import Startup
from actors.lease.lease_keeper import LeaseKeeper
from actors.lifecycle.lifecycle_manager import LifecycleManager
from actors.messages import BackendFailed, BackendStopped, StopBackend
from actors.messages.internal.names import ALLOCATOR, LEASE, LIFECYCLE, POLL, POOL, STORE, WATCH
from actors.requests.request_pool import RequestPool
from actors.sources.poll_source import PollSource
from actors.sources.watch_source import WatchSource
from actors.store.snapshot_store import SnapshotStore
from tests.scenarios.world import Onlooker, World

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from collections.abc import Set as AbstractSet

__all__ = [
    "BACKEND",
    "PARTS",
    "SOURCES",
    "Crash",
    "Plan",
    "backend_falls",
    "backend_falls_while_stopping",
    "part_is_given_up",
    "shaken",
    "survived",
]

BACKEND: Final = "backend"

PARTS: Final[Mapping[str, type[Any]]] = {
    POOL: RequestPool,
    STORE: SnapshotStore,
    LIFECYCLE: LifecycleManager,
    ALLOCATOR: Allocator,
    POLL: PollSource,
    WATCH: WatchSource,
    LEASE: LeaseKeeper,
}
SOURCES: Final = (POLL, WATCH, LEASE)
"""Nothing depends on these: each comes back alone, however often it crashes."""

FROM_WITHIN: Final[Mapping[str, tuple[type, str]]] = {
    "started": (Startup, "_start_children"),
    "receive": (Backend, "_receive"),
}
"""Where a Backend is when it starts, and when it handles a message."""

SETTINGS: Final[Mapping[str, Any]] = {
    "executor": {
        "instances": 3,
        "api_polling_interval": "1s",
        "missing_pod_detect_delta": "2s",
        "kill_grace_period": "1s",
        "min_run_time": "1s",
        "max_failures": 1000,
        "removed_executors_ttl": "30s",
    },
    "allocation": {"batch_size": 2, "idle_timeout": "2s", "creation_timeout": "5s"},
    "backend": {"lease": True, "lease_duration": "4s", "request_timeout": "1s"},
}
"""Much happens in little time."""

LAST_TARGET: Final = 11
"""More than live at that time, whatever happened."""

STEP: Final = 0.25
"""Seconds between two looks."""

LONGEST: Final = 8
"""Rounds of trouble, of 9 s each: fifty messages of any part take four."""

OUTAGE: Final = 3.0
"""Seconds."""

CONVERGED_WITHIN: Final = 2 * 1.0 + 3 * 1.0 + 3.2
"""Seconds: two polling intervals; three batches of one second; and the longest backoff that an outage and two crashes
leave running, 1.6 s and as much jitter."""

STOPPED_WITHIN: Final = 10.0
"""Seconds: the grace period, a part's backoff, and looks at what is left that come ever less often; a third of
`backend.shutdown_timeout`."""

TERM: Final = 10.0
"""Seconds that a driver has to wait, at most, until the lease of one that is dead has run out."""


class Crash(Exception):  # noqa: N818 - reads as what happened
    """What a part is made to die of."""


@dataclass
class Plan:
    """Which part crashes, where, and at which of its calls, the first being 1."""

    part: str
    at: AbstractSet[int]
    hook: str = "receive"
    late: bool = False
    """When the call is done, and not before it begins."""
    while_stopping: bool = False
    """Calls count from the driver's wish to stop on."""
    counts: bool = field(init=False)
    calls: int = 0
    crashes: int = 0
    witness: Callable[[], None] = field(default=lambda: None, repr=False)
    """Called at each crash."""

    def __post_init__(self) -> None:
        self.counts = not self.while_stopping

    def __str__(self) -> str:
        call = f"{self.hook} {sorted(self.at)}{' of the stop' if self.while_stopping else ''}"
        return f"{self.part} {'after' if self.late else 'before'} {call}"

    @contextmanager
    def planted(self) -> Iterator[None]:
        """For as long as this lasts."""
        kind, name = PARTS.get(self.part, Backend), self.hook
        if kind is Backend:
            kind, name = FROM_WITHIN.get(name, (kind, name))
        right, is_its_own = getattr(kind, name), name in vars(kind)
        setattr(kind, name, self._around(right))
        try:
            yield
        finally:
            if is_its_own:
                setattr(kind, name, right)
            else:
                delattr(kind, name)

    def _around(self, right: Callable[..., object]) -> Callable[..., object]:
        def broken(actor: object, *args: object) -> object:
            self.calls += self.counts
            is_due = self.counts and self.calls in self.at
            if is_due and not self.late:
                self._crash()
            answer = right(actor, *args)
            if is_due:
                self._crash()
            return answer

        return broken

    def _crash(self) -> None:
        self.crashes += 1
        self.witness()
        raise Crash(str(self))


@dataclass
class _Ear(logging.Handler):
    """Hears every error that is not a planted crash."""

    errors: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(logging.ERROR)

    __hash__ = logging.Handler.__hash__

    def emit(self, record: logging.LogRecord) -> None:
        cause = record.exc_info[1] if record.exc_info else None
        if not isinstance(cause, Crash):
            self.errors.append(f"an error was logged: {record.getMessage()} {cause!r}")


class Shaken(World):
    """The world, looked at by an onlooker that moves on to each new store."""

    def __init__(self, seed: int | None, *plans: Plan) -> None:
        self._store_life = 0
        self._ear = _Ear()
        self._planted = ExitStack()
        for plan in plans:
            self._planted.enter_context(plan.planted())
        logging.getLogger("actors").addHandler(self._ear)
        self._planted.callback(logging.getLogger("actors").removeHandler, self._ear)
        self.plans = plans
        for plan in plans:
            plan.witness = self._note
        settings: dict[str, Any] = {group: dict(values) for group, values in SETTINGS.items()}
        super().__init__(seed, **settings)

    def close(self) -> None:
        """Nothing is planted any more, and nobody lives."""
        self.kit.close()
        self._planted.close()

    def _note(self) -> None:
        """At a crash: what lives, and what was asked of the cluster."""
        self._lived = self._alive()
        self._asked_for = frozenset(self.invariants._asked_for)
        self._asked_to_go = frozenset(self.invariants._asked_to_go)

    def _alive(self) -> dict[str, str]:
        """Names by UID."""
        return {uid: live.name for uid, live in self.invariants._alive.items()}

    def _spawn_onlooker(self) -> None:
        store = self.address(STORE) if self.lives(STORE) else self.kit.system.address("nobody")
        self._store_life = store.incarnation
        self.kit.spawn(lambda context: Onlooker(context, store, self.invariants), name="onlooker")

    def advance(self, seconds: float) -> None:
        """Let virtual time pass, and see the snapshots of whichever store there is."""
        for _ in range(round(seconds / STEP)):
            super().advance(STEP)
            if self.lives(STORE) and self.address(STORE).incarnation != self._store_life:
                self.address("onlooker").stop()
                self._spawn_onlooker()

    # ── what happens ─────────────────────────────────────────────────────────────────────────────────────────────

    def turmoil(self) -> None:
        """Trouble until all crashes have come, and once more after that."""
        self.trouble_until(self._all_came)
        self._trouble(8)
        self.target(LAST_TARGET)

    def trouble_until(self, enough: Callable[[], bool]) -> None:
        """From the fleet's start on; for a minute at most."""
        self.advance(2)
        for target in takewhile(lambda _: not enough(), islice(cycle((8, 4, 9)), LONGEST)):
            self._trouble(target)

    def _all_came(self) -> bool:
        """Those that need an end to come do not count."""
        here = [plan for plan in self.plans if plan.hook != "stopped" and not plan.while_stopping]
        return all(plan.crashes == len(plan.at) for plan in here) or not self.backend.is_alive()

    def _trouble(self, target: int) -> None:
        for step in (partial(self._grow, target), self._lose_some, self._lose_the_server):
            if self.backend.is_alive():
                step()

    def _grow(self, target: int) -> None:
        self.target(target)
        self.advance(1)

    def _lose_some(self) -> None:
        """One ends by itself, one is deleted by force, the driver ends a third."""
        running = sorted(pod["metadata"]["name"] for pod in self.pods("Running"))
        for name, end in zip(running, (self._exits, self._is_deleted, self._is_killed), strict=False):
            end(name)
        self.advance(2)

    def _lose_the_server(self) -> None:
        self.api.outage = True
        self._lose_some()
        self.advance(OUTAGE - 2)
        self.api.outage = False
        self.advance(3)

    def _exits(self, name: str) -> None:
        self.kubelet.exit(name, 1)

    def _is_deleted(self, name: str) -> None:
        self.invariants.taken_by_others(name)
        self.store.delete("pods", "default", name, grace_period_seconds=0)

    def _is_killed(self, name: str) -> None:
        self.kill(int(name.rpartition("-")[2]))

    # ── what must hold ───────────────────────────────────────────────────────────────────────────────────────────

    def faults(self) -> list[str]:
        """What has been broken so far."""
        unplanned = [f"{plan} came {plan.crashes} times" for plan in self.plans if plan.crashes != len(plan.at)]
        return [*self.invariants.violations, *self._ear.errors, *unplanned]

    def unsettled(self) -> list[str]:
        """How the fleet differs from the target, and from what the driver knows."""
        living, present = self.invariants.living(), self.invariants.present()
        target = self.invariants._target["default"]
        wrong = [] if self.running() == target else [f"{self.running()} run, {target} are wanted"]
        wrong += [] if present == living else [f"the driver knows {sorted(present)}, there are {sorted(living)}"]
        return wrong

    def converge(self, within: float) -> list[str]:
        """Wait for the fleet to be whole; what is wrong if that takes too long."""
        for _ in range(round(within / STEP)):
            if not self.unsettled():
                return []
            self.advance(STEP)
        return [f"after {within} s {words}" for words in self.unsettled()]

    def stop_leaves_nothing(self) -> list[str]:
        """The driver stops the backend; what it leaves."""
        for plan in self.plans:
            plan.counts = True
        self.backend.tell(StopBackend())
        for _ in range(round(STOPPED_WITHIN / STEP)):
            if self.backend.is_alive():
                self.advance(STEP)
        said, left = self.heard(BackendStopped), [pod["metadata"]["name"] for pod in self.pods()]
        wrong = [f"the stop ended with {said}"] if said != [BackendStopped()] else []
        wrong += [f"the stop leaves {left}"] if left else []
        return wrong + self.left_over()

    def meddled(self) -> list[str]:
        """What was done to the fleet since the last crash that had not been asked for before."""
        before, now = self._lived, self._alive()
        made = {name for uid, name in now.items() if uid not in before} - self._asked_for
        gone = {name for uid, name in before.items() if uid not in now} - self._asked_to_go
        wrong = [f"{sorted(made)} were made though the backend had failed"] if made else []
        return wrong + ([f"{sorted(gone)} were deleted though the backend had failed"] if gone else [])

    def left_over(self) -> list[str]:
        """Parts that live though the backend has ended."""
        left = [actor.name for actor in self.kit.dispatcher.actors if actor.name not in ("driver", "onlooker")]
        return [f"{left} live on"] if left else []


@contextmanager
def shaken(seed: int | None, *plans: Plan) -> Iterator[Shaken]:
    """A world in which these crashes happen."""
    world = Shaken(seed, *plans)
    try:
        yield world
    finally:
        world.close()


def survived(*plans: Plan, seed: int | None = None, resting: float = 0) -> list[str]:
    """What is wrong after crashes that the fleet is to survive: nothing, if all is well.

    `resting` are seconds that a part may rest besides, because it crashed more than twice.
    """
    with shaken(seed, *plans) as world:
        world.turmoil()
        wrong = world.converge(CONVERGED_WITHIN + resting)
        wrong += world.stop_leaves_nothing()
        return [f"{', '.join(map(str, plans))}, seed {seed}: {words}" for words in [*wrong, *world.faults()]]


def backend_falls(plan: Plan, seed: int | None = None) -> list[str]:
    """What is wrong after a crash of the Backend itself, and after another driver took over what it left."""
    with shaken(seed, plan) as world:
        world.turmoil()
        world.converge(CONVERGED_WITHIN)
        wrong = _fell(world) + _next_one_takes_over(world)
        return [f"{plan}, seed {seed}: {words}" for words in [*wrong, *world.faults()]]


def backend_falls_while_stopping(plan: Plan, seed: int | None = None) -> list[str]:
    """What is wrong after a crash of the Backend in the middle of a stop: nobody lives on, and the next one ends it.

    If the stop was over by then, nothing may be wrong with that.
    """
    with shaken(seed, plan) as world:
        world.turmoil()
        world.converge(CONVERGED_WITHIN)
        stopped = world.stop_leaves_nothing()
        if world.heard(BackendStopped):
            return [*stopped, *world.invariants.violations]
        wrong = _had_its_last_word(world) + world.left_over()
        wrong += _next_one_takes_over(world)
        return [f"{plan}, seed {seed}: {words}" for words in [*wrong, *world.faults()]]


def part_is_given_up(part: str, first: int, seed: int | None = None) -> list[str]:
    """What is wrong after a part crashed five times in a row, from one of its messages on."""
    plan = Plan(part, frozenset(range(first, first + MAX_CRASHES)))
    with shaken(seed, plan) as world:
        world.trouble_until(lambda: plan.crashes > 0)
        world.target(LAST_TARGET)
        world.advance(60)
        wrong = _fell(world) + _next_one_takes_over(world)
        abandoned = [words for words in world._ear.errors if "cause=Crash" in words]
        world._ear.errors = [words for words in world._ear.errors if words not in abandoned]
        wrong += [] if len(abandoned) == 2 else [f"it was said to be given up by {abandoned}"]
        return [f"{plan}, seed {seed}: {words}" for words in [*wrong, *world.faults()]]


def _fell(world: Shaken) -> list[str]:
    """The driver heard of the crash, once and last; nobody lives on, and the fleet is as it was."""
    wrong = _had_its_last_word(world) + world.left_over()
    return wrong or world.meddled()


def _had_its_last_word(world: Shaken) -> list[str]:
    """The driver heard of the crash, once, and of no other end."""
    last_words = [m for m in world._drivers[-1].heard if isinstance(m, BackendFailed | BackendStopped)]
    match last_words:
        case [BackendFailed(Crash())]:
            return []
        case _:
            return [f"the driver heard {last_words}"]


def _next_one_takes_over(world: Shaken) -> list[str]:
    """The fleet is as it was; another driver finds it, brings it to its target, and ends it."""
    if world.backend.is_alive():
        return ["the backend lives on"]
    world.api.outage = False
    world.restart()
    world.target(LAST_TARGET)
    return world.converge(TERM + CONVERGED_WITHIN) + world.stop_leaves_nothing()
