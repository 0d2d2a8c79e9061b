"""`PodDeduplicator`: shared parts of pods, unchanged pods, no-op events."""

from __future__ import annotations

import json
from copy import deepcopy
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.kube.deduplication import MAX_SHARED, PodDeduplicator
from actors.kube.http import decode
from actors.kube.http.decode import Complaints
from actors.kube.http.watch_lines import WatchDecoder
from actors.pods.api_pod import ApiMetadata, ApiPod, ApiStatus
from actors.pods.pod import EXECUTOR_ID_LABEL, PROFILE_LABEL, Pod, PodSpec

if TYPE_CHECKING:
    from actors.kube.api import PodPage, WatchEvents

RUNNING = {"name": "executor", "state": {"running": {"startedAt": "2024-01-01T00:00:01Z"}}, "restartCount": 0}
FINE = [{"type": kind, "status": "True"} for kind in ("Initialized", "Ready", "ContainersReady", "PodScheduled")]
OWNER = {"kind": "Pod", "name": "driver", "uid": "d", "controller": True}


def pod(number: int, *conditions: Any, node: str = "node-1", **status: Any) -> dict[str, Any]:
    return {
        "metadata": {
            "name": f"app-exec-{number}",
            "uid": f"u-{number}",
            "resourceVersion": "7",
            "labels": {PROFILE_LABEL: "default", EXECUTOR_ID_LABEL: str(number)},
            "ownerReferences": [OWNER],
        },
        "spec": {"nodeName": node, "containers": [{"name": "executor"}], "volumes": [{"name": f"token-{number}"}]},
        "status": {"phase": "Running", "conditions": [*FINE, *conditions], "containerStatuses": [RUNNING], **status},
    }


def page(*pods: Any, deduplicator: PodDeduplicator) -> PodPage:
    body = json.dumps({"metadata": {"resourceVersion": "9"}, "items": pods}).encode()
    return decode.pod_page(body, Complaints(), deduplicator)


def listed(*pods: Any, deduplicator: PodDeduplicator | None = None) -> tuple[Pod, ...]:
    return page(*pods, deduplicator=deduplicator or PodDeduplicator()).pods


class Watch:
    """One connection."""

    def __init__(self, deduplicator: PodDeduplicator, since: str = "1") -> None:
        self._decoder = WatchDecoder(since, Complaints(), deduplicator)

    def brings(self, *pods: Any, kind: str = "MODIFIED") -> WatchEvents:
        lines = b"\n".join(json.dumps({"type": kind, "object": each}).encode() for each in pods)
        [told], error = self._decoder.decode(lines)
        assert error is None
        return told


def watched(*pods: Any, deduplicator: PodDeduplicator, kind: str = "MODIFIED") -> tuple[Pod, ...]:
    return tuple(event.pod for event in Watch(deduplicator).brings(*pods, kind=kind).events)


def test_equal_parts_of_pods_are_kept_once_from_lists_and_watches() -> None:
    deduplicator = PodDeduplicator()
    a, b = *listed(pod(1), deduplicator=deduplicator), *watched(pod(2), deduplicator=deduplicator)
    assert a.spec is b.spec
    assert a.labels[PROFILE_LABEL] is b.labels[PROFILE_LABEL]
    assert a.metadata.owner_references is b.metadata.owner_references
    assert a.status is not None
    assert b.status is not None
    assert a.status.phase is b.status.phase
    assert a.status.container_statuses is b.status.container_statuses


def test_pods_of_other_addresses_and_starts_have_one_status_before_and_after_a_restart() -> None:
    deduplicator = PodDeduplicator()
    own = [{"podIP": f"10.0.0.{number}", "startTime": f"2024-01-01T00:00:0{number}Z"} for number in (1, 2)]
    for version, restarts in ((7, 0), (8, 1)):
        statuses = [RUNNING | {"restartCount": restarts}]
        shown = [at(version, pod(number, containerStatuses=statuses, **own[number - 1])) for number in (1, 2)]
        a, b = watched(*shown, deduplicator=deduplicator)
        assert a.status is b.status
        assert [(each.ip, each.start_time and each.start_time.second) for each in (a, b)] == [
            ("10.0.0.1", 1),
            ("10.0.0.2", 2),
        ]


