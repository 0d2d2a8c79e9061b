"""Servers whose credentials change under a client: a pod's account, tokens that go, certificates that are replaced."""

from __future__ import annotations

import base64
import ssl
import threading
import urllib.error
from abc import ABC, abstractmethod
from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from actors.kube.auth import discovery as auth
from actors.kube.http.pod_api import HttpPodApi
from actors.local.kubelet.process_kubelet import ProcessKubelet
from actors.local.server.api_server import ApiServer
from actors.local.server.credentials import new_credentials
from actors.local.store.object_store import ObjectStore
from actors.runtime import Entropy, SystemClock, TimerThread
from actors.testing import ManualClock
from tests.contract.asking import Asking
from tests.contract.clusters import LIMIT, RealCluster
from tests.unit.kube.certificates import Authority
from tests.unit.kube.scripted import write_kubeconfig

if TYPE_CHECKING:
    from datetime import timedelta
    from pathlib import Path

    from actors.kube.auth.credentials import Access
    from actors.local.server.credentials import ServerCredentials
    from tests.contract.control_plane import ControlPlane

ACCOUNT = "executor-pods-driver"
"""The service account of config/rbac.yaml."""

TRIES = 150
"""A fifth of a second each. A server goes on for ten seconds with a token that it has just accepted."""


class Changing(ABC):
    """A server, and the account of a pod in it: `folder` is what the kubelet would mount."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.shown: list[str] = []
        """Every token that there was."""

    @property
    @abstractmethod
    def url(self) -> str:
        """Where the server is."""

    @property
    def server(self) -> str:
        """Host and port."""
        return urlsplit(self.url).netloc

    @abstractmethod
    def authority(self) -> bytes:
        """The CA that knows the server's certificate, as PEM."""

    @abstractmethod
    def new_token(self) -> None:
        """Write another token into the account's file. The one before is good until `revoke`."""

    @abstractmethod
    def revoke(self) -> None:
        """Have the server accept no token any more but the newest."""

    @abstractmethod
    def remove(self) -> None:
        """Have it accept none at all."""

    @abstractmethod
    def bring_back(self) -> None:
        """After `remove`: the account exists again, with a token of its own in its file."""

    @abstractmethod
    def wait_until_refused(self) -> None:
        """Return when what `revoke` or `remove` did is in force."""

    @abstractmethod
    def new_certificate(self) -> None:
        """Show new connections a certificate of another authority."""

    def write_ca(self) -> None:
        """Bring the account's CA up to date."""
        (self.folder / "ca.crt").write_bytes(self.authority())

    def write_kubeconfig(self) -> Path:
        """A kubeconfig of the account, with the CA and the token inside."""
        data = base64.b64encode(self.authority()).decode()
        path = self.folder / "kubeconfig"
        return write_kubeconfig(
            path, self.url, {"token": self.shown[-1]}, namespace=self.namespace, **{"certificate-authority-data": data}
        )

    @property
    def namespace(self) -> str:
        """The account's."""
        return (self.folder / "namespace").read_text()


