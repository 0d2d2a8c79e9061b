"""Every knob of the library, one docstring each; `config/reference.toml` is this file in another spelling.

Named after Spark's keys, so that people who know those find them. A value comes from the constructor, else from the
environment (`EXECUTOR_PODS_EXECUTOR__INSTANCES`), else from a TOML file, else from here. Everything wrong with the
values is found at once and raised as one `SettingsError`, one line a problem: a fleet never starts on half a
configuration. Settings never change after that: all models are frozen.
"""

from __future__ import annotations

from contextvars import ContextVar
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Literal, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_settings import (
    BaseSettings,
    InitSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)
from pydantic_settings.exceptions import SettingsError as UnreadableVariable

from actors.durations import format_duration
from actors.errors import SettingsError
from actors.pods import PodRules
from actors.runtime import Entropy
from actors.settings_errors import GroupError, from_validation, unknown
from actors.settings_sources import ENV_PREFIX, environment, is_given, read_file
from actors.settings_types import (
    LONGEST_DNS_LABEL,
    Argv,
    Count,
    DnsLabel,
    Duration,
    Parallelism,
    PodName,
    Rate,
    Ratio,
    Size,
    Template,
    Word,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

__all__ = [
    "AllocationSettings",
    "BackendSettings",
    "ExecutorSettings",
    "Settings",
    "SourceSettings",
    "StoreSettings",
]

_LONGEST_PREFIX: Final = LONGEST_DNS_LABEL - len("-exec-999999999")
"""A pod's name is its host's name too, so it must stay a DNS label up to the thousand-millionth executor."""


_M = TypeVar("_M", bound=BaseModel)


# ── Groups ───────────────────────────────────────────────────────────────────────────────────────────────────────


class _Group(BaseModel):
    """Settings that belong together."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise from_validation(error, list(type(self).model_fields)) from None


def _refuse(settings: _M, contradictions: Iterator[str]) -> _M:
    if problems := list(contradictions):
        raise GroupError(problems)
    return settings


class ExecutorSettings(_Group):
    """The executors: how many, what they run, and when one counts as gone."""

    instances: Size = 2
    """How many executors of the default profile the fleet starts with. Spark: `spark.executor.instances`."""
    image: Word | None = Field(default=None, examples=["registry.example/worker:1.4"])
    """Image of the executor's container; without it, the pod template's.

    Spark: `spark.kubernetes.executor.container.image`.
    """
    command: Argv | None = Field(default=None, examples=[["python", "-m", "worker"]])
    """What the executor's container runs, as a list; without it, the image's own entrypoint."""
    container: DnsLabel = "executor"
    """Name of the executor's container in the pod template; without one of that name, the first.

    Spark: `spark.kubernetes.executor.podTemplateContainerName`.
    """
    pod_template: Template | None = Field(default=None, examples=["executor-pod.yaml"])
    """A v1 Pod to make every executor's pod from: the path of a YAML file (in a TOML file, relative to that), or the
    Pod itself.

    Spark: `spark.kubernetes.executor.podTemplateFile`.
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
    """How long a pod may make no progress before the driver is told that it is stuck."""
    min_run_time: Duration = timedelta(seconds=10)
    """An executor that ends sooner than this after its start counts as a failure to start."""
    disconnect_timeout: Duration = timedelta(minutes=2)
    """How long an executor may be disconnected from the driver before it is taken for lost."""
    terminating_timeout: Duration = timedelta(seconds=60)
    """How long after its grace period a pod may still be terminating before its node is taken for lost."""

    def failures_allowed(self, target: int) -> int:
        """How many failures a fleet of this target may have: `max_failures`, else twice the target, and at least 3."""
        return self.max_failures if self.max_failures is not None else max(3, 2 * target)


class AllocationSettings(_Group):
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

    @model_validator(mode="after")
    def _agree(self) -> Self:
        return _refuse(self, self._contradictions())

    def _contradictions(self) -> Iterator[str]:
        if self.max_batch_size < self.batch_size:
            yield f"max_batch_size = {self.max_batch_size}: must be at least batch_size ({self.batch_size})"
        everyone, profile = self.max_pending_pods, self.max_pending_pods_per_profile
        if everyone is not None and profile is not None and profile > everyone:
            yield f"max_pending_pods_per_profile = {profile}: must be at most max_pending_pods ({everyone})"


class SourceSettings(_Group):
    """How the cluster is observed."""

    stale_after: Duration = timedelta(seconds=90)
    """Without news from the watch and without a full list for this long, nothing is created or deleted."""
    streaming_list: bool = False
    """Whether the watch begins with a streaming list (`sendInitialEvents`), which costs the API server less memory than
    a LIST; on a server that has none, a LIST is used all the same.
    """
    inactivity_timeout: Duration = timedelta(seconds=70)
    """A watch without a byte for this long is taken for dead; the API sends a bookmark about once a minute."""

    @model_validator(mode="after")
    def _agree(self) -> Self:
        return _refuse(self, self._contradictions())

    def _contradictions(self) -> Iterator[str]:
        if self.inactivity_timeout > self.stale_after:
            yield (
                f"inactivity_timeout = {format_duration(self.inactivity_timeout)}: "
                f"must be at most stale_after ({format_duration(self.stale_after)})"
            )


class StoreSettings(_Group):
    """How snapshots are handed on."""

    min_round_interval: Duration = timedelta(milliseconds=20)
    """How soon after a round the end of a pod may start the next one."""


class BackendSettings(_Group):
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
    """A part of the backend that is busy with one message for longer than this is replaced."""
    delete_on_stop: bool = True
    """Whether a stop deletes the fleet."""

    @model_validator(mode="after")
    def _agree(self) -> Self:
        return _refuse(self, self._contradictions())

    def _contradictions(self) -> Iterator[str]:
        if self.request_timeout >= self.shutdown_timeout:
            yield (
                f"request_timeout = {format_duration(self.request_timeout)}: "
                f"must be below shutdown_timeout ({format_duration(self.shutdown_timeout)})"
            )


# ── The whole ────────────────────────────────────────────────────────────────────────────────────────────────────


_file_values: ContextVar[Mapping[str, Any] | None] = ContextVar("_file_values", default=None)
"""What `Settings.load` read, for the time of one construction: pydantic-settings has no argument for it."""


class Settings(BaseSettings):
    """All settings. Raises `SettingsError` when something is wrong with them, naming every problem."""

    model_config = SettingsConfigDict(
        frozen=True,
        extra="forbid",
        validate_default=True,
        env_prefix=ENV_PREFIX,
        env_nested_delimiter="__",
    )

    app_id: DnsLabel = Field(default_factory=lambda: f"fleet-{Entropy().token(6)}", examples=["etl"])
    """Tells this fleet's pods from those of others in the namespace; generated unless set. Set it, and a restarted
    driver finds its executors again.

    Spark: `spark.app.id`.
    """
    namespace: DnsLabel | None = Field(default=None, examples=["batch"])
    """Where the pods live; without it, the namespace of the kubeconfig's context or of the driver's own pod.

    Spark: `spark.kubernetes.namespace`.
    """
    driver_pod_name: PodName | None = Field(default=None, examples=["etl-driver"])
    """The driver's own pod: it becomes the executors' owner, so that they never outlive it.

    Spark: `spark.kubernetes.driver.pod.name`.
    """
    driver_address: Word | None = Field(default=None, examples=["etl-driver.batch.svc:7077"])
    """Where executors find the driver, handed to them as `DRIVER_ADDRESS`."""
    executor: ExecutorSettings = ExecutorSettings()
    allocation: AllocationSettings = AllocationSettings()
    source: SourceSettings = SourceSettings()
    store: StoreSettings = StoreSettings()
    backend: BackendSettings = BackendSettings()

    def __init__(self, **values: Any) -> None:
        variables = dict(environment())
        problems = [
            f"{unknown(name, setting_names())} (from the environment: {variable})"
            for name, variable in variables.items()
            if name.partition(".")[0] not in type(self).model_fields
        ]
        try:
            super().__init__(**values)
        except ValidationError as error:
            origins = {name: variable for name, variable in variables.items() if not is_given(name, values)}
            found = from_validation(error, setting_names(), variables=origins)
            raise SettingsError("\n".join((*problems, *found.problems))) from None
        except UnreadableVariable as error:
            raise SettingsError("\n".join((*problems, f"environment: {error}: it must be JSON"))) from None
        if problems:
            raise SettingsError("\n".join(problems))

    @classmethod
    def load(cls, path: Path | None = None, **overrides: Any) -> Self:
        """Settings from a TOML file; the environment goes over it, and `overrides` (as the constructor's) over both.

        Raises:
            SettingsError: the file cannot be read, is not TOML, or some value is wrong.
        """
        token = _file_values.set(None if path is None else read_file(path))
        try:
            return cls(**overrides)
        finally:
            _file_values.reset(token)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - pydantic-settings' signature
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - the same
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """The constructor over the environment over the file."""
        return init_settings, env_settings, InitSettingsSource(settings_cls, init_kwargs=dict(_file_values.get() or {}))

    @property
    def pod_prefix(self) -> str:
        """What pod names start with."""
        return self.executor.prefix or self.app_id

    @property
    def pod_rules(self) -> PodRules:
        """What `classify` needs to know."""
        return PodRules(
            executor_container=self.executor.container, check_all_containers=self.executor.check_all_containers
        )

    @model_validator(mode="after")
    def _agree(self) -> Self:
        return _refuse(self, self._contradictions())

    def _contradictions(self) -> Iterator[str]:
        if len(self.pod_prefix) > _LONGEST_PREFIX:
            name = "executor.prefix" if self.executor.prefix else "app_id"
            remedy = "" if self.executor.prefix else ", or executor.prefix be set"
            yield (
                f"{name} = {self.pod_prefix!r}: must be at most {_LONGEST_PREFIX} characters, "
                f'so that pod names ("<prefix>-exec-<id>") stay DNS labels{remedy}'
            )
        for name, interval in (
            ("executor.event_processing_interval", self.executor.event_processing_interval),
            ("allocation.batch_delay", self.allocation.batch_delay),
        ):
            if self.store.min_round_interval > interval:
                yield (
                    f"store.min_round_interval = {format_duration(self.store.min_round_interval)}: "
                    f"must be at most {name} ({format_duration(interval)})"
                )


def setting_names() -> list[str]:
    """The dotted name of every setting, in the order of this file."""
    names: list[str] = []
    for name, field in Settings.model_fields.items():
        group = field.annotation
        if isinstance(group, type) and issubclass(group, _Group):
            names.extend(f"{name}.{inner}" for inner in group.model_fields)
        else:
            names.append(name)
    return names
