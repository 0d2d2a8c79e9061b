"""The settings that shape a pod: `executor` sets them for all executors, a profile for its own.

A profile has the same settings as `executor` and inherits, setting by setting, those that it does not set. A map or
list that a profile sets replaces the whole map or list of `executor`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import Field
from pydantic_settings import NoDecode

from actors.settings.pod_parts import ClaimSettings, ResourceSettings  # noqa: TC001 - pydantic reads annotations
from actors.settings.types import Argv, FromJson, Group, LabelKey, LabelValue, Size, Template, Word

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Unpack

    from actors.settings.values import ProfileValues

__all__ = ["ProfileSettings", "ShapeSettings"]


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

    if TYPE_CHECKING:

        def __init__(self, **values: Unpack[ProfileValues]) -> None: ...

    def over(self, base: ShapeSettings) -> ProfileSettings:
        """Return this profile with the settings of `base` that it does not set, except the number of executors."""
        inherited = {name: getattr(base, name) for name in ShapeSettings.model_fields if not self.sets(name)}
        return self.model_copy(update={**inherited, "instances": self.instances})

    def sets(self, name: str) -> bool:
        """Whether the profile itself sets this, even to none."""
        return name in self.model_fields_set
