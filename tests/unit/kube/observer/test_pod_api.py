"""A client whose requests are sent by the observer, a child process."""

from __future__ import annotations

import json
import logging
import os
import select
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

import pytest

from actors import kube
from actors.errors import Ambiguous, ApiError, BadRequest, Cancelled, Gone, NotSent, Unauthorized, Unavailable
from actors.kube.api import PodPage
from actors.kube.observer import pod_api
from actors.kube.observer.pod_api import MOST_ENDS, ObserverPodApi
from actors.runtime import Deadline, SystemClock
from tests.unit.kube.conftest import Client, ask
from tests.unit.kube.http.test_pod_api import pod
from tests.unit.kube.http.test_streams import BOOKMARK, EXPIRED, Sink
from tests.unit.kube.scripted import SAFETY, Peer, ScriptedServer

if TYPE_CHECKING:
    from actors.kube import Call


def identified(name: str) -> dict[str, Any]:
    """A pod with a UID."""
    shown: dict[str, Any] = pod(name)
    shown["metadata"]["uid"] = name
    return shown


PAGE = {"metadata": {"resourceVersion": "9"}, "items": [identified("a"), identified("b")]}


def silence(peer: Peer) -> None:
    """Answer nothing, until the client goes."""
    peer.gone()


def listed(api: ObserverPodApi) -> PodPage | ApiError:
    answer: PodPage | ApiError = ask(lambda reply: api.send(kube.List("a=b"), reply))
    return answer


def names(page: PodPage | ApiError) -> list[str]:
    assert isinstance(page, PodPage), page
    return [each.name for each in page.pods]


def watch(api: ObserverPodApi, sink: Sink) -> Call:
    return api.watch(kube.Watch("a=b", "4", timeout=timedelta(minutes=5)), sink)


def observer_of(api: ObserverPodApi) -> int:
    assert api.pid is not None
    return api.pid


def killed(api: ObserverPodApi) -> int:
    """Kill the observer, and return once that is noticed."""
    pid = observer_of(api)
    os.kill(pid, signal.SIGKILL)
    assert api._observer is not None
    api._observer._reader.join(SAFETY)
    return pid


def test_a_list_is_asked_by_the_observer_and_answered_here(server: ScriptedServer, api: ObserverPodApi) -> None:
    server.answers(200, PAGE)
    page = listed(api)
    assert names(page) == ["a", "b"]
    assert api.pid is not None
    asked = server.asked[0]
    assert asked.query == {"labelSelector": "a=b", "limit": "500"}
    assert asked.headers["authorization"] == "Bearer secret-token"
    server.answers(200, PAGE)
    again = listed(api)
    assert isinstance(page, PodPage)
    assert isinstance(again, PodPage)
    assert again.pods[0] is page.pods[0]


def test_a_write_is_sent_by_the_observer_and_its_answer_is_read_here(
    server: ScriptedServer, api: ObserverPodApi
) -> None:
    server.answers(201, pod("a"))
    assert ask(lambda reply: api.send(kube.Create(pod("a")), reply)).name == "a"
    assert api.pid is not None
    (asked,) = server.asked
    assert (asked.method, asked.headers["content-type"]) == ("POST", "application/json")
    assert asked.headers["authorization"] == "Bearer secret-token"
    assert json.loads(asked.body) == pod("a")


def test_an_answer_that_is_something_else_is_an_error(server: ScriptedServer, api: ObserverPodApi) -> None:
    server.answers(201, ["no pod"])
    error = ask(lambda reply: api.send(kube.Create(pod("a")), reply))
    assert type(error) is Ambiguous
    assert "answered with something other than the request asks for" in str(error)


def test_a_request_that_must_not_be_sent_is_refused_here(api: ObserverPodApi) -> None:
    error = ask(lambda reply: api.send(kube.DeleteCollection(" "), reply))
    assert (type(error), str(error)[:9]) == (BadRequest, "not sent:")


