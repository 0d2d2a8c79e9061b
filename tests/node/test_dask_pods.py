"""A Dask program in a pod of the cluster, and its workers."""

from __future__ import annotations

import signal
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.node.programs import CONFIG, SHORT, kubectl, name_of
from tests.node.world import NAMESPACE
from tests.realcluster.images import DRIVER

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.node.real import RealWorld

pytestmark = pytest.mark.node


@contextmanager
def dask_program(world: RealWorld, deed: str) -> Iterator[tuple[str, Iterator[str]]]:
    """Run `dask_program.py` in a pod, as the account of config/rbac.yaml: its name, and what it prints."""
    name = name_of("dask")
    kubectl(world, "apply", "-n", NAMESPACE, "-f", str(CONFIG / "rbac.yaml"))
    program = Path(__file__).with_name("dask_program.py").read_text(encoding="utf-8")
    fields = {"POD_IP": "status.podIP", "EXECUTOR_PODS_DRIVER_POD_NAME": "metadata.name"}
    env = [{"name": each, "valueFrom": {"fieldRef": {"fieldPath": path}}} for each, path in fields.items()]
    container = {
        "name": "executor",
        "image": DRIVER,
        "command": ["python", "/program/dask_program.py", f"node-{world.node}", deed],
        "env": [*env, {"name": "NAME", "value": name}],
        "volumeMounts": [{"name": "program", "mountPath": "/program"}],
    }
    spec = {
        "serviceAccountName": "executor-pods-driver",
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 1,
        "nodeSelector": world.placement["node_selector"],
        "containers": [container],
        "volumes": [{"name": "program", "configMap": {"name": name}}],
    }
    world.api.made("configmaps", {"metadata": {"name": name}, "data": {"dask_program.py": program}})
    world.api.made("pods", {"metadata": {"name": name}, "spec": spec})
    try:
        world.await_object("pods", name, lambda pod: pod["status"]["phase"] != "Pending")
        with world.followed(name, "executor") as lines:
            yield name, lines
    finally:
        world.api.delete(f"pods/{name}", {"gracePeriodSeconds": 1})
        world.api.delete(f"configmaps/{name}")


def next_word(lines: Iterator[str], first: str) -> str:
    """The rest of the next line that begins with this word."""
    seen = []
    for line in lines:
        seen.append(line)
        if line.partition(" ")[0] == first:
            return line.partition(" ")[2]
    raise AssertionError(f"no line {first!r} in {seen}")


def test_a_dask_cluster_loses_a_worker_and_no_result(node_1: RealWorld) -> None:
    with dask_program(node_1, "kill") as (name, lines):
        node_1.signal(next_word(lines, "kill"), signal.SIGKILL)
        assert int(next_word(lines, "sum")) == sum(number**2 for number in range(60))
        next_word(lines, "workers")
        next_word(lines, "closed")
        assert node_1.pods(name) == set()


def test_a_dask_worker_that_somebody_deletes_is_gone_when_its_results_are(node_1: RealWorld) -> None:
    with dask_program(node_1, "delete") as (_, lines):
        pod = next_word(lines, "delete")
        watch = node_1.api.watch("pods", fieldSelector=f"metadata.name={pod}")
        node_1.delete(pod)
        next_word(lines, "handed")
        began = time.monotonic()
        while watch.next()["type"] != "DELETED":
            pass
        watch.close()
        took = time.monotonic() - began
        print(f"\na worker's pod was gone {took:.1f} s after it had handed over")
        assert int(next_word(lines, "sum")) == sum(number**2 for number in range(30))
        assert took < SHORT
