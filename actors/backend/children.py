"""The Backend's child actors: their order, how each is made, and what its crash means.

The order is that of dependence: a child sends messages to those before it, and is restarted with them. The lease keeper
and the event recorder come first, because they depend on nothing: the lease is renewed whatever is restarted. Nothing
depends on these two, nor on the sources: each restarts alone. A child that calls the API has a fence of its own. It is
closed when the child ends: a hung child that was replaced can send nothing when it continues.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

from actors.allocation.allocator import Allocator
from actors.kube.fence import FencedPodApi
from actors.kube.retries import REFLECTOR
from actors.lease.lease_keeper import LeaseKeeper
from actors.lease.record import lease_name
from actors.lifecycle.lifecycle_manager import LifecycleManager
from actors.manifests.executor_pod import ExecutorManifests
from actors.messages.internal.names import ALLOCATOR, LEASE, LIFECYCLE, POLL, POOL, RECORDER, STORE, WATCH
from actors.pods.pod import fleet_selector
from actors.recorder.event_recorder import EventRecorder
from actors.requests.request_pool import RequestPool
from actors.requests.token_bucket import TokenBucket
from actors.runtime import Actor, Address, ChildSpec, Context
from actors.sources.poll_source import PollSource
from actors.sources.watch_source import WatchSource
from actors.store.snapshot_store import SnapshotStore

if TYPE_CHECKING:
    from collections.abc import Mapping

    from actors.kube.api import Manifest, PodApi
    from actors.lease.marks import Marks
    from actors.metrics.counts import FleetCounts
    from actors.settings import Settings


__all__ = ["MOVABLE", "Maker", "makers", "names", "specs"]

Maker: TypeAlias = Callable[[Context], Actor]

MOVABLE: Final = (POOL, STORE, LIFECYCLE, ALLOCATOR, POLL, WATCH)
"""Those that observe the fleet and write to it: all of them may run in another process than the Backend."""

SOURCES: Final = (POLL, WATCH)
"""Nothing depends on them."""

MAX_CRASHES: Final = 5
"""Crashes in a row of a child with state, after which the backend fails: the fault does not pass by itself."""


EVENTS_PER_SECOND: Final = 0.1
EVENTS_AT_ONCE: Final = 10
"""Writes of Kubernetes Events, in the long run and after a pause. What occurs faster is counted in fewer writes."""


def names(settings: Settings) -> tuple[str, ...]:
    """Return the names of the children that these settings need."""
    lease = (LEASE,) if settings.uses_lease else ()
    recorder = (RECORDER,) if settings.records_events else ()
    return (*lease, *recorder, *MOVABLE)


def makers(
    settings: Settings,
    api: PodApi,
    *,
    owners: tuple[Manifest, ...],
    backend: Address,
    children: Mapping[str, Address],
    counts: FleetCounts,
) -> Mapping[str, Maker]:
    """Return what makes each child that observes the fleet or writes to it, in the order of their start.

    `owners` are those of the executors, as ownerReferences. These may run in another process than the Backend. Which
    `counts` an actor continues is decided when it is made: after that process they are those that it has counted.
    """
    rules, app_id = settings.pod_rules, settings.app_id
    pool, store, lifecycle = children[POOL], children[STORE], children[LIFECYCLE]
    poll, watch = children[POLL], children[WATCH]
    selector = fleet_selector(app_id)
    manifests = ExecutorManifests(settings, namespace=api.namespace, owners=owners)
    fenced = partial(_fenced, api)

    def make_pool(context: Context, *, api: PodApi) -> Actor:
        return RequestPool(
            context,
            api=api,
            app_id=app_id,
            limit=settings.allocation.max_requests_in_flight,
            repeat_interval=settings.executor.api_polling_interval,
            rate=settings.allocation.max_requests_per_second,
            counts=counts.pool,
            max_retry_after=settings.api.max_retry_after,
        )

    def make_store(context: Context) -> Actor:
        return SnapshotStore(
            context, settings=settings, rules=rules, watch_source=watch, poll_source=poll, counts=counts.store
        )

    return {
        POOL: fenced(make_pool),
        STORE: make_store,
        LIFECYCLE: partial(
            LifecycleManager,
            settings=settings,
            rules=rules,
            namespace=api.namespace,
            store=store,
            pool=pool,
            backend=backend,
            owners=owners,
        ),
        ALLOCATOR: partial(
            Allocator,
            settings=settings,
            manifests=manifests,
            store=store,
            pool=pool,
            lifecycle=lifecycle,
            backend=backend,
        ),
        POLL: fenced(partial(PollSource, settings=settings, selector=selector, store=store, backend=backend)),
        WATCH: fenced(partial(WatchSource, settings=settings, selector=selector, store=store, backend=backend)),
    }


def specs(
    settings: Settings,
    api: PodApi,
    *,
    owners: tuple[Manifest, ...],
    identity: str,
    marks: Marks,
    backend: Address,
    children: Mapping[str, Address],
    counts: FleetCounts,
    introduce: Callable[[str], None],
    place: Callable[[Mapping[str, Maker], tuple[Manifest, ...]], Mapping[str, Maker]],
) -> tuple[ChildSpec, ...]:
    """Return the specs of the children in the order of their start.

    `owners` are those of the executors, the driver's pod first. `identity` is our name in the lease, `marks` what shows
    that we have ended. `introduce` sends a child its first messages, at each of its starts. `place` decides where the
    children run that observe and write.
    """
    app_id = settings.app_id
    fenced = partial(_fenced, api)

    def linked(name: str, factory: Maker) -> ChildSpec:
        return ChildSpec(name, factory, lambda _: introduce(name), backoff=REFLECTOR, limit=MAX_CRASHES)

    def leaf(name: str, factory: Maker) -> ChildSpec:
        return ChildSpec(name, factory, lambda _: introduce(name), backoff=REFLECTOR, limit=None, isolated=True)

    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "name": lease_name(app_id)}
    make_keeper = partial(LeaseKeeper, settings=settings, identity=identity, marks=marks, backend=backend)
    recorder = leaf(
        RECORDER,
        fenced(
            partial(
                EventRecorder,
                app_id=app_id,
                about=owners[0] if owners else lease,
                instance=identity,
                pace=TokenBucket(EVENTS_PER_SECOND, burst=EVENTS_AT_ONCE).spend,
            )
        ),
    )
    made = makers(settings, api, owners=owners, backend=backend, children=children, counts=counts)
    return (
        *((leaf(LEASE, fenced(make_keeper)),) if settings.uses_lease else ()),
        *((recorder,) if settings.records_events else ()),
        *((leaf if name in SOURCES else linked)(name, make) for name, make in place(made, owners).items()),
    )


def _fenced(api: PodApi, make: Callable[..., Actor]) -> Maker:
    """Give an actor a fence to the API that is closed when the actor ends."""

    def make_fenced(context: Context) -> Actor:
        fence = FencedPodApi(api)
        actor = make(context, api=fence)
        actor.handle.at_end(fence.close)
        return actor

    return make_fenced
