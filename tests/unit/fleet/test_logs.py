"""Executors' logs as one stream of lines: bounded, in order, and ended with those who print or who read."""

from __future__ import annotations

import threading
from collections import defaultdict
from datetime import timedelta
from queue import SimpleQueue
from typing import TYPE_CHECKING, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.errors import BadRequest, Cancelled, Forbidden, NotFound, Unavailable
from actors.fleet.output import logs
from actors.fleet.output.lines import LONGEST_LINE, LineBuffer, LogLine, lines
from actors.fleet.output.logs import Log, LogRead, LogStream
from actors.fleet.stream import EventBuffer
from actors.fleet.waiting import Pause, run
from actors.messages import BackendStopped, ExecutorRemoved, ExecutorRunning
from actors.pods.loss import LossKind, LossReason
from actors.runtime import ActorSystem
from actors.testing import pod

if TYPE_CHECKING:
    from collections.abc import Iterator

    from actors.fleet.waiting import Steps

SAFETY: Final = 60.0
"""Seconds: what hangs ends the test after this; no test waits for it."""

GONE = LossReason(LossKind.EXITED, 0, caused_by_app=False, message="it has ended")


class Logs:
    """A cluster of which only logs can be read. A test says what each log has, read by read."""

    def __init__(self) -> None:
        self.asked: SimpleQueue[tuple[str, int | None]] = SimpleQueue()
        """The pod and the `tail` of each read."""
        self.is_closed = threading.Event()
        self._said: defaultdict[str, SimpleQueue[bytes | Exception | None]] = defaultdict(SimpleQueue)

    def say(self, name: str, *parts: bytes | Exception | None) -> None:
        """The log goes on: with bytes, with the end of a connection, or with its own end (None)."""
        for part in parts:
            self._said[name].put(part)

    def read_log(
        self, name: str, *, container: str | None, follow: bool, previous: bool, tail: int | None
    ) -> Iterator[bytes]:
        self.asked.put((name, tail))
        while (part := self._said[name].get(timeout=SAFETY)) is not None:
            if isinstance(part, Exception):
                raise part
            yield part

    def close(self) -> None:
        self.is_closed.set()
        for said in list(self._said.values()):
            said.put(Cancelled("the client was closed"))


class Stage:
    """A stream over such a cluster, and the events of its fleet."""

    def __init__(self, *running: int, ids: set[int] | None = None, size: int = 100, tail: int | None = 10) -> None:
        self.api = Logs()
        self.events = EventBuffer(3)
        self.running = set(running)
        self.buffer = LineBuffer(size)
        self.stream = LogStream(
            lambda: self.api,
            events=self.events,
            running=lambda: {each: log(each) for each in sorted(self.running)},
            log_of=lambda event: log(event.executor_id),
            buffer=self.buffer,
            ids=None if ids is None else frozenset(ids),
            tail=tail,
        )
        self.stream.start()

    def run(self, executor_id: int) -> None:
        self.running.add(executor_id)
        self.events.put(ExecutorRunning(executor_id, pod(executor_id)))

    def remove(self, executor_id: int) -> None:
        self.running.discard(executor_id)
        self.events.put(ExecutorRemoved(executor_id, GONE))

    def next(self) -> LogLine | None:
        """The next line, None at the end."""
        assert wait(self.buffer), "nothing comes"
        line = self.buffer.take()
        if line is None and self.buffer.error is not None:
            raise self.buffer.error
        return line

    def text(self) -> str | None:
        line = self.next()
        return None if line is None else f"{line.executor_id}: {line.text}"

    def asked(self) -> tuple[str, int | None]:
        return self.api.asked.get(timeout=SAFETY)


def wait(source: LineBuffer | LogRead) -> bool:
    """Whether there is something to read before `SAFETY` is over."""
    until = source.has_news if isinstance(source, LineBuffer) else lambda: source.is_done

    def steps() -> Steps[bool]:
        return (yield Pause(until, source, timedelta(seconds=SAFETY)))

    system = ActorSystem()
    try:
        return run(steps(), system)
    finally:
        system.close()


