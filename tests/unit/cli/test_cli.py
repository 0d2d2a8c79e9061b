"""The command without a cluster: arguments, events, the driver's decisions, the main loop's exit codes, the table."""

from __future__ import annotations

import errno
import io
import json
import logging
import os
import signal
import socket
import tempfile
from collections import deque
from datetime import UTC, datetime, timedelta
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, cast

import pytest

import actors
from actors.cli.arguments import execute, overrides
from actors.cli.driver import FORCE_AFTER, FleetDriver, Plan, StopFleet, UseBackend
from actors.cli.events import NOTHING_MADE, Event, describe, to_json, to_line
from actors.cli.logs import TOLD, LogFormat
from actors.cli.main_loop import Inbox, Item, Key, MainLoop
from actors.cli.output import Lines
from actors.cli.run import LOCAL_STOP
from actors.messages import (
    AllocationBlocked,
    AllocationUnblocked,
    BackendFailed,
    BackendStarted,
    BackendStopped,
    ExecutorPending,
    ExecutorRemoved,
    ExecutorRunning,
    ExecutorState,
    ExecutorStuck,
    ExecutorTerminating,
    FleetFailed,
    FollowFleet,
    RegisterExecutor,
    StopBackend,
    ToDriver,
)
from actors.pods.loss import LossKind, LossReason
from actors.pods.pod import ObjectMeta, Pod
from actors.runtime import Terminated
from actors.text import LONGEST_LINE
from tests.unit.changes import changed, everything, executor, fleet, only
from tests.unit.hostile import HOSTILE

if TYPE_CHECKING:
    from collections.abc import Callable

    from actors.cli.output import Output
    from actors.messages import Executor, FleetChanged, ProfileStatus
    from actors.runtime import Address
    from actors.testing import Kit, Probe

NOW = datetime(2026, 3, 1, 12, 0, 0, 250_000, tzinfo=UTC)


def pod(name: str) -> Pod:
    return Pod(ObjectMeta(name=name))


# ── Arguments ────────────────────────────────────────────────────────────────────────────────────────────────────

UNITS = 'write numbers with units (ms, s, m, h, d), such as "30s", "5m" or "1h30m"'

WRONG_ARGUMENTS = {
    "run --nonsense": "No such option: --nonsense",
    "run --local --executors": "Option '--executors' requires an argument.",
    "run --local --executors x": "Invalid value for '--executors':",
    "run --local --executors -1": "Invalid value for '--executors':",
    "run --local --for 30": f"Invalid value for '--for': '30' has no unit: {UNITS}",
    "run --local --for 0s": "Invalid value for '--for': '0s' must be longer than 0s",
    "run --local --kill-every soon": f"Invalid value for '--kill-every': 'soon' is not a duration: {UNITS}",
    "run --local --output xml": "Invalid value for '--output': 'xml' is none of 'live' and 'json'",
    "run --local --log-format xml": "Invalid value for '--log-format': 'xml' is none of 'text' and 'json'",
    "run --local --log-level all": "'all' is none of 'debug', 'info', 'warning' and 'error'",
    "run --local --context x": "--local has its own cluster: use neither --kubeconfig nor --context with it",
    "run --local --kubeconfig x": "--local has its own cluster: use neither --kubeconfig nor --context with it",
    "run --image x --kill-every 3s": "--kill-every needs --local",
    "run --image x --fail-pulls *": "--fail-pulls, --lose-node and --realistic need --local",
    "run --image x --lose-node 3s": "--fail-pulls, --lose-node and --realistic need --local",
    "run --image x --realistic": "--fail-pulls, --lose-node and --realistic need --local",
    "run --local --node-outage 3s": "--node-outage needs --lose-node",
    "local --node-outage 3s": "--node-outage needs --lose-node",
    "local --lose-node soon": f"Invalid value for '--lose-node': 'soon' is not a duration: {UNITS}",
    "run --local --metrics-address 0.0.0.0": "--metrics-address needs --metrics-port",
    "run --local --metrics-port 70000": "Invalid value for '--metrics-port':",
    "run --local --page-address 0.0.0.0": "--page-address, --page-host and --page-token-file need --page-port",
    "run --local --page-port 0 --page-token-file /no/file": "/no/file: ",
    "run --local --page-port 0 --page-token-file /dev/null": "the page's token must have at least 16 printable",
    "run --local --page-port 0 --page-address 192.0.2.1": "the page cannot be served at 192.0.2.1 port 0: ",
    "run --local --metrics-port 0 --metrics-address 192.0.2.1": "metrics cannot be served at 192.0.2.1 port 0: ",
    "run --local --config /nowhere.toml": "/nowhere.toml: cannot be read: No such file or directory",
    "run --local --config /dev/null": "/dev/null: cannot be read: it is no regular file",
    "run --local --namespace=": "namespace = '': must be a DNS label",
    "run --local --namespace A_b": "namespace = 'A_b': must be a DNS label",
    "run --local --image=": "executor.image = '': must be text without spaces",
    "run": "no image: set --image, executor.image or a pod template",
    "run --image x --kubeconfig /nowhere": "/nowhere",
    "local --port 70000": "Invalid value for '--port':",
    "nonsense": "No such command 'nonsense'.",
    "config": "give one of --reference, --check FILE, --rbac and --rbac-operator",
    "config --reference --rbac": "give one of --reference, --check FILE, --rbac and --rbac-operator",
    "config --reference --config x": "--config needs --rbac",
    "config --rbac --config /nowhere.toml": "/nowhere.toml: cannot be read: No such file or directory",
}


