"""A fleet that comes up from nothing, on a server that takes its time to answer."""

from __future__ import annotations

import asyncio
import json
import time

from tests.benchmarks.pods import NAMESPACE
from tests.benchmarks.serving import Serving

__all__ = ["measure"]


def measure(who: str, *, executors: int, latency: float) -> dict[str, float]:
    """All at default settings; `bare` POSTs as much over as many connections and does nothing else."""
    with Serving(0, latency=latency, starts=True) as serving:
        began = _ours(serving, executors) if who == "ours" else asyncio.run(_bare(serving, executors))
        counts = serving.ask("counts")
    assert len(counts["posts"]) == executors, f"{len(counts['posts'])} POSTs for {executors} executors"
    return {
        "requested s": counts["posts"][-1] - began,
        "created s": counts["answered"][-1] - began,
        "max in flight": counts["most_in_flight"],
    }


def _ours(serving: Serving, executors: int) -> float:
    from tests.benchmarks.ours import Fleet, connect  # noqa: PLC0415 - a bare loop must not pay for it

    with Fleet(connect(serving), executors, settling=0.0) as fleet:
        return fleet.started_at


async def _bare(serving: Serving, executors: int, connections: int = 16) -> float:
    import aiohttp  # noqa: PLC0415 - see above

    left = iter(range(1, executors + 1))
    url = f"{serving.url}/api/v1/namespaces/{NAMESPACE}/pods"

    async def post(session: aiohttp.ClientSession) -> None:
        for number in left:
            body = {"metadata": {"labels": {"executor-pods/executor-id": str(number)}, "padding": "x" * 1000}}
            async with session.post(url, data=json.dumps(body)) as answer:
                assert answer.status == 201, answer.status
                json.loads(await answer.read())

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=connections)) as session:
        began = time.monotonic()
        await asyncio.gather(*(post(session) for _ in range(connections)))
    return began
