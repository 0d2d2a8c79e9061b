"""Settings that shape a pod: what `executor` says for all executors, and a profile for its own.

A profile is made of the same settings as `executor`, so that one can be laid over the other: what a profile does not
say is what `executor` says, setting by setting. A map or list that a profile gives takes the place of the whole map or
list of `executor`.
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
    """What the executor's container is given, as in a container's `resources`."""

    requests: Quantities = Field(default_factory=dict)
    """What the node must have free for it."""
    limits: Quantities = Field(default_factory=dict)
    """What it may use at most."""

    def _contradictions(self) -> Iterator[str]:
        return resource_problems(self.requests, self.limits, complete=False)


def resource_problems(
    requests: Mapping[str, object], limits: Mapping[str, object], *, complete: bool = True
) -> Iterator[str]:
    """Where requests and limits contradict each other, by the API server's rules.

    What a node cannot share out (devices, huge pages) is requested whole and exactly as limited. A set of resources
    that is not `complete` is laid over others, which may have the limit that it lacks.
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
    wanted, most = parse_quantity(request), parse_quantity(limit)
    if wanted is None or most is None:
        return  # told where it is read
    if is_shared and wanted > most:
        yield f"requests has {name!r} = {request!r}: must be at most what limits has ({limit!r})"
    elif not is_shared and wanted != most:
        yield f"requests has {name!r} = {request!r}: must be what limits has ({limit!r})"


def _are_huge_pages(resource: str) -> bool:
    return resource.startswith("hugepages-")


class ClaimSettings(Group):
    """A volume of its own for each executor: a PersistentVolumeClaim `<pod>-pvc-<n>`, mounted into its container."""

    name: DnsLabel
    """Of the volume in the pod."""
    mount_path: MountPath
    """Where the executor's container finds it. Spark: `…persistentVolumeClaim.<name>.mount.path`."""
    size: ClaimSize
    """How much it holds at least. Spark: `…persistentVolumeClaim.<name>.options.sizeLimit`."""
    storage_class: StorageClass | None = None
    """Without it, the cluster's default class; "" asks for a volume without any class.

    Spark: `…persistentVolumeClaim.<name>.options.storageClass`.
    """
    access_modes: tuple[AccessMode, ...] = ("ReadWriteOnce",)
    """How it may be mounted. Spark: `…persistentVolumeClaim.<name>.options.accessMode`, where it is one."""
    read_only: bool = False
    """Whether the executor may only read it. Spark: `…persistentVolumeClaim.<name>.mount.readOnly`."""
    sub_path: SubPath | None = None
    """The folder of the volume that is mounted; without it, all. Spark: `…persistentVolumeClaim.<name>.mount.subPath`.
    """

    def _contradictions(self) -> Iterator[str]:
        modes = list(self.access_modes)
        if not modes:
            yield "access_modes = []: must name at least one"
        if _ONE_POD in modes and len(modes) > 1:
            yield f"access_modes = {modes}: {_ONE_POD} must stand alone"


class ShapeSettings(Group):
    """What executors run, and what their pods look like."""

    instances: Size = 0
    """How many executors the fleet starts with."""
    image: Word | None = Field(default=None, examples=["registry.example/worker:1.4"])
    """Image of the executor's container; without it, the pod template's.

    Spark: `spark.kubernetes.executor.container.image`.
    """
    command: Argv | None = Field(default=None, examples=[["python", "-m", "worker"]])
    """What the executor's container runs, as a list; without it, the image's own entrypoint."""
    pod_template: Template | None = Field(default=None, examples=["executor-pod.yaml"])
    """A v1 Pod to make every executor's pod from: the path of a YAML file (in a TOML file, relative to that), or the
    Pod itself.

    Spark: `spark.kubernetes.executor.podTemplateFile`.
    """
    template_patch: Template | None = Field(
        default=None, examples=[{"spec": {"tolerations": [{"key": "spot", "operator": "Exists"}]}}]
    )
    """A part of a v1 Pod, given as the pod template is, that is laid over the template as `kubectl patch` does it
    (strategic merge): containers, volumes and variables of one name are merged; other lists, tolerations too, are
    replaced; null takes away.
    """
    resources: Annotated[ResourceSettings, FromJson] | None = Field(
        default=None,
        examples=[{"requests": {"cpu": "1", "memory": "4Gi"}, "limits": {"memory": "4Gi"}}],
    )
    """What the executor's container requests and may use at most; it goes over the template's, resource by resource.

    Spark: `spark.kubernetes.executor.request.cores`, `spark.kubernetes.executor.limit.cores`, `spark.executor.memory`.
    """
    node_selector: Annotated[dict[LabelKey, LabelValue], FromJson, NoDecode] | None = Field(
        default=None, examples=[{"kubernetes.io/arch": "amd64"}]
    )
    """Labels of the nodes that executors may run on; they go over the template's, label by label.

    Spark: `spark.kubernetes.executor.node.selector.<label>`.
    """
    claims: Annotated[tuple[ClaimSettings, ...], FromJson, NoDecode] = Field(
        default=(),
        examples=[[{"name": "scratch", "mount_path": "/scratch", "size": "100Gi", "storage_class": "fast"}]],
    )
    """Volumes of its own for each executor: PersistentVolumeClaims named `<pod>-pvc-<n>`, mounted into its container.
    Each has a `name`, a `mount_path` and a `size`, and may have `storage_class` (without it, the cluster's default),
    `access_modes` (["ReadWriteOnce"]), `read_only` (false) and `sub_path` (none).

    Spark: `spark.kubernetes.executor.volumes.persistentVolumeClaim.<name>.…`.
    """

    def _contradictions(self) -> Iterator[str]:
        for what, values in (
            ("name", [claim.name for claim in self.claims]),
            ("mount_path", [claim.mount_path for claim in self.claims]),
        ):
            yield from (f"claims: the {what} {each!r} stands twice" for each in _repeated(values))


def _repeated(values: Sequence[str]) -> list[str]:
    return sorted({each for each in values if values.count(each) > 1})


class ProfileSettings(ShapeSettings):
    """A pod shape of its own, with its own target. What it does not say is the value of `executor`."""

    instances: Size = 0
    """How many executors of this profile the fleet starts with."""

    def over(self, base: ShapeSettings) -> ProfileSettings:
        """This profile, with what it does not say taken from `base`: all but the number of executors."""
        inherited = {name: getattr(base, name) for name in ShapeSettings.model_fields if not self.says(name)}
        return self.model_copy(update={**inherited, "instances": self.instances})

    def says(self, name: str) -> bool:
        """Whether this setting was given for the profile itself, be it as none."""
        return name in self.model_fields_set
