"""The states of snapshots cross as what is different, and are the same on the other side."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from actors.backend.process import observed
from actors.backend.process.frames import Observed, pack, unpack
from actors.backend.process.observed import CrossedStates, KnownStates
from actors.pods.id_map import IdMap
from actors.pods.state import PodPending, PodRunning, PodState
from actors.testing import pod

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest


def cross(there: CrossedStates, here: KnownStates, states: IdMap[PodState]) -> list[Observed]:
    frames = list(there.frames(states))
    for frame in frames:
        (crossed,) = unpack(pack([frame])[4:])
        here.take(crossed)
    return frames


KINDS: dict[str, Callable[[int], PodState | None]] = {
    "gone": lambda _: None,
    "pending": lambda number: PodPending(pod(number, "Pending")),
    "running": lambda number: PodRunning(pod(number)),
}


@given(st.lists(st.dictionaries(st.integers(1, 200), st.sampled_from(sorted(KINDS)), max_size=20)))
def test_the_other_side_has_the_same_states_after_each_snapshot(steps: list[dict[int, str]]) -> None:
    there, here, states = CrossedStates(), KnownStates(), IdMap[PodState]()
    for step in steps:
        states = states.with_changes({number: KINDS[kind](number) for number, kind in step.items()})
        cross(there, here, states)
        assert dict(here.states.items()) == dict(states.items())


def test_only_what_is_different_crosses() -> None:
    there, here = CrossedStates(), KnownStates()
    states = IdMap[PodState]({number: PodRunning(pod(number)) for number in range(1, 101)})
    assert len(cross(there, here, states)[0].changes) == 100
    assert cross(there, here, states) == []
    states = states.with_changes({7: PodPending(pod(7, "Pending")), 8: None})
    assert cross(there, here, states) == [Observed({7: PodPending(pod(7, "Pending")), 8: None}, is_last=True)]


def test_that_there_are_none_crosses_first_as_the_backend_may_know_those_of_another_process() -> None:
    there, here = CrossedStates(), KnownStates()
    none = IdMap[PodState]()
    assert cross(there, here, none) == [Observed({}, is_last=True)]
    assert cross(there, here, none) == []


def test_a_large_fleet_crosses_in_parts_of_which_the_last_one_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observed, "AT_ONCE", 40)
    states = IdMap[PodState]({number: PodRunning(pod(number)) for number in range(1, 101)})
    here = KnownStates()
    frames = cross(CrossedStates(), here, states)
    assert [(len(frame.changes), frame.is_last) for frame in frames] == [(40, False), (40, False), (20, True)]
    assert here.states == states


def test_equal_parts_of_pods_are_kept_once() -> None:
    there, here = CrossedStates(), KnownStates()
    first = IdMap[PodState]({1: PodRunning(pod(1))})
    cross(there, here, first)
    cross(there, here, first.with_changes({2: PodRunning(pod(2))}))
    one, two = (here.states[number].pod for number in (1, 2))
    assert one.spec is two.spec


def test_a_later_pod_of_an_executor_id_crosses_as_what_it_is() -> None:
    there, here = CrossedStates(), KnownStates()
    states = IdMap[PodState]({1: PodRunning(pod(1, uid="first"))})
    cross(there, here, states)
    cross(there, here, states.with_changes({1: PodRunning(pod(1, uid="second", node="node-2"))}))
    assert here.states[1].pod == pod(1, uid="second", node="node-2")
