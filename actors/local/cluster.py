"""`LocalCluster`: starts and stops the whole embedded cluster."""

from __future__ import annotations

from contextlib import ExitStack
from signal import SIGKILL
from typing import TYPE_CHECKING, Final, Self

from actors.errors import SettingsError, needs_extra
from actors.kube.auth.private_directory import private_directory
from actors.local.kubelet.delays import Delays
from actors.local.kubelet.process_kubelet import ProcessKubelet
from actors.local.store.object_store import ObjectStore
from actors.pods.pod import ROLE_EXECUTOR, ROLE_LABEL
from actors.runtime import Clock, Entropy, SystemClock, TimerThread

with needs_extra("local", "the embedded cluster"):
    from actors.local.server.api_server import ApiServer
    from actors.local.server.credentials import new_credentials, remove_kubeconfig, write_kubeconfig

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import timedelta
    from pathlib import Path
    from types import TracebackType

__all__ = ["LocalCluster"]

_MAX_PORT: Final = 65_535


class LocalCluster:
    """One node, one API server, one kubeconfig. Its containers are processes of this machine.

    Use it as a context manager, or call `start`, and `stop` in any case.

    Args:
        port: the port of the API server on 127.0.0.1; 0 for any free port.
        kubeconfig: the file to write, removed at the end; by default in a private temporary directory.
        namespace: the namespace of the kubeconfig's context; created if necessary. None: `default`.
        clock: for timestamps.
        entropy: for names, UIDs and the victims of `kill_random`.
        max_pods: the capacity of the node.
        failing_pulls: images that cannot be pulled, by `*` and `?`; see `fail_pulls`.
        lose_node_after: the time until the node is lost; see `lose_node`. None: it is not.
        node_outage: the time until a node lost so is back. None: it does not come back.
        realistic: take the times of a real node: 0.7 to 1.3 s for a start, 1 to 2 s until a pod's end is seen.
            Otherwise both are seen at once.
    """

    def __init__(
        self,
        *,
        port: int = 0,
        kubeconfig: Path | None = None,
        namespace: str | None = None,
        clock: Clock | None = None,
        entropy: Entropy | None = None,
        max_pods: int = 500,
        failing_pulls: Sequence[str] = (),
        lose_node_after: timedelta | None = None,
        node_outage: timedelta | None = None,
        realistic: bool = False,
    ) -> None:
        if not 0 <= port <= _MAX_PORT:
            raise SettingsError(f"port {port}: not a port; allowed: 0 (any free one) to {_MAX_PORT}")
        self._clock = clock or SystemClock()
        entropy = entropy or Entropy()
        self._victims = entropy.fork("victims")
        self._watch_entropy = entropy.fork("watches")
        self._delays = Delays(entropy.fork("delays") if realistic else None)
        self._port = port
        self._kubeconfig_target = kubeconfig
        self._namespace = namespace or "default"
        self._max_pods = max_pods
        self._failing_pulls = tuple(failing_pulls)
        self._lose_node_after = lose_node_after
        self._node_outage = node_outage
        self._running: ExitStack | None = None
        self._kubelet: ProcessKubelet | None = None
        self._kubeconfig: Path | None = None
        self._url = ""
        self.store = ObjectStore(self._clock, entropy.fork("store"))
        """The objects of the cluster, to read and write in process."""

    def start(self) -> Self:
        """Start the namespace, timers, kubelet, server and kubeconfig, in this order. Undo all if a step fails.

        Raises:
            SettingsError: the port or the path is not available.
        """
        if self._running is not None:
            raise RuntimeError("the cluster is already running")
        with ExitStack() as undo:
            directory = private_directory(undo)
            self._create_namespace()
            timers = TimerThread(self._clock)
            undo.callback(timers.close)
            kubelet = ProcessKubelet(
                self.store, self._clock, timers, directory / "logs", max_pods=self._max_pods, delays=self._delays
            )
            kubelet.start()
            undo.callback(kubelet.stop)
            kubelet.fail_pulls(*self._failing_pulls)
            if self._lose_node_after is not None:
                kubelet.plan_loss(self._lose_node_after, self._node_outage)
            credentials = new_credentials()
            server = ApiServer(self.store, kubelet, credentials, self._clock, self._watch_entropy, port=self._port)
            try:
                server.start()
            except OSError as error:
                raise SettingsError(f"port {self._port}: cannot listen on 127.0.0.1: {error.strerror}") from error
            undo.callback(server.stop)
            path = self._kubeconfig_target or directory / "kubeconfig"
            write_kubeconfig(path, server.url, credentials, self._namespace)
            undo.callback(remove_kubeconfig, path, credentials)
            self._kubelet, self._kubeconfig, self._url = kubelet, path, server.url
            self._running = undo.pop_all()
        return self

    def stop(self) -> None:
        """Kill the processes of all pods, and leave no thread, socket, process or file. Idempotent."""
        running, self._running = self._running, None
        if running is not None:
            self._kubelet = self._kubeconfig = None
            running.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def kubeconfig_path(self) -> Path:
        """The kubeconfig, with this cluster as its current context. Only its owner can read it."""
        if self._kubeconfig is None:
            raise RuntimeError("the cluster is not running")
        return self._kubeconfig

    @property
    def namespace(self) -> str:
        """The namespace of the kubeconfig's context."""
        return self._namespace

    @property
    def url(self) -> str:
        """The base URL of the API server."""
        return self._url

    def kill(self, pod_name: str, number: int = SIGKILL, *, namespace: str | None = None) -> bool:
        """Send a signal to a pod's processes, as `kill` in a shell does. False if none is running."""
        if self._kubelet is None:
            return False
        return self._kubelet.kill(namespace or self._namespace, pod_name, number) > 0

    def oom(self, pod_name: str, *, namespace: str | None = None) -> bool:
        """Kill a pod's processes for their memory, as the kernel does: `OOMKilled`. False if none is running.

        Processes of this machine have no memory limit, so none is ever killed so by itself.
        """
        if self._kubelet is None:
            return False
        return self._kubelet.oom(namespace or self._namespace, pod_name) > 0

    def kill_random(self, number: int = SIGKILL) -> str | None:
        """Kill a random running executor of the namespace. Return its pod's name; None if no executor runs."""
        running = self.store.list(
            "pods",
            self._namespace,
            label_selector=f"{ROLE_LABEL}={ROLE_EXECUTOR}",
            field_selector="status.phase=Running",
        )
        names = [pod["metadata"]["name"] for pod in running.items if "deletionTimestamp" not in pod["metadata"]]
        while names:
            name: str = self._victims.choice(names)
            if self.kill(name, number):
                return name
            names.remove(name)  # it has ended since the list
        return None

    def fail_pulls(self, *patterns: str) -> None:
        """Let pulls of these images fail from now on (`"*"`: of all); without patterns, of none.

        No image is really pulled: a pod that starts meanwhile waits with `ErrImagePull`, then `ImagePullBackOff`, and
        tries again after 10 s, 20 s and so on up to 5 min.
        """
        self._running_kubelet().fail_pulls(*patterns)

    def lose_node(self) -> None:
        """Lose the node, as in a power failure, until `restore_node`: every process is killed, nothing is reported.

        Its pods stay `Running`, are no longer ready, and are deleted after the time that they tolerate (5 min by
        default); a deletion does not end. New pods stay unscheduled.
        """
        self._running_kubelet().lose_node()

    def restore_node(self) -> None:
        """Restart a lost node: it reports what ended, finishes deletions and runs new pods."""
        self._running_kubelet().restore_node()

    def _running_kubelet(self) -> ProcessKubelet:
        if self._kubelet is None:
            raise RuntimeError("the cluster is not running")
        return self._kubelet

    def _create_namespace(self) -> None:
        existing = {item["metadata"]["name"] for item in self.store.list("namespaces", None).items}
        if self._namespace not in existing:
            self.store.create("namespaces", None, {"metadata": {"name": self._namespace}})