def test_starts_that_no_two_pods_share_do_not_push_out_what_all_share() -> None:
    deduplicator = PodDeduplicator()
    shown = [pod(number, startTime=f"2024-01-01T{number // 60:02}:{number % 60:02}:00Z") for number in range(1440)]
    found = [each for _ in range(3) for each in listed(*shown, deduplicator=deduplicator)]
    assert len(deduplicator._parts._shared) < 20
    assert len({id(each.spec) for each in found}) == len({id(each.status) for each in found}) == 1


def test_an_event_that_changes_the_status_has_the_metadata_of_the_one_before_and_its_executor_id() -> None:
    deduplicator = PodDeduplicator()
    [first] = listed(pod(12), deduplicator=deduplicator)
    [second] = watched(at(8, pod(12, reason="Evicted")), deduplicator=deduplicator)
    deduplicator._parts._shared.clear()
    [third] = watched(at(9, pod(12, reason="Evicted")), deduplicator=deduplicator)
    assert third.status is second.status
    assert second.metadata is first.metadata
    assert (first.named_id, second.named_id) == (12, 12)
    assert (first.resource_version, second.resource_version) == ("7", "8")


def test_values_that_no_two_pods_share_do_not_pile_up_while_one_pod_changes() -> None:
    deduplicator = PodDeduplicator()
    listed(pod(1), deduplicator=deduplicator)
    for count in range(2 * MAX_SHARED):
        changed = pod(1)
        changed["metadata"]["resourceVersion"] = str(count + 8)
        changed["status"]["containerStatuses"] = [{"name": "executor", "restartCount": count}]
        watched(changed, deduplicator=deduplicator)
    assert len(deduplicator._parts._shared) <= MAX_SHARED + 8


def test_shared_labels_equal_the_decoded_ones() -> None:
    deduplicator = PodDeduplicator()
    a, b = listed(pod(1), pod(2), deduplicator=deduplicator)
    assert a.labels == {PROFILE_LABEL: "default", EXECUTOR_ID_LABEL: "1"}
    assert dict(b.labels) == {PROFILE_LABEL: "default", EXECUTOR_ID_LABEL: "2"}
    assert (a.metadata.labels, b.metadata.labels) == (a.labels, b.labels)
    assert b.labels.get("another") is None
    assert len(b.labels) == 2
    assert repr(a.labels) == repr(dict(a.labels))
    unnumbered = pod(3)
    del unnumbered["metadata"]["labels"][EXECUTOR_ID_LABEL]
    [found] = listed(unnumbered, deduplicator=deduplicator)
    assert found.labels == {PROFILE_LABEL: "default"}


def test_a_pods_identity_is_kept_once_however_often_it_changes() -> None:
    deduplicator = PodDeduplicator()
    [first] = listed(pod(1, podIP="10.0.0.1", startTime="2024-01-01T00:00:01Z"), deduplicator=deduplicator)
    changed = pod(1, podIP="10.0.0.1", startTime="2024-01-01T00:00:01Z")
    changed["metadata"]["resourceVersion"] = "8"
    [second] = watched(changed, deduplicator=deduplicator)
    assert second is not first
    for field in ("uid", "name", "shared_labels"):
        assert getattr(first.metadata, field) is getattr(second.metadata, field), field
    assert first.spec is second.spec
    assert first.status is second.status
    moved = pod(1, podIP="10.0.0.2", startTime="2024-01-01T00:00:02Z")
    moved["metadata"] |= {"resourceVersion": "9", "labels": {PROFILE_LABEL: "other", EXECUTOR_ID_LABEL: "1"}}
    [third] = watched(moved, deduplicator=deduplicator)
    assert third == listed(moved)[0]


