"""Text from outside is shown and logged as text: on one line, without a character that acts, of bounded length."""

from __future__ import annotations

import logging
import sys
import threading
import unicodedata
from contextlib import contextmanager
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING, NoReturn

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.errors import ApiError, Forbidden, SettingsError
from actors.text import LONGEST_LINE, LONGEST_TEXT, fields_of, get_logger, log_with, one_line
from actors.text.http_log import HttpLog
from tests.unit.hostile import ACTS, HOSTILE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("failed to run [/bin/sh -c foo]", "failed to run [/bin/sh -c foo]"),
        ("größer als 漢字", "größer als 漢字"),
        ("two\nlines\r\n\tof\x00text", r"two\nlines\r\n\tof\x00text"),
        ("\x1b[2J\x9b31m\x7f", r"\x1b[2J\x9b31m\x7f"),
        ("exe.\u202egnp", r"exe.\u202egnp"),
        ("a\u2028b\u2029c\x85d\u200be", r"a\u2028b\u2029c\x85d\u200be"),
        ("\ud800", r"\ud800"),
        ("", ""),
    ],
)
def test_each_character_that_acts_is_escaped_as_python_writes_it(text: str, shown: str) -> None:
    assert one_line(text) == shown


@pytest.mark.parametrize("text", ["x" * 1_000_000, "\n" * 1_000_000, HOSTILE])
def test_a_long_text_is_shortened_and_says_so(text: str) -> None:
    assert len(one_line(text)) == LONGEST_TEXT
    assert one_line(text).endswith("...")
    assert len(one_line(text, 50)) == 50


@given(st.text(max_size=300) | st.lists(st.sampled_from(ACTS)).map("".join), st.integers(3, 400))
def test_what_it_returns_never_acts_and_is_returned_as_it_is_by_a_second_call(text: str, limit: int) -> None:
    shown = one_line(text, limit)
    assert len(shown) <= limit
    assert not any(unicodedata.category(character) in {"Cc", "Cf", "Cs", "Zl", "Zp"} for character in shown)
    assert one_line(shown, limit) == shown
    if text.isprintable() and len(text) <= limit:
        assert shown == text


def test_an_error_of_the_api_has_its_text_on_one_line() -> None:
    error = Forbidden(HOSTILE, status=403, reason=HOSTILE, causes=((HOSTILE, HOSTILE),) * 10_000)
    for text in (str(error), repr(error), error.message, error.reason, *sum(error.causes, ())):
        assert text.isprintable()
        assert len(text) <= 3 * LONGEST_TEXT
    assert len(error.causes) < 100
    assert str(ApiError("the server answered 500")) == "the server answered 500"


def test_an_error_of_settings_keeps_its_lines_and_nothing_else_that_acts() -> None:
    assert str(SettingsError("one: bad\ntwo: \x1b[2J")) == "one: bad\ntwo: \\x1b[2J"


# ── log records ──────────────────────────────────────────────────────────────────────────────────────────────────


