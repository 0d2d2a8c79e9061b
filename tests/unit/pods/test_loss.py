"""Loss reasons: kind, exit code, cause and message of an end."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from actors.pods.loss import (
    CAUSED_BY_APP,
    LossKind,
    RequestedEnd,
    explain,
    in_short,
    missing,
    never_started,
    stopped_with_fleet,
)
from actors.pods.pod import (
    Condition,
    ContainerSpec,
    ContainerState,
    ContainerStatus,
    Pod,
    PodSpec,
    PodStatus,
    RunningState,
    TerminatedState,
    WaitingState,
)
from actors.pods.state import PodDeleted, PodFailed, PodRules, PodState, PodSucceeded, PodTerminating
from actors.text import rfc3339
from tests.unit.builders import pod
from tests.unit.views import unschedulable

BY_US = RequestedEnd("was ended by us")
RULES = PodRules()
BEGUN = datetime(2024, 1, 1, tzinfo=UTC)
"""When a deletion began."""

GRACE = 30


def ended(code: int = 1, *, reason: str | None = "Error", message: str | None = None, after: int = 0) -> ContainerState:
    """A container that ended this many seconds after `BEGUN`."""
    finished = BEGUN + timedelta(seconds=after)
    return ContainerState(
        terminated=TerminatedState(exit_code=code, reason=reason, message=message, finished_at=finished)
    )


RUNNING = ContainerState(running=RunningState())


def made_of(
    *,
    phase: str = "Failed",
    reason: str | None = None,
    message: str | None = None,
    disrupted: str | None = None,
    disrupted_at: str | None = None,
    deleted: bool = False,
    inits: dict[str, ContainerState] | None = None,
    **states: ContainerState | None,
) -> Pod:
    """A pod of these containers; `deleted`: its deletion began at `BEGUN`."""
    subject = pod(7)
    metadata = msgspec.structs.replace(
        subject.metadata,
        deletion_timestamp=BEGUN + timedelta(seconds=GRACE) if deleted else None,
        deletion_grace_period_seconds=GRACE if deleted else None,
    )
    condition = Condition(type="DisruptionTarget", status="True", reason=disrupted, last_transition=disrupted_at)
    return msgspec.structs.replace(
        subject,
        metadata=metadata,
        spec=PodSpec(containers=tuple(ContainerSpec(name) for name in states)),
        status=PodStatus(
            phase=phase,
            reason=reason,
            message=message,
            conditions=(condition,) if disrupted is not None else None,
            container_statuses=tuple(ContainerStatus(name, state=state) for name, state in states.items()),
            init_container_statuses=tuple(ContainerStatus(name, state=state) for name, state in (inits or {}).items()),
        ),
    )


# ── kinds ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("code", [1, 137])
def test_an_executor_that_fails_by_itself_exited_and_it_is_the_applications_doing(code: int) -> None:
    reason = explain(7, PodFailed(made_of(executor=ended(code))), RULES)

    assert (reason.kind, reason.exit_code, reason.caused_by_app) == (LossKind.EXITED, code, True)


@pytest.mark.parametrize("state", [PodSucceeded, PodDeleted])
def test_an_executor_that_ends_with_0_unasked_finished_and_it_is_nobodys_fault(state: type[PodState]) -> None:
    reason = explain(7, state(made_of(executor=ended(0))), RULES)

    assert (reason.kind, reason.exit_code, reason.caused_by_app) == (LossKind.FINISHED, 0, False)
    assert reason.message.startswith("executor 7 (pod app-exec-7) finished by itself with exit code 0")


def test_an_executor_that_ends_with_0_in_a_failed_pod_exited() -> None:
    reason = explain(7, PodFailed(made_of(executor=ended(0), sidecar=ended(4))), RULES)

    assert (reason.kind, reason.exit_code, reason.caused_by_app) == (LossKind.EXITED, 0, True)


@pytest.mark.parametrize("code", [0, 137, 143])
def test_out_of_memory_is_recognized_by_the_reason_with_any_exit_code(code: int) -> None:
    reason = explain(7, PodFailed(made_of(executor=ended(code, reason="OOMKilled"))), RULES)

    assert (reason.kind, reason.exit_code, reason.caused_by_app) == (LossKind.OOM_KILLED, code, True)


@pytest.mark.parametrize(
    ("condition", "kind"),
    [
        ("PreemptionByScheduler", LossKind.PREEMPTED),
        ("EvictionByEvictionAPI", LossKind.EVICTED),
        ("TerminationByKubelet", LossKind.EVICTED),
        ("DeletionByTaintManager", LossKind.EVICTED),
        ("DeletionByPodGC", LossKind.NODE_LOST),
        ("DeletionByDeviceTaintManager", LossKind.EVICTED),
        ("SomethingNew", LossKind.EVICTED),
        ("PreemptedByAnotherScheduler", LossKind.PREEMPTED),
    ],
)
def test_a_disruption_is_not_the_applications_doing(condition: str, kind: LossKind) -> None:
    for state in (
        PodFailed(made_of(executor=ended(137), disrupted=condition)),
        PodFailed(made_of(executor=ended(143, after=2), disrupted=condition, deleted=True)),
        PodDeleted(made_of(phase="Running", executor=RUNNING, disrupted=condition, deleted=True)),
    ):
        reason = explain(7, state, RULES)
        assert (reason.kind, reason.caused_by_app) == (kind, False)


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        ("WorkloadEvictedDueToPreempted", LossKind.PREEMPTED),
        ("WorkloadEvictedDueToPodsReadyTimeout", LossKind.EVICTED),
        ("WorkloadEvictedDueToClusterQueueStopped", LossKind.EVICTED),
        ("WorkloadDeleted", LossKind.EVICTED),
        ("NoMatchingWorkload", LossKind.EVICTED),
        ("StoppedByKueue", LossKind.EVICTED),
    ],
)
def test_kueues_condition_is_read_like_a_disruption_with_its_words(reason: str, kind: LossKind) -> None:
    words = "Preempted to accommodate a higher priority Workload"
    condition = Condition("TerminationTarget", "True", reason, words, rfc3339(BEGUN))
    for phase in (PodFailed, PodDeleted):
        subject = made_of(executor=ended(143, after=2), deleted=True)
        assert subject.status is not None
        subject = msgspec.structs.replace(
            subject, status=msgspec.structs.replace(subject.status, conditions=(condition,))
        )
        loss = explain(7, phase(subject), RULES)
        assert (loss.kind, loss.caused_by_app) == (kind, False)
        assert f"; TerminationTarget: {reason}: {words}" in loss.message


def test_a_pod_that_ended_before_it_was_disrupted_ended_by_itself() -> None:
    subject = made_of(executor=ended(1, after=-5))
    assert subject.status is not None
    condition = Condition("DisruptionTarget", "True", "PreemptionByScheduler", last_transition=rfc3339(BEGUN))
    late = msgspec.structs.replace(subject, status=msgspec.structs.replace(subject.status, conditions=(condition,)))

    assert explain(7, PodFailed(late), RULES).kind is LossKind.EXITED


def test_a_pod_that_its_node_refused_never_started() -> None:
    """After OutOfcpu or NodeAffinity no container ran: the application did not cause it."""
    reason = explain(7, PodFailed(made_of(reason="OutOfcpu", message="Node didn't have enough cpu.")), RULES)

    assert (reason.kind, reason.exit_code, reason.caused_by_app) == (LossKind.NEVER_STARTED, -1, False)
    assert "OutOfcpu: Node didn't have enough cpu." in reason.message


def test_a_sidecar_that_failed_a_pod_before_its_deletion_is_not_the_deletions_doing() -> None:
    subject = made_of(deleted=True, executor=RUNNING, sidecar=ended(4, after=-5))

    reason = explain(7, PodFailed(subject), RULES)

    assert (reason.kind, reason.exit_code) == (LossKind.EXITED, 4)


@pytest.mark.parametrize(
    ("executor", "kind"),
    [(RUNNING, LossKind.EXITED), (ended(0), LossKind.EXITED), (ended(0, after=-1), LossKind.FINISHED)],
    ids=["running", "ended then", "ended before"],
)
def test_a_sidecar_that_was_out_of_memory_is_not_the_executor_out_of_memory(
    executor: ContainerState, kind: LossKind
) -> None:
    subject = made_of(executor=executor, sidecar=ended(137, reason="OOMKilled"))

    assert explain(7, PodFailed(subject), RULES).kind is kind


def test_a_sidecar_among_the_init_containers_does_not_fail_an_executor_that_finished() -> None:
    subject = made_of(inits={"proxy": ended(137, reason="OOMKilled", after=-5)}, executor=ended(0))

    assert explain(7, PodSucceeded(subject), RULES).kind is LossKind.FINISHED


def test_sidecars_that_do_not_count_do_not_fail_an_executor_that_finished() -> None:
    subject = made_of(executor=ended(0), sidecar=ended(4, after=-5))

    assert explain(7, PodFailed(subject), RULES).kind is LossKind.EXITED
    assert explain(7, PodFailed(subject), PodRules(check_all_containers=False)).kind is LossKind.FINISHED


def test_a_disruption_that_was_cancelled_is_ignored() -> None:
    subject = made_of(executor=ended(1))
    assert subject.status is not None
    condition = Condition(type="DisruptionTarget", status="False", reason="PreemptionByScheduler")
    spared = msgspec.structs.replace(subject, status=msgspec.structs.replace(subject.status, conditions=(condition,)))

    assert explain(7, PodFailed(spared), RULES).kind is LossKind.EXITED


@pytest.mark.parametrize(
    ("word", "kind"),
    [
        ("Evicted", LossKind.EVICTED),
        ("Preempting", LossKind.PREEMPTED),
        ("NodeLost", LossKind.NODE_LOST),
        ("NodeShutdown", LossKind.EVICTED),
        ("Terminated", LossKind.EVICTED),
    ],
)
def test_a_kubelets_status_reason_for_a_disruption_counts(word: str, kind: LossKind) -> None:
    reason = explain(7, PodFailed(made_of(reason=word, executor=ended(137))), RULES)

    assert (reason.kind, reason.caused_by_app) == (kind, False)


@pytest.mark.parametrize("after", [0, 1, GRACE])
@pytest.mark.parametrize(("killed", "kind"), [(True, LossKind.KILLED_BY_DRIVER), (False, LossKind.DELETED)])
def test_a_pod_that_ended_after_its_deletion_began_was_ended_by_the_deletion(
    after: int, kind: LossKind, *, killed: bool
) -> None:
    subject = made_of(deleted=True, executor=ended(143, after=after))

    reason = explain(7, PodFailed(subject), RULES, requested=BY_US if killed else None)

    assert (reason.kind, reason.exit_code, reason.caused_by_app) == (kind, 143, False)


@pytest.mark.parametrize("state", [PodFailed, PodDeleted])
def test_a_pod_that_ended_before_its_deletion_began_ended_by_itself(state: type[PodFailed | PodDeleted]) -> None:
    """A deletion timestamp is when the grace *ends*: this one began 29 s before its container did."""
    subject = made_of(deleted=True, executor=ended(3, after=-1))

    reason = explain(7, state(subject), RULES, requested=BY_US)

    assert (reason.kind, reason.exit_code, reason.caused_by_app) == (LossKind.EXITED, 3, True)


@pytest.mark.parametrize("deleted", [True, False], ids=["gracefully", "by force"])
def test_a_running_pod_that_is_gone_was_deleted(*, deleted: bool) -> None:
    state = PodDeleted(made_of(phase="Running", executor=RUNNING, deleted=deleted))

    assert explain(7, state, RULES).kind is LossKind.DELETED
    assert explain(7, state, RULES, requested=BY_US).kind is LossKind.KILLED_BY_DRIVER
    assert explain(7, state, RULES).exit_code == -1


def test_a_sidecar_that_had_ended_does_not_end_an_executor_that_was_deleted() -> None:
    state = PodDeleted(made_of(phase="Running", executor=RUNNING, sidecar=ended(0)))

    assert explain(7, state, RULES).kind is LossKind.DELETED


def test_a_pod_that_left_our_selector_is_released() -> None:
    reason = explain(7, PodDeleted(made_of(executor=RUNNING)), RULES, released=True)

    assert (reason.kind, reason.caused_by_app) == (LossKind.RELEASED, False)
    assert "labels were changed" in reason.message


def test_a_pod_that_terminates_for_ever_is_lost_with_its_node() -> None:
    state = PodTerminating(made_of(phase="Running", deleted=True, executor=RUNNING))

    reason = explain(7, state, RULES, node_lost=True)

    assert (reason.kind, reason.exit_code, reason.caused_by_app) == (LossKind.NODE_LOST, -1, False)


# ── exit codes ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_exit_code_is_the_executor_containers() -> None:
    subject = made_of(sidecar=ended(9), executor=ended(3))

    assert explain(7, PodFailed(subject), RULES).exit_code == 3


def test_else_it_is_the_first_ended_containers() -> None:
    subject = made_of(executor=RUNNING, quiet=None, first=ended(5, reason="OOMKilled"), second=ended(6))

    reason = explain(7, PodFailed(subject), RULES)

    assert (reason.kind, reason.exit_code) == (LossKind.EXITED, 5)


def test_an_init_container_counts_only_if_it_failed() -> None:
    waiting = ContainerState(waiting=WaitingState(reason="PodInitializing"))
    inits = {"good": ended(0), "bad": ended(4)}

    assert explain(7, PodFailed(made_of(inits=inits, executor=waiting)), RULES).exit_code == 4
    assert explain(7, PodFailed(made_of(inits={"good": ended(0)}, executor=waiting)), RULES).exit_code == -1


def test_without_any_ended_container_there_is_no_exit_code_but_for_a_success() -> None:
    assert explain(7, PodFailed(made_of()), RULES).exit_code == -1
    assert explain(7, PodSucceeded(made_of(phase="Succeeded")), RULES).exit_code == 0
    assert explain(7, PodDeleted(msgspec.structs.replace(pod(7), status=None)), RULES).exit_code == -1


# ── messages ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_message_has_executor_exit_code_pod_status_every_container_and_the_termination_message() -> None:
    subject = made_of(
        reason="Evicted",
        message="The node was low on memory.",
        inits={"setup": ended(0, reason="Completed")},
        executor=ended(137, message="Traceback: no more\n"),
        sidecar=RUNNING,
        late=ContainerState(waiting=WaitingState(reason="ImagePullBackOff")),
        odd=None,
    )

    assert explain(7, PodFailed(subject), RULES).message == (
        "executor 7 (pod app-exec-7) was evicted with exit code 137"
        " (SIGKILL: out of memory, killed by hand, or still running after the grace period)"
        "; pod status: Evicted: The node was low on memory."
        "; containers: setup ended with 0 (Completed), executor ended with 137 (Error), sidecar running,"
        " late waiting (ImagePullBackOff), odd in an unknown state"
        "; termination message: Traceback: no more"
    )


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (126, "cannot be executed"),
        (127, "was not found"),
        (128, "could not be started"),
        (137, "SIGKILL"),
        (139, "SIGSEGV"),
        (143, "SIGTERM"),
        (255, "out of range"),
    ],
)
def test_a_common_exit_code_is_explained(code: int, words: str) -> None:
    message = explain(7, PodFailed(made_of(executor=ended(code))), RULES).message

    assert f"exit code {code} (" in message
    assert words in message


def test_out_of_memory_and_storage_need_no_guess_at_their_exit_code() -> None:
    message = explain(7, PodFailed(made_of(executor=ended(137, reason="OOMKilled"))), RULES).message

    assert "using more memory than its limit with exit code 137;" in message
    over = made_of(reason="Evicted", message='Usage of EmptyDir volume "v" exceeds the limit', executor=ended(137))
    assert "more local storage than its pod may with exit code 137;" in explain(7, PodFailed(over), RULES).message


def test_a_long_termination_message_keeps_its_end() -> None:
    message = explain(7, PodFailed(made_of(executor=ended(1, message="x" * 5_000 + " the point"))), RULES).message

    assert message.endswith("x the point")
    assert len(message) < 2_500


def test_every_kind_has_a_message_for_every_state() -> None:
    """Every combination of pod and circumstances has an explanation."""
    pods = [
        made_of(deleted=deleted, disrupted=disrupted, executor=state)
        for deleted in (False, True)
        for disrupted in (None, "PreemptionByScheduler", "DeletionByPodGC")
        for state in (RUNNING, ended(1), ended(137, reason="OOMKilled"), ended(143, after=5), None)
    ]
    for subject in pods:
        for state in (PodFailed(subject), PodDeleted(subject), PodTerminating(subject)):
            for killed, released, lost in (
                (False,) * 3,
                (True, False, False),
                (False, True, False),
                (True, True, True),
            ):
                requested = BY_US if killed else None
                reason = explain(7, state, RULES, requested=requested, released=released, node_lost=lost)
                assert reason.message.startswith("executor 7 (pod app-exec-7) ")
                assert reason.caused_by_app == (reason.kind in CAUSED_BY_APP)


UNASKED = "SIGTERM: by its kubelet after a failed liveness or startup probe, or by a process in its pod"


def test_a_sigterm_without_a_deletion_names_who_may_have_sent_it() -> None:
    assert f"exit code 143 ({UNASKED})" in explain(7, PodFailed(made_of(executor=ended(143))), RULES).message
    deleted = explain(7, PodFailed(made_of(deleted=True, executor=ended(143, after=2))), RULES)
    assert "exit code 143 (SIGTERM: it was told to end)" in deleted.message


def test_an_end_that_nobody_saw_has_no_exit_code_and_is_called_unseen() -> None:
    reason = explain(7, PodFailed(made_of(executor=ended(255, reason="Unknown"))), RULES)

    assert (
        reason.message
        == "executor 7 (pod app-exec-7) was lost with its node; containers: executor ended unseen (Unknown)"
    )


def test_a_pod_without_a_node_that_was_deleted_says_what_it_waited_for() -> None:
    reason = explain(7, PodDeleted(unschedulable(7, "0/5 nodes are available")), RULES)

    assert reason.kind is LossKind.NEVER_STARTED
    assert reason.message == (
        "executor 7 (pod app-exec-7) never started: its pod was deleted before"
        "; it waited: Unschedulable: 0/5 nodes are available"
    )


# ── what was observed before ─────────────────────────────────────────────────────────────────────────────────────


ALIVE = made_of(phase="Running", executor=RUNNING)
TERMINATING = made_of(phase="Running", executor=RUNNING, deleted=True)
DISRUPTED = made_of(phase="Running", executor=RUNNING, disrupted="EvictionByEvictionAPI")


@pytest.mark.parametrize("behind", [0, 3, 30, 300])
def test_a_pod_that_was_alive_after_its_deletion_began_was_ended_by_it_whatever_its_nodes_clock_says(
    behind: int,
) -> None:
    subject = made_of(deleted=True, executor=ended(143, after=-behind))
    state = PodFailed(subject, last_alive=TERMINATING)

    assert explain(7, state, RULES).kind is LossKind.DELETED
    assert explain(7, state, RULES, requested=BY_US).kind is LossKind.KILLED_BY_DRIVER


def test_a_pod_that_was_alive_after_it_was_disrupted_was_ended_by_it_whatever_its_nodes_clock_says() -> None:
    subject = made_of(executor=ended(143, after=-300))
    assert subject.status is not None
    condition = Condition("DisruptionTarget", "True", "EvictionByEvictionAPI", last_transition=rfc3339(BEGUN))
    subject = msgspec.structs.replace(subject, status=msgspec.structs.replace(subject.status, conditions=(condition,)))

    assert explain(7, PodFailed(subject, last_alive=DISRUPTED), RULES).kind is LossKind.EVICTED
    assert explain(7, PodFailed(subject, last_alive=ALIVE), RULES).kind is LossKind.EXITED


def test_an_executor_that_was_alive_when_it_was_told_to_end_ended_for_that_whatever_its_nodes_clock_says() -> None:
    state = PodFailed(made_of(executor=ended(143, after=-300)))
    told = RequestedEnd("was ended by us", BEGUN)

    assert explain(7, state, RULES, requested=told).kind is LossKind.EXITED
    alive = RequestedEnd("was ended by us", BEGUN, was_alive=True)
    assert explain(7, state, RULES, requested=alive).kind is LossKind.KILLED_BY_DRIVER


@pytest.mark.parametrize(
    "subject",
    [
        made_of(reason="NodeAffinity"),
        made_of(reason="OutOfmemory", executor=ended(137)),
        made_of(reason="SomethingNew", message="Pod was rejected: no more room", executor=ended(143)),
    ],
    ids=["without its containers", "after they were ended", "for a reason that is not known"],
)
def test_a_pod_that_ran_and_that_its_node_then_refused_was_evicted(subject: Pod) -> None:
    """A kubelet that was restarted admits its pods again."""
    reason = explain(7, PodFailed(subject, last_alive=ALIVE), RULES)

    assert (reason.kind, reason.caused_by_app) == (LossKind.EVICTED, False)


def test_a_kubelet_that_makes_room_for_a_critical_pod_preempts() -> None:
    subject = made_of(reason="Preempting", disrupted="TerminationByKubelet", executor=ended(137))

    assert explain(7, PodFailed(subject), RULES).kind is LossKind.PREEMPTED


@pytest.mark.parametrize(
    ("said", "kind"),
    [("Evicted", LossKind.EVICTED), ("Terminated", LossKind.EVICTED), ("Preempting", LossKind.PREEMPTED)],
)
def test_a_kubelet_that_writes_its_condition_after_the_end_that_it_caused_has_caused_it(
    said: str, kind: LossKind
) -> None:
    """It writes the status of a pod that it evicts late; it evicts none whose containers have ended."""
    late = (BEGUN + timedelta(seconds=5)).isoformat()
    subject = made_of(reason=said, disrupted="TerminationByKubelet", disrupted_at=late, executor=ended(143, after=2))

    reason = explain(7, PodFailed(subject, last_alive=ALIVE), RULES)

    assert (reason.kind, reason.exit_code, reason.caused_by_app) == (kind, 143, False)


# ── without an observed end ──────────────────────────────────────────────────────────────────────────────────────


TIMES: Any = {"absent": timedelta(seconds=31), "registered": None}


def test_a_missing_executor_has_the_exit_code_of_its_last_observed_pod() -> None:
    unknown = missing(7, None, RULES, **TIMES)
    assert (unknown.kind, unknown.exit_code, unknown.caused_by_app) == (LossKind.MISSING, -1, False)
    assert unknown.message.startswith("executor 7 is missing")

    known = missing(7, made_of(executor=ended(3)), RULES, **TIMES)
    assert (known.kind, known.exit_code) == (LossKind.MISSING, 3)
    assert "app-exec-7; containers: executor ended with 3" in known.message


def test_a_missing_executor_whose_end_was_requested_was_ended_by_the_driver() -> None:
    reason = missing(7, made_of(executor=RUNNING), RULES, BY_US, **TIMES)

    assert (reason.kind, reason.caused_by_app) == (LossKind.KILLED_BY_DRIVER, False)
    assert reason.message.startswith("executor 7 was ended by us: the cluster has had no pod of it")


def test_the_message_of_an_executor_that_never_started_has_the_cause() -> None:
    reason = never_started(7, "its pod was not seen for 60 s")

    assert (reason.kind, reason.exit_code, reason.caused_by_app) == (LossKind.NEVER_STARTED, -1, False)
    assert reason.message == "executor 7 never started: its pod was not seen for 60 s"


def test_an_executor_that_is_stopped_with_the_fleet_was_ended_by_the_driver() -> None:
    reason = stopped_with_fleet(7)

    assert (reason.kind, reason.caused_by_app) == (LossKind.KILLED_BY_DRIVER, False)
    assert "executor 7" in reason.message


# ── retired ──────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("after", "kind"), [(4, LossKind.OOM_KILLED), (5, LossKind.KILLED_BY_DRIVER)])
def test_whatever_ends_a_retired_executor_the_driver_ended_it_unless_it_had_ended_before(
    after: int, kind: LossKind
) -> None:
    retired = RequestedEnd("was retired", BEGUN + timedelta(seconds=5, milliseconds=900), however=True)
    subject = made_of(executor=ended(137, reason="OOMKilled", after=after))
    assert explain(7, PodFailed(subject), RULES, requested=retired).kind is kind


@pytest.mark.parametrize(
    ("message", "short"),
    [
        ("executor 3 was evicted", "executor 3 was evicted"),
        ("executor 3 exited; termination message: KeyError: 'a'", "KeyError: 'a'; executor 3 exited"),
        (
            r"executor 3 exited; termination message: Traceback:\n  line 1\nKeyError: 'a'\n\n",
            r"KeyError: 'a'; executor 3 exited; before: Traceback:\n  line 1",
        ),
    ],
)
def test_in_short_the_last_line_that_the_container_said_is_first(message: str, short: str) -> None:
    assert in_short(message) == short
