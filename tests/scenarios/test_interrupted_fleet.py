"""Ctrl-C at any step of a program with a `Fleet`: nothing is left behind, and nothing hangs."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import actors.fleet.door
from actors.fleet.door import Door
from actors.fleet.fleet import Fleet
from actors.runtime import system as runtime_system
from tests.scenarios.doors import Stage

if TYPE_CHECKING:
    from types import FrameType

OURS = frozenset(
    {str(path) for path in Path(actors.fleet.door.__file__).parent.glob("*.py") if path.name != "view.py"}
    | {runtime_system.__file__}
)
"""Files whose steps are interrupted, where the program itself runs them."""


class Interrupts:
    """Raises KeyboardInterrupt at the n-th line, in the thread that runs the program."""

    def __init__(self, at: int) -> None:
        self.at = at
        self.lines = 0
        self.where = "nowhere"

    def trace(self, frame: FrameType, event: str, _: Any) -> Any:
        if frame.f_code.co_filename not in OURS or self._is_of_an_actor(frame):
            return None
        if event == "line":
            self.lines += 1
            if self.lines == self.at:
                self.where = f"{frame.f_code.co_filename}:{frame.f_lineno}"
                raise KeyboardInterrupt
        return self.trace

    @staticmethod
    def _is_of_an_actor(frame: FrameType | None) -> bool:
        while frame is not None:
            if frame.f_code.co_name in {"_actor_loop", "_actor_loop_running", "_handle_receive"}:
                return True
            frame = frame.f_back
        return False


def program(fleet: Fleet) -> None:
    with fleet:
        fleet.wait_for(running=2, timeout="1m")
        fleet.scale(1)
        next(fleet.events())


def interrupted(at: int, exits: dict[Door, None], **values: Any) -> Interrupts:
    stage = Stage("threads")
    fleet = Fleet(image="worker:1", instances=2, pod_api=stage.cluster.api, system=stage.kit.system, **values)
    interrupts = Interrupts(at)
    before = sys.gettrace()
    sys.settrace(interrupts.trace)
    try:
        with contextlib.suppress(KeyboardInterrupt):
            program(fleet)
    finally:
        sys.settrace(before)
    for door in list(exits):
        door._exit()
    exits.clear()
    assert not stage.cluster.pods, interrupts.where
    assert not stage.kit.dispatcher.actors, interrupts.where
    return interrupts


@pytest.fixture
def exits(monkeypatch: pytest.MonkeyPatch) -> dict[Door, None]:
    """The doors that the interpreter leaves at its exit. In virtual time none is registered for that."""
    doors: dict[Door, None] = {}
    monkeypatch.setattr(Door, "_leave_at_exit", lambda door: doors.update({door: None}))
    monkeypatch.setattr(Door, "_forget_at_exit", lambda door: doors.pop(door, None))
    return doors


@pytest.mark.parametrize("at", [1, 9, 25, 60, 90, 130, 170, 220, 260, 300, 340])
def test_ctrl_c_leaves_nothing(exits: dict[Door, None], at: int) -> None:
    assert interrupted(at, exits, on_event=id).where != "nowhere"


@pytest.mark.stress  # some hundred fleets; the lines above are a sample
def test_ctrl_c_at_any_line_leaves_nothing(exits: dict[Door, None]) -> None:
    at = 1
    while interrupted(at, exits, on_event=id).where != "nowhere":
        at += 1
    assert at > 300


def test_ctrl_c_at_any_wait_leaves_nothing_without_the_exit_s_help(exits: dict[Door, None]) -> None:
    for number in range(1, 20):
        stage = Stage("threads")
        left, real = number, stage.kit.system.wait

        def wait(*arguments: Any, real: Any = real) -> bool:
            nonlocal left
            left -= 1
            if left == 0:
                raise KeyboardInterrupt
            return bool(real(*arguments))

        stage.kit.system.wait = wait
        try:
            program(Fleet(image="worker:1", instances=2, pod_api=stage.cluster.api, system=stage.kit.system))
        except KeyboardInterrupt:
            assert left <= 0
        assert not exits
        assert not stage.cluster.pods
        assert not stage.kit.dispatcher.actors
        if left > 0:
            return
    raise AssertionError("the program waits without end")


def test_a_second_ctrl_c_leaves_at_once(exits: dict[Door, None]) -> None:
    stage = Stage("threads")
    fleet = Fleet(image="worker:1", instances=2, pod_api=stage.cluster.api, system=stage.kit.system)

    def wait(*_: Any) -> bool:
        raise KeyboardInterrupt

    def hurried() -> None:
        with fleet:
            fleet.wait_for(running=2)
            stage.kit.system.wait = wait
            fleet.scale(3)

    with pytest.raises(KeyboardInterrupt):
        hurried()
    assert not exits
    assert len(stage.cluster.pods) == 2
