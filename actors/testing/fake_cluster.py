"""`FakeCluster`: the embedded cluster in the virtual time of a kit, for tests of drivers.

Its pods are values in a store: a test starts and ends them by their executor ids. Its answers are those of an API
server; a test can refuse, delay and lose them.
"""

from __future__ import annotations

from collections import defaultdict, deque
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, TypeVar, final

from actors import kube
from actors.kube.status import error_from_status
from actors.local.faults.faulty_api import FaultyPodApi
from actors.local.faults.kinds import DelayAnswer, Fault, Refuse
from actors.local.inprocess import InProcessPodApi
from actors.local.kubelet.delays import Delays
from actors.local.kubelet.scripted_kubelet import Run, ScriptedKubelet, StayWaiting
from actors.local.schema.statuses import ApiStatus
from actors.local.store.object_store import ObjectStore
from actors.local.store.objects import FINAL_PHASES
from actors.pods.ids import parse_executor_id
from actors.pods.pod import EXECUTOR_ID_LABEL, ROLE_EXECUTOR, ROLE_LABEL

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from actors.errors import ApiError
    from actors.kube.api import Call, Operation, PodApi, Reply, Request, Watch, WatchSink
    from actors.local.kubelet.scripted_kubelet import Script
    from actors.local.store.object_store import WatchMessage
    from actors.testing.kit import Kit

__all__ = ["ApiRequest", "FakeCluster"]

A = TypeVar("A")

START_DELAY: Final = timedelta(seconds=1)
"""As fast as a node is that has the image."""

CALL_LIMIT: Final = timedelta(seconds=10)
"""As `backend.request_timeout` by default."""

_EXECUTORS: Final = f"{ROLE_LABEL}={ROLE_EXECUTOR}"
_QUOTA: Final = "quota"

_VERBS: Final[Mapping[Operation, str]] = {
    "create_object": "create",
    "delete_collection": "deletecollection",
    "delete_object": "delete",
    "get_object": "get",
    "list_objects": "list",
    "may": "create",
    "patch_object": "patch",
}
"""RBAC's name of an operation, where it is another."""


@dataclass(frozen=True, slots=True)
class ApiRequest:
    """A request that a Backend sent to the cluster, whatever became of it."""

    verb: str
    """As RBAC names it: `create`, `delete`, `deletecollection`, `get`, `list`, `patch` or `watch`."""
    resource: str
    """`pods`, `leases`, …"""
    name: str = ""
    """Empty in requests for a collection."""
    body: Mapping[str, Any] | None = None
    """The object of a POST, the patch of a PATCH."""
    at: timedelta = timedelta(0)
    """When it was sent, as `kit.clock.elapsed`."""
    executor_ids: tuple[int, ...] = ()
    """The executors whose pods it names, or deletes by a selector."""


@dataclass(slots=True)
class _Peak:
    """The most executors that were alive at once."""

    executor_ids: tuple[int, ...] = ()
    at: timedelta = timedelta(0)