def log(executor_id: int) -> Log:
    return Log(executor_id, f"exec-{executor_id}", "executor", "default")


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "RETRY_AFTER", 0.0)


# ── lines ────────────────────────────────────────────────────────────────────────────────────────────────────────


@given(st.text(alphabet="ab\n\té", max_size=200), st.integers(1, 7))
def test_lines_are_those_of_the_text_however_its_bytes_come(text: str, size: int) -> None:
    data = text.encode()
    blocks = [data[start : start + size] for start in range(0, len(data), size)]
    expected = text.split("\n")
    assert list(lines(blocks)) == (expected if expected[-1] else expected[:-1])


def test_a_line_without_an_end_is_cut_and_bytes_that_are_no_text_are_replaced() -> None:
    assert [len(each) for each in lines([b"x" * 3 * LONGEST_LINE, b"x\n"])] == [LONGEST_LINE] * 3 + [1]
    assert list(lines([b"\xff\xfe\r\n", b"last"])) == ["\ufffd\ufffd", "last"]


def test_a_line_is_printed_with_its_executor_and_without_what_acts_on_a_terminal() -> None:
    assert str(LogLine(3, "a\tb\x1b[2J")) == "[3] a\tb\\x1b[2J"


def test_a_full_buffer_holds_the_writer_up_until_the_reader_has_taken_a_line() -> None:
    buffer, done = LineBuffer(2), threading.Event()

    def write() -> None:
        for number in range(3):
            assert buffer.put(LogLine(1, str(number)))
        done.set()

    writer = threading.Thread(target=write)
    writer.start()
    seen: list[str] = []
    while len(seen) < 3:
        line = buffer.take()
        if line is not None:
            seen.append(line.text)
            assert len(buffer._lines) <= 2
    assert seen == ["0", "1", "2"]
    assert done.wait(SAFETY)
    writer.join()


def test_a_reader_that_leaves_frees_all_writers() -> None:
    buffer, answers = LineBuffer(1), SimpleQueue[bool]()
    assert buffer.put(LogLine(1, "first"))
    writers = [threading.Thread(target=lambda: answers.put(buffer.put(LogLine(1, "more")))) for _ in range(3)]
    for writer in writers:
        writer.start()
    buffer.close()
    assert [answers.get(timeout=SAFETY) for _ in writers] == [False] * 3
    assert buffer.take() is None


# ── a stream ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_lines_of_all_that_run_and_of_those_that_begin_to_come_in_one_stream() -> None:
    stage = Stage(1)
    assert stage.asked() == ("exec-1", 10)
    stage.api.say("exec-1", b"one\ntw")
    assert stage.text() == "1: one"
    stage.run(2)
    assert stage.asked() == ("exec-2", None), "nothing of one that has just begun is left out"
    stage.api.say("exec-2", b"three\n")
    assert stage.text() == "2: three"
    stage.api.say("exec-1", b"o\n")
    assert stage.text() == "1: two"
    stage.stream.close()


def test_a_stream_of_named_executors_ends_when_they_are_gone() -> None:
    stage = Stage(1, 2, ids={1, 3})
    assert stage.asked() == ("exec-1", 10)
    stage.api.say("exec-1", b"last", None)
    assert stage.text() == "1: last"
    stage.remove(1)
    stage.remove(3)
    assert stage.text() is None
    assert stage.api.is_closed.wait(SAFETY)


def test_a_log_whose_container_has_not_started_is_asked_for_again() -> None:
    stage = Stage(1, ids={1})
    stage.api.say(
        "exec-1", BadRequest('container "executor" in pod "exec-1" is waiting to start: Creating', status=400)
    )
    stage.api.say("exec-1", b"one\n", None)
    assert stage.text() == "1: one"
    assert [stage.asked(), stage.asked()] == [("exec-1", 10)] * 2