@given(st.lists(st.sampled_from([pod(1), pod(2), pod(2, node="node-2"), pod(1, phase="Failed")])))
def test_a_pod_is_the_same_whatever_was_decoded_before_it(before: list[Any]) -> None:
    deduplicator = PodDeduplicator()
    listed(*before, deduplicator=deduplicator)
    [after] = listed(pod(3, node="node-3"), deduplicator=deduplicator)
    assert [after] == list(listed(pod(3, node="node-3")))
    assert after.labels[EXECUTOR_ID_LABEL] == "3"


def terminating(number: int, **status: Any) -> dict[str, Any]:
    found = pod(number, **status)
    found["metadata"] |= {"deletionTimestamp": "2024-01-01T00:00:00Z", "resourceVersion": "8"}
    return found


@pytest.mark.parametrize(
    ("kind", "event", "urgent"),
    [
        ("ADDED", pod(3, phase="Pending"), False),
        ("MODIFIED", pod(1, podIP="10.0.0.1"), False),
        ("MODIFIED", pod(1, phase="Failed"), True),
        ("ADDED", pod(3, phase="Succeeded"), True),
        ("MODIFIED", terminating(1), True),
        ("DELETED", pod(1), True),
        ("DELETED", pod(3), True),
        ("MODIFIED", terminating(2, phase="Failed"), False),
        ("DELETED", terminating(2, phase="Failed"), False),
        ("DELETED", terminating(5, phase="Failed"), True),
        ("ADDED", pod(3, phase="failed"), True),
    ],
)
def test_a_read_is_urgent_when_a_pod_ends_that_was_not_known_to_have_ended(
    kind: str, event: dict[str, Any], urgent: bool
) -> None:
    watch = Watch(PodDeduplicator())
    leaves_a_claim = pod(5, phase="Failed")
    leaves_a_claim["spec"]["volumes"] = [{"name": "disk", "persistentVolumeClaim": {"claimName": "scratch"}}]
    watch.brings(pod(1), pod(2, phase="Failed"), leaves_a_claim, kind="ADDED")
    assert watch.brings(event, kind=kind).urgent is urgent
    assert not watch.brings(pod(4, phase="Pending"), kind="ADDED").urgent


def test_a_list_with_an_unchanged_pod_returns_the_known_object() -> None:
    deduplicator = PodDeduplicator()
    a, b = *listed(pod(1), deduplicator=deduplicator), *watched(pod(2), deduplicator=deduplicator)
    for _ in range(3):
        deduplicator.begin_list()
        found = listed(pod(1), pod(2), pod(3), deduplicator=deduplicator)
        assert found[0] is a
        assert found[1] is b


def test_a_watch_event_of_an_unchanged_pod_has_the_known_object() -> None:
    deduplicator = PodDeduplicator()
    [a] = listed(pod(1), deduplicator=deduplicator)
    [again, b] = watched(pod(1), pod(1, phase="Failed"), deduplicator=deduplicator)
    assert again is a
    assert b is not a


def test_a_page_with_one_changed_pod_has_the_known_objects_of_the_others_in_their_places() -> None:
    deduplicator = PodDeduplicator()
    first, second, third = listed(pod(1), pod(2), pod(3), deduplicator=deduplicator)
    changed = at(8, pod(2, phase="Failed"))
    deduplicator.begin_list()
    polled = page(pod(1), changed, pod(3), pod(4), deduplicator=deduplicator)
    assert polled.pods[0] is first
    assert polled.pods[2] is third
    assert [each.status and each.status.phase for each in polled.pods] == ["Running", "Failed", "Running", "Running"]
    assert polled.pods[3].name == "app-exec-4"
    assert polled.pods[1].spec is second.spec
    assert polled.listed_versions == ["7", "8", "7", "7"]
    deduplicator.begin_list()
    assert [*map(id, page(pod(1), changed, pod(3), pod(4), deduplicator=deduplicator).pods)] == [*map(id, polled.pods)]


def test_changed_pods_of_a_page_share_with_their_last_observations() -> None:
    deduplicator = PodDeduplicator()
    _, last, _ = listed(*(pod(number, podIP=f"10.0.0.{number}") for number in (1, 2, 3)), deduplicator=deduplicator)
    deduplicator.begin_list()
    found = page(pod(1, podIP="10.0.0.1"), at(8, pod(2, podIP="10.0.0.2")), deduplicator=deduplicator).pods[1]
    assert found.metadata.uid is last.metadata.uid
    assert found.metadata.name is last.metadata.name
    assert found.status is last.status


