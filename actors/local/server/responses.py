"""How an answer is written: JSON, a `Status`, compression."""

from __future__ import annotations

import asyncio
import gzip
from typing import TYPE_CHECKING, Any, Final

import msgspec
from aiohttp import web

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from actors.local.schema.statuses import ApiStatus

__all__ = ["json_response", "large_json_response", "status_response"]

_GZIP_FROM: Final = 128 * 1024
_GZIP_LEVEL: Final = 1
"""As a real server has both (`responsewriters.defaultGzipThresholdBytes`, `defaultGzipContentEncodingLevel`)."""
_ENCODED_AT_ONCE: Final = 100
"""Objects that are encoded faster than a thread is asked to."""


def json_response(body: Any, status: int = 200, *, warnings: Sequence[str] = ()) -> web.Response:
    """One object. Warnings go into headers, as RFC 7234 has them."""
    response = web.Response(body=msgspec.json.encode(body), status=status, content_type="application/json")
    for warning in warnings:
        plain = "".join(character if character.isprintable() else "?" for character in warning)
        text = plain.replace("\\", "\\\\").replace('"', '\\"')
        response.headers.add("Warning", f'299 - "{text}"')
    return response


async def large_json_response(request: web.Request, body: Mapping[str, Any]) -> web.Response:
    """A list, which may be large: then it is encoded and compressed on a thread, so that watches go on meanwhile."""
    accepts = "gzip" in request.headers.get("Accept-Encoding", "")
    large = len(body.get("items") or body.get("rows") or ()) > _ENCODED_AT_ONCE
    data, compressed = await asyncio.to_thread(_encode, body, accepts) if large else _encode(body, accepts)
    headers: Mapping[str, str] = {"Content-Encoding": "gzip", "Vary": "Accept-Encoding"} if compressed else {}
    return web.Response(body=data, content_type="application/json", headers=headers)


def _encode(body: Any, accepts_gzip: bool) -> tuple[bytes, bool]:
    data = msgspec.json.encode(body)
    if accepts_gzip and len(data) > _GZIP_FROM:
        return gzip.compress(data, _GZIP_LEVEL, mtime=0), True
    return data, False


def status_response(status: ApiStatus) -> web.Response:
    """A `Status` that says no."""
    response = json_response(status.to_json(), status.code)
    if status.retry_after is not None:
        response.headers["Retry-After"] = str(status.retry_after)
    return response
