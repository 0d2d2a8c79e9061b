"""`ApiStatus`: how the store says no, in a real server's words (asked of Kubernetes 1.34).

Whoever calls the store catches this one exception: the HTTP door sends it as it is, the in-process door turns it into
the library's own error, by the same table as the HTTP client.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from actors.local.schema.resources import Resource

__all__ = [
    "ApiStatus",
    "Cause",
    "Undecodable",
    "already_exists",
    "bad_request",
    "conflict",
    "deleted",
    "done",
    "expired",
    "forbidden",
    "internal_error",
    "invalid",
    "invalid_kind",
    "invalid_list_options",
    "lacks_right",
    "no_such_path",
    "not_found",
    "not_implemented",
    "other_uid",
    "precondition_failed",
    "too_large_version",
    "undecodable",
    "unpatchable",
]

MODIFIED: str = "the object has been modified; please apply your changes to the latest version and try again"


class ApiStatus(Exception):  # noqa: N818 - it is named as the API names it
    """A `Status` that a request is answered with instead of an object."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        *,
        details: Mapping[str, Any] | None = None,
        retry_after: int | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = dict(details) if details is not None else None
        self.retry_after = retry_after
        """Seconds, sent as `Retry-After` and as `details.retryAfterSeconds`."""

    def to_json(self) -> dict[str, Any]:
        """The v1 `Status`."""
        status: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
        }
        if self.reason:
            status["reason"] = self.reason
        details = dict(self.details or {})
        if self.retry_after is not None:
            details["retryAfterSeconds"] = self.retry_after
        if self.details is not None or details:
            status["details"] = details
        return status | {"code": self.code}

    def __repr__(self) -> str:
        return f"ApiStatus({self.code}, {self.reason!r}, {self.message!r})"


class Undecodable(ApiStatus):
    """400: the object is of another shape than its kind. `problem` says how, without saying which object."""

    def __init__(self, where: str, problem: str) -> None:
        super().__init__(400, "BadRequest", f"{where}: {problem}")
        self.problem = problem


@dataclass(frozen=True, slots=True)
class Cause:
    """One problem that validation found: where, of which sort, and in which words."""

    field: str
    reason: str
    message: str

    @classmethod
    def required(cls, field: str, detail: str = "") -> Cause:
        """A value must be there."""
        return cls(field, "FieldValueRequired", f"Required value: {detail}" if detail else "Required value")

    @classmethod
    def invalid(cls, field: str, value: Any, detail: str) -> Cause:
        """The value breaks a rule."""
        return cls(field, "FieldValueInvalid", f"Invalid value: {_quoted(value)}: {detail}")

    @classmethod
    def duplicate(cls, field: str, value: Any) -> Cause:
        """The value may be there once."""
        return cls(field, "FieldValueDuplicate", f"Duplicate value: {_quoted(value)}")

    @classmethod
    def unsupported(cls, field: str, value: Any, supported: Sequence[str]) -> Cause:
        """The value is not one of a closed set."""
        choices = ", ".join(_quoted(choice) for choice in supported)
        return cls(field, "FieldValueNotSupported", f"Unsupported value: {_quoted(value)}: supported values: {choices}")

    @classmethod
    def forbidden(cls, field: str, detail: str) -> Cause:
        """Nothing may be there, or it may not change."""
        return cls(field, "FieldValueForbidden", f"Forbidden: {detail}")

    @classmethod
    def missing(cls, field: str, value: Any) -> Cause:
        """The value refers to something that is not there."""
        return cls(field, "FieldValueNotFound", f"Not found: {_quoted(value)}")


def _quoted(value: Any) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value)


def _details(resource: Resource, name: str, kind: str) -> dict[str, Any]:
    details = {"name": name, "group": resource.group, "kind": kind}
    return {key: value for key, value in details.items() if value}


def not_found(resource: Resource, name: str) -> ApiStatus:
    """404: there is no such object."""
    message = f'{resource.qualified_name} "{name}" not found'
    return ApiStatus(404, "NotFound", message, details=_details(resource, name, resource.plural))


def no_such_path() -> ApiStatus:
    """404 for a path that leads nowhere, such as a subresource that a kind does not have."""
    return ApiStatus(404, "NotFound", "the server could not find the requested resource", details={})


def not_implemented(what: str) -> ApiStatus:
    """501: a real server does this, the embedded cluster does not."""
    return ApiStatus(501, "NotImplemented", f"{what} is not implemented by the embedded cluster")


def already_exists(resource: Resource, name: str, *, leaving: bool = False) -> ApiStatus:
    """409: the name of a new object is taken, perhaps by one that is being deleted."""
    message = f'{"object is being deleted: " if leaving else ""}{resource.qualified_name} "{name}" already exists'
    return ApiStatus(409, "AlreadyExists", message, details=_details(resource, name, resource.plural))


def conflict(resource: Resource, name: str, why: str = MODIFIED, *, subresource: str = "") -> ApiStatus:
    """409: somebody else wrote first."""
    below = f"/{subresource}" if subresource else ""
    message = f'Operation cannot be fulfilled on {resource.qualified_name}{below} "{name}": {why}'
    return ApiStatus(409, "Conflict", message, details=_details(resource, name, f"{resource.plural}{below}"))