@pytest.mark.parametrize(("phase", "kind", "events"), [("Failed", "DELETED", 1), ("Running", "MODIFIED", 0)])
def test_an_event_between_the_headers_and_the_decoding_is_judged_by_what_is_known(
    monkeypatch: pytest.MonkeyPatch, phase: str, kind: str, events: int
) -> None:
    deduplicator = PodDeduplicator()
    told: list[WatchEvents] = []
    watch, one = Watch(deduplicator), decode._one_pod
    watch.brings(pod(1), pod(2, phase=phase), kind="ADDED")
    deduplicator.begin_list()

    def late(raw: msgspec.Raw, complaints: Complaints) -> ApiPod | None:
        told.append(watch.brings(at(8, pod(2, phase=phase)), kind=kind))
        return one(raw, complaints)

    monkeypatch.setattr(decode, "_one_pod", late)
    page(pod(1), at(8, pod(2, phase=phase)), deduplicator=deduplicator)
    assert [(len(each.events), each.urgent) for each in told] == [(events, False)]


def test_a_pod_that_cannot_be_read_is_left_out_of_a_page_of_known_ones_and_counted() -> None:
    deduplicator = PodDeduplicator()
    first, third = listed(pod(1), pod(3), deduplicator=deduplicator)
    deduplicator.begin_list()
    nameless = {"metadata": {"uid": "u-2", "resourceVersion": "8", "name": []}}
    polled = page(pod(1), nameless, pod(3), deduplicator=deduplicator)
    assert polled.pods == (first, third)
    assert (polled.malformed, polled.listed_versions) == (1, ["7", "7"])


@pytest.mark.parametrize(
    ("metadata", "status"),
    [
        ({"resourceVersion": "8"}, {}),
        ({}, {"phase": "Failed"}),
        ({"deletionTimestamp": "2024-01-01T00:00:09Z"}, {}),
        ({"uid": "u-another"}, {}),
    ],
)
@pytest.mark.parametrize("others", [[], [pod(2)]])
def test_a_changed_pod_is_not_taken_for_the_known_one(
    metadata: dict[str, Any], status: dict[str, Any], others: list[Any]
) -> None:
    """Even at the same version, as after a restore from a backup."""
    deduplicator = PodDeduplicator()
    listed(pod(1), deduplicator=deduplicator)
    changed = pod(1, **status)
    changed["metadata"] |= metadata
    assert listed(changed, *others, deduplicator=deduplicator) == listed(changed, *others)


@pytest.mark.parametrize("lacking", ["uid", "resourceVersion"])
def test_pods_without_identity_are_not_taken_for_each_other(lacking: str) -> None:
    deduplicator = PodDeduplicator()
    first, second = pod(1), pod(1, node="node-2")
    del first["metadata"][lacking], second["metadata"][lacking]
    listed(first, deduplicator=deduplicator)
    assert listed(second, deduplicator=deduplicator) == listed(second)


def test_pods_that_are_gone_are_not_remembered() -> None:
    deduplicator = PodDeduplicator()
    listed(pod(1), pod(2), pod(3), deduplicator=deduplicator)
    watched(pod(1), deduplicator=deduplicator, kind="DELETED")
    for _ in range(2):
        deduplicator.begin_list()
        listed(pod(3), deduplicator=deduplicator)
    assert [*deduplicator._pods, *deduplicator._before] == ["u-3"]


def test_only_the_newest_observation_of_each_pod_is_remembered() -> None:
    deduplicator = PodDeduplicator()
    listed(pod(1), pod(2), deduplicator=deduplicator)
    deduplicator.begin_list()
    [newest] = watched(pod(1, phase="Failed"), deduplicator=deduplicator)
    assert {uid: known.pod for uid, known in deduplicator._pods.items()} == {"u-1": newest}
    assert [*deduplicator._before] == ["u-2"]


