"""A driver, a backend and an embedded cluster in one process and in virtual time, with every invariant watched.

The driver is a real actor that keeps nothing but a list of what it was told; the cluster is the embedded one with its
scripted kubelet; between the two stands the fault injector, quiet unless a test speaks to it.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeVar

from actors import kube
from actors.backend.backend import Backend
from actors.local.faults.faulty_api import FaultyPodApi
from actors.local.inprocess import InProcessPodApi
from actors.local.kubelet.scripted_kubelet import ScriptedKubelet
from actors.local.store.object_store import ObjectStore
from actors.messages import (
    BackendStopped,
    ExecutorRemoved,
    HoldFleet,
    KillExecutors,
    RequestTotalExecutors,
    RetireExecutors,
    StopBackend,
)
from actors.messages.internal import AddSubscriber, BatchDone, SnapshotBatch
from actors.metrics.prometheus import PrometheusMetrics
from actors.runtime import Actor, Address, Context, Entropy
from actors.settings.model import Settings
from actors.testing import Kit
from tests.scenarios.invariants import Invariants

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import Self

    from actors.executors.roll import RollPolicy
    from actors.kube.api import Call, Operation
    from actors.local.faults.kinds import Fault
    from actors.local.store.object_store import StoreSnapshot
    from actors.runtime import Clock

M = TypeVar("M")

LOOK: Final = timedelta(seconds=1)
"""How often the onlooker sees the snapshot in the chaos runs, besides at every end: each look takes three messages."""

LONG_LOOK: Final = timedelta(seconds=4)
"""The same elsewhere, where much of the time nothing happens."""


class Driver(Actor):
    """Remembers what it is told, and has the invariants look at it."""

    def __init__(self, context: Context, invariants: Invariants) -> None:
        super().__init__(context)
        self.heard: list[object] = []
        self._invariants = invariants

    def receive(self, message: Any) -> object:
        """Everything is news."""
        self.heard.append(message)
        self._invariants.told(message)
        return None


class Onlooker(Actor):
    """A third subscriber of the store, which sees every snapshot."""

    def __init__(
        self, context: Context, store: Address, invariants: Invariants, interval: timedelta = LONG_LOOK
    ) -> None:
        super().__init__(context)
        self._store = store
        self._invariants = invariants
        self._interval = interval

    def started(self) -> None:
        """Subscribe."""
        self._store.tell(AddSubscriber(self.address, self._interval))

    def receive(self, message: Any) -> object:
        """Look at each batch."""
        assert isinstance(message, SnapshotBatch)
        self._invariants.seen(message)
        self._store.tell(BatchDone(self.address, message.seq))
        return None


class WatchedApi(FaultyPodApi):
    """Notes what the backend asks, which pods it asks for and which to be deleted, before anything can go wrong."""

    asked_for: Callable[[str], None]
    asked_to_go: Callable[[str], None]
    asked: list[tuple[float, Operation]]
    """Every call, with its moment (monotonic)."""
    on_request: Callable[[kube.Request[Any]], None] | None = None
    clock: Clock

    def _fault_of(self, operation: Operation, *, later_page: bool = False) -> Fault | None:
        """Every call comes by here."""
        self.asked.append((self.clock.monotonic(), operation))
        return super()._fault_of(operation, later_page=later_page)

    def send(self, request: kube.Request[Any], reply: kube.Reply[Any]) -> Call:
        """See `PodApi`."""
        if self.on_request is not None:
            self.on_request(request)
        match request:
            case kube.Create(manifest):
                self.asked_for(str(manifest["metadata"]["name"]))
            case kube.Delete(name):
                self.asked_to_go(name)
            case _:
                pass
        return super().send(request, reply)


class World:
    """Everything there is. A context manager: at its end no actor is left, and no invariant was broken."""

    door: ClassVar[type[InProcessPodApi]] = InProcessPodApi
    """How the cluster answers."""

    look_every: ClassVar[timedelta] = LONG_LOOK

    def __init__(
        self,
        seed: int | None = None,
        *,
        threads: bool = False,
        latency: timedelta = timedelta(milliseconds=5),
        start_delay: timedelta = timedelta(milliseconds=700),
        outage: bool = False,
        roll_policy: RollPolicy | None = None,
        **settings: Any,
    ) -> None:
        self.kit = Kit(seed=seed, threads=threads)
        self.store = ObjectStore(self.kit.clock, Entropy(0))
        self._start_delay = start_delay
        self._roll_policy = roll_policy
        self.kubelet = self._make_kubelet()
        self._latency = latency
        self.metrics = PrometheusMetrics(ask=self.kit.ask)
        self.invariants = Invariants(self.kit.clock)
        self.api = self._connect()
        self.invariants.watch(self.store)
        settings.setdefault("executor", {})
        settings["executor"] = {"instances": 0, "image": "worker:1", **settings["executor"]}
        settings["backend"] = {"lease": False, **settings.get("backend", {})}  # test_two_drivers has them
        self.settings = Settings(app_id="app", **settings)
        self.invariants.retarget(self.settings.executor.instances)
        self.api.outage = outage
        self._drivers: list[Driver] = []
        self._start()

    def _make_kubelet(self) -> ScriptedKubelet:
        return ScriptedKubelet(self.store, self.kit.clock, self.kit.timers, start_delay=self._start_delay)

    def _start(self) -> None:
        self.driver = self.kit.system.spawn(self._make_driver, name="driver", owner=None)
        self.backend = Backend.start(
            self.settings,
            self.driver,
            self.api,
            system=self.kit.system,
            roll_policy=self._roll_policy,
            metrics=self.metrics,
        )
        self.kit.settle()
        if self.settings.driver_pod_name is not None:
            self.advance(1)  # it is looked up before there are any parts
        self._spawn_onlooker()

    def _spawn_onlooker(self) -> None:
        store = self.kit.address("snapshot-store")
        self.kit.spawn(lambda context: Onlooker(context, store, self.invariants, self.look_every), name="onlooker")

    def _make_driver(self, context: Context) -> Driver:
        driver = Driver(context, self.invariants)
        self._drivers.append(driver)
        return driver

    def _connect(self) -> WatchedApi:
        self.inner = self.door(self.store, "default", self.kit.timers, self._latency)
        api = WatchedApi(self.inner, self.kit.timers, self.kit.entropy.fork("faults"))
        api.asked, api.clock = [], self.kit.clock
        api.asked_for = self.invariants.asked_for
        api.asked_to_go = self.invariants.asked_to_go
        return api

    def restart(self) -> None:
        """Another driver process with the same `app_id`, after the backend has ended: it knows of nothing."""
        assert not self.backend.is_alive()
        self.driver.stop()
        self.kit.address("onlooker").stop()
        self.api = self._connect()
        self.invariants.another_life()
        self._start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.kit.close()
        if error is None:
            self.check()

    def check(self) -> None:
        """No invariant was broken."""
        assert not self.invariants.violations, "\n".join(self.invariants.violations)

    # ── the driver's side ────────────────────────────────────────────────────────────────────────────────────────

    def heard(self, kind: type[M]) -> list[M]:
        """Everything of a kind that the driver was told, in order."""
        return [message for message in self._drivers[-1].heard if isinstance(message, kind)]

    def about(self, executor_id: int) -> list[object]:
        """Everything that the driver was told of one executor, in order."""
        return [m for m in self._drivers[-1].heard if getattr(m, "executor_id", None) == executor_id]

    def removals(self) -> dict[int, ExecutorRemoved]:
        """The driver's removals by executor id."""
        return {message.executor_id: message for message in self.heard(ExecutorRemoved)}

    def target(self, total: int) -> None:
        """The driver asks for this many."""
        self.invariants.retarget(total)
        self.backend.tell(RequestTotalExecutors(total))

    def kill(self, *executor_ids: int) -> None:
        """The driver ends executors; the target stays."""
        self.backend.tell(KillExecutors(executor_ids))

    def retire(self, *executor_ids: int, **options: Any) -> tuple[int, ...]:
        """The driver retires executors: they no longer count."""
        new = [each for i in executor_ids if self.invariants.retires(each := f"app-exec-{i}")]
        retired: tuple[int, ...] = ()
        try:
            retired = self.ask(RetireExecutors(executor_ids, **options))
        finally:
            for each in set(new) - {f"app-exec-{i}" for i in retired}:
                self.invariants.stays(each)
        return retired

    def hold_fleet(self, **options: Any) -> tuple[int, ...]:
        """The driver puts the fleet on hold."""
        retired: tuple[int, ...] = self.ask(HoldFleet(**options))
        return retired

    def ask(self, message: object) -> Any:
        """A query, answered."""
        return self.kit.ask(self.backend, message)

    def stop(self, *, delete_pods: bool | None = None, within: float = 60) -> BackendStopped:
        """The driver stops the backend."""
        self.backend.tell(StopBackend(delete_pods))
        self.advance(within)
        (stopped,) = self.heard(BackendStopped)
        return stopped

    # ── the cluster's side ───────────────────────────────────────────────────────────────────────────────────────

    def advance(self, seconds: float) -> None:
        """Let virtual time pass."""
        self.kit.advance(timedelta(seconds=seconds))

    def restore(self, backup: StoreSnapshot) -> None:
        """The cluster is restored from a backup. Its node looks at it anew, and so do the invariants."""
        self.store.restore(backup)
        self.kubelet.close()
        self.kubelet = self._make_kubelet()
        self.invariants.history_was_reset()
        self.invariants.watch(self.store)

    def pods(self, *phases: str) -> list[dict[str, Any]]:
        """The fleet's pods in the cluster, in these phases or in any."""
        pods = self.store.list("pods", "default").items
        return [pod for pod in pods if not phases or pod["status"]["phase"] in phases]

    def running(self) -> int:
        """How many pods run and are not about to go."""
        return sum("deletionTimestamp" not in pod["metadata"] for pod in self.pods("Running"))

    def address(self, name: str) -> Address:
        """The address of one of the backend's actors, found among those that live."""
        return self.kit.address(name)

    def lives(self, name: str) -> bool:
        """Whether an actor of this name lives now: one that crashed comes back after its backoff."""
        return any(actor.name == name for actor in self.kit.dispatcher.actors)

    def crash(self, name: str) -> None:
        """Make one of the backend's actors die of a message that it cannot handle."""
        self.address(name).tell(object())
