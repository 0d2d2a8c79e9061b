"""The rules whose violation a real API server answers by 422, with its texts, as far as clients can run into them.

Pure. Every problem of an object is found, not just the first. `schema.decode` has checked the types before.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import msgspec

from actors.kube.names import (
    dns_label_problem,
    dns_subdomain_problem,
    label_key_problem,
    label_value_problem,
    port_name_problems,
)
from actors.kube.quantities import parse_quantity
from actors.local.schema.statuses import Cause, forbidden, invalid, invalid_kind, undecodable
from actors.local.store import claims, quota, services

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from actors.local.schema.resources import Resource
    from actors.local.store.history import Object

__all__ = ["check_new", "check_unknown", "check_update"]

_FIELD_VALIDATIONS: Final = ("", "Ignore", "Strict", "Warn")
_RESTART_POLICIES: Final = ("Always", "OnFailure", "Never")
_PULL_POLICIES: Final = ("Always", "IfNotPresent", "Never")
_MESSAGE_POLICIES: Final = ("File", "FallbackToLogsOnError")
_MAX_ANNOTATIONS: Final = 256 * 1024
"""Bytes of all annotations of an object together."""
_DELETION_COST: Final = "controller.kubernetes.io/pod-deletion-cost"
_NUMBER: Final = re.compile("0|-[0-9]{1,10}|[1-9][0-9]{0,9}")
_INT32: Final = (-(1 << 31), (1 << 31) - 1)
_NO_GROWTH: Final = (
    "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize"
)
_FIELD_PATH: Final = re.compile(
    r"metadata\.(name|namespace|uid|annotations|labels)|metadata\.(annotations|labels)\['[^']+'\]"
    r"|spec\.(nodeName|serviceAccountName)|status\.(hostIP|hostIPs|podIP|podIPs)"
)
"""The fields that the downward API can put into an environment variable."""

_NO_OWNER: Final = "/v1, Kind=Event is disallowed from being an owner"

_RESOURCE_NAMES: Final = (
    "must be a standard resource type or fully qualified",
    "must be a standard resource for containers",
)
_STANDARD_FINALIZERS: Final = ("foregroundDeletion", "kubernetes", "orphan")
_DNS_POLICIES: Final = ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")
_TOLERATION_OPERATORS: Final = ("Equal", "Exists")

_IMMUTABLE_SPEC: Final = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)


def check_unknown(
    resource: Resource, problems: list[str], field_validation: str | None, warnings: list[str] | None
) -> None:
    """Handle unknown fields as the request asked: `Warn` by default."""
    mode = field_validation or "Warn"
    if mode not in _FIELD_VALIDATIONS:
        cause = Cause.unsupported("fieldValidation", mode, _FIELD_VALIDATIONS)
        raise invalid_kind("CreateOptions", "meta.k8s.io", "", [cause])
    if problems and mode == "Strict":
        what = f"strict decoding error: {', '.join(problems)}"
        raise undecodable(resource.kind, resource.version, resource.kind, what)
    if warnings is not None and mode == "Warn":
        warnings.extend(problems)


def check_new(resource: Resource, obj: Object) -> None:
    """Refuse a new object that breaks a rule."""
    causes = [*_metadata(resource, obj["metadata"]), *_kind_specific(resource, obj)]
    if causes:
        raise invalid(resource, obj["metadata"].get("name", ""), causes)


def check_update(resource: Resource, old: Object, new: Object, sent: Mapping[str, Any]) -> None:
    """Refuse an update that breaks a rule. `sent` is the `metadata` of the request."""
    metadata = new["metadata"]
    causes = list(_metadata(resource, metadata))
    if sent.get("uid", metadata["uid"]) != metadata["uid"]:
        causes.append(Cause.invalid("metadata.uid", sent["uid"], "field is immutable"))
    if "deletionTimestamp" in metadata:
        known = old["metadata"].get("finalizers", [])
        if added := [each for each in metadata.get("finalizers", []) if each not in known]:
            names = ", ".join(f'"{each}"' for each in added)
            detail = "no new finalizers can be added if the object is being deleted, found new finalizers"
            causes.append(Cause.forbidden("metadata.finalizers", f"{detail} []string{{{names}}}"))
    if resource.plural == "pods" and new["spec"] != old["spec"]:
        causes.extend(_pod_update(old["spec"], new["spec"]))
    elif resource.plural != "pods":
        causes.extend(_kind_specific(resource, new))
    if resource.plural == "persistentvolumeclaims":
        causes.extend(claims.changed(old, new))
        if not causes and claims.grows(old, new):
            raise forbidden(resource, metadata["name"], _NO_GROWTH)
    if resource.plural in ("configmaps", "secrets") and old.get("immutable"):
        causes.extend(
            Cause.forbidden(field, "field is immutable when `immutable` is set")
            for field in ("data", "binaryData", "immutable")
            if old.get(field) != new.get(field)
        )
    if causes:
        raise invalid(resource, metadata["name"], causes)


def _kind_specific(resource: Resource, obj: Object) -> list[Cause]:
    match resource.plural:
        case "pods":
            return list(_pod(obj["spec"]))
        case "resourcequotas":
            return quota.unsupported(obj)
        case "persistentvolumeclaims":
            return list(claims.problems(obj["spec"]))
        case "services":
            return list(services.problems(obj["spec"]))
        case "leases":
            return list(_lease(obj["spec"]))
        case "events":
            return list(_event(obj))
        case _:
            return []


def _lease(spec: Mapping[str, Any]) -> Iterator[Cause]:
    if (seconds := spec.get("leaseDurationSeconds", 1)) <= 0:
        yield Cause.invalid("spec.leaseDurationSeconds", seconds, "must be greater than 0")
    if (times := spec.get("leaseTransitions", 0)) < 0:
        yield Cause.invalid("spec.leaseTransitions", times, "must be greater than or equal to 0")


def _event(event: Object) -> Iterator[Cause]:
    about = (event.get("involvedObject") or {}).get("namespace") or ""
    if (about or "default") != event["metadata"]["namespace"]:
        yield Cause.invalid("involvedObject.namespace", about, "does not match event.namespace")


# ── Metadata ─────────────────────────────────────────────────────────────────────────────────────────────────────


def _metadata(resource: Resource, metadata: Mapping[str, Any]) -> Iterator[Cause]:
    yield from _object_names(resource, metadata)
    for key, value in metadata.get("labels", {}).items():
        yield from _problem("metadata.labels", key, label_key_problem)
        yield from _problem("metadata.labels", value, label_value_problem)
    annotations = metadata.get("annotations", {})
    for key in annotations:
        yield from _problem("metadata.annotations", key, lambda each: label_key_problem(each.lower()))
    if sum(len(key) + len(value) for key, value in annotations.items()) > _MAX_ANNOTATIONS:
        detail = f"Too long: may not be more than {_MAX_ANNOTATIONS} bytes"
        yield Cause("metadata.annotations", "FieldValueTooLong", detail)
    cost = annotations.get(_DELETION_COST, "0")
    if resource.plural == "pods" and not (_NUMBER.fullmatch(cost) and _INT32[0] <= int(cost) <= _INT32[1]):
        yield Cause.invalid(f"metadata.annotations[{_DELETION_COST}]", cost, "must be a 32bit integer")
    for index, owner in enumerate(metadata.get("ownerReferences", ())):
        yield from _owner(f"metadata.ownerReferences[{index}]", owner)
    if sum(owner.get("controller") is True for owner in metadata.get("ownerReferences", ())) > 1:
        yield Cause.invalid("metadata.ownerReferences", "", "Only one reference can have Controller set to true")
    for index, finalizer in enumerate(metadata.get("finalizers", ())):
        if finalizer not in _STANDARD_FINALIZERS and ("/" not in finalizer or label_key_problem(finalizer)):
            detail = "name is neither a standard finalizer name nor is it fully qualified"
            yield Cause.invalid(f"metadata.finalizers[{index}]", finalizer, detail)


_NAMED_BY_LABELS: Final = frozenset({"namespaces", "services"})
"""The resources whose names are DNS labels; those of others are DNS subdomains."""


def _object_names(resource: Resource, metadata: Mapping[str, Any]) -> Iterator[Cause]:
    name, base = metadata.get("name", ""), metadata.get("generateName", "")
    name_problem = dns_label_problem if resource.plural in _NAMED_BY_LABELS else dns_subdomain_problem
    if base:  # the suffix makes a trailing dash valid
        yield from _problem("metadata.generateName", base, lambda text: name_problem(re.sub("-$", "a", text)))
    if not name:
        yield Cause.required("metadata.name", "name or generateName is required")
    else:
        yield from _problem("metadata.name", name, name_problem)


def _owner(where: str, owner: Mapping[str, Any]) -> Iterator[Cause]:
    for field in ("apiVersion", "kind", "name", "uid"):
        if not owner.get(field):
            yield Cause.required(f"{where}.{field}", "must not be empty")
    version, kind = owner.get("apiVersion", ""), owner.get("kind")
    if version.count("/") > 1:
        yield Cause.invalid(f"{where}.apiVersion", version, "must be <group>/<version> or <version>")
    if (version, kind) == ("v1", "Event"):
        yield Cause(where, "FieldValueInvalid", f"Invalid value: {msgspec.json.encode(owner).decode()}: {_NO_OWNER}")


def _problem(field: str, value: str, check: Callable[[str], str | None]) -> Iterator[Cause]:
    if problem := check(value):
        yield Cause.invalid(field, value, problem)


# ── Pods ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def _pod(spec: Mapping[str, Any]) -> Iterator[Cause]:
    volumes = [volume.get("name", "") for volume in spec.get("volumes", ())]
    yield from _names("spec.volumes", volumes, set())
    if not spec.get("containers"):
        yield Cause.required("spec.containers")
    names: set[str] = set()
    for part in ("containers", "initContainers"):
        containers = spec.get(part, [])
        yield from _names(f"spec.{part}", [container.get("name", "") for container in containers], names)
        for index, container in enumerate(containers):
            yield from _container(f"spec.{part}[{index}]", container, volumes)
            for hook, handler in container.get("lifecycle", {}).items():
                yield from _hook(f"spec.{part}[{index}].lifecycle.{hook}", handler, spec)
    yield from _one_of("spec.restartPolicy", spec["restartPolicy"], _RESTART_POLICIES)
    yield from _one_of("spec.dnsPolicy", spec["dnsPolicy"], _DNS_POLICIES)
    yield from _placement(spec)
    for field in ("nodeName", "serviceAccountName"):
        if spec.get(field):
            yield from _problem(f"spec.{field}", spec[field], dns_subdomain_problem)
    for field in ("hostname", "subdomain"):
        if spec.get(field):
            yield from _problem(f"spec.{field}", spec[field], dns_label_problem)
    if spec.get("activeDeadlineSeconds", 1) <= 0:
        detail = "must be between 1 and 2147483647, inclusive"
        yield Cause.invalid("spec.activeDeadlineSeconds", spec["activeDeadlineSeconds"], detail)


_HANDLERS: Final = ("exec", "httpGet", "tcpSocket", "sleep")
"""The kinds of lifecycle hooks, in the order in which a server checks them."""


def _placement(spec: Mapping[str, Any]) -> Iterator[Cause]:
    for key, value in spec.get("nodeSelector", {}).items():
        yield from _problem("spec.nodeSelector", key, label_key_problem)
        yield from _problem("spec.nodeSelector", value, label_value_problem)
    for index, toleration in enumerate(spec["tolerations"]):
        operator = toleration.get("operator") or "Equal"
        yield from _one_of(f"spec.tolerations[{index}].operator", operator, _TOLERATION_OPERATORS)


def _names(field: str, names: Iterable[str], seen: set[str]) -> Iterator[Cause]:
    """Check that each name is a DNS label and occurs once; `seen` collects the names."""
    for index, name in enumerate(names):
        where = f"{field}[{index}].name"
        if not name:
            yield Cause.required(where)
        elif name in seen:
            yield Cause.duplicate(where, name)
        else:
            yield from _problem(where, name, dns_label_problem)
        seen.add(name)


def _container(where: str, container: Mapping[str, Any], volumes: list[str]) -> Iterator[Cause]:
    image = container.get("image", "")
    if not image:
        yield Cause.required(f"{where}.image")
    elif image != image.strip():
        yield Cause.invalid(f"{where}.image", image, "must not have leading or trailing whitespace")
    for index, variable in enumerate(container.get("env", ())):
        yield from _variable(f"{where}.env[{index}]", variable)
    yield from _one_of(f"{where}.terminationMessagePolicy", container["terminationMessagePolicy"], _MESSAGE_POLICIES)
    yield from _one_of(f"{where}.imagePullPolicy", container["imagePullPolicy"], _PULL_POLICIES)
    for index, port in enumerate(container.get("ports", ())):
        if port.get("name"):
            for problem in port_name_problems(port["name"]):
                yield Cause.invalid(f"{where}.ports[{index}].name", port["name"], problem)
        number = port.get("containerPort")
        if number is None:
            yield Cause.required(f"{where}.ports[{index}].containerPort")
        elif not 0 < number < 65536:
            detail = "must be between 1 and 65535, inclusive"
            yield Cause.invalid(f"{where}.ports[{index}].containerPort", number, detail)
    for index, mount in enumerate(container.get("volumeMounts", ())):
        yield from _mount(f"{where}.volumeMounts[{index}]", mount, volumes)
    yield from _resources(f"{where}.resources", container["resources"])


def _hook(where: str, handler: Mapping[str, Any] | str, spec: Mapping[str, Any]) -> Iterator[Cause]:
    """Check a lifecycle hook. `stopSignal` stands beside the hooks and is text."""
    if isinstance(handler, str):
        return
    kinds = [kind for kind in _HANDLERS if kind in handler]
    if not kinds:
        yield Cause.required(where, "must specify a handler type")
    for kind in kinds[1:]:
        yield Cause.forbidden(f"{where}.{kind}", "may not specify more than 1 handler type")
    if kinds[:1] == ["exec"] and not handler["exec"].get("command"):
        yield Cause.required(f"{where}.exec.command")
    if kinds[:1] == ["sleep"]:
        seconds, grace = handler["sleep"].get("seconds", 0), spec["terminationGracePeriodSeconds"]
        if not 0 <= seconds <= grace:
            detail = f"must be non-negative and less than terminationGracePeriodSeconds ({grace})"
            yield Cause.invalid(f"{where}.sleep", seconds, detail)


def _variable(where: str, variable: Mapping[str, Any]) -> Iterator[Cause]:
    name, source = variable.get("name", ""), variable.get("valueFrom")
    if not name:
        yield Cause.required(f"{where}.name")
    elif "=" in name or not name.isprintable():
        detail = "a valid environment variable name must consist only of printable ASCII characters other than '='"
        yield Cause.invalid(f"{where}.name", name, detail)
    if source is None:
        return
    path = source.get("fieldRef", {"fieldPath": None}).get("fieldPath", "")
    if path == "":
        yield Cause.required(f"{where}.valueFrom.fieldRef.fieldPath")
    elif path is not None and not _FIELD_PATH.fullmatch(path):
        detail = f"error converting fieldPath: field label not supported: {path}"
        yield Cause.invalid(f"{where}.valueFrom.fieldRef.fieldPath", path, detail)
    if not source:
        kinds = "`fieldRef`, `resourceFieldRef`, `configMapKeyRef` or `secretKeyRef`"
        yield Cause.invalid(f"{where}.valueFrom", "", f"must specify one of: {kinds}")
    elif len(source) > 1:
        yield Cause.invalid(f"{where}.valueFrom", "", "may not have more than one field specified at a time")
    if variable.get("value"):
        yield Cause.invalid(f"{where}.valueFrom", "", "may not be specified when `value` is not empty")


def _mount(where: str, mount: Mapping[str, Any], volumes: list[str]) -> Iterator[Cause]:
    if not mount.get("name"):
        yield Cause.required(f"{where}.name")
    if mount.get("name", "") not in volumes:
        yield Cause.missing(f"{where}.name", mount.get("name", ""))
    if not mount.get("mountPath"):
        yield Cause.required(f"{where}.mountPath")


def _resources(where: str, resources: Mapping[str, Any]) -> Iterator[Cause]:
    limits = resources.get("limits", {})
    for part in ("limits", "requests"):
        for name, value in resources.get(part, {}).items():
            amount, limit = parse_quantity(value), parse_quantity(limits.get(name))
            field = f"{where}.{part}"
            assert amount is not None, "decoding refuses malformed quantities"
            if not _is_resource_name(name):
                for detail in _RESOURCE_NAMES:
                    yield Cause.invalid(f"{field}[{name}]", name, detail)
            elif amount < 0:
                yield Cause.invalid(f"{field}[{name}]", value, "must be greater than or equal to 0")
            elif part == "requests" and limit is not None and amount > limit:
                detail = f"must be less than or equal to {name} limit of {limits[name]}"
                yield Cause.invalid(field, value, detail)


def _is_resource_name(name: str) -> bool:
    return name in ("cpu", "memory", "ephemeral-storage") or name.startswith("hugepages-") or "/" in name


def _one_of(field: str, value: str, supported: tuple[str, ...]) -> Iterator[Cause]:
    if value not in supported:
        yield Cause.unsupported(field, value, supported)


def _pod_update(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Cause]:
    if not new.get("containers"):
        yield Cause.required("spec.containers")
    for part in ("containers", "initContainers"):
        if len(old.get(part, ())) != len(new.get(part, ())):
            yield Cause.forbidden(f"spec.{part}", "pod updates may not add or remove containers")
            return
        for index, container in enumerate(new.get(part, ())):
            if not container.get("image"):
                yield Cause.required(f"spec.{part}[{index}].image")
    if _fixed_part(old) != _fixed_part(new):
        yield Cause.forbidden("spec", _IMMUTABLE_SPEC)
    if any(toleration not in new.get("tolerations", ()) for toleration in old.get("tolerations", ())):
        detail = "existing toleration can not be modified except its tolerationSeconds"
        yield Cause.forbidden("spec.tolerations", detail)


def _fixed_part(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return the immutable fields of a pod's spec. Scheduling gates may be removed."""
    fixed = {key: value for key, value in spec.items() if key not in ("activeDeadlineSeconds", "tolerations")}
    fixed.pop("schedulingGates", None)
    for part in ("containers", "initContainers"):
        if part in fixed:
            fixed[part] = [{**container, "image": ""} for container in fixed[part]]
    return fixed
