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
    ExecutorPending,
    ExecutorRemoved,
    ExecutorRunning,
    ExecutorState,
    ExecutorStuck,
    ExecutorTerminating,
    FleetExecutors,
)
from actors.page.documents import Change, Lane
from actors.page.feed import Feed, Notes
from actors.page.history import EVENTS_KEPT, LANES_KEPT, MOST_COLUMNS, MOST_STATES, FleetHistory
from actors.pods.loss import LossKind, LossReason
from actors.testing.manual import ManualClock
from tests.unit.builders import pod

T0 = 1_700_000_000.0
HOUR = 3600.0
LOSS = LossReason(LossKind.OOM_KILLED, 137, caused_by_app=True, message="executor 1 was killed for its memory")


def removed(executor_id: int, loss: LossReason = LOSS) -> ExecutorRemoved:
    return ExecutorRemoved(executor_id, loss, node="node-9")


def executor(executor_id: int, state: ExecutorState, since: float = T0, **changes: Any) -> Executor:
    at = datetime.fromtimestamp(since, UTC)
    value = Executor(executor_id, "default", state, None, None, None, at, False, 0, None, None)  # noqa: FBT003
    return replace(value, **changes)


def history(*messages: Any) -> FleetHistory:
    """A history of messages that came a second apart."""
    made = FleetHistory(T0)
    for second, message in enumerate(messages):
        made.apply(message, T0 + second)
    return made


def timeline(made: FleetHistory) -> tuple[list[Lane], list[str], list[str]]:
    shown = made.timeline(T0)
    return shown.lanes, shown.profiles, shown.nodes


def test_an_executor_goes_through_its_states() -> None:
    made = history(
        ExecutorPending(1, pod(1, phase="Pending")),
        ExecutorStuck(1, "ImagePullBackOff", "no such image", None),
        ExecutorRunning(1, pod(1)),
        ExecutorTerminating(1, None, "executor 1 was retired by the driver", retiring=True),
    )
    (row,) = made.living()
    assert (row.state, row.since, row.requested_at, row.running_at) == ("terminating", T0 + 3, T0, T0 + 2)
    assert (row.why, row.retiring, row.pod) == ("executor 1 was retired by the driver", True, "app-exec-1")
    made.apply(removed(1), T0 + 4)
    assert made.living() == []
    (row,) = made.ended()
    assert (row.state, row.ended_at, row.loss, row.exit_code) == ("ended", T0 + 4, "OOM_KILLED", 137)
    assert (row.why, row.caused_by_app, row.node) == (LOSS.message, True, "node-9")
    lanes, profiles, nodes = timeline(made)
    states = [(0, T0), (1, T0), (2, T0 + 1), (3, T0 + 2), (4, T0 + 3)]
    assert lanes == [(1, 0, 0, states, T0 + 4, "OOM_KILLED")]
    assert (profiles, nodes) == (["default"], ["node-9"])


def test_a_stuck_executor_says_why_until_it_runs() -> None:
    made = history(
        ExecutorPending(1, pod(1, phase="Pending")), ExecutorStuck(1, "ImagePullBackOff", "no such image", None)
    )
    assert [(row.state, row.why) for row in made.living()] == [("stuck", "ImagePullBackOff: no such image")]
    made.apply(ExecutorRunning(1, pod(1)), T0 + 9)
    assert [(row.state, row.why) for row in made.living()] == [("running", None)]


def test_an_adopted_executor_began_when_its_node_took_it() -> None:
    started = datetime.fromtimestamp(T0 - HOUR, UTC)
    adopted = msgspec.structs.replace(pod(1), start_time=started)
    (row,) = history(ExecutorRunning(1, adopted)).living()
    assert (row.requested_at, row.running_at, row.since) == (T0 - HOUR,) * 3


def test_the_backends_answer_shows_what_no_message_says() -> None:
    made = history(ExecutorRunning(1, pod(1)))
    alive = (
        executor(1, ExecutorState.RUNNING, pod="app-exec-1", registered=True, restarts=3),
        executor(2, ExecutorState.REQUESTED, T0 + 5),
    )
    seq = made.seq
    made.observe(FleetExecutors(alive, ()), T0 + 6)
    one, two = made.living()
    assert (one.registered, one.restarts, one.state) == (True, 3, "running")
    assert (two.state, two.requested_at, two.pod) == ("requested", T0 + 5, None)
    assert len(made.changes(seq, 10).executors) == 2
    seq = made.seq
    made.observe(FleetExecutors(alive, ()), T0 + 7)
    assert made.seq == seq  # nothing has changed


def test_an_answer_takes_back_nothing_that_a_message_has_said_since() -> None:
    made = history(ExecutorPending(1, pod(1, phase="Pending")), ExecutorRunning(1, pod(1)))
    made.apply(removed(2), T0 + 2)
    made.observe(FleetExecutors((executor(1, ExecutorState.PENDING), executor(2, ExecutorState.RUNNING)), ()), T0 + 0.5)
    assert [(row.id, row.state) for row in made.living()] == [(1, "running")]
    made.observe(FleetExecutors((), ()), T0 + 0.5)
    assert [row.id for row in made.living()] == [1]


