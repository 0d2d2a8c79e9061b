"""The command as a user runs it: a process of its own, on the embedded cluster, with real executors."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import socket
import subprocess
import sys
import termios
import threading
import uuid
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Self
from urllib.request import urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families

import actors
from tests.contract.raw import HttpDoor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

SAFETY_SECONDS = 60.0
"""A command that hangs is killed after this; no test waits for it."""

Event = dict[str, Any]


class Command:
    """`executor-pods` with these arguments, its temporary files in a folder of its own."""

    def __init__(
        self,
        tmp: Path,
        *arguments: str,
        stdin: int | None = None,
        stdout: int | IO[str] = subprocess.PIPE,
        stderr: int | IO[str] = subprocess.PIPE,
        closed: bool = False,
        session: bool = False,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self.tmp = tmp
        root = Path(actors.__file__).parents[1]
        env = {name: value for name, value in os.environ.items() if not name.startswith("EXECUTOR_PODS_")}
        shell = ("sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh") if closed else ()
        self.process = subprocess.Popen(
            [*shell, sys.executable, "-m", "actors", *arguments],
            stdin=stdin,
            start_new_session=session,
            stdout=stdout,
            stderr=stderr,
            text=True,
            env=env | {"TMPDIR": str(tmp), "PYTHONPATH": str(root)} | dict(environ or {}),
        )
        self._safety = threading.Timer(SAFETY_SECONDS, self.process.kill)
        self._safety.start()
        self.events: list[Event] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._safety.cancel()
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdout, self.process.stderr):
            if pipe is not None:
                pipe.close()

    def until(self, wanted: Callable[[Event], bool]) -> Event:
        """Read JSON lines until one fits."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.events.append(json.loads(line))
            if wanted(self.events[-1]):
                return self.events[-1]
        raise AssertionError(f"the command ended before that; it printed {self.events} and {self._errors()}")

    def until_event(self, name: str, executor_id: int | None = None) -> Event:
        return self.until(lambda e: e["event"] == name and executor_id in {None, e["executor_id"]})

    def interrupt(self) -> None:
        self.process.send_signal(signal.SIGINT)

    def end(self) -> int:
        """Wait for its end; the exit code."""
        out, err = self.process.communicate()
        self.events += [json.loads(line) for line in (out or "").splitlines() if line.startswith("{")]
        self.errors = err
        return self.process.returncode

    def _errors(self) -> str:
        return self.process.communicate()[1]

    def leftovers(self, marker: str) -> list[str]:
        """Processes with this word in their command line, and temporary files."""
        found = subprocess.run(["pgrep", "-f", marker], capture_output=True, text=True, check=False)
        return [*found.stdout.split(), *(str(path) for path in self.tmp.iterdir())]


@pytest.fixture
def tmp(tmp_path: Path) -> Path:
    folder = tmp_path / "t"
    folder.mkdir()
    return folder


@pytest.fixture
def marker() -> str:
    """A word in the executors' command line that nobody else has."""
    return f"marker-{uuid.uuid4().hex}"


@pytest.fixture
def executor(marker: str) -> list[str]:
    """An executor that runs until it gets SIGTERM."""
    return ["--", "sh", "-c", f"trap 'exit 0' TERM; sleep 600 & wait; : {marker}"]


def run_json(tmp: Path, *arguments: str) -> Command:
    return Command(tmp, "run", "--local", "--output", "json", *arguments)


def pids(marker: str) -> list[int]:
    done = subprocess.run(["pgrep", "-f", marker], capture_output=True, text=True, check=False)
    return [int(pid) for pid in done.stdout.split()]


def page(url: str) -> dict[str, float]:
    """The samples of a metrics page by name, of all label values together."""
    with urlopen(url, timeout=SAFETY_SECONDS) as response:
        families = text_string_to_metric_families(response.read().decode())
        samples = [sample for family in families for sample in family.samples]
    return {name: sum(sample.value for sample in samples if sample.name == name) for name, *_ in samples}


