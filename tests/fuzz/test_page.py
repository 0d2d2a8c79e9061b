"""What strangers send to the page, and what pods and drivers have said: answers, and never an error of its own."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import msgspec
from hypothesis import example, given
from hypothesis import strategies as st

from actors.messages import (
    AllocationBlocked,
    BackendFailed,
    BackendStarted,
    BackendStopped,
    Executor,
    ExecutorPending,
    ExecutorRemoved,
    ExecutorRunning,
    ExecutorState,
    ExecutorStuck,
    ExecutorTerminating,
    FleetChanged,
    FleetFailed,
    ProfileStatus,
)
from actors.page import documents
from actors.page.actions import ACTIONS
from actors.page.feed import Feed
from actors.page.hosts import AllowedHosts
from actors.page.site import Answer, Asked, Site, Stream
from actors.pods.loss import LossKind, LossReason
from actors.pods.pod import PROFILE_LABEL, ObjectMeta, Pod, PodSpec, PodStatus
from actors.testing.manual import ManualClock
from tests.fuzz.material import DEEP, spoiled, values
from tests.unit.changes import AT, fleet

TOKEN = "a-token-of-24-characters"
PATHS = (
    "/",
    "/livez",
    "/readyz",
    "/static/page.js",
    *(f"/api/v1/{each}" for each in ("status", "executors", "stream")),
)
BODIES: tuple[dict[str, Any], ...] = (
    {"targets": {"default": 3}, "victims": "idle", "grace": "30s"},
    {"ids": [1, 2], "deadline": "1m"},
)

NASTY = (
    "",
    "\0",
    "a\nb",
    "../../etc/passwd",
    "%2e%2e%2f",
    "9" * 30,
    "-1",
    "\u202egnp.exe",
    "\x1b[2J",
    "\ud800",
    "x" * 9_999,
)
strings = st.sampled_from(NASTY) | st.text(max_size=30)

requests = st.builds(
    Asked,
    st.sampled_from(("GET", "HEAD", "POST", "PUT", "OPTIONS", "\0")),
    st.sampled_from(PATHS) | strings.map("/static/{}".format) | strings,
    st.dictionaries(st.sampled_from(("verbose", "exclude", "since")) | strings, strings, max_size=3),
    st.fixed_dictionaries(
        {},
        optional={
            "host": st.just("localhost") | strings,
            "last-event-id": strings,
            "origin": strings,
            "authorization": strings,
        },
    ),
)

ids = st.integers(1, 6)


def _pod(executor_id: int, name: str, profile: str, node: str) -> Pod:
    meta = ObjectMeta(name=name, uid=str(executor_id), shared_labels={PROFILE_LABEL: profile})
    return Pod(meta, PodSpec(node_name=node), PodStatus(), ip=name)


pods = st.builds(_pod, ids, strings, strings, strings)
losses = st.builds(LossReason, st.sampled_from(LossKind), st.integers(-1, 255), st.booleans(), strings)
texts = st.none() | strings
executors = st.builds(
    Executor,
    ids,
    strings,
    st.sampled_from(ExecutorState),
    texts,
    texts,
    texts,
    st.just(AT),
    st.booleans(),
    st.integers(0, 9),
    texts,
    st.none() | losses,
    st.booleans(),
    texts,
)
profiles = st.builds(ProfileStatus, blocked=texts, blocked_by=texts, blocked_since=st.none() | st.just(AT))
told = st.one_of(
    st.builds(AllocationBlocked, strings, strings, strings),
    st.builds(BackendFailed, st.builds(ValueError, strings)),
    st.builds(BackendStarted, strings, strings),
    st.builds(BackendStopped, st.tuples(strings)),
    st.builds(ExecutorPending, ids, pods),
    st.builds(ExecutorRunning, ids, pods),
    st.builds(
        FleetChanged,
        st.integers(0, 9),
        st.just(AT),
        st.lists(executors, max_size=3).map(tuple),
        st.lists(ids, max_size=2).map(tuple),
        st.none() | st.builds(fleet, st.dictionaries(strings, profiles, max_size=2)),
        st.booleans(),
    ),
    st.builds(ExecutorStuck, ids, strings, strings, st.none(), strings, strings, strings),
    st.builds(ExecutorTerminating, ids, st.none(), strings, strings, strings, strings, st.booleans()),
    st.builds(ExecutorRemoved, ids, losses, strings, strings, strings),
    st.builds(FleetFailed, strings),
)


def answers(asked: list[Asked], messages: list[Any], notes: dict[str, Any]) -> list[Answer | Stream]:
    async def program() -> list[Answer | Stream]:
        feed = Feed(ManualClock())
        for message in messages:
            feed.put(message)
        for executor_id in range(1, 7):
            feed.annotate(executor_id, notes)
        site = Site(feed, clock=ManualClock(), hosts=AllowedHosts("127.0.0.1"), app_id="etl", token=TOKEN)
        return [await site.answer(each) for each in asked]

    return asyncio.run(program())


@given(st.lists(requests, min_size=1, max_size=6))
def test_whatever_is_asked_is_answered(asked: list[Asked]) -> None:
    for request, answer in zip(asked, answers(asked, [], {}), strict=True):
        if isinstance(answer, Answer):
            assert answer.status in {200, 400, 401, 403, 404, 405, 421, 500}
            if answer.status == 500:
                assert request.path == "/readyz"  # it has not started
            elif answer.status != 200:
                assert msgspec.json.decode(answer.body, type=documents.Problem).error.isprintable()


@given(st.sampled_from(sorted(ACTIONS)), st.sampled_from(BODIES).flatmap(spoiled) | values)
@example("scale", {"targets": 2**70})
def test_whatever_an_operator_sends_is_answered(action: str, body: Any) -> None:
    headers = {"host": "localhost", "authorization": f"Bearer {TOKEN}", "content-type": "application/json"}
    for sent in (json.dumps(body).encode(), DEEP, repr(body).encode(errors="replace"), b"\xff"):
        (answer,) = answers([Asked("POST", f"/api/v1/{action}", {}, headers, sent)], [], {})
        assert isinstance(answer, Answer)
        assert answer.status in {400, 409}  # the fleet has not started
        assert msgspec.json.decode(answer.body, type=documents.Problem).error.isprintable()


@given(st.lists(told, max_size=12), st.dictionaries(strings, values, max_size=3))
def test_whatever_was_said_is_shown_as_text(messages: list[Any], notes: dict[str, Any]) -> None:
    headers = {"host": "localhost"}
    paths = ("/", *(f"/api/v1/{each}" for each in ("status", "executors", "events", "timeline")))
    page, *found = answers([Asked("GET", path, {}, headers) for path in paths], messages, notes)
    kinds = (documents.Status, documents.Executors, documents.Events, documents.Timeline)
    for answer, kind in zip(found, kinds, strict=True):
        assert isinstance(answer, Answer)
        assert answer.status == 200
        assert answer.body.decode().isprintable()
        msgspec.json.decode(answer.body, type=kind)
    assert isinstance(page, Answer)
    text = page.body.decode()
    assert all(character.isprintable() or character == "\n" for character in text)
