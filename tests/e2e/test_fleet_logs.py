"""What executors print, read through both doors from the embedded cluster's API."""

from __future__ import annotations

import asyncio
import sys
import threading
from typing import TYPE_CHECKING, Any, Final

import pytest

from actors import AsyncFleet, Fleet, LogLine
from actors.errors import FleetEnded, NotFound

if TYPE_CHECKING:
    from collections.abc import Iterator

PROGRAM: Final = """
import os, signal
signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
print("executor", os.environ["EXECUTOR_ID"], flush=True)
print("in", os.environ["EXECUTOR_PROFILE"], flush=True)
while True:
    signal.pause()
"""
VALUES: Final[Any] = {
    "local": True,
    "instances": 2,
    "command": [sys.executable, "-c", PROGRAM],
    "profiles": {"gpu": {"instances": 1}},
}
SAFETY: Final = 60
"""Seconds: only a failure waits so long."""


def readers() -> list[str]:
    """The threads that read logs."""
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("log")]


@pytest.fixture
def fleet() -> Iterator[Fleet]:
    with Fleet(**VALUES) as found:
        found.wait_for(running=3, timeout=SAFETY)
        yield found


def test_what_all_executors_print_comes_in_one_stream_with_their_ids_before_it(fleet: Fleet) -> None:
    with fleet.follow_logs() as lines:
        got = [lines.get(SAFETY) for _ in range(6)]
    assert sorted(map(str, got)) == sorted(
        f"[{each.id}] {text}"
        for each in fleet.executors.values()
        for text in (f"executor {each.id}", f"in {each.profile}")
    )


def test_one_executor_is_followed_until_it_is_gone_and_then_its_log_is_gone_with_its_pod(fleet: Fleet) -> None:
    lines = fleet.follow_logs(1)
    first = next(lines)
    assert isinstance(first, LogLine)
    assert first.executor_id == 1
    assert fleet.logs(1, tail=1).startswith("in ")
    fleet.kill(1, grace=0, replace=False)
    assert [line.executor_id for line in lines] == [1]
    events = fleet.events()
    while 1 in fleet.executors:
        events.get(SAFETY)
    words = r"executor 1 has no log any more: its pod \S+ is gone; fleet.ended has the reason"
    with pytest.raises(NotFound, match=words):
        fleet.logs(1)


def test_the_executors_of_one_profile_are_followed_alone(fleet: Fleet) -> None:
    (gpu,) = [each.id for each in fleet.executors.values() if each.profile == "gpu"]
    with fleet.follow_logs(profile="gpu") as lines:
        assert [str(lines.get(SAFETY)), str(lines.get(SAFETY))] == [f"[{gpu}] executor {gpu}", f"[{gpu}] in gpu"]


def test_what_is_not_there_is_named(fleet: Fleet) -> None:
    with pytest.raises(ValueError, match="executor_id = 99: there is no such executor; alive are: 1, 2, 3"):
        fleet.logs(99)
    with pytest.raises(ValueError, match="executor_id = 99: there is no such executor"):
        fleet.follow_logs([1, 99])
    with pytest.raises(ValueError, match="profile = 'cpu': there is no such profile; there are default, gpu"):
        fleet.follow_logs(profile="cpu")
    with pytest.raises(ValueError, match="tail = -1: must be a whole number of lines"):
        fleet.logs(1, tail=-1)


def test_a_stream_ends_with_its_fleet_and_leaves_no_thread() -> None:
    with Fleet(**VALUES) as fleet:
        lines = fleet.follow_logs()
        fleet.wait_for(running=3, timeout=SAFETY)
        got = [lines.get(SAFETY) for _ in range(6)]
        assert None not in got
    assert list(lines) == []
    del lines
    for thread in threading.enumerate():
        if thread.name.startswith("log"):
            thread.join(SAFETY)
    assert readers() == []
    with pytest.raises(FleetEnded):
        fleet.logs(1)


def test_with_asyncio_logs_are_awaited() -> None:
    async def main() -> None:
        async with AsyncFleet(**VALUES) as fleet:
            await fleet.wait_for(running=3, timeout=SAFETY)
            with fleet.follow_logs(2) as lines:
                first = await anext(aiter(lines))
                assert str(first) == "[2] executor 2"
            assert (await fleet.logs(2)).startswith("executor 2\n")

    asyncio.run(main())
