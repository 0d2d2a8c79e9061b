"""A whole control plane on loopback: beside etcd and the API server also a scheduler, a controller manager and kwok.

kwok plays five big nodes with their kubelets, so pods are scheduled, run and are deleted as on a real cluster; no
container runs. The API server writes an audit log: the honest way to count what a client asked of it. Programs can be
killed and started again one by one. All of it ends with the tests, also when those are killed.

`python -m tests.stress.plane` runs one for a person until Ctrl-C, and prints its kubeconfig. A line that names a
program kills it and starts it again.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tests.contract.control_plane import ControlPlane

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["DIES_WITH_US", "PROGRAMS", "STAGES", "Asked", "WholePlane", "missing_in", "running"]

API_SERVER: Final = "kube-apiserver"
PROGRAMS: Final = ("etcd", API_SERVER, "kube-controller-manager", "kube-scheduler", "kwok")
STAGES: Final = "kwok-stages.yaml"
NODES: Final = 5
CONTROLLERS: Final = (
    "garbagecollector",
    "resourcequota",
    "namespace",
    "serviceaccount",
    "podgc",
    "persistentvolume-binder-controller",
)

AUDIT_POLICY: Final = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "rules": [
        # also when it came in: a server that is killed may have done what it never wrote the end of
        {"level": "Metadata", "verbs": ["create"], "resources": [{"group": "", "resources": ["pods"]}]},
        {
            "level": "Metadata",
            "resources": [{"group": "", "resources": ["pods", "pods/eviction"]}],
            "omitStages": ["RequestReceived"],
        },
        {
            "level": "Metadata",
            "resources": [
                {"group": "", "resources": ["persistentvolumeclaims"]},
                {"group": "coordination.k8s.io", "resources": ["leases"]},
            ],
            "omitStages": ["RequestReceived"],
        },
        {"level": "None"},
    ],
}

LINE_BEGINS: Final = '{"kind":"Event",'

FAST: Final = ("--kube-api-qps=500", "--kube-api-burst=1000")
"""client-go's own limits (20 a second) would be slower than what is measured."""

DIES_WITH_US: Final = ("setpriv", "--pdeathsig", "KILL") if shutil.which("setpriv") else ()
"""Linux: whoever kills the tests themselves leaves no server behind."""


@dataclass(frozen=True, slots=True)
class Asked:
    """One line of the audit log."""

    id: str
    stage: str
    verb: str
    namespace: str
    resource: str
    subresource: str | None
    name: str | None
    """Of a create only when it is complete: before, it stands in the body alone."""
    agent: str
    user: str
    code: int
    received: datetime
    at: datetime
    """When this stage was reached."""