def test_a_log_that_was_cut_off_goes_on_and_says_that_lines_may_be_missing() -> None:
    stage = Stage(1, ids={1})
    stage.api.say("exec-1", b"one\n", Unavailable("the connection was cut"), b"three\n", None)
    assert stage.text() == "1: one"
    note = stage.next()
    assert note is not None
    assert note.is_note
    assert note.text == "lines may be missing here, the log was cut off: the connection was cut"
    assert stage.text() == "1: three"
    assert [stage.asked(), stage.asked()] == [("exec-1", 10), ("exec-1", 0)]


def test_a_log_that_is_gone_ends_without_a_word() -> None:
    stage = Stage(1, ids={1})
    stage.api.say("exec-1", NotFound('pods "exec-1" not found', status=404))
    assert stage.text() is None


@pytest.mark.parametrize(
    "error", [Forbidden("may not get pods/log", status=403), BadRequest("no such container", status=400)]
)
def test_what_no_second_attempt_heals_is_raised(error: Exception) -> None:
    stage = Stage(1, 2)
    stage.api.say("exec-1", error)
    with pytest.raises(type(error), match=str(error)):
        stage.next()
    assert stage.api.is_closed.wait(SAFETY)


def test_an_error_of_the_connection_is_raised() -> None:
    buffer = LineBuffer()

    def connect() -> Logs:
        raise Unavailable("no way")

    events = EventBuffer(1)
    LogStream(connect, events=events, running=dict, log_of=lambda _: None, buffer=buffer, ids=None, tail=None).start()
    assert wait(buffer)
    assert str(buffer.error) == "no way"


def test_a_reader_that_leaves_ends_every_read() -> None:
    stage = Stage(1, 2)
    assert {stage.asked()[0], stage.asked()[0]} == {"exec-1", "exec-2"}
    stage.stream.close()
    assert stage.text() is None
    assert stage.api.is_closed.wait(SAFETY)


def test_a_stream_ends_with_its_fleet_after_the_last_words_of_the_executors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "LAST_WORDS", SAFETY)
    stage = Stage(1)
    assert stage.asked() == ("exec-1", 10)
    stage.events.put(BackendStopped())
    stage.api.say("exec-1", b"goodbye\n", None)
    assert stage.text() == "1: goodbye"
    assert stage.text() is None


def test_the_logs_of_executors_that_outlive_the_fleet_are_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "LAST_WORDS", 0.0)
    stage = Stage(1)
    assert stage.asked() == ("exec-1", 10)
    stage.events.put(BackendStopped())
    assert stage.text() is None
    assert stage.api.is_closed.wait(SAFETY)


def test_only_so_many_logs_are_read_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "MOST_FOLLOWED", 2)
    stage = Stage(1, 2, 3)
    assert {stage.asked()[0], stage.asked()[0]} == {"exec-1", "exec-2"}
    stage.api.say("exec-1", b"one\n")
    assert stage.text() == "1: one"
    assert stage.api.asked.empty()
    stage.api.say("exec-1", None)
    assert stage.asked()[0] == "exec-3"
    stage.stream.close()


def test_after_events_were_missed_those_that_run_are_looked_at() -> None:
    stage = Stage(1)
    assert stage.asked()[0] == "exec-1"
    with_all = {1, *range(2, 9)}
    stage.running |= with_all
    for executor_id in range(2, 9):
        stage.events.put(ExecutorRunning(executor_id, pod(executor_id)))
    assert {stage.asked()[0] for _ in range(7)} == {f"exec-{each}" for each in range(2, 9)}
    stage.stream.close()


# ── one log ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_log_is_one_text_and_of_a_long_one_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "LONGEST_LOG", 10)
    api = Logs()
    read = LogRead(lambda: api, log(1), tail=3)
    read.start()
    api.say("exec-1", b"0123456789", b"abcdef", b"\xffxyz", None)
    assert wait(read)
    assert read.result() == "abcdef\ufffdxyz"
    assert api.asked.get_nowait() == ("exec-1", 3)
    assert api.is_closed.is_set()
