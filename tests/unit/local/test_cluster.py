"""The embedded cluster as a whole: its files, its refusals and its end."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

import pytest
import urllib3
import yaml

from actors.errors import SettingsError
from actors.local.cluster import LocalCluster
from actors.local.kubelet.delays import START
from actors.pods.pod import ROLE_EXECUTOR, ROLE_LABEL
from actors.runtime import SystemClock
from tests.unit.local.process_kit import SAFETY_SECONDS

if TYPE_CHECKING:
    from pathlib import Path

    from actors.local.store.object_store import WatchMessage


class Pods:
    """Creates pods and waits for their states."""

    def __init__(self, cluster: LocalCluster, namespace: str = "default") -> None:
        self.cluster, self.namespace = cluster, namespace
        self.seen: SimpleQueue[WatchMessage] = SimpleQueue()
        cluster.store.watch("pods", namespace, self.seen.put)

    def run(self, name: str, **labels: str) -> None:
        container = {"name": "executor", "image": "none", "command": ["sleep", "1000"]}
        spec = {"restartPolicy": "Never", "containers": [container]}
        self.cluster.store.create("pods", self.namespace, {"metadata": {"name": name, "labels": labels}, "spec": spec})
        self.wait(name, "Running")

    def wait(self, name: str, phase: str) -> dict[str, Any]:
        while True:
            found = self.seen.get(timeout=SAFETY_SECONDS).object
            if (found["metadata"]["name"], found["status"].get("phase")) == (name, phase):
                return found


def test_its_kubeconfig_is_private_complete_and_removed_at_the_end() -> None:
    with LocalCluster(namespace="mine") as cluster:
        path = cluster.kubeconfig_path
        assert path.stat().st_mode & 0o777 == 0o600
        assert path.parent.stat().st_mode & 0o777 == 0o700
        config = yaml.safe_load(path.read_text())
        assert config["clusters"][0]["cluster"]["server"] == cluster.url
        assert config["contexts"][0]["context"]["namespace"] == "mine"
        assert cluster.store.get("namespaces", None, "mine")["status"]["phase"] == "Active"
    assert not path.parent.exists()
    with pytest.raises(RuntimeError, match="is not running"):
        cluster.kubeconfig_path  # noqa: B018 - reading it raises


def test_a_kubeconfig_at_a_given_place_is_removed_and_its_directory_is_not(tmp_path: Path) -> None:
    path = tmp_path / "config"
    with LocalCluster(kubeconfig=path) as cluster:
        assert cluster.kubeconfig_path == path
        assert path.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == []


def test_a_foreign_kubeconfig_is_never_overwritten(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    foreign = tmp_path / "config"
    foreign.write_text("apiVersion: v1\n")
    with pytest.raises(SettingsError, match="exists and was not written by executor-pods"):
        LocalCluster(kubeconfig=foreign).start()
    assert foreign.read_text() == "apiVersion: v1\n"
    assert set(threading.enumerate()) <= before


def test_a_link_is_never_followed_or_replaced(tmp_path: Path) -> None:
    link = tmp_path / "config"
    link.symlink_to(tmp_path / "nowhere")
    with pytest.raises(SettingsError, match="exists and was not written by executor-pods"):
        LocalCluster(kubeconfig=link).start()
    assert link.is_symlink()


def test_its_own_kubeconfig_of_a_run_that_died_is_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "config"
    with LocalCluster(kubeconfig=path):
        stale = path.read_text()
    path.write_text(stale)
    with LocalCluster(kubeconfig=path):
        assert path.read_text() != stale
    assert not path.exists()


def test_at_the_end_another_clusters_kubeconfig_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "config"
    with LocalCluster(kubeconfig=path) as later:
        with LocalCluster() as earlier:
            text = path.read_text()
            assert earlier.url != later.url
        assert path.read_text() == text


def test_a_directory_that_is_not_there_is_named(tmp_path: Path) -> None:
    path = tmp_path / "nowhere" / "config"
    with pytest.raises(SettingsError, match=r"nowhere/config: cannot be written: No such file or directory"):
        LocalCluster(kubeconfig=path).start()


@pytest.mark.parametrize("port", [-1, 65_536])
def test_what_is_no_port_is_refused(port: int) -> None:
    with pytest.raises(SettingsError, match=f"port {port}: not a port; allowed"):
        LocalCluster(port=port)


def test_a_port_that_is_taken_is_refused_and_nothing_is_left() -> None:
    with LocalCluster() as first:
        before = set(threading.enumerate())
        taken = int(first.url.rpartition(":")[2])
        with pytest.raises(SettingsError, match=f"port {taken}: cannot listen"):
            LocalCluster(port=taken).start()
        assert set(threading.enumerate()) <= before


def test_stop_leaves_no_thread_and_no_listener_and_may_come_twice() -> None:
    before = set(threading.enumerate())
    cluster = LocalCluster().start()
    Pods(cluster).run("a")
    url = cluster.url
    cluster.stop()
    assert set(threading.enumerate()) <= before
    with pytest.raises(urllib3.exceptions.MaxRetryError):
        urllib3.PoolManager().request("GET", url, retries=0)
    cluster.stop()


def test_a_cluster_that_runs_is_not_started_twice() -> None:
    with LocalCluster() as cluster, pytest.raises(RuntimeError, match="already running"):
        cluster.start()


def test_kill_hits_the_named_pod() -> None:
    with LocalCluster(namespace="mine") as cluster:
        pods = Pods(cluster, "mine")
        pods.run("a")
        assert cluster.kill("a")
        pod = pods.wait("a", "Failed")
        assert pod["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 137
        assert not cluster.kill("a")
    assert not cluster.kill("a")


def test_a_pod_that_is_out_of_memory_ends_as_the_kernel_ends_it() -> None:
    with LocalCluster() as cluster:
        pods = Pods(cluster)
        pods.run("a")
        assert cluster.oom("a")
        terminated = pods.wait("a", "Failed")["status"]["containerStatuses"][0]["state"]["terminated"]
        assert (terminated["exitCode"], terminated["reason"]) == (137, "OOMKilled")
        assert not cluster.oom("a")


def test_kill_random_hits_executors_only_and_says_whom() -> None:
    with LocalCluster() as cluster:
        pods = Pods(cluster)
        pods.run("other")
        assert cluster.kill_random() is None
        pods.run("executor", **{ROLE_LABEL: ROLE_EXECUTOR})
        assert cluster.kill_random() == "executor"
        pods.wait("executor", "Failed")
        assert cluster.kill_random() is None
        assert cluster.store.get("pods", "default", "other")["status"]["phase"] == "Running"


# ── Faults ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_node_that_is_lost_by_plan_is_back_after_the_outage() -> None:
    moment = timedelta(milliseconds=1)
    cluster = LocalCluster(lose_node_after=moment, node_outage=moment)
    seen: SimpleQueue[WatchMessage] = SimpleQueue()
    cluster.store.watch("nodes", None, seen.put)
    states: list[str] = []
    with cluster:
        while "Unknown" not in states or states[-1] != "True":
            conditions = seen.get(timeout=SAFETY_SECONDS).object.get("status", {}).get("conditions", ())
            states += [each["status"] for each in conditions if each["type"] == "Ready"]


def test_pulls_fail_from_the_start_on_and_a_lost_node_is_back_on_request() -> None:
    with LocalCluster(failing_pulls=["none"]) as cluster:
        pods = Pods(cluster)
        container = {"name": "executor", "image": "none", "command": ["sleep", "1000"]}
        pod = {"metadata": {"name": "a"}, "spec": {"restartPolicy": "Never", "containers": [container]}}
        cluster.store.create("pods", "default", pod)
        while "containerStatuses" not in pods.wait("a", "Pending")["status"]:
            pass
        cluster.fail_pulls()
        pods.run("b")
        cluster.lose_node()
        cluster.restore_node()
        pods.wait("b", "Failed")
    for fault in (cluster.lose_node, cluster.restore_node, cluster.fail_pulls):
        with pytest.raises(RuntimeError, match="is not running"):
            fault()


class HundredfoldClock(SystemClock):
    """A wall clock on which a second of a node's delay is a hundred: timestamps of the API have whole seconds."""

    def now(self) -> datetime:
        return datetime(2024, 1, 1, tzinfo=UTC) + timedelta(seconds=100 * self.monotonic())


def test_in_a_realistic_cluster_a_pod_starts_some_time_after_it_was_bound() -> None:
    with LocalCluster(realistic=True, clock=HundredfoldClock()) as cluster:
        pods = Pods(cluster)
        pods.run("a")
        status = cluster.store.get("pods", "default", "a")["status"]
    bound = datetime.fromisoformat(status["startTime"])
    started = datetime.fromisoformat(status["containerStatuses"][0]["state"]["running"]["startedAt"])
    assert started - bound >= timedelta(seconds=99 * START[0])
