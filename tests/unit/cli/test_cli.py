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
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

import pytest

import actors
from actors.cli.arguments import execute, overrides
from actors.cli.driver import Plan
from actors.cli.events import Event, describe, stopping, to_json, to_line
from actors.cli.logs import TOLD
from actors.cli.main import stranger
from actors.cli.main_loop import Key
from actors.cli.output import Lines
from actors.cli.tally import Tally
from actors.messages import (
    AcquireRefused,
    AllocationBlocked,
    AllocationUnblocked,
    BackendFailed,
    BackendStarted,
    BackendStopped,
    ExecutorPending,
    ExecutorRemoved,
    ExecutorRunning,
    ExecutorStuck,
    ExecutorTerminating,
    FleetFailed,
    LeaseExpired,
    LeaseLost,
    ToDriver,
)
from actors.pods.loss import LossKind, LossReason
from actors.pods.pod import ObjectMeta, Pod
from actors.text import LONGEST_LINE
from tests.unit.changes import only
from tests.unit.cli.runs import OVER, Run, Screen
from tests.unit.hostile import HOSTILE

if TYPE_CHECKING:
    from collections.abc import Callable

    from actors.messages import ProfileStatus
    from actors.testing import Kit

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
    "run --local --page-port 0 --page-token-file /dev/zero": "the page's token must have at least 16 printable",
    "run --local --page-port 0 --page-address 192.0.2.1": "the page cannot be served at 192.0.2.1 port 0: ",
    "run --local --metrics-port 0 --metrics-address 192.0.2.1": "metrics cannot be served at 192.0.2.1 port 0: ",
    "run --local --config /nowhere.toml": "/nowhere.toml: cannot be read: No such file or directory",
    "run --local --config /dev/null": "/dev/null: cannot be read: it is no regular file",
    "run --local --namespace=": "namespace = '': must be a DNS label",
    "run --local --namespace A_b": "namespace = 'A_b': must be a DNS label",
    "run --local --image=": "executor.image = '': must be text without spaces",
    "run": "no image: set --image, executor.image or a pod template; --local needs none",
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
    (AcquireRefused(7, "it was cancelled"), {"event": "refused", "message": "it was cancelled", "lease": 7}),
    (
        LeaseLost(7, 3, LOSS),
        {
            "event": "lost",
            "executor_id": 3,
            "pod": "etl-exec-3",
            "reason": LOSS.kind,
            "message": LOSS.message,
            "lease": 7,
        },
    ),
    (LeaseExpired(7, 3), {"event": "expired", "executor_id": 3, "pod": "etl-exec-3", "lease": 7}),
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


def test_a_line_of_an_end_begins_with_the_last_line_that_the_executor_said() -> None:
    loss = replace(LOSS, message=r"executor 3 exited; termination message: Traceback:\nKeyError: 'a'")
    line = to_line(describe(ExecutorRemoved(3, loss), NOW, {}))
    assert line.endswith("OOM_KILLED: KeyError: 'a'; executor 3 exited; before: Traceback:")


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


# ── What a run came to ───────────────────────────────────────────────────────────────────────────────────────────

LOST = LossReason(LossKind.EVICTED, 143, caused_by_app=False, message="executor 2 was evicted")
ENDED = LossReason(LossKind.KILLED_BY_DRIVER, -1, caused_by_app=False, message="executor 1 was stopped with the fleet")


def tally(*messages: ToDriver | Event) -> Tally:
    counted = Tally()
    for message in messages:
        counted.apply(message if isinstance(message, Event) else describe(message, NOW, {}))
    return counted


def runs(executor_id: int) -> ExecutorRunning:
    return ExecutorRunning(executor_id, pod(f"etl-exec-{executor_id}"))


def test_a_run_came_to_how_many_ran_were_lost_and_were_replaced() -> None:
    losses = runs(1), runs(2), ExecutorRemoved(2, LOST), runs(3), ExecutorRemoved(3, LOSS)
    counted = tally(*losses, stopping(NOW, "interrupted"), ExecutorRemoved(1, ENDED))
    assert str(counted) == "3 executors ran, 2 lost (EVICTED 1, OOM_KILLED 1), 1 replaced"
    assert counted.sums() == {"ran": 3, "lost": {"EVICTED": 1, "OOM_KILLED": 1}, "replaced": 1}


def test_an_executor_that_was_requested_before_a_loss_is_no_replacement() -> None:
    waits = (ExecutorPending(number, pod(f"etl-exec-{number}")) for number in (1, 2))
    counted = tally(*waits, runs(1), ExecutorRemoved(1, LOST), runs(2))
    assert str(counted) == "2 executors ran, 1 lost (EVICTED 1), 0 replaced"


