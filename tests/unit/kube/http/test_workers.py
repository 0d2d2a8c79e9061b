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


def test_a_worker_ends_so_that_another_thread_can_be_had_but_never_the_last() -> None:
    workers = Workers(3, make_client)
    together = threading.Barrier(4)

    def meet(_: Client) -> None:
        together.wait(SAFETY)

    for _ in range(3):
        workers.submit(meet)
    together.wait(SAFETY)
    for left in (2, 1, 1):
        assert workers.spare_one() == left
        while len(workers._threads) > left:
            pass
    assert [thread.is_alive() for thread in workers._threads] == [True]
    done = threading.Event()
    for _ in range(3):
        workers.submit(lambda _: done.set())
    assert done.wait(SAFETY), "the last one goes on"
    workers.use_all()
    for _ in range(3):
        workers.submit(meet)
    together.wait(SAFETY)
    for thread in workers.close():
        thread.join(SAFETY)
        assert not thread.is_alive()


def test_a_worker_that_is_busy_is_asked_for_once_however_often_a_thread_is_needed() -> None:
    workers = Workers(2, make_client)
    together, leave = threading.Barrier(3), threading.Event()

    def stay(_: Client) -> None:
        together.wait(SAFETY)
        leave.wait(SAFETY)

    for _ in range(2):
        workers.submit(stay)
    together.wait(SAFETY)
    assert [workers.spare_one() for _ in range(5)] == [1] * 5
    leave.set()
    done = threading.Event()
    workers.submit(lambda _: done.set())
    assert done.wait(SAFETY)
    assert len(workers._threads) == 1
    for thread in workers.close():
        thread.join(SAFETY)