@pytest.mark.parametrize(("arguments", "words"), WRONG_ARGUMENTS.items(), ids=WRONG_ARGUMENTS)
def test_a_wrong_argument_is_answered_with_one_line_and_exit_code_2(
    arguments: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert execute(SimpleQueue(), arguments.split()) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("executor-pods: ")
    assert words in err
    assert err.count("\n") == 1


def test_arguments_that_are_not_given_override_nothing_and_a_command_overrides_command_and_args() -> None:
    assert overrides(None, None, None, []) == {}
    assert overrides("batch", 0, "worker:1", None) == {
        "namespace": "batch",
        "executor": {"instances": 0, "image": "worker:1"},
    }
    assert overrides(None, None, None, ["sleep", "5"]) == {"executor": {"command": ["sleep", "5"], "args": []}}


def test_each_wrong_setting_of_a_file_has_its_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "fleet.toml"
    config.write_text("[executor]\ninstances = -1\nstuck_timeout = 5\n")
    assert execute(SimpleQueue(), ["run", "--local", "--config", str(config)]) == 2
    assert [line.split(":")[1] for line in capsys.readouterr().err.splitlines()] == [
        " executor.instances = -1",
        " executor.stuck_timeout = 5",
    ]


def test_a_port_that_is_taken_is_one_line_and_exit_code_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = str(listener.getsockname()[1])
        assert execute(SimpleQueue(), ["local", "--port", port]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert port in line
    assert list(tmp_path.iterdir()) == []


def test_help_names_every_option_and_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(SimpleQueue(), ["run", "--help"]) == 0
    words = capsys.readouterr().out
    for option in ("config", "local", "kubeconfig", "context", "namespace", "executors", "image", "for", "kill-every"):
        assert f"--{option} " in words
    assert "0 ended as asked, 1 the fleet failed, 2 usage, 130 Ctrl-C" in words


# ── Events ───────────────────────────────────────────────────────────────────────────────────────────────────────

LOSS = LossReason(
    kind=LossKind.OOM_KILLED, exit_code=137, caused_by_app=True, message="executor 3 was killed for its memory"
)
NOWHERE = {"profile": "default", "node": None, "ip": None, "restarts": 0}
PLACE: dict[str, Any] = {"profile": "gpu", "node": "node-a", "ip": "10.1.2.3"}
MESSAGES: list[tuple[ToDriver, dict[str, object]]] = [
    (
        BackendStarted("etl", "batch"),
        {
            "event": "started",
            "message": "fleet etl started in namespace batch",
            "app_id": "etl",
            "namespace": "batch",
        },
    ),
    (ExecutorPending(3, pod("etl-exec-3")), {"event": "pending", "executor_id": 3, "pod": "etl-exec-3", **NOWHERE}),
    (ExecutorRunning(3, pod("etl-exec-3")), {"event": "running", "executor_id": 3, "pod": "etl-exec-3", **NOWHERE}),
    (
        ExecutorTerminating(3, NOW, "its pod is being deleted", **PLACE),
        {
            "event": "terminating",
            "executor_id": 3,
            "pod": "etl-exec-3",
            "message": "its pod is being deleted",
            "deadline": "2026-03-01T12:00:00.250Z",
            **PLACE,
        },
    ),
    (
        ExecutorRemoved(3, LOSS, **PLACE),
        {
            "event": "removed",
            "executor_id": 3,
            "pod": "etl-exec-3",
            "reason": "OOM_KILLED",
            "message": LOSS.message,
            "exit_code": 137,
            "caused_by_app": True,
            "lowered_target": False,
            **PLACE,
        },
    ),
    (
        ExecutorStuck(3, "ImagePullBackOff", "no such image", NOW, **PLACE),
        {
            "event": "stuck",
            "executor_id": 3,
            "pod": "etl-exec-3",
            "reason": "ImagePullBackOff",
            "message": "no such image",
            "since": "2026-03-01T12:00:00.250Z",
            **PLACE,
        },
    ),
    (
        AllocationBlocked("default", "exceeded quota", "QuotaExceeded"),
        {"event": "blocked", "message": "exceeded quota", "profile": "default", "blocked_by": "QuotaExceeded"},
    ),
    (AllocationUnblocked("default"), {"event": "unblocked", "profile": "default"}),
    (FleetFailed("too many failures"), {"event": "failed", "message": "too many failures"}),
    (BackendFailed(RuntimeError("no route")), {"event": "failed", "message": "no route"}),
    (BackendStopped(), {"event": "stopped", "left_behind": []}),
    (
        BackendStopped(("etl-exec-3",)),
        {
            "event": "stopped",
            "message": "pods that may be left behind: etl-exec-3",
            "left_behind": ["etl-exec-3"],
        },
    ),
]


@pytest.mark.parametrize(("message", "expected"), MESSAGES, ids=lambda value: type(value).__name__)
def test_each_message_becomes_one_json_object_with_all_its_facts(
    message: ToDriver, expected: dict[str, object]
) -> None:
    line = to_json(describe(message, NOW, {3: "etl-exec-3"}))
    always = {"time": "2026-03-01T12:00:00.250Z", "executor_id": None, "pod": None, "reason": None, "message": None}
    assert json.loads(line) == always | expected
    assert "\n" not in line


def test_a_line_of_text_has_event_executor_and_reason() -> None:
    line = to_line(describe(ExecutorRemoved(3, LOSS), NOW, {3: "etl-exec-3"}))
    assert line.split(maxsplit=1)[1] == ("removed      executor 3     OOM_KILLED: executor 3 was killed for its memory")


def test_a_pods_message_cannot_break_the_line_or_control_the_terminal() -> None:
    line = to_line(describe(ExecutorStuck(1, "Bad", "two\nlines\x1b[2J", None), NOW, {}))
    assert line.endswith(r"Bad: two\nlines\x1b[2J")


@pytest.mark.parametrize("write", [to_line, to_json])
def test_no_character_of_a_message_acts_and_json_keeps_all_of_them(write: Callable[[Event], str]) -> None:
    event = Event(NOW, "stuck", 1, HOSTILE, HOSTILE, HOSTILE, {"profile": HOSTILE})
    line = write(event)
    assert line.isprintable()
    if write is to_json:
        assert line.isascii()
        assert json.loads(line)["message"] == json.loads(line)["profile"] == HOSTILE
    else:
        assert len(line) <= LONGEST_LINE


def test_a_note_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    Lines(io.StringIO(), to_line).note(HOSTILE)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.isprintable()


# ── The driver ───────────────────────────────────────────────────────────────────────────────────────────────────


class Run:
    """A driver with a probe for its Backend."""

    def __init__(self, kit: Kit, plan: Plan) -> None:
        self.events: list[Event] = []
        self.fed: list[object] = []
        self.backend: Probe = kit.probe("backend")
        self.kit = kit
        self.driver: Address = kit.spawn(
            lambda context: FleetDriver(context, plan=plan, show=self.events.append, feed=self.fed.append),
            name="driver",
        )
        self.tell(UseBackend(self.backend.address))
        self.backend.take(FollowFleet)
        self.sequence = 0

    def publish(self, *executors: Executor) -> None:
        self.sequence += 1
        self.tell(changed(self.sequence, *executors) if self.sequence > 1 else everything(1, *executors))

    def tell(self, *messages: object) -> None:
        for message in messages:
            self.driver.tell(message)
        self.kit.settle()

    @property
    def reported(self) -> list[str]:
        return [event.event for event in self.events]


def test_the_driver_stops_the_fleet_when_its_time_is_up_counted_from_its_start(kit: Kit) -> None:
    run = Run(kit, Plan(run_for=timedelta(seconds=15)))
    kit.advance(timedelta(seconds=20))
    run.tell(BackendStarted("etl", "batch"))
    kit.advance(timedelta(seconds=14))
    run.backend.expect_nothing()
    kit.advance(timedelta(seconds=1))
    assert run.backend.take(StopBackend) == StopBackend()


def test_the_page_gets_what_the_driver_receives(kit: Kit) -> None:
    run = Run(kit, Plan())
    run.tell(BackendStarted("etl", "batch"))
    assert BackendStarted("etl", "batch") in run.fed


def test_the_started_event_has_the_kubeconfig_of_an_embedded_cluster(kit: Kit) -> None:
    run = Run(kit, Plan(kubeconfig=Path("/tmp/x/kubeconfig")))
    run.tell(BackendStarted("etl", "batch"))
    assert run.events[0].details["kubeconfig"] == "/tmp/x/kubeconfig"
    assert (run.events[0].message or "").endswith("; export KUBECONFIG=/tmp/x/kubeconfig")


def test_the_last_event_comes_when_the_backend_has_ended_and_has_the_reason(kit: Kit) -> None:
    run = Run(kit, Plan())
    run.tell(BackendStarted("etl", "batch"), StopFleet("interrupted"), StopFleet("again"))
    assert run.backend.take_all() == [StopBackend()]
    run.tell(BackendStopped(("etl-exec-1",)))
    assert run.reported == ["started", "stopping"]
    run.tell(Terminated("backend", 1, None))
    assert run.events[-1].event == "stopped"
    assert run.events[-1].reason == "interrupted"
    assert run.events[-1].details["left_behind"] == ("etl-exec-1",)
    assert not run.driver.is_alive()


@pytest.mark.parametrize(
    ("executors", "grace", "message"),
    [
        ((), timedelta(seconds=5), None),
        ((1,), timedelta(seconds=5), "1 executor has up to 5 s to end"),
        ((1, 2), timedelta(minutes=10), "2 executors have up to 600 s to end"),
        ((1,), None, "1 executor is left running"),
        ((1, 2), None, "2 executors are left running"),
    ],
)
def test_the_begin_of_a_stop_says_how_long_it_may_take(
    kit: Kit, executors: tuple[int, ...], grace: timedelta | None, message: str | None
) -> None:
    run = Run(kit, Plan(grace=grace))
    run.tell(BackendStarted("etl", "batch"))
    run.publish(*(executor(executor_id, ExecutorState.PENDING) for executor_id in (*executors, 9)))
    run.publish(executor(9, ExecutorState.ENDED))
    run.tell(StopFleet("interrupted"))
    assert run.events[-1].event == "stopping"
    assert (run.events[-1].reason, run.events[-1].message) == ("interrupted", message)


@pytest.mark.parametrize(
    ("executors", "grace", "message"),
    [
        ((1,), timedelta(seconds=5), "1 executor stays, unless this driver gets the lease"),
        ((1, 2), timedelta(seconds=5), "2 executors stay, unless this driver gets the lease"),
        ((1, 2), None, "2 executors are left running"),
        ((), timedelta(seconds=5), None),
    ],
)
def test_a_standby_that_stops_promises_no_executor_an_end(
    kit: Kit, executors: tuple[int, ...], grace: timedelta | None, message: str | None
) -> None:
    run = Run(kit, Plan(grace=grace))
    run.tell(BackendStarted("etl", "batch"))
    stands_by = fleet(only(blocked="it is held by 'a'", blocked_by="lease"))
    run.tell(everything(1, *map(executor, executors), status=stands_by))
    run.tell(StopFleet("interrupted"))
    assert run.events[-1].message == message


def test_a_standby_that_got_the_lease_stops_as_its_holder(kit: Kit) -> None:
    run = Run(kit, Plan(grace=timedelta(seconds=5)))
    run.tell(BackendStarted("etl", "batch"))
    run.tell(everything(1, status=fleet(only(blocked="it is held by 'a'", blocked_by="lease"))))
    blocked = fleet(only(blocked="a quota", blocked_by="QuotaExceeded"))
    run.tell(changed(2, executor(1), status=blocked), StopFleet("interrupted"))
    assert run.events[-1].message == "1 executor has up to 5 s to end"


def test_a_failed_fleet_is_stopped(kit: Kit) -> None:
    run = Run(kit, Plan())
    run.tell(FleetFailed("too many failures"))
    assert run.reported == ["failed", "stopping"]
    run.backend.take(StopBackend)


def test_a_backend_that_failed_is_not_stopped_again(kit: Kit) -> None:
    run = Run(kit, Plan())
    error = RuntimeError("no route")
    run.tell(BackendFailed(error), Terminated("backend", 1, error))
    assert run.reported == ["failed", "stopped"]
    assert run.events[-1].reason == "the backend failed"
    run.backend.expect_nothing()


def test_a_backend_that_crashed_is_a_failure(kit: Kit) -> None:
    run = Run(kit, Plan())
    run.tell(Terminated("backend", 1, ValueError("bug")))
    assert run.reported == ["failed", "stopped"]
    assert "bug" in (run.events[0].message or "")


def test_a_running_executor_is_registered_and_killed_every_interval(kit: Kit) -> None:
    killed: list[str] = []
    run = Run(kit, Plan(kill_every=timedelta(seconds=3), kill=killed.append))
    run.publish(executor(1, ExecutorState.PENDING))
    run.tell(BackendStarted("etl", "batch"))
    kit.advance(timedelta(seconds=3))
    assert killed == []
    run.publish(executor(1), executor(2))
    kit.advance(timedelta(seconds=3))
    registered = run.backend.take(RegisterExecutor).executor_id
    assert killed == [f"app-exec-{registered}"]
    run.publish(executor(registered, registered=True))
    kit.advance(timedelta(seconds=3))
    assert sorted(killed) == ["app-exec-1", "app-exec-2"]


def test_the_message_of_an_end_has_the_name_of_the_pod(kit: Kit) -> None:
    run = Run(kit, Plan())
    run.publish(executor(1))
    run.publish(executor(1, ExecutorState.ENDED))
    run.tell(ExecutorRemoved(1, ENDED))
    assert run.events[-1].pod == "app-exec-1"


def test_no_executor_is_killed_once_the_fleet_stops(kit: Kit) -> None:
    killed: list[str] = []
    run = Run(kit, Plan(kill_every=timedelta(seconds=3), kill=killed.append))
    run.publish(executor(1))
    run.tell(BackendStarted("etl", "batch"), StopFleet("interrupted"))
    kit.advance(timedelta(seconds=30))
    assert killed == []


LOST = LossReason(LossKind.EVICTED, 143, caused_by_app=False, message="executor 2 was evicted")
ENDED = LossReason(LossKind.KILLED_BY_DRIVER, -1, caused_by_app=False, message="executor 1 was stopped with the fleet")


def test_the_last_event_says_how_many_ran_were_lost_and_were_replaced(kit: Kit) -> None:
    run = Run(kit, Plan())
    run.tell(BackendStarted("etl", "batch"), *(ExecutorRunning(number, pod(f"etl-exec-{number}")) for number in (1, 2)))
    run.tell(ExecutorRemoved(2, LOST), ExecutorRunning(3, pod("etl-exec-3")), ExecutorRemoved(3, LOSS))
    run.tell(StopFleet("interrupted"), ExecutorRemoved(1, ENDED), BackendStopped(), Terminated("backend", 1, None))
    assert run.events[-1].message == "3 executors ran, 2 lost (EVICTED 1, OOM_KILLED 1), 1 replaced"
    assert run.events[-1].details == {
        "left_behind": (),
        "ran": 3,
        "lost": {"EVICTED": 1, "OOM_KILLED": 1},
        "replaced": 1,
    }


def test_an_executor_that_was_requested_before_a_loss_is_no_replacement(kit: Kit) -> None:
    run = Run(kit, Plan())
    run.tell(*(ExecutorPending(number, pod(f"etl-exec-{number}")) for number in (1, 2)))
    run.tell(ExecutorRunning(1, pod("etl-exec-1")), ExecutorRemoved(1, LOST), ExecutorRunning(2, pod("etl-exec-2")))
    run.tell(Terminated("backend", 1, None))
    assert run.events[-1].message == "2 executors ran, 1 lost (EVICTED 1), 0 replaced"


QUOTA = only(blocked="the namespace has no room: exceeded quota", blocked_by="QuotaExceeded")
LEASE = only(blocked="another driver holds the lease", blocked_by="lease")


@pytest.mark.parametrize(
    ("messages", "profiles", "reported"),
    [
        ([], QUOTA, ["stopping", "failed", "stopped"]),
        ([], only(), ["stopping", "stopped"]),
        ([ExecutorPending(1, pod("etl-exec-1"))], QUOTA, ["pending", "stopping", "stopped"]),
        ([], LEASE, ["stopping", "stopped"]),
        ([], {}, ["stopping", "stopped"]),
    ],
    ids=["never", "not any more", "some", "stands by", "stopped at once"],
)
def test_a_run_that_could_not_make_one_executor_says_why(
    kit: Kit, messages: list[ToDriver], profiles: dict[str, ProfileStatus], reported: list[str]
) -> None:
    run = Run(kit, Plan())
    run.tell(everything(1, status=fleet(profiles)), *messages)
    run.tell(StopFleet("time is up"), BackendStopped(), Terminated("backend", 1, None))
    assert run.reported == reported
    if "failed" in reported:
        assert run.events[-2].message == (
            "no executor could be made: 'default': the namespace has no room: exceeded quota"
        )


def test_executors_that_ignore_a_stop_on_the_embedded_cluster_are_ended_by_force(kit: Kit) -> None:
    forced: list[None] = []
    run = Run(kit, Plan(run_for=timedelta(seconds=5), force=lambda: forced.append(None)))
    run.tell(BackendStarted("etl", "batch"), ExecutorRunning(1, pod("etl-exec-1")))
    kit.advance(timedelta(seconds=5) + FORCE_AFTER - timedelta(seconds=1))
    assert forced == []
    kit.advance(timedelta(seconds=1))
    assert forced == [None]
    run.tell(ExecutorRemoved(1, ENDED), BackendStopped(), Terminated("backend", 1, None))
    assert run.reported[-2:] == ["removed", "stopped"]


# ── The main loop ────────────────────────────────────────────────────────────────────────────────────────────────


class Screen:
    """An output that records what is shown."""

    def __init__(self, fail: Exception | None = None) -> None:
        self.owns_stderr = False
        self.shown: list[str] = []
        self.notes: list[str] = []
        self.drawn: list[int] = []
        """How many events were shown before each picture."""
        self.on_refresh: Callable[[], None] = lambda: None
        self._fail = fail

    def show(self, event: Event) -> None:
        if self._fail:
            raise self._fail
        self.shown.append(event.event)

    def note(self, text: str, times: int = 1) -> None:
        self.notes.append(text if times == 1 else f"{text} ({times})")

    def remark(self, text: str, *, stays: bool = False) -> None:
        self.notes.append(f"{text} (stays)" if stays else text)

    def refresh(self) -> None:
        self.drawn.append(len(self.shown))
        self.on_refresh()

    def fold(self, change: FleetChanged) -> None:
        self.shown.append(f"change {change.sequence}")

    def press(self, key: str) -> str | None:
        return "stop" if key == "y" else None

    def suspend(self) -> None:
        self.shown.append("suspended")

    def resume(self) -> None:
        self.shown.append("resumed")

    def close(self) -> None:
        pass

    def plainer(self) -> Output | None:
        self._fail = None
        return cast("Output", self)


class Script:
    """An inbox with these items. None is an inbox that stays empty for one interval."""

    def __init__(self, *items: Item | None) -> None:
        self._items = deque(items)

    def get(self, *, timeout: float) -> Item:
        item = self._items.popleft()
        if item is None:
            raise Empty
        return item


def event(name: str, **details: tuple[str, ...]) -> Event:
    return Event(NOW, name, details=details)


class Loop:
    """The main loop, run to its end."""

    def __init__(
        self,
        kit: Kit,
        *items: Item | None,
        patience: timedelta | None = None,
        fail: Exception | None = None,
        alive: bool = True,
        log_format: LogFormat = "text",
        hands_over: bool = False,
        owns_stderr: bool = False,
    ) -> None:
        self.screen = Screen(fail)
        self.screen.owns_stderr = owns_stderr
        self.screen.on_refresh = lambda: kit.clock.move_to(kit.clock.elapsed + timedelta(seconds=1))
        driver = kit.probe()
        loop = MainLoop(
            cast("Inbox", Script(*items)),
            cast("Output", self.screen),
            driver=driver.address,
            patience=patience,
            clock=kit.clock,
            log_format=log_format,
            hands_over=hands_over,
        )
        if not alive:
            driver.stop()
            kit.settle()
        self.exit_code = loop.run()
        kit.settle()
        self.told = driver.take_all(StopFleet)
        self.stops = [stop.why for stop in self.told]


STOPPED = event("stopped")


def test_however_much_happens_pictures_have_time_between_them(kit: Kit) -> None:
    loop = Loop(kit, *[event("running")] * 50, None, STOPPED)
    assert loop.screen.drawn[0] == 0
    assert len(loop.screen.drawn) < 10


def test_keys_the_terminals_signals_and_what_the_backend_answers_reach_the_output(kit: Kit) -> None:
    loop = Loop(kit, changed(7), signal.SIGTSTP, signal.SIGCONT, signal.SIGWINCH, Key("s"), Key("y"), STOPPED)
    assert loop.screen.shown == ["change 7", "suspended", "resumed", "stopped"]
    assert loop.stops == ["a key was pressed"]
    assert loop.exit_code == 0


@pytest.mark.parametrize(
    ("items", "exit_code"),
    [
        ([STOPPED], 0),
        ([signal.SIGTERM, STOPPED], 0),
        ([signal.SIGHUP, STOPPED], 0),
        ([signal.SIGINT, STOPPED], 130),
        ([event("failed"), STOPPED], 1),
        ([event("failed"), signal.SIGINT, STOPPED], 130),
        ([signal.SIGINT, event("failed"), STOPPED], 130),
        ([signal.SIGTERM, event("failed"), STOPPED], 0),
        ([signal.SIGINT, signal.SIGINT], 130),
        ([signal.SIGINT, signal.SIGTERM, STOPPED], 130),
        ([event("stopped", left_behind=("etl-exec-1",))], 1),
    ],
    ids=str,
)
def test_the_exit_code_has_the_reason_of_the_end(kit: Kit, items: list[Event | signal.Signals], exit_code: int) -> None:
    assert Loop(kit, *items).exit_code == exit_code


def test_sigterm_after_the_drivers_own_stop_does_not_make_the_run_a_failure(kit: Kit) -> None:
    """A Job takes any other exit code than 0 for one."""
    loop = Loop(kit, event("stopping"), signal.SIGTERM, STOPPED, hands_over=True)
    assert loop.exit_code == 0


HANDED_OVER = StopFleet("SIGTERM received, handing over", hands_over=True)


@pytest.mark.parametrize(
    ("items", "told", "exit_code"),
    [
        ([signal.SIGTERM, STOPPED], [HANDED_OVER], 143),
        ([signal.SIGTERM, signal.SIGTERM, STOPPED], [HANDED_OVER, HANDED_OVER], 143),
        ([signal.SIGTERM, event("stopped", left_behind=("etl-exec-1",))], [HANDED_OVER], 143),
        ([signal.SIGHUP, STOPPED], [StopFleet("SIGHUP received")], 0),
        ([signal.SIGINT, STOPPED], [StopFleet("interrupted")], 130),
        ([Key("y"), signal.SIGTERM, STOPPED], [StopFleet("a key was pressed"), HANDED_OVER], 0),
        ([signal.SIGTERM, signal.SIGINT, STOPPED], [HANDED_OVER, StopFleet("interrupted")], 130),
    ],
    ids=str,
)
def test_of_a_driver_that_hands_over_only_sigterm_leaves_the_executors(
    kit: Kit, items: list[Item | None], told: list[StopFleet], exit_code: int
) -> None:
    loop = Loop(kit, *items, hands_over=True)
    assert (loop.told, loop.exit_code) == (told, exit_code)


def test_the_first_stop_decides_whether_the_executors_are_left(kit: Kit) -> None:
    for first, then, delete in ((HANDED_OVER, StopFleet("x"), False), (StopFleet("x"), HANDED_OVER, None)):
        run = Run(kit, Plan())
        run.tell(BackendStarted("etl", "batch"), first, then)
        assert run.backend.take_all(StopBackend) == [StopBackend(delete_pods=delete)]
        run.driver.stop()
        run.backend.stop()
        kit.settle()


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM])
def test_a_run_that_could_not_make_one_executor_has_failed_however_it_was_stopped(
    kit: Kit, end: signal.Signals
) -> None:
    assert Loop(kit, end, Event(NOW, "failed", reason=NOTHING_MADE), STOPPED).exit_code == 1


