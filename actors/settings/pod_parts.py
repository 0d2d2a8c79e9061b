"""The parts of a pod that settings name: resources and claims. Each is checked by the API server's rules.

The model of each part stands beside the type of the values that it is made from.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final, Required, TypeAlias, TypedDict

from pydantic import Field
from pydantic_settings import NoDecode

from actors.kube.quantities import parse_quantity
from actors.settings.types import (
    AccessMode,
    ClaimSize,
    DnsLabel,
    FromJson,
    Group,
    MountPath,
    Quantity,
    ResourceName,
    StorageClass,
    SubPath,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Unpack

__all__ = ["ClaimSettings", "ClaimValues", "ResourceSettings", "ResourceValues", "resource_problems"]

Quantities: TypeAlias = Annotated[dict[ResourceName, Quantity], FromJson, NoDecode]

_ONE_POD: Final = "ReadWriteOncePod"


class ResourceValues(TypedDict, total=False):
    """What `ResourceSettings` is made from."""

    requests: Mapping[str, str | float]
    limits: Mapping[str, str | float]


class ResourceSettings(Group):
    """The executor container's `resources`."""

    requests: Quantities = Field(default_factory=dict)
    """What the node must have free for it."""
    limits: Quantities = Field(default_factory=dict)
    """What it may use at most."""

    if TYPE_CHECKING:

        def __init__(self, **values: Unpack[ResourceValues]) -> None: ...

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


class ClaimValues(TypedDict, total=False):
    """What `ClaimSettings` is made from."""

    name: Required[str]
    mount_path: Required[str]
    size: Required[str | float]
    storage_class: str | None
    access_modes: Sequence[AccessMode]
    read_only: bool
    sub_path: str | None


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

    if TYPE_CHECKING:

        def __init__(self, **values: Unpack[ClaimValues]) -> None: ...

    def _contradictions(self) -> Iterator[str]:
        modes = list(self.access_modes)
        if not modes:
            yield "access_modes = []: must name at least one"
        if _ONE_POD in modes and len(modes) > 1:
            yield f"access_modes = {modes}: {_ONE_POD} must be alone"