QUOTA = only(blocked="the namespace has no room: exceeded quota", blocked_by="QuotaExceeded")
LEASE = only(blocked="another driver holds the lease", blocked_by="lease")


@pytest.mark.parametrize(
    ("messages", "profiles", "is_told"),
    [
        ([], QUOTA, True),
        ([], only(), False),
        ([ExecutorPending(1, pod("etl-exec-1"))], QUOTA, False),
        ([], LEASE, False),
        ([], {}, False),
    ],
    ids=["never", "not any more", "some", "stands by", "stopped at once"],
)
def test_a_run_that_could_not_make_one_executor_says_why(
    messages: list[ToDriver], profiles: dict[str, ProfileStatus], is_told: bool
) -> None:
    why = "no executor could be made: 'default': the namespace has no room: exceeded quota"
    assert tally(*messages).nothing_made(profiles) == (why if is_told else None)


@pytest.mark.parametrize(
    ("executors", "grace", "message"),
    [
        (1, timedelta(seconds=5), "1 executor stays, unless this driver gets the lease"),
        (2, timedelta(seconds=5), "2 executors stay, unless this driver gets the lease"),
        (2, None, "2 executors are left running"),
        (0, timedelta(seconds=5), None),
    ],
)
def test_a_standby_that_stops_promises_no_executor_an_end(
    executors: int, grace: timedelta | None, message: str | None
) -> None:
    assert stopping(NOW, "interrupted", executors, grace, stands_by=True).message == message


# ── The main loop ────────────────────────────────────────────────────────────────────────────────────────────────

GONE = ExecutorRemoved(1, LOSS)


def test_however_much_happens_pictures_have_time_between_them(kit: Kit) -> None:
    screen = Screen()
    screen.on_refresh = lambda: kit.clock.move_to(kit.clock.elapsed + timedelta(seconds=1))
    Run(kit, *[runs(1)] * 50, OVER, screen=screen)
    assert screen.drawn[0] == 0
    assert len(screen.drawn) < 10


def test_keys_and_the_terminals_signals_reach_the_output(kit: Kit) -> None:
    run = Run(kit, signal.SIGTSTP, signal.SIGCONT, signal.SIGWINCH, Key("s"), Key("y"), OVER)
    assert run.screen.acts == ["suspended", "resumed"]
    assert run.stops == ["a key was pressed"]
    assert run.exit_code == 0


def test_the_output_shows_the_fleet_as_it_is(kit: Kit) -> None:
    seen: list[tuple[int, int]] = []
    screen = Screen()

    def look() -> None:
        if screen.status is not None:
            seen.append((len(screen.executors), screen.status.profiles["default"].target))

    screen.on_refresh = look
    Run(kit, screen=screen, plan=Plan(run_for=timedelta(minutes=1)), instances=2)
    assert (2, 2) in seen
    assert len(screen.executors) == 0, "when all is over"


@pytest.mark.parametrize(
    ("items", "exit_code"),
    [
        ([OVER], 0),
        ([signal.SIGTERM, OVER], 0),
        ([signal.SIGHUP, OVER], 0),
        ([signal.SIGINT, OVER], 130),
        ([FleetFailed("x"), OVER], 1),
        ([FleetFailed("x"), signal.SIGINT, OVER], 130),
        ([signal.SIGINT, FleetFailed("x"), OVER], 130),
        ([signal.SIGTERM, FleetFailed("x"), OVER], 0),
        ([signal.SIGINT, signal.SIGINT], 130),
        ([signal.SIGINT, signal.SIGTERM, OVER], 130),
        ([BackendStopped(("etl-exec-1",))], 1),
        ([BackendFailed(RuntimeError("no route"))], 1),
    ],
    ids=str,
)
def test_the_exit_code_has_the_reason_of_the_end(
    kit: Kit, items: list[ToDriver | signal.Signals], exit_code: int
) -> None:
    assert Run(kit, *items).exit_code == exit_code


def test_a_fleet_that_failed_is_stopped_and_a_backend_that_failed_is_not(kit: Kit) -> None:
    assert Run(kit, FleetFailed("too many failures"), OVER).names == ["failed", "stopping", "stopped"]
    run = Run(kit, BackendFailed(RuntimeError("no route")))
    assert run.names == ["failed", "stopped"]
    assert run.last.reason == "the backend failed"


def test_the_last_event_has_the_first_reason_and_the_pods_that_are_left(kit: Kit) -> None:
    run = Run(kit, signal.SIGTERM, signal.SIGINT, BackendStopped(("etl-exec-1",)))
    assert run.names == ["stopping", "stopped"]
    assert (run.last.reason, run.last.details["left_behind"]) == ("SIGTERM received", ("etl-exec-1",))