def test_ctrl_c_stops_in_order_and_a_second_one_at_once(kit: Kit) -> None:
    loop = Loop(kit, signal.SIGINT, event("terminating"), signal.SIGINT)
    assert loop.stops == ["interrupted"]
    assert loop.screen.notes == ["stopping; press Ctrl-C again to exit at once", "exiting at once"]


def test_on_the_embedded_cluster_an_orderly_stop_has_a_time_limit(kit: Kit) -> None:
    seconds = int(LOCAL_STOP.total_seconds())
    assert Loop(kit, signal.SIGINT, *[None] * (seconds + 1), patience=LOCAL_STOP).exit_code == 130
    assert Loop(kit, signal.SIGTERM, *[None] * (seconds + 1), patience=LOCAL_STOP).exit_code == 0


def test_a_driver_that_crashed_ends_the_command(kit: Kit) -> None:
    assert Loop(kit, event("running"), None, alive=False).exit_code == 1


def record(line: str, *values: object, name: str = "actors.x", level: int = logging.WARNING) -> logging.LogRecord:
    return logging.LogRecord(name, level, "", 0, line, values, None)


def test_warnings_of_the_library_are_shown(kit: Kit) -> None:
    assert Loop(kit, record("the watch is cut: error=%s", "boom"), STOPPED).screen.notes == [
        "the watch is cut: error=boom"
    ]


