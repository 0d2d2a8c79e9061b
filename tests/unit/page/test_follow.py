"""A viewer who follows the stream knows what one knows who loads everything anew, however slowly he reads."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from actors.messages import (
    Executor,
    ExecutorRemoved,
    ExecutorRunning,
    ExecutorState,
    FleetChanged,
)
from actors.page.history import FleetHistory
from actors.pods.loss import LossKind, LossReason
from tests.unit.builders import pod

if TYPE_CHECKING:
    from collections.abc import Mapping

    from actors.page import documents

T0 = 1_700_000_000.0
LOSS = LossReason(LossKind.EXITED, 1, caused_by_app=True, message="exit code 1")
AT = datetime.fromtimestamp(T0, UTC)
KNOWN = Executor(1, "default", ExecutorState.RUNNING, "a", "n", "10.0.0.1", AT, True, 0, None, None)  # noqa: FBT003
ids = st.integers(1, 6)
ADOPTED = msgspec.structs.replace(pod(1), start_time=AT - timedelta(hours=1))


def published(found: Mapping[int, tuple[ExecutorState, int, str | None]], *, complete: bool) -> FleetChanged:
    values = [
        replace(
            KNOWN,
            id=each,
            state=state,
            restarts=count,
            stuck=stuck,
            loss=LOSS if state is ExecutorState.ENDED else None,
        )
        for each, (state, count, stuck) in sorted(found.items())
    ]
    return FleetChanged(1, AT, tuple(values), complete=complete)


values = st.tuples(st.sampled_from(ExecutorState), st.integers(0, 2), st.sampled_from([None, "ErrImagePull"]))
steps = st.one_of(
    ids.map(lambda each: ExecutorRunning(each, ADOPTED)),
    ids.map(lambda each: ExecutorRemoved(each, LOSS)),
    st.builds(published, st.dictionaries(ids, values, max_size=6), complete=st.booleans()),
    ids.map(lambda each: FleetChanged(1, AT, (), (each,))),
    st.tuples(ids, st.dictionaries(st.sampled_from("ab"), st.none() | st.just("x"), max_size=2)),
    st.just("look"),
)


class Viewer:
    """What a viewer knows from changes alone."""

    def __init__(self, history: FleetHistory) -> None:
        self.seq = history.seq
        self.living: dict[int, documents.Executor] = {}
        self.ended: dict[int, documents.Executor] = {}

    def look(self, history: FleetHistory, most: int) -> None:
        while self.seq < history.seq:
            assert history.can_tell_since(self.seq)
            change = history.changes(self.seq, most)
            assert change.seq > self.seq
            self.seq = change.seq
            self.living |= {row.id: row for row in change.executors}
            for row in change.ended:
                self.living.pop(row.id, None)
                self.ended[row.id] = row


@given(st.lists(steps, max_size=30), st.integers(1, 4))
def test_changes_add_up_to_what_is(happened: list[Any], most: int) -> None:
    history = FleetHistory(T0)
    viewer = Viewer(history)
    for second, step in enumerate(happened):
        match step:
            case "look":
                viewer.look(history, most)
            case FleetChanged():
                later = AT + timedelta(seconds=second)
                since = tuple(replace(each, since=later) for each in step.executors)
                history.fold(replace(step, at=later, executors=since))
            case (executor_id, notes):
                history.annotate(executor_id, notes)
            case _:
                history.apply(step, T0 + second)
    viewer.look(history, most)
    assert [viewer.living[each] for each in sorted(viewer.living)] == history.living()
    assert sorted(viewer.ended.values(), key=lambda row: row.id) == sorted(history.ended(), key=lambda row: row.id)
    lanes = {lane[0]: lane for lane in history.timeline(T0).lanes}
    assert lanes.keys() == viewer.living.keys() | viewer.ended.keys()
    for _, _, _, spent, end, _ in lanes.values():
        assert [start for _, start in spent] == sorted(start for _, start in spent)
        assert end is None or end >= spent[-1][1]
