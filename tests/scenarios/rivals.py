"""Drivers of one `app_id` on one cluster, each with a backend, a system and a connection of its own, in virtual time.

An oracle stands at the cluster's door: it sees every write when it arrives, and whose the Lease is then. A driver's
process can be paused: its actors, timers and workers stand still, while the cluster and the network go on.
"""

from __future__ import annotations

from datetime import timedelta
from itertools import count
from typing import TYPE_CHECKING, Any, TypeVar

from actors import kube
from actors.backend.backend import Backend
from actors.kube.api import EVENTS, LEASES
from actors.kube.calls import OpenCall, OpenCalls
from actors.lease.record import lease_name
from actors.local.inprocess import InProcessPodApi
from actors.local.kubelet.scripted_kubelet import ScriptedKubelet
from actors.local.schema.statuses import ApiStatus
from actors.local.store.object_store import ObjectStore
from actors.messages import BackendStopped, RequestTotalExecutors, StopBackend
from actors.metrics.prometheus import PrometheusMetrics
from actors.runtime import ActorSystem, Address, Context, Entropy, StoppedByHost
from actors.settings.model import Settings
from actors.testing import Kit
from tests.scenarios.invariants import Invariants
from tests.scenarios.world import Driver, WatchedApi

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import Self

    from actors.kube.api import Call, Manifest, PodApi, Reply, Resource, WatchSink
    from actors.runtime import Actor, Clock, Scheduled, TimerService

A = TypeVar("A")
M = TypeVar("M")

APP_ID = "app"
LATENCY = timedelta(milliseconds=5)
WORKER = timedelta(milliseconds=1)
"""How long a request waits for a worker."""
WRITES = frozenset({"create", "delete", "deletecollection", "patch"})


class Door(InProcessPodApi):
    """Tells of each write of anything but a Lease when it arrives; knows the names under which its client keeps one.

    A call that is cancelled is not taken back: its bytes are on their way.
    """

    arrived: Callable[[str], None]
    names: set[str]

    def right(self, verb: str, resource: Resource) -> None:
        """Every call comes by here when it reaches the cluster."""
        super().right(verb, resource)
        if verb in WRITES and resource not in {EVENTS, LEASES}:
            self.arrived(f"{verb} {resource.plural}")

    def send(self, request: kube.Request[Any], reply: kube.Reply[Any]) -> Call:
        """See `PodApi`."""
        match request:
            case kube.CreateObject(resource, manifest):
                self._learn(resource, manifest)
            case kube.PatchObject(resource, _, patch):
                self._learn(resource, patch)
            case _:
                pass
        call: OpenCall[Any] = OpenCall(f"the {request.operation}", reply, self.calls)
        super().send(request, call.complete)
        return call

    def _learn(self, resource: Resource, manifest: Manifest) -> None:
        if resource == LEASES and manifest["spec"]["holderIdentity"]:
            self.names.add(manifest["spec"]["holderIdentity"])


class ProcessTimers:
    """The timers of one process. While it is paused, those that are due wait."""

    def __init__(self, timers: TimerService) -> None:
        self._timers = timers
        self._paused = False
        self._due: list[Callable[[], None]] = []

    def schedule(self, delay: timedelta, callback: Callable[[], None]) -> Scheduled:
        """See `TimerService`."""
        timer = _ProcessTimer(self, callback)
        timer.scheduled = self._timers.schedule(delay, timer.fire)
        return timer

    def fire(self, callback: Callable[[], None]) -> None:
        """Call a callback that is due, once the process runs."""
        if self._paused:
            self._due.append(callback)
        else:
            callback()

    def pause(self) -> None:
        """Hold back what is due."""
        self._paused = True

    def resume(self) -> None:
        """Call what was held back, in order."""
        self._paused = False
        due, self._due = self._due, []
        for callback in due:
            callback()


class _ProcessTimer:
    scheduled: Scheduled

    def __init__(self, process: ProcessTimers, callback: Callable[[], None]) -> None:
        self._process = process
        self._callback = callback
        self._cancelled = False

    def fire(self) -> None:
        self._process.fire(self._call)

    def _call(self) -> None:
        if not self._cancelled:
            self._callback()

    def cancel(self) -> None:
        self._cancelled = True
        self.scheduled.cancel()


