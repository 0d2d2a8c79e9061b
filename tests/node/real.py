"""A real node as a world: kubelet, containerd and runc, on a cluster that the scripts of `tests.realcluster` start."""

from __future__ import annotations

import ctypes
import os
import re
import select
import shutil
import signal
import subprocess
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, final

from tests.node.world import World

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["MISSING", "Machines", "RealWorld", "inside"]

SCRIPTS: Final = Path(__file__).parents[1] / "realcluster"
PROGRAMS: Final = (
    *("containerd", "runc", "ctr", "iptables", "conntrack", "socat", "busybox", "gcc", "nsenter", "unshare", "kubectl"),
    *("openssl", "curl"),
)
PLUGINS: Final = Path("/usr/lib/cni/bridge")
BUILT: Final = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet")
SAFETY: Final = 900.0
"""Seconds until a script that hangs fails a test. Reached by a failure only: a start takes a minute."""
LEASES: Final = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
"""The heartbeats of nodes."""
CLONE_NEWNET: Final = 0x40000000
"""From <sched.h>."""


def _missing() -> str | None:
    """What keeps a node from running here, in one sentence."""
    if os.uname().sysname != "Linux" or os.geteuid() != 0:
        return "a real node needs Linux and root"
    if "REALNODE" in os.environ:
        return None
    lacking = [name for name in PROGRAMS if shutil.which(name) is None]
    lacking += [] if PLUGINS.exists() else ["containernetworking-plugins"]
    if lacking:
        return f"a real node needs programs that are not here: {', '.join(lacking)} (see tests/realcluster/README.md)"
    if shutil.which("go") is None:
        assets = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "executor-pods/assets")
        if not any(all((folder / name).exists() for name in BUILT) for folder in assets.glob("*")):
            return "a real node needs Go, to build Kubernetes once (see tests/realcluster/README.md)"
    return None


MISSING: Final = _missing()
"""Why no node can run here; None if one can."""


class Machines:
    """A cluster in a folder, by its scripts."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.kubeconfig = folder / "kubeconfig"

    def up(self, node: int, **env: str) -> None:
        """Start a machine, or start it again."""
        self._script("up", str(self.folder), str(node), **env)

    def down(self) -> None:
        """End all."""
        self._script("down", str(self.folder))

    def again(self, program: str, node: int) -> None:
        """Kill a program of a machine and start it again."""
        self._script("again", program, str(self.folder), str(node))

    def stop(self, program: str, node: int) -> None:
        """Kill a program of a machine."""
        self._script("again", program, str(self.folder), str(node), STOP="1")

    def runs(self, node: int) -> bool:
        return Path(f"/proc/{self.process(node)}").exists()

    def process(self, node: int) -> int:
        """Process 1 of a machine."""
        file = self.folder / f"node-{node}.pid"
        return int(file.read_text()) if file.exists() else 0

    def crash(self, node: int) -> None:
        """Switch a machine off."""
        holder = os.pidfd_open(int((self.folder / f"node-{node}.holder").read_text()))
        try:
            os.kill(self.process(node), signal.SIGKILL)
            assert select.select([holder], [], [], SAFETY)[0], "the machine does not end"  # who reaps it, ends then
        finally:
            os.close(holder)

    def containers(self, node: int, pod: str) -> list[str]:
        """The containers of a pod, without its sandbox."""
        labels = f'labels."io.kubernetes.pod.name"=={pod},labels."io.cri-containerd.kind"==container'
        return self.ctr(node, "containers", "ls", "-q", labels).split()

    def ctr(self, node: int, *arguments: str) -> str:
        """Ask containerd."""
        socket = self.folder / f"node-{node}" / "containerd.sock"
        return _run("ctr", "-a", str(socket), "-n", "k8s.io", *arguments)

    def configuration(self, node: int) -> Path:
        """The kubelet's."""
        return self.folder / f"node-{node}" / "kubelet.yaml"

    def _script(self, name: str, *arguments: str, **env: str) -> str:
        return _run(str(SCRIPTS / name), *arguments, **env)


@contextmanager
def inside(machine: int) -> Iterator[None]:
    """Enter the network of a machine, by its process 1: this thread, and threads and programs that it starts."""
    home = Path("/proc/thread-self/ns/net").open("rb")  # noqa: SIM115 - closed below
    with home:
        with Path(f"/proc/{machine}/ns/net").open("rb") as there:
            _enter(there.fileno())
        try:
            yield
        finally:
            _enter(home.fileno())


@final
class RealWorld(World):
    """One node of a real cluster. The calling thread is in the cluster's network."""

    name = "real"

    def __init__(self, machines: Machines, node: int) -> None:
        super().__init__(machines.kubeconfig, {"node_selector": {"kubernetes.io/hostname": f"node-{node}"}})
        self.machines = machines
        self.node = node

    @property
    def path(self) -> str:
        """The node's, in the API."""
        return f"/api/v1/nodes/node-{self.node}"

    def signal(self, pod: str, number: int) -> None:
        for container in self.machines.containers(self.node, pod):
            self.machines.ctr(self.node, "task", "kill", "-s", str(number), container)

    def exceed_memory(self, pod: str) -> None:
        self.signal(pod, signal.SIGUSR1)

    def lose_node(self) -> None:
        self.machines.crash(self.node)

    def restore_node(self) -> None:
        self.machines.up(self.node)

    def start_kubelet(self) -> None:
        """Start a kubelet that was stopped; the node is ready."""
        self.machines.again("kubelet", self.node)
        self.await_ready()

    def await_ready(self) -> None:
        """Wait for the next heartbeat of a kubelet that reports its node as ready."""
        name, now = f"node-{self.node}", datetime.now(UTC).isoformat().removesuffix("+00:00")
        self.await_object(LEASES, name, lambda lease: lease["spec"]["renewTime"] > now)
        self.await_object("/api/v1/nodes", name, _is_ready)

    def taint(self, taints: list[dict[str, str]]) -> None:
        """Give the node these taints, and no others."""
        answer = self.api.patch(self.path, {"spec": {"taints": taints}})
        assert answer.status == 200, answer

    @contextmanager
    def threshold(self, resource: str, limit: str) -> Iterator[None]:
        """Have the kubelet evict pods while less of a resource is left."""
        file = self.machines.configuration(self.node)
        before = file.read_text()
        file.write_text(re.sub(rf"{re.escape(resource)}: [^,}}]*", f"{resource}: {limit}", before))
        try:
            self.machines.again("kubelet", self.node)
            yield
        finally:
            file.write_text(before)
            self.start_kubelet()
            self.await_object("/api/v1/nodes", f"node-{self.node}", lambda node: not _has(node, "MemoryPressure"))


def _is_ready(node: dict[str, Any]) -> bool:
    return _has(node, "Ready")


def _has(node: dict[str, Any], condition: str) -> bool:
    conditions = node["status"].get("conditions", ())
    return any(each["type"] == condition and each["status"] == "True" for each in conditions)


def _enter(descriptor: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(descriptor, CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "setns")


def _run(*command: str, **env: str) -> str:
    done = subprocess.run(
        command,
        env=os.environ | env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SAFETY,
        check=False,
    )
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout
