"""The page of a Dask cluster's fleet, on the scheduler's dashboard."""

from __future__ import annotations

import asyncio
import json
import urllib.request
from typing import Any
from urllib.error import HTTPError

import pytest

pytest.importorskip("distributed")

from actors.dask.dashboard import PATH
from actors.page.site import HEADERS
from tests.e2e.dask_clusters import LIMIT, cluster_of, scheduler_of


def get(url: str, path: str, **headers: str) -> tuple[int, bytes, Any]:
    request = urllib.request.Request(f"{url}{path}", headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=LIMIT) as answer:
            return answer.status, answer.read(), answer.headers
    except HTTPError as error:
        with error:
            return error.code, error.read(), error.headers


def first_event(url: str) -> str:
    with urllib.request.urlopen(f"{url}api/v1/stream?since=0", timeout=LIMIT) as stream:
        while not (line := stream.readline()).startswith(b"event: "):
            pass
    return str(line, "ascii").strip()


def test_the_fleet_has_a_page_beside_the_dashboards_own() -> None:
    async def program() -> None:
        async with cluster_of(asynchronous=True) as cluster:
            url = f"http://127.0.0.1:{scheduler_of(cluster).http_server.port}{PATH}"
            assert cluster.page_url == url
            code, text, headers = await asyncio.to_thread(get, url, "readyz")
            assert (code, text) == (200, b"ok")
            assert headers["Content-Security-Policy"] == HEADERS["Content-Security-Policy"]
            _, status, _ = await asyncio.to_thread(get, url, "api/v1/status")
            assert json.loads(status)["app_id"] == cluster.name
            assert b'<section id="plain">' in (await asyncio.to_thread(get, url, ""))[1]
            assert await asyncio.to_thread(first_event, url) == "event: reset"
            assert (await asyncio.to_thread(get, url, "api/v1/status", Host="evil.example.com"))[0] == 421
            assert (await asyncio.to_thread(get, url.replace(PATH, "/"), "health"))[0] == 200

    asyncio.run(program())
