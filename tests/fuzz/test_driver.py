"""Messages of a driver with anything in their fields, through a whole Backend: it refuses what is wrong, and lives."""

from __future__ import annotations

import logging
import unicodedata
from collections.abc import Collection, Iterator, Mapping
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import IntEnum
from typing import TYPE_CHECKING, Any, get_args, get_origin

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from actors.errors import Refused
from actors.messages import (
    AcquireExecutor,
    BackendFailed,
    CancelAcquire,
    DecommissionExecutors,
    ExecutorBusy,
    ExecutorDisconnected,
    ExecutorDrained,
    ExecutorIdle,
    FleetExecutors,
    FleetStatus,
    FollowFleet,
    FromDriver,
    GetExecutorIds,
    GetExecutors,
    GetFleetStatus,
    HasEnoughExecutors,
    HoldFleet,
    IsExecutorActive,
    IsExecutorExcluded,
    KillExecutors,
    RegisterExecutor,
    ReleaseExecutor,
    RenewLease,
    RequestTotalExecutors,
    ResumeFleet,
    RetireExecutors,
    ScaleExecutors,
    SetWarm,
    StopBackend,
)
from tests.fuzz.material import scalars, values
from tests.scenarios.world import World

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

HIGHEST_ID = 10**18 - 1
LARGEST_FLEET = 100_000
LONGEST_HOLDER = 200
LONGEST_LINE = 400
"""Characters of a log line or an error, however large the message is."""
PROFILES = ("default", "large")
POOL, MOST = "pool", 2
POLICIES = ("newest", "oldest", "idle")
ABOUT_ONE = (
    *(RegisterExecutor, ExecutorDrained, ExecutorDisconnected, ExecutorBusy, ExecutorIdle),
    *(IsExecutorActive, IsExecutorExcluded),
)


class Count(IntEnum):
    TWO = 2


class Unreadable:
    """Raises whatever is done with it."""

    def __repr__(self) -> str:
        raise RuntimeError("no repr")

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("not comparable")

    __hash__ = None  # type: ignore[assignment]  # unhashable on purpose


class Endless(Collection[int]):
    """Says that it is short, and never ends."""

    def __len__(self) -> int:
        return 1

    def __contains__(self, item: object) -> bool:
        return True

    def __iter__(self) -> Iterator[int]:
        while True:
            yield 1


class Broken(Mapping[str, int]):
    """Cannot be iterated over."""

    def __len__(self) -> int:
        return 1

    def __getitem__(self, key: str) -> int:
        raise RuntimeError("no items")

    def __iter__(self) -> Iterator[str]:
        raise RuntimeError("no keys")


circle: list[Any] = []
circle.append(circle)

numbers = st.sampled_from(
    (
        0,
        1,
        2,
        3,
        -1,
        99,
        2**31,
        2**63,
        HIGHEST_ID,
        HIGHEST_ID + 1,
        LARGEST_FLEET,
        LARGEST_FLEET + 1,
        10**5_000,
        Count.TWO,
    )
)
odd = st.sampled_from(
    (
        *(
            float("nan"),
            float("inf"),
            1.0,
            Decimal(1),
            1j,
            b"1",
            bytearray(b"1"),
            "1\x1b[2J\nERROR forged",
            "x" * 5_000,
        ),
        *(object(), int, Unreadable(), circle, Broken(), Endless(), iter((1,)), range(10**8), range(3), range(0)),
        *(datetime(2024, 1, 1, tzinfo=UTC), timedelta(1), RegisterExecutor(1), lambda: 1, Unreadable),
    )
)
anything = st.one_of(numbers, numbers, odd, scalars, values, st.binary(max_size=3))
many: SearchStrategy[Any] = st.one_of(
    st.lists(st.one_of(numbers, anything), max_size=4).map(tuple),
    st.lists(numbers, max_size=4),
    st.sets(st.integers(0, 4)),
    st.integers(1, 4).map(lambda first: (first,)),
    st.just((7,) * (LARGEST_FLEET + 1)),
    anything,
)
totals = st.one_of(
    st.dictionaries(st.sampled_from((*PROFILES, "huge", "", "default ", None, 1, (), True)), anything, max_size=3),
    anything,
)
flags = st.one_of(st.booleans(), st.none(), anything)

graces = st.one_of(st.none(), st.just(timedelta(seconds=2)), st.just(timedelta.max), st.just(-timedelta(1)), anything)
victims = st.one_of(st.sampled_from(POLICIES), anything.filter(lambda value: not callable(value)), st.just(hash))

