"""Short lives of a fleet in virtual time, one for each seed, thousands of them spread over processes.

A life is what `machine` can do, drawn by the seed instead of by Hypothesis: a few steps of every kind of trouble, then
calm, then a stop. The seed draws the order of messages, the network's speed and how many calls may be in flight, too:
it is the same life in every process.
"""

from __future__ import annotations

import hashlib
import multiprocessing
import time
import traceback
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, Final, final

from actors.local.faults.kinds import Chances
from tests.scenarios.chaos import GENERATIONS, PROFILES, Broken, Chaos
from tests.scenarios.machine import (
    FAULTS,
    KILL_GRACES,
    OPERATIONS,
    PARTS,
    PLANS,
    QUOTAS,
    VICTIMS,
    FleetMachine,
)
from tests.scenarios.strangers import NONSENSE, STRAY_IDS, STRAY_PROFILES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

__all__ = ["DRAWS", "Life", "Tally", "live", "lives", "run"]

TROUBLE: Final = Chances(
    too_many_requests=0.05,
    server_error=0.05,
    quota=0.05,
    lost_answer=0.1,
    stall=0.03,
    half_open=0.03,
    delay_answer=0.1,
    gone=0.05,
    cut=0.05,
    freeze=0.01,
    lag=0.1,
)
"""Of whatever comes by, until it is calm. Without late requests and stale lists, see `FAULTS`."""

STEPS: Final = range(8, 16)

LATENCIES: Final = tuple(timedelta(seconds=seconds) for seconds in (0.005, 0.005, 0.05, 0.4))

IN_FLIGHT: Final = (1, 4, 16)

LONG_LIVES: Final = 8
"""One life of so many goes on until it is seen what is kept for ever: that takes longer than all the rest."""

LEASED: Final = 3
"""One life of so many has a Lease, which others steal."""

CHUNK: Final = 20
"""Seeds that a process gets at once: two seconds' work."""

AFTER: Final = (0.0, 0.0, 0.004, 0.1, 1.0, 4.0)
"""Seconds. Between what happens in one moment, and more than a round."""


def _draw_pick(random: Random) -> dict[str, Any]:
    return {"pick": random.randrange(8)}


def _draw_nothing(random: Random) -> dict[str, Any]:
    return {}


DRAWS: Final[Mapping[str, Callable[[Random], dict[str, Any]]]] = {
    "the_driver_wants": lambda random: {
        "default": random.randrange(6),
        "gated": random.randrange(4),
        "costly": random.randrange(4),
    },
    "the_driver_scales": lambda random: {
        "totals": {profile: random.randrange(5) for profile in random.sample(PROFILES, random.randint(1, 2))},
        "victims": random.choice(sorted(VICTIMS)),
        "grace": random.choice(sorted(KILL_GRACES)),
    },
    "the_driver_sends_nonsense": lambda random: {"which": random.randrange(len(NONSENSE))},
    "the_driver_kills": lambda random: {
        **_draw_pick(random),
        "number": random.randint(1, 3),
        "adjust_target": random.random() < 0.5,
        "grace": random.choice(sorted(KILL_GRACES)),
    },
    "the_driver_retires": lambda random: {
        **_draw_pick(random),
        "number": random.randint(1, 3),
        "adjust_target": random.random() < 0.5,
        "grace": random.choice(sorted(KILL_GRACES)),
        "drained": random.random() < 0.3,
    },
    "an_executor_is_drained": _draw_pick,
    "the_driver_holds_or_resumes": lambda random: {
        "holds": random.random() < 0.5,
        "grace": random.choice(sorted(KILL_GRACES)),
    },
    "the_driver_decommissions": _draw_pick,
    "an_executor_registers": lambda random: {**_draw_pick(random), "seen": random.random() < 0.7},
    "an_executor_loses_its_connection": _draw_pick,
    "an_executor_is_busy": _draw_pick,
    "an_executor_is_idle": _draw_pick,
    "the_driver_starts_again": lambda random: {"in_order": random.random() < 0.5},
    "new_pods": lambda random: {"plan": random.choice(sorted(PLANS))},
    "a_pod_exits": lambda random: {**_draw_pick(random), "code": random.choice((0, 1, 137, 143))},
    "a_pod_is_out_of_memory": _draw_pick,
    "a_pod_is_evicted_by_its_node": _draw_pick,
    "a_pod_is_preempted_or_loses_its_node": _draw_pick,
    "somebody_deletes_a_pod": lambda random: {**_draw_pick(random), "grace": random.choice((0, 1, 30))},
    "a_pod_terminates_for_ever": _draw_pick,
    "nothing_keeps_pods_from_going": _draw_nothing,
    "somebody_takes_a_pod_out_of_the_fleet": _draw_pick,
    "somebody_brings_a_pod_back": _draw_pick,
    "somebody_sets_a_pod_aside": _draw_pick,
    "somebody_annotates_a_pod": _draw_pick,
    "a_stranger_creates_a_pod": lambda random: {
        "number": random.choice(STRAY_IDS),
        "profile": random.choice(STRAY_PROFILES),
    },
    "a_pod_gets_a_finalizer": _draw_pick,
    "the_quota_is_set": lambda random: {"quota": random.choice(sorted(QUOTAS))},
    "the_lease_is_stolen": _draw_nothing,
    "gates_open": _draw_nothing,
    "a_backup_is_made_or_restored": _draw_nothing,
    "the_next_calls_fail": lambda random: {
        "operation": random.choice(OPERATIONS),
        "fault": random.choice(sorted(FAULTS)),
        "times": random.randint(1, 3),
    },
    "the_next_watch_is_refused": lambda random: {"expired": random.random() < 0.5},
    "the_server_goes_away_or_comes_back": lambda random: {"away": random.random() < 0.5},
    "the_watch": lambda random: {"how": random.choice(("cut", "expire", "freeze", "stall", "resume"))},
    "the_watch_lags": lambda random: {"seconds": random.choice((0.0, 0.3, 3.0))},
    "the_server_forgets_its_history": _draw_nothing,
    "an_actor_crashes": lambda random: {"part": random.choice(PARTS)},
    "anything_may_fail": _draw_nothing,
    "time_passes": lambda random: {"seconds": random.choice((0.02, 0.5, 2.0, 6.0, 12.0, 25.0, 40.0))},
    "much_time_passes": lambda random: {"seconds": random.choice((60.0, 120.0, 600.0))},
}
"""Every rule of the machine, and one of our own, with how its arguments are drawn."""

