"""A Prometheus collector for fleets, for a registry of the driver's choice.

At each scrape, and at no other time, it reads the counters and asks each Backend for its status. A Backend that has
ended or does not answer costs the scrape only its status; the counters stay. No label holds a pod's name, an id or text
of the API, so profiles of the settings and kinds bound the number of series.

Imported only on request: nothing else in the library needs `prometheus_client`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, final

from actors.errors import needs_extra
from actors.messages import FleetStatus, GetFleetStatus
from actors.runtime.instruments import BOUNDS, Histogram

with needs_extra("metrics", "PrometheusMetrics"):
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
    from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry, Metric

    from actors.messages import ProfileStatus, SourceStatus
    from actors.metrics.counts import FleetCounts
    from actors.runtime import Address
    from actors.runtime.instruments import Counter as Count

__all__ = ["FAMILIES", "Family", "PrometheusMetrics"]

ANSWER_WITHIN: Final = timedelta(seconds=2)
"""A Backend answers in milliseconds. Prometheus waits for ten seconds, and there may be several Backends."""

KEPT: Final = 16
"""Ended fleets that are still exported: a process that starts one fleet after another must not grow."""

Ask: TypeAlias = Callable[["Address", GetFleetStatus], FleetStatus]


@dataclass(frozen=True, slots=True)
class _View:
    """One fleet at one scrape."""

    counts: FleetCounts
    status: FleetStatus | None
    """None if the Backend has ended or did not answer."""


_Samples: TypeAlias = Iterable[tuple[tuple[str, ...], float | Histogram]]
_Read: TypeAlias = Callable[[_View], _Samples]


@dataclass(frozen=True, slots=True)
class Family:
    """One metric family."""

    name: str
    labels: tuple[str, ...]
    """In addition to `app_id`."""
    help: str
    read: _Read

    @property
    def kind(self) -> Literal["counter", "gauge", "histogram"]:
        """A counter's name ends in `_total`."""
        if self.name.endswith("_total"):
            return "counter"
        return "histogram" if self.name.endswith(_HISTOGRAMS) else "gauge"

    def metric(self, views: Iterable[_View]) -> Metric:
        """Return the metric with the samples of these fleets."""
        names = ("app_id", *self.labels)
        metric: CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily
        match self.kind:
            case "counter":
                metric = CounterMetricFamily(self.name, self.help, labels=names)
            case "gauge":
                metric = GaugeMetricFamily(self.name, self.help, labels=names)
            case "histogram":
                metric = HistogramMetricFamily(self.name, self.help, labels=names)
        for view in views:
            for values, found in self.read(view):
                labels = (view.counts.app_id, *values)
                if isinstance(metric, HistogramMetricFamily):
                    assert isinstance(found, Histogram)
                    reached, total = found.read()
                    metric.add_metric(labels, list(zip((*map(str, BOUNDS), "+Inf"), reached, strict=True)), total)
                else:
                    assert not isinstance(found, Histogram)
                    metric.add_metric(labels, found)
        return metric


@final
class PrometheusMetrics(Collector):
    """The collector of all Backends of a process; the label `app_id` tells them apart.

    Pass it to `Backend.start(..., metrics=...)`. A Backend with the `app_id` of an earlier one replaces it; `forget`
    removes one.
    """

    def __init__(self, registry: CollectorRegistry | None = None, *, ask: Ask | None = None) -> None:
        """Register with `registry`, if one is given. `ask` is for tests."""
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
        """Stop exporting this fleet."""
        self._fleets.pop(app_id, None)

    def describe(self) -> Iterable[Metric]:
        """Return all families without samples, so that registering asks no Backend."""
        return [family.metric(()) for family in FAMILIES]

    def collect(self) -> Iterable[Metric]:
        """Scrape all fleets, on any thread."""
        views = [_View(fleet, self._status(fleet)) for fleet in self._fleets.copy().values()]
        return [family.metric(views) for family in FAMILIES]

    def _status(self, fleet: FleetCounts) -> FleetStatus | None:
        try:
            return self._ask(fleet.addresses["backend"], GetFleetStatus())
        except Exception:  # noqa: BLE001 - ended, busy or crashed: its owner is notified elsewhere
            return None


def _ask(backend: Address, question: GetFleetStatus) -> FleetStatus:
    status = backend.ask(question, ANSWER_WITHIN)
    assert isinstance(status, FleetStatus)
    return status