def test_a_deleted_event_keeps_its_own_pod() -> None:
    """A server may send it at the pod's last version but with its final container states."""
    deduplicator = PodDeduplicator()
    listed(pod(1), deduplicator=deduplicator)
    ended = pod(1, containerStatuses=[{"name": "executor", "state": {"terminated": {"exitCode": 3}}}])
    assert watched(ended, deduplicator=deduplicator, kind="DELETED") == listed(ended)


def test_a_list_that_lags_behind_the_watch_does_not_put_an_older_pod_in_place_of_a_newer_one() -> None:
    deduplicator = PodDeduplicator()
    listed(pod(1), deduplicator=deduplicator)
    deduplicator.begin_list()
    [newest] = watched(pod(1, phase="Failed"), deduplicator=deduplicator)
    assert listed(pod(1), deduplicator=deduplicator) == listed(pod(1))
    assert {uid: known.pod for uid, known in deduplicator._pods.items()} == {"u-1": newest}


def test_only_conditions_that_decisions_need_are_kept() -> None:
    unscheduled = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    disrupted = {"type": "DisruptionTarget", "status": "True"}
    spared = {"type": "DisruptionTarget", "status": "False"}
    found = listed(pod(1), pod(2, unscheduled), pod(3, disrupted), pod(4, spared), pod(5, conditions=None))
    left = [[each.type for each in one.status.conditions or ()] for one in found if one.status is not None]
    assert left == [[], ["PodScheduled"], ["DisruptionTarget"], [], []]


def test_a_pod_that_is_not_ready_keeps_the_condition_only_if_no_kubelet_gave_it_a_reason() -> None:
    by_kubelet = {"type": "Ready", "status": "False", "reason": "ContainersNotReady"}
    by_node_controller = {"type": "Ready", "status": "False"}
    found = listed(pod(1, by_kubelet), pod(2, by_node_controller))
    left = [[each.type for each in one.status.conditions or ()] for one in found if one.status is not None]
    assert left == [[], ["Ready"]]


def test_a_pod_read_by_name_has_all_of_its_conditions() -> None:
    """The driver reads its own pod this way and needs the Ready condition."""
    status = decode.pod(json.dumps(pod(1)).encode()).status
    assert status is not None
    assert [each.type for each in status.conditions or ()] == [each["type"] for each in FINE]


def test_values_that_no_two_pods_share_do_not_pile_up() -> None:
    deduplicator = PodDeduplicator()
    for number in range(MAX_SHARED):
        listed(pod(number, node=f"node-{number}", message=f"{number}"), deduplicator=deduplicator)
    assert len(deduplicator._parts._shared) < MAX_SHARED + 500


# ── what brings nothing ──────────────────────────────────────────────────────────────────────────────────────────────


def at(version: int, shown: dict[str, Any]) -> dict[str, Any]:
    """Return the same pod at a later version."""
    later = deepcopy(shown)
    later["metadata"] |= {"resourceVersion": str(version), "annotations": {"seen-at": str(version)}}
    return later


def versions(told: WatchEvents) -> list[str]:
    return [event.pod.resource_version for event in told.events]


def test_a_no_op_event_of_a_running_pod_only_moves_the_version() -> None:
    watch = Watch(PodDeduplicator())
    told = watch.brings(pod(1), at(8, pod(1)), pod(2), at(9, pod(2)))
    assert (versions(told), told.unchanged, told.resource_version) == (["7", "7"], 2, "9")
    told = watch.brings(at(10, pod(1)), at(11, pod(2)))
    assert (versions(told), told.unchanged, told.resource_version) == ([], 2, "11")