@final
class FakeCluster:
    """A cluster whose pods do what the test says. Backends in the kit that get no `api` use the newest one.

    Args:
        kit: the virtual time.
        auto_run: start each pod after `start_delay`; else pods are pending until `run`.
        start_delay: the time from a pod's creation to its running; by default a second, or what `realistic` draws.
        stop_delay: the time from a pod's deletion to its end; at most the pod's grace period.
        script: returns the plan of each pod, from its JSON: `Run`, `StayWaiting` or `StayUnscheduled` of
            `actors.testing`. It replaces `auto_run`.
        realistic: add the times of a real node, drawn from the kit's seed: 0.7 to 1.3 s to a start, and 1 to 2 s until
            the end of an executor is in its pod's status.
    """

    def __init__(
        self,
        kit: Kit,
        *,
        auto_run: bool = True,
        start_delay: timedelta | None = None,
        stop_delay: timedelta = timedelta(0),
        script: Script | None = None,
        realistic: bool = False,
    ) -> None:
        self.store = ObjectStore(kit.clock, kit.entropy.fork("cluster"))
        """Every object of the cluster, for what the methods below cannot do."""
        if start_delay is None:
            start_delay = timedelta(0) if realistic else START_DELAY
        self.kubelet = ScriptedKubelet(
            self.store,
            kit.clock,
            kit.timers,
            start_delay=start_delay,
            stop_delay=stop_delay,
            script=script or (lambda _: Run() if auto_run else StayWaiting()),
            delays=Delays(kit.entropy.fork("delays")) if realistic else None,
        )
        self.requests: list[ApiRequest] = []
        """Every request so far, also those that an outage keeps from the cluster."""
        self._kit = kit
        self._doors: list[_Door] = []
        self._outage = False
        self._answers_after = timedelta(0)
        self._refusals: defaultdict[Operation, deque[ApiError]] = defaultdict(deque)
        self._alive: dict[str, int] = {}
        """The UIDs of living pods, and their executors."""
        self._peaks = [_Peak()]
        kit.system.connect = self.connect
        self.store.watch("pods", None, self._count, label_selector=_EXECUTORS)

    # ── for Backends ─────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def api(self) -> PodApi:
        """A new client of the cluster, for one Backend, which closes it at its end."""
        return self.connect()

    def connect(self, namespace: str | None = None, *, request_timeout: timedelta = CALL_LIMIT) -> PodApi:
        """Return a client, as `kube.connect` does. A namespace that is missing is created."""
        namespace = namespace or "default"
        with suppress(ApiStatus):  # it exists
            self.store.create("namespaces", None, {"metadata": {"name": namespace}})
        door = _Door(self, self._kit, namespace, request_timeout)
        door.outage = self._outage
        self._doors.append(door)
        return door

    # ── what there is ────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def pods(self) -> dict[int, Mapping[str, Any]]:
        """The pods of the executors, as JSON, by executor id; also those that have ended, until they are deleted."""
        return {executor_id: pod for pod in self._listed() if (executor_id := _id_of(pod)) is not None}

    @property
    def phases(self) -> dict[int, str]:
        """The phase of each pod, or `Terminating`."""
        return {
            executor_id: "Terminating" if "deletionTimestamp" in pod["metadata"] else pod["status"]["phase"]
            for executor_id, pod in self.pods.items()
        }

    @property
    def created(self) -> list[int]:
        """The executor ids of the POSTs of pods, in order, also of those that failed."""
        return self._asked("create")

    @property
    def deleted(self) -> list[int]:
        """The executor ids of the DELETEs of pods, in order; those of one DELETE by selector in ascending order."""
        return self._asked("delete", "deletecollection")

    @property
    def most_alive(self) -> int:
        """The most executors that were alive at once: pods that neither had ended nor were terminating."""
        return len(self._peaks[0].executor_ids)

    @contextmanager
    def never_more_than(self, limit: int) -> Iterator[None]:
        """Assert that at no moment of the `with` block more executors were alive, as `most_alive` counts them."""
        peak = _Peak(tuple(self._alive.values()), self._kit.clock.elapsed)
        self._peaks.append(peak)
        try:
            yield
        finally:
            self._peaks.remove(peak)
        count = len(peak.executor_ids)
        if count > limit:
            ids = sorted(peak.executor_ids)
            raise AssertionError(f"{count} executors were alive at {peak.at}, not at most {limit}: {ids}")

    # ── what becomes of pods ─────────────────────────────────────────────────────────────────────────────────────

    def run(self, executor_id: int) -> None:
        """Start a pending pod."""
        name, namespace = self._pod(executor_id, "run", "Pending")
        self.kubelet.run(name, namespace=namespace)

    def stuck(self, executor_id: int, reason: str, message: str = "") -> None:
        """Keep a pending pod from starting: its containers wait with this reason, such as `ImagePullBackOff`."""
        name, namespace = self._pod(executor_id, "get stuck", "Pending")
        self.kubelet.keep_waiting(name, reason, message, namespace=namespace)

    def fail(self, executor_id: int, code: int = 1, *, message: str = "") -> None:
        """End an executor with an exit code; `message` is its termination message."""
        if code == 0:
            raise ValueError("an executor that ends with code 0 succeeds: use succeed()")
        name, namespace = self._pod(executor_id, "fail")
        self.kubelet.exit(name, code=code, message=message, namespace=namespace)

    def succeed(self, executor_id: int) -> None:
        """End an executor with exit code 0."""
        name, namespace = self._pod(executor_id, "succeed")
        self.kubelet.exit(name, code=0, namespace=namespace)

    def oom(self, executor_id: int) -> None:
        """Kill an executor for its memory, as the kernel does."""
        name, namespace = self._pod(executor_id, "run out of memory")
        self.kubelet.oom(name, namespace=namespace)

    def evict(self, executor_id: int) -> None:
        """Evict a pod to save its node, as a kubelet does that lacks memory."""
        name, namespace = self._pod(executor_id, "be evicted")
        self.kubelet.evict(name, namespace=namespace)

    def terminate(self, executor_id: int) -> None:
        """Delete a pod, as somebody else with kubectl."""
        name, namespace = self._pod(executor_id, "be deleted", "Pending", "Running", *FINAL_PHASES)
        self.store.delete("pods", namespace, name)

    def lose_node(self, executor_id: int) -> None:
        """Lose the node of an executor, and no other executor: its pod is gone without an exit code."""
        name, namespace = self._pod(executor_id, "lose its node")
        self.kubelet.lose(name, namespace=namespace)

    # ── what becomes of requests ─────────────────────────────────────────────────────────────────────────────────

    def quota(self, pods: int | None, *, namespace: str = "default") -> None:
        """Limit the number of pods in a namespace; None lifts the limit."""
        with suppress(ApiStatus):  # there is none
            self.store.delete("resourcequotas", namespace, _QUOTA)
        if pods is not None:
            quota = {"metadata": {"name": _QUOTA}, "spec": {"hard": {"pods": str(pods)}}}
            self.store.create("resourcequotas", namespace, quota)

    def refuse(
        self,
        operation: Operation,
        code: int,
        message: str = "refused by the test",
        *,
        times: int = 1,
        retry_after: timedelta | None = None,
    ) -> None:
        """Answer the next calls of an operation (`create`, `delete`, `list`, `watch`, …) with an HTTP status."""
        error = error_from_status({"message": message}, code, retry_after)
        self._refusals[operation].extend([error] * times)

    def slow(self, by: timedelta | float) -> None:
        """Answer each call so much later, 0 for at once; a number means seconds. What it asks is done at once.

        A client gives up after its `request_timeout`: later answers are lost.
        """
        self._answers_after = by if isinstance(by, timedelta) else timedelta(seconds=by)

    @contextmanager
    def outage(self) -> Iterator[None]:
        """Make the API unreachable for the `with` block: streams are cut, and connections refused."""
        self._set_outage(begins=True)
        try:
            yield
        finally:
            self._set_outage(begins=False)

    @contextmanager
    def stalled_watches(self) -> Iterator[None]:
        """Hold back what the open watches deliver, until the end of the `with` block. Calls are answered."""
        for door in self._doors:
            door.stall()
        try:
            yield
        finally:
            for door in self._doors:
                door.resume()

    # ── for its doors ────────────────────────────────────────────────────────────────────────────────────────────

    def note(self, request: Request[Any] | Watch, namespace: str) -> None:
        """Record a request."""
        verb, resource, name, body = _described(request)
        ids: tuple[int, ...] = ()
        if isinstance(request, kube.DeleteCollection):
            pods = self.store.list("pods", namespace, label_selector=request.selector).items
            ids = tuple(sorted(executor_id for pod in pods if (executor_id := _id_of(pod)) is not None))
        elif resource == kube.PODS.plural and (executor_id := _id_in(name)) is not None:
            ids = (executor_id,)
        self.requests.append(ApiRequest(verb, resource, name, body, self._kit.clock.elapsed, ids))

    def fault_of(self, operation: Operation) -> Fault | None:
        """Return what the test has ordered for the next call of an operation."""
        if self._refusals[operation]:
            return Refuse(self._refusals[operation].popleft())
        return DelayAnswer(self._answers_after) if self._answers_after and operation != "watch" else None

    # ── the rest ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _set_outage(self, *, begins: bool) -> None:
        self._outage = begins
        for door in self._doors:
            door.outage = begins

    def _listed(self) -> list[dict[str, Any]]:
        return self.store.list("pods", None, label_selector=_EXECUTORS).items

    def _asked(self, *verbs: str) -> list[int]:
        return [executor_id for seen in self.requests if seen.verb in verbs for executor_id in seen.executor_ids]

    def _pod(self, executor_id: int, action: str, *phases: str) -> tuple[str, str]:
        """Return name and namespace of an executor's pod, which must be in one of the phases: alive, unless given."""
        found = [pod for pod in self._listed() if _id_of(pod) == executor_id]
        if not found:
            ids = sorted(self.pods)
            raise LookupError(f"executor {executor_id} cannot {action}: it has no pod. Executors with a pod: {ids}")
        if len(found) > 1:
            names = [pod["metadata"]["name"] for pod in found]
            raise LookupError(f"executor {executor_id} has several pods: give each fleet a FakeCluster. Pods: {names}")
        (pod,) = found
        phase, allowed = pod["status"]["phase"], phases or ("Pending", "Running")
        if phase not in allowed:
            raise ValueError(f"executor {executor_id} cannot {action}: its pod is {phase}, not {' or '.join(allowed)}")
        return pod["metadata"]["name"], pod["metadata"]["namespace"]

    def _count(self, message: WatchMessage) -> None:
        pod = message.object
        metadata, executor_id = pod["metadata"], _id_of(pod)
        ended = pod["status"]["phase"] in FINAL_PHASES or "deletionTimestamp" in metadata
        if message.type == "DELETED" or ended or executor_id is None:
            self._alive.pop(metadata["uid"], None)
            return
        self._alive[metadata["uid"]] = executor_id
        for peak in self._peaks:
            if len(self._alive) > len(peak.executor_ids):
                peak.executor_ids, peak.at = tuple(self._alive.values()), self._kit.clock.elapsed


