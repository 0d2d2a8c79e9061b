"""A target that follows a backlog, in virtual time and through both doors."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from actors.errors import FleetEnded
from tests.scenarios.doors import KINDS, Stage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

pytestmark = pytest.mark.parametrize("kind", KINDS)


class QueueIsLostError(Exception):
    """What a look raises when there are no more."""


class Looks:
    """What each look finds; the last one raises `QueueIsLostError`. Notes when, and the size of the fleet then."""

    def __init__(self, stage: Stage, *found: Any) -> None:
        self._stage = stage
        self._found = iter(found)
        self.at: list[timedelta] = []
        self.running: list[int] = []

    def __call__(self) -> Any:
        self.at.append(self._stage.kit.clock.elapsed)
        self.running.append(len(self._stage.cluster.pods))
        for found in self._found:
            return found
        raise QueueIsLostError


def pods(stage: Stage, *ids: int) -> set[str]:
    return {stage.cluster.pods[each]["metadata"]["name"] for each in ids}


def follow(stage: Stage, look: Any, wanted: Callable[[int], int] = lambda jobs: jobs, **options: Any) -> None:
    async def program() -> None:
        async with stage.fleet(instances=0, **options.pop("fleet", {})) as fleet:
            await fleet.autoscale(look, wanted, **options)

    with pytest.raises(QueueIsLostError):
        stage.run(program())


def jobs(*counts: int) -> Iterable[tuple[int, tuple[()]]]:
    return [(count, ()) for count in counts]


def test_the_target_is_the_most_that_the_last_looks_asked_for(kind: str) -> None:
    stage = Stage(kind)
    looks = Looks(stage, *jobs(4, 1, 1, 1, 1))
    follow(stage, looks, every=30, looks=3)
    assert looks.running == [0, 4, 4, 4, 1, 1]


def test_it_looks_at_each_interval(kind: str) -> None:
    stage = Stage(kind)
    looks = Looks(stage, *jobs(0, 0, 0))
    follow(stage, looks, every="10s")
    assert [later - at for at, later in zip(looks.at, looks.at[1:], strict=False)] == [timedelta(seconds=10)] * 3


def test_only_idle_executors_end_and_a_busy_one_when_it_becomes_idle(kind: str) -> None:
    stage = Stage(kind)
    steps: list[Callable[[], Any]] = [
        lambda: (2, ()),
        lambda: (0, pods(stage, 1)),  # an older executor, which would end last
        lambda: (0, pods(stage, 1)),
        lambda: (0, ()),
    ]
    alive: list[list[int]] = []

    def look() -> Any:
        alive.append(sorted(stage.cluster.pods))
        if not steps:
            raise QueueIsLostError
        return steps.pop(0)()

    follow(stage, look, every="1m", looks=1)
    assert alive == [[], [1, 2], [1], [1], []]


def test_the_busy_ones_count_as_jobs_and_those_of_other_profiles_do_not(kind: str) -> None:
    stage = Stage(kind)
    counted: list[int] = []

    def wanted(jobs: int) -> int:
        counted.append(jobs)
        return 0

    async def program() -> None:
        profiles = {"gpu": {"instances": 1}}
        async with stage.fleet(instances=1, profiles=profiles) as fleet:
            await fleet.wait_for(running=2)
            both = pods(stage, 1, 2)
            await fleet.autoscale(Looks(stage, (3, both), (0, both)), wanted, profile="gpu")

    with pytest.raises(QueueIsLostError):
        stage.run(program())
    assert counted == [4, 1]


def test_a_target_that_stays_is_set_once(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "actors.fleet.autoscaling")
    stage = Stage(kind)
    follow(stage, Looks(stage, *jobs(2, 2, 2)))
    (record,) = [each for each in caplog.records if each.name == "actors.fleet.autoscaling"]
    assert record.getMessage() == "target follows the backlog: profile=default waiting=2 busy=0 target=2 ended=[]"


def test_it_ends_with_the_fleet(kind: str) -> None:
    stage = Stage(kind)

    async def program() -> None:
        async with stage.fleet(instances=0) as fleet:
            await fleet.stop()
            await fleet.autoscale(Looks(stage, *jobs(1)), abs)

    with pytest.raises(FleetEnded):
        stage.run(program())


@pytest.mark.parametrize("backlog", [None, 3, (3,), (-1, ()), (3, "pod"), (3, 4), ("3", ())])
def test_a_look_that_returns_no_backlog_is_an_error_in_words(kind: str, backlog: Any) -> None:
    stage = Stage(kind)

    async def program() -> None:
        async with stage.fleet(instances=0) as fleet:
            await fleet.autoscale(lambda: backlog, abs)

    with pytest.raises(TypeError, match=r"look returned .*: must be how many jobs wait, and the pods whose executors"):
        stage.run(program())


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"looks": 0}, "looks = 0: must be a whole number, at least 1"),
        ({"every": 0}, "every = 0: must be longer than 0s"),
        ({"profile": "gpu"}, "profile = 'gpu': there is no such profile; there are default"),
    ],
)
def test_what_is_not_allowed_is_named(kind: str, options: dict[str, Any], words: str) -> None:
    stage = Stage(kind)

    async def program() -> None:
        async with stage.fleet(instances=0) as fleet:
            await fleet.autoscale(Looks(stage), abs, **options)

    with pytest.raises(ValueError, match=words):
        stage.run(program())


def test_with_asyncio_a_look_may_be_awaited(kind: str) -> None:
    stage = Stage(kind)
    looks = Looks(stage, *jobs(1, 3))

    async def awaited() -> Any:
        return looks()

    follow(stage, looks if kind == "threads" else awaited, every="1m")
    assert looks.running == [0, 1, 3]