def test_a_warning_that_comes_again_is_counted_and_another_one_is_not(kit: Kit) -> None:
    again = [record("polling fails: error=%s", f"503 after {seconds}s") for seconds in (1, 2)]
    loop = Loop(kit, *again, record("polling fails: error=%s", "timeout"), STOPPED)
    assert loop.screen.notes == [
        "polling fails: error=503 after 1s",
        "polling fails: error=503 after 2s (2)",
        "polling fails: error=timeout",
    ]


@pytest.mark.parametrize("level", [logging.DEBUG, logging.INFO])
def test_each_line_below_a_warning_is_shown(kit: Kit, level: int) -> None:
    created = [record("executor created: executor=%d", executor_id, level=level) for executor_id in (1, 2, 3)]
    assert Loop(kit, *created, STOPPED).screen.notes == [f"executor created: executor={i}" for i in (1, 2, 3)]


def test_a_picture_counts_lines_below_a_warning_too(kit: Kit) -> None:
    created = [record("executor created: executor=%d", i, level=logging.DEBUG) for i in (1, 2)]
    loop = Loop(kit, *created, STOPPED, owns_stderr=True)
    assert loop.screen.notes == ["executor created: executor=1", "executor created: executor=2 (2)"]


@pytest.mark.parametrize("beginning", TOLD)
def test_a_warning_that_an_event_tells_is_not_shown_beside_it(kit: Kit, beginning: str) -> None:
    assert Loop(kit, record(f"{beginning}x=%s", "y"), STOPPED).screen.notes == []
    assert Loop(kit, record(f"{beginning}x=%s", "y", name="other"), STOPPED).screen.notes != []
    sources = "".join(path.read_text() for path in Path(actors.__file__).parent.rglob("*.py") if path.name != "logs.py")
    assert f'"{beginning}' in sources, "no line of the log begins so any more"


