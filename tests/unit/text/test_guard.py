"""What other packages log in the library's threads: a handler of the program that raises is no end of what they do."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

import pytest

from actors.text import guard_logs_of

if TYPE_CHECKING:
    from collections.abc import Iterator

NAME = "another.package"
LOG = logging.getLogger(NAME)


class Raising(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())
        raise OSError(28, "No space left on device")


@pytest.fixture
def handler() -> Iterator[Raising]:
    handler, root = Raising(), logging.getLogger()
    guard_logs_of(NAME)
    root.addHandler(handler)
    yield handler
    root.removeHandler(handler)
    for each in list(LOG.filters):
        LOG.removeFilter(each)


def log_in(name: str) -> list[BaseException]:
    """Log a line in a thread of this name, and return what is raised there."""
    raised: list[BaseException] = []

    def log() -> None:
        try:
            LOG.warning("a line")
        except OSError as error:
            raised.append(error)

    thread = threading.Thread(target=log, name=name)
    thread.start()
    thread.join()
    return raised


def test_a_line_in_a_thread_of_ours_raises_nothing_and_is_handled_once(
    handler: Raising, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging, "raiseExceptions", True)
    assert log_in("executor-pods/kube-call-1") == []
    assert handler.lines == ["a line"]
    assert "A line of the log is lost" in capfd.readouterr().err


def test_a_line_in_a_thread_of_the_program_is_the_program_s(handler: Raising) -> None:
    assert len(log_in("worker")) == 1
    assert handler.lines == ["a line"]


def test_a_filter_that_the_program_adds_later_still_has_its_say(handler: Raising) -> None:
    LOG.addFilter(lambda record: "secret" in record.getMessage())
    assert log_in("executor-pods/kube-call-1") == []
    assert handler.lines == []