# ── From the status ──────────────────────────────────────────────────────────────────────────────────────────────


def _up(view: _View) -> _Samples:
    yield (), view.status is not None


def _from_status(samples: Callable[[FleetStatus], _Samples]) -> _Read:
    """Without a status there are no samples."""
    return lambda view: samples(view.status) if view.status is not None else ()


def _flag(of: Callable[[FleetStatus], bool]) -> _Read:
    return _from_status(lambda status: [((), of(status))])


def _labelled(view: _View) -> Iterable[tuple[str, ProfileStatus]]:
    """Return each profile's status with its label, which several profiles of strangers share."""
    profiles = view.status.profiles if view.status is not None else {}
    return [(view.counts.backend.label(name), profile) for name, profile in profiles.items()]


def _profiles(of: Callable[[ProfileStatus], int]) -> _Read:
    def samples(view: _View) -> _Samples:
        sums = Counter[str]()
        for label, profile in _labelled(view):
            sums[label] += of(profile)
        return [((label,), total) for label, total in sums.items()]

    return samples


def _executors(view: _View) -> _Samples:
    sums = Counter[tuple[str, str]]()
    for label, profile in _labelled(view):
        sums[label, "requested"] += profile.requested
        sums[label, "pending"] += profile.pending
        sums[label, "running"] += profile.running
        sums[label, "terminating"] += profile.terminating
    return sums.items()


def _blocked(view: _View) -> _Samples:
    blocked = {(label, profile.blocked_by) for label, profile in _labelled(view) if profile.blocked_by is not None}
    return [(labels, 1) for labels in sorted(blocked)]


def _sources(of: Callable[[SourceStatus], bool | timedelta | None]) -> _Read:
    def samples(status: FleetStatus) -> _Samples:
        for name, source in status.sources.items():
            if (found := of(source)) is not None:
                yield (name,), found.total_seconds() if isinstance(found, timedelta) else found

    return _from_status(samples)


# ── From the counters ────────────────────────────────────────────────────────────────────────────────────────────


def _tally(of: Callable[[FleetCounts], Count]) -> _Read:
    return lambda view: of(view.counts).read().items()


def _number(of: Callable[[FleetCounts], float | Histogram | None]) -> _Read:
    return lambda view: [((), found)] if (found := of(view.counts)) is not None else []


def _each(of: Callable[[FleetCounts], Mapping[str, float | Histogram]]) -> _Read:
    return lambda view: [((name,), found) for name, found in of(view.counts).items()]


def _actors(of: Callable[[Address], int]) -> _Read:
    """Only the library's actors: of the driver only the mailbox depth is known."""
    return _each(lambda counts: {name: of(each) for name, each in counts.addresses.items() if name != "driver"})


