"""The commands for operators against a server, line by line with what kubectl shows of the same objects."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import uuid
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from actors.cli.arguments import execute
from actors.errors import ApiError
from actors.kube.api import CLAIMS, LEASES
from tests.contract.accounts import open_account
from tests.contract.asking import Asking, manifest
from tests.unit.builders import labels

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.contract.clusters import Cluster, RealCluster
    from tests.contract.control_plane import ControlPlane

SAFETY_SECONDS = 60.0
"""A kubectl that hangs is killed after this; no test waits for it."""

RBAC = (
    (Path(__file__).parents[2] / "config" / "rbac-operator.yaml").read_text()
    + """\
---
apiVersion: v1
kind: ServiceAccount
metadata:
  name: executor-pods-operator
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: executor-pods-operator
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: Role
  name: executor-pods-operator
subjects:
  - kind: ServiceAccount
    name: executor-pods-operator
"""
)
"""The Role of an operator, bound to an account."""

KUBECTLS_WORDS = {
    "Running": "running",
    "Pending": "pending",
    "ImagePullBackOff": "stuck",
    "Terminating": "terminating",
    "Error": "ended",
    "Completed": "ended",
}
"""What kubectl calls a pod, and what we call its executor."""

CLAIM = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
NOW = datetime.now(UTC)

TRIES = 200
"""How often it is looked whether a Lease of a second or two has run out; a look takes some hundredths of a second."""


def micro(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


class Operator:
    """Somebody at a terminal, in a namespace with a fleet `etl`."""

    def __init__(self, cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
        self.cluster = cluster
        self.namespace = f"operate-{uuid.uuid4().hex[:10]}"
        cluster.create("namespaces", None, {"metadata": {"name": self.namespace}})
        self.kubeconfig = cluster.kubeconfig
        self.api = Asking(cluster.connect_as_admin(self.namespace))
        self._capsys = capsys
        self.err = ""

    def run(self, *arguments: str, code: int = 0, kubeconfig: Path | None = None) -> list[str]:
        """Run the command; return what it writes to stdout. `err` has the rest."""
        self._capsys.readouterr()
        given = ["--kubeconfig", str(kubeconfig or self.kubeconfig), "-n", self.namespace]
        result = execute(SimpleQueue(), [*arguments, *(given if "-A" not in arguments else given[:2])])
        captured = self._capsys.readouterr()
        self.err = captured.err
        assert result == code, captured.out + captured.err
        return captured.out.splitlines()

    def kubectl(self, *arguments: str) -> list[str]:
        """Run kubectl; return its lines."""
        done = subprocess.run(
            ["kubectl", "--kubeconfig", str(self.kubeconfig), "-n", self.namespace, *arguments],
            env={"PATH": os.environ["PATH"], "HOME": str(self.kubeconfig.parent)},
            capture_output=True,
            text=True,
            timeout=SAFETY_SECONDS,
            check=True,
        )
        return done.stdout.splitlines()

    def pod(self, executor_id: int, node: str | None = "n", **status: Any) -> None:
        """Create an executor's pod, with this status."""
        made = manifest(f"etl-exec-{executor_id}", labels(executor_id, "etl"), node=node)
        made["spec"]["restartPolicy"] = "Never"
        made["spec"]["containers"][0]["env"] = [{"name": "EXECUTOR_ID", "value": str(executor_id)}]
        self.api.created(made)
        if status:
            self.cluster.set_status("pods", self.namespace, f"etl-exec-{executor_id}", status)

    def lease(self, age: float, holder: str = "host_1", **metadata: Any) -> None:
        """Create the fleet's Lease, renewed so many seconds ago by its holder's clock."""
        renewed = micro(datetime.now(UTC) - timedelta(seconds=age))
        made = self.api.create_object(
            LEASES,
            {
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": {
                    "name": "executor-pods-etl",
                    "labels": {"executor-pods/app-id": "etl"},
                    "annotations": {"executor-pods/targets": '{"default":4}', "executor-pods/last-id": "5"},
                    **metadata,
                },
                "spec": {"holderIdentity": holder, "leaseDurationSeconds": 1, "renewTime": renewed},
            },
        )
        assert made["metadata"]["name"] == "executor-pods-etl", made

    def age_lease(self) -> None:
        """Let time pass until the Lease has run out. A server that stamps writes must be waited for: a second."""
        long_ago = {"leaseDurationSeconds": 1, "renewTime": micro(NOW - timedelta(hours=1))}
        self.api.patch_object(LEASES, "executor-pods-etl", {"spec": long_ago})
        for _ in range(TRIES):
            if self.run("list")[1].split()[2] == "orphaned":
                return

    def event(self, name: str, reason: str, message: str) -> None:
        """Write an Event about a pod."""
        now = NOW.strftime("%Y-%m-%dT%H:%M:%SZ")
        found = self.api.get(name)
        about = {"apiVersion": "v1", "kind": "Pod", "namespace": self.namespace, "name": name}
        self.cluster.create(
            "events",
            self.namespace,
            {
                "metadata": {"name": f"{name}.{reason.lower()}", "namespace": self.namespace},
                "involvedObject": about | ({} if isinstance(found, ApiError) else {"uid": found.uid}),
                "reason": reason,
                "message": message,
                "type": "Warning",
                "source": {"component": "test"},
                "firstTimestamp": now,
                "lastTimestamp": now,
                "count": 2,
            },
        )


