"""`pods/log` over HTTP: a container's output, as a whole, its end, or followed while it grows."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Any, BinaryIO, Final, Protocol

from aiohttp import web

from actors.local.schema.nesting import value_at
from actors.local.schema.statuses import Cause, bad_request, invalid_kind
from actors.local.server.api_request import boolean, integer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from actors.local.kubelet.container_run import LogFile

__all__ = ["LogSource", "stream_log"]

_BLOCK: Final = 64 * 1024
_POLL_SECONDS: Final = 0.1
"""The standard library cannot wait for a file to grow. A follower is a person, who does not notice a tenth of a
second."""
_NO_TIMES: Final = "the embedded cluster does not keep the times of log lines"


class LogSource(Protocol):
    """Finds the logs of containers: a kubelet."""

    def log(self, uid: str, container: str, *, previous: bool = False) -> LogFile | None:
        """Return a container's log file, None if there is none."""


async def stream_log(request: web.Request, pod: Mapping[str, Any], source: LogSource) -> web.StreamResponse:
    """Answer a log request. Every refusal comes before the first byte."""
    query = request.query
    for option in ("timestamps", "sinceSeconds", "sinceTime"):
        if query.get(option, "").lower() not in {"", "false", "0"}:
            raise bad_request(f"{option}: {_NO_TIMES}")
    tail, limit = _count(query, "tailLines", least=0), _count(query, "limitBytes", least=1)
    follow, previous = boolean(query, "follow"), boolean(query, "previous")
    container = _container(pod, query.get("container", ""))
    log = source.log(pod["metadata"]["uid"], container, previous=previous)
    name = pod["metadata"]["name"]
    if log is None and previous:
        raise bad_request(f'previous terminated container "{container}" in pod "{name}" not found')
    if log is None or not log.path.exists():
        raise bad_request(f'container "{container}" in pod "{name}" is waiting to start: {_waiting(pod, container)}')
    response = web.StreamResponse(headers={"Content-Type": "text/plain"})
    response.enable_chunked_encoding()
    with log.path.open("rb") as file:
        await response.prepare(request)
        async for block in _blocks(file, log, tail=tail, limit=limit, follow=follow):
            await response.write(block)
    await response.write_eof()
    return response


def _count(query: Mapping[str, str], name: str, *, least: int) -> int | None:
    value = integer(query, name)
    if value is not None and value < least:
        detail = f"must be greater than or equal to {least}" if least == 0 else "must be greater than 0"
        raise invalid_kind("PodLogOptions", "", "", [Cause.invalid(name, value, detail)])
    return value


def _container(pod: Mapping[str, Any], requested: str) -> str:
    """Return the requested container, or else the only one."""
    spec, name = pod["spec"], pod["metadata"]["name"]
    names = [str(each["name"]) for each in spec["containers"]]
    inits = [str(each["name"]) for each in spec.get("initContainers") or ()]
    if requested:
        if requested not in (*names, *inits):
            raise bad_request(f"container {requested} is not valid for pod {name}")
        return requested
    if len(names) == 1:
        return names[0]
    choices = f"choose one of: [{' '.join(names)}]"
    if inits:
        choices += f" or one of the init containers: [{' '.join(inits)}]"
    raise bad_request(f"a container name must be specified for pod {name}, {choices}")


def _waiting(pod: Mapping[str, Any], container: str) -> str:
    kinds = ("containerStatuses", "initContainerStatuses")
    for each in (each for kind in kinds for each in value_at(pod, "status", kind) or ()):
        if each.get("name") == container:
            return str(value_at(each, "state", "waiting", "reason") or "ContainerCreating")
    return "ContainerCreating"


async def _blocks(
    file: BinaryIO, log: LogFile, *, tail: int | None, limit: int | None, follow: bool
) -> AsyncIterator[bytes]:
    if tail is not None:
        file.seek(_tail_start(file, tail))
    left = limit
    while left is None or left > 0:
        complete = log.complete or not follow  # before reading: output that came until then is read once more
        block = file.read(_BLOCK if left is None else min(_BLOCK, left))
        if block:
            left = None if left is None else left - len(block)
            yield block
        elif complete:
            return
        else:
            await asyncio.sleep(_POLL_SECONDS)


def _tail_start(file: BinaryIO, lines: int) -> int:
    """Return where the last `lines` lines begin; search backwards from the end."""
    end = position = file.seek(0, os.SEEK_END)
    if lines == 0:
        return end
    left = lines
    while position > 0:
        start = max(0, position - _BLOCK)
        file.seek(start)
        block = file.read(position - start)
        at = len(block)
        while (at := block.rfind(b"\n", 0, at)) >= 0:
            if start + at == end - 1:
                continue  # the newline that ends the last line begins no other
            left -= 1
            if left == 0:
                return start + at + 1
        position = start
    return 0
