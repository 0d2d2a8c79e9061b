"""What the page answers: to whom, what, and what it tells a viewer. No socket, no thread, no time that passes."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from actors.errors import Refused
from actors.messages import (
    AllocationBlocked,
    BackendFailed,
    BackendStarted,
    BackendStopped,
    Executor,
    ExecutorRunning,
    ExecutorState,
    FleetStatus,
    FollowFleet,
    HasEnoughExecutors,
    HoldFleet,
    KillExecutors,
    ProfileStatus,
    ResumeFleet,
    RetireExecutors,
    ScaleExecutors,
    SourceStatus,
)
from actors.page import documents, site
from actors.page.feed import CALL_AT, Feed
from actors.page.history import LANES_KEPT
from actors.page.hosts import AllowedHosts
from actors.page.site import CHANGES_AT_ONCE, MOST_VIEWERS, Answer, Asked, Site, Stream
from actors.pods.loss import LossKind, LossReason
from actors.runtime import Address
from actors.runtime.mailbox import DeadLetters, Reply
from actors.testing.manual import ManualClock
from tests.page.model import HOSTILE
from tests.unit.builders import pod
from tests.unit.changes import changed, everything, executor

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping

    Program = Callable[["Rig"], Coroutine[Any, Any, None]]

TOKEN = "a-token-of-24-characters"
FRESH = SourceStatus(synced=True, since_full_sync=timedelta(seconds=5), since_heard=timedelta(seconds=1), error=None)
STATUS = FleetStatus("etl", "batch", {"default": ProfileStatus(3, running=2)}, {"watch": FRESH})
LOSS = LossReason(LossKind.EVICTED, 143, caused_by_app=False, message="the node was drained")
ENDED = executor(2, ExecutorState.ENDED, loss=LOSS, reason=LOSS.message)


class FakeBackend(Address):
    """Answers at once, with what a test says, or never. Whoever follows is sent everything."""

    def __init__(self) -> None:
        super().__init__("backend", DeadLetters())
        self.asked: list[Any] = []
        self.answers: dict[type, Any] = {HasEnoughExecutors: True}
        self.status = STATUS

    def tell(self, message: object) -> None:
        assert isinstance(message, FollowFleet)
        message.follower(everything(0, status=self.status))

    def request(self, message: object) -> Reply:
        self.asked.append(message)
        reply = Reply()
        answer = self.answers.get(type(message))
        if isinstance(answer, Exception):
            reply.set_exception((type(answer), answer, None))
        elif answer is not None:
            reply.set(answer)
        return reply


@dataclass
class Rig:
    site: Site
    feed: Feed
    backend: FakeBackend
    clock: ManualClock
    sequence: int = 0

    def publish(self, *executors: Executor, **values: Any) -> None:
        """The Backend publishes a change."""
        self.site.drain()  # it is followed
        self.sequence += 1
        self.feed.put(changed(self.sequence, *executors, **values))

    def wait(self, seconds: float) -> None:
        """Let time pass."""
        self.clock.move_to(self.clock.elapsed + timedelta(seconds=seconds))

    async def get(self, path: str, *, host: str = "localhost:8080", method: str = "GET", **query: str) -> Answer:
        found = await self.site.answer(Asked(method, path, query, {"host": host}))
        assert isinstance(found, Answer)
        return found

    async def post(self, action: str, body: Any, headers: Mapping[str, str] | None = None) -> Answer:
        known = {"host": "localhost:8080", "authorization": f"Bearer {TOKEN}", "content-type": "application/json"}
        asked = Asked("POST", f"/api/v1/{action}", {}, known | dict(headers or {}), json.dumps(body).encode())
        found = await self.site.answer(asked)
        assert isinstance(found, Answer)
        return found

    async def stream(self, **query: str) -> Viewer:
        found = await self.site.answer(Asked("GET", "/api/v1/stream", query, {"host": "localhost"}))
        assert isinstance(found, Stream)
        viewer = Viewer(found)
        assert await anext(found.parts) == b"retry: 2000\n\n"
        return viewer


class Viewer:
    def __init__(self, stream: Stream) -> None:
        self.parts = stream.parts

    async def next(self) -> tuple[str, Any]:
        """The next event: its name and its data."""
        text = (await anext(self.parts)).decode()
        fields = dict(line.split(": ", 1) for line in text.strip().splitlines())
        return fields["event"], json.loads(fields["data"])


def in_loop(program: Program, *, address: str = "127.0.0.1", token: str | None = TOKEN) -> None:
    """Run a test with a site of its own."""

    async def run() -> None:
        clock = ManualClock()
        feed, backend = Feed(clock), FakeBackend()
        feed.backend = backend
        hosts = AllowedHosts(address, ("etl.example.com",))
        made = Site(feed, clock=clock, hosts=hosts, app_id="etl", token=token, tick=3600)
        try:
            await program(Rig(made, feed, backend, clock))
        finally:
            made.close()

    asyncio.run(run())


def problem(answer: Answer) -> tuple[int, str]:
    return answer.status, msgspec.json.decode(answer.body, type=documents.Problem).error


# ── hosts ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("address", "host", "allowed"),
    [
        ("127.0.0.1", "127.0.0.1:8080", True),
        ("127.0.0.1", "localhost:31234", True),
        ("127.0.0.1", "[::1]:8080", True),
        ("127.0.0.1", "LOCALHOST", True),
        ("127.0.0.1", "etl.example.com", True),
        ("127.0.0.1", "evil.example.com:8080", False),
        ("127.0.0.1", "10.0.0.7:8080", False),
        ("127.0.0.1", "driver", False),
        ("127.0.0.1", "127.0.0.1.evil.example.com", False),
        ("127.0.0.1", "", False),
        ("127.0.0.1", None, False),
        ("127.0.0.1", "x" * 10_000, False),
        ("0.0.0.0", "10.0.0.7:8080", True),
        ("0.0.0.0", "etl-driver.batch.svc:8080", True),
        ("0.0.0.0", "etl-driver.batch.svc.cluster.local", True),
        ("0.0.0.0", "etl-driver", True),
        ("0.0.0.0", "etl.example.com", True),
        ("0.0.0.0", "evil.example.com", False),
        ("::", "[fd00::7]:8080", True),
    ],
)
def test_a_request_is_answered_under_names_that_no_stranger_can_own(
    address: str, host: str | None, allowed: bool
) -> None:
    assert AllowedHosts(address, ("etl.example.com",)).allows(host) is allowed


def test_a_host_header_that_lies_is_refused() -> None:
    async def program(rig: Rig) -> None:
        for path in ("/", "/api/v1/status", "/api/v1/stream", "/livez", "/static/page.js"):
            status, text = problem(await rig.get(path, host="rebound.example.com"))
            assert (status, "'rebound.example.com'" in text) == (421, True)
        assert rig.backend.asked == []

    in_loop(program)


# ── JSON ─────────────────────────────────────────────────────────────────────────────────────────────────────────

ANSWERS = {
    "/api/v1/status": documents.Status,
    "/api/v1/executors": documents.Executors,
    "/api/v1/events": documents.Events,
    "/api/v1/timeline": documents.Timeline,
}


@pytest.mark.parametrize(("path", "kind"), ANSWERS.items())
def test_answers_are_what_the_schema_says(path: str, kind: type) -> None:
    async def program(rig: Rig) -> None:
        rig.feed.put(BackendStarted("etl", "batch"))
        rig.feed.put(ExecutorRunning(1, pod(1)))
        rig.publish(executor(1), ENDED)
        answer = await rig.get(path)
        assert (answer.status, answer.content_type) == (200, "application/json")
        document: Any = msgspec.json.decode(answer.body, type=kind)
        assert document.version == 1
        assert msgspec.json.encode(document) == answer.body  # it has no other fields

    in_loop(program)


def test_an_unknown_path_and_a_wrong_method_are_errors_in_a_sentence() -> None:
    async def program(rig: Rig) -> None:
        assert problem(await rig.get("/api/v2/status"))[0] == 404
        assert problem(await rig.get("/static/../site.py"))[0] == 404
        answer = await rig.get("/api/v1/status", method="POST")
        assert problem(answer) == (405, "'POST' is not allowed here: GET is")
        assert answer.headers["Allow"] == "GET, HEAD"

    in_loop(program)


def test_only_probes_ask_the_backend_and_seldom_however_many_there_are() -> None:
    async def program(rig: Rig) -> None:
        await asyncio.gather(*(rig.get(path) for path in ANSWERS))
        viewer = await rig.stream()
        rig.site.look()
        await viewer.parts.aclose()
        assert rig.backend.asked == []
        await asyncio.gather(*(rig.get("/livez") for _ in range(20)))
        rig.wait(0.5)
        await rig.get("/readyz")
        assert rig.backend.asked == [HasEnoughExecutors()]
        rig.wait(0.6)
        await rig.get("/readyz")
        assert len(rig.backend.asked) == 2

    in_loop(program)


def test_a_change_that_was_lost_is_asked_for() -> None:
    async def program(rig: Rig) -> None:
        rig.publish(executor(1))
        rig.sequence += 1
        rig.publish(executor(3))
        rig.site.drain()
        answer = json.loads((await rig.get("/api/v1/executors")).body)
        assert answer["executors"] == [], "they are not in what the Backend sent when it was asked again"
        assert [row["id"] for row in answer["ended"]] == [1, 3]

    in_loop(program)


def test_the_ages_of_a_status_are_as_of_the_answer() -> None:
    async def program(rig: Rig) -> None:
        assert json.loads((await rig.get("/api/v1/status")).body)["sources"]["watch"]["since_heard"] == 1
        rig.wait(9)
        status = json.loads((await rig.get("/api/v1/status")).body)
        assert status["sources"]["watch"]["since_heard"] == 10
        assert status["time"] == rig.clock.now().timestamp()

    in_loop(program)


# ── probes ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_driver_is_live_while_it_starts_and_ready_once_it_has_started() -> None:
    async def program(rig: Rig) -> None:
        rig.feed.backend = None
        assert (await rig.get("/livez")).body == b"ok"
        answer = await rig.get("/readyz")
        assert answer.status == 500
        assert "[-]started failed: the fleet has not started yet" in answer.body.decode()
        rig.feed.backend = rig.backend
        rig.feed.put(BackendStarted("etl", "batch"))
        assert ((await rig.get("/readyz")).status, (await rig.get("/readyz")).body) == (200, b"ok")

    in_loop(program)


OUTAGE = replace(FRESH, synced=False, error="no connection")


@pytest.mark.parametrize(
    ("status", "ready"),
    [
        (STATUS, True),
        (replace(STATUS, may_write=False), True),  # a standby
        (replace(STATUS, sources={"watch": OUTAGE}), True),
        (replace(STATUS, sources={"watch": replace(OUTAGE, since_full_sync=None)}), False),
        (replace(STATUS, failed="4 executors failed to start"), False),
    ],
)
def test_a_driver_is_ready_if_it_was_synced_and_has_not_failed(status: FleetStatus, ready: bool) -> None:
    async def program(rig: Rig) -> None:
        rig.feed.put(BackendStarted("etl", "batch"))
        rig.backend.status = status
        assert ((await rig.get("/readyz")).status == 200) is ready
        assert (await rig.get("/livez")).status == 200

    in_loop(program)


def test_probes_say_each_check_as_the_api_server_does() -> None:
    async def program(rig: Rig) -> None:
        rig.feed.put(BackendStarted("etl", "batch"))
        rig.backend.status = replace(STATUS, failed="4 executors failed to start")
        assert (await rig.get("/livez", verbose="")).body == b"[+]actors ok\nlivez check passed\n"
        assert (await rig.get("/readyz")).body.decode().splitlines() == [
            "[+]actors ok",
            "[+]started ok",
            "[+]synced ok",
            "[-]fleet failed: 4 executors failed to start",
            "readyz check failed",
        ]
        assert (await rig.get("/readyz", exclude="fleet")).body == b"ok"
        lines = (await rig.get("/readyz", exclude="fleet,etcd", verbose="")).body.decode().splitlines()
        assert lines[3:] == [
            "[+]fleet excluded: ok",
            'warn: some health checks cannot be excluded: no matches for "etcd"',
            "readyz check passed",
        ]

    in_loop(program)


def test_a_backend_that_hangs_or_has_failed_is_not_live(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(site, "ANSWER_SECONDS", 0.0)

    async def program(rig: Rig) -> None:
        rig.feed.put(BackendStarted("etl", "batch"))
        del rig.backend.answers[HasEnoughExecutors]
        answer = await rig.get("/livez")
        assert (answer.status, "the backend does not answer" in answer.body.decode()) == (500, True)
        rig.backend.answers[HasEnoughExecutors] = True
        rig.wait(2)
        assert (await rig.get("/livez")).status == 200
        rig.feed.put(BackendFailed(ValueError("the watch crashed")))
        answer = await rig.get("/livez")
        assert (answer.status, "[-]actors failed: the watch crashed" in answer.body.decode()) == (500, True)

    in_loop(program)


def test_a_driver_that_stops_in_order_is_live() -> None:
    async def program(rig: Rig) -> None:
        rig.feed.put(BackendStarted("etl", "batch"))
        rig.feed.put(BackendStopped())
        rig.backend.answers[HasEnoughExecutors] = ValueError("it has ended")
        assert (await rig.get("/livez")).status == 200

    in_loop(program)


# ── actions ──────────────────────────────────────────────────────────────────────────────────────────────────────

ACTS = [
    ("scale", {"targets": {"default": 5}}, ScaleExecutors({"default": 5})),
    ("scale", {"targets": 5, "victims": "idle", "grace": "30s"}, ScaleExecutors(5, "idle", timedelta(seconds=30))),
    ("retire", {"ids": [1, 2], "deadline": "1m"}, RetireExecutors((1, 2), timedelta(minutes=1))),
    (
        "kill",
        {"ids": [1], "adjust_target": True, "grace": "0ms"},
        KillExecutors((1,), adjust_target=True, grace=timedelta()),
    ),
    ("hold", {}, HoldFleet()),
    ("resume", {}, ResumeFleet()),
]


def test_white_space_around_the_token_does_not_matter() -> None:
    async def program(rig: Rig) -> None:
        rig.backend.answers[HoldFleet] = ()
        assert (await rig.post("hold", {})).status == 200

    in_loop(program, token=f"{TOKEN}\n")


@pytest.mark.parametrize(("action", "body", "message"), ACTS)
def test_whoever_shows_the_token_may_act(action: str, body: Any, message: Any) -> None:
    async def program(rig: Rig) -> None:
        rig.backend.answers[type(message)] = (7,)
        answer = await rig.post(action, body)
        assert (answer.status, json.loads(answer.body)) == (200, {"ids": [7]})
        assert rig.backend.asked == [message]

    in_loop(program)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"authorization": ""}, 401),
        ({"authorization": "Bearer wrong"}, 401),
        ({"authorization": f"Basic {TOKEN}"}, 401),
        ({"authorization": f"Bearer {TOKEN}x"}, 401),
        ({"authorization": "Bearer t\u00f6k\udce4n"}, 401),
        ({"origin": "https://evil.example.com"}, 403),
        ({"origin": "null"}, 403),
        ({"content-type": "text/plain"}, 415),
        ({"content-type": "application/x-www-form-urlencoded"}, 415),
        ({"host": "evil.example.com"}, 421),
    ],
)
def test_nobody_else_may_act(headers: dict[str, str], status: int) -> None:
    async def program(rig: Rig) -> None:
        assert problem(await rig.post("hold", {}, headers))[0] == status
        assert problem(await rig.get("/api/v1/hold"))[0] == 405
        assert rig.backend.asked == []

    in_loop(program)


def test_the_page_itself_may_act() -> None:
    async def program(rig: Rig) -> None:
        rig.backend.answers[HoldFleet] = ()
        assert (await rig.post("hold", {}, {"origin": "http://localhost:8080"})).status == 200

    in_loop(program)


def test_without_a_token_nobody_may_act() -> None:
    async def program(rig: Rig) -> None:
        assert problem(await rig.post("hold", {}))[0] == 403
        assert json.loads((await rig.get("/api/v1/status")).body)["actions"] is False
        assert [message for message in rig.backend.asked if isinstance(message, HoldFleet)] == []

    in_loop(program, token=None)


@pytest.mark.parametrize(
    ("action", "body", "says"),
    [
        ("scale", {}, "targets"),
        ("scale", {"targets": "many"}, "Expected `int | object`"),
        ("scale", [], "Expected `object`"),
        ("kill", {"ids": [1], "graze": "1s"}, "graze"),
        ("retire", {"ids": [1], "deadline": "30"}, "deadline = '30' has no unit"),
        ("scale", {"targets": 1, "victims": "mine"}, "victims"),
    ],
)
def test_a_wrong_action_says_what_is_wrong(action: str, body: Any, says: str) -> None:
    async def program(rig: Rig) -> None:
        status, text = problem(await rig.post(action, body))
        assert (status, says in text) == (400, True), text

    in_loop(program)


def test_what_the_backend_refuses_is_said() -> None:
    async def program(rig: Rig) -> None:
        rig.backend.answers[HoldFleet] = Refused("the fleet stops")
        assert problem(await rig.post("hold", {})) == (409, "the fleet stops")

    in_loop(program)


# ── streams ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_viewer_is_told_changes_and_the_status() -> None:
    async def program(rig: Rig) -> None:
        rig.publish(executor(1))
        await rig.get("/api/v1/executors")
        viewer = await rig.stream()
        rig.publish(executor(2))
        rig.publish(ENDED)
        rig.site.look()
        name, change = await viewer.next()
        msgspec.convert(change, documents.Change)
        assert (name, change["executors"], [each["id"] for each in change["ended"]]) == ("change", [], [2])
        name, status = await viewer.next()
        assert (name, msgspec.convert(status, documents.Status).app_id) == ("status", "etl")
        await viewer.parts.aclose()

    in_loop(program)


def test_a_status_is_told_when_it_is_another_one() -> None:
    async def program(rig: Rig) -> None:
        viewer = await rig.stream()
        rig.site.look()
        assert (await viewer.next())[0] == "status"
        rig.wait(1)
        older = replace(FRESH, since_full_sync=timedelta(seconds=6), since_heard=timedelta(seconds=2))
        rig.publish(status=replace(STATUS, sources={"watch": older}))  # only older: nothing is told
        rig.site.look()
        rig.publish(status=replace(STATUS, on_hold=True, sources={"watch": older}))
        rig.site.look()
        name, status = await viewer.next()
        assert (name, status["on_hold"]) == ("status", True)
        await viewer.parts.aclose()

    in_loop(program)


def test_a_slow_viewer_is_told_what_is_now_and_one_too_far_behind_to_load_anew() -> None:
    async def program(rig: Rig) -> None:
        slow, lost = await rig.stream(), await rig.stream()
        for each in range(1, CHANGES_AT_ONCE + 501):
            rig.publish(executor(each))
        for _ in range(5):
            rig.publish(executor(1))
        rig.site.look()
        parts = [await slow.next(), await slow.next()]
        assert [name for name, _ in parts] == ["change", "change"]
        told = [row["id"] for _, change in parts for row in change["executors"]]
        assert (len(told), len(set(told))) == (CHANGES_AT_ONCE + 500,) * 2
        for each in range(10_000, 10_002 + LANES_KEPT):
            rig.publish(replace(ENDED, id=each))
        rig.site.look()
        name, reset = await lost.next()
        assert (name, reset["seq"]) == ("reset", rig.site.history.seq)
        for viewer in (slow, lost):
            await viewer.parts.aclose()

    in_loop(program)


def test_viewers_who_keep_up_share_what_is_made_for_them() -> None:
    async def program(rig: Rig) -> None:
        viewers = [await rig.stream() for _ in range(MOST_VIEWERS)]
        answer = await rig.site.answer(Asked("GET", "/api/v1/stream", {}, {"host": "localhost"}))
        assert isinstance(answer, Answer)
        assert problem(answer)[0] == 503
        rig.publish(executor(1))
        rig.site.look()
        texts = [await anext(viewer.parts) for viewer in viewers]
        assert {id(text) for text in texts} == {id(texts[0])}
        for viewer in viewers:
            await viewer.parts.aclose()
        assert isinstance(await rig.site.answer(Asked("GET", "/api/v1/stream", {}, {"host": "localhost"})), Stream)

    in_loop(program)


@pytest.mark.parametrize("since", ["x", "-1", "1e9", "9" * 40, "\u0661"])
def test_a_viewer_must_name_a_number_of_ours(since: str) -> None:
    async def program(rig: Rig) -> None:
        assert problem(await rig.get("/api/v1/stream", since=since))[0] == 400

    in_loop(program)


def test_a_browser_that_connects_again_says_where_it_was() -> None:
    async def program(rig: Rig) -> None:
        rig.publish(executor(1))
        headers = {"host": "localhost", "last-event-id": str(rig.site.history.seq)}
        stream = await rig.site.answer(Asked("GET", "/api/v1/stream", {"since": "1"}, headers))
        assert isinstance(stream, Stream)
        await anext(stream.parts)
        assert [row["id"] for row in (await Viewer(stream).next())[1]["executors"]] == [1]
        await stream.parts.aclose()

    in_loop(program)


def test_nothing_runs_while_nobody_looks() -> None:
    async def program(rig: Rig) -> None:
        calls: list[int] = []
        rig.feed.call = lambda: calls.append(1)
        rig.site.drain()
        for each in range(1, CALL_AT + 500):
            rig.feed.put(changed(each, executor(each)))
        assert (len(calls), rig.backend.asked, len(rig.site.history)) == (1, [], 0)
        rig.site.drain()
        assert len(rig.site.history) == CALL_AT + 499

    in_loop(program)


# ── HTML ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_page_has_all_as_plain_tables_and_no_text_acts() -> None:
    async def program(rig: Rig) -> None:
        rig.feed.put(BackendStarted("etl", "batch"))
        rig.feed.put(AllocationBlocked("default", HOSTILE))
        rig.publish(executor(1), replace(ENDED, loss=replace(LOSS, message=HOSTILE), reason=HOSTILE))
        rig.feed.annotate(1, {"stage": HOSTILE})
        profiles = {"<i>x</i>": ProfileStatus(3, blocked=HOSTILE, blocked_since=datetime.now(UTC))}
        rig.publish(status=replace(STATUS, profiles=profiles))
        answer = await rig.get("/")
        assert (answer.status, answer.content_type) == (200, "text/html; charset=utf-8")
        page = answer.body.decode()
        tables = page[page.index('<section id="plain">') : page.index("</section>")]
        assert "&lt;script&gt;alert(1)&lt;/script&gt;" in tables
        assert [tag for tag in ("<script", "<img", "<i>", "onerror=alert(2)>") if tag in tables] == []
        assert all(character.isprintable() or character == "\n" for character in tables)

    in_loop(program)