class Embedded(Changing):
    """The embedded cluster's HTTP server. It has one token and one certificate: others need it started again."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._timers = TimerThread()
        self._clock = SystemClock()
        self._store = ObjectStore(self._clock, Entropy(1))
        self._kubelet = ProcessKubelet(self._store, self._clock, self._timers, folder / "logs")  # never started
        self._credentials = new_credentials()
        self._server = self._start(0)
        (folder / "namespace").write_text("default")
        self.shown.append(self._credentials.token)
        (folder / "token").write_text(self._credentials.token)
        self.write_ca()

    @property
    def url(self) -> str:
        return self._server.url

    def authority(self) -> bytes:
        return self._credentials.authority

    def new_token(self) -> None:
        self.shown.append(new_credentials().token)
        (self.folder / "token").write_text(self.shown[-1])

    def revoke(self) -> None:
        self._restart(replace(self._credentials, token=self.shown[-1]))

    def remove(self) -> None:
        self._restart(replace(self._credentials, token=new_credentials().token))

    def bring_back(self) -> None:
        self.new_token()
        self.revoke()

    def wait_until_refused(self) -> None:
        """At once."""

    def new_certificate(self) -> None:
        self._restart(replace(new_credentials(), token=self._credentials.token))

    def stop(self) -> None:
        self._server.stop()
        self._timers.close()

    def _restart(self, credentials: ServerCredentials) -> None:
        port = urlsplit(self.url).port
        self._server.stop()
        self._credentials = credentials
        self._server = self._start(port or 0)

    def _start(self, port: int) -> ApiServer:
        server = ApiServer(self._store, self._kubelet, self._credentials, self._clock, Entropy(1), port=port)
        server.start()
        return server


class Real(Changing):
    """A real API server. Each token is bound to a secret and goes with it; all of them go with the service account."""

    def __init__(self, plane: ControlPlane, folder: Path) -> None:
        super().__init__(folder)
        self._plane = plane
        namespace = RealCluster(plane).new_namespace()
        (folder / "namespace").write_text(namespace)
        self._core = f"/api/v1/namespaces/{namespace}"
        self._certificates = plane.kubeconfig.parent / "certs"
        self._refused = ""
        self.new_token()
        self.write_ca()

    @property
    def url(self) -> str:
        return self._plane.server

    def authority(self) -> bytes:
        return (self._certificates / "apiserver.crt").read_bytes()

    def new_token(self) -> None:
        name = self._secret(len(self.shown))
        secret = self._plane.request("POST", f"{self._core}/secrets", {"metadata": {"name": name}})
        bound = {"kind": "Secret", "apiVersion": "v1", "name": name, "uid": secret["metadata"]["uid"]}
        asked = {"spec": {"expirationSeconds": 600, "boundObjectRef": bound}}
        answer = self._plane.request("POST", f"{self._core}/serviceaccounts/{ACCOUNT}/token", asked)
        self.shown.append(answer["status"]["token"])
        (self.folder / "token").write_text(self.shown[-1])

    def revoke(self) -> None:
        for number, token in enumerate(self.shown[:-1]):
            self._plane.request("DELETE", f"{self._core}/secrets/{self._secret(number)}")
            self._refused = token

    def remove(self) -> None:
        self._plane.request("DELETE", f"{self._core}/serviceaccounts/{ACCOUNT}")
        self._refused = self.shown[-1]

    def bring_back(self) -> None:
        self._plane.request("POST", f"{self._core}/serviceaccounts", {"metadata": {"name": ACCOUNT}})
        self.new_token()

    def wait_until_refused(self) -> None:
        for _ in range(TRIES):
            try:
                self._plane.request("GET", f"{self._core}/pods", token=self._refused)
            except urllib.error.HTTPError as error:
                error.close()
                if error.code == 401:
                    return
                raise
            threading.Event().wait(0.2)
        raise AssertionError("the server goes on accepting a token that it should refuse")

    def new_certificate(self) -> None:
        """As a certificate manager does it: files replaced. The server watches them."""
        authority = Authority("another")
        pair = authority.sign("kube-apiserver")
        chain = pair.certificate + authority.pem
        (self._certificates / "apiserver.key").write_bytes(pair.key)
        (self._certificates / "apiserver.crt").write_bytes(chain)
        wanted = ssl.PEM_cert_to_DER_cert(pair.certificate.decode())
        host, port = self.server.split(":")
        for _ in range(TRIES):
            if ssl.PEM_cert_to_DER_cert(ssl.get_server_certificate((host, int(port)))) == wanted:
                return
            threading.Event().wait(0.2)
        raise AssertionError("the server goes on with its old certificate")

    @staticmethod
    def _secret(number: int) -> str:
        return f"binds-{number}"


class Client:
    """A client with one access to a server that changes, whose time passes by hand."""

    def __init__(self, changing: Changing, *, kubeconfig: bool = False) -> None:
        self.changing = changing
        self._time = ManualClock()
        self.access = self._load(kubeconfig=kubeconfig)
        self.connect()

    def connect(self) -> None:
        """With a new connection, as after a pause or a cut."""
        api = HttpPodApi(self.access, namespace=self.changing.namespace, request_timeout=LIMIT, max_connections=1)
        self.asking = Asking(api)

    def reconnect(self) -> None:
        """Give up the old connection."""
        self.close()
        self.connect()

    def close(self) -> None:
        self.asking.api.close()

    def wait(self, delay: timedelta) -> None:
        """Until it may read its credential again."""
        self._time.move_to(self._time.elapsed + delay)

    def _load(self, *, kubeconfig: bool) -> Access:
        if kubeconfig:
            return auth.load(self.changing.write_kubeconfig(), clock=self._time)
        host, port = self.changing.server.split(":")
        environ = {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port, "HOME": "/nowhere"}
        return auth.load(environ=environ, account=self.changing.folder, clock=self._time)
