"""What a driver wants of single executors, and what follows from it."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import msgspec

from actors.lifecycle.driver_intents import DriverIntents
from actors.messages import ExecutorKilled, LabelPod, LedgerEntry
from actors.pods.loss import Asked
from actors.pods.state import PodPending
from actors.settings import ExecutorSettings
from tests.unit.views import STARTED, pending, running

if TYPE_CHECKING:
    from actors.pods.pod import Pod

TIMEOUT = timedelta(seconds=120)
MARKED = {"kill_label": "state=killed", "decommission_label": "way=out"}


def wishes(**settings: Any) -> DriverIntents:
    return DriverIntents(ExecutorSettings(image="worker:1", **settings))


def kill(executor_id: int, delete_at: float = 5.0) -> ExecutorKilled:
    return ExecutorKilled(executor_id, STARTED, delete_at)


# ── ends that were asked for ─────────────────────────────────────────────────────────────────────────────────────────


def test_of_a_killed_one_is_said_who_ended_it_and_since_when() -> None:
    subject = wishes()
    subject.kill(kill(1))
    assert subject.asked(1, "uid-1") == Asked("was ended by the driver", STARTED)
    assert subject.asked(2, "uid-2") is None
    subject.forget(1)
    assert subject.asked(1, "uid-1") is None


def test_a_killed_one_is_to_end_when_its_time_is_over() -> None:
    subject = wishes()
    subject.kill(kill(1, delete_at=5.0))
    assert list(subject.to_end(4.9)) == []
    assert list(subject.to_end(5.0)) == [1]


def test_one_that_was_taken_back_too_late_runs_on_and_was_not_asked_to_go() -> None:
    subject = wishes()
    subject.take_back(["uid-1", "uid-2"])
    subject.forget_pod("uid-1")
    assert subject.asked(1, "uid-1") is None
    asked = subject.asked(2, "uid-2")
    assert asked is not None
    assert "not wanted any more" in asked.words


def test_what_was_taken_back_is_forgotten_at_the_second_full_sync_without_it() -> None:
    subject = wishes()
    subject.take_back(["uid-1", "uid-2"])
    states = {2: PodPending(pending(2))}
    subject.synced(states)
    assert subject.asked(1, "uid-1") is not None, "its end may still have to be told"
    subject.synced(states)
    assert (subject.asked(1, "uid-1") is None, subject.asked(2, "uid-2") is None) == (True, False)


def test_one_that_is_shown_again_between_two_full_syncs_without_it_is_remembered() -> None:
    subject = wishes()
    subject.take_back(["uid-2"])
    for states in ({}, {2: PodPending(pending(2))}, {}):
        subject.synced(states)
    assert subject.asked(2, "uid-2") is not None


# ── connections ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_connections_are_lost_after_a_time_each_on_its_own() -> None:
    subject = wishes()
    subject.disconnected(2, 0.0)
    subject.disconnected(1, 10.0)
    subject.disconnected(2, 60.0)
    assert subject.lost(119.9, TIMEOUT) == []
    assert subject.lost(120.0, TIMEOUT) == [2]
    subject.connected(2)
    assert subject.lost(130.0, TIMEOUT) == [1]


def test_after_a_restart_the_earliest_lost_connection_is_due_first_whatever_its_id() -> None:
    subject = wishes()
    subject.learn(LedgerEntry(i, "default", disconnected_at=100.0 - i) for i in range(1, 50))
    assert subject.lost(120.0 + 51.0, TIMEOUT) == [49]
    assert subject.lost(120.0 + 53.0, TIMEOUT) == [49, 48, 47]


def test_one_that_the_driver_ends_is_not_lost() -> None:
    subject = wishes()
    subject.disconnected(1, 0.0)
    subject.kill(kill(1))
    assert subject.lost(1_000.0, TIMEOUT) == []


def shown(**labels: str) -> Pod:
    """Executor 1's pod with these labels besides its own."""
    plain = running(1)
    metadata = msgspec.structs.replace(plain.metadata, labels={**plain.labels, **labels})
    return msgspec.structs.replace(plain, metadata=metadata)


# ── labels ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def label(labels: dict[str, str], **annotations: str) -> LabelPod:
    """A request for executor 1's pod."""
    return LabelPod(running(1).name, "uid-1", labels, annotations)


def test_a_killed_ones_pod_is_labelled_until_it_is_to_be_deleted() -> None:
    subject = wishes(**MARKED)
    subject.kill(kill(1, delete_at=5.0))
    assert subject.label(2, running(2), 0.0) is None
    assert subject.label(1, running(1), 5.0) is None
    assert subject.label(1, running(1), 0.0) == label({"state": "killed"})


def test_a_label_that_a_pod_has_or_that_was_asked_for_is_not_asked_for_again() -> None:
    subject = wishes(**MARKED)
    subject.kill(kill(1))
    subject.decommission(1)
    assert subject.label(1, running(1), 0.0) == label({"state": "killed", "way": "out"})
    assert subject.label(1, running(1), 0.0) is None
    assert subject.label(1, shown(state="killed"), 0.0) == label({"way": "out"})
    assert subject.label(1, shown(state="killed", way="out"), 0.0) is None


def test_a_decommissioned_ones_pod_gets_a_label_and_what_it_costs_to_delete_it() -> None:
    subject = wishes(decommission_label="example.com/a=b", decommission_deletion_cost=-7)
    subject.decommission(1)
    cost = {"controller.kubernetes.io/pod-deletion-cost": "-7"}
    assert subject.label(1, shown(**{"example.com/a": "b"}), 0.0) is None
    assert subject.label(1, running(1), 0.0) == label({"example.com/a": "b"}, **cost)


def test_a_deletion_cost_needs_no_label() -> None:
    subject = wishes(decommission_deletion_cost=-7)
    subject.decommission(1)
    cost = {"controller.kubernetes.io/pod-deletion-cost": "-7"}
    assert subject.label(1, running(1), 0.0) == label({}, **cost)
    assert subject.label(1, running(1), 1.0) is None


def test_without_settings_nothing_is_labelled() -> None:
    subject = wishes()
    subject.kill(kill(1))
    subject.decommission(1)
    assert subject.label(1, running(1), 0.0) is None
