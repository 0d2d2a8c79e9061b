"""The manifest of an executor's pod: the user's template, and what the fleet adds to it.

Pure. Each step takes the pod and adds one feature; the template is never changed. What would break the fleet (a label
of ours, a restart policy that revives an executor under the same id) is refused before anything is started.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from actors.errors import SettingsError
from actors.pods import (
    APP_ID_LABEL,
    EXECUTOR_ID_LABEL,
    MANAGED_BY_LABEL,
    PROFILE_LABEL,
    ROLE_EXECUTOR,
    ROLE_LABEL,
)

__all__ = ["build", "check_template", "name"]

RESERVED: Final = "executor-pods/"
"""Labels that start so are the fleet's."""

SERVER_FIELDS: Final = (
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "generateName",
    "generation",
    "managedFields",
    "resourceVersion",
    "selfLink",
    "uid",
)
"""What the API server writes: a template that was read from a cluster has them, a new pod must not."""

LONGEST_ID: Final = 999_999_999
"""Names are checked for ids up to this one; a fleet that creates an executor a second reaches it in 31 years."""

DNS_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
"""RFC 1123. A pod's name is its host's name too, so it must be a label and not only a subdomain."""


def name(prefix: str, executor_id: int) -> str:
    """The name of an executor's pod."""
    return f"{prefix}-exec-{executor_id}"


def check_template(template: Mapping[str, Any] | None, *, prefix: str, container: str, image: str | None) -> None:
    """Refuse a pod template, or a name prefix, that no executor could be made from.

    Raises:
        SettingsError: with one line a problem, each naming the field and what is allowed.
    """
    problems = [] if template is None else list(_problems(template, container, image))
    if not DNS_LABEL.fullmatch(name(prefix, LONGEST_ID)):
        problems.append(
            f"executor.prefix: pod names would be {name(prefix, 1)!r} and so on, which must be DNS labels: "
            "at most 63 lower-case letters, digits and '-', a letter or digit first and last"
        )
    if template is None and image is None:
        problems.append("executor.image: is not set, and there is no executor.pod_template that names one")
    if problems:
        raise SettingsError("\n".join(problems))


def build(
    executor_id: int,
    profile: str,
    *,
    app_id: str,
    prefix: str,
    namespace: str,
    template: Mapping[str, Any] | None,
    image: str | None,
    command: Sequence[str] | None,
    container: str,
    driver_address: str | None,
    owner: Mapping[str, Any] | None,
) -> dict[str, Any]:
    """The v1 Pod, as JSON, of one executor. `template` must have passed `check_template`."""
    pod: dict[str, Any] = copy.deepcopy(dict(template)) if template is not None else _bare(container)
    pod["apiVersion"], pod["kind"] = "v1", "Pod"
    metadata = pod["metadata"] = dict(pod.get("metadata") or {})
    for field in SERVER_FIELDS:
        metadata.pop(field, None)
    pod.pop("status", None)
    metadata["name"], metadata["namespace"] = name(prefix, executor_id), namespace
    metadata["labels"] = {
        **(metadata.get("labels") or {}),
        APP_ID_LABEL: app_id,
        ROLE_LABEL: ROLE_EXECUTOR,
        EXECUTOR_ID_LABEL: str(executor_id),
        PROFILE_LABEL: profile,
        MANAGED_BY_LABEL: "executor-pods",
    }
    if owner is not None:
        metadata["ownerReferences"] = [*(metadata.get("ownerReferences") or ()), dict(owner)]
    pod["spec"]["restartPolicy"] = "Never"  # an executor that ended is replaced under a new id, never revived
    executor = _executor(pod["spec"]["containers"], container)
    if image is not None:
        executor["image"] = image
    if command is not None:
        executor["command"] = list(command)
        executor.pop("args", None)
    executor.setdefault("terminationMessagePolicy", "FallbackToLogsOnError")
    executor["env"] = [  # ours first: a `$(EXECUTOR_ID)` in the template's is expanded only from what stands before it
        *_environment(executor_id, profile, app_id=app_id, driver_address=driver_address),
        *(executor.get("env") or ()),
    ]
    return pod