WITHOUT_VALUES = tuple(kind for kind in get_args(FromDriver) if not fields(kind))
pools = st.one_of(st.just("pool"), st.sampled_from(("default", "", None, 1, True)))
about_one = st.builds(
    lambda kind, executor_id: kind(executor_id),
    st.sampled_from(ABOUT_ONE),
    anything,
)
DRAWN: dict[Any, tuple[st.SearchStrategy[Any], ...]] = {
    KillExecutors: (many, flags, graces),
    RetireExecutors: (many, graces, flags),
    HoldFleet: (graces,),
    ScaleExecutors: (totals, victims, graces),
    DecommissionExecutors: (many,),
    RequestTotalExecutors: (totals, flags),
    SetWarm: (st.one_of(st.dictionaries(pools, anything, max_size=2), anything),),
    AcquireExecutor: (pools, graces, graces, st.one_of(st.just("a task"), anything)),
    CancelAcquire: (anything,),
    ReleaseExecutor: (anything, flags),
    RenewLease: (anything, graces),
    FollowFleet: (st.one_of(st.just(str), anything),),
    StopBackend: (odd | values.filter(lambda value: value is not None and not isinstance(value, bool)),),
}
"""The values of the other messages."""

messages = st.one_of(
    st.sampled_from([kind() for kind in WITHOUT_VALUES]),
    about_one,
    *(st.builds(kind, *given_) for kind, given_ in DRAWN.items()),
)