class Workers:
    """The worker threads of the real client. While they are busy, every other request is sent a moment later."""

    def __init__(self, api: PodApi, timers: TimerService) -> None:
        self.namespace = api.namespace
        self._api = api
        self._timers = timers
        self._calls = OpenCalls()
        self._requests = count()
        self.busy = False

    def send(self, request: kube.Request[A], reply: Reply[A]) -> Call:
        """See `PodApi`."""
        call: OpenCall[A] = OpenCall(f"the {request.operation}", reply, self._calls)

        def sent() -> None:
            if not call.done:
                call.depends_on(self._api.send(request, call.complete))

        if self.busy and next(self._requests) % 2:
            call.depends_on(self._timers.schedule(WORKER, sent))
        else:
            sent()
        return call

    def watch(self, request: kube.Watch, sink: WatchSink) -> Call:
        """See `PodApi`."""
        return self._api.watch(request, sink)

    def close(self) -> None:
        """See `PodApi`."""
        self._calls.close()
        self._api.close()


class Rival:
    """One driver's process."""

    def __init__(self, rivals: Rivals, name: str, settings: Settings, clock: Clock) -> None:
        self.name = name
        self._rivals = rivals
        self.kit = kit = rivals.kit
        self.settings = settings
        self.timers = ProcessTimers(kit.timers)
        self.system = ActorSystem(clock, self.timers, kit.entropy.fork(name), kit.dispatcher)
        self.door = Door(rivals.store, "default", kit.timers, LATENCY)
        self.door.names = set()
        self.door.arrived = lambda what: rivals.arrived(self, what)
        self.api = WatchedApi(self.door, kit.timers, kit.entropy.fork(f"faults of {name}"))
        self.api.asked, self.api.clock = [], kit.clock
        self.api.asked_for, self.api.asked_to_go = rivals.asked_for, rivals.asked_to_go
        self.metrics = PrometheusMetrics(ask=kit.ask)
        self.wrote: list[str] = []
        """Everything that it wrote into the cluster, as `create pods`."""
        self.story = Invariants(kit.clock)
        self.story.retarget(settings.executor.instances)
        self.story.watch(rivals.store)
        made: list[Driver] = []

        def make(context: Context) -> Driver:
            made.append(Driver(context, self.story))
            return made[0]

        self.address = self.system.spawn(make, name="driver", owner=None)
        self.driver = made[0]

    def start(self) -> None:
        """Its backend begins."""
        self.workers = Workers(self.api, self.timers)
        self.backend = Backend.start(
            self.settings, self.address, self.workers, system=self.system, metrics=self.metrics
        )
        self.kit.settle()

    def heard(self, kind: type[M]) -> list[M]:
        """Everything of a kind that the driver was told, in order."""
        return [message for message in self.driver.heard if isinstance(message, kind)]

    def part(self, name: str) -> Address:
        """One of its backend's actors."""
        return next(actor.address for actor in self.actors() if actor.name == name)

    def crash(self, name: str) -> None:
        """One of its backend's actors dies of a message that it cannot handle."""
        self.part(name).tell(object())
        self.kit.settle()

    def target(self, total: int) -> None:
        """The driver asks for this many; whoever writes, there may be so many."""
        for rival in self._rivals.drivers:
            rival.story.retarget(total)
        self.backend.tell(RequestTotalExecutors(total))

    def stop(self, *, delete_pods: bool | None = None, within: float = 40) -> BackendStopped:
        """The driver stops its backend, in order."""
        self.backend.tell(StopBackend(delete_pods))
        self.kit.advance(timedelta(seconds=within))
        (stopped,) = self.heard(BackendStopped)
        return stopped

    def kill(self) -> None:
        """The process dies: nothing is said, stopped or let go of."""
        actors = self.actors()
        for actor in sorted(actors, key=lambda actor: actor.name != "backend"):
            actor.handle.end(StoppedByHost("the process was killed"), abandon=True)

    def pause(self) -> None:
        """The process stands still, as after SIGSTOP. What it has sent arrives."""
        self.timers.pause()
        self.kit.dispatcher.pause(self.actors())

    def resume(self) -> None:
        """The process goes on, as after SIGCONT. The timers that are due come first, each time in the same order."""
        self.kit.dispatcher.resume()
        self.timers.resume()
        self.kit.settle()

    def actors(self) -> list[Actor]:
        """Those of its process."""
        return [actor for actor in self.kit.dispatcher.actors if actor.context.system is self.system]


