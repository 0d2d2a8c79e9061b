"""The parts of a pod that settings name: resources, claims, variables from elsewhere, tolerations.

Each is checked by the API server's rules.

The model of each part stands beside the type of the values that it is made from.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Final, Literal, Required, TypeAlias, TypedDict

from pydantic import BeforeValidator, Field

from actors.kube.quantities import parse_quantity
from actors.settings.problems import UnquotedError
from actors.settings.types import (
    AccessMode,
    ClaimSize,
    DataKey,
    DnsLabel,
    FromJson,
    FromText,
    Group,
    Growth,
    LabelKey,
    LabelValue,
    MountPath,
    ObjectName,
    Quantity,
    ResourceName,
    Seconds,
    StorageClass,
    SubPath,
    VariableName,
    VariablePrefix,
    Word,
    from_json,
    is_for_processes,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Unpack

__all__ = [
    "ClaimSettings",
    "ClaimValues",
    "EnvFromSettings",
    "EnvFromValues",
    "EnvVarSettings",
    "EnvVarValues",
    "Environment",
    "OomSettings",
    "OomValues",
    "ResourceSettings",
    "ResourceValues",
    "TolerationSettings",
    "TolerationValues",
    "resource_problems",
]

Quantities: TypeAlias = Annotated[dict[ResourceName, Quantity], FromJson, FromText]

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


class OomValues(TypedDict, total=False):
    """What `OomSettings` is made from."""

    factor: float | None
    max: str | float | None
    profile: str | None


class OomSettings(Group):
    """How the replacement of an executor that was killed for its memory gets more."""

    factor: Growth | None = None
    """By how much the memory of the executor's container grows each time, request and limit alike."""
    max: ClaimSize | None = None
    """The memory that it grows to at most. Needed with `factor`."""
    profile: Word | None = None
    """The profile whose pod the replacement gets."""

    if TYPE_CHECKING:

        def __init__(self, **values: Unpack[OomValues]) -> None: ...

    def _contradictions(self) -> Iterator[str]:
        if (self.factor is None) == (self.profile is None):
            yield "factor, profile: one of them must be set, and not both"
        elif (self.factor is None) != (self.max is None):
            yield "max: must be set with factor, and only with it"


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


class EnvVarValues(TypedDict, total=False):
    """What `EnvVarSettings` is made from."""

    secret: str | None
    config_map: str | None
    key: Required[str]
    optional: bool


class EnvVarSettings(Group):
    """An environment variable whose value is one key of a Secret or of a ConfigMap."""

    secret: ObjectName | None = None
    """Name of the Secret."""
    config_map: ObjectName | None = None
    """Name of the ConfigMap."""
    key: DataKey
    """The key in it."""
    optional: bool = False
    """Whether executors start without the variable if there is no such object or key."""

    if TYPE_CHECKING:

        def __init__(self, **values: Unpack[EnvVarValues]) -> None: ...

    def _contradictions(self) -> Iterator[str]:
        yield from _source_problems(self.secret, self.config_map)


class EnvFromValues(TypedDict, total=False):
    """What `EnvFromSettings` is made from."""

    secret: str | None
    config_map: str | None
    prefix: str | None
    optional: bool


class EnvFromSettings(Group):
    """Environment variables from all keys of a Secret or of a ConfigMap."""

    secret: ObjectName | None = None
    """Name of the Secret."""
    config_map: ObjectName | None = None
    """Name of the ConfigMap."""
    prefix: VariablePrefix | None = None
    """What each variable's name begins with, before the key."""
    optional: bool = False
    """Whether executors start without them if there is no such object."""

    if TYPE_CHECKING:

        def __init__(self, **values: Unpack[EnvFromValues]) -> None: ...

    def _contradictions(self) -> Iterator[str]:
        yield from _source_problems(self.secret, self.config_map)


def _source_problems(secret: str | None, config_map: str | None) -> Iterator[str]:
    if (secret is None) == (config_map is None):
        yield "secret, config_map: one of them must be set, and not both"


def _variable(value: object) -> object:
    match value:
        case str() if is_for_processes(value):
            return value
        case EnvVarSettings():
            return value
        case Mapping():
            return EnvVarSettings(**value)
        case _:
            raise UnquotedError('must be text, or a key of an object, such as { secret = "db", key = "token" }')


def _variables(value: object) -> object:
    variables = from_json(value)
    if not isinstance(variables, Mapping):
        raise UnquotedError('must be a map of names to values, such as { LOG_LEVEL = "info" }')
    return variables


Environment: TypeAlias = Annotated[
    dict[VariableName, Annotated[str | EnvVarSettings, BeforeValidator(_variable)]],
    BeforeValidator(_variables),
    FromText,
]
"""Variables by name. No error quotes their values: they may be secrets."""


class TolerationValues(TypedDict, total=False):
    """What `TolerationSettings` is made from."""

    key: str | None
    operator: Literal["Equal", "Exists"] | None
    value: str | None
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None
    tolerationSeconds: int | None


class TolerationSettings(Group):
    """A v1 Toleration, with the names that it has in a pod."""

    key: LabelKey | None = None
    """Key of the taint. Without it: any, which needs the operator "Exists"."""
    operator: Literal["Equal", "Exists"] | None = None
    """"Equal", the default, compares the taint's value with `value`; "Exists" tolerates any value."""
    value: LabelValue | None = None
    """Value of the taint."""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    """Effect of the taint. Without it: any."""
    tolerationSeconds: Seconds | None = None  # noqa: N815 - as a pod has it
    """How long an executor stays on a node with the taint. Needs the effect "NoExecute". Without it: for ever."""

    if TYPE_CHECKING:

        def __init__(self, **values: Unpack[TolerationValues]) -> None: ...

    def _contradictions(self) -> Iterator[str]:
        exists = self.operator == "Exists"
        if self.key is None and not exists:
            yield 'key: must be set, or operator be "Exists"'
        if exists and self.value:
            yield f'value = {self.value!r}: must not be set with the operator "Exists"'
        if self.tolerationSeconds is not None and self.effect != "NoExecute":
            yield f'tolerationSeconds = {self.tolerationSeconds}: needs the effect "NoExecute"'