def test_ctrl_c_stops_in_order_and_a_second_one_at_once(kit: Kit) -> None:
    run = Run(kit, signal.SIGINT, ExecutorTerminating(1, None, "x"), signal.SIGINT)
    assert run.stops == ["interrupted"]
    assert run.names[-1] != "stopped"
    assert run.screen.notes == ["stopping; press Ctrl-C again to exit at once", "exiting at once"]


def record(line: str, *values: object, name: str = "actors.x", level: int = logging.WARNING) -> logging.LogRecord:
    return logging.LogRecord(name, level, "", 0, line, values, None)


def test_warnings_of_the_library_are_shown(kit: Kit) -> None:
    assert Run(kit, record("the watch is cut: error=%s", "boom"), OVER).screen.notes == ["the watch is cut: error=boom"]


def test_a_warning_that_comes_again_is_counted_and_another_one_is_not(kit: Kit) -> None:
    again = [record("polling fails: error=%s", f"503 after {seconds}s") for seconds in (1, 2)]
    loop = Run(kit, *again, record("polling fails: error=%s", "timeout"), OVER)
    assert loop.screen.notes == [
        "polling fails: error=503 after 1s",
        "polling fails: error=503 after 2s (2)",
        "polling fails: error=timeout",
    ]


@pytest.mark.parametrize("level", [logging.DEBUG, logging.INFO])
def test_each_line_below_a_warning_is_shown(kit: Kit, level: int) -> None:
    created = [record("executor created: executor=%d", executor_id, level=level) for executor_id in (1, 2, 3)]
    assert Run(kit, *created, OVER).screen.notes == [f"executor created: executor={i}" for i in (1, 2, 3)]


def test_a_picture_counts_lines_below_a_warning_too(kit: Kit) -> None:
    created = [record("executor created: executor=%d", i, level=logging.DEBUG) for i in (1, 2)]
    loop = Run(kit, *created, OVER, screen=Screen(owns_stderr=True))
    assert loop.screen.notes == ["executor created: executor=1", "executor created: executor=2 (2)"]


@pytest.mark.parametrize("beginning", TOLD)
def test_a_warning_that_an_event_tells_is_not_shown_beside_it(kit: Kit, beginning: str) -> None:
    assert Run(kit, record(f"{beginning}x=%s", "y"), OVER).screen.notes == []
    assert Run(kit, record(f"{beginning}x=%s", "y", name="other"), OVER).screen.notes != []
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
    run = Run(kit, runs(1), GONE, OVER, screen=Screen(ZeroDivisionError("oops")))
    assert run.screen.notes == ["the table failed, going on with lines: ZeroDivisionError('oops')"]
    assert run.names == ["removed", "stopped"]
    assert run.exit_code == 0


def test_as_json_log_records_go_to_stderr_with_their_fields(kit: Kit, capsys: pytest.CaptureFixture[str]) -> None:
    removed = record("executor removed: executor=%d", 3)
    removed.created, removed.executor_id, removed.reason = NOW.timestamp(), 3, HOSTILE
    refused = record("creation refused: error=%s", HOSTILE)
    assert Run(kit, removed, refused, OVER, log_format="json").screen.notes == []
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
    ("error", "items", "exit_code"),
    [
        (BrokenPipeError(), [], 0),
        (FULL, [], 1),
        (FULL, [signal.SIGTERM], 1),
        (FULL, [signal.SIGINT], 130),
        (OSError(errno.EIO, "Input/output error"), [], 1),
    ],
    ids=str,
)
def test_a_stdout_that_cannot_be_written_ends_the_fleet(
    kit: Kit,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    error: OSError,
    items: list[signal.Signals],
    exit_code: int,
) -> None:
    with (tmp_path / "out").open("w") as stdout:
        monkeypatch.setattr("sys.stdout", stdout)
        run = Run(kit, *items, at={30: [runs(1)]}, screen=Screen(error), instances=1)
        assert run.cluster.pods == {}
        assert run.exit_code == exit_code
        print("nobody reads it", flush=True)
    assert (tmp_path / "out").read_text() == ""


def test_a_package_of_the_same_name_that_was_installed_over_ours_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert stranger() is None
    monkeypatch.setattr(actors, "__all__", ["Actor"])
    monkeypatch.setattr(actors, "__file__", "/site-packages/actors/__init__.py")
    assert str(stranger()).startswith("/site-packages/actors/__init__.py is not of executor-pods: ")
    monkeypatch.setattr(actors, "__file__", None)
    assert "has lost its `__init__.py`" in str(stranger())
