"""The counters of one fleet: an object for each actor that counts.

They hold what `GetFleetStatus` does not answer. Each object has one writer, its actor, and the actor's next incarnation
continues it; `actors.runtime.instruments` says who may read. No label holds a name, an id or another text from outside,
so the size stays bounded.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeAlias, final

from actors.kube.metered import ApiCounts
from actors.messages import BackendStopped, RegisterExecutor
from actors.messages.internal import ExecutorsAbandoned, ExecutorSeen, ExecutorsRequested, RemoveExecutor
from actors.pods.loss import LossKind
from actors.runtime import DeadLetters, StoppedByHost
from actors.runtime.instruments import Counter, Histogram

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from datetime import datetime

    from actors.runtime import Address

__all__ = [
    "OTHER",
    "BackendCounts",
    "Backlog",
    "FleetCounts",
    "Metrics",
    "PoolCounts",
    "ProcessCounts",
    "StoreCounts",
    "Traced",
    "Traces",
]


OTHER: Final = "other"
"""The label of every profile that is not in the settings: pods carry their profile, and anybody can create a pod."""


@final
class BackendCounts:
    """Counters of the Backend: what the driver was notified of, and failures of children."""

    def __init__(self, profiles: Collection[str] = ()) -> None:
        self._profiles = frozenset(profiles)
        each = [(profile,) for profile in profiles]
        self.requested = Counter(*each)
        """Executors requested, by profile."""
        self.more_memory = Counter(*each)
        """Executors requested with more memory after one was killed for its memory, by profile."""
        self.running = Counter(*each)
        """Executors reported running, by profile."""
        self.stuck = Counter(*each)
        """Executors reported stuck, by profile."""
        self.removed = Counter(*((*profile, kind) for profile in each for kind in LossKind))
        """Executors reported removed, by profile and kind of loss."""
        self.failures = Counter()
        """Crashes and hangs, by actor and class of the cause."""
        self.reaction = Histogram()
        """From the store's receipt of an executor's end to the driver's notification."""
        self.start_seconds: float | None = None
        self.stop_seconds: float | None = None

    def label(self, profile: str) -> str:
        """Return the value of the label `profile`."""
        return profile if profile in self._profiles else OTHER

    def ended(self, actor: str, cause: BaseException | None) -> None:
        """Count a child's end, if it was a failure."""
        if cause is not None and not isinstance(cause, StoppedByHost):
            self.failures.add(actor, type(cause).__name__)


@final
class StoreCounts:
    """Counters of the SnapshotStore: what the sources delivered."""

    def __init__(self) -> None:
        self.reads = 0
        """Reads of the watch, bookmarks included."""
        self.events = 0
        """Events of the watch."""
        self.batches = 0
        """Batches sent to subscribers."""
        self.resets = 0
        """How often the cluster's history went back."""
        self.malformed = 0
        """Pods that were set aside."""
        self.lists = Counter()
        """Complete lists, by source and by whether they were applied."""
        self.list_durations: dict[str, Histogram] = {}
        """From a list's request to its arrival in the store, by source."""

    def listed(self, source: str, *, applied: bool, seconds: float) -> None:
        """Count a complete list."""
        self.lists.add(source, "applied" if applied else "dropped")
        if source not in self.list_durations:
            self.list_durations[source] = Histogram()
        self.list_durations[source].observe(seconds)


@final
class PoolCounts:
    """Counters of the RequestPool."""

    def __init__(self) -> None:
        self.queued = 0
        """Requests that wait for a slot, for the rate limit or for a server."""
        self.waiting = 0
        """Requests that wait for their next attempt."""
        self.outage = False
        """No API server answers."""
        self.retries = Counter()
        """Retries, by kind and class of error."""

    def clear(self) -> None:
        """Reset the gauges at the pool's end; the next incarnation detects an outage itself."""
        self.queued = self.waiting = 0
        self.outage = False


class Backlog(NamedTuple):
    """What waits for an actor."""

    depth: int
    """Messages that wait."""
    high_water: int
    """The most that ever waited."""

    @classmethod
    def of(cls, address: Address) -> Backlog:
        """Return what waits at an address."""
        return cls(address.depth, address.high_water)


@dataclass(frozen=True, slots=True)
class ProcessCounts:
    """The counters of the fleet's process."""

    api: ApiCounts = field(default_factory=ApiCounts)
    store: StoreCounts = field(default_factory=StoreCounts)
    pool: PoolCounts = field(default_factory=PoolCounts)
    mailboxes: dict[str, Backlog] = field(default_factory=dict)
    """By actor."""
    letters: DeadLetters = field(default_factory=DeadLetters)

    def lose(self) -> None:
        """Note that the process has ended: nothing waits or is under way there any more."""
        self.api.lose()
        self.pool.clear()
        self.mailboxes.clear()


@final
class FleetCounts:
    """The counters of one Backend, and the addresses of its actors."""

    def __init__(self, app_id: str, profiles: Collection[str] = ()) -> None:
        self.app_id = app_id
        self.api = ApiCounts()
        """The requests of the Backend's process."""
        self.process: ProcessCounts | None = None
        """What the fleet's process has counted, None if there is none. Some seconds old."""
        self.backend = BackendCounts(profiles)
        self._store = StoreCounts()
        self._pool = PoolCounts()
        self.addresses: dict[str, Address] = {}
        """The Backend, its children and the driver, by name; set once, at the start."""
        self.letters: DeadLetters | None = None
        """Counts dead letters, of all actors of the ActorSystem."""

    @property
    def store(self) -> StoreCounts:
        """The SnapshotStore's counters; those of the fleet's process also if its next incarnation runs here."""
        return self._store if self.process is None else self.process.store

    @property
    def pool(self) -> PoolCounts:
        """The RequestPool's counters, see `store`."""
        return self._pool if self.process is None else self.process.pool

    def mailboxes(self) -> dict[str, Backlog]:
        """Return what waits for each actor, and for the driver."""
        here = {name: Backlog.of(address) for name, address in self.addresses.items()}
        return here if self.process is None else here | self.process.mailboxes

    def dead_letters(self) -> int:
        """Return the number of messages to ended actors."""
        here = 0 if self.letters is None else self.letters.total
        return here if self.process is None else here + self.process.letters.total

    def requests(self) -> ApiCounts:
        """Return the counts of all requests to the API."""
        if self.process is None:
            return self.api
        both = ApiCounts()
        both.include(self.process.api)
        both.include(self.api)
        return both


class Metrics(Protocol):
    """Receives a fleet's counters at its start, to export them."""

    def add(self, fleet: FleetCounts) -> None:
        """Add a fleet. Called before the Backend starts, which does not if this raises, or takes longer than 5 s."""


Traced: TypeAlias = (
    ExecutorsRequested | ExecutorSeen | RegisterExecutor | RemoveExecutor | ExecutorsAbandoned | BackendStopped
)
"""What is traced. `RegisterExecutor` only if the executor may register; `BackendStopped` however the Backend ends."""


class Traces(Protocol):
    """Receives what happens to each executor, to trace it."""

    def begin(self, app_id: str, now: Callable[[], datetime]) -> Callable[[Traced], object]:
        """Begin to trace a fleet: return a function that gets these messages to its Backend, after the Backend.

        It is called in a thread of its own, and with `BackendStopped` at the end. If it is slow, messages wait, and
        beyond 10,000 are dropped. What it raises is logged.
        """
