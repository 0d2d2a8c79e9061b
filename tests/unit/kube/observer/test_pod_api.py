"""A client whose lists and watches run in the observer, a child process."""

from __future__ import annotations

import logging
import os
import select
import signal
import subprocess
import sys
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from actors import kube
from actors.errors import ApiError, Cancelled, Gone, Unauthorized, Unavailable
from actors.kube.api import PodPage
from actors.kube.observer import pod_api
from actors.kube.observer.pod_api import MOST_ENDS, ObserverPodApi
from tests.unit.kube.conftest import Client, ask
from tests.unit.kube.http.test_pod_api import pod
from tests.unit.kube.http.test_streams import BOOKMARK, EXPIRED, Sink
from tests.unit.kube.scripted import SAFETY, Peer, ScriptedServer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from actors.kube import Call


def identified(name: str) -> dict[str, Any]:
    """A pod with a UID."""
    shown: dict[str, Any] = pod(name)
    shown["metadata"]["uid"] = name
    return shown


PAGE = {"metadata": {"resourceVersion": "9"}, "items": [identified("a"), identified("b")]}


@pytest.fixture
def api(client: Client) -> Iterator[ObserverPodApi]:
    made = ObserverPodApi(client.connect())
    yield made
    made.close()
    assert made.pid is None


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


def test_what_is_no_list_is_asked_by_this_process(server: ScriptedServer, api: ObserverPodApi) -> None:
    server.answers(200, pod("a"))
    assert ask(lambda reply: api.send(kube.Get("a"), reply)).name == "a"
    assert api.pid is None, "no observer is needed"


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
    monkeypatch.setattr(pod_api, "LONGEST_SILENCE", timedelta(milliseconds=200))
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
    assert "observer cannot be started, this process observes itself" in caplog.text


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
    assert isinstance(sink.end(), Unavailable)
    assert not Path(f"/proc/{pid}").exists()


PROGRAM = """
import os, sys, time
from datetime import timedelta
from pathlib import Path
from actors import kube
api = kube.connect(Path(sys.argv[1]), apart=True)
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
