"""A LIST of a whole fleet, from the request until an executor can be looked up."""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from tests.benchmarks.pods import APP_ID, NAMESPACE, name
from tests.benchmarks.serving import Serving

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from actors.runtime import Address

__all__ = ["PAGE", "measure", "snapshots"]

SAFETY_SECONDS: Final = 60.0
"""After this long a list has failed."""

PAGE: Final = 500
"""Pods of a page, as client-go asks for."""


def measure(who: str, *, pods: int, gzipped: bool = True) -> dict[str, float]:
    """Measure the second of two lists: the client is connected and warm."""
    with Serving(pods, gzipped=gzipped) as serving:
        return _CONTESTANTS[who](serving, pods)


def _timed(look: Callable[[], int], pods: int) -> dict[str, float]:
    look()
    began, cpu = time.monotonic(), time.process_time()
    found = look()
    figures = {"seconds": time.monotonic() - began, "cpu seconds": time.process_time() - cpu}
    assert found == pods, f"{found} of {pods} pods were listed"
    return figures


def _ours(serving: Serving, pods: int) -> dict[str, float]:
    with snapshots(serving.kubeconfig, NAMESPACE, streaming=False) as look:
        return _timed(look, pods)


@contextmanager
def snapshots(kubeconfig: Path, namespace: str, *, streaming: bool) -> Iterator[Callable[[], int]]:
    """Yield what lists the fleet anew, until a subscriber has the snapshot, and returns its size."""
    from actors import kube  # noqa: PLC0415 - each process loads what it measures
    from actors.messages.internal import (  # noqa: PLC0415 - see above
        AddSubscriber,
        BatchDone,
        SnapshotBatch,
        StartWatching,
    )
    from actors.pods.pod import fleet_selector  # noqa: PLC0415 - see above
    from actors.runtime import Actor, ActorSystem, Context  # noqa: PLC0415 - see above
    from actors.settings.model import Settings  # noqa: PLC0415 - see above
    from actors.sources.watch_source import WatchSource  # noqa: PLC0415 - see above
    from actors.store.snapshot_store import SnapshotStore  # noqa: PLC0415 - see above

    settings, system = Settings(app_id=APP_ID, source={"streaming_list": streaming}), ActorSystem()
    api = kube.connect(kubeconfig, namespace=namespace)
    shown = threading.Event()

    class Subscriber(Actor):
        size = 0

        def receive(self, message: object) -> None:
            if not isinstance(message, SnapshotBatch):
                return
            store.tell(BatchDone(self.address, message.seq))
            if message.full_sync:
                Subscriber.size = len(message.snapshot.states)
                shown.set()

    store: Address

    def look() -> int:
        nonlocal store
        shown.clear()
        subscriber = system.spawn(Subscriber, name="subscriber", owner=None)

        def store_of(context: Context) -> SnapshotStore:
            rules = settings.pod_rules
            return SnapshotStore(
                context, settings=settings, rules=rules, watch_source=subscriber, poll_source=subscriber
            )

        store = system.spawn(store_of, name="store", owner=None)
        store.tell(AddSubscriber(subscriber, timedelta(hours=1)))

        def watch_of(context: Context) -> WatchSource:
            return WatchSource(
                context,
                settings=settings,
                api=api,
                selector=fleet_selector(APP_ID),
                store=store,
                backend=subscriber,
            )

        watch = system.spawn(watch_of, name="watch", owner=None)
        watch.tell(StartWatching())
        assert shown.wait(SAFETY_SECONDS), "no snapshot"
        for each in (watch, store, subscriber):
            each.stop()
        return Subscriber.size

    yield look
    api.close()
    system.close()


def _kubernetes(serving: Serving, pods: int) -> dict[str, float]:
    from kubernetes import client, config  # noqa: PLC0415 - see above

    config.load_kube_config(str(serving.kubeconfig))
    core: Any = client.CoreV1Api()

    def look() -> int:
        found: dict[str, Any] = {}
        token = None
        while True:
            page = core.list_namespaced_pod(NAMESPACE, limit=PAGE, **({"_continue": token} if token else {}))
            found |= {pod.metadata.name: pod for pod in page.items}
            token = page.metadata._continue
            if not token:
                return len(found) if name(1) in found else 0

    return _timed(look, pods)


def _lightkube(serving: Serving, pods: int) -> dict[str, float]:
    from lightkube import Client, KubeConfig  # noqa: PLC0415 - see above
    from lightkube.resources.core_v1 import Pod  # noqa: PLC0415 - see above

    client = Client(KubeConfig.from_file(serving.kubeconfig), trust_env=False)

    def look() -> int:
        found = {pod.metadata.name: pod for pod in client.list(Pod, namespace=NAMESPACE, chunk_size=PAGE)}
        return len(found)

    return _timed(look, pods)


def _kr8s(serving: Serving, pods: int) -> dict[str, float]:
    import kr8s.asyncio  # noqa: PLC0415 - see above

    async def look() -> int:
        api = await kr8s.asyncio.api(kubeconfig=str(serving.kubeconfig), namespace=NAMESPACE)
        found = {pod.name: pod async for pod in api.get("pods", namespace=NAMESPACE)}
        return len(found)

    return _timed(lambda: asyncio.run(look()), pods)


_CONTESTANTS: Final[dict[str, Callable[[Serving, int], dict[str, float]]]] = {
    "ours": _ours,
    "kubernetes": _kubernetes,
    "lightkube": _lightkube,
    "kr8s": _kr8s,
}
