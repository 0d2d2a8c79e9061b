"""What a person does with kubectl, against the embedded cluster."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Self

import pytest

import actors
from actors.cli.arguments import execute
from actors.local.cluster import LocalCluster
from tests.unit.builders import labels

if TYPE_CHECKING:
    from collections.abc import Iterator

SAFETY_SECONDS = 60.0
"""A command that hangs is killed after this; no test waits for it."""

ROOT = Path(actors.__file__).parents[1]

pytestmark = pytest.mark.skipif(
    shutil.which("kubectl") is None, reason="kubectl is not installed (Debian: package kubernetes-client)"
)

COUNTING = "echo started; while true; do sleep 0.05; echo again; done"


def manifest(name: str, script: str = COUNTING) -> dict[str, Any]:
    container = {"name": "executor", "image": "none", "command": ["sh", "-c", script]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "containers": [container]},
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
def person(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Person]:
    """One cluster for all tests, and one home: kubectl keeps what it discovered there."""
    with LocalCluster() as cluster:
        yield Person(cluster, tmp_path_factory.mktemp("home"))


@pytest.fixture(scope="module")
def ready(person: Person) -> str:
    """A pod that runs, for tests that only look."""
    person.create_ready("ready")
    return "ready"


def words(line: str) -> list[str]:
    return line.split()


def test_get_pods_shows_them_as_a_real_cluster_does(person: Person, ready: str) -> None:
    header, row = person.run("get", "pods", ready).splitlines()
    assert words(header) == ["NAME", "READY", "STATUS", "RESTARTS", "AGE"]
    assert words(row)[:4] == [ready, "1/1", "Running", "0"]
    header, row = person.run("get", "pods", ready, "-o", "wide").splitlines()
    assert header.split("   ")[-1].strip() == "READINESS GATES"
    assert words(row)[5:] == ["127.0.0.1", "local", "<none>", "<none>"]


def test_get_pods_by_label_and_field(person: Person, ready: str) -> None:
    assert ready in person.run("get", "pods", "-l", f"app={ready}")
    assert ready not in person.run("get", "pods", "-l", f"app!={ready}")
    fields = f"status.phase=Running,metadata.name={ready}"
    assert person.run("get", "pods", "--field-selector", fields, "-o", "name") == f"pod/{ready}\n"


def test_get_as_json_is_the_whole_object(person: Person, ready: str) -> None:
    pod = json.loads(person.run("get", "pod", ready, "-o", "json"))
    assert pod["status"]["containerStatuses"][0]["ready"] is True
    assert person.run("get", "pod", ready, "-o", "jsonpath={.spec.nodeName}") == "local"


def test_get_pods_w_shows_creation_start_and_deletion(person: Person, ready: str) -> None:
    with person.stream("get", "pods", "-w") as watch:
        watch.line(ready, "Running")  # the watch has begun
        person.create("watched")
        watch.line("watched", "0/1", "Pending")
        watch.line("watched", "1/1", "Running")
        person.run("delete", "pod", "watched", "--wait=false")
        watch.line("watched", "1/1", "Terminating")


def test_describe_and_logs_of_a_pod_that_failed(person: Person) -> None:
    person.create("failing", "echo out; echo err >&2; exit 3")
    person.run("wait", "--for=jsonpath={.status.phase}=Failed", "pod/failing")
    text = person.run("describe", "pod", "failing")
    assigned = "Successfully assigned default/failing to local"
    for expected in ("Exit Code:    3", "Reason:       Error", assigned, "Started"):
        assert expected in text
    assert person.run("logs", "failing") == "out\nerr\n"
    assert person.run("logs", "failing", "-c", "executor", "--tail=1") == "err\n"


def test_logs_f_follows_and_ends_with_the_process(person: Person) -> None:
    person.create_ready("followed")
    with person.stream("logs", "-f", "followed") as logs:
        logs.line("started")
        logs.line("again")
        assert person.cluster.kill("followed")
        assert logs.process.stdout is not None
        logs.process.stdout.read()
        assert logs.process.wait(SAFETY_SECONDS) == 0


def test_delete_pod_waits_until_it_is_gone_and_so_does_wait(person: Person) -> None:
    person.create_ready("deleted")
    with person.stream("wait", "--for=delete", "pod/deleted") as waiting:
        assert 'pod "deleted" deleted' in person.run("delete", "pod", "deleted")
        assert waiting.process.wait(SAFETY_SECONDS) == 0
    assert 'pods "deleted" not found' in person.run("get", "pod", "deleted", code=1)


def test_delete_by_force_and_by_label(person: Person) -> None:
    person.create("forced")
    assert "deleted" in person.run("delete", "pod", "forced", "--force", "--grace-period=0")
    person.create_ready("labelled")
    assert 'pod "labelled" deleted' in person.run("delete", "pods", "-l", "app=labelled", "--now")
    assert 'pods "labelled" not found' in person.run("get", "pod", "labelled", code=1)


def test_drain_evicts_what_is_on_the_node(person: Person, tmp_path: Path) -> None:
    with LocalCluster() as cluster:
        drained = Person(cluster, tmp_path)
        drained.create_ready("one")
        seen: list[Any] = []
        cluster.store.watch("pods", "default", lambda message: seen.append(message.object["status"]["conditions"]))
        text = drained.run("drain", "local", "--force", "--grace-period=1")
        assert "evicting pod default/one" in text
        assert "node/local drained" in text
        assert "EvictionByEvictionAPI" in {condition.get("reason") for condition in seen[-1]}
        assert "SchedulingDisabled" in drained.run("get", "nodes")
        assert "No resources found" in drained.run("get", "pods")


def test_get_and_describe_the_node(person: Person) -> None:
    assert words(person.run("get", "nodes").splitlines()[1])[:3] == ["local", "Ready", "control-plane"]
    assert "Container Runtime Version:  process://local" in person.run("describe", "node", "local")


def test_get_events(person: Person, ready: str) -> None:
    text = person.run("get", "events")
    assert words(text.splitlines()[0]) == ["LAST", "SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE"]
    assert "Started container executor" in text
    assert f"pod/{ready}" in text


def test_client_side_apply_creates_then_changes(person: Person) -> None:
    assert "created" in person.run("apply", "-f", "-", stdin=manifest("applied"))
    changed = manifest("applied")
    changed["metadata"]["labels"] = {"app": "other"}
    assert "configured" in person.run("apply", "-f", "-", stdin=changed)
    assert "unchanged" in person.run("apply", "-f", "-", stdin=changed)
    assert person.run("get", "pods", "-l", "app=other", "-o", "name") == "pod/applied\n"


def test_label_and_annotate(person: Person, ready: str) -> None:
    assert "labeled" in person.run("label", "pod", ready, "x=y")
    assert "annotated" in person.run("annotate", "pod", ready, "a=b")
    assert person.run("get", "pods", "-l", "x=y", "-o", "name") == f"pod/{ready}\n"
    assert "unlabeled" in person.run("label", "pod", ready, "x-")


def test_kubectl_run_starts_the_built_in_executor(person: Person) -> None:
    person.run("run", "built-in", "--image=none", "--restart=Never")
    person.run("wait", "--for=condition=Ready", "pod/built-in")
    with person.stream("logs", "-f", "built-in") as logs:
        logs.line("built-in", "executor", "started,")


def test_an_unknown_field_is_refused_by_name(person: Person) -> None:
    pod = manifest("refused")
    pod["spec"]["containerz"] = []
    assert 'unknown field "spec.containerz"' in person.run("create", "-f", "-", stdin=pod, code=1)


@pytest.mark.parametrize("arguments", [("exec", "ready", "--", "ls"), ("port-forward", "ready", "8080:80")])
def test_what_is_not_implemented_says_so(person: Person, ready: str, arguments: tuple[str, ...]) -> None:
    assert ready in arguments
    assert "is not implemented by the embedded cluster" in person.run(*arguments, code=1)


def test_auth_can_i_says_yes(person: Person) -> None:
    assert person.run("auth", "can-i", "create", "pods").startswith("yes")


def test_what_kubectl_makes_without_a_file_is_made(person: Person) -> None:
    person.run("create", "configmap", "made", "--from-literal=a=b")
    assert person.run("get", "configmap", "made", "-o", "jsonpath={.data.a}") == "b"
    person.run("create", "secret", "generic", "made", "--from-literal=a=b")
    assert person.run("get", "secret", "made", "-o", "jsonpath={.data.a}") == "Yg=="
    person.run("create", "namespace", "made")
    person.run("create", "serviceaccount", "made")


def test_a_service_is_applied_changed_and_listed(person: Person) -> None:
    spec = {
        "clusterIP": "None",
        "selector": {"app": "x"},
        "ports": [{"name": "a", "port": 80}, {"name": "b", "port": 81}],
    }
    service: Any = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "applied"}, "spec": spec}
    assert "created" in person.run("apply", "-f", "-", stdin=service)
    spec["ports"] = [{"name": "b", "port": 82}]
    assert "configured" in person.run("apply", "-f", "-", stdin=service)
    header, row = person.run("get", "service", "applied").splitlines()
    assert words(header) == ["NAME", "TYPE", "CLUSTER-IP", "EXTERNAL-IP", "PORT(S)", "AGE"]
    assert words(row)[:5] == ["applied", "ClusterIP", "None", "<none>", "82/TCP"]


def test_a_dry_run_of_the_server_creates_nothing(person: Person) -> None:
    for verb in ("create", "apply"):
        assert "(server dry run)" in person.run(verb, "--dry-run=server", "-f", "-", stdin=manifest("dry"))
    assert 'pods "dry" not found' in person.run("get", "pod", "dry", code=1)


def test_without_its_token_every_request_is_refused(person: Person) -> None:
    refused = person.run("get", "pods", "--token=wrong", code=1)
    assert "Unauthorized" in refused or "must be logged in" in refused


# ── beside kubectl: the commands for operators ───────────────────────────────────────────────────────────────────


def create_executor(person: Person, executor_id: int, script: str, **spec: Any) -> str:
    made = manifest(f"etl-exec-{executor_id}", script)
    made["metadata"]["labels"] = labels(executor_id, "etl")
    made["spec"] |= spec
    person.run("create", "-f", "-", stdin=made)
    return f"etl-exec-{executor_id}"


def test_logs_are_those_that_kubectl_shows(person: Person, capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    name = create_executor(person, 1, f"echo one; echo two; until [ -e {seen} ]; do sleep 0.05; done; echo three")

    def ours(*arguments: str) -> str:
        capfd.readouterr()
        given = ["logs", "etl", "1", *arguments, "--kubeconfig", str(person.cluster.kubeconfig_path)]
        assert execute(SimpleQueue(), given) == 0
        return capfd.readouterr().out

    person.run("wait", "--for=jsonpath={.status.phase}=Running", f"pod/{name}")
    seen.touch()
    assert ours("-f") == person.run("logs", name) == "one\ntwo\nthree\n"
    assert ours("--tail", "1") == person.run("logs", name, "--tail=1") == "three\n"
    refused = person.run("logs", name, "--previous", code=1)
    capfd.readouterr()
    assert execute(SimpleQueue(), ["logs", "etl", "1", "-p", "--kubeconfig", str(person.cluster.kubeconfig_path)]) == 1
    assert capfd.readouterr().err.removeprefix("executor-pods: ").strip() in refused


def test_the_command_is_a_plugin_of_kubectl(person: Person, tmp_path: Path) -> None:
    plugin = tmp_path / "kubectl-executor_pods"
    program = "import sys; from actors.cli.main import main; sys.exit(main())"
    plugin.write_text(f"#!{sys.executable}\n{program}\n")
    plugin.chmod(0o755)
    env = person.env | {"PATH": f"{tmp_path}{os.pathsep}{person.env['PATH']}", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        ["kubectl", "executor-pods", "status", "nope"],
        env=env,
        capture_output=True,
        text=True,
        timeout=SAFETY_SECONDS,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    assert "no fleet 'nope' in namespace 'default'; " in done.stderr