def _bare(container: str) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": container}]}}


def _executor(containers: Sequence[dict[str, Any]], container: str) -> dict[str, Any]:
    """The executor's container: the one of this name, else the first."""
    return next((each for each in containers if each.get("name") == container), containers[0])


def _environment(executor_id: int, profile: str, *, app_id: str, driver_address: str | None) -> list[dict[str, Any]]:
    """What an executor finds in its environment."""
    own: list[dict[str, Any]] = [
        {"name": "EXECUTOR_ID", "value": str(executor_id)},
        {"name": "EXECUTOR_APP_ID", "value": app_id},
        {"name": "EXECUTOR_PROFILE", "value": profile},
        {"name": "EXECUTOR_POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "EXECUTOR_POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
    ]
    if driver_address is not None:
        own.append({"name": "DRIVER_ADDRESS", "value": driver_address})
    return own


# ── what is refused ──────────────────────────────────────────────────────────────────────────────────────────────


def _problems(template: Mapping[str, Any], container: str, image: str | None) -> list[str]:
    where = "executor.pod_template"
    problems: list[str] = []
    for key, allowed in (("apiVersion", "v1"), ("kind", "Pod")):
        if template.get(key, allowed) != allowed:
            problems.append(f"{where}: {key} is {template[key]!r}, it must be {allowed!r}")
    metadata = template.get("metadata") or {}
    if not isinstance(metadata, Mapping):
        return [*problems, f"{where}: metadata must be a mapping"]
    problems.extend(
        f"{where}: metadata.{part} must be a mapping"
        for part in ("labels", "annotations")
        if not isinstance(metadata.get(part) or {}, Mapping)
    )
    labels = metadata.get("labels") or {}
    problems.extend(
        f"{where}: metadata.labels has {label!r}; labels that start with {RESERVED!r} are set by the fleet"
        for label in (labels if isinstance(labels, Mapping) else ())
        if str(label).startswith(RESERVED)
    )
    problems.extend(
        f"{where}: metadata.{part} has {key!r}: {value!r}, which must be text; put it in quotes"
        for part in ("labels", "annotations")
        if isinstance(metadata.get(part), Mapping)
        for key, value in metadata[part].items()
        if not isinstance(value, str)
    )
    spec = template.get("spec") or {}
    if not isinstance(spec, Mapping):
        return [*problems, f"{where}: spec must be a mapping"]
    if spec.get("restartPolicy", "Never") != "Never":
        problems.append(
            f"{where}: spec.restartPolicy is {spec['restartPolicy']!r}, it must be 'Never': "
            "an executor that ended is replaced under a new id"
        )
    return [*problems, *_container_problems(spec.get("containers"), container, image)]


def _container_problems(containers: object, container: str, image: str | None) -> list[str]:
    where = "executor.pod_template: spec.containers"
    if not isinstance(containers, list) or not containers:
        return [f"{where}: must list at least one container"]
    if not all(isinstance(each, dict) and isinstance(each.get("name"), str) for each in containers):
        return [f"{where}: each must be a mapping with a name"]
    names = [each["name"] for each in containers]
    problems = [f"{where}: the name {each!r} stands twice" for each in sorted(set(names)) if names.count(each) > 1]
    executor = _executor(containers, container)
    problems.extend(
        f"{where}: {each['name']!r} has no image"
        for each in containers
        if not each.get("image") and not (each is executor and image is not None)
    )
    environment = executor.get("env") or []
    if not isinstance(environment, list) or not all(isinstance(each, dict) for each in environment):
        return [*problems, f"{where}: env of {executor['name']!r} must be a list of mappings"]
    problems.extend(
        f"{where}: env of {executor['name']!r} has {each['name']!r}, which is set by the fleet"
        for each in environment
        if each.get("name") == "DRIVER_ADDRESS" or str(each.get("name")).startswith("EXECUTOR_")
    )
    return problems