class WholePlane(ControlPlane):
    """Starts with `start`; `stop` ends every program and is safe at any time."""

    def __init__(self, assets: Path, folder: Path) -> None:
        super().__init__(assets, folder)
        self._flags: dict[str, tuple[str, ...]] = {}
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._audit_log = folder / "audit.log"
        self.authority = str(folder / "certs" / "apiserver.crt")

    def start(self) -> None:
        policy = self._folder / "audit.yaml"
        policy.write_text(json.dumps(AUDIT_POLICY))
        super().start()
        self.kubeconfig.chmod(0o600)
        for number in range(NODES):
            self.request("POST", "/api/v1/nodes", _node(f"kwok-{number}"))
        known = ("--kubeconfig", str(self.kubeconfig))
        alone = ("--leader-elect=false", "--secure-port=0", "--bind-address=127.0.0.1")
        self._run(
            "kube-controller-manager",
            *known,
            *alone,
            *FAST,
            "--use-service-account-credentials=false",
            f"--service-account-private-key-file={self._folder}/sa.key",
            f"--controllers={','.join(CONTROLLERS)}",
        )
        self._run("kube-scheduler", *known, *alone, *FAST)
        kwok = self._run("kwok", *known, "--manage-all-nodes", "-c", str(self._assets / STAGES))
        self._wait_until(self._check_nodes, "kwok", kwok)

    def kill(self, program: str) -> None:
        """SIGKILL: no goodbye to anybody, and no last line in a log."""
        self._processes[program].kill()
        self._processes[program].wait()

    def start_again(self, program: str) -> None:
        """As it was started first; what it kept is still there."""
        process = self._run(program, *self._flags[program])
        if program == API_SERVER:
            self._wait_until(lambda: self.request("GET", "/readyz"), program, process)

    @property
    def port(self) -> int:
        """The API server's."""
        return int(self.server.rpartition(":")[2])

    def ended(self) -> list[str]:
        """Programs that run no more."""
        return [program for program, process in self._processes.items() if process.poll() is not None]

    def audit(self, resource: str = "pods") -> Iterator[Asked]:
        """What was asked about these, but for the line that a server was writing when it was killed."""
        with self._audit_log.open(encoding="utf-8") as lines:
            for line in lines:
                last = line.rfind(LINE_BEGINS)  # the next server goes on in the middle of an unfinished line
                with suppress(json.JSONDecodeError):
                    asked = _asked(json.loads(line[max(last, 0) :]))
                    if asked.resource == resource:
                        yield asked

    def _run(self, program: str, *flags: str) -> subprocess.Popen[bytes]:
        """As the base does, but to be started again: one log for all of a program's lives."""
        if program == API_SERVER and program not in self._flags:
            flags += (
                f"--audit-policy-file={self._folder}/audit.yaml",
                f"--audit-log-path={self._audit_log}",
                "--audit-log-mode=blocking",
                "--allow-privileged",
            )
        self._flags[program] = flags
        log = self._running.enter_context((self._folder / f"{program}.log").open("ab"))
        process = subprocess.Popen(
            [*DIES_WITH_US, self._assets / program, *flags],
            cwd=self._folder,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
        self._processes[program] = process
        self._running.callback(process.wait)
        self._running.callback(process.kill)
        return process

    def _check_nodes(self) -> None:
        nodes = self.request("GET", "/api/v1/nodes")["items"]
        ready = [node for node in nodes for one in node["status"].get("conditions", ()) if one["type"] == "Ready"]
        if len(ready) != NODES:
            raise OSError("the nodes are not ready")


def missing_in(folder: Path) -> list[str]:
    """What this folder lacks of a whole control plane."""
    return [name for name in (*PROGRAMS, STAGES) if not (folder / name).is_file()]


def _node(name: str) -> dict[str, Any]:
    room = {"cpu": "1000", "memory": "4000Gi", "pods": "5000"}
    metadata = {"name": name, "annotations": {"kwok.x-k8s.io/node": "fake"}}
    return {"metadata": metadata, "status": {"allocatable": room, "capacity": room}}


def _asked(line: dict[str, Any]) -> Asked:
    about = line.get("objectRef", {})
    return Asked(
        id=line["auditID"],
        stage=line["stage"],
        verb=line["verb"],
        namespace=about.get("namespace", ""),
        resource=about.get("resource", ""),
        subresource=about.get("subresource"),
        name=about.get("name"),
        agent=line.get("userAgent", ""),
        user=line.get("user", {}).get("username", ""),
        code=line.get("responseStatus", {}).get("code", 0),
        received=datetime.fromisoformat(line["requestReceivedTimestamp"]),
        at=datetime.fromisoformat(line["stageTimestamp"]),
    )


@contextmanager
def running() -> Iterator[WholePlane]:
    """Run a plane of its own in a temporary folder. Raises SystemExit if programs are missing; it names them."""
    assets = Path(os.environ.get("KUBEBUILDER_ASSETS") or os.devnull)
    if missing := missing_in(assets):
        raise SystemExit(f"needs a folder, named by KUBEBUILDER_ASSETS, with {', '.join(missing)}")
    with tempfile.TemporaryDirectory() as folder:
        plane = WholePlane(assets, Path(folder))
        try:
            plane.start()
            yield plane
        finally:
            plane.stop()


def main() -> None:
    """Run a plane for a person."""
    with suppress(KeyboardInterrupt), running() as plane:
        print(plane.kubeconfig, flush=True)
        for line in sys.stdin:
            program = line.strip()
            if program in PROGRAMS:
                plane.kill(program)
                plane.start_again(program)
                print(f"{program} runs again", flush=True)
            else:
                print(f"{program}: not a program of the plane; allowed: {', '.join(PROGRAMS)}", flush=True)


if __name__ == "__main__":
    main()