CHANGES: dict[str, Any] = {
    "metadata.labels": {PROFILE_LABEL: "other", EXECUTOR_ID_LABEL: "1"},
    "metadata.deletionTimestamp": "2024-01-01T00:00:09Z",
    "metadata.deletionGracePeriodSeconds": 30,
    "metadata.ownerReferences": [],
    "metadata.finalizers": ["example.com/hold"],
    "spec.nodeName": "node-2",
    "spec.restartPolicy": "Always",
    "spec.containers": [{"name": "another"}],
    "spec.schedulingGates": [{"name": "a-gate"}],
    "spec.volumes": [{"persistentVolumeClaim": {"claimName": "a-claim"}}],
    "status.phase": "Succeeded",
    "status.reason": "Evicted",
    "status.message": "The node was low on memory",
    "status.conditions": [{"type": "DisruptionTarget", "status": "True"}],
    "status.containerStatuses": [RUNNING | {"restartCount": 1}],
    "status.initContainerStatuses": [RUNNING],
    "status.podIP": "10.0.0.1",
    "status.startTime": "2024-01-01T00:00:01Z",
}
"""A change for every field of a `Pod`."""


def test_the_changes_are_of_every_field() -> None:
    fields = [
        f"{part}.{field.encode_name}"
        for part, kind in (("metadata", ApiMetadata), ("spec", PodSpec), ("status", ApiStatus))
        for field in msgspec.structs.fields(kind)
    ]
    identity = {"metadata.name", "metadata.uid", "metadata.resourceVersion"}
    assert CHANGES.keys() == set(fields) - identity


@pytest.mark.parametrize("field", CHANGES)
def test_any_changed_field_is_delivered_and_so_is_its_change_back(field: str) -> None:
    part, _, name = field.partition(".")
    changed = at(8, pod(1))
    changed[part][name] = CHANGES[field]
    watch = Watch(PodDeduplicator())
    assert versions(watch.brings(pod(1), changed, at(9, changed))) == (
        ["7", "8"] if _is_running(changed) else ["7", "8", "9"]
    )
    assert versions(watch.brings(at(10, pod(1)))) == ["10"]


def _is_running(shown: dict[str, Any]) -> bool:
    return bool(shown["status"]["phase"] == "Running")


@pytest.mark.parametrize("phase", ["Pending", "Succeeded", "Failed", "Unknown", None])
def test_every_version_of_a_pod_that_does_not_run_is_delivered(phase: str | None) -> None:
    """An excess pending pod is deleted only at its known version."""
    watch = Watch(PodDeduplicator())
    assert versions(watch.brings(pod(1, phase=phase), at(8, pod(1, phase=phase)))) == ["7", "8"]


def test_the_first_event_of_each_connection_is_delivered() -> None:
    """Events of an earlier connection may have been dropped after it was closed."""
    deduplicator = PodDeduplicator()
    first = Watch(deduplicator)
    first.brings(pod(1))
    second = Watch(deduplicator, since="7")
    assert versions(second.brings(at(8, pod(1)))) == ["8"]
    assert versions(second.brings(at(9, pod(1)))) == []
    assert versions(first.brings(at(9, pod(1)))) == ["9"], "a late event"


@pytest.mark.parametrize(("since", "told"), [("9", []), ("8", ["10"]), ("", ["10"])])
def test_a_list_counts_for_the_watch_that_starts_from_it(since: str, told: list[str]) -> None:
    """The pods of any other LIST may never have arrived, or be of another moment."""
    deduplicator = PodDeduplicator()
    listed(pod(1), deduplicator=deduplicator)
    assert versions(Watch(deduplicator, since).brings(at(10, pod(1)))) == told


def test_a_pod_that_comes_back_after_its_end_is_delivered() -> None:
    """It left our selector and matches it again."""
    watch = Watch(PodDeduplicator())
    watch.brings(pod(1))
    assert versions(watch.brings(at(8, pod(1)), kind="DELETED")) == ["8"]
    assert versions(watch.brings(at(9, pod(1)), kind="ADDED")) == ["9"]
    assert versions(watch.brings(at(10, pod(1)))) == []


def test_a_poll_after_a_no_op_event_returns_the_known_object_and_its_new_version() -> None:
    """At an older version than before, the pod would prove a reset."""
    deduplicator = PodDeduplicator()
    watch = Watch(deduplicator)
    [first] = watch.brings(pod(1), at(8, pod(1))).events
    for _ in range(2):
        deduplicator.begin_list()
        shown = page(at(8, pod(1)), pod(2), deduplicator=deduplicator)
        assert shown.pods[0] is first.pod
        assert [shown.listed_versions[place] for place in range(2)] == ["8", shown.pods[1].resource_version]
    assert versions(watch.brings(at(9, pod(1)))) == []


