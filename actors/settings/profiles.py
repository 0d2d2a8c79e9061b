"""The settings that shape a pod: `executor` sets them for all executors, a profile for its own.

A profile has the same settings as `executor` and inherits, setting by setting, those that it does not set. A map or
list that a profile sets replaces the whole map or list of `executor`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar

from pydantic import Field

from actors.settings.pod_parts import (
    ClaimSettings,
    EnvFromSettings,
    Environment,
    OomSettings,
    ResourceSettings,
    TolerationSettings,
)
from actors.settings.templates import Template
from actors.settings.types import (
    AnnotationKey,
    AnnotationValue,
    Argv,
    Command,
    Count,
    Duration,
    Folder,
    FromJson,
    FromText,
    Group,
    LabelKey,
    LabelValue,
    ObjectName,
    OwnLabelKey,
    Ready,
    Replace,
    Size,
    Word,
    Words,
    annotations_problem,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Unpack

    from actors.settings.values import ProfileValues

__all__ = ["ProfileSettings", "ShapeSettings"]


class ShapeSettings(Group):
    """What executors run, and what their pods look like."""

    instances: Size = 0
    """How many executors the fleet starts with."""
    warm: Size | None = Field(default=None, examples=[40])
    """How many executors are kept ready, besides those that are leased (`AcquireExecutor`). The target follows the
    leases: `instances` and `replace` have no effect, `ScaleExecutors` is refused, and `SetWarm` changes this number. A
    profile does not inherit it. Without it: there are no leases, and the driver sets the target.
    """
    max_executors: Size | None = Field(default=None, examples=[200])
    """The highest target of a profile with `warm`: whoever wants more executors waits. A profile does not inherit it.
    Without it: 100,000.
    """
    ready: Ready = Field(default="running", examples=["registered"])
    """When an executor of a profile with `warm` can be leased: once its pod is "running", or once it is "registered"
    with the driver."""
    max_leases: Count | None = Field(default=None, examples=[20])
    """How often an executor is leased, if it is given back for reuse. Without it: any number of times."""
    max_age: Duration | None = Field(default=None, examples=["1h"])
    """How long an executor of a profile with `warm` is offered after it began to run. Then it is replaced, once nobody
    has it and the pool is full: so executors of the same age do not end together. Without it: always.
    """
    image: Word | None = Field(default=None, examples=["registry.example/worker:1.4"])
    """Image of the executor's container. Without it: the pod template's.

    Spark: `spark.kubernetes.executor.container.image`.
    """
    command: Argv | None = Field(default=None, examples=[["python", "-m", "worker"]])
    """Command of the executor's container, as a list. It replaces the template's command and args. Without it: the pod
    template's, or the image's own entrypoint.
    """
    args: Words | None = Field(default=None, examples=[["--port", "7077"]])
    """Arguments of the command, or of the image's own entrypoint, as a list. They replace the template's."""
    drain_timeout: Duration | None = Field(default=None, examples=["60s"])
    """How long an executor has to drain (to finish its work, or hand it over) before SIGTERM, whoever deletes its pod:
    the pod pauses first (`lifecycle.preStop`), and `terminationGracePeriodSeconds` is this much longer than the pod
    template's (default: 30 s). The pause ends early when the executor's process ends, or creates the file that
    EXECUTOR_DRAINED_FILE names. `RetireExecutors` gives it the same time before the pod is deleted. What the fleet
    itself deletes does not pause. Without it: SIGTERM comes at once.
    """
    drain_command: Command | None = Field(default=None, examples=[["python", "-m", "worker.drain"]])
    """Command that runs in the executor's container during the pause, as a list, instead of the one that waits for
    EXECUTOR_DRAINED_FILE and needs `sh` and `sleep` in the image. The pause ends with the command or the executor's
    process. A command that takes longer than `drain_timeout` uses up what the executor has left after SIGTERM.

    An empty list: no command, the node itself sleeps. This works with every image, needs Kubernetes 1.30, and is served
    in full by a node: neither the executor nor the driver can end it.
    """
    stop_grace_period: Duration | None = Field(default=None, examples=["30s"])
    """How long an executor has to end when the fleet is stopped: the grace period with which a stop deletes its pod,
    rounded up to seconds. Without it: 4 s, or `terminationGracePeriodSeconds` if the pod template or its patch sets
    that; but 1 s with `drain_timeout`, as a stop does not wait for pauses.
    """
    share_process_namespace: bool | None = Field(default=None, examples=[True])
    """Whether the containers of a pod share one process namespace (`shareProcessNamespace`). The command of a container
    is then not process 1, so SIGTERM ends a program that does not handle it; as process 1 it would ignore SIGTERM.
    Each container sees the processes of the others; with the same user also their environment (/proc/PID/environ) and
    files (/proc/PID/root), Secrets included. Without it: as the pod template says.
    """
    working_dir: Folder | None = Field(default=None, examples=["/app"])
    """Folder in which the command starts. It replaces the template's. Without both: the image's."""
    env: Environment | None = Field(
        default=None, examples=[{"LOG_LEVEL": "info", "TOKEN": {"secret": "db", "key": "token"}}], repr=False
    )
    """Environment variables of the executor's container. A value is text, or one key of a Secret or ConfigMap of the
    namespace: `secret` or `config_map`, `key`, and perhaps `optional` (default: false). They override the template's,
    variable by variable. DRIVER_ADDRESS and all names that begin with EXECUTOR_ are set by the fleet.

    EXECUTOR_PODS_EXECUTOR__ENV__LOG_LEVEL=debug sets LOG_LEVEL.

    Spark: `spark.executorEnv.<name>`, `spark.kubernetes.executor.secretKeyRef.<name>`.
    """
    env_from: Annotated[tuple[EnvFromSettings, ...], FromJson, FromText] = Field(
        default=(), examples=[[{"config_map": "site"}, {"secret": "db", "prefix": "DB_"}]]
    )
    """Secrets and ConfigMaps of the namespace. All their keys become environment variables of the executor's container.
    Each has `secret` or `config_map`, and may have `prefix`, with which the variables' names begin, and `optional`
    (default: false). They are added after the template's, so they override those; `env` overrides both.
    """
    pod_template: Template | None = Field(default=None, examples=["executor-pod.yaml"], repr=False)
    """The v1 Pod from which every executor's pod is made: the Pod itself, or the path of a YAML file (in a TOML file,
    relative to that).

    Spark: `spark.kubernetes.executor.podTemplateFile`.
    """
    template_patch: Template | None = Field(
        default=None, examples=[{"spec": {"terminationGracePeriodSeconds": 60}}], repr=False
    )
    """A partial v1 Pod, given like `pod_template`, that is merged into the template as `kubectl patch` does it
    (strategic merge): containers, volumes and environment variables of the same name are merged; other lists, such as
    tolerations, are replaced; null removes a field.
    """
    resources: Annotated[ResourceSettings, FromJson] | None = Field(
        default=None,
        examples=[{"requests": {"cpu": "1", "memory": "4Gi"}, "limits": {"memory": "4Gi"}}],
    )
    """Requests and limits of the executor's container. They override the template's, resource by resource.

    Spark: `spark.kubernetes.executor.request.cores`, `spark.kubernetes.executor.limit.cores`, `spark.executor.memory`.
    """
    node_selector: Annotated[dict[LabelKey, LabelValue], FromJson, FromText] | None = Field(
        default=None, examples=[{"kubernetes.io/arch": "amd64"}]
    )
    """Labels of the nodes that executors may run on. They override the template's, label by label.

    Spark: `spark.kubernetes.executor.node.selector.<label>`.
    """
    tolerations: Annotated[tuple[TolerationSettings, ...], FromJson, FromText] = Field(
        default=(), examples=[[{"key": "spot", "operator": "Exists", "effect": "NoSchedule"}]]
    )
    """Taints of nodes that executors tolerate, each a v1 Toleration (`key`, `operator`, `value`, `effect`,
    `tolerationSeconds`). They are added to the template's.
    """
    priority_class: ObjectName | None = Field(default=None, examples=["batch"])
    """Name of the executors' PriorityClass. It replaces the template's class, priority and preemption policy."""
    service_account: ObjectName | None = Field(default=None, examples=["worker"])
    """Name of the service account that executors run as. It replaces the template's. Without both: the namespace's
    account `default`.

    Spark: `spark.kubernetes.authenticate.executor.serviceAccountName`.
    """
    image_pull_secrets: Annotated[tuple[ObjectName, ...], FromJson, FromText] = Field(
        default=(), examples=[["registry"]]
    )
    """Names of the Secrets with which images are pulled. They are added to the template's.

    Spark: `spark.kubernetes.container.image.pullSecrets`.
    """
    labels: Annotated[dict[OwnLabelKey, LabelValue], FromJson, FromText] | None = Field(
        default=None, examples=[{"team": "blue"}]
    )
    """Labels of the executors' pods. They override the template's, label by label. Those that begin with
    executor-pods/, and app.kubernetes.io/managed-by, are set by the fleet.

    Spark: `spark.kubernetes.executor.label.<name>`.
    """
    annotations: Annotated[dict[AnnotationKey, AnnotationValue], FromJson, FromText] | None = Field(
        default=None, examples=[{"example.com/owner": "etl"}]
    )
    """Annotations of the executors' pods, together at most 256 KiB. They override the template's, key by key.

    Spark: `spark.kubernetes.executor.annotation.<name>`.
    """
    claims: Annotated[tuple[ClaimSettings, ...], FromJson, FromText] = Field(
        default=(),
        examples=[[{"name": "scratch", "mount_path": "/scratch", "size": "100Gi", "storage_class": "fast"}]],
    )
    """Volumes that each executor gets for itself: PersistentVolumeClaims named `<pod>-pvc-<n>`, mounted into its
    container. Each has a `name`, a `mount_path` and a `size`, and may have `storage_class` (default: the cluster's
    default), `access_modes` (default: ["ReadWriteOnce"]), `read_only` (default: false) and `sub_path` (default: none).

    Spark: `spark.kubernetes.executor.volumes.persistentVolumeClaim.<name>.…`.
    """
    on_oom: Annotated[OomSettings, FromJson] | None = Field(default=None, examples=[{"factor": 1.5, "max": "16Gi"}])
    """How the replacement of an executor that was killed for using more memory than its limit gets more: its memory
    times `factor`, at most `max`, or the pod of another `profile`. A replacement that is killed too is replaced by one
    with more again. The executor counts for its own profile. A profile inherits a `factor`, but not a `profile`.
    Without it: the replacement is like the executor that it replaces.
    """
    replace: Replace = Field(default="always", examples=[["EVICTED", "PREEMPTED", "NODE_LOST"]])
    """Which lost executors are replaced: "always", "never", or a list of the loss kinds that are. One that is not
    replaced lowers the target by one, and its `ExecutorRemoved` says so (`lowered_target`). Set it where an engine
    decides itself who is replaced (Ray, Parsl, torchrun, MPI). Executors in excess of the target, and rolled ones, are
    no loss. In such a profile the replacement is requested when the end is told, and not before.
    """

    def _contradictions(self) -> Iterator[str]:
        if problem := annotations_problem(self.annotations or {}):
            yield f"annotations: {problem}"
        yield from (f"image_pull_secrets: {each!r} appears twice" for each in _repeated(self.image_pull_secrets))
        for what, values in (
            ("name", [claim.name for claim in self.claims]),
            ("mount_path", [claim.mount_path for claim in self.claims]),
        ):
            yield from (f"claims: the {what} {each!r} appears twice" for each in _repeated(values))
        if self.max_executors is not None and self.max_executors < (self.warm or 0):
            yield f"max_executors = {self.max_executors}: must be at least warm ({self.warm})"


def _repeated(values: Sequence[str]) -> list[str]:
    return sorted({each for each in values if values.count(each) > 1})


class ProfileSettings(ShapeSettings):
    """A pod shape with its own target. It inherits from `executor` what it does not set."""

    instances: Size = 0
    """How many executors of this profile the fleet starts with."""

    OWN: ClassVar = frozenset({"instances", "warm", "max_executors"})
    """The numbers of executors, which are not inherited."""

    if TYPE_CHECKING:

        def __init__(self, **values: Unpack[ProfileValues]) -> None: ...

    def over(self, base: ShapeSettings) -> ProfileSettings:
        """Return this profile with the settings of `base` that it does not set, except the numbers of executors."""
        names = ShapeSettings.model_fields.keys() - self.OWN
        return self.model_copy(update={name: getattr(base, name) for name in names if not self.sets(name)})

    @property
    def start(self) -> int:
        """How many executors of this profile the fleet starts with, warm ones included."""
        return self.instances if self.warm is None else self.warm

    def sets(self, name: str) -> bool:
        """Whether the profile itself sets this, even to none."""
        return name in self.model_fields_set
