"""LIST in pages, and LIST as of a version: check the parameters, find the page."""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec

from actors.local.schema.statuses import Cause, bad_request, expired, internal_error, invalid_list_options

if TYPE_CHECKING:
    from actors.local.schema.selectors import Selector
    from actors.local.store.history import Key, Object, Table

__all__ = ["ListRequest", "Page", "as_of", "page", "parse", "parse_watch_version", "token"]

_TOKEN_VERSION: Final = "meta.k8s.io/v1"  # noqa: S105 - the format's name, not a secret
_MATCHES: Final = ("Exact", "NotOlderThan", "")
_PAGE_TOO_OLD: Final = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without "
    "the continue parameter."
)
_MAX_VERSION: Final = (1 << 64) - 1


class _Token(msgspec.Struct, rename={"version": "v", "resource_version": "rv"}):
    """The content of a continue token: the list's version, and the first key of the next page."""

    version: str
    resource_version: int
    start: tuple[str, str]


@dataclass(frozen=True, slots=True)
class ListRequest:
    """The checked parameters of a LIST."""

    limit: int
    """0: no limit."""
    version: int
    """The least version that may be listed, or the only one with `exact`; 0: any."""
    exact: bool
    start: Key | None
    """The first key of a continued list's page."""


@dataclass(frozen=True, slots=True)
class Page:
    """The result of one LIST."""

    items: list[Object]
    next_key: Key | None
    """The first key of the next page, None on the last."""
    remaining: int | None
    """Objects after this page; None (unknown) with a selector, as on a real server."""


def parse(limit: int, continue_token: str, resource_version: str | None, match: str | None) -> ListRequest:
    """Check the parameters of a LIST. Raises a real server's 400 or 422."""
    match = match or ""
    if match not in _MATCHES:
        raise invalid_list_options(Cause.unsupported("resourceVersionMatch", match, _MATCHES))
    if match and not resource_version:
        raise _match_forbidden("resourceVersionMatch is forbidden unless resourceVersion is provided")
    if match == "Exact" and resource_version == "0":
        raise _match_forbidden('resourceVersionMatch "exact" is forbidden for resourceVersion "0"')
    version = _number(resource_version)
    if version is None:
        raise bad_request(
            f'invalid resource version: resourceVersion: Invalid value: "{resource_version}": '
            f'strconv.ParseUint: parsing "{resource_version}": invalid syntax'
        )
    if resource_version == "0":  # a real server answers this one from its cache, in one page
        limit = 0
    if continue_token:
        if match:
            raise _match_forbidden("resourceVersionMatch is forbidden for continue")
        if version:
            raise bad_request("specifying resource version is not allowed when using continue")
        decoded = _decode_token(continue_token)
        return ListRequest(max(limit, 0), decoded.resource_version, exact=True, start=decoded.start)
    exact = match == "Exact" or (match == "" and limit > 0 and version > 0)
    return ListRequest(max(limit, 0), version, exact, None)


def parse_watch_version(resource_version: str | None) -> int:
    """Return the version that a watch resumes from, 0 for any. A real server answers a malformed one by 500."""
    version = _number(resource_version)
    if version is None:
        raise internal_error(
            f'resourceVersion: Invalid value: "{resource_version}": '
            f'strconv.ParseUint: parsing "{resource_version}": invalid syntax'
        )
    return version


def as_of(table: Table, request: ListRequest) -> Table:
    """Return the table at the request's version; 410 if that is outside the window."""
    if request.version < table.floor:
        raise expired(_PAGE_TOO_OLD if request.start else "The resourceVersion for the provided list is too old.")
    return table.as_of(request.version)


def page(table: Table, namespace: str | None, selector: Selector, request: ListRequest) -> Page:
    """Return the first matching objects from the request's start on, at most `limit`."""
    items: list[Object] = []
    keys = table.keys(namespace, request.start)
    for key in keys:
        obj = table.objects[key]
        if not selector.matches(obj):
            continue
        if request.limit and len(items) == request.limit:
            remaining = 1 + sum(1 for _ in keys) if selector.everything else None
            return Page(items, key, remaining)
        items.append(obj)
    return Page(items, None, None)


def token(version: int, start: Key) -> str:
    """Encode a continue token."""
    return base64.urlsafe_b64encode(msgspec.json.encode(_Token(_TOKEN_VERSION, version, start))).decode().rstrip("=")


def _decode_token(text: str) -> _Token:
    try:
        raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
        decoded = msgspec.json.decode(raw, type=_Token)
    except (binascii.Error, ValueError) as problem:  # msgspec's errors are ValueErrors, too
        raise bad_request(f"invalid continue token: continue key is not valid: {problem}") from None
    if decoded.version != _TOKEN_VERSION or decoded.resource_version <= 0:
        raise bad_request("invalid continue token: continue key is not valid: server does not recognize this format")
    return decoded


def _number(text: str | None) -> int | None:
    """Parse a version: 0 for an absent one, None for a malformed one."""
    if not text:
        return 0
    if not (text.isascii() and text.isdecimal()) or len(text) > len(str(_MAX_VERSION)):
        return None
    return int(text)


def _match_forbidden(why: str) -> Exception:
    return invalid_list_options(Cause.forbidden("resourceVersionMatch", why))