class Rivals:
    """The cluster, the drivers, and what must never be. A context manager, as `World` is."""

    def __init__(self, *names: str, seed: int | None = None, instances: int = 3, **settings: Any) -> None:
        self.kit = Kit(seed=seed)
        self.store = ObjectStore(self.kit.clock, Entropy(0))
        self.kubelet = ScriptedKubelet(self.store, self.kit.clock, self.kit.timers, start_delay=timedelta(seconds=0.7))
        self.violations: list[str] = []
        executor: Any = {"instances": instances, "image": "worker:1", **settings.pop("executor", {})}
        self.settings = Settings(app_id=APP_ID, executor=executor, **settings)
        self.drivers: list[Rival] = []
        for name in names:
            self.begin(name)

    def begin(
        self,
        name: str,
        *,
        without: tuple[str, ...] = (),
        driver_pod_name: str | None = None,
        clock: Clock | None = None,
    ) -> Rival:
        """One more driver starts, perhaps in a pod or with clocks of its own; its account may not do these things with
        leases.
        """
        settings = self.settings
        if driver_pod_name is not None:
            settings = settings.model_copy(update={"driver_pod_name": driver_pod_name})
        self.drivers.append(Rival(self, name, settings, clock or self.kit.clock))
        self.drivers[-1].door.forbidden = {(verb, LEASES.plural) for verb in without}
        self.drivers[-1].start()
        return self.drivers[-1]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.kit.close()
        if error is None:
            self.check()

    def check(self) -> None:
        """No driver wrote while the Lease was another's, none was told wrong things, and there were never too many."""
        told = [f"{rival.name}: {words}" for rival in self.drivers for words in rival.story.violations]
        assert not [*self.violations, *told], "\n".join([*self.violations, *told])

    def advance(self, seconds: float) -> None:
        """Let virtual time pass."""
        self.kit.advance(timedelta(seconds=seconds))

    def lease(self) -> dict[str, Any]:
        """What stands in the Lease; nothing if there is none."""
        try:
            spec: dict[str, Any] = self.store.get(LEASES.plural, "default", lease_name(APP_ID))["spec"]
        except ApiStatus:
            return {}
        return spec

    def holder(self) -> Rival | None:
        """Whose the Lease is, by its own words."""
        name = self.lease().get("holderIdentity")
        return next((rival for rival in self.drivers if name in rival.door.names), None)

    def pods(self) -> dict[str, str]:
        """Name → phase of the pods that live and are not about to go."""
        pods = self.store.list("pods", "default").items
        return {
            pod["metadata"]["name"]: pod["status"]["phase"]
            for pod in pods
            if "deletionTimestamp" not in pod["metadata"] and pod["status"]["phase"] in {"Pending", "Running"}
        }

    # ── the oracle ───────────────────────────────────────────────────────────────────────────────────────────────

    def arrived(self, rival: Rival, what: str) -> None:
        """A write reaches the cluster."""
        rival.wrote.append(what)
        if self.holder() is not rival:
            holder = self.lease().get("holderIdentity")
            now = self.kit.clock.monotonic()
            self.violations.append(f"{rival.name} does {what} at {now:.3f} s while the lease is {holder!r}'s")

    def asked_for(self, name: str) -> None:
        """A pod is asked for."""
        for rival in self.drivers:
            rival.story.asked_for(name)

    def asked_to_go(self, name: str) -> None:
        """A pod's deletion is asked for."""
        for rival in self.drivers:
            rival.story.asked_to_go(name)
