"""Which actors a Backend consists of: their names, their order, how each is made, and what its crash means.

The order is the order of dependence: each part tells things to those before it, and is restarted with them. The two
sources, and the lease keeper, have nothing that depends on them: each comes up alone when it crashes. Those that call
the API do it through a fence of their own, which is shut when they end: one that hangs is replaced, and may wake up.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from actors.allocation.allocator import Allocator
from actors.kube.fence import FencedPodApi
from actors.kube.retries import REFLECTOR
from actors.lease.lease_keeper import LeaseKeeper
from actors.lifecycle.lifecycle_manager import LifecycleManager
from actors.manifests.executor_pod import ExecutorManifests
from actors.messages.names import ALLOCATOR, LEASE, LIFECYCLE, POLL, POOL, STORE, WATCH
from actors.pods.pod import fleet_selector
from actors.requests.request_pool import RequestPool
from actors.runtime import Actor, Address, ChildSpec, Context
from actors.sources.poll_source import PollSource
from actors.sources.watch_source import WatchSource
from actors.store.snapshot_store import SnapshotStore

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from actors.kube.api import Manifest, PodApi
    from actors.metrics.counts import FleetCounts
    from actors.settings import Settings


__all__ = ["names", "specs"]

MAX_CRASHES: Final = 5
"""In a row, of one of the parts that hold state: then the fault is not a passing one, and the driver must know."""


def names(settings: Settings) -> tuple[str, ...]:
    """All that these settings need."""
    return (POOL, STORE, LIFECYCLE, ALLOCATOR, POLL, WATCH, *((LEASE,) if settings.uses_lease else ()))


def specs(
    settings: Settings,
    api: PodApi,
    *,
    owner: Manifest | None,
    identity: str,
    backend: Address,
    children: Mapping[str, Address],
    counts: FleetCounts,
    introduce: Callable[[str], None],
) -> tuple[ChildSpec, ...]:
    """The parts in the order of their start.

    `owner` is the driver's pod as an ownerReference, `identity` who we are in the lease. `introduce` sends a part what
    it must know, at each of its starts.
    """
    rules, app_id = settings.pod_rules, settings.app_id
    pool, store, watch = children[POOL], children[STORE], children[WATCH]
    selector = fleet_selector(app_id)
    manifests = ExecutorManifests(settings, namespace=api.namespace, owner=owner)
    limit, rate = settings.allocation.max_requests_in_flight, settings.allocation.max_requests_per_second
    fenced = partial(_fenced, api)

    def part(name: str, factory: Callable[[Context], Actor]) -> ChildSpec:
        return ChildSpec(name, factory, lambda _: introduce(name), backoff=REFLECTOR, limit=MAX_CRASHES)

    def source(name: str, factory: Callable[[Context], Actor]) -> ChildSpec:
        return ChildSpec(name, factory, lambda _: introduce(name), backoff=REFLECTOR, limit=None, isolated=True)

    keeper = source(LEASE, fenced(partial(LeaseKeeper, settings=settings, identity=identity, backend=backend)))
    return (
        part(POOL, fenced(partial(RequestPool, app_id=app_id, limit=limit, rate=rate, counts=counts.pool))),
        part(STORE, partial(SnapshotStore, settings=settings, rules=rules, watch_source=watch, counts=counts.store)),
        part(
            LIFECYCLE,
            partial(
                LifecycleManager,
                settings=settings,
                rules=rules,
                store=store,
                pool=pool,
                backend=backend,
                owner=owner,
            ),
        ),
        part(
            ALLOCATOR,
            partial(
                Allocator,
                settings=settings,
                manifests=manifests,
                store=store,
                pool=pool,
                backend=backend,
            ),
        ),
        source(POLL, fenced(partial(PollSource, settings=settings, selector=selector, store=store, backend=backend))),
        source(WATCH, fenced(partial(WatchSource, settings=settings, selector=selector, store=store, backend=backend))),
        *((keeper,) if settings.uses_lease else ()),
    )


def _fenced(api: PodApi, make: Callable[..., Actor]) -> Callable[[Context], Actor]:
    """What calls the API does so as long as it lives, and not a moment longer."""

    def make_fenced(context: Context) -> Actor:
        fence = FencedPodApi(api)
        actor = make(context, api=fence)
        actor.handle.at_end(fence.close)
        return actor

    return make_fenced