def other_uid(resource: Resource, key: tuple[str, str], wanted: str, found: str) -> ApiStatus:
    """409: a PUT is of another object of the same name."""
    place = "/".join(filter(None, ("/registry", resource.plural, *key)))
    why = f"Precondition failed: UID in precondition: {wanted}, UID in object meta: {found}"
    return conflict(
        resource,
        key[1],
        f"StorageError: invalid object, Code: 4, Key: {place}, ResourceVersion: 0, AdditionalErrorMsg: {why}",
    )


def precondition_failed(resource: Resource, name: str, what: str, wanted: str, found: str) -> ApiStatus:
    """409: a DELETE's precondition does not hold. `what` is `UID` or `ResourceVersion`."""
    hint = "deleted and then recreated" if what == "UID" else "modified"
    message = (
        f'Operation cannot be fulfilled on {resource.qualified_kind} "{name}": the {what} in the precondition '
        f"({wanted}) does not match the {what} in record ({found}). The object might have been {hint}"
    )
    return ApiStatus(409, "Conflict", message, details=_details(resource, name, resource.kind))


def invalid(resource: Resource, name: str, causes: Sequence[Cause]) -> ApiStatus:
    """422: what validation found, all of it."""
    return invalid_kind(resource.kind, resource.group, name, causes)


def invalid_kind(kind: str, group: str, name: str, causes: Sequence[Cause]) -> ApiStatus:
    """422 for something that is no resource, such as the options of a request."""
    words = [f"{cause.field}: {cause.message}" for cause in causes]
    problem = words[0] if len(words) == 1 else f"[{', '.join(words)}]"
    details = {key: value for key, value in (("name", name), ("group", group), ("kind", kind)) if value}
    details_causes = [{"reason": cause.reason, "message": cause.message, "field": cause.field} for cause in causes]
    qualified = f"{kind}.{group}" if group else kind
    return ApiStatus(
        422, "Invalid", f'{qualified} "{name}" is invalid: {problem}', details=details | {"causes": details_causes}
    )


def invalid_list_options(*causes: Cause) -> ApiStatus:
    """422: a combination of list or watch parameters that makes no sense."""
    return invalid_kind("ListOptions", "meta.k8s.io", "", causes)


def bad_request(message: str) -> ApiStatus:
    """400: the request cannot be understood."""
    return ApiStatus(400, "BadRequest", message)


def forbidden(resource: Resource, name: str, why: str, causes: Sequence[Cause] = ()) -> ApiStatus:
    """403: admission refuses it."""
    details = _details(resource, name, resource.plural)
    if causes:
        details["causes"] = [{"reason": c.reason, "message": c.message, "field": c.field} for c in causes]
    return ApiStatus(403, "Forbidden", f'{resource.qualified_name} "{name}" is forbidden: {why}', details=details)


def lacks_right(verb: str, plural: str, group: str, namespace: str) -> ApiStatus:
    """403: the account may not do this. The embedded cluster has one account, so it is named like a driver's."""
    kind = f"{plural}.{group}" if group else plural
    message = (
        f'{kind} is forbidden: User "system:serviceaccount:{namespace}:driver" cannot {verb} resource "{plural}" '
        f'in API group "{group}" in the namespace "{namespace}"'
    )
    return ApiStatus(403, "Forbidden", message, details={"kind": plural} | ({"group": group} if group else {}))


def done() -> dict[str, Any]:
    """201: what a POST that makes no object is answered with."""
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}


def deleted(resource: Resource, name: str, uid: str) -> dict[str, Any]:
    """200: what a DELETE of most kinds is answered with once the object is gone."""
    details = _details(resource, name, resource.plural) | {"uid": uid}
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}


def undecodable(kind: str, version: str, expected: str, problem: str) -> Undecodable:
    """400: an object says that it is something else than expected, or is."""
    return Undecodable(f'{kind} in version "{version}" cannot be handled as a {expected}', problem)


def unpatchable(patched: Any, problem: str) -> ApiStatus:
    """422 for a patch that would give an object another shape: a POST of the same is a 400."""
    shown = msgspec.json.encode(msgspec.json.encode(patched).decode()).decode()
    message = f"Invalid value: {shown}: {problem}"
    cause = {"reason": "FieldValueInvalid", "message": message, "field": "patch"}
    return ApiStatus(422, "Invalid", f' "" is invalid: patch: {message}', details={"causes": [cause]})


def expired(message: str) -> ApiStatus:
    """410: the version or continue token lies before the window."""
    return ApiStatus(410, "Expired", message)


def too_large_version(asked: int, current: int) -> ApiStatus:
    """504: a version that this server has not reached."""
    cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
    message = f"Timeout: Too large resource version: {asked}, current: {current}"
    return ApiStatus(504, "Timeout", message, details={"causes": [cause]}, retry_after=1)


def internal_error(message: str) -> ApiStatus:
    """500 without a reason: what a real server says where nobody classified an error."""
    return ApiStatus(500, "", message)
