"""The threads of calls: who starts them, and when."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, cast

from actors.kube.http.workers import Workers
from tests.unit.kube.scripted import SAFETY

if TYPE_CHECKING:
    import pytest

    from actors.kube.http.client import Client


class Idler:
    """A client that has nothing to close."""

    def close(self) -> None: ...


def make_client() -> Client:
    return cast("Client", Idler())


def test_who_submits_a_job_waits_for_no_start_but_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """An actor submits, and a start may take long."""
    submitted, started_late = threading.Event(), []
    start = threading.Thread.start

    def slow(thread: threading.Thread) -> None:
        if thread.name == "executor-pods/kube-call-2":
            started_late.append(submitted.wait(SAFETY))
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", slow)
    workers = Workers(2, make_client)
    both, ran_by = threading.Barrier(3), set[str]()

    def job(_: Client) -> None:
        ran_by.add(threading.current_thread().name)
        both.wait(SAFETY)

    workers.submit(job)
    workers.submit(job)
    submitted.set()
    both.wait(SAFETY)
    assert started_late == [True]
    assert ran_by == {"executor-pods/kube-call-1", "executor-pods/kube-call-2"}
    for thread in workers.close():
        thread.join(SAFETY)
        assert not thread.is_alive()
