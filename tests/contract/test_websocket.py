"""A watch over WebSocket: fabric8, and so Spark, asks for that before it asks for a chunked body."""

from __future__ import annotations

import asyncio
import json
import ssl
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import aiohttp
import pytest

from tests.contract.raw import SAFETY, HttpDoor, Raw
from tests.contract.test_http import TABLE
from tests.contract.test_writing import pod

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.contract.clusters import Cluster

ORIGIN = "https://127.0.0.1"
"""A real server wants one, whatever it names."""
WATCH = {"watch": "true"}


@dataclass
class Dialog:
    """What one client got: an answer that was no upgrade, or frames until the end."""

    status: int = 101
    protocol: str | None = None
    frames: list[aiohttp.WSMessage] = field(default_factory=list)
    close_code: int | None = None

    @property
    def events(self) -> list[dict[str, Any]]:
        return [json.loads(frame.data) for frame in self.frames]


def connect(
    http: Raw,
    path: str,
    query: dict[str, str],
    *,
    protocols: Sequence[str] = (),
    headers: dict[str, str] | None = None,
    say: str | None = None,
    frames: int | None = None,
) -> Dialog:
    """Ask for an upgrade and read all frames, or the first few and close."""
    door = http._door
    assert isinstance(door, HttpDoor)
    sent = {"Authorization": f"Bearer {door.token}", "Origin": ORIGIN, **(headers or {})}

    async def talk() -> Dialog:
        try:
            return await ask()
        finally:  # aiohttp closes TLS connections later than its session, and the loop ends before
            loop: Any = asyncio.get_running_loop()
            for transport in list(loop._transports.values()):
                transport.abort()
            await asyncio.sleep(0)

    async def ask() -> Dialog:
        trust = ssl.create_default_context(cafile=str(door.authority))
        dialog = Dialog()
        url = f"{door.server}{http.path(path)}?{urlencode(query)}"
        async with asyncio.timeout(SAFETY), aiohttp.ClientSession() as session:
            try:
                socket = await session.ws_connect(
                    url,
                    ssl=trust,
                    protocols=protocols,
                    headers={name: text for name, text in sent.items() if text},
                )
            except aiohttp.WSServerHandshakeError as refusal:
                dialog.status = refusal.status
                return dialog
            transport = socket._conn.transport if socket._conn is not None else None
            async with socket:
                dialog.protocol = socket.protocol
                if say is not None:
                    await socket.send_str(say)
                while len(dialog.frames) != frames:
                    frame = await socket.receive()
                    if frame.type not in {aiohttp.WSMsgType.TEXT, aiohttp.WSMsgType.BINARY}:
                        break
                    dialog.frames.append(frame)
            dialog.close_code = socket.close_code
            if transport is not None:
                transport.abort()  # after an end without a close frame, aiohttp leaves it open
        return dialog

    return asyncio.run(talk())


def test_each_event_is_a_text_frame_and_the_end_is_the_connections_end(http: Raw) -> None:
    http.made("pods", pod("a"))
    http.made("pods", pod("b"))
    dialog = connect(http, "pods", WATCH | {"timeoutSeconds": "1"})
    assert [frame.type for frame in dialog.frames] == [aiohttp.WSMsgType.TEXT] * 2
    assert {(event["type"], event["object"]["metadata"]["name"]) for event in dialog.events} == {
        ("ADDED", "a"),
        ("ADDED", "b"),
    }
    assert dialog.events[0]["object"]["kind"] == "Pod"
    assert dialog.protocol is None
    assert dialog.close_code in {1000, 1006}  # a real server mostly ends the connection without a close frame


def test_a_selector_and_a_version_count_as_they_do_for_a_chunked_body(http: Raw) -> None:
    http.made("pods", pod("a", labels={"x": "y"}))
    version = http.get("pods").body["metadata"]["resourceVersion"]
    http.made("pods", pod("b"))
    http.made("pods", pod("c", labels={"x": "y"}))
    dialog = connect(http, "pods", WATCH | {"labelSelector": "x=y", "resourceVersion": version}, frames=1)
    assert [event["object"]["metadata"]["name"] for event in dialog.events] == ["c"]


def test_a_version_outside_the_window_is_one_error_event(http: Raw, http_cluster: Cluster) -> None:
    version = http_cluster.version_outside_the_window()
    dialog = connect(http, "pods", WATCH | {"resourceVersion": version})
    assert [(event["type"], event["object"]["code"]) for event in dialog.events] == [("ERROR", 410)]


def test_events_come_as_tables_to_who_asks_for_tables(http: Raw) -> None:
    http.made("pods", pod("a"))
    (event,) = connect(http, "pods", WATCH, headers={"Accept": TABLE}, frames=1).events
    assert event["object"]["kind"] == "Table"


def test_one_protocol_is_agreed_to_whatever_its_name(http: Raw) -> None:
    assert connect(http, "pods", WATCH, protocols=["any.name"], frames=0).protocol == "any.name"


def test_what_a_client_says_is_ignored(http: Raw) -> None:
    http.made("pods", pod("a"))
    assert len(connect(http, "pods", WATCH, say="hello", frames=1).events) == 1


@pytest.mark.parametrize(
    ("path", "query", "headers", "protocols", "status"),
    [
        ("pods", WATCH, {"Origin": ""}, (), 403),
        ("pods", WATCH, {}, ("a", "b"), 400),
        ("pods", WATCH, {"Authorization": "Bearer wrong"}, (), 401),
        ("pods", WATCH | {"labelSelector": "a in b"}, {}, (), 400),
        ("nosuch", WATCH, {}, (), 404),
        ("pods", {}, {}, (), 200),
    ],
)
def test_what_is_not_a_watch_is_answered_without_an_upgrade(
    http: Raw, path: str, query: dict[str, str], headers: dict[str, str], protocols: tuple[str, ...], status: int
) -> None:
    assert connect(http, path, query, headers=headers, protocols=protocols).status == status
