"""What a person does with kubectl, against the embedded cluster."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from typing import TYPE_CHECKING, Any, Self

import pytest

from actors.local.cluster import LocalCluster

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SAFETY_SECONDS = 60.0
"""A command that hangs is killed after this; no test waits for it."""

pytestmark = pytest.mark.skipif(
    shutil.which("kubectl") is None, reason="kubectl is not installed (Debian: package kubernetes-client)"
)

COUNTING = "echo started; while true; do sleep 0.05; echo again; done"


def manifest(name: str, script: str = COUNTING) -> dict[str, Any]:
    container = {"name": "executor", "image": "none", "command": ["sh", "-c", script]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": "demo"}},
        "spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 5, "containers": [container]},
    }


class Stream:
    """A kubectl that goes on until the test has read enough."""

    def __init__(self, arguments: list[str], env: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            ["kubectl", *arguments], env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate(timeout=SAFETY_SECONDS)

    def line(self, *words: str) -> list[str]:
        """The words of the first line that has all of these."""
        assert self.process.stdout is not None
        seen = []
        for line in self.process.stdout:
            seen.append(line)
            if set(words) <= set(line.split()):
                return line.split()
        pytest.fail(f"no line with {words} in {seen}")


class Person:
    """Somebody at a terminal."""

    def __init__(self, cluster: LocalCluster, home: Path) -> None:
        self.cluster = cluster
        self.env = {"PATH": os.environ["PATH"], "HOME": str(home), "KUBECONFIG": str(cluster.kubeconfig_path)}

    def run(self, *arguments: str, stdin: Any = None, code: int = 0) -> str:
        text = json.dumps(stdin) if stdin is not None else None
        done = subprocess.run(
            ["kubectl", *arguments],
            env=self.env,
            input=text,
            capture_output=True,
            text=True,
            timeout=SAFETY_SECONDS,
            check=False,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    def stream(self, *arguments: str) -> Stream:
        return Stream(list(arguments), self.env)

    def create(self, name: str, script: str = COUNTING) -> None:
        self.run("create", "-f", "-", stdin=manifest(name, script))

    def create_ready(self, name: str) -> None:
        self.create(name)
        self.run("wait", "--for=condition=Ready", f"pod/{name}")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """kubectl keeps what it discovered there."""
    return tmp_path_factory.mktemp("home")


@pytest.fixture
def person(home: Path) -> Iterator[Person]:
    with LocalCluster() as cluster:
        yield Person(cluster, home)


def words(line: str) -> list[str]:
    return line.split()


def test_get_pods_shows_them_as_a_real_cluster_does(person: Person) -> None:
    person.create_ready("one")
    header, row = person.run("get", "pods").splitlines()
    assert words(header) == ["NAME", "READY", "STATUS", "RESTARTS", "AGE"]
    assert words(row)[:4] == ["one", "1/1", "Running", "0"]
    header, row = person.run("get", "pods", "-o", "wide").splitlines()
    assert header.split("   ")[-1].strip() == "READINESS GATES"
    assert words(row)[5:] == ["127.0.0.1", "local", "<none>", "<none>"]


def test_get_pods_by_label_and_field(person: Person) -> None:
    person.create_ready("one")
    assert "one" in person.run("get", "pods", "-l", "app=demo")
    assert "No resources found" in person.run("get", "pods", "-l", "app!=demo")
    assert person.run("get", "pods", "--field-selector", "status.phase=Running", "-o", "name") == "pod/one\n"


def test_get_as_json_is_the_whole_object(person: Person) -> None:
    person.create_ready("one")
    pod = json.loads(person.run("get", "pod", "one", "-o", "json"))
    assert pod["status"]["containerStatuses"][0]["ready"] is True
    assert person.run("get", "pod", "one", "-o", "jsonpath={.spec.nodeName}") == "local"


def test_get_pods_w_shows_a_life_as_it_goes(person: Person) -> None:
    person.create_ready("first")
    with person.stream("get", "pods", "-w") as watch:
        watch.line("first", "Running")
        person.create("one")
        watch.line("one", "0/1", "Pending")
        watch.line("one", "1/1", "Running")
        person.run("delete", "pod", "one", "--wait=false")
        watch.line("one", "1/1", "Terminating")


def test_describe_pod_shows_state_and_events(person: Person) -> None:
    person.create("one", "echo the end is near; exit 3")
    person.run("wait", "--for=jsonpath={.status.phase}=Failed", "pod/one")
    text = person.run("describe", "pod", "one")
    for expected in ("Exit Code:    3", "Reason:       Error", "Successfully assigned default/one to local", "Started"):
        assert expected in text


def test_logs_are_what_the_process_wrote(person: Person) -> None:
    person.create("one", "echo out; echo err >&2")
    person.run("wait", "--for=jsonpath={.status.phase}=Succeeded", "pod/one")
    assert person.run("logs", "one") == "out\nerr\n"
    assert person.run("logs", "one", "-c", "executor", "--tail=1") == "err\n"


def test_logs_f_follows_and_ends_with_the_process(person: Person) -> None:
    person.create_ready("one")
    with person.stream("logs", "-f", "one") as logs:
        logs.line("started")
        logs.line("again")
        assert person.cluster.kill("one")
        assert logs.process.stdout is not None
        logs.process.stdout.read()
        assert logs.process.wait(SAFETY_SECONDS) == 0


def test_delete_pod_waits_until_it_is_gone(person: Person) -> None:
    person.create_ready("one")
    assert 'pod "one" deleted' in person.run("delete", "pod", "one")
    assert 'pods "one" not found' in person.run("get", "pod", "one", code=1)


def test_delete_by_force_and_by_label(person: Person) -> None:
    person.create_ready("one")
    person.create_ready("two")
    assert "deleted" in person.run("delete", "pod", "one", "--force", "--grace-period=0")
    assert 'pod "two" deleted' in person.run("delete", "pods", "-l", "app=demo", "--now")
    assert "No resources found" in person.run("get", "pods")


def test_drain_evicts_what_is_on_the_node(person: Person) -> None:
    person.create_ready("one")
    seen: list[Any] = []
    person.cluster.store.watch("pods", "default", lambda message: seen.append(message.object["status"]["conditions"]))
    text = person.run("drain", "local", "--force", "--grace-period=1")
    assert "evicting pod default/one" in text
    assert "node/local drained" in text
    assert "EvictionByEvictionAPI" in {condition.get("reason") for condition in seen[-1]}
    assert "SchedulingDisabled" in person.run("get", "nodes")
    assert "No resources found" in person.run("get", "pods")


def test_wait_for_deletion(person: Person) -> None:
    person.create_ready("one")
    with person.stream("wait", "--for=delete", "pod/one") as waiting:
        person.run("delete", "pod", "one")
        assert waiting.process.wait(SAFETY_SECONDS) == 0


def test_get_and_describe_the_node(person: Person) -> None:
    assert words(person.run("get", "nodes").splitlines()[1])[:3] == ["local", "Ready", "control-plane"]
    assert "Container Runtime Version:  process://local" in person.run("describe", "node", "local")


def test_get_events(person: Person) -> None:
    person.create_ready("one")
    text = person.run("get", "events")
    assert words(text.splitlines()[0]) == ["LAST", "SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE"]
    assert "Started container executor" in text
    assert "pod/one" in text


def test_client_side_apply_creates_then_changes(person: Person) -> None:
    assert "created" in person.run("apply", "-f", "-", stdin=manifest("one"))
    changed = manifest("one")
    changed["metadata"]["labels"] = {"app": "other"}
    assert "configured" in person.run("apply", "-f", "-", stdin=changed)
    assert "unchanged" in person.run("apply", "-f", "-", stdin=changed)
    assert person.run("get", "pods", "-l", "app=other", "-o", "name") == "pod/one\n"


def test_label_and_annotate(person: Person) -> None:
    person.create("one")
    assert "labeled" in person.run("label", "pod", "one", "x=y")
    assert "annotated" in person.run("annotate", "pod", "one", "a=b")
    assert person.run("get", "pods", "-l", "x=y", "-o", "name") == "pod/one\n"
    assert "unlabeled" in person.run("label", "pod", "one", "x-")


def test_kubectl_run_starts_the_built_in_executor(person: Person) -> None:
    person.run("run", "one", "--image=none", "--restart=Never")
    person.run("wait", "--for=condition=Ready", "pod/one")
    with person.stream("logs", "-f", "one") as logs:
        logs.line("built-in", "executor", "started,")


def test_an_unknown_field_is_refused_by_name(person: Person) -> None:
    pod = manifest("one")
    pod["spec"]["containerz"] = []
    assert 'unknown field "spec.containerz"' in person.run("create", "-f", "-", stdin=pod, code=1)


@pytest.mark.parametrize("arguments", [("exec", "one", "--", "ls"), ("port-forward", "one", "8080:80")])
def test_what_is_not_implemented_says_so(person: Person, arguments: tuple[str, ...]) -> None:
    person.create_ready("one")
    assert "is not implemented by the embedded cluster" in person.run(*arguments, code=1)


def test_without_its_token_nobody_is_let_in(person: Person) -> None:
    refused = person.run("get", "pods", "--token=wrong", code=1)
    assert "Unauthorized" in refused or "must be logged in" in refused