_FAMILIES: Final[tuple[tuple[str, str, str, _Read], ...]] = (
    ("up", "", "1 while the backend answers", _up),
    ("target_executors", "profile", "Desired number of executors", _profiles(lambda p: p.target)),
    ("executors", "profile state", "Executors by state: requested, pending, running, terminating", _executors),
    ("registered_executors", "profile", "Executors that the driver registered", _profiles(lambda p: p.registered)),
    (
        "allocation_blocked",
        "profile cause",
        "1 while creation is blocked, by its cause",
        _blocked,
    ),
    (
        "start_failures",
        "profile",
        "Executors that failed to start, as far as they still count",
        _profiles(lambda p: p.start_failures),
    ),
    ("executors_requested_total", "profile", "Executors requested", _tally(lambda c: c.backend.requested)),
    (
        "executors_more_memory_total",
        "profile",
        "Executors requested with more memory, as one was killed for its memory",
        _tally(lambda c: c.backend.more_memory),
    ),
    ("executors_running_total", "profile", "Executors that started to run", _tally(lambda c: c.backend.running)),
    (
        "executors_removed_total",
        "profile kind",
        "Executors removed, by kind of loss",
        _tally(lambda c: c.backend.removed),
    ),
    ("executors_stuck_total", "profile", "Executors reported stuck, once per cause", _tally(lambda c: c.backend.stuck)),
    (
        "reaction_seconds",
        "",
        "From the first end of an executor in a batch to the driver's notification of each in it",
        _number(lambda c: c.backend.reaction),
    ),
    (
        "start_duration_seconds",
        "",
        "Duration of the backend's start, once it is done",
        _number(lambda c: c.backend.start_seconds),
    ),
    (
        "stop_duration_seconds",
        "",
        "Duration of the backend's stop, once it is done",
        _number(lambda c: c.backend.stop_seconds),
    ),
    ("stopping", "", "1 while the backend stops", _flag(lambda s: s.stopping)),
    (
        "may_write",
        "",
        "1 while pods may be created and deleted: the lease is held, or none is used",
        _flag(lambda s: s.may_write),
    ),
    ("lease_held", "", "1 while the lease is held", _flag(lambda s: s.lease_held)),
    ("source_synced", "source", "1 while a source is connected and has listed all pods", _sources(lambda s: s.synced)),
    (
        "source_heard_age_seconds",
        "source",
        "Since a source last received anything from the cluster",
        _sources(lambda s: s.since_heard),
    ),
    (
        "source_full_sync_age_seconds",
        "source",
        "Since a source requested its last full sync",
        _sources(lambda s: s.since_full_sync),
    ),
    (
        "lists_total",
        "source result",
        "Complete lists of executor pods: applied, or dropped as outdated",
        _tally(lambda c: c.store.lists),
    ),
    (
        "list_duration_seconds",
        "source",
        "From the request of a complete list to its arrival in the store",
        _each(lambda c: c.store.list_durations.copy()),
    ),
    ("watch_reads_total", "", "Reads of the watch, bookmarks included", _number(lambda c: c.store.reads)),
    ("watch_events_total", "", "Events of the watch", _number(lambda c: c.store.events)),
    ("batches_total", "", "Batches that the store sent to its subscribers", _number(lambda c: c.store.batches)),
    (
        "history_resets_total",
        "",
        "Times that the cluster's history went back, as after a restored backup",
        _number(lambda c: c.store.resets),
    ),
    ("malformed_pods_total", "", "Pods set aside as malformed", _number(lambda c: c.store.malformed)),
    (
        "unreadable_pods_total",
        "operation",
        "Pods of a list or a watch that could not be decoded",
        _tally(lambda c: c.requests().unreadable),
    ),
    (
        "api_requests_total",
        "operation result",
        "Answered calls to the API: ok, or the error's class; for a watch its end",
        _tally(lambda c: c.requests().results),
    ),
    (
        "api_requests_in_flight",
        "operation",
        "Calls to the API without an answer yet; open watches",
        _each(lambda c: c.requests().in_flight()),
    ),
    (
        "api_request_duration_seconds",
        "operation",
        "Duration of calls to the API, without watches",
        _each(lambda c: c.requests().durations()),
    ),
    ("api_outage", "", "1 while no API server answers requests for pods", _number(lambda c: c.pool.outage)),
    (
        "requests_queued",
        "",
        "Requests that wait for a slot, for the rate limit or for a server",
        _number(lambda c: c.pool.queued),
    ),
    ("requests_waiting", "", "Requests that wait for their next attempt", _number(lambda c: c.pool.waiting)),
    (
        "request_retries_total",
        "kind error",
        "Requests to be retried, by the error's class",
        _tally(lambda c: c.pool.retries),
    ),
    ("actor_starts_total", "actor", "Starts of an actor, the first included", _actors(lambda a: a.incarnation)),
    (
        "actor_failures_total",
        "actor cause",
        "Actors that failed, by the error's class; Hung: replaced after one message took too long",
        _tally(lambda c: c.backend.failures),
    ),
    (
        "mailbox_depth",
        "actor",
        "Messages that wait for an actor, or for the driver",
        _each(lambda c: {name: backlog.depth for name, backlog in c.mailboxes().items()}),
    ),
    (
        "mailbox_high_water",
        "actor",
        "Most messages that ever waited for an actor since its start",
        _each(lambda c: {name: backlog.high_water for name, backlog in c.mailboxes().items() if name != "driver"}),
    ),
    (
        "dead_letters_total",
        "",
        "Messages to ended actors, of all fleets that share an ActorSystem",
        _number(lambda c: c.dead_letters()),
    ),
)
"""Name without `executor_pods_`, labels, help and reader of each metric, in the order of the page."""

_HISTOGRAMS: Final = ("reaction_seconds", "list_duration_seconds", "request_duration_seconds")

FAMILIES: Final = tuple(
    Family(f"executor_pods_{name}", tuple(labels.split()), text, read) for name, labels, text, read in _FAMILIES
)
"""Everything that is exported, in the order of the page. The table of metrics in the documentation is made of it."""