def test_a_killed_executor_is_reported_with_its_exit_code_counted_and_replaced(
    tmp: Path, marker: str, executor: list[str]
) -> None:
    with run_json(tmp, "--executors", "1", "--metrics-port", "0", "--page-port", "0", *executor) as command:
        assert command.process.stderr is not None
        said, _, url = command.process.stderr.readline().strip().rpartition(" ")
        assert said == "executor-pods: metrics at"
        said, _, page_url = command.process.stderr.readline().strip().rpartition(" ")
        assert said == "executor-pods: page at"
        command.until_event("running", 1)
        for pid in pids(f"sh -c .*{marker}"):
            if pid != command.process.pid:
                os.kill(pid, signal.SIGKILL)
        removed = command.until_event("removed", 1)
        assert (removed["exit_code"], removed["pod"]) == (137, command.events[0]["app_id"] + "-exec-1")
        assert "137" in removed["message"]
        command.until_event("running", 2)
        assert page(f"{page_url}metrics").keys() == page(url).keys()
        with urlopen(f"{page_url}readyz?verbose", timeout=SAFETY_SECONDS) as response:
            assert response.read().endswith(b"readyz check passed\n")
        with urlopen(f"{page_url}api/v1/events", timeout=SAFETY_SECONDS) as response:
            events = [(event["event"], event["id"]) for event in json.load(response)["events"]]
        assert [each for each in events if each[0] == "removed"] == [("removed", 1)]
        samples = page(url)
        assert samples["executor_pods_up"] == 1
        assert samples["executor_pods_executors_running_total"] == 2
        command.process.terminate()
        assert command.end() == 0
        assert command.leftovers(marker) == []


def test_a_child_process_observes_the_fleet_and_writes_if_the_settings_want_it(
    tmp: Path, marker: str, executor: list[str]
) -> None:
    config = tmp.parent / "fleet.toml"
    config.write_text("[source]\nprocess = true\n")
    with run_json(tmp, "--executors", "1", "--config", str(config), *executor) as command:
        command.until_event("running", 1)
        look = ["pgrep", "-P", str(command.process.pid), "-f", "actors.backend.process"]
        fleet = subprocess.run(look, capture_output=True, text=True, check=True).stdout.strip()
        command.interrupt()
        assert command.end() == 130
        assert not Path(f"/proc/{fleet}").exists()


def test_kill_every_kills_and_the_fleet_recovers_until_its_reader_goes_away(
    tmp: Path, marker: str, executor: list[str]
) -> None:
    with run_json(tmp, "--executors", "4", "--kill-every", "300ms", *executor) as command:
        command.until_event("running", 7)
        assert command.process.stdout is not None
        command.process.stdout.close()
        command.process.wait()
        assert command.process.returncode == 0
        assert command.process.stderr is not None
        assert "Traceback" not in command.process.stderr.read()
        assert command.leftovers(marker) == []
    killed = [e for e in command.events if e["event"] == "removed" and e["exit_code"] == 137]
    assert len(killed) >= 3


def test_an_executor_whose_image_cannot_be_pulled_is_reported_stuck(
    tmp: Path, marker: str, executor: list[str]
) -> None:
    faults = ["--image", "worker:1", "--fail-pulls", "none", "--fail-pulls", "worker:*"]
    with run_json(tmp, "--executors", "1", *faults, *executor) as command:
        assert command.until_event("stuck")["reason"] == "ImagePullBackOff"
        command.interrupt()
        assert command.end() == 130
    assert command.leftovers(marker) == []


@pytest.mark.parametrize("moment", ["at once", pytest.param("started", marks=pytest.mark.stress)])
def test_ctrl_c_leaves_nothing_behind_of_a_fleet_that_starts(
    tmp: Path, marker: str, executor: list[str], moment: str
) -> None:
    with run_json(tmp, "--executors", "8", *executor) as command:
        if moment == "at once":
            while command.process.poll() is None and not any(tmp.iterdir()):
                select.select([], [], [], 0.01)
        else:
            command.until_event(moment)
        command.interrupt()
        assert command.end() == 130, command.errors
        assert command.leftovers(marker) == []


def test_a_second_ctrl_c_kills_even_executors_that_ignore_a_stop(tmp: Path, marker: str) -> None:
    stubborn = f"trap '' TERM; while :; do sleep 1; done; : {marker}"
    with run_json(tmp, "--executors", "2", "--", "sh", "-c", stubborn) as command:
        command.until_event("running", 2)
        command.interrupt()
        assert command.process.stderr is not None
        assert "press Ctrl-C again to exit at once" in command.process.stderr.readline()
        command.interrupt()
        assert command.end() == 130
        assert command.leftovers(marker) == []