def test_lines_repeat_a_warning_more_and_more_rarely(capsys: pytest.CaptureFixture[str]) -> None:
    lines = Lines(io.StringIO(), to_line)
    for times in range(1, 150):
        lines.note("the watch is cut", times)
    assert capsys.readouterr().err.splitlines() == [
        "executor-pods: the watch is cut",
        "executor-pods: the watch is cut (10 times)",
        "executor-pods: the watch is cut (100 times)",
    ]


def test_lines_notice_that_their_reader_has_ended_though_nothing_is_written(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    with os.fdopen(writer, "w") as stream, (tmp_path / "file").open("w") as file:
        for each in (stream, file, io.StringIO()):
            Lines(each, to_line).refresh()
        os.close(reader)
        with pytest.raises(BrokenPipeError):
            Lines(stream, to_line).refresh()


def test_a_picture_that_cannot_be_drawn_is_no_reason_to_leave_the_fleet_alone(kit: Kit) -> None:
    loop = Loop(kit, event("running"), event("removed"), STOPPED, fail=ZeroDivisionError("oops"))
    assert loop.screen.notes == ["the table failed, going on with lines: ZeroDivisionError('oops')"]
    assert loop.screen.shown == ["removed", "stopped"]
    assert (loop.stops, loop.exit_code) == ([], 0)


def test_as_json_log_records_go_to_stderr_with_their_fields(kit: Kit, capsys: pytest.CaptureFixture[str]) -> None:
    removed = record("executor removed: executor=%d", 3)
    removed.created, removed.executor_id, removed.reason = NOW.timestamp(), 3, HOSTILE
    refused = record("creation refused: error=%s", HOSTILE)
    assert Loop(kit, removed, refused, STOPPED, log_format="json").screen.notes == []
    first, second = capsys.readouterr().err.splitlines()
    assert first.isascii()
    assert first.isprintable()
    assert second.isprintable()
    assert json.loads(first) == {
        "time": "2026-03-01T12:00:00.250Z",
        "level": "WARNING",
        "logger": "actors.x",
        "message": "executor removed: executor=3",
        "executor_id": 3,
        "reason": HOSTILE,
    }


FULL = OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize(
    ("error", "items", "why", "exit_code"),
    [
        (BrokenPipeError(), [], "stdout was closed", 0),
        (FULL, [], "stdout cannot be written", 1),
        (FULL, [signal.SIGTERM], "stdout cannot be written", 1),
        (FULL, [signal.SIGINT], "stdout cannot be written", 130),
        (OSError(errno.EIO, "Input/output error"), [], "stdout cannot be written", 1),
    ],
    ids=str,
)
def test_a_stdout_that_cannot_be_written_ends_the_fleet(
    kit: Kit,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    error: OSError,
    items: list[signal.Signals],
    why: str,
    exit_code: int,
) -> None:
    with (tmp_path / "out").open("w") as stdout:
        monkeypatch.setattr("sys.stdout", stdout)
        loop = Loop(kit, *items, event("running"), event("running"), STOPPED, fail=error)
        assert loop.stops[-1] == why
        assert len(loop.stops) == len(items) + 1
        assert loop.exit_code == exit_code
        print("nobody reads it", flush=True)
    assert (tmp_path / "out").read_text() == ""
