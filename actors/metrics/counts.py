"""What is counted of one fleet, for whoever looks at it from outside (`actors.metrics`): each part has a page.

What can be asked of the Backend is not here (`GetFleetStatus`): these are the counts that its parts alone know. Each
page has one writer, its part, whose next incarnation counts on; see `actors.runtime.instruments` for who may read. A
page never holds a pod, a name or an id, so that it stays as small as it is however long the fleet lives.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, final

from actors.kube.metered import ApiCounts
from actors.pods.loss import LossKind
from actors.runtime import StoppedByHost
from actors.runtime.instruments import Counter, Histogram

if TYPE_CHECKING:
    from collections.abc import Iterable

    from actors.runtime import Address
    from actors.runtime.mailbox import DeadLetters

__all__ = ["BackendCounts", "FleetCounts", "Metrics", "PoolCounts", "StoreCounts"]


@final
class BackendCounts:
    """The Backend's page: what the driver was told, and what became of the parts."""

    def __init__(self, profiles: Iterable[str] = ()) -> None:
        each = [(profile,) for profile in profiles]
        self.requested = Counter(*each)
        """Executors requested, by profile."""
        self.running = Counter(*each)
        """Executors that were told to run, by profile."""
        self.stuck = Counter(*each)
        """Executors told to be stuck, by profile."""
        self.removed = Counter(*((*profile, kind.name) for profile in each for kind in LossKind))
        """Executors told to be gone, by profile and kind of loss."""
        self.failures = Counter()
        """Crashes and hangs, by actor and class of the cause."""
        self.reaction = Histogram()
        """From when the store had the end of an executor to when the driver is told of it."""
        self.start_seconds: float | None = None
        self.stop_seconds: float | None = None

    def ended(self, actor: str, cause: BaseException | None) -> None:
        """A part has ended: in order, because the host wants it so, or of a failure."""
        if cause is not None and not isinstance(cause, StoppedByHost):
            self.failures.add(actor, type(cause).__name__)


@final
class StoreCounts:
    """The SnapshotStore's page: what the sources have seen."""

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
        """Lists that came whole, by source and whether they were applied."""
        self.list_durations: dict[str, Histogram] = {}
        """From when a list was asked for to when the store has it, by source."""

    def listed(self, source: str, *, applied: bool, seconds: float) -> None:
        """A list has come."""
        self.lists.add(source, "applied" if applied else "dropped")
        if source not in self.list_durations:
            self.list_durations[source] = Histogram()
        self.list_durations[source].observe(seconds)


@final
class PoolCounts:
    """The RequestPool's page: what waits to be sent."""

    def __init__(self) -> None:
        self.queued = 0
        """Requests that wait for a place, for the budget or for a server."""
        self.waiting = 0
        """Requests that wait for their next try."""
        self.outage = False
        """No API server answers."""
        self.retries = Counter()
        """Requests to be tried again, by kind and class of error."""

    def rest(self) -> None:
        """The pool ends: nothing waits any more. That there was no server is for the next one to find out."""
        self.queued = self.waiting = 0
        self.outage = False


@final
class FleetCounts:
    """All of one Backend, and where to ask for the rest."""

    def __init__(self, app_id: str, profiles: Iterable[str] = ()) -> None:
        self.app_id = app_id
        self.api = ApiCounts()
        self.backend = BackendCounts(profiles)
        self.store = StoreCounts()
        self.pool = PoolCounts()
        self.addresses: dict[str, Address] = {}
        """The Backend, its parts and the driver, by name; set once, at the start."""
        self.letters: DeadLetters | None = None
        """Which counts dead letters, those of all who live in it."""


class Metrics(Protocol):
    """Who is handed a fleet's counts at its start, to show them."""

    def add(self, fleet: FleetCounts) -> None:
        """From now on this fleet, too. Called in the thread that starts the Backend."""
