"""Text from outside is shown and logged as text: on one line, without a character that acts, of bounded length."""

from __future__ import annotations

import logging
import unicodedata
from contextvars import copy_context
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.errors import ApiError, Forbidden, SettingsError
from actors.text import LONGEST_LINE, LONGEST_TEXT, fields_of, get_logger, log_with, one_line
from tests.unit.hostile import ACTS, HOSTILE

if TYPE_CHECKING:
    from collections.abc import Iterator


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
    logger, handler = get_logger("actors.test_text"), _Kept()
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
    assert get_logger("actors.test_text") is get_logger("actors.test_text")
    assert len(get_logger("actors.test_text").filters) == 1
