"""`ApiStatus`: every refusal of the store, with the text of a real server (Kubernetes 1.37).

Callers of the store catch this one exception. The HTTP server sends it unchanged; the in-process API turns it into an
error of the library, by the same table as the HTTP client.
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


class ApiStatus(Exception):  # noqa: N818 - named as in the API
    """The `Status` that answers a request instead of an object."""

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
        """Return the v1 `Status`."""
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
    """400: the object does not fit its kind. `problem` describes the mistake without naming the object."""

    def __init__(self, where: str, problem: str) -> None:
        super().__init__(400, "BadRequest", f"{where}: {problem}")
        self.problem = problem


@dataclass(frozen=True, slots=True)
class Cause:
    """One problem that validation found: the field, the reason and a message."""

    field: str
    reason: str
    message: str

    @classmethod
    def required(cls, field: str, detail: str = "") -> Cause:
        """The value is missing."""
        return cls(field, "FieldValueRequired", f"Required value: {detail}" if detail else "Required value")

    @classmethod
    def invalid(cls, field: str, value: Any, detail: str) -> Cause:
        """The value breaks a rule."""
        return cls(field, "FieldValueInvalid", f"Invalid value: {_quoted(value)}: {detail}")

    @classmethod
    def duplicate(cls, field: str, value: Any) -> Cause:
        """The value occurs twice."""
        return cls(field, "FieldValueDuplicate", f"Duplicate value: {_quoted(value)}")

    @classmethod
    def unsupported(cls, field: str, value: Any, supported: Sequence[str]) -> Cause:
        """The value is not one of a closed set."""
        choices = ", ".join(_quoted(choice) for choice in supported)
        return cls(field, "FieldValueNotSupported", f"Unsupported value: {_quoted(value)}: supported values: {choices}")

    @classmethod
    def forbidden(cls, field: str, detail: str) -> Cause:
        """The value must be absent, or must not change."""
        return cls(field, "FieldValueForbidden", f"Forbidden: {detail}")

    @classmethod
    def missing(cls, field: str, value: Any) -> Cause:
        """The value refers to something that does not exist."""
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
    """404 for an unknown path, such as a subresource that a kind does not have."""
    return ApiStatus(404, "NotFound", "the server could not find the requested resource", details={})


def not_implemented(feature: str) -> ApiStatus:
    """501: a real server does this, the embedded cluster does not."""
    return ApiStatus(501, "NotImplemented", f"{feature} is not implemented by the embedded cluster")


def already_exists(resource: Resource, name: str, *, terminating: bool = False) -> ApiStatus:
    """409: the name of a new object is taken, perhaps by one that is being deleted."""
    message = f'{"object is being deleted: " if terminating else ""}{resource.qualified_name} "{name}" already exists'
    return ApiStatus(409, "AlreadyExists", message, details=_details(resource, name, resource.plural))


def conflict(resource: Resource, name: str, detail: str = MODIFIED, *, subresource: str = "") -> ApiStatus:
    """409: another client wrote first."""
    below = f"/{subresource}" if subresource else ""
    message = f'Operation cannot be fulfilled on {resource.qualified_name}{below} "{name}": {detail}'
    return ApiStatus(409, "Conflict", message, details=_details(resource, name, f"{resource.plural}{below}"))


def other_uid(resource: Resource, key: tuple[str, str], expected: str, found: str) -> ApiStatus:
    """409: the object of a PUT has another UID than the stored one of that name."""
    place = "/".join(filter(None, ("/registry", resource.plural, *key)))
    detail = f"Precondition failed: UID in precondition: {expected}, UID in object meta: {found}"
    return conflict(
        resource,
        key[1],
        f"StorageError: invalid object, Code: 4, Key: {place}, ResourceVersion: 0, AdditionalErrorMsg: {detail}",
    )


def precondition_failed(resource: Resource, name: str, field: str, expected: str, found: str) -> ApiStatus:
    """409: a precondition of a DELETE does not hold. `field` is `UID` or `ResourceVersion`."""
    hint = "deleted and then recreated" if field == "UID" else "modified"
    message = (
        f'Operation cannot be fulfilled on {resource.qualified_kind} "{name}": the {field} in the precondition '
        f"({expected}) does not match the {field} in record ({found}). The object might have been {hint}"
    )
    return ApiStatus(409, "Conflict", message, details=_details(resource, name, resource.kind))


def invalid(resource: Resource, name: str, causes: Sequence[Cause]) -> ApiStatus:
    """422: all problems that validation found."""
    return invalid_kind(resource.kind, resource.group, name, causes)


def invalid_kind(kind: str, group: str, name: str, causes: Sequence[Cause]) -> ApiStatus:
    """422 for something that is no resource, such as the options of a request."""
    problems = [f"{cause.field}: {cause.message}" for cause in causes]
    problem = problems[0] if len(problems) == 1 else f"[{', '.join(problems)}]"
    details = {key: value for key, value in (("name", name), ("group", group), ("kind", kind)) if value}
    details_causes = [{"reason": cause.reason, "message": cause.message, "field": cause.field} for cause in causes]
    qualified = f"{kind}.{group}" if group else kind
    return ApiStatus(
        422, "Invalid", f'{qualified} "{name}" is invalid: {problem}', details=details | {"causes": details_causes}
    )


def invalid_list_options(*causes: Cause) -> ApiStatus:
    """422: a combination of list or watch parameters that is not allowed."""
    return invalid_kind("ListOptions", "meta.k8s.io", "", causes)


def bad_request(message: str) -> ApiStatus:
    """400: the request is malformed."""
    return ApiStatus(400, "BadRequest", message)


def forbidden(resource: Resource, name: str, detail: str, causes: Sequence[Cause] = ()) -> ApiStatus:
    """403: admission refuses the request."""
    details = _details(resource, name, resource.plural)
    if causes:
        details["causes"] = [{"reason": c.reason, "message": c.message, "field": c.field} for c in causes]
    return ApiStatus(403, "Forbidden", f'{resource.qualified_name} "{name}" is forbidden: {detail}', details=details)


def lacks_right(verb: str, plural: str, group: str, namespace: str) -> ApiStatus:
    """403: the account lacks the right. The embedded cluster has one account, named like a driver's."""
    kind = f"{plural}.{group}" if group else plural
    message = (
        f'{kind} is forbidden: User "system:serviceaccount:{namespace}:driver" cannot {verb} resource "{plural}" '
        f'in API group "{group}" in the namespace "{namespace}"'
    )
    return ApiStatus(403, "Forbidden", message, details={"kind": plural} | ({"group": group} if group else {}))