class _Kept(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


@pytest.fixture
def kept() -> Iterator[_Kept]:
    logger, handler = get_logger("actors.test_text").logger, _Kept()
    logger.addHandler(handler)
    yield handler
    logger.removeHandler(handler)


def test_a_log_line_is_one_line_whatever_its_values_are(kept: _Kept) -> None:
    logger = get_logger("actors.test_text")
    logger.warning("pod set aside: pod=%s error=%s", "a\nERROR root: forged", RuntimeError("\x1b[2J"))
    (record,) = kept.records
    assert record.getMessage() == r"pod set aside: pod=a\nERROR root: forged error=\x1b[2J"
    logger.warning("pod set aside: pod=%s", HOSTILE)
    assert len(kept.records[1].getMessage()) == LONGEST_LINE
    assert kept.records[1].getMessage().isprintable()


def test_an_ordinary_log_record_is_not_changed(kept: _Kept) -> None:
    get_logger("actors.test_text").warning("executor removed: executor=%d reason=%s", 3, "exited")
    (record,) = kept.records
    assert (record.msg, record.args) == ("executor removed: executor=%d reason=%s", (3, "exited"))


def test_a_traceback_has_no_character_that_acts_and_no_line_that_looks_like_a_log_line(kept: _Kept) -> None:
    try:
        raise RuntimeError("boom\nERROR root: forged\x1b[2J\u2028" + "x" * 1_000_000)  # noqa: TRY301 - caught to be logged
    except RuntimeError:
        get_logger("actors.test_text").exception("actor crashed: actor=%s", "allocator")
    formatted = logging.Formatter("%(message)s").format(kept.records[0])
    head, *rest = formatted.split("\n")
    assert head == "actor crashed: actor=allocator"
    assert all(line.isprintable() and line.startswith("  ") for line in rest), rest
    assert len(formatted) < 2 * LONGEST_LINE


def test_a_log_record_has_its_values_as_fields(kept: _Kept) -> None:
    logger = get_logger("actors.test_text")
    logger.warning("executor removed: executor=%d reason=%s after=%.1fs", 3, "exi\nted", 2.5)
    logger.warning("polling fails at 100%%: error=%s message=%s ids=%d-%d", RuntimeError("boom"), "POST", 1, 9)
    logger.warning("target set: totals=%s", {"default": 2})
    logger.warning("driver died")
    assert [fields_of(record) for record in kept.records] == [
        {"executor_id": 3, "reason": r"exi\nted", "after": 2.5},
        {"reason": "boom"},
        {"totals": "{'default': 2}"},
        {},
    ]


def test_a_log_record_has_the_fields_of_its_thread_and_any_formatter_finds_them(kept: _Kept) -> None:
    def log() -> None:
        log_with(app_id="etl")
        get_logger("actors.test_text").warning("executor removed: executor=%d reason=%s", 3, "exited")

    copy_context().run(log)
    line = logging.Formatter("%(app_id)s/%(executor_id)s: %(message)s").format(kept.records[0])
    assert line == "etl/3: executor removed: executor=3 reason=exited"
    get_logger("actors.test_text").warning("driver died")
    assert fields_of(kept.records[1]) == {}


def test_taking_a_logger_twice_does_not_filter_twice() -> None:
    assert get_logger("actors.test_text").logger is get_logger("actors.test_text").logger
    assert len(get_logger("actors.test_text").logger.filters) == 1


def test_a_log_record_says_which_line_has_logged_it(kept: _Kept) -> None:
    log = get_logger("actors.test_text")
    log.warning("driver died")
    HttpLog(log, ValueError).warning("driver died")
    log.error("driver died", exc_info=RuntimeError("boom"))
    assert {(record.funcName, record.pathname) for record in kept.records} == {
        ("test_a_log_record_says_which_line_has_logged_it", __file__)
    }


# ── what the program's logging raises ────────────────────────────────────────────────────────────────────────────

RAISED = [
    OSError(28, "No space left on device"),
    RuntimeError("boom"),
    MemoryError(),
    SystemExit(3),
    KeyboardInterrupt(),
]


def _fail(error: BaseException) -> NoReturn:
    raise error


class _Failing(logging.Handler):
    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self._error = error

    def emit(self, _: logging.LogRecord) -> None:
        _fail(self._error)


@contextmanager
def _failing_handler(error: BaseException) -> Iterator[None]:
    logger, handler = logging.getLogger("actors"), _Failing(error)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


@contextmanager
def _failing_filter(error: BaseException) -> Iterator[None]:
    logger, fails = logging.getLogger("actors.test_text"), partial(_fail, error)
    logger.addFilter(lambda _: fails())
    try:
        yield
    finally:
        logger.removeFilter(logger.filters[-1])


@contextmanager
def _failing_factory(error: BaseException) -> Iterator[None]:
    before = logging.getLogRecordFactory()
    logging.setLogRecordFactory(lambda *_, **__: _fail(error))
    try:
        yield
    finally:
        logging.setLogRecordFactory(before)


def _in_a_thread(function: Callable[[], object]) -> list[BaseException]:
    """Return what the function raises in a thread that is not the main one."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            function()
        except BaseException as error:  # noqa: BLE001 - whatever it is
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return raised


@pytest.mark.parametrize("failing", [_failing_handler, _failing_filter, _failing_factory])
@pytest.mark.parametrize("error", RAISED, ids=repr)
def test_what_logging_raises_costs_a_line_of_the_log_and_is_told_on_stderr(
    failing: Callable[[BaseException], AbstractContextManager[None]],
    error: BaseException,
    kept: _Kept,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(logging, "raiseExceptions", True)
    log = get_logger("actors.test_text")
    with failing(error):
        assert _in_a_thread(lambda: log.warning("driver died")) == []
        assert _in_a_thread(lambda: log.error("driver died", exc_info=RuntimeError("its cause"))) == []
    told = capsys.readouterr().err
    assert told.count("A line of the log is lost: its handling failed.") == 2
    assert type(error).__name__ in told
    kept.records.clear()
    log.warning("driver died")
    assert [record.getMessage() for record in kept.records] == ["driver died"]


def test_ctrl_c_and_the_programs_exit_while_the_main_thread_logs_reach_it() -> None:
    for error in (KeyboardInterrupt(), SystemExit(3)):
        with _failing_handler(error), pytest.raises(type(error)):
            get_logger("actors.test_text").warning("driver died")
    with _failing_handler(OSError("disk full")):
        get_logger("actors.test_text").warning("driver died")


def test_a_value_that_cannot_be_shown_costs_its_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging, "raiseExceptions", True)

    class Odd:
        def __str__(self) -> str:
            raise SystemExit(3)

    assert _in_a_thread(lambda: get_logger("actors.test_text").warning("target set: totals=%s", Odd())) == []
    assert "SystemExit: 3" in capsys.readouterr().err


def test_a_stderr_that_fails_or_is_missing_takes_nothing_more_than_the_line(monkeypatch: pytest.MonkeyPatch) -> None:
    class Full:
        def write(self, _: str) -> int:
            raise OSError(28, "No space left on device")

    for stderr in (Full(), None):
        monkeypatch.setattr(sys, "stderr", stderr)
        with _failing_handler(RuntimeError("boom")):
            get_logger("actors.test_text").warning("driver died")


def test_who_wants_no_word_of_what_logging_raises_gets_none(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(logging, "raiseExceptions", False)
    with _failing_handler(RuntimeError("boom")):
        get_logger("actors.test_text").warning("driver died")
    assert capsys.readouterr().err == ""
