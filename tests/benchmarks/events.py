"""A stream of events, from the socket to the receiver: us, our peers, and the least that anyone must do."""

from __future__ import annotations

import asyncio
import itertools
import resource
import socket
import subprocess
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from tests.benchmarks.peers.programs import built
from tests.benchmarks.pods import FIRST_VERSION, NAMESPACE
from tests.benchmarks.processor import used
from tests.benchmarks.serving import Serving

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["CONTESTANTS", "measure"]

PATH: Final = f"/api/v1/namespaces/{NAMESPACE}/pods?watch=true&resourceVersion={FIRST_VERSION}"


class _Stream:
    """Starts the stream once a client watches, and stops the clock when the last event has arrived."""

    def __init__(self, serving: Serving, count: int) -> None:
        self._serving = serving
        self._count = count
        self._cpu_now: Callable[[], tuple[float, float]] = _cpu
        self._cpu = _cpu()

    def watched_by(self, pid: int) -> None:
        """Count the processor time of another process."""
        self._cpu_now = partial(used, pid)

    def begin(self) -> None:
        """Start the stream; the caller watches, or is about to."""
        self._serving.ask("watched")
        self._cpu = self._cpu_now()
        self._serving.order("stream", count=self._count)

    def begin_aside(self) -> None:
        """Start the stream for a caller that watches from now on."""
        threading.Thread(target=self.begin, daemon=True).start()

    def end(self, at: float | None = None) -> dict[str, float]:
        """Return the figures: the last event arrived at `at`, or now."""
        at = time.monotonic() if at is None else at
        user, kernel = (now - then for now, then in zip(self._cpu_now(), self._cpu, strict=True))
        sent = self._serving.answer()
        seconds = at - sent["began"]
        return {
            "events/s": self._count / seconds,
            "cpu µs/event": (user + kernel) / self._count * 1e6,
            "of it kernel": kernel / self._count * 1e6,
            "server µs/event": sent["cpu"] / self._count * 1e6,
        }


