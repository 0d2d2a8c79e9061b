"""Pods as real processes: their starts, ends and statuses."""

from __future__ import annotations

import os
import signal
import sys
import threading
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from actors.local.kubelet.delays import LOOK, Delays
from actors.local.kubelet.processes.containers import NO_IMAGE, argv
from actors.local.kubelet.processes.processes import ProcessExited
from actors.local.store.object_store import ApiStatus
from actors.manifests.pause import drained_file, pause_variables
from actors.runtime import Entropy
from tests.unit.local.process_kit import Laptop, ended, is_alive, process_of

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def laptop(tmp_path: Path) -> Iterator[Laptop]:
    laptop = Laptop(tmp_path)
    laptop.kubelet.start()
    yield laptop
    laptop.kubelet.stop()


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    """A pipe on which a process writes a line that the test waits for."""
    pipe = tmp_path / "output"
    os.mkfifo(pipe)
    return pipe


def conditions(pod: dict[str, Any]) -> dict[str, str]:
    return {each["type"]: each["status"] for each in pod["status"]["conditions"]}


def test_a_pod_is_bound_run_and_ready(laptop: Laptop) -> None:
    laptop.create("a", ["sleep", "1000"])
    pod = laptop.wait_phase("a", "Running")
    assert pod["spec"]["nodeName"] == "local"
    assert pod["status"]["podIP"] == "127.0.0.1"
    assert is_alive(process_of(pod))
    assert set(conditions(pod).values()) == {"True"}


def test_exit_code_0_is_succeeded_and_completed(laptop: Laptop) -> None:
    laptop.create("a", ["true"])
    pod = laptop.wait_phase("a", "Succeeded")
    assert (ended(pod)["exitCode"], ended(pod)["reason"]) == (0, "Completed")
    assert conditions(pod)["Ready"] == "False"


def test_another_exit_code_is_failed_with_the_end_of_the_log_if_requested(laptop: Laptop) -> None:
    words = {"terminationMessagePolicy": "FallbackToLogsOnError"}
    laptop.create("a", ["sh", "-c", "echo no such table >&2; exit 3"], container=words)
    pod = laptop.wait_phase("a", "Failed")
    assert (ended(pod)["exitCode"], ended(pod)["reason"], ended(pod)["message"]) == (3, "Error", "no such table")


def test_the_end_of_the_log_is_left_out_unless_requested(laptop: Laptop) -> None:
    laptop.create("a", ["sh", "-c", "echo no such table; exit 3"])
    assert "message" not in ended(laptop.wait_phase("a", "Failed"))


def test_a_termination_message_has_at_most_80_lines_and_2048_bytes(laptop: Laptop) -> None:
    words = {"terminationMessagePolicy": "FallbackToLogsOnError"}
    laptop.create("many", ["sh", "-c", "seq 1000; exit 1"], container=words)
    lines = ended(laptop.wait_phase("many", "Failed"))["message"].splitlines()
    assert lines == [str(number) for number in range(921, 1001)]
    laptop.create("long", ["sh", "-c", "printf %05000d 7; exit 1"], container=words)
    assert len(ended(laptop.wait_phase("long", "Failed"))["message"]) == 2048


def test_a_killed_process_ends_with_128_and_the_signal(laptop: Laptop) -> None:
    laptop.create("a", ["sleep", "1000"])
    os.kill(process_of(laptop.wait_phase("a", "Running")), signal.SIGKILL)
    pod = laptop.wait_phase("a", "Failed")
    assert (ended(pod)["exitCode"], ended(pod)["reason"]) == (137, "Error")


@pytest.mark.parametrize(
    ("command", "folder", "words"),
    [
        ("no-such-command", None, 'exec: "no-such-command": executable file not found in $PATH'),
        ("/no/such/command", None, 'exec: "/no/such/command": stat /no/such/command: no such file or directory'),
        ("/etc/passwd", None, 'exec: "/etc/passwd": permission denied'),
        ("true", "/no/such", 'chdir to cwd ("/no/such") set in config.json failed: no such file or directory'),
    ],
)
def test_a_command_that_cannot_start_fails_the_pod_with_the_code_and_the_words_of_containerd(
    laptop: Laptop, command: str, folder: str | None, words: str
) -> None:
    laptop.create("a", [command], container={"workingDir": folder})
    end = ended(laptop.wait_phase("a", "Failed"))
    assert (end["exitCode"], end["reason"], end["startedAt"]) == (128, "StartError", "1970-01-01T00:00:00Z")
    assert end["message"].startswith("failed to create containerd task: ")
    assert f": {words}: " in end["message"]


def test_a_shell_that_cannot_find_its_command_ends_with_its_own_code(laptop: Laptop) -> None:
    laptop.create("a", ["sh", "-c", "no-such-command"])
    end = ended(laptop.wait_phase("a", "Failed"))
    assert (end["exitCode"], end["reason"]) == (127, "Error")