def test_a_write_is_not_sent_after_its_deadline(server: ScriptedServer, api: ObserverPodApi) -> None:
    clock = SystemClock()
    server.answers(200, PAGE)
    listed(api)
    late = kube.Create(pod("a"), deadline=Deadline(clock.monotonic(), clock))
    assert type(ask(lambda reply: api.send(late, reply))) is NotSent
    server.answers(201, pod("a"))
    soon = kube.Create(pod("a"), deadline=Deadline(clock.monotonic() + SAFETY, clock))
    assert ask(lambda reply: api.send(soon, reply)).name == "a"
    assert [asked.method for asked in server.asked] == ["GET", "POST"]


def test_a_write_of_an_observer_that_is_killed_may_have_been_carried_out(
    server: ScriptedServer, api: ObserverPodApi
) -> None:
    arrived = threading.Event()

    def never_answer(peer: Peer) -> None:
        arrived.set()
        peer.gone()

    answers: SimpleQueue[object] = SimpleQueue()
    for request, error in ((kube.Create(pod("a")), Ambiguous), (kube.Get("a"), Unavailable)):
        arrived.clear()
        server.then(never_answer)
        api.send(request, answers.put)
        assert arrived.wait(SAFETY)
        killed(api)
        assert type(answers.get(timeout=SAFETY)) is error


def test_a_cancelled_write_is_cut(server: ScriptedServer, api: ObserverPodApi) -> None:
    arrived, ends = threading.Event(), SimpleQueue[bool]()

    def never_answer(peer: Peer) -> None:
        arrived.set()
        ends.put(peer.gone())

    server.then(never_answer)
    answers: SimpleQueue[object] = SimpleQueue()
    call = api.send(kube.Create(pod("a")), answers.put)
    assert arrived.wait(SAFETY)
    call.cancel()
    assert type(answers.get(timeout=SAFETY)) is Cancelled
    assert ends.get(timeout=SAFETY)


def test_an_error_of_the_server_is_the_answer(server: ScriptedServer, api: ObserverPodApi) -> None:
    server.answers(410, EXPIRED)
    error = listed(api)
    assert (type(error), str(error)) == (Gone, EXPIRED["message"])


def test_a_watch_delivers_its_events_and_its_end(server: ScriptedServer, api: ObserverPodApi) -> None:
    def stream(peer: Peer) -> None:
        peer.stream()
        peer.event("ADDED", pod("a"))
        peer.event("BOOKMARK", BOOKMARK)
        peer.event("ERROR", EXPIRED)
        peer.finish()

    server.then(stream)
    sink = Sink()
    watch(api, sink)
    events, version, error = sink.all()
    assert (events, version, type(error)) == ([("ADDED", "a")], "77", Gone)


def test_a_cancelled_watch_ends_here_and_there(server: ScriptedServer, api: ObserverPodApi) -> None:
    ends: list[bool] = []

    def stream(peer: Peer) -> None:
        peer.stream()
        peer.event("ADDED", pod("a"))
        ends.append(peer.gone())

    server.then(stream)
    sink = Sink()
    call = watch(api, sink)
    sink.events()
    call.cancel()
    assert isinstance(sink.end(), Cancelled)
    assert server.done.get(timeout=SAFETY) == "served"
    assert ends == [True]


def test_calls_of_an_observer_that_is_killed_end_and_the_next_one_starts_another(
    server: ScriptedServer, api: ObserverPodApi, caplog: pytest.LogCaptureFixture
) -> None:
    def stream(peer: Peer) -> None:
        peer.stream()
        peer.event("ADDED", pod("a"))
        peer.gone()

    server.then(stream)
    sink = Sink()
    watch(api, sink)
    sink.events()
    pid = killed(api)
    assert isinstance(sink.end(), Unavailable)
    assert f"another is started when it is needed: pid={pid} reason=it was killed by SIGKILL" in caplog.text
    server.answers(200, PAGE)
    assert names(listed(api)) == ["a", "b"]
    assert api.pid not in {None, pid}


