"""The settings that shape a pod: `executor` sets them for all executors, a profile for its own.

A profile has the same settings as `executor` and inherits, setting by setting, those that it does not set. A map or
list that a profile sets replaces the whole map or list of `executor`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final, TypeAlias

from pydantic import Field
from pydantic_settings import NoDecode

from actors.kube.quantities import parse_quantity
from actors.settings.types import (
    AccessMode,
    Argv,
    ClaimSize,
    DnsLabel,
    FromJson,
    Group,
    LabelKey,
    LabelValue,
    MountPath,
    Quantity,
    ResourceName,
    Size,
    StorageClass,
    SubPath,
    Template,
    Word,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

__all__ = ["ClaimSettings", "ProfileSettings", "ResourceSettings", "ShapeSettings", "resource_problems"]

Quantities: TypeAlias = Annotated[dict[ResourceName, Quantity], FromJson, NoDecode]

_ONE_POD: Final = "ReadWriteOncePod"


class ResourceSettings(Group):
    """The executor container's `resources`."""

    requests: Quantities = Field(default_factory=dict)
    """What the node must have free for it."""
    limits: Quantities = Field(default_factory=dict)
    """What it may use at most."""

    def _contradictions(self) -> Iterator[str]:
        return resource_problems(self.requests, self.limits, complete=False)


def resource_problems(
    requests: Mapping[str, object], limits: Mapping[str, object], *, complete: bool = True
) -> Iterator[str]:
    """Yield where requests and limits contradict each other, by the API server's rules.

    Devices and huge pages cannot be overcommitted: they are requested in whole numbers, and the request equals the
    limit. Resources that are not `complete` are merged over others, which may have the missing limit.
    """
    named = {*requests, *limits}
    if complete and not named & {"cpu", "memory"} and (huge := next(filter(_are_huge_pages, named), None)):
        yield f"{huge!r} needs cpu or memory beside it"
    for name, request in requests.items():
        is_shared = not ("/" in name or _are_huge_pages(name))
        if name in limits:
            yield from _pair_problems(name, request, limits[name], is_shared=is_shared)
        elif complete and not is_shared:
            yield f"requests has {name!r} = {request!r}: needs the same in limits"
    for part, quantities in (("requests", requests), ("limits", limits)):
        for name, quantity in quantities.items():
            number = parse_quantity(quantity)
            if "/" in name and number is not None and number != number.to_integral_value():
                yield f"{part} has {name!r} = {quantity!r}: must be a whole number"


def _pair_problems(name: str, request: object, limit: object, *, is_shared: bool) -> Iterator[str]:
    requested, most = parse_quantity(request), parse_quantity(limit)
    if requested is None or most is None:
        return  # refused where it is read
    if is_shared and requested > most:
        yield f"requests has {name!r} = {request!r}: must be at most what limits has ({limit!r})"
    elif not is_shared and requested != most:
        yield f"requests has {name!r} = {request!r}: must be what limits has ({limit!r})"


def _are_huge_pages(resource: str) -> bool:
    return resource.startswith("hugepages-")


class ClaimSettings(Group):
    """One volume per executor: a PersistentVolumeClaim `<pod>-pvc-<n>`, mounted into its container."""

    name: DnsLabel
    """Name of the volume in the pod."""
    mount_path: MountPath
    """Where it is mounted in the executor's container. Spark: `…persistentVolumeClaim.<name>.mount.path`."""
    size: ClaimSize
    """Its minimum size. Spark: `…persistentVolumeClaim.<name>.options.sizeLimit`."""
    storage_class: StorageClass | None = None
    """Its storage class. Without it: the cluster's default class; "" means a volume without any class.

    Spark: `…persistentVolumeClaim.<name>.options.storageClass`.
    """
    access_modes: tuple[AccessMode, ...] = ("ReadWriteOnce",)
    """How it may be mounted. Spark: `…persistentVolumeClaim.<name>.options.accessMode`, a single one."""
    read_only: bool = False
    """Whether the executor may only read it. Spark: `…persistentVolumeClaim.<name>.mount.readOnly`."""
    sub_path: SubPath | None = None
    """The folder of the volume to mount. Without it: all. Spark: `…persistentVolumeClaim.<name>.mount.subPath`."""

    def _contradictions(self) -> Iterator[str]:
        modes = list(self.access_modes)
        if not modes:
            yield "access_modes = []: must name at least one"
        if _ONE_POD in modes and len(modes) > 1:
            yield f"access_modes = {modes}: {_ONE_POD} must be alone"


class ShapeSettings(Group):
    """What executors run, and what their pods look like."""

    instances: Size = 0
    """How many executors the fleet starts with."""
    image: Word | None = Field(default=None, examples=["registry.example/worker:1.4"])
    """Image of the executor's container. Without it: the pod template's.

    Spark: `spark.kubernetes.executor.container.image`.
    """
    command: Argv | None = Field(default=None, examples=[["python", "-m", "worker"]])
    """Command of the executor's container, as a list. Without it: the image's own entrypoint."""
    pod_template: Template | None = Field(default=None, examples=["executor-pod.yaml"])
    """The v1 Pod from which every executor's pod is made: the Pod itself, or the path of a YAML file (in a TOML file,
    relative to that).

    Spark: `spark.kubernetes.executor.podTemplateFile`.
    """
    template_patch: Template | None = Field(
        default=None, examples=[{"spec": {"tolerations": [{"key": "spot", "operator": "Exists"}]}}]
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
    node_selector: Annotated[dict[LabelKey, LabelValue], FromJson, NoDecode] | None = Field(
        default=None, examples=[{"kubernetes.io/arch": "amd64"}]
    )
    """Labels of the nodes that executors may run on. They override the template's, label by label.

    Spark: `spark.kubernetes.executor.node.selector.<label>`.
    """
    claims: Annotated[tuple[ClaimSettings, ...], FromJson, NoDecode] = Field(
        default=(),
        examples=[[{"name": "scratch", "mount_path": "/scratch", "size": "100Gi", "storage_class": "fast"}]],
    )
    """Volumes that each executor gets for itself: PersistentVolumeClaims named `<pod>-pvc-<n>`, mounted into its
    container. Each has a `name`, a `mount_path` and a `size`, and may have `storage_class` (default: the cluster's
    default), `access_modes` (default: ["ReadWriteOnce"]), `read_only` (default: false) and `sub_path` (default: none).

    Spark: `spark.kubernetes.executor.volumes.persistentVolumeClaim.<name>.…`.
    """

    def _contradictions(self) -> Iterator[str]:
        for what, values in (
            ("name", [claim.name for claim in self.claims]),
            ("mount_path", [claim.mount_path for claim in self.claims]),
        ):
            yield from (f"claims: the {what} {each!r} appears twice" for each in _repeated(values))


def _repeated(values: Sequence[str]) -> list[str]:
    return sorted({each for each in values if values.count(each) > 1})


class ProfileSettings(ShapeSettings):
    """A pod shape with its own target. It inherits from `executor` what it does not set."""

    instances: Size = 0
    """How many executors of this profile the fleet starts with."""

    def over(self, base: ShapeSettings) -> ProfileSettings:
        """Return this profile with the settings of `base` that it does not set, except the number of executors."""
        inherited = {name: getattr(base, name) for name in ShapeSettings.model_fields if not self.sets(name)}
        return self.model_copy(update={**inherited, "instances": self.instances})

    def sets(self, name: str) -> bool:
        """Whether the profile itself sets this, even to none."""
        return name in self.model_fields_set
