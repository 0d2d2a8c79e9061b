"""What a viewer of the page is told of each executor, and what is kept of it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from msgspec.structs import asdict

from actors.messages import (
    AllocationBlocked,
    BackendFailed,
    BackendStarted,
    Executor,
    ExecutorRemoved,
    ExecutorRunning,
    ExecutorState,
    ExecutorStuck,
    ExecutorTerminating,
    FleetChanged,
)
from actors.page.documents import Change, Lane
from actors.page.feed import Feed, Notes
from actors.page.history import EVENTS_KEPT, LANES_KEPT, MOST_COLUMNS, MOST_STATES, FleetHistory
from actors.pods.loss import LossKind, LossReason
from actors.testing.manual import ManualClock
from tests.unit import changes
from tests.unit.builders import pod

T0 = 1_700_000_000.0
HOUR = 3600.0
LOSS = LossReason(LossKind.OOM_KILLED, 137, caused_by_app=True, message="executor 1 was killed for its memory")


REQUESTED, PENDING, RUNNING, TERMINATING, ENDED = ExecutorState


def at(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def executor(executor_id: int, state: ExecutorState, since: float = T0, **values: Any) -> Executor:
    return changes.executor(executor_id, state, since=at(since), **values)


def removed(executor_id: int, loss: LossReason = LOSS, since: float = T0, **values: Any) -> Executor:
    return executor(executor_id, ENDED, since, loss=loss, reason=loss.message, node="node-9", **values)


def change(made: FleetHistory, time: float, *executors: Executor, **values: Any) -> None:
    """The Backend publishes executors, all at once."""
    made.fold(FleetChanged(1, at(time), executors, **values))


def history(*executors: Executor) -> FleetHistory:
    """A history of executors that are published one after the other, when they enter their state."""
    made = FleetHistory(T0)
    for each in executors:
        change(made, each.since.timestamp(), each)
    return made


def told(*messages: Any) -> FleetHistory:
    """A history of messages that came a second apart."""
    made = FleetHistory(T0)
    for second, message in enumerate(messages):
        made.apply(message, T0 + second)
    return made


def timeline(made: FleetHistory) -> tuple[list[Lane], list[str], list[str]]:
    shown = made.timeline(T0)
    return shown.lanes, shown.profiles, shown.nodes


def test_an_executor_goes_through_its_states() -> None:
    made = history(executor(1, REQUESTED), executor(1, PENDING, T0 + 1))
    change(
        made, T0 + 2, executor(1, PENDING, T0 + 1, stuck="ImagePullBackOff", reason="ImagePullBackOff: no such image")
    )
    (row,) = made.living()
    assert (row.state, row.since, row.why) == ("stuck", T0 + 2, "ImagePullBackOff: no such image")
    change(made, T0 + 3, executor(1, RUNNING, T0 + 3))
    why = "executor 1 was retired by the driver"
    change(made, T0 + 4, executor(1, TERMINATING, T0 + 4, reason=why, retiring=True))
    (row,) = made.living()
    assert (row.state, row.since, row.requested_at, row.running_at) == ("terminating", T0 + 4, T0, T0 + 3)
    assert (row.why, row.retiring, row.pod) == (why, True, "app-exec-1")
    change(made, T0 + 5, removed(1, since=T0 + 5))
    assert made.living() == []
    (row,) = made.ended()
    assert (row.state, row.ended_at, row.loss, row.exit_code) == ("ended", T0 + 5, "OOM_KILLED", 137)
    assert (row.why, row.caused_by_app, row.node, row.registered) == (LOSS.message, True, "node-9", False)
    lanes, profiles, nodes = timeline(made)
    states = [(0, T0), (1, T0 + 1), (2, T0 + 2), (3, T0 + 3), (4, T0 + 4)]
    assert lanes == [(1, 0, 0, states, T0 + 5, "OOM_KILLED")]
    assert (profiles, nodes) == (["default"], ["node-9"])


def test_an_executor_that_crashes_in_place_runs_and_says_why() -> None:
    made = history(executor(1, RUNNING, stuck="CrashLoopBackOff", reason="CrashLoopBackOff: main"))
    assert [(row.state, row.why) for row in made.living()] == [("running", "CrashLoopBackOff: main")]


def test_an_adopted_executor_began_when_its_node_took_it() -> None:
    adopted = msgspec.structs.replace(pod(1), start_time=at(T0 - HOUR))
    made = history(executor(1, RUNNING), executor(2, RUNNING))
    made.apply(ExecutorRunning(1, adopted), T0)
    made.apply(ExecutorRunning(2, msgspec.structs.replace(pod(2), start_time=at(T0 + 1))), T0 + 2)
    first, second = made.living()
    assert (first.requested_at, first.running_at, first.since) == (T0 - HOUR,) * 3
    assert second.since == T0, "it began in the time of this driver"


def test_an_executor_that_has_ended_does_not_come_back() -> None:
    made = history(removed(1))
    change(made, T0 + 1, executor(1, RUNNING))
    assert made.living() == []
    change(made, T0 + 2, removed(1, since=T0 + 2), complete=True)
    assert [row.ended_at for row in made.ended()] == [T0]


def test_an_executor_that_is_withdrawn_has_ended_for_nobody() -> None:
    made = history(executor(1, REQUESTED, pod=None))
    change(made, T0 + 3, withdrawn=(1, 9))
    assert made.living() == []
    (row,) = made.ended()
    assert (row.id, row.ended_at, row.loss, row.why) == (1, T0 + 3, None, "it was requested and never observed")
    assert made.losses("default", T0) == {}


def test_what_a_complete_change_does_not_have_has_ended() -> None:
    made = history(executor(1, RUNNING), executor(2, RUNNING), executor(3, RUNNING))
    change(made, T0 + 3, executor(3, RUNNING), removed(1, since=T0 + 2), complete=True)
    assert [row.id for row in made.living()] == [3]
    assert [(row.id, row.loss, row.ended_at) for row in made.ended()] == [(1, "OOM_KILLED", T0 + 2), (2, None, T0 + 3)]


def test_a_viewer_is_told_what_changed_since_his_last_look() -> None:
    made = history(executor(1, RUNNING), executor(2, RUNNING))
    seq = made.seq
    change(made, T0 + 5, executor(2, TERMINATING, T0 + 5))
    made.apply(ExecutorTerminating(2, None, "gone"), T0 + 5)
    change(made, T0 + 6, removed(2, since=T0 + 6))
    made.apply(ExecutorRemoved(2, LOSS), T0 + 6)
    changes = made.changes(seq, 10)
    assert changes.executors == []
    assert [row.id for row in changes.ended] == [2]
    assert [event.event for event in changes.events] == ["terminating", "removed"]
    assert changes.seq == made.seq
    assert made.changes(made.seq, 10) == Change(made.seq, [], [], [])


def test_many_changes_come_in_parts_and_in_order() -> None:
    made = history(*(executor(each, RUNNING) for each in range(1, 8)), removed(3))
    since, told = int(T0 * 1000), []
    while since < made.seq:
        part = made.changes(since, 3)
        assert len(part.executors) + len(part.ended) <= 3
        since = part.seq
        told += [row.id for row in (*part.executors, *part.ended)]
    assert sorted(told) == [1, 2, 3, 4, 5, 6, 7]


def test_a_viewer_of_an_earlier_process_or_of_long_ago_loads_anew() -> None:
    made = history(executor(1, RUNNING))
    began = made.seq - 1
    assert made.can_tell_since(began)
    assert made.can_tell_since(made.seq)
    assert not made.can_tell_since(began - 1)
    assert not made.can_tell_since(made.seq + 1)
    for each in range(2, LANES_KEPT + 3):
        change(made, T0 + 2, removed(each))
    assert not made.can_tell_since(began)
    assert made.can_tell_since(made.seq - LANES_KEPT)


def test_what_is_kept_is_bounded() -> None:
    made = FleetHistory(T0)
    for each in range(1, LANES_KEPT + 50):
        change(made, T0 + each, removed(each, since=T0 + each))
        made.apply(ExecutorRemoved(each, LOSS), T0 + each)
    assert len(made.ended()) == 200
    assert made.ended()[-1].id == LANES_KEPT + 49
    assert len(made.events()) == EVENTS_KEPT
    lanes, _, _ = timeline(made)
    assert len(lanes) == LANES_KEPT
    (old,) = made.changes(made.seq - 1000, 1).ended
    assert (old.loss, old.why, old.pod) == ("OOM_KILLED", None, None)
    assert len(made._losses) == 60


def test_an_executor_that_goes_to_and_fro_keeps_a_bounded_number_of_states() -> None:
    made = history(executor(1, REQUESTED), executor(1, PENDING))
    for each in range(100):
        change(made, T0 + 10 * each, executor(1, PENDING, stuck="ErrImagePull"))
        change(made, T0 + 10 * each + 5, executor(1, PENDING))
    ((_, _, _, states, _, _),) = timeline(made)[0]
    assert len(states) <= MOST_STATES
    assert states[0] == (0, T0)
    assert states[-1] == (1, T0 + 995)


def test_losses_of_the_last_hour_are_counted_by_kind() -> None:
    made = history(removed(1), removed(2), removed(3, replace(LOSS, kind=LossKind.EVICTED)))
    change(made, T0 + 3, removed(4, since=T0 + 3, profile="gpu"))
    assert made.losses("default", T0 + 60) == {"OOM_KILLED": 2, "EVICTED": 1}
    assert made.losses("gpu", T0 + 60) == {"OOM_KILLED": 1}
    assert made.losses("default", T0 + HOUR + 120) == {}


def test_the_driver_has_columns_of_its_own() -> None:
    made, feed = history(executor(1, RUNNING)), Feed(ManualClock())

    def annotate(executor_id: int, **columns: object) -> None:
        feed.annotate(executor_id, columns)
        for _, notes in feed.take():
            assert isinstance(notes, Notes)
            made.annotate(notes.executor_id, notes.columns)

    annotate(1, stage=3, host="a\x1b[31m\nb", long="x" * 999, **{"\x1b" * 99: "\ud800"})
    annotate(7, stage=1)
    (row,) = made.living()
    assert row.notes["stage"] == "3"
    assert row.notes["host"] == r"a\x1b[31m\nb"
    assert len(row.notes["long"]) == 200
    assert [text for text in (*row.notes, *row.notes.values()) if not text.isprintable()] == []
    annotate(1, stage=None)
    assert "stage" not in made.living()[0].notes
    assert made.columns()[:3] == ["stage", "host", "long"]
    annotate(1, **{f"c{each}": each for each in range(99)})
    assert len(made.columns()) == MOST_COLUMNS


@pytest.mark.parametrize("hostile", ["<script>\x1b[31m\r\nX", "\u202egnp.exe", "a\x00b"])
def test_texts_of_strangers_are_one_line(hostile: str) -> None:
    loss = replace(LOSS, message=hostile)
    made = told(
        AllocationBlocked(hostile, hostile),
        ExecutorStuck(1, hostile, hostile, None, profile=hostile, node=hostile),
        ExecutorTerminating(1, None, hostile, profile=hostile, node=hostile, ip=hostile),
        ExecutorRemoved(2, loss, profile=hostile, node=hostile, ip=hostile),
        BackendFailed(ValueError(hostile)),
    )
    strange: dict[str, Any] = {"profile": hostile, "node": hostile, "ip": hostile, "pod": hostile, "reason": hostile}
    change(made, T0, executor(1, TERMINATING, **strange), executor(2, ENDED, loss=loss, **strange))
    lanes, profiles, nodes = timeline(made)
    texts = [made.failure, *profiles, *nodes]
    for row in (*made.living(), *made.ended(), *made.events()):
        texts += [value for value in asdict(row).values() if isinstance(value, str)]
    assert [text for text in texts if text is not None and not text.isprintable()] == []
    assert len(lanes) == 2


def test_a_started_fleet_is_known_by_its_message() -> None:
    made = told(BackendStarted("etl", "batch"))
    assert made.started == BackendStarted("etl", "batch")
    assert [event.text for event in made.events()] == ["fleet etl started in namespace batch"]