def test_a_poll_that_a_no_op_event_overtakes_returns_the_known_object_at_its_listed_version() -> None:
    """As another object, it would be compared in full and stored anew with each poll until it changes."""
    deduplicator = PodDeduplicator()
    watch = Watch(deduplicator)
    [first] = watch.brings(pod(1), at(8, pod(1))).events
    deduplicator.begin_list()
    watch.brings(at(12, pod(1)))
    for shown in (
        page(at(9, pod(1)), deduplicator=deduplicator),
        page(at(9, pod(1)), pod(2), deduplicator=deduplicator),
    ):
        assert shown.pods[0] is first.pod
        assert shown.listed_versions[0] == "9"
    assert versions(watch.brings(at(13, pod(1)))) == []


def test_a_poll_that_a_change_overtakes_returns_the_pod_as_it_was() -> None:
    """If the poll is later than the change after all, the store learns of a reset by it."""
    deduplicator = PodDeduplicator()
    watch = Watch(deduplicator)
    watch.brings(pod(1))
    deduplicator.begin_list()
    watch.brings(at(12, pod(1, reason="Evicted")))
    shown = page(at(9, pod(1)), deduplicator=deduplicator)
    assert (shown.pods[0].resource_version, shown.listed_versions[0]) == ("9", "9")


def test_a_version_between_no_op_events_may_be_of_another_change() -> None:
    """The cluster was restored from a backup, and an event from before arrives while the LIST from after is asked."""
    deduplicator = PodDeduplicator()
    watch = Watch(deduplicator)
    watch.brings(pod(1))
    deduplicator.begin_list()
    watch.brings(at(12, pod(1)))
    restored = at(9, pod(1))
    restored["status"]["containerStatuses"] = [{"name": "executor", "state": {"terminated": {"exitCode": 1}}}]
    (shown,) = page(restored, deduplicator=deduplicator).pods
    assert shown.status is not None
    assert shown.status.container_statuses != listed(pod(1))[0].status.container_statuses  # type: ignore[union-attr]  # it has one


def test_a_pod_at_an_earlier_version_than_before_the_poll_is_not_the_known_one() -> None:
    """The cluster was restored from a backup: that version may be of another change."""
    deduplicator = PodDeduplicator()
    watch = Watch(deduplicator)
    [first] = watch.brings(pod(1), at(12, pod(1))).events
    deduplicator.begin_list()
    restored = at(9, pod(1))
    restored["status"]["containerStatuses"] = [{**RUNNING, "restartCount": 1}]
    shown = page(restored, deduplicator=deduplicator)
    assert shown.pods[0] is not first.pod
    assert shown.pods[0].resource_version == "9"


def test_an_event_without_a_version_is_not_ignored_in_favour_of_the_one_before() -> None:
    """No API server sends such an event, but the change back after it is a change."""
    watch = Watch(PodDeduplicator())
    changed = pod(1, reason="Evicted")
    del changed["metadata"]["resourceVersion"]
    assert versions(watch.brings(pod(1), changed)) == ["7", ""]
    assert versions(watch.brings(at(9, pod(1)))) == ["9"]


@pytest.mark.parametrize("statuses_first", [True, False])
def test_labels_of_nothing_but_an_id_are_not_mistaken_for_another_empty_value(*, statuses_first: bool) -> None:
    bare = pod(1)
    bare["metadata"]["labels"] = {EXECUTOR_ID_LABEL: "1"}
    both = [pod(2, containerStatuses=[]), bare]
    found = {each.name: each for each in listed(*(both if statuses_first else reversed(both)))}
    assert dict(found["app-exec-1"].labels) == {EXECUTOR_ID_LABEL: "1"}
    assert found["app-exec-2"].status is not None
    assert found["app-exec-2"].status.container_statuses == ()