def done() -> dict[str, Any]:
    """201: the answer to a POST that creates no object."""
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}


def deleted(resource: Resource, name: str, uid: str) -> dict[str, Any]:
    """200: the answer to most DELETEs once the object is gone."""
    details = _details(resource, name, resource.plural) | {"uid": uid}
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}


def undecodable(kind: str, version: str, expected: str, problem: str) -> Undecodable:
    """400: the object has another kind or version than expected, or does not fit its kind."""
    return Undecodable(f'{kind} in version "{version}" cannot be handled as a {expected}', problem)


def unpatchable(patched: Any, problem: str) -> ApiStatus:
    """422 for a patch whose result does not fit the kind; a POST of the same result is a 400."""
    encoded = msgspec.json.encode(msgspec.json.encode(patched).decode()).decode()
    message = f"Invalid value: {encoded}: {problem}"
    cause = {"reason": "FieldValueInvalid", "message": message, "field": "patch"}
    return ApiStatus(422, "Invalid", f' "" is invalid: patch: {message}', details={"causes": [cause]})


def expired(message: str) -> ApiStatus:
    """410: the version or continue token is older than the window."""
    return ApiStatus(410, "Expired", message)


def too_large_version(asked: int, current: int) -> ApiStatus:
    """504: this server has not reached the version yet."""
    cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
    message = f"Timeout: Too large resource version: {asked}, current: {current}"
    return ApiStatus(504, "Timeout", message, details={"causes": [cause]}, retry_after=1)


def internal_error(message: str) -> ApiStatus:
    """500 without a reason, as a real server answers an unclassified error."""
    return ApiStatus(500, "", message)
