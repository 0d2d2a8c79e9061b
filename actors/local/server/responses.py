"""Build answers: JSON, warnings, a `Status`, compression."""

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
"""Both as on a real server (`responsewriters.defaultGzipThresholdBytes`, `defaultGzipContentEncodingLevel`)."""
_ENCODED_AT_ONCE: Final = 100
"""Encoding fewer objects is faster than asking a thread for it."""


def json_response(body: Any, status: int = 200, *, warnings: Sequence[str] = ()) -> web.Response:
    """Build the answer for one object. Warnings become headers, as in RFC 7234."""
    response = web.Response(body=msgspec.json.encode(body), status=status, content_type="application/json")
    for warning in warnings:
        plain = "".join(character if character.isprintable() else "?" for character in warning)
        text = plain.replace("\\", "\\\\").replace('"', '\\"')
        response.headers.add("Warning", f'299 - "{text}"')
    return response


async def large_json_response(request: web.Request, body: Mapping[str, Any]) -> web.Response:
    """Build the answer for a list. A thread encodes and compresses a large one, so that watches are not blocked."""
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
    """Build the answer for a refusal."""
    response = json_response(status.to_json(), status.code)
    if status.retry_after is not None:
        response.headers["Retry-After"] = str(status.retry_after)
    return response
