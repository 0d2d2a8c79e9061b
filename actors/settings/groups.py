"""The groups of settings, one class each: what stands under one heading of `config/reference.toml`.

Each refuses what contradicts itself within it; what lies between two groups is for `Settings` to refuse.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from actors.settings.durations import format_duration
from actors.settings.profiles import ShapeSettings
from actors.settings.types import (
    Count,
    DeletionCost,
    DnsLabel,
    Duration,
    Group,
    Label,
    Parallelism,
    Rate,
    Ratio,
    Size,
    Switch,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "AllocationSettings",
    "BackendSettings",
    "ExecutorSettings",
    "RollSettings",
    "SourceSettings",
    "StoreSettings",
]


class ExecutorSettings(ShapeSettings):
    """The executors: how many, what they run, and when one counts as gone."""

    instances: Size = 2
    """How many executors of the default profile the fleet starts with. Spark: `spark.executor.instances`."""
    container: DnsLabel = "executor"
    """Name of the executor's container in the pod template; without one of that name, the first.

    Spark: `spark.kubernetes.executor.podTemplateContainerName`.
    """
    prefix: DnsLabel | None = Field(default=None, examples=["etl"])
    """Pods are named `<prefix>-exec-<id>`; without it, the prefix is `app_id`.

    Spark: `spark.kubernetes.executor.podNamePrefix`.
    """
    api_polling_interval: Duration = timedelta(seconds=30)
    """How often all executors are listed, as a safety net under the watch.

    Spark: `spark.kubernetes.executor.apiPollingInterval`.
    """
    polling_from_cache: bool = False
    """Whether polls may be answered from the API server's cache (`resourceVersion=0`): cheaper for the server, and
    perhaps old. Every tenth is consistent all the same, so that what is missing is found in the end.

    Spark: `spark.kubernetes.executor.enablePollingWithResourceVersion`.
    """
    event_processing_interval: Duration = timedelta(seconds=1)
    """How often at most, short of an executor's end, changes of pods are acted on.

    Spark: `spark.kubernetes.executor.eventProcessingInterval`.
    """
    delete_on_termination: bool = True
    """Whether pods that ended are deleted; if not, they are labelled inactive and left for inspection.

    Spark: `spark.kubernetes.executor.deleteOnTermination`.
    """
    missing_pod_detect_delta: Duration = timedelta(seconds=30)
    """How long an executor that the driver knows may be absent from the API before it counts as missing.

    Spark: `spark.kubernetes.executor.missingPodDetectDelta`.
    """
    check_all_containers: bool = True
    """Whether a failed sidecar makes the executor failed. Spark: `spark.kubernetes.executor.checkAllContainers`."""
    removed_executors_ttl: Duration = timedelta(minutes=3)
    """How long an executor that is gone is remembered, so that a late message about it is not taken for news.

    Spark: `spark.kubernetes.executor.deletedExecutorsCacheTimeout`.
    """
    kill_grace_period: Duration = timedelta(seconds=5)
    """How long an executor that is killed has to end by itself.

    Spark: `spark.kubernetes.dynamicAllocation.deleteGracePeriod`.
    """
    max_failures: Count | None = Field(default=None, examples=[6])
    """How many executors may fail before the fleet counts as failed; without it, twice the target, and at least 3.

    Spark: `spark.executor.maxNumFailures`.
    """
    failures_validity_interval: Duration | None = Field(default=None, examples=["1h"])
    """How long a failure counts; without it, for ever. Spark: `spark.executor.failuresValidityInterval`."""
    stuck_timeout: Duration = timedelta(minutes=5)
    """How long a pod may make no progress before the driver is told that it is stuck, if its status does not say so
    sooner. One that waits for what will never come, such as an image with an invalid name, is replaced then, and counts
    as a failure to start.
    """
    min_run_time: Duration = timedelta(seconds=10)
    """An executor that ends sooner than this after its start counts as a failure to start. One that others end as soon
    does not, but where the one made in its place is ended, too, the next ones have to wait in the same way.
    """
    disconnect_timeout: Duration = timedelta(minutes=2)
    """How long an executor may be disconnected from the driver before it is taken for lost."""
    terminating_timeout: Duration = timedelta(seconds=60)
    """How long after its grace period a pod may still be terminating before its node is taken for lost."""
    kill_label: Label | None = Field(default=None, examples=["example.com/state=killed"])
    """A label, as key=value, that an executor's pod gets when the driver kills it; it is deleted
    `kill_grace_period` later if it still runs. For what must know before: a service's selector, the executor itself.
    """
    decommission_label: Label | None = Field(default=None, examples=["example.com/state=leaving"])
    """A label, as key=value, that an executor's pod gets when it is decommissioned, so that a disruption budget or a
    service's selector can tell.

    Spark: `spark.kubernetes.executor.decommissionLabel` and `spark.kubernetes.executor.decommissionLabelValue`.
    """
    decommission_deletion_cost: DeletionCost | None = Field(default=None, examples=[-100])
    """What a decommissioned executor's pod is annotated with as `controller.kubernetes.io/pod-deletion-cost`: who
    scales pods down takes the lowest first.

    Spark: `spark.kubernetes.executor.podDeletionCost`.
    """
    own_claims: bool = True
    """Whether the driver's pod owns the executors' claims, so that they outlive the executors and end with the driver.
    If not, or without `driver_pod_name`, each executor's pod owns its claims, and they go with it: they are generic
    ephemeral volumes then, whose claims the cluster makes and names `<pod>-<name>`.

    Spark: `spark.kubernetes.driver.ownPersistentVolumeClaim`.
    """
    reuse_claims: bool = True
    """Whether an executor takes over the claims of one of its profile that ended, if the driver's pod owns them: of the
    same `name` and class, at least of the size, in use by no pod, and older than `allocation.creation_timeout`. Without
    the right to list claims none is taken over, and new ones are made.

    Spark: `spark.kubernetes.driver.reusePersistentVolumeClaim`.
    """
    wait_to_reuse_claim: bool = False
    """Whether an executor waits for the claims of one that ended, once there are as many as the target has use for,
    rather than have new ones made. Needs `own_claims`, `reuse_claims` and `driver_pod_name`. An executor that is
    replaced while it terminates still has its claims: without this its replacement gets others.

    Spark: `spark.kubernetes.driver.waitToReusePersistentVolumeClaim`.
    """

    def failures_allowed(self, target: int) -> int:
        """How many failures a fleet of this target may have: `max_failures`, else twice the target, and at least 3."""
        return self.max_failures if self.max_failures is not None else max(3, 2 * target)

    def _contradictions(self) -> Iterator[str]:
        yield from super()._contradictions()
        if self.wait_to_reuse_claim and not (self.own_claims and self.reuse_claims):
            lacking = "own_claims" if not self.own_claims else "reuse_claims"
            yield f"wait_to_reuse_claim = true: needs {lacking}, which is false"


class AllocationSettings(Group):
    """How the fleet is brought to its target."""

    batch_size: Count = 20
    """How many executors a round requests. Spark: `spark.kubernetes.allocation.batch.size`."""
    max_batch_size: Count = 500
    """How far batches may grow while creation succeeds; they fall back to `batch_size` when it fails."""
    batch_delay: Duration = timedelta(seconds=1)
    """The time between two rounds. Spark: `spark.kubernetes.allocation.batch.delay`."""
    creation_timeout: Duration = timedelta(seconds=60)
    """How long after its request a pod may stay unseen before it is given up; never less than five times `batch_delay`.

    Spark: `spark.kubernetes.allocation.executor.timeout`.
    """
    idle_timeout: Duration = timedelta(seconds=60)
    """An executor younger than this is not deleted for being in excess.

    Spark: `spark.dynamicAllocation.executorIdleTimeout`.
    """
    max_pending_pods: Count | None = Field(default=None, examples=[200])
    """How many pods may be pending at once, over all profiles; without it, any number.

    Spark: `spark.kubernetes.allocation.maxPendingPods`.
    """
    max_pending_pods_per_profile: Count | None = Field(default=None, examples=[100])
    """How many pods of one profile may be pending at once. Spark: `spark.kubernetes.allocation.maxPendingPodsPerRp`."""
    max_created: Count | None = Field(default=None, examples=[5000])
    """How many pods are created in the driver's life, over all profiles, replacements included; then the fleet grows
    no more. Without it, any number.

    Spark: `spark.kubernetes.allocation.maximum`.
    """
    pacing: Literal["pipelined", "batch"] = "pipelined"
    """When the next batch is requested: `"pipelined"`, as soon as the last one's requests are answered; `"batch"`, as
    Spark does, once none of its pods is unseen or pending.
    """
    pod_replacement_policy: Literal["TerminatingOrFailed", "Failed"] = "TerminatingOrFailed"
    """When an executor that goes is replaced, as a Kubernetes Job has it: as soon as it terminates, or only when it has
    ended.
    """
    max_requests_in_flight: Parallelism = 16
    """How many requests to the API run at the same time."""
    max_requests_per_second: Rate | None = Field(default=None, examples=[50.0])
    """How many pods are created, deleted or labelled in a second, on average; without it, as many as get through."""

    @property
    def unseen_timeout(self) -> timedelta:
        """The creation timeout that counts: a pod gets five rounds to appear, however long a round is."""
        return max(self.creation_timeout, 5 * self.batch_delay)

    @property
    def connections(self) -> int:
        """How many calls may be under way in all: a list of each source, the lease and one of the Backend's, too.

        None of these may wait until POSTs that hang are answered, the lease least of all.
        """
        return self.max_requests_in_flight + 4

    def _contradictions(self) -> Iterator[str]:
        if self.max_batch_size < self.batch_size:
            yield f"max_batch_size = {self.max_batch_size}: must be at least batch_size ({self.batch_size})"
        everyone, profile = self.max_pending_pods, self.max_pending_pods_per_profile
        if everyone is not None and profile is not None and profile > everyone:
            yield f"max_pending_pods_per_profile = {profile}: must be at most max_pending_pods ({everyone})"


class SourceSettings(Group):
    """How the cluster is observed."""

    stale_after: Duration = timedelta(seconds=90)
    """Without news from the watch and without a full list for this long, nothing is created or deleted."""
    streaming_list: bool = False
    """Whether the watch begins with a streaming list (`sendInitialEvents`), which costs the API server less memory than
    a LIST; on a server that has none, a LIST is used all the same.
    """
    inactivity_timeout: Duration = timedelta(seconds=70)
    """A watch without a byte for this long is taken for dead; the API sends a bookmark about once a minute."""

    def _contradictions(self) -> Iterator[str]:
        if self.inactivity_timeout > self.stale_after:
            yield (
                f"inactivity_timeout = {format_duration(self.inactivity_timeout)}: "
                f"must be at most stale_after ({format_duration(self.stale_after)})"
            )


class StoreSettings(Group):
    """How snapshots are handed on."""

    min_round_interval: Duration = timedelta(milliseconds=20)
    """How soon after a round the end of a pod may start the next one."""


class BackendSettings(Group):
    """The whole: how it starts, how it stops, and what it waits for."""

    min_registered_ratio: Ratio = 0.8
    """The part of the initial executors that must be registered for the fleet to be enough.

    Spark: `spark.scheduler.minRegisteredResourcesRatio`.
    """
    start_timeout: Duration = timedelta(seconds=30)
    """How long the first full list may take before the backend counts as failed."""
    request_timeout: Duration = timedelta(seconds=10)
    """How long one request to the API may take, from looking up its name to the last byte."""
    shutdown_timeout: Duration = timedelta(seconds=30)
    """How long a stop may take, even if the API is away."""
    hang_timeout: Duration = timedelta(seconds=30)
    """A part of the backend that is busy with one message for longer than this is replaced; while the backend stops,
    for longer than a sixth of `shutdown_timeout`. Time in which the whole process is suspended does not count.
    """
    delete_on_stop: bool = True
    """Whether a stop deletes the fleet."""
    delete_inactive_on_stop: bool = False
    """Whether a stop that deletes the fleet also deletes the pods that were set aside because
    `executor.delete_on_termination` is off.
    """
    driver_ready_timeout: Duration = timedelta(minutes=1)
    """How long to wait, at the start, for the driver's pod (`driver_pod_name`) to be ready, so that executors can
    connect to it; after that, executors are created all the same.

    Spark: `spark.kubernetes.allocation.driver.readinessTimeout`.
    """
    lease: Switch = "auto"
    """Whether a Lease named as the `app_id` keeps a second driver of the same `app_id` from writing: true, false, or
    "auto": only if the `app_id` was given, for one that was generated is nobody else's.
    """
    lease_duration: Duration = timedelta(seconds=15)
    """How long the Lease lasts without being renewed, in whole seconds, until another driver may take it; it is renewed
    every third of this.
    """

    def _contradictions(self) -> Iterator[str]:
        if self.request_timeout >= self.shutdown_timeout:
            yield (
                f"request_timeout = {format_duration(self.request_timeout)}: "
                f"must be below shutdown_timeout ({format_duration(self.shutdown_timeout)})"
            )
        if self.lease_duration % timedelta(seconds=1):
            yield f"lease_duration = {format_duration(self.lease_duration)}: must be whole seconds, as a Lease has them"


class RollSettings(Group):
    """Rolling: running executors are replaced one by one, while the fleet keeps its size."""

    interval: Duration | None = Field(default=None, examples=["1h"])
    """How often one executor is decommissioned and replaced; without it, none is.

    Spark: `spark.kubernetes.executor.rollInterval`.
    """
    policy: Literal["id", "age", "failures"] = "id"
    """Which one goes: `"id"`, the one of the lowest id; `"age"`, the one that has run the longest; `"failures"`, the
    one whose connection was lost and whose containers were restarted most often, and none while there is no such.

    Spark: `spark.kubernetes.executor.rollPolicy`.
    """
