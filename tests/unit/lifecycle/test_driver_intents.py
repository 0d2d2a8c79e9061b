"""DriverIntents: loss messages, labels and timeouts of single executors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from actors.lifecycle.driver_intents import DriverIntents
from actors.messages.internal import ExecutorKilled, LabelPod
from actors.pods.loss import RequestedEnd
from actors.pods.state import PodPending
from actors.settings import ExecutorSettings
from tests.unit.views import STARTED, pending, running

if TYPE_CHECKING:
    from actors.pods.pod import Pod

LABELS = {"kill_label": "state=killed", "decommission_label": "way=out"}


def intents(**settings: Any) -> DriverIntents:
    return DriverIntents(ExecutorSettings(image="worker:1", **settings))


def kill(executor_id: int, delete_at: float = 5.0) -> ExecutorKilled:
    return ExecutorKilled(executor_id, STARTED, delete_at)


# ── requested ends ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_end_of_a_killed_executor_was_requested_by_the_driver() -> None:
    subject = intents()
    subject.kill(kill(1))
    assert subject.requested_end(1, "uid-1") == RequestedEnd("was ended by the driver", STARTED)
    assert subject.requested_end(2, "uid-2") is None
    subject.forget(1)
    assert subject.requested_end(1, "uid-1") is None


def test_a_killed_executor_was_alive_after_that_if_its_pod_was_observed_with_the_label_of_the_kill() -> None:
    subject = intents(**LABELS)
    marked = with_labels(state="killed")
    subject.observe_alive(1, marked)
    subject.kill(kill(1))
    subject.observe_alive(1, marked)
    assert subject.requested_end(1, "uid-1") == RequestedEnd("was ended by the driver", STARTED), "it had the label"
    subject.label(1, running(1), 0.0)
    subject.observe_alive(1, running(1))
    assert subject.requested_end(1, "uid-1") == RequestedEnd("was ended by the driver", STARTED), "it may be older"
    subject.observe_alive(1, marked)
    assert subject.requested_end(1, "uid-1") == RequestedEnd("was ended by the driver", STARTED, was_alive=True)
    subject.forget(1)
    subject.kill(kill(1))
    assert subject.requested_end(1, "uid-1") == RequestedEnd("was ended by the driver", STARTED)


def test_a_killed_executor_is_overdue_after_its_grace_period() -> None:
    subject = intents()
    subject.kill(kill(1, delete_at=5.0))
    assert list(subject.overdue(4.9)) == []
    assert list(subject.overdue(5.0)) == [1]


def test_an_executor_that_runs_before_it_is_scaled_down_has_no_requested_end() -> None:
    subject = intents()
    subject.scale_down(["uid-1", "uid-2"])
    subject.forget_pod("uid-1")
    assert subject.requested_end(1, "uid-1") is None
    requested = subject.requested_end(2, "uid-2")
    assert requested is not None
    assert "scaled down" in requested.text


def test_a_scaled_down_pod_is_forgotten_at_the_second_full_sync_without_it() -> None:
    subject = intents()
    subject.scale_down(["uid-1", "uid-2"])
    states = {2: PodPending(pending(2))}
    subject.synced(states)
    assert subject.requested_end(1, "uid-1") is not None, "its end may still have to be reported"
    subject.synced(states)
    assert (subject.requested_end(1, "uid-1") is None, subject.requested_end(2, "uid-2") is None) == (True, False)


def test_a_scaled_down_pod_that_is_observed_between_two_full_syncs_without_it_is_remembered() -> None:
    subject = intents()
    subject.scale_down(["uid-2"])
    for states in ({}, {2: PodPending(pending(2))}, {}):
        subject.synced(states)
    assert subject.requested_end(2, "uid-2") is not None


def test_an_executor_is_killed_until_it_has_ended() -> None:
    subject = intents()
    subject.kill(kill(1))
    assert (subject.is_killed(1), subject.is_killed(2)) == (True, False)
    subject.forget(1)
    assert not subject.is_killed(1)


def with_labels(**labels: str) -> Pod:
    """Return executor 1's pod with additional labels."""
    plain = running(1)
    metadata = msgspec.structs.replace(plain.metadata, shared_labels={**plain.labels, **labels})
    return msgspec.structs.replace(plain, metadata=metadata)


# ── labels ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def label(labels: dict[str, str], **annotations: str) -> LabelPod:
    """Return a label request for executor 1's pod."""
    return LabelPod(running(1).name, "uid-1", labels, annotations)


def test_a_killed_executors_pod_is_labelled_until_its_grace_period_ends() -> None:
    subject = intents(**LABELS)
    subject.kill(kill(1, delete_at=5.0))
    assert subject.label(2, running(2), 0.0) is None
    assert subject.label(1, running(1), 5.0) is None
    assert subject.label(1, running(1), 0.0) == label({"state": "killed"})


def test_a_label_that_a_pod_has_or_that_was_requested_is_not_requested_again() -> None:
    subject = intents(**LABELS)
    subject.kill(kill(1))
    subject.decommission(1)
    assert subject.label(1, running(1), 0.0) == label({"state": "killed", "way": "out"})
    assert subject.label(1, running(1), 0.0) is None
    assert subject.label(1, with_labels(state="killed"), 0.0) == label({"way": "out"})
    assert subject.label(1, with_labels(state="killed", way="out"), 0.0) is None


def test_a_decommissioned_executors_pod_gets_a_label_and_a_deletion_cost() -> None:
    subject = intents(decommission_label="example.com/a=b", decommission_deletion_cost=-7)
    subject.decommission(1)
    cost = {"controller.kubernetes.io/pod-deletion-cost": "-7"}
    assert subject.label(1, with_labels(**{"example.com/a": "b"}), 0.0) is None
    assert subject.label(1, running(1), 0.0) == label({"example.com/a": "b"}, **cost)


def test_a_deletion_cost_needs_no_label() -> None:
    subject = intents(decommission_deletion_cost=-7)
    subject.decommission(1)
    cost = {"controller.kubernetes.io/pod-deletion-cost": "-7"}
    assert subject.label(1, running(1), 0.0) == label({}, **cost)
    assert subject.label(1, running(1), 1.0) is None


def test_without_settings_nothing_is_labelled() -> None:
    subject = intents()
    subject.kill(kill(1))
    subject.decommission(1)
    assert subject.label(1, running(1), 0.0) is None
