"""What a fleet looks like from outside, for Prometheus: a collector for a registry of the driver's choice.

It reads what the parts count and asks each Backend how its fleet stands, at each scrape and at no other time. A Backend
that has ended, or does not answer, costs a scrape what could be asked of it, and nothing else; what was counted stays.
No label holds a name of a pod, an id or words of the API: how many series there are is bounded by profiles and kinds.

Imported only where it is asked for: nothing else here needs `prometheus_client`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from actors.messages import FleetStatus, GetFleetStatus
from actors.runtime.instruments import BOUNDS, Histogram

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry, Metric

    from actors.messages import ProfileStatus, SourceStatus
    from actors.metrics.counts import FleetCounts
    from actors.runtime import Address
    from actors.runtime.instruments import Counter

__all__ = ["FAMILIES", "Family", "PrometheusMetrics"]

ANSWER_WITHIN: Final = timedelta(seconds=2)
"""A Backend answers in milliseconds. Prometheus waits for ten seconds, and there may be several Backends."""

KEPT: Final = 16
"""Fleets that have ended and are still shown: a process that starts one after the other must not grow."""

Ask: TypeAlias = Callable[["Address", GetFleetStatus], FleetStatus]


@dataclass(frozen=True, slots=True)
class _View:
    """One fleet at one scrape."""

    counts: FleetCounts
    status: FleetStatus | None
    """None when its Backend has ended, or did not answer."""


_Samples: TypeAlias = Iterable[tuple[tuple[str, ...], float | Histogram]]


@dataclass(frozen=True, slots=True)
class Family:
    """One metric: everything that is exported under one name."""

    name: str
    labels: tuple[str, ...]
    """Besides `app_id`, which each has."""
    help: str
    read: Callable[[_View], _Samples]

    @property
    def kind(self) -> Literal["counter", "gauge", "histogram"]:
        """As the name says: what ends in `_total` only grows."""
        if self.name.endswith("_total"):
            return "counter"
        return "histogram" if self.read in _HISTOGRAMS else "gauge"

    def metric(self, views: Iterable[_View]) -> Metric:
        """What is exported, of these fleets."""
        labels = ("app_id", *self.labels)
        if self.kind == "histogram":
            histogram = HistogramMetricFamily(self.name, self.help, labels=labels)
            for values, found in self._samples(views):
                assert isinstance(found, Histogram)
                reached, total = found.read()
                bounds = (*map(str, BOUNDS), "+Inf")
                histogram.add_metric(values, list(zip(bounds, reached, strict=True)), total)
            return histogram
        plain = (CounterMetricFamily if self.kind == "counter" else GaugeMetricFamily)(
            self.name, self.help, labels=labels
        )
        for values, number in self._samples(views):
            assert not isinstance(number, Histogram)
            plain.add_metric(values, number)
        return plain

    def _samples(self, views: Iterable[_View]) -> Iterator[tuple[tuple[str, ...], float | Histogram]]:
        for view in views:
            for values, found in self.read(view):
                yield (view.counts.app_id, *values), found


@final
class PrometheusMetrics(Collector):
    """The collector: one for all Backends of a process, which are told apart by the label `app_id`.

    Give it to `Backend.start(..., metrics=...)`. A Backend that is started with the `app_id` of an earlier one takes
    its place; `forget` takes one away.
    """

    def __init__(self, registry: CollectorRegistry | None = None, *, ask: Ask | None = None) -> None:
        """Register with `registry`, if one is given; else that is left to the caller. `ask` is for tests."""
        self._fleets: dict[str, FleetCounts] = {}
        self._ask = ask or _ask
        if registry is not None:
            registry.register(self)

    def add(self, fleet: FleetCounts) -> None:
        """See `actors.metrics.counts.Metrics`."""
        self._fleets.pop(fleet.app_id, None)  # so that it is the newest
        self._fleets[fleet.app_id] = fleet
        ended = [app_id for app_id, one in self._fleets.copy().items() if not one.addresses["backend"].is_alive()]
        for app_id in ended[:-KEPT]:
            self.forget(app_id)

    def forget(self, app_id: str) -> None:
        """Show this fleet no more."""
        self._fleets.pop(app_id, None)

    def describe(self) -> Iterable[Metric]:
        """What there may be, so that a registry asks nobody anything when this is registered with it."""
        return [family.metric(()) for family in FAMILIES]

    def collect(self) -> Iterable[Metric]:
        """One scrape, on any thread."""
        views = [_View(fleet, self._status(fleet)) for fleet in self._fleets.copy().values()]
        return [family.metric(views) for family in FAMILIES]

    def _status(self, fleet: FleetCounts) -> FleetStatus | None:
        try:
            return self._ask(fleet.addresses["backend"], GetFleetStatus())
        except Exception:  # noqa: BLE001 - it has ended, is busy, or dies of something: its owner hears of that
            return None


def _ask(backend: Address, question: GetFleetStatus) -> FleetStatus:
    status = backend.ask(question, ANSWER_WITHIN)
    assert isinstance(status, FleetStatus)
    return status


# ── of the status ────────────────────────────────────────────────────────────────────────────────────────────────────


def _up(view: _View) -> _Samples:
    yield (), view.status is not None


def _targets(view: _View) -> _Samples:
    return [((name,), profile.target) for name, profile in _profiles(view)]


def _executors(view: _View) -> _Samples:
    for name, profile in _profiles(view):
        yield (name, "requested"), profile.newly_created
        yield (name, "pending"), profile.pending
        yield (name, "running"), profile.running
        yield (name, "terminating"), profile.terminating


def _registered(view: _View) -> _Samples:
    return [((name,), profile.registered) for name, profile in _profiles(view)]


def _start_failures(view: _View) -> _Samples:
    return [((name,), profile.start_failures) for name, profile in _profiles(view)]


def _blocked(view: _View) -> _Samples:
    return [((name, profile.blocked_by or "other"), 1) for name, profile in _profiles(view) if profile.blocked]


def _profiles(view: _View) -> Iterable[tuple[str, ProfileStatus]]:
    return view.status.profiles.items() if view.status is not None else ()


def _synced(view: _View) -> _Samples:
    return [((name,), source.synced) for name, source in _sources(view)]


def _heard_age(view: _View) -> _Samples:
    return [((name,), age.total_seconds()) for name, s in _sources(view) if (age := s.since_heard) is not None]


def _full_sync_age(view: _View) -> _Samples:
    return [((name,), age.total_seconds()) for name, s in _sources(view) if (age := s.since_full_sync) is not None]


def _sources(view: _View) -> Iterable[tuple[str, SourceStatus]]:
    return view.status.sources.items() if view.status is not None else ()


def _flag(of: Callable[[FleetStatus], bool]) -> Callable[[_View], _Samples]:
    return lambda view: [((), of(view.status))] if view.status is not None else []


# ── of the counts ────────────────────────────────────────────────────────────────────────────────────────────────────


def _tally(of: Callable[[FleetCounts], Counter]) -> Callable[[_View], _Samples]:
    return lambda view: of(view.counts).read().items()


def _number(of: Callable[[FleetCounts], float | None]) -> Callable[[_View], _Samples]:
    return lambda view: [((), number)] if (number := of(view.counts)) is not None else []


def _in_flight(view: _View) -> _Samples:
    return [((operation,), count) for operation, count in view.counts.api.in_flight().items()]


def _api_durations(view: _View) -> _Samples:
    return [((operation,), histogram) for operation, histogram in view.counts.api.durations().items()]


def _list_durations(view: _View) -> _Samples:
    return [((source,), histogram) for source, histogram in view.counts.store.list_durations.copy().items()]


def _reaction(view: _View) -> _Samples:
    yield (), view.counts.backend.reaction


def _actor_starts(view: _View) -> _Samples:
    return [((name,), address.incarnation) for name, address in _actors(view)]


def _depths(view: _View) -> _Samples:
    return [((name,), address.depth) for name, address in view.counts.addresses.items()]


def _high_water(view: _View) -> _Samples:
    return [((name,), address.high_water) for name, address in _actors(view)]


def _actors(view: _View) -> Iterable[tuple[str, Address]]:
    """Those that are ours: of the driver nothing is known but how much waits for it."""
    return [(name, address) for name, address in view.counts.addresses.items() if name != "driver"]


_HISTOGRAMS: Final = (_api_durations, _list_durations, _reaction)

FAMILIES: Final = (
    Family("executor_pods_up", (), "1 while the backend answers", _up),
    Family("executor_pods_target_executors", ("profile",), "Executors that the driver wants", _targets),
    Family(
        "executor_pods_executors",
        ("profile", "state"),
        "Executors by state: requested (not seen yet), pending, running, terminating",
        _executors,
    ),
    Family("executor_pods_registered_executors", ("profile",), "Executors that the driver registered", _registered),
    Family(
        "executor_pods_allocation_blocked",
        ("profile", "cause"),
        "1 while creation stands still: an error's class, or stale, max_created, claims, start_failures, "
        "cut_short, lease, driver_pod",
        _blocked,
    ),
    Family(
        "executor_pods_start_failures",
        ("profile",),
        "Executors that ended before they were of use, of those that still count",
        _start_failures,
    ),
    Family(
        "executor_pods_executors_requested_total",
        ("profile",),
        "Executors requested",
        _tally(lambda counts: counts.backend.requested),
    ),
    Family(
        "executor_pods_executors_running_total",
        ("profile",),
        "Executors that came to run",
        _tally(lambda counts: counts.backend.running),
    ),
    Family(
        "executor_pods_executors_removed_total",
        ("profile", "kind"),
        "Executors that are gone, by kind of loss",
        _tally(lambda counts: counts.backend.removed),
    ),
    Family(
        "executor_pods_executors_stuck_total",
        ("profile",),
        "Executors told to be stuck, once for each cause",
        _tally(lambda counts: counts.backend.stuck),
    ),
    Family(
        "executor_pods_reaction_seconds",
        (),
        "From when a batch had the first end of an executor to when the driver was told of each in it",
        _reaction,
    ),
    Family(
        "executor_pods_start_duration_seconds",
        (),
        "How long the backend's start took, once it is done",
        _number(lambda counts: counts.backend.start_seconds),
    ),
    Family(
        "executor_pods_stop_duration_seconds",
        (),
        "How long its stop took, once it is done",
        _number(lambda counts: counts.backend.stop_seconds),
    ),
    Family("executor_pods_stopping", (), "1 while the backend stops", _flag(lambda status: status.stopping)),
    Family(
        "executor_pods_may_write",
        (),
        "1 while pods may be made and deleted: the lease is held, or none is used",
        _flag(lambda status: status.may_write),
    ),
    Family("executor_pods_lease_held", (), "1 while the lease is held", _flag(lambda status: status.lease_held)),
    Family("executor_pods_source_synced", ("source",), "1 while a source is in touch, having listed all", _synced),
    Family(
        "executor_pods_source_heard_age_seconds",
        ("source",),
        "Since a source last heard anything of the cluster",
        _heard_age,
    ),
    Family(
        "executor_pods_source_full_sync_age_seconds",
        ("source",),
        "Since a source asked for its last full sync",
        _full_sync_age,
    ),
    Family(
        "executor_pods_lists_total",
        ("source", "result"),
        "Lists of all executor pods that came whole: applied, or dropped as older than what is known",
        _tally(lambda counts: counts.store.lists),
    ),
    Family(
        "executor_pods_list_duration_seconds",
        ("source",),
        "From when such a list was asked for to when the store has it",
        _list_durations,
    ),
    Family(
        "executor_pods_watch_reads_total",
        (),
        "Reads of the watch, bookmarks included",
        _number(lambda counts: counts.store.reads),
    ),
    Family("executor_pods_watch_events_total", (), "Events of the watch", _number(lambda counts: counts.store.events)),
    Family(
        "executor_pods_batches_total",
        (),
        "Batches that the store sent to its subscribers",
        _number(lambda counts: counts.store.batches),
    ),
    Family(
        "executor_pods_history_resets_total",
        (),
        "How often the cluster's history went back, as after a restored backup",
        _number(lambda counts: counts.store.resets),
    ),
    Family(
        "executor_pods_malformed_pods_total",
        (),
        "Pods that were set aside as malformed",
        _number(lambda counts: counts.store.malformed),
    ),
    Family(
        "executor_pods_unreadable_pods_total",
        ("operation",),
        "Pods that could not be decoded and were left out, each time a list or a watch showed one",
        _tally(lambda counts: counts.api.unreadable),
    ),
    Family(
        "executor_pods_api_requests_total",
        ("operation", "result"),
        "Calls to the API that were answered: ok, or the error's class; of a watch how it ended",
        _tally(lambda counts: counts.api.results),
    ),
    Family(
        "executor_pods_api_requests_in_flight",
        ("operation",),
        "Calls to the API that are not answered yet; open watches",
        _in_flight,
    ),
    Family(
        "executor_pods_api_request_duration_seconds",
        ("operation",),
        "How long calls to the API took, but for watches",
        _api_durations,
    ),
    Family(
        "executor_pods_api_outage",
        (),
        "1 while no API server answers the requests for pods",
        _number(lambda counts: counts.pool.outage),
    ),
    Family(
        "executor_pods_requests_queued",
        (),
        "Requests that wait for a place, for the budget or for a server",
        _number(lambda counts: counts.pool.queued),
    ),
    Family(
        "executor_pods_requests_waiting",
        (),
        "Requests that wait for their next try",
        _number(lambda counts: counts.pool.waiting),
    ),
    Family(
        "executor_pods_request_retries_total",
        ("kind", "error"),
        "Requests to be tried again, by the error's class",
        _tally(lambda counts: counts.pool.retries),
    ),
    Family("executor_pods_actor_starts_total", ("actor",), "Starts of an actor, the first included", _actor_starts),
    Family(
        "executor_pods_actor_failures_total",
        ("actor", "cause"),
        "Actors that failed, by the error's class; Hung: abandoned, having been busy for too long",
        _tally(lambda counts: counts.backend.failures),
    ),
    Family("executor_pods_mailbox_depth", ("actor",), "Messages that wait for an actor, or for the driver", _depths),
    Family(
        "executor_pods_mailbox_high_water",
        ("actor",),
        "The most messages that ever waited for an actor since its start",
        _high_water,
    ),
    Family(
        "executor_pods_dead_letters_total",
        (),
        "Messages to an actor that has ended, of all fleets that share an ActorSystem",
        _number(lambda counts: counts.letters.total if counts.letters is not None else 0),
    ),
)
"""Everything that is exported, in the order of the page. The README's table is made of it."""