WEIGHTS: Final = {"the_driver_wants": 3, "the_driver_scales": 3, "an_actor_crashes": 4, "time_passes": 4}
"""Of those that are not drawn as often as the others."""

DAWDLES: Final = frozenset({"time_passes", "much_time_passes"})
"""They say themselves how long they take."""


@final
class _Machine(FleetMachine):
    """The machine with a world that was made for it."""

    def anything_may_fail(self, after: float) -> None:
        self._do(lambda: setattr(self.world.api, "chances", TROUBLE), after)


@dataclass(frozen=True)
class Life:
    """What came of one seed."""

    seed: int
    steps: tuple[str, ...]
    """As calls, in order."""
    violation: str
    """Empty if everything held."""
    trace: str
    """A digest of every message, when and to whom: equal for equal lives."""
    counts: Counter[str]
    """What there was: pods, virtual seconds, messages, and how often each reason for an end was told."""

    def __str__(self) -> str:
        steps = "\n  ".join(self.steps)
        return f"STRESS_SEED={self.seed} STRESS_SEEDS=1 breaks:\n{self.violation}\nafter\n  {steps}"


def live(seed: int, *, threads: bool = False) -> Life:
    """The life that this seed draws, with everything looked at after each step and at the end."""
    random = Random(seed)
    world = Chaos(
        seed,
        threads=threads,
        generations=0 if random.randrange(LONG_LIVES) else GENERATIONS,
        in_flight=random.choice(IN_FLIGHT),
        latency=random.choice(LATENCIES),
        lease=random.randrange(LEASED) == 0,
    )
    _Machine.lives = Counter()
    machine = _Machine(world)
    steps: list[str] = []
    violation = ""
    try:
        for name, arguments in _drawn(random):
            steps.append(f"{name}({', '.join(f'{key}={value!r}' for key, value in arguments.items())})")
            getattr(machine, name)(**arguments)
    except Exception as broken:  # noqa: BLE001 - whatever it is, it belongs to this seed, and the next one goes on
        violation = _words(broken)
    try:
        machine.teardown()
    except Exception as broken:  # noqa: BLE001 - see above
        violation = violation or _words(broken)
    counts = machine.lives + Counter(messages=len(world.kit.trace))
    trace = hashlib.sha256("\n".join(world.kit.trace).encode()).hexdigest()
    return Life(seed, tuple(steps), violation, trace, counts)


def _drawn(random: Random) -> Iterator[tuple[str, dict[str, Any]]]:
    names = list(DRAWS)
    for name in random.choices(names, [WEIGHTS.get(name, 1) for name in names], k=random.choice(STEPS)):
        arguments = DRAWS[name](random)
        if name not in DAWDLES:
            arguments["after"] = random.choice(AFTER)
        yield name, arguments


def _words(broken: Exception) -> str:
    """What does not hold, or where something else went wrong."""
    return str(broken) if isinstance(broken, Broken) else "".join(traceback.format_exception(broken))


@dataclass
class Tally:
    """What came of many seeds."""

    counts: Counter[str] = field(default_factory=Counter)
    steps: Counter[str] = field(default_factory=Counter)
    failed: list[Life] = field(default_factory=list)
    seconds: float = 0.0
    """Of real time."""

    def add(self, life: Life) -> None:
        """One more; one that breaks something is printed at once."""
        self.counts += life.counts
        self.steps.update(step.partition("(")[0] for step in life.steps)
        if life.violation:
            self.failed.append(life)
            print(life, flush=True)

    def __str__(self) -> str:
        lives = self.counts["lives"]
        return (
            f"{lives} seeds in {self.seconds:.1f} s, {lives / self.seconds:.1f} a second, {len(self.failed)} violations"
            f"\nsteps={dict(self.steps.most_common())}\ncounts={dict(self.counts.most_common())}"
        )


def run(seeds: range, *, processes: int = 0, threads: bool = False) -> Tally:
    """Live all of them, in so many processes of their own or in this one, and add up what came of them."""
    tally, begin = Tally(), time.perf_counter()
    for life in lives(seeds, processes=processes, threads=threads):
        tally.add(life)
    tally.seconds = time.perf_counter() - begin
    return tally


def lives(seeds: range, *, processes: int = 0, threads: bool = False) -> Iterator[Life]:
    """Live all of them, in so many processes of their own or in this one; in the order of their seeds."""
    one = partial(live, threads=threads)
    if not processes:
        yield from map(one, seeds)
        return
    with ProcessPoolExecutor(processes, mp_context=multiprocessing.get_context("spawn")) as pool:
        yield from pool.map(one, seeds, chunksize=CHUNK)
