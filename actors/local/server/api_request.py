"""Read an HTTP request to the Kubernetes API: resource, object and options. Pure except for reading the body.

All input is checked here, before the store or the file system uses it: names are never paths, numbers are numbers. An
unsupported option is refused where ignoring it would change the meaning of the request.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

import msgspec

from actors.local.schema.nesting import DEEPEST, is_too_deep
from actors.local.schema.resources import RESOURCES, Resource, find_resource
from actors.local.schema.statuses import ApiStatus, bad_request, no_such_path
from actors.local.server.pod_actions import delete_options, is_dry_run
from actors.local.server.protobuf import MEDIA_TYPE, decode_message

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aiohttp import web

    from actors.local.server.tables import IncludeObject
    from actors.local.store.deletion import DeleteOptions

__all__ = [
    "Target",
    "boolean",
    "delete_body",
    "dry_run",
    "integer",
    "json_body",
    "method_not_allowed",
    "parse_target",
    "table_rows",
]

_NAME: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._:-]{0,251}[A-Za-z0-9])?")
"""Wider than any resource's own rule, which the store applies to new objects; narrow enough never to be a path."""
_FALSE: Final = frozenset({"false", "0"})
"""`Convert_Slice_string_To_bool` of apimachinery."""
_NAMESPACED: Final = {(each.group, each.version, each.plural) for each in RESOURCES.values() if each.namespaced}
_INCLUDES: Final[tuple[IncludeObject, ...]] = ("None", "Metadata", "Object")
_JSON_TYPES: Final = frozenset({"application/json", "application/octet-stream", "*/*"})
"""aiohttp reports a body without a type as octet-stream; kubectl always names the type."""


@dataclass(frozen=True, slots=True)
class Target:
    """What a URL names. Without a name: the collection. Without a namespace: all namespaces, or none applies."""

    resource: Resource
    namespace: str | None = None
    name: str | None = None
    subresource: str | None = None

    @property
    def collection(self) -> tuple[str, str | None]:
        """Plural and namespace: the first arguments of the store's methods for collections."""
        return self.resource.plural, self.namespace

    @property
    def place(self) -> tuple[str, str | None, str]:
        """Plural, namespace and name: the first arguments of the store's methods for objects."""
        assert self.name is not None
        return self.resource.plural, self.namespace, self.name


def method_not_allowed() -> ApiStatus:
    """405: the URL is known, but not with this method."""
    return ApiStatus(
        405, "MethodNotAllowed", "the server does not allow this method on the requested resource", details={}
    )


def parse_target(raw_path: str) -> Target:
    """Return what a path names; 404 for an unknown path and for an invalid name."""
    segments: list[str] = [unquote(segment) for segment in raw_path.split("/")[1:]]
    match segments:
        case ["api", version, *path]:
            group = ""
        case ["apis", group, version, *path] if group:
            pass
        case _:
            raise no_such_path()
    if not all(_NAME.fullmatch(segment) and ".." not in segment for segment in path):
        raise no_such_path()
    namespace: str | None = None
    match path:
        case ["namespaces", namespace, plural, *names] if (group, version, plural) in _NAMESPACED:
            pass
        case [plural, *names]:
            pass
        case _:
            raise no_such_path()
    resource = find_resource(group, version, plural)
    if resource is None or len(names) > 2 or (namespace is None and resource.namespaced and names):
        raise no_such_path()
    return Target(resource, namespace, names[0] if names else None, names[1] if len(names) > 1 else None)


def boolean(query: Mapping[str, str], name: str) -> bool:
    """Parse a boolean query parameter as a real server does: any value is true except `false` and `0`."""
    return name in query and query[name].lower() not in _FALSE


def integer(query: Mapping[str, str], name: str) -> int | None:
    """Parse an integer query parameter, None if it is absent; 400 if it is malformed."""
    text = query.get(name, "")
    if not text:
        return None
    if not re.fullmatch(r"-?[0-9]{1,18}", text):
        raise bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax')
    return int(text)


def dry_run(request: web.Request, kind: str) -> bool:
    """Return whether the query asks for a dry run."""
    return is_dry_run([value for value in request.query.getall("dryRun", []) if value], kind)


def table_rows(request: web.Request) -> IncludeObject | None:
    """Return what the rows of a Table include, None if the client accepts JSON objects before Tables.

    The first supported media type counts; 406 if there is none.
    """
    accepted = ",".join(request.headers.getall("Accept", [])) or "*/*"
    for part in accepted.split(","):
        media_type, *parameters = (item.strip() for item in part.split(";"))
        options = dict(parameter.split("=", 1) for parameter in parameters if "=" in parameter)
        if media_type not in {"application/json", "application/*", "*/*"}:
            continue
        asked = (options.get("as"), options.get("g"), options.get("v"))
        if asked == ("Table", "meta.k8s.io", "v1"):
            return _include(request.query.get("includeObject") or "Metadata")
        if asked[0] is None:
            return None
    raise ApiStatus(406, "NotAcceptable", "only the following media types are accepted: application/json", details={})


def _include(text: str) -> IncludeObject:
    for known in _INCLUDES:
        if text == known:
            return known
    raise bad_request(f'unrecognized includeObject value: "{text}"')


async def json_body(request: web.Request, allowed: frozenset[str] = _JSON_TYPES) -> Any:
    """Return the decoded body, None if it is empty; 415 for another content type, 400 for malformed JSON."""
    body = await request.read()
    if not body:
        return None
    if request.content_type == MEDIA_TYPE and (sent := decode_message(body)) is not None:
        return sent
    if request.content_type not in allowed:
        names = ", ".join(sorted(name for name in allowed if name.endswith("json")))
        message = f"the body of the request was in an unknown format - accepted media types include: {names}"
        raise ApiStatus(415, "UnsupportedMediaType", message, details={})
    try:
        found = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise bad_request(f"the object provided is unrecognized (must be valid JSON): {error}") from None
    if body.count(b"[") + body.count(b"{") > DEEPEST and is_too_deep(found):
        raise bad_request(f"the object provided is unrecognized (must be valid JSON): more than {DEEPEST} levels")
    return found


async def delete_body(request: web.Request) -> tuple[DeleteOptions, bool]:
    """Return the options from the body, or else from the query, and whether it is a dry run."""
    try:
        body = await json_body(request)
    except ApiStatus as problem:
        raise bad_request(f"couldn't get version/kind; json parse error: {problem.message}") from None
    integer(request.query, "gracePeriodSeconds")
    return delete_options(body, request.query)
