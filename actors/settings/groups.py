"""The groups of settings: one class for each table of `config/reference.toml`.

Each group refuses values that contradict each other within it; `Settings` refuses contradictions between groups.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from pydantic import Field

from actors.kube.http.bounds import AnswerBounds
from actors.kube.retries import MAX_RETRY_AFTER
from actors.settings.durations import format_duration
from actors.settings.profiles import ShapeSettings
from actors.settings.types import (
    ByteSize,
    Count,
    CountOrZero,
    DeletionCost,
    DnsLabel,
    Duration,
    Group,
    Label,
    OnSigterm,
    Owner,
    Pacing,
    Parallelism,
    Rate,
    Ratio,
    ReplacementPolicy,
    RollPolicy,
    Size,
    Switch,
    bytes_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Unpack

    from actors.settings.values import (
        AllocationValues,
        ApiValues,
        BackendValues,
        ExecutorValues,
        RollValues,
        SourceValues,
        StoreValues,
    )

__all__ = [
    "AllocationSettings",
    "ApiSettings",
    "BackendSettings",
    "ExecutorSettings",
    "RollSettings",
    "SourceSettings",
    "StoreSettings",
]


class ApiSettings(Group):
    """What the fleet accepts from the API server, or from a proxy before it."""

    max_retry_after: Duration = MAX_RETRY_AFTER
    """The longest `Retry-After` of the server that counts. A longer one, as of a proxy's maintenance page, counts as
    this long. Up to half as much is added, so that not all clients come back at once.
    """
    max_answer_size: ByteSize = "64Mi"
    """How many bytes, after decompression, a list may have in one page. A page of 500 pods has about 3Mi; with
    `executor.polling_from_cache` the whole fleet may come in one page.
    """
    max_object_size: ByteSize = "16Mi"
    """How many bytes one object may have, or one event of a watch. An API server accepts objects of at most 3Mi."""
    max_header_size: ByteSize = "64Ki"
    """How many bytes the headers of an answer may have."""
    max_pages: Count = 1000
    """How many pages a list may have. The fleet asks for 500 pods a page."""
    max_pods: Count = 250_000
    """How many pods a list may have in all its pages, and the streaming list (`source.streaming_list`)."""

    if TYPE_CHECKING:

        def __init__(self, **values: Unpack[ApiValues]) -> None: ...

    @property
    def bounds(self) -> AnswerBounds:
        """The bounds in bytes."""
        return AnswerBounds(
            bytes_of(self.max_answer_size), bytes_of(self.max_object_size), bytes_of(self.max_header_size)
        )


class ExecutorSettings(ShapeSettings):
    """The executors: how many, what they run, and when one counts as gone."""

    instances: Size = 2
    """How many executors of the default profile the fleet starts with. Spark: `spark.executor.instances`."""
    container: DnsLabel = "executor"
    """Name of the executor's container in the pod template. If no container has this name, it is the first one.

    Spark: `spark.kubernetes.executor.podTemplateContainerName`.
    """
    prefix: DnsLabel | None = Field(default=None, examples=["etl"])
    """Pods are named `<prefix>-exec-<id>`. Without it: the `app_id`.

    Spark: `spark.kubernetes.executor.podNamePrefix`.
    """
    api_polling_interval: Duration = timedelta(seconds=30)
    """How often all executors are listed, as a safety net for the watch.

    Spark: `spark.kubernetes.executor.apiPollingInterval`.
    """
    polling_from_cache: bool = False
    """Whether the API server may answer polls from its cache (`resourceVersion=0`). This is cheaper for the server, but
    the answer may be old. Every tenth poll is consistent, so that missing executors are still found.

    Spark: `spark.kubernetes.executor.enablePollingWithResourceVersion`.
    """
    event_processing_interval: Duration = timedelta(seconds=1)
    """How often changes of pods are processed, at most. The start and the end of an executor are processed sooner.

    Spark: `spark.kubernetes.executor.eventProcessingInterval`.
    """
    delete_on_termination: bool = True
    """Whether pods that ended are deleted. If not, they are labelled inactive and kept for inspection.

    Spark: `spark.kubernetes.executor.deleteOnTermination`.
    """
    missing_pod_detect_delta: Duration = timedelta(seconds=30)
    """How long an executor that the driver knows may have no pod in the API before it counts as missing.

    A pod that was observed, and that the API lists no more, was deleted: its end is reported without this delay.

    Spark: `spark.kubernetes.executor.missingPodDetectDelta`.
    """
    check_all_containers: bool = True
    """Whether a failed sidecar makes the executor failed. Spark: `spark.kubernetes.executor.checkAllContainers`."""
    removed_executors_ttl: Duration = timedelta(minutes=3)
    """How long a removed executor is remembered, so that a late message about it is ignored.

    Spark: `spark.kubernetes.executor.deletedExecutorsCacheTimeout`.
    """
    kill_grace_period: Duration = timedelta(seconds=5)
    """How long a killed executor has to end by itself.

    Spark: `spark.kubernetes.dynamicAllocation.deleteGracePeriod`.
    """
    max_failures: CountOrZero | None = Field(default=None, examples=[6])
    """How many executors may fail to start, over all profiles: if one more does, the fleet has failed and creation
    stops. Without it: twice the sum of the targets, at least 3.

    Spark: `spark.executor.maxNumFailures`.
    """
    failures_validity_interval: Duration | None = Field(default=None, examples=["1h"])
    """How long a failure counts. Without it: for ever. Spark: `spark.executor.failuresValidityInterval`."""
    stuck_timeout: Duration = timedelta(minutes=5)
    """How long a pod may make no progress before it is reported as stuck, unless its status says so sooner. A pod that
    can never start, for example because its image name is invalid, is then replaced and counts as a failure to start.
    """
    min_run_time: Duration = timedelta(seconds=10)
    """An executor that ends by itself sooner than this after its start counts as a failure to start. One that is
    deleted or evicted this early does not; but if its replacement is deleted or evicted early too, the next executors
    are delayed in the same way.
    """
    disconnect_timeout: Duration = timedelta(minutes=2)
    """How long an executor may be disconnected from the driver before it counts as lost."""
    terminating_timeout: Duration = timedelta(seconds=60)
    """How long after its grace period a pod may still be terminating before its node counts as lost."""
    kill_label: Label | None = Field(default=None, examples=["example.com/state=killed"])
    """A label, as key=value, that an executor's pod gets when the driver kills it. The pod is deleted
    `kill_grace_period` later if it still runs. The label warns a Service's selector, or the executor, in advance.
    """
    decommission_label: Label | None = Field(default=None, examples=["example.com/state=leaving"])
    """A label, as key=value, that an executor's pod gets when it is decommissioned. Use it in the selector of a Service
    or a disruption budget.

    Spark: `spark.kubernetes.executor.decommissionLabel` and `spark.kubernetes.executor.decommissionLabelValue`.
    """
    decommission_deletion_cost: DeletionCost | None = Field(default=None, examples=[-100])
    """The annotation `controller.kubernetes.io/pod-deletion-cost` of a decommissioned executor's pod: a controller that
    scales pods down deletes the lowest cost first.

    Spark: `spark.kubernetes.executor.podDeletionCost`.
    """
    owned_by: Owner = "driver"
    """With what Kubernetes deletes the executors, if `driver_pod_name` is set: with the driver's pod (`"driver"`), or
    with what controls that pod (`"controller"`), such as its ReplicaSet, StatefulSet or Job. A controller outlives the
    driver's pod, so that the next pod can adopt the executors.
    """
    own_claims: bool = True
    """Whether the owner of the executors (`owned_by`) owns their claims, so that they outlive the executors and are
    deleted with that owner. If not, or without `driver_pod_name`, each executor's pod owns its claims and they are
    deleted with it: they are then generic ephemeral volumes, whose claims the cluster creates and names `<pod>-<name>`.

    Spark: `spark.kubernetes.driver.ownPersistentVolumeClaim`.
    """
    reuse_claims: bool = True
    """Whether an executor reuses the claims of an executor of its profile that ended, if `own_claims` keeps them. A
    claim is reused if it has the same `name` and class, is large enough, is used by no pod, and is older than
    `allocation.creation_timeout`. Without the right to list claims none is reused, and new ones are created.

    Spark: `spark.kubernetes.driver.reusePersistentVolumeClaim`.
    """
    wait_to_reuse_claim: bool = False
    """Whether an executor waits for the claims of one that ended, instead of getting new ones, once there are as many
    claims as the target needs. Needs `own_claims`, `reuse_claims` and `driver_pod_name`. An executor that is replaced
    while it terminates still uses its claims: without this setting its replacement gets others.

    Spark: `spark.kubernetes.driver.waitToReusePersistentVolumeClaim`.
    """

    if TYPE_CHECKING:

        def __init__(self, **values: Unpack[ExecutorValues]) -> None: ...

    def failures_allowed(self, target: int) -> int:
        """Return how many executors may fail to start if the targets add up to this: `max_failures`, or the default."""
        return self.max_failures if self.max_failures is not None else max(3, 2 * target)

    def _contradictions(self) -> Iterator[str]:
        yield from super()._contradictions()
        if self.wait_to_reuse_claim and not (self.own_claims and self.reuse_claims):
            lacking = "own_claims" if not self.own_claims else "reuse_claims"
            yield f"wait_to_reuse_claim = true: needs {lacking}, which is false"


class AllocationSettings(Group):
    """How the fleet reaches its target."""

    batch_size: Count = 20
    """How many executors a round requests. Spark: `spark.kubernetes.allocation.batch.size`."""
    max_batch_size: Count = 500
    """How large batches may grow while creation succeeds, up to five times `max_requests_in_flight`: larger ones create
    no sooner. They fall back to `batch_size` when it fails.
    """
    batch_delay: Duration = timedelta(seconds=1)
    """The time between two rounds. Spark: `spark.kubernetes.allocation.batch.delay`."""
    creation_timeout: Duration = timedelta(seconds=60)
    """How long after its creation a pod may stay unseen before its executor is abandoned; never less than five times
    `batch_delay`.

    Spark: `spark.kubernetes.allocation.executor.timeout`.
    """
    idle_timeout: Duration = timedelta(seconds=60)
    """An executor younger than this is not deleted as excess.

    Spark: `spark.dynamicAllocation.executorIdleTimeout`.
    """
    max_pending_pods: Count | None = Field(default=None, examples=[200])
    """How many pods may be pending at once, over all profiles. Without it: any number.

    Spark: `spark.kubernetes.allocation.maxPendingPods`.
    """
    max_pending_pods_per_profile: Count | None = Field(default=None, examples=[100])
    """How many pods of one profile may be pending at once. Spark: `spark.kubernetes.allocation.maxPendingPodsPerRp`."""
    max_created: Count | None = Field(default=None, examples=[5000])
    """How many pods one driver process may create, over all profiles, replacements included. At the limit the fleet
    stops growing. Without it: any number.

    Spark: `spark.kubernetes.allocation.maximum`.
    """
    pacing: Pacing = "pipelined"
    """When the next batch is requested. `"pipelined"`: as soon as the requests of the last batch are answered, half of
    them if it is large. `"batch"`, as in Spark since 3.2 (SPARK-33262): once every pod of the last batch was observed,
    pending or not; a batch then never grows beyond `batch_size`.
    """
    pod_replacement_policy: ReplacementPolicy = "TerminatingOrFailed"
    """When a terminating executor is replaced, as in a Kubernetes Job: as soon as it terminates
    (`"TerminatingOrFailed"`), or only when it has ended (`"Failed"`).
    """
    max_requests_in_flight: Parallelism = 48
    """How many requests to the API may be in flight at once, each on a connection of its own. Fewer executors are
    requested at a time if the API server answers 429, or more slowly than usual. By default fewer than the share that a
    server gives a single user, or a namespace's service accounts (API priority and fairness).
    """
    max_requests_per_second: Rate | None = Field(default=None, examples=[50.0])
    """How many pods may be created, deleted or labelled per second, on average. Without it: no limit."""

    if TYPE_CHECKING:

        def __init__(self, **values: Unpack[AllocationValues]) -> None: ...

    @property
    def unseen_timeout(self) -> timedelta:
        """The effective creation timeout: a pod gets at least five rounds to appear."""
        return max(self.creation_timeout, 5 * self.batch_delay)

    @property
    def connections(self) -> int:
        """How many API calls may be open in all: the requests, and one each of both sources, lease, Events and Backend.

        The last five must never wait for POSTs that hang, least of all the lease's.
        """
        return self.max_requests_in_flight + 5

    def _contradictions(self) -> Iterator[str]:
        if self.max_batch_size < self.batch_size:
            yield f"max_batch_size = {self.max_batch_size}: must be at least batch_size ({self.batch_size})"
        everyone, profile = self.max_pending_pods, self.max_pending_pods_per_profile
        if everyone is not None and profile is not None and profile > everyone:
            yield f"max_pending_pods_per_profile = {profile}: must be at most max_pending_pods ({everyone})"


class SourceSettings(Group):
    """How the cluster is observed."""

    stale_after: Duration = timedelta(seconds=90)
    """Nothing is created or deleted if neither the watch nor a full list has brought anything for this long."""
    streaming_list: bool = False
    """Whether the watch starts with a streaming list (`sendInitialEvents`) instead of a LIST. A streaming list needs
    less memory of the API server. It needs about twice as much processor time of the API server, and 1.6 times as much
    of the driver. If the server does not support it, a LIST is used.
    """
    inactivity_timeout: Duration = timedelta(seconds=70)
    """A watch that delivers no byte for this long counts as dead. The API sends a bookmark about once a minute."""
    process: bool = False
    """Whether a child process observes the fleet and writes to it. A driver that computes keeps its interpreter then:
    only what the driver is told crosses. The process needs 40 MiB of memory. If it ends, another one goes on from a
    list; where none can be had, the driver's process does it all itself.
    """

    if TYPE_CHECKING:

        def __init__(self, **values: Unpack[SourceValues]) -> None: ...

    def _contradictions(self) -> Iterator[str]:
        if self.inactivity_timeout > self.stale_after:
            yield (
                f"inactivity_timeout = {format_duration(self.inactivity_timeout)}: "
                f"must be at most stale_after ({format_duration(self.stale_after)})"
            )


class StoreSettings(Group):
    """How snapshots are delivered."""

    min_round_interval: Duration = timedelta(milliseconds=10)
    """How soon after a round the end of a pod may start the next round."""

    if TYPE_CHECKING:

        def __init__(self, **values: Unpack[StoreValues]) -> None: ...


class BackendSettings(Group):
    """The backend: how it starts and stops, and how long it waits."""

    min_registered_ratio: Ratio = 0.8
    """The fraction of the initial executors that must be registered for the fleet to have enough.

    Spark: `spark.scheduler.minRegisteredResourcesRatio`.
    """
    start_timeout: Duration = timedelta(seconds=30)
    """How long the first full list may take before the backend counts as failed.

    An API server that starts itself is waited for, as long as its `Retry-After` says. A refusal (400, 401, 403, 404)
    ends the start sooner, once it has lasted for 5 s.
    """
    request_timeout: Duration = timedelta(seconds=10)
    """How long one request to the API may take, from the name lookup to the last byte."""
    shutdown_timeout: Duration | None = Field(default=None, examples=["35s"])
    """How long a stop may take, even if the API is unavailable. Without it: the longest grace period that a stop gives
    executors (`executor.stop_grace_period`), the longest pause that may have begun before (`executor.drain_timeout`),
    10 s for kubelet and Lease, and twice `request_timeout`: 34 s by default.
    An executor that ends later than that is told as removed if the API has accepted its deletion.
    """
    hang_timeout: Duration = timedelta(seconds=30)
    """How long an actor of the backend may be busy with one message before it is replaced. While the backend stops, the
    limit is a sixth of what the stop may take. Time in which the whole process is suspended does not count.
    """
    delete_on_stop: bool = True
    """Whether a stop deletes the fleet's pods."""
    on_sigterm: OnSigterm = "stop"
    """What SIGTERM means to `executor-pods run`, and to a program that leaves its `Fleet` because of it: a stop like
    any other (`"stop"`), or a hand-over to the next driver with this `app_id` (`"hand-over"`). A hand-over releases the
    Lease and leaves the executors alive; those that were killed are ended. A program with a `Backend` of its own hands
    over by `StopBackend(delete_pods=False)`.
    """
    delete_inactive_on_stop: bool = False
    """Whether a stop that deletes the fleet also deletes the pods that were kept because
    `executor.delete_on_termination` is off.
    """
    driver_ready_timeout: Duration = timedelta(minutes=1)
    """How long the start waits for the driver's pod (`driver_pod_name`) to be ready, so that executors can connect to
    it. After that, executors are created anyway.

    Spark: `spark.kubernetes.allocation.driver.readinessTimeout`.
    """
    lease: Switch = "auto"
    """Whether a Lease with the name of the `app_id` keeps a second driver of this `app_id` from writing: true, false or
    "auto". "auto" means: only if the `app_id` was set, since no other driver has a generated one.
    """
    lease_duration: Duration = timedelta(seconds=15)
    """How long the Lease is valid without renewal, in whole seconds. After that another driver may take it. It is
    renewed every third of this time.
    """

    kubernetes_events: bool = True
    """Whether lost executors, blocked creation and changes of the Lease are written as Kubernetes Events: about the
    driver's pod (`driver_pod_name`), else about the Lease, else not at all. `kubectl describe` shows them. Without the
    right to write Events there are none, and the fleet runs all the same.
    """

    if TYPE_CHECKING:

        def __init__(self, **values: Unpack[BackendValues]) -> None: ...

    @property
    def hands_over(self) -> bool:
        """Whether SIGTERM leaves the executors to the next driver."""
        return self.on_sigterm == "hand-over"

    def _contradictions(self) -> Iterator[str]:
        if self.shutdown_timeout is not None and self.request_timeout >= self.shutdown_timeout:
            yield (
                f"request_timeout = {format_duration(self.request_timeout)}: "
                f"must be below shutdown_timeout ({format_duration(self.shutdown_timeout)})"
            )
        if self.lease_duration % timedelta(seconds=1):
            yield f"lease_duration = {format_duration(self.lease_duration)}: must be whole seconds, as a Lease has them"


class RollSettings(Group):
    """Rolling: running executors are replaced one by one, while the fleet keeps its size."""

    interval: Duration | None = Field(default=None, examples=["1h"])
    """How often one executor is decommissioned and replaced. Without it: never.

    Spark: `spark.kubernetes.executor.rollInterval`.
    """
    policy: RollPolicy = "id"
    """Which executor is replaced: `"id"`, the one with the lowest id; `"age"`, the one that has run the longest;
    `"failures"`, the one with the most lost connections and container restarts, or none if no executor had any.

    Spark: `spark.kubernetes.executor.rollPolicy`.
    """

    if TYPE_CHECKING:

        def __init__(self, **values: Unpack[RollValues]) -> None: ...
