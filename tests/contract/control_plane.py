"""A real API server with its etcd, on loopback, for as long as the tests run. Nothing else of Kubernetes is there.

So no pod is scheduled, started or stopped: a test binds a pod by `spec.nodeName` and is its kubelet.
"""

from __future__ import annotations

import base64
import json
import os
import socket
import ssl
import subprocess
import urllib.request
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

if TYPE_CHECKING:
    from collections.abc import Callable

PROGRAMS = ("etcd", "kube-apiserver")


def _find_assets() -> Path | None:
    folder = Path(os.environ.get("KUBEBUILDER_ASSETS") or os.devnull)
    return folder if all((folder / program).is_file() for program in PROGRAMS) else None


ASSETS = _find_assets()
"""The folder with the programs; None if there is none."""
WITHOUT_ASSETS = (
    "the contract was not held against a real API server: that needs a folder with etcd and kube-apiserver, named by "
    "KUBEBUILDER_ASSETS (tests/realcluster/build builds one)"
)
TOKEN = "contract-suite"
STRANGERS_TOKEN = "not-a-token"
READY_TRIES = 300
"""A fifth of a second each: a minute, where a machine of two cores needs five seconds."""
STARTS = 3
"""A port that was free may be taken when a program comes to listen at it: then others are tried."""


class ControlPlane:
    """Starts with `start`; `stop` ends both programs and is safe at any time."""

    def __init__(self, assets: Path, folder: Path) -> None:
        self._assets = assets
        self._folder = folder
        self._running = ExitStack()
        self.kubeconfig = folder / "kubeconfig"
        self.authority = str(folder / "certs" / "apiserver.crt")
        self.server = ""
        self.server_pid = 0

    def start(self) -> None:
        for _ in range(STARTS - 1):
            try:
                self._start()
            except AssertionError:
                self.stop()
            else:
                return
        self._start()

    def stop(self) -> None:
        self._running.close()

    def request(
        self, method: str, path: str, body: dict[str, Any] | None = None, *, token: str = TOKEN
    ) -> dict[str, Any]:
        """Ask as an administrator, or with another's token, past the code under test."""
        patch = method == "PATCH"
        request = urllib.request.Request(
            self.server + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={
                "Authorization": f"Bearer {token}",
                "Content-Type": "application/merge-patch+json" if patch else "application/json",
            },
        )
        with_authority = urllib.request.HTTPSHandler(context=ssl.create_default_context(cafile=self.authority))
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), with_authority)
        with opener.open(request, timeout=30) as response:
            answer = response.read()
        found: dict[str, Any] = json.loads(answer) if answer.startswith(b"{") else {}
        return found

    def _start(self) -> None:
        etcd, peer, port = _free_ports(3)
        self.server = f"https://127.0.0.1:{port}"
        self._write_files()
        store = self._run(
            "etcd",
            f"--data-dir={self._folder}/etcd-{etcd}",
            f"--listen-client-urls=http://127.0.0.1:{etcd}",
            f"--advertise-client-urls=http://127.0.0.1:{etcd}",
            f"--listen-peer-urls=http://127.0.0.1:{peer}",
            "--unsafe-no-fsync",
        )
        self._wait_until(lambda: _grow(etcd), "etcd", store)
        server = self._run(
            "kube-apiserver",
            f"--etcd-servers=http://127.0.0.1:{etcd}",
            f"--secure-port={port}",
            "--bind-address=127.0.0.1",
            "--endpoint-reconciler-type=none",
            f"--cert-dir={self._folder}/certs",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={self._folder}/sa.pub",
            f"--service-account-signing-key-file={self._folder}/sa.key",
            "--service-cluster-ip-range=10.0.0.0/24",
            f"--token-auth-file={self._folder}/tokens.csv",
            "--authorization-mode=RBAC",
            "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition",
        )
        self.server_pid = server.pid
        self._wait_until(lambda: self.request("GET", "/readyz"), "kube-apiserver", server)

    def _run(self, program: str, *flags: str) -> subprocess.Popen[bytes]:
        log = self._running.enter_context((self._folder / f"{program}.log").open("wb"))
        process = subprocess.Popen(
            [self._assets / program, *flags], cwd=self._folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
        self._running.callback(process.wait)
        self._running.callback(process.kill)
        return process

    def _wait_until(self, ready: Callable[[], object], program: str, process: subprocess.Popen[bytes]) -> None:
        for _ in range(READY_TRIES):
            with suppress(OSError):  # not listening, or not ready
                ready()
                if process.poll() is None:  # or it was another who answered, at a port that we did not get
                    return
            with suppress(subprocess.TimeoutExpired):
                process.wait(0.2)
                break
        log = (self._folder / f"{program}.log").read_text()
        raise AssertionError(f"{program} did not get ready:\n{log[-2000:]}")

    def _write_files(self) -> None:
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        (self._folder / "sa.key").write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.TraditionalOpenSSL,
                serialization.NoEncryption(),
            )
        )
        (self._folder / "sa.pub").write_bytes(
            key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
        )
        tokens = {"admin": TOKEN, "nobody": "has-no-rights", "stranger": STRANGERS_TOKEN}
        (self._folder / "tokens.csv").write_text(f'{TOKEN},admin,1,"system:masters"\nhas-no-rights,nobody,2\n')
        cluster = {"server": self.server, "certificate-authority": "certs/apiserver.crt"}
        config = {
            "clusters": [{"name": "real", "cluster": cluster}],
            "users": [{"name": name, "user": {"token": token}} for name, token in tokens.items()],
            "contexts": [{"name": name, "context": {"cluster": "real", "user": name}} for name in tokens],
            "current-context": "admin",
        }
        self.kubeconfig.write_text(json.dumps(config))


def _grow(port: int) -> None:
    """Write to etcd before the API server is there, and have it forget that: what was at version 1 is gone, as on any
    older cluster.
    """
    _etcd(port, "put", {"key": base64.b64encode(b"/grown").decode(), "value": ""}, times=10)
    _etcd(port, "compaction", {"revision": 5, "physical": True})


def _etcd(port: int, method: str, message: dict[str, Any], *, times: int = 1) -> None:
    for _ in range(times):
        request = urllib.request.Request(
            f"http://127.0.0.1:{port}/v3/kv/{method}", data=json.dumps(message).encode(), method="POST"
        )
        with urllib.request.urlopen(request, timeout=30) as response:
            response.read()


def _free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [sock.getsockname()[1] for sock in sockets]
