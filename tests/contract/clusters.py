"""The clusters that the contract is held against, behind one interface: what a test does past the `PodApi`."""

from __future__ import annotations

import uuid
from abc import ABC, abstractmethod
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import yaml

from actors import kube
from actors.local.inprocess import InProcessPodApi
from actors.local.kubelet.process_kubelet import ProcessKubelet
from actors.local.server.api_server import ApiServer
from actors.local.server.credentials import new_credentials, write_kubeconfig
from actors.local.store.object_store import ObjectStore
from actors.runtime import Entropy, SystemClock, TimerThread
from tests.contract.accounts import open_account
from tests.contract.control_plane import STRANGERS_TOKEN
from tests.contract.raw import HttpDoor, StoreDoor

if TYPE_CHECKING:
    from pathlib import Path

    from actors.kube import PodApi
    from tests.contract.control_plane import ControlPlane
    from tests.contract.raw import Door

LIMIT = timedelta(seconds=20)
"""Of each call: a machine under load must not fail a test of behaviour."""


class Cluster(ABC):
    """A cluster that tests share; each has a namespace of its own."""

    def new_namespace(self) -> str:
        name = f"contract-{uuid.uuid4().hex[:10]}"
        self.create("namespaces", None, {"metadata": {"name": name}})
        return name

    @abstractmethod
    def connect(self, namespace: str) -> PodApi:
        """A client."""

    def connect_as_admin(self, namespace: str) -> PodApi:
        """A client with every right."""
        return self.connect(namespace)

    @property
    def kubeconfig(self) -> Path:
        """An administrator's, if it speaks HTTP."""
        raise NotImplementedError

    @abstractmethod
    def door(self) -> Door:
        """The way past the `PodApi`."""

    @abstractmethod
    def create(self, resource: str, namespace: str | None, obj: dict[str, Any]) -> None:
        """Make an object of another kind."""

    @abstractmethod
    def set_status(self, resource: str, namespace: str, name: str, status: dict[str, Any]) -> None:
        """Do a controller's or a kubelet's work."""

    def version_outside_the_window(self) -> str:
        """A resourceVersion that the server does not keep the changes after."""
        return "1"

    @abstractmethod
    def bookmark(self) -> None:
        """Have watches sent a bookmark, soon."""

    def allow_pods(self, namespace: str, count: int) -> None:
        """Set a quota."""
        hard = {"pods": str(count)}
        self.create("resourcequotas", namespace, {"metadata": {"name": "q"}, "spec": {"hard": hard}})
        # what the quota controller does
        self.set_status("resourcequotas", namespace, "q", {"hard": hard, "used": {"pods": "0"}})


class StoreCluster(Cluster):
    """The embedded cluster's store, asked by method calls. No kubelet."""

    def __init__(self) -> None:
        self.timers = TimerThread()
        self.clock = SystemClock()
        self.entropy = Entropy(1)
        self.store = ObjectStore(self.clock, self.entropy)

    def connect(self, namespace: str) -> PodApi:
        return InProcessPodApi(self.store, namespace, self.timers)

    def door(self) -> Door:
        return StoreDoor(self.store)

    def create(self, resource: str, namespace: str | None, obj: dict[str, Any]) -> None:
        self.store.create(resource, namespace, obj)

    def set_status(self, resource: str, namespace: str, name: str, status: dict[str, Any]) -> None:
        self.store.patch(resource, namespace, name, {"status": status}, "merge", subresource="status")

    def bookmark(self) -> None:
        self.store.bookmark()

    def version_outside_the_window(self) -> str:
        before = self.store.resource_version
        self.new_namespace()
        self.store.expire()
        return before


class EmbeddedCluster(StoreCluster):
    """The same store behind its HTTP server, asked as any other server is."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        credentials = new_credentials()
        never_started = ProcessKubelet(self.store, self.clock, self.timers, folder / "logs")
        self.server = ApiServer(self.store, never_started, credentials, self.clock, self.entropy)
        self.server.start()
        self._kubeconfig = folder / "kubeconfig"
        write_kubeconfig(self._kubeconfig, self.server.url, credentials, "default")
        self._door = HttpDoor(self._kubeconfig)

    @property
    def kubeconfig(self) -> Path:
        return self._kubeconfig

    def door(self) -> Door:
        return self._door

    def connect(self, namespace: str) -> PodApi:
        return kube.connect(self._kubeconfig, namespace=namespace, request_timeout=LIMIT)

    def connect_as_stranger(self, namespace: str) -> PodApi:
        config = yaml.safe_load(self._kubeconfig.read_text())
        config["users"][0]["user"]["token"] = STRANGERS_TOKEN
        path = self._kubeconfig.with_name("stranger")
        path.write_text(yaml.safe_dump(config))
        return kube.connect(path, namespace=namespace, request_timeout=LIMIT)


class RealCluster(Cluster):
    """A real API server, asked over HTTP, in each namespace as the account of config/rbac.yaml."""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane
        self._accounts: dict[str, Path] = {}
        self._door = HttpDoor(plane.kubeconfig)

    @property
    def kubeconfig(self) -> Path:
        return self._plane.kubeconfig

    def door(self) -> Door:
        return self._door

    def connect_as_admin(self, namespace: str) -> PodApi:
        return kube.connect(self._plane.kubeconfig, namespace=namespace, request_timeout=LIMIT)

    def new_namespace(self) -> str:
        name = super().new_namespace()
        self._accounts[name] = open_account(self._plane, name)
        return name

    def connect(self, namespace: str) -> PodApi:
        """As the namespace's account; as an administrator where there is no such namespace."""
        kubeconfig = self._accounts.get(namespace, self._plane.kubeconfig)
        return kube.connect(kubeconfig, namespace=namespace, request_timeout=LIMIT)

    def bookmark(self) -> None:
        """A real server does that by itself, two seconds before a watch's time is over."""

    def connect_as(self, user: str, namespace: str) -> PodApi:
        return kube.connect(self._plane.kubeconfig, user, namespace, request_timeout=LIMIT)

    def connect_as_stranger(self, namespace: str) -> PodApi:
        return self.connect_as("stranger", namespace)

    def create(self, resource: str, namespace: str | None, obj: dict[str, Any]) -> None:
        within = f"/namespaces/{namespace}" if namespace else ""
        self._plane.request("POST", f"/api/v1{within}/{resource}", obj)

    def set_status(self, resource: str, namespace: str, name: str, status: dict[str, Any]) -> None:
        path = f"/api/v1/namespaces/{namespace}/{resource}/{name}/status"
        self._plane.request("PATCH", path, {"status": status})