@pytest.mark.stress  # it waits for ten seconds
def test_executors_that_ignore_a_stop_are_reported_removed_all_the_same(tmp: Path, marker: str) -> None:
    stubborn = f"trap '' TERM; while :; do sleep 1; done; : {marker}"
    with run_json(tmp, "--executors", "2", "--for", "1s", "--", "sh", "-c", stubborn) as command:
        assert command.end() == 0
        assert command.leftovers(marker) == []
    ended = [each["event"] for each in command.events[-3:]]
    assert ended == ["removed", "removed", "stopped"]


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(("run", "--local", "--executors", "2", "--output", "json"), id="run"),
        pytest.param(("local",), id="local", marks=pytest.mark.stress),
        pytest.param(("run", "--help"), id="help"),
    ],
)
def test_a_stdout_that_is_full_ends_the_command_in_order_with_a_sentence_and_a_failure(
    tmp: Path, marker: str, executor: list[str], arguments: tuple[str, ...]
) -> None:
    commands = executor if "--local" in arguments else []
    with Path("/dev/full").open("w") as full, Command(tmp, *arguments, *commands, stdout=full) as command:
        assert command.end() == 1
        assert command.errors.splitlines()[0].startswith(
            "executor-pods: stdout cannot be written: No space left on device"
        )
        assert command.errors.count("\n") == 1
        assert command.leftovers(marker) == []