@final
class _Door(FaultyPodApi):
    """A client of the cluster. The cluster notes its requests and chooses their faults."""

    def __init__(self, cluster: FakeCluster, kit: Kit, namespace: str, limit: timedelta) -> None:
        inner = InProcessPodApi(cluster.store, namespace, kit.timers)
        super().__init__(inner, kit.timers, kit.entropy.fork("faults"), call_limit=limit)
        self._cluster = cluster

    def send(self, request: Request[A], reply: Reply[A]) -> Call:
        self._cluster.note(request, self.namespace)
        return super().send(request, reply)

    def watch(self, request: Watch, sink: WatchSink) -> Call:
        self._cluster.note(request, self.namespace)
        return super().watch(request, sink)

    def _fault_of(self, operation: Operation, *, later_page: bool = False) -> Fault | None:
        return super()._fault_of(operation, later_page=later_page) or self._cluster.fault_of(operation)


def _id_of(pod: Mapping[str, Any]) -> int | None:
    return parse_executor_id(pod["metadata"].get("labels", {}).get(EXECUTOR_ID_LABEL) or "-")


def _id_in(pod_name: str) -> int | None:
    return parse_executor_id(pod_name.rpartition("-exec-")[2] or "-")


def _described(request: Request[Any] | Watch) -> tuple[str, str, str, Mapping[str, Any] | None]:
    """Return verb, resource, name and body of a request."""
    verb = _VERBS.get(request.operation, request.operation)
    if isinstance(request, kube.ReviewAccess):
        return verb, "selfsubjectaccessreviews", "", None
    resource: kube.Resource = getattr(request, "resource", kube.PODS)
    if isinstance(request, kube.Create | kube.CreateObject):
        return verb, resource.plural, request.manifest["metadata"]["name"], request.manifest
    return verb, resource.plural, getattr(request, "name", ""), getattr(request, "patch", None)