def is_whole(value: object, lowest: int, highest: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and lowest <= value <= highest


def is_id(value: object) -> bool:
    return is_whole(value, 1, HIGHEST_ID)


def are_ids(value: object) -> bool:
    if not isinstance(value, tuple | list | set | frozenset | range):
        return False
    if isinstance(value, range) and value.stop > LARGEST_FLEET:
        return False  # of the largest not even the length can be asked for
    return len(value) <= LARGEST_FLEET and all(is_id(each) for each in value)


def is_target(value: object) -> bool:
    return is_whole(value, 0, LARGEST_FLEET)


def are_totals(value: object) -> bool:
    if not isinstance(value, Mapping):
        return is_target(value)
    known = not isinstance(value, Broken) and all(isinstance(name, str) and name in PROFILES for name in value)
    return known and all(map(is_target, value.values()))


def is_lease(value: object) -> bool:
    return is_whole(value, 1, 2**63 - 1)


def is_grace(value: object) -> bool:
    return value is None or (isinstance(value, timedelta) and timedelta() <= value <= timedelta(days=365))


def is_right(message: FromDriver) -> bool:
    """What a driver may send, in other words than the Backend's."""
    match message:
        case RequestTotalExecutors(total, flag):
            return are_totals(total) and isinstance(flag, bool)
        case ScaleExecutors(total, which, grace):
            is_policy = which is hash or (isinstance(which, str) and which in POLICIES)
            return are_totals(total) and is_policy and is_grace(grace)
        case KillExecutors(ids, flag, grace):
            return are_ids(ids) and isinstance(flag, bool) and is_grace(grace)
        case RetireExecutors(ids, grace, flag):
            return are_ids(ids) and isinstance(flag, bool) and is_grace(grace)
        case HoldFleet(grace):
            return is_grace(grace)
        case DecommissionExecutors(ids):
            return are_ids(ids)
        case SetWarm(warm):
            numbers = warm if isinstance(warm, Mapping) else {"default": warm}
            known = not isinstance(numbers, Broken) and all(isinstance(name, str) and name == POOL for name in numbers)
            return known and all(is_target(number) and number <= MOST for number in numbers.values())
        case AcquireExecutor(profile, timeout, ttl, holder):
            is_holder = isinstance(holder, str) and len(holder) <= LONGEST_HOLDER
            return isinstance(profile, str) and profile == POOL and is_grace(timeout) and is_grace(ttl) and is_holder
        case CancelAcquire(lease):
            return is_lease(lease)
        case ReleaseExecutor(lease, flag):
            return is_lease(lease) and isinstance(flag, bool)
        case RenewLease(lease, ttl):
            return is_lease(lease) and is_grace(ttl)
        case _ if isinstance(message, ABOUT_ONE):
            return is_id(message.executor_id)
        case FollowFleet(follower):
            return callable(follower)
        case StopBackend(flag):
            return flag is None or isinstance(flag, bool)
        case _:
            return True


def is_short_text(line: str) -> bool:
    return len(line) <= LONGEST_LINE and not any(unicodedata.category(each) in {"Cc", "Cf", "Cs"} for each in line)


ANSWERS: dict[type, type | tuple[type, ...]] = {
    **dict.fromkeys((KillExecutors, RetireExecutors, ScaleExecutors, DecommissionExecutors, GetExecutorIds), tuple),
    **dict.fromkeys(
        (RegisterExecutor, ExecutorDrained, IsExecutorActive, IsExecutorExcluded, HasEnoughExecutors), bool
    ),
    **dict.fromkeys((RequestTotalExecutors, CancelAcquire, ReleaseExecutor, RenewLease), bool),
    AcquireExecutor: int,
    SetWarm: type(None),
    HoldFleet: tuple,
    ResumeFleet: type(None),
    **dict.fromkeys((ExecutorDisconnected, ExecutorBusy, ExecutorIdle), type(None)),
    GetExecutors: FleetExecutors,
    GetFleetStatus: FleetStatus,
    FollowFleet: type(None),
    StopBackend: type(None),
}


class Log(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def the_backend_lives(sent: list[tuple[FromDriver, bool]]) -> None:
    log, logger = Log(), logging.getLogger("actors")
    logger.addHandler(log)
    try:
        large = {"instances": 1, "image": "worker:1"}
        profiles = {"large": large, POOL: {"warm": 1, "max_executors": MOST}}
        with World(executor={"instances": 2}, profiles=profiles, allocation={"max_created": 12}) as world:
            world.invariants.retarget({"default": LARGEST_FLEET, "large": LARGEST_FLEET, POOL: MOST})  # not the subject
            world.advance(2)
            for message, is_asked in sent:
                sees(world, log, message, is_asked=is_asked)
            world.advance(2)
            assert world.backend.is_alive()
            assert world.heard(BackendFailed) == []
            assert world.ask(GetFleetStatus()).app_id == "app"
    finally:
        logger.removeHandler(log)
    assert [line for line in log.lines if not is_short_text(line)] == []


def sees(world: World, log: Log, message: FromDriver, *, is_asked: bool) -> None:
    name = type(message).__name__
    if not is_asked:
        log.lines.clear()
        world.backend.tell(message)
        world.kit.settle()
        refused = [line for line in log.lines if line.startswith("message refused")]
        assert len(refused) == (not is_right(message)), log.lines
        assert all(f"reason={name}" in line for line in refused)
        return
    if is_right(message):
        assert isinstance(world.ask(message), ANSWERS[type(message)])
        return
    with pytest.raises(Refused) as refused_:
        world.ask(message)
    assert str(refused_.value).startswith(name)
    assert is_short_text(str(refused_.value))


def test_every_message_of_a_driver_is_fuzzed() -> None:
    assert set(ANSWERS) == {*WITHOUT_VALUES, *ABOUT_ONE, *DRAWN} == set(get_args(FromDriver))


def test_the_answer_that_each_message_declares_is_the_one_it_gets() -> None:
    for kind, answer in ANSWERS.items():
        (base,) = kind.__orig_bases__  # type: ignore[attr-defined]  # `types.get_original_bases` is of Python 3.12
        (declared,) = get_args(base)
        assert (get_origin(declared) or declared) is answer, f"{kind.__name__} is answered with {answer}"


QUICK = settings(max_examples=20, suppress_health_check=list(HealthCheck))
LONG = settings(max_examples=2_000, suppress_health_check=list(HealthCheck))
AT_ONCE = 50
"""Messages to one Backend in the long run: 100,000 in all."""

one = st.tuples(messages, st.booleans())

WRONG: list[tuple[Any, Any]] = [
    *((kind, [1]) for kind in ABOUT_ONE),
    *((kind, True) for kind in ABOUT_ONE),
    (ScaleExecutors, {"default": -1}),
    (KillExecutors, (True,)),
    (KillExecutors, range(10**8)),
    (KillExecutors, range(10**30)),
    (KillExecutors, Endless()),
    (DecommissionExecutors, (1, "2")),
    (DecommissionExecutors, (10**5_000,)),
    (RequestTotalExecutors, Broken()),
    (RequestTotalExecutors, float("nan")),
    (RequestTotalExecutors, 10**5_000),
    (RequestTotalExecutors, {"x" * 5_000: 1}),
    (RequestTotalExecutors, {"default": "\x1b[2J"}),
    (StopBackend, "no"),
]


@QUICK
@given(st.lists(one, min_size=1, max_size=40))
@example([(kind(value), False) for kind, value in WRONG])
@example([(kind(value), True) for kind, value in WRONG])
def test_whatever_a_driver_sends_the_backend_lives(sent: list[tuple[FromDriver, bool]]) -> None:
    the_backend_lives(sent)


@pytest.mark.stress
@LONG
@given(st.lists(one, min_size=AT_ONCE, max_size=AT_ONCE))
def test_whatever_a_driver_sends_the_backend_lives_many_times(sent: list[tuple[FromDriver, bool]]) -> None:
    the_backend_lives(sent)
