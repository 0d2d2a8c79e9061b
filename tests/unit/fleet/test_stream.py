"""A reader's events: bounded, in order, and nothing lost silently."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.fleet.stream import Event, EventBuffer, EventsMissed
from actors.messages import AllocationUnblocked, BackendFailed, BackendStopped


def event(number: int) -> AllocationUnblocked:
    return AllocationUnblocked(str(number))


def taken(buffer: EventBuffer) -> list[Event]:
    events = []
    while (found := buffer.take()) is not None:
        events.append(found)
    return events


def test_events_come_in_order() -> None:
    buffer = EventBuffer(3)
    for number in range(3):
        buffer.put(event(number))
    assert taken(buffer) == [event(0), event(1), event(2)]
    assert not buffer.has_news()


def test_a_slow_reader_is_told_how_many_events_it_missed_and_where() -> None:
    buffer = EventBuffer(2)
    for number in range(5):
        buffer.put(event(number))
    first = buffer.take()
    buffer.put(event(5))  # there is room again, but it comes after what was missed
    assert [first, *taken(buffer)] == [event(0), event(1), EventsMissed(4)]
    buffer.put(event(6))
    assert taken(buffer) == [event(6)]


@pytest.mark.parametrize("last", [BackendStopped(), BackendFailed(RuntimeError())])
def test_the_last_message_is_never_dropped(last: BackendStopped | BackendFailed) -> None:
    buffer = EventBuffer(1)
    for number in range(3):
        buffer.put(event(number))
    buffer.put(last)
    assert taken(buffer) == [event(0), EventsMissed(2), last]
    assert buffer.has_ended
    assert buffer.has_news()  # a reader does not wait for more


def test_an_end_without_a_last_message_leaves_what_is_there() -> None:
    buffer = EventBuffer(2)
    buffer.put(event(0))
    buffer.end()
    assert taken(buffer) == [event(0)]
    assert buffer.has_ended


@given(st.lists(st.sampled_from(["put", "take"]), max_size=60), st.integers(1, 4))
def test_what_is_missing_is_counted_and_memory_is_bounded(acts: list[str], size: int) -> None:
    buffer, put = EventBuffer(size), 0
    got: list[Event] = []
    for act in acts:
        if act == "put":
            buffer.put(event(put))
            put += 1
        elif (found := buffer.take()) is not None:
            got.append(found)
        assert len(buffer) <= size + 1
    got += taken(buffer)
    counted = 0
    for found in got:  # each event is either here at its place, or counted at it
        if isinstance(found, EventsMissed):
            counted += found.count
        else:
            assert found == event(counted)
            counted += 1
    assert counted == put
