"""Connections: when an executor counts as lost, and whether it hangs or is cut off."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import msgspec
import pytest

from actors.lifecycle.connections import TOGETHER, Connections, Lost, Others, Peers, Verdict, judge, judged
from actors.messages.internal import LedgerEntry
from actors.pods.pod import Condition, Pod, PodSpec, PodStatus
from actors.pods.state import PodPending, PodRunning, PodState, PodUnknown
from tests.unit.views import pending, running, waiting

if TYPE_CHECKING:
    from actors.messages import Suspected

TIMEOUT = timedelta(seconds=120)

FINE, NOBODY = Others(connected=9), Others()


def others(connected: int, lost: int) -> Others:
    return Others(connected, lost)


# ── the rule ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("node", "fleet", "hung", "why"),
    [
        pytest.param(others(3, 0), others(9, 0), True, "9 of 9 others stayed connected", id="it alone"),
        pytest.param(NOBODY, others(9, 0), True, "9 of 9 others stayed connected", id="it alone, alone on its node"),
        pytest.param(NOBODY, others(1, 0), True, "1 of 1 others stayed connected", id="one of two"),
        pytest.param(others(9, 1), others(9, 1), True, "9 of 10 others stayed connected", id="two tasks hang at once"),
        pytest.param(others(0, 1), others(9, 1), False, "so were 1 of 1 other executors of its node", id="its node"),
        pytest.param(
            others(2, 1), others(9, 1), False, "so were 1 of 3 other executors of its node", id="much of its node"
        ),
        pytest.param(
            NOBODY, others(6, 3), False, "so were 3 of 9 other executors of the fleet", id="a zone of single ones"
        ),
        pytest.param(NOBODY, others(1, 1), False, "so were 1 of 2 other executors of the fleet", id="two of three"),
        pytest.param(NOBODY, others(0, 4), False, "so were 4 of 4 other executors of the fleet", id="all of them"),
        pytest.param(NOBODY, NOBODY, False, "no other executor stayed connected", id="the only one"),
    ],
)
def test_an_executor_hangs_if_the_others_of_its_node_and_of_the_fleet_stay_connected(
    node: Others, fleet: Others, *, hung: bool, why: str
) -> None:
    verdict = judge(None, runs=True, node_silent=False, waited=TIMEOUT, node=node, fleet=fleet)
    assert verdict == Verdict(hung, why)


@pytest.mark.parametrize(
    ("runs", "node_silent", "waited", "why"),
    [
        (False, False, TIMEOUT, "a container of its pod does not run"),
        (True, True, TIMEOUT, "its node does not answer"),
        (True, False, TOGETHER / 2, "executor.disconnect_timeout is too short to see who else is lost"),
    ],
)
def test_no_executor_hangs_of_which_too_little_is_known(
    *, runs: bool, node_silent: bool, waited: timedelta, why: str
) -> None:
    verdict = judge(None, runs=runs, node_silent=node_silent, waited=waited, node=FINE, fleet=FINE)
    assert verdict == Verdict(hung=False, why=why)


@pytest.mark.parametrize(
    ("suspected", "expected"),
    [
        ("hang", Verdict(hung=True, why="the driver suspects a hang")),
        ("network", Verdict(hung=False, why="the driver suspects the network")),
    ],
)
@pytest.mark.parametrize("fleet", [FINE, NOBODY, others(0, 9)])
def test_what_the_driver_suspects_decides_whatever_the_others_do(
    suspected: Suspected, expected: Verdict, fleet: Others
) -> None:
    assert judge(suspected, runs=True, node_silent=False, waited=timedelta(), node=fleet, fleet=fleet) == expected


# ── the others ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_others_stayed_connected_if_they_were_before_and_are_lost_with_it_if_they_were_in_the_same_minute() -> None:
    peers = Peers.of([("a", 0.0), ("b", 100.0), ("b", 101.0)], [("a", 100.0), ("a", 160.0), ("b", 40.0), (None, 161.0)])
    assert peers.others(100.0, "a") == Others(connected=1, lost=1)
    assert peers.others(100.0, "b") == Others(connected=1, lost=0), "it is none of them, but nobody else is, either"
    assert peers.others(100.0) == Others(connected=2, lost=2)
    assert peers.others(100.0, "c") == NOBODY


def test_those_that_were_removed_before_count_as_lost_with_the_later_ones_of_one_cut() -> None:
    """The driver notices one silent connection after the other; the first is removed while the last is waited for."""
    subject = Connections()
    for executor_id in (1, 2, 3):
        subject.lose(executor_id, 20.0 * executor_id, None)
    subject.connect(4, 0.0)
    states: dict[int, PodState] = {i: on("node", i) for i in (1, 2, 3, 4)}
    for executor_id in (1, 2, 3):
        now = 20.0 * executor_id + TIMEOUT.total_seconds()
        [(found, lost)] = subject.overdue(now, TIMEOUT)
        verdict = judged(lost, states[found], subject.peers(now, TIMEOUT, states.items()), now)
        assert (found, verdict.hung) == (executor_id, False)
        subject.give_up(executor_id, "node")
        subject.forget(executor_id)
        del states[executor_id]
    subject.peers(60.0 + 2 * TOGETHER.total_seconds() + TIMEOUT.total_seconds() + 1, TIMEOUT, ())
    subject.forget(4)
    assert len(subject) == 0, "nobody is remembered for ever"


@pytest.mark.parametrize(
    ("state", "hung"),
    [
        (PodRunning(running(1)), True),
        (PodUnknown(running(1)), False),
        (PodPending(pending(1)), False),
        (PodRunning(waiting(1, "CrashLoopBackOff")), False),
    ],
)
def test_only_an_executor_that_runs_can_hang(state: PodState, *, hung: bool) -> None:
    peers = Peers.of([("node", 0.0)], [("node", 5.0)])
    assert judged(Lost(5.0), state, peers, 125.0).hung is hung


@pytest.mark.parametrize(
    ("condition", "hung"),
    [
        (Condition("Ready", "False"), False),
        (Condition("Ready", "False", "ContainersNotReady"), True),
        (Condition("Ready", "True"), True),
    ],
    ids=["the node controller says so", "its own probe fails", "ready"],
)
def test_an_executor_on_a_node_that_does_not_answer_is_no_hung_one(condition: Condition, *, hung: bool) -> None:
    shown = msgspec.structs.replace(running(1), status=PodStatus("Running", conditions=(condition,)))
    peers = Peers.of([("another", 0.0)], [("node", 5.0)])
    assert judged(Lost(5.0), PodRunning(shown), peers, 125.0).hung is hung


def on(node: str, executor_id: int) -> PodRunning:
    pod: Pod = msgspec.structs.replace(running(executor_id), spec=PodSpec(node_name=node))
    return PodRunning(pod)


# ── the time ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def overdue(subject: Connections, now: float) -> list[int]:
    return [executor_id for executor_id, _ in subject.overdue(now, TIMEOUT)]


def test_each_disconnected_executor_has_a_timeout_of_its_own() -> None:
    subject = Connections()
    subject.lose(2, 0.0, None)
    subject.lose(1, 10.0, None)
    subject.lose(2, 60.0, None)
    assert overdue(subject, 119.9) == []
    assert overdue(subject, 120.0) == [2]
    subject.connect(2, 125.0)
    assert overdue(subject, 130.0) == [1]


def test_the_last_word_of_what_the_driver_suspects_counts_and_a_silence_is_none() -> None:
    subject = Connections()
    for suspected in (None, "network", "hang", None):
        subject.lose(1, 0.0, suspected)
    assert subject.overdue(120.0, TIMEOUT) == [(1, Lost(0.0, "hang"))]
    subject.connect(1, 121.0)
    subject.lose(1, 122.0, None)
    assert subject.overdue(242.0, TIMEOUT) == [(1, Lost(122.0))]


def test_after_a_restart_the_earliest_disconnected_executor_is_due_first() -> None:
    subject = Connections()
    subject.load(LedgerEntry(i, "default", disconnected_at=100.0 - i, suspected="hang") for i in range(1, 50))
    assert subject.overdue(120.0 + 51.0, TIMEOUT) == [(49, Lost(51.0, "hang"))]
    assert overdue(subject, 120.0 + 53.0) == [49, 48, 47]


def test_after_a_restart_the_connected_executors_are_known() -> None:
    subject = Connections()
    subject.load([LedgerEntry(1, "default", registered_at=3.0), LedgerEntry(2, "default")])
    peers = subject.peers(9.0, TIMEOUT, [(i, on("node", i)) for i in (1, 2)])
    assert peers.others(5.0, "node") == Others(connected=1)