def test_an_executor_that_the_backend_no_longer_has_has_ended() -> None:
    made = history(ExecutorRunning(1, pod(1)))
    alive = (executor(1, ExecutorState.RUNNING), executor(2, ExecutorState.REQUESTED))
    made.observe(FleetExecutors(alive, ()), T0 + 1)
    last = executor(1, ExecutorState.ENDED, T0 + 2, loss=LOSS)
    made.observe(FleetExecutors((), (last,)), T0 + 3)
    assert made.living() == []
    assert [(row.id, row.loss, row.ended_at) for row in made.ended()] == [
        (1, "OOM_KILLED", T0 + 2),
        (2, None, T0 + 3),
    ]


def test_a_viewer_is_told_what_changed_since_his_last_look() -> None:
    made = history(ExecutorRunning(1, pod(1)), ExecutorRunning(2, pod(2)))
    seq = made.seq
    made.apply(ExecutorTerminating(2, None, "gone"), T0 + 5)
    made.apply(removed(2), T0 + 6)
    changes = made.changes(seq, 10)
    assert changes.executors == []
    assert [row.id for row in changes.ended] == [2]
    assert [event.event for event in changes.events] == ["terminating", "removed"]
    assert changes.seq == made.seq
    assert made.changes(made.seq, 10) == Change(made.seq, [], [], [])


def test_many_changes_come_in_parts_and_in_order() -> None:
    made = history(*(ExecutorRunning(each, pod(each)) for each in range(1, 8)))
    made.apply(removed(3), T0 + 9)
    since, told = int(T0 * 1000), []
    while since < made.seq:
        part = made.changes(since, 3)
        assert len(part.executors) + len(part.ended) <= 3
        since = part.seq
        told += [row.id for row in (*part.executors, *part.ended)]
    assert sorted(told) == [1, 2, 3, 4, 5, 6, 7]


def test_a_viewer_of_an_earlier_process_or_of_long_ago_loads_anew() -> None:
    made = history(ExecutorRunning(1, pod(1)))
    began = made.seq - 1
    assert made.can_tell_since(began)
    assert made.can_tell_since(made.seq)
    assert not made.can_tell_since(began - 1)
    assert not made.can_tell_since(made.seq + 1)
    for each in range(2, LANES_KEPT + 3):
        made.apply(removed(each), T0 + 2)
    assert not made.can_tell_since(began)
    assert made.can_tell_since(made.seq - LANES_KEPT)


def test_what_is_kept_is_bounded() -> None:
    made = FleetHistory(T0)
    for each in range(1, LANES_KEPT + 50):
        made.apply(removed(each), T0 + each)
    assert len(made.ended()) == 200
    assert made.ended()[-1].id == LANES_KEPT + 49
    assert len(made.events()) == EVENTS_KEPT
    lanes, _, _ = timeline(made)
    assert len(lanes) == LANES_KEPT
    (old,) = made.changes(made.seq - 500, 1).ended
    assert (old.loss, old.why) == ("OOM_KILLED", None)
    assert len(made._losses) == 60


def test_an_executor_that_goes_to_and_fro_keeps_a_bounded_number_of_states() -> None:
    made = history(ExecutorPending(1, pod(1, phase="Pending")))
    for each in range(100):
        made.apply(ExecutorStuck(1, "ErrImagePull", "", None), T0 + 10 * each)
        made.observe(FleetExecutors((executor(1, ExecutorState.PENDING, T0 + 10 * each + 5),), ()), T0 + 10 * each + 6)
    ((_, _, _, states, _, _),) = timeline(made)[0]
    assert len(states) <= MOST_STATES
    assert states[0] == (0, T0)
    assert states[-1] == (1, T0 + 995)


def test_losses_of_the_last_hour_are_counted_by_kind() -> None:
    made = history(removed(1), removed(2), removed(3, replace(LOSS, kind=LossKind.EVICTED)))
    made.apply(ExecutorRemoved(4, LOSS, profile="gpu"), T0 + 3)
    assert made.losses("default", T0 + 60) == {"OOM_KILLED": 2, "EVICTED": 1}
    assert made.losses("gpu", T0 + 60) == {"OOM_KILLED": 1}
    assert made.losses("default", T0 + HOUR + 120) == {}


def test_the_driver_has_columns_of_its_own() -> None:
    made, feed = history(ExecutorRunning(1, pod(1))), Feed(ManualClock())

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
    made = history(
        AllocationBlocked(hostile, hostile),
        ExecutorStuck(1, hostile, hostile, None, profile=hostile, node=hostile),
        ExecutorTerminating(1, None, hostile, profile=hostile, node=hostile, ip=hostile),
        ExecutorRemoved(2, loss, profile=hostile, node=hostile, ip=hostile),
        BackendFailed(ValueError(hostile)),
    )
    lanes, profiles, nodes = timeline(made)
    texts = [made.failure, *profiles, *nodes]
    for row in (*made.living(), *made.ended(), *made.events()):
        texts += [value for value in asdict(row).values() if isinstance(value, str)]
    assert [text for text in texts if text is not None and not text.isprintable()] == []
    assert len(lanes) == 2


def test_a_started_fleet_is_known_by_its_message() -> None:
    made = history(BackendStarted("etl", "batch"))
    assert made.started == BackendStarted("etl", "batch")
    assert [event.text for event in made.events()] == ["fleet etl started in namespace batch"]
