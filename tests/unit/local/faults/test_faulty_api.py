"""Each fault, by script and by chance, between a client and an `InProcessPodApi`."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from actors import kube
from actors.errors import Ambiguous, ApiError, Cancelled, Gone, QuotaExceeded, TooManyRequests, Unavailable
from actors.kube.api import DeleteOptions, WatchEnded, WatchEvents
from actors.local.faults.faulty_api import FaultyPodApi
from actors.local.faults.kinds import (
    Chances,
    DelayAnswer,
    DelayRequest,
    Fault,
    LoseAnswer,
    Refuse,
    StaleList,
    Stall,
    gone,
    over_quota,
    server_error,
    too_many_requests,
)
from actors.local.inprocess import InProcessPodApi
from actors.pods.pod import Pod
from actors.runtime import Entropy
from tests.unit.local.bench import Bench, manifest

HOUR = timedelta(hours=1)
SECOND = timedelta(seconds=1)


class Client:
    """A faulty API and what its calls were told."""

    def __init__(self, bench: Bench, seed: int = 1) -> None:
        self.bench = bench
        self.api = FaultyPodApi(
            InProcessPodApi(bench.store, "default", bench.timers), bench.timers, Entropy(seed), call_limit=10 * SECOND
        )

    def create(self, name: str = "a") -> list[Any]:
        """POST a pod."""
        replies: list[Any] = []
        self.api.send(kube.Create(manifest(name)), replies.append)
        return replies

    def names(self) -> list[Any]:
        """LIST; the names of each answer, or the error."""
        answers: list[Any] = []
        self.api.send(
            kube.List(""),
            lambda page: answers.append(page if isinstance(page, ApiError) else [p.name for p in page.pods]),
        )
        return answers

    def watch(self) -> list[WatchEvents | WatchEnded]:
        """Watch from now on."""
        seen: list[WatchEvents | WatchEnded] = []
        self.api.watch(kube.Watch("", self.bench.store.resource_version, timeout=HOUR), seen.append)
        return seen


@pytest.fixture
def client(bench: Bench) -> Client:
    """Quiet, until a test speaks to it."""
    return Client(bench)


def _names(seen: list[WatchEvents | WatchEnded]) -> list[str]:
    return [event.pod.name for message in seen if isinstance(message, WatchEvents) for event in message.events]


def _error(seen: list[WatchEvents | WatchEnded]) -> ApiError | None:
    (ended,) = [message for message in seen if isinstance(message, WatchEnded)]
    assert seen[-1] is ended
    return ended.error


def test_without_faults_it_changes_nothing(client: Client, bench: Bench) -> None:
    seen = client.watch()
    assert isinstance(client.create()[0], Pod)
    assert client.names() == [["a"]]
    replies: list[Any] = []
    client.api.send(kube.Get("a"), replies.append)
    client.api.send(kube.Patch("a", {"metadata": {"labels": {"x": "1"}}}), replies.append)
    client.api.send(kube.Delete("a", DeleteOptions()), replies.append)
    client.api.send(kube.DeleteCollection("x=1"), replies.append)
    assert [type(reply) for reply in replies] == [Pod, Pod, type(None), type(None)]
    assert _names(seen) == ["a", "a", "a", "a"]
    assert client.api.namespace == "default"
    assert bench.timers.pending == 2  # the watch's end and its next bookmark


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (too_many_requests(), TooManyRequests),
        (server_error(503), Unavailable),
        (over_quota(), QuotaExceeded),
        (gone(), Gone),
    ],
)
def test_a_refused_call_does_nothing(client: Client, bench: Bench, error: ApiError, kind: type[ApiError]) -> None:
    client.api.fail_next("create", error)
    assert [type(reply) for reply in client.create()] == [kind]
    assert bench.names() == []
    assert isinstance(client.create()[0], Pod)


def test_a_429_says_how_long_to_wait(client: Client) -> None:
    client.api.fail_next("create", too_many_requests(retry_after=7 * SECOND))
    assert client.create()[0].retry_after == 7 * SECOND


def test_faults_are_planned_per_operation_and_in_order(client: Client) -> None:
    client.api.fail_next("create", server_error(), times=2)
    client.api.fail_next("create", over_quota())
    assert client.names() == [[]]
    kinds = [type(client.create()[0]) for _ in range(4)]
    assert kinds == [Unavailable, Unavailable, QuotaExceeded, Pod]


def test_a_lost_answer_leaves_a_write_done_and_its_client_in_doubt(client: Client, bench: Bench) -> None:
    client.api.fail_next("create", LoseAnswer())
    assert [type(reply) for reply in client.create()] == [Ambiguous]
    assert bench.names() == ["a"]


def test_a_lost_answer_to_a_read_is_no_doubt(client: Client) -> None:
    client.api.fail_next("list", LoseAnswer())
    assert [type(answer) for answer in client.names()] == [Unavailable]


@pytest.mark.parametrize(("delivered", "names"), [(False, []), (True, ["a"])])
def test_a_stalled_call_fails_at_its_limit(client: Client, bench: Bench, delivered: bool, names: list[str]) -> None:
    client.api.fail_next("create", Stall(delivered=delivered))
    replies = client.create()
    bench.advance(timedelta(seconds=9.9))
    assert replies == []
    bench.advance(timedelta(seconds=0.1))
    assert [type(reply) for reply in replies] == [Ambiguous]
    assert bench.names() == names


def test_a_delayed_request_arrives_later(client: Client, bench: Bench) -> None:
    client.api.fail_next("create", DelayRequest(3 * SECOND))
    replies = client.create()
    bench.advance(2 * SECOND)
    assert (bench.names(), replies) == ([], [])
    bench.advance(SECOND)
    assert isinstance(replies[0], Pod)


def test_a_request_can_arrive_after_its_clients_limit(client: Client, bench: Bench) -> None:
    client.api.fail_next("create", DelayRequest(15 * SECOND))
    replies = client.create()
    bench.advance(14 * SECOND)
    assert ([type(reply) for reply in replies], bench.names()) == ([Ambiguous], [])
    bench.advance(SECOND)
    assert (len(replies), bench.names()) == (1, ["a"])


def test_a_delayed_answer_is_old_when_it_arrives(client: Client, bench: Bench) -> None:
    client.api.fail_next("list", DelayAnswer(3 * SECOND))
    answers = client.names()
    bench.pod("a")
    bench.advance(3 * SECOND)
    assert answers == [[]]


def test_an_answer_beyond_the_limit_is_lost(client: Client, bench: Bench) -> None:
    client.api.fail_next("create", DelayAnswer(15 * SECOND))
    replies = client.create()
    bench.advance(timedelta(minutes=1))
    assert [type(reply) for reply in replies] == [Ambiguous]


def test_a_stale_list_is_an_older_answer_to_the_same_page(client: Client, bench: Bench) -> None:
    assert client.names() == [[]]
    bench.pod("a")
    assert client.names() == [["a"]]
    client.api.fail_next("list", StaleList())
    assert client.names() == [[]]


def test_without_an_older_answer_there_is_no_stale_list(client: Client, bench: Bench) -> None:
    bench.pod("a")
    client.api.fail_next("list", StaleList())
    assert client.names() == [["a"]]


@pytest.mark.parametrize("fault", [LoseAnswer(), Stall(), DelayRequest(SECOND), StaleList()])
def test_a_fault_that_does_not_apply_to_a_watch_is_refused(client: Client, fault: Fault) -> None:
    with pytest.raises(ValueError, match="a watch can only be refused"):
        client.api.fail_next("watch", fault)


def test_only_lists_are_stale(client: Client) -> None:
    with pytest.raises(ValueError, match="only a list can be stale, not a get"):
        client.api.fail_next("get", StaleList())


@pytest.mark.parametrize("fault", [Stall(), Stall(delivered=True), DelayRequest(3 * SECOND), DelayAnswer(3 * SECOND)])
def test_a_call_under_a_fault_can_be_cancelled_once(client: Client, bench: Bench, fault: Fault) -> None:
    client.api.fail_next("create", fault)
    replies: list[Any] = []
    call = client.api.send(kube.Create(manifest("a")), replies.append)
    call.cancel()
    call.cancel()
    bench.advance(timedelta(minutes=1))
    assert [type(reply) for reply in replies] == [Cancelled]


def test_an_outage_refuses_calls_and_cuts_streams_until_it_is_over(client: Client, bench: Bench) -> None:
    seen = client.watch()
    client.api.outage = True
    assert isinstance(_error(seen), Unavailable)
    reply = client.create()[0]
    assert isinstance(reply, Unavailable)
    assert not isinstance(reply, Ambiguous)
    assert isinstance(_error(client.watch()), Unavailable)
    assert bench.names() == []
    client.api.outage = False
    assert isinstance(client.create()[0], Pod)


def test_a_cut_stream_ends_and_the_next_one_works(client: Client, bench: Bench) -> None:
    seen = client.watch()
    client.api.cut()
    assert isinstance(_error(seen), Unavailable)
    bench.pod("a")
    assert _names(seen) == []
    seen = client.watch()
    bench.pod("b")
    assert _names(seen) == ["b"]


def test_streams_can_expire(client: Client) -> None:
    seen = client.watch()
    client.api.expire()
    assert isinstance(_error(seen), Gone)


def test_a_watch_can_be_refused(client: Client) -> None:
    client.api.fail_next("watch", too_many_requests())
    assert isinstance(_error(client.watch()), TooManyRequests)


def test_a_resumed_stream_delivers_everything_in_order(client: Client, bench: Bench) -> None:
    seen = client.watch()
    client.api.stall()
    bench.pod("a")
    bench.pod("b")
    bench.advance(timedelta(minutes=1))
    assert seen == []
    client.api.resume()
    assert _names(seen) == ["a", "b"]
    bench.pod("c")
    assert _names(seen) == ["a", "b", "c"]


def test_a_frozen_stream_says_nothing_any_more_until_its_client_gives_up(client: Client, bench: Bench) -> None:
    seen: list[WatchEvents | WatchEnded] = []
    watch = client.api.watch(kube.Watch("", bench.store.resource_version, timeout=timedelta(minutes=5)), seen.append)
    client.api.freeze()
    bench.pod("a")
    client.api.cut()
    client.api.calm()
    bench.advance(HOUR)
    assert seen == []
    watch.cancel()
    assert isinstance(_error(seen), Cancelled)
    assert bench.timers.pending == 0


def test_a_lagging_stream_is_late_and_keeps_its_order(client: Client, bench: Bench) -> None:
    seen = client.watch()
    client.api.lag = 5 * SECOND
    bench.pod("a")
    client.api.lag = SECOND
    bench.pod("b")
    bench.advance(SECOND)
    assert _names(seen) == ["a"]
    bench.advance(4 * SECOND)
    assert _names(seen) == ["a", "b"]
    client.api.lag = timedelta(0)
    bench.pod("c")
    assert _names(seen) == ["a", "b", "c"]


def test_without_lag_nothing_overtakes_what_is_late(client: Client, bench: Bench) -> None:
    seen = client.watch()
    client.api.lag = 5 * SECOND
    bench.pod("a")
    client.api.lag = timedelta(0)
    bench.pod("b")
    bench.advance(5 * SECOND)
    assert _names(seen) == ["a", "b"]


def test_a_cut_stream_loses_what_was_held_back(client: Client, bench: Bench) -> None:
    seen = client.watch()
    client.api.stall()
    bench.pod("a")
    client.api.cut()
    client.api.resume()
    assert _names(seen) == []
    assert isinstance(_error(seen), Unavailable)


def test_only_so_many_older_lists_are_remembered(client: Client, bench: Bench) -> None:
    for number in range(20):
        bench.pod(f"p{number:02}")
        client.names()
    client.api.fail_next("list", StaleList())
    assert len(client.names()[0]) == 13


def test_calm_ends_every_fault(client: Client, bench: Bench) -> None:
    client.api.fail_next("create", server_error(), times=9)
    client.api.chances = Chances(server_error=1.0)
    client.api.lag = SECOND
    client.api.outage = True
    client.api.calm()
    seen = client.watch()
    assert isinstance(client.create()[0], Pod)
    assert _names(seen) == ["a"]
    assert not client.api.outage


def test_close_cancels_everything_that_is_open(client: Client, bench: Bench) -> None:
    client.api.fail_next("create", Stall())
    replies, seen = client.create(), client.watch()
    client.api.close()
    assert [type(reply) for reply in replies] == [Cancelled]
    assert isinstance(_error(seen), Cancelled)
    assert isinstance(client.create()[0], Cancelled)
    assert isinstance(_error(client.watch()), Cancelled)
    assert bench.timers.pending == 0


@pytest.mark.parametrize(
    ("chances", "kind"),
    [
        (Chances(too_many_requests=1.0), TooManyRequests),
        (Chances(server_error=1.0), Unavailable),
        (Chances(quota=1.0), QuotaExceeded),
        (Chances(lost_answer=1.0), Ambiguous),
        (Chances(stall=1.0), Ambiguous),
        (Chances(half_open=1.0), Ambiguous),
        (Chances(delay_request=1.0), Pod),
        (Chances(delay_answer=1.0), Pod),
        (Chances(stale_list=1.0), Pod),
        (Chances(gone=1.0), Pod),
    ],
)
def test_what_is_certain_happens(client: Client, bench: Bench, chances: Chances, kind: type[object]) -> None:
    client.api.chances = chances
    replies = client.create()
    bench.advance(10 * SECOND)
    assert [type(reply) for reply in replies] == [kind]


def test_a_stream_that_is_certain_to_be_cut_is_cut_at_its_first_event(client: Client, bench: Bench) -> None:
    client.api.chances = Chances(cut=1.0)
    seen = client.watch()
    bench.pod("a")
    assert isinstance(_error(seen), Unavailable)
    assert _names(seen) == []


def test_a_stream_that_is_certain_to_freeze_delivers_nothing(client: Client, bench: Bench) -> None:
    client.api.chances = Chances(freeze=1.0)
    seen = client.watch()
    bench.pod("a")
    bench.advance(2 * HOUR)
    assert seen == []


def test_a_stream_that_is_certain_to_lag_is_late_within_bounds(client: Client, bench: Bench) -> None:
    client.api.chances = Chances(lag=1.0, max_delay=2 * SECOND)
    seen = client.watch()
    bench.pod("a")
    assert seen == []
    bench.advance(2 * SECOND)
    assert _names(seen) == ["a"]


def test_the_later_pages_of_a_list_can_expire(client: Client, bench: Bench) -> None:
    bench.pod("a")
    bench.pod("b")
    client.api.chances = Chances(gone=1.0)
    answers: list[Any] = []
    client.api.send(kube.List("", limit=1), answers.append)
    client.api.send(kube.List("", limit=1, continue_token=answers[0].continue_token), answers.append)
    assert isinstance(answers[1], Gone)


def _run(seed: int) -> list[str]:
    """A while under every fault; what calls and a stream were told, in order."""
    bench = Bench()
    client = Client(bench, seed)
    told: list[str] = []
    client.api.chances = Chances(0.05, 0.05, 0.05, 0.1, 0.05, 0.05, 0.1, 0.1, 0.1, 0.05, 0.05, 0.0, 0.1)
    watching = False

    def sink(message: WatchEvents | WatchEnded) -> None:
        nonlocal watching
        watching = watching and not isinstance(message, WatchEnded)
        told.append(str(message))

    for number in range(100):
        if not watching:
            watching = True
            client.api.watch(kube.Watch("", bench.store.resource_version, timeout=HOUR), sink)
        client.api.send(kube.Create(manifest(f"p{number}")), lambda reply: told.append(str(reply)))
        client.api.send(kube.List(""), lambda page: told.append(str(page)[:80]))
        bench.advance(SECOND)
    bench.advance(timedelta(minutes=1))
    assert len(client.api.calls.open()) == int(watching)
    return told


def test_a_seed_gives_one_run_of_faults_and_another_seed_another() -> None:
    first = _run(1)
    assert first == _run(1)
    assert first != _run(2)


def test_refuse_is_what_an_error_means(client: Client) -> None:
    client.api.fail_next("create", Refuse(server_error()))
    assert isinstance(client.create()[0], Unavailable)
