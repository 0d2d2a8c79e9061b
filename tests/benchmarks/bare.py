"""The least that can request executors: an aiohttp loop that POSTs the same pods and does nothing else."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import aiohttp

from actors.manifests.executor_pod import ExecutorManifests

if TYPE_CHECKING:
    import ssl
    from collections.abc import Sequence

    from actors.settings import Settings

__all__ = ["bodies", "post_all"]


def bodies(settings: Settings, executors: int) -> list[bytes]:
    """Return the pods that a backend with these settings creates, as JSON."""
    manifests = ExecutorManifests(settings, namespace=settings.namespace or "default")
    return [json.dumps(manifests.pod(number, "default")).encode() for number in range(1, executors + 1)]


def post_all(
    url: str, pods: Sequence[bytes], *, token: str, connections: int, trust: ssl.SSLContext | bool = True
) -> None:
    """POST each pod once, over all connections; every answer must be a success."""
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    asyncio.run(_post_all(url, pods, headers, connections, trust))


async def _post_all(url: str, pods: Sequence[bytes], headers: dict[str, str], connections: int, trust: Any) -> None:
    left = iter(pods)

    async def post(session: aiohttp.ClientSession) -> None:
        for pod in left:
            async with session.post(url, data=pod) as answer:
                assert answer.status == 201, await answer.text()
                await answer.read()

    connector = aiohttp.TCPConnector(limit=connections, ssl=trust)
    async with aiohttp.ClientSession(connector=connector, headers=headers) as session:
        await asyncio.gather(*(post(session) for _ in range(connections)))