def seconds(age: str) -> int:
    """What kubectl's AGE of a young object says, and ours."""
    minutes, _, rest = age.rpartition("m") if "m" in age else ("0", "", age)
    return int(minutes) * 60 + int(rest.removesuffix("s") or 0)


def container(state: dict[str, Any], **fields: Any) -> list[dict[str, Any]]:
    status = {"name": "executor", "image": "worker:1", "imageID": "", "ready": "running" in state, "restartCount": 0}
    return [{**status, "state": state, **fields}]


@pytest.fixture
def operator(http_cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> Iterator[Operator]:
    made = Operator(http_cluster, capsys)
    yield made
    made.api.api.close()


@pytest.fixture
def fleet(operator: Operator) -> Operator:
    """Five executors in all states."""
    began = (NOW - timedelta(seconds=5)).strftime("%Y-%m-%dT%H:%M:%SZ")
    operator.pod(1, phase="Running", podIP="10.0.0.1", containerStatuses=container({"running": {"startedAt": began}}))
    waiting = {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}
    operator.pod(2, phase="Pending", containerStatuses=container(waiting))
    operator.pod(3, None, phase="Pending")
    ended = {"terminated": {"exitCode": 3, "reason": "Error", "finishedAt": began, "startedAt": began}}
    operator.pod(4, phase="Failed", containerStatuses=container(ended))
    operator.pod(10, phase="Running", podIP="10.0.0.9", containerStatuses=container({"running": {"startedAt": began}}))
    operator.api.delete("etl-exec-10")
    operator.lease(0)
    return operator


needs_kubectl = pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")


# ── as kubectl shows it ──────────────────────────────────────────────────────────────────────────────────────────


@needs_kubectl
def test_status_shows_each_pod_as_kubectl_does(fleet: Operator) -> None:
    lines = fleet.run("status", "etl", "-o", "wide")
    selector = "executor-pods/app-id=etl"
    _, *theirs = fleet.kubectl("get", "pods", "-o", "wide", "--sort-by=.metadata.creationTimestamp", "-l", selector)
    start = next(index for index, line in enumerate(lines) if line.startswith("ID "))
    head, ours = lines[start].split(), lines[start + 1 :]
    assert len(ours) == len(theirs) == 5
    by_name = {line.split()[0]: line.split() for line in theirs}
    for line in ours:
        row = dict(zip(head, line.split(maxsplit=len(head) - 1), strict=False))
        name, _, state, restarts, lived, address, node, *_ = by_name[row["POD"]]
        assert name == f"etl-exec-{row['ID']}"
        assert row["STATE"] == KUBECTLS_WORDS[state]
        assert (row["RESTARTS"], row["IP"], row["NODE"]) == (restarts, address, node)
        assert 0 <= seconds(lived) - seconds(row["AGE"]) <= SAFETY_SECONDS  # kubectl came a moment later


@needs_kubectl
def test_json_names_the_same_objects_as_kubectl(fleet: Operator) -> None:
    found = json.loads("\n".join(fleet.run("status", "etl", "-o", "json")))
    items = json.loads("\n".join(fleet.kubectl("get", "pods", "-o", "json")))["items"]
    rows = {row["pod"]: row for row in (*found["executors"], *found["ended"])}
    assert rows.keys() == {item["metadata"]["name"] for item in items}
    for item in items:
        row = rows[item["metadata"]["name"]]
        created = datetime.fromisoformat(item["metadata"]["creationTimestamp"])
        assert row["requested_at"] == created.timestamp()
        assert (row["node"], row["ip"]) == (item["spec"].get("nodeName"), item["status"].get("podIP"))
    lease = json.loads("\n".join(fleet.kubectl("get", "lease", "executor-pods-etl", "-o", "json")))
    assert found["holder"] == lease["spec"]["holderIdentity"]


@needs_kubectl
def test_events_are_those_that_kubectl_shows(fleet: Operator) -> None:
    fleet.event("etl-exec-2", "Failed", "Failed to pull image")
    fleet.event("etl-exec-99", "Killing", "it is gone by now")
    fleet.event("stranger", "Failed", "of another")
    header, *ours = fleet.run("events", "etl")
    _, *theirs = fleet.kubectl("get", "events")
    assert header.split()[:2] == ["LAST", "SEEN"]
    wanted = {tuple(line.split()[-6:]) for line in theirs if "pod/etl-exec-" in line}
    assert len(ours) == len(wanted) == 2
    for line in ours:
        kind, reason, obj = re.split(r"\s{3,}", line)[1:4]
        assert any(f"{kind} {reason} {obj}" == " ".join(other.split()[1:4]) for other in theirs)


@needs_kubectl
def test_describe_has_what_kubectl_describes(fleet: Operator) -> None:
    fleet.event("etl-exec-2", "Failed", "Failed to pull image")
    ours = "\n".join(fleet.run("describe", "etl", "2"))
    theirs = "\n".join(fleet.kubectl("describe", "pod", "etl-exec-2"))
    assert "no such image" in ours
    for words in ("etl-exec-2", fleet.namespace, "ImagePullBackOff", "Failed to pull image"):
        assert words in ours
        assert words in theirs
    assert "State:         stuck" in ours
    gone = "\n".join(fleet.run("describe", "etl", "4"))
    assert ("Loss:          EXITED" in gone, "Exit Code:     3" in gone, "By the App:    yes" in gone) == (True,) * 3
    assert "Exit Code:    3" in "\n".join(fleet.kubectl("describe", "pod", "etl-exec-4"))


# ── lists ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_list_counts_each_profile_of_each_fleet(fleet: Operator) -> None:
    header, row = fleet.run("list")
    found = dict(zip(header.split(), row.split(), strict=True))
    assert found.pop("STATE") in {"alive", "orphaned"}  # its Lease is valid for a second
    del found["RENEWED"]
    assert found == {"APP-ID": "etl", "PROFILE": "default", "HOLDER": "host_1"} | {
        "WANTED": "4",
        "RUNNING": "1",
        "PENDING": "2",
        "STUCK": "1",
        "TERMINATING": "1",
        "ENDED": "1",
    }
    assert any(line.split()[:2] == [fleet.namespace, "etl"] for line in fleet.run("list", "-A"))


def test_what_is_not_there_is_said(operator: Operator) -> None:
    assert operator.run("list") == []
    assert operator.err == f"executor-pods: no fleets found in namespace {operator.namespace}\n"
    for command in (("status", "nope"), ("describe", "nope", "1"), ("events", "nope"), ("logs", "nope", "1")):
        assert operator.run(*command, code=1) == []
        assert f"no fleet 'nope' in namespace '{operator.namespace}'; there is none" in operator.err
    operator.pod(1)
    assert operator.run("describe", "etl", "7", code=1) == []
    assert (
        "executor 7 of etl has no pod: it ended and was deleted, or never was; those with a pod are 1" in operator.err
    )


def test_a_claim_that_is_missing_is_named(operator: Operator) -> None:
    made = manifest("etl-exec-1", labels(1, "etl"))
    made["spec"]["volumes"] = [
        {"name": "a", "persistentVolumeClaim": {"claimName": "there"}},
        {"name": "b", "persistentVolumeClaim": {"claimName": "missing"}},
    ]
    operator.api.create_object(CLAIMS, {"metadata": {"name": "there"}, "spec": CLAIM})
    operator.api.created(made)
    lines = operator.run("describe", "etl", "1")
    found = [line.split() for line in lines if line.split()[:1] in (["there"], ["missing"])]
    assert found == [
        ["there", "Pending", "<none>", "1Gi"],
        ["missing", "?", "<none>", "?", "there", "is", "no", "such", "claim"],
    ]


# ── in a terminal, in a pipe ─────────────────────────────────────────────────────────────────────────────────────


def test_watch_writes_what_changes_until_ctrl_c(fleet: Operator) -> None:
    where = ("--kubeconfig", str(fleet.kubeconfig), "-n", fleet.namespace)
    command = [sys.executable, "-m", "actors", "status", "etl", "--watch", "-o", "json", *where]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert len(json.loads(process.stdout.readline())["executors"]) == 4
        fleet.pod(5)
        assert any(len(json.loads(line)["executors"]) == 5 for line in process.stdout)
        process.send_signal(signal.SIGINT)
        assert process.wait(SAFETY_SECONDS) == 130


def test_a_pipe_that_nobody_reads_ends_the_command(fleet: Operator, monkeypatch: pytest.MonkeyPatch) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with monkeypatch.context() as patched, os.fdopen(writer, "w", encoding="utf-8") as stream:
        patched.setattr(sys, "stdout", stream)
        fleet.run("status", "etl")
    assert fleet.err == ""


def test_every_request_is_said_if_that_is_wanted(operator: Operator) -> None:
    operator.run("list", "-v")
    lines = [line for line in operator.err.splitlines() if "asked: request=ListPage(" in line]
    assert len(lines) == 2
    assert all(line.endswith("answer=ok") for line in lines)
    operator.run("list")
    assert "asked" not in operator.err


def test_a_cluster_that_does_not_answer_is_named(operator: Operator, tmp_path: Path) -> None:
    config = yaml.safe_load(operator.kubeconfig.read_text())
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    config["clusters"][0]["cluster"]["server"] = f"http://127.0.0.1:{port}"
    nobody = tmp_path / "kubeconfig"
    nobody.write_text(yaml.safe_dump(config))
    assert operator.run("list", code=1, kubeconfig=nobody) == []
    assert operator.err == f"executor-pods: cannot connect to 127.0.0.1:{port}: Connection refused\n"


# ── cleaning up ──────────────────────────────────────────────────────────────────────────────────────────────────


@contextmanager
def driver(operator: Operator, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A driver in a process of its own, whose executors nobody starts."""
    config = tmp_path / "fleet.toml"
    config.write_text('app_id = "etl"\n[executor]\nimage = "worker:1"\n')
    where = ("--kubeconfig", str(operator.kubeconfig), "--namespace", operator.namespace)
    process = subprocess.Popen(
        [sys.executable, "-m", "actors", "run", "--config", str(config), *where, "--output", "json"],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def claim(operator: Operator, name: str, app_id: str) -> None:
    """Create a claim of a fleet."""
    made = {"metadata": {"name": name, "labels": labels(1, app_id)}, "spec": CLAIM}
    assert operator.api.create_object(CLAIMS, made)["metadata"]["name"] == name


def test_a_driver_that_was_killed_leaves_an_orphan_that_cleanup_removes(operator: Operator, tmp_path: Path) -> None:
    claim(operator, "etl-exec-1-pvc-0", "etl")
    claim(operator, "web-exec-1-pvc-0", "web")
    with driver(operator, tmp_path) as process:
        assert process.stdout is not None
        assert any('"event": "pending", "executor_id": 2' in line for line in process.stdout)
        assert operator.run("list")[1].split()[:3] == ["etl", "default", "alive"]
        assert operator.run("cleanup", "etl", "--yes", code=1) == []
        assert "fleet 'etl' is alive: " in operator.err
        assert operator.api.names() == {"etl-exec-1", "etl-exec-2"}
        process.kill()
    operator.age_lease()
    assert "etl is orphaned, " in operator.err
    deleted = [
        *(f'pod "etl-exec-{number}" deleted' for number in (1, 2)),
        'persistentvolumeclaim "etl-exec-1-pvc-0" deleted',
    ]
    assert operator.run("cleanup", "etl", "--dry-run") == [f"{line} (dry run)" for line in deleted]
    assert sorted(operator.run("cleanup", "etl", "--yes")) == sorted(deleted)
    assert operator.api.names() == set()
    left = {
        each["metadata"]["name"]
        for each in operator.api.list_objects(CLAIMS)
        if "deletionTimestamp" not in each["metadata"]
    }
    assert left == {"web-exec-1-pvc-0"}
    lease = operator.api.get_object(LEASES, "executor-pods-etl")
    assert lease["spec"]["holderIdentity"] == ""
    assert lease["metadata"]["annotations"]["executor-pods/last-id"] == "2"
    assert lease["metadata"]["annotations"]["executor-pods/targets"] == '{"default":2}'
    assert operator.run("cleanup", "etl", "--yes") == []


def test_a_lease_in_the_future_proves_nothing_and_is_watched_before_it_is_taken(operator: Operator) -> None:
    operator.pod(1)
    operator.lease(-7200)
    stamped = "managedFields" in operator.api.get_object(LEASES, "executor-pods-etl")["metadata"]
    state = operator.run("list")[1].split()[2]
    assert state in ({"alive", "orphaned"} if stamped else {"unknown"})
    if not stamped:
        assert "in the future: the clocks disagree" in operator.run("status", "etl")[0]
    if stamped:
        operator.age_lease()
    assert operator.run("cleanup", "etl", "--yes") == ['pod "etl-exec-1" deleted']
    assert ("watching the Lease for 1 s" in operator.err) == (not stamped)


def test_without_a_lease_and_an_owner_the_user_must_know_that_no_driver_lives(operator: Operator) -> None:
    operator.pod(1, None)
    assert operator.run("cleanup", "etl", "--yes", code=1) == []
    assert "give --without-lease; nothing was deleted" in operator.err
    assert operator.run("cleanup", "etl", "--yes", "--without-lease") == ['pod "etl-exec-1" deleted']
    assert operator.api.names() == set()


@pytest.mark.parametrize(("answer", "code"), [("", 1), ("n\n", 1), ("perhaps\n", 1), ("y\n", 0)])
def test_cleanup_asks(operator: Operator, monkeypatch: pytest.MonkeyPatch, answer: str, code: int) -> None:
    operator.pod(1, None)
    claim(operator, "etl-exec-1-pvc-0", "etl")
    claim(operator, "billing-data", "etl")
    operator.lease(60, "")
    monkeypatch.setattr(sys, "stdin", io.StringIO(answer))
    operator.run("cleanup", "etl", code=code)
    left = "has the labels of etl but not the name of its executors' claims, and stays"
    assert f'persistentvolumeclaim "billing-data" {left}' in operator.err
    named = 'pod "etl-exec-1" will be deleted\npersistentvolumeclaim "etl-exec-1-pvc-0" will be deleted\n'
    assert f"{named}Delete its 1 pods (1 alive) and 1 claims with their data? [y/N] " in operator.err
    assert len(operator.api.names()) == code
    assert "billing-data" in {each["metadata"]["name"] for each in operator.api.list_objects(CLAIMS)}


# ── rights ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_rights_in_config_are_enough_for_every_command_on_a_real_server(
    real: RealCluster, plane: ControlPlane, capsys: pytest.CaptureFixture[str]
) -> None:
    operator = Operator(real, capsys)
    account = open_account(plane, operator.namespace, text=RBAC)
    operator.pod(1, None)
    operator.lease(60, "")
    claim(operator, "etl-exec-1-pvc-0", "etl")
    for command in ("list", "status etl", "describe etl 1", "events etl", "cleanup etl --yes"):
        operator.run(*command.split(), kubeconfig=account)
        assert "forbidden" not in operator.err
    assert operator.api.names() == set()
    operator.run("list", "-A", code=1, kubeconfig=account)
    assert 'cannot list resource "pods" in API group "" at the cluster scope' in operator.err
    assert "`executor-pods config --rbac-operator` prints the rights" in operator.err
    operator.api.api.close()


def test_without_the_right_to_leases_the_command_says_so_on_a_real_server(
    real: RealCluster, plane: ControlPlane, capsys: pytest.CaptureFixture[str]
) -> None:
    operator = Operator(real, capsys)
    text = RBAC.replace("coordination.k8s.io]", "example.org]")
    operator.pod(1, None)
    operator.lease(60)
    account = open_account(plane, operator.namespace, text=text)
    row = operator.run("list", kubeconfig=account)[1].split()
    assert row[:6] == ["etl", "default", "unknown", "?", "?", "?"]
    assert 'cannot list resource "leases"' in operator.err
    operator.run("cleanup", "etl", "--yes", code=1, kubeconfig=account)
    assert operator.api.names() == {"etl-exec-1"}
    operator.api.api.close()