@pytest.mark.stress
def test_a_stderr_that_is_full_costs_the_notes_only(tmp: Path, marker: str, executor: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        arguments = ["run", "--local", "--executors", "1", "--metrics-port", "0", "--output", "json", *executor]
        with Command(tmp, *arguments, stderr=full) as command:
            command.until_event("running", 1)
            command.interrupt()
            assert command.end() == 130
            assert command.events[-1]["event"] == "stopped"
            assert command.leftovers(marker) == []


@pytest.mark.stress
def test_closed_streams_discard_what_is_written(tmp: Path, marker: str, executor: list[str]) -> None:
    arguments = ["run", "--local", "--executors", "1", "--metrics-port", "0", "--for", "1s", *executor]
    with Command(tmp, *arguments, closed=True) as command:
        assert command.end() == 0
        assert command.leftovers(marker) == []


def test_into_a_pipe_the_live_output_is_lines_without_colours_and_escaped_where_it_is_not_utf_8(
    tmp: Path, marker: str, executor: list[str]
) -> None:
    folder = tmp.parent / "größe"
    folder.mkdir()
    environ = {"TMPDIR": str(folder), "PYTHONIOENCODING": "ascii", "FORCE_COLOR": "1"}
    with Command(tmp, "run", "--local", "--executors", "2", "--for", "2s", *executor, environ=environ) as command:
        assert command.process.stdout is not None
        lines = command.process.stdout.readlines()
        assert command.end() == 0
        assert [*command.leftovers(marker), *folder.iterdir()] == []
    assert command.errors == ""
    assert "\x1b" not in "".join(lines)
    assert r"gr\xf6\xdfe" in "".join(lines)
    events = Counter(line.split()[1] for line in lines)
    assert events["running"] == events["removed"] > 0
    assert lines[0].split()[1] == "started"
    assert lines[-1].split(maxsplit=1)[1].startswith("stopped                     time is up: 2 executors ran")


def rest_of(terminal: int) -> str:
    """What is written to a terminal until its other end is closed: an error on Linux, an empty read elsewhere."""
    seen = b""
    with suppress(OSError):
        while chunk := os.read(terminal, 65536):
            seen += chunk
    return seen.decode(errors="replace")


def until(terminal: int, words: str) -> str:
    """Read what is written to a terminal until these words come."""
    seen = ""
    while words not in seen:
        seen += os.read(terminal, 65536).decode(errors="replace")
    return seen


def test_on_a_terminal_the_live_output_is_a_table_and_the_end_stays_on_it(
    tmp: Path, marker: str, executor: list[str]
) -> None:
    ours, theirs = pty.openpty()
    arguments = ["run", "--local", "--executors", "2", *executor]
    with Command(tmp, *arguments, stdout=theirs, environ={"PYTHONIOENCODING": "ascii"}) as command:
        os.close(theirs)
        seen = until(ours, "running      executor 2")
        command.interrupt()
        seen += rest_of(ours)
        assert command.end() == 130
        assert command.leftovers(marker) == []
    os.close(ours)
    for words in ("PROFILE", "TARGET", "ID  POD", "STATE"):
        assert words in seen
    _, left = seen.split("\x1b[?1049l")
    assert "interrupted after" in left
    assert "2 executors ran" in left


def test_keys_stop_the_fleet_and_the_terminal_is_as_it_was(tmp: Path, marker: str, executor: list[str]) -> None:
    ours, theirs = pty.openpty()
    before = termios.tcgetattr(theirs)
    arguments = ["run", "--local", "--executors", "1", *executor]
    with Command(tmp, *arguments, stdin=theirs, stdout=theirs, session=True) as command:
        until(ours, "running      executor 1")
        assert termios.tcgetattr(theirs) != before
        command.process.send_signal(signal.SIGTSTP)  # does not stop it: no shell of its session could continue it
        assert "\x1b[?1049l" in until(ours, "\x1b[?1049h")
        os.write(ours, b"q")
        until(ours, "stop the fleet and delete its executors?")
        os.write(ours, b"y")
        assert command.process.wait() == 0
        assert command.leftovers(marker) == []
        assert termios.tcgetattr(theirs) == before
    os.close(theirs)
    os.close(ours)


@pytest.mark.stress  # one process more
def test_a_signal_that_kills_the_command_gives_the_terminal_back_first(tmp: Path) -> None:
    ours, theirs = pty.openpty()
    before = termios.tcgetattr(theirs)
    with Command(tmp, "run", "--local", "--executors", "0", stdin=theirs, stdout=theirs) as command:
        until(ours, "PROFILE")
        command.process.send_signal(signal.SIGQUIT)
        until(ours, "\x1b[?1049l")
        assert command.process.wait() == -signal.SIGQUIT
        assert termios.tcgetattr(theirs) == before
    os.close(theirs)
    os.close(ours)


@pytest.mark.stress  # one process more
def test_a_terminal_that_cannot_draw_gets_lines(tmp: Path, executor: list[str]) -> None:
    ours, theirs = pty.openpty()
    arguments = ["run", "--local", "--executors", "1", "--for", "1s", *executor]
    with Command(tmp, *arguments, stdout=theirs, environ={"TERM": "dumb"}) as command:
        os.close(theirs)
        seen = rest_of(ours)
        assert command.end() == 0
    os.close(ours)
    assert "\x1b" not in seen
    assert "running      executor 1" in seen


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


def test_a_cluster_that_is_away_fails_the_fleet_with_its_reason(tmp: Path, taken_port: int) -> None:
    kubeconfig = tmp.parent / "kubeconfig"
    kubeconfig.write_text(
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "c",
                "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
                "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{taken_port}"}}],
                "users": [{"name": "u", "user": {"token": "t"}}],
            }
        )
    )
    config = tmp.parent / "fleet.toml"
    config.write_text('[backend]\nstart_timeout = "1s"\nrequest_timeout = "500ms"\nshutdown_timeout = "2s"\n')
    arguments = ["run", "--output", "json", "--image", "x", "--kubeconfig", str(kubeconfig), "--config", str(config)]
    with Command(tmp, *arguments) as command:
        assert command.end() == 1
        assert [e["event"] for e in command.events] == ["failed", "stopped"]
        assert f"127.0.0.1:{taken_port}" in command.events[0]["message"]


def test_the_embedded_cluster_alone_says_where_its_kubeconfig_is_loses_its_node_and_has_it_back(tmp: Path) -> None:
    with Command(tmp, "local", "--lose-node", "1ms", "--node-outage", "1ms") as command:
        assert command.process.stdout is not None
        assert command.process.stdout.readline().startswith("cluster ready")
        path = Path(command.process.stdout.readline().removeprefix("export KUBECONFIG=").strip())
        assert path.stat().st_mode & 0o777 == 0o600
        door = HttpDoor(path)
        watch = door.watch("/api/v1/nodes", {"resourceVersion": "1"})
        ready = [""]
        while ready[-1] != "True" or "Unknown" not in ready:
            conditions = watch.next()["object"]["status"].get("conditions", ())
            ready += [each["status"] for each in conditions if each["type"] == "Ready"]
        watch.close()
        door.close()
        command.process.terminate()
        assert command.end() == 0
        assert list(tmp.iterdir()) == []
