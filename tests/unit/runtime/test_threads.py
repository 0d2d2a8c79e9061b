"""Threads: what is said where none starts, and functions of the program in threads of their own."""

from __future__ import annotations

import resource
import threading
from pathlib import Path

import pytest

from actors.errors import NoThread
from actors.runtime.threads import Courier, in_words, start
from actors.runtime.threads.start import start_thread
from tests.unit.runtime.stage import SAFETY


def no_more(_: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")


def test_a_thread_that_cannot_be_started_says_how_many_there_are_and_what_limits_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    group = tmp_path / "a" / "pod"
    group.mkdir(parents=True)
    (group / "pids.max").write_text("12\n")
    (group / "pids.current").write_text("11\n")
    monkeypatch.setattr(start, "_groups", lambda: [tmp_path / "another", group])
    monkeypatch.setattr(resource, "getrlimit", {resource.RLIMIT_NPROC: (9, 9)}.__getitem__)
    monkeypatch.setattr(threading.Thread, "start", no_more)
    with pytest.raises(
        NoThread,
        match=r"^no thread can be started: can't start new thread; this process has \d+ threads, "
        r"its user may have 9 threads and processes \(ulimit -u\), its control group has 11 of 12 \(pids\.max\); "
        r"a fleet needs 5 beside the program's own$",
    ):
        start_thread(lambda: None, "a")
    assert issubclass(NoThread, RuntimeError), "as Python's own"


def test_limits_that_are_none_are_not_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "pids.max").write_text("max\n")
    monkeypatch.setattr(start, "_groups", lambda: [tmp_path])
    monkeypatch.setattr(resource, "getrlimit", lambda _: (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    monkeypatch.setattr(threading.Thread, "start", no_more)
    with pytest.raises(NoThread, match=r"this process has \d+ threads; a fleet needs"):
        start_thread(lambda: None, "a")


def test_the_control_group_of_this_process_is_read_where_there_is_one() -> None:
    assert list(start._groups()) or not Path("/proc/self/cgroup").exists()


def test_a_process_that_cannot_be_started_for_want_of_processes_says_so() -> None:
    assert "this process has" in in_words(BlockingIOError(11, "Resource temporarily unavailable"))
    assert in_words(FileNotFoundError(2, "No such file or directory")) == "No such file or directory"


# ── a courier ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_courier_calls_with_each_value_in_their_order_and_in_one_other_thread() -> None:
    called: list[tuple[int, threading.Thread]] = []

    def call(value: int) -> None:
        called.append((value, threading.current_thread()))

    courier = Courier(call, "courier")
    for value in range(1, 100):
        courier.put(value)
    courier.end()
    assert courier.join(SAFETY)
    assert [value for value, _ in called] == [*range(1, 100)]
    assert {thread.name for _, thread in called} == {"courier"}


def test_a_function_that_blocks_holds_up_nobody_and_what_would_grow_is_dropped_and_counted() -> None:
    begun, leave = threading.Event(), threading.Event()
    called: list[int] = []

    def block(value: int) -> None:
        begun.set()
        leave.wait(SAFETY)
        called.append(value)

    courier = Courier(block, "courier", most=3)
    courier.put(1)
    assert begun.wait(SAFETY)
    for value in range(2, 10):
        courier.put(value)
    courier.end()
    assert not courier.join(0)
    assert courier.dropped == 5
    leave.set()
    assert courier.join(SAFETY)
    assert called == [1, 2, 3, 4]


def test_a_courier_without_a_thread_keeps_its_values_until_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[int] = []
    courier = Courier(called.append, "courier")
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", no_more)
        with pytest.raises(NoThread):
            courier.start()
        courier.put(1)
        assert not courier.join(0)
    courier.put(2)
    courier.end()
    assert courier.join(SAFETY)
    assert called == [1, 2]
