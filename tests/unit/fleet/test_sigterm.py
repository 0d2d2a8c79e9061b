"""SIGTERM while a fleet is entered: noted first, then handled as the program wants."""

from __future__ import annotations

import os
import signal
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from actors.errors import SettingsError
from actors.fleet.sigterm import Sigterm

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def handler() -> Iterator[None]:
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


def terminate() -> None:
    signal.raise_signal(signal.SIGTERM)


def test_a_program_without_a_handler_leaves_once_as_shells_say() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    came: list[str] = []
    subject = Sigterm(lambda: came.append("noted"))
    subject.take()
    with pytest.raises(SystemExit) as raised:
        terminate()
    assert raised.value.code == 143
    terminate()  # while it is leaving
    assert came == ["noted", "noted"]
    subject.give_back()
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_the_programs_handler_is_called_after_the_fleet_has_noted_it_and_comes_back() -> None:
    came: list[str] = []

    def theirs(*_: object) -> None:
        came.append("theirs")

    signal.signal(signal.SIGTERM, theirs)
    outer, inner = Sigterm(lambda: came.append("outer")), Sigterm(lambda: came.append("inner"))
    outer.take()
    inner.take()
    terminate()
    assert came == ["inner", "outer", "theirs"]
    inner.give_back()
    outer.give_back()
    assert signal.getsignal(signal.SIGTERM) is theirs


def test_a_fleet_that_was_entered_first_and_left_first_passes_the_signal_on() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    came: list[str] = []
    first, second = Sigterm(lambda: came.append("first")), Sigterm(lambda: came.append("second"))
    first.take()
    second.take()
    first.give_back()
    with pytest.raises(SystemExit) as raised:
        terminate()
    assert (came, raised.value.code) == (["second"], 143)


def test_a_handler_that_cannot_be_hashed_is_called_like_any_other() -> None:
    came: list[str] = []

    @dataclass
    class Theirs:
        def __call__(self, *_: object) -> None:
            came.append("theirs")

    signal.signal(signal.SIGTERM, Theirs())
    subject = Sigterm(lambda: came.append("noted"))
    subject.take()
    terminate()
    assert came == ["noted", "theirs"]
    subject.give_back()


def test_a_program_that_ignores_it_goes_on_to() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    came: list[str] = []
    subject = Sigterm(lambda: came.append("noted"))
    subject.take()
    terminate()
    assert came == []
    subject.give_back()
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN


def test_a_handler_that_came_later_stays() -> None:
    came: list[str] = []
    subject = Sigterm(lambda: came.append("noted"))
    subject.take()

    def theirs(*_: object) -> None:
        came.append("theirs")

    signal.signal(signal.SIGTERM, theirs)
    subject.give_back()
    assert signal.getsignal(signal.SIGTERM) is theirs


def test_outside_of_the_main_thread_it_is_given_back_by_the_next_signal() -> None:
    came: list[str] = []
    signal.signal(signal.SIGTERM, lambda *_: came.append("theirs"))
    subject = Sigterm(lambda: came.append("noted"))
    subject.take()
    thread = threading.Thread(target=subject.give_back)
    thread.start()
    thread.join()
    terminate()
    assert came == ["theirs"]


def test_outside_of_the_main_thread_it_cannot_be_taken() -> None:
    errors: list[SettingsError] = []

    def enter() -> None:
        try:
            Sigterm(lambda: None).take()
        except SettingsError as error:
            errors.append(error)

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    (error,) = errors
    assert str(error) == (
        'backend.on_sigterm = "hand-over": only the main thread can handle SIGTERM, and this fleet is entered '
        'in another one; set "stop", and hand over by stop(keep=True)'
    )


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_forked_child_dies_of_it_as_before() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    subject = Sigterm(lambda: os._exit(7))
    subject.take()
    child = os.fork()
    if child == 0:
        terminate()
        os._exit(8)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGTERM
    subject.give_back()