def _cpu() -> tuple[float, float]:
    """Return this process's seconds in user code and in the kernel."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime, usage.ru_stime


def measure(
    who: str, *, pods: int, count: int, joined: bool = False, changed: bool = False, shuffled: bool = False
) -> dict[str, float]:
    """Measure `count` events of a fleet: no-ops, as nearly all events of running pods are, or changes."""
    with Serving(pods, joined=joined, changed=changed, shuffled=shuffled) as serving:
        return CONTESTANTS[who](serving, pods, _Stream(serving, count))


def _ours(serving: Serving, pods: int, stream: _Stream) -> dict[str, float]:
    from tests.benchmarks.ours import Fleet, connect  # noqa: PLC0415 - each process loads what it measures

    with Fleet(connect(serving), pods) as fleet:
        stream.begin()
        return stream.end(fleet.until_removed(pods))


def _shared_informer(serving: Serving, pods: int, stream: _Stream) -> dict[str, float]:
    from kubernetes import client, config  # noqa: PLC0415 - see above
    from kubernetes.informer import MODIFIED, SharedInformer  # noqa: PLC0415 - see above

    config.load_kube_config(str(serving.kubeconfig))
    ended = threading.Event()

    def heard(pod: Any) -> None:
        if pod.status.phase == "Failed":
            ended.set()

    informer = SharedInformer(client.CoreV1Api().list_namespaced_pod, namespace=NAMESPACE)
    informer.add_event_handler(MODIFIED, heard)
    informer.start()
    stream.begin()
    ended.wait()
    assert len(informer.cache.list_keys()) == pods
    return stream.end()


def _lightkube(serving: Serving, _pods: int, stream: _Stream) -> dict[str, float]:
    from lightkube import Client, KubeConfig  # noqa: PLC0415 - see above
    from lightkube.resources.core_v1 import Pod  # noqa: PLC0415 - see above

    client = Client(KubeConfig.from_file(serving.kubeconfig), trust_env=False)
    stream.begin_aside()
    for _, pod in client.watch(Pod, namespace=NAMESPACE, resource_version=str(FIRST_VERSION)):
        if pod.status is not None and pod.status.phase == "Failed":
            return stream.end()
    raise AssertionError("the watch ended")


def _kr8s(serving: Serving, _pods: int, stream: _Stream) -> dict[str, float]:
    import kr8s.asyncio  # noqa: PLC0415 - see above

    async def watch() -> dict[str, float]:
        api = await kr8s.asyncio.api(kubeconfig=str(serving.kubeconfig), namespace=NAMESPACE)
        stream.begin_aside()
        async for _, pod in api.async_watch("pods", since=str(FIRST_VERSION)):
            if pod.status.phase == "Failed":
                return stream.end()
        raise AssertionError("the watch ended")

    return asyncio.run(watch())


def _kopf(serving: Serving, pods: int, stream: _Stream) -> dict[str, float]:
    import kopf  # noqa: PLC0415 - see above

    figures: dict[str, float] = {}
    listed = itertools.count(1)
    registry, settings, ended = kopf.OperatorRegistry(), kopf.OperatorSettings(), threading.Event()
    settings.scanning.disabled = True  # otherwise kopf also watches namespaces and resource definitions
    settings.posting.enabled = False

    def login(**_: Any) -> kopf.ConnectionInfo:
        return kopf.ConnectionInfo(server=serving.url, token="bench")

    async def heard(body: Any, type: str | None, **_: Any) -> None:  # noqa: A002 - kopf's name
        if type is None and next(listed) == pods:
            stream.begin_aside()
        if body["status"]["phase"] == "Failed":
            figures.update(stream.end())
            ended.set()

    kopf.on.login(registry=registry)(login)
    kopf.on.event("pods", registry=registry)(heard)
    asyncio.run(
        kopf.operator(registry=registry, settings=settings, namespaces=[NAMESPACE], standalone=True, stop_flag=ended)
    )
    return figures


def _program(language: str) -> Callable[[Serving, int, _Stream], dict[str, float]]:
    """Measure a program of `peers`, in a process of its own."""

    def measured(serving: Serving, _pods: int, stream: _Stream) -> dict[str, float]:
        command = [str(built(language)), str(serving.kubeconfig), NAMESPACE]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as peer:
            assert peer.stdout is not None
            stream.watched_by(peer.pid)
            assert peer.stdout.readline() == "watching\n", "it ended before it watched"
            stream.begin()
            assert peer.stdout.readline() == "ended\n", "it ended before the stream did"
            return stream.end()

    return measured


def _decoding(serving: Serving, _pods: int, stream: _Stream) -> dict[str, float]:
    """Measure urllib3, line splitting and msgspec into our `Pod`: everything but actors, merge and snapshots."""
    import urllib3  # noqa: PLC0415 - see above

    from actors.kube.deduplication import PodDeduplicator  # noqa: PLC0415 - see above
    from actors.kube.http.decode import Complaints  # noqa: PLC0415 - see above
    from actors.kube.http.watch_lines import LineSplitter, WatchDecoder  # noqa: PLC0415 - see above

    response = urllib3.PoolManager().request("GET", serving.url + PATH, preload_content=False)
    splitter, decoder = LineSplitter(), WatchDecoder(str(FIRST_VERSION), Complaints(), PodDeduplicator())
    stream.begin_aside()
    while data := response.read1(64 * 1024):
        for read in [read for lines in splitter.feed(data) for read in decoder.decode(lines)[0]]:
            for event in read.events:
                if event.pod.status is not None and event.pod.status.phase == "Failed":
                    return stream.end()
    raise AssertionError("the watch ended")


def _bytes(serving: Serving, _pods: int, stream: _Stream) -> dict[str, float]:
    """Measure reading the socket and nothing else: what the server can send."""
    with socket.create_connection(("127.0.0.1", serving.port)) as connection:
        connection.sendall(f"GET {PATH} HTTP/1.1\r\nHost: bench\r\n\r\n".encode())
        stream.begin_aside()
        tail = b""
        while data := connection.recv(256 * 1024):
            tail = (tail + data)[-8192:]
            if b'"Failed"' in tail:
                return stream.end()
    raise AssertionError("the watch ended")


CONTESTANTS: Final[dict[str, Callable[[Serving, int, _Stream], dict[str, float]]]] = {
    "ours": _ours,
    "SharedInformer": _shared_informer,
    "lightkube": _lightkube,
    "kr8s": _kr8s,
    "kopf": _kopf,
    "client-go": _program("go"),
    "kube-rs": _program("rust"),
    "decoding only": _decoding,
    "bytes only": _bytes,
}
