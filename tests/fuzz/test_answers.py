"""What a server, or who pretends to be one, answers: lists, watches, single objects, leases and claims."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from actors.allocation import claims
from actors.errors import ApiError
from actors.kube.deduplication import PodDeduplicator
from actors.kube.http import decode
from actors.kube.http.body import TooLarge
from actors.kube.http.decode import Complaints
from actors.kube.http.watch_lines import LineSplitter, WatchDecoder
from actors.kube.status import error_from_status
from actors.lease import record as lease
from actors.pods.loss import explain, missing
from actors.pods.pod import Pod, claims_of
from actors.pods.state import PodRules, classify, malformed
from actors.pods.stuck import does_not_start, why_stuck
from actors.settings import ClaimSettings
from tests.fuzz.material import DEEP, spoiled, spoiled_bytes, values

if TYPE_CHECKING:
    from collections.abc import Callable

A = TypeVar("A")

POD: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {
        "name": "app-exec-1",
        "uid": "u-1",
        "resourceVersion": "7",
        "creationTimestamp": "2024-01-01T00:00:00Z",
        "deletionTimestamp": "2024-01-01T00:00:09Z",
        "deletionGracePeriodSeconds": 30,
        "labels": {"executor-pods/app-id": "app", "executor-pods/role": "executor", "executor-pods/executor-id": "1"},
        "ownerReferences": [{"kind": "Pod", "name": "driver", "uid": "d"}],
    },
    "spec": {
        "containers": [{"name": "executor"}, {"name": "proxy"}],
        "nodeName": "n",
        "schedulingGates": [{"name": "g"}],
        "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}],
    },
    "status": {
        "phase": "Running",
        "reason": "r",
        "message": "m",
        "podIP": "10.0.0.1",
        "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "full"}],
        "initContainerStatuses": [{"name": "init", "state": {"waiting": {"reason": "CrashLoopBackOff"}}}],
        "containerStatuses": [
            {"name": "executor", "state": {"running": {"startedAt": "2024-01-01T00:00:01Z"}}, "restartCount": 0},
            {
                "name": "proxy",
                "state": {"terminated": {"exitCode": 137, "reason": "OOMKilled", "finishedAt": "2024-01-01T00:00:05Z"}},
            },
        ],
    },
}
LIST: dict[str, Any] = {"kind": "PodList", "metadata": {"resourceVersion": "9", "continue": "c"}, "items": [POD, POD]}
LEASE: dict[str, Any] = {
    "metadata": {"name": "l", "resourceVersion": "3", "annotations": {lease.LAST_ID: "12"}},
    "spec": {
        "holderIdentity": "other",
        "leaseDurationSeconds": 15,
        "renewTime": "2024-01-01T00:00:00.000000Z",
        "leaseTransitions": 2,
    },
}
CLAIM: dict[str, Any] = {
    "metadata": {
        "name": "app-exec-1-pvc-0",
        "labels": {"executor-pods/claim": "data", "executor-pods/profile": "default"},
        "creationTimestamp": "2024-01-01T00:00:00Z",
        "ownerReferences": [{"kind": "Pod", "name": "driver", "uid": "d"}],
    },
    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "10Gi"}}},
    "status": {"phase": "Bound"},
}
STATUS: dict[str, Any] = {
    "kind": "Status",
    "code": 403,
    "reason": "Forbidden",
    "message": "exceeded quota",
    "details": {"retryAfterSeconds": 3, "causes": [{"field": "metadata.uid", "message": "no"}]},
}
IMPOSSIBLE: dict[str, Any] = {
    **POD,
    "metadata": {**POD["metadata"], "deletionGracePeriodSeconds": 10**18},
    "spec": {"containers": [{"name": "proxy"}]},
    "status": {**POD["status"], "phase": "Failed"},
}
NOW = datetime(2024, 1, 2, tzinfo=UTC)


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR, "actors")


def as_far_as_it_goes(found: Pod) -> None:
    """What is done with a pod that could be decoded."""
    rules = PodRules()
    state = classify(found, rules)
    if malformed(found) is None:
        explain(1, state, rules)
        missing(1, found, rules, absent=timedelta(0), registered=timedelta(0))
        why_stuck(found)
        does_not_start(found, timedelta(minutes=1))
        list(claims_of(found))


def whatever_it_brings(read: Callable[[A], Any], body: A) -> Any:
    """What the bytes were read as; None if they were refused as it is documented."""
    try:
        return read(body)
    except (ValueError, RecursionError):  # both complete a call or a stream with `Unavailable`
        return None


@given(spoiled_bytes(POD))
@example(DEEP)
@example(json.dumps({"metadata": {"name": "a"}})[:-2].encode() + b',"x":' + DEEP)
@example(json.dumps(IMPOSSIBLE).encode())
def test_any_pod_is_refused_or_can_be_judged(body: bytes) -> None:
    found = whatever_it_brings(decode.pod, body)
    if found is not None:
        as_far_as_it_goes(found)


@given(spoiled_bytes(LIST))
@example(b'{"metadata":{"resourceVersion":"1"},"items":[{"metadata":' + DEEP + b"}]}")
def test_any_list_is_refused_or_its_good_pods_are_kept(body: bytes) -> None:
    page = whatever_it_brings(lambda data: decode.pod_page(data, Complaints(), PodDeduplicator()), body)
    for found in page.pods if page is not None else ():
        as_far_as_it_goes(found)


@given(st.lists(spoiled_bytes({"type": "ADDED", "object": POD}) | st.binary(max_size=9), max_size=4))
@example([b'{"type":"ADDED","object":' + DEEP])
@example([b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"5","annotations":{"k":1}}}}'])
def test_any_watch_line_is_an_event_or_the_end_of_the_stream(lines: list[bytes]) -> None:
    told, error = WatchDecoder("1", Complaints(), PodDeduplicator()).decode(b"\n".join(lines))
    assert error is None or isinstance(error, ApiError | ValueError | RecursionError)
    for events in told:
        assert isinstance(events.resource_version, str)
        for event in events.events:
            as_far_as_it_goes(event.pod)


@given(spoiled_bytes({"type": "ERROR", "object": STATUS}))
def test_an_error_in_a_watch_is_one_of_ours_whatever_is_in_it(line: bytes) -> None:
    told, error = WatchDecoder("1", Complaints(), PodDeduplicator()).decode(line)
    assert error is None or isinstance(error, ApiError | ValueError | RecursionError)
    assert not [event for events in told for event in events.events]


def test_a_line_without_an_end_is_refused_before_it_fills_the_memory() -> None:
    splitter = LineSplitter()
    for _ in range(16):
        assert splitter.feed(b"x" * (1 << 20)) == []
    with pytest.raises(TooLarge):
        splitter.feed(b"x")


@given(spoiled(STATUS) | values, st.integers(0, 999))
def test_any_status_is_an_error_of_ours(status: Any, code: int) -> None:
    details = decode.status(json.dumps(status).encode("utf-8", "surrogatepass"))
    assert isinstance(error_from_status(details, code, None), ApiError)


@given(spoiled_bytes(LEASE))
@example(b"{}")
@example(b'{"metadata":null}')
def test_a_lease_is_refused_or_can_be_waited_for_or_taken(body: bytes) -> None:
    manifest = whatever_it_brings(decode.json_object, body)
    if manifest is None:
        return
    try:
        found = lease.read(manifest, timedelta(seconds=15))
    except ApiError:
        return
    lease.decide(found, "me", timedelta(seconds=1))
    patch = lease.taken(found, found.holder, timedelta(seconds=15), NOW, last_id=3)
    assert patch["metadata"]["resourceVersion"] == manifest["metadata"]["resourceVersion"], (
        "void if others have written"
    )
    msgspec.json.encode(patch)


@given(st.lists(spoiled(CLAIM) | st.just(CLAIM), max_size=3))
@example([CLAIM, {**CLAIM, "metadata": {**CLAIM["metadata"], "creationTimestamp": "2024-01-01T00:00:00"}}])
def test_claims_that_are_none_leave_the_others_usable(items: list[Any]) -> None:
    body = json.dumps({"items": items}).encode("utf-8", "surrogatepass")
    found = [claims.read(each) for each in whatever_it_brings(decode.json_items, body) or ()]
    wanted = ClaimSettings(name="data", mount_path="/data", size="1Gi")
    fitting = claims.fitting([claim for claim in found if claim is not None], wanted, "default", "d")
    usable = claims.free(fitting, (), now=NOW, older_than=timedelta(minutes=1))
    if found and all(each == CLAIM for each in items):
        assert len(usable) == len(items)
