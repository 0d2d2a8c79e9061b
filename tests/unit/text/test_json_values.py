"""Values as JSON: what `as_dict` makes of each value that a program may show."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from actors import (
    Executor,
    ExecutorState,
    FleetExecutors,
    FleetStatus,
    HeldPod,
    LossKind,
    LossReason,
    ProfileStatus,
    SourceStatus,
)
from actors.text import JsonReady, rfc3339

AT = datetime(2026, 3, 1, 12, 0, 0, 250_400, tzinfo=UTC)
TEXT = "2026-03-01T12:00:00.250Z"
LOSS = LossReason(LossKind.OOM_KILLED, 137, caused_by_app=True, message="executor 3 was killed for its memory")
LOSS_JSON = {
    "kind": "OOM_KILLED",
    "exit_code": 137,
    "caused_by_app": True,
    "message": "executor 3 was killed for its memory",
}
EXECUTOR = Executor(
    3, "gpu", ExecutorState.ENDED, "app-exec-3", "node-a", None, AT, registered=False, restarts=2, reason="r", loss=LOSS
)
EXECUTOR_JSON = {
    "id": 3,
    "profile": "gpu",
    "state": "ended",
    "pod": "app-exec-3",
    "node": "node-a",
    "ip": None,
    "since": TEXT,
    "registered": False,
    "restarts": 2,
    "reason": "r",
    "loss": LOSS_JSON,
    "retiring": False,
    "stuck": None,
}
SOURCE = SourceStatus(synced=True, since_full_sync=timedelta(milliseconds=1500), since_heard=None, error=None)
SOURCE_JSON = {"synced": True, "since_full_sync": 1.5, "since_heard": None, "error": None}
HELD = HeldPod(3, "app-exec-3", ("example.com/hold",), AT)
HELD_JSON = {"executor_id": 3, "pod_name": "app-exec-3", "finalizers": ["example.com/hold"], "since": TEXT}
PROFILE_JSON = {
    "target": 3,
    "requested": 0,
    "pending": 0,
    "running": 0,
    "terminating": 0,
    "registered": 0,
    "blocked": None,
    "blocked_since": TEXT,
    "start_failures": 0,
    "blocked_by": None,
    "more_memory": 0,
    "retiring": 0,
    "backoff_until": None,
}
STATUS = FleetStatus("app", "batch", {"gpu": ProfileStatus(3, blocked_since=AT)}, {"watch": SOURCE}, held=(HELD,))
STATUS_JSON = {
    "app_id": "app",
    "namespace": "batch",
    "profiles": {"gpu": PROFILE_JSON},
    "sources": {"watch": SOURCE_JSON},
    "stopping": False,
    "may_write": True,
    "lease_held": False,
    "held": [HELD_JSON],
    "on_hold": False,
    "failed": None,
}
VALUES: list[tuple[JsonReady, dict[str, Any]]] = [
    (LOSS, LOSS_JSON),
    (EXECUTOR, EXECUTOR_JSON),
    (FleetExecutors((EXECUTOR,), ()), {"alive": [EXECUTOR_JSON], "ended": []}),
    (SOURCE, SOURCE_JSON),
    (HELD, HELD_JSON),
    (STATUS.profiles["gpu"], PROFILE_JSON),
    (STATUS, STATUS_JSON),
]


@pytest.mark.parametrize(("value", "expected"), VALUES, ids=lambda value: type(value).__name__)
def test_a_value_becomes_types_that_json_has(value: JsonReady, expected: dict[str, Any]) -> None:
    assert value.as_dict() == expected
    assert json.loads(json.dumps(value.as_dict())) == expected


def test_every_value_that_is_ready_for_json_is_tested_here() -> None:
    # each is there twice: a dataclass with slots is a new class
    names = {each.__name__ for each in JsonReady.__subclasses__() if each.__module__.startswith("actors.")}
    assert {type(value).__name__ for value, _ in VALUES} == names


def test_a_loss_kind_is_spelled_by_its_name_everywhere() -> None:
    assert [str(kind) for kind in LossKind] == [kind.name for kind in LossKind]
    assert f"{LossKind.OOM_KILLED}" == LossKind.OOM_KILLED == "OOM_KILLED"
    assert type(LOSS.as_dict()["kind"]) is str


def test_a_moment_of_another_zone_is_shown_in_utc() -> None:
    assert rfc3339(AT.astimezone(timezone(timedelta(hours=-3)))) == TEXT


def test_a_field_that_json_has_no_type_for_is_an_error() -> None:
    @dataclass(frozen=True, slots=True)
    class Odd(JsonReady):
        cause: Exception

    with pytest.raises(TypeError, match="a ValueError has no form in JSON"):
        Odd(ValueError()).as_dict()
