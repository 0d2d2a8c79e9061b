"""`Pod` as decoded from the API, and `classify`: which state it is in."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.pods.api_pod import ApiPod
from actors.pods.ids import LAST_BELIEVED_ID, believed, parse_executor_id
from actors.pods.pod import (
    APP_ID_LABEL,
    EXECUTOR_ID_LABEL,
    INACTIVE_LABEL,
    ROLE_LABEL,
    Condition,
    ContainerSpec,
    ContainerState,
    ContainerStatus,
    ObjectMeta,
    OwnerReference,
    Pod,
    PodSpec,
    PodStatus,
    RestartRule,
    RunningState,
    TerminatedState,
    WaitingState,
    claims_of,
    executor_id,
    fleet_selector,
    restarts,
)
from actors.pods.state import (
    STRANGE,
    PodDeleted,
    PodFailed,
    PodPending,
    PodRules,
    PodRunning,
    PodState,
    PodSucceeded,
    PodTerminating,
    PodUnknown,
    classify,
    executor_container,
    malformed,
    runs_on,
    surely_runs_on,
)
from tests.unit.builders import DELETION, pod

RULES = PodRules()
EXECUTOR_ONLY = PodRules(check_all_containers=False)

RUNNING = ContainerState(running=RunningState())
WAITING = ContainerState(waiting=WaitingState(reason="ContainerCreating"))


def exited(code: int) -> ContainerState:
    return ContainerState(terminated=TerminatedState(exit_code=code))


def with_containers(phase: str = "Running", *, terminating: bool = False, **states: ContainerState) -> Pod:
    """A pod whose containers, in this order, are in these states."""
    return msgspec.structs.replace(
        pod(terminating=terminating),
        spec=PodSpec(containers=tuple(ContainerSpec(name) for name in states)),
        status=PodStatus(
            phase=phase, container_statuses=tuple(ContainerStatus(name, state=state) for name, state in states.items())
        ),
    )


def without_status(*, terminating: bool) -> Pod:
    return msgspec.structs.replace(pod(terminating=terminating), status=None)


# ── decoding ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_pod_is_decoded_from_the_apis_json_and_what_is_not_needed_is_skipped() -> None:
    subject = msgspec.json.decode(
        b"""{
          "kind": "Pod", "apiVersion": "v1",
          "metadata": {
            "name": "app-exec-7", "uid": "u", "resourceVersion": "42", "managedFields": [{"manager": "x"}],
            "labels": {"executor-pods/executor-id": "7", "executor-pods/profile": "big"},
            "deletionTimestamp": "2024-01-01T00:00:30Z", "deletionGracePeriodSeconds": 30,
            "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "driver", "uid": "d", "controller": true}]
          },
          "spec": {"nodeName": "n1", "containers": [{"name": "executor", "image": "i"}],
                   "volumes": [{"name": "token", "projected": {"sources": []}},
                               {"name": "data", "persistentVolumeClaim": {"claimName": "disk-1", "readOnly": true}},
                               {"name": "tmp", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}}]},
          "status": {
            "phase": "Running", "podIP": "10.0.0.1", "qosClass": "BestEffort",
            "conditions": [{"type": "Ready", "status": "False", "reason": "ContainersNotReady"}],
            "containerStatuses": [{"name": "executor", "restartCount": 1, "state": {"terminated":
              {"exitCode": 137, "reason": "OOMKilled", "finishedAt": "2024-01-01T00:00:05Z"}}}]
          }
        }""",
        type=ApiPod,
    ).pod()

    assert (subject.name, subject.uid, subject.resource_version, subject.profile) == ("app-exec-7", "u", "42", "big")
    assert executor_id(subject) == 7
    assert subject.terminating
    assert subject.status is not None
    assert subject.ip == "10.0.0.1"
    assert subject.metadata.owner_references is not None
    assert subject.metadata.owner_references[0].uid == "d"
    (container,) = subject.status.container_statuses or ()
    assert container.state is not None
    assert container.state.terminated is not None
    assert (container.state.terminated.exit_code, container.state.terminated.reason) == (137, "OOMKilled")
    assert list(claims_of(subject)) == ["disk-1"]


def test_a_pod_without_the_profile_label_is_of_the_default_profile() -> None:
    assert Pod().profile == "default"


def test_the_fleets_selector_excludes_inactive_pods_by_default() -> None:
    everything = "executor-pods/app-id=app,executor-pods/role=executor"

    assert fleet_selector("app") == f"{everything},executor-pods/inactive!=true"
    assert fleet_selector("app", active_only=False) == everything


# ── ids and malformed pods ───────────────────────────────────────────────────────────────────────────────────────


@given(st.integers(min_value=1, max_value=10**18 - 1))
def test_an_executor_id_is_read_back_as_it_was_written(number: int) -> None:
    assert executor_id(labelled(str(number))) == number


@pytest.mark.parametrize("text", ["", "0", "07", "-1", "+1", "1.0", " 1", "seven", "1_0", "٣", "²", "9" * 19])
def test_an_id_that_is_no_plain_number_from_1_is_malformed(text: str) -> None:
    assert executor_id(labelled(text)) is None
    assert EXECUTOR_ID_LABEL in (malformed(labelled(text)) or "")


def labelled(text: str) -> Pod:
    metadata = ObjectMeta(name=f"app-exec-{text}", uid="u", shared_labels={EXECUTOR_ID_LABEL: text})
    return Pod(metadata=metadata, status=PodStatus())


@pytest.mark.parametrize("name", ["", "stray", "app-exec-8", "app-exec-17", "exec-7", "app-exec-07"])
def test_a_pod_whose_name_is_not_that_of_its_executor_is_malformed(name: str) -> None:
    subject = labelled("7")
    assert (
        executor_id(msgspec.structs.replace(subject, metadata=ObjectMeta(name=name, shared_labels=subject.labels)))
        is None
    )


def test_an_id_is_counted_on_from_only_if_billions_may_follow_it() -> None:
    assert (believed(7), believed(LAST_BELIEVED_ID)) == (7, LAST_BELIEVED_ID)
    assert believed(LAST_BELIEVED_ID + 1) == 0
    assert parse_executor_id(str(LAST_BELIEVED_ID + 10**12)) == LAST_BELIEVED_ID + 10**12


@pytest.mark.parametrize("key", [APP_ID_LABEL, ROLE_LABEL, INACTIVE_LABEL])
def test_a_pod_that_the_selector_does_not_match_is_malformed_to_those_who_know_the_application(key: str) -> None:
    subject = pod()
    labels = {**subject.labels, key: "true"}
    other = msgspec.structs.replace(subject, metadata=msgspec.structs.replace(subject.metadata, shared_labels=labels))
    assert (malformed(other), malformed(other, "app")) == (None, STRANGE)
    assert malformed(subject, "app") is None


def test_a_pod_without_an_id_label_is_malformed() -> None:
    assert EXECUTOR_ID_LABEL in (malformed(Pod(metadata=ObjectMeta(uid="u"), status=PodStatus(phase="Running"))) or "")


def test_a_pod_without_a_uid_is_malformed() -> None:
    subject = pod()
    nameless = msgspec.structs.replace(subject, metadata=msgspec.structs.replace(subject.metadata, uid=""))

    assert "no UID" in (malformed(nameless) or "")


def test_a_pod_with_neither_status_nor_deletion_is_malformed_and_with_either_it_is_not() -> None:
    assert "neither a status nor a deletion timestamp" in (malformed(without_status(terminating=False)) or "")
    assert malformed(without_status(terminating=True)) is None
    assert malformed(pod()) is None


# ── the executor's container ─────────────────────────────────────────────────────────────────────────────────────


def test_the_executors_container_is_the_named_one_else_the_first() -> None:
    subject = with_containers(sidecar=RUNNING, executor=RUNNING)

    assert executor_container(subject, RULES) == "executor"
    assert executor_container(subject, PodRules(executor_container="other")) == "sidecar"
    assert executor_container(pod(), RULES) is None


def test_the_executors_container_is_the_one_that_the_fleet_made_whatever_stands_before_it_or_has_the_name() -> None:
    subject = msgspec.structs.replace(with_containers(executor=RUNNING, worker=RUNNING), made_container="worker")

    assert executor_container(subject, RULES) == "worker"
    assert executor_container(msgspec.structs.replace(subject, made_container="gone"), RULES) == "executor"


def test_the_restarts_of_a_pod_are_those_of_its_containers_and_sidecars() -> None:
    status = PodStatus(
        container_statuses=(ContainerStatus("executor", 2), ContainerStatus("log", 1)),
        init_container_statuses=(ContainerStatus("proxy", 4),),
    )

    assert restarts(msgspec.structs.replace(pod(), status=status)) == 7
    assert restarts(msgspec.structs.replace(pod(), status=None)) == 0


# ── states ───────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("phase", "state"),
    [
        ("Pending", PodPending),
        ("Running", PodRunning),
        ("Succeeded", PodSucceeded),
        ("Failed", PodFailed),
        ("Unknown", PodUnknown),
        ("Hibernating", PodUnknown),
        ("", PodUnknown),
        ("pending", PodPending),
        ("RUNNING", PodRunning),
        ("sUCCEEDED", PodSucceeded),
        ("FAILED", PodFailed),
    ],
)
def test_the_phase_decides_whatever_its_case(phase: str, state: type[PodState]) -> None:
    assert type(classify(pod(phase=phase), RULES)) is state


@pytest.mark.parametrize("phase", ["Pending", "Running", "Unknown", "Hibernating", ""])
def test_a_pod_whose_deletion_has_begun_is_terminating_until_it_ends(phase: str) -> None:
    assert type(classify(pod(phase=phase, terminating=True), RULES)) is PodTerminating


@pytest.mark.parametrize(("phase", "state"), [("Succeeded", PodSucceeded), ("Failed", PodFailed)])
def test_a_pod_that_ended_has_ended_also_while_it_terminates(phase: str, state: type[PodState]) -> None:
    assert type(classify(pod(phase=phase, terminating=True), RULES)) is state


def test_a_deletion_without_any_status_is_deleted() -> None:
    assert type(classify(without_status(terminating=True), RULES)) is PodDeleted


def test_a_status_without_a_phase_is_unknown() -> None:
    assert type(classify(msgspec.structs.replace(pod(), status=PodStatus()), RULES)) is PodUnknown


@pytest.mark.parametrize("rules", [RULES, EXECUTOR_ONLY])
@pytest.mark.parametrize("terminating", [False, True])
@pytest.mark.parametrize(("code", "state"), [(0, PodSucceeded), (3, PodFailed)])
def test_the_executors_container_ends_a_pod_of_several_containers(
    code: int, state: type[PodState], *, terminating: bool, rules: PodRules
) -> None:
    subject = with_containers(sidecar=RUNNING, executor=exited(code), terminating=terminating)

    assert type(classify(subject, rules)) is state


def test_a_failed_sidecar_fails_the_pod_only_if_all_containers_are_checked() -> None:
    subject = with_containers(executor=RUNNING, sidecar=exited(1))

    assert type(classify(subject, RULES)) is PodFailed
    assert type(classify(subject, EXECUTOR_ONLY)) is PodRunning


def test_a_sidecar_that_ended_well_changes_nothing() -> None:
    assert type(classify(with_containers(executor=RUNNING, sidecar=exited(0)), RULES)) is PodRunning


def test_a_pod_that_a_sidecar_failed_stays_failed_when_the_executor_then_ends_well() -> None:
    """A final state stays what it is, and so does the phase that the API will give it."""
    subject = with_containers(executor=exited(0), sidecar=exited(1))

    assert type(classify(subject, RULES)) is PodFailed
    assert type(classify(subject, EXECUTOR_ONLY)) is PodSucceeded


def test_the_phase_decides_for_a_single_container() -> None:
    assert type(classify(with_containers("Running", executor=exited(1)), RULES)) is PodRunning
    assert type(classify(with_containers("Pending", executor=WAITING), RULES)) is PodPending


def with_sidecar(executor: ContainerState, proxy: ContainerState = RUNNING, *, terminating: bool = False) -> Pod:
    """A running pod with a sidecar among its init containers."""
    subject = with_containers(executor=executor, terminating=terminating)
    assert subject.status is not None
    status = msgspec.structs.replace(subject.status, init_container_statuses=(ContainerStatus("proxy", state=proxy),))
    return msgspec.structs.replace(subject, status=status)


@pytest.mark.parametrize("rules", [RULES, EXECUTOR_ONLY])
@pytest.mark.parametrize("terminating", [False, True])
@pytest.mark.parametrize(("code", "state"), [(0, PodSucceeded), (3, PodFailed)])
def test_the_executors_container_ends_a_pod_whose_sidecar_among_the_init_containers_runs_on(
    code: int, state: type[PodState], *, terminating: bool, rules: PodRules
) -> None:
    assert type(classify(with_sidecar(exited(code), terminating=terminating), rules)) is state


@pytest.mark.parametrize("proxy", [RUNNING, WAITING, exited(0), exited(137)])
def test_a_sidecar_among_the_init_containers_never_ends_a_pod(proxy: ContainerState) -> None:
    assert type(classify(with_sidecar(RUNNING, proxy), RULES)) is PodRunning


RULE = RestartRule("Restart")
RESTARTED_BY = [{"restart_policy": "Always"}, {"restart_policy": "OnFailure"}, {"restart_policy_rules": (RULE,)}]


@pytest.mark.parametrize("policy", RESTARTED_BY)
@pytest.mark.parametrize("name", ["executor", "sidecar"])
def test_a_container_that_the_kubelet_restarts_does_not_end_a_pod_that_runs(name: str, policy: dict[str, Any]) -> None:
    states = {each: exited(1) if each == name else RUNNING for each in ("executor", "sidecar")}
    subject = with_containers(executor=states["executor"], sidecar=states["sidecar"])
    containers = (ContainerSpec(each, **(policy if each == name else {})) for each in ("executor", "sidecar"))
    restarting = msgspec.structs.replace(subject, spec=PodSpec(containers=tuple(containers)))

    assert type(classify(subject, RULES)) is PodFailed
    assert type(classify(restarting, RULES)) is PodRunning


def test_final_states_are_succeeded_failed_and_deleted() -> None:
    final = {state for state in PodState.__subclasses__() if state.final}

    assert final == {PodSucceeded, PodFailed, PodDeleted}
    assert len(PodState.__subclasses__()) == 7


_CONTAINERS = st.lists(
    st.builds(
        ContainerStatus,
        name=st.sampled_from(["executor", "sidecar", ""]),
        state=st.sampled_from([None, ContainerState(), RUNNING, WAITING, exited(0), exited(1)]),
    ),
    max_size=3,
).map(tuple)

_PODS = st.builds(
    Pod,
    metadata=st.builds(ObjectMeta, deletion_timestamp=st.sampled_from([None, DELETION])),
    spec=st.sampled_from([None, PodSpec(), PodSpec(containers=(ContainerSpec("executor"), ContainerSpec("sidecar")))]),
    status=st.none()
    | st.builds(
        PodStatus,
        phase=st.sampled_from([None, "Pending", "Running", "Succeeded", "Failed", "?"]),
        container_statuses=st.none() | _CONTAINERS,
    ),
)


@given(_PODS, st.builds(PodRules, check_all_containers=st.booleans()))
def test_every_pod_is_in_one_state_and_keeps_itself(subject: Pod, rules: PodRules) -> None:
    state = classify(subject, rules)

    assert state.pod is subject
    assert not (subject.terminating and isinstance(state, PodPending | PodRunning | PodUnknown))


def changed(**fields: object) -> Pod:
    """Return a running pod with other metadata."""
    subject = pod()
    return msgspec.structs.replace(subject, metadata=msgspec.structs.replace(subject.metadata, **fields))


@pytest.mark.parametrize(
    "after",
    [
        pod(version=2),
        msgspec.structs.replace(pod(), status=with_containers(executor=exited(3)).status),
        msgspec.structs.replace(
            pod(), status=PodStatus("Running", conditions=(Condition("DisruptionTarget", "True"),))
        ),
    ],
    ids=["version", "containers", "conditions"],
)
def test_a_running_pod_runs_on_whatever_its_status_says(after: Pod) -> None:
    assert runs_on(PodRunning(pod()), PodRunning(after))


@pytest.mark.parametrize(
    "after",
    [
        PodFailed(pod()),
        PodTerminating(pod(terminating=True)),
        PodRunning(changed(shared_labels={})),
        PodRunning(changed(finalizers=("a/b",))),
        PodRunning(changed(owner_references=(OwnerReference(uid="u"),))),
        PodRunning(msgspec.structs.replace(pod(), spec=PodSpec("node"))),
    ],
    ids=["end", "deletion", "labels", "finalizers", "owners", "spec"],
)
def test_a_pod_that_decisions_depend_on_does_not_just_run_on(after: PodState) -> None:
    assert not runs_on(PodRunning(pod()), after)


@pytest.mark.parametrize("before", [None, PodPending(pod(phase="Pending")), PodUnknown(pod(phase="?"))])
def test_a_pod_that_begins_to_run_does_not_just_run_on(before: PodState | None) -> None:
    assert not runs_on(before, PodRunning(pod()))


LAST = with_containers(executor=RUNNING)
RESTARTED = msgspec.structs.replace(LAST, status=with_containers(executor=exited(3)).status)


def restarted(**fields: object) -> Pod:
    """Return the restarted pod with other metadata."""
    return msgspec.structs.replace(RESTARTED, metadata=msgspec.structs.replace(LAST.metadata, **fields))


def test_the_quick_way_knows_a_restart_by_the_parts_that_stay() -> None:
    assert surely_runs_on(PodRunning(LAST), RESTARTED)
    assert surely_runs_on(PodRunning(LAST), RESTARTED.at_version("9"))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (PodPending(LAST), RESTARTED),
        (PodTerminating(LAST), RESTARTED),
        (PodRunning(LAST), msgspec.structs.replace(RESTARTED, status=None)),
        (PodRunning(LAST), msgspec.structs.replace(RESTARTED, status=PodStatus("Failed"))),
        (PodRunning(LAST), msgspec.structs.replace(RESTARTED, spec=PodSpec("node"))),
        (PodRunning(LAST), restarted(shared_labels={})),
        (PodRunning(LAST), restarted(finalizers=("a/b",))),
        (PodRunning(LAST), restarted(owner_references=(OwnerReference(uid="u"),))),
        (PodRunning(LAST), restarted(deletion_timestamp=DELETION)),
        (
            PodRunning(LAST),
            msgspec.structs.replace(RESTARTED, status=with_containers(executor=exited(3), sidecar=RUNNING).status),
        ),
    ],
    ids=["pending", "terminating", "gone", "end", "spec", "labels", "finalizers", "owners", "deletion", "sidecar"],
)
def test_the_quick_way_leaves_any_other_change_to_the_rules(before: PodState, after: Pod) -> None:
    assert not surely_runs_on(before, after)
    assert not runs_on(before, classify(after, RULES))


CRASHING = ContainerState(waiting=WaitingState("CrashLoopBackOff", "back-off 40s"))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (LAST, msgspec.structs.replace(LAST, status=with_containers(executor=CRASHING).status)),
        (with_sidecar(RUNNING), with_sidecar(RUNNING, CRASHING)),
        (with_sidecar(RUNNING), with_sidecar(CRASHING)),
    ],
    ids=["the executor", "its sidecar", "the executor beside a sidecar"],
)
def test_a_running_pod_does_not_just_run_on_when_a_crash_loop_begins_but_while_it_lasts(
    before: Pod, after: Pod
) -> None:
    after = msgspec.structs.replace(after, metadata=before.metadata, spec=before.spec)

    assert not surely_runs_on(PodRunning(before), after)
    assert not runs_on(PodRunning(before), PodRunning(after))
    assert runs_on(PodRunning(after), PodRunning(after))
    assert runs_on(PodRunning(after), PodRunning(before))


def test_the_quick_way_leaves_the_end_of_an_executor_beside_a_sidecar_to_the_rules() -> None:
    before = with_sidecar(RUNNING)
    after = msgspec.structs.replace(with_sidecar(exited(3)), metadata=before.metadata, spec=before.spec)

    assert not surely_runs_on(PodRunning(before), after)