def test_after_too_many_ends_this_process_observes(server: ScriptedServer, api: ObserverPodApi) -> None:
    for _ in range(MOST_ENDS):
        server.answers(200, PAGE)
        listed(api)
        killed(api)
    server.answers(200, PAGE)
    assert names(listed(api)) == ["a", "b"]
    assert api.pid is None


def test_an_observer_that_does_not_answer_is_killed(
    server: ScriptedServer, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pod_api, "PING_EVERY", timedelta(milliseconds=50))
    server.then(silence)
    api = ObserverPodApi(client.connect())
    try:
        sink = Sink()
        watch(api, sink)
        os.kill(observer_of(api), signal.SIGSTOP)
        assert isinstance(sink.end(), Unavailable)
    finally:
        api.close()


def test_where_no_observer_can_be_started_this_process_observes(
    server: ScriptedServer, api: ObserverPodApi, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sys, "executable", None)
    server.answers(200, PAGE)
    assert names(listed(api)) == ["a", "b"]
    assert "observer cannot be started, this process asks the server itself" in caplog.text


def test_the_observer_gets_a_newer_credential_when_the_server_refuses_its_own(
    server: ScriptedServer, client: Client, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text("old")
    api = ObserverPodApi(client.connect(tokenFile=str(token)))
    try:
        server.answers(200, PAGE)
        listed(api)
        token.write_text("new")
        server.answers(401, {})
        server.answers(200, PAGE)
        assert names(listed(api)) == ["a", "b"]
        assert [asked.headers["authorization"] for asked in server.asked] == ["Bearer old", "Bearer old", "Bearer new"]
        server.answers(401, {})
        assert isinstance(listed(api), Unauthorized), "there is no newer one"
    finally:
        api.close()


def test_what_the_observer_logs_is_in_our_log(
    server: ScriptedServer, api: ObserverPodApi, caplog: pytest.LogCaptureFixture
) -> None:
    broken = {"metadata": {"name": "broken", "uid": 7}}
    server.answers(200, {"metadata": {"resourceVersion": "9"}, "items": [broken]})
    with caplog.at_level(logging.WARNING):
        listed(api)
    assert "pod=broken" in caplog.text
    assert {record.name for record in caplog.records} == {"actors.kube.http.decode"}


def test_close_ends_the_observer_and_its_calls(server: ScriptedServer, client: Client) -> None:
    server.then(silence)
    api = ObserverPodApi(client.connect())
    sink = Sink()
    watch(api, sink)
    pid = observer_of(api)
    api.close()
    assert isinstance(sink.end(), Cancelled)
    assert not Path(f"/proc/{pid}").exists()


PROGRAM = """
import os, sys, time
from datetime import timedelta
from pathlib import Path
from actors import kube
from actors.kube.observer.pod_api import ObserverPodApi
api = ObserverPodApi(kube.connect(Path(sys.argv[1])))
api.watch(kube.Watch("a=b", "4", timeout=timedelta(minutes=5)), lambda _: None)
if os.fork() == 0:  # a child of the driver's, which keeps the connection open
    time.sleep(60)
print(api.pid, flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("forked", [False, True], ids=["alone", "after a fork"])
def test_the_observer_ends_when_the_drivers_process_is_killed(
    server: ScriptedServer, tmp_path: Path, *, forked: bool
) -> None:
    server.then(silence)
    program = PROGRAM if forked else PROGRAM.replace("os.fork()", "1")
    with subprocess.Popen(
        [sys.executable, "-c", program, str(server.kubeconfig(tmp_path))],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as driver:
        assert driver.stdout is not None
        observer = int(driver.stdout.readline())
        ended = os.pidfd_open(observer)
        driver.kill()
        try:
            assert select.select([ended], [], [], SAFETY)[0]
        finally:
            os.close(ended)
            with suppress(ProcessLookupError):
                os.killpg(driver.pid, signal.SIGKILL)