def test_a_process_finds_its_environment_and_nothing_of_the_hosts_secrets(
    laptop: Laptop, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SECRET_OF_THE_HOST", "x")
    references = {
        "NAME": "metadata.name",
        "IP": "status.podIP",
        "NODE": "spec.nodeName",
        "ID": "metadata.labels['executor-id']",
    }
    env: list[dict[str, Any]] = [
        {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in references.items()
    ]
    env.append({"name": "BOTH", "value": "$(NAME)@$(IP) $$(NAME) $(NOBODY)"})
    container = {"env": env, "args": ["$(BOTH)"], "workingDir": str(tmp_path)}
    laptop.create("a", ["sh", "-c", 'echo "$0"; pwd; env'], container=container)
    first, second, *variables = laptop.output(laptop.wait_phase("a", "Succeeded")).splitlines()
    assert first == "a@127.0.0.1 $(NAME) $(NOBODY)"
    assert Path(second) == tmp_path
    assert {"NAME=a", "NODE=local", "ID=7", "HOSTNAME=a"} <= set(variables)
    assert not any("SECRET_OF_THE_HOST" in variable for variable in variables)


@pytest.mark.parametrize(
    ("container", "words"),
    [
        ({"env": [{"name": "CPU", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}}]}, "resourceFieldRef"),
        ({"envFrom": [{"secretRef": {"name": "s"}}]}, "envFrom"),
    ],
)
def test_an_unsupported_environment_keeps_the_pod_waiting_with_a_reason(
    laptop: Laptop, container: dict[str, Any], words: str
) -> None:
    laptop.create("a", ["true"], container=container)
    pod = laptop.wait("a", lambda pod: waiting(pod) == "CreateContainerConfigError")
    assert pod["status"]["phase"] == "Pending"
    assert words in pod["status"]["containerStatuses"][0]["state"]["waiting"]["message"]


def test_the_built_in_executor_prints_its_identity_and_ends_with_0_on_sigterm(laptop: Laptop, pipe: Path) -> None:
    command = f"exec {' '.join(argv({}, {}))} > {pipe}"
    laptop.create("a", ["sh", "-c", command], container={"env": [{"name": "EXECUTOR_ID", "value": "7"}]})
    with pipe.open() as output:
        first = output.readline()
        laptop.store.delete("pods", "default", "a")
        rest = output.read()
    assert "EXECUTOR_ID=7" in first
    assert "stopped" in rest
    assert ended(laptop.wait_gone("a"))["exitCode"] == 0


def test_a_deletion_sends_sigterm_waits_for_the_grace_period_then_kills(laptop: Laptop, pipe: Path) -> None:
    child = f"sh -c 'echo up; exec sleep 1000' > {pipe}"
    laptop.create("a", ["sh", "-c", f"trap '' TERM; {child} & exec sleep 1000"])
    with pipe.open() as held_open:
        assert held_open.readline() == "up\n"
        laptop.wait_phase("a", "Running")
        laptop.store.delete("pods", "default", "a", grace_period_seconds=17)
        timer = laptop.timers.next()
        assert timer.delay == timedelta(seconds=17)
        assert "deletionTimestamp" in laptop.store.get("pods", "default", "a")["metadata"]
        timer.fire()
        assert ended(laptop.wait_gone("a"))["exitCode"] == 137
        assert held_open.read() == ""  # ends with the last process that holds the pipe


def test_a_process_that_obeys_sigterm_ends_before_its_grace_period(laptop: Laptop, pipe: Path) -> None:
    laptop.create("a", obeys(pipe))
    pipe.read_text()
    laptop.wait_phase("a", "Running")
    laptop.store.delete("pods", "default", "a")
    assert ended(laptop.wait_gone("a"))["exitCode"] == 5
    assert laptop.timers.next().cancelled


@pytest.mark.parametrize(("grace", "seconds"), [(1, 2), (2, 2), (3, 3)])
def test_sigkill_comes_two_seconds_after_sigterm_at_the_earliest(laptop: Laptop, grace: int, seconds: int) -> None:
    laptop.create("a", ["sleep", "1000"])
    laptop.wait_phase("a", "Running")
    laptop.store.delete("pods", "default", "a", grace_period_seconds=grace)
    assert laptop.timers.next().delay == timedelta(seconds=seconds)


def test_a_deletion_that_is_made_shorter_is_as_long_as_it_was_on_the_node(laptop: Laptop) -> None:
    laptop.create("a", ["sleep", "1000"])
    laptop.wait_phase("a", "Running")
    laptop.store.delete("pods", "default", "a", grace_period_seconds=100)
    kill = laptop.timers.next()
    laptop.store.delete("pods", "default", "a", grace_period_seconds=3)
    laptop.create("b", ["true"])
    laptop.wait_phase("b", "Succeeded")  # the kubelet handles pods in order: it has seen the second deletion
    assert not kill.cancelled
    assert laptop.timers.scheduled.empty()
    kill.fire()
    assert ended(laptop.wait_gone("a"))["exitCode"] == 137


def test_the_process_of_a_pod_that_is_deleted_by_force_still_gets_sigterm_and_two_seconds(
    laptop: Laptop, pipe: Path
) -> None:
    laptop.create("a", ["sh", "-c", f"exec sleep 1000 > {pipe}"])
    with pipe.open() as held_open:
        process = process_of(laptop.wait_phase("a", "Running"))
        laptop.store.delete("pods", "default", "a", grace_period_seconds=0)
        laptop.wait_gone("a")
        kill = laptop.timers.next()
        assert kill.delay == timedelta(seconds=2)
        assert is_alive(process)
        kill.fire()
        assert held_open.read() == ""


# ── Process 1 ────────────────────────────────────────────────────────────────────────────────────────────────────

only_linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux shows how a process handles a signal")


def obeys(pipe: Path, code: int = 5) -> list[str]:
    """A program that exits with this code on SIGTERM, from when a line is in the pipe."""
    return ["sh", "-c", f"trap 'exit {code}' TERM; echo > {pipe}; while :; do sleep 0.02; done"]


@only_linux
@pytest.mark.parametrize("command", [["sleep", "1000"], ["sh", "-c", "trap '' TERM; exec sleep 1000"]])
def test_a_program_without_a_handler_does_not_notice_sigterm_as_it_is_process_1(
    laptop: Laptop, command: list[str]
) -> None:
    laptop.create("a", command)
    process = process_of(laptop.wait_phase("a", "Running"))
    laptop.store.delete("pods", "default", "a")
    kill = laptop.timers.next()
    assert is_alive(process)
    assert Path(f"/proc/{process}/status").read_text().splitlines()[2].split()[1] in {"S", "R"}
    kill.fire()
    assert ended(laptop.wait_gone("a"))["exitCode"] == 137


WAITS = """
import signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
print("up", file=open(sys.argv[1], "w"))
signal.sigwait([signal.SIGTERM])
sys.exit(6)
"""


def test_a_program_that_blocks_sigterm_and_waits_for_it_gets_it(laptop: Laptop, pipe: Path) -> None:
    laptop.create("a", [sys.executable, "-I", "-S", "-c", WAITS, str(pipe)])
    pipe.read_text()
    laptop.wait_phase("a", "Running")
    laptop.store.delete("pods", "default", "a")
    assert ended(laptop.wait_gone("a"))["exitCode"] == 6


def test_a_pod_that_ends_by_itself_while_its_deletion_is_on_its_way_is_gone(laptop: Laptop) -> None:
    laptop.create("a", ["sleep", "1000"])
    laptop.wait_phase("a", "Running")
    runner = laptop.kubelet._runner

    def ends_before_the_kubelet_knows_of_the_deletion() -> None:
        laptop.store.delete("pods", "default", "a", grace_period_seconds=4)
        (container,) = runner._with_process("default", "a")
        assert container.key is not None
        runner.process_exited(ProcessExited(container.key, 3))

    laptop.kubelet._ask(ends_before_the_kubelet_knows_of_the_deletion)
    laptop.wait_gone("a")


def test_with_a_shared_process_namespace_sigterm_ends_a_program_without_a_handler(laptop: Laptop) -> None:
    laptop.create("a", ["sleep", "1000"], shareProcessNamespace=True)
    laptop.wait_phase("a", "Running")
    laptop.store.delete("pods", "default", "a")
    assert ended(laptop.wait_gone("a"))["exitCode"] == 143


@only_linux
def test_a_handler_that_is_installed_after_sigterm_does_not_see_it(laptop: Laptop, pipe: Path, tmp_path: Path) -> None:
    go = tmp_path / "go"
    os.mkfifo(go)
    laptop.create("a", ["sh", "-c", f"read x < {go}; trap 'exit 5' TERM; echo > {pipe}; while :; do sleep 0.02; done"])
    laptop.wait_phase("a", "Running")
    laptop.store.delete("pods", "default", "a")
    kill = laptop.timers.next()
    go.write_text("go\n")
    pipe.read_text()
    kill.fire()
    assert ended(laptop.wait_gone("a"))["exitCode"] == 137


def test_what_a_process_left_behind_in_its_group_is_killed_with_it(laptop: Laptop, pipe: Path, tmp_path: Path) -> None:
    go = tmp_path / "go"
    os.mkfifo(go)
    laptop.create("a", ["sh", "-c", f"sh -c 'echo up; exec sleep 1000' > {pipe} & read x < {go}; exit 0"])
    with pipe.open() as held_open:
        assert held_open.readline() == "up\n"
        go.write_text("go\n")
        laptop.wait_phase("a", "Succeeded")
        assert held_open.read() == ""


def test_init_containers_run_first_one_after_the_other(laptop: Laptop, tmp_path: Path) -> None:
    file = tmp_path / "order"
    inits = [
        {"name": name, "image": "none", "command": ["sh", "-c", f"echo {name} >> {file}"]} for name in ("one", "two")
    ]
    laptop.create("a", ["sh", "-c", f"echo main >> {file}"], initContainers=inits)
    pod = laptop.wait_phase("a", "Succeeded")
    assert file.read_text().split() == ["one", "two", "main"]
    assert [each["ready"] for each in pod["status"]["initContainerStatuses"]] == [True, True]


def test_a_failed_init_container_fails_the_pod_and_nothing_else_starts(laptop: Laptop) -> None:
    inits = [{"name": "one", "image": "none", "command": ["sh", "-c", "exit 4"]}]
    laptop.create("a", ["true"], initContainers=inits)
    pod = laptop.wait_phase("a", "Failed")
    assert pod["status"]["initContainerStatuses"][0]["state"]["terminated"]["exitCode"] == 4
    assert pod["status"]["containerStatuses"][0]["state"] == {"waiting": {"reason": "PodInitializing"}}


def test_a_pod_of_two_containers_has_ended_when_both_have(laptop: Laptop, pipe: Path) -> None:
    sidecar = {"name": "sidecar", "image": "none", "command": ["sh", "-c", f"read x < {pipe}; exit 0"]}
    main = {"name": "executor", "image": "none", "command": ["sh", "-c", "exit 5"]}
    laptop.create("a", None, containers=[main, sidecar])
    pod = laptop.wait(
        "a", lambda pod: "terminated" in pod["status"].get("containerStatuses", [{"state": {}}])[0]["state"]
    )
    assert pod["status"]["phase"] in {"Pending", "Running"}
    pipe.write_text("go\n")
    assert ended(laptop.wait_phase("a", "Failed"))["exitCode"] == 5


def test_restart_policy_on_failure_restarts_with_back_off(laptop: Laptop) -> None:
    laptop.create("a", ["sh", "-c", "exit 6"], restartPolicy="OnFailure")

    def backing_off(restarts: int) -> dict[str, Any]:
        def holds(pod: dict[str, Any]) -> bool:
            status = pod["status"].get("containerStatuses", [{}])[0]
            reason = status.get("state", {}).get("waiting", {}).get("reason")
            return bool(reason == "CrashLoopBackOff" and status["restartCount"] == restarts)

        return laptop.wait("a", holds)

    pod = backing_off(1)
    assert pod["status"]["phase"] == "Running"
    assert pod["status"]["containerStatuses"][0]["lastState"]["terminated"]["exitCode"] == 6
    for restarts, seconds in ((2, 10), (3, 20), (4, 40)):
        timer = laptop.timers.next()
        assert timer.delay == timedelta(seconds=seconds)
        timer.fire()
        backing_off(restarts)


def test_restart_policy_on_failure_lets_a_success_be_the_end(laptop: Laptop) -> None:
    laptop.create("a", ["true"], restartPolicy="OnFailure")
    assert laptop.wait_phase("a", "Succeeded")["status"]["containerStatuses"][0]["restartCount"] == 0


def test_ignored_fields_are_listed_in_an_event(laptop: Laptop) -> None:
    laptop.create("a", ["true"], container={"livenessProbe": {"exec": {"command": ["true"]}}})
    laptop.wait_phase("a", "Succeeded")
    messages = [each["message"] for each in laptop.store.list("events", "default").items]
    assert "not applied to processes of this machine: image, livenessProbe" in messages


def test_an_image_and_claims_that_are_not_used_are_named_in_the_event(laptop: Laptop) -> None:
    claim = {"name": "scratch", "persistentVolumeClaim": {"claimName": "a-scratch"}}
    laptop.create("a", ["true"], volumes=[claim], container={"image": "registry.example/worker:1.4"})
    laptop.create("b", ["true"], container={"image": NO_IMAGE})
    laptop.wait_phase("a", "Succeeded")
    laptop.wait_phase("b", "Succeeded")
    found = [each for each in laptop.store.list("events", "default").items if each["reason"] == "NotSupported"]
    assert [(each["involvedObject"]["name"], each["message"]) for each in found] == [
        ("a", "not applied to processes of this machine: claims, image")
    ]


# ── Pods that end before all of their containers have run ────────────────────────────────────────────────────────

UNKNOWN = {
    "exitCode": 137,
    "reason": "ContainerStatusUnknown",
    "message": "The container could not be located when the pod was terminated",
}


def test_a_waiting_container_of_a_pod_that_is_deleted_ends_with_an_unknown_status(laptop: Laptop) -> None:
    laptop.kubelet.fail_pulls("*")
    laptop.create("a", ["sleep", "1000"])
    laptop.wait("a", lambda pod: waiting(pod) == "ImagePullBackOff")
    laptop.store.delete("pods", "default", "a")
    pod = laptop.wait_gone("a")
    assert pod["status"]["phase"] == "Failed"
    assert ended(pod) == UNKNOWN
    assert pod["status"]["containerStatuses"][0]["restartCount"] == 0


def test_a_container_that_waits_for_its_restart_ends_with_the_code_of_its_last_run(laptop: Laptop) -> None:
    laptop.create("a", ["sh", "-c", "exit 6"], restartPolicy="Always")
    laptop.wait("a", lambda pod: waiting(pod) == "CrashLoopBackOff")
    laptop.store.delete("pods", "default", "a")
    pod = laptop.wait_gone("a")
    assert (ended(pod)["exitCode"], ended(pod)["reason"], pod["status"]["phase"]) == (6, "Error", "Failed")


def test_a_pod_that_is_deleted_before_it_is_initialized_leaves_its_main_container_waiting(laptop: Laptop) -> None:
    laptop.kubelet.fail_pulls("broken:*")
    inits = [
        {"name": "done", "image": "none", "command": ["true"]},
        {"name": "stuck", "image": "broken:1", "command": ["true"]},
        {"name": "later", "image": "none", "command": ["true"]},
    ]
    laptop.create("a", ["true"], initContainers=inits)
    laptop.wait("a", lambda pod: "ImagePullBackOff" in str(pod["status"]))
    laptop.store.delete("pods", "default", "a")
    status = laptop.wait_gone("a")["status"]
    assert [each["state"].get("waiting") for each in status["initContainerStatuses"]] == [
        None,
        {"reason": "PodInitializing"},
        {"reason": "PodInitializing"},
    ]
    assert status["containerStatuses"][0]["state"] == {"waiting": {"reason": "PodInitializing"}}
    assert status["phase"] == "Failed"


# ── Native sidecars ──────────────────────────────────────────────────────────────────────────────────────────────


def sidecar(name: str, *command: str) -> dict[str, Any]:
    return {"name": name, "image": "none", "command": list(command), "restartPolicy": "Always"}


def look(laptop: Laptop) -> None:
    """Let the kubelet look whether a sidecar that has started still runs."""
    timer = laptop.timers.next()
    assert timer.delay == LOOK
    timer.fire()


def states(pod: dict[str, Any], kind: str = "initContainerStatuses") -> list[str]:
    return [next(iter(each["state"])) for each in pod["status"].get(kind, ())]


def test_sidecars_start_before_the_main_container_in_order_and_run_beside_it(laptop: Laptop, tmp_path: Path) -> None:
    file = tmp_path / "order"
    inits = [
        sidecar("first", "sh", "-c", f"echo first >> {file}; exec sleep 1000"),
        {"name": "setup", "image": "none", "command": ["sh", "-c", f"echo setup >> {file}"]},
        sidecar("second", "sh", "-c", f"sleep 0.1; echo second >> {file}; exec sleep 1000"),
    ]
    laptop.create("a", ["sleep", "1000"], initContainers=inits)
    look(laptop)
    look(laptop)
    pod = laptop.wait_phase("a", "Running")
    assert states(pod) == ["running", "terminated", "running"]
    assert [each["ready"] for each in pod["status"]["initContainerStatuses"]] == [True, True, True]
    assert file.read_text().split()[:2] == ["first", "setup"]
    assert conditions(pod)["Initialized"] == conditions(pod)["Ready"] == "True"


def test_a_pod_has_ended_when_its_main_container_and_then_its_sidecars_have(laptop: Laptop, pipe: Path) -> None:
    laptop.create("a", ["sh", "-c", f"read x < {pipe}; exit 3"], initContainers=[sidecar("proxy", "sleep", "1000")])
    look(laptop)
    laptop.wait_phase("a", "Running")
    pipe.write_text("go\n")
    pod = laptop.wait("a", lambda pod: states(pod, "containerStatuses") == ["terminated"])
    assert pod["status"]["phase"] == "Running"
    assert states(pod) == ["running"]
    kill = laptop.timers.next()
    assert kill.delay == timedelta(seconds=30)
    kill.fire()
    pod = laptop.wait_phase("a", "Failed")
    assert ended(pod)["exitCode"] == 3
    assert pod["status"]["initContainerStatuses"][0]["state"]["terminated"]["exitCode"] == 137
    assert pod["status"]["initContainerStatuses"][0]["restartCount"] == 0


def test_the_exit_code_of_a_sidecar_does_not_count(laptop: Laptop, pipe: Path) -> None:
    laptop.create("a", ["sh", "-c", f"read x < {pipe}"], initContainers=[sidecar("proxy", *obeys(pipe, 9))])
    pipe.read_text()
    look(laptop)
    laptop.wait_phase("a", "Running")
    pipe.write_text("go\n")
    pod = laptop.wait_phase("a", "Succeeded")
    assert pod["status"]["initContainerStatuses"][0]["state"]["terminated"]["exitCode"] == 9


def test_a_sidecar_is_restarted_with_backoff_and_counted_while_the_main_container_runs(
    laptop: Laptop, pipe: Path
) -> None:
    inits = [sidecar("proxy", "sh", "-c", f"read x < {pipe}; exit 0")]
    laptop.create("a", ["sleep", "1000"], initContainers=inits)
    look(laptop)
    laptop.wait_phase("a", "Running")
    for restarts in (1, 2):
        pipe.write_text("go\n")
        if restarts == 2:
            backoff = laptop.timers.next()
            assert backoff.delay == timedelta(seconds=10)
            pod = laptop.wait("a", lambda pod: states(pod) == ["waiting"])
            assert pod["status"]["phase"] == "Running"
            backoff.fire()
        look(laptop)
        pod = laptop.wait(
            "a",
            lambda pod, restarts=restarts: (  # type: ignore[misc]  # mypy does not infer a default's type
                states(pod) == ["running"] and pod["status"]["initContainerStatuses"][0]["restartCount"] == restarts
            ),
        )
        assert pod["status"]["phase"] == "Running"


def test_a_deletion_stops_the_main_container_first_and_then_the_sidecars_in_reverse_order(
    laptop: Laptop, tmp_path: Path
) -> None:
    file = tmp_path / "order"

    def says(name: str) -> list[str]:
        return ["sh", "-c", f"trap 'echo {name} >> {file}; exit 0' TERM; echo up; while :; do sleep 0.02; done"]

    inits = [sidecar("first", *says("first")), sidecar("second", *says("second"))]
    pod = laptop.create("a", says("main"), initContainers=inits)
    look(laptop)
    look(laptop)
    laptop.wait_phase("a", "Running")
    for name in ("executor", "first", "second"):
        while "up" not in laptop.output(pod, name):
            pass
    laptop.store.delete("pods", "default", "a")
    pod = laptop.wait_gone("a")
    assert file.read_text().split() == ["main", "second", "first"]
    assert states(pod) == ["terminated", "terminated"]


def test_a_sidecar_whose_turn_does_not_come_gets_sigterm_at_the_end_of_the_grace_period(laptop: Laptop) -> None:
    laptop.create("a", ["sleep", "1000"], initContainers=[sidecar("proxy", "sleep", "1000")])
    look(laptop)
    laptop.wait_phase("a", "Running")
    laptop.store.delete("pods", "default", "a", grace_period_seconds=7)
    timers = [laptop.timers.next() for _ in range(2)]
    assert [timer.delay for timer in timers] == [timedelta(seconds=7)] * 2
    turn, kill = timers
    turn.fire()
    last = laptop.timers.next()
    assert last.delay == timedelta(seconds=2)
    last.fire()
    kill.fire()
    pod = laptop.wait_gone("a")
    assert pod["status"]["initContainerStatuses"][0]["state"]["terminated"]["exitCode"] == 137


def test_a_sidecar_that_ends_before_the_kubelet_looks_holds_up_the_main_container(laptop: Laptop) -> None:
    laptop.create("a", ["sleep", "1000"], initContainers=[sidecar("proxy", "false")])
    pod = laptop.wait("a", lambda pod: "CrashLoopBackOff" in str(pod["status"]))
    assert pod["status"]["phase"] == "Pending"
    assert pod["status"]["initContainerStatuses"][0]["restartCount"] == 1
    assert states(pod, "containerStatuses") == ["waiting"]


def test_a_restart_policy_of_an_init_container_other_than_always_is_refused_with_a_reason(laptop: Laptop) -> None:
    laptop.create("a", ["true"], initContainers=[sidecar("side", "true") | {"restartPolicy": "Never"}])
    pod = laptop.wait_phase("a", "Failed")
    assert pod["status"]["reason"] == "NotSupported"
    assert "side" in pod["status"]["message"]


# ── Faults ───────────────────────────────────────────────────────────────────────────────────────────────────────


def waiting(pod: dict[str, Any]) -> str:
    (status,) = pod["status"].get("containerStatuses") or [{"state": {}}]
    reason: str = status["state"].get("waiting", {}).get("reason", "")
    return reason


def reasons(laptop: Laptop) -> list[str]:
    return [each["reason"] for each in laptop.store.list("events", "default").items]


def test_a_pod_whose_image_cannot_be_pulled_waits_and_tries_again_with_backoff(laptop: Laptop) -> None:
    laptop.kubelet.fail_pulls("broken:*")
    laptop.create("fine", ["true"], container={"image": "works:1"})
    laptop.wait_phase("fine", "Succeeded")
    laptop.create("a", ["sleep", "1000"], container={"image": "broken:1"})
    for seconds in (10, 20, 40):
        laptop.wait("a", lambda pod: waiting(pod) == "ErrImagePull")
        pod = laptop.wait("a", lambda pod: waiting(pod) == "ImagePullBackOff")
        assert pod["status"]["phase"] == "Pending"
        timer = laptop.timers.next()
        assert timer.delay == timedelta(seconds=seconds)
        if seconds == 40:
            laptop.kubelet.fail_pulls()
        timer.fire()
    laptop.wait_phase("a", "Running")
    assert {"Failed", "BackOff"} <= set(reasons(laptop))


def test_a_pod_without_its_image_is_deleted_at_once(laptop: Laptop) -> None:
    laptop.kubelet.fail_pulls("*")
    laptop.create("a", ["sleep", "1000"])
    laptop.wait("a", lambda pod: waiting(pod) == "ImagePullBackOff")
    laptop.store.delete("pods", "default", "a")
    laptop.wait_gone("a")


def node(laptop: Laptop) -> tuple[str, int]:
    found = laptop.store.get("nodes", None, "local")
    ready = {each["type"]: each["status"] for each in found["status"]["conditions"]}["Ready"]
    return ready, len(found["spec"].get("taints", ()))


def test_a_lost_node_kills_its_processes_and_reports_nothing_until_it_is_back(laptop: Laptop) -> None:
    laptop.create("a", ["sleep", "1000"])
    process = process_of(laptop.wait_phase("a", "Running"))
    laptop.kubelet.lose_node()
    laptop.kubelet.lose_node()
    assert not is_alive(process)
    assert node(laptop) == ("Unknown", 2)
    pod = laptop.store.get("pods", "default", "a")
    assert (pod["status"]["phase"], conditions(pod)["Ready"]) == ("Running", "False")
    assert laptop.kubelet.kill("default", "a") == 0
    laptop.kubelet.restore_node()
    laptop.kubelet.restore_node()
    pod = laptop.wait_phase("a", "Failed")
    assert (ended(pod)["exitCode"], ended(pod)["reason"]) == (255, "Unknown")
    assert node(laptop) == ("True", 0)


def test_new_pods_stay_unscheduled_until_the_node_is_back(laptop: Laptop) -> None:
    laptop.kubelet.lose_node()
    laptop.create("a", ["sleep", "1000"])
    pod = laptop.wait("a", lambda pod: bool(pod["status"].get("conditions")))
    (condition,) = pod["status"]["conditions"]
    assert condition["reason"] == "Unschedulable"
    assert "node.kubernetes.io/unreachable" in condition["message"]
    laptop.kubelet.restore_node()
    laptop.wait_phase("a", "Running")


def test_a_deletion_on_a_lost_node_ends_when_the_node_is_back(laptop: Laptop) -> None:
    for name in ("deleted", "forced"):
        laptop.create(name, ["sleep", "1000"])
        laptop.wait_phase(name, "Running")
    laptop.kubelet.lose_node()
    laptop.store.delete("pods", "default", "deleted")
    laptop.store.delete("pods", "default", "forced", grace_period_seconds=0)
    laptop.wait_gone("forced")
    assert "deletionTimestamp" in laptop.store.get("pods", "default", "deleted")["metadata"]
    laptop.kubelet.restore_node()
    laptop.wait_gone("deleted")


def test_pods_of_a_lost_node_are_evicted_when_they_tolerate_it_no_longer(laptop: Laptop) -> None:
    unreachable = {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute"}
    laptop.create("default", ["sleep", "1000"])
    laptop.create("patient", ["sleep", "1000"], tolerations=[unreachable])
    laptop.create("hasty", ["sleep", "1000"], tolerations=[unreachable | {"tolerationSeconds": 2}])
    for name in ("default", "patient", "hasty"):
        laptop.wait_phase(name, "Running")
    laptop.kubelet.lose_node()
    evictions = [laptop.timers.next() for _ in range(2)]
    assert [each.delay for each in evictions] == [timedelta(minutes=5), timedelta(seconds=2)]
    evictions[1].fire()
    pod = laptop.wait("hasty", lambda pod: "deletionTimestamp" in pod["metadata"])
    assert conditions(pod)["DisruptionTarget"] == "True"
    laptop.kubelet.restore_node()
    assert evictions[0].cancelled
    laptop.wait_gone("hasty")


def test_a_lost_node_can_be_stopped(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    laptop = Laptop(tmp_path)
    laptop.kubelet.start()
    laptop.create("a", ["sleep", "1000"])
    laptop.wait_phase("a", "Running")
    laptop.kubelet.lose_node()
    laptop.kubelet.stop()
    laptop.kubelet.restore_node()
    assert set(threading.enumerate()) <= before


def test_pods_beyond_the_nodes_room_wait_with_a_reason(tmp_path: Path) -> None:
    laptop = Laptop(tmp_path, max_pods=1)
    laptop.kubelet.start()
    try:
        laptop.create("a", ["sleep", "1000"], shareProcessNamespace=True)
        laptop.wait_phase("a", "Running")
        laptop.create("b", ["sleep", "1000"])
        waiting = laptop.wait("b", lambda pod: bool(pod["status"].get("conditions")))
        assert waiting["status"]["conditions"][0]["reason"] == "Unschedulable"
        laptop.store.delete("pods", "default", "a")
        assert conditions(laptop.wait_phase("b", "Running"))["PodScheduled"] == "True"
    finally:
        laptop.kubelet.stop()


def test_a_gated_pod_and_one_for_another_scheduler_stay_unbound(laptop: Laptop) -> None:
    laptop.create("gated", ["true"], schedulingGates=[{"name": "wait"}])
    laptop.create("other", ["true"], schedulerName="somebody-else")
    laptop.create("mine", ["true"])
    laptop.wait_phase("mine", "Succeeded")  # the kubelet handles pods in order: the earlier ones are handled
    for name in ("gated", "other"):
        assert "nodeName" not in laptop.store.get("pods", "default", name)["spec"]


def test_a_finished_pod_keeps_its_log_until_it_is_deleted(laptop: Laptop) -> None:
    laptop.create("a", ["echo", "hello"])
    pod = laptop.wait_phase("a", "Succeeded")
    log = laptop.kubelet.log(pod["metadata"]["uid"], "executor")
    assert log is not None
    assert log.complete
    assert laptop.output(pod) == "hello\n"
    laptop.store.delete("pods", "default", "a")
    laptop.create("b", ["true"])
    laptop.wait_phase("b", "Succeeded")  # messages are handled in order: the deletion came before
    assert not log.path.exists()


def test_the_file_that_ends_an_executors_pause_goes_with_its_pod_and_with_the_kubelet(laptop: Laptop) -> None:
    files = {}
    for name in ("a", "b"):
        laptop.create(name, ["sh", "-c", 'touch "$EXECUTOR_DRAINED_FILE"'], container={"env": pause_variables()})
        files[name] = Path(drained_file(laptop.wait_phase(name, "Succeeded")["metadata"]["uid"]))
    assert [file.exists() for file in files.values()] == [True, True]
    laptop.store.delete("pods", "default", "a")
    laptop.create("c", ["true"])
    laptop.wait_phase("c", "Succeeded")  # messages are handled in order: the deletion came before
    assert [file.exists() for file in files.values()] == [False, True]
    laptop.kubelet.stop()
    assert not files["b"].exists()


def test_processes_die_with_the_launcher_and_new_ones_start_again(laptop: Laptop, pipe: Path) -> None:
    laptop.create("a", ["sh", "-c", f"echo $PPID > {pipe}; exec sleep 1000"])
    launcher = int(pipe.read_text())
    laptop.wait_phase("a", "Running")
    os.kill(launcher, signal.SIGKILL)
    pod = laptop.wait_phase("a", "Failed")
    assert (ended(pod)["exitCode"], ended(pod)["reason"]) == (255, "Unknown")
    laptop.create("b", ["echo", "hello"])
    assert laptop.output(laptop.wait_phase("b", "Succeeded")) == "hello\n"


def test_kill_signals_a_pod_behind_its_back(laptop: Laptop) -> None:
    laptop.create("a", ["sleep", "1000"])
    laptop.wait_phase("a", "Running")
    assert laptop.kubelet.kill("default", "a") == 1
    assert ended(laptop.wait_phase("a", "Failed"))["exitCode"] == 137
    assert laptop.kubelet.kill("default", "a") == 0


def test_stop_leaves_no_process_no_thread_and_no_file(tmp_path: Path, pipe: Path) -> None:
    before = set(threading.enumerate())
    laptop = Laptop(tmp_path)
    laptop.kubelet.start()
    laptop.create("a", ["sh", "-c", f"setsid sleep 1000 > {pipe} & exec sleep 1000"])
    with pipe.open() as held_open:
        process = process_of(laptop.wait_phase("a", "Running"))
        laptop.kubelet.stop()
        assert held_open.read() == ""  # even a process that left its session is dead
    assert not is_alive(process)
    assert set(threading.enumerate()) <= before
    assert not laptop.log_dir.exists()
    assert laptop.kubelet.kill("default", "a") == 0
    laptop.kubelet.stop()


def test_a_start_that_fails_raises_its_cause_and_leaves_no_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = set(threading.enumerate())
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    laptop = Laptop(tmp_path)
    with pytest.raises(FileNotFoundError):
        laptop.kubelet.start()
    assert set(threading.enumerate()) <= before
    with pytest.raises(ApiStatus):
        laptop.store.get("nodes", None, "local")


# ── lifecycle hooks ──────────────────────────────────────────────────────────────────────────────────────────────


def hooked(laptop: Laptop, command: list[str], *, grace: int = 30, **hooks: dict[str, Any]) -> None:
    laptop.create("a", command, container={"lifecycle": hooks}, terminationGracePeriodSeconds=grace)


def test_sigterm_comes_when_the_pre_stop_hook_has_slept_and_sigkill_when_the_grace_period_is_over(
    laptop: Laptop, pipe: Path
) -> None:
    hooked(laptop, obeys(pipe), grace=40, preStop={"sleep": {"seconds": 10}})
    pipe.read_text()
    process = process_of(laptop.wait_phase("a", "Running"))
    laptop.store.delete("pods", "default", "a")
    pause = laptop.timers.next()
    assert pause.delay == timedelta(seconds=10)
    assert is_alive(process)
    pause.fire()
    kill = laptop.timers.next()
    assert timedelta(seconds=39) < kill.delay <= timedelta(seconds=40), "the hook slept for no time here"
    assert ended(laptop.wait_gone("a"))["exitCode"] == 5
    assert kill.cancelled


def test_sigkill_comes_two_seconds_after_a_hook_that_the_grace_period_has_cut_off(laptop: Laptop, pipe: Path) -> None:
    ignores = ["sh", "-c", f"trap '' TERM; echo > {pipe}; exec sleep 1000"]
    hooked(laptop, ignores, preStop={"exec": {"command": ["sleep", "1000"]}})
    pipe.read_text()
    laptop.wait_phase("a", "Running")
    laptop.store.delete("pods", "default", "a", grace_period_seconds=1)
    cut = laptop.timers.next()
    assert cut.delay == timedelta(seconds=1)
    cut.fire()
    kill = laptop.timers.next()
    assert kill.delay == timedelta(seconds=2)
    kill.fire()
    assert ended(laptop.wait_gone("a"))["exitCode"] == 137


def test_a_second_delete_with_a_shorter_grace_period_does_not_end_the_pause(laptop: Laptop, pipe: Path) -> None:
    hooked(laptop, obeys(pipe), preStop={"sleep": {"seconds": 20}})
    pipe.read_text()
    process = process_of(laptop.wait_phase("a", "Running"))
    laptop.store.delete("pods", "default", "a")
    pause = laptop.timers.next()
    laptop.store.delete("pods", "default", "a", grace_period_seconds=1)
    laptop.create("b", ["true"])
    laptop.wait_phase("b", "Succeeded")  # the kubelet handles pods in order: it has seen the second deletion
    assert not pause.cancelled
    assert laptop.timers.scheduled.empty()
    assert is_alive(process)
    pause.fire()
    assert ended(laptop.wait_gone("a"))["exitCode"] == 5


def test_a_pause_goes_on_after_a_deletion_by_force(laptop: Laptop) -> None:
    hooked(laptop, ["sleep", "1000"], preStop={"sleep": {"seconds": 20}})
    process = process_of(laptop.wait_phase("a", "Running"))
    laptop.store.delete("pods", "default", "a")
    pause = laptop.timers.next()
    laptop.store.delete("pods", "default", "a", grace_period_seconds=0)
    laptop.wait_gone("a")
    laptop.create("b", ["true"])
    laptop.wait_phase("b", "Succeeded")  # as above
    assert not pause.cancelled
    assert is_alive(process)


def test_a_command_that_takes_longer_than_the_grace_period_goes_on_until_its_container_ends(
    laptop: Laptop, pipe: Path
) -> None:
    slow = {"exec": {"command": ["sh", "-c", f"echo $$ > {pipe}; exec sleep 1000 > {pipe}"]}}
    hooked(laptop, ["sleep", "1000"], preStop=slow)
    laptop.wait_phase("a", "Running")
    laptop.store.delete("pods", "default", "a", grace_period_seconds=3)
    with pipe.open() as held_open:
        command = int(held_open.readline())
        laptop.timers.next().fire()
        kill = laptop.timers.next()
        laptop.create("b", ["true"])
        laptop.wait_phase("b", "Succeeded")  # the launcher handles requests in order
        assert is_alive(command)
        kill.fire()
        laptop.wait_gone("a")
        assert held_open.read() == ""  # ends with the last process that holds the pipe


def test_an_executor_that_exits_while_the_hook_sleeps_is_gone_once_it_has_slept(laptop: Laptop, pipe: Path) -> None:
    hooked(laptop, ["sh", "-c", f"read x < {pipe}; exit 0"], preStop={"sleep": {"seconds": 20}})
    process = process_of(laptop.wait_phase("a", "Running"))
    laptop.store.delete("pods", "default", "a")
    pause = laptop.timers.next()
    pipe.write_text("go\n")
    while is_alive(process):
        pass
    assert laptop.store.get("pods", "default", "a")["status"]["phase"] == "Running"
    pause.fire()
    assert ended(laptop.wait_gone("a"))["exitCode"] == 0


def test_a_command_of_the_hook_has_the_containers_environment_and_the_pause_ends_with_it(
    laptop: Laptop, pipe: Path
) -> None:
    hook = {"exec": {"command": ["sh", "-c", f'echo "$WHO drained" > {pipe}']}}
    container = {"lifecycle": {"preStop": hook}, "env": [{"name": "WHO", "value": "it"}]}
    laptop.create("a", ["sleep", "1000"], container=container, shareProcessNamespace=True)
    laptop.wait_phase("a", "Running")
    laptop.store.delete("pods", "default", "a")
    assert pipe.read_text() == "it drained\n"
    assert ended(laptop.wait_gone("a"))["exitCode"] == 143


def test_a_command_of_the_hook_ends_with_its_container(laptop: Laptop, pipe: Path, tmp_path: Path) -> None:
    go = tmp_path / "go"
    os.mkfifo(go)
    hook = {"exec": {"command": ["sh", "-c", f"echo up > {pipe}; echo x > {go}; exec sleep 1000"]}}
    hooked(laptop, ["sh", "-c", f"read x < {go}; exit 3"], preStop=hook)
    laptop.wait_phase("a", "Running")
    laptop.store.delete("pods", "default", "a")
    assert pipe.read_text() == "up\n"
    assert ended(laptop.wait_gone("a"))["exitCode"] == 3


def test_a_container_runs_once_its_post_start_hook_is_over(laptop: Laptop) -> None:
    hooked(laptop, ["sleep", "1000"], postStart={"sleep": {"seconds": 4}})
    start = laptop.timers.next()
    assert start.delay == timedelta(seconds=4)
    assert laptop.store.get("pods", "default", "a")["status"]["phase"] == "Pending"
    start.fire()
    laptop.wait_phase("a", "Running")


def test_a_post_start_hook_that_fails_ends_its_container(laptop: Laptop) -> None:
    hooked(laptop, ["sleep", "1000"], postStart={"exec": {"command": ["false"]}})
    laptop.timers.next().fire()
    assert ended(laptop.wait_phase("a", "Failed"))["exitCode"] == 137
    assert "FailedPostStartHook" in reasons(laptop)


def test_a_pod_that_is_deleted_while_its_post_start_hook_runs_is_stopped_after_it(laptop: Laptop) -> None:
    hooked(laptop, ["sleep", "1000"], postStart={"sleep": {"seconds": 20}})
    pause = laptop.timers.next()
    laptop.store.delete("pods", "default", "a", grace_period_seconds=3)
    laptop.create("b", ["true"])
    laptop.wait_phase("b", "Succeeded")  # as above
    assert not pause.cancelled
    pause.fire()
    kill = laptop.timers.next()
    assert kill.delay == timedelta(seconds=3)
    kill.fire()
    assert ended(laptop.wait_gone("a"))["exitCode"] == 137


def test_hooks_that_a_process_cannot_have_are_listed_in_an_event(laptop: Laptop) -> None:
    hooked(laptop, ["true"], preStop={"httpGet": {"port": 80}})
    laptop.wait_phase("a", "Succeeded")
    messages = [event["message"] for event in laptop.store.list("events", "default").items]
    assert any("lifecycle.preStop" in message for message in messages)


# ── the delays of a node ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def slow_laptop(tmp_path: Path) -> Iterator[Laptop]:
    """A node that takes its time, and whose clock the test moves."""
    laptop = Laptop(tmp_path, delays=Delays(Entropy(1)))
    laptop.kubelet.start()
    yield laptop
    laptop.kubelet.stop()


def due(laptop: Laptop, least: float, most: float) -> None:
    """Let the next timer be due, which waits for a time between these seconds."""
    timer = laptop.timers.next()
    assert least <= timer.delay.total_seconds() <= most
    timer.fire()


def test_with_delays_a_pod_starts_and_its_end_is_noticed_later(slow_laptop: Laptop, pipe: Path) -> None:
    slow_laptop.create("a", ["sh", "-c", f"read x < {pipe}; exit 3"])
    assert waiting(slow_laptop.wait("a", lambda pod: bool(waiting(pod)))) == "ContainerCreating"
    due(slow_laptop, 0.7, 1.3)
    process = process_of(slow_laptop.wait_phase("a", "Running"))
    pipe.write_text("go\n")
    noticed = slow_laptop.timers.next()
    assert not is_alive(process)
    assert 0.1 <= noticed.delay.total_seconds() <= 0.9
    assert states(slow_laptop.store.get("pods", "default", "a"), "containerStatuses") == ["running"]
    noticed.fire()
    pod = slow_laptop.wait("a", lambda pod: states(pod, "containerStatuses") == ["terminated"])
    assert pod["status"]["phase"] == "Running"
    due(slow_laptop, 0.9, 1.1)
    assert ended(slow_laptop.wait_phase("a", "Failed"))["exitCode"] == 3


def test_with_delays_a_deleted_pod_is_gone_some_time_after_its_end(slow_laptop: Laptop) -> None:
    slow_laptop.create("a", ["sleep", "1000"], shareProcessNamespace=True)
    due(slow_laptop, 0.7, 1.3)
    slow_laptop.wait_phase("a", "Running")
    slow_laptop.store.delete("pods", "default", "a")
    assert slow_laptop.timers.next().delay == timedelta(seconds=30)
    due(slow_laptop, 0.1, 0.9)
    slow_laptop.wait_phase("a", "Failed")
    due(slow_laptop, 0.9, 1.1)
    assert ended(slow_laptop.wait_gone("a"))["exitCode"] == 143


def test_with_delays_a_pod_that_is_deleted_while_it_is_prepared_starts_and_is_stopped(slow_laptop: Laptop) -> None:
    slow_laptop.create("a", ["sleep", "1000"], shareProcessNamespace=True)
    prepared = slow_laptop.timers.next()
    slow_laptop.store.delete("pods", "default", "a")
    prepared.fire()
    assert slow_laptop.timers.next().delay == timedelta(seconds=30)
    due(slow_laptop, 0.1, 0.9)
    slow_laptop.wait_phase("a", "Failed")
    due(slow_laptop, 0.9, 1.1)
    assert ended(slow_laptop.wait_gone("a"))["exitCode"] == 143


def test_with_delays_an_end_that_was_not_noticed_when_the_pod_is_deleted_keeps_its_code(
    slow_laptop: Laptop, pipe: Path
) -> None:
    slow_laptop.create("a", ["sh", "-c", f"read x < {pipe}; exit 3"])
    due(slow_laptop, 0.7, 1.3)
    slow_laptop.wait_phase("a", "Running")
    pipe.write_text("go\n")
    noticed = slow_laptop.timers.next()
    slow_laptop.store.delete("pods", "default", "a")
    due(slow_laptop, 0.1, 0.9)
    due(slow_laptop, 0.9, 1.1)
    assert noticed.cancelled
    assert ended(slow_laptop.wait_gone("a"))["exitCode"] == 3
