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
from actors.messages import KeepLease, StartPolling, StartWatching
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
    from actors.settings.model import Settings


__all__ = ["specs"]

MAX_CRASHES: Final = 5
"""In a row, of one of the parts that hold state: then the fault is not a passing one, and the driver must know."""


def specs(
    settings: Settings,
    api: PodApi,
    *,
    owner: Manifest | None,
    identity: str,
    backend: Address,
    counts: FleetCounts,
    address: Callable[[str], Address],
    introduce: Mapping[str, Callable[[Address], None]],
) -> tuple[ChildSpec, ...]:
    """The parts in the order of their start.

    `owner` is the driver's pod as an ownerReference, `identity` who we are in the lease. `introduce` sends a part what
    it must know, at each of its starts.
    """
    rules, app_id = settings.pod_rules, settings.app_id
    pool, store, watch = address(POOL), address(STORE), address(WATCH)
    selector = fleet_selector(app_id)
    manifests = ExecutorManifests(settings, namespace=api.namespace, owner=owner)
    limit, rate = settings.allocation.max_requests_in_flight, settings.allocation.max_requests_per_second
    part = partial(ChildSpec, backoff=REFLECTOR, limit=MAX_CRASHES)
    source = partial(ChildSpec, backoff=REFLECTOR, limit=None, isolated=True)
    fenced = partial(_fenced, api)
    keeper = source(
        LEASE,
        fenced(partial(LeaseKeeper, settings=settings, identity=identity, backend=backend)),
        lambda lease: lease.tell(KeepLease()),
    )
    return (
        part(
            POOL,
            fenced(partial(RequestPool, app_id=app_id, limit=limit, rate=rate, counts=counts.pool)),
            introduce[POOL],
        ),
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
            introduce[LIFECYCLE],
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
            introduce[ALLOCATOR],
        ),
        source(
            POLL,
            fenced(partial(PollSource, settings=settings, selector=selector, store=store, backend=backend)),
            lambda poll: poll.tell(StartPolling()),
        ),
        source(
            WATCH,
            fenced(partial(WatchSource, settings=settings, selector=selector, store=store, backend=backend)),
            lambda watch: watch.tell(StartWatching()),
        ),
        *((keeper,) if settings.uses_lease else ()),
    )


def _fenced(api: PodApi, make: Callable[..., Actor]) -> Callable[[Context], Actor]:
    """What calls the API does so as long as it lives, and not a moment longer."""

    def make_fenced(context: Context) -> Actor:
        fence = FencedPodApi(api)
        actor = make(context, api=fence)
        actor.life.at_end(fence.close)
        return actor

    return make_fenced