# ── pods of several containers ───────────────────────────────────────────────────────────────────────────────────────


def injected(number: int, **fields: Any) -> dict[str, Any]:
    """A pod with a proxy that a webhook put in front of the fleet's container."""
    made = {"name": "worker", "env": [{"name": "EXECUTOR_ID", "value": str(number)}]}
    return {**pod(number), "spec": {"containers": [{"name": "proxy"}, made]}, **fields}


def made_containers(pods: tuple[Pod, ...]) -> list[str | None]:
    return [each.made_container for each in pods]


def test_the_fleets_container_is_found_in_lists_watches_and_single_pods() -> None:
    several = (pod(1), injected(2), injected(3))
    assert made_containers(listed(*several)) == [None, "worker", "worker"]
    assert made_containers(watched(*several, deduplicator=PodDeduplicator())) == [None, "worker", "worker"]
    assert decode.pod(json.dumps(injected(2)).encode()).made_container == "worker"


def test_the_fleets_container_is_found_beside_a_pod_that_does_not_decode() -> None:
    broken = injected(1) | {"status": {"phase": "Running", "containerStatuses": "text"}}
    assert made_containers(listed(broken, injected(2))) == ["worker", "worker"]
    assert made_containers(watched(broken, injected(2), deduplicator=PodDeduplicator())) == ["worker", "worker"]


def test_the_fleets_container_is_found_in_a_poll_that_knows_most_pods() -> None:
    deduplicator = PodDeduplicator()
    listed(pod(1), pod(2), pod(3), deduplicator=deduplicator)
    deduplicator.begin_list()
    assert made_containers(listed(pod(1), pod(2), pod(3), injected(4), deduplicator=deduplicator)) == [
        *[None] * 3,
        "worker",
    ]


def test_the_fleets_container_stays_known_while_its_pod_changes() -> None:
    deduplicator = PodDeduplicator()
    watch = Watch(deduplicator)
    watch.brings(injected(1))
    changes = (
        at(8, injected(1, status={"phase": "Running", "podIP": "10.0.0.9"})),
        at(9, injected(1, status={"phase": "Failed"})),
        at(10, injected(1) | {"metadata": pod(1)["metadata"] | {"deletionTimestamp": "2024-01-01T00:00:09Z"}}),
    )
    for change in changes:
        assert made_containers(tuple(event.pod for event in watch.brings(change).events)) == ["worker"]
    deduplicator.begin_list()
    assert made_containers(listed(changes[-1], deduplicator=deduplicator)) == ["worker"]


ENDED = {"name": "executor", "state": {"terminated": {"exitCode": 3}}, "restartCount": 0}
BESIDE = {"name": "proxy", "state": {"running": {}}, "restartCount": 0}


@pytest.mark.parametrize(
    ("statuses", "urgent"),
    [
        ({"containerStatuses": [ENDED], "initContainerStatuses": [BESIDE]}, True),
        ({"containerStatuses": [ENDED, BESIDE]}, True),
        ({"containerStatuses": [RUNNING, BESIDE]}, False),
        ({"containerStatuses": [ENDED]}, False),
    ],
    ids=["beside a sidecar", "beside another container", "none", "alone, so it is restarted"],
)
def test_a_read_is_urgent_when_a_container_ends_beside_another(statuses: dict[str, Any], *, urgent: bool) -> None:
    watch = Watch(PodDeduplicator())
    watch.brings(pod(1))
    assert watch.brings(at(8, pod(1, **statuses))).urgent is urgent
    assert not watch.brings(at(9, pod(1, **statuses, podIP="10.0.0.9"))).urgent, "it was told before"


def test_each_container_that_ends_beside_others_is_urgent() -> None:
    watch = Watch(PodDeduplicator())
    watch.brings(pod(1, containerStatuses=[RUNNING, BESIDE]))
    beside = BESIDE | {"state": ENDED["state"]}
    assert watch.brings(at(8, pod(1, containerStatuses=[RUNNING, beside]))).urgent
    assert watch.brings(at(9, pod(1, containerStatuses=[ENDED, beside]))).urgent
